//! A hook is asked when something changed, and a hook that cannot be relied on is asked each time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use acceptance::api::{CONFIG_MAP, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::free_port::free_address;
use acceptance::objects::{Hook, config_map, has_condition, text};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wasm::{self, LETTERS};

/// Self-triggered reconciles of a parent, where a test says so.
const BUDGET: usize = 20;

/// A controller that looks at its parents each second, and its one parent `a`.
async fn looks_each_second(test: &mut Fixture, module: &[u8]) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", module).await?;
    test.serve()?;
    let hook = test.hook("hook");
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").resyncing_each_second().synced_by(hook);
    test.host(controller).await?;
    test.create(test.parent("a")).await?;
    Ok(())
}

fn count(log: &str, message: &str) -> usize {
    log.lines().filter(|line| line.contains(&format!("\"{message}\""))).count()
}

pub(crate) async fn a_parent_without_changes_costs_no_hook_call(test: &mut Fixture) -> Result<()> {
    let child = config_map("child", json!({}), json!({ "is": "here" }));
    looks_each_second(test, &wasm::answers(&json!({ "children": [child] }))?).await?;
    let settled =
        |cc: &Value| cc["status"]["settled"] == 1 && has_condition(cc, "Pure", "True", "RequestsAlone");
    let cc = test.until_controller("one settled parent", settled).await?;
    ensure!(cc["status"]["hooks"]["sync"]["pure"] == true, "{}", cc["status"]);

    let before = test.server().until_log("settled", |log| count(log, "settled") > 0).await?;
    let after = count(&before, "settled") + 3;
    let log = test.server().until_log("settled again", |log| count(log, "settled") >= after).await?;
    ensure!(count(&log, "synced") == count(&before, "synced"), "the hook was called though nothing changed");

    let spoil = json!({ "data": { "is": "spoilt" } });
    test.config_maps().merge("child", &spoil).await?;
    test.config_maps().until("child", "put right", |child| text(child, "/data/is") == "here").await?;
    Ok(())
}

pub(crate) async fn a_status_waits_for_new_children_to_be_seen_and_is_written_once(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &guest("hello")?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    test.create(test.parent("a")).await?;
    let settled = |cc: &Value| cc["status"]["settled"] == 1;
    test.until_controller("one settled parent", settled).await?;
    ensure!(test.parents().get("a").await?["status"]["pods"] == 1, "its Pod is not counted");
    let log = test.server().until_log("both writes", |log| log.contains(r#""op":"status""#)).await?;
    let written = |op: &str| log.lines().filter(|line| line.contains(&format!(r#""op":"{op}""#))).count();
    ensure!((written("create"), written("status")) == (1, 1), "{log}");
    Ok(())
}

pub(crate) async fn calls_made_and_skipped_are_metrics(test: &mut Fixture) -> Result<()> {
    let address = free_address()?;
    test.server().flag(&format!("--metrics-address={address}"));
    let child = config_map("child", json!({}), json!({ "is": "here" }));
    looks_each_second(test, &wasm::answers(&json!({ "children": [child] }))?).await?;
    let labels = format!(r#"controller_name="{}",controller_type="CompositeController""#, test.name());
    let wanted = [
        format!(r#"metahook_hook_calls_total{{{labels},result="ok"}}"#),
        format!(r#"metahook_reconcile_total{{{labels},result="settled"}}"#),
        format!(r#"metahook_writes_total{{{labels},operation="create"}} 1"#),
        format!("metahook_parents_settled{{{labels}}} 1"),
        format!("metahook_hook_call_duration_seconds_count{{{labels}}}"),
        "metahook_module_compilations_total 1".to_owned(),
    ];
    let all = |text: &str| wanted.iter().all(|line| text.contains(line));
    until("all metrics", PATIENCE, async || {
        let told = scrape(address).await.unwrap_or_default();
        Ok(if all(&told) { Ok(()) } else { Err(told) })
    })
    .await
}

/// The text of a scrape, without the head of the answer.
pub(crate) async fn scrape_text(address: SocketAddr) -> Result<String> {
    let answer = scrape(address).await?;
    Ok(answer.split_once("\r\n\r\n").context("no head")?.1.to_owned())
}

pub(crate) async fn scrape(address: SocketAddr) -> Result<String> {
    get(address, "/metrics").await
}

/// The whole answer to a GET.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

pub(crate) async fn a_hook_that_gives_two_answers_is_named_and_called_each_time(
    test: &mut Fixture,
) -> Result<()> {
    test.server().flag("--purity-check=1");
    test.server().flag("--seed-each-call");
    looks_each_second(
        test,
        &wasm::answers_with_letters(&json!({ "children": [], "not looked at": LETTERS }))?,
    )
    .await?;
    let differs =
        |cc: &Value| has_condition(cc, "Pure", "False", "AnswersDiffer") && cc["status"]["settled"] == 0;
    test.until_controller("Pure=False: AnswersDiffer", differs).await?;
    test.until_controller_event("ImpureHook", |event| event["type"] == "Warning").await?;
    let before = test.server().until_log("called", |log| count(log, "synced") > 0).await?;
    let after = count(&before, "synced") + 2;
    let log = test.server().until_log("called again", |log| count(log, "synced") >= after).await?;
    ensure!(count(&log, "settled") == count(&before, "settled"), "an impure hook was not called");

    test.store("hook", &wasm::answers(&json!({ "children": [] }))?).await?;
    let pure =
        |cc: &Value| has_condition(cc, "Pure", "True", "RequestsAlone") && cc["status"]["settled"] == 1;
    test.until_controller("a pure hook in its place", pure).await?;
    Ok(())
}

pub(crate) async fn a_hook_that_asks_for_the_time_is_named_and_called_each_time(
    test: &mut Fixture,
) -> Result<()> {
    looks_each_second(test, &wasm::asks_for_the_time()?).await?;
    let impure = |cc: &Value| {
        has_condition(cc, "Pure", "False", "ReadsClock")
            && cc["status"]["settled"] == 0
            && cc["status"]["hooks"]["sync"]["pure"] == false
    };
    test.until_controller("Pure=False: ReadsClock", impure).await?;
    let log = test.server().until_log("called again and again", |log| count(log, "synced") > 3).await?;
    ensure!(count(&log, "settled") == 0, "a parent was taken for settled");
    Ok(())
}

pub(crate) async fn a_hook_whose_status_never_settles_is_throttled(test: &mut Fixture) -> Result<()> {
    let calls = AtomicUsize::new(0);
    let hook = Webhook::serve(move |_| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        Answer::from(json!({ "children": [], "status": { "call": call } }))
    })
    .await?;
    test.define_kind().await?;
    test.server().flag(&format!("--self-triggered-max={BUDGET}"));
    test.serve()?;
    let webhook = Hook::webhook(&hook.url("/sync")).version("v1");
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").resyncing_each_second();
    test.host(controller.synced_by(webhook)).await?;
    test.create(test.parent("a")).await?;
    // Longer than the period: the passes in between were left out.
    let pause = Duration::from_millis(1500);
    let gaps = || hook.asked().windows(2).map(|two| two[1].at - two[0].at).collect::<Vec<_>>();
    until("a pause between two calls", PATIENCE, async || {
        let gaps = gaps();
        Ok(if gaps.iter().any(|gap| *gap >= pause) { Ok(()) } else { Err(format!("{gaps:?}")) })
    })
    .await?;
    // The budget, and the parent's creation.
    let before = gaps().iter().take_while(|gap| **gap < pause).count();
    ensure!(before <= BUDGET + 2, "{before} calls before the first pause: {:?}", gaps());

    let asked = hook.count();
    test.parents().merge("a", &json!({ "spec": { "changed": true } })).await?;
    until("ten passes at once", PATIENCE, async || {
        let count = hook.count() - asked;
        Ok(if count >= 10 { Ok(()) } else { Err(format!("{count} calls")) })
    })
    .await
}

/// A write of one of the controllers is no reason for the others to go on at once.
pub(crate) async fn controllers_that_never_settle_on_one_object_are_throttled(
    test: &mut Fixture,
) -> Result<()> {
    let calls = AtomicUsize::new(0);
    let hook = Webhook::serve(move |asked| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        let said = json!({ asked.path.trim_start_matches('/'): call.to_string() });
        match asked.path.as_str() {
            "/composite" => json!({ "children": [], "status": said }).into(),
            _ => json!({ "attachments": [], "annotations": said }).into(),
        }
    })
    .await?;
    test.define_kind().await?;
    test.server().flag(&format!("--self-triggered-max={BUDGET}"));
    test.serve()?;
    let (kind, webhook) = (test.kind().clone(), |path: &str| Hook::webhook(&hook.url(path)));
    let composite = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(webhook("/composite"));
    test.host(composite).await?;
    for name in ["one", "two"] {
        let decorator = test.decorator().renamed(&format!("{}-{name}", test.name()));
        let decorator = decorator.decorating(&kind, json!({})).synced_by(webhook(&format!("/{name}")));
        test.host_decorator(decorator).await?;
    }
    test.create(test.parent("a")).await?;
    let pause = Duration::from_millis(1500);
    for path in ["/composite", "/one", "/two"] {
        let gaps = || {
            let at: Vec<_> =
                hook.asked().into_iter().filter(|asked| asked.path == path).map(|asked| asked.at).collect();
            at.windows(2).map(|two| two[1] - two[0]).collect::<Vec<_>>()
        };
        until(&format!("a pause between two calls of {path}"), PATIENCE, async || {
            let gaps = gaps();
            Ok(if gaps.iter().any(|gap| *gap >= pause) { Ok(()) } else { Err(format!("{gaps:?}")) })
        })
        .await?;
        // As one alone, and what failed because one of the two others was faster: as often as those write.
        let before = gaps().iter().take_while(|gap| **gap < pause).count();
        ensure!(before <= 3 * BUDGET, "{before} calls of {path} before the first pause: {:?}", gaps());
    }
    Ok(())
}

pub(crate) async fn a_restarted_server_gives_hooks_the_same_random_numbers(test: &mut Fixture) -> Result<()> {
    let answer = json!({ "children": [], "status": { "letters": LETTERS } });
    looks_each_second(test, &wasm::answers_with_letters(&answer)?).await?;
    test.create(test.parent("b")).await?;
    let letters = |parent: &Value| text(parent, "/status/letters").to_owned();
    let told = |parent: &Value| !letters(parent).is_empty();
    let first = test.parents().until("a", "its letters", told).await?;
    let other = test.parents().until("b", "its letters", told).await?;
    ensure!(letters(&first) != letters(&other), "the same for two parents: {first}");
    let secrets = test.within_default(&acceptance::api::SECRET);
    let made = secrets.until("metahook-seed", "made", |_| true).await?;
    ensure!(made["immutable"] == true && text(&made, "/data/seed").len() == 44, "{made}");
    test.server().stop().await?;
    let before = test.server().until_log("passes", |log| count(log, "synced") > 0).await?;
    test.server().start()?;
    let called = count(&before, "synced") + 2;
    test.server().until_log("both called anew", |log| count(log, "synced") >= called).await?;
    for (parent, before) in [("a", first), ("b", other)] {
        let now = test.parents().get(parent).await?;
        ensure!(letters(&now) == letters(&before), "{parent} got others: {now}");
    }
    Ok(())
}
