//! A definition that gets a field while its objects are watched: as its author applies both in one command.

use acceptance::api::{CONFIG_MAP, Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, Parent, config_map, definition, text};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Asked, Webhook};
use anyhow::Result;
use serde_json::{Value, json};

/// The API server goes over to a new definition while changes are on their way: most of so many tries meet that.
const TRIES: usize = 6;

/// The definition with so many fields in its spec.
fn with_fields(kind: &Kind, count: usize) -> Value {
    let mut definition = definition(kind);
    let text = json!({ "type": "string" });
    let fields: serde_json::Map<_, _> =
        (0..count).map(|nth| (format!("field-{nth}"), text.clone())).collect();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"] = json!({ "type": "object", "properties": fields });
    definition
}

fn copies(asked: &Asked) -> Value {
    let parent = &asked.body["parent"];
    let data = json!({ "spec": parent["spec"].to_string() });
    json!({ "status": {}, "children": [config_map(text(parent, "/metadata/name"), json!({}), data)] })
}

/// Writes a field as soon as the API server keeps it.
async fn keeps(parents: &Objects, field: &str) -> Result<()> {
    until(&format!("{field} is kept"), PATIENCE, async || {
        let now = parents.merge("p", &json!({ "spec": { field: "there" } })).await?;
        Ok(if now["spec"][field] == "there" { Ok(()) } else { Err(now["spec"].to_string()) })
    })
    .await
}

pub(crate) async fn a_field_that_a_definition_gets_is_seen_by_the_hook(test: &mut Fixture) -> Result<()> {
    let kind = Kind::new("redefined.example.com", "v1", "Redefined", "redefineds");
    let definitions = test.definitions();
    test.make(&definitions, with_fields(&kind, 1)).await?;
    let name = format!("{}.{}", kind.plural, kind.group);
    definitions.until(&name, "established", |crd| acceptance::objects::is_true(crd, "Established")).await?;
    let hook = Webhook::serve(|asked| copies(asked).into()).await?;
    test.serve()?;
    let controller = test.controller().over(&kind).making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&hook.url("/")))).await?;
    let parents = test.within(&kind);
    test.make(&parents, Parent::named(&kind, "p").json()).await?;
    for count in 0..TRIES {
        let field = format!("field-{count}");
        definitions.merge(&name, &json!({ "spec": with_fields(&kind, count + 1)["spec"] })).await?;
        keeps(&parents, &field).await?;
        let has = |child: &Value| child["data"]["spec"].as_str().is_some_and(|spec| spec.contains(&field));
        test.config_maps().until("p", &format!("the hook has seen {field}"), has).await?;
    }
    Ok(())
}
