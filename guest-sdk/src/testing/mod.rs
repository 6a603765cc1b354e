//! Calls of a hook in a unit test, which take the request and the answer through the JSON of a real call.
//!
//! ```
//! use metahook_sdk::{Sync, SyncResponse, testing::Request};
//! use serde_json::json;
//!
//! fn sync(request: &Sync<'_>) -> SyncResponse {
//!     SyncResponse::new().status(json!({ "pods": request.children.group("Pod.v1").len() }))
//! }
//!
//! let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } });
//! let answer = Request::of(json!({})).observed(pod).call(sync).unwrap();
//! assert_eq!(answer.raw, r#"{"children":[],"status":{"pods":1}}"#);
//! assert_eq!(answer.status, json!({ "pods": 1 }));
//! ```

mod answer;
mod fixpoint;

pub use answer::Answer;

use crate::{IntoResponse, call, decode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A request that a test puts together. It has all fields that the server always sends.
///
/// ```
/// use metahook_sdk::{IgnoredAny, Sync, SyncResponse, testing::Request};
/// use serde_json::json;
///
/// fn finalize(request: &Sync<'_>) -> SyncResponse {
///     let answer = SyncResponse::new();
///     if request.children.group("Pod.v1").get("n/a").is_none() { answer.finalized() } else { answer }
/// }
///
/// let parent = json!({ "metadata": { "name": "p", "namespace": "n" } });
/// let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } });
/// let request = Request::of(parent).v2().finalizing();
/// assert!(!request.clone().observed(pod).call(finalize).unwrap().finalized);
/// assert!(request.call(finalize).unwrap().finalized);
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    /// Field names of the object and of its children.
    names: [&'static str; 2],
    object: Value,
    uniform: bool,
    groups: Vec<String>,
    observed: Vec<Value>,
    related: Vec<Value>,
    settings: Option<Value>,
    finalizing: bool,
}

impl Request {
    /// A request for this parent, without children. You can also call a customize hook with it.
    ///
    /// ```
    /// # use metahook_sdk::{Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// let sync = |request: &Sync<'_>| SyncResponse::new().status(&request.parent.metadata.name);
    /// let answer = Request::of(json!({ "metadata": { "name": "a" } })).call(sync).unwrap();
    /// assert_eq!(answer.status, "a");
    /// ```
    pub fn of(parent: Value) -> Self {
        Self::named(["parent", "children"], parent)
    }

    /// A request of a `DecoratorController` for this object, without attachments.
    ///
    /// ```
    /// # use metahook_sdk::{Decorate, DecorateResponse, testing::Request}; use serde_json::json;
    /// let sync = |request: &Decorate<'_>| DecorateResponse::new().label("name", &*request.object.metadata.name);
    /// let answer = Request::decorating(json!({ "metadata": { "name": "a" } })).call(sync).unwrap();
    /// assert_eq!(answer.labels["name"], "a");
    /// ```
    pub fn decorating(object: Value) -> Self {
        Self::named(["object", "attachments"], object)
    }

    fn named(names: [&'static str; 2], object: Value) -> Self {
        Self {
            names,
            object,
            uniform: false,
            groups: Vec::new(),
            observed: Vec::new(),
            related: Vec::new(),
            settings: None,
            finalizing: false,
        }
    }

    /// Makes this a request of version v2 of a hook: the keys of objects are `namespace/name`. Without it the version is v1: for
    /// a parent in a namespace, the hook sees only objects of that namespace, by `name`.
    ///
    /// ```
    /// # use metahook_sdk::{Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } });
    /// let request = Request::of(json!({ "metadata": { "namespace": "n" } })).observed(pod);
    /// let sync = |sync: &Sync<'_>| SyncResponse::new().status(sync.children.group("Pod.v1").get("n/a").is_some());
    /// assert_eq!(request.clone().call(sync).unwrap().status, false);
    /// assert_eq!(request.v2().call(sync).unwrap().status, true);
    /// ```
    #[must_use]
    pub fn v2(mut self) -> Self {
        self.uniform = true;
        self
    }

    /// Declares a kind of children, such as `Pod.v1`, also when there are no children of it.
    ///
    /// ```
    /// # use metahook_sdk::{Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// let sync = |request: &Sync<'_>| SyncResponse::new().status(request.children.groups().len());
    /// let request = Request::of(json!({})).declared("Pod.v1").declared("Job.batch/v1");
    /// assert_eq!(request.call(sync).unwrap().status, 2);
    /// ```
    #[must_use]
    pub fn declared(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    /// Adds a child or attachment that exists. It needs `apiVersion`, `kind` and `metadata.name`. Without
    /// `metadata.namespace` it is in the namespace of the parent.
    ///
    /// ```
    /// # use metahook_sdk::{Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// let sync = |request: &Sync<'_>| SyncResponse::new().status(request.children.group("Pod.v1").len());
    /// let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } });
    /// assert_eq!(Request::of(json!({})).observed(pod).call(sync).unwrap().status, 1);
    /// ```
    #[must_use]
    pub fn observed(mut self, child: Value) -> Self {
        self.observed.push(child);
        self
    }

    /// Adds an object that the customize hook asked for. Without a namespace it is cluster-scoped.
    ///
    /// ```
    /// # use metahook_sdk::{Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// let sync = |request: &Sync<'_>| SyncResponse::new().status(request.related.group("Node.v1").len());
    /// let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" } });
    /// assert_eq!(Request::of(json!({})).related(node).call(sync).unwrap().status, 1);
    /// ```
    #[must_use]
    pub fn related(mut self, object: Value) -> Self {
        self.related.push(object);
        self
    }

    /// Sets the hook's `settings` of the controller's spec.
    ///
    /// ```
    /// # use metahook_sdk::{Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// use metahook_sdk::IgnoredAny as Any;
    /// let sync = |request: &Sync<'_, Any, Any, Any, u8>| SyncResponse::new().status(request.settings);
    /// assert_eq!(Request::of(json!({})).settings(json!(7)).call(sync).unwrap().status, 7);
    /// ```
    #[must_use]
    pub fn settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Makes this a call of the finalize hook.
    ///
    /// ```
    /// # use metahook_sdk::{Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// let sync = |request: &Sync<'_>| SyncResponse::new().status(request.finalizing);
    /// assert_eq!(Request::of(json!({})).finalizing().call(sync).unwrap().status, true);
    /// ```
    #[must_use]
    pub fn finalizing(mut self) -> Self {
        self.finalizing = true;
        self
    }

    /// Calls the hook as the server would.
    ///
    /// ```
    /// # use metahook_sdk::{Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// let sync = |_: &Sync<'_>| Err::<SyncResponse, _>("no such size");
    /// assert_eq!(Request::of(json!({})).call(sync).unwrap_err(), "no such size");
    /// ```
    ///
    /// # Errors
    /// The hook fails: the error is the line that it would write to stderr before it exits with 1. Or an observed or related
    /// object has no `apiVersion`, `kind` or `metadata.name`.
    ///
    /// # Caveats
    /// The request stays in memory until the test program ends.
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
        let [object, owned] = self.names;
        let declared = self.groups.into_iter().map(|group| (group, json!({}))).collect();
        let home = text(&self.object, "/metadata/namespace").unwrap_or_default().to_owned();
        let observed = self.observed.into_iter().map(|child| at_home(child, &home)).collect();
        let naming = Naming { home: &home, uniform: self.uniform };
        let mut request = json!({
            "controller": {},
            object: self.object,
            owned: naming.grouped(declared, observed)?,
            "related": naming.grouped(Map::new(), self.related)?,
            "finalizing": self.finalizing,
        });
        if let (Some(settings), Value::Object(fields)) = (self.settings, &mut request) {
            fields.insert("settings".to_owned(), settings);
        }
        Ok(request)
    }
}

fn text<'a>(object: &'a Value, at: &str) -> Option<&'a str> {
    object.pointer(at).and_then(Value::as_str)
}

/// The child in its parent's namespace, where it names none.
fn at_home(mut child: Value, home: &str) -> Value {
    if let Some(Value::Object(metadata)) = child.get_mut("metadata").filter(|_| !home.is_empty()) {
        metadata.entry("namespace").or_insert_with(|| home.into());
    }
    child
}

/// How requests about a parent name objects.
struct Naming<'a> {
    /// The parent's namespace; empty where it is in none.
    home: &'a str,
    uniform: bool,
}

impl Naming<'_> {
    /// `None`: a hook of version v1 is not shown it.
    fn name(&self, namespace: &str, name: &str) -> Option<String> {
        match (self.uniform || self.home.is_empty(), namespace) {
            (true, "") => Some(name.to_owned()),
            (true, namespace) => Some(format!("{namespace}/{name}")),
            (false, namespace) => (namespace == self.home).then(|| name.to_owned()),
        }
    }

    /// Objects by kind and name.
    fn grouped(&self, mut groups: Map<String, Value>, objects: Vec<Value>) -> Result<Value, String> {
        for object in objects {
            let (Some(version), Some(kind), Some(name)) =
                (text(&object, "/apiVersion"), text(&object, "/kind"), text(&object, "/metadata/name"))
            else {
                return Err(format!("observed object without apiVersion, kind or metadata.name: {object}"));
            };
            let key = self.name(text(&object, "/metadata/namespace").unwrap_or_default(), name);
            let group = groups.entry(format!("{kind}.{version}")).or_insert_with(|| json!({}));
            if let (Value::Object(group), Some(key)) = (group, key) {
                group.insert(key, object);
            }
        }
        Ok(Value::Object(groups))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Children, CustomizeRequest, CustomizeResponse, DecorateRequest, DecorateResponse, Map, Object,
        RelatedRule, SyncRequest, SyncResponse,
    };

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
    fn a_hook_is_shown_what_its_version_has_names_for() {
        fn shown(request: &SyncRequest<Object<'_>, Children<'_>, Value, Children<'_>>) -> SyncResponse {
            let keys = |of: &Children<'_>| {
                of.group("Pod.v1").iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>()
            };
            SyncResponse::new().status(json!([keys(&request.children), keys(&request.related)]))
        }
        let at = |namespace: Option<&str>, name: &str| {
            let mut pod = object("v1", "Pod", name);
            pod["metadata"]["namespace"] = namespace.map_or(Value::Null, Value::from);
            pod
        };
        let request = |home: Option<&str>| {
            let request = Request::of(json!({ "metadata": { "namespace": home } }));
            let request = request.observed(object("v1", "Pod", "child"));
            request
                .related(at(Some("n"), "a"))
                .related(at(Some("m"), "b"))
                .related(object("v1", "Pod", "cluster"))
        };
        for (home, v1, v2) in [
            (Some("n"), json!([["child"], ["a"]]), json!([["n/child"], ["cluster", "m/b", "n/a"]])),
            (
                None,
                json!([["child"], ["cluster", "m/b", "n/a"]]),
                json!([["child"], ["cluster", "m/b", "n/a"]]),
            ),
        ] {
            assert_eq!(request(home).call(shown).unwrap().status, v1);
            assert_eq!(request(home).v2().call(shown).unwrap().status, v2);
        }
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
    fn a_decorator_is_asked_and_answers_in_its_own_words() {
        type Asked<'a> = DecorateRequest<Object<'a>, Children<'a>, Value, Children<'a, Object<'a>>>;
        fn hook(request: &Asked<'_>) -> DecorateResponse {
            assert!(request.attachments.group("Pod.v1").get("n/a").is_some());
            let pods = request.related.group("Pod.v1").values();
            pods.fold(
                DecorateResponse::new().label("a", "b").remove_annotation("c"),
                DecorateResponse::delete_related,
            )
        }
        let pod = |place: &str, uid: &str| json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": place, "name": "a", "uid": uid } });
        let request = Request::decorating(json!({})).v2().observed(pod("n", "1"));
        let answer = request.related(pod("n", "2")).related(pod("m", "3")).call(hook).unwrap();
        let uids: Vec<_> = answer.delete_related.iter().map(|one| &one["uid"]).collect();
        assert_eq!(uids, ["3", "2"]);
        assert_eq!(json!([answer.labels, answer.annotations]), json!([{ "a": "b" }, { "c": null }]));
    }

    #[test]
    fn a_customize_hook_is_asked_about_a_parent() {
        let hook = |request: &CustomizeRequest<Object<'_>>| {
            CustomizeResponse::new().related(RelatedRule::new("v1", &*request.parent.metadata.name))
        };
        let answer = Request::of(object("v1", "A", "pods")).call(hook).unwrap();
        assert_eq!(answer.related_resources, [json!({ "apiVersion": "v1", "resource": "pods" })]);
    }

    #[test]
    fn failures_are_the_line_on_stderr() {
        let fine = |_: &SyncRequest<Object<'_>>| SyncResponse::new();
        let why = Request::of(json!([])).call(fine).unwrap_err();
        assert!(why.starts_with("request.parent: a list where an object should be"), "{why}");
        assert_eq!(
            Request::of(json!({})).observed(json!({ "kind": "Pod" })).call(fine).unwrap_err(),
            r#"observed object without apiVersion, kind or metadata.name: {"kind":"Pod"}"#
        );
    }
}
