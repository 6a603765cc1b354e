//! Section 7 of the compatibility contract: what a decorator writes to the object itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acceptance::api::{CONFIG_MAP, Kind};
use acceptance::fixture::Fixture;
use acceptance::objects::{text, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::decorated::{
    attachment, decorated, define, label, make_map, map, name, sync, thing, until_asked_again, written,
};

/// Set where they differ, removed by null, and left alone where the answer does not name them, also where it once did.
pub(crate) async fn labels_and_annotations_are_set_overwritten_and_removed(test: &mut Fixture) -> Result<()> {
    let change = json!({ "change": "new", "gone": null, "never": null, "added": "", "long/key": "x" });
    let answer = json!({ "labels": change, "annotations": change, "attachments": [] });
    let webhook = decorated(test, move |_| answer.clone().into(), |dc, _| dc.resyncing_each_second()).await?;
    let maps = test.config_maps();
    let mut object = map(test, "p");
    for field in ["labels", "annotations"] {
        for (key, value) in [("kept", "1"), ("change", "old"), ("gone", "1")] {
            object["metadata"][field][key] = json!(value);
        }
    }
    object["metadata"]["annotations"]["any"] = json!("what is = no label, \u{fc}");
    object["metadata"]["finalizers"] = json!(["example.com/theirs"]);
    let first = test.make(&maps, object).await?;
    let wanted = json!({ "kept": "1", "change": "new", "added": "", "long/key": "x" });
    let (mut of_labels, mut of_annotations) = (wanted.clone(), wanted);
    of_labels["on"] = json!(test.name());
    of_annotations["any"] = json!("what is = no label, \u{fc}");
    let is = |map: &Value| {
        map["metadata"]["labels"] == of_labels && map["metadata"]["annotations"] == of_annotations
    };
    let now = maps.until("p", "decorated", is).await?;
    for field in ["uid", "finalizers", "ownerReferences", "creationTimestamp"] {
        ensure!(now["metadata"][field] == first["metadata"][field], "{field} was touched: {now}");
    }
    ensure!(now["data"] == first["data"], "{now}");
    until_asked_again(&webhook, "p", 10).await?;
    ensure!(version(&maps.get("p").await?) == version(&now), "written without need");
    // What the answer no longer names stays, without an owner.
    webhook.answer(json!({ "labels": { "change": "newer" }, "attachments": [] }));
    (of_labels["change"], of_labels["added"]) = (json!("newer"), json!("theirs"));
    maps.merge("p", &json!({ "metadata": { "labels": { "added": "theirs" } } })).await?;
    let is = |map: &Value| {
        map["metadata"]["labels"] == of_labels && map["metadata"]["annotations"] == of_annotations
    };
    maps.until("p", "changed where it is named", is).await?;
    until_asked_again(&webhook, "p", 2).await?;
    let log = test.server().until_log("its log", |_| true).await?;
    let deeds = written(&log, &format!("{}/p", test.name()));
    ensure!(deeds == ["replace", "replace"], "{deeds:?}");
    let free = json!({ "metadata": { "finalizers": null } });
    maps.merge("p", &free).await.map(drop)
}

/// The hook says in the object's spec what it answers.
fn as_told(asked: &Asked) -> Answer {
    let answer = &asked.body["object"]["spec"]["answer"];
    if answer.is_null() { json!({ "attachments": [] }).into() } else { answer.clone().into() }
}

/// All of the status is what the hook says, where it says one; no generation is added, and a kind without a status of its
/// own has it in the object.
pub(crate) async fn a_status_is_replaced_whole_where_the_hook_says_one(test: &mut Fixture) -> Result<()> {
    let plain = Kind::new(&format!("plain.{}", test.kind().group), "v1", "Plain", "plains");
    define(test, &plain, |spec| spec["versions"][0]["subresources"] = json!({})).await?;
    test.define_kind().await?;
    let webhook = Webhook::serve(as_told).await?;
    test.serve()?;
    let own = test.kind().clone();
    let controller = test.decorator().decorating(&own, json!({})).decorating(&plain, json!({}));
    test.host_decorator(controller.synced_by(sync(&webhook)).resyncing_each_second()).await?;
    for kind in [&own, &plain] {
        let (place, name) = (test.within(kind), kind.kind.to_lowercase());
        test.make(&place, thing(kind, &name, json!({}), json!({}))).await?;
        let say = async |more: Value| {
            let mut answer = json!({ "attachments": [] });
            for (field, value) in more.as_object().into_iter().flatten() {
                answer[field] = value.clone();
            }
            // Merging would leave what was said before.
            place.merge(&name, &json!({ "spec": { "answer": null } })).await?;
            place.merge(&name, &json!({ "spec": { "answer": answer } })).await
        };
        let until_status = |status: Value| {
            let place = place.clone();
            let name = name.clone();
            async move { place.until(&name, "its status", |object| object["status"] == status).await }
        };
        say(json!({ "status": { "a": 1, "deep": { "b": [1, 2] } } })).await?;
        until_status(json!({ "a": 1, "deep": { "b": [1, 2] } })).await?;
        say(json!({ "status": { "c": 1 }, "labels": { "round": "2" } })).await?;
        let second = until_status(json!({ "c": 1 })).await?;
        ensure!(second["status"].get("observedGeneration").is_none(), "{second}");
        for (round, nothing) in [("3", json!({ "status": null })), ("4", json!({}))] {
            let mut answer = nothing;
            answer["labels"] = json!({ "round": round });
            say(answer).await?;
            let left = place.until(&name, "labelled", |object| label(object, "round") == round).await?;
            ensure!(left["status"] == json!({ "c": 1 }), "{left}");
        }
        say(json!({ "status": {} })).await?;
        let none = place
            .until(&name, "an empty status", |object| {
                object["status"].as_object().is_none_or(serde_json::Map::is_empty)
            })
            .await?;
        until_asked_again(&webhook, &name, 3).await?;
        ensure!(version(&place.get(&name).await?) == version(&none), "written without need");
    }
    Ok(())
}

/// Each thing is written once, where it differs, and the object before what is attached to it; a restart has nothing
/// written.
pub(crate) async fn only_what_differs_is_written_and_the_object_comes_first(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let answer = json!({
        "labels": { "a": "1" }, "annotations": { "b": "1" }, "status": { "c": 1 },
        "attachments": [attachment("one"), attachment("two")],
    });
    let webhook = Webhook::answering(answer.clone()).await?;
    test.serve()?;
    let kind = test.kind().clone();
    let controller = test.decorator().decorating(&kind, json!({})).attaching(&CONFIG_MAP, "InPlace");
    test.host_decorator(controller.synced_by(sync(&webhook)).resyncing_each_second()).await?;
    test.create(test.parent("p")).await?;
    let (place, maps) = (test.parents(), test.config_maps());
    let is = |object: &Value| label(object, "a") == "1" && object["status"] == json!({ "c": 1 });
    let object = place.until("p", "decorated", is).await?;
    let attachments =
        [maps.until("one", "attached", |_| true).await?, maps.until("two", "attached", |_| true).await?];
    let number = |object: &Value| version(object).parse::<u64>().context("a version that is no number");
    for attachment in &attachments {
        ensure!(number(&object)? < number(attachment)?, "attached first: {object}\n{attachment}");
    }
    let key = format!("{}/p", test.name());
    let deeds = async |test: &mut Fixture| {
        let log = test.server().until_log("its log", |_| true).await?;
        Ok::<_, anyhow::Error>(written(&log, &key))
    };
    until_asked_again(&webhook, "p", 10).await?;
    let all = ["status", "replace", "create", "create"];
    ensure!(deeds(test).await? == all, "{:?}", deeds(test).await?);
    ensure!(version(&place.get("p").await?) == version(&object), "written without need");
    for before in &attachments {
        let now = maps.get(text(before, "/metadata/name")).await?;
        ensure!(version(&now) == version(before), "written without need: {now}");
    }
    // The status alone, then the labels alone.
    let mut answer = answer;
    answer["status"]["c"] = json!(2);
    webhook.answer(answer.clone());
    place.until("p", "its next status", |object| object["status"]["c"] == 2).await?;
    answer["labels"]["a"] = json!("2");
    webhook.answer(answer);
    place.until("p", "its next label", |object| label(object, "a") == "2").await?;
    until_asked_again(&webhook, "p", 2).await?;
    test.server().stop().await?;
    test.server().start()?;
    until_asked_again(&webhook, "p", 2).await?;
    let more = [&all[..], &["status", "replace"]].concat();
    ensure!(deeds(test).await? == more, "{:?}", deeds(test).await?);
    Ok(())
}

/// A status that the API server drops is no reason to go on: one of a kind that has none.
pub(crate) async fn a_status_of_a_kind_that_has_none_is_no_reason_to_go_on(test: &mut Fixture) -> Result<()> {
    let answer = json!({ "labels": { "n": "1" }, "status": { "n": 1 }, "attachments": [] });
    let webhook = decorated(test, move |_| answer.clone().into(), |dc, _| dc).await?;
    make_map(test, "p").await?;
    let object = test.config_maps().until("p", "labelled", |map| label(map, "n") == "1").await?;
    make_map(test, "last").await?;
    test.config_maps().until("last", "labelled", |map| label(map, "n") == "1").await?;
    let before = webhook.count();
    test.decorators()
        .until(test.name(), "no object failing", |dc| {
            dc["status"]["failing"] == 0 && dc["status"]["parents"] == 2
        })
        .await?;
    ensure!(version(&test.config_maps().get("p").await?) == version(&object), "written again");
    let more = webhook.count() - before;
    ensure!(more <= 6, "asked {more} times more");
    Ok(())
}

/// Answers so to the first request, after a time in which another client can be faster, and to no other.
fn slowly_once(said: &Value) -> impl Fn(&Asked) -> Answer + use<> {
    let slow = Answer::from(said.clone()).after(Duration::from_secs(1));
    let first = AtomicBool::new(true);
    move |_| {
        if first.swap(false, Ordering::Relaxed) {
            slow.clone()
        } else {
            Answer::text("not now").with_status(500)
        }
    }
}

/// Another client changes the object while its hook thinks: what is attached is written all the same, and the object with the
/// next try.
pub(crate) async fn a_conflict_on_the_object_holds_up_no_attachment(test: &mut Fixture) -> Result<()> {
    let labelled = json!({ "labels": { "n": "1" }, "attachments": [attachment("first")] });
    let webhook = decorated(test, slowly_once(&labelled), |dc, _| dc).await?;
    make_map(test, "p").await?;
    let maps = test.config_maps();
    webhook.until_asked("the first time", |_| true).await?;
    maps.merge("p", &json!({ "data": { "theirs": "1" } })).await?;
    // Only the first answer names it.
    maps.until("first", "attached", |_| true).await?;
    let theirs = maps.get("p").await?;
    ensure!(label(&theirs, "n").is_empty(), "the change of another client was overlooked: {theirs}");
    webhook.answer(labelled);
    let now = maps.until("p", "labelled with the next try", |map| label(map, "n") == "1").await?;
    ensure!(now["data"] == json!({ "is": "here", "theirs": "1" }), "{now}");
    Ok(())
}

/// A conflict on the status, which is written by itself, holds up no attachment.
pub(crate) async fn a_conflict_on_the_status_holds_up_no_attachment(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let said = json!({ "status": { "n": 1 }, "labels": { "n": "1" }, "attachments": [attachment("first")] });
    let webhook = Webhook::serve(slowly_once(&said)).await?;
    test.serve()?;
    let kind = test.kind().clone();
    let controller = test.decorator().decorating(&kind, json!({})).attaching(&CONFIG_MAP, "InPlace");
    test.host_decorator(controller.synced_by(sync(&webhook))).await?;
    test.create(test.parent("p")).await?;
    let place = test.parents();
    webhook.until_asked("the first time", |_| true).await?;
    place.merge_status("p", &json!({ "status": { "theirs": 1 } })).await?;
    // Only the first answer names it.
    test.config_maps().until("first", "attached", |_| true).await?;
    let theirs = place.get("p").await?;
    ensure!(
        theirs["status"] == json!({ "theirs": 1 }),
        "the status of another client was overlooked: {theirs}"
    );
    ensure!(label(&theirs, "n").is_empty(), "written after a conflict: {theirs}");
    webhook.answer(said);
    let is = |object: &Value| object["status"] == json!({ "n": 1 }) && label(object, "n") == "1";
    place.until("p", "written with the next try", is).await?;
    Ok(())
}

/// An object that goes while its hook thinks gets no attachments, whichever write finds that out, and nothing has failed.
pub(crate) async fn an_object_that_goes_meanwhile_gets_no_attachments_and_fails_nothing(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let program = |asked: &Asked| {
        let mut answer = asked.body["object"]["spec"]["answer"].clone();
        answer["attachments"] = json!([attachment(&format!("of-{}", name(asked)))]);
        Answer::from(answer).after(Duration::from_secs(2))
    };
    let webhook = Webhook::serve(program).await?;
    test.serve()?;
    let kind = test.kind().clone();
    let controller = test.decorator().decorating(&kind, json!({})).attaching(&CONFIG_MAP, "InPlace");
    test.host_decorator(controller.synced_by(sync(&webhook))).await?;
    let place = test.parents();
    let answers =
        [("status", json!({ "status": { "n": 1 } })), ("labels", json!({ "labels": { "n": "1" } }))];
    for (object, answer) in answers {
        test.make(&place, thing(&kind, object, json!({}), json!({ "answer": answer }))).await?;
        webhook.until_asked("about it", |asked| name(asked) == object).await?;
        place.delete(object).await?;
        let key = format!("\"parent\":\"{}/{object}\"", test.name());
        let ends = |line: &&str| line.contains(&key) && line.contains("\"sync");
        let log = test.server().until_log("the end of its pass", |log| log.lines().any(|line| ends(&line)));
        let log = log.await?;
        let ended: Vec<_> = log.lines().filter(ends).collect();
        ensure!(ended.iter().all(|line| line.contains("\"synced\"")), "{ended:#?}");
        let deeds = written(&log, &format!("{}/{object}", test.name()));
        ensure!(!deeds.contains(&"create".to_owned()), "{deeds:?}");
    }
    Ok(())
}

/// Nothing else of an object is a decorator's: a loose reader leaves it, a strict one refuses the answer by field.
pub(crate) async fn a_decorator_changes_neither_spec_nor_data(test: &mut Fixture) -> Result<()> {
    let too_much = json!({
        "labels": { "n": "1" }, "annotations": { "n": "1" }, "attachments": [],
        "spec": { "n": 1 }, "data": { "is": "changed" }, "metadata": { "labels": { "more": "1" } },
    });
    let webhook = decorated(test, move |_| too_much.clone().into(), |dc, _| dc).await?;
    let maps = test.config_maps();
    let before = make_map(test, "p").await?;
    let now = maps.until("p", "labelled", |map| label(map, "n") == "1").await?;
    ensure!(now["data"] == before["data"] && now.get("spec").is_none(), "{now}");
    ensure!(label(&now, "more").is_empty(), "{now}");

    let strict = json!({ "spec": { "hooks": { "sync": { "version": "v2" } } } });
    test.decorators().merge(test.name(), &strict).await?;
    // Until then the version before takes what comes.
    let runs = |dc: &Value| dc["status"]["observedGeneration"] == dc["metadata"]["generation"];
    test.decorators().until(test.name(), "strict", runs).await?;
    for field in ["spec", "data"] {
        let mut answer = json!({ "labels": { "n": "2" }, "attachments": [] });
        answer[field] = json!({ "n": "2" });
        webhook.answer(answer);
        maps.merge("p", &json!({ "data": { "touched": field } })).await?;
        let told = |event: &Value| {
            let message = text(event, "/message");
            message.contains("sync hook") && message.contains(field)
        };
        test.until_event_on(&now, "SyncError", told).await?;
        ensure!(label(&maps.get("p").await?, "n") == "1", "a refused answer was taken");
    }
    Ok(())
}

/// A change of the object that the API server refuses is reported, and no attachment is made on its account.
pub(crate) async fn what_is_refused_of_the_object_holds_up_its_attachments(test: &mut Fixture) -> Result<()> {
    let refused = json!({ "labels": { "bad": "no label value!" }, "attachments": [attachment("a")] });
    let webhook =
        decorated(test, move |_| refused.clone().into(), |dc, _| dc.resyncing_each_second()).await?;
    let object = make_map(test, "p").await?;
    let maps = test.config_maps();
    let told = |event: &Value| text(event, "/message").contains("no label value!");
    test.until_event_on(&object, "SyncError", told).await?;
    until_asked_again(&webhook, "p", 2).await?;
    ensure!(version(&maps.get("p").await?) == version(&object), "it was written");
    ensure!(maps.find("a").await?.is_none(), "it was attached");
    webhook.answer(json!({ "labels": { "bad": "good" }, "attachments": [attachment("a")] }));
    maps.until("p", "labelled once it may be", |map| label(map, "bad") == "good").await?;
    maps.until("a", "attached", |_| true).await?;
    Ok(())
}
