//! Response of a CompositeController's sync and finalize hooks, written piece by piece, and what all responses share.

use crate::{Object, Str};
use serde::Serialize;
use serde_json::to_writer;
use std::fmt::Display;
use std::time::Duration;

/// An unfinished answer: a list of objects, and further fields.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// An object that is still open, in its last field the list of objects.
    written: Vec<u8>,
    /// The name of the list, and the number of its items.
    list: &'static str,
    listed: usize,
    /// The other fields, each with a comma before it.
    fields: Vec<u8>,
    status: Option<Vec<u8>>,
    finalized: bool,
    resync_after: Option<String>,
    /// Each with a comma before it but the first.
    deleted: Vec<u8>,
    events: Vec<u8>,
    failed: Option<String>,
}

impl Body {
    pub(crate) fn new(list: &'static str) -> Self {
        Self { list, ..Self::default() }
    }

    /// Adds an item to the list.
    pub(crate) fn push(&mut self, object: impl Serialize) {
        if self.listed == 0 {
            self.open();
        } else {
            self.written.push(b',');
        }
        let done = to_writer(&mut self.written, &object);
        let (list, at) = (self.list, self.listed);
        self.note(done, || format!("{list}[{at}]"));
        self.listed += 1;
    }

    fn open(&mut self) {
        for part in ["{\"", self.list, "\":["] {
            self.written.extend_from_slice(part.as_bytes());
        }
    }

    pub(crate) fn status(&mut self, status: impl Serialize) {
        let mut written = Vec::new();
        self.note(to_writer(&mut written, &status), || "status".to_owned());
        self.status = Some(written);
    }

    /// A field that occurs once.
    pub(crate) fn field(&mut self, name: &'static str, value: impl Serialize) {
        for part in [",\"", name, "\":"] {
            self.fields.extend_from_slice(part.as_bytes());
        }
        let done = to_writer(&mut self.fields, &value);
        self.note(done, || name.to_owned());
    }

    pub(crate) fn delete(&mut self, object: impl Serialize) {
        if !self.deleted.is_empty() {
            self.deleted.push(b',');
        }
        let done = to_writer(&mut self.deleted, &object);
        self.note(done, || "deleteRelated".to_owned());
    }

    pub(crate) fn resync_after(&mut self, time: Duration) {
        self.resync_after = serde_json::to_string(&time.as_secs_f64()).ok(); // written here: who does not ask needs no code for it
    }

    pub(crate) fn finalized(&mut self) {
        self.finalized = true;
    }

    pub(crate) fn say(&mut self, kind: &str, reason: &str, message: &str) {
        self.events.extend_from_slice(if self.events.is_empty() { b"" } else { b"," });
        for (before, text) in [("{\"type\":", kind), (",\"reason\":", reason), (",\"message\":", message)] {
            self.events.extend_from_slice(before.as_bytes());
            let done = to_writer(&mut self.events, text);
            self.note(done, || "events".to_owned());
        }
        self.events.push(b'}');
    }

    fn note(&mut self, done: serde_json::Result<()>, what: impl FnOnce() -> String) {
        if let (Err(why), None) = (done, &self.failed) {
            self.failed = Some(format!("response: {}: {why}", what()));
        }
    }

    /// The finished answer, or the value that cannot be written.
    pub(crate) fn encode(mut self) -> Result<Vec<u8>, String> {
        if let Some(why) = self.failed {
            return Err(why);
        }
        if self.listed == 0 {
            self.open();
        }
        let mut out = self.written;
        out.push(b']');
        out.extend_from_slice(&self.fields);
        if let Some(status) = self.status {
            out.extend_from_slice(b",\"status\":");
            out.extend_from_slice(&status);
        }
        if let Some(seconds) = self.resync_after {
            out.extend_from_slice(b",\"resyncAfterSeconds\":");
            out.extend_from_slice(seconds.as_bytes());
        }
        if self.finalized {
            out.extend_from_slice(b",\"finalized\":true");
        }
        for (before, list) in [(",\"deleteRelated\":[", self.deleted), (",\"events\":[", self.events)] {
            if !list.is_empty() {
                out.extend_from_slice(before.as_bytes());
                out.extend_from_slice(&list);
                out.push(b']');
            }
        }
        out.push(b'}');
        Ok(out)
    }
}

/// Methods that the answers about parents and about decorated objects share.
macro_rules! answers {
    ($answer:ident, $request:literal) => {
        impl $answer {
            /// Makes the server reconcile the object again after this time. When nothing changed, and the hook did not read
            /// the clock, the server does not call the hook.
            pub fn resync_after(mut self, time: Duration) -> Self {
                self.body.resync_after(time);
                self
            }

            #[doc = concat!(
                        "Says that the object may go: the finalize hook has nothing left to do (see [`", $request,
                        "::finalizing`](crate::", $request, "::finalizing))."
                    )]
            pub fn finalized(mut self) -> Self {
                self.body.finalized();
                self
            }

            /// Makes the server delete a `related` object of the request: see [`Reference`]. The controller must name its
            /// kind in `spec.relatedDeletion`. The server skips an object that is being deleted already.
            pub fn delete_related<'a>(mut self, object: impl Into<Reference<'a>>) -> Self {
                self.body.delete(object.into());
                self
            }

            /// Records an Event on the object: `answer.event("Painted", "three walls")`. The reason is one word. An answer
            /// has at most 10 different Events.
            pub fn event(mut self, reason: &str, message: &str) -> Self {
                self.body.say("Normal", reason, message);
                self
            }

            /// Records an Event of type `Warning`: see [`event`](Self::event).
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
    pub fn new() -> Self {
        Self { body: Body::new("children") }
    }

    /// Replaces the whole status of the parent; the server adds `observedGeneration`.
    pub fn status(mut self, status: impl Serialize) -> Self {
        self.body.status(status);
        self
    }

    /// Adds a child that should exist. It may leave out fields that other writers set.
    pub fn child(mut self, child: impl Serialize) -> Self {
        self.push(child);
        self
    }

    /// Adds children of one type.
    pub fn children<C: Serialize>(mut self, children: impl IntoIterator<Item = C>) -> Self {
        children.into_iter().for_each(|child| self.push(child));
        self
    }

    /// Adds a child, from within a loop.
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
