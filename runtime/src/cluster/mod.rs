//! The API server: the only folder that speaks to it.

pub(crate) mod access;
pub mod api_client;
pub(crate) mod apply;
mod bounds;
pub mod cluster_name;
pub mod config_maps;
pub mod definitions;
pub mod discovery;
pub mod dry_run;
pub mod dry_run_client;
pub(crate) mod events;
mod fair_queue;
mod finalizers;
pub(crate) mod installation_key;
mod lease_client;
pub(crate) mod leases;
mod lists;
pub(crate) mod named_objects;
pub mod objects;
mod pages;
mod paths;
pub(crate) mod presence;
pub(crate) mod proxies;
pub(crate) mod redefined;
pub(crate) mod restores;
pub(crate) mod rights;
mod server_side;
mod suspension;
pub mod tokens;
pub mod transport;
pub(crate) mod watch;
pub(crate) mod write_gate;

/// Scripted API server for tests: a program answers each request.
#[cfg(any(test, feature = "fake"))]
pub mod fake {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use futures_util::{StreamExt, stream};
    use http::{Request, Response};
    use http_body_util::{BodyExt, Collected, StreamBody};
    use hyper::body::Frame;
    use kube::client::{Body, DynBody};
    use tower::util::BoxService;
    use tower::{BoxError, service_fn};

    use super::api_client::ApiClient;
    use super::transport::{READ_TIMEOUT, Transport};
    use crate::sync::lock;

    /// Each request is answered as `program` says, or never; it may panic. A watch that is accepted stays open.
    pub fn answering(
        program: impl Fn(&Request<Body>) -> Option<Response<String>> + Send + Sync + 'static,
    ) -> ApiClient {
        let program = Arc::new(program);
        let body = |text: String, is_open: bool| -> Box<DynBody> {
            let text = stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from(text)))]);
            if is_open {
                Box::new(StreamBody::new(text.chain(stream::pending())))
            } else {
                Box::new(StreamBody::new(text))
            }
        };
        let fake = service_fn(move |request: Request<Body>| {
            let program = Arc::clone(&program);
            async move {
                let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
                match program(&request) {
                    Some(answer) => {
                        let is_open = is_watch && answer.status().is_success();
                        Ok(answer.map(|text| body(text, is_open)))
                    }
                    None => std::future::pending().await,
                }
            }
        });
        ApiClient::new(Transport::new(BoxService::new(fake), READ_TIMEOUT), "default", None)
    }

    /// Each request is accepted, and answered as `program` says from its path and its body.
    pub fn answering_bodies(program: impl Fn(&str, &[u8]) -> String + Send + Sync + 'static) -> ApiClient {
        let program = Arc::new(program);
        let fake = service_fn(move |request: Request<Body>| {
            let program = Arc::clone(&program);
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
                let text = Bytes::from(program(&path, &body));
                let text: Box<DynBody> =
                    Box::new(StreamBody::new(stream::iter([Ok::<_, BoxError>(Frame::data(text))])));
                Ok(Response::new(text))
            }
        });
        ApiClient::new(Transport::new(BoxService::new(fake), READ_TIMEOUT), "default", None)
    }

    /// The reads and writes of objects that a scripted API server received, as `METHOD path`.
    #[derive(Clone, Default)]
    pub struct Requests(Arc<Mutex<Vec<String>>>);

    impl Requests {
        pub fn take(&self) -> Vec<String> {
            std::mem::take(&mut *lock(&self.0))
        }
    }

    /// Reads and writes of objects are recorded and answered as `program` says; lists and watches are never answered.
    pub fn recording(
        requests: &Requests,
        program: impl Fn(&Request<Body>) -> Option<Response<String>> + Send + Sync + 'static,
    ) -> ApiClient {
        let requests = requests.clone();
        answering(move |request| {
            let query = request.uri().query().unwrap_or_default();
            if request.method() == http::Method::GET && !query.is_empty() {
                return None;
            }
            lock(&requests.0).push(format!("{} {}", request.method(), request.uri().path()));
            program(request)
        })
    }
}
