//! Requests by example: each folder below cases/requests is a world and what hooks of both versions are asked about it.
//!
//! `BLESS=1 cargo test -p metahook-core --test requests` writes the requests anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test: a broken case ends it"
)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Resource};
use metahook_core::object::map::ChildMap;
use metahook_core::protocol::request::Sync;
use metahook_core::spec::composite::CompositeControllerSpec;
use metahook_core::spec::hook::HookVersion;
use metahook_core::spec::snapshot::snapshot;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct World {
    controller: Value,
    parent: Value,
    kinds: Vec<Served>,
    children: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Served {
    api_version: String,
    kind: String,
    #[serde(default = "yes")]
    namespaced: bool,
}

fn yes() -> bool {
    true
}

fn object(value: &Value) -> Arc<Object> {
    Arc::new(Object::parse(&value.to_string(), None).unwrap())
}

fn request(world: &World, version: HookVersion, finalizing: bool) -> String {
    let kinds: Vec<_> = world.kinds.iter().map(resource).collect();
    let mut children = ChildMap::default();
    for kind in &kinds {
        children.declare(kind);
    }
    for child in &world.children {
        let child = object(child);
        let kind = kinds.iter().find(|kind| kind.gvk == child.gvk).expect("a declared kind");
        children.insert(kind, child);
    }
    let spec: CompositeControllerSpec = serde_json::from_value(world.controller["spec"].clone()).unwrap();
    let controller = snapshot(&object(&world.controller), &spec);
    let parent = object(&world.parent);
    let naming = version.naming();
    let request = Sync {
        controller: &controller,
        parent: &parent,
        children: &children,
        settings: None,
        naming,
        finalizing,
    };
    let request: Value = serde_json::from_slice(&request.bytes()).unwrap();
    format!("{request:#}\n")
}

fn resource(kind: &Served) -> Arc<Resource> {
    Arc::new(Resource {
        gvk: Gvk::new(&kind.api_version, &kind.kind),
        plural: format!("{}s", kind.kind.to_lowercase()).into(),
        namespaced: kind.namespaced,
        has_status: true,
    })
}

#[test]
fn hooks_are_asked_as_the_examples_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/requests");
    let mut wrong = Vec::new();
    for scope in ["namespaced", "cluster"] {
        let folder = folder.join(scope);
        let world = fs::read_to_string(folder.join("world.json")).unwrap();
        let world: World = serde_json::from_str(&world).unwrap();
        for (file, version, finalizing) in [
            ("sync-v1.json", HookVersion::V1, false),
            ("sync-v2.json", HookVersion::V2, false),
            ("finalize-v1.json", HookVersion::V1, true),
            ("finalize-v2.json", HookVersion::V2, true),
        ] {
            let (found, file) = (request(&world, version, finalizing), folder.join(file));
            if std::env::var_os("BLESS").is_some() {
                fs::write(&file, &found).unwrap();
            }
            let expected = fs::read_to_string(&file).unwrap_or_default();
            if found != expected {
                wrong.push(format!("{}\n--- expected\n{expected}--- found\n{found}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
