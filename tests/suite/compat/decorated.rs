//! Kit that all tests of decorators share: objects to be decorated, and what hooks are told of them.

use acceptance::api::{CONFIG_MAP, Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::objects::{Decorator, Hook, config_map, definition, is_true, text};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::Result;
use serde_json::{Value, json};

pub(crate) const FOREIGN: &str = "example.com/foreign";

/// The annotation of attachments.
pub(crate) const DECORATOR: &str = "/metadata/annotations/metacontroller.k8s.io~1decorator-controller";

/// Which objects belong to the test, of kinds that others have, too.
pub(crate) fn of(test: &Fixture) -> Value {
    json!({ "labelSelector": { "matchLabels": { "on": test.name() } } })
}

/// A `ConfigMap` to be decorated.
pub(crate) fn map(test: &Fixture, name: &str) -> Value {
    config_map(name, json!({ "on": test.name() }), json!({ "is": "here" }))
}

/// A `ConfigMap` to be attached.
pub(crate) fn attachment(name: &str) -> Value {
    config_map(name, json!({}), json!({ "is": name }))
}

pub(crate) async fn make_map(test: &mut Fixture, name: &str) -> Result<Value> {
    let (place, object) = (test.config_maps(), map(test, name));
    test.make(&place, object).await
}

/// A controller that attaches `ConfigMap`s to the test's `ConfigMap`s, as a webhook says.
pub(crate) async fn decorated(
    test: &mut Fixture,
    program: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    change: impl FnOnce(Decorator, &Webhook) -> Decorator,
) -> Result<Webhook> {
    let webhook = Webhook::serve(program).await?;
    test.serve()?;
    let rule = of(test);
    let controller = test.decorator().decorating(&CONFIG_MAP, rule).attaching(&CONFIG_MAP, "InPlace");
    let controller = change(controller.synced_by(sync(&webhook)), &webhook);
    test.host_decorator(controller).await?;
    Ok(webhook)
}

pub(crate) fn sync(webhook: &Webhook) -> Hook {
    Hook::webhook(&webhook.url("/sync"))
}

pub(crate) fn finalized(controller: Decorator, webhook: &Webhook) -> Decorator {
    controller.finalized_by(Hook::webhook(&webhook.url("/finalize")))
}

/// The name of the object that a hook is asked about.
pub(crate) fn name(asked: &Asked) -> &str {
    text(&asked.body, "/object/metadata/name")
}

pub(crate) fn is_about(asked: &Asked, path: &str, object: &str) -> bool {
    asked.path == path && name(asked) == object
}

/// How often a webhook was asked about an object.
pub(crate) fn times(webhook: &Webhook, object: &str) -> usize {
    webhook.asked().iter().filter(|asked| name(asked) == object).count()
}

/// Waits until a webhook was asked about an object so many times more.
pub(crate) async fn until_asked_again(webhook: &Webhook, object: &str, more: usize) -> Result<()> {
    let before = times(webhook, object);
    until(&format!("{more} more requests about {object}"), PATIENCE, || async {
        let more_now = times(webhook, object) - before;
        Ok(if more_now >= more { Ok(()) } else { Err(format!("{more_now} more")) })
    })
    .await
}

/// The attached `ConfigMap`s that a hook is shown.
pub(crate) fn attached(asked: &Asked) -> Vec<&str> {
    let attachments = asked.body["attachments"]["ConfigMap.v1"].as_object();
    attachments.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The finalizer of the test's decorator.
pub(crate) fn ours(test: &Fixture) -> String {
    format!("metacontroller.io/decoratorcontroller-{}", test.name())
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    text(object, &format!("/metadata/labels/{key}"))
}

pub(crate) fn labels(labels: Value) -> Value {
    let mut object = json!({ "metadata": {} });
    object["metadata"]["labels"] = labels;
    object
}

pub(crate) fn annotations(annotations: Value) -> Value {
    let mut object = json!({ "metadata": {} });
    object["metadata"]["annotations"] = annotations;
    object
}

/// A foreign finalizer holds an object until [`let_go`].
pub(crate) async fn hold(place: &Objects, name: &str) -> Result<()> {
    let held = place.get(name).await?;
    let all: Vec<_> = finalizers(&held).into_iter().chain([FOREIGN]).collect();
    place.merge(name, &json!({ "metadata": { "finalizers": all } })).await.map(drop)
}

pub(crate) async fn let_go(place: &Objects, name: &str) -> Result<()> {
    let held = place.get(name).await?;
    let all: Vec<_> = finalizers(&held).into_iter().filter(|one| *one != FOREIGN).collect();
    place.merge(name, &json!({ "metadata": { "finalizers": all } })).await?;
    place.until_gone(name).await
}

/// Makes a kind known that is not quite like others.
pub(crate) async fn define(test: &Fixture, kind: &Kind, change: impl FnOnce(&mut Value)) -> Result<()> {
    let mut definition = definition(kind);
    change(&mut definition["spec"]);
    let name = text(&definition, "/metadata/name").to_owned();
    test.definitions().create(definition).await?;
    test.definitions().until(&name, "established", |crd| is_true(crd, "Established")).await.map(drop)
}

/// An object of the test's own kind, or of another one that is like it.
pub(crate) fn thing(kind: &Kind, name: &str, metadata: Value, spec: Value) -> Value {
    let mut thing = json!({ "apiVersion": kind.api_version(), "kind": kind.kind });
    (thing["metadata"], thing["spec"]) = (metadata, spec);
    thing["metadata"]["name"] = json!(name);
    thing
}

/// Verbs of the server's writes on behalf of an object (`namespace/name`).
pub(crate) fn written(log: &str, key: &str) -> Vec<String> {
    let parent = format!("\"parent\":\"{key}\"");
    let verb = |line: &str| {
        let (_, rest) = line.split_once("\"op\":\"")?;
        rest.split_once('"').map(|(verb, _)| verb.to_owned())
    };
    let of_object = |line: &&str| line.contains("\"written\"") && line.contains(&parent);
    log.lines().filter(of_object).filter_map(verb).collect()
}
