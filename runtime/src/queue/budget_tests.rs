//! Tests of the queue: what is charged to which budget.

use metahook_core::pacing::self_triggered::{Pace, SelfTriggerLimits};
use metahook_core::reconcile::outcome::Changed;

use super::keys::SWEEP_INTERVAL;
use super::tests::{is_empty, never_settles, now, queue};
use super::*;

/// Two keys, each added by the other's writes, over ten minutes: the reconciles in the first second, and those after it.
async fn two(how: impl Fn(RetryState) -> Outcome) -> (usize, usize) {
    let (queue, start) = (queue(), Instant::now());
    let (mut at_once, mut later) = (0, 0);
    queue.add(1, Cause::Created);
    queue.add(2, Cause::Created);
    while start.elapsed() < Duration::from_mins(10) {
        let (key, retry_state) = queue.next().await.unwrap();
        if start.elapsed() < Duration::from_secs(1) {
            at_once += 1;
        } else {
            later += 1;
        }
        // The other one is told before and after.
        queue.add(3 - key, Cause::Related);
        queue.done(&key, how(retry_state));
        queue.add(3 - key, Cause::Related);
        assert!(at_once + later < 1000, "for ever, at once");
    }
    (at_once, later)
}

#[tokio::test(start_paused = true)]
async fn a_key_knows_how_often_it_wrote_in_a_row_and_whether_another_object_changed_since() {
    let queue = queue();
    let mut seen = Vec::new();
    queue.add(1, Cause::Created);
    for cause in [None, Some(Cause::Periodic), Some(Cause::Related), None] {
        let (key, retry_state) = queue.next().await.unwrap();
        seen.push((retry_state.in_a_row, retry_state.others_changed));
        if let Some(cause) = cause {
            queue.add(key, cause);
        }
        queue.done(&key, Outcome::FollowUp);
    }
    assert_eq!(seen, [(0, true), (1, false), (2, false), (3, true)]);
    let (key, _) = queue.next().await.unwrap();
    queue.done(&key, Outcome::Settled(None));
    queue.add(1, Cause::Periodic);
    let (_, retry_state) = queue.next().await.unwrap();
    assert_eq!((retry_state.in_a_row, retry_state.others_changed), (0, false));
}

#[tokio::test(start_paused = true)]
async fn two_keys_that_never_settle_are_throttled() {
    let pace = |retry_state: RetryState| Outcome::of(&Ok(Changed::Something), None, retry_state, true);
    let (at_once, later) = two(pace).await;
    assert!((40..=48).contains(&at_once) && later <= 130, "{at_once} and {later}");
}

/// Each of them comes so rarely that time refills its budget.
#[tokio::test(start_paused = true)]
async fn however_many_keys_never_settle_they_share_a_rate() {
    let (queue, start, keys) = (queue(), Instant::now(), 2_000);
    (0..keys).for_each(|key| queue.add(key, Cause::Created));
    let (mut count, mut unthrottled) = (0, 0);
    while start.elapsed() < Duration::from_mins(10) {
        let (key, _) = queue.next().await.unwrap();
        count += 1;
        if start.elapsed() < Duration::from_secs(1) {
            unthrottled += 1;
        }
        assert!(count < 40_000, "for ever, at once");
        queue.done(&key, Outcome::FollowUp);
    }
    let rate = SelfTriggerLimits::default().rate;
    assert!(unthrottled >= 11 * keys && count - unthrottled <= 600 * rate, "{unthrottled} of {count}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_calls_back_a_key_that_waits_a_few_times() {
    let (at_once, later) = two(|_| Outcome::Failed(Duration::from_mins(1))).await;
    assert!((40..=48).contains(&at_once) && later <= 260, "{at_once} and {later}");
    let (at_once, later) = two(|_| Outcome::Postponed(Duration::from_mins(1))).await;
    assert!((40..=48).contains(&at_once) && later <= 260, "{at_once} and {later}");
}

#[tokio::test(start_paused = true)]
async fn steps_of_a_rollout_are_not_throttled() {
    let queue = queue();
    queue.add(1, Cause::Created);
    for _ in 0..100 {
        for outcome in [Outcome::NextStep, Outcome::FollowUp, Outcome::FollowUp] {
            assert_eq!(now(&queue).await, Some(1));
            queue.done(&1, outcome);
        }
    }
}

/// A hook that asks to be called again each second, and sends a write each time.
#[tokio::test(start_paused = true)]
async fn writes_in_vain_and_those_before_a_delay_are_charged() {
    let delay = Duration::from_secs(1);
    for (outcome, bound) in [
        (Outcome::NoEffect(Some(delay)), 90),
        (Outcome::PostponedAfterWrite(delay), 90),
        (Outcome::Settled(Some(delay)), 610),
    ] {
        let (queue, start) = (queue(), Instant::now());
        queue.add(1, Cause::Created);
        let mut count = 0;
        while start.elapsed() < Duration::from_mins(10) {
            let (key, _) = queue.next().await.unwrap();
            queue.done(&key, outcome);
            count += 1;
        }
        assert!(count <= bound && count >= bound / 9 * 8, "{outcome:?}: {count}");
    }
}

/// A hook that writes the time runs ten times, and then six times a minute; one that converges is never held.
#[tokio::test(start_paused = true)]
async fn a_hook_that_writes_the_time_is_rationed_and_one_that_converges_is_not() {
    let (queue, start) = (queue(), Instant::now());
    queue.add(1, Cause::Created);
    let mut count = 0;
    while start.elapsed() < Duration::from_mins(3) {
        let (key, retry_state) = queue.next().await.unwrap();
        count += 1;
        assert_eq!(matches!(retry_state.next, Pace::At(_)), count > 10, "{count}");
        queue.done(&key, Outcome::FollowUpByClock);
    }
    assert!((27..=30).contains(&count), "{count}");
    let (queue, start) = (self::queue(), Instant::now());
    for _ in 0..10 {
        queue.add(1, Cause::Related);
        for outcome in [Outcome::FollowUpByClock, Outcome::FollowUpByClock, Outcome::Settled(None)] {
            let (key, _) = queue.next().await.unwrap();
            queue.done(&key, outcome);
        }
    }
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_failed_for_long_recovers_at_once() {
    for outcome in [Outcome::Failed(Duration::from_mins(1)), Outcome::Postponed(Duration::from_mins(1))] {
        let queue = queue();
        queue.add(1, Cause::Created);
        for _ in 0..100 {
            let (key, _) = queue.next().await.unwrap();
            queue.done(&key, outcome);
            queue.add(1, Cause::Related);
        }
        queue.next().await.unwrap();
        queue.done(&1, Outcome::FollowUp);
        assert_eq!(never_settles(&queue, 8, || ()).await, [0; 8], "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_key_leaves_the_others_alone_and_idle_keys_cost_nothing() {
    let queue = queue();
    queue.add(1, Cause::Created);
    never_settles(&queue, 17, || ()).await;
    queue.add(2, Cause::Periodic);
    assert_eq!(now(&queue).await, Some(2));
    queue.done(&2, Outcome::Settled(None));
    let (key, retry_state) = queue.next().await.unwrap();
    assert_eq!((key, retry_state.failures, retry_state.self_triggered), (1, 0, true));
    assert_ne!(retry_state.next, Pace::AtOnce);
    queue.done(&1, Outcome::Settled(None));
    for (time, idle) in [(Duration::from_secs(150), false), (SWEEP_INTERVAL * 2, true)] {
        assert!(tokio::time::timeout(time, queue.next()).await.is_err());
        assert_eq!(is_empty(&queue), idle, "a budget is forgotten once it is full");
    }
}

/// The shortest delay that a hook can ask for.
#[tokio::test(start_paused = true)]
async fn a_short_resync_that_is_asked_for_once_comes_within_half_a_second() {
    let delay = Duration::from_millis(100);
    for wrote in [false, true] {
        let (queue, start) = (queue(), Instant::now());
        queue.add(1, Cause::Created);
        let (_, retry_state) = queue.next().await.unwrap();
        queue.done(&1, Outcome::of(&Ok(Changed::Nothing), Some(delay), retry_state, wrote));
        assert_eq!(queue.next().await.map(|(key, _)| key), Some(1));
        let waited = start.elapsed();
        assert!((delay..Duration::from_millis(500)).contains(&waited), "{waited:?}");
    }
}
