//! Revisions as objects of the cluster: their owners, their labels, and the writes when claims move.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::composite::RevisionChildNames;
use crate::children::claims::{Claim, MADE_BY, owner_reference};
use crate::children::{Op, Owner};
use crate::object::id::{Key, ObjectId, Resource};
use crate::object::selector::{Selector, UID_LABEL, own_selector};
use crate::object::{Object, ObjectMeta};
use crate::rollout::revisions::{History, Revision};
use crate::rollout::{Claims, RollingConfig, write_claims};

/// Labels that name the kind of parents whose states a ControllerRevision keeps.
const GROUP_LABEL: &str = "metacontroller.k8s.io/apiGroup";
const RESOURCE_LABEL: &str = "metacontroller.k8s.io/resource";

/// Deletions of revisions in one reconcile: others wait for the next one.
const MAX_DELETIONS: usize = 50;

/// The claim of a parent on a ControllerRevision. A parent keeps what it controls, whatever its labels. It adopts an orphan
/// whose labels match, or that has the name which the parent's latest revision would get. Revisions in another namespace than
/// the parent's, or than the server's for a parent without one, are none of its own.
/// See <https://github.com/metacontroller/metacontroller/issues/194>.
pub fn claim(
    rolling: &RollingConfig,
    parent: &Object,
    selector: Option<&Selector>,
    candidate: &ObjectMeta,
    is_latest: &dyn Fn(&str) -> bool,
) -> Claim {
    if candidate.key.namespace != rolling.namespace(parent) {
        return Claim::Leave;
    }
    let labelled = |(key, value): &(&str, String)| candidate.labels.get(*key) == Some(value);
    let ours = fixed(&rolling.parents).iter().all(labelled);
    let adoptable = || {
        let matches = selector.is_some_and(|selector| selector.matches(&candidate.labels));
        ours && matches || is_latest(&candidate.key.name)
    };
    match &candidate.controller {
        Some(owner) if *owner == parent.uid => Claim::Keep,
        None if !parent.deleting && !candidate.deleting && adoptable() => Claim::Adopt,
        Some(_) | None => Claim::Leave,
    }
}

/// Selects the revisions of parents of a kind, and those of other kinds of that name.
pub fn of_the_kind(parents: &Resource) -> Selector {
    Selector::equals(RESOURCE_LABEL, &parents.plural)
}

fn fixed(parents: &Resource) -> [(&'static str, String); 2] {
    [(GROUP_LABEL, parents.gvk.group.to_string()), (RESOURCE_LABEL, parents.plural.to_string())]
}

/// The labels of a parent's revisions: those that its selector asks for by name, and whose states they keep.
pub fn labels(parent: &Object, parents: &Resource, generated: bool) -> BTreeMap<String, String> {
    let mut labels = if generated {
        BTreeMap::from([(UID_LABEL.to_owned(), parent.uid.to_string())])
    } else {
        own_selector(parent).ok().and_then(|selector| selector.match_labels).unwrap_or_default()
    };
    labels.extend(fixed(parents).map(|(key, value)| (key.to_owned(), value)));
    labels
}

impl RollingConfig {
    /// The namespace of a parent's revisions.
    fn namespace(&self, parent: &Object) -> Arc<str> {
        let home = if parent.key.namespace.is_empty() { &self.home } else { &parent.key.namespace };
        Arc::clone(home)
    }

    fn id(&self, key: &Key) -> ObjectId {
        ObjectId { resource: Arc::clone(&self.revisions), key: key.clone() }
    }
}

/// The writes after which each revision has its claims in `claims`: the latest first, then the older ones, in their
/// order. What claims nothing any longer goes at the end, so that a claim is never lost on the way.
pub fn writes(
    rolling: &RollingConfig,
    owner: Owner<'_>,
    generated: bool,
    history: &History,
    claims: &[Claims],
) -> Vec<Op> {
    let (mut ops, mut surplus) = (Vec::new(), history.surplus.clone());
    let revisions =
        std::iter::once((&history.latest, true)).chain(history.older.iter().map(|one| (one, false)));
    for ((revision, latest), claims) in revisions.zip(claims) {
        let children = write_claims(&owner.parent.key.namespace, claims);
        match &revision.stored {
            None => ops.push(create(rolling, owner, generated, revision, &children)),
            Some(stored) if claims.is_empty() && !latest => surplus.push(Arc::clone(stored)),
            Some(stored) if children != revision.children => {
                // It has been read once already.
                if let Ok(Value::Object(mut body)) = stored.value() {
                    body.insert("children".to_owned(), json!(children));
                    ops.push(Op::Replace { id: rolling.id(&stored.key), body: Value::Object(body) });
                }
            }
            Some(_) => {}
        }
    }
    let gone = surplus.iter().filter(|object| !object.deleting).take(MAX_DELETIONS);
    ops.extend(gone.map(|object| Op::Delete { id: rolling.id(&object.key), uid: object.uid.clone() }));
    ops
}

fn create(
    rolling: &RollingConfig,
    owner: Owner<'_>,
    generated: bool,
    revision: &Revision,
    children: &[RevisionChildNames],
) -> Op {
    let Owner { parent, controller, .. } = owner;
    let (gvk, namespace) = (&rolling.revisions.gvk, rolling.namespace(parent));
    let body = json!({
        "apiVersion": gvk.api_version(),
        "kind": &*gvk.kind,
        "metadata": {
            "name": revision.name,
            "namespace": &*namespace,
            "labels": labels(parent, &rolling.parents, generated),
            // Two controllers of one parent would take each other's claims for mistakes.
            "annotations": {MADE_BY: controller},
            "ownerReferences": [owner_reference(parent)],
        },
        "parentPatch": revision.patch,
        "children": children,
    });
    Op::Create { id: rolling.id(&Key::new(&namespace, &revision.name)), body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ControllerKind;
    use crate::object::testing::{Build, a, resource};
    use crate::rollout::RollingKind;
    use crate::rollout::revisions;
    use crate::rollout::revisions::FieldPath;

    fn parent() -> Build {
        a("e/v1", "P", "n/p").uid("u").with("spec", json!({"selector": {"matchLabels": {"app": "x"}}}))
    }

    fn rolling() -> RollingConfig {
        RollingConfig {
            paths: vec![FieldPath::new("spec.image")],
            kinds: vec![RollingKind { resource: resource("v1", "Pod"), in_place: true, checks: vec![] }],
            parents: parents(),
            revisions: resource("metacontroller.k8s.io/v1alpha1", "ControllerRevision"),
            home: "server".into(),
        }
    }

    fn parents() -> Arc<Resource> {
        resource("e/v1", "P")
    }

    fn revision(name: &str) -> Build {
        a("metacontroller.k8s.io/v1alpha1", "ControllerRevision", &format!("n/{name}"))
    }

    fn labelled(revision: Build) -> Build {
        revision.label(GROUP_LABEL, "e").label(RESOURCE_LABEL, "ps")
    }

    #[test]
    fn labels_come_from_the_selector() {
        let manual = [("app", "x"), (GROUP_LABEL, "e"), (RESOURCE_LABEL, "ps")];
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<_, _> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let parent = parent().object();
        assert_eq!(labels(&parent, &parents(), false), of(&manual));
        let generated = [(UID_LABEL, "u"), (GROUP_LABEL, "e"), (RESOURCE_LABEL, "ps")];
        assert_eq!(labels(&parent, &parents(), true), of(&generated));
        for spec in
            [json!({}), json!(null), json!({"selector": null}), json!({"selector": {"matchExpressions": []}})]
        {
            let parent = a("v1", "P", "p").with("spec", spec).object();
            assert_eq!(
                labels(&parent, &resource("v1", "P"), false),
                of(&[(GROUP_LABEL, ""), (RESOURCE_LABEL, "ps")])
            );
        }
    }

    #[test]
    fn a_revision_is_its_controllers_whatever_its_other_labels() {
        let selector = Selector::equals("app", "x");
        let latest = revisions::latest_name(&rolling(), &parent().object()).unwrap();
        let claimed = |parent: Build, revision: Build| {
            let is_latest = |name: &str| name == latest;
            claim(&rolling(), &parent.object(), Some(&selector), &revision.object(), &is_latest)
        };
        assert_eq!(claimed(parent(), labelled(revision("r")).controlled_by("u")), Claim::Keep);
        assert_eq!(claimed(parent().deleting(), labelled(revision("r")).controlled_by("u")), Claim::Keep);
        assert_eq!(
            claimed(parent(), revision("r").controlled_by("u")),
            Claim::Keep,
            "its labels were taken off"
        );
        assert_eq!(claimed(parent(), labelled(revision("r")).controlled_by("v")), Claim::Leave);
        assert_eq!(claimed(parent(), labelled(revision("r")).label("app", "x")), Claim::Adopt);
        assert_eq!(claimed(parent(), revision("r").label("app", "x")), Claim::Leave);
        assert_eq!(claimed(parent(), labelled(revision("r"))), Claim::Leave);
        assert_eq!(claimed(parent(), revision(&latest)), Claim::Adopt, "what was released under its name");
        assert_eq!(claimed(parent(), revision(&latest).deleting()), Claim::Leave);
        assert_eq!(claimed(parent().deleting(), revision(&latest)), Claim::Leave);
        let elsewhere = || a("metacontroller.k8s.io/v1alpha1", "ControllerRevision", "other/r");
        assert_eq!(claimed(parent(), labelled(elsewhere()).controlled_by("u")), Claim::Leave);
        assert_eq!(claimed(parent(), labelled(elsewhere()).label("app", "x")), Claim::Leave);
        let cluster_wide = || a("e/v1", "P", "cluster-wide").uid("u");
        assert_eq!(claimed(cluster_wide(), labelled(revision("r")).controlled_by("u")), Claim::Leave);
        let home = a("metacontroller.k8s.io/v1alpha1", "ControllerRevision", "server/r");
        assert_eq!(claimed(cluster_wide(), labelled(home).controlled_by("u")), Claim::Keep);
    }

    fn owner(parent: &Object) -> Owner<'_> {
        Owner {
            parent,
            kind: ControllerKind::Composite,
            controller: "c",
            child_kinds: &[],
            hash_secrets: false,
        }
    }

    fn stored(name: &str, image: i64, pods: &[&str]) -> Arc<Object> {
        let children = json!([{"apiGroup": "", "kind": "Pod", "names": pods}]);
        revision(name)
            .with("parentPatch", json!({"spec": {"image": image}}))
            .with("children", children)
            .object()
    }

    fn written(image: i64, stored: &[Arc<Object>], claims: &[&[&str]]) -> Vec<String> {
        let parent = parent().with("spec.image", json!(image)).object();
        let history = History::of(&rolling(), &parent, stored).unwrap();
        let pod = |name: &&str| ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", name) };
        let claims: Vec<Claims> = claims.iter().map(|names| names.iter().map(pod).collect()).collect();
        let ops = writes(&rolling(), owner(&parent), false, &history, &claims);
        let names = |op: &Op| match op {
            Op::Create { body, .. } | Op::Replace { body, .. } => body["children"][0]["names"].to_string(),
            _ => String::new(),
        };
        ops.iter().map(|op| format!("{} {} {}", op.verb(), op.id().key.name, names(op))).collect()
    }

    #[test]
    fn what_changed_is_written_and_what_is_empty_goes_last() {
        let both = [stored("a", 1, &["x", "y"]), stored("b", 2, &["z"])];
        assert_eq!(written(2, &both, &[&["z"], &["x", "y"]]), Vec::<String>::new());
        assert_eq!(
            written(2, &both, &[&["x", "z"], &["y"]]),
            [r#"replace b ["x","z"]"#, r#"replace a ["y"]"#]
        );
        assert_eq!(written(2, &both, &[&["x", "y", "z"], &[]]), [r#"replace b ["x","y","z"]"#, "delete a "]);
        assert_eq!(written(1, &both[..1], &[&[]]), ["replace a null"], "the latest stays");
        let bare = [stored("a", 1, &["n/y", "x"])];
        assert_eq!(written(1, &bare, &[&["x", "y"]]), [r#"replace a ["x","y"]"#]);
    }

    #[test]
    fn a_new_revision_has_its_state_its_owner_and_its_claims() {
        let made = |parent: Build| {
            let parent = parent.with("spec.image", json!(7)).object();
            let history = History::of(&rolling(), &parent, &[]).unwrap();
            let mut ops = writes(&rolling(), owner(&parent), false, &history, &[Claims::new()]);
            let Op::Create { id, body } = ops.remove(0) else { panic!("{ops:?}") };
            assert_eq!(body["metadata"]["namespace"], *id.key.namespace);
            (parent, history.latest.name, body)
        };
        let (parent, name, body) = made(parent());
        assert_eq!(
            body,
            json!({
                "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "ControllerRevision",
                "metadata": {
                    "name": name, "namespace": "n", "labels": labels(&parent, &parents(), false),
                    "annotations": {"metahook.dev/controller": "c"},
                    "ownerReferences": [owner_reference(&parent)],
                },
                "parentPatch": {"spec": {"image": 7}}, "children": [],
            })
        );
        let (_, _, body) = made(a("e/v1", "P", "cluster-wide").uid("u"));
        assert_eq!(body["metadata"]["namespace"], "server");
    }
}
