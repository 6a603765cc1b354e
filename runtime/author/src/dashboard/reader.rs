//! Contents of pages, read from the API server and from the servers of controllers.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use metahook_core::api::ControllerKind;
use metahook_core::error_chain;
use metahook_core::object::id::Key;
use metahook_core::overview::parent_list::{ParentFilter, ParentList, ParentsAnswer};
use metahook_core::overview::{ControllerOverview, ControllersAnswer};
use metahook_core::trace::{Explained, TracedObject};
use metahook_server::controller::resource;
use metahook_server::sync::lock;

use crate::controllers::KINDS;
use crate::dashboard::Dashboard;
use crate::dashboard::error::PageError;
use crate::dashboard::samples::Rates;
use crate::explain::{PATH as RECONCILES, explained, find_object};
use crate::inspected_server::{InspectError, Question, foremost};
use crate::status::ControllerLine;
use crate::status::controller::{PATH as CONTROLLER, ShownController, StoredController};

/// A page waits this long for the API server.
const API_TIMEOUT: Duration = Duration::from_secs(8);

const CONTROLLERS: &str = "/v1/controllers";
const PARENTS: &str = "/v1/parents";

/// All controllers.
pub(super) struct Cluster {
    pub(super) controllers: Vec<RunningLine>,
    /// What could not be read.
    pub(super) gaps: Vec<String>,
}

/// A controller as its status has it, and as the server that runs it says.
pub(super) struct RunningLine {
    pub(super) line: ControllerLine,
    pub(super) running: Option<(ControllerOverview, Rates)>,
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
        let found = in_time(self.cluster.status()).await?;
        let mut gaps: Vec<_> = found.without_leases.iter().map(|error| error_chain(error)).collect();
        let mut controllers: Vec<_> =
            found.controllers.into_iter().map(|line| RunningLine { line, running: None }).collect();
        let has = |kind: &ControllerKind| controllers.iter().any(|it| it.line.kind == kind.as_str());
        let kinds = KINDS.into_iter().filter(has);
        let asked = kinds.map(async |kind| (kind, self.running(kind).await));
        for (kind, (answers, failures)) in join_all(asked).await {
            gaps.extend(failures.iter().map(|error| error_chain(error)));
            self.fill(&mut controllers, kind, answers);
        }
        gaps.sort();
        gaps.dedup();
        Ok(Cluster { controllers, gaps })
    }

    async fn running(&self, kind: ControllerKind) -> (Vec<ControllersAnswer>, Vec<InspectError>) {
        let object = TracedObject::new(&resource(kind), &Key::new("", ""));
        self.servers.ask(Question { path: CONTROLLERS, object: &object, more: &[] }).await
    }

    fn fill(&self, lines: &mut [RunningLine], kind: ControllerKind, answers: Vec<ControllersAnswer>) {
        let now = Instant::now();
        for (name, overview) in answers.into_iter().flat_map(|answer| answer.running) {
            let is = |one: &&mut RunningLine| one.line.kind == kind.as_str() && one.line.name == name;
            if let Some(line) = lines.iter_mut().find(is) {
                let rates = lock(&self.samples).add(kind, &name, &overview, now);
                line.running = Some((overview, rates));
            }
        }
    }

    pub(super) async fn one(
        &self,
        kind: ControllerKind,
        name: &str,
        filter: &ParentFilter,
    ) -> Result<OneController, PageError> {
        let named = format!("{}/{name}", kind.as_str());
        let stored = in_time(StoredController::read(&self.cluster, &named)).await?;
        let object = stored.object();
        let question = Question { path: CONTROLLER, object: &object, more: &[] };
        let ((answers, failures), parents) =
            tokio::join!(self.servers.ask(question), self.parents(&object, filter));
        let shown = stored.shown(answers, foremost(failures));
        let rates = shown
            .running
            .as_ref()
            .map(|overview| lock(&self.samples).add(kind, name, overview, Instant::now()));
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
}

/// What is read from the API server, unless it is late.
async fn in_time<T, E: Into<PageError>>(read: impl Future<Output = Result<T, E>>) -> Result<T, PageError> {
    match tokio::time::timeout(API_TIMEOUT, read).await {
        Ok(read) => read.map_err(Into::into),
        Err(_elapsed) => Err(PageError::LateApiServer { seconds: API_TIMEOUT.as_secs() }),
    }
}
