//! Tests of the queue: order, delays, throttling, streaks.

use std::sync::Arc;

use metahook_core::reconcile::outcome::Changed;
use tokio::sync::mpsc;

use super::*;

async fn now(queue: &Queue<u32>) -> Option<u32> {
    let next = tokio::time::timeout(Duration::from_millis(1), queue.next()).await;
    next.ok().flatten().map(|(key, _)| key)
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_is_handed_out_once() {
    let queue = Queue::new();
    queue.add(1);
    queue.add(1);
    assert_eq!((now(&queue).await, now(&queue).await), (Some(1), None));
}

#[tokio::test(start_paused = true)]
async fn a_running_key_is_handed_out_again_afterwards() {
    let queue = Queue::new();
    queue.add(1);
    assert_eq!(now(&queue).await, Some(1));
    queue.add(1);
    assert_eq!(now(&queue).await, None, "its worker is still at it");
    queue.done(&1, Outcome::Settled(None));
    assert_eq!(now(&queue).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn the_earliest_delay_counts_and_a_change_cancels_none() {
    let queue = Queue::new();
    let start = Instant::now();
    queue.add(1);
    now(&queue).await;
    queue.done(&1, Outcome::Settled(Some(Duration::from_secs(5))));
    assert_eq!(now(&queue).await, None);
    queue.add(1);
    assert_eq!(now(&queue).await, Some(1), "a change does not wait");
    queue.done(&1, Outcome::Settled(Some(Duration::from_secs(100))));
    assert_eq!(queue.next().await.map(|(key, _)| key), Some(1));
    assert_eq!(start.elapsed().as_secs(), 5);
    queue.done(&1, Outcome::Settled(None));
    assert_eq!(tokio::time::timeout(Duration::from_secs(1000), queue.next()).await.ok(), None);
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_clock_never_ends() {
    let queue = Queue::new();
    queue.add(1);
    now(&queue).await;
    queue.done(&1, Outcome::Settled(Some(Duration::MAX)));
    assert_eq!(now(&queue).await, None);
}

/// A key that its own writes have caused ten reconciles of, and which is throttled from now on.
async fn throttle(queue: &Queue<u32>) {
    queue.add(1);
    for own in 0..11 {
        let (key, streaks) = queue.next().await.unwrap();
        assert_eq!(streaks.self_triggered, own);
        queue.add_if_idle(1);
        queue.done(&key, Outcome::FollowUp(Duration::from_secs(u64::from(own >= 10) * 30)));
    }
}

#[tokio::test(start_paused = true)]
async fn neither_time_nor_own_writes_release_a_throttled_key() {
    let (queue, start) = (Queue::new(), Instant::now());
    throttle(&queue).await;
    for _ in 0..3 {
        queue.add_if_idle(1);
        assert_eq!(now(&queue).await, None, "throttled");
    }
    assert_eq!(
        queue.next().await,
        Some((1, Streaks { failures: 0, self_triggered: 11 })),
        "and not forgotten"
    );
    assert_eq!(start.elapsed().as_secs(), 30);
    queue.done(&1, Outcome::Settled(None));
    assert!(lock(&queue.keys).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_earlier_delay_does_not_release_a_throttled_key() {
    let (queue, start) = (Queue::new(), Instant::now());
    queue.add(1);
    now(&queue).await;
    queue.done(&1, Outcome::Settled(Some(Duration::from_secs(5))));
    throttle(&queue).await;
    queue.next().await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_change_releases_a_throttled_key() {
    let (queue, start) = (Queue::new(), Instant::now());
    throttle(&queue).await;
    queue.add(1);
    assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, self_triggered: 0 })), "while it waits");
    queue.done(&1, Outcome::Settled(None));
    assert_eq!(tokio::time::timeout(Duration::from_secs(100), queue.next()).await.ok(), None);
    throttle(&queue).await;
    queue.next().await.unwrap();
    queue.add(1);
    queue.done(&1, Outcome::FollowUp(Duration::from_secs(30)));
    assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, self_triggered: 0 })), "while it runs");
    assert_eq!(start.elapsed().as_secs(), 130);
}

#[tokio::test(start_paused = true)]
async fn a_peer_releases_no_throttled_key_and_is_not_lost() {
    let (queue, start) = (Queue::new(), Instant::now());
    throttle(&queue).await;
    queue.add_from_peer(1);
    assert_eq!(now(&queue).await, None, "while it waits");
    assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, self_triggered: 11 })));
    assert_eq!(start.elapsed().as_secs(), 30);
    queue.add_from_peer(1);
    queue.done(&1, Outcome::FollowUp(Duration::from_secs(30)));
    assert_eq!(now(&queue).await, None, "while it runs");
    assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, self_triggered: 12 })));
    queue.add_from_peer(1);
    queue.done(&1, Outcome::Settled(None));
    assert_eq!(
        queue.next().await,
        Some((1, Streaks { failures: 0, self_triggered: 0 })),
        "it settled too early"
    );
    queue.done(&1, Outcome::Settled(None));
    queue.add_from_peer(1);
    assert_eq!(now(&queue).await, Some(1), "a settled key takes it as any change");
    queue.done(&1, Outcome::Settled(Some(Duration::from_secs(5))));
    queue.add_from_peer(1);
    assert_eq!(now(&queue).await, Some(1), "also where it waits for a time");
}

/// Two keys, each added by the other's writes, over ten minutes: the reconciles in the first moment, and those after it.
async fn two(how: impl Fn(Streaks) -> Outcome) -> (usize, usize) {
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
        queue.add_from_peer(3 - key);
        queue.done(&key, how(streaks));
        queue.add_from_peer(3 - key);
        assert!(at_once + later < 1000, "for ever, at once");
    }
    (at_once, later)
}

#[tokio::test(start_paused = true)]
async fn two_keys_that_never_settle_are_throttled() {
    let pace = |streaks: Streaks| Outcome::of(&Ok(Changed::Something), None, streaks);
    let (at_once, later) = two(pace).await;
    assert!((20..=24).contains(&at_once) && later < 80, "{at_once} and {later}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_calls_back_a_failed_key_a_few_times() {
    let (at_once, later) = two(|_| Outcome::Failed(Duration::from_mins(1))).await;
    assert!((20..=24).contains(&at_once) && later <= 20, "{at_once} and {later}");
    let (at_once, later) = two(|_| Outcome::Postponed(Duration::from_mins(1))).await;
    assert!((20..=24).contains(&at_once) && later <= 20, "{at_once} and {later}");
}

#[tokio::test(start_paused = true)]
async fn a_resync_of_a_running_key_runs_it_again() {
    let queue = Queue::new();
    queue.add_if_idle(1);
    assert_eq!(now(&queue).await, Some(1));
    queue.add_if_idle(1);
    queue.done(&1, Outcome::Settled(None));
    assert_eq!(now(&queue).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn streaks_grow_and_end() {
    let queue = Queue::new();
    let streaks = async |rest| {
        let (key, streaks) = queue.next().await.unwrap();
        queue.done(&key, rest);
        (streaks.failures, streaks.self_triggered)
    };
    queue.add(1);
    assert_eq!(streaks(Outcome::Failed(Duration::ZERO)).await, (0, 0));
    assert_eq!(streaks(Outcome::Failed(Duration::ZERO)).await, (1, 0));
    assert_eq!(streaks(Outcome::FollowUp(Duration::ZERO)).await, (2, 0));
    assert_eq!(streaks(Outcome::FollowUp(Duration::ZERO)).await, (0, 1));
    assert_eq!(streaks(Outcome::NextStep).await, (0, 2));
    assert_eq!(
        streaks(Outcome::FollowUp(Duration::from_secs(1))).await,
        (0, 0),
        "a step of many is no streak"
    );
    queue.add(1);
    assert_eq!(streaks(Outcome::Settled(None)).await, (0, 0), "another client changed something");
    assert!(lock(&queue.keys).is_empty(), "a settled key costs nothing");
}

#[tokio::test(start_paused = true)]
async fn a_postponed_key_waits_and_its_failures_stay() {
    let (queue, start) = (Queue::new(), Instant::now());
    queue.add(1);
    now(&queue).await;
    queue.done(&1, Outcome::Failed(Duration::ZERO));
    assert_eq!(queue.next().await, Some((1, Streaks { failures: 1, self_triggered: 0 })));
    queue.add_if_idle(1);
    queue.done(&1, Outcome::Postponed(Duration::from_secs(20)));
    queue.add_if_idle(1);
    assert_eq!(queue.next().await, Some((1, Streaks { failures: 1, self_triggered: 0 })));
    assert_eq!(start.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_postponed_run_counts_within_a_second() {
    let (queue, start) = (Queue::new(), Instant::now());
    queue.add(1);
    now(&queue).await;
    queue.add(1);
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
    let (queue, start) = (Queue::new(), Instant::now());
    queue.add(1);
    for _ in 0..3 {
        queue.next().await.unwrap();
        queue.done(&1, Outcome::Failed(Duration::from_secs(100)));
        queue.add(1);
    }
    queue.next().await.unwrap();
    queue.done(&1, Outcome::Failed(Duration::from_secs(100)));
    queue.add_after(1, Duration::from_secs(30));
    assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, self_triggered: 0 })));
    assert_eq!(start.elapsed().as_secs(), 30);
    queue.done(&1, Outcome::Settled(None));
    assert!(lock(&queue.keys).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_earlier_run_replaces_the_delayed_one() {
    let queue = Queue::new();
    queue.add_after(1, Duration::from_secs(30));
    assert_eq!(now(&queue).await, None);
    queue.add(1);
    assert_eq!(now(&queue).await, Some(1));
    queue.done(&1, Outcome::Settled(None));
    assert_eq!(tokio::time::timeout(Duration::from_secs(100), queue.next()).await.ok(), None);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_run_is_not_the_one_that_runs_already() {
    let queue = Queue::new();
    queue.add(1);
    queue.next().await.unwrap();
    queue.add_after(1, Duration::ZERO);
    queue.done(&1, Outcome::Failed(Duration::from_secs(100)));
    assert_eq!(queue.next().await, Some((1, Streaks { failures: 0, self_triggered: 0 })));
    queue.add_after(1, Duration::ZERO);
    queue.done(&1, Outcome::FollowUp(Duration::from_secs(100)));
    assert_eq!(now(&queue).await, Some(1), "nor does it wait for a throttled one");
}

#[tokio::test(start_paused = true)]
async fn closing_wakes_all_workers() {
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
async fn many_keys_at_once_reach_all_workers() {
    let queue = Arc::new(Queue::new());
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.next().await.map(|(key, _)| key) })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.add_all_if_idle(&[1, 2, 3, 3]);
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
                    queue.done(&key, Outcome::Settled(None));
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

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_own_key_alone() {
    let queue = Arc::new(Queue::new());
    let (sender, mut seen) = mpsc::unbounded_channel();
    let work = move |key: u32, streaks: Streaks| {
        let sender = sender.clone();
        async move {
            assert!(key != 1 || streaks.failures > 0, "the first time");
            sender.send(key).unwrap();
            Outcome::Settled(None)
        }
    };
    let mut workers = start_workers(&queue, 1, work);
    queue.add(1);
    queue.add(2);
    assert_eq!((seen.recv().await, seen.recv().await), (Some(2), Some(1)));
    queue.close();
    while workers.join_next().await.is_some() {}
}
