//! Response of a CompositeController's sync and finalize hooks, and the methods that responses share.

use crate::body::Body;
use crate::{Object, Str};
use serde::Serialize;
use std::fmt::Display;
use std::time::Duration;

/// Methods that the answers about parents and about decorated objects share.
macro_rules! answers {
    ($answer:ident, $request:literal) => {
        impl $answer {
            /// Makes the server reconcile the object again after this time. When nothing changed, and the hook did not read
            /// the clock, the server does not call the hook.
            ///
            /// ```
            #[doc = concat!("# use metahook_sdk::{IntoResponse, ", stringify!($answer), "};")]
            #[doc = concat!("let answer = ", stringify!($answer), "::new().resync_after(std::time::Duration::from_secs(30));")]
            /// assert!(answer.into_response().unwrap().ends_with(br#","resyncAfterSeconds":30.0}"#));
            /// ```
            pub fn resync_after(mut self, time: Duration) -> Self {
                self.body.resync_after(time);
                self
            }

            #[doc = concat!(
                        "Says that the object may go: the finalize hook has nothing left to do (see [`", $request,
                        "::finalizing`](crate::", $request, "::finalizing))."
                    )]
            ///
            /// ```
            #[doc = concat!("# use metahook_sdk::{IntoResponse, ", stringify!($answer), "};")]
            #[doc = concat!("let answer = ", stringify!($answer), "::new().finalized();")]
            /// assert!(answer.into_response().unwrap().ends_with(br#","finalized":true}"#));
            /// ```
            pub fn finalized(mut self) -> Self {
                self.body.finalized();
                self
            }

            /// Makes the server delete a `related` object of the request: see [`Reference`]. The controller must name its
            /// kind in `spec.relatedDeletion`. The server skips an object that is being deleted already.
            ///
            /// ```
            #[doc = concat!("# use metahook_sdk::{IntoResponse, Object, ", stringify!($answer), "};")]
            /// let pod = r#"{ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "uid": "u" } }"#;
            /// let pod: Object<'_> = serde_json::from_str(pod).unwrap();
            #[doc = concat!("let answer = ", stringify!($answer), "::new().delete_related(&pod);")]
            /// let json = answer.into_response().unwrap();
            /// assert!(json.ends_with(br#""kind":"Pod","namespace":"","name":"a","uid":"u"}]}"#));
            /// ```
            pub fn delete_related<'a>(mut self, object: impl Into<Reference<'a>>) -> Self {
                self.body.delete(object.into());
                self
            }

            /// Records an Event on the object. The reason is one word. An answer has at most 10 different Events.
            ///
            /// ```
            #[doc = concat!("# use metahook_sdk::{IntoResponse, ", stringify!($answer), "};")]
            #[doc = concat!("let answer = ", stringify!($answer), "::new().event(\"Painted\", \"three walls\");")]
            /// let json = answer.into_response().unwrap();
            /// assert!(json.ends_with(br#"[{"type":"Normal","reason":"Painted","message":"three walls"}]}"#));
            /// ```
            pub fn event(mut self, reason: &str, message: &str) -> Self {
                self.body.say("Normal", reason, message);
                self
            }

            /// Records an Event of type `Warning`: see [`event`](Self::event).
            ///
            /// ```
            #[doc = concat!("# use metahook_sdk::{IntoResponse, ", stringify!($answer), "};")]
            #[doc = concat!("let answer = ", stringify!($answer), "::new().warning(\"NoPaint\", \"for one wall\");")]
            /// let json = answer.into_response().unwrap();
            /// assert!(json.ends_with(br#"[{"type":"Warning","reason":"NoPaint","message":"for one wall"}]}"#));
            /// ```
            pub fn warning(mut self, reason: &str, message: &str) -> Self {
                self.body.say("Warning", reason, message);
                self
            }
        }

        impl Default for $answer {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}
pub(crate) use answers;

/// Answer of the sync and the finalize hook of a `CompositeController`.
///
/// ```
/// use metahook_sdk::{IntoResponse, SyncResponse};
/// use serde_json::json;
///
/// let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } });
/// let answer = SyncResponse::new().child(pod).status(json!({ "pods": 1 })).event("Made", "a Pod");
/// assert!(answer.into_response().unwrap().starts_with(br#"{"children":[{"#));
/// ```
///
/// The status and each child may have a type of their own: `serde_json::json!`, a struct, an object of `k8s-openapi`. When
/// a value cannot be written as JSON, the call fails.
#[derive(Debug)]
#[must_use]
pub struct SyncResponse {
    body: Body,
}

answers! { SyncResponse, "SyncRequest" }

impl SyncResponse {
    /// An answer without children and status: the server deletes every child and empties the parent's status.
    ///
    /// ```
    /// # use metahook_sdk::{IntoResponse, SyncResponse};
    /// assert_eq!(SyncResponse::new().into_response().unwrap(), br#"{"children":[]}"#);
    /// ```
    pub fn new() -> Self {
        Self { body: Body::new("children") }
    }

    /// Replaces the whole status of the parent; the server adds `observedGeneration`.
    ///
    /// ```
    /// # use metahook_sdk::{IntoResponse, SyncResponse};
    /// let answer = SyncResponse::new().status(serde_json::json!({ "pods": 3 }));
    /// assert_eq!(answer.into_response().unwrap(), br#"{"children":[],"status":{"pods":3}}"#);
    /// ```
    pub fn status(mut self, status: impl Serialize) -> Self {
        self.body.status(status);
        self
    }

    /// Adds a child that should exist. It may leave out fields that other writers set.
    ///
    /// ```
    /// # use metahook_sdk::{IntoResponse, SyncResponse};
    /// let pod = serde_json::json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } });
    /// let json = SyncResponse::new().child(pod).into_response().unwrap();
    /// assert_eq!(json, br#"{"children":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}]}"#);
    /// ```
    pub fn child(mut self, child: impl Serialize) -> Self {
        self.push(child);
        self
    }

    /// Adds children of one type.
    ///
    /// ```
    /// # use metahook_sdk::{IntoResponse, SyncResponse};
    /// let pod = |name| serde_json::json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name } });
    /// let json = SyncResponse::new().children(["a", "b"].map(pod)).into_response().unwrap();
    /// assert!(json.ends_with(br#",{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}]}"#));
    /// ```
    pub fn children<C: Serialize>(mut self, children: impl IntoIterator<Item = C>) -> Self {
        children.into_iter().for_each(|child| self.push(child));
        self
    }

    /// Adds a child, from within a loop.
    ///
    /// ```
    /// # use metahook_sdk::{IntoResponse, SyncResponse};
    /// let mut answer = SyncResponse::new();
    /// for name in ["a", "b"] {
    ///     let metadata = serde_json::json!({ "name": name });
    ///     answer.push(serde_json::json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata }));
    /// }
    /// assert!(answer.into_response().unwrap().ends_with(br#""metadata":{"name":"b"}}]}"#));
    /// ```
    pub fn push(&mut self, child: impl Serialize) {
        self.body.push(child);
    }
}

/// Names one object by its uid, so that a later object with the same name is not meant. You make it of an [`Object`] of the
/// request.
///
/// ```
/// use metahook_sdk::{IgnoredAny, Object, Sync, SyncResponse};
///
/// /// Deletes all Pods that the customize hook asked for.
/// fn sync(request: &Sync<'_, IgnoredAny, IgnoredAny, IgnoredAny, IgnoredAny, Object<'_>>) -> SyncResponse {
///     request.related.group("Pod.v1").values().fold(SyncResponse::new(), SyncResponse::delete_related)
/// }
/// # metahook_sdk::testing::Request::of(serde_json::json!({})).call(sync).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference<'a> {
    /// Group and version, `apps/v1`.
    pub api_version: Str<'a>,
    /// The kind.
    pub kind: Str<'a>,
    /// The namespace; empty for objects that are in none.
    pub namespace: Str<'a>,
    /// The name.
    pub name: Str<'a>,
    /// The uid.
    pub uid: Str<'a>,
}

impl<'a, Spec, Status> From<&'a Object<'_, Spec, Status>> for Reference<'a> {
    fn from(object: &'a Object<'_, Spec, Status>) -> Self {
        let text = |text: &'a Str<'_>| Str::from(&**text);
        Self {
            api_version: text(&object.api_version),
            kind: text(&object.kind),
            namespace: text(&object.metadata.namespace),
            name: text(&object.metadata.name),
            uid: text(&object.metadata.uid),
        }
    }
}

/// Return type of a hook: an answer such as [`SyncResponse`], or a `Result` of an answer with any error that can be displayed.
///
/// ```
/// use metahook_sdk::{IntoResponse, SyncResponse};
///
/// let answer = |size: u8| if size > 0 { Ok(SyncResponse::new()) } else { Err("no such size") };
/// assert_eq!(answer(1).into_response().unwrap(), br#"{"children":[]}"#);
/// assert_eq!(answer(0).into_response().unwrap_err(), "no such size");
/// ```
pub trait IntoResponse {
    /// The answer as JSON, or the error's text.
    fn into_response(self) -> Result<Vec<u8>, String>;
}

impl IntoResponse for SyncResponse {
    fn into_response(self) -> Result<Vec<u8>, String> {
        self.body.encode()
    }
}

impl<R: IntoResponse, E: Display> IntoResponse for Result<R, E> {
    fn into_response(self) -> Result<Vec<u8>, String> {
        self.map_err(|why| format!("{why:#}"))?.into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn written(response: SyncResponse) -> String {
        String::from_utf8(response.into_response().unwrap()).unwrap()
    }

    #[test]
    fn an_empty_response_has_no_children() {
        assert_eq!(written(SyncResponse::new()), r#"{"children":[]}"#);
    }

    #[test]
    fn children_of_different_types_keep_their_order() {
        let mut response = SyncResponse::new().child(json!({ "kind": "A" })).status([1]);
        response.push(BTreeMap::from([("kind", "B\n")]));
        let response = response.children(["C", "D"]).status(json!({ "n": 4 }));
        assert_eq!(
            written(response),
            r#"{"children":[{"kind":"A"},{"kind":"B\n"},"C","D"],"status":{"n":4}}"#
        );
    }

    #[test]
    fn the_rest_is_written_when_it_was_said() {
        let response = SyncResponse::new().resync_after(Duration::from_millis(1500)).finalized();
        assert_eq!(written(response), r#"{"children":[],"resyncAfterSeconds":1.5,"finalized":true}"#);
    }

    #[test]
    fn what_is_to_be_deleted_is_named_whole() {
        let pod: Object<'_> = decode(
            "object",
            br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n","uid":"u"}}"#,
        )
        .unwrap();
        let node = Reference {
            api_version: "v1".into(),
            kind: "Node".into(),
            namespace: "".into(),
            name: "b".into(),
            uid: "v".into(),
        };
        assert_eq!(
            written(SyncResponse::new().delete_related(&pod).delete_related(node)),
            r#"{"children":[],"deleteRelated":[{"apiVersion":"v1","kind":"Pod","namespace":"n","name":"a","uid":"u"},{"apiVersion":"v1","kind":"Node","namespace":"","name":"b","uid":"v"}]}"#
        );
    }

    #[test]
    fn events_are_written_in_their_order() {
        let response = SyncResponse::new().event("Painted", "three \"walls\"").warning("Low", "on paint");
        assert_eq!(
            written(response),
            r#"{"children":[],"events":[{"type":"Normal","reason":"Painted","message":"three \"walls\""},{"type":"Warning","reason":"Low","message":"on paint"}]}"#
        );
    }

    #[test]
    fn the_first_thing_that_cannot_be_written_fails_the_response() {
        let odd = || BTreeMap::from([((), 1)]);
        let response = SyncResponse::new().child(1).child(odd()).child(odd()).status(odd());
        assert_eq!(response.into_response().unwrap_err(), "response: children[1]: key must be a string");
        let response = SyncResponse::new().status(odd()).child(1);
        assert_eq!(response.into_response().unwrap_err(), "response: status: key must be a string");
    }

    #[test]
    fn a_result_is_an_answer_with_its_error_as_text() {
        assert!(Ok::<_, String>(SyncResponse::new()).into_response().is_ok());
        assert_eq!(Err::<SyncResponse, _>("why").into_response().unwrap_err(), "why");
    }
}
