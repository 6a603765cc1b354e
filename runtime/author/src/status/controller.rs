//! `metahook status CONTROLLER`: what the status of one controller says, and how it stands on the server that runs it.

use jiff::Timestamp;
use metahook_core::api::ControllerKind;
use metahook_core::api::status::ControllerStatus;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::overview::{ControllerAnswer, ControllerOverview};
use metahook_core::trace::TracedObject;
use metahook_server::cluster::discovery::Discovery;
use serde::Serialize;

use crate::controllers::{self, KINDS, find};
use crate::inspected_server::{InspectError, Inspector, Question, Servers};
use crate::status::{ControllerLine, StatusError, fresh_leases, is_of_its_server};

/// Where servers answer about a controller.
const PATH: &str = "/v1/controller";

/// One controller.
#[derive(Debug, Serialize)]
pub struct ShownController {
    #[serde(skip)]
    pub id: ObjectId,
    #[serde(flatten)]
    pub line: ControllerLine,
    pub status: ControllerStatus,
    /// `None`: no server runs it, or none says.
    pub running: Option<ControllerOverview>,
    /// Why a server that may run it did not answer.
    #[serde(skip)]
    pub failed: Option<InspectError>,
}

/// Reads how one controller stands, again and again.
pub struct StatusReader {
    inspector: Inspector,
    servers: Servers,
    name: String,
}

impl StatusReader {
    /// `name`: as `hello`, or `compositecontroller/hello`.
    pub fn new(inspector: Inspector, name: String) -> Self {
        Self { inspector, servers: Servers::default(), name }
    }

    /// # Errors
    /// There is no such controller, or it cannot be read.
    pub async fn read(&mut self) -> Result<ShownController, StatusError> {
        read_controller(&self.inspector, &mut self.servers, &self.name).await
    }
}

/// How a controller stands now.
pub(crate) async fn read_controller(
    inspector: &Inspector,
    servers: &mut Servers,
    name: &str,
) -> Result<ShownController, StatusError> {
    let api = &inspector.api;
    let (id, controller) = find(api, name).await?;
    let (leases, _) = fresh_leases(api, &Discovery::new(api.clone())).await?;
    let status = controllers::status(&controller);
    let kind = KINDS.into_iter().find(|kind| *id.resource.gvk.kind == *kind.as_str());
    let kind = kind.unwrap_or(ControllerKind::Composite);
    let object = Object::parse(&controller.to_string(), None).ok();
    let has_server =
        object.is_some_and(|object| leases.iter().any(|lease| is_of_its_server(lease, &object, &status)));
    let object = TracedObject::new(&id.resource, &id.key);
    let question = Question { path: PATH, object: &object, more: &[] };
    let (running, failed) = match inspector.reach_and_ask(servers, question).await {
        Ok((answers, failed)) => {
            let running = answers.into_iter().find_map(|answer: ControllerAnswer| answer.running);
            let failed = failed.filter(|_| running.is_none());
            (running, failed)
        }
        Err(error) => (None, Some(error)),
    };
    let is_hosted = has_server || running.is_some();
    let line = ControllerLine::of(kind, id.key.name.to_string(), &status, is_hosted, Timestamp::now());
    Ok(ShownController { id, line, status, running, failed })
}
