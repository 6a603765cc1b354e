//! Why a webhook gave no answer, in words for who runs it.

use std::time::Duration;

use metahook_core::api::units::print_bytes;

/// An answer may be this large.
pub(super) const LARGEST_ANSWER: usize = 32 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebError {
    #[error("the webhook at {host} asks to be called again in {}s", after.as_secs())]
    Busy { host: String, after: Duration },
    #[error("the webhook at {host} answered with an unsupported status code: {code} body: {body}")]
    Status { host: String, code: u16, body: String },
    #[error("the webhook at {host} did not answer within {}s (webhook.timeout)", budget.as_secs_f64())]
    Timeout { host: String, budget: Duration },
    #[error("the webhook at {host} cannot be reached: {why}")]
    Connect { host: String, why: String },
    #[error("the exchange with the webhook at {host} broke off: {why}")]
    Broken { host: String, why: String },
    #[error(
        "the webhook at {host} answered with more than {}: make it answer with less",
        print_bytes(LARGEST_ANSWER as u64)
    )]
    TooLong { host: String },
}

impl WebError {
    /// One word, for metrics and for the controller's status.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "HookBusy",
            Self::Status { .. } => "HookStatus",
            Self::Timeout { .. } => "HookTimeout",
            Self::Connect { .. } => "HookConnect",
            Self::Broken { .. } => "HookBroken",
            Self::TooLong { .. } => "HookOutput",
        }
    }

    /// How long the webhook wants to be left alone: that is no failure.
    pub(crate) fn busy(&self) -> Option<Duration> {
        match self {
            Self::Busy { after, .. } => Some(*after),
            Self::Status { .. }
            | Self::Timeout { .. }
            | Self::Connect { .. }
            | Self::Broken { .. }
            | Self::TooLong { .. } => None,
        }
    }
}
