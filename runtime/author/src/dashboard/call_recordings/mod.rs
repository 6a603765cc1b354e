//! Calls of hooks that pages show: servers record the calls about a parent as long as a page asks for them.
//!
//! # Guarantees
//! - A recording that no page has asked for lately ends when another one begins: a server allows few of them.
//! - Of each recording [`MAX_RECONCILES`] reconciles are kept, each with [`MAX_CALLS`] calls. Of each request and answer [`MAX_TEXT`]
//!   bytes are kept. The oldest reconciles and calls go first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use metahook_core::recording::{RecordedAnswer, RecordedCall, RecordedLine};
use metahook_core::trace::{ReconcileTrace, TracedObject};
use serde_json::Value;

use crate::line_diff;
use crate::record::reconciles::RecorderError;

const MAX_RECONCILES: usize = 10;

/// Calls of one reconcile, with those of its attempts.
const MAX_CALLS: usize = 8;

/// Bytes of a request or an answer, printed with indents.
const MAX_TEXT: usize = 32 << 10;

/// A page that is open asks every three seconds.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// A parent of a controller, whose calls are recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CallSubject {
    pub(super) controller: TracedObject,
    pub(super) parent: TracedObject,
}

/// Recordings by subject.
#[derive(Default)]
pub(super) struct CallRecordings(HashMap<CallSubject, CallRecording>);

struct CallRecording {
    /// The name of the recording at servers.
    number: String,
    asked: Instant,
    calls: RecordedCalls,
    /// Calls of the reconcile that has not ended.
    running: Vec<ShownCall>,
    /// The latest request of each hook.
    requests: BTreeMap<String, String>,
}

/// A question about a subject, and the recordings that end before it is asked.
pub(super) struct RecordingQuestion {
    pub(super) number: String,
    pub(super) ended: Vec<(CallSubject, String)>,
}

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
    pub(super) reconciles: VecDeque<RecordedReconcile>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordedReconcile {
    pub(super) calls: Vec<ShownCall>,
    pub(super) trace: ReconcileTrace,
}

/// A call as a page shows it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShownCall {
    /// Without its request, answer and error.
    pub(super) call: RecordedCall,
    pub(super) request: ShownText,
    /// The answer, or why there is none.
    pub(super) answer: Result<ShownText, String>,
    /// Lines of the request that differ from the call of the same hook before; empty where none do, or where there is no such call.
    pub(super) changed: String,
}

/// JSON with indents, or another text as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        if let Some(recording) = self.0.get_mut(subject) {
            recording.asked = now;
            return Ok(RecordingQuestion { number: recording.number.clone(), ended: Vec::new() });
        }
        let number = format!("{:016x}", getrandom::u64()?);
        let is_silent =
            |recording: &CallRecording| now.saturating_duration_since(recording.asked) > MAX_SILENCE;
        let ended = self.0.extract_if(|_, recording| is_silent(recording));
        let ended = ended.map(|(subject, recording)| (subject, recording.number)).collect();
        let recording = CallRecording {
            number: number.clone(),
            asked: now,
            calls: RecordedCalls::default(),
            running: Vec::new(),
            requests: BTreeMap::new(),
        };
        self.0.insert(subject.clone(), recording);
        Ok(RecordingQuestion { number, ended })
    }

    /// Adds the answers of servers. Gives back all calls of the subject.
    pub(super) fn add(
        &mut self,
        subject: &CallSubject,
        answers: Vec<RecordedAnswer>,
        now: Timestamp,
    ) -> Result<RecordedCalls, RecorderError> {
        // Another page may have ended it meanwhile: it begins again with the next question.
        let Some(recording) = self.0.get_mut(subject) else { return Ok(RecordedCalls::default()) };
        for answer in answers {
            recording.calls.lost += answer.lost;
            if answer.began {
                recording.calls.gaps += usize::from(recording.calls.began.is_some());
                recording.calls.began.get_or_insert(now);
                recording.running.clear();
            }
            for line in answer.lines {
                recording.add(&subject.parent, serde_json::from_str(&line).map_err(RecorderError::Line)?);
            }
        }
        Ok(recording.calls.clone())
    }

    /// Lets go of a recording that servers refused to begin.
    pub(super) fn refused(&mut self, subject: &CallSubject) {
        self.0.retain(|one, recording| one != subject || recording.calls.began.is_some());
    }
}

impl CallRecording {
    /// Parents of two kinds may have one name, and a server records both.
    fn add(&mut self, parent: &TracedObject, line: RecordedLine) {
        match line {
            RecordedLine::Call(call) if call.parent.is(parent) => {
                let call = self.shown(*call);
                self.running.push(call);
                if self.running.len() > MAX_CALLS {
                    self.running.remove(0);
                }
            }
            RecordedLine::Reconcile(trace) if trace.parent.is(parent) => {
                let calls = std::mem::take(&mut self.running);
                self.calls.reconciles.push_front(RecordedReconcile { calls, trace: *trace });
                self.calls.reconciles.truncate(MAX_RECONCILES);
            }
            _ => {}
        }
    }

    fn shown(&mut self, mut call: RecordedCall) -> ShownCall {
        let request = ShownText::of(&std::mem::take(&mut call.request));
        let answer = call.answer.take().map(|answer| ShownText::of(&answer));
        let answer = answer.ok_or_else(|| call.error.take().unwrap_or_default());
        let before = self.requests.insert(call.hook.clone(), request.text.clone());
        let changed = before.map(|before| line_diff::print(&before, &request.text, false));
        ShownCall { call, request, answer, changed: changed.unwrap_or_default() }
    }
}

impl ShownText {
    fn of(text: &str) -> Self {
        let indented = serde_json::from_str::<Value>(text).map(|value| format!("{value:#}"));
        let mut text = indented.unwrap_or_else(|_no_json| text.to_owned());
        let whole = text.len();
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        let left_out = whole - text.len();
        Self { text, left_out }
    }
}

#[cfg(test)]
mod tests;
