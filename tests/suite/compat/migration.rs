//! From Metacontroller and back: what it wrote is taken over as it is, and what we write is what it would have written.

use acceptance::api::{Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, text, uid};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::kinds::{WAYS, Way, children, kinds};

const LAST_APPLIED: &str = "metacontroller.k8s.io/last-applied-configuration";

const ALL: [Way; 5] =
    [WAYS[0], WAYS[1], WAYS[2], WAYS[3], Way { name: "left", method: "OnDelete", apply: "dynamic-apply" }];

/// JSON as Go writes it. The order of members and the spelling of texts are `serde_json`'s, but for what is done here.
fn go(value: &Value) -> String {
    let mut value = value.clone();
    whole(&mut value);
    let text = value.to_string();
    [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028")]
        .into_iter()
        .fold(text, |text, (from, to)| text.replace(from, to))
}

fn whole(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(whole),
        Value::Array(items) => items.iter_mut().for_each(whole),
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0)
                && let Ok(integer) = format!("{float}").parse::<i64>()
            {
                *number = integer.into();
            }
        }
        _ => {}
    }
}

/// A desired child as Metacontroller records it.
fn recorded(parent: &Value, mut child: Value) -> Value {
    child["metadata"]["namespace"] = parent["metadata"]["namespace"].clone();
    child["metadata"]["labels"]["controller-uid"] = json!(uid(parent));
    child
}

/// The object that Metacontroller creates for it.
fn written(parent: &Value, child: Value) -> Value {
    let mut object = recorded(parent, child);
    let record = go(&object);
    whole(&mut object);
    object["metadata"]["annotations"][LAST_APPLIED] = json!(record);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": parent["apiVersion"], "kind": parent["kind"], "name": parent["metadata"]["name"],
        "uid": uid(parent), "controller": true, "blockOwnerDeletion": true,
    }]);
    object
}

fn place(test: &Fixture, kind: &Kind) -> Objects {
    test.within(kind)
}

fn record(object: &Value) -> &str {
    object["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap_or_default()
}

/// Children of all kinds; in a later round with another annotation and without the one there was.
fn in_rounds(asked: &Asked) -> Answer {
    let parent = &asked.body["parent"];
    let round = &parent["spec"]["round"];
    let children = wanted(text(parent, "/metadata/name"), round.as_u64().unwrap_or_default());
    json!({ "children": children, "status": { "round": round } }).into()
}

fn wanted(name: &str, round: u64) -> Vec<Value> {
    let mut all = children(name);
    if round > 1 {
        for child in &mut all {
            child["metadata"]["annotations"] = json!({ "round": "<2>" });
        }
    }
    all
}

pub(crate) async fn what_metacontroller_wrote_is_taken_over_under_every_strategy_and_it_finds_its_bytes_again(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(in_rounds).await?;
    test.define_kind().await?;
    let (mut parents, mut before) = (Vec::new(), Vec::new());
    for way in ALL {
        let parent = test.create(test.parent(way.name).labelled("way", way.name)).await?;
        for (kind, child) in kinds().iter().zip(children(way.name)) {
            let made = place(test, kind).create_as("metacontroller", written(&parent, child)).await?;
            before.push((way, kind.clone(), made));
        }
        parents.push(parent);
    }
    test.serve()?;
    for way in ALL {
        let all =
            kinds().iter().fold(test.controller(), |controller, kind| controller.making(kind, way.method));
        let controller = all
            .renamed(&format!("{}-{}", test.name(), way.name))
            .of_parents_with("way", way.name)
            .with("applyStrategy", way.apply)
            .synced_by(Hook::webhook(&webhook.url("/sync")));
        test.host(controller).await?;
    }
    for round in 1..=2 {
        for way in ALL {
            test.parents().merge(way.name, &json!({ "spec": { "round": round } })).await?;
            test.parents().until(way.name, "its round", |one| one["status"]["round"] == round).await?;
        }
        for (way, kind, before) in &before {
            let parent = parents.iter().find(|parent| text(parent, "/metadata/name") == way.name);
            let taken = Taken { way: *way, kind, before, parent: parent.unwrap_or(&Value::Null) };
            taken.is_right(&place(test, kind), round).await?;
        }
    }
    Ok(())
}

/// A child of Metacontroller's, and what became of it.
struct Taken<'a> {
    way: Way,
    kind: &'a Kind,
    before: &'a Value,
    parent: &'a Value,
}

impl Taken<'_> {
    async fn is_right(&self, place: &Objects, round: u64) -> Result<()> {
        let Self { way, kind, before, parent } = *self;
        let child = wanted(way.name, round).into_iter().find(|child| child["kind"] == kind.kind.as_str());
        let expected = go(&recorded(parent, child.unwrap_or_default()));
        let recorded_as = |now: &Value| record(now) == expected;
        let now = match (way.method, way.apply, round) {
            ("OnDelete", ..) => {
                let now = place.get(way.name).await?;
                ensure!(record(&now) == record(before), "{} {}: {now}", way.name, kind.kind);
                now
            }
            (_, "dynamic-apply", _) => {
                place.until(way.name, "the bytes that Metacontroller writes", recorded_as).await?
            }
            (_, _, 1) => place.until(way.name, "handed over", |now| record(now).is_empty()).await?,
            _ => {
                let applied = |now: &Value| {
                    now["metadata"]["annotations"]["round"] == "<2>"
                        && now["metadata"]["annotations"].get("note").is_none()
                };
                place.until(way.name, "applied, without what is dropped", applied).await?
            }
        };
        let kept = uid(&now) == uid(before);
        let anew = round == 2 && way.method == "Recreate";
        ensure!(kept || anew, "{} {} was made anew: {before}\n{now}", way.name, kind.kind);
        if kept {
            ensure!(now["spec"] == before["spec"] && now["data"] == before["data"], "{before}\n{now}");
        }
        Ok(())
    }
}
