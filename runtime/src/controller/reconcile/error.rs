//! Errors of a reconcile: what failed, and how it is tried again.

use metahook_core::api::hook::HookName;
use metahook_core::children::Problem;
use metahook_core::children::desired::DesiredError;
use metahook_core::object::id::ObjectId;
use metahook_core::object::selector::ChildSelectorError;
use metahook_core::reconcile::outcome::{Failure, Retry};
use metahook_core::reconcile::plan::AnswerError;
use metahook_core::rollout::revisions::RevisionError;
use metahook_core::shorten;

use super::{HELD_RETRY_DELAY, MAX_MESSAGE_LENGTH};
use crate::cluster::apply::ApplyError;
use crate::cluster::discovery::DiscoveryError;
use crate::controller::hooks::HookError;
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
    #[error("claiming children")]
    Claim(#[source] ClaimError),
    #[error("the parent's finalizer")]
    Finalizer(#[source] ApplyError),
    #[error("{id}")]
    Child { id: Box<ObjectId>, source: Problem },
    #[error(
        "after a change of the hooks or of the spec the deletion of {0} children waits: see the controller's condition DeletionsHeld"
    )]
    DeletionsHeld(usize),
    #[error("a child")]
    UnmanagedChild(#[from] DiscoveryError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("{id} is not adopted: its parent to be is gone or being deleted")]
    ParentGone { id: ObjectId },
}

impl ReconcileError {
    /// A right is missing.
    pub(super) fn is_ungranted(&self) -> bool {
        match self {
            Self::Apply(error) | Self::Finalizer(error) | Self::Claim(ClaimError::Apply(error)) => {
                error.is_ungranted()
            }
            _ => false,
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
            Self::Claim(error) => ("Claim", error.retry()),
            Self::Finalizer(error) => ("Finalizer", error.retry()),
            Self::Child { .. } => ("Child", Retry::Loud),
            Self::DeletionsHeld(_) => ("DeletionsHeld", Retry::After(HELD_RETRY_DELAY)),
            Self::UnmanagedChild(error) => ("Child", error.retry()),
            Self::Apply(error) => ("Write", error.retry()),
        };
        Failure { category, message: shorten(&error_chain(self), MAX_MESSAGE_LENGTH), retry }
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
        }
    }
}
