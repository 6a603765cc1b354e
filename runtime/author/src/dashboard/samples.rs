//! Samples of what servers count, for the rates and the curves of pages that are open.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use metahook_core::api::ControllerKind;
use metahook_core::overview::counts::ControllerCounts;

/// Samples of a controller: at one every three seconds, ten minutes.
const MAX_SAMPLES: usize = 200;

/// Controllers that samples are kept of.
const MAX_CONTROLLERS: usize = 1000;

/// Several tabs and several servers answer within a moment: one sample is kept of it.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The samples of a controller that no server has named for this long are dropped.
const MAX_SILENCE: Duration = Duration::from_mins(10);

/// A rate is that of so long a time before now.
const RATE_INTERVAL: Duration = Duration::from_secs(30);

/// Samples by controller.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<(ControllerKind, String), VecDeque<Sample>>);

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    reconciles: u64,
    calls: u64,
}

/// Recent rates of reconciles and calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rates {
    /// Reconciles a second, but those of settled parents; `None`: there is one sample alone.
    pub(super) reconciles: Option<f64>,
    pub(super) calls: Option<f64>,
    /// Reconciles a second between samples, the oldest first.
    pub(super) history: Vec<f64>,
}

impl Samples {
    /// Adds a sample, and gives back the rates.
    pub(super) fn add(
        &mut self,
        kind: ControllerKind,
        name: &str,
        ControllerCounts { reconciles, calls }: ControllerCounts,
        at: Instant,
    ) -> Rates {
        let sample = Sample { at, reconciles, calls };
        let id = (kind, name.to_owned());
        if !self.0.contains_key(&id) {
            self.0.retain(|_, samples| {
                samples.back().is_some_and(|last| at.duration_since(last.at) <= MAX_SILENCE)
            });
            if self.0.len() >= MAX_CONTROLLERS {
                return Rates::default();
            }
        }
        let of_one = self.0.entry(id).or_default();
        if let Some(last) = of_one.back().copied() {
            if at.duration_since(last.at) < MIN_SAMPLE_INTERVAL {
                return rates(of_one, last);
            }
            // The server counts from 0 again after a restart, and another server has its own counts.
            if last.reconciles > sample.reconciles || last.calls > sample.calls {
                of_one.clear();
            }
        }
        if of_one.len() == MAX_SAMPLES {
            of_one.pop_front();
        }
        of_one.push_back(sample);
        rates(of_one, sample)
    }
}

fn rates(samples: &VecDeque<Sample>, last: Sample) -> Rates {
    // Of a page that was not looked at for long, the rate since then.
    let young = samples.iter().find(|it| last.at.duration_since(it.at) <= RATE_INTERVAL);
    let first = young.filter(|it| it.at < last.at).or_else(|| samples.iter().rev().nth(1));
    let rate = |count: fn(&Sample) -> u64| first.and_then(|first| per_second(first, &last, count));
    let pairs = samples.iter().zip(samples.iter().skip(1));
    Rates {
        reconciles: rate(|it| it.reconciles),
        calls: rate(|it| it.calls),
        history: pairs.filter_map(|(one, next)| per_second(one, next, |it| it.reconciles)).collect(),
    }
}

fn per_second(first: &Sample, last: &Sample, count: fn(&Sample) -> u64) -> Option<f64> {
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let counted = count(last).saturating_sub(count(first)) as f64;
    (seconds > 0.0).then_some(counted / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(reconciles: u64) -> ControllerCounts {
        ControllerCounts { reconciles, calls: 2 * reconciles }
    }

    #[test]
    fn a_rate_is_that_of_the_latest_half_minute() {
        let (mut samples, start) = (Samples::default(), Instant::now());
        let mut add = |seconds, wrote| {
            let at = start + Duration::from_secs(seconds);
            samples.add(ControllerKind::Composite, "c", counts(wrote), at)
        };
        assert_eq!(add(0, 100), Rates::default());
        assert_eq!(add(10, 200).reconciles, Some(10.0));
        let rates = add(40, 260);
        assert_eq!((rates.reconciles, rates.calls, rates.history), (Some(2.0), Some(4.0), vec![10.0, 2.0]));
        assert_eq!(add(400, 260).reconciles, Some(0.0), "nothing younger than half a minute but itself");
        assert_eq!(add(401, 7), Rates::default(), "the server started anew");
    }

    #[test]
    fn two_answers_of_a_moment_are_one_sample() {
        let (mut samples, start) = (Samples::default(), Instant::now());
        let mut add = |millis, wrote| {
            let at = start + Duration::from_millis(millis);
            samples.add(ControllerKind::Composite, "c", counts(wrote), at)
        };
        add(0, 100);
        add(10, 101);
        assert_eq!(add(3000, 130).history, [10.0]);
        let other_tab = add(3001, 180);
        assert_eq!((other_tab.history, other_tab.reconciles), (vec![10.0], Some(10.0)));
        assert_eq!(add(3002, 5).history, [10.0], "another server answers in the same moment");
        assert_eq!(add(6000, 160).history, [10.0, 10.0]);
    }

    #[test]
    fn a_controller_that_is_gone_leaves_no_samples() {
        let (mut samples, start) = (Samples::default(), Instant::now());
        let mut add = |name: &str, at| samples.add(ControllerKind::Composite, name, counts(1), at);
        for number in 0..MAX_CONTROLLERS {
            add(&number.to_string(), start);
        }
        let later = start + MAX_SILENCE + Duration::from_secs(1);
        add("new", later);
        assert!(add("new", later + Duration::from_secs(3)).reconciles.is_some());
        assert_eq!(samples.0.len(), 1);
    }

    #[test]
    fn samples_are_bounded() {
        let (mut samples, now) = (Samples::default(), Instant::now());
        for number in 0..MAX_CONTROLLERS + 5 {
            samples.add(ControllerKind::Composite, &number.to_string(), counts(1), now);
        }
        assert_eq!(samples.0.len(), MAX_CONTROLLERS);
        for number in 0..u64::try_from(MAX_SAMPLES).unwrap() + 5 {
            let at = now + Duration::from_secs(3 * number);
            let rates = samples.add(ControllerKind::Composite, "0", counts(number + 1), at);
            assert!(rates.history.len() < MAX_SAMPLES);
        }
    }
}
