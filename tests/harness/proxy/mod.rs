//! A way to the API server on which a server's writes are told, on which it can be held up at each of them, and that can be as
//! bad as networks are.

mod bodies;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use bodies::{Endless, Torn, broken, late};

use crate::wait::{PATIENCE, until};

/// A request that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub method: Method,
    /// Without the query.
    pub path: String,
    pub body: Bytes,
    /// Status with which the API server answered, as far as it was asked and has.
    pub status: Option<StatusCode>,
}

/// A moment of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The API server has not got it, and never will.
    Before,
    /// The API server has answered it, and the answer never arrives.
    After,
}

/// Treatment of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    /// The API server never gets it; it is answered with this status, and with `Retry-After`.
    Refuse(u16, Option<u64>),
    /// The API server never gets it, and there is no answer.
    Swallow,
    /// The connection ends before the API server has got it, or once it has answered.
    Reset(Moment),
    /// The connection ends after so many bytes of the answer.
    Tear(usize),
    /// The API server never gets it; the answer is a list that never ends.
    Endless,
    Delay(Duration),
    /// Each part of the answer comes so much later, as those of a watch on a slow way.
    Lag(Duration),
}

/// Plain HTTP on loopback for who comes, TLS and credentials to the API server. Ends when it is dropped.
pub struct Proxy {
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    client: Client,
    told: Mutex<Told>,
    fates: Mutex<Fates>,
    /// All connections are to end.
    cut: Notify,
}

type Fates = Box<dyn FnMut(&Request<Incoming>) -> Fate + Send>;

type Counts = Arc<dyn Fn(&Write) -> bool + Send + Sync>;

/// Record of writes.
struct Told {
    counts: Counts,
    writes: Vec<Write>,
    /// The number of a write, counted from 1, at which all that count are held up.
    hold: Option<(usize, Moment)>,
    held: bool,
}

impl Proxy {
    /// On a free port; its kubeconfig is written into `folder`. All writes pass, and count.
    pub async fn start(client: Client, folder: &Path) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no port for a proxy")?;
        let port = listener.local_addr()?.port();
        let kubeconfig = folder.join(format!("proxy-{port}.kubeconfig"));
        std::fs::write(&kubeconfig, kubeconfig_of(port))
            .with_context(|| format!("cannot write {}", kubeconfig.display()))?;
        let told = Mutex::new(Told::new(Arc::new(|_| true), None));
        let shared = Arc::new(Shared {
            client,
            told,
            fates: Mutex::new(Box::new(|_| Fate::Pass)),
            cut: Notify::new(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { kubeconfig, shared, task })
    }

    /// Kubeconfig to start a server with.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// From now on these writes count, and all pass.
    pub fn count(&self, counts: impl Fn(&Write) -> bool + Send + Sync + 'static) {
        *self.shared.told() = Told::new(Arc::new(counts), None);
    }

    /// From now on these writes count, and they pass up to the one of this number, counted from 1. That one is held up at
    /// the moment given, and so are all later ones until [`pass`](Self::pass).
    pub fn hold(
        &self,
        number: usize,
        moment: Moment,
        counts: impl Fn(&Write) -> bool + Send + Sync + 'static,
    ) {
        *self.shared.told() = Told::new(Arc::new(counts), Some((number, moment)));
    }

    /// Writes pass again. Those that were held up never do: whoever sent them has to be gone.
    pub fn pass(&self) {
        let mut told = self.shared.told();
        (told.hold, told.held) = (None, false);
    }

    /// From now on each request has this fate.
    pub fn meddle(&self, fates: impl FnMut(&Request<Incoming>) -> Fate + Send + 'static) {
        *self.shared.fates.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(fates);
    }

    /// Ends all connections, and with them all watches. New ones are taken.
    pub fn cut(&self) {
        self.shared.cut.notify_one();
    }

    /// Whether writes are held up.
    pub fn is_held(&self) -> bool {
        self.shared.told().held
    }

    /// Waits until writes are held up.
    pub async fn until_held(&self) -> Result<()> {
        until("writes are held up", PATIENCE, || async {
            let told = self.shared.told();
            Ok(if told.held { Ok(()) } else { Err(format!("{:?}", told.writes)) })
        })
        .await
    }

    /// Writes that count, in the order in which they came.
    pub fn writes(&self) -> Vec<Write> {
        self.shared.told().writes.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("kubeconfig", &self.kubeconfig).finish_non_exhaustive()
    }
}

impl Told {
    fn new(counts: Counts, hold: Option<(usize, Moment)>) -> Self {
        Self { counts, writes: Vec::new(), hold, held: false }
    }

    /// A write has come: the place where it is kept, or that it ends here. `None` where it does not count.
    fn come(&mut self, write: Write) -> Option<Result<usize, Held>> {
        if !(self.counts)(&write) {
            return None;
        }
        if self.held {
            return Some(Err(Held));
        }
        self.writes.push(write);
        let number = self.writes.len();
        if self.hold == Some((number, Moment::Before)) {
            self.held = true;
            return Some(Err(Held));
        }
        Some(Ok(number - 1))
    }

    /// The API server has answered the write that is kept there.
    fn answered(&mut self, at: usize, status: StatusCode) -> Result<(), Held> {
        if let Some(write) = self.writes.get_mut(at) {
            write.status = Some(status);
        }
        if self.hold == Some((at + 1, Moment::After)) {
            self.held = true;
            return Err(Held);
        }
        Ok(())
    }
}

/// A write goes no further.
#[derive(Debug, PartialEq, Eq)]
struct Held;

impl Shared {
    /// Who panicked with it fails its test by itself.
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new(); // they end with it
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.cut.notified() => {
                connections.abort_all();
                continue;
            }
        };
        let Ok((stream, _)) = accepted else { return };
        connections.spawn(connection(stream, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let answers = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { meddled(request, &shared).await }
    });
    // A client that breaks off, or that is killed, is the test's affair; what it asked for is given up with it.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answers).await);
}

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// # Errors
/// The connection is to end.
async fn meddled(request: Request<Incoming>, shared: &Shared) -> io::Result<Answer> {
    let fate = shared.fates.lock().unwrap_or_else(PoisonError::into_inner)(&request);
    match fate {
        Fate::Pass => Ok(answer(request, shared).await),
        Fate::Refuse(status, retry_after) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut refused = saying(status, r#"{"kind":"Status","message":"bad weather"}"#);
            if let Some(seconds) = retry_after {
                refused.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            Ok(refused)
        }
        Fate::Swallow => std::future::pending().await,
        Fate::Reset(Moment::Before) => Err(broken()),
        Fate::Reset(Moment::After) => {
            answer(request, shared).await;
            Err(broken())
        }
        Fate::Tear(bytes) => {
            Ok(answer(request, shared).await.map(|body| Torn { body, bytes }.boxed_unsync()))
        }
        Fate::Endless => Ok(Response::new(Endless::default().boxed_unsync())),
        Fate::Delay(time) => {
            tokio::time::sleep(time).await;
            Ok(answer(request, shared).await)
        }
        Fate::Lag(time) => Ok(answer(request, shared).await.map(|body| late(body, time))),
    }
}

async fn answer(request: Request<Incoming>, shared: &Shared) -> Answer {
    let Ok(request) = onwards(request).await else {
        return saying(StatusCode::BAD_REQUEST, "the request broke off");
    };
    let write = written(&request);
    let place = match write.and_then(|write| shared.told().come(write)) {
        None => None,
        Some(Ok(place)) => Some(place),
        Some(Err(Held)) => return std::future::pending().await,
    };
    let answered = match shared.client.send(request.map(client::Body::from)).await {
        Ok(answered) => answered,
        Err(why) => return saying(StatusCode::BAD_GATEWAY, &format!("the API server: {why}")),
    };
    if let Some(place) = place {
        let done = shared.told().answered(place, answered.status());
        if done == Err(Held) {
            return std::future::pending().await;
        }
    }
    let (mut head, body) = answered.into_parts();
    hop_by_hop(&mut head.headers);
    Response::from_parts(head, body.map_err(io::Error::other).boxed_unsync())
}

/// The write that a request makes, if it may change anything.
fn written(request: &Request<Bytes>) -> Option<Write> {
    let (method, body) = (request.method().clone(), request.body().clone());
    let path = request.uri().path().to_owned();
    (!method.is_safe()).then_some(Write { method, path, body, status: None })
}

/// The request as it goes on. Where it goes to and who asks is the client's affair.
async fn onwards(request: Request<Incoming>) -> Result<Request<Bytes>> {
    let (mut head, body) = request.into_parts();
    hop_by_hop(&mut head.headers);
    for name in [header::HOST, header::CONTENT_LENGTH, header::AUTHORIZATION] {
        head.headers.remove(name);
    }
    let body = body.collect().await?.to_bytes();
    Ok(Request::from_parts(head, body))
}

/// Takes away what is said to the next one alone.
fn hop_by_hop(headers: &mut http::HeaderMap) {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        headers.remove(name);
    }
}

fn saying(status: StatusCode, why: &str) -> Answer {
    let body = Full::new(Bytes::from(why.to_owned())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = status;
    answer
}

fn kubeconfig_of(port: u16) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: proxy
  cluster: {{server: \"http://127.0.0.1:{port}\"}}
users:
- name: anonymous
  user: {{}}
contexts:
- name: proxy
  context: {{cluster: proxy, user: anonymous}}
current-context: proxy
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &str) -> Write {
        Write { method: Method::PUT, path: path.to_owned(), body: Bytes::new(), status: None }
    }

    #[test]
    fn writes_that_count_are_held_up_before_the_one_of_a_number() {
        let mut told = Told::new(Arc::new(|write| write.path != "/events"), Some((2, Moment::Before)));
        assert_eq!(told.come(write("/a")), Some(Ok(0)));
        assert_eq!(told.answered(0, StatusCode::OK), Ok(()));
        assert_eq!(told.come(write("/events")), None);
        assert_eq!(told.come(write("/b")), Some(Err(Held)));
        assert_eq!(told.come(write("/c")), Some(Err(Held)));
        let paths: Vec<_> = told.writes.iter().map(|write| (write.path.as_str(), write.status)).collect();
        assert_eq!(paths, [("/a", Some(StatusCode::OK)), ("/b", None)]);
    }

    #[test]
    fn writes_are_held_up_after_the_one_of_a_number_was_answered() {
        let mut told = Told::new(Arc::new(|_| true), Some((1, Moment::After)));
        assert_eq!((told.come(write("/a")), told.come(write("/b"))), (Some(Ok(0)), Some(Ok(1))));
        assert_eq!(told.answered(1, StatusCode::OK), Ok(()));
        assert_eq!(told.answered(0, StatusCode::CREATED), Err(Held));
        assert_eq!(told.come(write("/c")), Some(Err(Held)));
        assert_eq!(told.writes[0].status, Some(StatusCode::CREATED));
    }
}
