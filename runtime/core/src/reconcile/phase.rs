//! What a parent is to its controller: none of its business, to be given or rid of a finalizer, or what a hook is asked about.

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
        Selection { rules: vec![rule], finalizer: OURS.to_owned(), finalizes }
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
