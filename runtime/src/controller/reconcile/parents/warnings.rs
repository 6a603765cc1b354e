//! Warnings about parents, each recorded as an Event once: those of the reconciles themselves, and those of the API server about
//! their writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use metahook_core::api::reason::EventReason;
use metahook_core::children::Op;
use metahook_core::hash::{FastMap, Fingerprint};
use metahook_core::object::Object;
use metahook_core::object::id::Key;
use metahook_core::reconcile::api_warnings::{ReportedWarnings, WarnedParents};
use metahook_core::reconcile::input::ReconcileInput;
use metahook_core::reconcile::outcome::MAX_EVENT_MESSAGE;
use metahook_core::reconcile::plan::ReconcilePlan;
use metahook_core::shorten_middle;

use super::Parents;
use crate::sync::lock;

/// Warnings about the parents of one kind.
#[derive(Default)]
pub(super) struct ParentWarnings {
    /// Warnings of the last reconcile of each parent. Parents without warnings have no entry.
    of_reconciles: Mutex<BTreeMap<Key, ByReason>>,
    /// Warnings of the API server that are recorded already. Parents about whose writes it never warned have no entry.
    reported: Mutex<FastMap<Key, ReportedWarnings>>,
    /// Parents about whose objects the API server warned last.
    warned: Mutex<WarnedParents>,
}

/// Warnings with one reason that are kept of a parent's last reconcile: an answer may have one for each of its children.
const MAX_WARNINGS: usize = 20;

type ByReason = BTreeMap<EventReason, BTreeSet<String>>;

impl ParentWarnings {
    pub(super) fn forget(&self, parent: &Key) {
        lock(&self.of_reconciles).remove(parent);
        lock(&self.reported).remove(parent);
        lock(&self.warned).forget(parent);
    }
}

impl Parents {
    /// Records those of a parent's present warnings that its last reconcile did not have.
    pub(crate) fn record_new(
        &self,
        parent: &Object,
        reason: EventReason,
        warnings: impl IntoIterator<Item = String>,
    ) {
        let warnings = warnings.into_iter().take(MAX_WARNINGS);
        let warnings = warnings.map(|warning| shorten_middle(&warning, MAX_EVENT_MESSAGE)).collect();
        let before = replace(&mut lock(&self.warnings.of_reconciles), &parent.key, reason, &warnings);
        for message in warnings.difference(&before) {
            self.data.recorder.record(parent, reason, message);
        }
    }

    /// Records what the API server has against a write for a parent, each text once for a parent, a kind of objects and a
    /// version of the hooks. `hooks`: the version when the write began.
    pub(crate) fn record_api_warnings(
        &self,
        parent: &Key,
        op: &Op,
        texts: &[String],
        hooks: Option<Fingerprint>,
    ) {
        if texts.is_empty() {
            self.note_warned(hooks, parent, op, None);
            return;
        }
        let Some(parent) = self.data.parents.get(parent) else { return };
        self.note_warned(hooks, &parent.key, op, texts.first());
        let (id, mut all) = (op.id(), lock(&self.warnings.reported));
        let reported = all.or_default(&parent.key);
        for text in texts.iter().filter(|text| reported.is_new(hooks, &id.resource.gvk.kind, text)) {
            let message = format!("{} {id}: the API server warns: {text}", op.verb());
            self.data.recorder.record(&parent, EventReason::ApiWarning, &message);
        }
    }

    fn note_warned(&self, hooks: Option<Fingerprint>, parent: &Key, op: &Op, warning: Option<&String>) {
        let mut warned = lock(&self.warnings.warned);
        // Within the lock: what a newer version has noted is not taken for what an older one did.
        warned.wrote([hooks, self.hooks.identity()], parent, op, warning);
    }

    /// A plan was made: warnings about objects that are neither there nor wanted are over.
    pub(crate) fn keep_warned(&self, parent: &Key, input: &ReconcileInput, plan: &ReconcilePlan) {
        let own = (&*self.data.parents.resource.gvk.kind, parent);
        let there = input.claims.iter().map(|claimed| (&*claimed.resource.gvk.kind, &claimed.object.key));
        let wanted = plan.desired.iter().flat_map(|(resource, all)| {
            let kind = &*resource.gvk.kind;
            all.keys().map(move |key| (kind, key))
        });
        let unmanaged = plan.unwritten.unmanaged.iter().map(|child| (&*child.gvk.kind, &child.key));
        let all = std::iter::once(own).chain(there).chain(wanted).chain(unmanaged);
        lock(&self.warnings.warned).keep(parent, all);
    }

    /// The number of parents about whose objects the API server warned last, and one of them.
    pub(crate) fn warned(&self) -> (usize, Option<String>) {
        lock(&self.warnings.warned).count(self.hooks.identity())
    }
}

/// Remembers the warnings of a parent; gives back those that it had.
fn replace(
    all: &mut BTreeMap<Key, ByReason>,
    parent: &Key,
    reason: EventReason,
    warnings: &BTreeSet<String>,
) -> BTreeSet<String> {
    if !warnings.is_empty() {
        return all.entry(parent.clone()).or_default().insert(reason, warnings.clone()).unwrap_or_default();
    }
    // Nearly always, and with each reconcile: nothing is copied.
    let Some(reasons) = all.get_mut(parent) else { return BTreeSet::new() };
    let before = reasons.remove(&reason).unwrap_or_default();
    if reasons.is_empty() {
        all.remove(parent);
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_recorded_once_and_again_when_it_comes_back() {
        let mut all = BTreeMap::new();
        let mut new = |messages: &[&str]| {
            let warnings = messages.iter().map(|&message| message.to_owned()).collect();
            let before = replace(&mut all, &Key::new("n", "p"), EventReason::MissingChildren, &warnings);
            warnings.difference(&before).cloned().collect::<Vec<_>>()
        };
        assert_eq!(new(&["a"]), ["a"]);
        assert_eq!(new(&["a", "b"]), ["b"]);
        assert!(new(&["a", "b"]).is_empty());
        assert!(new(&[]).is_empty());
        assert_eq!(new(&["a"]), ["a"]);
        new(&[]);
        assert!(all.is_empty(), "a parent without warnings costs nothing");
    }
}
