//! What several controllers want of one object that they decorate: who has which label, which annotation, the status.

#[cfg(test)]
mod laws;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::decoration::{Changes, Wish};
use crate::fingerprint::{Fingerprint, Fingerprinter};
use crate::json::go;
use crate::json::same::same;
use crate::object::Object;
use crate::object::id::{Gvr, Uid};
use crate::trigger::Selection;

/// A DecoratorController; the older ones come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
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
/// an older one that selects an object has not looked at it, what is there stays: a start of the server changes nothing
/// back and forth. What is missing may be added.
#[derive(Debug, Default)]
pub struct Wishes {
    hosted: BTreeMap<Claimant, Vec<(Gvr, Selection)>>,
    objects: BTreeMap<Uid, BTreeMap<Claimant, Heard>>,
}

/// What a controller said about an object; nothing, if its passes came to no answer.
#[derive(Debug, Default)]
struct Heard {
    /// Values as prints: they may be large.
    wants: BTreeMap<Field, Fingerprint>,
    /// Something is left as it is until older controllers have looked at the object.
    waits: bool,
}

/// What comes of a wish.
#[derive(Debug, PartialEq)]
pub struct Verdict {
    /// What of it may be written.
    pub wish: Wish,
    pub conflicts: Vec<Conflict>,
    /// Younger controllers that have to look at the object again.
    pub again: Vec<Claimant>,
}

/// Two controllers want one field to be different: to be told of on both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    pub field: Field,
    pub has: Claimant,
    pub leaves: Claimant,
}

impl Claimant {
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

impl Wishes {
    /// A controller is about these objects from now on, whether it works already or not. What it said before, with
    /// another spec, is forgotten; gives back who has to look at which object again.
    pub fn host(&mut self, who: Claimant, targets: Vec<(Gvr, Selection)>) -> Vec<(Uid, Claimant)> {
        let again = self.forget_controller(&who);
        self.hosted.insert(who, targets);
        again
    }

    /// A controller has ended; gives back who has to look at which object again.
    pub fn forget_controller(&mut self, who: &Claimant) -> Vec<(Uid, Claimant)> {
        self.hosted.remove(who);
        let mut again = Vec::new();
        self.objects.retain(|uid, heard| {
            let before = heard.remove(who).map(|heard| heard.wants).unwrap_or_default();
            again.extend(concerned(heard, who, true, &before).map(|other| (uid.clone(), other)));
            !heard.is_empty()
        });
        again
    }

    /// The object is no longer selected by this controller; gives back who has to look at it again.
    pub fn leave(&mut self, object: &Uid, who: &Claimant) -> Vec<Claimant> {
        let Some(heard) = self.objects.get_mut(object) else { return Vec::new() };
        let before = heard.remove(who).map(|heard| heard.wants).unwrap_or_default();
        let again = concerned(heard, who, true, &before).collect();
        if heard.is_empty() {
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
    pub fn passed(&mut self, object: &Uid, who: &Claimant) -> Vec<Claimant> {
        let heard = self.objects.entry(object.clone()).or_default();
        let first = !heard.contains_key(who);
        heard.entry(who.clone()).or_default();
        concerned(heard, who, first, &BTreeMap::new()).collect()
    }

    /// A hook of this controller wants this of an object, which is so now.
    pub fn say(&mut self, target: &Gvr, object: &Object, who: &Claimant, wish: &Wish) -> Verdict {
        let unheard = self.unheard(target, object, who).next().is_some();
        let wants: BTreeMap<_, _> = fields(wish).collect();
        let heard = self.objects.entry(object.uid.clone()).or_default();
        let first = !heard.contains_key(who);
        let mut verdict = Verdict { wish: wish.clone(), conflicts: Vec::new(), again: Vec::new() };
        let (found, mut withheld) = (Found::of(object), false);
        for (field, wanted) in &wants {
            let oldest = heard.range(..who).find_map(|(other, said)| Some((other, said.wants.get(field)?)));
            if let Some((other, _)) = oldest.filter(|(_, theirs)| *theirs != wanted) {
                verdict.conflicts.push(conflict(field, other, who));
                withhold(&mut verdict.wish, field);
            } else if unheard && found.differs(field, wish) {
                withheld = true;
                withhold(&mut verdict.wish, field);
            } else if oldest.is_none() {
                let differs = |said: &Heard| said.wants.get(field).is_some_and(|theirs| theirs != wanted);
                let younger = heard.iter().filter(|(other, said)| *other > who && differs(said));
                verdict.conflicts.extend(younger.map(|(other, _)| conflict(field, who, other)));
            }
        }
        let before = heard.insert(who.clone(), Heard { wants: wants.clone(), waits: withheld });
        let changed = changed(&before.map(|before| before.wants).unwrap_or_default(), &wants);
        verdict.again = concerned(heard, who, first, &changed).collect();
        verdict
    }

    /// What a pass of this controller has to know of the others: the same as before where nothing of it changed.
    pub fn view(&self, target: &Gvr, object: &Object, who: &Claimant) -> Fingerprint {
        let mut all = Fingerprinter::default();
        for other in self.unheard(target, object, who) {
            all.add(b"unheard");
            all.add(other.name.as_bytes());
        }
        let heard = self.objects.get(&object.uid);
        for (other, said) in heard.iter().flat_map(|heard| heard.range(..who)) {
            all.add(b"heard");
            all.add(other.name.as_bytes());
            for (field, wanted) in &said.wants {
                all.add(field.to_string().as_bytes());
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
        who: &'a Claimant,
    ) -> impl Iterator<Item = &'a Claimant> {
        let heard = self.objects.get(&object.uid);
        let older = self.hosted.range(..who);
        let unheard = older.filter(move |(other, _)| !heard.is_some_and(|heard| heard.contains_key(other)));
        let selecting = unheard.filter(move |(_, targets)| {
            targets.iter().any(|(kind, selection)| kind.is_kin(target) && selection.includes(object))
        });
        selecting.map(|(other, _)| other)
    }
}

/// The younger controllers that these fields concern, and where an older one was `first` heard, or will never be, those
/// that wait for it.
fn concerned(
    heard: &BTreeMap<Claimant, Heard>,
    who: &Claimant,
    first: bool,
    fields: &BTreeMap<Field, Fingerprint>,
) -> impl Iterator<Item = Claimant> {
    let concerns = move |said: &Heard| {
        (first && said.waits) || fields.keys().any(|field| said.wants.contains_key(field))
    };
    heard.iter().filter(move |(other, said)| *other > who && concerns(said)).map(|(other, _)| other.clone())
}

fn changed(
    before: &BTreeMap<Field, Fingerprint>,
    now: &BTreeMap<Field, Fingerprint>,
) -> BTreeMap<Field, Fingerprint> {
    let of = |some: &BTreeMap<Field, Fingerprint>, others: &BTreeMap<Field, Fingerprint>| -> Vec<_> {
        let differ = some.iter().filter(|(field, print)| others.get(*field) != Some(*print));
        differ.map(|(field, print)| (field.clone(), *print)).collect()
    };
    of(before, now).into_iter().chain(of(now, before)).collect()
}

fn conflict(field: &Field, has: &Claimant, leaves: &Claimant) -> Conflict {
    Conflict { field: field.clone(), has: has.clone(), leaves: leaves.clone() }
}

/// What a wish is about, with prints of what is wanted.
fn fields(wish: &Wish) -> impl Iterator<Item = (Field, Fingerprint)> {
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

fn withhold(wish: &mut Wish, field: &Field) {
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

    /// There is something, and something else is wanted.
    fn differs(&self, field: &Field, wish: &Wish) -> bool {
        let text = |found: &BTreeMap<String, String>, changes: &Changes, key: &str| {
            found.get(key).is_some_and(|found| changes.get(key).and_then(Option::as_ref) != Some(found))
        };
        match field {
            Field::Label(key) => text(&self.object.labels, &wish.labels, key),
            Field::Annotation(key) => {
                text(self.annotations.get_or_init(|| self.object.annotations()), &wish.annotations, key)
            }
            Field::Status => {
                let status =
                    self.object.value().ok().and_then(|mut object| Some(object.get_mut("status")?.take()));
                let status =
                    status.filter(|status| status.as_object().is_some_and(|status| !status.is_empty()));
                let wanted = wish.status.clone().map(Value::Object).unwrap_or_default();
                status.is_some_and(|status| !same(&status, &wanted))
            }
        }
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
    use crate::object::selector::Selector;
    use crate::object::testing::{Build, a};
    use crate::trigger::SelectionRule;

    /// Its name says how old it is.
    fn controller(name: &str) -> Claimant {
        Claimant { created: format!("2026-01-01T00:00:0{name}Z").into(), name: name.into() }
    }

    fn things() -> Gvr {
        Gvr::new("e.com/v1", "things")
    }

    fn thing() -> Build {
        a("e.com/v1", "Thing", "n/x").uid("x")
    }

    fn labels(labels: Value) -> Wish {
        Wish { labels: serde_json::from_value(labels).unwrap(), ..Wish::default() }
    }

    fn selecting(labels: Selector) -> Vec<(Gvr, Selection)> {
        let rule = SelectionRule { labels, ..SelectionRule::default() };
        vec![(Gvr::new("e.com/v2", "things"), Selection { rules: vec![rule], ..Selection::default() })]
    }

    /// These controllers are about all things.
    fn hosting(names: &[&str]) -> Wishes {
        let mut wishes = Wishes::default();
        for name in names {
            assert_eq!(wishes.host(controller(name), selecting(Selector::default())), []);
        }
        wishes
    }

    fn say(wishes: &mut Wishes, who: &str, found: Build, wish: &Wish) -> Verdict {
        wishes.say(&things(), &found.object(), &controller(who), wish)
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
            Claimant::of(&object.object())
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
        let wish = |text: &str| Wish {
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
    fn what_is_there_stays_until_all_older_ones_have_looked() {
        let mut wishes = hosting(&["1", "2", "3"]);
        let found = || {
            let found = thing().label("k", "a").annotation("k", "a");
            found.with("status", json!({"is": "a"}))
        };
        let wish = Wish {
            annotations: [("k".to_owned(), None), ("new".to_owned(), Some("b".to_owned()))].into(),
            status: json!({"is": "b"}).as_object().cloned(),
            ..labels(json!({"k": "b", "new": "b"}))
        };
        let added = Wish {
            annotations: [("new".to_owned(), Some("b".to_owned()))].into(),
            ..labels(json!({"new": "b"}))
        };
        let verdict = say(&mut wishes, "3", found(), &wish);
        assert_eq!((verdict.wish, verdict.conflicts), (added, vec![]));
        assert_eq!(
            say(&mut wishes, "3", found(), &labels(json!({"k": "a"}))).wish,
            labels(json!({"k": "a"}))
        );
        say(&mut wishes, "3", found(), &wish);
        assert_eq!(wishes.passed(&Uid::new("x"), &controller("2")), [controller("3")], "it failed");
        assert_ne!(say(&mut wishes, "3", found(), &wish).wish, wish);
        let first = say(&mut wishes, "1", found(), &labels(json!({})));
        assert_eq!(first.again, [controller("3")], "it waited");
        assert_eq!(say(&mut wishes, "3", found(), &wish).wish, wish);
        let empty = || thing().with("status", json!({}));
        let mut fresh = hosting(&["1", "2"]);
        assert_eq!(say(&mut fresh, "2", empty(), &wish).wish, wish, "nothing is there yet");
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
                .say(&others, &thing().label("k", "y").label("a", "b").object(), &controller("2"), &wish)
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
            |verdict: Verdict| verdict.again.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
        assert_eq!(again(say(&mut wishes, "1", thing(), &labels(json!({})))), ["2"]);
        assert_eq!(again(say(&mut wishes, "1", thing(), &labels(json!({"k": "x"})))), ["2"]);
        assert_eq!(wishes.leave(&x, &controller("1")), [controller("2")]);
        let second = say(&mut wishes, "2", thing(), &labels(json!({"k": "b"})));
        assert_eq!((second.wish, second.conflicts), (labels(json!({"k": "b"})), vec![]));
        say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
        assert_eq!(wishes.forget_controller(&controller("1")), [(x.clone(), controller("2"))]);
        assert_eq!(wishes.forget_controller(&controller("3")), []);
    }

    #[test]
    fn a_view_changes_exactly_with_what_older_ones_said() {
        let mut wishes = hosting(&["1", "2", "3"]);
        let view = |wishes: &Wishes| wishes.view(&things(), &thing().object(), &controller("2"));
        let unheard = view(&wishes);
        say(&mut wishes, "3", thing(), &labels(json!({"k": "c"})));
        assert_eq!(view(&wishes), unheard, "it is younger");
        wishes.passed(&Uid::new("x"), &controller("1"));
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
