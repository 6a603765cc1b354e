//! Plans by example: each folder below cases/children is observed + desired + strategy -> plan.
//!
//! `BLESS=1 cargo test -p metahook-core --test cases` writes the plans anew.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test: a broken case ends it"
)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::ControllerKind;
use metahook_core::children::desired::{Apply, ChildKind, DesiredOptions, OwnerMark, UnmanagedPolicy};
use metahook_core::children::write_history::{PastWrites, WriteHistory};
use metahook_core::children::{self, Owner, Plan};
use metahook_core::json::lists::{Document, Lists};
use metahook_core::object::id::{Gvk, Resource};
use metahook_core::object::selector::child_selector;
use metahook_core::object::{ChildMap, Object};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Strategy {
    parent: Value,
    rules: Vec<DeclaredRule>,
    #[serde(default)]
    hash_secrets: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeclaredRule {
    api_version: String,
    kind: String,
    method: metahook_core::api::common::UpdateMethod,
    /// Server-side apply, as this field manager.
    field_manager: Option<String>,
    /// The schema that the API server publishes of the kind.
    schema: Option<Value>,
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> T {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn object(value: &Value) -> Arc<Object> {
    Arc::new(Object::parse(&value.to_string(), None).unwrap())
}

fn published(gvk: &Gvk, schema: &Value) -> Arc<Lists> {
    let mut schema = schema.clone();
    schema["x-kubernetes-group-version-kind"] =
        json!([{ "group": &*gvk.group, "version": &*gvk.version, "kind": &*gvk.kind }]);
    let document = json!({ "components": { "schemas": { "it": schema } } });
    Document::parse(&document.to_string()).unwrap().lists(gvk).unwrap()
}

fn text(plan: &Plan) -> String {
    let ops = plan.ops.iter().map(|op| format!("{op}\n"));
    let skips = plan.skips.iter().map(|(id, skip)| format!("leave {id}: {skip:?}\n"));
    let problem = |(id, problem): &_| format!("cannot decide about {id}: {problem}\n");
    ops.chain(skips).chain(plan.problems.iter().map(problem)).collect()
}

fn plan_of(case: &Path) -> String {
    let strategy: Strategy = read(&case.join("strategy.json"));
    let parent = object(&strategy.parent);
    let rules: Vec<ChildKind> = strategy
        .rules
        .iter()
        .map(|rule| {
            let plural = format!("{}s", rule.kind.to_lowercase());
            let gvk = Gvk::new(&rule.api_version, &rule.kind);
            let resource = Resource { gvk, plural: plural.into(), namespaced: true, has_status: true };
            let apply = rule
                .field_manager
                .as_ref()
                .map_or(Apply::Dynamic, |name| Apply::ServerSide(name.as_str().into()));
            let lists =
                rule.schema.as_ref().map(|schema| published(&resource.gvk, schema)).unwrap_or_default();
            ChildKind { apply, lists, ..ChildKind::new(Arc::new(resource), rule.method) }
        })
        .collect();
    let mut observed = ChildMap::default();
    for value in read::<Vec<Value>>(&case.join("observed.json")) {
        let object = object(&value);
        let rule = rules.iter().find(|rule| rule.resource.gvk == object.gvk).expect("a declared kind");
        observed.insert(&rule.resource, object);
    }
    let selector = child_selector(&parent, true).unwrap();
    let bounds = DesiredOptions {
        secrets: &metahook_core::api::shown_secrets::ShownSecrets::All,
        child_kinds: &rules,
        selector: Some(&selector),
        mark: OwnerMark::Uid,
        unmanaged: UnmanagedPolicy::Refused,
    };
    match children::desired::desired(
        &parent,
        bounds,
        read::<Vec<Map<String, Value>>>(&case.join("desired.json")),
    ) {
        Ok(wanted) => {
            let hash_secrets = strategy.hash_secrets;
            let owner = Owner {
                parent: &parent,
                kind: ControllerKind::Composite,
                controller: "c",
                child_kinds: &rules,
                hash_secrets,
            };
            let past = PastWrites { history: &WriteHistory::default(), now: Duration::ZERO };
            text(&children::plan::children(owner, &observed, &wanted.desired, past))
        }
        Err(error) => format!("refused: {error}\n"),
    }
}

#[test]
fn every_case_has_its_plan() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/children");
    let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    let mut wrong = Vec::new();
    for case in cases {
        let (found, file) = (plan_of(&case), case.join("plan.txt"));
        if std::env::var_os("BLESS").is_some() {
            fs::write(&file, &found).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if found != expected {
            wrong.push(format!("{}\n--- expected\n{expected}--- found\n{found}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
