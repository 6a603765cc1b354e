//! Answer of a hook as a test reads it.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Answer of a hook, read back from its JSON. A field that the hook left out is empty.
///
/// ```
/// use metahook_sdk::{Decorate, DecorateResponse, testing::Request};
/// use serde_json::json;
/// use std::time::Duration;
///
/// fn sync(_: &Decorate<'_>) -> DecorateResponse {
///     let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
///     DecorateResponse::new().attachment(map).event("Mapped", "as a").resync_after(Duration::from_secs(30))
/// }
///
/// let answer = Request::decorating(json!({})).call(sync).unwrap();
/// assert_eq!(answer.attachments[0]["metadata"]["name"], "a");
/// assert_eq!(answer.events, [json!({ "type": "Normal", "reason": "Mapped", "message": "as a" })]);
/// assert_eq!(answer.resync_after_seconds, Some(30.0));
/// assert!(answer.children.is_empty() && answer.status.is_null());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Answer {
    /// The parent's new status; null when the hook gave none.
    pub status: Value,
    /// The children that should exist, in the hook's order.
    pub children: Vec<Value>,
    /// After how many seconds the server reconciles the parent again.
    pub resync_after_seconds: Option<f64>,
    /// Whether the parent may go.
    pub finalized: bool,
    /// The related objects that the server deletes.
    pub delete_related: Vec<Value>,
    /// Attachments that should exist, in an answer of a `DecoratorController`'s hook.
    pub attachments: Vec<Value>,
    /// Labels of the object with their new values; null removes a label.
    pub labels: Map<String, Value>,
    /// Annotations of the object with their new values; null removes an annotation.
    pub annotations: Map<String, Value>,
    /// Rules of a customize hook.
    pub related_resources: Vec<Value>,
    /// Events that the hook records on the parent.
    pub events: Vec<Value>,
    /// The answer as the hook writes it to stdout.
    #[serde(skip)]
    pub raw: String,
}
