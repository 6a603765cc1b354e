//! Instructions of the latest calls of a hook's version, and their median.

use std::collections::VecDeque;

use crate::hash::Fingerprint;

/// Calls that are remembered.
const MAX_CALLS: usize = 64;

/// The latest calls of one version of a hook. Calls of another version take their place.
#[derive(Debug, Clone, Default)]
pub struct LastCalls {
    version: Option<Fingerprint>,
    instructions: VecDeque<u64>,
}

impl LastCalls {
    /// Remembers a call. One that never began used no instructions, and says nothing.
    pub fn add(&mut self, version: Fingerprint, instructions: u64) {
        if instructions == 0 {
            return;
        }
        if self.version != Some(version) {
            *self = Self { version: Some(version), instructions: VecDeque::new() };
        }
        if self.instructions.len() == MAX_CALLS {
            self.instructions.pop_front();
        }
        self.instructions.push_back(instructions);
    }

    /// The oldest first.
    pub fn instructions(&self) -> impl Iterator<Item = u64> {
        self.instructions.iter().copied()
    }

    /// The median of a version's calls, to two digits, so that it does not change all the time; of an even number the lower one.
    pub fn median(&self, version: Fingerprint) -> Option<u64> {
        if self.version != Some(version) {
            return None;
        }
        let mut sorted: Vec<_> = self.instructions.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len().checked_sub(1)? / 2).copied().map(two_digits)
    }
}

/// The number, rounded to two significant digits.
fn two_digits(number: u64) -> u64 {
    let digits = number.checked_ilog10().unwrap_or_default();
    let unit = 10_u64.pow(digits.saturating_sub(1));
    number.saturating_add(unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_digits() {
        let cases = [
            (0, 0),
            (7, 7),
            (99, 99),
            (104, 100),
            (105, 110),
            (999, 1000),
            (123_456, 120_000),
            (1_999_999, 2_000_000),
        ];
        for (number, rounded) in cases {
            assert_eq!(two_digits(number), rounded, "{number}");
        }
        assert_eq!(two_digits(u64::MAX), 18_000_000_000_000_000_000);
    }

    #[test]
    fn the_median_is_that_of_the_latest_calls_of_a_version() {
        let (one, other) = (Fingerprint::of(b"one"), Fingerprint::of(b"other"));
        let mut calls = LastCalls::default();
        assert_eq!(calls.median(one), None);
        calls.add(one, 0);
        assert_eq!(calls.median(one), None, "none began");
        (1..=3).for_each(|count| calls.add(one, count * 100));
        assert_eq!((calls.median(one), calls.median(other)), (Some(200), None));
        (0..64).for_each(|_| calls.add(one, 5000));
        assert_eq!(
            (calls.median(one), calls.instructions.len()),
            (Some(5000), 64),
            "earlier ones are forgotten"
        );
        calls.add(other, 70);
        assert_eq!((calls.median(one), calls.median(other)), (None, Some(70)));
    }
}
