//! DecoratorController: the spec as stored.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::account::ServiceAccountRef;
use super::composite::UpdateMethod;
use super::deletion::RelatedDeletion;
use super::hook::Hook;
use super::webhook::EndpointConfig;
use crate::object::selector::{Expression, LabelSelector};

/// Attachments, labels, annotations and status for objects that exist already.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecoratorControllerSpec {
    pub resources: Vec<TargetResource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<Attachment>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<DecoratorHooks>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_configs: Option<Vec<EndpointConfig>>,
    /// All targets are synced again after this many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_period_seconds: Option<i32>,
    /// Related objects that hooks may delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related_deletion: Option<Vec<RelatedDeletion>>,
    /// Whose rights bound what the controller does; the server's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_ref: Option<ServiceAccountRef>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetResource {
    pub api_version: String,
    /// The plural name, lower case.
    pub resource: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation_selector: Option<AnnotationSelector>,
    /// A target whose status alone changed is not synced for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_status_changes: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnotationSelector {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_annotations: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<Expression>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    pub api_version: String,
    /// The plural name, lower case.
    pub resource: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<AttachmentUpdateStrategy>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachmentUpdateStrategy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<UpdateMethod>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecoratorHooks {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customize: Option<Hook>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Hook>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalize: Option<Hook>,
}
