//! What a parent is to its controller: none of its business, to be given or rid of a finalizer, or what a hook is asked about.

use crate::api::ControllerKind;
use crate::api::SpecError;
use crate::api::hook::HookName;
use crate::cache::trigger::Selection;
use crate::object::Object;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The controller does not select it.
    Ignore,
    /// The finalize hook could miss its deletion: the finalizer comes before anything else.
    AddFinalizer,
    /// It carries the finalizer of a finalize hook that the controller no longer has: it comes off first, or the parent
    /// could never be deleted.
    DropFinalizer,
    /// This hook decides.
    Ask(HookName),
}

/// # Guarantees
/// A parent that is being deleted gets no finalizer. What was neither selected nor finalized is ignored.
pub fn decide(parent: &Object, selection: &Selection) -> Phase {
    let (selected, ours) = (selection.selects(parent), has_finalizer(parent, selection));
    match (selected || ours, selection.finalizes, ours) {
        (false, _, _) => Phase::Ignore,
        (true, false, true) => Phase::DropFinalizer,
        (true, true, false) if !parent.deleting => Phase::AddFinalizer,
        (true, true, _) if parent.deleting || !selected => Phase::Ask(HookName::Finalize),
        (true, _, _) => Phase::Ask(HookName::Sync),
    }
}

/// Whether children are written. Once a parent is being deleted only a finalize hook decides about them, and it does so
/// no longer where the deletion itself does: in the foreground, or leaving orphans.
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

/// Whether a finalizer can be made of a controller's name: the API server takes 63 characters behind the slash. Of
/// either kind: their words are of one length.
pub fn check_name(controller: &str) -> Result<(), SpecError> {
    const MOST: usize = 63 - "compositecontroller-".len();
    if controller.len() <= MOST {
        return Ok(());
    }
    let problem = format!(
        "{} characters are too many for a controller with a finalize hook, whose name becomes part of a finalizer: at most {MOST}",
        controller.len()
    );
    Err(SpecError::new("metadata.name", problem))
}

/// The finalizer of a controller, under the name that Metacontroller gives it.
pub fn finalizer(kind: ControllerKind, controller: &str) -> String {
    format!("{}{controller}", prefix(kind))
}

/// Whose finalizer it is, if it is one of ours: the kind and the name of the controller.
pub fn whose(finalizer: &str) -> Option<(ControllerKind, &str)> {
    let of = |kind| Some((kind, finalizer.strip_prefix(prefix(kind))?));
    of(ControllerKind::Composite).or_else(|| of(ControllerKind::Decorator))
}

fn prefix(kind: ControllerKind) -> &'static str {
    match kind {
        ControllerKind::Composite => "metacontroller.io/compositecontroller-",
        ControllerKind::Decorator => "metacontroller.io/decoratorcontroller-",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cache::trigger::SelectionRule;
    use crate::object::selector::Selector;
    use crate::object::testing::{Build, a};

    const SYNC: Phase = Phase::Ask(HookName::Sync);
    const FINALIZE: Phase = Phase::Ask(HookName::Finalize);

    fn selection(finalizes: bool) -> Selection {
        let rule = SelectionRule { labels: Selector::equals("a", "b"), ..Default::default() };
        Selection { rules: vec![rule], finalizer: finalizer(ControllerKind::Composite, "c"), finalizes }
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
            assert_eq!(decide(&parent.object(), &selection(finalizes)), expected, "{row:?}");
        }
    }

    #[test]
    fn a_finalizer_says_whose_it_is() {
        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            assert_eq!(whose(&finalizer(kind, "a-b")), Some((kind, "a-b")));
        }
        assert_eq!(finalizer(ControllerKind::Decorator, "c"), "metacontroller.io/decoratorcontroller-c");
        assert_eq!(whose("foregroundDeletion"), None);
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
