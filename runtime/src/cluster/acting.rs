//! Requests with the rights of a ServiceAccount: the API server is asked to take us for it.

use std::future::ready;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response};
use kube::Client;
use kube::client::Body;
use metahook_core::spec::account::ServiceAccountRef;
use tower_service::Service;

/// The groups of a ServiceAccount are added by the API server, so that no right to name groups is needed.
const IMPERSONATE: &str = "impersonate-user";

#[derive(Clone)]
pub(super) struct ActingAs {
    client: Client,
    user: String,
}

impl ActingAs {
    pub(super) fn new(client: Client, account: &ServiceAccountRef) -> Self {
        Self { client, user: account.user() }
    }
}

impl Service<Request<Body>> for ActingAs {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // Never as ourselves instead.
        let user = match HeaderValue::from_str(&self.user) {
            Ok(user) => user,
            Err(error) => return ready(Err(kube::Error::HttpError(error.into()))).boxed(),
        };
        request.headers_mut().insert(IMPERSONATE, user);
        let client = self.client.clone();
        async move { client.send(request).await }.boxed()
    }
}
