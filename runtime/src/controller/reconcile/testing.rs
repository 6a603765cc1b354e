//! Scenario for tests of reconciles: a controller over a scripted API server with one parent and two children.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Response};
use metahook_core::api::ControllerKind;
use metahook_core::api::common::{ApplyStrategy, UpdateMethod};
use metahook_core::api::customize::CustomizeBounds;
use metahook_core::api::hook::{HookName, HookVersion, ModuleRef, PerHook};
use metahook_core::api::policy::{BrakeLimits, LimitBounds};
use metahook_core::api::selection::{Selection, SelectionRule};
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::children::deletion_brake::DeletionBrake;
use metahook_core::children::desired::{Applying, ChildKind};
use metahook_core::hash::Fingerprint;
use metahook_core::hook::DEFAULT_WEBHOOK_ANSWER;
use metahook_core::hosting::Hosting;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::pacing::Rate;
use metahook_core::pacing::self_triggered::SelfTriggerLimits;
use metahook_core::reconcile::config::{ControllerConfig, HookConfig, KindConfig};
use metahook_core::reconcile::error::ReconcileError;
use metahook_core::reconcile::outcome::{Outcome, Retry, RetryState};
use metahook_core::reconcile::plan::ReconcilePlan;
use metahook_core::reconcile::ports::WriteAnswer;
use metahook_core::reconcile::sequence::{Planned, ReconcileReport, Start, carry_out};
use metahook_core::reconcile::shown::ObservedBounds;
use metahook_core::settled::{CacheRevision, SettledState};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::ApiClient;
use crate::cluster::discovery::Discovery;
use crate::cluster::events::Recorder;
use crate::cluster::fake::{self, Requests};
use crate::cluster::installation_key::SeedKey;
use crate::cluster::presence::OtherServers;
use crate::controller::brake::Brake;
use crate::controller::heavy_work::HeavyWorkLimiter;
use crate::controller::hooks::{FollowedHooks, HookCaller};
use crate::controller::observer::Observer;
use crate::controller::reconcile::Reconciler;
use crate::controller::reconcile::world::Attempt;
use crate::controller::related::RelatedObjects;
use crate::controller::runner::parent_queue::ParentQueue;
use crate::controller::running::RunningControllers;
use crate::controller::traces::Traces;
use crate::controller::{Cluster, Context, ControllerData, Controllers, HookRuntime, Options, Telemetry};
use crate::hook::Hook;
use crate::hook::wasm::compile::ModuleSettings;
use crate::hook::wasm::run::RuntimeSettings;
use crate::hook::wasm::source::{HookSources, ModuleRegistry, MountMemory};
use crate::hook::wasm::wasi::Seeds;
use crate::hook::web::{Pools, RedirectPolicy};
use crate::memory::{MemoryBudget, Reservation};
use crate::queue::Throttle;
use crate::store::{Store, Stores};
use crate::telemetry::metrics::Metrics;

/// The answer to writes; `None`: no answer at all. Reads find the object, unless it is 404.
pub(super) type Answer = Option<u16>;

pub(super) const ANSWERS: [Answer; 7] =
    [Some(200), Some(404), Some(409), Some(422), Some(429), Some(500), None];

/// The name of a child that the parent owns.
pub(super) const OWNED: &str = "owned";

pub(super) const COMPOSITE: KindConfig =
    KindConfig::Composite { generate_selector: true, negative_selectors: false, rolling: None };

/// A controller over an API server with one parent and one child.
pub(super) struct Scenario {
    pub(super) requests: Requests,
    pub(super) reconciler: Arc<Reconciler>,
}

pub(in crate::controller) fn resource(api_version: &str, kind: &str) -> Arc<Resource> {
    Arc::new(Resource {
        gvk: Gvk::new(api_version, kind),
        plural: format!("{}s", kind.to_lowercase()).into(),
        namespaced: true,
        has_status: true,
    })
}

pub(super) fn parents() -> Arc<Resource> {
    resource("example.com/v1", "Greeting")
}

pub(super) fn children() -> Arc<Resource> {
    resource("v1", "ConfigMap")
}

pub(super) fn body(resource: &Resource, version: &str) -> Value {
    json!({
        "apiVersion": resource.gvk.api_version(), "kind": &*resource.gvk.kind,
        "metadata": { "namespace": "n", "name": "x", "uid": &*resource.plural, "resourceVersion": version },
    })
}

/// Another child, which the parent owns.
pub(super) fn owned_body(version: &str) -> Value {
    let mut child = body(&children(), version);
    let owner = json!({ "apiVersion": "example.com/v1", "kind": "Greeting", "name": "x", "uid": "greetings", "controller": true });
    child["metadata"]["name"] = json!(OWNED);
    child["metadata"]["ownerReferences"] = json!([owner]);
    child
}

pub(super) fn object(resource: &Resource) -> Object {
    Object::parse(&body(resource, "1").to_string(), None).unwrap()
}

pub(super) fn id(resource: Arc<Resource>) -> ObjectId {
    ObjectId { resource, key: Key::new("n", "x") }
}

pub(super) fn response(method: &Method, path: &str, answer: Answer) -> Option<Response<String>> {
    let resource = if path.contains("greetings") { parents() } else { children() };
    let status = match (answer, method == Method::GET) {
        (Some(404), _) => 404,
        (_, true) => 200,
        (answer, false) => answer?,
    };
    let body = match status {
        200 if *method == Method::DELETE => json!({"kind": "Status", "metadata": {}}),
        200 => {
            let version = if *method == Method::GET { "1" } else { "2" };
            if path.ends_with(OWNED) { owned_body(version) } else { body(&resource, version) }
        }
        409 if *method == Method::POST => {
            json!({"kind": "Status", "message": "m", "reason": "AlreadyExists"})
        }
        _ => json!({"kind": "Status", "message": "m"}),
    };
    Response::builder().status(status).body(body.to_string()).ok()
}

impl Scenario {
    pub(super) fn new(answer: Answer) -> Self {
        Self::of(COMPOSITE, move |_| answer)
    }

    /// `answers`: by the path of a request.
    pub(super) fn of(kind: KindConfig, answers: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::answering(kind, move |method, path| response(method, path, answers(path)))
    }

    /// `program`: answers by the method and the path of a request.
    pub(super) fn answering(
        kind: KindConfig,
        program: impl Fn(&Method, &str) -> Option<Response<String>> + Send + Sync + 'static,
    ) -> Self {
        let requests = Requests::default();
        let api = fake::recording(&requests, move |request| program(request.method(), request.uri().path()));
        Self { requests, reconciler: Self::over(kind, api).reconciler }
    }

    /// A controller that has these consumers of its reconciles' steps.
    pub(super) fn traced(traces: Traces) -> Self {
        let requests = Requests::default();
        let api =
            fake::recording(&requests, |request| response(request.method(), request.uri().path(), Some(200)));
        let mut context = context(api);
        context.telemetry.traces = traces;
        Self { requests, reconciler: Self::within(COMPOSITE, &context).reconciler }
    }

    fn over(kind: KindConfig, api: ApiClient) -> ParentQueue {
        Self::within(kind, &context(api))
    }

    fn within(kind: KindConfig, context: &Context) -> ParentQueue {
        let stores = &context.cluster.stores;
        let sync = HookConfig::wasm(HookVersion::V1, None);
        let data = Arc::new(ControllerData {
            object: Arc::new(object(&resource("metacontroller.k8s.io/v1alpha1", "CompositeController"))),
            config: ControllerConfig {
                name: "c".to_owned(),
                kind,
                selection: Selection {
                    rules: vec![SelectionRule::default()],
                    finalizer: "example.com/f".to_owned(),
                    finalizes: true,
                    ..Selection::default()
                },
                child_kinds: vec![ChildKind::new(children(), UpdateMethod::InPlace)],
                snapshot: "{}".to_owned(),
                hooks: PerHook { sync, finalize: None, customize: None },
                max_children: 10,
                observed: ObservedBounds::default(),
                deletions: Vec::new(),
                related_kinds: metahook_core::api::customize::RelatedKinds::ByAccount,
                shown_secrets: metahook_core::api::shown_secrets::ShownSecrets::All,
                paused: false,
            },
            parents: stores.open(&parents()),
            reads: None,
            children: vec![stores.open(&children())],
            controllers: Arc::clone(&context.controllers),
            recorder: context.cluster.recorder.clone(),
            telemetry: context.telemetry.of_controller(
                &context.telemetry.metrics.meter("CompositeController", "c"),
                &Arc::default(),
                (ControllerKind::Composite, "c"),
                &parents(),
            ),
            brake: Arc::new(Brake::new(DeletionBrake::new(BrakeLimits::default(), None, 0), None)),
            started: Instant::now(),
        });
        let module = ModuleRef {
            language: None,
            namespace: "n".to_owned(),
            name: "module".to_owned(),
            key: "hook.wasm".to_owned(),
            sha256: None,
            reader: None,
        };
        let source = context.hooks.sources.follow(&module, &[], &object(&parents()));
        let limits = LimitBounds::default().default;
        let hooks = PerHook { sync: Hook::Wasm { source, limits }, finalize: None, customize: None };
        let hooks = HookCaller {
            data,
            followed: Arc::new(FollowedHooks::new(hooks, Fingerprint::of(b"spec"))),
            sources: Arc::clone(&context.hooks.sources),
            seeds: Arc::clone(&context.hooks.seeds),
            shadows: None,
        };
        let throttle = Throttle::new(SelfTriggerLimits::default());
        ParentQueue::new(hooks, None, context, false, throttle)
    }

    pub(super) fn data(&self) -> &ControllerData {
        &self.reconciler.data
    }

    pub(super) fn store(&self, resource: &Resource) -> &Arc<Store> {
        if *resource == *parents() { &self.data().parents } else { &self.data().children[0] }
    }

    pub(super) fn observe(&self, resource: &Resource) {
        self.store(resource).observe_write(vec![CacheEvent::Applied(object(resource))]);
    }

    /// The version that the store holds, and whether a deletion was asked for.
    pub(super) fn stored(&self, resource: &Resource) -> String {
        match self.store(resource).get(&Key::new("n", "x")) {
            None => "none".to_owned(),
            Some(object) if object.deleting => "deleting".to_owned(),
            Some(object) => object.version.as_str().to_owned(),
        }
    }

    pub(super) async fn write(&self, op: &Op) -> String {
        let result = self.reconciler.writer.write(op, None, &self.data().writer(&Key::new("n", "x"))).await;
        let result = match result {
            Ok(WriteAnswer { changed: false, .. }) => "no-op".to_owned(),
            Ok(WriteAnswer { object: Some(_), .. }) => "wrote".to_owned(),
            Ok(WriteAnswer { object: None, .. }) => "gone".to_owned(),
            Err(error) => retry(error.retry()),
        };
        format!("{result}, {}", self.stored(&op.id().resource))
    }

    /// The world of one attempt to reconcile the parent.
    pub(super) fn world<'a>(&'a self, memory: &'a Reservation) -> Attempt<'a> {
        Attempt::new(&self.reconciler, memory, &Key::new("n", "x"), RetryState::default())
    }

    /// Carries out a plan: the queue's outcome, and the requests.
    pub(super) async fn apply(&self, plan: ReconcilePlan) -> String {
        let report = self.carry_out(plan, Vec::new()).await;
        let result = report.result.map_err(|error| error.failure());
        let outcome = Outcome::of(&result, None, RetryState::default(), report.accepted);
        format!("{outcome:?}: {}", self.requests())
    }

    /// Carries out a plan of a reconcile that could not renew some owner references.
    pub(super) async fn carry_out(
        &self,
        plan: ReconcilePlan,
        unrenewed: Vec<ReconcileError>,
    ) -> ReconcileReport {
        self.observe(&parents());
        self.observe(&children());
        let parent = Arc::new(object(&parents()));
        let (seen, answer) = (Fingerprint::of(b"input"), Fingerprint::of(b"answer"));
        let revision = CacheRevision::of(&parent, seen, None, []);
        let planned = Planned {
            parent,
            plan,
            state: SettledState { seen, answer, revision },
            pure: Some(true),
            unrenewed,
            version: seen,
            hook: HookName::Sync,
        };
        carry_out(&self.world(&Reservation::default()), planned, Start::default()).await
    }

    /// Methods, kinds and names of the requests since the last call.
    pub(super) fn requests(&self) -> String {
        let requests = self.requests.take().join(", ");
        requests.replace("/api/v1/namespaces/n/", "").replace("/apis/example.com/v1/namespaces/n/", "")
    }
}

/// The server around a controller.
pub(in crate::controller) fn context(api: ApiClient) -> Context {
    let modules = RuntimeSettings {
        concurrency: 1,
        limits: LimitBounds::default(),
        modules: ModuleSettings::new("no compiler"),
    };
    let modules = Arc::new(ModuleRegistry::new(&modules).unwrap());
    let stores = Arc::new(Stores::new(api.clone()));
    Context {
        controllers: Arc::new(Controllers::open(&stores)),
        decorators: Arc::default(),
        hooks: HookRuntime {
            sources: Arc::new(HookSources::new(api.clone(), modules, MountMemory::new(0))),
            seeds: Arc::new(Seeds::new(SeedKey::default())),
            policy: Arc::default(),
            pools: Pools::new(DEFAULT_WEBHOOK_ANSWER, RedirectPolicy::default()),
        },
        options: Options {
            customize: CustomizeBounds::default(),
            applying: Applying { strategy: ApplyStrategy::DynamicApply, manager: "m".into() },
            workers: 1,
            max_children: 10,
            observed: ObservedBounds::default(),
            max_webhook_answer: DEFAULT_WEBHOOK_ANSWER,
            purity_check: 0,
            self_triggered: SelfTriggerLimits::default(),
            resync: None,
            discovery_interval: Duration::MAX,
        },
        memory: MemoryBudget::new(512 << 20),
        hosting: Hosting::Server(Selector::default()),
        telemetry: Telemetry {
            metrics: Metrics::new(|| 0),
            observer: Observer::default(),
            traces: Traces::default(),
            running: RunningControllers::default(),
        },
        cluster: Cluster {
            discovery: Arc::new(Discovery::new(api.clone())),
            recorder: Recorder::start(api.clone(), Rate::OF_EVENTS, CancellationToken::new()).0,
            api,
            stores,
            others: OtherServers::none(),
            heavy_work: HeavyWorkLimiter::default(),
        },
    }
}

/// The related objects of a controller over this API server.
pub(in crate::controller) fn related(api: ApiClient) -> Arc<RelatedObjects> {
    Arc::clone(&Scenario::over(COMPOSITE, api).reconciler.related)
}

/// The queue of a controller over this API server.
pub(in crate::controller) fn parent_queue(api: ApiClient) -> ParentQueue {
    Scenario::over(COMPOSITE, api)
}

pub(super) fn retry(retry: Retry) -> String {
    match retry {
        Retry::After(delay) => format!("after {} s", delay.as_secs()),
        Retry::WithEvent => "with an Event".to_owned(),
        Retry::Silent => "silent".to_owned(),
    }
}
