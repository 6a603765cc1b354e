//! What each key waits for: a worker, a time, a change by somebody else. Knows nobody who waits for keys.

use std::collections::{BTreeSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use metahook_core::hash::FastMap;
use metahook_core::reconcile::outcome;
use tokio::time::Instant;

use crate::queue::{After, Streaks};

/// When somebody changed something while a worker had been told to come later: the shortest time that one may be told.
const FLOOR: Duration = Duration::from_secs(1);

pub(super) struct Keys<K> {
    ready: VecDeque<K>,
    due: BTreeSet<(Instant, K)>,
    entries: FastMap<K, Entry>,
}

#[derive(Default)]
struct Entry {
    queued: bool,
    running: bool,
    /// What came while it was running.
    meanwhile: Meanwhile,
    due: Option<Instant>,
    /// Until it is due only a change counts.
    held: bool,
    /// It shall be looked at by then, and what happened before is forgotten.
    fresh: Option<Instant>,
    /// Failed passes in a row.
    failures: u32,
    /// Passes in a row that this key's own writes caused, or that others of this server called it back for.
    own: u32,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meanwhile {
    #[default]
    Nothing,
    /// It was to be looked at.
    Look,
    /// Another pass of this server changed something.
    Nudge,
    /// Somebody else changed something.
    Change,
}

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), due: BTreeSet::new(), entries: FastMap::default() }
    }
}

impl<K: Ord + Hash + Clone> Keys<K> {
    /// Somebody else changed something; whether there is something for a worker now that was not there.
    pub(super) fn change(&mut self, key: K) -> bool {
        let entry = self.entries.or_default(&key);
        entry.own = 0;
        entry.push(key, &mut self.ready)
    }

    pub(super) fn nudge(&mut self, key: K) -> bool {
        let entry = self.entries.or_default(&key);
        if entry.running {
            entry.meanwhile = entry.meanwhile.max(Meanwhile::Nudge);
            return false;
        }
        if !entry.queued && (entry.held || entry.failures > 0) {
            if outcome::is_held(entry.own) {
                return false;
            }
            entry.own = entry.own.saturating_add(1);
        }
        entry.push(key, &mut self.ready)
    }

    pub(super) fn look(&mut self, key: K) -> bool {
        self.entries.or_default(&key).look(key, &mut self.ready)
    }

    /// A look after which what happened before is forgotten.
    pub(super) fn fresh(&mut self, key: K, after: Duration) {
        let now = Instant::now();
        let at = now.checked_add(after).unwrap_or(now);
        self.entries.or_default(&key).fresh = Some(at);
        if at > now {
            self.delay(key, at);
        } else {
            self.push(key);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.due.is_empty()
    }

    /// There are keys to be handed out at once.
    pub(super) fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next key is to be looked at that is not to be at once.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    fn push(&mut self, key: K) {
        self.entries.or_default(&key).push(key, &mut self.ready);
    }

    /// Takes a key back that was handed out.
    pub(super) fn done(&mut self, key: &K, how: After) {
        let Self { entries, ready, .. } = self;
        let Some(entry) = entries.get_mut(key) else {
            return;
        };
        entry.running = false;
        let meanwhile = std::mem::take(&mut entry.meanwhile);
        let changed = meanwhile == Meanwhile::Change;
        let (after, held) = match how {
            After::Settled(after) => {
                (entry.failures, entry.own) = (0, 0);
                (after, false)
            }
            After::FollowUp(after) => {
                (entry.failures, entry.own) = (0, if changed { 0 } else { entry.own.saturating_add(1) });
                (Some(after), !changed)
            }
            After::GoesOn => {
                (entry.failures, entry.own) = (0, 0);
                (Some(Duration::ZERO), false)
            }
            After::Failed(after) => {
                entry.failures = entry.failures.saturating_add(1);
                (Some(after), false)
            }
            After::Postponed(after) => (Some(if changed { after.min(FLOOR) } else { after }), true),
        };
        let at_once = after.is_some_and(|after| after.is_zero())
            || (changed && !held)
            || (meanwhile != Meanwhile::Nothing && matches!(how, After::Settled(_)));
        // A time too far away to be told is never.
        let due = after.filter(|after| !after.is_zero()).and_then(|after| Instant::now().checked_add(after));
        if at_once {
            entry.push(key.clone(), ready);
        }
        match due {
            Some(at) if held => self.hold(key.clone(), at),
            Some(at) => self.delay(key.clone(), at),
            None if entry.says_nothing() => drop(entries.remove(key)),
            None => {}
        }
        if meanwhile == Meanwhile::Nudge && matches!(how, After::Failed(_) | After::Postponed(_)) {
            self.nudge(key.clone());
        }
    }

    fn delay(&mut self, key: K, at: Instant) {
        let entry = self.entries.or_default(&key);
        match entry.due {
            Some(earlier) if earlier <= at => return,
            Some(later) => {
                self.due.remove(&(later, key.clone()));
            }
            None => {}
        }
        entry.due = Some(at);
        self.due.insert((at, key));
    }

    /// Not before that time, whatever it waited for until now, unless a fresh look is to come earlier.
    fn hold(&mut self, key: K, at: Instant) {
        let entry = self.entries.or_default(&key);
        // One that is due already is a change like others.
        let fresh = entry.fresh.filter(|fresh| *fresh > Instant::now());
        let at = fresh.map_or(at, |fresh| fresh.min(at));
        entry.held = true;
        if let Some(before) = entry.due.replace(at) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key));
    }

    fn ripen(&mut self, now: Instant) {
        while let Some((at, key)) = self.due.first().cloned() {
            if at > now {
                return;
            }
            self.due.remove(&(at, key.clone()));
            let Self { entries, ready, .. } = self;
            let entry = entries.or_default(&key);
            (entry.due, entry.held) = (None, false);
            if entry.fresh.is_some_and(|fresh| fresh <= now) {
                entry.push(key, ready);
            } else {
                entry.look(key, ready);
            }
        }
    }

    /// Hands a key out, if one is to be looked at by now.
    pub(super) fn take(&mut self) -> Option<(K, Streaks)> {
        if !self.due.is_empty() {
            self.ripen(Instant::now());
        }
        let key = self.ready.pop_front()?;
        let entry = self.entries.or_default(&key);
        (entry.queued, entry.running) = (false, true);
        let fresh = entry.fresh.take();
        if fresh.is_some() {
            (entry.failures, entry.own) = (0, 0);
        }
        // What it waited for is this look.
        let over = std::mem::take(&mut entry.held) || entry.due == fresh;
        if over && let Some(at) = entry.due.take() {
            self.due.remove(&(at, key.clone()));
        }
        Some((key, Streaks { failures: entry.failures, own: entry.own }))
    }
}

impl Entry {
    /// Whether there is something for a worker now that was not there.
    fn push<K>(&mut self, key: K, ready: &mut VecDeque<K>) -> bool {
        if self.running {
            self.meanwhile = Meanwhile::Change;
            return false;
        }
        if !self.queued {
            self.queued = true;
            ready.push_back(key);
            return true;
        }
        false
    }

    /// The same for what is no change.
    fn look<K>(&mut self, key: K, ready: &mut VecDeque<K>) -> bool {
        if self.running {
            self.meanwhile = self.meanwhile.max(Meanwhile::Look);
            return false;
        }
        !self.held && self.push(key, ready)
    }

    fn says_nothing(&self) -> bool {
        !self.queued && !self.running && self.due.is_none() && self.failures == 0 && self.own == 0
    }
}
