//! Errors of a reconcile, and their categories for metrics, status and retries.

use metahook_core::api::hook::HookName;
use metahook_core::children::Problem;
use metahook_core::object::id::ObjectId;
use metahook_core::object::selector::ChildSelectorError;
use metahook_core::reconcile::outcome::{Failure, Retry};
use metahook_core::reconcile::plan::AnswerError;
use metahook_core::rollout::revisions::RevisionError;
use metahook_core::shorten;

use crate::cluster::apply::ApplyError;
use crate::cluster::discovery::DiscoveryError;
use crate::controller::hooks::HookError;
use crate::controller::reconcile::claims::ClaimError;
use crate::controller::related::RelatedError;
use crate::error_chain::error_chain;

const MAX_MESSAGE_LENGTH: usize = 2048;

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
    #[error(transparent)]
    Revision(#[from] RevisionError),
    #[error(transparent)]
    Related(#[from] RelatedError),
    #[error("claiming children")]
    Claim(#[source] ClaimError),
    #[error("the parent's finalizer")]
    Finalizer(#[source] ClaimError),
    #[error("{id}")]
    Child { id: Box<ObjectId>, source: Problem },
    #[error("a child")]
    UnmanagedChild(#[from] DiscoveryError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl ReconcileError {
    pub(crate) fn failure(&self) -> Failure {
        let (category, retry) = match self {
            Self::Selector(_) => ("Selector", Retry::Loud),
            Self::Hook(error) => (error.category(), error.retry()),
            Self::Older { source, .. } => (source.category(), source.retry()),
            Self::Answer(_, error) => (answer_category(error), Retry::Loud),
            Self::Revision(_) => ("Revision", Retry::Loud),
            Self::Related(error) => (error.category(), error.retry()),
            Self::Claim(error) => ("Claim", error.retry()),
            Self::Finalizer(error) => ("Finalizer", error.retry()),
            Self::Child { .. } => ("Child", Retry::Loud),
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
        AnswerError::Revision(_) => "Revision",
        AnswerError::Older { source, .. } => answer_category(source),
    }
}
