//! Attacks on pace: hooks that never settle, alone, in great number, or with another client that answers each of their writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use acceptance::api::{CONFIG_MAP, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{Hook, config_map, text};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Webhook};
use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::attacks::{form, measure};
use crate::wasm::{self, LETTERS};

/// Delay that the hooks ask for, in seconds.
const AT_ONCE: f64 = 1e-9;

/// Throttled reconciles of a controller in a second, by default.
const RATE: f64 = 20.0;

/// Self-triggered reconciles of a parent that follow at once.
const UNTHROTTLED: usize = 10;

/// A webhook whose answer is another one each time: a status, or the data of a child.
async fn ever_new(answer: impl Fn(&Value, usize) -> Value + Send + Sync + 'static) -> Result<Webhook> {
    let calls = AtomicUsize::new(0);
    Webhook::serve(move |asked| {
        Answer::from(answer(&asked.body["parent"], calls.fetch_add(1, Ordering::Relaxed)))
    })
    .await
}

/// A child of the parent with this content.
fn child(parent: &Value, content: usize) -> Value {
    let name = parent["metadata"]["name"].as_str().unwrap_or_default();
    config_map(&format!("{name}-child"), json!({}), json!({ "is": content.to_string() }))
}

fn restless(parent: &Value, call: usize) -> Value {
    json!({ "children": [child(parent, call)], "resyncAfterSeconds": AT_ONCE })
}

async fn host(test: &mut Fixture, hook: &Webhook) -> Result<()> {
    test.define_kind().await?;
    test.serve()?;
    let hook = Hook::webhook(&hook.url("/sync")).version("v1");
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    Ok(())
}

/// Calls of the hook per second over some time, which begins after this many.
async fn calls_per_second(hook: &Webhook, after: usize, window: Duration) -> Result<f64> {
    until("the first calls", PATIENCE, async || {
        let count = hook.count();
        Ok(if count >= after { Ok(()) } else { Err(format!("{count} calls")) })
    })
    .await?;
    let (start, before) = (Instant::now(), hook.count());
    tokio::time::sleep(window).await;
    Ok(count(hook.count() - before) / start.elapsed().as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn count(number: usize) -> f64 {
    number as f64
}

pub(crate) async fn answers_that_are_always_new_are_throttled(test: &mut Fixture) -> Result<()> {
    let metrics = measure::with_metrics(test)?;
    test.server().flag("--self-triggered-max=40");
    let hook = ever_new(restless).await?;
    host(test, &hook).await?;
    let parent = test.create(test.parent("a")).await?;
    // The first ten, and a burst.
    let calls = calls_per_second(&hook, 17, Duration::from_secs(1)).await?;
    test.at_most("calls of the hook, throttled", calls, "per s", RATE * 1.5)?;
    let exhausted = |event: &Value| {
        event["type"] == "Warning" && text(event, "/message").contains("--self-triggered-max")
    };
    test.until_event_on(&parent, "Throttled", exhausted).await?;
    until("the parent throttled in metrics", PATIENCE, async || {
        let throttled = measure::metric(metrics, "metahook_parents_throttled")?;
        Ok(if throttled >= 1.0 { Ok(()) } else { Err(format!("{throttled}")) })
    })
    .await?;
    let window = Duration::from_secs(form(4, 60));
    let writes = measure::writes_per_second(metrics, window).await?;
    test.at_most("writes, with the budget used up", writes, "per s", 0.5)?;
    // A user has the parent reconciled at once.
    let (start, asked) = (Instant::now(), hook.count());
    test.parents().merge("a", &json!({ "spec": { "changed": true } })).await?;
    hook.until_asked_again(1).await?;
    ensure!(hook.count() > asked, "the hook was not called");
    test.at_most("a user's change of such a parent", start.elapsed().as_secs_f64(), "s", 2.0)
}

pub(crate) async fn many_restless_parents_share_a_rate(test: &mut Fixture) -> Result<()> {
    let metrics = measure::with_metrics(test)?;
    let parents = form(50, 10_000);
    // Another status each time.
    let restless = json!({ "children": [], "status": { "letters": LETTERS }, "resyncAfterSeconds": AT_ONCE });
    test.store("bad", &wasm::answers_with_the_time(&restless)?).await?;
    test.store("good", &guest("hello")?).await?;
    test.define_kind().await?;
    test.serve()?;
    let bad = test.controller().of_parents_with("row", "bad").making(&CONFIG_MAP, "InPlace");
    test.host(bad.synced_by(test.hook("bad"))).await?;
    let good = test.controller().renamed(&format!("{}-good", test.name())).of_parents_with("row", "good");
    test.host(good.making(&POD, "Recreate").synced_by(test.hook("good"))).await?;
    converges(test, "first").await?;

    let (all, kind) = (test.parents(), test.kind().clone());
    let names: Vec<_> = (0..parents).map(|nth| format!("bad-{nth}")).collect();
    for some in names.chunks(50) {
        let create = |name: &String| {
            all.create(acceptance::objects::Parent::named(&kind, name).labelled("row", "bad").json())
        };
        try_join_all(some.iter().map(create)).await?;
    }
    // All have had their first ten once the server writes no faster than the rate.
    until("the server writes less often", PATIENCE * form(15, 60), async || {
        let total = measure::metric(metrics, "metahook_writes_total")?;
        let writes = measure::writes_per_second(metrics, Duration::from_secs(1)).await?;
        let ends = total >= count(UNTHROTTLED * parents) && writes <= RATE * 1.5;
        Ok(if ends { Ok(()) } else { Err(format!("{total} writes, {writes} per second")) })
    })
    .await?;
    let writes = measure::writes_per_second(metrics, Duration::from_secs(form(2, 60))).await?;
    test.at_most("writes of all restless parents", writes, "per s", RATE * 1.5)?;
    let start = Instant::now();
    converges(test, "second").await?;
    test.at_most("a neighbour's parent converged", start.elapsed().as_secs_f64(), "s", 5.0)
}

async fn converges(test: &mut Fixture, parent: &str) -> Result<()> {
    test.create(test.parent(parent).labelled("row", "good")).await?;
    test.parents().until(parent, "its Pod counted", |parent| parent["status"]["pods"] == 1).await?;
    Ok(())
}

/// The hook settles after each write, until another client answers with a change of the child.
pub(crate) async fn an_echo_of_another_client_frees_no_hook(test: &mut Fixture) -> Result<()> {
    test.server().flag("--self-triggered-max=20");
    let metrics = measure::with_metrics(test)?;
    let hook = Webhook::serve(|asked| {
        let children = asked.body["children"].as_object().into_iter().flat_map(|kinds| kinds.values());
        let echo = children
            .flat_map(|all| all.as_object().into_iter().flat_map(|all| all.values()))
            .filter_map(|child| child["metadata"]["annotations"]["echo"].as_str()?.parse().ok())
            .max();
        Answer::from(json!({ "children": [child(&asked.body["parent"], echo.unwrap_or(0))] }))
    })
    .await?;
    host(test, &hook).await?;
    test.create(test.parent("a")).await?;
    let children = test.config_maps();
    let written = Arc::new(AtomicUsize::new(0));
    let echoed = Arc::clone(&written);
    let echo = tokio::spawn(async move {
        let mut last = Value::Null;
        loop {
            if let Ok(child) = children.get("a-child").await
                && child["data"]["is"] != last
            {
                last = child["data"]["is"].clone();
                let next = echoed.fetch_add(1, Ordering::Relaxed) + 1;
                let echo = json!({ "metadata": { "annotations": { "echo": next.to_string() } } });
                drop(children.merge("a-child", &echo).await);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    until("twenty writes", PATIENCE, async || {
        let count = written.load(Ordering::Relaxed);
        Ok(if count >= 20 { Ok(()) } else { Err(format!("{count} writes")) })
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let writes = measure::writes_per_second(metrics, Duration::from_secs(form(5, 60))).await?;
    echo.abort();
    test.at_most("writes that another client echoes", writes, "per s", 0.5)
}

/// Each answer has one child more than there are, up to thirty.
pub(crate) async fn a_hook_of_thirty_steps_is_not_held_up(test: &mut Fixture) -> Result<()> {
    const STEPS: usize = 30;
    let hook = Webhook::serve(|asked| {
        let there = asked.body["children"]["ConfigMap.v1"].as_object().map_or(0, serde_json::Map::len);
        let children: Vec<_> = (0..STEPS.min(there + 1))
            .map(|nth| config_map(&format!("step-{nth}"), json!({}), json!({})))
            .collect();
        Answer::from(json!({ "children": children, "status": { "steps": there } }))
    })
    .await?;
    host(test, &hook).await?;
    let start = Instant::now();
    test.create(test.parent("a")).await?;
    test.parents().until("a", "all steps", |parent| parent["status"]["steps"] == STEPS).await?;
    test.at_most("thirty steps", start.elapsed().as_secs_f64(), "s", 30.0)?;
    // The first ten follow at once: what the others take longer than the longest of them is waiting.
    let asked = hook.asked();
    let gaps: Vec<_> = asked.windows(2).map(|two| two[1].at - two[0].at).collect();
    let (first, others) = gaps.split_at(UNTHROTTLED.min(gaps.len()));
    let longest = first.iter().max().copied().unwrap_or_default();
    let waited: Duration = others.iter().map(|gap| gap.saturating_sub(longest)).sum();
    test.at_most("waiting between the calls of thirty steps", waited.as_secs_f64(), "s", 2.0)
}

pub(crate) async fn a_hook_that_fails_backs_off_whatever_it_asks_for(test: &mut Fixture) -> Result<()> {
    // The API server refuses the second child for its name.
    let hook = ever_new(|parent, call| {
        let bad = config_map("No Name", json!({}), json!({}));
        json!({ "children": [child(parent, call), bad], "resyncAfterSeconds": AT_ONCE })
    })
    .await?;
    host(test, &hook).await?;
    let parent = test.create(test.parent("a")).await?;
    test.until_event_on(&parent, "SyncError", |_| true).await?;
    // 5 ms, doubled each time: the tenth comes after five seconds.
    let calls = calls_per_second(&hook, 8, Duration::from_secs(form(4, 60))).await?;
    test.at_most("calls of a hook that fails", calls, "per s", 1.5)
}
