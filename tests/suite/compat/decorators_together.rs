//! Section 7 of the compatibility contract, where Metacontroller's decorators overwrite each other for ever: who has a say
//! about an object that several decorators look at.

use std::collections::BTreeSet;
use std::time::Duration;

use acceptance::api::{Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{Decorator, has_condition, text, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::decorated::{attachment, finalized, finalizers, label, labels, sync, until_asked_again};
use crate::{explain, wasm};

/// The reason of Events that tell of decorators that want different things.
const CONFLICT: &str = "DecoratorsConflict";

/// Two decorators that want different things of one object; the first by name is the younger one.
struct Two {
    older: (Webhook, Value),
    younger: (Webhook, Value),
    place: Objects,
}

/// One label and annotation that both want to be different, one that is its own, and a status.
fn wants(who: &str, odd: &Value) -> Value {
    let keys = json!({ "both": who, who: "1" });
    let mut answer =
        json!({ "labels": keys, "annotations": keys, "status": { "of": who }, "attachments": [] });
    for (key, value) in odd.as_object().into_iter().flatten() {
        answer["labels"][key] = value.clone();
    }
    answer
}

/// Settings that are particular to a decorator.
type Particular = fn(Decorator, &Fixture, &Webhook) -> Decorator;

fn of_the_kind(controller: Decorator, test: &Fixture, _: &Webhook) -> Decorator {
    controller.decorating(test.kind(), json!({}))
}

fn controller_name(of: &Value) -> &str {
    text(of, "/metadata/name")
}

impl Two {
    /// The older and the younger.
    async fn new(test: &mut Fixture, particular: [Particular; 2]) -> Result<Self> {
        test.define_kind().await?;
        let older = Webhook::answering(wants("older", &json!({ "odd": null }))).await?;
        let younger = Webhook::answering(wants("younger", &json!({ "odd": "1" }))).await?;
        let mut hosted = Vec::new();
        for ((name, webhook), change) in [("z", &older), ("a", &younger)].into_iter().zip(particular) {
            let controller = test.decorator().renamed(&format!("{}-{name}", test.name()));
            let controller = controller.resyncing_each_second().synced_by(sync(webhook));
            hosted.push(test.host_decorator(change(controller, test, webhook)).await?);
            if hosted.len() == 1 {
                a_second_passes(test).await?;
            }
        }
        let younger = (younger, hosted.remove(1));
        Ok(Self { older: (older, hosted.remove(0)), younger, place: test.parents() })
    }

    /// Both look at the object some times more, and neither writes anything.
    async fn rest(&self, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let object = self.place.until("p", "as it is to be", &wanted).await?;
        for (webhook, _) in [&self.older, &self.younger] {
            until_asked_again(webhook, "p", 3).await?;
        }
        let after = self.place.get("p").await?;
        ensure!(version(&object) == version(&after), "written on and on: {object}\n{after}");
        Ok(after)
    }
}

/// By the API server's clock, which is what ages are told by.
async fn a_second_passes(test: &mut Fixture) -> Result<()> {
    let mut ticks = BTreeSet::new();
    for tick in 0.. {
        let place = test.config_maps();
        let made = test.make(&place, attachment(&format!("tick-{tick}"))).await?;
        ticks.insert(text(&made, "/metadata/creationTimestamp").to_owned());
        if ticks.len() > 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// An object on which `who` has what both want; `odd`: what is labelled so.
fn is_of(who: &'static str, odd: Option<&'static str>) -> impl Fn(&Value) -> bool {
    move |object| {
        let mut wanted = json!({ "both": who, "older": "1", "younger": "1" });
        let annotated = object["metadata"]["annotations"] == wanted;
        if let Some(odd) = odd {
            wanted["odd"] = json!(odd);
        }
        object["metadata"]["labels"] == wanted && annotated && object["status"] == json!({ "of": who })
    }
}

/// Where two decorators want different values of one key, the older one has it, and no value flaps: told on both, also after
/// a restart where the younger is the first to answer; the younger takes over what the older no longer wants, and all once
/// it is gone.
pub(crate) async fn of_two_decorators_the_older_has_the_key_and_both_get_an_event(
    test: &mut Fixture,
) -> Result<()> {
    let two = Two::new(test, [of_the_kind, of_the_kind]).await?;
    let server = free_address()?;
    test.server().flag(&format!("--inspection-address={server}"));
    test.serve()?;
    test.create(test.parent("p")).await?;
    two.rest(is_of("older", None)).await?;
    let kind = explain::kind(test);
    let left = ["left        the DecoratorControllers ", " want the label both to be different: "];
    explain::until_explained(test, server, [&kind, "p"], &left).await?;
    for ((_, controller), (_, other)) in [(&two.older, &two.younger), (&two.younger, &two.older)] {
        for what in ["label both", "label odd", "annotation both", "status"] {
            let told = |event: &Value| {
                let message = text(event, "/message");
                message.contains(what) && message.contains(controller_name(other))
            };
            test.until_event_on(controller, CONFLICT, told).await?;
        }
    }
    let (slow, fast) = (&two.older.0, &two.younger.0);
    slow.answer(wants("older", &json!({})));
    let before = two.rest(is_of("older", Some("1"))).await?;

    test.server().stop().await?;
    slow.answer(Answer::from(wants("older", &json!({}))).after(Duration::from_secs(2)));
    test.server().start()?;
    until_asked_again(fast, "p", 2).await?;
    slow.answer(wants("older", &json!({})));
    let after = two.rest(is_of("older", Some("1"))).await?;
    ensure!(version(&before) == version(&after), "a restart had something written: {before}\n{after}");

    test.decorators().delete(controller_name(&two.older.1)).await?;
    let is = is_of("younger", Some("1"));
    let taken = two.place.until("p", "as the younger wants it", &is).await?;
    until_asked_again(fast, "p", 3).await?;
    ensure!(version(&two.place.get("p").await?) == version(&taken), "written on and on");
    Ok(())
}

/// Modules, which are asked only when something changed: each change of who has a say wakes the one whom it concerns.
pub(crate) async fn what_an_older_decorator_gives_up_the_younger_has_at_once(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let wants = |who: &str| wasm::answers(&json!({ "labels": { "k": who }, "attachments": [] }));
    test.store("older", &wants("older")?).await?;
    test.store("younger", &wants("younger")?).await?;
    test.serve()?;
    let kind = test.kind().clone();
    let (older, younger) = (format!("{}-z", test.name()), format!("{}-a", test.name()));
    let controller =
        |test: &Fixture, name: &str, rule: Value| test.decorator().renamed(name).decorating(&kind, rule);
    // It cannot run yet.
    let rule = json!({ "labelSelector": { "matchLabels": { "both": "yes" } } });
    test.host_decorator(controller(test, &older, rule)).await?;
    a_second_passes(test).await?;
    test.host_decorator(controller(test, &younger, json!({})).synced_by(test.hook("younger"))).await?;
    let place = test.parents();
    test.create(test.parent("p").labelled("both", "yes")).await?;
    let has = async |who: &str| {
        place
            .until("p", &format!("labelled by the {who}"), |object| label(object, "k") == who)
            .await
            .map(drop)
    };
    has("younger").await?;
    let hook = json!({ "wasm": { "configMap": { "namespace": test.name(), "name": "older" } } });
    test.decorators().merge(&older, &json!({ "spec": { "hooks": { "sync": hook } } })).await?;
    has("older").await?;
    for name in [&older, &younger] {
        test.decorators().until(name, "settled", |dc| dc["status"]["settled"] == 1).await?;
    }
    // It is none of its objects any more, and then again.
    place.merge("p", &labels(json!({ "both": null }))).await?;
    has("younger").await?;
    place.merge("p", &labels(json!({ "both": "yes" }))).await?;
    has("older").await?;
    // It wants something else, and then again.
    test.store("older", &wasm::answers(&json!({ "labels": { "l": "older" }, "attachments": [] }))?).await?;
    has("younger").await?;
    test.store("older", &wants("older")?).await?;
    has("older").await?;
    test.decorators().delete(&older).await?;
    has("younger").await
}

/// A kind that is known later.
fn late(test: &Fixture) -> Kind {
    Kind::new(&format!("late.{}", test.kind().group), "v1", "Late", "lates")
}

/// One that attaches what is not served holds up no younger one, has its say once it is, and none any more when its spec
/// is refused.
pub(crate) async fn no_decorator_waits_for_an_older_one_that_cannot_start(test: &mut Fixture) -> Result<()> {
    let attaching = |controller: Decorator, test: &Fixture, _: &Webhook| {
        controller.decorating(test.kind(), json!({})).attaching(&late(test), "InPlace")
    };
    let two = Two::new(test, [attaching, of_the_kind]).await?;
    test.serve()?;
    test.create(test.parent("p")).await?;
    let is_of = |who: &'static str| move |object: &Value| label(object, "both") == who;
    two.place.until("p", "as the younger wants it", is_of("younger")).await?;
    ensure!(two.older.0.count() == 0, "it cannot start");
    test.define(&late(test)).await?;
    two.rest(is_of("older")).await?;
    let told = |event: &Value| text(event, "/message").contains("label both");
    test.until_event_on(&two.older.1, CONFLICT, told).await?;
    let refused = json!({ "spec": { "hooks": { "sync": { "webhook": { "url": "no url" } } } } });
    let (decorators, older) = (test.decorators(), controller_name(&two.older.1));
    decorators.merge(older, &refused).await?;
    decorators.until(older, "refused", |it| has_condition(it, "Ready", "False", "InvalidSpec")).await?;
    two.place.until("p", "as the younger wants it again", is_of("younger")).await.map(drop)
}

/// Neither another spec of the older one nor the end of the server lets the younger one write what it may not.
pub(crate) async fn what_the_older_decorator_wants_stands_while_it_is_away(test: &mut Fixture) -> Result<()> {
    let two = Two::new(test, [of_the_kind, of_the_kind]).await?;
    test.serve()?;
    test.create(test.parent("p")).await?;
    let before = two.rest(is_of("older", None)).await?;
    let (older, younger) = (&two.older.0, &two.younger.0);
    // While it is started anew it takes a while to say what it wants.
    older.answer(Answer::from(wants("older", &json!({ "odd": null }))).after(Duration::from_secs(1)));
    let other = json!({ "spec": { "resyncPeriodSeconds": 2 } });
    test.decorators().merge(controller_name(&two.older.1), &other).await?;
    let started = |event: &Value| event["count"].as_i64().is_some_and(|count| count > 1);
    test.until_event_on(&two.older.1, "Started", started).await?;
    let after = two.rest(is_of("older", None)).await?;
    ensure!(version(&before) == version(&after), "another spec had something written: {before}\n{after}");
    younger.answer(Answer::from(wants("younger", &json!({ "odd": "1" }))).after(Duration::from_secs(1)));
    until_asked_again(younger, "p", 2).await?;
    test.server().stop().await?;
    let after = two.place.get("p").await?;
    ensure!(version(&before) == version(&after), "the end had something written: {before}\n{after}");
    test.server().start()
}

/// A server that starts in a pause of the older one asks it nothing: the younger one takes none of its fields, and goes on with
/// its own.
pub(crate) async fn what_a_paused_decorator_wrote_stands_after_a_restart(test: &mut Fixture) -> Result<()> {
    let two = Two::new(test, [of_the_kind, of_the_kind]).await?;
    let (older, younger) = (&two.older.0, &two.younger.0);
    older.answer(wants("older", &json!({})));
    test.serve()?;
    test.create(test.parent("p")).await?;
    let before = two.rest(is_of("older", Some("1"))).await?;
    let (decorators, name) = (test.decorators(), controller_name(&two.older.1));
    decorators.merge(name, &json!({ "spec": { "paused": true } })).await?;
    decorators.until(name, "paused", |it| has_condition(it, "Ready", "True", "Paused")).await?;
    test.server().stop().await?;
    let asked = older.count();
    test.server().start()?;
    until_asked_again(younger, "p", 3).await?;
    let after = two.place.get("p").await?;
    ensure!(version(&before) == version(&after), "the younger one wrote: {before}\n{after}");
    younger.answer(wants("younger", &json!({ "odd": "2" })));
    two.place.until("p", "changed by the younger", is_of("older", Some("2"))).await?;
    ensure!(older.count() == asked, "the paused one was asked");
    decorators.merge(name, &json!({ "spec": { "paused": null } })).await?;
    two.rest(is_of("older", Some("2"))).await.map(drop)
}

/// After a start the younger one's last answer comes before the older one has looked: the object keeps the finalizer until
/// what the answer takes off is off.
pub(crate) async fn cleaning_up_that_waits_for_an_older_decorator_is_not_lost(
    test: &mut Fixture,
) -> Result<()> {
    let of_labelled = |controller: Decorator, test: &Fixture, webhook: &Webhook| {
        let rule = json!({ "labelSelector": { "matchLabels": { "on": "1" } } });
        finalized(controller.decorating(test.kind(), rule), webhook)
    };
    let two = Two::new(test, [of_the_kind, of_labelled]).await?;
    let (older, younger) = (&two.older.0, &two.younger.0);
    let has = json!({ "labels": { "older": "1" }, "attachments": [] });
    older.answer(has.clone());
    younger.program(|asked: &Asked| {
        if asked.path == "/finalize" {
            json!({ "labels": { "younger": null }, "attachments": [], "finalized": true }).into()
        } else {
            json!({ "labels": { "younger": "1" }, "attachments": [] }).into()
        }
    });
    test.serve()?;
    test.create(test.parent("p").labelled("on", "1")).await?;
    let is = |object: &Value| label(object, "older") == "1" && label(object, "younger") == "1";
    two.place.until("p", "decorated by both", is).await?;
    test.server().stop().await?;
    older.answer(Answer::from(has).after(Duration::from_secs(2)));
    two.place.merge("p", &json!({ "metadata": { "labels": { "on": null } } })).await?;
    test.server().start()?;
    let left = |object: &Value| finalizers(object).is_empty();
    let after = two.place.until("p", "left by the younger", left).await?;
    ensure!(label(&after, "younger").is_empty(), "what it was to take off is still there: {after}");
    ensure!(label(&after, "older") == "1", "{after}");
    let asked = younger.asked().iter().filter(|asked| asked.path == "/finalize").count();
    ensure!(asked > 1, "nothing waited: the test tests nothing");
    Ok(())
}
