//! Claims of a parent on its candidates: kept, adopted, released or left alone.

use crate::api::ControllerKind;
use crate::object::Object;
use crate::object::selector::Selector;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It is this parent's.
    Keep,
    /// It has no controller and matches: an owner reference makes it this parent's.
    Adopt,
    /// It is this parent's but does not match any longer: the owner reference is taken off.
    Release,
    /// It is not this parent's and stays as it is.
    Leave,
}

/// # Guarantees
/// A parent that is being deleted neither adopts nor releases. An object with another controller is left alone. Without a
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

/// The attachments of a parent are those that the DecoratorController made for it: it neither adopts nor releases. What a
/// CompositeController made is none, though its hook may have copied the annotation of one.
pub fn attached(parent: &Object, controller: &str, candidate: &Object) -> Claim {
    let ours = candidate.attached_by.as_deref() == Some(controller) && candidate.made_by.is_none();
    if ours && candidate.controller.as_ref() == Some(&parent.uid) { Claim::Keep } else { Claim::Leave }
}

/// The controller that made an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maker<'a> {
    pub kind: ControllerKind,
    pub name: &'a str,
}

/// As its annotations say. What a CompositeController made it says first: its hook may have copied the other annotation
/// from an attachment that it saw.
pub fn maker(object: &Object) -> Option<Maker<'_>> {
    let made = |kind, name| Maker { kind, name };
    let by_composite = object.made_by.as_deref().map(|name| made(ControllerKind::Composite, name));
    by_composite.or_else(|| Some(made(ControllerKind::Decorator, object.attached_by.as_deref()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::last_applied::{ATTACHED_BY, MADE_BY};
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

    #[test]
    fn attachments_are_kept_by_owner_and_annotation_and_nothing_else_is_touched() {
        let attached = |child: Build, by: &str| {
            attached(&parent().object(), "d", &child.annotation(ATTACHED_BY, by).object())
        };
        assert_eq!(attached(child().controlled_by("p"), "d"), Claim::Keep);
        assert_eq!(attached(child().controlled_by("p").deleting(), "d"), Claim::Keep);
        assert_eq!(attached(child().controlled_by("p"), "e"), Claim::Leave, "another decorator's");
        assert_eq!(attached(child().controlled_by("q"), "d"), Claim::Leave, "another object's");
        assert_eq!(attached(child(), "d"), Claim::Leave, "an orphan");
        let composed = child().controlled_by("p").annotation(MADE_BY, "d");
        assert_eq!(attached(composed, "d"), Claim::Leave, "a CompositeController's");
        assert_eq!(
            super::attached(&parent().object(), "d", &child().controlled_by("p").object()),
            Claim::Leave
        );
    }

    #[test]
    fn the_maker_of_an_object_stands_in_its_annotations() {
        let maker = |child: Build| {
            let child = child.object();
            maker(&child).map(|maker| (maker.kind, maker.name.to_owned()))
        };
        let (composite, decorator) = (ControllerKind::Composite, ControllerKind::Decorator);
        assert_eq!(maker(child()), None);
        assert_eq!(maker(child().annotation(MADE_BY, "c")), Some((composite, "c".to_owned())));
        assert_eq!(maker(child().annotation(ATTACHED_BY, "d")), Some((decorator, "d".to_owned())));
        let copied = child().annotation(ATTACHED_BY, "d").annotation(MADE_BY, "c");
        assert_eq!(maker(copied), Some((composite, "c".to_owned())));
    }
}
