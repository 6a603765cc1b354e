//! Tests of the queue: order, delays, throttling, states of retries.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, LazyLock};

use tokio::sync::mpsc;

use metahook_core::pacing::self_triggered::{Pace, SelfTriggerLimits};

use super::*;

const BEFORE: RetryState = RetryState {
    failures: 0,
    self_triggered: false,
    in_a_row: 0,
    others_changed: false,
    next: Pace::AtOnce,
    wait: Duration::ZERO,
};

pub(super) fn queue() -> Queue<u32> {
    static NONE: LazyLock<Arc<str>> = LazyLock::new(Arc::default);
    Queue::new(Throttle::new(SelfTriggerLimits { max: 20, rate: 20 }), |_| &NONE)
}

pub(super) fn is_empty(queue: &Queue<u32>) -> bool {
    lock(&queue.keys).are_forgotten()
}

pub(super) async fn now(queue: &Queue<u32>) -> Option<u32> {
    let next = tokio::time::timeout(Duration::from_millis(1), queue.next()).await;
    next.ok().flatten().map(|(key, _)| key)
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_is_handed_out_once() {
    let queue = queue();
    queue.add(1, Cause::Changed);
    queue.add(1, Cause::Changed);
    assert_eq!((now(&queue).await, now(&queue).await), (Some(1), None));
}

#[tokio::test(start_paused = true)]
async fn a_running_key_is_handed_out_again_afterwards() {
    let queue = queue();
    queue.add(1, Cause::Changed);
    assert_eq!(now(&queue).await, Some(1));
    queue.add(1, Cause::Changed);
    assert_eq!(now(&queue).await, None, "its worker is still at it");
    queue.done(&1, Outcome::Settled(None));
    assert_eq!(now(&queue).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn the_earliest_delay_counts_and_a_change_cancels_none() {
    let queue = queue();
    let start = Instant::now();
    queue.add(1, Cause::Changed);
    now(&queue).await;
    queue.done(&1, Outcome::Settled(Some(Duration::from_secs(5))));
    assert_eq!(now(&queue).await, None);
    queue.add(1, Cause::Changed);
    assert_eq!(now(&queue).await, Some(1), "a change does not wait");
    queue.done(&1, Outcome::Settled(Some(Duration::from_secs(100))));
    assert_eq!(queue.next().await.map(|(key, _)| key), Some(1));
    assert_eq!(start.elapsed().as_secs(), 5);
    queue.done(&1, Outcome::Settled(None));
    assert_eq!(tokio::time::timeout(Duration::from_secs(1000), queue.next()).await.ok(), None);
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_clock_never_ends() {
    let queue = queue();
    queue.add(1, Cause::Changed);
    now(&queue).await;
    queue.done(&1, Outcome::Settled(Some(Duration::MAX)));
    assert_eq!(now(&queue).await, None);
}

/// A hook that never settles: the delays of so many reconciles of key 1, the first of which waits already.
pub(super) async fn never_settles(
    queue: &Queue<u32>,
    count: usize,
    mut meanwhile: impl FnMut(),
) -> Vec<u128> {
    let mut delays = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        let (key, _) = queue.next().await.unwrap();
        delays.push(start.elapsed().as_millis());
        meanwhile();
        queue.done(&key, Outcome::FollowUp);
    }
    delays
}

/// Twenty self-triggered reconciles: ten at once, five as a burst, the others at the rate; from then on one each 10 s.
const DELAYS: [u128; 24] =
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 50, 50, 50, 50, 50, 9_750, 10_000, 10_000];

#[tokio::test(start_paused = true)]
async fn a_key_that_never_settles_is_throttled_whatever_comes_meanwhile() {
    for cause in [None, Some(Cause::Periodic), Some(Cause::Related)] {
        let queue = queue();
        queue.add(1, Cause::Created);
        let meanwhile = || cause.into_iter().for_each(|cause| queue.add(1, cause));
        assert_eq!(never_settles(&queue, DELAYS.len(), meanwhile).await, DELAYS, "{cause:?}");
        meanwhile();
        assert_eq!(now(&queue).await, None, "nor while it waits: {cause:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_parent_refills_a_budget_and_its_echo_does_not() {
    let queue = queue();
    queue.add(1, Cause::Created);
    never_settles(&queue, 21, || ()).await;
    queue.add(1, Cause::Changed);
    assert_eq!(never_settles(&queue, 10, || ()).await, [0; 10]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let echo = || queue.add(1, Cause::Changed);
    assert_eq!(never_settles(&queue, 7, echo).await, [0, 0, 0, 0, 0, 0, 50]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_settles_between_its_echoes_is_throttled() {
    let (queue, start) = (queue(), Instant::now());
    queue.add(1, Cause::Created);
    let mut wrote = 0;
    while start.elapsed() < Duration::from_mins(1) {
        let (key, _) = queue.next().await.unwrap();
        queue.done(&key, Outcome::FollowUp);
        wrote += 1;
        let (key, _) = queue.next().await.unwrap();
        queue.done(&key, Outcome::Settled(Some(Duration::from_secs(1))));
        queue.add(1, Cause::Related);
    }
    assert!((20..=28).contains(&wrote), "{wrote}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_is_watched_while_workers_are_busy() {
    let queue = Arc::new(queue());
    queue.add(1, Cause::Created);
    now(&queue).await;
    queue.done(&1, Outcome::Settled(Some(Duration::from_secs(5))));
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { (queue.next().await.map(|(key, _)| key), Instant::now()) })
        })
        .collect();
    tokio::task::yield_now().await;
    let start = Instant::now();
    queue.add(2, Cause::Created);
    for (worker, expected) in waiting.into_iter().zip([(Some(2), 0), (Some(1), 5)]) {
        let (key, at) = worker.await.unwrap();
        assert_eq!((key, (at - start).as_secs()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stronger_cause_moves_a_key_to_a_better_lane() {
    let queue = queue();
    queue.add_all(&[1, 2, 3, 4], Cause::Periodic);
    queue.add(3, Cause::Related);
    queue.add(4, Cause::Changed);
    queue.add(4, Cause::Periodic);
    assert_eq!([now(&queue).await, now(&queue).await, now(&queue).await], [Some(4), Some(3), Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_resync_of_a_running_key_runs_it_again() {
    let queue = queue();
    queue.add(1, Cause::Periodic);
    assert_eq!(now(&queue).await, Some(1));
    queue.add(1, Cause::Periodic);
    queue.done(&1, Outcome::Settled(None));
    assert_eq!(now(&queue).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn streaks_grow_and_end() {
    let queue = queue();
    let retry_state = async |rest| {
        let (key, retry_state) = queue.next().await.unwrap();
        queue.done(&key, rest);
        (retry_state.failures, retry_state.self_triggered)
    };
    queue.add(1, Cause::Changed);
    assert_eq!(retry_state(Outcome::Failed(Duration::ZERO)).await, (0, false));
    assert_eq!(retry_state(Outcome::Failed(Duration::ZERO)).await, (1, false));
    assert_eq!(retry_state(Outcome::FollowUp).await, (2, false));
    assert_eq!(retry_state(Outcome::FollowUp).await, (0, true));
    assert_eq!(retry_state(Outcome::NextStep).await, (0, true));
    assert_eq!(retry_state(Outcome::FollowUp).await, (0, false), "a step of many is no streak");
    queue.add(1, Cause::Changed);
    assert_eq!(retry_state(Outcome::Settled(None)).await, (0, false), "another client changed something");
}

#[tokio::test(start_paused = true)]
async fn a_postponed_key_waits_and_its_failures_stay() {
    let (queue, start) = (queue(), Instant::now());
    queue.add(1, Cause::Changed);
    now(&queue).await;
    queue.done(&1, Outcome::Failed(Duration::ZERO));
    let failed = RetryState { failures: 1, in_a_row: 1, ..BEFORE };
    assert_eq!(queue.next().await, Some((1, failed)));
    queue.add(1, Cause::Periodic);
    queue.done(&1, Outcome::Postponed(Duration::from_secs(20)));
    queue.add(1, Cause::Periodic);
    assert_eq!(queue.next().await, Some((1, failed)));
    assert_eq!(start.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_postponed_run_counts_within_a_second() {
    let (queue, start) = (queue(), Instant::now());
    queue.add(1, Cause::Changed);
    now(&queue).await;
    queue.add(1, Cause::Changed);
    queue.done(&1, Outcome::Postponed(Duration::from_hours(1)));
    assert_eq!(now(&queue).await, None, "but not at once");
    assert!(queue.next().await.is_some());
    assert_eq!(start.elapsed().as_secs(), 1);
    queue.add_after(1, Duration::ZERO);
    queue.done(&1, Outcome::Postponed(Duration::from_hours(1)));
    assert!(queue.next().await.is_some());
    assert_eq!(start.elapsed().as_secs(), 2, "nor is a reset postponed");
}

#[tokio::test(start_paused = true)]
async fn a_delayed_run_resets_streaks() {
    let (queue, start) = (queue(), Instant::now());
    queue.add(1, Cause::Changed);
    for _ in 0..3 {
        queue.next().await.unwrap();
        queue.done(&1, Outcome::Failed(Duration::from_secs(100)));
        queue.add(1, Cause::Changed);
    }
    queue.next().await.unwrap();
    queue.done(&1, Outcome::Failed(Duration::from_secs(100)));
    queue.add_after(1, Duration::from_secs(30));
    assert_eq!(queue.next().await, Some((1, BEFORE)));
    assert_eq!(start.elapsed().as_secs(), 30);
    queue.done(&1, Outcome::Settled(None));
    assert!(is_empty(&queue));
}

#[tokio::test(start_paused = true)]
async fn an_earlier_run_replaces_the_delayed_one() {
    let queue = queue();
    queue.add_after(1, Duration::from_secs(30));
    assert_eq!(now(&queue).await, None);
    queue.add(1, Cause::Changed);
    assert_eq!(now(&queue).await, Some(1));
    queue.done(&1, Outcome::Settled(None));
    assert_eq!(tokio::time::timeout(Duration::from_secs(100), queue.next()).await.ok(), None);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_run_is_not_the_one_that_runs_already() {
    let queue = queue();
    queue.add(1, Cause::Changed);
    queue.next().await.unwrap();
    queue.add_after(1, Duration::ZERO);
    queue.done(&1, Outcome::Failed(Duration::from_secs(100)));
    assert_eq!(queue.next().await, Some((1, RetryState { in_a_row: 1, ..BEFORE })));
    queue.add_after(1, Duration::ZERO);
    queue.done(&1, Outcome::FollowUp);
    assert_eq!(now(&queue).await, Some(1), "nor does it wait for a throttled one");
}

#[tokio::test(start_paused = true)]
async fn closing_wakes_all_workers() {
    let queue: Arc<Queue<u32>> = Arc::new(queue());
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
async fn many_keys_at_once_reach_all_workers() {
    let queue = Arc::new(queue());
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.next().await.map(|(key, _)| key) })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.add_all(&[1, 2, 3, 3], Cause::Periodic);
    let mut seen = Vec::new();
    for worker in waiting {
        seen.extend(worker.await.unwrap());
    }
    seen.sort_unstable();
    assert_eq!((seen, now(&queue).await), (vec![1, 2, 3], None));
}

#[tokio::test(start_paused = true)]
async fn many_workers_see_every_key() {
    let (queue, (sender, mut seen)) = (Arc::new(queue()), mpsc::unbounded_channel());
    let work = move |key: u32, _| {
        std::future::ready(sender.send(key).map_or(Outcome::NextStep, |()| Outcome::Settled(None)))
    };
    let _workers = start_workers(&queue, &Workers::new(4), work);
    (0..1000).for_each(|key| queue.add(key, Cause::Changed));
    let mut all = Vec::new();
    while all.len() < 1000 {
        seen.recv_many(&mut all, 1000).await;
    }
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_own_key_alone() {
    let queue = Arc::new(queue());
    let (sender, mut seen) = mpsc::unbounded_channel();
    let work = move |key: u32, retry_state: RetryState| {
        let sender = sender.clone();
        async move {
            assert!(key != 1 || retry_state.failures > 0, "the first time");
            sender.send(key).unwrap();
            Outcome::Settled(None)
        }
    };
    let mut workers = start_workers(&queue, &Workers::new(1), work);
    queue.add(1, Cause::Changed);
    queue.add(2, Cause::Changed);
    assert_eq!((seen.recv().await, seen.recv().await), (Some(2), Some(1)));
    queue.close();
    while workers.join_next().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn queues_share_the_workers_of_their_controller_in_turns() {
    let workers = Workers::new(2);
    let (sender, mut seen) = mpsc::unbounded_channel();
    let running = Arc::new(AtomicUsize::new(0));
    let start = |name: &'static str, keys: u32| {
        let (queue, sender, running) = (Arc::new(queue()), sender.clone(), Arc::clone(&running));
        queue.add_all(&(0..keys).collect::<Vec<_>>(), Cause::Changed);
        let work = move |_, _| {
            let (sender, running) = (sender.clone(), Arc::clone(&running));
            async move {
                sender.send((name, running.fetch_add(1, Ordering::Relaxed) + 1)).unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                Outcome::Settled(None)
            }
        };
        (start_workers(&queue, &workers, work), queue)
    };
    let _queues = [start("many", 1000), start("few", 10)];
    let (mut few, mut many, mut most) = (0, 0, 0);
    while few < 10 {
        let (name, running) = seen.recv().await.unwrap();
        *if name == "few" { &mut few } else { &mut many } += 1;
        most = most.max(running);
    }
    assert_eq!(most, 2, "as many as there are workers, and no more");
    assert!(many <= 14, "the few waited for {many} of the many");
}

#[tokio::test(start_paused = true)]
async fn figures_tell_of_waits_and_runs() {
    let queue = queue();
    queue.add(1, Cause::Changed);
    queue.add(1, Cause::Changed);
    queue.add(2, Cause::Changed);
    let QueueFigures { depth, adds, .. } = queue.figures();
    assert_eq!((depth, adds), (2, 2), "a key that is queued is not added again");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(now(&queue).await, Some(1));
    tokio::time::advance(Duration::from_secs(3)).await;
    let figures = queue.figures();
    assert_eq!((figures.depth, figures.unfinished, figures.longest), (1, 3.0, 3.0));
    assert_eq!((figures.waits.count, figures.waits.sum, figures.waits.buckets[9]), (1, 2.0, 1));
    queue.done(&1, Outcome::Failed(Duration::from_secs(5)));
    let figures = queue.figures();
    assert_eq!((figures.works.count, figures.works.sum, figures.works.buckets[9]), (1, 3.0, 1));
    assert_eq!((figures.retries, figures.unfinished, figures.longest), (1, 0.0, 0.0));
}
