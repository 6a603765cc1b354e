//! Calls of hooks that pages show: servers record the calls about a parent as long as a page asks for them.
//!
//! # Guarantees
//! - One question about a parent is under way at a time. What a server answers is kept, also where the page is gone by then: a server
//!   gives each line once.
//! - A recording that no page has asked for lately ends when another one begins: a server allows few of them.
//! - Of each recording [`MAX_RECONCILES`] reconciles are kept, each with [`MAX_CALLS`] calls. Of each request and answer [`MAX_TEXT`]
//!   bytes are kept. The oldest reconciles and calls go first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use metahook_core::recording::{RecordedAnswer, RecordedCall, RecordedLine};
use metahook_core::trace::{ReconcileTrace, TracedObject};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::line_diff;
use crate::record::reconciles::{RecorderError, new_number};

const MAX_RECONCILES: usize = 10;

/// Calls of one reconcile, with those of its attempts.
const MAX_CALLS: usize = 8;

/// Bytes of a request or an answer, printed with indents.
const MAX_TEXT: usize = 32 << 10;

/// Bytes of a request, printed with indents, that is compared with the next one.
const MAX_COMPARED: usize = 512 << 10;

/// A page that is open asks every three seconds.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// Tabs that ask within this time of each other share an answer.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// A parent of a controller, whose calls are recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CallSubject {
    pub(super) controller: TracedObject,
    pub(super) parent: TracedObject,
}

/// Recordings by subject.
#[derive(Default)]
pub(super) struct CallRecordings(HashMap<CallSubject, AskedRecording>);

/// A recording, and when a page asked for it last.
struct AskedRecording {
    number: String,
    asked: Instant,
    recording: Arc<Mutex<CallRecording>>,
}

/// A question about a subject, and the recordings that end with it.
pub(super) struct RecordingQuestion {
    /// The name of the recording at servers.
    pub(super) number: String,
    pub(super) recording: Arc<Mutex<CallRecording>>,
    pub(super) ended: Vec<(CallSubject, String)>,
}

/// The calls about a subject since its page was opened.
#[derive(Default)]
pub(super) struct CallRecording {
    fetched: Option<Instant>,
    calls: Arc<RecordedCalls>,
    /// Calls of the reconcile that has not ended.
    running: ReconcileCalls,
    latest: LatestRequests,
}

/// The calls of one reconcile. The oldest of many are left out.
#[derive(Default)]
struct ReconcileCalls {
    calls: Vec<RecordedCall>,
    left_out: usize,
}

/// The latest requests, each by its hook and its place among the calls of this hook in a reconcile: a rolling update calls the hook about
/// each revision.
#[derive(Default)]
struct LatestRequests(BTreeMap<(String, usize), String>);

/// Calls of a recording, by reconcile.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RecordedCalls {
    /// Since when servers record.
    pub(super) began: Option<Timestamp>,
    /// Times that the recording was interrupted.
    pub(super) gaps: usize,
    /// Calls and reconciles that no server had room for.
    pub(super) lost: usize,
    /// The latest one first.
    pub(super) reconciles: VecDeque<Arc<RecordedReconcile>>,
}

#[derive(Debug, PartialEq)]
pub(super) struct RecordedReconcile {
    pub(super) calls: Vec<ShownCall>,
    /// Calls before these that are left out.
    pub(super) left_out: usize,
    pub(super) trace: ReconcileTrace,
}

/// A call as a page shows it.
#[derive(Debug, PartialEq)]
pub(super) struct ShownCall {
    /// Without its request, answer and error.
    pub(super) call: RecordedCall,
    pub(super) request: ShownText,
    /// The answer, or why there is none.
    pub(super) answer: Result<ShownText, String>,
    /// Lines of the request that differ from the call before; empty where none do, or where there is no such call.
    pub(super) changed: ShownText,
}

/// The beginning of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShownText {
    pub(super) text: String,
    /// Bytes that are left out at its end.
    pub(super) left_out: usize,
}

impl CallRecordings {
    /// Begins the recording where there is none. Recordings that no page asks for end when another one begins.
    pub(super) fn ask(
        &mut self,
        subject: &CallSubject,
        now: Instant,
    ) -> Result<RecordingQuestion, RecorderError> {
        if let Some(asked) = self.0.get_mut(subject) {
            asked.asked = now;
            let (number, recording) = (asked.number.clone(), Arc::clone(&asked.recording));
            return Ok(RecordingQuestion { number, recording, ended: Vec::new() });
        }
        let number = new_number()?;
        let is_silent = |asked: &AskedRecording| now.saturating_duration_since(asked.asked) > MAX_SILENCE;
        let ended = self.0.extract_if(|_, asked| is_silent(asked));
        let ended = ended.map(|(subject, asked)| (subject, asked.number)).collect();
        let recording = Arc::<Mutex<CallRecording>>::default();
        let asked = AskedRecording { number: number.clone(), asked: now, recording: Arc::clone(&recording) };
        self.0.insert(subject.clone(), asked);
        Ok(RecordingQuestion { number, recording, ended })
    }
}

impl CallRecording {
    /// The calls, where another tab has fetched them a moment ago.
    pub(super) fn shared(&self, now: Instant) -> Option<Arc<RecordedCalls>> {
        let is_new = |fetched: Instant| now.saturating_duration_since(fetched) < SHARED_FOR;
        self.fetched.is_some_and(is_new).then(|| Arc::clone(&self.calls))
    }

    /// Adds the answers of servers. Gives back all calls about the parent.
    pub(super) fn add(
        &mut self,
        parent: &TracedObject,
        answers: &[RecordedAnswer],
        (now, time): (Instant, Timestamp),
    ) -> Result<Arc<RecordedCalls>, RecorderError> {
        self.fetched = Some(now);
        let mut ended = VecDeque::new();
        let calls = Arc::make_mut(&mut self.calls);
        for answer in answers {
            calls.lost += answer.lost;
            if answer.began && calls.began.is_some() {
                calls.gaps += 1;
                self.running = ReconcileCalls::default();
            }
            if answer.hosted {
                calls.began.get_or_insert(time);
            }
            for line in &answer.lines {
                match serde_json::from_str(line).map_err(RecorderError::Line)? {
                    // Parents of two kinds may have one name, and a server records both.
                    RecordedLine::Call(call) if call.parent.is(parent) => self.running.add(*call),
                    RecordedLine::Reconcile(trace) if trace.parent.is(parent) => {
                        ended.push_back((std::mem::take(&mut self.running), *trace));
                        if ended.len() > MAX_RECONCILES
                            && let Some((before, _)) = ended.pop_front()
                        {
                            self.latest.learn(before);
                        }
                    }
                    _ => {}
                }
            }
        }
        for (ReconcileCalls { calls: ran, left_out }, trace) in ended {
            let ran = self.latest.compared(ran);
            calls.reconciles.push_front(Arc::new(RecordedReconcile { calls: ran, left_out, trace }));
        }
        calls.reconciles.truncate(MAX_RECONCILES);
        Ok(Arc::clone(&self.calls))
    }
}

impl ReconcileCalls {
    fn add(&mut self, call: RecordedCall) {
        self.calls.push(call);
        if self.calls.len() > MAX_CALLS {
            self.calls.remove(0);
            self.left_out += 1;
        }
    }
}

impl LatestRequests {
    /// Takes in the requests of calls that no page shows.
    fn learn(&mut self, ReconcileCalls { calls, .. }: ReconcileCalls) {
        for (place, call) in placed(calls) {
            self.replace(place, &indented(&call.request));
        }
    }

    /// The calls as a page shows them, in their order.
    fn compared(&mut self, calls: Vec<RecordedCall>) -> Vec<ShownCall> {
        let shown = |(place, mut call): (_, RecordedCall)| {
            let request = indented(&std::mem::take(&mut call.request));
            let before = self.replace(place, &request);
            let changed = before.map(|before| line_diff::print(&before, &request, false));
            let answer = call.answer.take().map(|answer| ShownText::of(indented(&answer)));
            let answer = answer.ok_or_else(|| call.error.take().unwrap_or_default());
            let changed = ShownText::of(changed.unwrap_or_default());
            ShownCall { call, request: ShownText::of(request), answer, changed }
        };
        placed(calls).into_iter().map(shown).collect()
    }

    /// Keeps a request, and gives back the one before.
    fn replace(&mut self, place: (String, usize), request: &str) -> Option<String> {
        let before = self.0.remove(&place);
        if request.len() > MAX_COMPARED {
            return None;
        }
        self.0.insert(place, request.to_owned());
        before
    }
}

/// Each call with its hook and its place among the calls of this hook.
fn placed(calls: Vec<RecordedCall>) -> Vec<((String, usize), RecordedCall)> {
    let mut counts = BTreeMap::<String, usize>::new();
    let placed = |call: RecordedCall| {
        let count = counts.entry(call.hook.clone()).or_default();
        *count += 1;
        ((call.hook.clone(), *count), call)
    };
    calls.into_iter().map(placed).collect()
}

/// JSON with indents, or another text as it is.
fn indented(text: &str) -> String {
    let value = serde_json::from_str::<Value>(text);
    value.map_or_else(|_no_json| text.to_owned(), |value| format!("{value:#}"))
}

impl ShownText {
    fn of(mut text: String) -> Self {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        let left_out = whole - text.len();
        Self { text, left_out }
    }
}

#[cfg(test)]
mod tests;
