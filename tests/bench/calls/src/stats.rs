//! Times of calls, and their percentiles.

use anyhow::{Context, Result};

/// Times of single calls in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Times(Vec<u64>);

impl Times {
    /// Numbers with spaces between them.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let number =
            |word: &str| word.parse().with_context(|| format!("{word:?} is no number of nanoseconds"));
        text.split_whitespace().map(number).collect::<Result<_>>().map(Self)
    }

    /// As the meter printed them.
    pub(crate) fn numbers(&self) -> &[u64] {
        &self.0
    }

    pub(crate) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// In microseconds, the smallest time that `percent` of all do not exceed; 0 of none.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(rank).map_or(0.0, |time| micros(*time))
    }

    pub(crate) fn p50(&self) -> f64 {
        self.percentile(50)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.percentile(99)
    }
}

/// Tenths of a microsecond are the last that mean something.
#[expect(clippy::cast_precision_loss, reason = "what is lost is less than a nanosecond")]
pub(crate) fn micros(nanoseconds: u64) -> f64 {
    (nanoseconds as f64 / 100.0).round() / 10.0
}

/// How many of `other` one is, to three digits.
pub(crate) fn ratio(one: f64, other: f64) -> f64 {
    (one / other * 1000.0).round() / 1000.0
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is rounded is equal or wrong")]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let times = Times((1..=200).rev().map(|micros| micros * 1000).collect());
        assert_eq!((times.p50(), times.p99(), times.percentile(100)), (100.0, 198.0, 200.0));
        let one = Times(vec![1250]);
        assert_eq!((one.p50(), one.p99()), (1.3, 1.3));
        assert_eq!(Times::default().p99(), 0.0);
    }

    #[test]
    fn times_are_read_as_a_meter_prints_them() {
        let mut times = Times::parse("3000 1000 ").unwrap();
        times.extend(Times::parse("2000").unwrap());
        assert_eq!(times, Times(vec![3000, 1000, 2000]));
        assert_eq!(times.p50(), 2.0);
        assert_eq!(Times::parse("").unwrap(), Times::default());
        assert_eq!(Times::parse("1 x").unwrap_err().to_string(), "\"x\" is no number of nanoseconds");
    }

    #[test]
    fn a_ratio_has_three_digits() {
        assert_eq!(ratio(1.0, 3.0), 0.333);
        assert_eq!(ratio(2.0, 0.5), 4.0);
    }
}
