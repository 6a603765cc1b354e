//! Claims of a parent on candidates, each kept, adopted, released or left alone, and the marks of an owner on its children.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::ControllerKind;
use crate::object::cached::CachedObject;
use crate::object::id::{ObjectId, Resource};
use crate::object::selector::Selector;
use crate::object::{Object, ObjectMeta};

/// The controller that made a child stands in this one. It is set when the child is made and no part of what is wanted.
pub const MADE_BY: &str = "metahook.dev/controller";

/// The DecoratorController whose attachment a child is stands in this one, Metacontroller's. It is wanted like what the
/// hook wants.
pub const ATTACHED_BY: &str = "metacontroller.k8s.io/decorator-controller";

/// One candidate and its claim.
#[derive(Debug)]
pub struct ClaimedObject {
    pub resource: Arc<Resource>,
    pub object: CachedObject,
    pub claim: Claim,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The parent controls the object.
    Keep,
    /// The parent controls it, but its owner reference names the parent by a version that the controller no longer
    /// uses: it is renewed.
    Renew,
    /// The object has no controller and matches: it gets an owner reference to the parent.
    Adopt,
    /// The parent controls the object, but it does not match any longer: the owner reference is taken off.
    Release,
    /// The object has nothing to do with the parent.
    Leave,
}

impl ClaimedObject {
    pub fn id(&self) -> ObjectId {
        ObjectId { resource: Arc::clone(&self.resource), key: self.object.key.clone() }
    }

    /// Changes the object as the claim of `parent` says.
    pub fn carry_out(&self, object: &mut Value, parent: &Object) {
        match self.claim {
            Claim::Keep | Claim::Leave => {}
            Claim::Renew => renew(object, parent),
            Claim::Adopt => adopt(object, parent),
            Claim::Release => release(object, parent),
        }
    }
}

impl Claim {
    /// The word for it in plans.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Renew => "renew",
            Self::Adopt => "adopt",
            Self::Release => "release",
            Self::Leave => "leave",
        }
    }

    /// The parent controls the object, now and afterwards.
    pub fn is_kept(self) -> bool {
        matches!(self, Self::Keep | Self::Renew)
    }

    /// This claim, or [`Claim::Renew`] where an object that is kept names another version of its parent. An object that
    /// goes needs no owner.
    #[must_use]
    pub(crate) fn renewed(self, parent: &Object, candidate: &ObjectMeta) -> Self {
        match self {
            Self::Keep if !candidate.deleting && !candidate.names_controller(parent) => Self::Renew,
            claim => claim,
        }
    }
}

/// The claim of a CompositeController's parent on a candidate.
///
/// # Guarantees
/// A parent that is being deleted neither adopts nor releases. An object with another controller is left alone. Without a
/// selector a parent keeps the objects that it controls, and neither adopts nor releases.
pub fn of_composite(parent: &Object, selector: Option<&Selector>, candidate: &ObjectMeta) -> Claim {
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

/// The claim of a DecoratorController's parent on a candidate: its attachments are the objects that the controller made for
/// it, so that it neither adopts nor releases. An object that a CompositeController made is no attachment, though its hook
/// may have copied the annotation of one.
pub fn of_decorator(parent: &Object, controller: &str, candidate: &ObjectMeta) -> Claim {
    let ours = candidate.attached_by.as_deref() == Some(controller) && candidate.made_by.is_none();
    if ours && candidate.controller.as_ref() == Some(&parent.uid) { Claim::Keep } else { Claim::Leave }
}

/// The controller that made an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maker<'a> {
    pub kind: ControllerKind,
    pub name: &'a str,
}

/// The maker of an object, as its annotations say. The annotation of a CompositeController counts first: its hook may have
/// copied the other annotation from an attachment.
pub fn maker(object: &ObjectMeta) -> Option<Maker<'_>> {
    let made = |kind, name| Maker { kind, name };
    let by_composite = object.made_by.as_deref().map(|name| made(ControllerKind::Composite, name));
    by_composite.or_else(|| Some(made(ControllerKind::Decorator, object.attached_by.as_deref()?)))
}

/// Makes `parent` an owner of an object that does not name it; a reference that does, as a hook may have given it, names the
/// parent as it is read now.
pub(super) fn own(object: &mut Value, parent: &Object) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        let owners = metadata.entry("ownerReferences").or_insert(Value::Null);
        if owners.is_null() {
            *owners = json!([]);
        }
        if let Value::Array(owners) = owners
            && !renew_in(owners, parent)
        {
            owners.push(owner_reference(parent));
        }
    }
}

/// Renews a child's owner reference that names another version of `parent`: all else stays as it is.
pub fn renew(object: &mut Value, parent: &Object) {
    if let Some(Value::Array(owners)) = object.pointer_mut("/metadata/ownerReferences") {
        renew_in(owners, parent);
    }
}

/// Writes the owner reference to the parent in the words of [`owner_reference`], and returns whether there is one.
fn renew_in(owners: &mut [Value], parent: &Object) -> bool {
    let mut is_there = false;
    for owner in owners.iter_mut().filter_map(Value::as_object_mut) {
        if owner.get("uid").and_then(Value::as_str) == Some(parent.uid.as_str()) {
            is_there = true;
            for (field, word) in [
                ("apiVersion", parent.gvk.api_version()),
                ("kind", parent.gvk.kind.to_string()),
                ("name", parent.key.name.to_string()),
            ] {
                owner.insert(field.to_owned(), Value::String(word));
            }
        }
    }
    is_there
}

/// Turns an orphan into a child of `parent`, which adopts it.
pub fn adopt(object: &mut Value, parent: &Object) {
    release(object, parent);
    change_owners(object, |owners| owners.push(owner_reference(parent)));
}

/// Removes the owner reference from a child that `parent` releases.
pub fn release(object: &mut Value, parent: &Object) {
    let is_parent = |owner: &Value| owner.get("uid").and_then(Value::as_str) == Some(parent.uid.as_str());
    change_owners(object, |owners| owners.retain(|owner| !is_parent(owner)));
}

/// Changes the owner references of an object; where there are none, the list is empty.
fn change_owners(object: &mut Value, change: impl FnOnce(&mut Vec<Value>)) {
    const FIELD: &str = "ownerReferences";
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    let mut all = match metadata.get_mut(FIELD).map(Value::take) {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    };
    change(&mut all);
    if all.is_empty() {
        metadata.remove(FIELD);
    } else {
        metadata.insert(FIELD.to_owned(), Value::Array(all));
    }
}

/// The reference that makes `parent` the controller of an object.
pub fn owner_reference(parent: &Object) -> Value {
    json!({
        "apiVersion": parent.gvk.api_version(),
        "kind": &*parent.gvk.kind,
        "name": &*parent.key.name,
        "uid": parent.uid.as_str(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
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
    fn claims_follow_controller_selector_and_deletion() {
        let selector = Selector::equals("app", "x");
        let claim =
            |parent: Build, child: Build| of_composite(&parent.object(), Some(&selector), &child.object());
        let matching = || child().label("app", "x");
        assert_eq!(claim(parent(), matching().controlled_by("p")), Claim::Keep);
        assert_eq!(claim(parent().deleting(), matching().controlled_by("p")), Claim::Keep);
        assert_eq!(claim(parent(), matching().controlled_by("p").deleting()), Claim::Keep);
        assert_eq!(claim(parent(), child().controlled_by("p")), Claim::Release);
        assert_eq!(claim(parent().deleting(), child().controlled_by("p")), Claim::Leave);
        assert_eq!(claim(parent(), matching().controlled_by("q")), Claim::Leave);
        assert_eq!(claim(parent(), child().controlled_by("q")), Claim::Leave);
        assert_eq!(claim(parent(), matching()), Claim::Adopt);
        assert_eq!(claim(parent().deleting(), matching()), Claim::Leave);
        assert_eq!(claim(parent(), matching().deleting()), Claim::Leave);
        assert_eq!(claim(parent(), child()), Claim::Leave);
    }

    #[test]
    fn adopting_and_releasing_change_the_parents_reference_alone() {
        let theirs = json!({"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "o"});
        let mut object = json!({"metadata": {"name": "c", "ownerReferences": [theirs]}});
        let parent = parent().object();
        for _ in 0..2 {
            adopt(&mut object, &parent);
            assert_eq!(object["metadata"]["ownerReferences"], json!([theirs, owner_reference(&parent)]));
        }
        release(&mut object, &parent);
        assert_eq!(object["metadata"]["ownerReferences"], json!([theirs]));
        let mut alone = json!({"metadata": {"name": "c"}});
        adopt(&mut alone, &parent);
        release(&mut alone, &parent);
        assert_eq!(alone, json!({"metadata": {"name": "c"}}), "no empty list is left");
    }

    #[test]
    fn a_reference_to_another_version_of_the_parent_is_renewed_and_nothing_else() {
        let theirs = json!({"apiVersion": "e/v1beta1", "kind": "P", "name": "o", "uid": "o"});
        let old = json!({"apiVersion": "e/v1beta1", "kind": "P", "name": "p", "uid": "p", "controller": true, "blockOwnerDeletion": false});
        let with = |ours: &Value| child().with("metadata.ownerReferences", json!([theirs, ours]));
        let parent = parent().object();
        let renewed = |child: Build| Claim::Keep.renewed(&parent, &child.object());
        assert_eq!(renewed(with(&old)), Claim::Renew);
        assert_eq!(renewed(with(&old).deleting()), Claim::Keep, "it goes");
        for claim in [Claim::Adopt, Claim::Release, Claim::Leave] {
            assert_eq!(claim.renewed(&parent, &with(&old).object()), claim);
        }
        for (field, word) in [("apiVersion", "f/v1"), ("kind", "Q"), ("name", "q")] {
            let mut reference = owner_reference(&parent);
            assert_eq!(renewed(with(&reference)), Claim::Keep);
            reference[field] = json!(word);
            assert_eq!(renewed(with(&reference)), Claim::Renew, "{field}");
        }
        let mut object = with(&old).object().value().unwrap();
        let mut expected = object.clone();
        expected["metadata"]["ownerReferences"][1]["apiVersion"] = json!("e/v1");
        renew(&mut object, &parent);
        assert_eq!(object, expected);
        let unowned = json!({"metadata": {"ownerReferences": [theirs]}});
        let mut same = unowned.clone();
        renew(&mut same, &parent);
        assert_eq!(same, unowned, "no reference is added");
    }

    #[test]
    fn without_a_selector_a_parent_keeps_what_it_controls() {
        let claim = |child: Build| of_composite(&parent().object(), None, &child.object());
        assert_eq!(claim(child().controlled_by("p")), Claim::Keep);
        assert_eq!(claim(child().controlled_by("q")), Claim::Leave);
        assert_eq!(claim(child()), Claim::Leave);
    }

    #[test]
    fn attachments_are_kept_by_owner_and_annotation() {
        let attached = |child: Build, by: &str| {
            of_decorator(&parent().object(), "d", &child.annotation(ATTACHED_BY, by).object())
        };
        assert_eq!(attached(child().controlled_by("p"), "d"), Claim::Keep);
        assert_eq!(attached(child().controlled_by("p").deleting(), "d"), Claim::Keep);
        assert_eq!(attached(child().controlled_by("p"), "e"), Claim::Leave, "another decorator's");
        assert_eq!(attached(child().controlled_by("q"), "d"), Claim::Leave, "another object's");
        assert_eq!(attached(child(), "d"), Claim::Leave, "an orphan");
        let composed = child().controlled_by("p").annotation(MADE_BY, "d");
        assert_eq!(attached(composed, "d"), Claim::Leave, "a CompositeController's");
        assert_eq!(of_decorator(&parent().object(), "d", &child().controlled_by("p").object()), Claim::Leave);
    }

    #[test]
    fn annotations_tell_the_maker_of_an_object() {
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
