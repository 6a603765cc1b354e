//! Deletion brake: deletions that follow from a change of a controller's hooks or spec are counted, and wait beyond a threshold.
//!
//! The *accepted* version of a controller is the digest of its hooks and spec with which its parents settled last. While
//! the running version is another one, each parent that has not settled with it is *pending*, also one that is selected only
//! later. A change opens a *window* of ten minutes. The deletions that reconciles ask for are counted before they are carried
//! out: those of all parents within the window, since a version may answer well at first, and those of pending parents after
//! it. Those that were let through and those that wait count together, so that no order of reconciles deletes more than the
//! threshold, and nothing is let through beside what waits. After the window, when nothing waits and no parent that was there
//! at the change is pending, the running version is the accepted one. It is accepted *late* when nothing waits and some are
//! pending, as those whose hook always fails are: from then on only the deletions of these count. While a pending one is
//! *paused* no version is accepted late: a server that starts must find the version that this parent settled with. The running
//! version is *in use* then, and the next change is one from it.
//!
//! A deletion that counts is carried out once the controller's status has the number of deletions with it. A server that
//! starts goes on from that status, and its window begins anew.
//!
//! # Guarantees
//! Until a user agrees, a change of hooks or spec deletes no more children than the threshold, in whichever order parents are
//! reconciled, and however often the server is killed in between. A server without the right to write the status (403)
//! deletes all the same: there the guarantee ends with the process, since the next one finds no number, or an old one.
//!
//! # Assumptions
//! The caller asks before each deletion of a child, records the number in the status before it deletes (a 403 for want of the
//! right counts as recorded), and reports each parent that settles. Time does not go backwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::api::policy::BrakeLimits;
use crate::counted;
use crate::hash::Fingerprint;
use crate::object::id::{ObjectId, Uid};

/// The annotation of a controller that lets held deletions go on. Its value is the digest of the version that asks for them.
pub const ALLOW_DELETIONS: &str = "metahook.dev/allow-deletions";

/// The window after a change: for this long deletions of all parents count, and they count together. A parent whose hook
/// never settles is pending for this long.
const WINDOW: Duration = Duration::from_mins(10);

/// Children that are named where deletions are held.
const MAX_EXAMPLES: usize = 3;

/// The parents of a controller and their children of kinds that count, at a change.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Census {
    pub parents: BTreeSet<ObjectId>,
    pub children: usize,
}

/// The brake of one controller. Its guarantees and assumptions are those of [this module](self).
///
/// # Flow
/// [`Self::version_changed`] begins a change. [`Self::let_through`] decides about the deletions of each reconcile, and
/// [`Self::unrecorded`] gives the number that the status needs before they are carried out. The change ends once its parents
/// have settled ([`Self::reconciled`]) or are gone ([`Self::forget`]), or when a user agrees ([`Self::allow`]).
///
/// # Errors
/// Deletions beyond the threshold are refused: they wait, and [`Self::held`] shows them.
#[derive(Debug)]
pub struct DeletionBrake {
    limits: BrakeLimits,
    /// `None` before the first version runs, and where no status was stored.
    accepted: Option<String>,
    /// The version that would have been accepted late, were no pending parent paused.
    in_use: Option<String>,
    change: Option<Change>,
    /// Children whose deletion was let through: a deletion that is tried again counts once.
    deleted: BTreeSet<Uid>,
    /// Deletions that an earlier run of the server let through.
    deleted_before: usize,
    /// The deletions that the controller's status has.
    recorded: usize,
    /// The time of the first of these deletions.
    window_start: Duration,
    /// Parents that are paused, or that were and have not been reconciled since.
    paused: BTreeSet<ObjectId>,
}

#[derive(Debug)]
struct Change {
    /// The version that was accepted, or in use, at the change.
    from: String,
    to: Fingerprint,
    since: Duration,
    managed: usize,
    /// Parents that were there at the change and have not settled since.
    pending: BTreeSet<ObjectId>,
    /// Parents that have.
    settled: BTreeSet<ObjectId>,
    /// Parents whose reconciles wait, with the number of their deletions.
    held: BTreeMap<ObjectId, HeldParent>,
    held_children: usize,
}

#[derive(Debug)]
struct HeldParent {
    children: usize,
    example: ObjectId,
}

/// Deletions that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldDeletions {
    pub from: String,
    pub to: String,
    pub parents: usize,
    pub children: usize,
    pub deleted: usize,
    pub managed: usize,
    pub examples: Vec<ObjectId>,
}

impl DeletionBrake {
    /// `accepted`, `deleted`: as the controller's status has them.
    pub fn new(limits: BrakeLimits, accepted: Option<String>, deleted: usize) -> Self {
        Self {
            limits,
            accepted,
            in_use: None,
            change: None,
            deleted: BTreeSet::new(),
            deleted_before: deleted,
            recorded: deleted,
            window_start: Duration::ZERO,
            paused: BTreeSet::new(),
        }
    }

    /// To be called before the first reconcile, and before a reconcile takes other hooks. The first version of a controller is
    /// accepted at once; so is the accepted one that is put back. The window of a version that goes on does not begin anew.
    pub fn version_changed(
        &mut self,
        to: Fingerprint,
        now: Duration,
        census: impl FnOnce(&BrakeLimits) -> Census,
    ) {
        self.forget_the_past(now);
        let digest = to.to_string();
        let accepted = self.accepted.get_or_insert_with(|| digest.clone());
        let before = self.change.take().filter(|change| change.to == to);
        let from = match (&before, &self.in_use) {
            (Some(before), _) => &before.from,
            // A paused parent has not settled with the version in use: where that is put back, its deletions count.
            (None, Some(in_use)) if *in_use != digest => in_use,
            (None, _) => accepted,
        };
        self.change = (*from != digest).then(|| {
            let Census { parents, children } = census(&self.limits);
            Change {
                from: from.clone(),
                to,
                since: before.as_ref().map_or(now, |before| before.since),
                managed: before.as_ref().map_or(children, |before| before.managed),
                pending: parents,
                settled: BTreeSet::new(),
                held: BTreeMap::new(),
                held_children: 0,
            }
        });
        self.accept_if_done(now);
    }

    /// Whether a reconcile may delete these children of its parent; where it may not, it writes nothing at all. Where it may
    /// and [`Self::unrecorded`] says so, it deletes them once the status has their number. `version`: that of the hooks which
    /// asked for it.
    ///
    /// # Errors
    /// It may not: these of the deletions count and wait. The others are of exempt kinds, or were let through before.
    ///
    /// # Guarantees
    /// From the change on, and within the window, the deletions that were let through stay within the threshold; those of
    /// servers that crashed included, where each was recorded before it was carried out.
    pub fn let_through<'a>(
        &mut self,
        parent: &ObjectId,
        version: Fingerprint,
        deletions: &[(&'a ObjectId, &'a Uid)],
        now: Duration,
    ) -> Result<(), Vec<(&'a ObjectId, &'a Uid)>> {
        self.forget_the_past(now);
        let Some(change) = &mut self.change else { return Ok(()) };
        change.release(parent);
        let is_late = self.accepted.as_ref() == Some(&change.to.to_string());
        let is_done = change.settled.contains(parent) || (is_late && !change.pending.contains(parent));
        if change.from == version.to_string() || (is_done && change.is_over(now)) {
            return Ok(());
        }
        let is_exempt = |id: &ObjectId| self.limits.is_exempt(&id.resource.gvr());
        let counts = |(id, uid): &(&ObjectId, &Uid)| !is_exempt(id) && !self.deleted.contains(*uid);
        let counted: Vec<_> = deletions.iter().copied().filter(counts).collect();
        let Some((example, _)) = counted.first() else { return Ok(()) };
        let children = counted.len();
        let all = self.deleted.len() + self.deleted_before + change.held_children + children;
        if all > self.limits.max_deletions(change.managed) {
            change.held_children += children;
            // One that settled before would not wait beyond the window.
            change.settled.remove(parent);
            change.pending.insert(parent.clone());
            change.held.insert(parent.clone(), HeldParent { children, example: (*example).clone() });
            return Err(counted);
        }
        if self.deleted.is_empty() {
            self.window_start = now;
        }
        self.deleted.extend(counted.into_iter().map(|(_, uid)| uid.clone()));
        Ok(())
    }

    /// A reconcile succeeded; `settled`: its answer asked for no change of a child.
    pub fn reconciled(&mut self, parent: &ObjectId, version: Fingerprint, settled: bool, now: Duration) {
        self.paused.remove(parent);
        let done = |change: &Change| change.to == version && (settled || change.is_over(now));
        if let Some(change) = self.change.as_mut().filter(|change| done(change)) {
            change.release(parent);
            change.pending.remove(parent);
            change.settled.insert(parent.clone());
            self.accept_if_done(now);
        }
    }

    /// A parent needed no reconcile: a version that is put back may find parents that are still settled with it. `settled`: the
    /// parent, and the version that it is settled with; asked after a change alone.
    pub fn still_settled(
        &mut self,
        settled: impl FnOnce() -> Option<(ObjectId, Fingerprint)>,
        now: Duration,
    ) {
        if self.is_changed()
            && let Some((parent, version)) = settled()
        {
            self.reconciled(&parent, version, true, now);
        }
    }

    /// The parent is gone or going, and its children go with it; or it is no longer selected.
    pub fn forget(&mut self, parent: &ObjectId, now: Duration) {
        self.paused.remove(parent);
        if let Some(change) = &mut self.change {
            change.release(parent);
            change.pending.remove(parent);
            change.settled.remove(parent);
            self.accept_if_done(now);
        }
    }

    /// The parent is paused: until its next reconcile, a version that it has not settled with is not accepted late.
    pub fn pause(&mut self, parent: &ObjectId) {
        self.paused.insert(parent.clone());
    }

    /// A user agrees to the deletions of the version with this digest; gives back the parents whose reconciles waited.
    pub fn allow(&mut self, digest: &str) -> Vec<ObjectId> {
        let Some(change) = self.change.take_if(|change| change.to.to_string() == digest) else {
            return Vec::new();
        };
        self.accept(change.to);
        self.forget_deletions();
        change.held.into_keys().collect()
    }

    /// The running version is not accepted yet, or was so late, and there are parents whose deletions count.
    pub fn is_changed(&self) -> bool {
        self.change.is_some()
    }

    /// The digest of the running version, while it is not accepted yet.
    pub fn changed_to(&self) -> Option<String> {
        self.change.as_ref().map(|change| change.to.to_string())
    }

    pub fn accepted(&self) -> Option<&str> {
        self.accepted.as_deref()
    }

    /// The number of deletions, where the controller's status has less: no deletion is carried out before it has.
    pub fn unrecorded(&self) -> Option<usize> {
        let deletions = self.deletions();
        (deletions > self.recorded).then_some(deletions)
    }

    /// The controller's status has this number of deletions.
    pub fn recorded(&mut self, deletions: usize) {
        // The deletions may be forgotten since.
        self.recorded = self.recorded.max(deletions).min(self.deletions());
    }

    /// The deletions within the window. To be called now and then: this is where a version is accepted late.
    pub fn deleted(&mut self, now: Duration) -> usize {
        self.forget_the_past(now);
        self.deletions()
    }

    pub fn held(&self) -> Option<HeldDeletions> {
        let change = self.change.as_ref().filter(|change| !change.held.is_empty())?;
        Some(HeldDeletions {
            from: change.from.clone(),
            to: change.to.to_string(),
            parents: change.held.len(),
            children: change.held_children,
            deleted: self.deletions(),
            managed: change.managed,
            examples: change.held.values().take(MAX_EXAMPLES).map(|parent| parent.example.clone()).collect(),
        })
    }

    fn deletions(&self) -> usize {
        self.deleted.len() + self.deleted_before
    }

    /// A version that no parent is left of has nothing to wait for.
    fn accept_if_done(&mut self, now: Duration) {
        let is_done = |change: &mut Change| {
            let is_idle = change.pending.is_empty() && change.held.is_empty();
            is_idle && (change.settled.is_empty() || change.is_over(now))
        };
        if let Some(change) = self.change.take_if(is_done) {
            self.accept(change.to);
        }
    }

    fn accept(&mut self, version: Fingerprint) {
        (self.accepted, self.in_use) = (Some(version.to_string()), None);
    }

    fn forget_the_past(&mut self, now: Duration) {
        let waits = self.change.as_ref().is_some_and(|change| !change.held.is_empty());
        let is_open = self.change.as_ref().is_some_and(|change| !change.is_over(now));
        if waits || is_open {
            return;
        }
        if let Some(change) = &self.change {
            if change.pending.is_disjoint(&self.paused) {
                self.accept(change.to);
            } else {
                self.in_use = Some(change.to.to_string());
            }
        }
        self.accept_if_done(now);
        if now.saturating_sub(self.window_start) >= WINDOW {
            self.forget_deletions();
        }
    }

    fn forget_deletions(&mut self) {
        self.deleted.clear();
        (self.deleted_before, self.recorded) = (0, 0);
    }
}

impl Change {
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= WINDOW
    }

    fn release(&mut self, parent: &ObjectId) {
        if let Some(held) = self.held.remove(parent) {
            self.held_children -= held.children;
        }
    }
}

fn deleted_before(deleted: usize) -> String {
    if deleted == 0 { String::new() } else { format!(", beside {deleted} that were deleted before") }
}

impl fmt::Display for HeldDeletions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, parents, children, deleted, managed, examples } = self;
        let examples: Vec<_> = examples.iter().map(ToString::to_string).collect();
        write!(
            f,
            "the hooks or the spec changed from {from} to {to}, and now {children} of the controller's {} would be deleted, those of {}{}: {}. Nothing is written for these parents until the earlier module or spec is put back, until the answers do not ask for it any more, or until a user agrees by the controller's annotation {ALLOW_DELETIONS}: {to}",
            counted(*managed, "child", "children"),
            counted(*parents, "parent", "parents"),
            deleted_before(*deleted),
            examples.join(", ")
        )
    }
}
