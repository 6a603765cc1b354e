//! Errors of pages, and the HTTP status of each.

use http::StatusCode;
use metahook_server::cluster::objects::RequestError;
use tokio::task::JoinError;

use crate::controllers::FindError;
use crate::explain::ExplainError;
use crate::inspected_server::{InspectError, ServerError};
use crate::record::reconciles::RecorderError;
use crate::status::StatusError;

#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
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
    #[error(transparent)]
    Record(#[from] RecorderError),
    #[error("the servers did not answer within {seconds} s: the page shows the calls once they come")]
    LateServers { seconds: u64 },
    #[error("the page could not be made")]
    Failed(#[source] JoinError),
}

impl PageError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoPage
            | Self::Explain(ExplainError::Name(_))
            | Self::Status(StatusError::Find(FindError::NotFound(_))) => StatusCode::NOT_FOUND,
            Self::Status(StatusError::Request(error) | StatusError::Find(FindError::Request(error)))
            | Self::Explain(ExplainError::Request(error)) => of_request(error),
            Self::Inspect(error) | Self::Explain(ExplainError::Inspect(error)) => of_inspection(error),
            Self::LateApiServer { .. } | Self::LateServers { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Status(_) | Self::Explain(_) | Self::Record(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

fn of_inspection(error: &InspectError) -> StatusCode {
    match error {
        InspectError::Server(ServerError::Refused { status, .. }) => *status,
        InspectError::Request(error) => of_request(error),
        InspectError::Connect(_)
        | InspectError::Token(_)
        | InspectError::TokenFile(..)
        | InspectError::Server(_) => StatusCode::BAD_GATEWAY,
    }
}

fn of_request(error: &RequestError) -> StatusCode {
    if error.is_ungranted() { StatusCode::FORBIDDEN } else { StatusCode::BAD_GATEWAY }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use metahook_server::cluster::fake;
    use serde_json::json;

    use super::*;
    use crate::controllers::find;

    const FORBIDDEN: &str = r#"compositecontrollers.metacontroller.k8s.io "c" is forbidden: User "u" cannot get resource "compositecontrollers" in API group "metacontroller.k8s.io" at the cluster scope"#;

    fn answer(status: u16, body: &serde_json::Value) -> Response<String> {
        Response::builder().status(status).body(body.to_string()).unwrap()
    }

    /// The status of the page of a controller, where the API server answers reads so.
    async fn status_where(status: u16, message: &'static str) -> StatusCode {
        let api = fake::answering(move |request| {
            if request.uri().path().contains("/compositecontrollers/") {
                let refusal = json!({ "kind": "Status", "message": message, "code": status });
                return Some(answer(status, &refusal));
            }
            let kind = |kind: &str, plural: &str| json!({ "name": plural, "kind": kind, "namespaced": false, "verbs": ["get", "list"] });
            let kinds = [
                kind("CompositeController", "compositecontrollers"),
                kind("DecoratorController", "decoratorcontrollers"),
            ];
            let list = json!({ "kind": "APIResourceList", "groupVersion": "metacontroller.k8s.io/v1alpha1", "resources": kinds });
            Some(answer(200, &list))
        });
        let error = find(&api, "compositecontroller/c").await.unwrap_err();
        PageError::from(StatusError::from(error)).status()
    }

    #[tokio::test]
    async fn a_status_says_whose_failure_it_is() {
        assert_eq!(status_where(404, "NotFound").await, StatusCode::NOT_FOUND);
        assert_eq!(status_where(403, FORBIDDEN).await, StatusCode::FORBIDDEN);
        assert_eq!(status_where(500, "InternalError").await, StatusCode::BAD_GATEWAY);
    }
}
