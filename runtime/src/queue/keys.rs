//! Keys of a queue: queued, running, held, due at a time; without the workers that wait for them.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_core::hash::FastMap;
use metahook_core::pacing::RateLimiter;
use metahook_core::pacing::lanes::{Cause, Lane, Lanes, NamespaceOf};
use metahook_core::pacing::self_triggered::{Pace, SelfTriggerBudget, SelfTriggerLimits};
use metahook_core::reconcile::outcome::{Outcome, RetryState};
use tokio::time::Instant;

use crate::queue::entry::{Entry, KeptRetryState};
use crate::queue::figures::{Counts, QueueFigures};
use crate::sync::lock;

/// Bounds of the self-triggered reconciles of a controller, for all its queues.
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

/// The longest delay of a postponed key that changed while its worker ran.
const MAX_DELAY_AFTER_CHANGE: Duration = Duration::from_secs(1);

/// Keys whose budgets are full again are forgotten at this interval.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

pub(super) struct Keys<K> {
    lanes: Lanes<K>,
    due: BTreeSet<(Instant, K)>,
    entries: FastMap<K, Entry>,
    throttle: Throttle,
    sweep_at: Option<Instant>,
    counts: Counts<K>,
}

impl<K: Ord + Hash + Clone> Keys<K> {
    pub(super) fn new(throttle: Throttle, namespace_of: NamespaceOf<K>) -> Self {
        Self {
            lanes: Lanes::new(namespace_of),
            due: BTreeSet::new(),
            entries: FastMap::default(),
            throttle,
            sweep_at: None,
            counts: Counts::default(),
        }
    }

    /// For a worker, or for a time.
    pub(super) fn are_waiting(&self) -> bool {
        !self.lanes.is_empty() || !self.due.is_empty()
    }

    #[cfg(test)]
    pub(super) fn are_forgotten(&self) -> bool {
        self.entries.is_empty() && self.due.is_empty()
    }

    pub(super) fn figures(&self, now: Instant) -> QueueFigures {
        self.counts.figures(now, self.due.len())
    }

    /// How long a key still has to wait; `None`: it is due, or nothing is to come.
    pub(super) fn due_in(&self, key: &K, now: Instant) -> Option<Duration> {
        self.entries.get(key)?.delay.due?.checked_duration_since(now)
    }

    /// Adds a key, and returns whether there is work for a worker now that was not there before.
    pub(super) fn add(&mut self, key: K, cause: Cause, now: Instant) -> bool {
        let entry = self.entries.or_default(&key);
        if cause <= Cause::Changed {
            let time = self.throttle.time(now);
            entry.budget.refill(time);
            entry.early.refill(time);
            entry.retry.self_triggered = false;
        }
        entry.caused(cause);
        if entry.running {
            entry.note(cause);
            return false;
        }
        !(cause == Cause::Periodic && entry.delay.only_when_due) && self.wake(key, cause, now)
    }

    /// Queues a key that is not running. One that waits for its next try has a budget of its own for earlier ones: two hooks
    /// that never settle could call each other back for ever.
    fn wake(&mut self, key: K, cause: Cause, now: Instant) -> bool {
        let entry = self.entries.or_default(&key);
        let waits = entry.place.is_none() && (entry.delay.only_when_due || entry.retry.failures > 0);
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

    /// Queues a key that is not running as its budget lets it, and at this pace at the fastest.
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

    pub(super) fn add_after(&mut self, key: K, delay: Duration, now: Instant) {
        let at = now.checked_add(delay).unwrap_or(now);
        let entry = self.entries.or_default(&key);
        entry.delay.reset_at = Some(at);
        if at > now || !entry.running {
            return self.delay(key, Some(at));
        }
        entry.note(Cause::Changed);
    }

    /// The time at which there is something to do though no key is added.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let due = self.due.first().map(|(at, _)| *at);
        let wait = || now + lock(&self.throttle.rate).wait(self.throttle.time(now));
        let throttled = self.lanes.has_throttled().then(wait);
        [due, throttled, self.sweep_at].into_iter().flatten().min()
    }

    /// Takes a key back that was handed out.
    pub(super) fn done(&mut self, key: &K, outcome: Outcome, now: Instant) {
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
            Outcome::FollowUp | Outcome::FollowUpByClock => _ = self.push(key.clone(), follow_up, now),
            Outcome::NextStep => _ = self.enqueue(key.clone(), Lane::Of(follow_up), now),
            Outcome::Settled(delay) | Outcome::NoEffect(delay) => {
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
            Outcome::Postponed(delay) | Outcome::PostponedAfterWrite(delay) => {
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
        if self.entries.or_default(&key).delay.due.is_none_or(|due| due > at) {
            self.set_due(key, at);
        }
    }

    fn set_due(&mut self, key: K, at: Instant) {
        self.counts.delayed();
        if let Some(before) = self.entries.or_default(&key).delay.due.replace(at) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key));
    }

    /// Lets the key wait until then, whatever it waited for before, unless it is to run with its state of retries reset earlier.
    fn hold(&mut self, key: K, at: Option<Instant>, now: Instant) {
        let Some(at) = at else { return };
        let entry = self.entries.or_default(&key);
        let reset_at = entry.delay.reset_at.filter(|reset_at| *reset_at > now);
        entry.delay.only_when_due = true;
        self.set_due(key, reset_at.map_or(at, |reset_at| reset_at.min(at)));
    }

    fn queue_due(&mut self, now: Instant) {
        while let Some((at, key)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            self.due.remove(&(at, key.clone()));
            let entry = self.entries.or_default(&key);
            entry.delay.due = None;
            entry.delay.only_when_due = false;
            let resets = entry.delay.reset_at.is_some_and(|reset_at| reset_at <= now);
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
    pub(super) fn take(&mut self, now: Instant) -> Option<(K, RetryState)> {
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
        let reset_at = entry.delay.reset_at.take();
        if reset_at.is_some() {
            entry.retry = KeptRetryState::default();
        }
        // This run is the one that it waited for.
        let is_due = std::mem::take(&mut entry.delay.only_when_due) || entry.delay.due == reset_at;
        if is_due && let Some(at) = entry.delay.due.take() {
            self.due.remove(&(at, key.clone()));
        }
        let mut next = entry.budget;
        next.charge(time);
        let next = self.throttle.pace(next, now);
        let wait = if let Pace::At(at) = next { at.saturating_sub(time) } else { Duration::ZERO };
        let retry_state = RetryState {
            failures: entry.retry.failures,
            self_triggered: entry.retry.self_triggered,
            in_a_row: entry.budget.in_a_row(),
            others_changed: entry.since.take().is_some_and(|cause| cause <= Cause::Related),
            next,
            wait,
        };
        Some((key, retry_state))
    }
}
