//! Attacks by Events: hooks that record very many, beside the error of another parent.

use std::time::Instant;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, text};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Webhook};
use anyhow::Result;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::attacks::form;

/// Events that an answer may have.
const EVENTS: usize = 10;

/// Each parent has ten Events of its hook in each second, and one parent an error.
pub(crate) async fn an_error_appears_beside_the_events_of_many_parents(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked| {
        let parent = &asked.body["parent"];
        if text(parent, "/metadata/name") == "victim" {
            return Answer::text("no answer");
        }
        let event = |nth: usize| json!({ "reason": format!("Flood{nth}"), "message": "flood" });
        let events: Vec<Value> = (0..EVENTS).map(event).collect();
        Answer::from(json!({ "children": [], "events": events, "resyncAfterSeconds": 1 }))
    })
    .await?;
    test.define_kind().await?;
    test.serve()?;
    let hook = Hook::webhook(&webhook.url("/sync")).version("v2");
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    let count = form(60, 1000);
    let (parents, made) = (test.parents(), (0..count).map(|nth| test.parent(&format!("p{nth}"))));
    try_join_all(made.map(|parent| parents.create(parent.json()))).await?;
    until("a call about each parent", PATIENCE, async || {
        let calls = webhook.count();
        Ok(if calls >= count { Ok(()) } else { Err(format!("{calls} calls")) })
    })
    .await?;
    let start = Instant::now();
    test.create(test.parent("victim")).await?;
    test.until_event("victim", "SyncError", |_| true).await?;
    test.at_most("the error's Event after", start.elapsed().as_secs_f64(), "s", 10.0)
}
