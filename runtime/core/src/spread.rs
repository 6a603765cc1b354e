//! When each of many parents is looked at that all have to be looked at again.

use std::time::Duration;

/// So many at once.
const AT_ONCE: usize = 100;

/// The last of them waits no longer, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// From one to the next where there are few, in nanoseconds: a hundred in a second.
const APART: u64 = 10_000_000;

/// How long the `nth` of `total` waits, counted from 0: not at all up to a hundred, then evenly.
pub fn delay(nth: usize, total: usize) -> Duration {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let place = count(nth.saturating_add(1).saturating_sub(AT_ONCE));
    let late = count(total.saturating_sub(AT_ONCE)).max(1);
    Duration::from_nanos(place.saturating_mul(APART.min(LONGEST / late)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_wait_for_nobody() {
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
