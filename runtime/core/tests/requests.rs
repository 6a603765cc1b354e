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

use metahook_core::api::ControllerKind;
use metahook_core::api::composite::CompositeControllerSpec;
use metahook_core::api::decorator::DecoratorControllerSpec;
use metahook_core::api::hook::HookVersion;
use metahook_core::api::snapshot;
use metahook_core::hook::Sync;
use metahook_core::hook::customize;
use metahook_core::object::ChildMap;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Resource};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct World {
    controller: Value,
    parent: Value,
    kinds: Vec<Served>,
    children: Vec<Value>,
    related: Vec<Value>,
    related_kinds: Vec<Served>,
}

/// As the API server's lists of resources name it.
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
    let parent = object(&world.parent);
    let request = Sync {
        kind: kind(world),
        controller: &controller(world),
        parent: &parent,
        children: &map(&world.kinds, &world.children),
        related: &map(&world.related_kinds, &world.related),
        settings: None,
        naming: version.naming(),
        finalizing,
    };
    written(&request.bytes())
}

fn customize(world: &World) -> String {
    let parent = object(&world.parent);
    written(&customize::request(&controller(world), &parent, None))
}

fn controller(world: &World) -> String {
    let (spec, controller) = (world.controller["spec"].clone(), object(&world.controller));
    match kind(world) {
        ControllerKind::Composite => {
            snapshot(&controller, &serde_json::from_value::<CompositeControllerSpec>(spec).unwrap())
        }
        ControllerKind::Decorator => {
            snapshot(&controller, &serde_json::from_value::<DecoratorControllerSpec>(spec).unwrap())
        }
    }
}

fn kind(world: &World) -> ControllerKind {
    let kinds = [ControllerKind::Composite, ControllerKind::Decorator];
    kinds.into_iter().find(|kind| world.controller["kind"] == kind.as_str()).expect("a kind of controllers")
}

fn map(kinds: &[Served], objects: &[Value]) -> ChildMap {
    let kinds: Vec<_> = kinds.iter().map(resource).collect();
    let mut map = ChildMap::default();
    for kind in &kinds {
        map.declare(kind);
    }
    for one in objects {
        let one = object(one);
        let kind = kinds.iter().find(|kind| kind.gvk == one.gvk).expect("a declared kind");
        map.insert(kind, one);
    }
    map
}

fn written(request: &[u8]) -> String {
    let request: Value = serde_json::from_slice(request).unwrap();
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
    for scope in ["namespaced", "cluster", "decorated-namespaced", "decorated-cluster"] {
        let folder = folder.join(scope);
        let world = fs::read_to_string(folder.join("world.json")).unwrap();
        let world: World = serde_json::from_str(&world).unwrap();
        for (file, found) in [
            ("sync-v1.json", request(&world, HookVersion::V1, false)),
            ("sync-v2.json", request(&world, HookVersion::V2, false)),
            ("finalize-v1.json", request(&world, HookVersion::V1, true)),
            ("finalize-v2.json", request(&world, HookVersion::V2, true)),
            ("customize.json", customize(&world)),
        ] {
            let file = folder.join(file);
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
