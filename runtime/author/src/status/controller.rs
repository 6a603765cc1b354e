//! `metahook status CONTROLLER`: what the status of one controller says, and how it stands on the server that runs it.

use jiff::Timestamp;
use metahook_core::api::ControllerKind;
use metahook_core::api::status::ControllerStatus;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::overview::{ControllerAnswer, ControllerOverview};
use metahook_core::trace::TracedObject;
use serde::Serialize;

use crate::controllers::{self, KINDS, find_with};
use crate::inspected_server::{InspectError, Inspector, Question, Servers};
use crate::status::{ClusterReader, ControllerLine, StatusError, is_of_its_server};

/// Where servers answer about a controller.
pub(crate) const PATH: &str = "/v1/controller";

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
async fn read_controller(
    inspector: &Inspector,
    servers: &mut Servers,
    name: &str,
) -> Result<ShownController, StatusError> {
    let stored = StoredController::read(&ClusterReader::once(&inspector.api), name).await?;
    let object = stored.object();
    Ok(match inspector.reach_and_ask(servers, Question { path: PATH, object: &object, more: &[] }).await {
        Ok((answers, failed)) => stored.shown(answers, failed),
        Err(error) => stored.shown(Vec::new(), Some(error)),
    })
}

/// A controller as the API server has it.
pub(crate) struct StoredController {
    id: ObjectId,
    status: ControllerStatus,
    /// A server that hosts it has renewed its Lease lately.
    has_server: bool,
}

impl StoredController {
    pub(crate) async fn read(reader: &ClusterReader, name: &str) -> Result<Self, StatusError> {
        let discovery = reader.discovery();
        let (id, controller) = find_with(&reader.api, &discovery, name).await?;
        let leases = reader.leases(&discovery).await?.unwrap_or_default();
        let status = controllers::status(&controller);
        let object = Object::parse(&controller.to_string(), None).ok();
        let has_server =
            object.is_some_and(|object| leases.iter().any(|lease| is_of_its_server(lease, &object, &status)));
        Ok(Self { id, status, has_server })
    }

    pub(crate) fn object(&self) -> TracedObject {
        TracedObject::new(&self.id.resource, &self.id.key)
    }

    /// The controller with what servers answer. `failed`: the failure of one that may run it.
    pub(crate) fn shown(
        self,
        answers: Vec<ControllerAnswer>,
        failed: Option<InspectError>,
    ) -> ShownController {
        let Self { id, status, has_server } = self;
        let running = answers.into_iter().find_map(|answer| answer.running);
        let failed = failed.filter(|_| running.is_none());
        let kind = KINDS.into_iter().find(|kind| *id.resource.gvk.kind == *kind.as_str());
        let kind = kind.unwrap_or(ControllerKind::Composite);
        let is_hosted = has_server || running.is_some();
        let line = ControllerLine::of(kind, id.key.name.to_string(), &status, is_hosted, Timestamp::now());
        ShownController { id, line, status, running, failed }
    }
}
