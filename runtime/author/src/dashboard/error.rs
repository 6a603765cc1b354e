//! Why a page is not shown.

use http::StatusCode;

use crate::explain::ExplainError;
use crate::inspected_server::{InspectError, ServerError};
use crate::status::StatusError;

#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error("{0}: open the address that `metahook dashboard` printed")]
    Stranger(String),
    #[error("pages are read by GET alone")]
    Method,
    #[error("there is no such page")]
    NoPage,
    #[error("the API server did not answer within {seconds} s: is it reached from this machine?")]
    LateApiServer { seconds: u64 },
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error(transparent)]
    Explain(#[from] ExplainError),
    #[error(transparent)]
    Inspect(#[from] InspectError),
}

impl PageError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Stranger(_) => StatusCode::FORBIDDEN,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoPage | Self::Explain(ExplainError::Name(_)) | Self::Status(StatusError::Find(_)) => {
                StatusCode::NOT_FOUND
            }
            Self::Inspect(InspectError::Server(ServerError::Refused { status, .. })) => *status,
            Self::LateApiServer { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Status(_) | Self::Explain(_) | Self::Inspect(_) => StatusCode::BAD_GATEWAY,
        }
    }
}
