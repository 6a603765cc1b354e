//! Section 8.6 of the compatibility contract: what becomes an Event on a parent, and what does not.

use acceptance::api::{CONFIG_MAP, EVENT};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, text};
use acceptance::webhook::{Answer, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

const COMBINED: &str = "(combined from similar events): ";

/// Each failure has another text: ten Events have it as it is, and one more stands for all that follow.
pub(crate) async fn more_than_ten_similar_events_about_a_parent_become_one(test: &mut Fixture) -> Result<()> {
    // The status code is the parent's wish.
    let hook = Webhook::serve(|asked| {
        let code = text(&asked.body, "/parent/spec/who").parse().unwrap_or(500);
        Answer::status(code)
    })
    .await?;
    test.define_kind().await?;
    test.serve()?;
    test.host(test.controller().synced_by(Hook::webhook(&hook.url("/sync")))).await?;
    test.create(test.parent("a").greeting("520")).await?;
    for code in 520..540 {
        let who = code.to_string();
        test.parents().merge("a", &json!({ "spec": { "who": who } })).await?;
        hook.until_asked(&who, |asked| text(&asked.body, "/parent/spec/who") == who).await?;
    }
    let combined = |event: &Value| {
        text(event, "/message").starts_with(COMBINED)
            && event["count"].as_u64().is_some_and(|count| count >= 2)
    };
    let event = test.until_event("a", "SyncError", combined).await?;
    ensure!(event["type"] == "Warning" && event["source"]["component"] == "metacontroller", "{event}");
    let all = test.within(&EVENT).list_where("involvedObject.name=a,reason=SyncError").await?;
    let told: Vec<_> = all.iter().map(|event| text(event, "/message")).collect();
    let alone = told.iter().filter(|message| message.starts_with("Sync error: ")).count();
    ensure!(alone == 10 && told.len() == 11, "{told:#?}");
    Ok(())
}

/// Related objects that are not listed yet, a busy webhook, children created, updated, and found deleted: none of it is an Event.
/// That the server deletes a child is one.
pub(crate) async fn what_goes_well_is_no_event(test: &mut Fixture) -> Result<()> {
    let hook = Webhook::serve(|asked| {
        if asked.path == "/customize" {
            let rule = json!({ "apiVersion": "v1", "resource": "services", "labelSelector": {} });
            return Answer::from(json!({ "relatedResources": [rule] }));
        }
        let who = text(&asked.body, "/parent/spec/who");
        let child = config_map("child", json!({}), json!({ "who": who }));
        let children = if who == "nobody" { vec![] } else { vec![child] };
        Answer::from(json!({ "children": children, "status": { "who": who } }))
    })
    .await?;
    test.define_kind().await?;
    test.serve()?;
    let of = |path: &str| Hook::webhook(&hook.url(path));
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(of("/sync")).customized_by(of("/customize"))).await?;
    let made = test.create(test.parent("a").greeting("Ada")).await?;
    let (child, parents) = (test.config_maps(), test.parents());
    let first = child.until("child", "made", |child| child["data"]["who"] == "Ada").await?;
    parents.merge("a", &json!({ "spec": { "who": "Grace" } })).await?;
    child.until("child", "updated", |child| child["data"]["who"] == "Grace").await?;
    child.delete("child").await?;
    child.until("child", "made again", |child| child["metadata"]["uid"] != first["metadata"]["uid"]).await?;
    parents.merge("a", &json!({ "spec": { "who": "nobody" } })).await?;
    child.until_gone("child").await?;
    parents.until("a", "the last status", |parent| parent["status"]["who"] == "nobody").await?;

    // The Events of the server are written in their order: with the one of the stopped controller all are there.
    test.controllers().delete(test.name()).await?;
    test.until_controller_event("Stopped", |_| true).await?;
    let about = format!("involvedObject.uid={}", text(&made, "/metadata/uid"));
    let events = test.within(&EVENT).list_where(&about).await?;
    let reasons: Vec<_> = events.iter().map(|event| text(event, "/reason")).collect();
    ensure!(reasons == ["ChildDeleted"], "{events:#?}");
    Ok(())
}

/// Rows on controllers: reason, type, text, the namespace `default`, and the component.
pub(crate) async fn the_life_of_a_controller_is_told_in_metacontrollers_words(
    test: &mut Fixture,
) -> Result<()> {
    let hook = Webhook::answering(json!({ "children": [] })).await?;
    test.serve()?;
    let controller = test.controller().synced_by(Hook::webhook(&hook.url("/sync")));
    // Its kind does not exist yet.
    test.host(controller).await?;
    let says = |event: &Value| text(event, "/message").starts_with("Cannot create new controller: ");
    let refused = test.until_controller_event("CreateError", says).await?;
    test.define_kind().await?;
    let told = |what: &str| {
        let message = format!("{what} controller: {}", test.name());
        move |event: &Value| event["message"] == message
    };
    let mut all = vec![(refused, "Warning")];
    for reason in ["Starting", "Started"] {
        all.push((test.until_controller_event(reason, told(reason)).await?, "Normal"));
    }
    let ready = |cc: &Value| condition(cc, "Ready").is_some_and(|ready| ready["status"] == "True");
    test.until_controller("ready", ready).await?;
    test.controllers().delete(test.name()).await?;
    for reason in ["Stopping", "Stopped"] {
        all.push((test.until_controller_event(reason, told(reason)).await?, "Normal"));
    }
    for (event, kind) in all {
        let is = event["type"] == kind
            && event["metadata"]["namespace"] == "default"
            && event["source"]["component"] == "metacontroller";
        ensure!(is, "{event}");
    }
    Ok(())
}
