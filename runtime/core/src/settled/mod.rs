//! Settled parents: those whose next reconcile needs no call of a hook.
//!
//! When a reconcile after a pure call writes nothing, its fingerprint is kept. A trigger that finds the same fingerprint ends
//! there. Changes of caches are numbered ([`CacheRevision`]): where the numbers of everything that a reconcile would read are
//! the same, not even the fingerprint is computed. The configuration of a running controller is no part of the fingerprint:
//! another spec is another controller, which starts with no parent settled. A law in `tests/settling` compares a model cluster
//! with and without this.

pub mod first_failure;
pub mod parent_state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::hash::{FastMap, Fingerprint, hash64};
use crate::object::Object;
use crate::object::id::Key;
use crate::settled::parent_state::ParentState;

/// The parents of one controller.
#[derive(Debug, Default)]
pub struct SettledParents {
    /// Nothing is to be done about these until a reconcile reads something else.
    settled: FastMap<Key, SettledState>,
    /// The last reconcile of these wrote nothing; a webhook is called at each trigger all the same.
    settled_without_state: BTreeSet<Key>,
    /// The last reconcile of these failed, by category.
    failing: BTreeMap<Key, &'static str>,
    /// These are paused. No parent is in two of the four.
    paused: BTreeSet<Key>,
    /// The last reconcile of these delayed their status.
    status_due: BTreeSet<Key>,
    /// Statuses that the API server accepted and dropped, and until when they are not written again.
    no_op_writes: BTreeMap<Key, (Fingerprint, Duration)>,
    /// The hook that was called last, and its purity.
    hook: Option<(Fingerprint, Purity)>,
    /// Settled parents whose next reconcile calls the hook all the same.
    checks: BTreeSet<Key>,
    /// The hook is called for one in so many settled parents all the same; 0 is none.
    check_every: u64,
    /// State of the generator that picks samples: it has no rhythm, so that no parent is always or never picked.
    sampling: u64,
}

/// The input of a settled parent's last reconcile, and the hook's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettledState {
    pub seen: Fingerprint,
    pub answer: Fingerprint,
    /// The revision of the caches before the input was read.
    pub revision: CacheRevision,
}

/// A number for the state of all that a reconcile of a parent would read. Where it is the same, nothing changed; another
/// number proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheRevision(u64);

impl CacheRevision {
    /// `numbers`: of the changes in the stores that are read.
    pub fn of(
        parent: &Object,
        hooks: Fingerprint,
        older_decorators: Option<Fingerprint>,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Self {
        let mut all = hash64();
        (parent.uid.as_str(), parent.version.as_str(), parent.deleting).hash(&mut all);
        (hooks.as_bytes(), older_decorators.as_ref().map(Fingerprint::as_bytes)).hash(&mut all);
        numbers.into_iter().for_each(|number| all.write_u64(number));
        Self(all.finish())
    }
}

/// Whether a reconcile calls the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookNeed {
    /// Nothing changed: the reconcile ends here.
    Nothing,
    Call,
    /// Nothing changed, and the hook is called as a sample: its answer has to have this fingerprint.
    Check(Fingerprint),
}

/// Whether a hook's answers depend on its requests alone; the worse comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purity {
    /// No call has read the real time so far.
    Pure,
    /// A call read the real time; those that do not can be skipped as ever.
    ReadsClock,
    /// The same request got two answers: nothing is skipped until the hook changes.
    Differs,
}

/// A schema may get the fields that it lacked: what was dropped is written again after this time.
const NO_OP_WRITE_INTERVAL: Duration = Duration::from_mins(10);

impl SettledParents {
    pub fn new(check_every: u64) -> Self {
        Self { check_every, ..Self::default() }
    }

    /// Whether a parent needs no reconcile, as far as the cache revision shows.
    pub fn is_settled(&mut self, parent: &Key, revision: CacheRevision) -> bool {
        if self.settled.get(parent).is_none_or(|state| state.revision != revision) {
            return false;
        }
        // A sampled parent stays so until its reconcile has called the hook.
        let check = self.checks.contains(parent) || self.is_sampled();
        if check {
            self.checks.insert(parent.clone());
        }
        !check
    }

    /// Notes the revision at which a parent's input was found to be the same as when it settled.
    pub fn renew(&mut self, parent: &Key, seen: Fingerprint, revision: CacheRevision) {
        if let Some(state) = self.settled.get_mut(parent).filter(|state| state.seen == seen) {
            state.revision = revision;
        }
    }

    /// Whether a reconcile that reads this has to call the hook.
    pub fn hook_need(&mut self, parent: &Key, seen: Fingerprint) -> HookNeed {
        let Some(SettledState { answer, .. }) =
            self.settled.get(parent).filter(|state| state.seen == seen).copied()
        else {
            self.settled.remove(parent);
            return HookNeed::Call;
        };
        if self.checks.remove(parent) || self.is_sampled() {
            HookNeed::Check(answer)
        } else {
            HookNeed::Nothing
        }
    }

    /// True for one in `check_every`, by a fixed pseudo-random sequence (Knuth's multiplier).
    fn is_sampled(&mut self) -> bool {
        self.sampling =
            self.sampling.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.check_every > 0 && (self.sampling >> 33).is_multiple_of(self.check_every)
    }

    /// A call of the hook ended; `pure`: it never read the real time.
    pub fn called(&mut self, hook: Fingerprint, pure: bool) {
        let known = self.hook.filter(|(known, _)| *known == hook).map(|(_, purity)| purity);
        let now = match (known, pure) {
            (Some(Purity::Differs), _) => Purity::Differs,
            (Some(Purity::ReadsClock), _) | (_, false) => Purity::ReadsClock,
            (Some(Purity::Pure) | None, true) => Purity::Pure,
        };
        self.hook = Some((hook, now));
    }

    /// The hook gave another answer to the same request. True the first time.
    pub fn differed(&mut self, hook: Fingerprint) -> bool {
        self.settled.clear();
        let before = self.hook.replace((hook, Purity::Differs));
        before != self.hook
    }

    /// A reconcile ended with nothing to do, after a pure call.
    pub fn settle(&mut self, parent: &Key, state: SettledState) {
        self.unsettle(parent);
        if !matches!(self.hook, Some((_, Purity::Differs))) {
            self.settled.insert(parent.clone(), state);
        }
    }

    /// A reconcile ended with nothing to do, after a call of a webhook: the next one calls it again.
    pub fn settle_without_state(&mut self, parent: &Key) {
        self.unsettle(parent);
        self.settled_without_state.insert(parent.clone());
    }

    /// A reconcile ended well, and the next one has to run in full.
    pub fn unsettle(&mut self, parent: &Key) {
        self.settled.remove(parent);
        self.settled_without_state.remove(parent);
        self.failing.remove(parent);
        self.paused.remove(parent);
        self.checks.remove(parent);
    }

    pub fn fail(&mut self, parent: &Key, category: &'static str) {
        self.unsettle(parent);
        self.failing.insert(parent.clone(), category);
    }

    /// A reconcile ended at once, since the parent is paused.
    pub fn pause(&mut self, parent: &Key) {
        self.unsettle(parent);
        self.paused.insert(parent.clone());
    }

    pub fn is_paused(&self, parent: &Key) -> bool {
        self.paused.contains(parent)
    }

    pub fn first_paused(&self) -> Option<&Key> {
        self.paused.first()
    }

    /// Parents that are paused.
    pub fn paused(&self) -> usize {
        self.paused.len()
    }

    /// There is no such parent.
    pub fn forget(&mut self, parent: &Key) {
        self.unsettle(parent);
        self.status_due.remove(parent);
        self.no_op_writes.remove(parent);
    }

    /// The API server took this status and kept what it had, as it does with fields that it does not know.
    pub fn record_no_op_write(&mut self, parent: &Key, status: Fingerprint, now: Duration) {
        self.no_op_writes.insert(parent.clone(), (status, now + NO_OP_WRITE_INTERVAL));
    }

    /// Whether a write of this status changed nothing, not long ago.
    pub fn is_no_op_write(&self, parent: &Key, status: impl FnOnce() -> Fingerprint, now: Duration) -> bool {
        self.no_op_writes.get(parent).is_some_and(|(written, until)| now < *until && *written == status())
    }

    /// A reconcile leaves the status to the next one.
    pub fn put_off_status(&mut self, parent: &Key) {
        self.status_due.insert(parent.clone());
    }

    /// Whether the next reconcile writes the status that the last one left to it.
    pub fn is_status_due(&self, parent: &Key) -> bool {
        self.status_due.contains(parent)
    }

    /// Parents whose next reconcile writes the status that the last one left to it.
    pub fn statuses_due(&self) -> impl Iterator<Item = &Key> {
        self.status_due.iter()
    }

    /// Whether the last reconcile left the status to this one.
    pub fn take_status_due(&mut self, parent: &Key) -> bool {
        self.status_due.remove(parent)
    }

    /// `None` before the first call of this hook.
    pub fn purity_of(&self, hook: Fingerprint) -> Option<Purity> {
        self.hook.filter(|(called, _)| *called == hook).map(|(_, purity)| purity)
    }

    /// How many parents the last reconcile had nothing to write for, of those whose hooks are pure or webhooks.
    pub fn settled(&self) -> usize {
        self.settled.len() + self.settled_without_state.len()
    }

    /// How a parent stands; the category of its failure.
    pub fn state(&self, parent: &Key) -> (ParentState, &'static str) {
        if let Some(category) = self.failing.get(parent) {
            return (ParentState::Failing, category);
        }
        let is_settled = self.settled.get(parent).is_some() || self.settled_without_state.contains(parent);
        let state = match self.is_paused(parent) {
            true => ParentState::Paused,
            false if is_settled => ParentState::Settled,
            false => ParentState::Unsettled,
        };
        (state, "")
    }

    /// Parents whose last reconcile failed, with the category.
    pub fn failing(&self) -> &BTreeMap<Key, &'static str> {
        &self.failing
    }
}
