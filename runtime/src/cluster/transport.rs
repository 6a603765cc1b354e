//! Requests to the API server straight from their callers.
//!
//! A `kube::Client` has one task that hands on the requests of all callers, which costs two task switches each; it is used for
//! watches alone. A controller with a `serviceAccountRef` has a client that acts as that account: for its writes, its modules,
//! its mounts and its related objects. Everything else is the server's own.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response};
use kube::client::{Body, DynBody};
use metahook_core::api::account::ServiceAccountRef;
use tower::util::BoxService;
use tower::{BoxError, Service};

use crate::sync::lock;

pub(super) type Answer = Response<Box<DynBody>>;

/// What answers requests: ours, or those of a ServiceAccount that the API server is asked to take us for.
#[derive(Clone)]
pub(crate) struct Transport {
    /// Held only while a request is handed to it. It is ready at once, or has failed: nobody waits here for long.
    service: Arc<Mutex<BoxService<Request<Body>, Answer, BoxError>>>,
    user: Option<Arc<str>>,
}

/// The groups of a ServiceAccount are added by the API server, so that no right to name groups is needed.
const IMPERSONATE: &str = "impersonate-user";

impl Transport {
    pub(super) fn new(service: BoxService<Request<Body>, Answer, BoxError>) -> Self {
        Self { service: Arc::new(Mutex::new(service)), user: None }
    }

    pub(super) fn acting_as(&self, account: &ServiceAccountRef) -> Self {
        Self { service: Arc::clone(&self.service), user: Some(account.user().into()) }
    }

    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Answer, BoxError> {
        if let Some(user) = &self.user {
            // Never as ourselves instead.
            request.headers_mut().insert(IMPERSONATE, HeaderValue::from_str(user)?);
        }
        let mut request = Some(request);
        let answer = poll_fn(|context| {
            let mut service = lock(&self.service);
            ready!(service.poll_ready(context))?;
            // It is taken once: whoever is ready is not polled again.
            request
                .take()
                .map_or(Poll::Pending, |request| Poll::Ready(Ok::<_, BoxError>(service.call(request))))
        });
        answer.await?.await
    }
}

/// For watches, which kube makes.
impl Service<Request<Body>> for Transport {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let direct = self.clone();
        async move { direct.send(request).await }.boxed()
    }
}
