//! Contents of pages, read from the API server and from the servers of controllers.

use std::time::Instant;

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
use crate::explain::{explain_object, find_object};
use crate::inspected_server::{InspectError, Question, Servers};
use crate::status::controller::{ShownController, read_controller};
use crate::status::{ControllerLine, cluster_status};

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
        let found = cluster_status(&self.inspector.api).await?;
        let mut gaps: Vec<_> = found.without_leases.iter().map(|error| error_chain(error)).collect();
        let mut controllers: Vec<_> =
            found.controllers.into_iter().map(|line| RunningLine { line, running: None }).collect();
        let mut servers = self.servers.lock().await;
        for kind in KINDS {
            if !controllers.iter().any(|it| it.line.kind == kind.as_str()) {
                continue;
            }
            match self.running(&mut servers, kind).await {
                Ok((answers, failed)) => {
                    gaps.extend(failed.map(|error| error_chain(&error)));
                    self.fill(&mut controllers, kind, answers);
                }
                Err(error) => gaps.push(error_chain(&error)),
            }
        }
        gaps.dedup();
        Ok(Cluster { controllers, gaps })
    }

    async fn running(
        &self,
        servers: &mut Servers,
        kind: ControllerKind,
    ) -> Result<(Vec<ControllersAnswer>, Option<InspectError>), InspectError> {
        let object = TracedObject::new(&resource(kind), &Key::new("", ""));
        let question = Question { path: CONTROLLERS, object: &object, more: &[] };
        self.inspector.reach_and_ask(servers, question).await
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
        let mut servers = self.servers.lock().await;
        let named = format!("{}/{name}", kind.as_str());
        let shown = read_controller(&self.inspector, &mut servers, &named).await?;
        let rates = shown
            .running
            .as_ref()
            .map(|overview| lock(&self.samples).add(kind, name, overview, Instant::now()));
        let parents = match &shown.running {
            Some(_) => self.parents(&mut servers, &shown, filter).await,
            None => Err("no server that was asked runs the controller".to_owned()),
        };
        Ok(OneController { shown, rates: rates.unwrap_or_default(), parents })
    }

    async fn parents(
        &self,
        servers: &mut Servers,
        shown: &ShownController,
        filter: &ParentFilter,
    ) -> Result<ParentList, String> {
        let object = TracedObject::new(&shown.id.resource, &shown.id.key);
        let more = [
            ("search", filter.search.clone()),
            ("state", filter.state.map(|state| state.as_str().to_owned()).unwrap_or_default()),
            ("skip", filter.skip.to_string()),
        ];
        let question = Question { path: PARENTS, object: &object, more: &more };
        let (answers, failed) = self.inspector.ask(servers, question).await;
        let list = answers.into_iter().find_map(|answer: ParentsAnswer| answer.list);
        list.ok_or_else(|| {
            failed.map_or_else(|| "no server lists them".to_owned(), |error| error_chain(&error))
        })
    }

    pub(super) async fn find(&self, kind: &str, name: &str) -> Result<TracedObject, PageError> {
        let id =
            find_object(&self.inspector.api, (kind, name), self.inspector.api.default_namespace()).await?;
        Ok(TracedObject::new(&id.resource, &id.key))
    }

    pub(super) async fn explained(&self, object: &TracedObject) -> Result<Explained, PageError> {
        let mut servers = self.servers.lock().await;
        Ok(explain_object(&self.inspector, &mut servers, object).await?)
    }
}
