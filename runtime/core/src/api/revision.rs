//! ControllerRevision: an earlier state of a parent and the children that are still at it, as stored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A ControllerRevision without its metadata.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerRevision {
    /// The part of the parent that is kept: the fields named by `revisionHistory.fieldPaths`.
    // Not as a map of anything: what is in its values would be dropped.
    #[schemars(with = "Value", extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
    pub parent_patch: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Vec<RevisionChildren>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionChildren {
    pub api_group: String,
    pub kind: String,
    pub names: Vec<String>,
}
