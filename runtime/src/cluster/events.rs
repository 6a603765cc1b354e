//! Recorder of Kubernetes Events: core/v1 with Metacontroller's component: repeated ones are counted, floods are cut.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use metahook_core::api::reason::{EventKind, EventReason};
use metahook_core::hash::{Fingerprint, Fingerprinter};
use metahook_core::hook::response::HookEvent;
use metahook_core::object::Object;
use metahook_core::pacing::Rate;
use metahook_core::shorten;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::{ApiClient, MERGE_PATCH};
use crate::cluster::fair_line::FairLine;
use crate::cluster::write_gate::WriteGate;
use crate::sync::lock;
use crate::telemetry::{error_chain, timestamp};

const COMPONENT: &str = "metacontroller";
/// So many objects and reasons are remembered.
const MAX_BUDGETS: usize = 10_000;
/// An Event that has not been repeated for this long is written anew.
const REPEAT_TIMEOUT: Duration = Duration::from_mins(10);
/// So many Events are remembered, to count them when they repeat.
const MAX_WRITTEN: usize = 10_000;
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
    waiting: Mutex<Waiting>,
    added: Notify,
}

/// The server's own Events come before those of hooks.
#[derive(Default)]
struct Waiting {
    ours: FairLine<Note>,
    of_hooks: FairLine<Note>,
}

/// One Event to be.
#[derive(Debug)]
struct Note {
    involved: Value,
    namespace: String,
    kind: EventKind,
    reason: Cow<'static, str>,
    message: String,
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
        let task = tokio::spawn(write_all(api, Arc::clone(&line), Memory::new(rate), stop));
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
        let namespace = if about.key.namespace.is_empty() { "default" } else { &about.key.namespace };
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
            message: shorten(message, MAX_MESSAGE),
        };
        if let Some(dropped) = lock(&self.line.waiting).add(note) {
            tracing::debug!(reason = &*dropped.reason, "an Event was dropped: too many are waiting");
        }
        self.line.added.notify_one();
    }
}

impl Waiting {
    /// Gives back the one that is dropped.
    fn add(&mut self, note: Note) -> Option<Note> {
        let is_ours = matches!(note.reason, Cow::Borrowed(_));
        let line = if is_ours { &mut self.ours } else { &mut self.of_hooks };
        line.add((&note.namespace.clone(), &note.about()), note)
    }

    fn next(&mut self) -> Option<Note> {
        self.ours.next().or_else(|| self.of_hooks.next())
    }
}

async fn write_all(api: ApiClient, line: Arc<Line>, mut memory: Memory, stop: CancellationToken) {
    loop {
        let next = lock(&line.waiting).next();
        let Some(note) = next else {
            tokio::select! {
                biased;
                () = line.added.notified() => continue,
                () = stop.cancelled() => return,
            }
        };
        let now = Instant::now();
        memory.forget(now);
        if memory.allows(&note, now) {
            write(&api, &mut memory, note, now).await;
        }
    }
}

async fn write(api: &ApiClient, memory: &mut Memory, note: Note, now: Instant) {
    let time = timestamp();
    let list = format!("/api/v1/namespaces/{}/events", note.namespace);
    if let Some(seen) = memory.written.get_mut(&note.identity())
        && seen.repeat(api, &list, &time).await
    {
        seen.last = now;
        return;
    }
    memory.serial += 1;
    let involved = note.involved.get("name").and_then(Value::as_str).unwrap_or_default();
    let unique = format!(".{:x}.{:x}", jiff::Timestamp::now().as_nanosecond(), memory.serial);
    let name = event_name(involved, &unique);
    let event = note.event(&name, &time);
    match api.send(Method::POST, &list, &event).await {
        Ok(answer) if answer.status.is_success() => {
            memory.wrote(&note, name, now);
        }
        Ok(answer) => {
            tracing::warn!(reason = &*note.reason, answer = answer.message(), "an Event was refused");
        }
        Err(error) => tracing::warn!(error = error_chain(&error), "an Event could not be written"),
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
    fn event(&self, name: &str, time: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace},
            "involvedObject": self.involved,
            "reason": self.reason,
            "message": self.message,
            "type": self.kind.as_str(),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": time, "lastTimestamp": time, "count": 1,
        })
    }

    fn identity(&self) -> Fingerprint {
        let mut all = Fingerprinter::default();
        for part in [&*self.about(), &*self.reason, &*self.message] {
            all.add(part.as_bytes());
        }
        all.finish()
    }

    /// Each reason of the server has its own budget, so that a frequent one does not displace the others; all reasons of
    /// hooks share one.
    fn budget(&self) -> (String, &'static str) {
        let reason = match self.reason {
            Cow::Borrowed(ours) => ours,
            Cow::Owned(_) => "",
        };
        (self.about(), reason)
    }

    fn about(&self) -> String {
        self.involved.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

/// Events written lately. Bounded by count and by time: nothing is remembered for longer than `REPEAT_TIMEOUT`.
struct Memory {
    rate: Rate,
    written: BTreeMap<Fingerprint, Written>,
    budgets: BTreeMap<(String, &'static str), Budget>,
    serial: u64,
    cleaned: Option<Instant>,
}

struct Written {
    name: String,
    count: u64,
    last: Instant,
}

impl Written {
    /// Counts one more; `false` where the Event is gone.
    async fn repeat(&mut self, api: &ApiClient, list: &str, time: &str) -> bool {
        let patch = json!({"count": self.count + 1, "lastTimestamp": time});
        let answer = api.patch(MERGE_PATCH, &format!("{list}/{}", self.name), &patch).await;
        let repeated = answer.is_ok_and(|answer| answer.status != StatusCode::NOT_FOUND);
        self.count += u64::from(repeated);
        repeated
    }
}

struct Budget {
    left: f64,
    at: Instant,
}

impl Budget {
    fn left(&self, now: Instant, rate: Rate) -> f64 {
        let refill = now.duration_since(self.at).as_secs_f64() * rate.per_second;
        (self.left + refill).min(f64::from(rate.burst))
    }
}

impl Memory {
    fn new(rate: Rate) -> Self {
        Self { rate, written: BTreeMap::new(), budgets: BTreeMap::new(), serial: 0, cleaned: None }
    }

    fn allows(&mut self, note: &Note, now: Instant) -> bool {
        let (whose, rate) = (note.budget(), self.rate);
        if !self.budgets.contains_key(&whose) && self.budgets.len() >= MAX_BUDGETS {
            let until = oldest_tenth(self.budgets.values().map(|budget| budget.at));
            self.budgets.retain(|_, budget| until.is_none_or(|until| budget.at > until));
        }
        let budget = self.budgets.entry(whose).or_insert(Budget { left: f64::from(rate.burst), at: now });
        *budget = Budget { left: budget.left(now, rate), at: now };
        let allowed = budget.left >= 1.0;
        if allowed {
            budget.left -= 1.0;
        }
        allowed
    }

    fn wrote(&mut self, note: &Note, name: String, now: Instant) {
        if self.written.len() >= MAX_WRITTEN {
            let until = oldest_tenth(self.written.values().map(|written| written.last));
            self.written.retain(|_, written| until.is_none_or(|until| written.last > until));
        }
        self.written.insert(note.identity(), Written { name, count: 1, last: now });
    }

    fn forget(&mut self, now: Instant) {
        if self.cleaned.is_some_and(|last| now.duration_since(last) < REPEAT_TIMEOUT / 10) {
            return;
        }
        self.cleaned = Some(now);
        self.written.retain(|_, written| now.duration_since(written.last) < REPEAT_TIMEOUT);
        let rate = self.rate;
        self.budgets.retain(|_, budget| budget.left(now, rate) < f64::from(rate.burst));
    }
}

/// The end of the oldest tenth: so many are forgotten at once that it is rare.
fn oldest_tenth(times: impl Iterator<Item = Instant>) -> Option<Instant> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 10).copied()
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
        }
    }

    #[test]
    fn an_error_comes_before_the_events_of_hooks() {
        let mut waiting = Waiting::default();
        for uid in 0..1000 {
            for nth in 0..10 {
                let made = Note { reason: format!("Made{nth}").into(), ..note(&uid.to_string()) };
                drop(waiting.add(made));
            }
        }
        assert!(waiting.add(note("x")).is_none());
        let first: Vec<_> = std::iter::from_fn(|| waiting.next()).take(3).map(|note| note.about()).collect();
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

    #[tokio::test(start_paused = true)]
    async fn a_flood_about_one_object_does_not_displace_others() {
        let mut memory = Memory::new(Rate::OF_EVENTS);
        let allowed = (0..100).filter(|_| memory.allows(&note("a"), Instant::now())).count();
        assert_eq!(allowed, 25);
        assert!(memory.allows(&note("b"), Instant::now()));
        tokio::time::advance(Duration::from_mins(5)).await;
        assert!(memory.allows(&note("a"), Instant::now()));
        assert!(!memory.allows(&note("a"), Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_and_the_burst_are_those_of_the_flags() {
        let mut memory = Memory::new(Rate { per_second: 2.0, burst: 3 });
        let mut allowed = || (0..100).filter(|_| memory.allows(&note("a"), Instant::now())).count();
        assert_eq!(allowed(), 3);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(allowed(), 2);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(allowed(), 3, "never more than the burst");
    }

    #[tokio::test(start_paused = true)]
    async fn frequent_reasons_and_those_of_hooks_leave_errors_alone() {
        let mut memory = Memory::new(Rate::OF_EVENTS);
        for _ in 0..100 {
            memory.allows(&note("a"), Instant::now());
            memory.allows(&Note { reason: "SyncError".to_owned().into(), ..note("a") }, Instant::now());
        }
        let made_up = |number: u32| Note { reason: format!("Reason{number}").into(), ..note("b") };
        let allowed = (0..100).filter(|number| memory.allows(&made_up(*number), Instant::now())).count();
        assert_eq!(allowed, 25, "of all reasons that a hook makes up");
        assert!(memory.allows(&Note { reason: "SyncError".into(), ..note("a") }, Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let mut memory = Memory::new(Rate::OF_EVENTS);
        for number in 0..=MAX_BUDGETS {
            tokio::time::advance(Duration::from_nanos(1)).await;
            assert!(memory.allows(&note(&number.to_string()), Instant::now()));
        }
        assert!(memory.budgets.len() <= MAX_BUDGETS, "{}", memory.budgets.len());
        for number in 0..=MAX_WRITTEN {
            tokio::time::advance(Duration::from_nanos(1)).await;
            memory.wrote(&note(&number.to_string()), String::new(), Instant::now());
        }
        assert!(memory.written.len() <= MAX_WRITTEN, "{}", memory.written.len());
        tokio::time::advance(Duration::from_mins(5)).await;
        memory.forget(Instant::now());
        assert!(memory.budgets.is_empty(), "a full budget costs nothing");
    }
}
