//! Requests to the API server straight from whoever makes them: a `kube::Client` has one task hand on those of all, which
//! costs each of them two changes of tasks.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::client::{Body, DynBody};
use tower::util::BoxService;
use tower::{BoxError, Service};

pub(super) type Answer = Response<Box<DynBody>>;

/// What answers requests, held only while a request is handed to it.
#[derive(Clone)]
pub(crate) struct Direct(Arc<Mutex<BoxService<Request<Body>, Answer, BoxError>>>);

impl Direct {
    pub(super) fn new(service: BoxService<Request<Body>, Answer, BoxError>) -> Self {
        Self(Arc::new(Mutex::new(service)))
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let mut request = Some(request);
        let answer = poll_fn(|context| {
            let mut service = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            ready!(service.poll_ready(context))?;
            // It is taken once: whoever is ready is not polled again.
            request
                .take()
                .map_or(Poll::Pending, |request| Poll::Ready(Ok::<_, BoxError>(service.call(request))))
        });
        answer.await?.await
    }
}

impl Service<Request<Body>> for Direct {
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
