//! Requests with the rights of a ServiceAccount: the API server is asked to take us for it.

use std::future::ready;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request};
use kube::client::Body;
use metahook_core::spec::account::ServiceAccountRef;
use tower::{BoxError, Service};

use super::direct::{Answer, Direct};

/// The groups of a ServiceAccount are added by the API server, so that no right to name groups is needed.
const IMPERSONATE: &str = "impersonate-user";

#[derive(Clone)]
pub(super) struct ActingAs {
    direct: Direct,
    user: String,
}

impl ActingAs {
    pub(super) fn new(direct: Direct, account: &ServiceAccountRef) -> Self {
        Self { direct, user: account.user() }
    }
}

impl Service<Request<Body>> for ActingAs {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // Never as ourselves instead.
        let user = match HeaderValue::from_str(&self.user) {
            Ok(user) => user,
            Err(error) => return ready(Err(error.into())).boxed(),
        };
        request.headers_mut().insert(IMPERSONATE, user);
        let direct = self.direct.clone();
        async move { direct.send(request).await }.boxed()
    }
}
