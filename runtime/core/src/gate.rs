//! Whether a parent is this controller's business at all.

use crate::object::Object;
use crate::trigger::Selection;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The controller does not select it.
    Ignore,
    /// It carries the finalizer of a finalize hook that the controller no longer has: it comes off first, or the parent
    /// could never be deleted.
    DropFinalizer,
    Sync,
}

pub fn decide(parent: &Object, selection: &Selection) -> Gate {
    if parent.finalizers.contains(&selection.finalizer) {
        Gate::DropFinalizer
    } else if selection.includes(parent) {
        Gate::Sync
    } else {
        Gate::Ignore
    }
}

/// The finalizer of a controller, under the name that Metacontroller gives it.
pub fn finalizer(controller: &str) -> String {
    format!("metacontroller.io/compositecontroller-{controller}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::selector::Selector;
    use crate::object::testing::a;

    #[test]
    fn a_parent_is_synced_where_it_is_selected() {
        let parent = a("e/v1", "P", "n/p").label("a", "b").object();
        let selection = |labels| Selection { labels, finalizer: finalizer("c"), ignore_status: false };
        assert_eq!(decide(&parent, &selection(Selector::equals("a", "b"))), Gate::Sync);
        assert_eq!(decide(&parent, &selection(Selector::equals("a", "c"))), Gate::Ignore);
        assert_eq!(decide(&parent, &selection(Selector::default())), Gate::Sync);
    }

    #[test]
    fn a_finalizer_left_behind_comes_off_whoever_is_selected() {
        let left = json!(["metacontroller.io/compositecontroller-c"]);
        let parent = a("e/v1", "P", "n/p").with("metadata.finalizers", left).object();
        let selection =
            Selection { labels: Selector::equals("a", "b"), finalizer: finalizer("c"), ignore_status: false };
        assert_eq!(decide(&parent, &selection), Gate::DropFinalizer);
    }
}
