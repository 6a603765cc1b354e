//! Section 7 of the compatibility contract, from the hooks' side: when and with what they are asked about an object, and what
//! comes of answers that are none.

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, has_condition, text, uid, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::decorated::{
    annotations, attached, attachment, decorated, finalized, is_about, label, labels, make_map, name, of,
    sync, thing, times, until_asked_again,
};
use crate::wasm::Wat;

pub(crate) async fn a_hook_is_asked_with_the_object_and_its_attachments_as_its_version_says(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| {
        let finalized = asked.body["finalizing"] == true;
        json!({ "attachments": [attachment("a")], "finalized": finalized }).into()
    };
    let webhook = decorated(test, program, |controller, webhook| {
        let finalize = Hook::webhook(&webhook.url("/finalize")).version("v2").with("timeout", "60s");
        controller.finalized_by(finalize)
    })
    .await?;
    make_map(test, "p").await?;
    let first = webhook.until_asked("the first time", |_| true).await?;
    ensure!(first.method == "POST" && first.headers["content-type"] == "application/json", "{first:?}");
    let keys: Vec<_> = first.body.as_object().context("no object")?.keys().collect();
    ensure!(keys == ["attachments", "controller", "finalizing", "object", "related"], "{keys:?}");
    ensure!(first.body["attachments"] == json!({ "ConfigMap.v1": {} }), "{}", first.body);
    ensure!(first.body["related"] == json!({}) && first.body["finalizing"] == false, "{}", first.body);
    let object = &first.body["object"];
    ensure!(object["apiVersion"] == "v1" && object["kind"] == "ConfigMap", "{object}");
    ensure!(object["data"] == json!({ "is": "here" }), "{object}");
    let controller = &first.body["controller"];
    ensure!(controller["apiVersion"] == "metacontroller.k8s.io/v1alpha1", "{controller}");
    ensure!(controller["kind"] == "DecoratorController", "{controller}");
    ensure!(controller["status"] == json!({}) && text(controller, "/metadata/name") == test.name());
    let spec = &controller["spec"];
    ensure!(spec["resources"][0]["labelSelector"]["matchLabels"]["on"] == test.name(), "{spec}");
    ensure!(spec["attachments"][0]["updateStrategy"] == json!({ "method": "InPlace" }), "{spec}");
    ensure!(spec["hooks"]["finalize"]["webhook"]["timeout"] == "1m0s", "{spec}");
    ensure!(spec["hooks"]["sync"]["version"] == "v1", "{spec}");

    let maps = test.config_maps();
    let made = maps.until("a", "attached", |_| true).await?;
    maps.merge("p", &labels(json!({ "touched": "yes" }))).await?;
    let again = webhook.until_asked("with the attachment", |asked| !attached(asked).is_empty()).await?;
    let shown = &again.body["attachments"]["ConfigMap.v1"]["a"];
    ensure!(shown["metadata"]["uid"] == uid(&made) && shown["data"]["is"] == "a", "{shown}");
    maps.delete("p").await?;
    maps.until_gone("p").await?;
    let last = webhook.until_asked("to finalize", |asked| asked.path == "/finalize").await?;
    ensure!(last.body["finalizing"] == true, "{}", last.body);
    ensure!(last.body["object"]["metadata"].get("deletionTimestamp").is_some(), "{}", last.body);
    ensure!(attached(&last) == [format!("{}/a", test.name())], "{}", last.body["attachments"]);
    Ok(())
}

/// A change of the status alone is not looked at where all rules that an object meets say so; content is, also of kinds
/// that count no generations.
pub(crate) async fn changes_of_status_are_ignored_as_the_rules_of_an_object_say(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let webhook = Webhook::answering(json!({ "attachments": [] })).await?;
    test.serve()?;
    let rule = |labels: Value, ignores: bool| json!({ "labelSelector": { "matchLabels": labels }, "ignoreStatusChanges": ignores });
    let kind = test.kind().clone();
    let controller = test.decorator().synced_by(sync(&webhook));
    let controller = controller.decorating(&kind, rule(json!({ "ignores": "yes" }), true));
    let controller = controller.decorating(&kind, rule(json!({ "looks": "yes" }), false));
    let controller = controller.decorating(&CONFIG_MAP, rule(json!({ "on": test.name() }), true));
    test.host_decorator(controller).await?;
    let place = test.parents();
    for (name, labels) in [
        ("ignores", json!({ "ignores": "yes" })),
        ("looks", json!({ "looks": "yes" })),
        ("both", json!({ "ignores": "yes", "looks": "yes" })),
        ("last", json!({ "looks": "yes" })),
    ] {
        test.make(&place, thing(&kind, name, json!({ "labels": labels }), json!({}))).await?;
        webhook.until_asked(&format!("about {name}"), |asked| is_about(asked, "/sync", name)).await?;
    }
    let counts = |name: &'static str, count: u32| {
        move |asked: &Asked| is_about(asked, "/sync", name) && asked.body["object"]["status"]["n"] == count
    };
    for name in ["ignores", "looks", "both", "last"] {
        place.merge_status(name, &json!({ "status": { "n": 1 } })).await?;
    }
    for name in ["looks", "both", "last"] {
        webhook.until_asked(&format!("about the status of {name}"), counts(name, 1)).await?;
    }
    ensure!(!webhook.asked().iter().any(counts("ignores", 1)), "asked about a change of the status");
    for change in [
        json!({ "spec": { "more": 1 } }),
        labels(json!({ "more": "1" })),
        annotations(json!({ "more": "1" })),
    ] {
        let (asked, _) =
            tokio::join!(until_asked_again(&webhook, "ignores", 1), place.merge("ignores", &change));
        asked?;
    }
    make_map(test, "p").await?;
    webhook.until_asked("about p", |asked| is_about(asked, "/sync", "p")).await?;
    test.config_maps().merge("p", &json!({ "data": { "more": "1" } })).await?;
    let more = |asked: &Asked| asked.body["object"]["data"]["more"] == "1";
    webhook.until_asked("about another content without a generation", more).await?;
    Ok(())
}

/// Hooks ask for another look at one object, specs for looks at all of them.
pub(crate) async fn objects_are_resynced_as_hooks_and_specs_say(test: &mut Fixture) -> Result<()> {
    let program = |asked: &Asked| {
        let after = if name(asked) == "soon" { json!(0.2) } else { Value::Null };
        json!({ "attachments": [], "resyncAfterSeconds": after }).into()
    };
    let webhook = decorated(test, program, |controller, _| controller).await?;
    for name in ["soon", "other"] {
        make_map(test, name).await?;
        webhook.until_asked(&format!("about {name}"), |asked| is_about(asked, "/sync", name)).await?;
    }
    let others = times(&webhook, "other");
    webhook.until_asked_again(5).await?;
    let more = times(&webhook, "other") - others;
    ensure!(more == 0, "asked {more} times about an object without resyncAfterSeconds");
    webhook.answer(json!({ "attachments": [] }));
    let spec = json!({ "spec": { "resyncPeriodSeconds": 1 } });
    test.decorators().merge(test.name(), &spec).await?;
    until_asked_again(&webhook, "soon", 3).await?;
    until_asked_again(&webhook, "other", 3).await
}

/// A customize hook is asked with the field `parent`; what it asks for is shown, also to finalize, and followed.
pub(crate) async fn related_objects_are_shown_and_followed(test: &mut Fixture) -> Result<()> {
    let program = |asked: &Asked| match asked.path.as_str() {
        "/customize" => {
            let wanted = json!({ "apiVersion": "v1", "resource": "configmaps", "names": ["wanted"] });
            let names = json!({ "apiVersion": "v1", "resource": "namespaces", "names": ["default"] });
            json!({ "relatedResources": [wanted, names] }).into()
        }
        path => {
            let wanted = &asked.body["related"]["ConfigMap.v1"]["wanted"]["data"]["is"];
            let said = wanted.as_str().unwrap_or("missing");
            json!({ "annotations": { "saw": said }, "attachments": [], "finalized": path == "/finalize" })
                .into()
        }
    };
    let webhook = decorated(test, program, |controller, webhook| {
        finalized(controller.customized_by(Hook::webhook(&webhook.url("/customize"))), webhook)
    })
    .await?;
    make_map(test, "p").await?;
    let maps = test.config_maps();
    let saw = |text: &'static str| move |map: &Value| map["metadata"]["annotations"]["saw"] == text;
    maps.until("p", "nothing is there", saw("missing")).await?;
    let mut wanted = config_map("wanted", json!({}), json!({ "is": "one" }));
    test.make(&maps, wanted.clone()).await?;
    maps.until("p", "it is there", saw("one")).await?;
    wanted["data"]["is"] = json!("two");
    maps.merge("wanted", &wanted).await?;
    maps.until("p", "it is another", saw("two")).await?;
    let asked = webhook.until_asked("for rules", |asked| asked.path == "/customize").await?;
    let keys: Vec<_> = asked.body.as_object().context("no object")?.keys().collect();
    ensure!(keys == ["controller", "parent"], "{keys:?}");
    ensure!(asked.body["parent"]["metadata"]["name"] == "p", "{}", asked.body["parent"]);
    ensure!(asked.body["controller"]["kind"] == "DecoratorController", "{}", asked.body["controller"]);
    let synced = webhook.until_asked("to sync", |asked| asked.path == "/sync").await?;
    let groups: Vec<_> = synced.body["related"].as_object().context("no groups")?.keys().collect();
    ensure!(groups == ["ConfigMap.v1", "Namespace.v1"], "{groups:?}");
    ensure!(synced.body["related"]["Namespace.v1"] == json!({}), "v1 has no names for what is elsewhere");
    maps.delete("p").await?;
    let last = webhook.until_asked("to finalize", |asked| asked.path == "/finalize").await?;
    ensure!(last.body["related"]["ConfigMap.v1"]["wanted"]["data"]["is"] == "two", "{}", last.body);
    maps.until_gone("p").await
}

/// Answers that are none, and what the Event says of them.
fn bad() -> Vec<(Value, &'static str)> {
    let many: Map<_, _> = (0..=1000).map(|nth| (nth.to_string(), Value::Null)).collect();
    vec![
        (
            json!({ "annotations": many, "attachments": [] }),
            "annotations has 1001 keys, and 1000 are allowed",
        ),
        (json!([]), "the answer must be an object, not a list"),
        (json!({ "labels": { "a": 1 }, "attachments": [] }), "labels.a"),
        (json!({ "labels": [], "attachments": [] }), "labels must be"),
        (json!({ "annotations": { "a": {} }, "attachments": [] }), "annotations.a"),
        (json!({ "status": [], "attachments": [] }), "status must be an object, not a list"),
        (json!({ "attachments": {} }), "attachments must be a list, not an object"),
        (json!({ "attachments": [null] }), "attachments[0] must be an object, not null"),
        (json!({ "attachments": [{ "apiVersion": "v1" }] }), "attachments[0].kind must be a string"),
        (json!({ "attachments": [], "finalized": 1 }), "finalized must be true or false"),
        (json!({ "attachments": [], "resyncAfterSeconds": "1" }), "resyncAfterSeconds must be a number"),
        (json!({ "attachments": [], "children": [] }), "has the unknown field children"),
    ]
}

/// An answer that is none is told on the object, and nothing is touched.
pub(crate) async fn an_invalid_answer_is_reported_on_its_object_and_changes_nothing(
    test: &mut Fixture,
) -> Result<()> {
    let good = |number: &'static str| {
        move |asked: &Asked| {
            let attachments = json!([attachment(&format!("of-{}", name(asked)))]);
            Answer::from(json!({ "labels": { "number": number }, "attachments": attachments }))
        }
    };
    let webhook = decorated(test, good("1"), |controller, webhook| {
        controller.synced_by(Hook::webhook(&webhook.url("/sync")).version("v2"))
    })
    .await?;
    let maps = test.config_maps();
    let rows = bad();
    for row in 0..=rows.len() {
        make_map(test, &format!("p{row}")).await?;
    }
    let mut before = Vec::new();
    for row in 0..=rows.len() {
        let of = maps.until(&format!("of-p{row}"), "attached", |_| true).await?;
        before.push((maps.get(&format!("p{row}")).await?, of));
    }
    webhook.program(move |asked| {
        let row = name(asked).trim_start_matches('p').parse::<usize>().ok();
        match row.and_then(|row| bad().into_iter().nth(row)) {
            Some((answer, _)) => answer.into(),
            None => Answer::text("it broke").with_status(500),
        }
    });
    let touched = labels(json!({ "touched": "yes" }));
    for (row, says) in rows.iter().map(|(_, says)| *says).chain(["500 body: it broke"]).enumerate() {
        let touched = maps.merge(&format!("p{row}"), &touched).await?;
        let told = |event: &Value| {
            let message = text(event, "/message");
            event["type"] == "Warning"
                && message.starts_with("Sync error: sync hook: ")
                && message.contains(says)
        };
        test.until_event_on(&touched, "SyncError", told).await.context(says)?;
        let now = maps.get(&format!("p{row}")).await?;
        ensure!(version(&now) == version(&touched), "written: {now}");
        ensure!(version(&maps.get(&format!("of-p{row}")).await?) == version(&before[row].1), "{says}");
    }
    let failing = |dc: &Value| dc["status"]["failing"] == rows.len() + 1;
    test.decorators().until(test.name(), "all objects failing", failing).await?;
    webhook.program(good("2"));
    for row in 0..=rows.len() {
        maps.merge(&format!("p{row}"), &labels(json!({ "touched": "again" }))).await?;
        maps.until(&format!("p{row}"), "healed", |map| label(map, "number") == "2").await?;
    }
    test.decorators().until(test.name(), "none failing", |dc| dc["status"]["failing"] == 0).await?;
    Ok(())
}

/// A module decorates as a webhook does, and is not called as long as nothing changes that it sees.
pub(crate) async fn a_decorated_object_is_settled_until_something_changes(test: &mut Fixture) -> Result<()> {
    let events = json!([{ "reason": "Decorated", "message": "as it is to be", "type": "Normal" }]);
    let answer =
        json!({ "labels": { "decorated": "yes" }, "attachments": [attachment("a")], "events": events });
    test.store("hook", &Wat::default().warns("asked to sync").prints(answer.to_string()).wasm()?).await?;
    test.serve()?;
    let controller = test.decorator().decorating(&CONFIG_MAP, of(test)).attaching(&CONFIG_MAP, "InPlace");
    test.host_decorator(controller.resyncing_each_second().synced_by(test.hook("hook"))).await?;
    let object = make_map(test, "p").await?;
    let maps = test.config_maps();
    maps.until("p", "decorated", |map| label(map, "decorated") == "yes").await?;
    test.until_event_on(&object, "Decorated", |event| event["message"] == "as it is to be").await?;
    let settled =
        |dc: &Value| dc["status"]["settled"] == 1 && has_condition(dc, "Pure", "True", "RequestsAlone");
    test.decorators().until(test.name(), "one settled object", settled).await?;
    let count = |log: &str, text: &str| log.matches(text).count();
    let before = test.server().until_log("settled", |log| count(log, "settled") > 0).await?;
    let rests = count(&before, "settled") + 3;
    let log = test.server().until_log("settled again", |log| count(log, "settled") >= rests).await?;
    let calls = count(&log, "asked to sync");
    ensure!(calls == count(&before, "asked to sync"), "called though nothing changed");
    maps.merge("a", &json!({ "data": { "is": "spoilt" } })).await?;
    maps.until("a", "put right", |map| map["data"]["is"] == "a").await?;
    maps.merge("p", &labels(json!({ "decorated": "no" }))).await?;
    maps.until("p", "put right", |map| label(map, "decorated") == "yes").await?;
    maps.delete("a").await?;
    maps.until("a", "made again", |_| true).await?;
    Ok(())
}
