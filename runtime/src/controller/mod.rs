//! Controllers: those that the cluster asks for, each reconciling its parents.

mod brake;
pub(crate) mod decorator_conflicts;
pub mod finalizer_cleanup;
pub(crate) mod heavy_work;
mod hooks;
pub(crate) mod host;
pub mod observer;
mod read_rights;
mod reconcile;
mod recordings;
pub(crate) mod related;
mod runner;
pub(crate) mod running;
pub(crate) mod shadows;
pub(crate) mod traces;
pub mod troubleshooting;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use metahook_core::api::ControllerKind;
use metahook_core::api::customize::CustomizeBounds;
use metahook_core::api::policy::{HookPolicy, ServiceAccountRef};
use metahook_core::cache::Cache;
use metahook_core::cache::ObjectChange;
use metahook_core::children::desired::Applying;
use metahook_core::hosting::Hosting;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::object::{Object, ObjectMeta};
use metahook_core::pacing::lanes::Cause;
use metahook_core::pacing::self_triggered::SelfTriggerLimits;
use metahook_core::reconcile::changed_fields::ChangedFields;
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::shown::ObservedBounds;
use metahook_core::reconcile::trigger::{Causes, ReconcileCause};
use tokio::sync::Notify;

use crate::cluster::api_client::ApiClient;
use crate::cluster::discovery::Discovery;
use crate::cluster::events::Recorder;
use crate::cluster::presence::OtherServers;
use crate::hook::wasm::source::HookSources;
use crate::hook::wasm::wasi::Seeds;
use crate::hook::web::Pools;
use crate::memory::MemoryBudget;
use crate::queue::Queue;
use crate::store::{Change, Store, Stores, WriteGuard, Writer};
use crate::sync::lock;
use crate::telemetry::metrics::{Meter, Metrics};
use brake::Brake;
use decorator_conflicts::DecoratorCoordinator;
use heavy_work::HeavyWorkLimiter;
use observer::Observer;
use read_rights::ReadRights;
use running::RunningControllers;
use traces::{ControllerTraces, Traces};

/// Parts of the server that all controllers share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) cluster: Cluster,
    pub(crate) hooks: HookRuntime,
    pub(crate) options: Options,
    pub(crate) controllers: Arc<Controllers>,
    pub(crate) decorators: Arc<DecoratorCoordinator>,
    pub(crate) memory: MemoryBudget,
    /// Which controllers it runs.
    pub(crate) hosting: Hosting,
    pub(crate) telemetry: Telemetry,
}

/// Where all controllers report: to scrapes, to `metahook dev`, and to the commands that look into a server.
#[derive(Clone)]
pub(crate) struct Telemetry {
    pub(crate) metrics: Metrics,
    pub(crate) observer: Observer,
    pub(crate) traces: Traces,
    pub(crate) running: RunningControllers,
}

/// Access to the API server.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) api: ApiClient,
    pub(crate) stores: Arc<Stores>,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) recorder: Recorder,
    pub(crate) others: OtherServers,
    pub(crate) heavy_work: HeavyWorkLimiter,
}

/// Loading and calling of hooks.
#[derive(Clone)]
pub(crate) struct HookRuntime {
    pub(crate) sources: Arc<HookSources>,
    pub(crate) seeds: Arc<Seeds>,
    pub(crate) policy: Arc<HookPolicy>,
    /// Connections to webhooks.
    pub(crate) pools: Arc<Pools>,
}

/// Settings of the server that controllers use.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub applying: Applying,
    /// Workers of each controller.
    pub workers: usize,
    pub max_children: usize,
    pub observed: ObservedBounds,
    /// Bytes of the answer of a webhook.
    pub max_webhook_answer: usize,
    /// The hook is called for one in so many settled parents all the same; 0 is none.
    pub purity_check: u64,
    pub self_triggered: SelfTriggerLimits,
    /// All parents are reconciled again at this interval, where their controller does not set another one.
    pub resync: Option<Duration>,
    pub customize: CustomizeBounds,
    /// Kinds that are not served are looked up again at least at this interval.
    pub discovery_interval: Duration,
}

impl Context {
    /// For a controller that has a ServiceAccount: its writes, and the watches of its own stores, use the rights of that.
    fn acting_as(&self, account: Option<&ServiceAccountRef>) -> Self {
        let mut context = self.clone();
        if let Some(account) = account {
            context.cluster.api = self.cluster.api.acting_as(account);
            let stores = self.cluster.stores.of_account(context.cluster.api.clone(), account);
            context.cluster.stores = Arc::new(stores);
        }
        context
    }
}

impl Telemetry {
    /// The consumers for the parents of one kind of a controller, which has this kind and name.
    fn of_controller(
        &self,
        meter: &Arc<Meter>,
        ungranted: &Arc<Notify>,
        (kind, name): (ControllerKind, &str),
        parents: &Arc<Resource>,
    ) -> ControllerTelemetry {
        ControllerTelemetry {
            meter: Arc::clone(meter),
            observer: self.observer.clone(),
            traces: self.traces.of_controller((kind.as_str(), name), parents),
            causes: Mutex::default(),
            ungranted: Arc::clone(ungranted),
        }
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
            composite: stores.open_to_stay(&resource(ControllerKind::Composite)),
            decorator: stores.open_to_stay(&resource(ControllerKind::Decorator)),
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

    /// As long as these numbers stay, there are the same controllers. Their specs and statuses may change.
    pub(crate) fn changes(&self) -> [u64; 2] {
        self.all().map(|store| store.view(Cache::names_changed))
    }

    /// Waits until all are known.
    pub(crate) async fn synced(&self) {
        for store in self.all() {
            store.synced().await;
        }
    }
}

/// The controllers of this kind.
pub fn resource(kind: ControllerKind) -> Arc<Resource> {
    let plural = match kind {
        ControllerKind::Composite => "compositecontrollers",
        ControllerKind::Decorator => "decoratorcontrollers",
    };
    Arc::new(Resource {
        gvk: Gvk::new("metacontroller.k8s.io/v1alpha1", kind.as_str()),
        plural: plural.into(),
        namespaced: false,
        has_status: true,
    })
}

/// Where the change of an object comes from.
#[derive(Default)]
pub(crate) struct ChangeOrigin<'a> {
    /// The reconcile that wrote it.
    pub(crate) by: Option<&'a Writer>,
    /// The object is gone.
    pub(crate) ended: bool,
}

/// Data of a running controller and its parents of one kind, for all parts of a reconcile. A CompositeController has one; a DecoratorController has one for each kind of objects that it decorates.
pub(crate) struct ControllerData {
    pub(crate) object: Arc<Object>,
    pub(crate) config: ControllerConfig,
    pub(crate) parents: Arc<Store>,
    /// Read rights of a controller with an account of its own.
    pub(crate) reads: Option<Arc<ReadRights>>,
    /// The stores of the kinds of children, and of revisions.
    pub(crate) children: Vec<Arc<Store>>,
    pub(crate) controllers: Arc<Controllers>,
    pub(crate) recorder: Recorder,
    pub(crate) brake: Arc<Brake>,
    pub(crate) started: Instant,
    pub(crate) telemetry: ControllerTelemetry,
}

/// Where the reconciles of a controller's parents of one kind report.
pub(crate) struct ControllerTelemetry {
    pub(crate) meter: Arc<Meter>,
    pub(crate) observer: Observer,
    pub(crate) traces: ControllerTraces,
    /// Filled where the log or a trace has the cause of each reconcile.
    pub(crate) causes: Mutex<Causes>,
    /// Notified where the API server refuses something to the controller's account: it may lack more rights.
    pub(crate) ungranted: Arc<Notify>,
}

/// The fields that differ; none where a cache holds the metadata alone.
pub(crate) fn changed_fields(change: &ObjectChange) -> ChangedFields {
    let [before, after] =
        [&change.before, &change.after].map(|one| one.as_ref().and_then(CachedObject::whole));
    before.zip(after).map(|(before, after)| ChangedFields::between(before, after)).unwrap_or_default()
}

impl ControllerData {
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn parent_id(&self, parent: &Object) -> ObjectId {
        ObjectId { resource: Arc::clone(&self.parents.resource), key: parent.key.clone() }
    }

    /// The author of writes for one parent.
    pub(crate) fn writer(&self, parent: &Key) -> Writer {
        let parents = Arc::clone(&self.parents.resource);
        let (controller, parent) = (self.object.uid.clone(), parent.clone());
        Writer { controller, parents, parent }
    }

    /// The stores that are listed before the first reconcile. Without all controllers, the children of another one would
    /// look like one's own.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.children.iter().chain([&self.parents]).chain(self.controllers.all())
    }

    /// `None` where no store holds such objects.
    pub(crate) fn write_guard(&self, id: &ObjectId, writer: &Writer) -> Option<WriteGuard> {
        self.stores().find(|store| store.resource == id.resource).map(|store| store.writing(&id.key, writer))
    }

    /// The store of a kind of children.
    pub(crate) fn children_of(&self, resource: &Resource) -> Option<&Arc<Store>> {
        self.children.iter().find(|store| *store.resource == *resource)
    }

    pub(crate) fn observed_child(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.children_of(&id.resource)?.get(&id.key)
    }

    /// Whether the log or a trace tells of each reconcile why it takes place.
    pub(crate) fn tells_causes(&self) -> bool {
        self.telemetry.traces.are_wanted() || tracing::enabled!(tracing::Level::DEBUG)
    }

    /// Remembers why parents are reconciled, where the log or a trace has it. `cause`: asked for where it is remembered.
    pub(crate) fn note_cause(&self, parents: &BTreeSet<Key>, cause: impl FnOnce() -> ReconcileCause) {
        if !self.tells_causes() || !lock(&self.telemetry.causes).has_room(parents) {
            return;
        }
        // Without the lock: reconciles wait for it.
        let cause = cause();
        lock(&self.telemetry.causes).object_changed(parents, &cause);
    }

    /// Remembers which fields of a parent another client changed, where the log or a trace has causes.
    pub(crate) fn note_parent_change(&self, change: &Change) {
        if !self.tells_causes() || self.is_own(change) {
            return;
        }
        if let Some(now) = &change.object.after {
            let fields = changed_fields(&change.object);
            lock(&self.telemetry.causes).parent_changed(&now.key, &now.version, fields);
        }
    }

    /// Whether a reconcile of this controller made the change.
    pub(crate) fn is_own(&self, change: &Change) -> bool {
        change.by.as_ref().is_some_and(|by| by.controller == self.object.uid)
    }

    /// Adds the parents that a change concerns to their queue. `cause`: if another client made it.
    pub(crate) fn add_changed(
        &self,
        queue: &Queue<Key>,
        keys: BTreeSet<Key>,
        change: &Change,
        cause: impl FnOnce() -> Cause,
    ) {
        if keys.is_empty() {
            return;
        }
        let cause = if change.by.is_none() { cause() } else { Cause::Related };
        let origin = ChangeOrigin { by: change.by.as_ref(), ended: change.object.after.is_none() };
        self.add_concerned(queue, keys, origin, cause);
    }

    /// Adds the parents that a change concerns.
    pub(crate) fn add_concerned(
        &self,
        queue: &Queue<Key>,
        keys: BTreeSet<Key>,
        ChangeOrigin { by, ended }: ChangeOrigin<'_>,
        cause: Cause,
    ) {
        let parents = &self.parents.resource;
        let is_own = |by: &Writer, key: &Key| {
            by.controller == self.object.uid && by.parents == *parents && by.parent == *key
        };
        for key in keys {
            // The reconcile that wrote is followed by another one anyway; but a child may be gone long after the reconcile
            // that deleted it.
            if ended || !by.is_some_and(|by| is_own(by, &key)) {
                queue.add(key, cause);
            }
        }
    }

    /// The objects of a kind that a parent could claim, without those of other controllers.
    pub(crate) fn candidates(
        &self,
        parent: &Object,
        resource: &Resource,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject> {
        let mut all = self
            .children_of(resource)
            .map(|store| store.candidates(&parent.uid, &parent.key.namespace, selector))
            .unwrap_or_default();
        all.retain(|object| self.other_controller(object).is_none());
        all
    }

    /// Another controller that made this child: as long as it exists, the child is left to it.
    pub(crate) fn other_controller<'a>(&self, child: &'a ObjectMeta) -> Option<&'a str> {
        let maker = self.config.other_maker(child)?;
        self.controllers.get(maker.kind, maker.name).map(|_| maker.name)
    }
}
