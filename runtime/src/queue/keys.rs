//! States of the keys in a queue: queued, running, throttled, due at a time; without the workers that wait for them.

use std::collections::{BTreeSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use metahook_core::hash::FastMap;
use metahook_core::reconcile::outcome::{Outcome, Streaks};
use tokio::time::Instant;

/// The longest delay of a postponed key that changed while its worker ran.
const MAX_DELAY_AFTER_CHANGE: Duration = Duration::from_secs(1);

pub(super) struct Keys<K> {
    ready: VecDeque<K>,
    due: BTreeSet<(Instant, K)>,
    entries: FastMap<K, Entry>,
}

#[derive(Default)]
struct Entry {
    queued: bool,
    running: bool,
    /// The strongest reason to run again that came while it was running.
    meanwhile: Meanwhile,
    due: Option<Instant>,
    /// Until it is due only a change by another client of the API server lets it run.
    throttled: bool,
    /// It runs by then, with its streaks reset.
    reset_at: Option<Instant>,
    /// A key that a peer calls back counts as self-triggered, too.
    streaks: Streaks,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meanwhile {
    #[default]
    Nothing,
    /// [`Keys::add_if_idle`].
    Resync,
    /// [`Keys::add_from_peer`].
    Peer,
    /// [`Keys::add`].
    Change,
}

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), due: BTreeSet::new(), entries: FastMap::default() }
    }
}

impl<K: Ord + Hash + Clone> Keys<K> {
    /// Whether there is work for a worker now that was not there before.
    pub(super) fn add(&mut self, key: K) -> bool {
        let entry = self.entries.or_default(&key);
        entry.streaks.self_triggered = 0;
        entry.push(key, &mut self.ready)
    }

    pub(super) fn add_from_peer(&mut self, key: K) -> bool {
        let entry = self.entries.or_default(&key);
        if entry.running {
            entry.meanwhile = entry.meanwhile.max(Meanwhile::Peer);
            return false;
        }
        if !entry.queued && (entry.throttled || entry.streaks.failures > 0) {
            if entry.streaks.is_throttled() {
                return false;
            }
            entry.streaks.self_triggered = entry.streaks.self_triggered.saturating_add(1);
        }
        entry.push(key, &mut self.ready)
    }

    pub(super) fn add_if_idle(&mut self, key: K) -> bool {
        self.entries.or_default(&key).push_if_idle(key, &mut self.ready)
    }

    pub(super) fn add_after(&mut self, key: K, delay: Duration) {
        let now = Instant::now();
        let at = now.checked_add(delay).unwrap_or(now);
        self.entries.or_default(&key).reset_at = Some(at);
        if at > now {
            self.delay(key, at);
        } else {
            self.entries.or_default(&key).push(key, &mut self.ready);
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

    /// The time at which the next delayed key is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes a key back that was handed out.
    pub(super) fn done(&mut self, key: &K, outcome: Outcome) {
        let Self { entries, ready, .. } = self;
        let Some(entry) = entries.get_mut(key) else {
            return;
        };
        entry.running = false;
        let meanwhile = std::mem::take(&mut entry.meanwhile);
        let changed = meanwhile == Meanwhile::Change;
        let Streaks { failures, self_triggered } = entry.streaks;
        let (after, throttled) = match outcome {
            Outcome::Settled(after) => (after, false),
            Outcome::FollowUp(after) => (Some(after), !changed),
            Outcome::NextStep => (Some(Duration::ZERO), false),
            Outcome::Failed(after) => (Some(after), false),
            Outcome::Postponed(after) => {
                (Some(if changed { after.min(MAX_DELAY_AFTER_CHANGE) } else { after }), true)
            }
        };
        entry.streaks = match outcome {
            Outcome::FollowUp(_) if !changed => {
                Streaks { failures: 0, self_triggered: self_triggered.saturating_add(1) }
            }
            Outcome::Settled(_) | Outcome::FollowUp(_) | Outcome::NextStep => Streaks::default(),
            Outcome::Failed(_) => Streaks { failures: failures.saturating_add(1), self_triggered },
            Outcome::Postponed(_) => entry.streaks,
        };
        let at_once = after.is_some_and(|after| after.is_zero())
            || (changed && !throttled)
            || (meanwhile != Meanwhile::Nothing && matches!(outcome, Outcome::Settled(_)));
        // A time beyond the clock's range never comes.
        let due = after.filter(|after| !after.is_zero()).and_then(|after| Instant::now().checked_add(after));
        if at_once {
            entry.push(key.clone(), ready);
        }
        match due {
            Some(at) if throttled => self.throttle(key.clone(), at),
            Some(at) => self.delay(key.clone(), at),
            None if entry.is_empty() => drop(entries.remove(key)),
            None => {}
        }
        if meanwhile == Meanwhile::Peer && matches!(outcome, Outcome::Failed(_) | Outcome::Postponed(_)) {
            self.add_from_peer(key.clone());
        }
    }

    fn delay(&mut self, key: K, at: Instant) {
        if self.entries.or_default(&key).due.is_none_or(|due| due > at) {
            self.set_due(key, at);
        }
    }

    fn set_due(&mut self, key: K, at: Instant) {
        if let Some(before) = self.entries.or_default(&key).due.replace(at) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key));
    }

    /// Lets the key wait until then, whatever it waited for before, unless it is to run with its streaks reset earlier.
    fn throttle(&mut self, key: K, at: Instant) {
        let entry = self.entries.or_default(&key);
        // A reset that is due already counts as a change.
        let reset_at = entry.reset_at.filter(|reset_at| *reset_at > Instant::now());
        let at = reset_at.map_or(at, |reset_at| reset_at.min(at));
        entry.throttled = true;
        self.set_due(key, at);
    }

    fn queue_due(&mut self, now: Instant) {
        while let Some((at, key)) = self.due.first().cloned() {
            if at > now {
                return;
            }
            self.due.remove(&(at, key.clone()));
            let Self { entries, ready, .. } = self;
            let entry = entries.or_default(&key);
            entry.due = None;
            entry.throttled = false;
            if entry.reset_at.is_some_and(|reset_at| reset_at <= now) {
                entry.push(key, ready);
            } else {
                entry.push_if_idle(key, ready);
            }
        }
    }

    /// Hands a key out, if one is queued or due by now.
    pub(super) fn take(&mut self) -> Option<(K, Streaks)> {
        if !self.due.is_empty() {
            self.queue_due(Instant::now());
        }
        let key = self.ready.pop_front()?;
        let entry = self.entries.or_default(&key);
        entry.queued = false;
        entry.running = true;
        let reset_at = entry.reset_at.take();
        if reset_at.is_some() {
            entry.streaks = Streaks::default();
        }
        // This run is the one that it waited for.
        let is_due = std::mem::take(&mut entry.throttled) || entry.due == reset_at;
        if is_due && let Some(at) = entry.due.take() {
            self.due.remove(&(at, key.clone()));
        }
        Some((key, entry.streaks))
    }
}

impl Entry {
    /// Whether there is work for a worker now that was not there before.
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

    fn push_if_idle<K>(&mut self, key: K, ready: &mut VecDeque<K>) -> bool {
        if self.running {
            self.meanwhile = self.meanwhile.max(Meanwhile::Resync);
            return false;
        }
        !self.throttled && self.push(key, ready)
    }

    fn is_empty(&self) -> bool {
        !self.queued && !self.running && self.due.is_none() && self.streaks == Streaks::default()
    }
}
