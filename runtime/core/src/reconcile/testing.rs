//! Controllers, parents and children for the tests of reconciles.

use std::sync::Arc;
use std::time::Duration;

use crate::api::ControllerKind;
use crate::api::common::UpdateMethod;
use crate::api::hook::{HookName, HookVersion, PerHook};
use crate::api::selection::{self, Selection, SelectionRule};
use crate::children::claims::Claim;
use crate::children::desired::ChildKind;
use crate::children::write_history::{PastWrites, WriteHistory};
use crate::hash::Fingerprint;
use crate::object::selector::UID_LABEL;
use crate::object::testing::{Build, a, resource};
use crate::object::{ChildMap, Object};
use crate::reconcile::config::{ControllerConfig, HookConfig, KindConfig};
use crate::reconcile::input::{InputParts, ReconcileInput};
use crate::related::Related;
use crate::rollout::revisions::FieldPath;
use crate::rollout::{RollingConfig, RollingKind};

/// A CompositeController.
pub(crate) fn config() -> ControllerConfig {
    ControllerConfig {
        name: "c".to_owned(),
        selection: Selection::default(),
        child_kinds: vec![ChildKind::new(resource("v1", "Pod"), UpdateMethod::InPlace)],
        kind: KindConfig::Composite { generate_selector: true, rolling: None },
        snapshot: "{}".to_owned(),
        hooks: PerHook { sync: HookConfig::wasm(HookVersion::V1, None), finalize: None, customize: None },
        max_children: 10,
        deletions: vec![],
    }
}

pub(crate) fn decorator() -> ControllerConfig {
    let selection = Selection {
        rules: vec![SelectionRule::default()],
        finalizer: selection::finalizer(ControllerKind::Decorator, "c"),
        finalizes: true,
    };
    ControllerConfig { kind: KindConfig::Decorator, selection, ..config() }
}

/// Pods that are updated in place, one after the other, when `spec.image` of the parent changes.
pub(crate) fn rolling() -> RollingConfig {
    RollingConfig {
        paths: vec![FieldPath::new("spec.image")],
        kinds: vec![RollingKind { resource: resource("v1", "Pod"), in_place: true, checks: vec![] }],
        parents: resource("e/v1", "P"),
        revisions: resource("metacontroller.k8s.io/v1alpha1", "ControllerRevision"),
        home: "server".into(),
    }
}

pub(crate) fn parent() -> Build {
    a("e/v1", "P", "n/p").uid("p").version("1")
}

pub(crate) fn child(name: &str) -> Build {
    a("v1", "Pod", &format!("n/{name}")).label(UID_LABEL, "p").controlled_by("p")
}

pub(crate) fn parts() -> InputParts {
    InputParts {
        hook: HookName::Sync,
        hooks: Fingerprint::of(b"module"),
        related: Related::default(),
        rollout: None,
        older_decorators: None,
    }
}

pub(crate) fn input(
    config: &ControllerConfig,
    parent: Build,
    parts: InputParts,
    pods: &[Arc<Object>],
) -> ReconcileInput {
    ReconcileInput::of(config, &parent.object(), parts, |_, _| pods.to_vec()).unwrap()
}

/// The children that the parent keeps.
pub(crate) fn kept(config: &ControllerConfig, input: &ReconcileInput) -> ChildMap {
    let mut children = config.no_children();
    for claimed in input.claims.iter().filter(|claimed| claimed.claim == Claim::Keep) {
        children.insert(&claimed.resource, Arc::clone(&claimed.object));
    }
    children
}

pub(crate) fn no_past(history: &WriteHistory) -> PastWrites<'_> {
    PastWrites { history, now: Duration::ZERO }
}
