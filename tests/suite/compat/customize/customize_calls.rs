//! When a change of related objects reconciles their parents, and when the customize hook is called.

use acceptance::api::{self, Kind};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, has_condition, text};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Place, names, object, parent, rule, sees};
use crate::wasm::{self, LETTERS, Wat};

/// Objects come, change, lose the label that they were selected by, and go; so do namespaces and rules.
pub(crate) async fn a_change_queues_every_parent_that_sees_it(test: &mut Fixture) -> Result<()> {
    let place = Place::new(test).await?;
    test.serve()?;
    test.host(place.hooked(test.controller(), "v2")).await?;
    let (h, a) = (test.name().to_owned(), place.away.clone());
    let labels = json!({ "matchLabels": { "app": "x" } });
    let team = json!({ "matchLabels": { "team": test.name() } });
    let parents = test.parents();
    for (name, rules) in [
        ("by-name", vec![place.rule(json!({ "namespace": h, "names": ["one"] }))]),
        ("by-label", vec![place.rule(json!({ "labelSelector": labels }))]),
        ("by-team", vec![place.rule(json!({ "namespaceSelector": team }))]),
        (
            "by-both",
            vec![place.rule(json!({ "names": ["one"] })), place.rule(json!({ "labelSelector": labels }))],
        ),
    ] {
        test.make(&parents, parent(test.kind(), name, &rules)).await?;
    }
    let nothing = json!({ "Thing": "" });
    for name in ["by-name", "by-label", "by-team", "by-both"] {
        sees(&parents, name, &nothing).await?;
    }
    let (one, two) = (format!("{h}/one"), format!("{a}/two"));
    place.thing(test, "one", &json!({ "app": "x" })).await?;
    let elsewhere = test.within_other(&place.thing, &a);
    elsewhere.create(object(&place.thing, "two", &json!({ "app": "x" }))).await?;
    let both = |first: &str, second: &str| {
        let mut all = [first, second];
        all.sort_unstable();
        json!({ "Thing": all.join(" ") })
    };
    sees(&parents, "by-name", &json!({ "Thing": one })).await?;
    sees(&parents, "by-label", &both(&one, &two)).await?;
    sees(&parents, "by-both", &both(&one, &two)).await?;

    // As it was: the label is gone afterwards.
    let off = json!({ "metadata": { "labels": { "app": null } } });
    place.things(test).merge("one", &off).await?;
    sees(&parents, "by-label", &json!({ "Thing": two })).await?;
    sees(&parents, "by-both", &both(&one, &two)).await?;

    // A namespace: labelled, and no longer.
    let label = |team: Value| json!({ "metadata": { "labels": { "team": team } } });
    test.everywhere(&api::NAMESPACE).merge(&a, &label(json!(test.name()))).await?;
    sees(&parents, "by-team", &json!({ "Thing": two })).await?;
    test.everywhere(&api::NAMESPACE).merge(&a, &label(Value::Null)).await?;
    sees(&parents, "by-team", &nothing).await?;

    // Other rules: the objects of the new ones are seen and followed.
    let rules = json!({ "spec": { "rules": [place.rule(json!({ "namespace": a, "names": ["two"] }))] } });
    parents.merge("by-name", &rules).await?;
    sees(&parents, "by-name", &json!({ "Thing": two })).await?;
    elsewhere.delete("two").await?;
    for name in ["by-name", "by-label"] {
        sees(&parents, name, &nothing).await?;
    }
    place.things(test).delete("one").await?;
    sees(&parents, "by-both", &nothing).await
}

/// The customize hook is a webhook: asked once per content of the parent, however often the parent is synced.
pub(crate) async fn a_webhook_is_asked_for_rules_once_per_content_of_the_parent(
    test: &mut Fixture,
) -> Result<()> {
    let place = Place::new(test).await?;
    test.serve()?;
    test.host(place.hooked(test.controller(), "v2")).await?;
    let parents = test.parents();
    let rules = [place.rule(json!({ "labelSelector": { "matchLabels": { "app": "x" } } }))];
    test.make(&parents, parent(test.kind(), "a", &rules)).await?;
    sees(&parents, "a", &json!({ "Thing": "" })).await?;
    let mut seen = Vec::new();
    for name in ["one", "two", "three"] {
        place.thing(test, name, &json!({ "app": "x" })).await?;
        seen.push(format!("{}/{name}", test.name()));
        seen.sort_unstable();
        sees(&parents, "a", &json!({ "Thing": seen.join(" ") })).await?;
    }
    ensure!(place.calls("/sync", "a") >= 4, "synced only {} times", place.calls("/sync", "a"));
    let calls = place.calls("/customize", "a");
    ensure!(calls == 1, "asked for rules {calls} times");

    let synced = place.calls("/sync", "a");
    parents.merge("a", &json!({ "metadata": { "labels": { "touched": "once" } } })).await?;
    place
        .webhook
        .until_asked("about the touched parent", |asked| {
            asked.path == "/sync" && text(&asked.body, "/parent/metadata/labels/touched") == "once"
        })
        .await?;
    ensure!(place.calls("/sync", "a") > synced, "not synced");
    let calls = place.calls("/customize", "a");
    ensure!(calls == 2, "asked for rules {calls} times: a label is content");
    let asked = place.webhook.asked();
    let request = asked.iter().find(|asked| asked.path == "/customize");
    let fields = request.and_then(|asked| asked.body.as_object()).map(|body| body.keys().cloned().collect());
    ensure!(fields == Some(vec!["controller".to_owned(), "parent".to_owned()]), "asked with {fields:?}");
    Ok(())
}

/// A parent whose rules name a kind that is not served is reconciled again once it is served.
pub(crate) async fn a_kind_that_is_defined_later_is_seen_then(test: &mut Fixture) -> Result<()> {
    let place = Place::new(test).await?;
    test.serve()?;
    test.host(place.hooked(test.controller(), "v2")).await?;
    let later = Kind::new(&format!("later.{}", test.kind().group), "v1", "Later", "laters");
    let parents = test.parents();
    test.make(&parents, parent(test.kind(), "a", &[rule(&later, json!({}))])).await?;
    // Often enough for the next try to be far away.
    let says = |event: &Value| event["count"].as_u64() >= Some(10);
    test.until_event("a", "SyncError", says).await?;
    test.define(&later).await?;
    sees(&parents, "a", &json!({ "Later": "" })).await
}

/// Also where the parent is being deleted the finalize hook is shown what the customize hook asks for.
pub(crate) async fn a_finalize_hook_is_shown_related_objects(test: &mut Fixture) -> Result<()> {
    let place = Place::new(test).await?;
    test.serve()?;
    // A finalizer's name may not be longer than 63 characters.
    let short = test.name().rsplit('-').take(2).collect::<Vec<_>>().join("-");
    let controller = test.controller().renamed(&format!("related-{short}"));
    let finalize = Hook::webhook(&place.webhook.url("/finalize")).version("v1");
    test.host(place.hooked(controller, "v2").finalized_by(finalize)).await?;
    place.thing(test, "one", &json!({})).await?;
    let parents = test.parents();
    test.make(&parents, parent(test.kind(), "a", &[place.rule(json!({ "names": ["one"] }))])).await?;
    sees(&parents, "a", &json!({ "Thing": format!("{}/one", test.name()) })).await?;
    parents.delete("a").await?;
    let asked = place.webhook.until_asked("to finalize", |asked| asked.path == "/finalize").await?;
    let related = names(&asked.body["related"]);
    ensure!(related == json!({ "Thing": "one" }) && asked.body["finalizing"] == true, "{related}");
    parents.until_gone("a").await
}

/// Both hooks are modules: neither is called as long as nothing changes that the parent sees.
pub(crate) async fn a_parent_is_settled_until_something_that_it_sees_changes(
    test: &mut Fixture,
) -> Result<()> {
    let place = Place::new(test).await?;
    let rules = [place.rule(json!({ "labelSelector": { "matchLabels": { "app": "x" } } }))];
    let (rules, nothing) = (json!({ "relatedResources": rules }), json!({ "children": [] }));
    test.store("rules", &Wat::default().warns("asked for rules").prints(rules.to_string()).wasm()?).await?;
    test.store("hook", &Wat::default().warns("asked to sync").prints(nothing.to_string()).wasm()?).await?;
    test.serve()?;
    let controller = test.controller().resyncing_each_second();
    let hooked = controller.synced_by(test.hook("hook")).customized_by(test.hook("rules"));
    test.host(hooked).await?;
    test.create(test.parent("a")).await?;
    test.until_controller("one settled parent", |cc| cc["status"]["settled"] == 1).await?;

    let count = |log: &str, text: &str| log.matches(text).count();
    let before = test.server().until_log("settled", |log| count(log, "settled") > 0).await?;
    place.thing(test, "unseen", &json!({ "app": "y" })).await?;
    let rests = count(&before, "settled") + 3;
    let log = test.server().until_log("settled again", |log| count(log, "settled") >= rests).await?;
    let calls = |log: &str| (count(log, "asked for rules"), count(log, "asked to sync"));
    ensure!(calls(&log) == calls(&before), "called though nothing changed: {:?}", calls(&log));

    place.thing(test, "seen", &json!({ "app": "x" })).await?;
    let (asked, synced) = calls(&log);
    let log = test.server().until_log("synced again", |log| calls(log).1 > synced).await?;
    ensure!(calls(&log).0 == asked, "asked for rules about the same parent: {:?}", calls(&log));
    test.until_controller("settled again", |cc| cc["status"]["settled"] == 1).await?;
    Ok(())
}

/// A customize hook that cannot be relied on is found out as a sync hook is.
pub(crate) async fn a_customize_hook_that_gives_two_answers_is_named(test: &mut Fixture) -> Result<()> {
    test.server().flag("--purity-check=1");
    test.server().flag("--seed-each-call");
    let place = Place::new(test).await?;
    let rules = json!({ "relatedResources": [place.rule(json!({}))], "not looked at": LETTERS });
    test.store("rules", &wasm::answers_with_letters(&rules)?).await?;
    test.store("hook", &wasm::answers(&json!({ "children": [] }))?).await?;
    test.serve()?;
    let controller = test.controller().resyncing_each_second();
    let hooked = controller.synced_by(test.hook("hook")).customized_by(test.hook("rules"));
    test.host(hooked).await?;
    test.create(test.parent("a")).await?;
    let differs = |cc: &Value| has_condition(cc, "Pure", "False", "AnswersDiffer");
    test.until_controller("Pure=False: AnswersDiffer", differs).await?;
    Ok(())
}
