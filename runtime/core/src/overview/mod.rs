//! How a running controller stands, as `metahook status CONTROLLER` shows it: its parents, its queue, the calls of its hooks; which
//! parents fail and why, what others wait for, and which ones take longest.

pub mod counts;
pub mod parent_list;
pub mod reader;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::counts::ControllerCounts;
use crate::controller_metrics::{BUCKETS, CallMetrics, Durations};

/// The server's answer about a controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerAnswer {
    /// That of the server.
    pub version: String,
    /// `None`: this server does not run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<ControllerOverview>,
}

/// The server's answer about all controllers of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControllersAnswer {
    /// That of the server.
    pub version: String,
    /// Those that this server runs, by name.
    pub running: BTreeMap<String, ControllerCounts>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerOverview {
    pub parents: ParentNumbers,
    pub queue: QueueNumbers,
    pub calls: CallNumbers,
    /// Reconciles by result, since the controller was started.
    pub reconciles: BTreeMap<String, u64>,
    /// Writes by operation, since the controller was started.
    pub writes: BTreeMap<String, u64>,
    pub memory: MemoryNumbers,
    /// `None`: the user may not list the parents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<NamedParents>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentNumbers {
    pub all: usize,
    pub settled: usize,
    pub failing: usize,
    pub paused: usize,
    pub throttled: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueNumbers {
    /// Parents that wait for a worker.
    pub waiting: u64,
    /// Parents that are reconciled now.
    pub running: u64,
    /// Seconds that the longest of these reconciles has taken.
    pub longest_seconds: f64,
    /// Parents that are reconciled again after a delay.
    pub later: u64,
}

/// Calls of all hooks since the controller was started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallNumbers {
    /// By `ok`, or the category of the error.
    pub results: BTreeMap<String, u64>,
    /// Half of the calls took at most so many seconds; `None`: longer than the longest bucket, or there was no call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_seconds: Option<f64>,
    pub most_instructions: u64,
    pub most_memory: u64,
    /// Calls by how long they took: one number for each bound of [`BUCKETS`], and one for those that took longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<u64>,
    /// Calls of each hook by how long they took, as in `buckets`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hook_buckets: BTreeMap<String, Vec<u64>>,
    /// Instructions of the latest calls by hook, at most 64 each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub instructions: BTreeMap<String, Vec<u64>>,
}

/// Bytes that the server uses for all its controllers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryNumbers {
    /// Reserved by reconciles now.
    pub reserved: u64,
    pub budget: u64,
    /// Reservations that had to wait, since the server started.
    pub waits: u64,
    /// Taken by the traces of this controller, and of all.
    pub traces: usize,
    pub all_traces: usize,
    pub max_traces: usize,
    /// Taken by the objects that the server keeps for all controllers, and their bound.
    #[serde(default)]
    pub caches: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_caches: Option<u64>,
}

/// Parents by name, with the messages of their latest reconciles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedParents {
    /// The largest group first.
    pub failing: Vec<ParentGroup>,
    /// Parents that are reconciled one by one, since each of their reconciles triggers the next one; the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttled: Vec<ThrottledParent>,
    /// Parents whose latest reconcile is repeated without an Event, or left a child that is not as wanted.
    pub waiting: Vec<ParentGroup>,
    /// The latest reconciles that took longest.
    pub slowest: Vec<SlowParent>,
}

/// Parents with the same message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentGroup {
    /// The category of a failure; empty for what waits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// Message of the first parent; empty where the server no longer remembers it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub count: usize,
    /// When the latest reconcile of them began, in RFC 3339; empty where the server remembers none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last: String,
    /// The first of them.
    pub parents: Vec<String>,
}

/// A parent that has to wait, since its reconciles triggered each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThrottledParent {
    pub parent: String,
    /// Reason why the parent does not settle.
    pub why: String,
    /// Milliseconds until its next reconcile; `None`: it is due, or runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_millis: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlowParent {
    pub parent: String,
    pub took_us: u64,
    /// When it began, in RFC 3339.
    pub began: String,
}

impl CallNumbers {
    pub fn of(metrics: &CallMetrics) -> Self {
        let durations = metrics.all_durations();
        Self {
            results: metrics.results.iter().map(|(result, calls)| ((*result).to_owned(), *calls)).collect(),
            p50_seconds: within(&durations, 0.5),
            p99_seconds: within(&durations, 0.99),
            most_instructions: metrics.most_instructions,
            most_memory: metrics.most_memory,
            buckets: buckets(&durations),
            hook_buckets: metrics
                .durations
                .iter()
                .map(|(hook, durations)| (hook.to_string(), buckets(durations)))
                .collect(),
            instructions: metrics
                .instructions()
                .map(|(hook, calls)| (hook.to_string(), calls.collect()))
                .collect(),
        }
    }
}

/// Nothing where there was no call.
fn buckets(durations: &Durations) -> Vec<u64> {
    if durations.count == 0 {
        return Vec::new();
    }
    let longer = durations.count.saturating_sub(durations.buckets.iter().sum());
    durations.buckets.iter().copied().chain([longer]).collect()
}

/// The bound of the bucket up to which there is this share of the calls.
fn within(durations: &Durations, share: f64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share of calls")]
    let wanted = durations.count as f64 * share;
    let mut calls = 0;
    let mut bounds = durations.buckets.iter().zip(BUCKETS);
    let reaches = |(of_bucket, bound): (&u64, f64)| {
        calls += of_bucket;
        #[expect(clippy::cast_precision_loss, reason = "a share of calls")]
        let is_reached = calls > 0 && calls as f64 >= wanted;
        is_reached.then_some(bound)
    };
    bounds.find_map(reaches)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::hook::HookName;
    use crate::controller_metrics::{Called, ControllerMetrics};

    #[test]
    fn calls_are_counted_by_how_long_they_took_for_each_hook_and_for_all() {
        let mut metrics = ControllerMetrics::default();
        for (hook, took) in [(HookName::Sync, 0), (HookName::Sync, 600), (HookName::Finalize, 0)] {
            let took = Duration::from_secs(took);
            metrics.called(Called { hook, version: None, result: "ok", took, memory: 0, instructions: 0 });
        }
        let calls = CallNumbers::of(&metrics.calls);
        let ends = |buckets: &[u64]| (buckets.first().copied(), buckets.last().copied());
        assert_eq!(ends(&calls.buckets), (Some(2), Some(1)));
        assert_eq!(ends(&calls.hook_buckets["sync"]), (Some(1), Some(1)));
        assert_eq!(ends(&calls.hook_buckets["finalize"]), (Some(1), Some(0)));
    }

    #[test]
    fn a_share_of_calls_is_within_the_bound_of_its_bucket() {
        let mut durations = Durations::default();
        assert_eq!(within(&durations, 0.5), None);
        (durations.buckets[0], durations.buckets[3], durations.count) = (99, 1, 100);
        let shares = [0.5, 0.99, 0.991].map(|share| within(&durations, share));
        assert_eq!(shares, [Some(BUCKETS[0]), Some(BUCKETS[0]), Some(BUCKETS[3])]);
        durations.count = 1000;
        assert_eq!(within(&durations, 0.5), None, "longer than the longest bucket");
    }

    #[test]
    fn each_call_is_in_one_bucket_or_longer_than_all() {
        let mut durations = Durations::default();
        assert_eq!(buckets(&durations), [0; 0]);
        (durations.buckets[1], durations.count) = (2, 5);
        let buckets = buckets(&durations);
        assert_eq!((buckets.len(), buckets[1], buckets.last()), (BUCKETS.len() + 1, 2, Some(&3)));
    }
}
