//! Controllers: those that the cluster asks for, each running over its parents.

pub(crate) mod decorator_conflicts;
pub(crate) mod host;
mod reconcile;
mod related;
mod runner;

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::ControllerKind;
use metahook_core::api::account::ServiceAccountRef;
use metahook_core::api::policy::HookPolicy;
use metahook_core::cache::Cache;
use metahook_core::children::desired::Applying;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, Resource};

use decorator_conflicts::DecoratorCoordinator;

use crate::cluster::api_client::ApiClient;
use crate::cluster::discovery::Discovery;
use crate::cluster::events::Recorder;
use crate::hook::wasm::source::HookSources;
use crate::hook::wasm::wasi::Seeds;
use crate::store::{Store, Stores};
use crate::telemetry::metrics::Metrics;

/// Parts of the server that every controller uses.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) rest: ApiClient,
    pub(crate) stores: Arc<Stores>,
    pub(crate) controllers: Arc<Controllers>,
    pub(crate) wishing: Arc<DecoratorCoordinator>,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) sources: Arc<HookSources>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) seeds: Arc<Seeds>,
    pub(crate) policy: Arc<HookPolicy>,
    pub(crate) applying: Applying,
    /// Workers of each controller.
    pub(crate) workers: usize,
    pub(crate) max_children: usize,
    /// One in so many settled parents is asked about all the same.
    pub(crate) purity_check: u64,
    /// All parents are looked at again this often, where their controller says nothing else.
    pub(crate) resync: Option<Duration>,
    /// Kinds that are not served are asked for again at least this often.
    pub(crate) discovery_interval: Duration,
}

impl Context {
    /// For a controller whose account this is: it writes with the rights of that one, and what it opens is watched with
    /// them.
    fn acting_as(&self, account: Option<&ServiceAccountRef>) -> Self {
        let Some(account) = account else { return self.clone() };
        let rest = self.rest.acting_as(account);
        Self { stores: Arc::new(Stores::new(rest.clone())), rest, ..self.clone() }
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
