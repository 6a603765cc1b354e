//! Status of a controller object as it is stored: conditions, modules, counts of parents.

mod attention;
mod earlier;
mod report;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use attention::{Attention, attention};
pub use report::{
    Finding, LAST_SEEN_INTERVAL, ModuleChange, ParentCounts, Report, is_released, next, purity, released,
    seen_again,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    pub observed_generation: Option<i64>,
    /// When a server wrote this status last: at most five minutes ago while one hosts the controller.
    pub last_seen: Option<String>,
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// By name of the hook: the module that is called.
    #[serde(default)]
    pub hooks: BTreeMap<String, HookStatus>,
    /// Objects this controller is responsible for.
    pub parents: Option<i64>,
    /// Parents for which the last reconcile had nothing to write.
    pub settled: Option<i64>,
    /// Parents whose last reconcile failed.
    pub failing: Option<i64>,
    /// Parents that are paused.
    pub paused: Option<i64>,
    /// Deletions after a change of the hooks or of the spec.
    #[serde(default)]
    pub deletions: DeletionStatus,
    /// By name of the hook: how the answers of its shadow compare.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shadows: BTreeMap<String, ShadowStatus>,
}

/// Answers of a shadow since the controller or the shadow's module started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowStatus {
    /// From which the same follows as from the hook's own.
    pub equal: i64,
    pub different: i64,
    /// There was no answer that could be carried out.
    pub failed: i64,
    /// Not asked for, as too many others were waiting, or for want of memory.
    pub dropped: i64,
    /// Differing fields, the most frequent first; at most ten.
    #[serde(default)]
    pub differences: Vec<ShadowDifference>,
    /// The latest failure, and the object that the hook was asked about.
    pub failure: Option<String>,
}

/// One place in which answers differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowDifference {
    /// Such as `ConfigMap.v1: data.mode`, or `status.phase`.
    pub path: String,
    /// Answers that differ there.
    pub count: i64,
    /// An object that the hook was asked about.
    pub example: String,
}

/// State of the deletion brake, for a server that starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletionStatus {
    /// Digest of the hooks and the spec with which all parents settled last.
    pub accepted: Option<String>,
    /// Deletions that followed from the latest changes.
    pub deleted: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStatus {
    /// `sha256:` and the hexadecimal digest of the module.
    pub digest: Option<String>,
    /// The first twelve digits of it.
    pub short_digest: Option<String>,
    /// Bytes of the module.
    pub size: Option<i64>,
    /// `sha256:` and the digest of the interpreter that runs a script.
    pub runner: Option<String>,
    pub loaded_at: Option<String>,
    pub compile_millis: Option<i64>,
    /// No call has read the real time so far.
    pub pure: Option<bool>,
    /// Of the latest five minutes in which there were calls.
    pub latest: Option<CallFigures>,
    /// Median of the instructions of the latest calls of this version, at most 64, to two digits. Written along with other changes.
    #[serde(rename = "instructionsP50")]
    pub instructions_p50: Option<i64>,
    /// Versions that ran before, the newest first; at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierVersion>,
}

impl HookStatus {
    /// The median of the instructions, never above the most that a call is shown to have used: the median is rounded.
    pub fn shown_median(&self) -> Option<i64> {
        let most = self.latest.as_ref().map(|latest| latest.instructions).filter(|most| *most > 0);
        self.instructions_p50.map(|median| most.map_or(median, |most| median.min(most)))
    }
}

/// A version of a hook that ran before, with its last figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EarlierVersion {
    /// `sha256:` and the hexadecimal digest of the module.
    pub digest: String,
    /// Parents of the controller whose last reconcile had failed when another version took its place.
    pub parents_failing: Option<i64>,
    /// Median of the instructions of its latest calls.
    #[serde(rename = "instructionsP50")]
    pub instructions_p50: Option<i64>,
}

/// Calls of one hook, and the most that one of them used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallFigures {
    /// Calls in these five minutes, also several about one parent.
    pub calls: i64,
    /// Triggers that ended without a call, because nothing had changed.
    pub skipped: i64,
    /// Those of the calls that failed. `status.failing` counts parents, as they are now.
    pub failed_calls: i64,
    pub longest_micros: i64,
    pub memory_bytes: i64,
    pub memory_limit_bytes: i64,
    pub instructions: i64,
    pub instructions_limit: i64,
    /// The end of these five minutes.
    pub until: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: String,
    pub observed_generation: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_shown_as_the_most_at_most() {
        let shown = |median, most| {
            let latest = CallFigures { instructions: most, ..CallFigures::default() };
            let hook = HookStatus { instructions_p50: median, latest: Some(latest), ..HookStatus::default() };
            hook.shown_median()
        };
        assert_eq!(shown(Some(61_000), 60_900), Some(60_900), "the median is rounded");
        assert_eq!(shown(Some(60_000), 60_900), Some(60_000));
        assert_eq!(shown(Some(60_000), 0), Some(60_000), "no call used any");
        assert_eq!(shown(None, 60_900), None);
    }
}
