//! Count of triggers of settled parents: their reconciles end at once and leave no trace.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Hidden, MAX_MESSAGE, RELATED_CHANGED, TracedObject, message};
use crate::object::id::ObjectId;
use crate::reconcile::trigger::ReconcileCause;

/// Bytes that a related object takes beside itself and its names: the reference counts of these three.
const SHARED: usize = 3 * 2 * size_of::<usize>();

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
    /// The related object that the last cause names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related_cause: Option<TracedObject>,
}

/// Triggers since the latest trace of a parent that changed nothing, as they are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettledCount {
    triggers: u64,
    /// Times are since 1970.
    first: Duration,
    last: Duration,
    cause: Cow<'static, str>,
    related: Option<Arc<ObjectId>>,
}

impl SettledTriggers {
    /// Leaves out the name of the related object that caused the last one.
    pub fn hide_cause(&mut self, why: Hidden) {
        if self.related_cause.take().is_some() {
            self.last_cause = why.text_for(RELATED_CHANGED);
        }
    }
}

impl SettledCount {
    pub(super) fn count(&mut self, cause: ReconcileCause, now: Duration) {
        if self.triggers == 0 {
            self.first = now;
        }
        self.triggers += 1;
        self.last = now;
        let text = if cause.fields.is_empty() { cause.text } else { cause.to_string().into() };
        self.cause = if text.len() > MAX_MESSAGE { message(&text).into() } else { text };
        self.related = cause.related;
    }

    /// Bytes that the cause takes; the count itself has its place beside the traces.
    pub(super) fn bytes(&self) -> usize {
        let text = match &self.cause {
            Cow::Owned(cause) => cause.capacity(),
            Cow::Borrowed(_) => 0,
        };
        text + self.related.as_ref().map_or(0, |related| size_of_val(&**related) + related.key.len() + SHARED)
    }

    /// `None` where there was no trigger.
    pub(super) fn some(&self) -> Option<&Self> {
        (self.triggers > 0).then_some(self)
    }

    /// `print_time`: of a time since 1970.
    pub(super) fn print(self, print_time: fn(Duration) -> String) -> SettledTriggers {
        let Self { triggers, first, last, cause, related } = self;
        SettledTriggers {
            triggers,
            first: print_time(first),
            last: print_time(last),
            last_cause: cause.into_owned(),
            related_cause: related.as_deref().map(TracedObject::of),
        }
    }
}
