//! Cases of hooks that never settle.

use std::sync::atomic::{AtomicUsize, Ordering};

use acceptance::api::{CONFIG_MAP, EVENT};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, text, uid};
use acceptance::webhook::Webhook;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::kit::{IN_PLACE, PARENT, config, worlds};

use crate::pages::symptoms;

/// C21: a hook that writes the time, for many parents, and a controller beside it.
pub(crate) async fn c21_a_hook_that_writes_the_time_slows_down_itself_alone(
    test: &mut Fixture,
) -> Result<()> {
    // A webhook: its server does not know that it reads the clock, and its parents are held back once their budget is used up.
    test.server().flag("--self-triggered-max=20");
    let worlds = worlds(test, &[IN_PLACE[0], IN_PLACE[0]], &[&CONFIG_MAP]).await?;
    let (clock, beside) = (&worlds[0], &worlds[1]);
    let calls = AtomicUsize::new(0);
    let tells_time = Webhook::serve(move |_| {
        let time = calls.fetch_add(1, Ordering::Relaxed);
        json!({ "status": { "time": time }, "children": [] }).into()
    })
    .await?;
    clock.is_synced_by(test, Hook::webhook(&tells_time.url("/sync")).version("v2")).await?;
    let mut uids = Vec::new();
    for number in 0..20 {
        uids.push(uid(&clock.another_parent(test, &format!("p{number}"), json!({})).await?).to_owned());
    }
    let events = clock.objects(test, &EVENT);
    for (number, uid) in uids.iter().enumerate() {
        let fields = format!("involvedObject.uid={uid},reason=Throttled");
        events
            .until_some(&fields, "the field named", |event| text(event, "/message").contains("status.time"))
            .await?;
        let number = number.to_string();
        let round = config("round", &json!({ "is": number }));
        beside.answers(test, json!([round])).await?;
        let served = |it: &Value| it["data"]["is"] == number;
        beside.objects(test, &CONFIG_MAP).until("round", "served meanwhile", served).await?;
    }
    let parent = symptoms::parent_in(test, &clock.namespace, "p0");
    symptoms::is_shown(test, "What changes each time is", &parent).await?;
    let of_parent = |log: &str, name: &str| {
        let named = format!(r#""parent":"{}/{name}""#, clock.namespace);
        log.lines().filter(|line| line.contains(&named) && line.contains(r#""message":"written""#)).count()
    };
    let before = test.server().until_log("its log", |_| true).await?;
    let next = |log: &str| of_parent(log, "p0") >= of_parent(&before, "p0") + 2;
    let after = test.server().until_log("two more writes of one parent", next).await?;
    for number in 0..uids.len() {
        let name = format!("p{number}");
        let more = of_parent(&after, &name) - of_parent(&before, &name);
        ensure!(more <= 4, "{name} was written {more} times while another one was twice");
    }
    Ok(())
}

/// C21: a webhook that counts in the status, within the default limits.
pub(crate) async fn c21_a_field_that_changes_each_time_is_named(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &IN_PLACE[..1], &[&CONFIG_MAP]).await?;
    let world = &worlds[0];
    world.another_parent(test, PARENT, json!({})).await?;
    let calls = AtomicUsize::new(0);
    let counts = Webhook::serve(move |_| {
        let number = calls.fetch_add(1, Ordering::Relaxed);
        json!({ "status": { "steady": 1, "number": number }, "children": [] }).into()
    })
    .await?;
    world.is_synced_by(test, Hook::webhook(&counts.url("/sync")).version("v2")).await?;
    let named = |event: &Value| text(event, "/message").contains("each of the last 5 changed status.number");
    world.until_event(test, "ChangesEachTime", named).await?;
    let parent = symptoms::parent_in(test, &world.namespace, PARENT);
    symptoms::is_shown(test, "ChangesEachTime", &parent).await
}

/// C21: a script that notes when it was called in an annotation of a child.
pub(crate) async fn c21_a_script_that_writes_the_time_is_rationed_and_the_field_named(
    test: &mut Fixture,
) -> Result<()> {
    let worlds = worlds(test, &IN_PLACE[..1], &[&CONFIG_MAP]).await?;
    let world = &worlds[0];
    world.another_parent(test, PARENT, json!({})).await?;
    let script = r#"export function sync(parent, children) {
        const metadata = { name: "x", annotations: { "last-called": new Date().toISOString() } };
        return { status: {}, children: [{ apiVersion: "v1", kind: "ConfigMap", metadata }] };
    }"#;
    let map = config_map("clock", json!({}), json!({ "hook.js": script }));
    test.make(&test.config_maps(), map).await?;
    let hook = Hook::script("javascript", test.name(), "clock", "hook.js").limited("timeout", "60s");
    world.is_synced_by(test, hook).await?;
    let named = |event: &Value| {
        let message = text(event, "/message");
        message.starts_with("The hook reads the clock")
            && message.ends_with("/x: metadata.annotations.last-called")
    };
    world.until_event(test, "Throttled", named).await.map(drop)
}
