//! Count of triggers of settled parents: their reconciles end at once and leave no trace.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{MAX_MESSAGE, message};

/// Triggers since the latest trace of a parent that changed nothing, as the server answers them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SettledTriggers {
    pub triggers: u64,
    /// Time of the first trigger, in RFC 3339.
    pub first: String,
    /// Time of the last trigger.
    pub last: String,
    /// Cause of the last one.
    pub last_cause: String,
}

/// Triggers since the latest trace of a parent that changed nothing, as they are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettledCount {
    triggers: u64,
    /// Times are since 1970.
    first: Duration,
    last: Duration,
    cause: Cow<'static, str>,
}

impl SettledCount {
    pub(super) fn count(&mut self, cause: Cow<'static, str>, now: Duration) {
        if self.triggers == 0 {
            self.first = now;
        }
        self.triggers += 1;
        self.last = now;
        self.cause = if cause.len() > MAX_MESSAGE { message(&cause).into() } else { cause };
    }

    /// What the cause takes; the count itself has its place beside the traces.
    pub(super) fn bytes(&self) -> usize {
        match &self.cause {
            Cow::Owned(cause) => cause.capacity(),
            Cow::Borrowed(_) => 0,
        }
    }

    /// `None` where there was no trigger.
    pub(super) fn some(&self) -> Option<&Self> {
        (self.triggers > 0).then_some(self)
    }

    /// `print_time`: of a time since 1970.
    pub(super) fn print(self, print_time: fn(Duration) -> String) -> SettledTriggers {
        let Self { triggers, first, last, cause } = self;
        SettledTriggers {
            triggers,
            first: print_time(first),
            last: print_time(last),
            last_cause: cause.into_owned(),
        }
    }
}
