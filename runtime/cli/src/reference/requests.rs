//! Reference of requests and answers: the page of the book has every field of them, and an example of each.

use std::fmt::Write as _;
use std::sync::Arc;

use metahook_author::documents::of_cluster;
use metahook_author::kinds::KnownKinds;
use metahook_author::render::setup::hook_kinds;
use metahook_author::schemas::hooks::Subject;
use metahook_core::api::composite::CompositeControllerSpec;
use metahook_core::api::customize::CustomizeBounds;
use metahook_core::api::decorator::DecoratorControllerSpec;
use metahook_core::api::hook::{HookName, HookTransport, HookVersion};
use metahook_core::api::selection::finalizer;
use metahook_core::api::webhook::UnmarshallMode;
use metahook_core::api::{ControllerKind, snapshot};
use metahook_core::hook::read::ReadOptions;
use metahook_core::hook::{MAX_ANSWER_MEMORY, Sync, customize, response};
use metahook_core::object::id::Resource;
use metahook_core::object::{ChildMap, Object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::compare;
use super::fields::Tables;
use super::json_schema::faults;

/// Bytes of a line of JSON. A value that needs more has a line for each of its fields.
const MAX_LINE: usize = 100;

/// What the server observes in the examples of one kind of controller.
#[derive(Deserialize)]
struct World {
    controller: Value,
    definitions: Vec<Value>,
    parent: Value,
    children: Vec<Value>,
    related: Vec<Value>,
    settings: Value,
}

struct Examples {
    kind: ControllerKind,
    world: World,
    /// Answers of the hooks sync, finalize and customize.
    answers: [(HookName, &'static str); 3],
}

fn all() -> [Examples; 2] {
    let composite = Examples {
        kind: ControllerKind::Composite,
        world: serde_saphyr::from_str(include_str!("examples/composite-world.yaml")).unwrap(),
        answers: [
            (HookName::Sync, include_str!("examples/composite-sync.json")),
            (HookName::Finalize, include_str!("examples/composite-finalize.json")),
            (HookName::Customize, include_str!("examples/composite-customize.json")),
        ],
    };
    let decorator = Examples {
        kind: ControllerKind::Decorator,
        world: serde_saphyr::from_str(include_str!("examples/decorator-world.yaml")).unwrap(),
        answers: [
            (HookName::Sync, include_str!("examples/decorator-sync.json")),
            (HookName::Finalize, include_str!("examples/decorator-finalize.json")),
            (HookName::Customize, include_str!("examples/decorator-customize.json")),
        ],
    };
    [composite, decorator]
}

impl Examples {
    /// The schemas of a request and of an answer, as `metahook schema` prints them.
    fn schemas(&self, hook: HookName) -> [Value; 2] {
        let objects = [&self.world.controller].into_iter().chain(&self.world.definitions).cloned();
        let documents = of_cluster(objects.collect());
        let known = KnownKinds::of(&documents).unwrap();
        let kinds = hook_kinds(&documents, &known).unwrap();
        let subjects = match hook {
            HookName::Sync | HookName::Finalize => [Subject::SyncRequest, Subject::SyncResponse],
            HookName::Customize => [Subject::CustomizeRequest, Subject::CustomizeResponse],
        };
        subjects.map(|subject| kinds.schema(subject))
    }

    /// The request as the server writes it.
    fn request(&self, hook: HookName, version: HookVersion) -> Value {
        let world = &self.world;
        let mut parent = world.parent.clone();
        if hook == HookName::Finalize {
            parent["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
            let name = world.controller["metadata"]["name"].as_str().unwrap();
            parent["metadata"]["finalizers"] = json!([finalizer(self.kind, name)]);
        }
        let (parent, settings) = (object(&parent), world.settings.to_string());
        let (controller, spec) = (object(&world.controller), world.controller["spec"].clone());
        let controller = match self.kind {
            ControllerKind::Composite => {
                snapshot(&controller, &serde_json::from_value::<CompositeControllerSpec>(spec).unwrap())
            }
            ControllerKind::Decorator => {
                snapshot(&controller, &serde_json::from_value::<DecoratorControllerSpec>(spec).unwrap())
            }
        };
        let bytes = match hook {
            HookName::Customize => customize::request(&controller, &parent, Some(&settings)),
            HookName::Sync | HookName::Finalize => Sync {
                kind: self.kind,
                controller: &controller,
                parent: &parent,
                children: &map(&world.children),
                related: &map(&world.related),
                settings: Some(&settings),
                naming: version.naming(),
                finalizing: hook == HookName::Finalize,
            }
            .bytes(),
        };
        serde_json::from_slice(&bytes).unwrap()
    }

    /// A server accepts the answer, and finds nothing in it that it ignores.
    fn accepts(&self, hook: HookName, answer: &str) {
        let (via, mode, bytes) = (HookTransport::Wasm, UnmarshallMode::Strict, answer.as_bytes());
        let (max_children, max_memory) = (10, MAX_ANSWER_MEMORY);
        let reading = ReadOptions { kind: self.kind, via, mode, max_children, max_memory, deletes: true };
        match hook {
            HookName::Customize => {
                customize::rules(bytes, via, mode, &CustomizeBounds::default()).map(|_| ()).unwrap();
            }
            HookName::Sync | HookName::Finalize => response::sync(bytes, reading).map(|_| ()).unwrap(),
        }
    }

    fn page(&self) -> String {
        let mut page = String::new();
        let kind = self.kind.as_str();
        for (hook, title) in [(HookName::Sync, "sync and finalize"), (HookName::Customize, "customize")] {
            let [request, answer] = self.schemas(hook);
            for (what, schema) in [("request", request), ("answer", answer)] {
                let heading = format!("{kind}: {what} of {title}");
                let table = Tables::default().of(&heading, "", &schema);
                write!(page, "\n### {heading}\n\n{table}").unwrap();
            }
        }
        for (hook, answer) in self.answers {
            let request = self.request(hook, HookVersion::V2);
            write!(page, "\n### {kind}: example of {hook}\n\nThe request, version v2:\n\n").unwrap();
            page += &block(&request);
            if hook == HookName::Sync {
                page += "\nIn the request of version v1, only the names differ:\n\n";
                page += &block(&names(&request, self.request(hook, HookVersion::V1)));
            }
            write!(page, "\nThe answer:\n\n```json\n{answer}```\n").unwrap();
        }
        page
    }
}

/// The fields of the second request that are not those of the first.
fn names(newer: &Value, mut older: Value) -> Value {
    older.as_object_mut().unwrap().retain(|name, value| newer[name.as_str()] != *value);
    older
}

fn object(value: &Value) -> Arc<Object> {
    Arc::new(Object::parse(&value.to_string(), None).unwrap())
}

/// Objects by their kinds, all of which have namespaces.
fn map(objects: &[Value]) -> ChildMap {
    let mut map = ChildMap::default();
    for object in objects.iter().map(object) {
        let plural = format!("{}s", object.gvk.kind.to_lowercase()).into();
        let kind = Arc::new(Resource { gvk: object.gvk.clone(), plural, namespaced: true, has_status: true });
        map.declare(&kind);
        map.insert(&kind, object);
    }
    map
}

fn block(value: &Value) -> String {
    let mut text = "```json\n".to_owned();
    write_json(&mut text, value, 0);
    text + "\n```\n"
}

/// JSON with short values on one line.
fn write_json(out: &mut String, value: &Value, indent: usize) {
    let line = on_one_line(value);
    let column = out.len() - out.rfind('\n').map_or(0, |at| at + 1);
    let fields: Vec<_> = match value {
        _ if indent > 0 && column + line.len() <= MAX_LINE => return out.push_str(&line),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (format!("{}: ", Value::from(name.as_str())), value)).collect()
        }
        Value::Array(items) => items.iter().map(|item| (String::new(), item)).collect(),
        _ => return out.push_str(&line),
    };
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    out.push(open);
    for (nth, (name, value)) in fields.iter().enumerate() {
        let comma = if nth == 0 { "" } else { "," };
        write!(out, "{comma}\n{:1$}{name}", "", indent + 2).unwrap();
        write_json(out, value, indent + 2);
    }
    write!(out, "\n{:indent$}{close}", "").unwrap();
}

fn on_one_line(value: &Value) -> String {
    let list = |open: &str, items: Vec<String>, close: &str| match items.join(", ") {
        empty if empty.is_empty() => format!("{open}{close}"),
        items if open == "{" => format!("{{ {items} }}"),
        items => format!("{open}{items}{close}"),
    };
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), on_one_line(value)));
            list("{", fields.collect(), "}")
        }
        Value::Array(items) => list("[", items.iter().map(on_one_line).collect(), "]"),
        other => other.to_string(),
    }
}

#[test]
fn reference_has_every_field_of_requests_and_answers() {
    let mut page = String::new();
    for examples in all() {
        writeln!(page, "{}## {}", if page.is_empty() { "" } else { "\n" }, examples.kind.as_str()).unwrap();
        page += &examples.page();
    }
    compare("requests.md", "requests", &page);
}

#[test]
fn reference_shows_requests_and_answers_that_are_as_their_schemas_say() {
    for examples in all() {
        for (hook, answer) in examples.answers {
            let [request, response] = examples.schemas(hook);
            for version in [HookVersion::V1, HookVersion::V2] {
                let found = faults(&request, &examples.request(hook, version));
                assert!(found.is_empty(), "request of {hook}: {found:?}");
            }
            let found = faults(&response, &serde_json::from_str(answer).unwrap());
            assert!(found.is_empty(), "answer of {hook}: {found:?}");
            examples.accepts(hook, answer);
        }
    }
}
