//! Section 2 of the compatibility contract: what hooks are asked, how their answers are read, and what comes of answers
//! that are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{Hook, config_map, has_condition, is_true, text, uid, version};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::pages::symptoms;
use crate::settling::scrape;
use crate::wasm;

/// A good answer: one child that is named like its parent.
fn good(asked: &Asked, number: u32) -> Value {
    let child = config_map(parent(asked), json!({}), json!({ "number": number.to_string() }));
    json!({ "status": { "number": number }, "children": [child] })
}

fn parent(asked: &Asked) -> &str {
    text(&asked.body, "/parent/metadata/name")
}

fn webhook(hook: &Webhook, version: &str) -> Hook {
    Hook::webhook(&hook.url("/sync")).version(version)
}

/// A controller of `ConfigMap`s with this hook, and its one parent `a`.
async fn synced_by(test: &mut Fixture, hook: Hook) -> Result<()> {
    test.define_kind().await?;
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    test.create(test.parent("a")).await?;
    Ok(())
}

pub(crate) async fn a_webhook_is_asked_as_its_version_says_and_finalizes(test: &mut Fixture) -> Result<()> {
    let hook = Webhook::serve(|asked| {
        let finalizing = asked.body["finalizing"] == true;
        let mut answer = if finalizing { json!({ "children": [] }) } else { good(asked, 1) };
        answer["finalized"] = json!(finalizing);
        answer.into()
    })
    .await?;
    test.define_kind().await?;
    test.serve()?;
    // A finalizer's name may not be longer than 63 characters.
    let name: String = test.name().rsplit('-').take(2).collect::<Vec<_>>().join("-");
    let name = format!("asks-{name}");
    // `<name>.<namespace>` is a name in the cluster's DNS; here it is an address.
    let port = hook.address().port();
    let service = json!({ "name": "127.0", "namespace": "0.1", "port": port });
    let sync = Hook::webhook("").with("url", Value::Null).with("service", service).with("path", "/sync?x=y");
    let finalize = Hook::webhook(&hook.url("/finalize")).version("v2").with("timeout", "60s");
    let controller = test.controller().renamed(&name).making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(sync).finalized_by(finalize)).await?;
    test.create(test.parent("a")).await?;

    let own = format!("{}/a", test.name());
    let full = |asked: &Asked| !asked.body["children"]["ConfigMap.v1"]["a"].is_null();
    let sync =
        hook.until_asked("v1, with the child", |asked| asked.path == "/sync?x=y" && full(asked)).await?;
    ensure!(sync.method == "POST" && sync.headers["content-type"] == "application/json", "{sync:?}");
    ensure!(sync.headers["content-length"] == sync.bytes.len().to_string(), "{:?}", sync.headers);
    for header in ["accept", "transfer-encoding", "authorization", "if-none-match"] {
        ensure!(!sync.headers.contains_key(header), "{header} is there: {:?}", sync.headers);
    }
    let keys: Vec<_> = sync.body.as_object().context("no object")?.keys().collect();
    ensure!(keys == ["children", "controller", "finalizing", "parent", "related"], "{keys:?}");
    ensure!(sync.body["finalizing"] == false && sync.body["related"] == json!({}), "{}", sync.body);
    ensure!(sync.body["parent"]["spec"] == json!({}), "{}", sync.body["parent"]);
    let controller = &sync.body["controller"];
    ensure!(controller["status"] == json!({}) && controller["kind"] == "CompositeController", "{controller}");
    ensure!(controller["apiVersion"] == "metacontroller.k8s.io/v1alpha1", "{controller}");
    let rule = &controller["spec"]["childResources"][0];
    ensure!(rule["updateStrategy"] == json!({ "method": "InPlace", "statusChecks": {} }), "{rule}");
    let hooks = &controller["spec"]["hooks"];
    ensure!(hooks["sync"]["version"] == "v1" && hooks["finalize"]["webhook"]["timeout"] == "1m0s", "{hooks}");

    test.parents().delete("a").await?;
    test.parents().until_gone("a").await?;
    let finalize = hook.until_asked("v2, to finalize", |asked| asked.path == "/finalize").await?;
    ensure!(finalize.body["finalizing"] == true, "{}", finalize.body);
    ensure!(!finalize.body["parent"]["metadata"]["deletionTimestamp"].is_null(), "{}", finalize.body);
    let group = &finalize.body["children"]["ConfigMap.v1"];
    ensure!(group.get("a").is_none() && group[&own]["metadata"]["name"] == "a", "{group}");
    Ok(())
}

/// Answers that are none, and what the Event says of them.
fn bad() -> Vec<(Answer, &'static str)> {
    let json = |text: &'static str| Answer::text(text);
    vec![
        (json(""), "empty body"),
        (json("Hello, World!"), "is not JSON: expected value at line 1 column 1"),
        (json(r#"{"children":["#), "is not JSON: EOF while parsing a list"),
        (json(r#"{"children":[]}{"children":[]}"#), "is not JSON: trailing characters at line 1 column 16"),
        (json("[]"), "the answer must be an object, not a list"),
        (json(r#"{"children":{}}"#), "children must be a list, not an object"),
        (json(r#"{"children":[null]}"#), "children[0] must be an object, not null"),
        (
            json(r#"{"children":[{"apiVersion":"v1"}]}"#),
            "children[0].kind must be a string that is not empty",
        ),
        (json(r#"{"children":[{"kind":"ConfigMap"}]}"#), "children[0].apiVersion must be a string"),
        (
            json(r#"{"children":[{"apiVersion":"v1","kind":"ConfigMap"}]}"#),
            "children[0].metadata must be an object",
        ),
        (
            json(
                r#"{"children":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":1}}}]}"#,
            ),
            "children[0].metadata.labels must be an object of strings",
        ),
        (json(r#"{"children":[],"status":[]}"#), "status must be an object, not a list"),
        (
            json(r#"{"children":[],"resyncAfterSeconds":"1"}"#),
            "resyncAfterSeconds must be a number, not a string",
        ),
        (json(r#"{"children":[],"finalized":"true"}"#), "finalized must be true or false, not a string"),
        (json(r#"{"children":[],"childern":[]}"#), "has the unknown field childern"),
        (json(r#"{"children":[],"children":[]}"#), "has the field children more than once"),
        (json(r#"{"children":[],"status":{"a":{"b":1,"b":2}}}"#), "has the field status.a.b more than once"),
        (
            json(r#"{"children":[],"events":[{"reason":"R","type":"Bad"}]}"#),
            "events[0].type must be Normal or Warning",
        ),
        (json(r#"{"children":[]}"#).with_status(201), "unsupported status code: 201 body: {\"children\":[]}"),
        (Answer::status(204), "unsupported status code: 204 body: "),
        (json(r#"{"children":[]}"#).with_status(304), "unsupported status code: 304 body: "),
        (Answer::status(307).with_header("location", "/elsewhere"), "it redirects more than 10 times"),
        (Answer::text("it broke").with_status(500), "unsupported status code: 500 body: it broke"),
        (Answer::text("later").with_status(503), "unsupported status code: 503 body: later"),
    ]
}

/// One parent for each bad answer: first all is well, then each of them is answered badly, then all is well again.
pub(crate) async fn every_invalid_answer_says_why_and_changes_nothing(test: &mut Fixture) -> Result<()> {
    let hook = Webhook::serve(|asked| good(asked, 1).into()).await?;
    let address = free_address()?;
    test.server().flag(&format!("--metrics-address={address}"));
    test.define_kind().await?;
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(webhook(&hook, "v2"))).await?;
    let rows = bad();
    for row in 0..rows.len() {
        test.create(test.parent(&format!("p{row}"))).await?;
    }
    let all_are =
        |number: u32| move |all: &[Value]| all.iter().all(|parent| parent["status"]["number"] == number);
    test.parents().until_all("their status", all_are(1)).await?;
    let children = test.config_maps().until_all("a child each", |all| all.len() >= rows.len()).await?;

    let answers = bad();
    hook.program(move |asked| {
        let row = parent(asked).strip_prefix('p').and_then(|row| row.parse::<usize>().ok());
        row.and_then(|row| answers.get(row)).map_or(Answer::status(404), |(answer, _)| answer.clone())
    });
    for (row, (_, says)) in rows.iter().enumerate() {
        let name = format!("p{row}");
        test.parents().merge(&name, &json!({ "spec": { "who": "touched" } })).await?;
        let why = |event: &Value| {
            let message = text(event, "/message");
            message.starts_with("Sync error: sync hook: ")
                && message.contains(says)
                && event["type"] == "Warning"
        };
        test.until_event(&name, "SyncError", why).await.with_context(|| (*says).to_owned())?;
    }
    let failing = |cc: &Value| {
        has_condition(cc, "Ready", "False", "AllParentsFailing") && cc["status"]["failing"] == rows.len()
    };
    test.until_controller("all parents failing", failing).await?;
    let after = test.config_maps().list().await?;
    ensure!(after.len() == children.len(), "{} children, of {}", after.len(), children.len());
    for (before, after) in children.iter().zip(&after) {
        ensure!(version(before) == version(after), "a child was written: {after}");
    }
    let parents = test.parents().list().await?;
    ensure!(all_are(1)(&parents), "a status was written: {parents:?}");
    metrics(test, &hook, address).await?;

    hook.program(|asked| good(asked, 2).into());
    for row in 0..rows.len() {
        test.parents().merge(&format!("p{row}"), &json!({ "spec": { "who": "again" } })).await?;
    }
    test.parents().until_all("their next status", all_are(2)).await?;
    test.until_controller("no parent failing", |cc| cc["status"]["failing"] == 0).await?;
    Ok(())
}

async fn metrics(test: &Fixture, hook: &Webhook, address: std::net::SocketAddr) -> Result<()> {
    let controller = format!(r#"controller_name="{}",controller_type="CompositeController""#, test.name());
    let labels = format!(r#"{controller},url="{}""#, hook.url("/sync"));
    let wanted = [
        format!(r#"metahook_hook_calls_total{{{controller},result="HookStatus"}}"#),
        format!(r#"metahook_reconcile_total{{{controller},result="failed"}}"#),
        format!(r#"metacontroller_sync_requests_total{{{labels},code="200",method="post"}}"#),
        format!(r#"metacontroller_sync_requests_total{{{labels},code="500",method="post"}}"#),
        format!(
            r#"metacontroller_sync_request_duration_histogram_seconds_bucket{{le="0.005",{labels},method="post"}}"#
        ),
        format!(r"metacontroller_sync_in_flight_requests{{{labels}}}"),
    ];
    until("all metrics", PATIENCE, async || {
        let told = scrape(address).await?;
        Ok(if wanted.iter().all(|line| told.contains(line)) { Ok(()) } else { Err(told) })
    })
    .await
}

pub(crate) async fn a_webhook_read_loosely_may_say_more_than_is_known(test: &mut Fixture) -> Result<()> {
    let hook = Webhook::serve(|asked| {
        let child = config_map("child", json!({}), json!({ "of": parent(asked) }));
        // The last of two alike counts, as does the last of two fields.
        let first = config_map("child", json!({}), json!({ "of": "none" }));
        let odd = r#""status":{"n":1},"more":{},"events":"party","status":{"n":2}"#;
        Answer::text(format!(r#"{{"children":[{first},{child}],{odd}}}"#))
    })
    .await?;
    // Version 2 reads strictly unless the webhook says otherwise.
    synced_by(test, webhook(&hook, "v2").with("responseUnMarshallMode", "loose")).await?;
    test.config_maps().until("child", "the last one", |child| child["data"]["of"] == "a").await?;
    test.parents().until("a", "the last status", |parent| parent["status"]["n"] == 2).await?;
    let told = "the hook's answer has the field status more than once";
    test.server().until_log("what is odd is told", |log| log.contains(told)).await?;
    Ok(())
}

pub(crate) async fn a_busy_webhook_is_asked_again_when_it_says_without_an_event(
    test: &mut Fixture,
) -> Result<()> {
    let answers = [
        Answer::status(429),
        Answer::status(429).with_header("retry-after", "0"),
        Answer::status(429).with_header("retry-after", "3"),
        Answer::status(503).with_header("retry-after", "2"),
    ];
    let count = std::sync::atomic::AtomicUsize::new(0);
    let hook = Webhook::serve(move |asked| {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        answers.get(nth).cloned().unwrap_or_else(|| good(asked, 1).into())
    })
    .await?;
    synced_by(test, webhook(&hook, "v1")).await?;
    test.parents().until("a", "its status", |parent| parent["status"]["number"] == 1).await?;
    let asked = hook.asked();
    for (nth, least) in [1, 1, 3, 2].into_iter().enumerate() {
        let (first, second) = (asked.get(nth).context("too few")?, asked.get(nth + 1).context("too few")?);
        let waited = second.at - first.at;
        // The clock of a waiting queue is a little coarse.
        ensure!(waited + Duration::from_millis(50) > Duration::from_secs(least), "{nth}: after {waited:?}");
    }
    let fields = "involvedObject.name=a,reason=SyncError";
    let events = test.within(&acceptance::api::EVENT).list_where(fields).await?;
    ensure!(events.is_empty(), "it was told: {events:?}");
    Ok(())
}

pub(crate) async fn a_webhook_that_is_slow_or_gone_says_so_and_heals(test: &mut Fixture) -> Result<()> {
    let slow = Arc::new(AtomicBool::new(true));
    let now = Arc::clone(&slow);
    let hook = Webhook::serve(move |asked| {
        let delay = if now.load(Ordering::Relaxed) { Duration::from_mins(1) } else { Duration::ZERO };
        Answer::from(good(asked, 1)).after(delay)
    })
    .await?;
    synced_by(test, webhook(&hook, "v1").with("timeout", "300ms")).await?;
    let host = hook.address();
    let late =
        format!("Sync error: sync hook: the webhook at {host} did not answer within 0.3s (webhook.timeout)");
    test.until_event("a", "SyncError", |event| event["message"] == late).await?;
    slow.store(false, Ordering::Relaxed);
    test.config_maps().until("a", "made", |_| true).await?;

    // The API server speaks TLS, and the system does not trust the signer of its certificate.
    let kubeconfig = std::fs::read_to_string(test.plane().kubeconfig())?;
    let (_, server) = kubeconfig.split_once("https://").context("no API server")?;
    let address: String =
        server.chars().take_while(|c| c.is_ascii_alphanumeric() || ".:".contains(*c)).collect();
    let strangers = format!("https://{address}/sync");
    let url = json!({ "spec": { "hooks": { "sync": { "webhook": { "url": strangers } } } } });
    test.controllers().merge(test.name(), &url).await?;
    let stranger =
        |event: &Value| text(event, "/message").contains("is signed by no authority that is trusted");
    test.until_event("a", "SyncError", stranger).await?;
    let url = json!({ "spec": { "hooks": { "sync": { "webhook": { "url": hook.url("/sync") } } } } });
    let asked = hook.count();
    test.controllers().merge(test.name(), &url).await?;
    until("it is asked again", PATIENCE, async || {
        Ok(if hook.count() > asked { Ok(()) } else { Err(String::new()) })
    })
    .await?;

    drop(hook);
    test.parents().merge("a", &json!({ "spec": { "who": "touched" } })).await?;
    let gone = format!("Sync error: sync hook: the webhook at {host} cannot be reached: ");
    test.until_event("a", "SyncError", |event| text(event, "/message").starts_with(&gone)).await?;
    symptoms::is_shown(test, "cannot be reached", &symptoms::parent(test, "a")).await
}

/// Whom the system trusts says, as to most programs, the file that `SSL_CERT_FILE` names.
pub(crate) async fn a_webhook_over_https_is_asked_if_the_system_trusts_who_signed_for_it(
    test: &mut Fixture,
) -> Result<()> {
    let authority = test.plane().scratch().join(format!("{}.pem", test.name()));
    let hook = Webhook::serve_tls(&authority, |asked| good(asked, 1).into()).await?;
    synced_by(test, webhook(&hook, "v1")).await?;
    let stranger = |event: &Value| {
        text(event, "/message").contains("its certificate is signed by no authority that is trusted")
    };
    test.until_event("a", "SyncError", stranger).await?;
    ensure!(hook.count() == 0, "asked without trust: {:?}", hook.asked());

    test.server().stop().await?;
    test.server().variable("SSL_CERT_FILE", &authority.display().to_string());
    test.server().start()?;
    test.config_maps().until("a", "made", |child| child["data"]["number"] == "1").await?;
    test.parents().until("a", "its status", |parent| parent["status"]["number"] == 1).await?;
    Ok(())
}

pub(crate) async fn a_module_and_a_webhook_serve_one_controller(test: &mut Fixture) -> Result<()> {
    let hook = Webhook::serve(|asked| {
        // The children go before their parent does.
        let gone = asked.body["children"]["ConfigMap.v1"] == json!({});
        json!({ "children": [], "finalized": gone }).into()
    })
    .await?;
    test.define_kind().await?;
    let child = config_map("child", json!({}), json!({ "is": "here" }));
    test.store("hook", &wasm::answers(&json!({ "children": [child] }))?).await?;
    test.serve()?;
    let name: String = test.name().rsplit('-').take(2).collect::<Vec<_>>().join("-");
    let name = format!("both-{name}");
    let controller = test.controller().renamed(&name).making(&CONFIG_MAP, "InPlace");
    let controller = controller.synced_by(test.hook("hook")).finalized_by(webhook(&hook, "v2"));
    test.host(controller).await?;
    test.create(test.parent("a")).await?;
    test.config_maps().until("child", "made", |_| true).await?;
    let settled = |cc: &Value| cc["status"]["settled"] == 1 && is_true(cc, "ModulesLoaded");
    test.controllers().until(&name, "one settled parent", settled).await?;
    ensure!(hook.count() == 0, "the finalize hook was called: {:?}", hook.asked());

    test.parents().delete("a").await?;
    test.parents().until_gone("a").await?;
    test.config_maps().until_gone("child").await?;
    let asked = hook.asked();
    ensure!(asked.len() >= 2 && asked.iter().all(|asked| asked.body["finalizing"] == true), "{asked:?}");
    Ok(())
}

pub(crate) async fn what_a_hook_says_of_its_parent_becomes_an_event(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let events = json!([
        { "type": "Warning", "reason": "LowOnPaint", "message": "two buckets are left" },
        { "reason": "Painted", "message": "three walls" },
        { "reason": "Painted", "message": "three walls" },
    ]);
    test.store("hook", &wasm::answers(&json!({ "children": [], "events": events }))?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    test.create(test.parent("a")).await?;
    let low = |event: &Value| event["type"] == "Warning" && event["message"] == "two buckets are left";
    let event = test.until_event("a", "LowOnPaint", low).await?;
    ensure!(text(&event, "/source/component") == "metacontroller", "from {}", event["source"]);
    let painted = |event: &Value| event["type"] == "Normal" && event["message"] == "three walls";
    test.until_event("a", "Painted", painted).await?;
    Ok(())
}

pub(crate) async fn an_answer_without_children_deletes_them_for_a_webhook_only(
    test: &mut Fixture,
) -> Result<()> {
    let two = |asked: &Asked| {
        let child = |name: &str| config_map(name, json!({}), json!({ "of": parent(asked) }));
        json!({ "children": [child("one"), child("two")] })
    };
    let hook = Webhook::serve(move |asked| two(asked).into()).await?;
    synced_by(test, webhook(&hook, "v1")).await?;
    let one = test.config_maps().until("one", "made", |_| true).await?;
    test.config_maps().until("two", "made", |_| true).await?;
    hook.answer(json!({ "status": {} }));
    test.parents().merge("a", &json!({ "spec": { "who": "touched" } })).await?;
    test.config_maps().until_gone("one").await?;
    test.config_maps().until_gone("two").await?;
    let warns = |event: &Value| {
        text(event, "/message").contains("has no list of children, so all 2 of them are deleted")
    };
    test.until_event("a", "MissingChildren", warns).await?;

    hook.program(move |asked| two(asked).into());
    test.parents().merge("a", &json!({ "spec": { "who": "again" } })).await?;
    let made = test.config_maps().until("one", "made anew", |child| uid(child) != uid(&one)).await?;
    test.store("hook", &wasm::answers(&json!({ "status": {} }))?).await?;
    let merge = json!({ "spec": { "hooks": { "sync": { "webhook": null, "wasm": {
        "configMap": { "namespace": test.name(), "name": "hook" } } } } } });
    test.controllers().merge(test.name(), &merge).await?;
    let refuses = |event: &Value| text(event, "/message").contains("the hook's answer has no field children");
    test.until_event("a", "SyncError", refuses).await?;
    let still = test.config_maps().get("one").await?;
    ensure!(version(&still) == version(&made), "the child was written: {still}");
    Ok(())
}
