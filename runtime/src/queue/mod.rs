//! Keys that wait for a worker: each once, never with two workers, at once or after a delay.

pub(crate) mod workers;

use std::collections::{BTreeSet, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metahook_core::keyed::Keyed;
use metahook_core::outcome;
use tokio::sync::Notify;
use tokio::time::Instant;

/// When somebody changed something while a worker had been told to come later: the shortest time that one may be told.
const FLOOR: Duration = Duration::from_secs(1);

/// # Guarantees
/// A key that is added while its worker runs is handed out again afterwards. The earliest of several delays counts. A key
/// that is held waits until somebody else changes something, who is no other pass of this server. Bounded by the number of distinct keys.
pub(crate) struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

struct State<K> {
    ready: VecDeque<K>,
    due: BTreeSet<(Instant, K)>,
    entries: Keyed<K, Entry>,
    closed: bool,
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

/// How often a key failed, and how often it woke itself, in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Streaks {
    pub(crate) failures: u32,
    pub(crate) own: u32,
}

/// How a worker gives a key back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing was written: wait for a change or a time.
    Settled(Option<Duration>),
    /// Something was written: look at what came of it.
    FollowUp(Duration),
    /// So it was, and it was one of so many steps: it comes to an end, and nothing has to hold it.
    GoesOn,
    Failed(Duration),
    /// Neither a success nor a failure: look again at that time.
    Postponed(Duration),
}

impl<K: Ord + Hash + Clone> Queue<K> {
    pub(crate) fn new() -> Self {
        let state =
            State { ready: VecDeque::new(), due: BTreeSet::new(), entries: Keyed::default(), closed: false };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }

    /// Somebody else changed something about the key: a worker shall look at it now, whatever its own writes did. A time
    /// that it asked for stays as it is.
    pub(crate) fn add(&self, key: K) {
        if self.lock().change(key) {
            self.wake.notify_one();
        }
    }

    /// Another pass of this server changed something about the key: a worker shall look at it now, unless its own writes
    /// have it held: two hooks that never rest would free each other for ever. One that failed or was put off may wait for
    /// this very change, and is called back for a few of them.
    pub(crate) fn nudge(&self, key: K) {
        if self.lock().nudge(key) {
            self.wake.notify_one();
        }
    }

    /// Time has passed, or what the key's own writes began has come to its end: a worker shall look at it now, unless it
    /// is held.
    pub(crate) fn look(&self, key: K) {
        if self.lock().look(key) {
            self.wake.notify_one();
        }
    }

    /// The same for many keys at once.
    pub(crate) fn look_all(&self, keys: &[K]) {
        if keys.is_empty() {
            return;
        }
        let mut state = self.lock();
        for key in keys {
            state.look(key.clone());
        }
        drop(state);
        // Who takes one of several wakes the next.
        self.wake.notify_one();
    }

    /// A worker shall look at the key after this time, unless one does before. From that look on its failures lie in the
    /// past: the next one starts with the shortest delay again.
    pub(crate) fn add_fresh(&self, key: K, after: Duration) {
        let mut state = self.lock();
        let now = Instant::now();
        let at = now.checked_add(after).unwrap_or(now);
        state.entries.or_default(&key).fresh = Some(at);
        if at > now {
            state.delay(key, at);
        } else {
            state.push(key);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// The next key, or `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<(K, Streaks)> {
        loop {
            let notified = self.wake.notified();
            let until = {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                if !state.due.is_empty() {
                    state.ripen(Instant::now());
                }
                if let Some(taken) = state.take() {
                    // There may be more for the other workers.
                    if !state.ready.is_empty() {
                        self.wake.notify_one();
                    }
                    return Some(taken);
                }
                state.due.first().map(|(at, _)| *at)
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

    /// Gives a key back that [`Queue::next`] handed out.
    pub(crate) fn done(&self, key: &K, how: After) {
        let mut state = self.lock();
        let State { entries, ready, .. } = &mut *state;
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
        // Nobody is woken: who gives a key back comes for the next one.
        if at_once {
            entry.push(key.clone(), ready);
        }
        match due {
            Some(at) if held => state.hold(key.clone(), at),
            Some(at) => state.delay(key.clone(), at),
            None if entry.says_nothing() => drop(entries.remove(key)),
            None => {}
        }
        if meanwhile == Meanwhile::Nudge && matches!(how, After::Failed(_) | After::Postponed(_)) {
            state.nudge(key.clone());
        }
    }

    /// No key is handed out any more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Hash + Clone> State<K> {
    /// Somebody changed something; whether there is something for a worker now that was not there.
    fn change(&mut self, key: K) -> bool {
        let entry = self.entries.or_default(&key);
        entry.own = 0;
        entry.push(key, &mut self.ready)
    }

    fn nudge(&mut self, key: K) -> bool {
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

    fn look(&mut self, key: K) -> bool {
        self.entries.or_default(&key).look(key, &mut self.ready)
    }

    fn push(&mut self, key: K) {
        self.entries.or_default(&key).push(key, &mut self.ready);
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
            let State { entries, ready, .. } = self;
            let entry = entries.or_default(&key);
            (entry.due, entry.held) = (None, false);
            if entry.fresh.is_some_and(|fresh| fresh <= now) {
                entry.push(key, ready);
            } else {
                entry.look(key, ready);
            }
        }
    }

    fn take(&mut self) -> Option<(K, Streaks)> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn now(queue: &Queue<u32>) -> Option<u32> {
        let next = tokio::time::timeout(Duration::from_millis(1), queue.next()).await;
        next.ok().flatten().map(|(key, _)| key)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_handed_out_once_however_often_it_is_added() {
        let queue = Queue::new();
        queue.add(1);
        queue.add(1);
        assert_eq!((now(&queue).await, now(&queue).await), (Some(1), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_never_has_two_workers_and_is_not_lost_meanwhile() {
        let queue = Queue::new();
        queue.add(1);
        assert_eq!(now(&queue).await, Some(1));
        queue.add(1);
        assert_eq!(now(&queue).await, None, "its worker is still at it");
        queue.done(&1, After::Settled(None));
        assert_eq!(now(&queue).await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_of_several_times_counts_and_a_change_cancels_none() {
        let queue = Queue::new();
        let start = Instant::now();
        queue.add(1);
        now(&queue).await;
        queue.done(&1, After::Settled(Some(Duration::from_secs(5))));
        assert_eq!(now(&queue).await, None);
        queue.add(1);
        assert_eq!(now(&queue).await, Some(1), "a change does not wait");
        queue.done(&1, After::Settled(Some(Duration::from_secs(100))));
        assert_eq!(queue.next().await.map(|(key, _)| key), Some(1));
        assert_eq!(start.elapsed().as_secs(), 5);
        queue.done(&1, After::Settled(None));
        assert_eq!(tokio::time::timeout(Duration::from_secs(1000), queue.next()).await.ok(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn ages_are_no_time() {
        let queue = Queue::new();
        queue.add(1);
        now(&queue).await;
        queue.done(&1, After::Settled(Some(Duration::MAX)));
        assert_eq!(now(&queue).await, None);
    }

    /// A key that its own writes have caused ten passes of, and which is held from now on.
    async fn held(queue: &Queue<u32>) {
        queue.add(1);
        for own in 0..11 {
            let (key, streaks) = queue.next().await.unwrap();
            assert_eq!(streaks.own, own);
            queue.look(1);
            queue.done(&key, After::FollowUp(Duration::from_secs(u64::from(own >= 10) * 30)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn neither_time_nor_what_a_key_did_itself_frees_it_when_it_is_held() {
        let (queue, start) = (Queue::new(), Instant::now());
        held(&queue).await;
        for _ in 0..3 {
            queue.look(1);
            assert_eq!(now(&queue).await, None, "held, though it is to be looked at");
        }
        assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, own: 11 })), "and not forgotten");
        assert_eq!(start.elapsed().as_secs(), 30);
        queue.done(&1, After::Settled(None));
        assert!(queue.lock().entries.is_empty() && queue.lock().due.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_was_asked_for_before_does_not_free_a_held_key() {
        let (queue, start) = (Queue::new(), Instant::now());
        queue.add(1);
        now(&queue).await;
        queue.done(&1, After::Settled(Some(Duration::from_secs(5))));
        held(&queue).await;
        queue.next().await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_frees_a_held_key_whether_it_waits_or_runs() {
        let (queue, start) = (Queue::new(), Instant::now());
        held(&queue).await;
        queue.add(1);
        assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, own: 0 })), "while it waits");
        queue.done(&1, After::Settled(None));
        assert_eq!(tokio::time::timeout(Duration::from_secs(100), queue.next()).await.ok(), None);
        held(&queue).await;
        queue.next().await.unwrap();
        queue.add(1);
        queue.done(&1, After::FollowUp(Duration::from_secs(30)));
        assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, own: 0 })), "while it runs");
        assert_eq!(start.elapsed().as_secs(), 130);
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_of_this_server_did_frees_no_held_key_and_is_not_lost() {
        let (queue, start) = (Queue::new(), Instant::now());
        held(&queue).await;
        queue.nudge(1);
        assert_eq!(now(&queue).await, None, "while it waits");
        assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, own: 11 })));
        assert_eq!(start.elapsed().as_secs(), 30);
        queue.nudge(1);
        queue.done(&1, After::FollowUp(Duration::from_secs(30)));
        assert_eq!(now(&queue).await, None, "while it runs");
        assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, own: 12 })));
        queue.nudge(1);
        queue.done(&1, After::Settled(None));
        assert_eq!(
            queue.next().await,
            Some((1, Streaks { failures: 0, own: 0 })),
            "it came to rest too early"
        );
        queue.done(&1, After::Settled(None));
        queue.nudge(1);
        assert_eq!(now(&queue).await, Some(1), "at rest it is like any change");
        queue.done(&1, After::Settled(Some(Duration::from_secs(5))));
        queue.nudge(1);
        assert_eq!(now(&queue).await, Some(1), "also where it waits for a time");
    }

    /// How two keys go on of which each is told of what the other one did, over ten minutes: passes at once, and after.
    async fn two(how: impl Fn(Streaks) -> After) -> (usize, usize) {
        let (queue, start) = (Queue::new(), Instant::now());
        let (mut at_once, mut later) = (0, 0);
        queue.add(1);
        queue.add(2);
        while start.elapsed() < Duration::from_mins(10) {
            let (key, streaks) = queue.next().await.unwrap();
            if start.elapsed() < Duration::from_millis(10) {
                at_once += 1;
            } else {
                later += 1;
            }
            // The other one is told before and after.
            queue.nudge(3 - key);
            queue.done(&key, how(streaks));
            queue.nudge(3 - key);
            assert!(at_once + later < 1000, "for ever, at once");
        }
        (at_once, later)
    }

    #[tokio::test(start_paused = true)]
    async fn two_keys_that_never_rest_do_not_free_each_other() {
        let pace = |streaks: Streaks| {
            let passed = outcome::Passed { wrote: Ok(true), resync_after: None };
            match outcome::of(passed, streaks.failures, streaks.own) {
                outcome::Outcome::FollowUp { again } => After::FollowUp(again),
                other => panic!("{other:?}"),
            }
        };
        let (at_once, later) = two(pace).await;
        assert!((20..=24).contains(&at_once) && later < 80, "{at_once} and {later}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_failed_or_was_put_off_is_called_back_a_few_times() {
        let (at_once, later) = two(|_| After::Failed(Duration::from_mins(1))).await;
        assert!((20..=24).contains(&at_once) && later <= 20, "{at_once} and {later}");
        let (at_once, later) = two(|_| After::Postponed(Duration::from_mins(1))).await;
        assert!((20..=24).contains(&at_once) && later <= 20, "{at_once} and {later}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_to_be_looked_at_while_it_runs_is_looked_at_again() {
        let queue = Queue::new();
        queue.look(1);
        assert_eq!(now(&queue).await, Some(1));
        queue.look(1);
        queue.done(&1, After::Settled(None));
        assert_eq!(now(&queue).await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn streaks_grow_and_end() {
        let queue = Queue::new();
        let streaks = async |rest| {
            let (key, streaks) = queue.next().await.unwrap();
            queue.done(&key, rest);
            (streaks.failures, streaks.own)
        };
        queue.add(1);
        assert_eq!(streaks(After::Failed(Duration::ZERO)).await, (0, 0));
        assert_eq!(streaks(After::Failed(Duration::ZERO)).await, (1, 0));
        assert_eq!(streaks(After::FollowUp(Duration::ZERO)).await, (2, 0));
        assert_eq!(streaks(After::FollowUp(Duration::ZERO)).await, (0, 1));
        assert_eq!(streaks(After::GoesOn).await, (0, 2));
        assert_eq!(
            streaks(After::FollowUp(Duration::from_secs(1))).await,
            (0, 0),
            "a step of many is no streak"
        );
        queue.add(1);
        assert_eq!(streaks(After::Settled(None)).await, (0, 0), "somebody else changed something");
        assert!(queue.lock().entries.is_empty(), "a key at rest costs nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_postponed_key_waits_and_its_failures_stay() {
        let (queue, start) = (Queue::new(), Instant::now());
        queue.add(1);
        now(&queue).await;
        queue.done(&1, After::Failed(Duration::ZERO));
        assert_eq!(queue.next().await, Some((1, Streaks { failures: 1, own: 0 })));
        queue.look(1);
        queue.done(&1, After::Postponed(Duration::from_secs(20)));
        queue.look(1);
        assert_eq!(queue.next().await, Some((1, Streaks { failures: 1, own: 0 })));
        assert_eq!(start.elapsed().as_secs(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_comes_during_a_postponed_pass_is_looked_at_within_a_second() {
        let (queue, start) = (Queue::new(), Instant::now());
        queue.add(1);
        now(&queue).await;
        queue.add(1);
        queue.done(&1, After::Postponed(Duration::from_hours(1)));
        assert_eq!(now(&queue).await, None, "but not at once");
        assert!(queue.next().await.is_some());
        assert_eq!(start.elapsed().as_secs(), 1);
        queue.add_fresh(1, Duration::ZERO);
        queue.done(&1, After::Postponed(Duration::from_hours(1)));
        assert!(queue.next().await.is_some());
        assert_eq!(start.elapsed().as_secs(), 2, "nor is a fresh look put off");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fresh_look_comes_in_time_and_forgets_what_was_before() {
        let (queue, start) = (Queue::new(), Instant::now());
        queue.add(1);
        for _ in 0..3 {
            queue.next().await.unwrap();
            queue.done(&1, After::Failed(Duration::from_secs(100)));
            queue.add(1);
        }
        queue.next().await.unwrap();
        queue.done(&1, After::Failed(Duration::from_secs(100)));
        queue.add_fresh(1, Duration::from_secs(30));
        assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, own: 0 })));
        assert_eq!(start.elapsed().as_secs(), 30);
        queue.done(&1, After::Settled(None));
        assert!(queue.lock().entries.is_empty() && queue.lock().due.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_comes_before_a_fresh_look_takes_its_place() {
        let queue = Queue::new();
        queue.add_fresh(1, Duration::from_secs(30));
        assert_eq!(now(&queue).await, None);
        queue.add(1);
        assert_eq!(now(&queue).await, Some(1));
        queue.done(&1, After::Settled(None));
        assert_eq!(tokio::time::timeout(Duration::from_secs(100), queue.next()).await.ok(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fresh_look_is_not_the_one_that_runs_already() {
        let queue = Queue::new();
        queue.add(1);
        queue.next().await.unwrap();
        queue.add_fresh(1, Duration::ZERO);
        queue.done(&1, After::Failed(Duration::from_secs(100)));
        assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, own: 0 })));
        queue.add_fresh(1, Duration::ZERO);
        queue.done(&1, After::FollowUp(Duration::from_secs(100)));
        assert_eq!(now(&queue).await, Some(1), "nor does it wait for one that is held");
    }

    #[tokio::test(start_paused = true)]
    async fn closing_wakes_everybody() {
        let queue: Arc<Queue<u32>> = Arc::new(Queue::new());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move { queue.next().await.is_none() })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in waiting {
            assert!(worker.await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_keys_looked_at_at_once_reach_all_who_wait() {
        let queue = Arc::new(Queue::new());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move { queue.next().await.map(|(key, _)| key) })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.look_all(&[1, 2, 3, 3]);
        let mut seen = Vec::new();
        for worker in waiting {
            seen.extend(worker.await.unwrap());
        }
        seen.sort_unstable();
        assert_eq!((seen, now(&queue).await), (vec![1, 2, 3], None));
    }

    #[tokio::test(start_paused = true)]
    async fn many_workers_see_every_key() {
        let queue = Arc::new(Queue::new());
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move {
                    let mut seen = Vec::new();
                    while let Some((key, _)) = queue.next().await {
                        tokio::task::yield_now().await;
                        queue.done(&key, After::Settled(None));
                        seen.push(key);
                    }
                    seen
                })
            })
            .collect();
        for key in 0..1000_u32 {
            queue.add(key);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.close();
        let mut seen = Vec::new();
        for worker in workers {
            seen.extend(worker.await.unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    }
}
