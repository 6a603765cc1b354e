//! Whose child a candidate is: kept, adopted, released or left alone.

use crate::object::Object;
use crate::object::selector::Selector;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It is this parent's.
    Keep,
    /// Nobody controls it and it matches: an owner reference makes it this parent's.
    Adopt,
    /// It is this parent's but does not match any longer: the owner reference is taken off.
    Release,
    /// It is no business of this parent.
    Leave,
}

/// # Guarantees
/// A parent that is being deleted neither adopts nor releases. What somebody else controls is left alone. Without a
/// selector a parent has what it controls, and neither adopts nor releases.
pub fn decide(parent: &Object, selector: Option<&Selector>, candidate: &Object) -> Claim {
    let Some(selector) = selector else {
        let ours = candidate.controller.as_ref() == Some(&parent.uid);
        return if ours { Claim::Keep } else { Claim::Leave };
    };
    let matches = selector.matches(&candidate.labels);
    match &candidate.controller {
        Some(owner) if *owner == parent.uid && matches => Claim::Keep,
        Some(owner) if *owner == parent.uid && !parent.deleting => Claim::Release,
        None if matches && !parent.deleting && !candidate.deleting => Claim::Adopt,
        Some(_) | None => Claim::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::{Build, a};

    fn parent() -> Build {
        a("e/v1", "P", "n/p").uid("p")
    }

    fn child() -> Build {
        a("v1", "Pod", "n/c")
    }

    #[test]
    fn every_row_of_the_table_holds() {
        let selector = Selector::equals("app", "x");
        let decide = |parent: Build, child: Build| decide(&parent.object(), Some(&selector), &child.object());
        let matching = || child().label("app", "x");
        assert_eq!(decide(parent(), matching().controlled_by("p")), Claim::Keep);
        assert_eq!(decide(parent().deleting(), matching().controlled_by("p")), Claim::Keep);
        assert_eq!(decide(parent(), matching().controlled_by("p").deleting()), Claim::Keep);
        assert_eq!(decide(parent(), child().controlled_by("p")), Claim::Release);
        assert_eq!(decide(parent().deleting(), child().controlled_by("p")), Claim::Leave);
        assert_eq!(decide(parent(), matching().controlled_by("q")), Claim::Leave);
        assert_eq!(decide(parent(), child().controlled_by("q")), Claim::Leave);
        assert_eq!(decide(parent(), matching()), Claim::Adopt);
        assert_eq!(decide(parent().deleting(), matching()), Claim::Leave);
        assert_eq!(decide(parent(), matching().deleting()), Claim::Leave);
        assert_eq!(decide(parent(), child()), Claim::Leave);
    }

    #[test]
    fn without_a_selector_a_parent_has_what_it_controls() {
        let decide = |child: Build| decide(&parent().object(), None, &child.object());
        assert_eq!(decide(child().controlled_by("p")), Claim::Keep);
        assert_eq!(decide(child().controlled_by("q")), Claim::Leave);
        assert_eq!(decide(child()), Claim::Leave);
    }
}
