//! Section 7 of the compatibility contract: objects that go or stop matching, and the finalizer that a decorator sets.

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, text, uid, version};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::decorated::{
    FOREIGN, attached, attachment, decorated, finalized, finalizers, hold, is_about, label, labels, let_go,
    make_map, map, name, of, ours, sync, thing, times, until_asked_again,
};

fn is_going(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

/// The finalizer is there before the first sync; the answer that says finalized still decides about attachments, of an
/// object that is being deleted, too.
pub(crate) async fn the_last_answer_still_decides_about_attachments(test: &mut Fixture) -> Result<()> {
    let program = |asked: &Asked| match asked.path.as_str() {
        "/sync" => json!({ "attachments": [attachment("a"), attachment("b")] }).into(),
        // One after the other, and finalized when one is left, with another in its place.
        _ if attached(asked).len() == 2 => json!({ "attachments": [attachment("a")] }).into(),
        _ => json!({
            "attachments": [attachment("late")], "finalized": true,
            "labels": { "last": "words" }, "annotations": { "last": "words" },
        })
        .into(),
    };
    let webhook = decorated(test, program, finalized).await?;
    make_map(test, "p").await?;
    let (maps, ours) = (test.config_maps(), ours(test));
    let first = webhook.until_asked("the first time", |_| true).await?;
    ensure!(finalizers(&first.body["object"]) == [ours.as_str()], "{}", first.body["object"]);
    ensure!(first.path == "/sync" && first.body["finalizing"] == false, "{}", first.body);
    maps.until("b", "attached", |_| true).await?;
    hold(&maps, "p").await?;
    maps.delete("p").await?;
    let gone = maps.until("p", "rid of ours", |map| finalizers(map) == [FOREIGN]).await?;
    ensure!(is_going(&gone) && label(&gone, "last") == "words", "{gone}");
    maps.until("late", "attached with the last answer", |_| true).await?;
    maps.until_gone("a").await?;
    let asked: Vec<_> = webhook.asked().into_iter().filter(|asked| asked.path == "/finalize").collect();
    let last = asked.last().context("the finalize hook was never asked")?;
    ensure!(asked.iter().all(|asked| asked.body["finalizing"] == true), "{}", last.body);
    ensure!(asked.iter().all(|asked| is_going(&asked.body["object"])), "{}", last.body);

    // A foreign finalizer holds it yet: the hook is asked, and attachments are left to the garbage collector.
    webhook.program(|asked| {
        let said = label(&asked.body["object"], "touched").to_owned();
        json!({ "attachments": [], "finalized": true, "annotations": { "said": said } }).into()
    });
    maps.merge("p", &labels(json!({ "touched": "yes" }))).await?;
    let said = |map: &Value| map["metadata"]["annotations"]["said"] == "yes";
    let held = maps.until("p", "asked about again", said).await?;
    ensure!(finalizers(&held) == [FOREIGN], "an object that goes got a finalizer: {held}");
    ensure!(maps.find("late").await?.is_some(), "attachments were written");
    let_go(&maps, "p").await?;
    maps.until_gone("late").await
}

/// Without a finalize hook an object that is being deleted is synced: it is written, and its attachments are not.
pub(crate) async fn without_a_finalize_hook_an_object_that_goes_is_synced_and_keeps_its_attachments(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| {
        if is_going(&asked.body["object"]) {
            json!({ "attachments": [attachment("x")], "labels": { "going": "yes" } }).into()
        } else {
            json!({ "attachments": [attachment("a"), attachment("b")] }).into()
        }
    };
    let webhook = decorated(test, program, |dc, _| dc).await?;
    make_map(test, "p").await?;
    let maps = test.config_maps();
    maps.until("b", "attached", |_| true).await?;
    hold(&maps, "p").await?;
    ensure!(finalizers(&maps.get("p").await?) == [FOREIGN], "a finalizer without a hook");
    maps.delete("p").await?;
    maps.until("p", "has its last label", |map| label(map, "going") == "yes").await?;
    let last = webhook.asked().pop().map(|asked| (asked.path, asked.body["finalizing"].clone()));
    ensure!(last == Some(("/sync".to_owned(), json!(false))), "{last:?}");
    ensure!(maps.find("x").await?.is_none() && maps.find("a").await?.is_some(), "attachments were written");
    let_go(&maps, "p").await
}

/// Whoever deletes in the foreground waits for the garbage collector: the hook is asked, attachments are left to it.
pub(crate) async fn foreground_deletion_leaves_attachments_to_itself(test: &mut Fixture) -> Result<()> {
    let program = |asked: &Asked| match asked.path.as_str() {
        "/sync" => json!({ "attachments": [attachment("a")] }).into(),
        _ => json!({ "attachments": [attachment("other")], "labels": { "asked": "yes" } }).into(),
    };
    let webhook = decorated(test, program, finalized).await?;
    make_map(test, "p").await?;
    let maps = test.config_maps();
    maps.until("a", "attached", |_| true).await?;
    maps.merge("a", &json!({ "metadata": { "finalizers": [FOREIGN] } })).await?;
    maps.delete_in_foreground("p").await?;
    let asked = maps.until("p", "was asked about", |map| label(map, "asked") == "yes").await?;
    ensure!(finalizers(&asked).contains(&"foregroundDeletion"), "{asked}");
    ensure!(maps.find("other").await?.is_none(), "attachments were written");
    webhook.answer(json!({ "attachments": [], "finalized": true }));
    maps.merge("p", &labels(json!({ "touched": "yes" }))).await?;
    maps.until("p", "rid of ours", |map| finalizers(map) == ["foregroundDeletion"]).await?;
    maps.merge("a", &json!({ "metadata": { "finalizers": null } })).await?;
    maps.until_gone("p").await
}

/// With a finalize hook an object that stops matching, by a label or by an annotation, is finalized while it lives, and
/// ignored from then on.
pub(crate) async fn an_object_that_stops_matching_is_finalized_while_it_lives(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| match asked.path.as_str() {
        "/sync" => json!({ "labels": { "set": "1" }, "attachments": [
            attachment(&format!("a-{}", asked.body["object"]["data"]["is"].as_str().unwrap_or_default())),
            attachment("both"),
        ] })
        .into(),
        _ => json!({
            "labels": { "set": null }, "annotations": { "done": "yes" }, "finalized": true,
            "attachments": [attachment("both"), attachment("last")],
        })
        .into(),
    };
    let webhook = decorated(test, program, |dc, webhook| {
        let dc = finalized(dc, webhook);
        let annotated = json!({ "annotationSelector": { "matchAnnotations": { "annotated": "yes" } } });
        dc.decorating(&CONFIG_MAP, annotated)
    })
    .await?;
    let maps = test.config_maps();
    make_map(test, "p").await?;
    maps.until("a-here", "attached", |_| true).await?;
    let both = maps.until("both", "attached", |_| true).await?;
    maps.until("p", "labelled", |map| label(map, "set") == "1").await?;
    maps.merge("p", &labels(json!({ "on": null }))).await?;
    let done = maps
        .until("p", "finalized", |map| {
            map["metadata"]["annotations"]["done"] == "yes" && finalizers(map).is_empty()
        })
        .await?;
    ensure!(label(&done, "set").is_empty() && !is_going(&done), "{done}");
    maps.until("last", "attached with the last answer", |_| true).await?;
    maps.until_gone("a-here").await?;
    ensure!(version(&maps.get("both").await?) == version(&both), "what stays was written");
    let last = webhook.asked().into_iter().rfind(|asked| asked.path == "/finalize");
    let last = last.context("the finalize hook was never asked")?;
    ensure!(
        last.body["finalizing"] == true && finalizers(&last.body["object"]) == [ours(test)],
        "{}",
        last.body
    );
    let asked = times(&webhook, "p");
    maps.merge("p", &json!({ "data": { "more": "1" } })).await?;
    let mut object = map(test, "q");
    object["metadata"]["labels"] = json!({});
    object["metadata"]["annotations"] = json!({ "annotated": "yes" });
    object["data"]["is"] = json!("there");
    test.make(&maps, object).await?;
    maps.until("a-there", "attached", |_| true).await?;
    ensure!(times(&webhook, "p") == asked, "asked again about an object that is finalized");
    maps.merge("q", &json!({ "metadata": { "annotations": { "annotated": "no" } } })).await?;
    maps.until("q", "finalized", |map| finalizers(map).is_empty()).await?;
    Ok(())
}

/// The finalize hook's status is written: while it waits, and with its last word; of what lives and of what goes.
pub(crate) async fn what_the_finalize_hook_says_of_the_status_is_written(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let program = |asked: &Asked| match asked.path.as_str() {
        "/sync" => json!({ "status": { "is": "synced" }, "attachments": [] }).into(),
        _ if asked.body["object"]["spec"]["let"] == "go" => {
            json!({ "status": { "is": "finalized" }, "attachments": [], "finalized": true }).into()
        }
        _ => json!({ "status": { "is": "waiting" }, "attachments": [], "finalized": false }).into(),
    };
    let webhook = Webhook::serve(program).await?;
    test.serve()?;
    let (kind, place) = (test.kind().clone(), test.parents());
    let controller = finalized(test.decorator().decorating(&kind, of(test)), &webhook);
    test.host_decorator(controller.synced_by(sync(&webhook))).await?;
    let is = |status: &'static str| move |object: &Value| object["status"] == json!({ "is": status });
    for name in ["lives", "goes"] {
        let metadata = json!({ "labels": { "on": test.name() }, "finalizers": [FOREIGN] });
        test.make(&place, thing(&kind, name, metadata, json!({}))).await?;
        place.until(name, "synced", is("synced")).await?;
    }
    place.merge("lives", &labels(json!({ "on": null }))).await?;
    place.delete("goes").await?;
    for name in ["lives", "goes"] {
        let waits = place.until(name, "its status while it waits", is("waiting")).await?;
        ensure!(finalizers(&waits).contains(&ours(test).as_str()), "{waits}");
        place.merge(name, &json!({ "spec": { "let": "go" } })).await?;
        let last = |object: &Value| is("finalized")(object) && finalizers(object) == [FOREIGN];
        place.until(name, "its last status, and rid of ours", last).await?;
        place.merge(name, &json!({ "metadata": { "finalizers": null } })).await?;
    }
    place.until_gone("goes").await
}

/// The finalizer comes off with its hook, with its controller, and of a controller that is gone for long. What was attached
/// and labelled stays.
pub(crate) async fn a_decorators_finalizer_comes_off_with_its_hook_and_with_its_controller(
    test: &mut Fixture,
) -> Result<()> {
    let gone = "metacontroller.io/decoratorcontroller-gone-for-long";
    let maps = test.config_maps();
    let mut left = map(test, "left");
    left["metadata"]["finalizers"] = json!([gone, FOREIGN]);
    test.make(&maps, left).await?;
    let program = |asked: &Asked| {
        json!({ "labels": { "n": "1" }, "attachments": [attachment(&format!("of-{}", name(asked)))] }).into()
    };
    let webhook = decorated(test, program, finalized).await?;
    make_map(test, "p").await?;
    let attached = maps.until("of-p", "attached", |_| true).await?;
    let ours = ours(test);
    let has = |map: &Value| finalizers(map).contains(&ours.as_str());
    maps.until("p", "has ours", has).await?;
    let left = maps.until("left", "has ours and not theirs who are gone", |map| {
        has(map) && !finalizers(map).contains(&gone)
    });
    left.await?;
    test.decorators().merge(test.name(), &json!({ "spec": { "hooks": { "finalize": null } } })).await?;
    for (name, rest) in [("p", &[][..]), ("left", &[FOREIGN])] {
        maps.until(name, "rid of ours with the hook", |map| finalizers(map) == rest).await?;
    }
    let hook = json!({ "webhook": { "url": webhook.url("/finalize") } });
    test.decorators().merge(test.name(), &json!({ "spec": { "hooks": { "finalize": hook } } })).await?;
    maps.until("p", "has ours again", has).await?;
    maps.until("left", "has ours again", has).await?;
    test.decorators().delete(test.name()).await?;
    for (name, rest) in [("p", &[][..]), ("left", &[FOREIGN])] {
        maps.until(name, "rid of ours with the controller", |map| finalizers(map) == rest).await?;
    }
    ensure!(version(&maps.get("of-p").await?) == version(&attached), "its attachment was touched");
    ensure!(label(&maps.get("p").await?, "n") == "1", "its label is gone");
    ensure!(times_finalized(&webhook) == 0, "asked to finalize what lives and matches");
    maps.delete("left").await?;
    let_go(&maps, "left").await?;
    maps.delete("p").await?;
    maps.until_gone("p").await
}

fn times_finalized(webhook: &Webhook) -> usize {
    webhook.asked().iter().filter(|asked| asked.path == "/finalize").count()
}

/// A finalize hook that fails holds its object, with all that is attached, until it answers.
pub(crate) async fn an_object_waits_for_its_finalize_hook(test: &mut Fixture) -> Result<()> {
    let program = |_: &Asked| json!({ "attachments": [attachment("a")] }).into();
    let webhook = decorated(test, program, |dc, webhook| {
        dc.finalized_by(Hook::webhook(&webhook.url("/finalize")).version("v2"))
    })
    .await?;
    let object = make_map(test, "p").await?;
    let maps = test.config_maps();
    maps.until("a", "attached", |_| true).await?;
    webhook.answer(acceptance::webhook::Answer::text("not now").with_status(500));
    maps.delete("p").await?;
    let told = |event: &Value| text(event, "/message").contains("finalize hook: ");
    test.until_event_on(&object, "SyncError", told).await?;
    let held = maps.get("p").await?;
    ensure!(finalizers(&held) == [ours(test)], "{held}");
    ensure!(maps.find("a").await?.is_some(), "its attachment is gone");
    webhook.answer(json!({ "attachments": [], "finalized": true }));
    maps.until_gone("p").await?;
    maps.until_gone("a").await
}

/// An object that is gone is forgotten: no key is left that fails for ever.
pub(crate) async fn an_object_that_is_gone_leaves_nothing_behind(test: &mut Fixture) -> Result<()> {
    let program = |_: &Asked| json!({ "labels": { "n": "1" }, "attachments": [] }).into();
    let webhook = decorated(test, program, |dc, _| dc.resyncing_each_second()).await?;
    let maps = test.config_maps();
    for name in ["p", "last"] {
        make_map(test, name).await?;
        maps.until(name, "labelled", |map| label(map, "n") == "1").await?;
    }
    let counts =
        |count: u64| move |dc: &Value| dc["status"]["parents"] == count && dc["status"]["failing"] == 0;
    test.decorators().until(test.name(), "two objects", counts(2)).await?;
    maps.delete("p").await?;
    maps.until_gone("p").await?;
    test.decorators().until(test.name(), "one object", counts(1)).await?;
    let asked = times(&webhook, "p");
    until_asked_again(&webhook, "last", 3).await?;
    ensure!(times(&webhook, "p") == asked, "asked about what is gone");
    let log = test.server().until_log("its log", |_| true).await?;
    let key = format!("\"parent\":\"{}/p\"", test.name());
    let goes_well = ["synced", "written", "reconcile"].map(|message| format!(r#""message":"{message}""#));
    let failed = |line: &&str| line.contains(&key) && !goes_well.iter().any(|well| line.contains(well));
    let failed: Vec<_> = log.lines().filter(failed).collect();
    ensure!(failed.is_empty(), "{failed:#?}");
    let anew = make_map(test, "p").await?;
    let shown = |asked: &Asked| name(asked) == "p" && uid(&asked.body["object"]) == uid(&anew);
    webhook.until_asked("about the new one", shown).await?;
    maps.until("p", "labelled as a new one", |map| label(map, "n") == "1").await.map(drop)
}

/// Killed while objects are decorated, changed and deleted: each attachment is made once, each object is finalized.
pub(crate) async fn a_server_killed_in_the_middle_neither_doubles_nor_forgets(
    test: &mut Fixture,
) -> Result<()> {
    const COUNT: usize = 12;
    let program = |asked: &Asked| {
        let (round, mut map) =
            (label(&asked.body["object"], "round"), attachment(&format!("of-{}", name(asked))));
        map["data"]["round"] = json!(round);
        json!({ "annotations": { "round": round }, "attachments": [map] }).into()
    };
    let webhook = decorated(test, program, finalized).await?;
    let (maps, names) = (test.config_maps(), (0..COUNT).map(|number| format!("p{number}")));
    let names: Vec<_> = names.collect();
    for name in &names {
        make_map(test, name).await?;
    }
    let made =
        |all: &[Value]| all.iter().filter(|map| text(map, "/metadata/name").starts_with("of-")).count();
    maps.until_all("some attachments", |all| made(all) > 1).await?;
    test.server().kill().await?;
    let mut before = Vec::new();
    for name in &names {
        before.push(maps.find(&format!("of-{name}")).await?);
        maps.merge(name, &labels(json!({ "round": "2" }))).await?;
    }
    test.server().start()?;
    maps.until_all("more than before", |all| {
        all.iter().filter(|map| map["data"]["round"] == "2").count() > 1
    })
    .await?;
    test.server().kill().await?;
    test.server().start()?;
    for (name, before) in names.iter().zip(&before) {
        let is = |map: &Value| map["data"]["round"] == "2";
        let after = maps.until(&format!("of-{name}"), "of the second round", is).await?;
        ensure!(before.as_ref().is_none_or(|before| uid(before) == uid(&after)), "made twice: {after}");
        let is = |map: &Value| map["metadata"]["annotations"]["round"] == "2";
        maps.until(name, "of the second round", is).await?;
    }
    test.server().kill().await?;
    for name in &names {
        maps.delete(name).await?;
    }
    webhook.program(|asked| json!({ "attachments": [], "finalized": attached(asked).is_empty() }).into());
    test.server().start()?;
    for name in &names {
        maps.until_gone(name).await?;
        maps.until_gone(&format!("of-{name}")).await?;
    }
    let finalized = |name: &&String| !webhook.asked().iter().any(|asked| is_about(asked, "/finalize", name));
    let forgotten: Vec<_> = names.iter().filter(finalized).collect();
    ensure!(forgotten.is_empty(), "never finalized: {forgotten:?}");
    Ok(())
}
