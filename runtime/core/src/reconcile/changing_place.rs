//! Parents whose reconciles change the same place again and again: which place that is, and what is said of it.
//!
//! A hook that takes a value from a clock, a counter or at random never settles. An Event says so after ten reconciles of the parent in a
//! row, and again once it is held back.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::reason::ConditionReason;
use crate::api::status::Finding;
use crate::children::Op;
use crate::children::plan::{first_change, first_difference};
use crate::decorator::{Changes, Decoration, status};
use crate::object::Object;
use crate::object::id::{Key, ObjectId};
use crate::pacing::self_triggered::{Pace, UNTHROTTLED};
use crate::reconcile::outcome::RetryState;
use crate::reconcile::plan::ReconcilePlan;
use crate::{counted, shorten};

/// Bytes of a path that are remembered.
const MAX_PATH: usize = 200;

/// Operations of a plan that are compared with what they change.
const MAX_COMPARED: usize = 3;

/// How many of the [`UNTHROTTLED`] reconciles in a row have to change the same place, the last ones.
const REPEATED: u32 = 5;

const RATIONED: &str = "The hook reads the clock, and each reconcile of this object writes something else: more than ten in a row did. From now on there is one each 10 s, until one has nothing to write or another client changes the object's spec, labels or annotations. Change the hook so that it leaves the time out of its answers, or rounds it";

const THROTTLED: &str = "What the controller writes for this object triggers one reconcile after the other, more than --self-triggered-max. From now on there is one each 10 s, until another client changes the object's spec, labels or annotations. Change the hook so that its answers settle";

const SHARED: &str = "More than ten reconciles of this object in a row wrote something. The next one waits for its turn among the throttled objects of the controller (--self-triggered-rate)";

/// Why the next reconcile waits after one that wrote something.
pub fn why_the_next_waits(warnings: &Warnings, retry_state: RetryState) -> Option<String> {
    let in_turn = || match &warnings.unsettled {
        _ if retry_state.next != Pace::Throttled => None,
        Some(unsettled) => Some(format!("{SHARED}. {unsettled}")),
        None => Some(SHARED.to_owned()),
    };
    warnings.throttled.clone().or_else(in_turn)
}

/// Whether a reconcile that writes something is followed by none at all for a while. Those that only share a rate are no sign of
/// a fault: a parent may well have a hundred children that become ready one after the other.
pub fn is_held_back(retry_state: RetryState) -> bool {
    matches!(retry_state.next, Pace::At(_))
}

/// Whether the places that a reconcile changes matter. Few parents get there, so that objects are read again for these alone.
pub fn is_watched(retry_state: RetryState) -> bool {
    is_held_back(retry_state) || retry_state.in_a_row >= UNTHROTTLED.saturating_sub(REPEATED)
}

/// The first child and field that a plan changes, or the field of the parent itself. `observed`: a child as it is.
///
/// A status that follows what other objects do comes to its end, as do children that replace each other then: they are no
/// such place, unless the parent is held back.
pub fn changed_place(
    parent: &Object,
    plan: &ReconcilePlan,
    retry_state: RetryState,
    observed: impl Fn(&ObjectId) -> Option<Value>,
) -> Option<String> {
    let of_child = |op: &Op| {
        let op = if let Op::DryRun { write, .. } = op { write } else { op };
        let (Op::Replace { id, body } | Op::Apply { id, body, .. } | Op::Recreate { id, body, .. }) = op
        else {
            return None;
        };
        Some(format!("{id}: {}", shorten(&first_change(&observed(id)?, body)?, MAX_PATH)))
    };
    let follows = retry_state.others_changed && !is_held_back(retry_state);
    let mut compared = plan.children.ops.iter().take(MAX_COMPARED);
    let child = compared.find_map(of_child);
    child.or_else(|| changed_metadata(parent, plan)).or_else(|| {
        let of_ends = || changed_names(plan).or_else(|| changed_status(parent, plan));
        (!follows).then(of_ends).flatten()
    })
}

fn changed_metadata(parent: &Object, plan: &ReconcilePlan) -> Option<String> {
    let changed = |field: &str, observed: &BTreeMap<String, String>, wanted: &Changes| {
        let (key, _) = wanted.iter().find(|(key, text)| observed.get(*key) != text.as_ref())?;
        Some(format!("metadata.{field}.{}", shorten(key, MAX_PATH)))
    };
    let Decoration { labels, annotations, .. } = &plan.decoration;
    changed("labels", &parent.labels, labels)
        .or_else(|| changed("annotations", &parent.annotations(), annotations))
}

/// The kind of the children of which one goes while another one comes.
fn changed_names(plan: &ReconcilePlan) -> Option<String> {
    let ops = plan.children.ops.iter();
    let created = ops.clone().find_map(|op| if let Op::Create { id, .. } = op { Some(id) } else { None })?;
    let replaces = |op: &Op| matches!(op, Op::Delete { id, .. } if id.resource == created.resource);
    ops.clone().any(replaces).then(|| format!("{}: metadata.name", created.resource.gvk.kind))
}

fn changed_status(parent: &Object, plan: &ReconcilePlan) -> Option<String> {
    let body = status(parent, plan.decoration.status.clone()?)?;
    let observed = parent.value().ok()?;
    let place = first_difference(observed.get("status")?, body.get("status")?)?;
    Some(format!("status.{}", shorten(&place, MAX_PATH)))
}

/// Fields that the reconciles of one parent changed, where they are watched.
#[derive(Debug, Default)]
pub struct ChangingPlace {
    /// The place that the last reconcile changed, and how many in a row did.
    last: Option<(String, u32)>,
    /// The first place that two reconciles in a row changed. It stays, so that fields that take turns are one warning.
    named: Option<String>,
    /// The warning about a place that never settles. It stays until the row of reconciles ends, so that there is one.
    unsettled: Option<String>,
    held_back: bool,
    /// The hook read the clock in the last one.
    reads_clock: bool,
}

/// Warnings of one reconcile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warnings {
    /// The parent is held back.
    pub throttled: Option<String>,
    /// The same field changes each time.
    pub unsettled: Option<String>,
}

impl ChangingPlace {
    pub fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Why the parent does not settle, in few words; `None`: it may well settle.
    pub fn why(&self) -> Option<String> {
        if !self.held_back && self.unsettled.is_none() {
            return None;
        }
        let changes = match &self.named {
            Some(place) => format!("each reconcile changes {place}"),
            None => "each reconcile triggers the next one".to_owned(),
        };
        Some(if self.reads_clock { format!("its hook reads the clock, and {changes}") } else { changes })
    }

    /// A reconcile of a watched parent wrote something.
    pub fn wrote(&mut self, place: Option<String>, retry_state: RetryState, reads_clock: bool) -> Warnings {
        self.held_back = is_held_back(retry_state);
        self.reads_clock = reads_clock;
        self.last = place.map(|place| match self.last.take() {
            Some((last, times)) if last == place => (last, times.saturating_add(1)),
            Some(_) | None => (place, 1),
        });
        let is_tenth = retry_state.in_a_row >= UNTHROTTLED.saturating_sub(1);
        let unsettled = self.last.as_ref().filter(|(_, times)| is_tenth && *times >= REPEATED);
        if let (None, Some((place, _))) = (&self.unsettled, unsettled) {
            self.unsettled = Some(unsettled_text(place));
        }
        if self.named.is_none() {
            self.named = self.last.as_ref().filter(|(_, times)| *times > 1).map(|(place, _)| place.clone());
        }
        let throttled = self.held_back.then(|| {
            let text = if reads_clock { RATIONED } else { THROTTLED };
            match &self.named {
                Some(place) => format!("{text}. What changes each time is {place}"),
                None => text.to_owned(),
            }
        });
        Warnings { throttled, unsettled: self.unsettled.clone() }
    }
}

/// The parents of a controller that do not settle.
#[derive(Debug, Default)]
pub struct Unsettled {
    throttled: usize,
    /// Those that are not throttled yet.
    others: usize,
    /// The first, a throttled one if there is any, and why.
    first: Option<(bool, String)>,
}

impl Unsettled {
    pub fn add(&mut self, parent: &Key, place: &ChangingPlace) {
        let Some(why) = place.why() else { return };
        let is_throttled = place.is_held_back();
        *(if is_throttled { &mut self.throttled } else { &mut self.others }) += 1;
        if self.first.as_ref().is_none_or(|(first, _)| is_throttled && !first) {
            self.first = Some((is_throttled, format!("{parent}: {why}")));
        }
    }

    /// Finding of the condition `AnswersSettle`; `None`: all settle.
    pub fn finding(&self) -> Option<Finding> {
        let (is_throttled, first) = self.first.as_ref()?;
        let (reason, count, text) = if *is_throttled {
            let throttled = counted(self.throttled, "parent is", "parents are");
            (ConditionReason::AnswersThrottled, self.throttled, format!("{throttled} throttled"))
        } else {
            let others = counted(self.others, "parent does", "parents do");
            (ConditionReason::AnswersChange, self.others, format!("{others} not settle"))
        };
        let one = if count > 1 { "; the first is " } else { ": " };
        Some(Finding::new(reason, format!("{text}{one}{first}; see its Events")))
    }
}

fn unsettled_text(place: &str) -> String {
    format!(
        "Reconciles of this object follow each other, and each of the last {REPEATED} changed {place}. If that is a time, a counter or a random value, leave it out of the hook's answers: they never settle"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::children::Plan;
    use crate::object::id::Uid;
    use crate::object::testing::{a, resource};

    const HELD: RetryState = RetryState {
        next: Pace::At(Duration::from_secs(10)),
        ..RetryState {
            failures: 0,
            self_triggered: true,
            in_a_row: 300,
            others_changed: false,
            next: Pace::AtOnce,
            wait: Duration::ZERO,
        }
    };

    fn nth(in_a_row: u32) -> RetryState {
        RetryState { in_a_row, self_triggered: true, ..RetryState::default() }
    }

    /// The place that a plan with these operations changes while its parent is watched; the child's data is `{"a": "1"}`.
    fn place_of(ops: &[Op], decoration: Decoration, others_changed: bool) -> Option<String> {
        let parent = a("example.com/v1", "Greeting", "n/p")
            .with("status", json!({ "ready": 1, "observedGeneration": 0 }))
            .object();
        let child = a("v1", "ConfigMap", "n/x").with("data", json!({ "a": "1" })).object();
        let children = Plan { ops: ops.to_vec(), ..Plan::default() };
        let plan = ReconcilePlan { children, decoration, ..ReconcilePlan::default() };
        changed_place(&parent, &plan, RetryState { others_changed, ..nth(9) }, |_| child.value().ok())
    }

    fn id(name: &str) -> ObjectId {
        ObjectId { resource: resource("v1", "ConfigMap"), key: Key::new("n", name) }
    }

    #[test]
    fn a_place_is_a_field_of_a_child_or_of_the_parent() {
        let uid = || Uid::new("u");
        let body = json!({ "data": { "a": "2" } });
        let recreate = Op::Recreate { id: id("x"), uid: uid(), body: body.clone(), manager: None };
        let replace = Op::Replace { id: id("x"), body };
        let dry_run = Op::DryRun { write: Box::new(replace.clone()), otherwise: Box::new(recreate.clone()) };
        for op in [replace, recreate, dry_run] {
            let place = place_of(&[op], Decoration::default(), true);
            assert_eq!(place.as_deref(), Some("ConfigMap n/x: data.a"));
        }
        let time = || Changes::from([("time".to_owned(), Some("2".to_owned()))]);
        let labels = Decoration { labels: time(), ..Decoration::default() };
        assert_eq!(place_of(&[], labels, true).as_deref(), Some("metadata.labels.time"));
        let annotations = Decoration { annotations: time(), ..Decoration::default() };
        assert_eq!(place_of(&[], annotations, true).as_deref(), Some("metadata.annotations.time"));
    }

    #[test]
    fn a_status_and_names_count_where_nothing_else_changed() {
        let status = json!({ "ready": 2 }).as_object().cloned();
        let status = Decoration { status, ..Decoration::default() };
        assert_eq!(place_of(&[], status.clone(), true), None, "it may follow its children");
        assert_eq!(place_of(&[], status, false).as_deref(), Some("status.ready"));
        let names =
            [Op::Create { id: id("y"), body: json!({}) }, Op::Delete { id: id("x"), uid: Uid::new("u") }];
        assert_eq!(place_of(&names, Decoration::default(), true), None, "one of its Pods may have ended");
        assert_eq!(
            place_of(&names, Decoration::default(), false).as_deref(),
            Some("ConfigMap: metadata.name")
        );
    }

    fn held(place: &mut ChangingPlace, changed: &str) -> Option<String> {
        let changed = (!changed.is_empty()).then(|| changed.to_owned());
        let shown = place.wrote(changed, HELD, false).throttled.unwrap();
        shown.split_once(" each time is ").map(|(_, place)| place.to_owned())
    }

    #[test]
    fn a_place_is_named_once_two_reconciles_in_a_row_change_it_and_stays_named() {
        let mut place = ChangingPlace::default();
        assert_eq!(
            ["a", "b", "a", ""].map(|at| held(&mut place, at)),
            [const { None }; 4],
            "they take turns"
        );
        assert_eq!(["b", "b"].map(|at| held(&mut place, at)), [None, Some("b".to_owned())]);
        assert!(place.is_held_back());
        assert_eq!(
            ["a", "a", "b", ""].map(|at| held(&mut place, at)),
            ["b"; 4].map(|at| Some(at.to_owned()))
        );
    }

    #[test]
    fn the_tenth_reconcile_in_a_row_names_what_the_last_five_changed() {
        let mut place = ChangingPlace::default();
        let first = (0..30).find(|number| {
            let state = nth(*number);
            let warnings =
                is_watched(state).then(|| place.wrote(Some("status.time".to_owned()), state, false));
            warnings.is_some_and(|warnings| warnings.unsettled.is_some())
        });
        assert_eq!(first, Some(9), "the first has the number 0");
        let text = place.wrote(Some("status.time".to_owned()), nth(10), false).unsettled.unwrap();
        assert!(text.contains("each of the last 5 changed status.time"), "{text}");
        let again = place.wrote(Some("status.time".to_owned()), nth(200), false).unsettled;
        assert_eq!(again, Some(text), "one Event, however often it is so");
        assert!(!place.is_held_back());
    }

    #[test]
    fn places_that_take_turns_or_are_not_known_are_not_named_before_the_parent_is_held_back() {
        let mut place = ChangingPlace::default();
        for number in 5..300 {
            let changed = match number % 5 {
                0 => None,
                1 => Some("b".to_owned()),
                _ => Some("a".to_owned()),
            };
            assert_eq!(place.wrote(changed, nth(number), false), Warnings::default());
        }
    }

    #[test]
    fn parents_that_settle_leave_the_condition() {
        let place = |count: u32, retry_state: fn(u32) -> RetryState, reads_clock| {
            let mut place = ChangingPlace::default();
            for number in 5..count {
                place.wrote(Some("status.time".to_owned()), retry_state(number), reads_clock);
            }
            place
        };
        let finding = |places: &[ChangingPlace]| {
            let mut all = Unsettled::default();
            for (nth, place) in places.iter().enumerate() {
                all.add(&Key::new("n", &nth.to_string()), place);
            }
            all.finding()
        };
        let young = || place(9, nth, false);
        assert_eq!(finding(&[]), None);
        assert_eq!(finding(&[young()]), None, "it may well settle");
        let changes = "1 parent does not settle: n/1: each reconcile changes status.time; see its Events";
        let found = finding(&[young(), place(10, nth, false)]);
        assert_eq!(found, Some(Finding::new(ConditionReason::AnswersChange, changes)));
        let held = || place(10, |_| HELD, true);
        let throttled = "2 parents are throttled; the first is n/1: its hook reads the clock, and each reconcile changes status.time; see its Events";
        let found = finding(&[place(10, nth, false), held(), held()]);
        assert_eq!(found, Some(Finding::new(ConditionReason::AnswersThrottled, throttled)));
    }

    #[test]
    fn a_hook_that_reads_the_clock_is_told_so() {
        let mut place = ChangingPlace::default();
        for number in 5..10 {
            assert_eq!(place.wrote(Some("a".to_owned()), nth(number), true).throttled, None);
        }
        let state = RetryState { in_a_row: 10, ..HELD };
        let throttled = place.wrote(Some("a".to_owned()), state, true).throttled.unwrap();
        assert!(
            throttled.starts_with("The hook reads the clock") && throttled.ends_with("is a"),
            "{throttled}"
        );
    }

    #[test]
    fn why_the_next_reconcile_waits_is_said() {
        let none = Warnings::default();
        assert_eq!(why_the_next_waits(&none, nth(3)), None);
        let shares = RetryState { next: Pace::Throttled, ..nth(12) };
        assert_eq!(why_the_next_waits(&none, shares).as_deref(), Some(SHARED));
        let unsettled = Warnings { unsettled: Some("It never settles".to_owned()), throttled: None };
        assert_eq!(why_the_next_waits(&unsettled, shares).unwrap(), format!("{SHARED}. It never settles"));
        let held = Warnings { throttled: Some("held back".to_owned()), ..unsettled };
        assert_eq!(why_the_next_waits(&held, HELD).as_deref(), Some("held back"));
    }
}
