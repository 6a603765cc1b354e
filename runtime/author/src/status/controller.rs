//! `metahook status CONTROLLER`: what the status of one controller says, and how it stands on the server that runs it.

use std::collections::BTreeMap;

use metahook_core::api::ControllerKind;
use metahook_core::api::status::ControllerStatus;
use metahook_core::api::stored_hooks::StoredHooks;
use metahook_core::bundle::modules_of;
use metahook_core::inspection_paths::CONTROLLER;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::overview::{ControllerAnswer, ControllerOverview};
use metahook_core::trace::TracedObject;
use metahook_server::cluster::objects::RequestError;
use serde::Serialize;
use serde_json::Value;

use crate::controllers::{self, KINDS, find_with};
use crate::inspected_server::{InspectError, Inspector, Question, Servers};
use crate::status::cluster_reader::StoredController;
use crate::status::{ClusterReader, ControllerLine, StatusError, is_of_its_server};

/// One controller.
#[derive(Debug, Serialize)]
pub struct ShownController {
    #[serde(skip)]
    pub id: ObjectId,
    #[serde(flatten)]
    pub line: ControllerLine,
    pub status: ControllerStatus,
    /// The addresses of its webhooks by hook.
    pub webhooks: BTreeMap<&'static str, String>,
    /// Where its modules and scripts are stored, by hook.
    pub stored: BTreeMap<&'static str, String>,
    /// `None`: no server runs it, or none says.
    pub running: Option<ControllerOverview>,
    /// Why a server that may run it did not answer.
    #[serde(skip)]
    pub failed: Option<InspectError>,
    /// Why Leases of servers do not count.
    #[serde(skip)]
    pub without_leases: Option<RequestError>,
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
    let stored = FoundController::read(&ClusterReader::once(&inspector.api), name).await?;
    let object = stored.object();
    Ok(
        match inspector
            .reach_and_ask(servers, Question { path: CONTROLLER, object: &object, more: &[] })
            .await
        {
            Ok((answers, failed)) => stored.shown(answers, failed),
            Err(error) => stored.shown(Vec::new(), Some(error)),
        },
    )
}

/// Where a controller's modules and scripts are stored, by hook; shadows have no line of their own.
fn stored_at(controller: &Value) -> BTreeMap<&'static str, String> {
    let of_hooks = modules_of(controller).into_iter().filter_map(|(place, hook)| {
        let text = format!("ConfigMap {}/{}, key {}", place.namespace, place.name, place.key);
        Some((hook?.as_str(), text))
    });
    of_hooks.collect()
}

/// A controller as it is found by its name.
pub(crate) struct FoundController {
    id: ObjectId,
    stored: StoredController,
    webhooks: BTreeMap<&'static str, String>,
    places: BTreeMap<&'static str, String>,
    without_leases: Option<RequestError>,
}

impl FoundController {
    pub(crate) async fn read(reader: &ClusterReader, name: &str) -> Result<Self, StatusError> {
        let discovery = reader.discovery();
        let (id, controller) = find_with(&reader.api, &discovery, name).await?;
        let (leases, without_leases) = reader.leases(&discovery).await?;
        let kind = KINDS.into_iter().find(|kind| *id.resource.gvk.kind == *kind.as_str());
        let kind = kind.unwrap_or(ControllerKind::Composite);
        let status = controllers::status(&controller);
        let object = Object::parse(&controller.to_string(), None).ok();
        let has_server =
            object.is_some_and(|object| leases.iter().any(|lease| is_of_its_server(lease, &object, &status)));
        let stored = StoredController { kind, name: id.key.name.to_string(), status, has_server };
        let webhooks = StoredHooks::of(&controller).webhooks();
        let places = stored_at(&controller);
        Ok(Self { id, stored, webhooks, places, without_leases })
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
        let Self { id, stored, webhooks, places, without_leases } = self;
        let running = answers.into_iter().find_map(|answer| answer.running);
        let failed = failed.filter(|_| running.is_none());
        let line = stored.line(running.is_some());
        let status = stored.status;
        ShownController { id, line, status, webhooks, stored: places, running, failed, without_leases }
    }
}
