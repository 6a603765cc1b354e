//! Whether a parent is this controller's business at all.

use crate::object::Object;
use crate::object::selector::Selector;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The controller does not select it.
    Ignore,
    Sync,
}

pub fn decide(parent: &Object, selector: &Selector) -> Gate {
    if selector.matches(&parent.labels) {
        Gate::Sync
    } else {
        Gate::Ignore
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::a;

    #[test]
    fn a_parent_that_is_not_selected_is_ignored() {
        let parent = a("e/v1", "P", "n/p").label("a", "b").object();
        assert_eq!(decide(&parent, &Selector::equals("a", "b")), Gate::Sync);
        assert_eq!(decide(&parent, &Selector::equals("a", "c")), Gate::Ignore);
        assert_eq!(decide(&parent, &Selector::default()), Gate::Sync);
    }
}
