//! An API server that a test speaks for.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::{Body, DynBody};
use tower::util::BoxService;
use tower::{BoxError, service_fn};

use crate::cluster::api_client::{ApiClient, Transport};

/// Each request is answered as `program` says, or never; it may panic.
pub(crate) fn answering(
    program: impl Fn(&Request<Body>) -> Option<Response<String>> + Send + Sync + 'static,
) -> ApiClient {
    let program = Arc::new(program);
    let body = |text: String| -> Box<DynBody> {
        Box::new(Full::new(bytes::Bytes::from(text)).map_err(BoxError::from))
    };
    let fake = service_fn(move |request| {
        let program = Arc::clone(&program);
        async move {
            match program(&request) {
                Some(answer) => Ok(answer.map(body)),
                None => std::future::pending().await,
            }
        }
    });
    let direct = Transport::new(BoxService::new(fake));
    ApiClient::new(Client::new(direct.clone(), "default"), direct, None)
}
