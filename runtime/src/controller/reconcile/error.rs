//! Errors of a reconcile: what failed, and how it is tried again.

use std::error::Error;

use metahook_core::api::hook::HookName;
use metahook_core::children::Problem;
use metahook_core::children::desired::DesiredError;
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::object::selector::ChildSelectorError;
use metahook_core::reconcile::failures::{self, WriteFailure};
use metahook_core::reconcile::outcome::{Failure, MAX_EVENT_MESSAGE, Retry};
use metahook_core::reconcile::plan::AnswerError;
use metahook_core::rollout::revisions::RevisionError;
use metahook_core::{counted, one_line, shorten_middle};

use super::{HELD_RETRY_DELAY, MAX_MESSAGE_LENGTH};
use crate::cluster::apply::ApplyError;
use crate::cluster::discovery::DiscoveryError;
use crate::controller::brake::RecordError;
use crate::controller::hooks::HookError;
use crate::controller::read_rights::ReadRightsError;
use crate::controller::related::RelatedError;
use crate::memory::{MemoryShort, MemoryTooLarge};
use crate::telemetry::error_chain;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("selecting children")]
    Selector(#[from] ChildSelectorError),
    #[error(transparent)]
    Hook(#[from] HookError),
    #[error("{0} hook")]
    Answer(HookName, #[source] AnswerError),
    #[error("the {hook} hook, asked about the parent as it was at ControllerRevision {revision}")]
    Older { hook: HookName, revision: String, source: HookError },
    #[error("a child, while the others are written")]
    ChildFailed(#[source] DesiredError),
    #[error(transparent)]
    MemoryTooLarge(#[from] MemoryTooLarge),
    /// The reconcile is repeated.
    #[error(transparent)]
    MemoryShort(#[from] MemoryShort),
    #[error(transparent)]
    Revision(#[from] RevisionError),
    #[error(transparent)]
    Related(#[from] RelatedError),
    #[error(transparent)]
    Reads(#[from] ReadRightsError),
    #[error("claiming children")]
    Claim(#[source] ClaimError),
    #[error("the parent's finalizer")]
    Finalizer(#[source] ApplyError),
    #[error("{id}")]
    Child { id: Box<ObjectId>, source: Problem },
    #[error(
        "after a change of the hooks or of the spec the deletion of {} waits: see the controller's condition DeletionsHeld",
        counted(*_0, "child", "children")
    )]
    DeletionsHeld(usize),
    #[error(
        "the controller's status does not have the number of deletions yet, and no child is deleted before"
    )]
    DeletionsUnrecorded(#[from] RecordError),
    #[error("{kind} {key}")]
    UnmanagedChild { kind: Box<str>, key: Box<Key>, source: DiscoveryError },
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Writes of one reconcile that failed, at least two.
    #[error("{}", failure.message)]
    Several { failure: Failure, is_ungranted: bool },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("{id} is not adopted: its parent to be is gone or being deleted")]
    ParentGone { id: ObjectId },
    #[error("{id} changes faster than it can be read")]
    Unread { id: ObjectId },
}

impl ReconcileError {
    /// A right is missing.
    pub(super) fn is_ungranted(&self) -> bool {
        match self {
            Self::Apply(error) | Self::Finalizer(error) | Self::Claim(ClaimError::Apply(error)) => {
                error.is_ungranted()
            }
            Self::Several { is_ungranted, .. } => *is_ungranted,
            Self::Reads(error) => matches!(error, ReadRightsError::Missing(_)),
            _ => false,
        }
    }

    /// The failures of several writes as one, which names those that are worth an Event; the others are tried again with
    /// them. `what`: the plural of what was written.
    pub(super) fn of_all(what: &str, mut errors: Vec<Self>) -> Option<Self> {
        let rank = |error: &Self| match error.failure().retry {
            Retry::Loud => 0,
            Retry::After(_) => 1,
            Retry::Quiet => 2,
        };
        errors.sort_by_key(rank);
        let loud = errors.iter().take_while(|error| rank(error) == 0).count();
        if loud < 2 {
            return errors.into_iter().next();
        }
        errors.truncate(loud);
        let failures: Vec<_> = errors.iter().map(Self::write_failure).collect();
        let failure = Failure {
            category: errors.first()?.failure().category,
            message: failures::message(what, &failures, MAX_EVENT_MESSAGE),
            retry: Retry::Loud,
        };
        Some(Self::Several { failure, is_ungranted: errors.iter().any(Self::is_ungranted) })
    }

    /// The object of a write that failed, and the cause without it.
    fn write_failure(&self) -> WriteFailure {
        let cause = |error: &dyn Error| error.source().map(error_chain).unwrap_or_default();
        let of = |kind: &str, name: String, cause| WriteFailure { kind: kind.to_owned(), name, cause };
        let of_id = |id: &ObjectId, cause| of(&id.resource.gvk.kind, id.key.to_string(), cause);
        match self {
            Self::Apply(error) | Self::Finalizer(error) => of_id(error.id(), cause(error)),
            Self::Child { id, .. } => of_id(id, cause(self)),
            Self::UnmanagedChild { kind, key, .. } => of(kind, key.to_string(), cause(self)),
            Self::ChildFailed(error) => {
                of("", error.at().map_or_else(String::new, |at| at.to_string()), cause(self))
            }
            _ => of("", String::new(), error_chain(self)),
        }
    }

    pub(crate) fn failure(&self) -> Failure {
        let (category, retry) = match self {
            Self::Selector(_) => ("Selector", Retry::Loud),
            Self::Hook(error) => (error.category(), error.retry()),
            Self::Older { source, .. } => (source.category(), source.retry()),
            Self::Answer(_, error) => (answer_category(error), Retry::Loud),
            Self::ChildFailed(_) => ("HookChildren", Retry::Loud),
            Self::MemoryTooLarge(_) => ("MemoryTooLarge", Retry::Loud),
            Self::MemoryShort(_) => ("MemoryShort", Retry::Quiet),
            Self::Revision(_) => ("Revision", Retry::Loud),
            Self::Related(error) => (error.category(), error.retry()),
            Self::Reads(_) => ("Rights", Retry::Loud),
            Self::Claim(error) => ("Claim", error.retry()),
            Self::Finalizer(error) => ("Finalizer", error.retry()),
            Self::Child { .. } => ("Child", Retry::Loud),
            Self::DeletionsHeld(_) => ("DeletionsHeld", Retry::After(HELD_RETRY_DELAY)),
            Self::DeletionsUnrecorded(error) => ("Write", error.retry()),
            Self::UnmanagedChild { source, .. } => ("Child", source.retry()),
            Self::Several { failure, .. } => return failure.clone(),
            Self::Apply(error) => ("Write", error.retry()),
        };
        Failure {
            category,
            message: shorten_middle(&one_line(&error_chain(self)), MAX_MESSAGE_LENGTH),
            retry,
        }
    }
}

fn answer_category(error: &AnswerError) -> &'static str {
    match error {
        AnswerError::Response(_) | AnswerError::Deletion(_) => "HookAnswer",
        AnswerError::Desired(_) => "HookChildren",
        AnswerError::NoRoom => "MemoryShort",
        AnswerError::Revision(_) => "Revision",
    }
}

impl ClaimError {
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Apply(error) => error.retry(),
            Self::ParentGone { .. } => Retry::Loud,
            Self::Unread { .. } => Retry::Quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::reconcile::testing::children;

    fn child(name: &str, source: Problem) -> ReconcileError {
        let id = ObjectId { resource: children(), key: Key::new("n", name) };
        ReconcileError::Child { id: Box::new(id), source }
    }

    fn quiet() -> ReconcileError {
        MemoryShort.into()
    }

    #[test]
    fn all_children_that_fail_are_named_and_what_is_no_failure_is_not() {
        let error = |errors| ReconcileError::of_all("children", errors).map(|error| error.failure());
        assert_eq!(error(vec![]), None);
        assert_eq!(error(vec![quiet()]).map(|failure| failure.retry), Some(Retry::Quiet));
        let alone = error(vec![quiet(), child("a", Problem::Observed)]);
        assert_eq!(alone.unwrap().message, "ConfigMap n/a: it is not the JSON of an object");
        let several =
            error(vec![child("b", Problem::Observed), quiet(), child("a", Problem::Observed)]).unwrap();
        assert_eq!((several.category, several.retry), ("Child", Retry::Loud));
        assert_eq!(several.message, "2 children failed: ConfigMap n/a, n/b: it is not the JSON of an object");
    }
}
