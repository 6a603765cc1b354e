//! Unfinished answer of a hook, which is written as JSON piece by piece.

use serde::Serialize;
use serde_json::to_writer;
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
