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

/// What the server reports about the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// The generation of the spec that the server runs.
    pub observed_generation: Option<i64>,
    /// When a server wrote this status last: at most five minutes ago while one runs the controller.
    pub last_seen: Option<String>,
    /// The conditions of the controller; see the reference of conditions.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The modules and scripts that the server calls, by the name of the hook.
    #[serde(default)]
    pub hooks: BTreeMap<String, HookStatus>,
    /// Number of parents of the controller.
    pub parents: Option<i64>,
    /// Number of parents for which the last reconcile had nothing to write.
    pub settled: Option<i64>,
    /// Number of parents whose last reconcile failed.
    pub failing: Option<i64>,
    /// Number of parents that are paused.
    pub paused: Option<i64>,
    /// Deletions after a change of the hooks or of the spec.
    #[serde(default)]
    pub deletions: DeletionStatus,
    /// How the answers of shadows compare with those of their hooks, by the name of the hook.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shadows: BTreeMap<String, ShadowStatus>,
}

/// Answers of a shadow since the controller or the shadow's module started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowStatus {
    /// Answers with the same effect as the hook's.
    pub equal: i64,
    /// Answers with another effect than the hook's.
    pub different: i64,
    /// Calls without an answer that the server could carry out.
    pub failed: i64,
    /// Calls that the server left out, because too many others were waiting or memory was short.
    pub dropped: i64,
    /// Fields that differ, the most frequent first; at most ten.
    #[serde(default)]
    pub differences: Vec<ShadowDifference>,
    /// The latest failure, and the object for which the server called the shadow.
    pub failure: Option<String>,
}

/// One place in which answers differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowDifference {
    /// The field, such as `ConfigMap.v1: data.mode` or `status.phase`.
    pub path: String,
    /// Number of answers that differ in this field.
    pub count: i64,
    /// An object for which the answers differ.
    pub example: String,
}

/// State of the deletion brake, for a server that starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletionStatus {
    /// Digest of the hooks and the spec with which all parents settled last.
    pub accepted: Option<String>,
    /// Number of children deleted because of the changes since then.
    pub deleted: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStatus {
    /// `sha256:` and the hexadecimal digest of the module.
    pub digest: Option<String>,
    /// The first twelve digits of the digest.
    pub short_digest: Option<String>,
    /// Size of the module in bytes.
    pub size: Option<i64>,
    /// `sha256:` and the digest of the interpreter that runs a script.
    pub runner: Option<String>,
    /// When the server loaded the module.
    pub loaded_at: Option<String>,
    /// Milliseconds that the server took to compile the module; absent if it came from the cache.
    pub compile_millis: Option<i64>,
    /// True if no call has read the real time so far.
    pub pure: Option<bool>,
    /// Figures of the latest five minutes with calls.
    pub latest: Option<CallFigures>,
    /// Median of the instructions of the latest calls of this version, at most 64, to two digits. The server writes it together with
    /// other changes.
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
    /// Number of parents that failed when another version replaced this one.
    pub parents_failing: Option<i64>,
    /// Median of the instructions of its latest calls.
    #[serde(rename = "instructionsP50")]
    pub instructions_p50: Option<i64>,
}

/// Calls of one hook, and the most that one of them used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallFigures {
    /// Number of calls; one parent may have several.
    pub calls: i64,
    /// Number of triggers that ended without a call, because nothing had changed.
    pub skipped: i64,
    /// Number of calls that failed. `status.failing` counts parents, as they are now.
    pub failed_calls: i64,
    /// Microseconds of the longest call.
    pub longest_micros: i64,
    /// Most bytes of memory that a call used.
    pub memory_bytes: i64,
    /// The limit of memory in bytes.
    pub memory_limit_bytes: i64,
    /// Most instructions that a call used.
    pub instructions: i64,
    /// The limit of instructions.
    pub instructions_limit: i64,
    /// The end of these five minutes.
    pub until: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The condition, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why the condition has this status, in one word.
    pub reason: String,
    /// Why the condition has this status, in a sentence.
    pub message: String,
    /// When the status changed last.
    pub last_transition_time: String,
    /// The generation of the spec that the condition is about.
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
