//! Address where people look into the running server: `metahook explain` asks it for the traces of a parent or a child, `metahook
//! status` for how a controller stands, `metahook record` for the reconciles that come, `metahook dashboard` for all of these.
//!
//! # Guarantees
//! - It listens on localhost alone: users elsewhere have `kubectl` forward a port to it.
//! - Each request has a token of the cluster. What is about an object is shown to users who may `get` that object, or might within
//!   the ten seconds before.
//! - No page of a browser can ask: a request names localhost as its host and has no origin.
//! - No request changes an object. A recording takes some memory until its command ends; it is for users who may `update` the
//!   controller: by another hook they may see all that it shows.

mod children;
mod guard;
mod query;
mod reach_rights;
mod related;
mod reviews;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CACHE_CONTROL, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use metahook_core::api::ControllerKind;
use metahook_core::inspection_paths::{
    ALL, CONTROLLER, CONTROLLERS, PARENTS, RECONCILES, RECORDING, WITHDRAWN,
};
use metahook_core::object::id::Key;
use metahook_core::overview::parent_list::ParentsAnswer;
use metahook_core::overview::{ControllerAnswer, ControllersAnswer};
use metahook_core::recording::RecordedAnswer;
use metahook_core::recording::buffer::{FetchedLines, Subject};
use metahook_core::trace::{Explained, ReconcileTrace, TracedObject};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::ApiClient;
use crate::controller::resource;
use crate::controller::running::{RunningControllers, RunningParts};
use crate::controller::traces::Traces;
use crate::telemetry::http::{CONNECTION_TIMEOUT, ListenError, bind, page, serve as serve_requests};
use guard::{Guard, Refusal, User};
use query::Query;

/// Requests that are worked on at once.
const MAX_REQUESTS: usize = 4;

/// Parents whose reconciles one answer shows.
const MAX_PARENTS: usize = 20;

/// Reviews may wait for the API server, and a connection ends after ten seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// Bytes of the number of a recording.
const MAX_NUMBER: usize = 64;

/// Settings of the address, from flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectionSettings {
    pub address: SocketAddr,
    /// Bytes of all traces.
    pub trace_memory: usize,
}

/// The address before anybody may ask there.
pub(crate) struct Inspected(Option<(TcpListener, Traces)>);

impl Inspected {
    pub(crate) async fn bind(settings: Option<&InspectionSettings>) -> Result<Self, ListenError> {
        let Some(settings) = settings else { return Ok(Self(None)) };
        let listener = bind("--inspection-address", settings.address).await?;
        Ok(Self(Some((listener, Traces::keeping(settings.trace_memory)))))
    }

    /// The traces that will be kept.
    pub(crate) fn traces(&self) -> Traces {
        self.0.as_ref().map(|(_, traces)| traces.clone()).unwrap_or_default()
    }

    /// Answers until `stop`; the traces are filled by controllers.
    pub(crate) fn start(
        self,
        api: &ApiClient,
        running: &RunningControllers,
        stop: &CancellationToken,
    ) -> Traces {
        let Some((listener, traces)) = self.0 else { return Traces::default() };
        let inspection = Inspection {
            guard: Guard::new(api.clone()),
            traces: traces.clone(),
            running: running.clone(),
            room: Arc::new(Semaphore::new(MAX_REQUESTS)),
        };
        tokio::spawn(serve(listener, Arc::new(inspection), stop.clone()));
        traces
    }
}

async fn serve(listener: TcpListener, inspection: Arc<Inspection>, stop: CancellationToken) {
    let page = move |request: Request<Incoming>| Arc::clone(&inspection).page(request);
    serve_requests(listener, page, CONNECTION_TIMEOUT, stop).await;
}

struct Inspection {
    guard: Guard,
    traces: Traces,
    running: RunningControllers,
    room: Arc<Semaphore>,
}

/// Room for one request. The last work for the request frees it, also work that nobody waits for any more.
#[derive(Clone)]
struct Room(#[expect(dead_code, reason = "it is held")] Option<Arc<OwnedSemaphorePermit>>);

/// A request of a user who may get what it is about.
struct Asked<'a> {
    user: User,
    object: TracedObject,
    query: Query<'a>,
    room: Room,
}

impl Inspection {
    async fn page(self: Arc<Self>, request: Request<Incoming>) -> Response<String> {
        // The server never closes the semaphore.
        let room = Arc::clone(&self.room).acquire_owned().await.ok();
        let room = Room(room.map(Arc::new));
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, self.answer(&request, room)).await;
        match answered.unwrap_or_else(|_elapsed| Err(Refusal::Failed("it took too long".to_owned()))) {
            Ok(json) => answer(StatusCode::OK, json),
            Err(refusal) => {
                let message = serde_json::json!({ "message": refusal.to_string() });
                answer(refusal.status(), message.to_string())
            }
        }
    }

    async fn answer(&self, request: &Request<Incoming>, room: Room) -> Result<String, Refusal> {
        comes_from_no_page(request.headers())?;
        if request.method() != Method::GET {
            return Err(Refusal::Method);
        }
        let path = request.uri().path();
        if let Some(withdrawn) = WITHDRAWN.into_iter().find(|one| *one == path) {
            return Err(Refusal::Withdrawn(withdrawn));
        }
        if !ALL.contains(&path) {
            return Err(Refusal::Path);
        }
        let query = Query::of(request.uri())?;
        let object = query.object(path != CONTROLLERS)?;
        if path != RECONCILES {
            kind_of(&object)?;
        }
        let user = self.guard.user(token(request.headers())?).await?;
        if path == CONTROLLERS {
            self.guard.may_list(&user, &object).await?;
        } else {
            self.guard.may_get(&user, &object).await?;
        }
        let asked = Asked { user, object, query, room };
        let printed = match path {
            CONTROLLERS => serde_json::to_string(&self.controllers(&asked)?),
            CONTROLLER => serde_json::to_string(&self.controller(&asked).await?),
            PARENTS => serde_json::to_string(&self.parents(&asked).await?),
            RECORDING => serde_json::to_string(&self.recorded(&asked).await?),
            RECONCILES => serde_json::to_string(&self.explained(&asked).await?),
            _ => return Err(Refusal::Path),
        };
        printed.map_err(|error| Refusal::Failed(error.to_string()))
    }

    /// Lines of a recording since they were fetched last.
    async fn recorded(&self, asked: &Asked<'_>) -> Result<RecordedAnswer, Refusal> {
        let Asked { user, object, query, .. } = asked;
        let kind = kind_of(object)?;
        self.guard.may_update(user, object).await?;
        let parent = query
            .field("parentName")
            .map(|name| Key::new(&query.field("parentNamespace").unwrap_or_default(), &name));
        let subject = Subject {
            controller: format!("{} {}", kind.as_str(), object.name),
            parent,
            with_secrets: query.field("withSecrets").is_some_and(|value| value == "true"),
        };
        let number = query.given("number")?;
        if number.len() > MAX_NUMBER {
            return Err(Refusal::Query(format!("number may have {MAX_NUMBER} bytes")));
        }
        let hosted = self.running.find(kind, &object.name).is_some();
        let ends = query.field("end").is_some();
        let fetched = match self.traces.recordings().filter(|_| hosted) {
            Some(recordings) if ends => {
                recordings.end(&number, &subject);
                FetchedLines::default()
            }
            Some(recordings) => recordings.fetch(&number, &subject)?,
            None => FetchedLines::default(),
        };
        let FetchedLines { lines, lost, began } = fetched;
        Ok(RecordedAnswer { version: version(), hosted, lines, lost, began })
    }

    /// How a controller stands. Its parents are named for users who may list all of them.
    async fn controller(&self, asked: &Asked<'_>) -> Result<ControllerAnswer, Refusal> {
        let Asked { user, object, room, .. } = asked;
        let kind = kind_of(object)?;
        let Some(running) = self.running.find(kind, &object.name) else {
            return Ok(ControllerAnswer { version: version(), running: None });
        };
        let names = match self.may_list_parents(user, &running).await {
            Ok(()) => true,
            Err(Refusal::Forbidden { .. }) => false,
            Err(refusal) => return Err(refusal),
        };
        // It reads a trace of each parent.
        let overview = apart(room, move || running.overview(names)).await?;
        Ok(ControllerAnswer { version: version(), running: Some(overview) })
    }

    /// Counts of all controllers of a kind.
    fn controllers(&self, asked: &Asked<'_>) -> Result<ControllersAnswer, Refusal> {
        let running = self.running.all(kind_of(&asked.object)?);
        let running = running.iter().map(|one| (one.name().to_owned(), one.counts())).collect();
        Ok(ControllersAnswer { version: version(), running })
    }

    /// A page of the list of a controller's parents, for users who may list all of them.
    async fn parents(&self, asked: &Asked<'_>) -> Result<ParentsAnswer, Refusal> {
        let Asked { user, object, query, room } = asked;
        let filter = query.filter()?;
        let Some(running) = self.running.find(kind_of(object)?, &object.name) else {
            return Ok(ParentsAnswer { version: version(), list: None });
        };
        self.may_list_parents(user, &running).await?;
        // It sorts all parents.
        let list = apart(room, move || running.list(&filter)).await?;
        Ok(ParentsAnswer { version: version(), list: Some(list) })
    }

    async fn may_list_parents(&self, user: &User, running: &RunningParts) -> Result<(), Refusal> {
        for parents in running.parents() {
            self.guard.may_list(user, &TracedObject::new(parents, &Key::new("", ""))).await?;
        }
        Ok(())
    }

    async fn explained(&self, asked: &Asked<'_>) -> Result<Explained, Refusal> {
        let Asked { user, object, room, .. } = asked;
        let (traces, about) = (self.traces.clone(), object.clone());
        // It reads all traces that have the name.
        let mut reconciles = apart(room, move || traces.about(&about)).await?;
        let mut hidden = Vec::new();
        // A trace of a parent's reconcile is for those who may get the parent.
        for (nth, parent) in parents_of(&reconciles, object).into_iter().enumerate() {
            if nth >= MAX_PARENTS {
                hidden.push(parent);
                continue;
            }
            match self.guard.may_get(user, &parent).await {
                Ok(()) => {}
                Err(Refusal::Forbidden { .. }) => hidden.push(parent),
                Err(refusal) => return Err(refusal),
            }
        }
        reconciles.retain(|trace| !hidden.iter().any(|parent| parent.is(&trace.parent)));
        related::hide(&self.guard, user, &mut reconciles).await?;
        children::hide(&self.guard, user, object, &mut reconciles).await?;
        Ok(Explained { version: version(), reconciles, hidden_parents: hidden.len() })
    }
}

/// Runs what takes long where it holds up no reconcile. It goes on when its request has ended, and its room with it.
async fn apart<T: Send + 'static>(
    room: &Room,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let room = room.clone();
    let work = move || {
        let _room = room;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| Refusal::Failed(error.to_string()))
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// The kind of a controller. Its resource has to be that of the kind: a user could name another one, which they may get.
fn kind_of(object: &TracedObject) -> Result<ControllerKind, Refusal> {
    let is = |kind: &ControllerKind| {
        let controllers = resource(*kind);
        let names = [&*controllers.gvk.group, &*controllers.plural, kind.as_str()];
        names == [&*object.group, &*object.resource, &*object.kind]
    };
    // Controllers have no namespace. The API server would review the rights that a user has in a namespace.
    if !object.namespace.is_empty() {
        return Err(Refusal::Query("a controller has no namespace".to_owned()));
    }
    let found = [ControllerKind::Composite, ControllerKind::Decorator].into_iter().find(is);
    found.ok_or_else(|| Refusal::Query("kind has to be that of a controller".to_owned()))
}

/// The other objects that traces are of, the latest first.
fn parents_of(traces: &[ReconcileTrace], object: &TracedObject) -> Vec<TracedObject> {
    let mut parents: Vec<TracedObject> = Vec::new();
    for trace in traces {
        if !trace.parent.is(object) && !parents.iter().any(|known| known.is(&trace.parent)) {
            parents.push(trace.parent.clone());
        }
    }
    parents
}

fn answer(status: StatusCode, json: String) -> Response<String> {
    let mut page = page(status, "application/json", json);
    page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
}

/// A page of a browser names its origin, and, where its name was made to mean this address, that name as the host.
fn comes_from_no_page(headers: &HeaderMap) -> Result<(), Refusal> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let (name, _port) = host.rsplit_once(':').unwrap_or((host, ""));
    let is_local = ["localhost", "127.0.0.1", "[::1]"].contains(&name);
    if is_local && !headers.contains_key(ORIGIN) { Ok(()) } else { Err(Refusal::Page) }
}

fn token(headers: &HeaderMap) -> Result<&str, Refusal> {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.strip_prefix("Bearer ")).ok_or(Refusal::NoToken)
}

#[cfg(test)]
mod tests;
