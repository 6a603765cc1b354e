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
        self.is_unsettled().then(|| self.words())
    }

    fn is_unsettled(&self) -> bool {
        self.held_back || self.unsettled.is_some()
    }

    fn words(&self) -> String {
        let changes = match &self.named {
            Some(place) => format!("each reconcile changes {place}"),
            None => "each reconcile triggers the next one".to_owned(),
        };
        if self.reads_clock { format!("its hook reads the clock, and {changes}") } else { changes }
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
        if place.is_unsettled() {
            self.count(place.is_held_back(), || format!("{parent}: {}", place.words()));
        }
    }

    /// All are counted each second, and may be many. `text`: asked for where it is shown.
    fn count(&mut self, is_throttled: bool, text: impl FnOnce() -> String) {
        *(if is_throttled { &mut self.throttled } else { &mut self.others }) += 1;
        if self.first.as_ref().is_none_or(|(first, _)| is_throttled && !first) {
            self.first = Some((is_throttled, text()));
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
mod tests;
