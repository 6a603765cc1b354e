//! Faults of answers, in words for the author of the hook: errors that refuse one, and warnings about parts without effect.

use crate::api::hook::{HookName, HookTransport};
use crate::api::webhook::UnmarshallMode;
use crate::hook::{MAX_EVENTS, MAX_KEYS};
use crate::shorten;

/// Warnings of one answer that the server reports.
pub(super) const MAX_WARNINGS: usize = 20;

/// Bytes of a path in a fault: a hook may give a field any name, and repeat the fields below one with a name of megabytes.
pub(super) const MAX_PATH: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    #[error("the hook printed nothing: a sync hook answers with a JSON object on stdout")]
    Empty,
    #[error("the hook answered with an empty body: it has to answer with a JSON object")]
    EmptyBody,
    #[error("the hook's answer is not JSON: {error}{}", begins(start.as_deref()))]
    Json { error: serde_json::Error, start: Option<String> },
    #[error("the hook's answer: {list} has {found} items, and {max} are allowed (--max-children)")]
    TooManyChildren { list: &'static str, found: usize, max: usize },
    #[error("the hook's answer: events has {found} different items, and {MAX_EVENTS} are allowed")]
    TooManyEvents { found: usize },
    #[error(
        "the hook's answer: {path} has {found} keys, and {MAX_KEYS} are allowed: name only those that are to change"
    )]
    TooManyKeys { path: String, found: usize },
    #[error("the hook's answer has so many values that reading it would take more than {} MiB{}", max >> 20, match via {
        HookTransport::Wasm => "",
        HookTransport::Webhook => ": answer with fewer, or raise --max-webhook-answer, of which this is the fourfold",
    })]
    TooManyValues { max: usize, via: HookTransport },
    #[error("the hook's answer: {path} must be {expected}, not {found}")]
    Type { path: String, expected: &'static str, found: &'static str },
    #[error("the hook's answer: {path} must be {expected}")]
    Value { path: String, expected: &'static str },
    #[error("the hook's answer has no field {0}: an empty list is how to say that there are none")]
    NoChildren(&'static str),
    #[error("the hook's answer {0}")]
    Strict(AnswerWarning),
}

/// Bytes of an answer that is no JSON in a message.
const MAX_START: usize = 80;

impl ResponseError {
    /// Error of an answer that is no JSON. An answer that begins as JSON does may hold a Secret: of that, the place of
    /// the fault has to do.
    pub(super) fn json(error: serde_json::Error, answer: &[u8]) -> Self {
        let answer = answer.trim_ascii_start();
        let is_text = !answer.starts_with(b"{") && !answer.starts_with(b"[");
        let head = || String::from_utf8_lossy(answer.get(..2 * MAX_START).unwrap_or(answer)).into_owned();
        Self::Json { error, start: is_text.then(|| shorten(&head(), MAX_START)) }
    }
}

fn begins(start: Option<&str>) -> String {
    start.map(|start| format!("; it begins with {start:?}")).unwrap_or_default()
}

/// A part of an answer that has no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerWarning {
    #[error("has the unknown field {0}")]
    UnknownField(String),
    /// The last one counts.
    #[error("has the field {0} more than once")]
    RepeatedField(String),
    /// The value has no effect where it stands.
    #[error("{path} {why}")]
    Ignored { path: String, why: String },
}

/// Warnings found so far in an answer.
#[derive(Debug, Default)]
pub(crate) struct AnswerWarnings(Vec<AnswerWarning>);

impl AnswerWarnings {
    /// `warning` is made only where it is kept.
    pub(crate) fn add(&mut self, warning: impl FnOnce() -> AnswerWarning) {
        if self.0.len() < MAX_WARNINGS {
            self.0.push(warning());
        }
    }

    /// # Errors
    /// The first warning, in strict mode.
    pub(crate) fn finish(self, mode: UnmarshallMode) -> Result<Vec<AnswerWarning>, ResponseError> {
        match (mode, self.0.first()) {
            (UnmarshallMode::Strict, Some(first)) => Err(ResponseError::Strict(first.clone())),
            (UnmarshallMode::Strict, None) | (UnmarshallMode::Loose, _) => Ok(self.0),
        }
    }
}

/// Bytes of the message about ignored parts of an answer.
const MAX_IGNORED_BYTES: usize = 1024;

/// Message about the parts of an answer without any effect; `None` where all of it counts.
pub fn ignored(hook: HookName, warnings: &[AnswerWarning]) -> Option<String> {
    let all: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    let message = || {
        shorten(
            &format!("The {hook} hook's answer {}; that has no effect", all.join("; ")),
            MAX_IGNORED_BYTES,
        )
    };
    (!all.is_empty()).then(message)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_is_no_json_shows_its_first_bytes_and_what_could_be_a_secret_does_not() {
        let says = |answer: &[u8]| {
            let error = serde_json::from_slice::<Value>(answer).unwrap_err();
            ResponseError::json(error, answer).to_string()
        };
        let at = "the hook's answer is not JSON: expected value at line 1 column 1";
        assert_eq!(says(b"Hello\n\x1b[2J"), format!("{at}; it begins with \"Hello\\n\\u{{1b}}[2J\""));
        assert_eq!(says(&[b'x'; MAX_START]), format!("{at}; it begins with {:?}", "x".repeat(MAX_START)));
        for length in [MAX_START + 1, 10_000] {
            let cut = format!("{at}; it begins with {:?}", "x".repeat(MAX_START - 3) + "…");
            assert_eq!(says(&vec![b'x'; length]), cut);
        }
        assert!(says(b"\xff\xff").ends_with("it begins with \"\u{fffd}\u{fffd}\""));
        for secret in [&br#" {"children":[{"kind":"Secret","data":{"a":"b"#[..], br#"["b"#] {
            let says = says(secret);
            assert!(!says.contains("begins"), "{says}");
        }
    }

    #[test]
    fn what_has_no_effect_is_said_in_one_bounded_message() {
        let unknown = |name: &str| AnswerWarning::UnknownField(name.to_owned());
        assert_eq!(ignored(HookName::Sync, &[]), None);
        let two = [unknown("statuss"), AnswerWarning::RepeatedField("children".to_owned())];
        let says = "The sync hook's answer has the unknown field statuss; has the field children more than once; that has no effect";
        assert_eq!(ignored(HookName::Sync, &two).unwrap(), says);
        let longest = "x".repeat(MAX_IGNORED_BYTES - ignored(HookName::Sync, &[unknown("")]).unwrap().len());
        let message = |name: &str| ignored(HookName::Sync, &[unknown(name)]).unwrap();
        assert!(message(&longest).len() == MAX_IGNORED_BYTES && message(&longest).ends_with("no effect"));
        let longer = message(&(longest + "x"));
        assert!(longer.len() <= MAX_IGNORED_BYTES && longer.ends_with('…'), "{longer}");
    }
}
