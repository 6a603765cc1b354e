//! Keys that wait for a worker: each once, never with two workers, at once or after a delay.

mod keys;
pub(crate) mod workers;

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use self::keys::Keys;

use crate::sync::lock;

/// # Guarantees
/// A key that is added while its worker runs is handed out again afterwards. The earliest of several delays counts. A key
/// that is held waits until somebody else changes something, who is no other pass of this server. Bounded by the number of distinct keys.
pub(crate) struct Queue<K> {
    inner: Mutex<Inner<K>>,
    wake: Notify,
}

struct Inner<K> {
    keys: Keys<K>,
    closed: bool,
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
        Self { inner: Mutex::new(Inner { keys: Keys::default(), closed: false }), wake: Notify::new() }
    }

    /// Somebody else changed something about the key: a worker shall look at it now, whatever its own writes did. A time
    /// that it asked for stays as it is.
    pub(crate) fn add(&self, key: K) {
        if self.lock().keys.change(key) {
            self.wake.notify_one();
        }
    }

    /// Another pass of this server changed something about the key: a worker shall look at it now, unless its own writes
    /// have it held: two hooks that never rest would free each other for ever. One that failed or was put off may wait for
    /// this very change, and is called back for a few of them.
    pub(crate) fn nudge(&self, key: K) {
        if self.lock().keys.nudge(key) {
            self.wake.notify_one();
        }
    }

    /// Time has passed, or what the key's own writes began has come to its end: a worker shall look at it now, unless it
    /// is held.
    pub(crate) fn look(&self, key: K) {
        if self.lock().keys.look(key) {
            self.wake.notify_one();
        }
    }

    /// The same for many keys at once.
    pub(crate) fn look_all(&self, keys: &[K]) {
        let mut inner = self.lock();
        for key in keys {
            inner.keys.look(key.clone());
        }
        drop(inner);
        // Who takes one of several wakes the next.
        self.wake.notify_one();
    }

    /// A worker shall look at the key after this time, unless one does before. From that look on its failures lie in the
    /// past: the next one starts with the shortest delay again.
    pub(crate) fn add_fresh(&self, key: K, after: Duration) {
        self.lock().keys.fresh(key, after);
        self.wake.notify_one();
    }

    /// The next key, or `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<(K, Streaks)> {
        loop {
            let notified = self.wake.notified();
            let until = {
                let mut inner = self.lock();
                if inner.closed {
                    return None;
                }
                if let Some(taken) = inner.keys.take() {
                    // There may be more for the other workers.
                    if inner.keys.has_more() {
                        self.wake.notify_one();
                    }
                    return Some(taken);
                }
                inner.keys.next_due()
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

    /// Gives a key back that [`Queue::next`] handed out. Nobody is woken: who gives a key back comes for the next one.
    pub(crate) fn done(&self, key: &K, how: After) {
        self.lock().keys.done(key, how);
    }

    /// No key is handed out any more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Inner<K>> {
        lock(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metahook_core::reconcile::outcome;
    use tokio::time::Instant;

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
        assert!(queue.lock().keys.is_empty());
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
            let passed = outcome::Reconciled { wrote: Ok(true), resync_after: None };
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
        assert!(queue.lock().keys.is_empty(), "a key at rest costs nothing");
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
        assert!(queue.lock().keys.is_empty());
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
