//! Knows the fields of a sync response.

use serde::Serialize;
use std::fmt::Display;
use std::time::Duration;

/// What the sync and the finalize hook of a `CompositeController` answer.
///
/// Status and children are written as JSON at once, so they may be of any type, each child of another:
/// `serde_json::json!`, a struct, an object of `k8s-openapi`. What cannot be written fails the call.
#[derive(Debug, Default)]
#[must_use]
pub struct SyncResponse {
    /// The answer as far as it is written: an object that is still open, in its last field the list of children.
    written: Vec<u8>,
    children: usize,
    status: Option<Vec<u8>>,
    resync_after: Option<String>,
    finalized: bool,
    /// Each with a comma before it but the first.
    events: Vec<u8>,
    failed: Option<String>,
}

impl SyncResponse {
    /// No children and no status. As it stands, it has every observed child deleted and the parent's status emptied.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the whole status of the parent; the server adds `observedGeneration`.
    pub fn status(mut self, status: impl Serialize) -> Self {
        let mut written = Vec::new();
        self.note(serde_json::to_writer(&mut written, &status), || "status".to_owned());
        self.status = Some(written);
        self
    }

    /// Adds a child that should exist. It may leave out whatever somebody else decides.
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
        self.written.extend_from_slice(if self.children == 0 { OPEN } else { b"," });
        let done = serde_json::to_writer(&mut self.written, &child);
        let at = self.children;
        self.note(done, || format!("children[{at}]"));
        self.children += 1;
    }

    /// Asks to be called again after this time even if nothing happened.
    pub fn resync_after(mut self, time: Duration) -> Self {
        self.resync_after = serde_json::to_string(&time.as_secs_f64()).ok(); // written here: who does not ask needs no code for it
        self
    }

    /// Says that nothing is left to be done before the parent may go (see [`SyncRequest::finalizing`](crate::SyncRequest::finalizing)).
    pub fn finalized(mut self) -> Self {
        self.finalized = true;
        self
    }

    /// Says something about the parent: an Event with a reason, which is a word such as `Painted`, and a message. One
    /// answer may hold 10 different ones.
    pub fn event(self, reason: &str, message: &str) -> Self {
        self.say("Normal", reason, message)
    }

    /// Warns of something about the parent: see [`event`](Self::event).
    pub fn warning(self, reason: &str, message: &str) -> Self {
        self.say("Warning", reason, message)
    }

    fn say(mut self, kind: &str, reason: &str, message: &str) -> Self {
        self.events.extend_from_slice(if self.events.is_empty() { b"" } else { b"," });
        for (before, text) in [("{\"type\":", kind), (",\"reason\":", reason), (",\"message\":", message)] {
            self.events.extend_from_slice(before.as_bytes());
            let done = serde_json::to_writer(&mut self.events, text);
            self.note(done, || "events".to_owned());
        }
        self.events.push(b'}');
        self
    }

    fn note(&mut self, done: serde_json::Result<()>, what: impl FnOnce() -> String) {
        if let (Err(why), None) = (done, &self.failed) {
            self.failed = Some(format!("response: {}: {why}", what()));
        }
    }

    /// The answer in full, or what could not be written.
    pub(crate) fn encode(self) -> Result<Vec<u8>, String> {
        if let Some(why) = self.failed {
            return Err(why);
        }
        let mut out = self.written;
        if self.children == 0 {
            out.extend_from_slice(OPEN);
        }
        out.push(b']');
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
        if !self.events.is_empty() {
            out.extend_from_slice(b",\"events\":[");
            out.extend_from_slice(&self.events);
            out.push(b']');
        }
        out.push(b'}');
        Ok(out)
    }
}

/// How an answer begins.
const OPEN: &[u8] = b"{\"children\":[";

/// What a hook may return: a response, or a `Result` of one with any error that can be shown.
pub trait IntoResponse {
    /// The response, or the error's text.
    fn into_response(self) -> Result<SyncResponse, String>;
}

impl IntoResponse for SyncResponse {
    fn into_response(self) -> Result<SyncResponse, String> {
        Ok(self)
    }
}

impl<E: Display> IntoResponse for Result<SyncResponse, E> {
    fn into_response(self) -> Result<SyncResponse, String> {
        self.map_err(|why| format!("{why:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn written(response: SyncResponse) -> String {
        String::from_utf8(response.encode().unwrap()).unwrap()
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
        assert_eq!(response.encode().unwrap_err(), "response: children[1]: key must be a string");
        let response = SyncResponse::new().status(odd()).child(1);
        assert_eq!(response.encode().unwrap_err(), "response: status: key must be a string");
    }

    #[test]
    fn a_result_is_an_answer_with_its_error_as_text() {
        assert!(Ok::<_, String>(SyncResponse::new()).into_response().is_ok());
        assert_eq!(Err::<SyncResponse, _>("why").into_response().unwrap_err(), "why");
    }
}
