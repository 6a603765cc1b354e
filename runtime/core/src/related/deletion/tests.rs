use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::api::ControllerKind;
use crate::hook::Sync;
use crate::object::id::{Gvk, Gvr, Key};
use crate::object::testing::{Build, a, cluster_resource, resource};

/// Objects of a hook's request in a test: a parent with one child, and related objects.
struct World {
    parent: Arc<Object>,
    children: ChildMap,
    related: ChildMap,
    naming: Naming,
}

fn pods() -> Arc<Resource> {
    resource("v1", "Pod")
}

fn nodes() -> Arc<Resource> {
    cluster_resource("v1", "Node")
}

fn pod(key: &str, uid: &str) -> Build {
    a("v1", "Pod", key).uid(uid)
}

fn world(parent: &str, related: Vec<Build>) -> World {
    let parent = a("e/v1", "P", parent).object();
    let (mut children, mut all) = (ChildMap::default(), ChildMap::default());
    children.insert(&pods(), pod("n/child", "c").object());
    all.declare(&resource("v1", "Secret"));
    for object in related.into_iter().map(Build::object) {
        all.insert(&if *object.gvk.kind == *"Node" { nodes() } else { pods() }, object);
    }
    World { parent, children, related: all, naming: Naming::Uniform }
}

impl World {
    fn shown(&self) -> ShownObjects<'_> {
        let World { parent, children, related, naming } = self;
        ShownObjects { parent, children, related, naming: *naming }
    }

    fn check(&self, grants: &[Grant], asked: &[Deletion]) -> Result<Vec<String>, String> {
        let ops = check(asked, grants, self.shown()).map_err(|error| error.to_string())?;
        Ok(ops.iter().map(ToString::to_string).collect())
    }
}

fn named(at: usize, kind: &str, key: &str, uid: &str) -> Deletion {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    Deletion { at, gvk: Gvk::new("v1", kind), key: Key::new(namespace, name), uid: Uid::new(uid) }
}

fn grant(plural: &str, any_namespace: bool) -> Grant {
    Grant { resource: Gvr::new("v1", plural), any_namespace }
}

#[test]
fn what_was_shown_and_is_granted_is_deleted_with_its_uid() {
    let world = world("n/p", vec![pod("n/a", "1"), pod("n/b", "2")]);
    let asked = [named(0, "Pod", "n/b", "2"), named(1, "Pod", "n/a", "1")];
    let expected = ["delete Pod n/b (uid 2)", "delete Pod n/a (uid 1)"];
    assert_eq!(world.check(&[grant("pods", false)], &asked).unwrap(), expected);
}

#[test]
fn what_is_being_deleted_is_nothing_to_do() {
    let world = world("n/p", vec![pod("n/a", "1").deleting()]);
    assert_eq!(world.check(&[grant("pods", false)], &[named(0, "Pod", "n/a", "1")]), Ok(vec![]));
}

#[test]
fn whatever_may_not_be_deleted_refuses_the_answer_with_its_place() {
    const NOT_GRANTED: &str = "deleteRelated[0] is v1 Pod n/a, and the controller's spec does not let its hooks delete such objects: add {apiVersion: v1, resource: pods} to spec.relatedDeletion";
    const OWN_CHILD: &str = "deleteRelated[2] is v1 Pod n/child, which is this parent's own";
    let fine = || named(0, "Pod", "n/a", "1");
    let world = world(
        "n/p",
        vec![pod("n/a", "1"), pod("m/a", "2"), pod("n/child", "c"), a("v1", "Node", "x").uid("3")],
    );
    let any = || vec![grant("pods", true)];
    for (grants, asked, says) in [
        (vec![], fine(), NOT_GRANTED),
        (vec![grant("secrets", true)], fine(), NOT_GRANTED),
        (
            vec![grant("secrets", true), grant("pods", false)],
            named(4, "Pod", "m/a", "2"),
            "deleteRelated[4].namespace is \"m\", and spec.relatedDeletion[1] lets hooks delete such objects (v1 Pod) in the parent's own namespace (\"n\") alone",
        ),
        (
            vec![grant("nodes", false)],
            named(0, "Node", "x", "3"),
            "deleteRelated[0].namespace is \"\", and spec.relatedDeletion[0]",
        ),
        (
            any(),
            named(1, "Pod", "n/a", "2"),
            "deleteRelated[1].uid is 2, and v1 Pod n/a in its request has the uid 1",
        ),
        (any(), named(1, "Pod", "n/z", "1"), "deleteRelated[1] is v1 Pod n/z, which is not among"),
        (any(), named(1, "Pod", "a", "1"), "deleteRelated[1] is v1 Pod a, which is not among"),
        (any(), named(0, "Secret", "n/a", "1"), "which is not among the related objects"),
        (vec![], named(2, "Pod", "n/child", "c"), OWN_CHILD),
    ] {
        let error = world.check(&grants, &[asked]).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn an_error_tells_of_which_related_object_it_speaks() {
    let world = world("n/p", vec![pod("n/a", "1"), pod("m/a", "2")]);
    let own = [grant("pods", false)];
    for (grants, asked, expected) in [
        (&own[..], named(0, "Pod", "n/a", "2"), Some("pods n/a")),
        (&own, named(0, "Pod", "n/z", "1"), Some("pods n/z")),
        (&own, named(0, "Pod", "m/a", "2"), Some("pods m/a")),
        (&[], named(0, "Pod", "n/a", "1"), Some("pods n/a")),
        (&own, named(0, "Thing", "n/a", "1"), Some("* n/a")),
        (&own, named(0, "Pod", "n/child", "c"), None),
    ] {
        let object = check(&[asked], grants, world.shown()).unwrap_err().object();
        let object = object.map(|id| format!("{} {}", id.resource.plural, id.key));
        assert_eq!(object.as_deref(), expected);
    }
}

#[test]
fn more_than_the_parents_namespace_takes_a_grant_that_says_so() {
    let related = || vec![pod("m/a", "1"), a("v1", "Node", "x").uid("2")];
    let asked = [named(0, "Pod", "m/a", "1"), named(1, "Node", "x", "2")];
    let everywhere = [grant("pods", true), grant("nodes", true)];
    assert_eq!(world("n/p", related()).check(&everywhere, &asked).unwrap().len(), 2);
    let own = [grant("pods", false), grant("nodes", false)];
    assert!(world("n/p", related()).check(&own, &asked[1..]).is_err());
    assert!(world("p", related()).check(&own, &asked[1..]).is_ok(), "a Node is where such a parent is");
    assert!(world("p", related()).check(&own, &asked[..1]).is_err());
}

#[test]
fn what_a_v1_hook_has_no_name_for_it_was_not_shown() {
    let mut world = world("n/p", vec![pod("m/a", "1")]);
    world.naming = Naming::Relative;
    let error = world.check(&[grant("pods", true)], &[named(0, "Pod", "m/a", "1")]).unwrap_err();
    assert!(error.contains("not among the related objects of its request"), "{error}");
}

#[test]
fn a_child_is_known_by_its_kind_and_name_as_well_as_by_its_uid() {
    let world = world("n/p", vec![pod("n/a", "1")]);
    for (asked, says) in [
        (named(0, "Pod", "n/child", "c"), "which is this parent's own"),
        (
            Deletion { gvk: Gvk::new("e/v2", "Pod"), ..named(0, "Pod", "n/child", "c") },
            "which is this parent's own",
        ),
        (named(0, "Pod", "n/a", "c"), "v1 Pod n/a in its request has the uid 1"),
        (named(0, "Pod", "n/z", "c"), "v1 Pod n/z, which is not among the related objects"),
        (named(0, "Secret", "n/child", "c"), "v1 Secret n/child, which is not among the related objects"),
    ] {
        let error = world.check(&[grant("pods", true)], &[asked]).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

fn deleted(resource: &Arc<Resource>, keys: &[&str]) -> Vec<ObjectId> {
    let key = |key: &&str| key.split_once('/').map_or(Key::new("", key), |(at, name)| Key::new(at, name));
    keys.iter().map(|text| ObjectId { resource: Arc::clone(resource), key: key(text) }).collect()
}

#[test]
fn deletions_of_one_reconcile_are_reported_by_kind_with_names() {
    let mut all = deleted(&pods(), &["n/b", "m/a", "n/a"]);
    all.extend(deleted(&nodes(), &["x"]));
    assert_eq!(
        event_messages("n", &all),
        ["Deleted 1 of v1 Node, as the hook asked: x", "Deleted 3 of v1 Pod, as the hook asked: a, b, m/a"]
    );
    assert!(event_messages("n", &[]).is_empty());
}

fn any_key() -> impl Strategy<Value = (&'static str, u8)> {
    (prop::sample::select(vec!["n/a", "n/b", "m/a", "n/child"]), 0..3_u8)
}

proptest! {
    #[test]
    fn however_much_was_deleted_fits_into_an_event_and_is_counted(
        names in prop::collection::vec(("[mn]|[a-z]{63}", "[a-z]{1,40}|[a-z]{253}"), 1..60),
        kind in "[A-Z]|[A-Z]{63}",
        group in "[a-z]|[a-z]{253}",
    ) {
        let resource = resource(&format!("{group}/v1"), &kind);
        let keys: Vec<_> = names.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let messages = event_messages("n", &deleted(&resource, &keys));
        let count = format!("Deleted {} of ", names.len());
        prop_assert!(messages.len() == 1 && messages[0].len() <= 1024 && messages[0].starts_with(&count), "{messages:?}");
        let (_, listed) = messages[0].split_once(": ").unwrap();
        let (listed, more) = listed.split_once(" and ").unwrap_or((listed, "0 more"));
        let more: usize = more.strip_suffix(" more").unwrap().parse().unwrap();
        prop_assert_eq!(listed.split(", ").count() + more, names.len());
    }

    #[test]
    fn nothing_outside_the_request_or_the_grants_is_ever_deleted(
        related in prop::collection::vec((any_key(), any::<bool>()), 0..5),
        asked in prop::collection::vec(any_key(), 0..4),
        granted in prop::option::of(any::<bool>()),
        naming in prop::sample::select(vec![Naming::Relative, Naming::Uniform]),
    ) {
        let related = related.into_iter().map(|((key, uid), deleting)| {
            let pod = pod(key, &uid.to_string());
            if deleting { pod.deleting() } else { pod }
        });
        let mut world = world("n/p", related.collect());
        world.naming = naming;
        let grants: Vec<_> = granted.map(|any| grant("pods", any)).into_iter().collect();
        let asked: Vec<_> = asked
            .iter()
            .enumerate()
            .map(|(at, (key, uid))| named(at, "Pod", key, &uid.to_string()))
            .collect();
        let request = Sync {
            kind: ControllerKind::Composite,
            controller: "{}",
            parent: &world.parent,
            children: &world.children,
            related: &world.related,
            settings: None,
            naming,
            finalizing: false,
        };
        let request: Value = serde_json::from_slice(&request.bytes()).unwrap();
        let text = |of: &Value, field: &str| of["metadata"][field].as_str().unwrap_or_default().to_owned();
        let shown: BTreeMap<_, _> = request["related"]["Pod.v1"]
            .as_object()
            .into_iter()
            .flat_map(|pods| pods.values())
            .map(|pod| ((text(pod, "namespace"), text(pod, "name")), pod))
            .collect();
        let may_go = |one: &Deletion| {
            let place = (one.key.namespace.to_string(), one.key.name.to_string());
            let shown = shown.get(&place).filter(|pod| text(pod, "uid") == one.uid.as_str());
            let granted = granted.is_some_and(|any| any || *one.key.namespace == *"n");
            shown.filter(|_| granted).copied()
        };
        let ops = check(&asked, &grants, world.shown());
        prop_assert_eq!(ops.is_ok(), asked.iter().all(|one| may_go(one).is_some()), "all or nothing");
        if let Ok(ops) = ops {
            let expected: Vec<_> = asked
                .iter()
                .filter(|one| may_go(one).is_some_and(|pod| text(pod, "deletionTimestamp").is_empty()))
                .map(|one| format!("delete Pod {} (uid {})", one.key, one.uid))
                .collect();
            prop_assert_eq!(ops.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        }
    }
}
