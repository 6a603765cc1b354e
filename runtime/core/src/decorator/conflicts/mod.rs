//! Conflicts between decorators of one object: each label, each annotation and the status belong to one of them.
//!
//! Where two DecoratorControllers want one field to be different, the one that was created first has it. Until all
//! older ones that select an object have reconciled it since the server's start, the others change nothing of it, and
//! keep their finalizer where an answer cleans something up. A controller is waited for from the moment that it is
//! known until it is found not to be able to start, and again before its reconciles begin. What it wants stands while
//! it starts anew with another spec and while the server ends; it is dropped when the controller is gone or cannot
//! start. What older ones want is part of a reconcile's fingerprint. The laws in `laws` say that no value goes back and
//! forth.
//!
//! A controller that `spec.paused` pauses asks no hook, so that its fields of an object that is seen first during the pause are
//! not known, as after a start of the server: any field that the object has may be one of them. A younger controller then leaves a field that is different from what it
//! wants alone, unless it has set the field itself since the start; fields that the object lacks do not wait.

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
mod wants;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::api::selection::Selection;
use crate::decorator::{Changes, Decoration};
use crate::hash::{Fingerprint, Fingerprinter};
use crate::json::difference::same;
use crate::json::to_go_string;
use crate::object::Object;
use crate::object::id::{Gvr, Uid};
use wants::{DecoratorWants, ObjectWants, Wants};

/// A DecoratorController; the older ones come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecoratorId {
    /// `metadata.creationTimestamp`: its text sorts as the time does.
    pub created: Arc<str>,
    pub name: Arc<str>,
}

/// One thing that two controllers may want to be different.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Field {
    #[error("the label {0}")]
    Label(String),
    #[error("the annotation {0}")]
    Annotation(String),
    #[error("the status")]
    Status,
}

/// Changes that all decorators of this server want of their objects.
///
/// # Guarantees
/// Where two controllers want a field to be different, the older one's value stands and the younger one leaves it
/// alone. As long as an older one that selects an object and is expected to work has not reconciled it, younger ones
/// change nothing of it: a start of the server writes nothing back and forth.
#[derive(Debug, Default)]
pub struct DecoratorConflicts {
    /// Controllers that work or are about to, and the objects that each is about.
    hosted: BTreeMap<DecoratorId, Vec<(Gvr, Selection)>>,
    objects: BTreeMap<Uid, ObjectWants>,
}

/// The part of a decoration that may be written, and the conflicts.
#[derive(Debug, PartialEq)]
pub struct Resolution {
    /// The part that may be written.
    pub decoration: Decoration,
    /// Some of it has to wait until older controllers have reconciled the object.
    pub waits: bool,
    pub conflicts: Vec<Conflict>,
    /// Younger controllers that have to reconcile the object again.
    pub again: Vec<DecoratorId>,
}

/// Two controllers want one field to be different.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error(
    "the DecoratorControllers {0} and {1} want {field} to be different: {0}, the older one, has it, and {1} leaves it alone",
    has.name, leaves.name
)]
pub struct Conflict {
    pub field: Field,
    pub has: DecoratorId,
    pub leaves: DecoratorId,
}

impl DecoratorId {
    pub fn of(controller: &Object) -> Self {
        let object = controller.value().unwrap_or_default();
        let created = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
        Self { created: created.unwrap_or_default().into(), name: Arc::clone(&controller.key.name) }
    }
}

impl Resolution {
    /// Whether the object may be let go with what is written of the decoration: cleaning up that has to wait would be lost. In
    /// an object that is being deleted it is lost in any case, and no controller waits for that.
    pub fn lets_go(&self, object: &Object) -> bool {
        !self.waits || object.deleting
    }
}

impl DecoratorConflicts {
    /// A controller is about these objects from now on, whether it works already or is about to. Its earlier decorations
    /// stay until it has others. Returns the objects to reconcile again, each with its decorator.
    pub fn host(&mut self, id: &DecoratorId, targets: Vec<(Gvr, Selection)>) -> Vec<(Uid, DecoratorId)> {
        let before = self.hosted.insert(id.clone(), targets);
        if before.is_none() || before.as_ref() == self.hosted.get(id) {
            return Vec::new();
        }
        // Others may wait for it because of its earlier targets.
        let waiting = |(uid, all): (&Uid, &ObjectWants)| {
            concerned(all, id, true, &[]).map(|other| (uid.clone(), other)).collect::<Vec<_>>()
        };
        self.objects.iter().flat_map(waiting).collect()
    }

    /// A controller works, and these objects are its: its decorations of all others are forgotten. Returns the objects to
    /// reconcile again, each with its decorator.
    pub fn begin(&mut self, id: &DecoratorId, is_its: impl Fn(&Uid) -> bool) -> Vec<(Uid, DecoratorId)> {
        self.forget(id, |uid| !is_its(uid))
    }

    /// A controller has ended, or cannot start: no other one waits for it, and what it wanted counts no longer. Returns
    /// the objects to reconcile again, each with its decorator.
    pub fn forget_controller(&mut self, id: &DecoratorId) -> Vec<(Uid, DecoratorId)> {
        self.hosted.remove(id);
        self.forget(id, |_| true)
    }

    fn forget(&mut self, id: &DecoratorId, what: impl Fn(&Uid) -> bool) -> Vec<(Uid, DecoratorId)> {
        let mut again = Vec::new();
        self.objects.retain(|uid, all| {
            if what(uid) {
                again.extend(left(all, id).into_iter().map(|other| (uid.clone(), other)));
            }
            !all.is_empty()
        });
        again
    }

    /// The controller no longer selects the object. Returns the decorators that have to reconcile the object again.
    pub fn leave(&mut self, object: &Uid, id: &DecoratorId) -> Vec<DecoratorId> {
        let Some(all) = self.objects.get_mut(object) else { return Vec::new() };
        let again = left(all, id);
        if all.is_empty() {
            self.objects.remove(object);
        }
        again
    }

    /// The object is gone.
    pub fn forget_object(&mut self, object: &Uid) {
        self.objects.remove(object);
    }

    /// A reconcile of a controller over the object got no answer: no other one waits for it any longer. Its
    /// earlier decoration stays. Returns the decorators that have to reconcile the object again.
    pub fn unanswered(&mut self, object: &Uid, id: &Arc<DecoratorId>) -> Vec<DecoratorId> {
        self.without_answer(object, id, false)
    }

    /// The controller is paused: a decoration of it that is known stays, and else the fields that the object has wait for it.
    /// Returns the decorators that have to reconcile the object again.
    pub fn paused(&mut self, object: &Uid, id: &Arc<DecoratorId>) -> Vec<DecoratorId> {
        self.without_answer(object, id, true)
    }

    fn without_answer(&mut self, object: &Uid, id: &Arc<DecoratorId>, paused: bool) -> Vec<DecoratorId> {
        let all = self.objects.entry(object.clone()).or_default();
        if all.get(id).is_some_and(|before| paused || !before.paused) {
            return Vec::new();
        }
        all.insert(DecoratorWants::unknown(Arc::clone(id), paused));
        concerned(all, id, true, &[]).collect()
    }

    /// A hook of this controller wants this of an object, which is so now.
    pub fn resolve(
        &mut self,
        target: &Gvr,
        object: &Object,
        id: &Arc<DecoratorId>,
        decoration: &Decoration,
    ) -> Resolution {
        let pending = self.pending(target, object, id).next().is_some();
        let all = self.objects.entry(object.uid.clone()).or_default();
        let is_one_paused = all.older(id).any(|one| one.paused);
        let before = all.get(id);
        let mut resolution = Resolution {
            decoration: decoration.clone(),
            waits: false,
            conflicts: Vec::new(),
            again: Vec::new(),
        };
        let (annotations, mut wants, mut withheld) = (OnceCell::new(), Vec::new(), Vec::new());
        for (field, wanted) in fields(decoration) {
            let print = field.print();
            wants.push((print, wanted));
            let is_unclear = || {
                let may_be_a_paused_ones = is_one_paused
                    && !before.is_some_and(|before| before.has_set(print))
                    && has(object, &annotations, &field);
                (pending || may_be_a_paused_ones) && differs(object, &annotations, &field, decoration)
            };
            let oldest = all.older(id).find_map(|one| Some((&one.id, one.wants.get(print)?)));
            if let Some((other, _)) = oldest.filter(|(_, theirs)| *theirs != wanted) {
                resolution.conflicts.push(conflict(&field, other, id));
                withheld.push(print);
                withhold(&mut resolution.decoration, &field);
            } else if is_unclear() {
                resolution.waits = true;
                withheld.push(print);
                withhold(&mut resolution.decoration, &field);
            } else if oldest.is_none() {
                let differs =
                    |one: &&DecoratorWants| one.wants.get(print).is_some_and(|theirs| theirs != wanted);
                let younger = all.younger(id).filter(differs);
                resolution.conflicts.extend(younger.map(|one| conflict(&field, id, &one.id)));
            }
        }
        let wants = Wants::of(wants);
        let now = DecoratorWants {
            id: Arc::clone(id),
            wants: wants.clone(),
            waits: resolution.waits,
            withheld: withheld.into(),
            paused: false,
        };
        resolution.again = replace_wants(all, now);
        resolution
    }

    /// Fingerprint of the decorations of others that a reconcile of this controller depends on.
    pub fn view(&self, target: &Gvr, object: &Object, id: &DecoratorId) -> Fingerprint {
        let mut all = Fingerprinter::default();
        for other in self.pending(target, object, id) {
            all.add(b"unheard");
            all.add(other.name.as_bytes());
        }
        let wants = self.objects.get(&object.uid);
        for one in wants.iter().flat_map(|wants| wants.older(id)) {
            all.add(if one.paused { b"paused" } else { b"heard" });
            all.add(one.id.name.as_bytes());
            for (field, wanted) in one.wants.iter() {
                all.add(field.as_bytes());
                all.add(wanted.as_bytes());
            }
        }
        all.finish()
    }

    /// Older controllers that select the object and have not reconciled it.
    fn pending<'a>(
        &'a self,
        target: &'a Gvr,
        object: &'a Object,
        id: &'a DecoratorId,
    ) -> impl Iterator<Item = &'a DecoratorId> {
        let all = self.objects.get(&object.uid);
        let older = self.hosted.range(..id);
        let pending = older.filter(move |(other, _)| !all.is_some_and(|all| all.has(other)));
        let selecting = pending.filter(move |(_, targets)| {
            targets.iter().any(|(kind, selection)| kind.is_kin(target) && selection.includes(object))
        });
        selecting.map(|(other, _)| other)
    }
}

/// A controller wants something else of an object. Returns the younger ones that this concerns.
fn replace_wants(all: &mut ObjectWants, now: DecoratorWants) -> Vec<DecoratorId> {
    let (id, wants) = (Arc::clone(&now.id), now.wants.clone());
    let before = all.insert(now);
    let first = before.as_ref().is_none_or(|before| before.paused);
    let before = before.map(|before| before.wants).unwrap_or_default();
    let changed: Vec<_> = wants.without(&before).chain(before.without(&wants)).collect();
    concerned(all, &id, first, &changed).collect()
}

/// The younger controllers that these fields concern, and where an older one was `first` heard, or will never be, those
/// that wait for it.
fn concerned(
    all: &ObjectWants,
    id: &DecoratorId,
    first: bool,
    fields: &[Fingerprint],
) -> impl Iterator<Item = DecoratorId> {
    let concerns = move |one: &&DecoratorWants| {
        (first && one.waits) || fields.iter().any(|field| one.wants.get(*field).is_some())
    };
    all.younger(id).filter(concerns).map(|one| DecoratorId::clone(&one.id))
}

/// A controller no longer decorates an object. Returns the decorators that this concerns.
fn left(all: &mut ObjectWants, id: &DecoratorId) -> Vec<DecoratorId> {
    let before = all.remove(id).map(|before| before.wants).unwrap_or_default();
    let fields: Vec<_> = before.iter().map(|(field, _)| field).collect();
    concerned(all, id, true, &fields).collect()
}

fn conflict(field: &Field, has: &DecoratorId, leaves: &DecoratorId) -> Conflict {
    Conflict { field: field.clone(), has: has.clone(), leaves: leaves.clone() }
}

/// Fields that a decoration is about, each with a print of what is wanted.
fn fields(decoration: &Decoration) -> impl Iterator<Item = (Field, Fingerprint)> {
    let texts = |changes: &Changes, of: fn(String) -> Field| -> Vec<_> {
        let print = |text: &Option<String>| Fingerprint::of(format!("{text:?}").as_bytes());
        changes.iter().map(|(key, text)| (of(key.clone()), print(text))).collect()
    };
    let status = decoration.status.as_ref().map(|status| to_go_string(&Value::Object(status.clone())));
    texts(&decoration.labels, Field::Label)
        .into_iter()
        .chain(texts(&decoration.annotations, Field::Annotation))
        .chain(status.map(|status| (Field::Status, Fingerprint::of(status.as_bytes()))))
}

fn withhold(decoration: &mut Decoration, field: &Field) {
    match field {
        Field::Label(key) => drop(decoration.labels.remove(key)),
        Field::Annotation(key) => drop(decoration.annotations.remove(key)),
        Field::Status => decoration.status = None,
    }
}

/// Whether an object has another value in a field than the decoration. Its annotations and its status are parsed on demand.
fn differs(
    object: &Object,
    annotations: &OnceCell<BTreeMap<String, String>>,
    field: &Field,
    decoration: &Decoration,
) -> bool {
    let text = |found: &BTreeMap<String, String>, changes: &Changes, key: &str| {
        found.get(key) != changes.get(key).and_then(Option::as_ref)
    };
    match field {
        Field::Label(key) => text(&object.labels, &decoration.labels, key),
        Field::Annotation(key) => {
            text(annotations.get_or_init(|| object.annotations()), &decoration.annotations, key)
        }
        Field::Status => {
            let wanted = decoration.status.clone().map(Value::Object).unwrap_or_default();
            !object.value().is_ok_and(|object| object.get("status").is_some_and(|now| same(now, &wanted)))
        }
    }
}

/// Whether an object has a field, with any value.
fn has(object: &Object, annotations: &OnceCell<BTreeMap<String, String>>, field: &Field) -> bool {
    match field {
        Field::Label(key) => object.labels.contains_key(key),
        Field::Annotation(key) => annotations.get_or_init(|| object.annotations()).contains_key(key),
        Field::Status => object.value().is_ok_and(|object| object.get("status").is_some()),
    }
}

impl Field {
    fn print(&self) -> Fingerprint {
        Fingerprint::of(self.to_string().as_bytes())
    }
}
