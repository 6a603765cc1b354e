//! Pacing: the rate limiter, the spreading of resyncs, the lanes of queues, what Events are written, the budgets of memory and of
//! self-triggered reconciles.

pub mod events;
pub mod lanes;
pub mod memory;
pub mod pages;
pub mod self_triggered;
pub mod shares;
pub mod turns;

use std::time::Duration;

/// A limit: a burst at once, then a number of requests per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    pub burst: u32,
}

/// Token bucket that limits requests to a rate. Times are those since the limiter was made.
#[derive(Debug)]
pub struct RateLimiter {
    rate: Rate,
    /// Below zero where requests wait.
    tokens: f64,
    last: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    #[error("write a number of requests in a second, such as 20 or 0.5; a number below 0 is no limit")]
    PerSecond,
    #[error("write a number of requests from 1 on")]
    Burst,
}

impl Rate {
    /// The rate that client-go assumes where one of the two is left out.
    const USUAL: Self = Self { per_second: 5.0, burst: 10 };

    /// The rate that client-go assumes for Events about one object: 25 at once, then one in 5 minutes.
    pub const OF_EVENTS: Self = Self { per_second: 1.0 / 300.0, burst: 25 };

    /// The rate of Events as client-go reads its settings: 0 is the usual.
    pub fn of_events(per_second: Option<f64>, burst: Option<u32>) -> Self {
        Self {
            per_second: per_second.filter(|rate| *rate > 0.0).unwrap_or(Self::OF_EVENTS.per_second),
            burst: burst.filter(|burst| *burst > 0).unwrap_or(Self::OF_EVENTS.burst),
        }
    }

    /// The rate as client-go reads its settings: without both there is no limit here, below 0 there is none, and 0 is
    /// the usual.
    pub fn of(per_second: Option<f64>, burst: Option<u32>) -> Result<Option<Self>, RateError> {
        if per_second.is_none() && burst.is_none() {
            return Ok(None);
        }
        let per_second = per_second.unwrap_or_default();
        let burst = burst.unwrap_or(Self::USUAL.burst);
        if !per_second.is_finite() {
            return Err(RateError::PerSecond);
        }
        if burst == 0 {
            return Err(RateError::Burst);
        }
        if per_second < 0.0 {
            return Ok(None);
        }
        let per_second = if per_second > 0.0 { per_second } else { Self::USUAL.per_second };
        Ok(Some(Self { per_second, burst }))
    }
}

impl RateLimiter {
    pub fn new(rate: Rate) -> Self {
        Self { rate, tokens: f64::from(rate.burst), last: Duration::ZERO }
    }

    /// Takes a token and returns how long the request waits.
    pub fn take(&mut self, now: Duration) -> Duration {
        self.fill(now);
        self.tokens -= 1.0;
        self.time_for(-self.tokens)
    }

    /// How long it takes until there is a token.
    pub fn wait(&mut self, now: Duration) -> Duration {
        self.fill(now);
        self.time_for(1.0 - self.tokens)
    }

    fn fill(&mut self, now: Duration) {
        let since = now.saturating_sub(self.last).as_secs_f64();
        self.last = self.last.max(now);
        self.tokens = (self.tokens + since * self.rate.per_second).min(f64::from(self.rate.burst));
    }

    fn time_for(&self, missing: f64) -> Duration {
        Duration::try_from_secs_f64(missing.max(0.0) / self.rate.per_second).unwrap_or(Duration::MAX)
    }
}

/// Reconciles that start without delay.
const AT_ONCE: usize = 100;

/// Delay of the last one, in nanoseconds.
const MAX_DELAY: u64 = 60_000_000_000;

/// Delay between two where there are few, in nanoseconds: a hundred in a second.
const MAX_INTERVAL: u64 = 10_000_000;

/// How long the `nth` of `total` waits, counted from 0: not at all up to a hundred, then evenly.
pub fn resync_delay(nth: usize, total: usize) -> Duration {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let place = count(nth.saturating_add(1).saturating_sub(AT_ONCE));
    let late = count(total.saturating_sub(AT_ONCE)).max(1);
    Duration::from_nanos(place.saturating_mul(MAX_INTERVAL.min(MAX_DELAY / late)))
}

/// Parents whose writes the API server refuses for want of a right are tried again so soon at the latest, as a user may grant it
/// at any time: of `failing` parents of a controller five in a second.
pub fn ungranted_delay(failing: usize) -> Duration {
    let failing = u32::try_from(failing).unwrap_or(u32::MAX);
    (Duration::from_secs(1) / 5).saturating_mul(failing).max(Duration::from_secs(4))
}

/// The reconciles of one resync period: so many together, and as many after each pause, until all are through at its end.
#[derive(Debug)]
pub struct ResyncRounds {
    together: usize,
    pause: Duration,
    /// How many more are left in this round.
    left: usize,
    round: u32,
}

impl ResyncRounds {
    /// For at most `total` reconciles.
    pub fn new(total: usize, period: Duration) -> Self {
        let pause = (period / 10).clamp(Duration::from_millis(1), Duration::from_secs(1));
        let rounds = usize::try_from(period.as_nanos() / pause.as_nanos()).unwrap_or(usize::MAX).max(1);
        let together = total.div_ceil(rounds).max(1);
        Self { together, pause, left: together, round: 0 }
    }

    /// When the first period of `total` parents begins, counted from the start of their controller, which reconciled them: each
    /// has its first resync when one period is over, and not much before where they are few.
    pub fn first_start(total: usize, period: Duration) -> Duration {
        let Self { together, pause, .. } = Self::new(total, period);
        let rounds = u32::try_from(total.div_ceil(together)).unwrap_or(u32::MAX);
        period.saturating_sub(pause.saturating_mul(rounds))
    }

    /// How many of those that wait may go now, and when the others may, counted from the beginning of the period.
    pub fn next(&mut self, waiting: usize) -> (usize, Duration) {
        let now = self.left.min(waiting);
        self.left -= now;
        if self.left == 0 {
            (self.left, self.round) = (self.together, self.round.saturating_add(1));
        }
        (now, self.pause.saturating_mul(self.round))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn waits(limiter: &mut RateLimiter, now: u64, times: usize) -> Vec<u128> {
        (0..times).map(|_| limiter.take(Duration::from_millis(now)).as_millis()).collect()
    }

    #[test]
    fn a_burst_waits_for_nothing_and_the_rest_in_turn() {
        let rate = Rate::of(Some(10.0), Some(3)).unwrap().unwrap();
        let mut limiter = RateLimiter::new(rate);
        assert_eq!(waits(&mut limiter, 0, 5), [0, 0, 0, 100, 200]);
        assert_eq!(waits(&mut limiter, 200, 1), [100], "those before it are still waiting");
        assert_eq!(waits(&mut limiter, 10_000, 4), [0, 0, 0, 100], "never more at once than the burst");
        assert_eq!(waits(&mut limiter, 9_000, 1), [200], "time that goes back gives nothing");
    }

    #[test]
    fn what_is_left_out_is_as_usual_and_nothing_given_is_no_limit() {
        assert_eq!(Rate::of(None, None), Ok(None));
        assert_eq!(Rate::of(Some(-1.0), Some(7)), Ok(None));
        assert_eq!(Rate::of(Some(20.0), None), Ok(Some(Rate { per_second: 20.0, burst: 10 })));
        assert_eq!(Rate::of(None, Some(7)), Ok(Some(Rate { per_second: 5.0, burst: 7 })));
        assert_eq!(Rate::of(Some(0.0), Some(7)), Ok(Some(Rate { per_second: 5.0, burst: 7 })));
        assert_eq!(Rate::of(Some(f64::NAN), None), Err(RateError::PerSecond));
        assert_eq!(Rate::of(Some(1.0), Some(0)), Err(RateError::Burst));
    }

    #[test]
    fn a_rate_next_to_nothing_waits_as_long_as_there_is_time() {
        let mut limiter = RateLimiter::new(Rate::of(Some(f64::MIN_POSITIVE), Some(1)).unwrap().unwrap());
        assert_eq!(
            (limiter.take(Duration::ZERO), limiter.take(Duration::ZERO)),
            (Duration::ZERO, Duration::MAX)
        );
    }

    #[test]
    fn a_token_is_waited_for_without_being_taken() {
        let mut limiter = RateLimiter::new(Rate { per_second: 20.0, burst: 5 });
        let second = Duration::from_secs;
        assert_eq!(waits(&mut limiter, 1_000, 5), [0; 5]);
        assert_eq!([(); 2].map(|()| limiter.wait(second(1)).as_millis()), [50, 50]);
        assert!(limiter.wait(second(2)).is_zero());
    }

    fn over(total: usize, period: Duration) -> (usize, Duration) {
        let ResyncRounds { together, pause, .. } = ResyncRounds::new(total, period);
        (together, pause)
    }

    #[test]
    fn what_waits_for_a_right_is_tried_every_few_seconds_and_not_all_at_once() {
        assert_eq!(
            [0, 1, 20, 21, 5_000].map(|n| ungranted_delay(n).as_millis()),
            [4_000, 4_000, 4_000, 4_200, 1_000_000]
        );
        assert!(ungranted_delay(usize::MAX) > Duration::from_hours(1), "another delay counts then");
    }

    #[test]
    fn a_resync_takes_its_period() {
        let millis = Duration::from_millis;
        assert_eq!(over(2_000, millis(1_000)), (200, millis(100)));
        assert_eq!(over(1, millis(1_000)), (1, millis(100)));
        assert_eq!(over(18_001, Duration::from_mins(30)), (11, millis(1_000)));
    }

    #[test]
    fn the_first_resync_of_a_few_parents_comes_when_the_period_is_over() {
        let first = |total| ResyncRounds::first_start(total, Duration::from_mins(30));
        assert_eq!([0, 1, 2].map(first), [1800, 1799, 1798].map(Duration::from_secs));
        assert!(first(18_001) < Duration::from_mins(3), "and of many it began long before");
        assert_eq!(ResyncRounds::first_start(1_000, Duration::from_secs(1)), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn the_first_resync_of_each_parent_comes_within_one_period(total in 0..100_000_usize, seconds in 1..100_000_u64) {
            let period = Duration::from_secs(seconds);
            let (first, mut rounds) = (ResyncRounds::first_start(total, period), ResyncRounds::new(total, period));
            let (mut waiting, mut last) = (total, Duration::ZERO);
            while waiting > 0 {
                let (now, next) = rounds.next(waiting);
                waiting -= now;
                last = if waiting > 0 { next } else { last };
            }
            prop_assert!(first + last <= period, "{:?}", first + last);
        }

        #[test]
        fn all_have_had_their_turn_when_the_period_is_over_however_they_come(
            chunks in prop::collection::vec(0..300_usize, 0..50), more in 0..1_000_usize, seconds in 1..100_000_u64,
        ) {
            let (period, all) = (Duration::from_secs(seconds), chunks.iter().sum::<usize>());
            let mut rounds = ResyncRounds::new(all + more, period);
            let (mut at, mut went) = (Duration::ZERO, BTreeMap::new());
            for mut waiting in chunks {
                while waiting > 0 {
                    prop_assert!(at < period);
                    let (now, next) = rounds.next(waiting);
                    prop_assert!(now > 0 && next >= at);
                    *went.entry(at).or_insert(0) += now;
                    (waiting, at) = (waiting - now, next);
                }
            }
            prop_assert_eq!(went.values().sum::<usize>(), all);
            prop_assert!(went.values().all(|together| *together <= rounds.together), "{went:?}");
        }
    }

    #[test]
    fn the_first_hundred_start_at_once() {
        assert!(
            (0..100).all(|nth| resync_delay(nth, 100).is_zero() && resync_delay(nth, 1_000_000).is_zero())
        );
    }

    #[test]
    fn a_few_more_follow_a_hundred_in_a_second() {
        assert_eq!(
            (resync_delay(100, 101), resync_delay(199, 200)),
            (Duration::from_millis(10), Duration::from_secs(1))
        );
    }

    #[test]
    fn any_number_is_through_after_a_minute_and_evenly() {
        let minute = Duration::from_mins(1);
        assert_eq!([6_100, 60_100].map(|total| resync_delay(total - 1, total)), [minute, minute]);
        assert_eq!(resync_delay(30_099, 60_100), minute / 2);
        for total in [101, 150, 5_000, 60_100] {
            let delays: Vec<_> = (0..total).map(|nth| resync_delay(nth, total)).collect();
            assert!(delays.is_sorted() && delays[total - 1] <= minute, "{total}");
        }
    }
}
