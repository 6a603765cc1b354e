//! Selection of parents: the objects that a controller reconciles, by its rules or by its finalizer on them; and how finalizers
//! change.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::{ControllerKind, SpecError};
use crate::object::Object;
use crate::object::id::{Gvr, ObjectId};
use crate::object::selector::Selector;
use crate::shorten_middle;

/// The parents that a controller reconciles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// A parent is selected by any of these.
    pub rules: Vec<SelectionRule>,
    /// The finalizer that this controller, or its like under another server, may have put on a parent.
    pub finalizer: String,
    /// The controller has a finalize hook.
    pub finalizes: bool,
    /// The controller has no sync hook: parents are finalized, and nothing else is done.
    pub only_finalizes: bool,
    /// `Some`: hooks may be shown no parents of other namespaces.
    pub namespaces: Option<BTreeSet<String>>,
}

/// One way of being selected: both selectors have to match. The default matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectionRule {
    pub labels: Selector,
    pub annotations: Selector,
    /// A change of the status alone is no change of a parent that matches.
    pub ignore_status: bool,
}

impl Selection {
    /// Selected, or still to be finalized.
    pub fn includes(&self, parent: &Object) -> bool {
        self.selects(parent) || parent.finalizers.contains(&self.finalizer)
    }

    pub fn selects(&self, parent: &Object) -> bool {
        self.matching(parent).next().is_some()
    }

    /// Hooks may not be shown the parent.
    pub fn hides(&self, parent: &Object) -> bool {
        self.namespaces.as_ref().is_some_and(|shown| !shown.contains(&*parent.key.namespace))
    }

    /// There is no object that it does not select.
    pub fn is_everything(&self) -> bool {
        self.namespaces.is_none()
            && self.rules.iter().any(|rule| rule.labels.is_empty() && rule.annotations.is_empty())
    }

    /// The rules that a parent matches. Its annotations are read only where one of them asks for them.
    fn matching(&self, parent: &Object) -> impl Iterator<Item = &SelectionRule> {
        let read = OnceCell::new();
        let rules = if self.hides(parent) { &[] } else { self.rules.as_slice() };
        rules.iter().filter(move |rule| {
            rule.labels.matches(&parent.labels)
                && (rule.annotations.is_empty()
                    || rule.annotations.matches(read.get_or_init(|| parent.annotations())))
        })
    }

    /// Reads its annotations at most once.
    pub(crate) fn judge(&self, parent: &Object) -> Judged {
        let mut matching = self.matching(parent).peekable();
        let selected = matching.peek().is_some();
        Judged {
            included: selected || parent.finalizers.contains(&self.finalizer),
            ignores_status: if selected {
                matching.all(|rule| rule.ignore_status)
            } else {
                self.rules.iter().all(|rule| rule.ignore_status)
            },
        }
    }
}

/// Result of a controller's rules for one parent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    pub(crate) included: bool,
    /// A change of its status alone is no change.
    pub(crate) ignores_status: bool,
}

/// Checks that a controller's name fits into a finalizer: the API server takes 63 characters behind the slash. The
/// prefixes of both kinds are equally long.
pub(super) fn check_finalizer(controller: &str) -> Result<(), SpecError> {
    const MAX_NAME: usize = 63 - "compositecontroller-".len();
    if controller.len() <= MAX_NAME {
        return Ok(());
    }
    let problem = format!(
        "{} characters are too many for a controller with a finalize hook, whose name becomes part of a finalizer: at most {MAX_NAME}",
        controller.len()
    );
    Err(SpecError::new("metadata.name", problem))
}

/// The finalizer of a controller.
pub fn finalizer(kind: ControllerKind, controller: &str) -> String {
    format!("{}{controller}", finalizer_prefix(kind))
}

/// The kind and the name of the controller that a finalizer belongs to; `None` for other finalizers.
pub fn finalizer_owner(finalizer: &str) -> Option<(ControllerKind, &str)> {
    let of = |kind| Some((kind, finalizer.strip_prefix(finalizer_prefix(kind))?));
    of(ControllerKind::Composite).or_else(|| of(ControllerKind::Decorator))
}

fn finalizer_prefix(kind: ControllerKind) -> &'static str {
    match kind {
        ControllerKind::Composite => "metacontroller.io/compositecontroller-",
        ControllerKind::Decorator => "metacontroller.io/decoratorcontroller-",
    }
}

/// The records of the controllers whose finalizers may be on parents: `ConfigMap`s with this label in the server's namespace.
/// By them a server cleans up after a controller that is deleted while no server runs.
pub const RECORD_LABEL: [&str; 2] = ["metahook.dev/record", "finalizers"];

const RECORD_PREFIX: &str = "metahook-finalizers.";

/// The name of a controller's record.
pub fn record_name(kind: ControllerKind, controller: &str) -> String {
    finalizer(kind, controller).replacen("metacontroller.io/", RECORD_PREFIX, 1)
}

/// The controller that a record is about; `None` for a name that is no record's.
pub fn record_owner(name: &str) -> Option<(ControllerKind, String)> {
    let finalizer = format!("metacontroller.io/{}", name.strip_prefix(RECORD_PREFIX)?);
    finalizer_owner(&finalizer).map(|(kind, name)| (kind, name.to_owned()))
}

/// A kind of parents as a key of a record.
pub fn record_key(parents: &Gvr) -> String {
    let key = format!("{}.{}.{}", parents.resource, parents.version, parents.group);
    key.trim_end_matches('.').to_owned()
}

/// The kind of parents that a key of a record names.
pub fn record_kind(key: &str) -> Option<Gvr> {
    let mut parts = key.splitn(3, '.');
    let resource = parts.next().filter(|resource| !resource.is_empty())?;
    let version = parts.next()?;
    Some(match parts.next() {
        Some(group) => Gvr::new(&format!("{group}/{version}"), resource),
        None => Gvr::new(version, resource),
    })
}

/// The message about a parent that is being deleted and waits for a controller that cannot clean up, and why; `None`: it does
/// not wait for that one.
pub fn waits_for_finalize(
    parent: &Object,
    id: &ObjectId,
    (kind, controller): (ControllerKind, &str),
    problem: &str,
) -> Option<String> {
    const MAX_MESSAGE: usize = 1024;
    let finalizer = finalizer(kind, controller);
    let at = parent.finalizers.iter().position(|one| *one == finalizer).filter(|_| parent.deleting)?;
    let patch = json!([
        {"op": "test", "path": format!("/metadata/finalizers/{at}"), "value": finalizer},
        {"op": "remove", "path": format!("/metadata/finalizers/{at}")},
    ]);
    let (kind, group) = (kind.as_str(), &id.resource.gvk.group);
    let dot = if group.is_empty() { "" } else { "." };
    let namespace =
        if id.key.namespace.is_empty() { String::new() } else { format!(" -n {}", id.key.namespace) };
    let message = |problem: &str| {
        format!(
            "The object is being deleted and waits for {kind} {controller}, which cannot clean up: {problem}. Put back what is missing. Nothing can be put into a namespace that is being deleted: in that case store it in another one, and name that in the controller's spec. To let the object go without its clean-up: kubectl patch{namespace} {}{dot}{group} {} --type=json -p='{patch}'",
            id.resource.plural, id.key.name,
        )
    };
    Some(message(&shorten_middle(problem, MAX_MESSAGE.saturating_sub(message("").len()))))
}

/// A change of an object's finalizers.
#[derive(Clone, Copy)]
pub enum FinalizerChange<'a> {
    /// Adds this finalizer, unless the object is being deleted: the API server refuses that.
    Add(&'a str),
    /// Removes the finalizers for which the function returns true.
    Remove(&'a (dyn Fn(&str) -> bool + Sync)),
}

impl FinalizerChange<'_> {
    /// The JSON Patch that changes the object as it was seen; `None` where there is nothing to change.
    ///
    /// # Guarantees
    /// It fails on another object of that name. It adds to the version that was seen, because a list that is not there cannot
    /// be tested. It removes exactly the entries that were seen, whatever else of the object has changed.
    pub fn patch(self, seen: &Object) -> Option<Value> {
        let mut steps = vec![json!({"op": "test", "path": "/metadata/uid", "value": seen.uid.as_str()})];
        match self {
            Self::Add(finalizer) => {
                if seen.deleting || seen.finalizers.iter().any(|one| one == finalizer) {
                    return None;
                }
                let version = seen.version.as_str();
                steps.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}));
                steps.push(match &*seen.finalizers {
                    [] => json!({"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}),
                    _ => json!({"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}),
                });
            }
            Self::Remove(is_judged) => {
                // From the last to the first, so that no step moves the entries of another.
                let entries = seen.finalizers.iter().enumerate().rev();
                for (at, finalizer) in entries.filter(|(_, one)| is_judged(one)) {
                    let path = format!("/metadata/finalizers/{at}");
                    steps.push(json!({"op": "test", "path": path, "value": finalizer}));
                    steps.push(json!({"op": "remove", "path": path}));
                }
            }
        }
        (steps.len() > 1).then_some(Value::Array(steps))
    }

    /// Changes the finalizers of an object that is to be replaced.
    pub fn apply(self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        let is_deleting = metadata.contains_key("deletionTimestamp");
        let all = metadata.entry("finalizers").or_insert_with(|| json!([]));
        let Some(all) = all.as_array_mut() else { return };
        match self {
            Self::Add(finalizer) if is_deleting || all.iter().any(|one| one == finalizer) => {}
            Self::Add(finalizer) => all.push(json!(finalizer)),
            Self::Remove(is_judged) => all.retain(|one| !one.as_str().is_some_and(is_judged)),
        }
        if all.is_empty() {
            metadata.remove("finalizers");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::object::id::Key;
    use crate::object::testing::{a, cluster_resource, resource};

    fn seen(finalizers: &[&str]) -> Arc<Object> {
        a("e/v1", "P", "n/p").with("metadata.finalizers", json!(finalizers)).object()
    }

    #[test]
    fn a_patch_names_the_object_and_what_was_seen_of_it() {
        let test = |seen: &Object| json!({"op": "test", "path": "/metadata/uid", "value": seen.uid.as_str()});
        for (before, add) in [
            (&[][..], json!({"op": "add", "path": "/metadata/finalizers", "value": ["ours"]})),
            (&["x"], json!({"op": "add", "path": "/metadata/finalizers/-", "value": "ours"})),
        ] {
            let seen = seen(before);
            let version =
                json!({"op": "replace", "path": "/metadata/resourceVersion", "value": seen.version.as_str()});
            let expected = json!([test(&seen), version, add]);
            assert_eq!(FinalizerChange::Add("ours").patch(&seen), Some(expected));
        }
        let is_ours = |one: &str| one.starts_with("ours");
        let seen = seen(&["ours", "x", "ours-2"]);
        let expected = json!([
            test(&seen),
            {"op": "test", "path": "/metadata/finalizers/2", "value": "ours-2"},
            {"op": "remove", "path": "/metadata/finalizers/2"},
            {"op": "test", "path": "/metadata/finalizers/0", "value": "ours"},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ]);
        assert_eq!(FinalizerChange::Remove(&is_ours).patch(&seen), Some(expected));
    }

    #[test]
    fn finalizers_that_are_as_wanted_are_not_written() {
        assert_eq!(FinalizerChange::Add("ours").patch(&seen(&["ours"])), None);
        assert_eq!(FinalizerChange::Add("ours").patch(&a("e/v1", "P", "n/p").deleting().object()), None);
        assert_eq!(FinalizerChange::Remove(&|one| one == "ours").patch(&seen(&["x"])), None);
    }

    #[test]
    fn a_replaced_object_gets_the_same_finalizers() {
        let mut object = json!({"metadata": {}});
        FinalizerChange::Add("ours").apply(&mut object);
        assert_eq!(object, json!({"metadata": {"finalizers": ["ours"]}}));
        FinalizerChange::Add("x").apply(&mut object);
        FinalizerChange::Remove(&|one| one == "ours").apply(&mut object);
        assert_eq!(object, json!({"metadata": {"finalizers": ["x"]}}));
        FinalizerChange::Remove(&|_| true).apply(&mut object);
        assert_eq!(object, json!({"metadata": {}}));
        let mut deleting = json!({"metadata": {"deletionTimestamp": "now"}});
        FinalizerChange::Add("ours").apply(&mut deleting);
        assert_eq!(deleting, json!({"metadata": {"deletionTimestamp": "now"}}));
    }

    #[test]
    fn a_record_names_its_controller_and_its_kinds() {
        assert_eq!(
            record_name(ControllerKind::Composite, "a.b"),
            "metahook-finalizers.compositecontroller-a.b"
        );
        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            assert_eq!(record_owner(&record_name(kind, "a-b")), Some((kind, "a-b".to_owned())));
        }
        assert_eq!(record_owner("hook"), None);
        for parents in [Gvr::new("v1", "configmaps"), Gvr::new("e.example.com/v1", "things")] {
            assert_eq!(record_kind(&record_key(&parents)), Some(parents));
        }
        assert_eq!((record_kind(""), record_kind("things")), (None, None));
    }

    #[test]
    fn a_finalizer_names_its_controller() {
        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            assert_eq!(finalizer_owner(&finalizer(kind, "a-b")), Some((kind, "a-b")));
        }
        assert_eq!(finalizer(ControllerKind::Decorator, "c"), "metacontroller.io/decoratorcontroller-c");
        assert_eq!(finalizer_owner("foregroundDeletion"), None);
    }

    #[test]
    fn a_parent_that_waits_for_its_clean_up_is_told_how_to_let_it_go() {
        let ours = finalizer(ControllerKind::Composite, "c");
        let parent =
            a("e/v1", "P", "n/p").with("metadata.finalizers", json!(["x", ours])).deleting().object();
        let told = |parent: &Object, id: &ObjectId, problem: &str| {
            waits_for_finalize(parent, id, (ControllerKind::Composite, "c"), problem)
        };
        let id = ObjectId { resource: resource("e/v1", "P"), key: Key::new("n", "p") };
        let message = told(&parent, &id, "there is no ConfigMap m/hook").unwrap();
        let starts = "The object is being deleted and waits for CompositeController c, which cannot clean up: there is no ConfigMap m/hook. ";
        let ends = r#": kubectl patch -n n ps.e p --type=json -p='[{"op":"test","path":"/metadata/finalizers/1","value":"metacontroller.io/compositecontroller-c"},{"op":"remove","path":"/metadata/finalizers/1"}]'"#;
        assert!(message.starts_with(starts) && message.ends_with(ends), "{message}");
        let cluster = ObjectId { resource: cluster_resource("v1", "P"), key: Key::new("", "p") };
        let message = told(&parent, &cluster, &"long ".repeat(1000)).unwrap();
        assert!(message.contains(" kubectl patch ps p --type"), "{message}");
        assert_eq!(message.len(), 1024, "the problem is shortened, and not the command");
        assert_eq!(told(&seen(&[&ours]), &id, ""), None, "it is not being deleted");
        assert_eq!(told(&a("e/v1", "P", "n/p").deleting().object(), &id, ""), None, "it may go");
    }
}
