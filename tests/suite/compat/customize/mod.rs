//! Section 6 of the compatibility contract: the customize hook and related objects.

pub(crate) mod customize_calls;
pub(crate) mod customize_rules;

use acceptance::api::{self, Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, definition, is_true, text};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::Result;
use serde_json::{Map, Value, json};

/// The rules are in the parent's spec; what came of them is told in its status.
fn program(asked: &Asked) -> Answer {
    match asked.path.as_str() {
        "/customize" => match &asked.body["parent"]["spec"]["answer"] {
            Value::Null => json!({ "relatedResources": asked.body["parent"]["spec"]["rules"] }).into(),
            answer => answer.clone().into(),
        },
        path => {
            let status = json!({ "related": names(&asked.body["related"]) });
            json!({ "status": status, "finalized": path == "/finalize" }).into()
        }
    }
}

/// The names in each group, in order: `{"Thing": "a b"}`.
fn names(related: &Value) -> Value {
    let groups = related.as_object().into_iter().flatten();
    let told = groups.map(|(group, objects)| {
        let kind = group.split('.').next().unwrap_or_default();
        let names: Vec<_> =
            objects.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        (kind.to_owned(), Value::from(names.join(" ")))
    });
    told.collect::<Map<_, _>>().into()
}

/// A test with a webhook, a namespaced and a cluster-scoped kind of related objects, and another namespace.
struct Place {
    webhook: Webhook,
    thing: Kind,
    wide: Kind,
    away: String,
}

impl Place {
    async fn new(test: &mut Fixture) -> Result<Self> {
        let group = format!("related.{}", test.kind().group);
        let thing = Kind::new(&group, "v1", "Thing", "things");
        let wide = Kind::new(&group, "v1", "Wide", "wides");
        test.define(&thing).await?;
        define_cluster_scoped(test, &wide).await?;
        test.define_kind().await?;
        let away = format!("{}-away", test.name());
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": away } });
        let namespaces = test.everywhere(&api::NAMESPACE);
        test.make(&namespaces, namespace).await?;
        Ok(Self { webhook: Webhook::serve(program).await?, thing, wide, away })
    }

    /// The hooks of a controller in one version.
    fn hooked(&self, controller: Composite, version: &str) -> Composite {
        let hook = |path: &str| Hook::webhook(&self.webhook.url(path)).version(version);
        controller.synced_by(hook("/sync")).customized_by(hook("/customize"))
    }

    fn rule(&self, fields: Value) -> Value {
        rule(&self.thing, fields)
    }

    fn things(&self, test: &Fixture) -> Objects {
        test.within(&self.thing)
    }

    async fn thing(&self, test: &mut Fixture, name: &str, labels: &Value) -> Result<Value> {
        let place = self.things(test);
        test.make(&place, object(&self.thing, name, labels)).await
    }

    /// How often a hook was asked about a parent.
    fn calls(&self, path: &str, parent: &str) -> usize {
        let about =
            |asked: &&Asked| asked.path == path && text(&asked.body, "/parent/metadata/name") == parent;
        self.webhook.asked().iter().filter(about).count()
    }
}

fn rule(kind: &Kind, mut fields: Value) -> Value {
    fields["apiVersion"] = json!(kind.api_version());
    fields["resource"] = json!(kind.plural);
    fields
}

fn object(kind: &Kind, name: &str, labels: &Value) -> Value {
    let metadata = json!({ "name": name, "labels": labels });
    json!({ "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "spec": {} })
}

fn parent(kind: &Kind, name: &str, rules: &[Value]) -> Value {
    let mut parent = object(kind, name, &json!({}));
    parent["spec"]["rules"] = json!(rules);
    parent
}

pub(crate) async fn define_cluster_scoped(test: &Fixture, kind: &Kind) -> Result<()> {
    let mut definition = definition(kind);
    definition["spec"]["scope"] = json!("Cluster");
    let name = text(&definition, "/metadata/name").to_owned();
    test.definitions().create(definition).await?;
    test.definitions().until(&name, "established", |crd| is_true(crd, "Established")).await?;
    Ok(())
}

/// A parent's status tells of exactly these.
async fn sees(parents: &Objects, parent: &str, related: &Value) -> Result<()> {
    let what = format!("sees {related}");
    parents.until(parent, &what, |parent| parent["status"]["related"] == *related).await.map(drop)
}
