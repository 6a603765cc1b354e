//! Metrics of a controller: calls of its hooks and what they used, reconciles, writes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::hook::HookName;
use crate::api::policy::Limits;
use crate::api::reason::table;
use crate::api::status::CallFigures;
use crate::hash::Fingerprint;
use crate::last_calls::LastCalls;
use crate::shadow::counts::ShadowCounts;

/// Upper bounds of the buckets that calls are counted in, in seconds: from tens of microseconds to the longest timeout.
pub const BUCKETS: [f64; 16] = [
    25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 250e-3, 1.0, 2.5, 10.0,
    60.0,
];

/// The result of a call that ended well; of another it is the category of its error.
pub const OK: &str = "ok";

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

table! {
    /// One metric of the server, as it is served and documented: its name without prefix and without the suffix of a counter, its
    /// type, the label beside the controller's (empty where there is none).
    Metric: (&'static str, MetricKind, &'static str);

    /// Calls of hooks.
    HookCalls = ("hook_calls", MetricKind::Counter, "result");
    /// Reconciles.
    Reconciles = ("reconcile", MetricKind::Counter, "result");
    /// Writes to the API server that changed something.
    Writes = ("writes", MetricKind::Counter, "operation");
    /// Answers of shadows, compared with those of their hooks.
    ShadowAnswers = ("shadow_answers", MetricKind::Counter, "result");
    /// Parents that the controller is responsible for.
    Parents = ("parents", MetricKind::Gauge, "");
    /// Parents for which the last reconcile had nothing to write.
    ParentsSettled = ("parents_settled", MetricKind::Gauge, "");
    /// Parents whose last reconcile failed.
    ParentsFailing = ("parents_failing", MetricKind::Gauge, "");
    /// Parents that are paused.
    ParentsPaused = ("parents_paused", MetricKind::Gauge, "");
    /// Parents whose reconciles wait, because they ask for more deletions than a change may cause.
    ParentsHeld = ("parents_held", MetricKind::Gauge, "");
    /// Parents whose reconciles are limited, because the answers of their hook trigger one reconcile after the other.
    ParentsThrottled = ("parents_throttled", MetricKind::Gauge, "");
    /// Most memory that a call used.
    HookMemory = ("hook_memory_max_bytes", MetricKind::Gauge, "");
    /// Most instructions that a call used.
    HookInstructions = ("hook_instructions_max", MetricKind::Gauge, "");
    /// Time from a request to its answer.
    HookCallDuration = ("hook_call_duration_seconds", MetricKind::Histogram, "");
    /// 1 if the controller's condition `Ready` is `True`, else 0; `reason` is the reason of the condition. A controller that
    /// cannot start has this metric, too. A server that stands by does not have it.
    ControllerReady = ("controller_ready", MetricKind::Gauge, "reason");
    /// 1 if a hook runs its last good version, because the stored version is refused or gone.
    LastGoodInUse = ("last_good_in_use", MetricKind::Gauge, "");
    /// Versions of modules and scripts that were refused.
    VersionsRefused = ("versions_refused", MetricKind::Counter, "");
    /// Modules compiled since the server started.
    ModuleCompilations = ("module_compilations", MetricKind::Counter, "");
    /// 1 if another server hosts the same controllers and writes, too.
    OtherServers = ("other_servers", MetricKind::Gauge, "");
    /// Watches of the API server that are open.
    Watches = ("watches", MetricKind::Gauge, "");
    /// Watches of the API server that fail now, because the server cannot list or cannot watch.
    WatchesBroken = ("watches_broken", MetricKind::Gauge, "");
    /// Memory that reconciles may take at once: what `--memory-budget` leaves beside traces.
    MemoryBudget = ("memory_budget_bytes", MetricKind::Gauge, "");
    /// Memory that reconciles have reserved.
    MemoryReserved = ("memory_reserved_bytes", MetricKind::Gauge, "");
    /// Most memory that reconciles had reserved at once.
    MemoryReservedMax = ("memory_reserved_max_bytes", MetricKind::Gauge, "");
    /// Memory that the traces of the latest reconciles take.
    TraceMemory = ("trace_memory_bytes", MetricKind::Gauge, "");
    /// Memory that the traces of the latest reconciles may take; 0 where the server keeps none.
    TraceMemoryMax = ("trace_memory_max_bytes", MetricKind::Gauge, "");
    /// Memory that the caches of all watched objects may take; 0 is no limit.
    CacheBudget = ("cache_budget_bytes", MetricKind::Gauge, "");
    /// Memory that the cached objects of a kind take, estimated.
    CacheBytes = ("cache_bytes", MetricKind::Gauge, "kind");
    /// Reservations of memory that had to wait.
    MemoryWaits = ("memory_waits", MetricKind::Counter, "");
    /// Reconciles that failed because they need more memory than one reconcile may have.
    MemoryRefusals = ("memory_refusals", MetricKind::Counter, "");
}

impl Metric {
    /// The metric's name, without the suffix of a counter.
    pub fn name(self) -> String {
        format!("metahook_{}", self.row().0)
    }

    pub fn kind(self) -> MetricKind {
        self.row().1
    }

    pub fn label(self) -> &'static str {
        self.row().2
    }
}

table! {
    /// Result of a reconcile, as metrics count it.
    ReconcileResult: &'static str;

    /// The server changed something.
    Wrote = "wrote";
    /// There was nothing to change.
    Unchanged = "unchanged";
    /// Nothing had changed since the last reconcile: the server called no hook.
    Settled = "settled";
    /// Another client was faster: the server reconciles the parent again.
    Conflict = "conflict";
    /// The parent or the controller is paused: the server called no hook.
    Paused = "paused";
    /// A webhook or the API server asked the server to wait.
    Postponed = "postponed";
    /// The reconcile failed.
    Failed = "failed";
}

impl ReconcileResult {
    pub fn as_str(self) -> &'static str {
        self.row()
    }
}

/// Sums since the controller was started, the present numbers of its parents, and the figures of the calls since they were
/// reported last.
#[derive(Debug, Clone, Default)]
pub struct ControllerMetrics {
    pub calls: CallMetrics,
    pub reconciles: BTreeMap<ReconcileResult, u64>,
    /// Writes by operation.
    pub writes: BTreeMap<&'static str, u64>,
    /// Tallies of shadows, by the hook that they are compared with.
    pub shadows: BTreeMap<HookName, ShadowCounts>,
    pub parents: ParentMetrics,
}

/// Calls of a controller's hooks: their results, and the time, memory and instructions that they took.
#[derive(Debug, Clone, Default)]
pub struct CallMetrics {
    /// Calls by result.
    pub results: BTreeMap<&'static str, u64>,
    pub durations: BTreeMap<HookName, Durations>,
    pub most_memory: u64,
    pub most_instructions: u64,
    /// Figures since they were reported last, without limits.
    figures: BTreeMap<HookName, CallFigures>,
    last_calls: BTreeMap<HookName, LastCalls>,
}

/// How many parents a controller has, and how many of them are in each state.
#[derive(Debug, Clone, Copy, Default)]
pub struct ParentMetrics {
    pub all: usize,
    pub settled: usize,
    pub failing: usize,
    pub paused: usize,
    /// Parents whose reconciles wait for a user, because they ask for many deletions.
    pub held: usize,
    pub throttled: usize,
}

/// How long calls took.
#[derive(Debug, Clone, Default)]
pub struct Durations {
    pub sum: f64,
    pub count: u64,
    /// Calls by [`BUCKETS`]; each call is in one of them, or in none if it took longer.
    pub buckets: [u64; BUCKETS.len()],
}

/// One call that ended.
#[derive(Debug, Clone, Copy)]
pub struct Called {
    pub hook: HookName,
    /// The version of a module with its mounts; a webhook has none.
    pub version: Option<Fingerprint>,
    /// [`OK`], or the category of the error.
    pub result: &'static str,
    pub took: Duration,
    pub memory: u64,
    pub instructions: u64,
}

impl ControllerMetrics {
    pub fn called(&mut self, call: Called) {
        self.calls.add(call);
    }

    pub fn reconciled(&mut self, result: ReconcileResult) {
        *self.reconciles.entry(result).or_default() += 1;
    }

    /// How many reconciles ended without a call, because nothing had changed.
    pub fn skipped(&mut self, reconciles: u64) {
        *self.reconciles.entry(ReconcileResult::Settled).or_default() += reconciles;
        self.calls.figures.entry(HookName::Sync).or_default().skipped += count(reconciles);
    }

    pub fn wrote(&mut self, op: &'static str) {
        *self.writes.entry(op).or_default() += 1;
    }
}

impl CallMetrics {
    fn add(&mut self, call: Called) {
        *self.results.entry(call.result).or_default() += 1;
        self.durations.entry(call.hook).or_default().add(call.took);
        self.most_memory = self.most_memory.max(call.memory);
        self.most_instructions = self.most_instructions.max(call.instructions);
        let micros = i64::try_from(call.took.as_micros()).unwrap_or(i64::MAX);
        let figures = self.figures.entry(call.hook).or_default();
        figures.calls += 1;
        figures.failed_calls += i64::from(call.result != OK);
        figures.longest_micros = figures.longest_micros.max(micros);
        figures.memory_bytes = figures.memory_bytes.max(count(call.memory));
        figures.instructions = figures.instructions.max(count(call.instructions));
        if let Some(version) = call.version {
            self.last_calls.entry(call.hook).or_default().add(version, call.instructions);
        }
    }

    /// The median of the instructions of a version's latest calls.
    pub fn instructions_p50(&self, hook: HookName, version: Fingerprint) -> Option<i64> {
        self.last_calls.get(&hook)?.median(version).map(count)
    }

    /// How long the calls of all hooks took.
    pub fn all_durations(&self) -> Durations {
        let mut all = Durations::default();
        for of_hook in self.durations.values() {
            (all.sum, all.count) = (all.sum + of_hook.sum, all.count + of_hook.count);
            for (sum, calls) in all.buckets.iter_mut().zip(of_hook.buckets) {
                *sum += calls;
            }
        }
        all
    }

    /// The instructions of the latest calls by hook.
    pub fn instructions(&self) -> impl Iterator<Item = (HookName, impl Iterator<Item = u64>)> {
        self.last_calls.iter().map(|(hook, calls)| (*hook, calls.instructions()))
    }

    /// Takes the figures of a hook's calls; `None` if there were no calls since the last time.
    pub fn figures(&mut self, hook: HookName, limits: &Limits) -> Option<CallFigures> {
        let figures = self.figures.get_mut(&hook).filter(|figures| figures.calls > 0)?;
        Some(CallFigures {
            memory_limit_bytes: count(limits.memory),
            instructions_limit: count(limits.instructions),
            ..std::mem::take(figures)
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
    use crate::api::policy::LimitBounds;

    fn call(result: &'static str, micros: u64) -> Called {
        Called {
            hook: HookName::Sync,
            version: None,
            result,
            took: Duration::from_micros(micros),
            memory: micros,
            instructions: 2 * micros,
        }
    }

    #[test]
    fn figures_are_those_since_the_last_report() {
        let (mut counts, limits) = (ControllerMetrics::default(), LimitBounds::default().default);
        assert_eq!(counts.calls.figures(HookName::Sync, &limits), None, "nothing was called");
        (1..=100).for_each(|micros| counts.called(call(OK, micros)));
        counts.called(call("HookTrap", 5));
        counts.skipped(1);
        let figures = counts.calls.figures(HookName::Sync, &limits).unwrap();
        assert_eq!((figures.calls, figures.failed_calls, figures.skipped), (101, 1, 1));
        assert_eq!(figures.longest_micros, 100);
        assert_eq!((figures.memory_bytes, figures.memory_limit_bytes), (100, 64 << 20));
        assert_eq!((figures.instructions, figures.instructions_limit), (200, 1_000_000_000));
        assert_eq!(counts.calls.figures(HookName::Sync, &limits), None);
        assert_eq!(counts.calls.figures(HookName::Finalize, &limits), None, "another hook");
        assert_eq!(counts.calls.results, BTreeMap::from([(OK, 100), ("HookTrap", 1)]), "sums go on");
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
