//! An API server that a test speaks for.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::{Body, DynBody};
use tower::util::BoxService;
use tower::{BoxError, Service};

use super::direct::{Answer, Direct};
use super::rest::Rest;

type Program = Arc<dyn Fn(&Request<Body>) -> Option<Response<String>> + Send + Sync>;

#[derive(Clone)]
struct Fake(Program);

/// Each request is answered as `program` says, or never; it may panic.
pub(crate) fn answering(
    program: impl Fn(&Request<Body>) -> Option<Response<String>> + Send + Sync + 'static,
) -> Rest {
    let direct = Direct::new(BoxService::new(Fake(Arc::new(program))));
    Rest::new(Client::new(direct.clone(), "default"), direct, None)
}

impl Service<Request<Body>> for Fake {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let program = Arc::clone(&self.0);
        async move {
            match program(&request) {
                Some(answer) => Ok(answer.map(|text| -> Box<DynBody> {
                    Box::new(Full::new(bytes::Bytes::from(text)).map_err(BoxError::from))
                })),
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}
