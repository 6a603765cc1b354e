//! Spreading of resyncs: the delay of each of many parents that are all to be reconciled again.

use std::time::Duration;

/// Reconciles that start without delay.
const AT_ONCE: usize = 100;

/// Delay of the last one, in nanoseconds.
const MAX_DELAY: u64 = 60_000_000_000;

/// Delay between two where there are few, in nanoseconds: a hundred in a second.
const MAX_INTERVAL: u64 = 10_000_000;

/// How long the `nth` of `total` waits, counted from 0: not at all up to a hundred, then evenly.
pub fn delay(nth: usize, total: usize) -> Duration {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let place = count(nth.saturating_add(1).saturating_sub(AT_ONCE));
    let late = count(total.saturating_sub(AT_ONCE)).max(1);
    Duration::from_nanos(place.saturating_mul(MAX_INTERVAL.min(MAX_DELAY / late)))
}

/// The passes of one period: so many together, and as many after a pause, so that all have had their turn when it is over.
#[derive(Debug)]
pub struct ResyncRounds {
    together: usize,
    pause: Duration,
    /// So many more in this round.
    left: usize,
    round: u32,
}

impl ResyncRounds {
    /// For at most `total` passes.
    pub fn new(total: usize, period: Duration) -> Self {
        let pause = (period / 10).clamp(Duration::from_millis(1), Duration::from_secs(1));
        let rounds = usize::try_from(period.as_nanos() / pause.as_nanos()).unwrap_or(usize::MAX).max(1);
        let together = total.div_ceil(rounds).max(1);
        Self { together, pause, left: together, round: 0 }
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

    fn over(total: usize, period: Duration) -> (usize, Duration) {
        let ResyncRounds { together, pause, .. } = ResyncRounds::new(total, period);
        (together, pause)
    }

    #[test]
    fn a_resync_takes_its_period() {
        let millis = Duration::from_millis;
        assert_eq!(over(2_000, millis(1_000)), (200, millis(100)));
        assert_eq!(over(1, millis(1_000)), (1, millis(100)));
        assert_eq!(over(18_001, Duration::from_mins(30)), (11, millis(1_000)));
    }

    proptest! {
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
        assert!((0..100).all(|nth| delay(nth, 100).is_zero() && delay(nth, 1_000_000).is_zero()));
    }

    #[test]
    fn a_few_more_follow_a_hundred_in_a_second() {
        assert_eq!((delay(100, 101), delay(199, 200)), (Duration::from_millis(10), Duration::from_secs(1)));
    }

    #[test]
    fn any_number_is_through_after_a_minute_and_evenly() {
        let minute = Duration::from_mins(1);
        assert_eq!([6_100, 60_100].map(|total| delay(total - 1, total)), [minute, minute]);
        assert_eq!(delay(30_099, 60_100), minute / 2);
        for total in [101, 150, 5_000, 60_100] {
            let delays: Vec<_> = (0..total).map(|nth| delay(nth, total)).collect();
            assert!(delays.is_sorted() && delays[total - 1] <= minute, "{total}");
        }
    }
}
