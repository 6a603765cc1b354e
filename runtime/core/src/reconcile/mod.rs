//! One reconcile of one parent, as far as it is decided: its phase first, then its claims, its input, its plan, its outcome.

pub mod api_warnings;
pub mod changed_fields;
pub mod changing_place;
pub mod config;
pub mod error;
pub mod failures;
pub mod input;
pub mod kinds;
pub mod memory;
pub mod outcome;
pub mod pause;
pub mod plan;
mod port_error;
pub mod ports;
pub mod rollout;
pub mod sequence;
pub mod shown;
pub mod steps;
pub mod too_large;
pub mod trigger;
pub mod watched;

use crate::api::hook::HookName;
use crate::api::selection::Selection;
use crate::object::Object;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The controller does not select it.
    Ignore,
    /// The finalize hook could miss its deletion: the finalizer comes before anything else.
    AddFinalizer,
    /// It carries the finalizer of a finalize hook that the controller no longer has: it comes off first, or the parent
    /// could never be deleted. Or of one that may not be shown the parent.
    /// See <https://github.com/GoogleCloudPlatform/metacontroller/issues/60>.
    DropFinalizer,
    /// This hook decides.
    Ask(HookName),
}

/// # Guarantees
/// A parent that is being deleted gets no finalizer. What was neither selected nor finalized is ignored.
pub fn phase(parent: &Object, selection: &Selection) -> Phase {
    let (selected, ours) = (selection.selects(parent), has_finalizer(parent, selection));
    let finalizes = selection.finalizes && !selection.hides(parent);
    match (selected || ours, finalizes, ours) {
        (false, _, _) => Phase::Ignore,
        (true, false, true) => Phase::DropFinalizer,
        (true, true, false) if !parent.deleting => Phase::AddFinalizer,
        (true, true, _) if parent.deleting || !selected => Phase::Ask(HookName::Finalize),
        (true, _, _) if selection.only_finalizes => Phase::Ignore,
        (true, _, _) => Phase::Ask(HookName::Sync),
    }
}

/// Whether children are written. Once a parent is being deleted only a finalize hook decides about them, and it does so
/// no longer where the deletion itself does: in the foreground, or leaving orphans.
/// See <https://github.com/defilantech/LLMKube/issues/949>.
/// See <https://github.com/syntasso/kratix/issues/419>.
pub fn manages_children(parent: &Object, selection: &Selection, finalized: bool) -> bool {
    let left_to_deletion =
        parent.finalizers.iter().any(|one| matches!(one.as_str(), "foregroundDeletion" | "orphan"));
    let waits = selection.finalizes && has_finalizer(parent, selection) && !finalized;
    !parent.deleting || (waits && !left_to_deletion)
}

/// Whether the parent waits for this controller before it can go.
pub fn has_finalizer(parent: &Object, selection: &Selection) -> bool {
    parent.finalizers.contains(&selection.finalizer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::selection::SelectionRule;
    use crate::object::selector::Selector;
    use crate::object::testing::{Build, a};

    const SYNC: Phase = Phase::Ask(HookName::Sync);
    const FINALIZE: Phase = Phase::Ask(HookName::Finalize);

    fn selection(finalizes: bool) -> Selection {
        let rule = SelectionRule { labels: Selector::equals("a", "b"), ..Default::default() };
        Selection { rules: vec![rule], finalizer: OURS.to_owned(), finalizes, ..Selection::default() }
    }

    fn parent(labelled: bool, finalizers: &[&str]) -> Build {
        let parent = a("e/v1", "P", "n/p").with("metadata.finalizers", json!(finalizers));
        if labelled { parent.label("a", "b") } else { parent }
    }

    const OURS: &str = "metacontroller.io/compositecontroller-c";

    /// Every combination of: has a finalize hook, selected, carries our finalizer, being deleted.
    #[test]
    fn every_row_of_the_table_holds() {
        for (finalizes, selected, ours, deleting, expected) in [
            (false, true, false, false, SYNC),
            (false, true, false, true, SYNC),
            (false, true, true, false, Phase::DropFinalizer),
            (false, true, true, true, Phase::DropFinalizer),
            (false, false, false, false, Phase::Ignore),
            (false, false, false, true, Phase::Ignore),
            (false, false, true, false, Phase::DropFinalizer),
            (false, false, true, true, Phase::DropFinalizer),
            (true, true, false, false, Phase::AddFinalizer),
            (true, true, false, true, FINALIZE),
            (true, true, true, false, SYNC),
            (true, true, true, true, FINALIZE),
            (true, false, false, false, Phase::Ignore),
            (true, false, false, true, Phase::Ignore),
            (true, false, true, false, FINALIZE),
            (true, false, true, true, FINALIZE),
        ] {
            let parent = parent(selected, if ours { &[OURS] } else { &[] });
            let parent = if deleting { parent.deleting() } else { parent };
            let row = (finalizes, selected, ours, deleting);
            assert_eq!(phase(&parent.object(), &selection(finalizes)), expected, "{row:?}");
        }
    }

    #[test]
    fn a_parent_that_may_not_be_shown_loses_the_finalizer_and_no_hook_is_asked() {
        for (namespace, plain, ours) in
            [("n", Phase::AddFinalizer, SYNC), ("m", Phase::Ignore, Phase::DropFinalizer)]
        {
            let selection = Selection { namespaces: Some(["n".to_owned()].into()), ..selection(true) };
            let parent = |finalizers: &[&str]| {
                let parent = a("v1", "Secret", &format!("{namespace}/p")).label("a", "b");
                parent.with("metadata.finalizers", json!(finalizers))
            };
            assert_eq!(phase(&parent(&[]).object(), &selection), plain);
            assert_eq!(phase(&parent(&[OURS]).object(), &selection), ours);
            let deleting = phase(&parent(&[OURS]).deleting().object(), &selection);
            assert_eq!(deleting == FINALIZE, namespace == "n", "{deleting:?}");
        }
    }

    #[test]
    fn without_a_sync_hook_parents_are_finalized_and_else_ignored() {
        let selection = Selection { only_finalizes: true, ..selection(true) };
        let phase = |parent: Build| phase(&parent.object(), &selection);
        assert_eq!(phase(parent(true, &[])), Phase::AddFinalizer);
        assert_eq!(phase(parent(true, &[OURS])), Phase::Ignore);
        assert_eq!(phase(parent(true, &[OURS]).deleting()), FINALIZE);
        assert_eq!(phase(parent(false, &[OURS])), FINALIZE);
    }

    #[test]
    fn children_of_a_deleted_parent_are_left_alone_unless_it_is_finalized() {
        let manages = |parent: Build, finalizes, finalized| {
            manages_children(&parent.object(), &selection(finalizes), finalized)
        };
        assert!(manages(parent(true, &[]), false, false));
        assert!(manages(parent(false, &[OURS]), true, true), "it lives on and only stopped matching");
        assert!(!manages(parent(true, &["x"]).deleting(), false, false));
        assert!(manages(parent(true, &[OURS]).deleting(), true, false));
        assert!(!manages(parent(true, &[OURS]).deleting(), true, true), "its finalizer is off by then");
        assert!(!manages(parent(true, &["x"]).deleting(), true, false), "our finalizer was off before");
        assert!(!manages(parent(true, &[OURS, "foregroundDeletion"]).deleting(), true, false));
        assert!(!manages(parent(true, &[OURS, "orphan"]).deleting(), true, false));
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Controllers, parents and children for the tests of reconciles.

    use std::sync::Arc;
    use std::time::Duration;

    use crate::api::ControllerKind;
    use crate::api::common::UpdateMethod;
    use crate::api::hook::{HookName, HookVersion, PerHook};
    use crate::api::selection::{self, Selection, SelectionRule};
    use crate::children::desired::ChildKind;
    use crate::children::write_history::{PastWrites, WriteHistory};
    use crate::hash::Fingerprint;
    use crate::object::selector::UID_LABEL;
    use crate::object::testing::{Build, a, cached, resource};
    use crate::object::{ChildMap, Object};
    use crate::reconcile::config::{ControllerConfig, HookConfig, KindConfig};
    use crate::reconcile::input::{InputParts, ReconcileInput};
    use crate::reconcile::shown::ObservedBounds;
    use crate::related::Related;
    use crate::rollout::revisions::FieldPath;
    use crate::rollout::{RollingConfig, RollingKind};

    /// A CompositeController.
    pub(crate) fn config() -> ControllerConfig {
        ControllerConfig {
            name: "c".to_owned(),
            selection: Selection::default(),
            child_kinds: vec![ChildKind::new(resource("v1", "Pod"), UpdateMethod::InPlace)],
            kind: KindConfig::Composite { generate_selector: true, negative_selectors: false, rolling: None },
            snapshot: "{}".to_owned(),
            hooks: PerHook { sync: HookConfig::wasm(HookVersion::V1, None), finalize: None, customize: None },
            max_children: 10,
            observed: ObservedBounds::default(),
            deletions: vec![],
            related_kinds: crate::api::customize::RelatedKinds::ByAccount,
            shown_secrets: crate::api::shown_secrets::ShownSecrets::All,
            paused: false,
        }
    }

    pub(crate) fn decorator() -> ControllerConfig {
        let selection = Selection {
            rules: vec![SelectionRule::default()],
            finalizer: selection::finalizer(ControllerKind::Decorator, "c"),
            finalizes: true,
            ..Selection::default()
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
        ReconcileInput::of(config, &parent.object(), parts, |_, _| cached(pods)).unwrap()
    }

    /// The children that the parent keeps.
    pub(crate) fn kept(config: &ControllerConfig, input: &ReconcileInput) -> ChildMap {
        let mut children = config.no_children();
        for claimed in input.claims.iter().filter(|claimed| claimed.claim.is_kept()) {
            children.insert(&claimed.resource, Arc::clone(claimed.object.whole().unwrap()));
        }
        children
    }

    pub(crate) fn no_past(history: &WriteHistory) -> PastWrites<'_> {
        PastWrites { history, now: Duration::ZERO }
    }
}
