//! Recordings: the reconciles of a running server, line by line, as `metahook record --reconciles` keeps them and `metahook replay`
//! calls their hooks again.

pub mod buffer;
pub mod secret_values;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::hook::Language;
use crate::api::policy::Limits;
use crate::hook::Usage;
use crate::trace::{ReconcileTrace, TraceEnd, TracedObject, TracedStep, TracedWriteEnd};
use secret_values::{SecretValues, TooManyValues};

/// The form of the lines. A program reads those of its own form.
pub const FORMAT: u32 = 1;

/// Bytes of the values of Secrets that a server looks for in one call.
const MAX_SECRET_BYTES: usize = 1 << 20;

/// Stands for messages that may repeat a Secret.
const LEFT_OUT: &str = "(left out, as it may repeat a Secret)";

/// One line of a recording, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedLine {
    /// The first line.
    Recording(Beginning),
    /// A hook was called.
    Call(Box<RecordedCall>),
    /// A reconcile ended. Calls of its attempts come before it.
    Reconcile(Box<ReconcileTrace>),
    /// A hook that was called, as the cluster stores it.
    Hook(RecordedHook),
    /// The CustomResourceDefinition of a kind.
    Definition(Box<Value>),
    /// The last line.
    End(Ending),
}

/// Answer of the server to a command that fetches a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAnswer {
    /// That of the server.
    pub version: String,
    /// The server runs the controller.
    pub hosted: bool,
    pub lines: Vec<String>,
    /// Lines for which there was no room.
    #[serde(default)]
    pub lost: usize,
    /// The recording begins with this answer: what came before is not in it.
    #[serde(default)]
    pub began: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Beginning {
    pub format: u32,
    /// That of the program that writes it.
    pub version: String,
    /// Its kind and name.
    pub controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    pub calls: usize,
    pub reconciles: usize,
    /// Lines for which the server had no room.
    pub lost: usize,
}

/// One call of a hook, with all that its answer depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedCall {
    /// The controller's name.
    pub controller: String,
    pub parent: TracedObject,
    pub hook: String,
    /// The digest of the module or script; `None`: the hook is a webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<RecordedLimits>,
    /// The folders that the hook may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// The time that its clock began at, in nanoseconds since 1970.
    pub now_nanos: u64,
    /// The source of its random numbers, in base64; `None` where a Secret was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<String>,
    pub request: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub took_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Values of Secrets were replaced in the request or the answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedLimits {
    memory: u64,
    timeout_millis: u64,
    instructions: u64,
    output: u64,
    log: u64,
}

/// A module or script as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedHook {
    pub digest: String,
    /// The key of its ConfigMap: the name of a script in its errors.
    pub key: String,
    /// The language of a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// In base64.
    pub content: String,
}

impl From<Limits> for RecordedLimits {
    fn from(Limits { memory, timeout, instructions, output, log }: Limits) -> Self {
        let timeout_millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Self { memory, timeout_millis, instructions, output, log }
    }
}

impl From<RecordedLimits> for Limits {
    fn from(recorded: RecordedLimits) -> Self {
        let RecordedLimits { memory, timeout_millis, instructions, output, log } = recorded;
        Self { memory, timeout: Duration::from_millis(timeout_millis), instructions, output, log }
    }
}

impl RecordedHook {
    /// `stored`: its bytes as the ConfigMap has them.
    pub fn new(digest: String, key: String, language: Option<Language>, stored: &[u8]) -> Self {
        let language = language.map(|language| language.as_str().to_owned());
        Self { digest, key, language, content: STANDARD.encode(stored) }
    }

    /// The bytes as the ConfigMap has them; `None` where the recording was damaged.
    pub fn stored(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.content).ok()
    }

    pub fn language(&self) -> Option<Language> {
        Language::ALL.into_iter().find(|it| Some(it.as_str()) == self.language.as_deref())
    }
}

impl RecordedCall {
    /// The time that the hook's clock began at.
    pub fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.now_nanos)
    }

    /// The source of the hook's random numbers; `None` where there is none that can be read.
    pub fn seed(&self) -> Option<[u8; 32]> {
        read_seed(self.seed.as_ref()?)
    }

    /// Without the values of Secrets that its request or its answer shows, and without copies of mounted files. A seed goes with them: a
    /// hook may have made a password of it; and an error, which may repeat a part of one.
    ///
    /// # Errors
    /// There are too many values.
    pub fn without_secrets<'a>(
        mut self,
        mounted: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, TooManyValues> {
        let mut values = SecretValues::within(MAX_SECRET_BYTES);
        let mut has_mounts = false;
        for text in mounted.filter_map(|file| std::str::from_utf8(file).ok()) {
            has_mounts = true;
            values.add_text(text);
        }
        let read = |text: &str| serde_json::from_str::<Value>(text).ok();
        let (mut request, mut answer) = (read(&self.request), self.answer.as_deref().and_then(read));
        for value in request.iter().chain(&answer) {
            values.add(value);
        }
        if !values.has_secrets() && !has_mounts {
            return Ok(self);
        }
        let (replacer, mut is_changed) = (values.replacer()?, false);
        for (text, value) in [(Some(&mut self.request), &mut request), (self.answer.as_mut(), &mut answer)] {
            if let (Some(text), Some(value)) = (text, value) {
                let before = value.clone();
                replacer.replace(value);
                // Else it stays as it is, byte by byte.
                if *value != before {
                    *text = value.to_string();
                    is_changed = true;
                }
            }
        }
        // An answer that is no JSON may hold anything.
        if answer.is_none() {
            is_changed |= self.answer.take().is_some();
        }
        if !values.has_secrets() && self.error.is_none() && !is_changed {
            return Ok(self);
        }
        self.error = self.error.map(|_| LEFT_OUT.to_owned());
        self.seed = None;
        self.replaced = true;
        Ok(self)
    }
}

impl RecordedLine {
    /// The line, without its end.
    pub fn print(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A trace without messages of hooks and of the API server, and without values of fields: a hook may copy a Secret into another
/// object.
pub fn without_values(mut trace: ReconcileTrace) -> ReconcileTrace {
    let hide = |text: &mut String| LEFT_OUT.clone_into(text);
    for step in &mut trace.steps {
        match step {
            TracedStep::Called { error, .. } | TracedStep::Related { error, .. } => {
                error.iter_mut().for_each(hide);
            }
            TracedStep::Wrote { reason, warnings, end, .. } => {
                reason.iter_mut().chain(warnings).for_each(hide);
                if let TracedWriteEnd::Failed(why) = end {
                    hide(why);
                }
            }
            TracedStep::Planned { writes, left, .. } => {
                for write in writes {
                    write.values.clear();
                }
                left.iter_mut().map(|child| &mut child.why).for_each(hide);
            }
            _ => {}
        }
    }
    if let TraceEnd::Failed(why) | TraceEnd::Again(why) = &mut trace.end {
        hide(why);
    }
    trace
}

/// A seed as a recording has it.
pub fn print_seed(seed: &[u8; 32]) -> String {
    STANDARD.encode(seed)
}

/// A seed that was printed.
pub fn read_seed(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::policy::LimitBounds;

    pub(crate) fn call(request: &Value, answer: &Value) -> RecordedCall {
        let parent = TracedObject {
            group: "example.com".into(),
            resource: "greetings".into(),
            kind: "Greeting".into(),
            namespace: "n".into(),
            name: "a".into(),
        };
        RecordedCall {
            controller: "c".to_owned(),
            parent,
            hook: "sync".to_owned(),
            digest: Some("sha256:1".to_owned()),
            limits: Some(LimitBounds::default().default.into()),
            mounts: Vec::new(),
            now_nanos: 1_500_000_000,
            seed: Some(print_seed(&[7; 32])),
            request: request.to_string(),
            answer: Some(answer.to_string()),
            error: None,
            took_us: 1,
            usage: None,
            replaced: false,
        }
    }

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let call = call(&json!({ "parent": {} }), &json!({ "children": [] }));
        let line = RecordedLine::Call(Box::new(call.clone()));
        assert_eq!(serde_json::from_str::<RecordedLine>(&line.print()).unwrap(), line);
        assert_eq!(call.seed(), Some([7; 32]));
        assert_eq!(call.now(), UNIX_EPOCH + Duration::from_millis(1500));
        assert_eq!(Limits::from(call.limits.unwrap()), LimitBounds::default().default);
        for seed in ["", "BwcH", "no base64!", &print_seed(&[7; 32]).repeat(2)] {
            assert_eq!(RecordedCall { seed: Some(seed.to_owned()), ..call.clone() }.seed(), None, "{seed}");
        }
    }

    #[test]
    fn a_call_without_secrets_stays_as_it_is() {
        let call = call(&json!({ "parent": { "kind": "Greeting" } }), &json!({ "children": [] }));
        assert_eq!(call.clone().without_secrets(std::iter::empty()).as_ref(), Ok(&call));
        assert_eq!(call.clone().without_secrets([&b"other text"[..]].into_iter()), Ok(call));
    }

    #[test]
    fn the_value_of_a_secret_is_in_no_part_of_a_call() {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { "k": "dG9wLXNlY3JldA==" } });
        let request = json!({ "parent": {}, "related": { "Secret.v1": { "s": secret } } });
        let answer = json!({ "children": [{ "kind": "ConfigMap", "data": { "url": "u:top-secret@h" } }] });
        let hidden = call(&request, &answer).without_secrets(std::iter::empty()).unwrap();
        let printed = RecordedLine::Call(Box::new(hidden.clone())).print();
        assert!(!printed.contains("top-secret") && !printed.contains("dG9wLXNlY3JldA"), "{printed}");
        assert!(hidden.replaced && hidden.seed.is_none());
        assert!(hidden.answer.is_some_and(|answer| answer.contains("u:replaced@h")));
        // A Secret that the hook makes.
        let made = json!({ "children": [{ "apiVersion": "v1", "kind": "Secret", "stringData": { "k": "top-secret" } }] });
        let hidden = call(&json!({ "parent": {} }), &made).without_secrets(std::iter::empty()).unwrap();
        assert!(hidden.replaced && !hidden.answer.unwrap().contains("top-secret"));
        // An answer that is no JSON, and an error that repeats a value.
        let odd = RecordedCall {
            answer: Some("top-secret".to_owned()),
            error: Some("no such user: top-secret".to_owned()),
            ..call(&request, &json!({}))
        };
        let printed = RecordedLine::Call(Box::new(odd.without_secrets(std::iter::empty()).unwrap())).print();
        assert!(!printed.contains("top-secret"), "{printed}");
        // A mounted file that the hook copies.
        let copied = json!({ "children": [{ "kind": "ConfigMap", "data": { "k": "a-mounted-token" } }] });
        let hidden = call(&json!({ "parent": {} }), &copied)
            .without_secrets([&b"a-mounted-token\n"[..]].into_iter())
            .unwrap();
        assert!(hidden.replaced && !hidden.answer.unwrap().contains("a-mounted-token"));
    }

    #[test]
    fn the_messages_and_values_of_a_reconcile_are_left_out() {
        let trace = json!({
            "controller": "c", "parent": call(&json!({}), &json!({})).parent, "generation": 1, "resourceVersion": "1",
            "began": "", "tookUs": 1, "cause": "spec changed",
            "steps": [
                { "step": "called", "hook": "sync", "tookUs": 1, "error": "top-secret" },
                { "step": "planned", "unchanged": 0, "left": [{ "object": call(&json!({}), &json!({})).parent, "why": "top-secret" }],
                    "writes": [{ "verb": "replace", "object": call(&json!({}), &json!({})).parent, "changes": ["data.k"],
                        "values": [{ "path": "data.k", "before": "top-secret", "after": "top-secret" }] }] },
                { "step": "wrote", "verb": "create", "object": call(&json!({}), &json!({})).parent, "reason": "top-secret", "warnings": ["top-secret"], "end": { "failed": "top-secret" } },
            ],
            "end": { "failed": "top-secret" },
        });
        let trace: ReconcileTrace = serde_json::from_value(trace).unwrap();
        let printed = serde_json::to_string(&without_values(trace)).unwrap();
        assert!(!printed.contains("top-secret") && printed.contains("spec changed"), "{printed}");
        assert!(printed.contains("data.k"), "{printed}");
    }
}
