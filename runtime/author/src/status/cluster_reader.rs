//! Reader of the cluster's controllers: it keeps the served kinds and the Leases for a while, for pages that are read again and again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use metahook_core::api::ControllerKind;
use metahook_core::api::status::ControllerStatus;
use metahook_core::object::Object;
use metahook_core::object::id::Gvk;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::RequestError;
use metahook_server::sync::lock;
use tokio::time::Instant;

use super::{ClusterStatus, ControllerLine, StatusError, is_fresh_lease, is_of_its_server, status};
use crate::controllers::{self, KINDS};

pub(crate) struct ClusterReader {
    pub(crate) api: ApiClient,
    /// How long kinds and Leases are kept.
    max_age: Duration,
    discovery: Mutex<(Instant, Arc<Discovery>)>,
    /// The lock is held while Leases are read, so that readers at the same time share them.
    leases: tokio::sync::Mutex<Option<(Instant, Arc<[Object]>)>>,
}

/// A controller as the API server has it.
pub(crate) struct StoredController {
    pub(crate) kind: ControllerKind,
    pub(crate) name: String,
    pub(crate) status: ControllerStatus,
    /// A server that hosts it has renewed its Lease lately.
    pub(super) has_server: bool,
}

/// All controllers.
pub(crate) struct StoredCluster {
    pub(crate) controllers: Vec<StoredController>,
    /// Why Leases of servers do not count.
    pub(crate) without_leases: Option<RequestError>,
}

impl StoredController {
    fn of(kind: ControllerKind, controller: &Object, leases: &[Object]) -> Self {
        let status = status(controller);
        let has_server = leases.iter().any(|lease| is_of_its_server(lease, controller, &status));
        Self { kind, name: controller.key.name.to_string(), status, has_server }
    }

    /// `is_running`: a server says that it runs the controller. No Lease is needed then.
    pub(crate) fn line(&self, is_running: bool) -> ControllerLine {
        let is_hosted = self.has_server || is_running;
        ControllerLine::of(self.kind, self.name.clone(), &self.status, is_hosted, Timestamp::now())
    }
}

/// The Leases that servers renewed lately, and why they cannot be read.
pub(super) type FreshLeases = (Arc<[Object]>, Option<RequestError>);

impl ClusterReader {
    pub(crate) fn new(api: ApiClient, max_age: Duration) -> Self {
        let discovery = Mutex::new((Instant::now(), Arc::new(Discovery::new(api.clone()))));
        Self { api, max_age, discovery, leases: tokio::sync::Mutex::default() }
    }

    /// A reader for one read.
    pub(super) fn once(api: &ApiClient) -> Self {
        Self::new(api.clone(), Duration::ZERO)
    }

    /// The kinds that the API server served lately.
    pub(crate) fn discovery(&self) -> Arc<Discovery> {
        let mut kept = lock(&self.discovery);
        if kept.0.elapsed() > self.max_age {
            *kept = (Instant::now(), Arc::new(Discovery::new(self.api.clone())));
        }
        Arc::clone(&kept.1)
    }

    /// How all controllers stand.
    pub(super) async fn status(&self) -> Result<ClusterStatus, StatusError> {
        let StoredCluster { controllers, without_leases } = self.controllers().await?;
        let controllers = controllers.iter().map(|one| one.line(false)).collect();
        Ok(ClusterStatus { controllers, without_leases })
    }

    pub(crate) async fn controllers(&self) -> Result<StoredCluster, StatusError> {
        let discovery = self.discovery();
        let mut found = Vec::new();
        for kind in KINDS {
            let resource = controllers::resource(&discovery, kind).await?;
            found.extend(self.api.list_objects(&resource).await?.into_iter().map(|one| (kind, one)));
        }
        let (leases, without_leases) = self.leases(&discovery).await?;
        let stored =
            |(kind, controller): &(ControllerKind, Object)| StoredController::of(*kind, controller, &leases);
        Ok(StoredCluster { controllers: found.iter().map(stored).collect(), without_leases })
    }

    pub(super) async fn leases(&self, discovery: &Discovery) -> Result<FreshLeases, DiscoveryError> {
        let mut kept = self.leases.lock().await;
        if let Some((_, leases)) = kept.as_ref().filter(|(since, _)| since.elapsed() < self.max_age) {
            return Ok((Arc::clone(leases), None));
        }
        let resource = discovery.resolve_kind(&Gvk::new("coordination.k8s.io/v1", "Lease")).await?;
        let now = Timestamp::now();
        match self.api.list_objects(&resource).await {
            Ok(mut leases) => {
                leases.retain(|lease| is_fresh_lease(lease, now));
                let leases = Arc::from(leases);
                *kept = Some((Instant::now(), Arc::clone(&leases)));
                Ok((leases, None))
            }
            Err(error) => Ok((Arc::default(), Some(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use metahook_server::cluster::fake::answering;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn kinds_and_leases_are_kept_and_controllers_are_read_each_time() {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&requests);
        let api = answering(move |request| {
            let path = request.uri().path().to_owned();
            let kind = |name: &str, kind: &str| json!({ "name": name, "kind": kind, "namespaced": false });
            let controllers = [
                kind("compositecontrollers", "CompositeController"),
                kind("decoratorcontrollers", "DecoratorController"),
            ];
            let answer = match &*path {
                "/apis/metacontroller.k8s.io/v1alpha1" => json!({ "resources": controllers }),
                "/apis/coordination.k8s.io/v1" => json!({ "resources": [kind("leases", "Lease")] }),
                _ => json!({ "metadata": { "resourceVersion": "1" }, "items": [] }),
            };
            lock(&log).push(path.rsplit('/').next().unwrap().to_owned());
            Some(Response::new(answer.to_string()))
        });
        let reader = ClusterReader::new(api, Duration::from_secs(10));
        let read = async || {
            reader.status().await.unwrap();
            std::mem::take(&mut *lock(&requests)).join(" ")
        };
        let all = "v1alpha1 compositecontrollers decoratorcontrollers v1 leases";
        assert_eq!(read().await, all);
        assert_eq!(read().await, "compositecontrollers decoratorcontrollers");
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(read().await, all);
    }
}
