//! Knows how to call a hook in a unit test, through the JSON of a real call both ways.
//!
//! ```
//! use metahook_sdk::{Object, SyncRequest, SyncResponse, testing::Request};
//! use serde_json::json;
//!
//! fn sync(request: &SyncRequest<Object<'_>>) -> SyncResponse {
//!     SyncResponse::new().status(json!({ "pods": request.children.group("Pod.v1").len() }))
//! }
//!
//! let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } });
//! let answer = Request::of(json!({})).observed(pod).call(sync).unwrap();
//! assert_eq!(answer.raw, r#"{"children":[],"status":{"pods":1}}"#);
//! assert_eq!(answer.status, json!({ "pods": 1 }));
//! ```

use crate::{IntoResponse, call, decode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A request under construction; it has all the fields that the server always sends.
#[derive(Debug, Clone)]
pub struct Request {
    parent: Value,
    groups: Vec<String>,
    observed: Vec<Value>,
    settings: Option<Value>,
    finalizing: bool,
}

impl Request {
    /// A request for this parent, without children.
    pub fn of(parent: Value) -> Self {
        Self { parent, groups: Vec::new(), observed: Vec::new(), settings: None, finalizing: false }
    }

    /// A kind of child that the controller declares, whether or not there are any: `Pod.v1`.
    #[must_use]
    pub fn declared(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    /// A child that exists. Its place is taken from its `apiVersion`, `kind` and `metadata.name`.
    #[must_use]
    pub fn observed(mut self, child: Value) -> Self {
        self.observed.push(child);
        self
    }

    /// The hook's `settings` in the controller's spec.
    #[must_use]
    pub fn settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    /// The parent is being deleted, and the hook is asked whether that may end.
    #[must_use]
    pub fn finalizing(mut self) -> Self {
        self.finalizing = true;
        self
    }

    /// Calls the hook as the server would.
    ///
    /// # Errors
    /// What the hook would have written to stderr before it exits with 1. Also an observed child without
    /// `apiVersion`, `kind` or `metadata.name`.
    ///
    /// # Caveats
    /// The request is kept until the test program ends (see [`run`](crate::run)).
    pub fn call<R, A>(self, hook: impl FnOnce(&R) -> A) -> Result<Answer, String>
    where
        R: Deserialize<'static>,
        A: IntoResponse,
    {
        let input = self.json()?.to_string().into_bytes().leak();
        let raw = String::from_utf8(call(hook, input)?).map_err(|e| format!("answer: {e}"))?;
        let answer: Answer = decode::decode("response", raw.as_bytes())?;
        Ok(Answer { raw, ..answer })
    }

    /// The request as the hook gets it.
    fn json(self) -> Result<Value, String> {
        let mut groups: Map<String, Value> =
            self.groups.into_iter().map(|group| (group, json!({}))).collect();
        for child in self.observed {
            let text = |at: &str| child.pointer(at).and_then(Value::as_str);
            let (Some(version), Some(kind), Some(name)) =
                (text("/apiVersion"), text("/kind"), text("/metadata/name"))
            else {
                return Err(format!("observed child without apiVersion, kind or metadata.name: {child}"));
            };
            let (group, name) = (format!("{kind}.{version}"), name.to_owned());
            if let Value::Object(group) = groups.entry(group).or_insert_with(|| json!({})) {
                group.insert(name, child);
            }
        }
        let mut request = json!({
            "controller": {}, "parent": self.parent, "children": groups, "related": {}, "finalizing": self.finalizing,
        });
        if let (Some(settings), Value::Object(fields)) = (self.settings, &mut request) {
            fields.insert("settings".to_owned(), settings);
        }
        Ok(request)
    }
}

/// What a hook answered, read back from its JSON.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Answer {
    /// The parent's new status; null if the hook gave none.
    pub status: Value,
    /// The children that should exist, in the hook's order.
    pub children: Vec<Value>,
    /// When the hook wants to be called again.
    pub resync_after_seconds: Option<f64>,
    /// Whether the parent may go.
    pub finalized: bool,
    /// What the hook says about the parent.
    pub events: Vec<Value>,
    /// The bytes on stdout.
    #[serde(skip)]
    pub raw: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Children, Map, Object, SyncRequest, SyncResponse};

    #[derive(Debug, Default, Deserialize)]
    struct Observed<'a> {
        #[serde(rename = "Pod.v1", borrow)]
        pods: Map<'a, Object<'a>>,
        #[serde(rename = "Deployment.apps/v1", borrow)]
        deployments: Map<'a, Object<'a>>,
    }

    fn object(version: &str, kind: &str, name: &str) -> Value {
        json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } })
    }

    #[test]
    fn a_hook_sees_what_the_request_was_made_of() {
        let hook = |request: &SyncRequest<Object<'_>, Observed<'_>, Value>| {
            assert_eq!(request.parent.metadata.name, "p");
            assert_eq!(request.children.pods.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
            assert!(request.children.deployments.is_empty());
            assert_eq!(request.settings, json!({ "x": [1.5] }));
            assert!(request.finalizing);
            SyncResponse::new()
        };
        let request = Request::of(object("example.com/v1", "Parent", "p"))
            .declared("Deployment.apps/v1")
            .observed(object("v1", "Pod", "b"))
            .observed(object("v1", "Pod", "a"))
            .settings(json!({ "x": [1.5] }))
            .finalizing();
        assert_eq!(
            request.call(hook),
            Ok(Answer { raw: r#"{"children":[]}"#.to_owned(), ..Answer::default() })
        );
    }

    #[test]
    fn the_answer_can_be_the_next_observation() {
        fn hook(request: &SyncRequest<Object<'_>, Children<'_>>) -> SyncResponse {
            let pods = request.children.group("Pod.v1").len();
            SyncResponse::new().status(json!({ "pods": pods })).child(object("v1", "Pod", "a")).finalized()
        }
        let first = Request::of(json!({})).call(hook).unwrap();
        assert_eq!((first.status, first.finalized), (json!({ "pods": 0 }), true));
        let again = first.children.into_iter().fold(Request::of(json!({})), Request::observed);
        assert_eq!(again.call(hook).unwrap().status, json!({ "pods": 1 }));
    }

    #[test]
    fn failures_are_the_line_on_stderr() {
        let fine = |_: &SyncRequest<Object<'_>>| SyncResponse::new();
        let why = Request::of(json!([])).call(fine).unwrap_err();
        assert!(why.starts_with("request.parent: a list where an object should be"), "{why}");
        assert_eq!(
            Request::of(json!({})).observed(json!({ "kind": "Pod" })).call(fine).unwrap_err(),
            r#"observed child without apiVersion, kind or metadata.name: {"kind":"Pod"}"#
        );
    }
}
