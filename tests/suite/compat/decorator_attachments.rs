//! Section 7 of the compatibility contract: which objects are attachments, and how they are made, changed and deleted.

use acceptance::api::{CONFIG_MAP, CONTROLLER_REVISION, SECRET};
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{Hook, config_map, text, uid, version};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::decorated::{
    DECORATOR, FOREIGN, attached, attachment, decorated, is_about, label, labels, make_map, map, name, of,
    sync, thing, until_asked_again, written,
};
use crate::settling::scrape;
use crate::wasm;

const LAST_APPLIED: &str = "/metadata/annotations/metacontroller.k8s.io~1last-applied-configuration";
const ANNOTATION: &str = "metacontroller.k8s.io/decorator-controller";

/// Only what has the object as its controller and this decorator's name in its annotation: nothing else is shown, adopted,
/// released or deleted.
pub(crate) async fn attachments_are_what_the_object_owns_and_the_decorator_made(
    test: &mut Fixture,
) -> Result<()> {
    let object = make_map(test, "p").await?;
    let owner = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": uid(&object), "controller": true,
    }]);
    let mut only_mentioned = owner.clone();
    only_mentioned[0]["controller"] = json!(false);
    let maps = test.config_maps();
    let own = test.name().to_owned();
    let mut strangers = Vec::new();
    for (name, references, decorator) in [
        ("of-another", Some(owner.clone()), Some("another-decorator")),
        ("without-annotation", Some(owner.clone()), None),
        ("orphan", None, Some(own.as_str())),
        ("mentions-it", Some(only_mentioned), Some(own.as_str())),
        ("ours", Some(owner), Some(own.as_str())),
    ] {
        let mut map = attachment(name);
        if let Some(references) = references {
            map["metadata"]["ownerReferences"] = references;
        }
        if let Some(decorator) = decorator {
            map["metadata"]["annotations"] = json!({ ANNOTATION: decorator });
        }
        let made = test.make(&maps, map).await?;
        if name != "ours" {
            strangers.push(made);
        }
    }
    let webhook =
        decorated(test, |_| json!({ "attachments": [attachment("made")] }).into(), |dc, _| dc).await?;
    let first = webhook.until_asked("about it", |asked| is_about(asked, "/sync", "p")).await?;
    ensure!(attached(&first) == ["ours"], "{:?}", attached(&first));
    maps.until_gone("ours").await?;
    let made = maps.until("made", "attached", |_| true).await?;
    ensure!(text(&made, DECORATOR) == own, "{made}");
    let applied: Value = serde_json::from_str(text(&made, LAST_APPLIED))?;
    ensure!(text(&applied, DECORATOR) == own, "{applied}");
    ensure!(applied["metadata"].get("ownerReferences").is_none(), "{applied}");
    maps.merge("p", &labels(json!({ "touched": "yes" }))).await?;
    let touched = |asked: &Asked| label(&asked.body["object"], "touched") == "yes";
    let again = webhook.until_asked("once more", touched).await?;
    ensure!(attached(&again) == ["made"], "{:?}", attached(&again));
    webhook.answer(json!({ "attachments": [] }));
    maps.merge("p", &labels(json!({ "touched": "again" }))).await?;
    maps.until_gone("made").await?;
    for before in strangers {
        let now = maps.get(text(&before, "/metadata/name")).await?;
        ensure!(version(&now) == version(&before), "touched: {now}");
    }
    Ok(())
}

/// An attachment whose owner or annotation a user takes away has no owner from then on; that its name is
/// taken is told on the object.
pub(crate) async fn an_attachment_taken_away_is_reported_and_left(test: &mut Fixture) -> Result<()> {
    let program =
        |asked: &Asked| json!({ "attachments": [attachment(&format!("of-{}", name(asked)))] }).into();
    let webhook = decorated(test, program, |dc, _| dc).await?;
    let (maps, mut taken) = (test.config_maps(), Vec::new());
    for (name, change) in [
        ("owner", json!({ "metadata": { "ownerReferences": null } })),
        ("mark", json!({ "metadata": { "annotations": { ANNOTATION: null } } })),
    ] {
        let object = make_map(test, name).await?;
        let of = format!("of-{name}");
        maps.until(&of, "attached", |_| true).await?;
        taken.push(maps.merge(&of, &change).await?);
        let told = |event: &Value| text(event, "/message").contains("exists already");
        test.until_event_on(&object, "NameTaken", told).await?;
    }
    webhook.answer(json!({ "attachments": [] }));
    let healed = |dc: &Value| dc["status"]["failing"] == 0;
    test.decorators().until(test.name(), "nothing failing", healed).await?;
    for before in taken {
        let now = maps.get(text(&before, "/metadata/name")).await?;
        ensure!(version(&now) == version(&before), "touched: {now}");
    }
    Ok(())
}

/// How a decorator writes, and what becomes of an attachment that has to change.
struct Way {
    name: &'static str,
    method: &'static str,
    apply: &'static str,
    becomes: Becomes,
}

#[derive(Debug, PartialEq)]
enum Becomes {
    Left,
    MadeAnew,
    Changed,
}

fn ways() -> Vec<Way> {
    let way = |name, method, apply, becomes| Way { name, method, apply, becomes };
    vec![
        way("default", "", "dynamic-apply", Becomes::Left),
        way("on-delete", "OnDelete", "dynamic-apply", Becomes::Left),
        way("recreate", "Recreate", "dynamic-apply", Becomes::MadeAnew),
        way("rolling-recreate", "RollingRecreate", "dynamic-apply", Becomes::MadeAnew),
        way("in-place", "InPlace", "dynamic-apply", Becomes::Changed),
        way("rolling-in-place", "RollingInPlace", "dynamic-apply", Becomes::Changed),
        way("applied-recreate", "Recreate", "server-side-apply", Becomes::MadeAnew),
        way("applied-in-place", "InPlace", "server-side-apply", Becomes::Changed),
    ]
}

/// Each method does what its name says; the rolling ones do it to all at once, and keep no revisions. Drift is put right
/// in the same way, what is deleted is made again, and what is no longer wanted goes.
pub(crate) async fn attachments_are_changed_as_their_method_says(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let program = |asked: &Asked| {
        let round = text(&asked.body, "/object/spec/round").to_owned();
        let count = if round == "last" { 0 } else { 2 };
        let one =
            |number| config_map(&format!("{}-{number}", name(asked)), json!({}), json!({ "round": round }));
        json!({ "status": { "round": round }, "attachments": (0..count).map(one).collect::<Vec<_>>() }).into()
    };
    let webhook = Webhook::serve(program).await?;
    test.serve()?;
    let (kind, place, maps) = (test.kind().clone(), test.parents(), test.config_maps());
    for Way { name, method, apply, .. } in ways() {
        let rule = json!({ "labelSelector": { "matchLabels": { "way": name } } });
        let controller = test.decorator().renamed(&format!("{}-{name}", test.name())).decorating(&kind, rule);
        let controller = controller.attaching(&CONFIG_MAP, method).with("applyStrategy", apply);
        test.host_decorator(controller.synced_by(sync(&webhook))).await?;
        let metadata = json!({ "labels": { "way": name } });
        test.make(&place, thing(&kind, name, metadata, json!({ "round": "1" }))).await?;
    }
    let round = async |name: &str, round: &str| {
        place.merge(name, &json!({ "spec": { "round": round } })).await?;
        place.until(name, "its round", |object| object["status"]["round"] == round).await.map(drop)
    };
    let is = |round: &'static str| move |map: &Value| map["data"]["round"] == round;
    for Way { name, becomes, .. } in ways() {
        let (one, two) = (format!("{name}-0"), format!("{name}-1"));
        let before = maps.until(&one, "attached", is("1")).await?;
        maps.until(&two, "attached", is("1")).await?;
        round(name, "2").await?;
        // It may be on its way yet.
        if becomes != Becomes::Left {
            maps.until(&two, "of the second round", is("2")).await?;
            maps.until(&one, "of the second round", is("2")).await?;
        }
        let after = maps.get(&one).await?;
        match becomes {
            Becomes::Left => ensure!(version(&before) == version(&after), "{name}: {after}"),
            Becomes::MadeAnew => ensure!(uid(&before) != uid(&after), "{name}: {after}"),
            Becomes::Changed => ensure!(uid(&before) == uid(&after), "{name}: {after}"),
        }
        maps.delete(&one).await?;
        maps.until(&one, "made again", |map| uid(map) != uid(&after) && is("2")(map)).await?;
        let drift = maps.merge(&one, &json!({ "data": { "round": "drift" } })).await?;
        if becomes != Becomes::Left {
            let right = maps.until(&one, "put right", is("2")).await?;
            ensure!((uid(&right) == uid(&drift)) == (becomes == Becomes::Changed), "{name}: {right}");
        }
        round(name, "last").await?;
        maps.until_gone(&one).await?;
        maps.until_gone(&two).await?;
    }
    let revisions = test.within(&CONTROLLER_REVISION).list().await?;
    ensure!(revisions.is_empty(), "{revisions:?}");
    Ok(())
}

/// Whatever a webhook leaves out, it wants no attachments; a module has to say so.
pub(crate) async fn an_answer_without_attachments_deletes_them_for_a_webhook_only(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| match text(&asked.body, "/object/data/say") {
        "absent" => json!({ "labels": {} }).into(),
        "null" => json!({ "attachments": null }).into(),
        "empty" => json!({ "attachments": [] }).into(),
        "nothing" => json!({}).into(),
        "no-object" => Answer::text("null"),
        _ => json!({ "attachments": [attachment(&format!("of-{}", name(asked)))] }).into(),
    };
    let _webhook = decorated(test, program, |dc, _| dc).await?;
    let maps = test.config_maps();
    for say in ["absent", "null", "empty", "nothing", "no-object"] {
        make_map(test, say).await?;
        maps.until(&format!("of-{say}"), "attached", |_| true).await?;
        maps.merge(say, &json!({ "data": { "say": say } })).await?;
        maps.until_gone(&format!("of-{say}")).await?;
        maps.get(say).await?;
    }
    let with = json!({ "labels": { "n": "1" }, "attachments": [attachment("of-module")] });
    test.store("hook", &wasm::answers(&with)?).await?;
    let rule = json!({ "labelSelector": { "matchLabels": { "module": test.name() } } });
    let controller =
        test.decorator().renamed(&format!("{}-module", test.name())).decorating(&CONFIG_MAP, rule);
    test.host_decorator(controller.attaching(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    let object = config_map("object", json!({ "module": test.name() }), json!({}));
    let object = test.make(&maps, object).await?;
    let made = maps.until("of-module", "attached", |_| true).await?;
    test.store("hook", &wasm::answers(&json!({ "labels": { "n": "2" } }))?).await?;
    let told = |event: &Value| text(event, "/message").contains("attachments");
    test.until_event_on(&object, "SyncError", told).await?;
    ensure!(version(&maps.get("of-module").await?) == version(&made), "its attachment was touched");
    ensure!(label(&maps.get("object").await?, "n") == "1", "a label was written");
    test.store("hook", &wasm::answers(&json!({ "labels": { "n": "3" }, "attachments": [] }))?).await?;
    maps.until_gone("of-module").await?;
    Ok(())
}

/// Attachments that a decorator's spec does not declare are reported: a webhook's is made once, a module's answer is
/// refused.
pub(crate) async fn undeclared_attachments_are_reported(test: &mut Fixture) -> Result<()> {
    let unmanaged =
        |name: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } });
    let answer =
        json!({ "labels": { "n": "1" }, "attachments": [attachment("kept"), unmanaged("unmanaged")] });
    let webhook = decorated(test, move |_| answer.clone().into(), |dc, _| dc).await?;
    let object = make_map(test, "p").await?;
    let secrets = test.within(&SECRET);
    let made = secrets.until("unmanaged", "made", |_| true).await?;
    let told = |event: &Value| text(event, "/message").contains("Secret");
    test.until_event_on(&object, "UnmanagedChild", told).await?;
    test.config_maps().until("kept", "made beside it", |_| true).await?;
    test.config_maps().merge("p", &labels(json!({ "touched": "yes" }))).await?;
    let touched = |asked: &Asked| label(&asked.body["object"], "touched") == "yes";
    let asked = webhook.until_asked("once more", touched).await?;
    let groups: Vec<_> = asked.body["attachments"].as_object().context("no groups")?.keys().collect();
    ensure!(groups == ["ConfigMap.v1"], "{groups:?}");
    ensure!(version(&secrets.get("unmanaged").await?) == version(&made), "written again");
    test.decorators().delete(test.name()).await?;

    let answer =
        json!({ "labels": { "n": "2" }, "attachments": [attachment("other"), unmanaged("refused")] });
    test.store("hook", &wasm::answers(&answer)?).await?;
    let controller =
        test.decorator().renamed(&format!("{}-module", test.name())).decorating(&CONFIG_MAP, of(test));
    test.host_decorator(controller.attaching(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    let told = |event: &Value| text(event, "/message").contains("attachments[1]");
    test.until_event_on(&object, "SyncError", told).await?;
    ensure!(secrets.find("refused").await?.is_none(), "the unmanaged child was made");
    ensure!(test.config_maps().find("other").await?.is_none(), "the other one was made");
    ensure!(label(&test.config_maps().get("p").await?, "n") == "1", "a label was written");
    Ok(())
}

/// A CompositeController and a DecoratorController on one object, with children of one kind: neither sees the other's,
/// also where its selector would.
pub(crate) async fn a_composite_and_a_decorator_leave_each_others_children_alone(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| {
        let made = |name: &str, app: &str| config_map(name, json!({ "app": app }), json!({}));
        match asked.path.as_str() {
            "/composite" => json!({ "children": [made("child", "p")], "status": { "n": 1 } }).into(),
            _ => json!({ "attachments": [made("matches", "p"), made("differs", "x")] }).into(),
        }
    };
    let webhook = Webhook::serve(program).await?;
    let address = free_address()?;
    test.server().flag(&format!("--metrics-address={address}"));
    test.define_kind().await?;
    test.serve()?;
    let kind = test.kind().clone();
    let decorator = test.decorator().decorating(&kind, json!({})).attaching(&CONFIG_MAP, "InPlace");
    test.host_decorator(decorator.synced_by(sync(&webhook))).await?;
    let composite = test.controller().by_own_selectors().making(&CONFIG_MAP, "InPlace");
    test.host(composite.synced_by(Hook::webhook(&webhook.url("/composite")))).await?;
    test.create(test.parent("p").selecting("app", "p")).await?;
    let (maps, mut made) = (test.config_maps(), Vec::new());
    for name in ["child", "matches", "differs"] {
        made.push(maps.until(name, "made", |_| true).await?);
    }
    for round in 1..=3 {
        test.parents().merge("p", &json!({ "spec": { "round": round } })).await?;
        for (path, object, group, seen) in [
            ("/composite", "parent", "children", vec!["child"]),
            ("/sync", "object", "attachments", vec!["differs", "matches"]),
        ] {
            let about = |asked: &Asked| asked.path == path && asked.body[object]["spec"]["round"] == round;
            let asked = webhook.until_asked(&format!("{path}, round {round}"), about).await?;
            let all = asked.body[group]["ConfigMap.v1"].as_object().context("no objects")?;
            ensure!(all.keys().eq(seen.iter()), "{path}: {:?}", all.keys().collect::<Vec<_>>());
        }
    }
    for before in &made {
        let now = maps.get(text(before, "/metadata/name")).await?;
        ensure!(version(&now) == version(before), "touched: {before}\n{now}");
    }
    // They mind what is their own.
    maps.delete("matches").await?;
    maps.delete("child").await?;
    maps.until("matches", "attached again", |map| !text(map, DECORATOR).is_empty()).await?;
    maps.until("child", "made again", |map| text(map, DECORATOR).is_empty()).await?;
    // They have one name, and are counted apart.
    let wanted =
        [("CompositeController", "/composite"), ("DecoratorController", "/sync")].map(|(kind, path)| {
            let labels = format!(r#"controller_name="{}",controller_type="{kind}""#, test.name());
            let url = webhook.url(path);
            let requests = "metacontroller_sync_requests_total";
            format!(r#"{requests}{{{labels},url="{url}",code="200",method="post"}}"#)
        });
    until("metrics of both", PATIENCE, async || {
        let told = scrape(address).await?;
        Ok(if wanted.iter().all(|line| told.contains(line)) { Ok(()) } else { Err(told) })
    })
    .await
}

/// One attachment that cannot be written holds up no other, nor the object's own changes.
pub(crate) async fn a_bad_attachment_holds_up_no_other(test: &mut Fixture) -> Result<()> {
    let bad = config_map("bad", json!({}), json!({ "no/key": "x" }));
    let answer = json!({ "labels": { "n": "1" }, "attachments": [bad, attachment("good")] });
    let webhook = decorated(test, move |_| answer.clone().into(), |dc, _| dc.resyncing_each_second()).await?;
    let object = make_map(test, "p").await?;
    let maps = test.config_maps();
    maps.until("p", "labelled", |map| label(map, "n") == "1").await?;
    let good = maps.until("good", "attached", |_| true).await?;
    let told = |event: &Value| text(event, "/message").contains("no/key");
    test.until_event_on(&object, "SyncError", told).await?;
    until_asked_again(&webhook, "p", 3).await?;
    ensure!(version(&maps.get("good").await?) == version(&good), "the good one was written again");
    webhook.answer(json!({ "attachments": [attachment("bad"), attachment("good")] }));
    maps.until("bad", "attached once it is good", |_| true).await?;
    let healed = |dc: &Value| dc["status"]["failing"] == 0;
    test.decorators().until(test.name(), "nothing failing", healed).await?;
    let log = test.server().until_log("its log", |_| true).await?;
    let key = format!("{}/p", test.name());
    let mut deeds = written(&log, &key);
    deeds.sort_unstable();
    ensure!(deeds == ["create", "create", "replace"], "{deeds:?}");
    Ok(())
}

/// An object that names an owner from another namespace is none of its attachments: it is neither shown nor written.
pub(crate) async fn attachments_are_looked_for_in_the_objects_own_namespace(
    test: &mut Fixture,
) -> Result<()> {
    let away = format!("{}-away", test.name());
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": away } });
    let namespaces = test.everywhere(&acceptance::api::NAMESPACE);
    test.make(&namespaces, namespace).await?;
    let object = make_map(test, "p").await?;
    let places = [test.config_maps(), test.within_other(&CONFIG_MAP, &away)];
    for place in &places {
        let mut map = attachment("ours");
        map["metadata"]["annotations"] = json!({ ANNOTATION: test.name() });
        map["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": uid(&object), "controller": true,
        }]);
        // The garbage collector knows no owners in other namespaces.
        map["metadata"]["finalizers"] = json!([FOREIGN]);
        test.make(place, map).await?;
    }
    let program = |_: &Asked| json!({ "attachments": [] }).into();
    let webhook = decorated(test, program, |dc, webhook| dc.synced_by(sync(webhook).version("v2"))).await?;
    let asked = webhook.until_asked("about it", |_| true).await?;
    ensure!(attached(&asked) == [format!("{}/ours", test.name())], "{:?}", attached(&asked));
    let [near, far] = &places;
    near.until("ours", "is deleted", |map| map["metadata"].get("deletionTimestamp").is_some()).await?;
    let object = format!("{}/p", test.name());
    let log = test.server().until_log("its deletion", |log| !written(log, &object).is_empty()).await?;
    let deeds = written(&log, &object);
    ensure!(deeds == ["delete"], "{deeds:?}");
    for place in [near, far] {
        place.merge("ours", &json!({ "metadata": { "finalizers": null } })).await?;
    }
    Ok(())
}

/// Objects of one name in two namespaces have attachments of one name.
pub(crate) async fn attachments_lie_with_their_objects(test: &mut Fixture) -> Result<()> {
    let away = format!("{}-away", test.name());
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": away } });
    let namespaces = test.everywhere(&acceptance::api::NAMESPACE);
    test.make(&namespaces, namespace).await?;
    let program = |asked: &Asked| {
        let home = text(&asked.body, "/object/metadata/namespace");
        json!({ "attachments": [config_map("a", json!({}), json!({ "of": home }))] }).into()
    };
    let webhook = decorated(test, program, |dc, _| dc).await?;
    let places = [test.config_maps(), test.within_other(&CONFIG_MAP, &away)];
    for place in &places {
        test.make(place, map(test, "p")).await?;
    }
    for (place, home) in places.iter().zip([test.name(), &away]) {
        place.until("a", "attached", |map| map["data"]["of"] == home).await?;
        place.merge("p", &labels(json!({ "touched": "yes" }))).await?;
        let about = |asked: &Asked| {
            let object = &asked.body["object"];
            label(object, "touched") == "yes" && object["metadata"]["namespace"] == home
        };
        let asked = webhook.until_asked(&format!("about that in {home}"), about).await?;
        ensure!(attached(&asked) == ["a"], "{:?}", attached(&asked));
        let shown = &asked.body["attachments"]["ConfigMap.v1"]["a"];
        ensure!(shown["metadata"]["namespace"] == home, "{shown}");
    }
    Ok(())
}
