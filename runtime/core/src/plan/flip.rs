//! A value that comes back however often it is put right: noticed, and put right less and less often.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::json::difference::Difference;

/// So often a value is put right at once.
const AT_ONCE: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// What comes back later than this is no flip.
const FORGOTTEN: Duration = Duration::from_mins(15);

/// What somebody else keeps changing in one child. Times are since the server's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flip {
    paths: BTreeSet<String>,
    times: u32,
    last: Duration,
}

impl Flip {
    /// `drift` was put right at `now`.
    #[must_use]
    pub fn put_right(before: Option<&Self>, drift: &[Difference], now: Duration) -> Self {
        let paths: BTreeSet<_> = drift.iter().map(|difference| difference.path.clone()).collect();
        if let Some(before) = before.filter(|before| now.saturating_sub(before.last) < FORGOTTEN) {
            let again: BTreeSet<_> = before.paths.intersection(&paths).cloned().collect();
            if !again.is_empty() {
                return Self { paths: again, times: before.times.saturating_add(1), last: now };
            }
        }
        Self { paths, times: 1, last: now }
    }

    /// How long `drift` is left alone from `now` on; `None` where it is put right at once.
    pub fn wait(&self, drift: &[Difference], now: Duration) -> Option<Duration> {
        let known = drift.iter().all(|difference| self.paths.contains(&difference.path));
        let due = self.last + self.pause()?;
        (known && now < due).then(|| due.saturating_sub(now))
    }

    /// The places, once they are worth a word.
    pub fn noticed(&self) -> Option<&BTreeSet<String>> {
        self.pause().map(|_| &self.paths)
    }

    fn pause(&self) -> Option<Duration> {
        let doublings = self.times.checked_sub(AT_ONCE)?.min(16);
        Some((FIRST_PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drift(paths: &[&str]) -> Vec<Difference> {
        let difference =
            |path: &&str| Difference { path: (*path).to_owned(), wanted: json!(1), found: json!(2) };
        paths.iter().map(difference).collect()
    }

    fn after(times: u32, every: Duration) -> (Flip, Duration) {
        let mut flip = Flip::put_right(None, &drift(&["a"]), Duration::ZERO);
        for time in 1..times {
            flip = Flip::put_right(Some(&flip), &drift(&["a", "b"]), every * time);
        }
        (flip, every * (times - 1))
    }

    #[test]
    fn a_value_is_put_right_at_once_a_few_times_and_then_less_and_less_often() {
        let second = Duration::from_secs(1);
        let (flip, now) = after(AT_ONCE - 1, second);
        assert_eq!((flip.wait(&drift(&["a"]), now), flip.noticed()), (None, None));
        let (flip, now) = after(AT_ONCE, second);
        assert_eq!(flip.wait(&drift(&["a"]), now), Some(FIRST_PAUSE));
        assert_eq!(flip.noticed(), Some(&BTreeSet::from(["a".to_owned()])));
        assert_eq!(flip.wait(&drift(&["a"]), now + FIRST_PAUSE), None);
        let (flip, now) = after(AT_ONCE + 1, second);
        assert_eq!(flip.wait(&drift(&["a"]), now), Some(2 * FIRST_PAUSE));
        let (flip, now) = after(1000, second);
        assert_eq!(flip.wait(&drift(&["a"]), now), Some(LONGEST_PAUSE));
    }

    #[test]
    fn another_value_does_not_wait() {
        let (flip, now) = after(AT_ONCE, Duration::from_secs(1));
        assert_eq!(flip.wait(&drift(&["a", "c"]), now), None);
    }

    #[test]
    fn what_comes_back_rarely_is_no_flip() {
        let (flip, now) = after(100, FORGOTTEN);
        assert_eq!((flip.wait(&drift(&["a"]), now), flip.noticed()), (None, None));
    }
}
