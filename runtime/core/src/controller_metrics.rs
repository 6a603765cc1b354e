//! What one controller did so far: its hooks' calls and what they used, its passes, its writes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::hook::HookName;
use crate::api::limits::Limits;
use crate::api::status::CallFigures;

/// Upper bounds of the buckets that calls are counted in, in seconds: from tens of microseconds to the longest timeout.
pub const BUCKETS: [f64; 16] = [
    25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 250e-3, 1.0, 2.5, 10.0,
    60.0,
];

/// The result of a call that ended well; of another it is the category of its error.
pub const OK: &str = "ok";

/// Sums since the controller was started, and the figures of the calls since they were last told.
#[derive(Debug, Clone, Default)]
pub struct ControllerMetrics {
    /// By result.
    pub calls: BTreeMap<&'static str, u64>,
    pub durations: Durations,
    /// By what came of them.
    pub passes: BTreeMap<&'static str, u64>,
    /// By operation.
    pub writes: BTreeMap<&'static str, u64>,
    pub parents: usize,
    pub settled: usize,
    pub failing: usize,
    pub most_memory: u64,
    pub most_instructions: u64,
    since: BTreeMap<HookName, Since>,
}

/// How long calls took.
#[derive(Debug, Clone, Default)]
pub struct Durations {
    pub sum: f64,
    pub count: u64,
    /// By [`BUCKETS`]; each call is in one of them, or in none if it took longer.
    pub buckets: [u64; BUCKETS.len()],
}

/// Since figures were last told.
#[derive(Debug, Clone, Default)]
struct Since {
    calls: u64,
    failed: u64,
    skipped: u64,
    longest: Duration,
    memory: u64,
    instructions: u64,
}

/// One call that ended.
#[derive(Debug, Clone, Copy)]
pub struct Called {
    pub hook: HookName,
    /// [`OK`], or the category of the error.
    pub result: &'static str,
    pub took: Duration,
    pub memory: u64,
    pub instructions: u64,
}

impl ControllerMetrics {
    pub fn called(&mut self, call: Called) {
        *self.calls.entry(call.result).or_default() += 1;
        self.durations.add(call.took);
        self.most_memory = self.most_memory.max(call.memory);
        self.most_instructions = self.most_instructions.max(call.instructions);
        let since = self.since.entry(call.hook).or_default();
        since.calls += 1;
        since.failed += u64::from(call.result != OK);
        since.longest = since.longest.max(call.took);
        since.memory = since.memory.max(call.memory);
        since.instructions = since.instructions.max(call.instructions);
    }

    /// A pass ended; `what` came of it.
    pub fn passed(&mut self, what: &'static str) {
        *self.passes.entry(what).or_default() += 1;
    }

    /// So many passes ended without a call, because nothing had changed.
    pub fn skipped(&mut self, passes: u64) {
        *self.passes.entry("at_rest").or_default() += passes;
        self.since.entry(HookName::Sync).or_default().skipped += passes;
    }

    pub fn wrote(&mut self, op: &'static str) {
        *self.writes.entry(op).or_default() += 1;
    }

    /// A hook's calls since the last time somebody asked; `None` if there were none.
    pub fn figures(&mut self, hook: HookName, limits: &Limits) -> Option<CallFigures> {
        let since = self.since.get_mut(&hook).filter(|since| since.calls > 0)?;
        let Since { calls, failed, skipped, longest, memory, instructions } = std::mem::take(since);
        Some(CallFigures {
            calls: count(calls),
            skipped: count(skipped),
            failed: count(failed),
            longest_micros: i64::try_from(longest.as_micros()).unwrap_or(i64::MAX),
            memory_bytes: count(memory),
            memory_limit_bytes: count(limits.memory),
            instructions: count(instructions),
            instructions_limit: count(limits.instructions),
        })
    }
}

impl Durations {
    fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        (self.sum, self.count) = (self.sum + seconds, self.count + 1);
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound);
        if let Some(bucket) = bucket.and_then(|at| self.buckets.get_mut(at)) {
            *bucket += 1;
        }
    }
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::limits::LimitBounds;

    fn call(result: &'static str, micros: u64) -> Called {
        Called {
            hook: HookName::Sync,
            result,
            took: Duration::from_micros(micros),
            memory: micros,
            instructions: 2 * micros,
        }
    }

    #[test]
    fn figures_are_those_since_they_were_last_told() {
        let (mut tally, limits) = (ControllerMetrics::default(), LimitBounds::default().default);
        assert_eq!(tally.figures(HookName::Sync, &limits), None, "nothing was called");
        (1..=100).for_each(|micros| tally.called(call(OK, micros)));
        tally.called(call("HookTrap", 5));
        tally.skipped(1);
        let figures = tally.figures(HookName::Sync, &limits).unwrap();
        assert_eq!((figures.calls, figures.failed, figures.skipped), (101, 1, 1));
        assert_eq!(figures.longest_micros, 100);
        assert_eq!((figures.memory_bytes, figures.memory_limit_bytes), (100, 64 << 20));
        assert_eq!((figures.instructions, figures.instructions_limit), (200, 1_000_000_000));
        assert_eq!(tally.figures(HookName::Sync, &limits), None);
        assert_eq!(tally.figures(HookName::Finalize, &limits), None, "another hook");
        assert_eq!(tally.calls, BTreeMap::from([(OK, 100), ("HookTrap", 1)]), "sums go on");
    }

    #[test]
    fn a_call_is_in_the_first_bucket_that_holds_it() {
        let mut durations = Durations::default();
        for micros in [25, 26, 61_000_000] {
            durations.add(Duration::from_micros(micros));
        }
        assert_eq!((durations.buckets[0], durations.buckets[1], durations.count), (1, 1, 3));
        assert_eq!(durations.buckets.iter().sum::<u64>(), 2);
    }
}
