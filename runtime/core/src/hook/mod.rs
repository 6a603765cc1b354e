//! Protocol of hooks: requests and answers in JSON, the same for modules and webhooks, and the faults of answers.

pub mod customize;
pub mod read;
pub mod request;
pub mod response;

use crate::api::webhook::UnmarshallMode;

/// Memory that the values of an answer may take: far more than 10,000 large children need.
pub(crate) const MAX_ANSWER_MEMORY: usize = 128 << 20;

/// Events in one answer.
pub(super) const MAX_EVENTS: usize = 10;

/// Labels, or annotations, in one answer. The server remembers them for each object, and removing an absent one costs
/// nothing at the API server, which therefore sets no bound.
pub(super) const MAX_KEYS: usize = 1000;

/// Warnings of one answer that the server reports.
pub(super) const MAX_WARNINGS: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    #[error("the hook printed nothing: a sync hook answers with a JSON object on stdout")]
    Empty,
    #[error("the hook answered with an empty body: it has to answer with a JSON object")]
    EmptyBody,
    #[error("the hook's answer is not JSON")]
    Json(#[source] serde_json::Error),
    #[error("the hook's answer: {list} has {found} items, and {max} are allowed (--max-children)")]
    TooManyChildren { list: &'static str, found: usize, max: usize },
    #[error("the hook's answer: events has {found} different items, and {MAX_EVENTS} are allowed")]
    TooManyEvents { found: usize },
    #[error(
        "the hook's answer: {path} has {found} keys, and {MAX_KEYS} are allowed: name only those that are to change"
    )]
    TooManyKeys { path: String, found: usize },
    #[error("the hook's answer has so many values that reading it would take more than {} MiB", MAX_ANSWER_MEMORY >> 20)]
    TooManyValues,
    #[error("the hook's answer: {path} must be {expected}, not {found}")]
    Type { path: String, expected: &'static str, found: &'static str },
    #[error("the hook's answer: {path} must be {expected}")]
    Value { path: String, expected: &'static str },
    #[error("the hook's answer has no field {0}: an empty list is how to say that there are none")]
    NoChildren(&'static str),
    #[error("the hook's answer {0}")]
    Strict(AnswerWarning),
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
    pub(crate) fn add(&mut self, warning: AnswerWarning) {
        if self.0.len() < MAX_WARNINGS {
            self.0.push(warning);
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
