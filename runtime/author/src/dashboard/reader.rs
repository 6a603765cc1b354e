//! Contents of pages, read from the API server and from the servers of controllers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use metahook_core::api::ControllerKind;
use metahook_core::error_chain;
use metahook_core::inspection_paths::{CONTROLLER, CONTROLLERS, PARENTS, RECONCILES, RECORDING};
use metahook_core::object::id::Key;
use metahook_core::overview::ControllersAnswer;
use metahook_core::overview::counts::ControllerCounts;
use metahook_core::overview::parent_list::{ParentFilter, ParentList, ParentsAnswer};
use metahook_core::recording::RecordedAnswer;
use metahook_core::trace::{Explained, TracedObject};
use metahook_server::controller::resource;
use metahook_server::sync::lock;
use tokio::sync::Mutex;

use crate::controllers::KINDS;
use crate::dashboard::Dashboard;
use crate::dashboard::call_recordings::{CallRecording, CallSubject, RecordedCalls, RecordingQuestion};
use crate::dashboard::error::PageError;
use crate::dashboard::samples::Rates;
use crate::dashboard::servers::DashboardServers;
use crate::explain::{explained, find_object};
use crate::inspected_server::{InspectError, Question, foremost};
use crate::record::reconciles::RecorderError;
use crate::status::controller::{FoundController, ShownController};
use crate::status::{ControllerLine, StoredCluster, StoredController};

/// A page waits this long for the API server.
const API_TIMEOUT: Duration = Duration::from_secs(8);

/// A page waits this long for calls.
const CALLS_TIMEOUT: Duration = Duration::from_secs(8);

/// A question ends by itself before: see `inspected_server`.
const RECORDING_TIMEOUT: Duration = Duration::from_secs(30);

/// All controllers.
pub(super) struct Cluster {
    pub(super) controllers: Vec<RunningLine>,
    /// Errors of the parts that could not be read.
    pub(super) gaps: Vec<String>,
}

/// A controller as its status has it, and as the server that runs it says.
pub(super) struct RunningLine {
    pub(super) line: ControllerLine,
    /// `None`: no server that was asked runs it.
    pub(super) rates: Option<Rates>,
}

/// One controller.
pub(super) struct OneController {
    pub(super) shown: ShownController,
    pub(super) rates: Rates,
    /// A page of its parents, or why they are not listed.
    pub(super) parents: Result<ParentList, String>,
}

impl Dashboard {
    pub(super) async fn all(&self) -> Result<Cluster, PageError> {
        let StoredCluster { controllers, without_leases } = in_time(self.cluster.controllers()).await?;
        let mut gaps: Vec<_> = without_leases.iter().map(|error| error_chain(error)).collect();
        let kinds = KINDS.into_iter().filter(|kind| controllers.iter().any(|one| one.kind == *kind));
        let asked = kinds.map(async |kind| (kind, self.running(kind).await));
        let mut running = BTreeMap::new();
        for (kind, (answers, failures)) in join_all(asked).await {
            gaps.extend(failures.iter().map(|error| error_chain(error)));
            running.extend(self.rates(kind, answers));
        }
        gaps.sort();
        gaps.dedup();
        let line = |one: &StoredController| {
            let rates = running.remove(&(one.kind, one.name.clone()));
            RunningLine { line: one.line(rates.is_some()), rates }
        };
        Ok(Cluster { controllers: controllers.iter().map(line).collect(), gaps })
    }

    async fn running(&self, kind: ControllerKind) -> (Vec<ControllersAnswer>, Vec<InspectError>) {
        let object = TracedObject::new(&resource(kind), &Key::new("", ""));
        self.servers.ask(Question { path: CONTROLLERS, object: &object, more: &[] }).await
    }

    /// The rates of the controllers that run, by kind and name.
    fn rates(
        &self,
        kind: ControllerKind,
        answers: Vec<ControllersAnswer>,
    ) -> Vec<((ControllerKind, String), Rates)> {
        let (now, mut samples) = (Instant::now(), lock(&self.samples));
        let counted = answers.into_iter().flat_map(|answer| answer.running);
        let rates = |(name, counts): (String, ControllerCounts)| {
            let rates = samples.add(kind, &name, counts, now);
            ((kind, name), rates)
        };
        counted.map(rates).collect()
    }

    pub(super) async fn one(
        &self,
        kind: ControllerKind,
        name: &str,
        filter: &ParentFilter,
    ) -> Result<OneController, PageError> {
        let named = format!("{}/{name}", kind.as_str());
        let stored = in_time(FoundController::read(&self.cluster, &named)).await?;
        let object = stored.object();
        let question = Question { path: CONTROLLER, object: &object, more: &[] };
        let ((answers, failures), parents) =
            tokio::join!(self.servers.ask(question), self.parents(&object, filter));
        let shown = stored.shown(answers, foremost(failures));
        let rates = shown
            .running
            .as_ref()
            .map(|overview| lock(&self.samples).add(kind, name, overview.into(), Instant::now()));
        let parents = match &shown.running {
            Some(_) => parents,
            None => Err("no server that was asked runs the controller".to_owned()),
        };
        Ok(OneController { shown, rates: rates.unwrap_or_default(), parents })
    }

    async fn parents(&self, object: &TracedObject, filter: &ParentFilter) -> Result<ParentList, String> {
        let more = [
            ("search", filter.search.clone()),
            ("state", filter.state.map(|state| state.as_str().to_owned()).unwrap_or_default()),
            ("skip", filter.skip.to_string()),
        ];
        let (answers, failures) = self.servers.ask(Question { path: PARENTS, object, more: &more }).await;
        let list = answers.into_iter().find_map(|answer: ParentsAnswer| answer.list);
        list.ok_or_else(|| {
            foremost(failures).map_or_else(|| "no server lists them".to_owned(), |error| error_chain(&error))
        })
    }

    pub(super) async fn find(&self, kind: &str, name: &str) -> Result<TracedObject, PageError> {
        let discovery = self.cluster.discovery();
        let api = &self.cluster.api;
        let find = find_object(api, &discovery, (kind, name), api.default_namespace());
        let id = in_time(find).await?;
        Ok(TracedObject::new(&id.resource, &id.key))
    }

    pub(super) async fn explained(&self, object: &TracedObject) -> Result<Explained, PageError> {
        let question = Question { path: RECONCILES, object, more: &[] };
        let (answers, failures) = self.servers.ask(question).await;
        Ok(explained(answers, foremost(failures))?)
    }

    /// The calls about a parent since its page was opened.
    pub(super) async fn calls(&self, subject: &CallSubject) -> Result<Arc<RecordedCalls>, PageError> {
        let RecordingQuestion { number, recording, ended } =
            lock(&self.calls).ask(subject, Instant::now())?;
        for (subject, number) in ended {
            let servers = Arc::clone(&self.servers);
            // A server that does not answer ends the recording after half a minute.
            tokio::spawn(async move { drop(record(&servers, &subject, &number, true).await) });
        }
        // It goes on when the page is gone: a server gives each line once.
        let fetched = tokio::spawn(fetch(Arc::clone(&self.servers), subject.clone(), number, recording));
        match tokio::time::timeout(CALLS_TIMEOUT, fetched).await {
            Ok(fetched) => fetched.map_err(PageError::Failed)?,
            Err(_elapsed) => Err(PageError::LateServers { seconds: CALLS_TIMEOUT.as_secs() }),
        }
    }
}

async fn fetch(
    servers: Arc<DashboardServers>,
    subject: CallSubject,
    number: String,
    recording: Arc<Mutex<CallRecording>>,
) -> Result<Arc<RecordedCalls>, PageError> {
    let mut recording = recording.lock_owned().await;
    if let Some(calls) = recording.shared(Instant::now()) {
        return Ok(calls);
    }
    let (answers, failures) = record(&servers, &subject, &number, false).await;
    if !answers.iter().any(|answer| answer.hosted) {
        let name = subject.controller.name.to_string();
        return Err(
            foremost(failures).map_or_else(|| RecorderError::NotHosted(name).into(), PageError::Inspect)
        );
    }
    let now = (Instant::now(), Timestamp::now());
    // Requests may be large, and are compared.
    let added = tokio::task::spawn_blocking(move || recording.add(&subject.parent, &answers, now));
    Ok(added.await.map_err(PageError::Failed)??)
}

/// Answers of servers about a recording. `ends`: it ends with them.
async fn record(
    servers: &Arc<DashboardServers>,
    CallSubject { controller, parent }: &CallSubject,
    number: &str,
    ends: bool,
) -> (Vec<RecordedAnswer>, Vec<InspectError>) {
    let mut more = vec![
        ("number", number.to_owned()),
        ("parentNamespace", parent.namespace.to_string()),
        ("parentName", parent.name.to_string()),
    ];
    more.extend(ends.then(|| ("end", true.to_string())));
    let question = Question { path: RECORDING, object: controller, more: &more };
    servers.ask_within(RECORDING_TIMEOUT, question).await
}

/// Result of a read from the API server, or an error where it is late.
async fn in_time<T, E: Into<PageError>>(read: impl Future<Output = Result<T, E>>) -> Result<T, PageError> {
    match tokio::time::timeout(API_TIMEOUT, read).await {
        Ok(read) => read.map_err(Into::into),
        Err(_elapsed) => Err(PageError::LateApiServer { seconds: API_TIMEOUT.as_secs() }),
    }
}
