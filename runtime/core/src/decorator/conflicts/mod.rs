//! Conflicts between decorators of one object: who has which label, which annotation, the status.
//!
//! Of two DecoratorControllers that want one field to be different, the one that was created first has it. Until all older ones
//! that select an object have reconciled it since the server's start, the others change nothing of it, and keep their finalizer
//! where an answer cleans something up. A controller is waited for from the moment that it is known until it is found not to be
//! able to start, and again before its reconciles begin. What it wants stands while it starts anew with another spec and while
//! the server ends; it is dropped when the controller is gone or cannot start. What older ones want is part of a reconcile's
//! fingerprint. The laws in `laws` say that no value goes back and forth.

#[cfg(test)]
mod laws;
mod said;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::api::selection::Selection;
use crate::decorator::object::{Changes, Decoration};
use crate::hash::{Fingerprint, Fingerprinter};
use crate::json::go;
use crate::json::same::same;
use crate::object::Object;
use crate::object::id::{Gvr, Uid};
use said::{Heard, Said, Wants};

/// A DecoratorController; the older ones come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecoratorId {
    /// `metadata.creationTimestamp`: its text sorts as the time does.
    pub created: Arc<str>,
    pub name: Arc<str>,
}

/// One thing that two controllers may want to be different.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Label(String),
    Annotation(String),
    Status,
}

/// What all decorators of this server said about their objects.
///
/// # Guarantees
/// Of what two controllers want to be different, the older one's stands and the younger one leaves it alone. As long as
/// an older one that selects an object and is expected to work has not looked at it, younger ones change nothing of it: a
/// start of the server writes nothing back and forth.
#[derive(Debug, Default)]
pub struct DecoratorConflicts {
    /// Those that work or are about to, and what they are about.
    hosted: BTreeMap<DecoratorId, Vec<(Gvr, Selection)>>,
    objects: BTreeMap<Uid, Said>,
}

/// What comes of a wish.
#[derive(Debug, PartialEq)]
pub struct Resolution {
    /// What of it may be written.
    pub wish: Decoration,
    /// Some of it has to wait until older controllers have looked at the object.
    pub waits: bool,
    pub conflicts: Vec<Conflict>,
    /// Younger controllers that have to look at the object again.
    pub again: Vec<DecoratorId>,
}

/// Two controllers want one field to be different: to be told of on both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    pub field: Field,
    pub has: DecoratorId,
    pub leaves: DecoratorId,
}

impl DecoratorId {
    pub fn of(controller: &Object) -> Self {
        #[derive(Deserialize)]
        struct Controller {
            metadata: Metadata,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            #[serde(default)]
            creation_timestamp: String,
        }
        let read: Result<Controller, _> = serde_json::from_str(controller.json());
        let created = read.map(|controller| controller.metadata.creation_timestamp).unwrap_or_default();
        Self { created: created.into(), name: Arc::clone(&controller.key.name) }
    }
}

impl Resolution {
    /// Whether the object may be let go with what is written of the wish: cleaning up that has to wait would be lost. In
    /// an object that is being deleted it is lost in any case, and nobody shall wait for that.
    pub fn lets_go(&self, object: &Object) -> bool {
        !self.waits || object.deleting
    }
}

impl DecoratorConflicts {
    /// A controller is about these objects from now on, whether it works already or is about to. What it said before
    /// stands until it says something else; gives back who has to look at which object again.
    pub fn host(&mut self, who: DecoratorId, targets: Vec<(Gvr, Selection)>) -> Vec<(Uid, DecoratorId)> {
        match self.hosted.get_mut(&who) {
            Some(before) if *before == targets => Vec::new(),
            Some(before) => {
                *before = targets;
                // Who waits for it may have done so for what it was about.
                let waiting = |(uid, said): (&Uid, &Said)| {
                    concerned(said, &who, true, &[]).map(|other| (uid.clone(), other)).collect::<Vec<_>>()
                };
                self.objects.iter().flat_map(waiting).collect()
            }
            None => {
                self.hosted.insert(who, targets);
                Vec::new()
            }
        }
    }

    /// A controller works, and these objects are its: what it said about others is forgotten. Gives back who has to look at
    /// which object again.
    pub fn begin(&mut self, who: &DecoratorId, is_its: impl Fn(&Uid) -> bool) -> Vec<(Uid, DecoratorId)> {
        self.forget(who, |uid| !is_its(uid))
    }

    /// A controller has ended, or cannot start: nobody waits for it, and what it wanted counts no longer. Gives back who
    /// has to look at which object again.
    pub fn forget_controller(&mut self, who: &DecoratorId) -> Vec<(Uid, DecoratorId)> {
        self.hosted.remove(who);
        self.forget(who, |_| true)
    }

    fn forget(&mut self, who: &DecoratorId, what: impl Fn(&Uid) -> bool) -> Vec<(Uid, DecoratorId)> {
        let mut again = Vec::new();
        self.objects.retain(|uid, said| {
            if what(uid) {
                again.extend(left(said, who).into_iter().map(|other| (uid.clone(), other)));
            }
            !said.is_empty()
        });
        again
    }

    /// The object is no longer selected by this controller; gives back who has to look at it again.
    pub fn leave(&mut self, object: &Uid, who: &DecoratorId) -> Vec<DecoratorId> {
        let Some(said) = self.objects.get_mut(object) else { return Vec::new() };
        let again = left(said, who);
        if said.is_empty() {
            self.objects.remove(object);
        }
        again
    }

    /// The object is gone.
    pub fn forget_object(&mut self, object: &Uid) {
        self.objects.remove(object);
    }

    /// A pass of a controller over the object came to no answer: nobody has to wait for it any longer. What it said
    /// before stands; gives back who has to look again.
    pub fn passed(&mut self, object: &Uid, who: &Arc<DecoratorId>) -> Vec<DecoratorId> {
        let said = self.objects.entry(object.clone()).or_default();
        if said.has(who) {
            return Vec::new();
        }
        said.insert(Heard { who: Arc::clone(who), wants: Wants::default(), waits: false });
        concerned(said, who, true, &[]).collect()
    }

    /// A hook of this controller wants this of an object, which is so now.
    pub fn say(
        &mut self,
        target: &Gvr,
        object: &Object,
        who: &Arc<DecoratorId>,
        wish: &Decoration,
    ) -> Resolution {
        let unheard = self.unheard(target, object, who).next().is_some();
        let said = self.objects.entry(object.uid.clone()).or_default();
        let mut verdict =
            Resolution { wish: wish.clone(), waits: false, conflicts: Vec::new(), again: Vec::new() };
        let (found, mut wants) = (Found::of(object), Vec::new());
        for (field, wanted) in fields(wish) {
            let print = field.print();
            wants.push((print, wanted));
            let oldest = said.older(who).find_map(|one| Some((&one.who, one.wants.get(print)?)));
            if let Some((other, _)) = oldest.filter(|(_, theirs)| *theirs != wanted) {
                verdict.conflicts.push(conflict(&field, other, who));
                withhold(&mut verdict.wish, &field);
            } else if unheard && found.differs(&field, wish) {
                verdict.waits = true;
                withhold(&mut verdict.wish, &field);
            } else if oldest.is_none() {
                let differs = |one: &&Heard| one.wants.get(print).is_some_and(|theirs| theirs != wanted);
                let younger = said.younger(who).filter(differs);
                verdict.conflicts.extend(younger.map(|one| conflict(&field, who, &one.who)));
            }
        }
        let wants = Wants::of(wants);
        let now = Heard { who: Arc::clone(who), wants: wants.clone(), waits: verdict.waits };
        let before = said.insert(now);
        let first = before.is_none();
        let before = before.map(|before| before.wants).unwrap_or_default();
        let changed: Vec<_> = wants.without(&before).chain(before.without(&wants)).collect();
        verdict.again = concerned(said, who, first, &changed).collect();
        verdict
    }

    /// What a pass of this controller has to know of the others: the same as before where nothing of it changed.
    pub fn view(&self, target: &Gvr, object: &Object, who: &DecoratorId) -> Fingerprint {
        let mut all = Fingerprinter::default();
        for other in self.unheard(target, object, who) {
            all.add(b"unheard");
            all.add(other.name.as_bytes());
        }
        let said = self.objects.get(&object.uid);
        for one in said.iter().flat_map(|said| said.older(who)) {
            all.add(b"heard");
            all.add(one.who.name.as_bytes());
            for (field, wanted) in one.wants.iter() {
                all.add(field.as_bytes());
                all.add(wanted.as_bytes());
            }
        }
        all.finish()
    }

    /// Older controllers that select the object and have not looked at it.
    fn unheard<'a>(
        &'a self,
        target: &'a Gvr,
        object: &'a Object,
        who: &'a DecoratorId,
    ) -> impl Iterator<Item = &'a DecoratorId> {
        let said = self.objects.get(&object.uid);
        let older = self.hosted.range(..who);
        let unheard = older.filter(move |(other, _)| !said.is_some_and(|said| said.has(other)));
        let selecting = unheard.filter(move |(_, targets)| {
            targets.iter().any(|(kind, selection)| kind.is_kin(target) && selection.includes(object))
        });
        selecting.map(|(other, _)| other)
    }
}

/// The younger controllers that these fields concern, and where an older one was `first` heard, or will never be, those
/// that wait for it.
fn concerned(
    said: &Said,
    who: &DecoratorId,
    first: bool,
    fields: &[Fingerprint],
) -> impl Iterator<Item = DecoratorId> {
    let concerns = move |one: &&Heard| {
        (first && one.waits) || fields.iter().any(|field| one.wants.get(*field).is_some())
    };
    said.younger(who).filter(concerns).map(|one| DecoratorId::clone(&one.who))
}

/// A controller has nothing to say about an object any more; gives back whom that concerns.
fn left(said: &mut Said, who: &DecoratorId) -> Vec<DecoratorId> {
    let before = said.remove(who).map(|before| before.wants).unwrap_or_default();
    let fields: Vec<_> = before.iter().map(|(field, _)| field).collect();
    concerned(said, who, true, &fields).collect()
}

fn conflict(field: &Field, has: &DecoratorId, leaves: &DecoratorId) -> Conflict {
    Conflict { field: field.clone(), has: has.clone(), leaves: leaves.clone() }
}

/// What a wish is about, with prints of what is wanted.
fn fields(wish: &Decoration) -> impl Iterator<Item = (Field, Fingerprint)> {
    let texts = |changes: &Changes, of: fn(String) -> Field| -> Vec<_> {
        let print = |text: &Option<String>| Fingerprint::of(format!("{text:?}").as_bytes());
        changes.iter().map(|(key, text)| (of(key.clone()), print(text))).collect()
    };
    let status = wish.status.as_ref().map(|status| go::to_string(&Value::Object(status.clone())));
    texts(&wish.labels, Field::Label)
        .into_iter()
        .chain(texts(&wish.annotations, Field::Annotation))
        .chain(status.map(|status| (Field::Status, Fingerprint::of(status.as_bytes()))))
}

fn withhold(wish: &mut Decoration, field: &Field) {
    match field {
        Field::Label(key) => drop(wish.labels.remove(key)),
        Field::Annotation(key) => drop(wish.annotations.remove(key)),
        Field::Status => wish.status = None,
    }
}

/// The object as it is; looked into where somebody asks.
struct Found<'a> {
    object: &'a Object,
    annotations: OnceCell<BTreeMap<String, String>>,
}

impl<'a> Found<'a> {
    fn of(object: &'a Object) -> Self {
        Self { object, annotations: OnceCell::new() }
    }

    /// Something else is wanted than what is there.
    fn differs(&self, field: &Field, wish: &Decoration) -> bool {
        let text = |found: &BTreeMap<String, String>, changes: &Changes, key: &str| {
            found.get(key) != changes.get(key).and_then(Option::as_ref)
        };
        match field {
            Field::Label(key) => text(&self.object.labels, &wish.labels, key),
            Field::Annotation(key) => {
                text(self.annotations.get_or_init(|| self.object.annotations()), &wish.annotations, key)
            }
            Field::Status => {
                let status =
                    self.object.value().ok().and_then(|mut object| Some(object.get_mut("status")?.take()));
                let wanted = wish.status.clone().map(Value::Object).unwrap_or_default();
                !status.is_some_and(|status| same(&status, &wanted))
            }
        }
    }
}

impl Field {
    fn print(&self) -> Fingerprint {
        Fingerprint::of(self.to_string().as_bytes())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(key) => write!(f, "the label {key}"),
            Self::Annotation(key) => write!(f, "the annotation {key}"),
            Self::Status => f.write_str("the status"),
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, has, leaves } = self;
        write!(
            f,
            "the DecoratorControllers {has} and {leaves} want {field} to be different: {has}, the older one, has it, and {leaves} leaves it alone",
            has = has.name,
            leaves = leaves.name,
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::selection::SelectionRule;
    use crate::object::selector::Selector;
    use crate::object::testing::{Build, a};

    /// Its name says how old it is.
    fn controller(name: &str) -> DecoratorId {
        DecoratorId { created: format!("2026-01-01T00:00:0{name}Z").into(), name: name.into() }
    }

    fn passed(wishes: &mut DecoratorConflicts, who: &str) -> Vec<DecoratorId> {
        wishes.passed(&Uid::new("x"), &Arc::new(controller(who)))
    }

    fn things() -> Gvr {
        Gvr::new("e.com/v1", "things")
    }

    fn thing() -> Build {
        a("e.com/v1", "Thing", "n/x").uid("x")
    }

    fn labels(labels: Value) -> Decoration {
        Decoration { labels: serde_json::from_value(labels).unwrap(), ..Decoration::default() }
    }

    fn selecting(labels: Selector) -> Vec<(Gvr, Selection)> {
        let rule = SelectionRule { labels, ..SelectionRule::default() };
        vec![(Gvr::new("e.com/v2", "things"), Selection { rules: vec![rule], ..Selection::default() })]
    }

    /// These controllers are about all things.
    fn hosting(names: &[&str]) -> DecoratorConflicts {
        let mut wishes = DecoratorConflicts::default();
        for name in names {
            assert_eq!(wishes.host(controller(name), selecting(Selector::default())), []);
        }
        wishes
    }

    fn say(wishes: &mut DecoratorConflicts, who: &str, found: Build, wish: &Decoration) -> Resolution {
        wishes.say(&things(), &found.object(), &Arc::new(controller(who)), wish)
    }

    fn named(conflicts: &[Conflict]) -> Vec<String> {
        conflicts
            .iter()
            .map(|one| format!("{}: {} not {}", one.field, one.has.name, one.leaves.name))
            .collect()
    }

    #[test]
    fn the_older_controller_is_the_one_that_was_created_earlier_and_else_the_first_by_name() {
        let of = |name: &str, created: &str| {
            let object = a("e/v1", "D", name).with("metadata.creationTimestamp", json!(created));
            DecoratorId::of(&object.object())
        };
        let early = of("z", "2026-01-01T09:59:59Z");
        assert!(early < of("a", "2026-01-01T10:00:00Z"));
        assert!(of("a", "2026-01-01T10:00:00Z") < of("b", "2026-01-01T10:00:00Z"));
        assert_eq!(&*early.name, "z");
    }

    #[test]
    fn the_older_one_has_the_label_and_both_hear_of_it() {
        let mut wishes = hosting(&["1", "2"]);
        let first = say(&mut wishes, "1", thing(), &labels(json!({"k": "a", "mine": "1"})));
        assert_eq!((first.wish.labels.len(), named(&first.conflicts)), (2, vec![]));
        let found = || thing().label("k", "a");
        let second = say(&mut wishes, "2", found(), &labels(json!({"k": "b", "other": "2"})));
        assert_eq!(second.wish, labels(json!({"other": "2"})));
        assert_eq!(named(&second.conflicts), ["the label k: 1 not 2"]);
        let again = say(&mut wishes, "1", found(), &labels(json!({"k": "a", "mine": "1"})));
        assert_eq!(named(&again.conflicts), ["the label k: 1 not 2"]);
        assert_eq!(again.again, [], "nothing changed");
        let says = second.conflicts[0].to_string();
        assert!(says.ends_with("1, the older one, has it, and 2 leaves it alone"), "{says}");
    }

    #[test]
    fn what_both_want_alike_is_no_conflict_and_a_null_is_a_wish() {
        let mut wishes = hosting(&["1", "2"]);
        say(&mut wishes, "1", thing(), &labels(json!({"same": "a", "gone": null})));
        let second = say(&mut wishes, "2", thing(), &labels(json!({"same": "a", "gone": "b"})));
        assert_eq!(second.wish, labels(json!({"same": "a"})));
        assert_eq!(named(&second.conflicts), ["the label gone: 1 not 2"]);
    }

    #[test]
    fn annotations_and_statuses_are_had_in_the_same_way() {
        let wish = |text: &str| Decoration {
            annotations: [("k".to_owned(), Some(text.to_owned()))].into(),
            status: json!({ "is": text }).as_object().cloned(),
            ..labels(json!({"k": "same"}))
        };
        let mut wishes = hosting(&["1", "2"]);
        say(&mut wishes, "1", thing(), &wish("a"));
        let second = say(&mut wishes, "2", thing(), &wish("b"));
        assert_eq!(second.wish, labels(json!({"k": "same"})));
        assert_eq!(named(&second.conflicts), ["the annotation k: 1 not 2", "the status: 1 not 2"]);
    }

    #[test]
    fn nothing_changes_until_all_older_ones_have_looked() {
        let mut wishes = hosting(&["1", "2", "3"]);
        let found = || {
            let found = thing().label("k", "a").annotation("k", "a");
            found.with("status", json!({"is": "a"}))
        };
        let wish = Decoration {
            annotations: [("k".to_owned(), None), ("new".to_owned(), Some("b".to_owned()))].into(),
            status: json!({"is": "b"}).as_object().cloned(),
            ..labels(json!({"k": "b", "new": "b"}))
        };
        let verdict = say(&mut wishes, "3", found(), &wish);
        assert_eq!((verdict.wish, verdict.conflicts, verdict.waits), (Decoration::default(), vec![], true));
        let alike = say(&mut wishes, "3", found(), &labels(json!({"k": "a", "gone": null})));
        assert!(!alike.waits, "it is so already");
        say(&mut wishes, "3", found(), &wish);
        assert_eq!(passed(&mut wishes, "2"), [controller("3")], "it failed");
        assert!(say(&mut wishes, "3", found(), &wish).waits);
        let first = say(&mut wishes, "1", found(), &labels(json!({})));
        assert_eq!(first.again, [controller("3")], "it waited");
        let heard = say(&mut wishes, "3", found(), &wish);
        assert_eq!((heard.wish, heard.waits), (wish.clone(), false));
        let bare = || thing().with("status", json!({}));
        let mut fresh = hosting(&["1", "2"]);
        let verdict = say(&mut fresh, "2", bare(), &labels(json!({"k": "b"})));
        assert_eq!((verdict.wish, verdict.waits), (Decoration::default(), true), "also what is missing");
    }

    #[test]
    fn a_cleanup_of_what_an_older_one_has_does_not_wait() {
        let mut wishes = hosting(&["1", "2"]);
        let cleanup = labels(json!({"k": null}));
        let found = || thing().label("k", "a");
        let waits = say(&mut wishes, "2", found(), &cleanup);
        assert!(!waits.lets_go(&found().object()), "it would be lost");
        assert!(waits.lets_go(&found().deleting().object()), "it goes with the object");
        say(&mut wishes, "1", thing().label("k", "a"), &labels(json!({"k": "a"})));
        let verdict = say(&mut wishes, "2", thing().label("k", "a"), &cleanup);
        assert!(verdict.lets_go(&found().object()));
        assert_eq!(verdict.wish, Decoration::default());
    }

    #[test]
    fn nobody_waits_for_one_that_cannot_start() {
        let mut wishes = hosting(&["1", "2"]);
        let wish = labels(json!({"k": "b"}));
        assert!(say(&mut wishes, "2", thing(), &wish).waits);
        assert_eq!(wishes.forget_controller(&controller("1")), [(Uid::new("x"), controller("2"))]);
        assert_eq!(say(&mut wishes, "2", thing(), &wish).wish, wish);
        wishes.host(controller("1"), selecting(Selector::default()));
        assert!(say(&mut wishes, "2", thing(), &wish).waits, "it is about to work");
    }

    #[test]
    fn what_was_said_with_another_spec_stands_until_something_else_is_said() {
        let mut wishes = hosting(&["1", "2"]);
        say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
        let wish = labels(json!({"k": "b"}));
        say(&mut wishes, "2", thing().label("k", "a"), &wish);
        assert_eq!(wishes.host(controller("1"), selecting(Selector::equals("on", "1"))), []);
        assert_eq!(say(&mut wishes, "2", thing().label("k", "a"), &wish).wish, Decoration::default());
        assert_eq!(wishes.begin(&controller("1"), |uid| uid.as_str() == "x"), []);
        assert_eq!(say(&mut wishes, "2", thing().label("k", "a"), &wish).wish, Decoration::default());
        let again = wishes.begin(&controller("1"), |uid| uid.as_str() == "y");
        assert_eq!(again, [(Uid::new("x"), controller("2"))], "it is no longer about that one");
        assert_eq!(say(&mut wishes, "2", thing().label("k", "a"), &wish).wish, wish);
    }

    #[test]
    fn who_waits_looks_again_when_the_older_one_is_about_other_objects() {
        let mut wishes = hosting(&["1", "2"]);
        let wish = labels(json!({"k": "b"}));
        assert!(say(&mut wishes, "2", thing(), &wish).waits);
        assert_eq!(wishes.host(controller("1"), selecting(Selector::default())), [], "the same");
        let others = selecting(Selector::equals("on", "1"));
        assert_eq!(wishes.host(controller("1"), others), [(Uid::new("x"), controller("2"))]);
        assert_eq!(say(&mut wishes, "2", thing(), &wish).wish, wish);
    }

    #[test]
    fn nobody_waits_for_controllers_that_do_not_select_the_object() {
        let mut wishes = hosting(&["2"]);
        wishes.host(controller("1"), selecting(Selector::equals("a", "b")));
        let wish = labels(json!({"k": "x"}));
        assert_eq!(say(&mut wishes, "2", thing().label("k", "y"), &wish).wish, wish);
        assert_ne!(say(&mut wishes, "2", thing().label("k", "y").label("a", "b"), &wish).wish, wish);
        let others = Gvr::new("v1", "pods");
        assert_eq!(
            wishes
                .say(
                    &others,
                    &thing().label("k", "y").label("a", "b").object(),
                    &Arc::new(controller("2")),
                    &wish
                )
                .wish,
            wish
        );
    }

    #[test]
    fn a_younger_one_is_told_when_the_older_one_changes_its_mind_leaves_or_ends() {
        let mut wishes = hosting(&["1", "2", "3"]);
        let x = Uid::new("x");
        say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
        say(&mut wishes, "2", thing(), &labels(json!({"k": "b"})));
        say(&mut wishes, "3", thing(), &labels(json!({"other": "c"})));
        let again =
            |verdict: Resolution| verdict.again.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
        assert_eq!(again(say(&mut wishes, "1", thing(), &labels(json!({})))), ["2"]);
        assert_eq!(again(say(&mut wishes, "1", thing(), &labels(json!({"k": "x"})))), ["2"]);
        assert_eq!(wishes.leave(&x, &controller("1")), [controller("2")]);
        wishes.host(controller("1"), selecting(Selector::equals("on", "1")));
        let second = say(&mut wishes, "2", thing(), &labels(json!({"k": "b"})));
        assert_eq!((second.wish, second.conflicts), (labels(json!({"k": "b"})), vec![]));
        say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
        assert_eq!(wishes.forget_controller(&controller("1")), [(x.clone(), controller("2"))]);
        assert_eq!(wishes.forget_controller(&controller("3")), []);
    }

    #[test]
    fn a_view_changes_exactly_with_what_older_ones_said() {
        let mut wishes = hosting(&["1", "2", "3"]);
        let view = |wishes: &DecoratorConflicts| wishes.view(&things(), &thing().object(), &controller("2"));
        let unheard = view(&wishes);
        say(&mut wishes, "3", thing(), &labels(json!({"k": "c"})));
        assert_eq!(view(&wishes), unheard, "it is younger");
        passed(&mut wishes, "1");
        let heard = view(&wishes);
        assert_ne!(heard, unheard);
        say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
        let wants = view(&wishes);
        assert_ne!(wants, heard);
        say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
        assert_eq!(view(&wishes), wants);
        say(&mut wishes, "1", thing(), &labels(json!({"k": null})));
        assert_ne!(view(&wishes), wants);
    }

    #[test]
    fn nothing_is_kept_of_what_is_gone() {
        let mut wishes = hosting(&["1", "2"]);
        say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
        wishes.forget_object(&Uid::new("x"));
        assert!(wishes.objects.is_empty());
        say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
        assert_eq!(wishes.leave(&Uid::new("x"), &controller("1")), []);
        assert!(wishes.objects.is_empty());
        say(&mut wishes, "2", thing(), &labels(json!({"k": "a"})));
        wishes.forget_controller(&controller("1"));
        wishes.forget_controller(&controller("2"));
        assert!(wishes.objects.is_empty() && wishes.hosted.is_empty());
    }
}
