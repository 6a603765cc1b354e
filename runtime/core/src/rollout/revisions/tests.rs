//! Revisions: what is kept of a parent, which are read, and by which names.

use serde_json::json;

use super::*;
use crate::object::testing::{Build, a, resource};
use crate::rollout::RollingKind;

fn rolling(paths: &[&str]) -> RollingConfig {
    RollingConfig {
        paths: paths.iter().map(|path| FieldPath::new(path)).collect(),
        kinds: vec![RollingKind { resource: resource("v1", "Pod"), in_place: true, checks: vec![] }],
        parents: resource("e/v1", "P"),
        revisions: resource("metacontroller.k8s.io/v1alpha1", "ControllerRevision"),
        home: "server".into(),
    }
}

fn parent(spec: Value) -> Build {
    a("e/v1", "P", "n/p").uid("u").with("spec", spec)
}

fn revision(name: &str, patch: Value, pods: &[&str]) -> Arc<Object> {
    a("metacontroller.k8s.io/v1alpha1", "ControllerRevision", &format!("n/{name}"))
        .with("parentPatch", patch)
        .with("children", json!([{"apiGroup": "", "kind": "Pod", "names": pods}]))
        .object()
}

fn history(paths: &[&str], parent: Build, stored: &[Arc<Object>]) -> History {
    History::of(&rolling(paths), &parent.object(), stored).unwrap()
}

fn pods(revision: &Revision) -> Vec<&str> {
    revision.claims.iter().map(|id| &*id.key.name).collect()
}

#[test]
fn a_patch_has_the_fields_that_are_there() {
    let parent = parent(json!({"a": {"b": 1, "c": 2}, "d": null})).object().value().unwrap();
    for (paths, expected) in [
        (&["spec"][..], json!({"spec": {"a": {"b": 1, "c": 2}, "d": null}})),
        (&["spec.a.b", "spec.d", "spec.x.y", "metadata.name.x"], json!({"spec": {"a": {"b": 1}, "d": null}})),
        (&["spec.a.b", "spec.a"], json!({"spec": {"a": {"b": 1, "c": 2}}})),
        (&[""], json!({})),
    ] {
        assert_eq!(patch(&parent, &rolling(paths).paths), expected, "{paths:?}");
    }
}

#[test]
fn a_field_that_was_not_there_is_not_there_in_the_parent_as_it_was() {
    let now = parent(json!({"a": {"b": 1, "c": 2}, "e": 3})).object().value().unwrap();
    let then = |paths: &[&str], patch| parent_at(&now, &rolling(paths).paths, &patch)["spec"].clone();
    assert_eq!(then(&["spec"], json!({"spec": {"a": 1}})), json!({"a": 1}));
    assert_eq!(then(&["spec"], json!({})), json!(null));
    assert_eq!(
        then(&["spec.a.b", "spec.a.c", "spec.e"], json!({"spec": {"a": {"b": 7}}})),
        json!({"a": {"b": 7}})
    );
    assert_eq!(
        then(&["spec.e.f"], json!({"spec": {"e": {"f": 1}}})),
        json!({"a": {"b": 1, "c": 2}, "e": {"f": 1}})
    );
}

#[test]
fn names_are_those_that_metacontroller_gives() {
    let patch = json!({"spec": {"b": 1.0, "a": "<"}});
    assert_eq!(
        name(&resource("e/v1", "P"), &Uid::new("u"), &patch),
        "ps.e-fe00e3a0860ddfab31815b91367c776d1486b231"
    );
    assert!(name(&resource("v1", "P"), &Uid::new("u"), &patch).starts_with("ps.core-"));
    let long = name(&resource(&format!("{}/v1", "g".repeat(250)), "P"), &Uid::new("u"), &patch);
    assert_eq!((long.len(), long.find('-')), (253, Some(212)));
}

#[test]
fn the_latest_revision_is_the_one_that_means_the_same() {
    let stored = [
        revision("b", json!({"spec": {"a": 2}}), &["x"]),
        revision("a", json!({"spec": {"a": 1.0, "b": null}}), &["y"]),
    ];
    let found = history(&["spec"], parent(json!({"a": 1})), &stored);
    assert_eq!((found.latest.name.as_str(), pods(&found.latest)), ("a", vec!["y"]));
    assert_eq!(found.older.len(), 1);
    assert_eq!(found.older[0].parent.value().unwrap()["spec"], json!({"a": 2}));
    assert_eq!(found.older[0].parent.uid, found.latest.parent.uid);
    assert!(found.surplus.is_empty());
}

#[test]
fn a_state_without_a_revision_gets_one() {
    let found = history(&["spec"], parent(json!({"a": 1})), &[]);
    assert!(found.latest.stored.is_none() && found.latest.claims.is_empty());
    assert!(found.latest.name.starts_with("ps.e-"));
    assert_eq!(found.latest.patch, json!({"spec": {"a": 1}}));
}

#[test]
fn of_revisions_of_one_state_the_rightly_named_one_stays_and_claims_all() {
    let right = history(&["spec"], parent(json!({"a": 1})), &[]).latest.name;
    let one = |name: &str, pod: &str| revision(name, json!({"spec": {"a": 1}}), &[pod]);
    let mut stored = vec![one("a", "x"), one(&right, "y"), one("z", "w"), revision("o", json!({}), &["q"])];
    for _ in 0..stored.len() {
        stored.rotate_left(1);
        let found = history(&["spec"], parent(json!({"a": 1})), &stored);
        assert_eq!((&found.latest.name, pods(&found.latest)), (&right, vec!["w", "x", "y"]));
        let surplus: Vec<_> = found.surplus.iter().map(|object| &*object.key.name).collect();
        assert_eq!(surplus, ["a", "z"]);
        assert_eq!(found.older.len(), 1);
    }
}

#[test]
fn an_older_revision_without_children_is_surplus() {
    let found = history(&["spec"], parent(json!({"a": 1})), &[revision("o", json!({"spec": {}}), &[])]);
    assert!(found.older.is_empty());
    assert_eq!(found.surplus.len(), 1);
}

#[test]
fn the_oldest_revisions_beyond_the_bound_are_surplus() {
    let name = history(&["spec"], parent(json!({"a": 0})), &[]).latest.name;
    let one = |nth: usize| {
        let name = if nth == 0 { name.clone() } else { format!("r{nth}") };
        a("metacontroller.k8s.io/v1alpha1", "ControllerRevision", &format!("n/{name}"))
            .with(
                "metadata.creationTimestamp",
                json!(format!("2026-01-01T00:{:02}:{:02}Z", nth / 60, nth % 60)),
            )
            .with("parentPatch", json!({"spec": {"a": nth}}))
            .with("children", json!([{"apiGroup": "", "kind": "Pod", "names": [nth.to_string()]}]))
            .object()
    };
    for (count, pruned) in [(MAX_REVISIONS + 1, 0), (MAX_REVISIONS + 2, 1), (200, 200 - MAX_REVISIONS - 1)] {
        let stored: Vec<_> = (0..count).map(one).collect();
        let found = history(&["spec"], parent(json!({"a": 0})), &stored);
        assert_eq!((found.pruned, found.older.len()), (pruned, MAX_REVISIONS), "of {count}");
        assert!(found.latest.stored.is_some(), "the latest stays, though it is the oldest");
        let names: Vec<_> = found.surplus.iter().map(|object| object.key.name.to_string()).collect();
        assert_eq!(names, (1..=pruned).map(|nth| format!("r{nth}")).collect::<Vec<_>>());
    }
}

#[test]
fn one_that_cannot_be_read_is_named() {
    let bad = a("m/v1", "ControllerRevision", "n/bad").with("parentPatch", json!(1)).object();
    let found = history(&["spec"], parent(json!({})), &[bad]);
    assert!(found.unreadable[0].to_string().starts_with("ControllerRevision n/bad cannot be read"));
    assert!(found.older.is_empty() && found.surplus.is_empty());
}

#[test]
fn revisions_that_are_too_large_are_left_out_by_name_and_newer_ones_are_read() {
    let odd = json!({"spec": {"a": vec![json!({"": 0}); 20_000]}});
    let stored: Vec<_> = (0..4).map(|nth| revision(&nth.to_string(), odd.clone(), &["a"])).collect();
    let small = revision("small", json!({"spec": 1}), &["b"]);
    let all: Vec<_> = stored.into_iter().chain([small]).collect();
    let found = history(&["spec"], parent(json!(2)), &all);
    assert!(!found.unreadable.is_empty() && found.older.iter().any(|one| one.name == "small"));
    let error = found.unreadable[0].to_string();
    assert!(error.starts_with("ControllerRevision n/") && error.contains("take 32Mi"), "{error}");
}
