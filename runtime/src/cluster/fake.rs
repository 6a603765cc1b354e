//! An API server that a test speaks for.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use kube::Client;
use kube::client::Body;
use tower_service::Service;

use super::rest::Rest;

type Program = Arc<dyn Fn(&Request<Body>) -> Option<Response<String>> + Send + Sync>;

#[derive(Clone)]
struct Fake(Program);

/// Each request is answered as `program` says, or never; it may panic.
pub(crate) fn answering(
    program: impl Fn(&Request<Body>) -> Option<Response<String>> + Send + Sync + 'static,
) -> Rest {
    Rest::new(Client::new(Fake(Arc::new(program)), "default"), None)
}

impl Service<Request<Body>> for Fake {
    type Response = Response<Full<bytes::Bytes>>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let program = Arc::clone(&self.0);
        async move {
            match program(&request) {
                Some(answer) => Ok(answer.map(|body| Full::new(body.into()))),
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}
