//! Controllers: those that the cluster asks for, each reconciling its parents.

mod data;
pub(crate) mod decorator_conflicts;
mod hooks;
pub(crate) mod host;
mod reconcile;
mod related;
mod runner;

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::ControllerKind;
use metahook_core::api::policy::{HookPolicy, ServiceAccountRef};
use metahook_core::cache::Cache;
use metahook_core::children::desired::Applying;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, Resource};

use crate::cluster::api_client::ApiClient;
use crate::cluster::discovery::Discovery;
use crate::cluster::events::Recorder;
use crate::hook::wasm::source::HookSources;
use crate::hook::wasm::wasi::Seeds;
use crate::store::{Store, Stores};
use crate::telemetry::metrics::Metrics;
use decorator_conflicts::DecoratorCoordinator;

/// Parts of the server that all controllers share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) cluster: Cluster,
    pub(crate) hooks: HookRuntime,
    pub(crate) options: Options,
    pub(crate) controllers: Arc<Controllers>,
    pub(crate) decorators: Arc<DecoratorCoordinator>,
    pub(crate) metrics: Metrics,
}

/// Access to the API server.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) api: ApiClient,
    pub(crate) stores: Arc<Stores>,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) recorder: Recorder,
}

/// Loading and calling of hooks.
#[derive(Clone)]
pub(crate) struct HookRuntime {
    pub(crate) sources: Arc<HookSources>,
    pub(crate) seeds: Arc<Seeds>,
    pub(crate) policy: Arc<HookPolicy>,
}

/// Settings of the server that controllers use.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) applying: Applying,
    /// Workers of each controller.
    pub(crate) workers: usize,
    pub(crate) max_children: usize,
    /// The hook is called for one in so many settled parents all the same.
    pub(crate) purity_check: u64,
    /// All parents are reconciled again at this interval, where their controller does not set another one.
    pub(crate) resync: Option<Duration>,
    /// Kinds that are not served are looked up again at least at this interval.
    pub(crate) discovery_interval: Duration,
}

impl Context {
    /// For a controller that has a ServiceAccount: its writes, and the watches of its own stores, use the rights of that.
    fn acting_as(&self, account: Option<&ServiceAccountRef>) -> Self {
        let mut context = self.clone();
        if let Some(account) = account {
            context.cluster.api = self.cluster.api.acting_as(account);
            context.cluster.stores = Arc::new(Stores::new(context.cluster.api.clone()));
        }
        context
    }
}

/// Controllers of both kinds, as they are stored.
pub(crate) struct Controllers {
    composite: Arc<Store>,
    decorator: Arc<Store>,
}

impl Controllers {
    pub(crate) fn open(stores: &Stores) -> Self {
        Self {
            composite: stores.open(&resource(ControllerKind::Composite, "compositecontrollers")),
            decorator: stores.open(&resource(ControllerKind::Decorator, "decoratorcontrollers")),
        }
    }

    pub(crate) fn of(&self, kind: ControllerKind) -> &Arc<Store> {
        match kind {
            ControllerKind::Composite => &self.composite,
            ControllerKind::Decorator => &self.decorator,
        }
    }

    pub(crate) fn get(&self, kind: ControllerKind, name: &str) -> Option<Arc<Object>> {
        self.of(kind).get(&Key::new("", name))
    }

    pub(crate) fn all(&self) -> [&Arc<Store>; 2] {
        [&self.composite, &self.decorator]
    }

    /// As long as these numbers stay, no controller changed.
    pub(crate) fn changes(&self) -> [u64; 2] {
        self.all().map(|store| store.view(Cache::changes))
    }

    /// Waits until all are known.
    pub(crate) async fn synced(&self) {
        for store in self.all() {
            store.synced().await;
        }
    }
}

fn resource(kind: ControllerKind, plural: &str) -> Arc<Resource> {
    Arc::new(Resource {
        gvk: Gvk::new("metacontroller.k8s.io/v1alpha1", kind.as_str()),
        plural: plural.into(),
        namespaced: false,
        has_status: true,
    })
}
