//! Errors of a reconcile: what failed, and how it is tried again.

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use crate::api::hook::HookName;
use crate::children::Problem;
use crate::children::claims::ClaimedObject;
use crate::children::desired::DesiredError;
use crate::hook::RequestTooLarge;
use crate::object::id::{Key, ObjectId};
use crate::object::selector::ChildSelectorError;
use crate::reconcile::failures::{self, WriteFailure};
use crate::reconcile::outcome::{Failure, MAX_EVENT_MESSAGE, Retry};
use crate::reconcile::plan::AnswerError;
use crate::reconcile::ports::{PortError, WriteError, WriteErrorCause};
use crate::rollout::revisions::RevisionError;
use crate::{counted, error_chain, one_line, shorten_middle};

/// Bytes of a failure's message.
pub const MAX_MESSAGE_LENGTH: usize = 2048;

/// A hook whose deletions wait is asked again this much later, since it may no longer want them.
pub const HELD_RETRY_DELAY: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error("selecting children")]
    Selector(#[from] ChildSelectorError),
    /// A hook, a read or the memory: no write of an object.
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("{0} hook")]
    Request(HookName, #[source] RequestTooLarge),
    #[error("{0} hook")]
    Answer(HookName, #[source] AnswerError),
    #[error("the {hook} hook, asked about the parent as it was at ControllerRevision {revision}")]
    Older { hook: HookName, revision: String, source: PortError },
    #[error("a child, while the others are written")]
    ChildFailed(#[source] DesiredError),
    #[error(transparent)]
    Revision(#[from] RevisionError),
    #[error("claiming children")]
    Claim(#[source] ClaimError),
    #[error("the parent's finalizer")]
    Finalizer(#[source] WriteError),
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
    DeletionsUnrecorded(#[source] PortError),
    #[error("{kind} {key}")]
    UnmanagedChild { kind: Box<str>, key: Box<Key>, source: PortError },
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The deletion of a related object.
    #[error(transparent)]
    RelatedDeletion(WriteError),
    /// Writes of one reconcile that failed, at least two.
    #[error("{}", failure.message)]
    Several { failure: Failure, failures: Vec<WriteFailure>, is_ungranted: bool },
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{id} is not adopted: its parent to be is gone or being deleted")]
    ParentGone { id: Box<ObjectId> },
    #[error("{id} changes faster than it can be read")]
    Unread { id: Box<ObjectId> },
}

impl ReconcileError {
    /// A right is missing.
    pub fn is_ungranted(&self) -> bool {
        match self {
            Self::Write(error)
            | Self::RelatedDeletion(error)
            | Self::Finalizer(error)
            | Self::Claim(ClaimError::Write(error)) => error.cause == WriteErrorCause::Ungranted,
            Self::Several { is_ungranted, .. } => *is_ungranted,
            Self::Port(error) => error.is_ungranted,
            _ => false,
        }
    }

    /// The server stops, and no longer waited for a hook: no failure, and nothing was planned.
    pub fn is_stopping(&self) -> bool {
        match self {
            Self::Port(error) | Self::Older { source: error, .. } => error.is_stopping,
            _ => false,
        }
    }

    /// The failures of several writes as one, which names those that are worth an Event; the others are tried again with
    /// them. `what`: the plural of what was written.
    pub(crate) fn of_all(what: &str, mut errors: Vec<Self>) -> Option<Self> {
        let rank = |error: &Self| match error.failure().retry {
            Retry::WithEvent => 0,
            Retry::After(_) => 1,
            Retry::Silent => 2,
        };
        errors.sort_by_key(rank);
        let with_event = errors.iter().take_while(|error| rank(error) == 0).count();
        if with_event < 2 {
            return errors.into_iter().next();
        }
        errors.truncate(with_event);
        let (mut failures, mut distinct) = (Vec::new(), BTreeSet::new());
        for failure in errors.iter().flat_map(Self::write_failures) {
            // A child may be claimed in vain, and written in vain for the same cause.
            if distinct.insert(failure.clone()) {
                failures.push(failure);
            }
        }
        let failure = Failure {
            category: errors.first()?.failure().category,
            message: failures::message(what, &failures, MAX_EVENT_MESSAGE),
            retry: Retry::WithEvent,
            related: errors.iter().flat_map(Self::related).collect(),
        };
        Some(Self::Several { failure, failures, is_ungranted: errors.iter().any(Self::is_ungranted) })
    }

    fn write_failures(&self) -> Vec<WriteFailure> {
        match self {
            Self::Several { failures, .. } => failures.clone(),
            one => vec![one.write_failure()],
        }
    }

    /// The object of a write that failed, and the cause without it.
    fn write_failure(&self) -> WriteFailure {
        let cause = |error: &dyn Error| error.source().map(error_chain).unwrap_or_default();
        let of = |kind: &str, name: String, cause| WriteFailure { kind: kind.to_owned(), name, cause };
        let of_id = |id: &ObjectId, cause| of(&id.resource.gvk.kind, id.key.to_string(), cause);
        match self {
            Self::Write(error)
            | Self::RelatedDeletion(error)
            | Self::Finalizer(error)
            | Self::Claim(ClaimError::Write(error)) => of_id(&error.id, cause(error)),
            Self::Child { id, .. } => of_id(id, cause(self)),
            Self::UnmanagedChild { kind, key, .. } => of(kind, key.to_string(), cause(self)),
            Self::ChildFailed(error) => {
                of("", error.at().map_or_else(String::new, |at| at.to_string()), cause(self))
            }
            _ => of("", String::new(), error_chain(self)),
        }
    }

    /// The related objects that the message may name.
    fn related(&self) -> Vec<ObjectId> {
        match self {
            Self::RelatedDeletion(error) => vec![error.id.clone()],
            Self::Answer(_, AnswerError::Deletion(error)) => error.object().into_iter().collect(),
            Self::Several { failure, .. } => failure.related.clone(),
            _ => Vec::new(),
        }
    }

    /// The failure as the queue, metrics, the log and Events show it.
    pub fn failure(&self) -> Failure {
        let (category, retry) = match self {
            Self::Selector(_) => ("Selector", Retry::WithEvent),
            Self::Port(error) | Self::Older { source: error, .. } => (error.category, error.retry),
            Self::Request(..) => ("HookRequest", Retry::WithEvent),
            Self::Answer(_, error) => (answer_category(error), Retry::WithEvent),
            Self::ChildFailed(_) => ("HookChildren", Retry::WithEvent),
            Self::Revision(_) => ("Revision", Retry::WithEvent),
            Self::Claim(error) => ("Claim", error.retry()),
            Self::Finalizer(error) => ("Finalizer", error.retry),
            Self::Child { .. } => ("Child", Retry::WithEvent),
            Self::DeletionsHeld(_) => ("DeletionsHeld", Retry::After(HELD_RETRY_DELAY)),
            Self::DeletionsUnrecorded(error) => ("Write", error.retry),
            Self::UnmanagedChild { source, .. } => ("Child", source.retry),
            Self::Several { failure, .. } => return failure.clone(),
            Self::Write(error) | Self::RelatedDeletion(error) => ("Write", error.retry),
        };
        Failure {
            category,
            message: shorten_middle(&one_line(&error_chain(self)), MAX_MESSAGE_LENGTH),
            retry,
            related: self.related(),
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
    /// Whether it says something about this object alone. Where the parent is gone, the API server is overloaded, or another
    /// client was faster, the other claims wait.
    pub(crate) fn is_refusal_of(&self, claimed: &ClaimedObject) -> bool {
        matches!(self, Self::Write(error) if error.retry == Retry::WithEvent && error.id == claimed.id())
    }

    pub fn retry(&self) -> Retry {
        match self {
            Self::Write(error) => error.retry,
            Self::ParentGone { .. } => Retry::WithEvent,
            Self::Unread { .. } => Retry::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::resource;

    fn child(name: &str, source: Problem) -> ReconcileError {
        let id = ObjectId { resource: resource("v1", "ConfigMap"), key: Key::new("n", name) };
        ReconcileError::Child { id: Box::new(id), source }
    }

    #[test]
    fn a_hook_that_the_server_no_longer_waits_for_is_no_failure_of_it() {
        for is_stopping in [true, false] {
            let error = || PortError {
                is_stopping,
                ..PortError::new("HookStopping", Retry::Silent, std::fmt::Error)
            };
            let (hook, revision) = (HookName::Sync, String::new());
            for error in [error().into(), ReconcileError::Older { hook, revision, source: error() }] {
                assert_eq!(error.is_stopping(), is_stopping, "{error:?}");
            }
        }
    }

    fn silent() -> ReconcileError {
        PortError::new("MemoryShort", Retry::Silent, std::fmt::Error).into()
    }

    #[test]
    fn all_children_that_fail_are_named_and_what_is_no_failure_is_not() {
        let error = |errors| ReconcileError::of_all("children", errors).map(|error| error.failure());
        assert_eq!(error(vec![]), None);
        assert_eq!(error(vec![silent()]).map(|failure| failure.retry), Some(Retry::Silent));
        let alone = error(vec![silent(), child("a", Problem::Observed)]);
        assert_eq!(alone.unwrap().message, "ConfigMap n/a: it is not the JSON of an object");
        let several =
            error(vec![child("b", Problem::Observed), silent(), child("a", Problem::Observed)]).unwrap();
        assert_eq!((several.category, several.retry), ("Child", Retry::WithEvent));
        assert_eq!(several.message, "2 children failed: ConfigMap n/a, n/b: it is not the JSON of an object");
    }

    fn deletion(name: &str) -> ReconcileError {
        let id = ObjectId { resource: resource("v1", "Secret"), key: Key::new("n", name) };
        ReconcileError::RelatedDeletion(WriteError {
            id,
            cause: WriteErrorCause::Ungranted,
            retry: Retry::WithEvent,
            source: Box::new(std::fmt::Error),
        })
    }

    #[test]
    fn a_failure_has_the_related_objects_that_it_may_name() {
        let related = |errors| ReconcileError::of_all("objects", errors).unwrap().failure().related;
        let keys = |errors| related(errors).iter().map(|id| id.key.to_string()).collect::<Vec<_>>();
        assert_eq!(keys(vec![deletion("a")]), ["n/a"]);
        assert_eq!(keys(vec![deletion("a"), child("b", Problem::Observed), deletion("c")]), ["n/a", "n/c"]);
        assert!(keys(vec![child("b", Problem::Observed)]).is_empty());
        assert!(deletion("a").is_ungranted());
    }

    #[test]
    fn failures_of_two_steps_are_named_in_one_message_and_each_once() {
        let children = vec![child("b", Problem::Observed), child("a", Problem::Observed)];
        let children = ReconcileError::of_all("children", children).unwrap();
        let all = vec![children, child("c", Problem::Observed), child("a", Problem::Observed)];
        let message = ReconcileError::of_all("objects", all).unwrap().failure().message;
        assert_eq!(message, "3 objects failed: ConfigMap n/a, n/b, n/c: it is not the JSON of an object");
    }
}
