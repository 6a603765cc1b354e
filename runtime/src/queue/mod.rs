//! Work queue of parents: each key is queued once, never runs on two workers, and runs at once or after a delay.

mod entry;
mod figures;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use metahook_core::hash::FastMap;
use metahook_core::pacing::RateLimiter;
use metahook_core::pacing::lanes::{Cause, Lane, Lanes, NamespaceOf};
use metahook_core::reconcile::outcome::{Outcome, Pace, SelfTriggerBudget, SelfTriggerLimits, Streaks};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::sync::lock;
use entry::Entry;
use figures::Counts;
pub(crate) use figures::{BUCKETS, QueueFigures, Times};

/// # Guarantees
/// A key that is added while its worker runs is handed out again afterwards. The earliest of several delays counts. A key whose
/// budget is used up waits until it is refilled. The size is bounded by the number of distinct keys.
pub(crate) struct Queue<K> {
    keys: Mutex<Keys<K>>,
    closed: AtomicBool,
    wake: Notify,
}

/// What bounds the self-triggered reconciles of a controller, for all its queues.
#[derive(Clone)]
pub(crate) struct Throttle {
    max: u32,
    rate: Arc<Mutex<RateLimiter>>,
    start: Instant,
}

impl Throttle {
    pub(crate) fn new(limits: SelfTriggerLimits) -> Self {
        Self { max: limits.max, rate: Arc::new(Mutex::new(limits.limiter())), start: Instant::now() }
    }

    fn time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    fn pace(&self, budget: SelfTriggerBudget, now: Instant) -> Pace {
        budget.pace(self.time(now), self.max)
    }
}

impl<K: Ord + Hash + Clone> Queue<K> {
    pub(crate) fn new(throttle: Throttle, namespace_of: NamespaceOf<K>) -> Self {
        let lanes = Lanes::new(namespace_of);
        let keys = Keys {
            lanes,
            due: BTreeSet::new(),
            entries: FastMap::default(),
            throttle,
            sweep_at: None,
            counts: Counts::default(),
        };
        Self { keys: Mutex::new(keys), closed: AtomicBool::new(false), wake: Notify::new() }
    }

    /// The key runs as soon as its lane and its budget let it. A delay that it asked for before stays, and one that its hook
    /// or the API server asked for holds against [`Cause::Periodic`].
    pub(crate) fn add(&self, key: K, cause: Cause) {
        if lock(&self.keys).add(key, cause, Instant::now()) {
            self.wake.notify_one();
        }
    }

    /// [`Queue::add`] for many keys at once.
    pub(crate) fn add_all(&self, keys: &[K], cause: Cause) {
        let (mut all, now) = (lock(&self.keys), Instant::now());
        for key in keys {
            all.add(key.clone(), cause, now);
        }
        drop(all);
        // A worker that takes one of several keys wakes the next worker.
        self.wake.notify_one();
    }

    /// The key runs after this delay, or earlier for another reason. That run resets its streaks, so that the next failure
    /// starts with the shortest delay again. Its budget stays as it is.
    pub(crate) fn add_after(&self, key: K, delay: Duration) {
        lock(&self.keys).add_after(key, delay, Instant::now());
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
                if let Some(taken) = keys.take(Instant::now()) {
                    // There may be more for the other workers, or a time to wait for in place of this one.
                    if !keys.lanes.is_empty() || !keys.due.is_empty() {
                        self.wake.notify_one();
                    }
                    return Some(taken);
                }
                keys.next_due(Instant::now())
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
        lock(&self.keys).done(key, outcome, Instant::now());
    }

    pub(crate) fn figures(&self) -> QueueFigures {
        lock(&self.keys).counts.figures(Instant::now())
    }

    /// No key is handed out any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }
}

/// Workers that the queues of one controller share.
#[derive(Clone)]
pub(crate) struct Workers {
    count: usize,
    at_once: Arc<Semaphore>,
}

impl Workers {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, at_once: Arc::new(Semaphore::new(count)) }
    }
}

/// Runs workers until the queue is closed. A panic fails its key alone, and a run ends before its worker does.
///
/// # Guarantees
/// Of all queues that share the workers, at most their number of keys runs at once. Queues take turns, key by key.
pub(crate) fn start_workers<K, W, F>(queue: &Arc<Queue<K>>, workers: &Workers, work: W) -> JoinSet<()>
where
    K: Ord + Hash + Clone + Send + Sync + Display + 'static,
    W: Fn(K, Streaks) -> F + Clone + Send + 'static,
    F: Future<Output = Outcome> + Send,
{
    let mut tasks = JoinSet::new();
    for _ in 0..workers.count {
        let (queue, work, at_once) = (Arc::clone(queue), work.clone(), Arc::clone(&workers.at_once));
        tasks.spawn(async move {
            while let Some((key, streaks)) = queue.next().await {
                // Never closed, so that there is always a permit in the end.
                let _permit = at_once.acquire().await;
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
    tasks
}

/// The longest delay of a postponed key that changed while its worker ran.
const MAX_DELAY_AFTER_CHANGE: Duration = Duration::from_secs(1);

/// Keys whose budgets are full again are forgotten at this interval.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

/// States of the keys: queued, running, held, due at a time; without the workers that wait for them.
struct Keys<K> {
    lanes: Lanes<K>,
    due: BTreeSet<(Instant, K)>,
    entries: FastMap<K, Entry>,
    throttle: Throttle,
    sweep_at: Option<Instant>,
    counts: Counts<K>,
}

impl<K: Ord + Hash + Clone> Keys<K> {
    /// Whether there is work for a worker now that was not there before.
    fn add(&mut self, key: K, cause: Cause, now: Instant) -> bool {
        let entry = self.entries.or_default(&key);
        if cause <= Cause::Changed {
            let time = self.throttle.time(now);
            entry.budget.refill(time);
            entry.early.refill(time);
            entry.self_triggered = false;
        }
        if entry.running {
            entry.note(cause);
            return false;
        }
        !(cause == Cause::Periodic && entry.held) && self.wake(key, cause, now)
    }

    /// Queues a key that is not running. One that waits for its next try has a budget of its own for earlier ones: two hooks
    /// that never settle could call each other back for ever.
    fn wake(&mut self, key: K, cause: Cause, now: Instant) -> bool {
        let entry = self.entries.or_default(&key);
        let waits = entry.place.is_none() && (entry.held || entry.failures > 0);
        if !waits || matches!(self.throttle.pace(entry.budget, now), Pace::At(_)) {
            return self.push(key, cause, now);
        }
        match self.throttle.pace(entry.early, now) {
            Pace::At(at) => {
                self.delay(key, self.throttle.start.checked_add(at));
                true
            }
            pace => {
                entry.early.charge(self.throttle.time(now));
                self.push_at(pace, key, cause, now)
            }
        }
    }

    /// Queues a key that is not running as its budget lets it.
    fn push(&mut self, key: K, cause: Cause, now: Instant) -> bool {
        self.push_at(Pace::AtOnce, key, cause, now)
    }

    /// The same, and at this pace at the fastest.
    fn push_at(&mut self, pace: Pace, key: K, cause: Cause, now: Instant) -> bool {
        let budget = self.entries.or_default(&key).budget;
        match self.throttle.pace(budget, now).max(pace) {
            Pace::AtOnce => self.enqueue(key, Lane::Of(cause), now),
            Pace::Throttled => self.enqueue(key, Lane::Throttled, now),
            Pace::At(at) => {
                self.hold(key, self.throttle.start.checked_add(at), now);
                true
            }
        }
    }

    /// Queues a key that is not running. A stronger cause moves it to a better lane.
    fn enqueue(&mut self, key: K, lane: Lane, now: Instant) -> bool {
        let entry = self.entries.or_default(&key);
        if let Some(place) = entry.place {
            if place.lane <= lane {
                return false;
            }
            self.lanes.remove(place);
        } else {
            entry.queued_at = Some(now);
            self.counts.queued();
        }
        entry.place = Some(self.lanes.push(lane, key));
        true
    }

    fn add_after(&mut self, key: K, delay: Duration, now: Instant) {
        let at = now.checked_add(delay).unwrap_or(now);
        let entry = self.entries.or_default(&key);
        entry.reset_at = Some(at);
        if at > now || !entry.running {
            return self.delay(key, Some(at));
        }
        entry.note(Cause::Changed);
    }

    /// The time at which there is something to do though no key is added.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        let due = self.due.first().map(|(at, _)| *at);
        let wait = || now + lock(&self.throttle.rate).wait(self.throttle.time(now));
        let throttled = self.lanes.has_throttled().then(wait);
        [due, throttled, self.sweep_at].into_iter().flatten().min()
    }

    /// Takes a key back that was handed out.
    fn done(&mut self, key: &K, outcome: Outcome, now: Instant) {
        let time = self.throttle.time(now);
        self.counts.ended(key, now);
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.running = false;
        let meanwhile = entry.meanwhile.take();
        let changed = meanwhile.is_some_and(|cause| cause <= Cause::Changed);
        entry.ended(outcome, changed, time);
        let follow_up = meanwhile.unwrap_or(Cause::Related).min(Cause::Related);
        // `None`: never.
        let at = |delay: Duration| now.checked_add(delay);
        match outcome {
            Outcome::FollowUp => _ = self.push(key.clone(), follow_up, now),
            Outcome::NextStep => _ = self.enqueue(key.clone(), Lane::Of(follow_up), now),
            Outcome::Settled(delay) | Outcome::InVain(delay) => {
                self.delay(key.clone(), delay.and_then(at));
                if let Some(cause) = meanwhile {
                    self.push(key.clone(), cause, now);
                }
            }
            Outcome::Failed(delay) => {
                self.delay(key.clone(), at(delay));
                if let Some(cause) = meanwhile.filter(|cause| *cause != Cause::Periodic) {
                    self.wake(key.clone(), cause, now);
                }
            }
            Outcome::Postponed(delay) | Outcome::Interrupted(delay) => {
                let delay = if changed { delay.min(MAX_DELAY_AFTER_CHANGE) } else { delay };
                self.hold(key.clone(), at(delay), now);
                if meanwhile == Some(Cause::Related) {
                    self.wake(key.clone(), Cause::Related, now);
                }
            }
        }
        if self.entries.get(key).is_some_and(|entry| entry.is_idle(time)) {
            self.entries.remove(key);
        } else if self.sweep_at.is_none() {
            self.sweep_at = now.checked_add(SWEEP_INTERVAL);
        }
    }

    fn delay(&mut self, key: K, at: Option<Instant>) {
        let Some(at) = at else { return };
        if self.entries.or_default(&key).due.is_none_or(|due| due > at) {
            self.set_due(key, at);
        }
    }

    fn set_due(&mut self, key: K, at: Instant) {
        self.counts.delayed();
        if let Some(before) = self.entries.or_default(&key).due.replace(at) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key));
    }

    /// Lets the key wait until then, whatever it waited for before, unless it is to run with its streaks reset earlier.
    fn hold(&mut self, key: K, at: Option<Instant>, now: Instant) {
        let Some(at) = at else { return };
        let entry = self.entries.or_default(&key);
        let reset_at = entry.reset_at.filter(|reset_at| *reset_at > now);
        entry.held = true;
        self.set_due(key, reset_at.map_or(at, |reset_at| reset_at.min(at)));
    }

    fn queue_due(&mut self, now: Instant) {
        while let Some((at, key)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            self.due.remove(&(at, key.clone()));
            let entry = self.entries.or_default(&key);
            entry.due = None;
            entry.held = false;
            let resets = entry.reset_at.is_some_and(|reset_at| reset_at <= now);
            match (entry.running, resets) {
                // It waited for this as for a change.
                (true, true) => entry.note(Cause::Changed),
                (true, false) => entry.note(Cause::Periodic),
                (false, true) => _ = self.enqueue(key, Lane::Of(Cause::Periodic), now),
                (false, false) => _ = self.push(key, Cause::Periodic, now),
            }
        }
        if self.sweep_at.is_some_and(|at| at <= now) {
            let time = self.throttle.time(now);
            self.entries.retain(|entry| !entry.is_idle(time));
            self.sweep_at = (!self.entries.is_empty()).then(|| now + SWEEP_INTERVAL);
        }
    }

    /// Hands a key out, if one is queued or due by now.
    fn take(&mut self, now: Instant) -> Option<(K, Streaks)> {
        self.queue_due(now);
        let time = self.throttle.time(now);
        let mut rate = self.lanes.has_throttled().then(|| lock(&self.throttle.rate));
        let throttled = rate.as_mut().is_some_and(|rate| rate.wait(time).is_zero());
        let (lane, key) = self.lanes.pop(throttled)?;
        if let Some(mut rate) = rate.filter(|_| lane == Lane::Throttled) {
            rate.take(time);
        }
        let entry = self.entries.or_default(&key);
        entry.place = None;
        entry.running = true;
        self.counts.began(&key, entry.queued_at.take(), now);
        let reset_at = entry.reset_at.take();
        if reset_at.is_some() {
            (entry.failures, entry.self_triggered) = (0, false);
        }
        // This run is the one that it waited for.
        let is_due = std::mem::take(&mut entry.held) || entry.due == reset_at;
        if is_due && let Some(at) = entry.due.take() {
            self.due.remove(&(at, key.clone()));
        }
        let mut next = entry.budget;
        next.charge(time);
        let next = self.throttle.pace(next, now);
        Some((key, Streaks { failures: entry.failures, self_triggered: entry.self_triggered, next }))
    }
}

#[cfg(test)]
mod budget_tests;
#[cfg(test)]
mod tests;
