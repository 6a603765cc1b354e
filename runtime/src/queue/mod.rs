//! Work queue of parents: each key is queued once, never runs on two workers, and runs at once or after a delay.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Display;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use metahook_core::hash::FastMap;
use metahook_core::reconcile::outcome::{Outcome, Streaks};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::sync::lock;

/// # Guarantees
/// A key that is added while its worker runs is handed out again afterwards. The earliest of several delays counts. A
/// throttled key waits until another client of the API server, not another reconcile of this server, changes something.
/// The size is bounded by the number of distinct keys.
pub(crate) struct Queue<K> {
    keys: Mutex<Keys<K>>,
    closed: AtomicBool,
    wake: Notify,
}

impl<K: Ord + Hash + Clone> Queue<K> {
    pub(crate) fn new() -> Self {
        Self { keys: Mutex::default(), closed: AtomicBool::new(false), wake: Notify::new() }
    }

    /// Another client changed something about the key: it runs now, also if it is throttled. A delay that it asked for
    /// before stays.
    pub(crate) fn add(&self, key: K) {
        if lock(&self.keys).add(key) {
            self.wake.notify_one();
        }
    }

    /// Another reconcile of this server changed something about the key: it runs now, unless its own writes have it
    /// throttled, or two hooks that never settle would keep each other running. A key that failed or was postponed may wait
    /// for this very change, and is called back a few times.
    pub(crate) fn add_from_peer(&self, key: K) {
        if lock(&self.keys).add_from_peer(key) {
            self.wake.notify_one();
        }
    }

    /// Time has passed, or an effect of the key's own writes is complete: it runs now, unless it is throttled.
    pub(crate) fn add_if_idle(&self, key: K) {
        if lock(&self.keys).add_if_idle(key) {
            self.wake.notify_one();
        }
    }

    /// [`Queue::add_if_idle`] for many keys at once.
    pub(crate) fn add_all_if_idle(&self, keys: &[K]) {
        let mut all = lock(&self.keys);
        for key in keys {
            all.add_if_idle(key.clone());
        }
        drop(all);
        // A worker that takes one of several keys wakes the next worker.
        self.wake.notify_one();
    }

    /// The key runs after this delay, or earlier for another reason. That run resets its streaks, so that the next failure
    /// starts with the shortest delay again.
    pub(crate) fn add_after(&self, key: K, delay: Duration) {
        lock(&self.keys).add_after(key, delay);
        self.wake.notify_one();
    }

    /// The next key, or `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<(K, Streaks)> {
        loop {
            let notified = self.wake.notified();
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            let until = {
                let mut keys = lock(&self.keys);
                if let Some(taken) = keys.take() {
                    // There may be more for the other workers.
                    if keys.has_more() {
                        self.wake.notify_one();
                    }
                    return Some(taken);
                }
                keys.next_due()
            };
            match until {
                Some(at) => tokio::select! {
                    () = notified => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => notified.await,
            }
        }
    }

    /// Gives a key back that [`Queue::next`] handed out. No worker is woken: this one asks for the next key.
    pub(crate) fn done(&self, key: &K, outcome: Outcome) {
        lock(&self.keys).done(key, outcome);
    }

    /// No key is handed out any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }
}

/// Runs `count` workers until the queue is closed. A panic fails its key alone, and a run ends before its worker does.
pub(crate) fn start_workers<K, W, F>(queue: &Arc<Queue<K>>, count: usize, work: W) -> JoinSet<()>
where
    K: Ord + Hash + Clone + Send + Sync + Display + 'static,
    W: Fn(K, Streaks) -> F + Clone + Send + 'static,
    F: Future<Output = Outcome> + Send,
{
    let mut workers = JoinSet::new();
    for _ in 0..count {
        let (queue, work) = (Arc::clone(queue), work.clone());
        workers.spawn(async move {
            while let Some((key, streaks)) = queue.next().await {
                let run = AssertUnwindSafe(work(key.clone(), streaks)).catch_unwind();
                let outcome = run.await.unwrap_or_else(|_panic| {
                    tracing::error!(parent = %key, "a reconcile panicked: this is a bug in metahook");
                    Outcome::after_panic(streaks)
                });
                queue.done(&key, outcome);
                // A reconcile with nothing to do never waits: other tasks of this thread get their turn here.
                tokio::task::coop::consume_budget().await;
            }
        });
    }
    workers
}

/// The longest delay of a postponed key that changed while its worker ran.
const MAX_DELAY_AFTER_CHANGE: Duration = Duration::from_secs(1);

/// States of the keys: queued, running, throttled, due at a time; without the workers that wait for them.
struct Keys<K> {
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
    fn add(&mut self, key: K) -> bool {
        let entry = self.entries.or_default(&key);
        entry.streaks.self_triggered = 0;
        entry.push(key, &mut self.ready)
    }

    fn add_from_peer(&mut self, key: K) -> bool {
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

    fn add_if_idle(&mut self, key: K) -> bool {
        self.entries.or_default(&key).push_if_idle(key, &mut self.ready)
    }

    fn add_after(&mut self, key: K, delay: Duration) {
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
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.due.is_empty()
    }

    /// There are keys to be handed out at once.
    fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The time at which the next delayed key is due.
    fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes a key back that was handed out.
    fn done(&mut self, key: &K, outcome: Outcome) {
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
    fn take(&mut self) -> Option<(K, Streaks)> {
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

#[cfg(test)]
mod tests;
