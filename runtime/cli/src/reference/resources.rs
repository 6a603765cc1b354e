//! Reference of resources: the page of the book has every field of the CustomResourceDefinitions, with examples.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use metahook_author::schemas::hooks::controllers;
use metahook_core::api::composite::ControllerRevision;
use metahook_core::api::policy::HookPolicy;
use metahook_core::api::{CheckedSpec, ControllerKind, as_stored};
use metahook_core::object::Object;
use serde_json::{Value, json};

use super::fields::{Field, Tables, anchor, ordered};
use super::json_schema::faults;
use super::{compare, table};
use crate::crds::definitions;

/// An example of each field of a spec: documents with one field each.
const COMPOSITE: &str = include_str!("examples/composite.yaml");
const DECORATOR: &str = include_str!("examples/decorator.yaml");

const REVISION: &str = include_str!("examples/revision.yaml");

/// The schema of each kind of object.
fn schemas() -> BTreeMap<String, Value> {
    let all = definitions().unwrap().into_iter().map(|(_, mut definition)| {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        (kind, definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].take())
    });
    all.collect()
}

/// The examples of a file by the field that each of them shows.
fn examples(text: &str) -> BTreeMap<String, (&str, Value)> {
    let all = text.trim_end().split("\n---\n").map(|text| {
        let mut example: Value = serde_saphyr::from_str(text).unwrap();
        let spec = example["spec"].as_object_mut().unwrap();
        assert_eq!(spec.len(), 1, "{text}");
        let (field, value) = std::mem::take(spec).into_iter().next().unwrap();
        (field, (text, value))
    });
    all.collect()
}

fn fields_of_spec(kind: &str, spec: &Value, examples: &str, tables: &mut Tables) -> String {
    let mut examples = self::examples(examples);
    let (mut overview, mut sections) = (Vec::new(), String::new());
    for (name, schema, is_required) in ordered(spec) {
        let heading = format!("{kind}.spec.{name}");
        let Field { kind: of, default, meaning, .. } = Field::of(&heading, schema, is_required);
        let shown = format!("[`{name}`](#{})", anchor(&heading));
        let Some((example, _)) = examples.remove(name) else {
            let link = format!("[`{name}`](#{})", anchor(&format!("CompositeController.spec.{name}")));
            overview.push(vec![link, of, default]);
            continue;
        };
        overview.push(vec![shown, of.clone(), default.clone()]);
        tables.shown_before(name, &heading, schema);
        let default = if default.is_empty() { default } else { format!("; default: {default}") };
        let default = default.replace("default: required", "required");
        write!(sections, "\n### `{heading}`\n\n{meaning}\n\nType: {of}{default}.\n\n").unwrap();
        write!(sections, "```yaml\n{example}\n```\n").unwrap();
        let rows = tables.of(&heading, name, schema);
        let gap = if rows.is_empty() { "" } else { "\n" };
        write!(sections, "{gap}{rows}").unwrap();
    }
    assert!(examples.is_empty(), "{kind} has no such fields: {:?}", examples.keys());
    table(&["field of `spec`", "type", "default"], &overview) + &sections
}

#[test]
fn reference_has_every_field_of_the_resources() {
    let schemas = schemas();
    let mut tables = Tables::default();
    let mut page = String::new();
    for (kind, examples) in [("CompositeController", COMPOSITE), ("DecoratorController", DECORATOR)] {
        let (spec, status) = (&schemas[kind]["spec"], &schemas[kind]["status"]);
        let about = Field::of(kind, spec, false).meaning;
        write!(page, "## {kind}\n\n{about}\n\n").unwrap();
        page += &fields_of_spec(kind, spec, examples, &mut tables);
        let heading = format!("{kind}.status");
        let about = Field::of(&heading, status, false).meaning;
        write!(page, "\n### `{heading}`\n\n{about}\n\n").unwrap();
        match tables.shown_before("status", &heading, status) {
            Some(link) => writeln!(page, "Its fields are those of {link}.\n").unwrap(),
            None => page += &(tables.of(&heading, "status", status) + "\n"),
        }
    }
    let mut revision = schemas["ControllerRevision"].clone();
    revision.as_object_mut().unwrap().retain(|name, _| name == "parentPatch" || name == "children");
    let revision = json!({ "properties": revision, "required": ["parentPatch"] });
    page += "## ControllerRevision\n\nA state of a parent, for rolling updates. The server writes it; do not change it.\n\n";
    page += &tables.of("ControllerRevision", "", &revision);
    write!(page, "\n```yaml\n{REVISION}```\n").unwrap();
    compare("resources.md", "resources", &page);
}

/// The names of all fields below a schema.
fn names(schema: &Value, all: &mut BTreeSet<String>) {
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        all.insert(name.clone());
        names(below, all);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            names(&schema[key], all);
        }
    }
}

#[test]
fn examples_show_every_field_of_a_spec() {
    let mut all = BTreeSet::new();
    let schemas = schemas();
    for kind in ["CompositeController", "DecoratorController"] {
        names(&schemas[kind]["spec"], &mut all);
    }
    // Metacontroller's definitions have these two, and neither server uses them.
    all.retain(|name| name != "preUpdateChild" && name != "postUpdateChild");
    let shown = [COMPOSITE, DECORATOR].concat();
    all.retain(|name| !shown.contains(&format!("{name}: ")) && !shown.contains(&format!("{name}:\n")));
    assert!(all.is_empty(), "no example has {all:?}");
}

/// A controller with nothing but what it needs.
fn smallest(kind: ControllerKind) -> Value {
    let hooks = json!({ "sync": { "webhook": { "url": "http://hook.hello/sync" } } });
    let parents = json!({ "apiVersion": "apps/v1", "resource": "statefulsets" });
    let spec = match kind {
        ControllerKind::Composite => json!({ "parentResource": parents, "hooks": hooks }),
        ControllerKind::Decorator => json!({ "resources": [parents], "hooks": hooks }),
    };
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": kind.as_str(),
        "metadata": { "name": "example" }, "spec": spec,
    })
}

/// The API server's schema and the server's own checks accept an example, and the server warns of nothing in it.
fn accepts(schema: &Value, kind: ControllerKind, field: &str, value: &Value) {
    let mut controller = smallest(kind);
    controller["spec"][field] = value.clone();
    let found = faults(schema, &controller);
    assert!(found.is_empty(), "{field}: {found:?}");
    let controller = Object::parse(&controller.to_string(), None).unwrap();
    let mount_secret_namespaces = BTreeSet::from(["hello".to_owned()]);
    let policy = HookPolicy { mount_secret_namespaces, ..HookPolicy::default() };
    let checked = CheckedSpec::of(kind, &controller, &policy);
    let (checked, _) = checked.unwrap_or_else(|error| panic!("{field}: {error}"));
    assert!(checked.warnings().is_empty(), "{field}: {:?}", checked.warnings());
    let shadows = &checked.common().shadows;
    assert!(shadows.values().all(Result::is_ok), "{field}: {shadows:?}");
}

#[test]
fn reference_shows_examples_that_a_server_accepts() {
    let all: Vec<_> = definitions().unwrap().into_iter().map(|(_, definition)| definition).collect();
    let schema = controllers(&all);
    let (composite, decorator) = (examples(COMPOSITE), examples(DECORATOR));
    for (field, (_, value)) in &composite {
        accepts(&schema, ControllerKind::Composite, field, value);
    }
    let schemas = schemas();
    for (field, its, _) in ordered(&schemas["DecoratorController"]["spec"]) {
        let (_, value) = decorator.get(field).or(composite.get(field)).unwrap();
        let same = &schemas["CompositeController"]["spec"]["properties"][field];
        assert!(decorator.contains_key(field) || its == same, "{field} needs an example of its own");
        accepts(&schema, ControllerKind::Decorator, field, value);
    }
    let mut revision: Value = serde_saphyr::from_str(REVISION).unwrap();
    revision.as_object_mut().unwrap().retain(|name, _| name == "parentPatch" || name == "children");
    let read: ControllerRevision = serde_json::from_value(revision.clone()).unwrap();
    assert_eq!(as_stored(&read), Some(revision));
}
