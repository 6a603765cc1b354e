//! Recorder of Kubernetes Events: core/v1, with Metacontroller's component.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use metahook_core::api::reason::{EventKind, EventReason};
use metahook_core::hook::response::HookEvent;
use metahook_core::object::Object;
use metahook_core::pacing::Rate;
use metahook_core::pacing::events::{EventMemory, EventNote, EventWrite};
use metahook_core::shorten_middle;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::{ApiClient, MERGE_PATCH};
use crate::cluster::fair_queue::FairQueue;
use crate::cluster::paths::events_namespace;
use crate::cluster::write_gate::WriteGate;
use crate::sync::lock;
use crate::telemetry::{error_chain, reconcile_span, timestamp};

const COMPONENT: &str = "metacontroller";
/// Annotation with the trace of the latest reconcile that recorded the Event.
const TRACE_ID: &str = "metahook.dev/trace-id";
/// The API server takes 1,024 bytes.
const MAX_MESSAGE: usize = 1024;
/// The API server takes 253 bytes.
const MAX_NAME: usize = 253;
/// Hands Events to the task that writes them.
#[derive(Clone)]
pub(crate) struct Recorder {
    line: Arc<Line>,
    gate: WriteGate,
}

/// The Events that wait, and their bell.
#[derive(Default)]
struct Line {
    waiting: Mutex<EventQueues>,
    added: Notify,
}

/// The server's own Events come before those of hooks.
#[derive(Default)]
struct EventQueues {
    ours: FairQueue<Note>,
    of_hooks: FairQueue<Note>,
}

/// One Event to be.
#[derive(Debug)]
struct Note {
    involved: Value,
    namespace: String,
    kind: EventKind,
    reason: Cow<'static, str>,
    message: String,
    /// The trace of the reconcile that records it, where spans are sent.
    trace: Option<String>,
}

impl Recorder {
    /// The recorder, and the task behind it, which ends once `stop` is called and the last note is written.
    /// `rate`: of the Events about one object with one reason.
    pub(crate) fn start(
        api: ApiClient,
        rate: Rate,
        stop: CancellationToken,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let line = Arc::<Line>::default();
        let gate = api.gate().clone();
        let task = tokio::spawn(write_all(api, Arc::clone(&line), EventMemory::new(rate), stop));
        (Self { line, gate }, task)
    }

    pub(crate) fn record(&self, about: &Object, reason: EventReason, message: &str) {
        self.send(about, reason.kind(), reason.as_str().into(), message);
    }

    pub(crate) fn record_of_hook(&self, about: &Object, event: &HookEvent) {
        self.send(about, event.kind, event.reason.clone().into(), &event.message);
    }

    fn send(&self, about: &Object, kind: EventKind, reason: Cow<'static, str>, message: &str) {
        // A server that stands by leaves Events to the leader.
        if !self.gate.is_open() {
            return;
        }
        let namespace = events_namespace(&about.key.namespace);
        let note = Note {
            involved: json!({
                "apiVersion": about.gvk.api_version(),
                "kind": &*about.gvk.kind,
                "namespace": &*about.key.namespace,
                "name": &*about.key.name,
                "uid": about.uid.as_str(),
                "resourceVersion": about.version.as_str(),
            }),
            namespace: namespace.to_owned(),
            kind,
            reason,
            message: shorten_middle(message, MAX_MESSAGE),
            trace: reconcile_span::current().and_then(|span| span.trace_id()),
        };
        if let Some(dropped) = lock(&self.line.waiting).add(note) {
            tracing::debug!(reason = &*dropped.reason, "an Event was dropped: too many are waiting");
        }
        self.line.added.notify_one();
    }
}

impl EventQueues {
    /// Gives back the one that is dropped.
    fn add(&mut self, note: Note) -> Option<Note> {
        let is_ours = matches!(note.reason, Cow::Borrowed(_));
        let line = if is_ours { &mut self.ours } else { &mut self.of_hooks };
        let (namespace, about) = (note.namespace.clone(), note.about().to_owned());
        line.add((&namespace, &about), note)
    }

    fn next(&mut self) -> Option<Note> {
        self.ours.next().or_else(|| self.of_hooks.next())
    }
}

async fn write_all(api: ApiClient, line: Arc<Line>, mut memory: EventMemory, stop: CancellationToken) {
    let start = Instant::now();
    let mut serial = 0;
    loop {
        let next = lock(&line.waiting).next();
        let Some(note) = next else {
            tokio::select! {
                biased;
                () = line.added.notified() => continue,
                () = stop.cancelled() => return,
            }
        };
        let now = start.elapsed();
        let Some(write) = memory.write(&note.as_event(), now) else { continue };
        serial += 1;
        if let Some((name, count)) = note.write(&api, &write, serial).await {
            memory.wrote(write.id, name, count, now);
        }
    }
}

/// The name of an Event about an object, whose own name may be longer, and of more characters, than that of an Event.
fn event_name(involved: &str, unique: &str) -> String {
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let good = |c: char| if is_good(c) { c } else { '-' };
    let start: String = involved.chars().map(good).take(MAX_NAME.saturating_sub(unique.len())).collect();
    let start = start.trim_matches(|c| matches!(c, '-' | '.'));
    if start.is_empty() { format!("event{unique}") } else { format!("{start}{unique}") }
}

impl Note {
    fn as_event(&self) -> EventNote<'_> {
        EventNote {
            about: self.about(),
            kind: self.kind.as_str(),
            reason: &self.reason,
            is_ours: matches!(self.reason, Cow::Borrowed(_)),
            message: &self.message,
        }
    }

    /// Name and count of the Event that was written.
    async fn write(&self, api: &ApiClient, write: &EventWrite<'_>, serial: u64) -> Option<(String, u64)> {
        let (time, message) = (timestamp(), shorten_middle(&write.message, MAX_MESSAGE));
        let list = format!("/api/v1/namespaces/{}/events", self.namespace);
        if let Some((name, count)) = &write.counts {
            let count = count + 1;
            let patch = json!({
                "metadata": {"annotations": self.annotations()},
                "count": count, "lastTimestamp": time, "message": message,
            });
            let answer = api.patch(MERGE_PATCH, &format!("{list}/{name}"), &patch).await;
            // One that is gone is written anew.
            if answer.is_ok_and(|answer| answer.status != StatusCode::NOT_FOUND) {
                return Some((name.clone(), count));
            }
        }
        let involved = self.involved.get("name").and_then(Value::as_str).unwrap_or_default();
        let unique = format!(".{:x}.{serial:x}", jiff::Timestamp::now().as_nanosecond());
        let name = event_name(involved, &unique);
        match api.send(Method::POST, &list, &self.event(&name, &message, &time)).await {
            Ok(answer) if answer.status.is_success() => return Some((name, 1)),
            Ok(answer) => {
                tracing::warn!(reason = &*self.reason, answer = answer.message(), "an Event was refused");
            }
            Err(error) => tracing::warn!(error = error_chain(&error), "an Event could not be written"),
        }
        None
    }

    fn annotations(&self) -> Value {
        self.trace.iter().map(|trace| (TRACE_ID.to_owned(), Value::from(trace.as_str()))).collect()
    }

    fn event(&self, name: &str, message: &str, time: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": self.annotations()},
            "involvedObject": self.involved,
            "reason": self.reason,
            "message": message,
            "type": self.kind.as_str(),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": time, "lastTimestamp": time, "count": 1,
        })
    }

    fn about(&self) -> &str {
        self.involved.get("uid").and_then(Value::as_str).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(uid: &str) -> Note {
        let involved = json!({"uid": uid, "name": "x"});
        Note {
            involved,
            namespace: "n".into(),
            kind: EventKind::Warning,
            reason: "R".into(),
            message: "m".into(),
            trace: None,
        }
    }

    #[test]
    fn an_error_comes_before_the_events_of_hooks() {
        let mut waiting = EventQueues::default();
        for uid in 0..1000 {
            for nth in 0..10 {
                let made = Note { reason: format!("Made{nth}").into(), ..note(&uid.to_string()) };
                drop(waiting.add(made));
            }
        }
        assert!(waiting.add(note("x")).is_none());
        let first: Vec<_> =
            std::iter::from_fn(|| waiting.next()).take(3).map(|note| note.about().to_owned()).collect();
        assert_eq!(first, ["x", "0", "1"]);
    }

    #[test]
    fn the_name_of_an_event_is_one() {
        assert_eq!(event_name("a.b-c", ".1.2"), "a.b-c.1.2");
        assert_eq!(event_name("system:Node", ".1.2"), "system--ode.1.2");
        assert_eq!(event_name("::", ".1.2"), "event.1.2");
        let long = event_name(&format!("{}.{}", "a".repeat(248), "b".repeat(4)), ".1.2");
        assert_eq!(long, format!("{}.1.2", "a".repeat(248)), "no dot before a dot");
        assert_eq!(event_name(&"a".repeat(253), ".1.2").len(), MAX_NAME);
    }
}
