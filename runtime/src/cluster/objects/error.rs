//! Error of a request about an object: it names verb, object and cause.

use std::error::Error;

use http::StatusCode;
use metahook_core::api::access::OwnerGuard;
use metahook_core::object::ObjectError;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::reconcile::outcome::Retry;

use crate::cluster::api_client::{Answer, Unreachable};
use crate::cluster::rights;

/// A request about an object, or about all of a kind, that was not carried out.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {}", target(id))]
pub struct RequestError {
    verb: &'static str,
    /// The object; without a name where the request is about a list.
    id: Box<ObjectId>,
    #[source]
    kind: RequestErrorKind,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestErrorKind {
    #[error("it has changed meanwhile: {0}")]
    Conflict(String),
    #[error("an object of that name exists already: {0}; delete it or choose another name")]
    Exists(String),
    #[error("it is this parent's, and has not been observed yet")]
    Unobserved,
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Ungranted(String),
    #[error("there is no namespace {0}: create it with `kubectl create namespace {0}`")]
    NoNamespace(String),
    #[error("it can be neither updated in place nor recreated, so it is left as it is: {0}")]
    NotRecreatable(String),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the answer cannot be read")]
    Answer(#[source] Box<dyn Error + Send + Sync>),
}

/// End of a refusal that says how a user can have an object deleted that cannot be recreated.
pub(crate) const WAY_OUT: &str = "; to have it deleted all the same";

fn target(id: &ObjectId) -> String {
    let (plural, Key { namespace, name }) = (&id.resource.plural, &id.key);
    match (namespace.is_empty(), name.is_empty()) {
        (_, false) => id.to_string(),
        (true, true) => plural.to_string(),
        (false, true) => format!("{plural} in {namespace}"),
    }
}

impl RequestError {
    pub(in crate::cluster) fn new(verb: &'static str, id: &ObjectId, kind: RequestErrorKind) -> Self {
        Self { verb, id: Box::new(id.clone()), kind }
    }

    pub(in crate::cluster) fn of_list(resource: &Resource, namespace: &str, kind: RequestErrorKind) -> Self {
        let id = ObjectId { resource: resource.clone().into(), key: Key::new(namespace, "") };
        Self::new("list", &id, kind)
    }

    pub(crate) fn id(&self) -> &ObjectId {
        &self.id
    }

    pub(crate) fn kind(&self) -> &RequestErrorKind {
        &self.kind
    }

    /// A right is missing.
    pub fn is_ungranted(&self) -> bool {
        matches!(self.kind, RequestErrorKind::Ungranted(_))
    }

    /// Another client was faster, or what is to be written has not been observed yet.
    pub fn is_conflict(&self) -> bool {
        matches!(self.kind, RequestErrorKind::Conflict(_) | RequestErrorKind::Unobserved)
    }

    /// The guard of owner references that refused it, and the object.
    pub(crate) fn guard(&self) -> Option<(OwnerGuard, &ObjectId)> {
        let (RequestErrorKind::Refused(message) | RequestErrorKind::NotRecreatable(message)) = &self.kind
        else {
            return None;
        };
        Some((OwnerGuard::of(message)?, &self.id))
    }

    /// The error, with a message that names the right that the guard asks for.
    pub(crate) fn with_right(mut self, message: String) -> Self {
        self.kind = match self.kind {
            RequestErrorKind::NotRecreatable(before) => {
                let way_out = before.find(WAY_OUT).and_then(|at| before.get(at..)).unwrap_or_default();
                RequestErrorKind::NotRecreatable(message + way_out)
            }
            _ => RequestErrorKind::Ungranted(message),
        };
        self
    }

    /// How a reconcile that needs it is retried. Neither a conflict with another client nor a busy API server is worth an
    /// Event: the watch event of the other write is on its way.
    pub(crate) fn retry(&self) -> Retry {
        match &self.kind {
            RequestErrorKind::Unreachable(error) => error.retry(),
            _ if self.is_conflict() => Retry::Silent,
            _ => Retry::WithEvent,
        }
    }
}

impl From<ObjectError> for RequestErrorKind {
    fn from(error: ObjectError) -> Self {
        Self::Answer(error.into())
    }
}

impl From<serde_json::Error> for RequestErrorKind {
    fn from(error: serde_json::Error) -> Self {
        Self::Answer(error.into())
    }
}

impl RequestErrorKind {
    /// Why the API server did not do what it was asked.
    pub(in crate::cluster) fn of_refusal(answer: &Answer) -> Self {
        let message = answer.message();
        match answer.status {
            StatusCode::CONFLICT => Self::Conflict(message),
            status if rights::is_ungranted(status.as_u16(), &message) => Self::Ungranted(message),
            _ => Self::Refused(message),
        }
    }
}
