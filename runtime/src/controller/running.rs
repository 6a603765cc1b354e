//! One controller from its start to its stop: its kinds, its module, its stores, its queue, its workers.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use metahook_core::gate;
use metahook_core::object::Object;
use metahook_core::object::id::Key;
use metahook_core::pass::{HookTerms, Kind, Terms};
use metahook_core::spec::SpecError;
use metahook_core::spec::composite::{Composite, CompositeControllerSpec};
use metahook_core::spec::controller::{ControllerError, ControllerKind};
use metahook_core::spec::hook::{Call, EnabledHook, HookName, WasmHook};
use metahook_core::spec::snapshot::snapshot;
use metahook_core::spec::status::Finding;
use metahook_core::standing::Standings;
use metahook_core::trigger::Selection;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::Tools;
use super::composite::{Controller, after_panic};
use super::hooks::{Hook, Hooks};
use super::host::composite_controllers;
use super::kinds::Kinds;
use super::ledgers::Ledgers;
use super::modules::Modules;
use super::related::Relations;
use super::report::Reporter;
use super::sweep::Sweep;
use super::tasks::Tasks;
use super::triggers;
use crate::cluster::events::Severity;
use crate::hook::web::client::Webhook;
use crate::queue::{Queue, workers};
use crate::store::Store;

/// Whether a controller takes the place of one with another spec, or of itself with other kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// Nobody has looked at its parents yet: all are synced at once.
    First,
    /// They are synced again, not all at once.
    Anew,
}

/// A controller as it is to run.
pub(super) struct Begin {
    pub(super) object: Arc<Object>,
    pub(super) begun: Begun,
    /// All controllers that there are.
    pub(super) controllers: Arc<Store>,
}

/// Runs a controller until `stop`; returns when its last pass has ended.
pub(super) async fn run(
    tools: Tools,
    Begin { object, begun, controllers }: Begin,
    reporter: Reporter,
    stop: CancellationToken,
) {
    let mut run = Run { tools, object, begun, reporter, controllers, stop };
    if let Some(checked) = run.check() {
        loop {
            let served = async {
                match run.start(&checked).await {
                    Some(started) => run.serve(&checked, started).await,
                    None => End::Stopped,
                }
            };
            match AssertUnwindSafe(served).catch_unwind().await.unwrap_or(End::Broken) {
                _ if run.stop.is_cancelled() => break,
                End::Stopped => break,
                End::Anew => {}
                End::Broken => {
                    tracing::error!(controller = %run.object.key, "a controller panicked outside of its passes: this is a bug in metahook; it is started anew");
                    tokio::select! {
                        () = run.stop.cancelled() => break,
                        () = tokio::time::sleep(AFTER_BUG) => {}
                    }
                }
            }
            run.begun = Begun::Anew;
        }
    }
    run.stop.cancelled().await;
    run.reporter.ended().await;
}

pub(super) struct Run {
    pub(super) tools: Tools,
    pub(super) object: Arc<Object>,
    begun: Begun,
    pub(super) reporter: Reporter,
    controllers: Arc<Store>,
    pub(super) stop: CancellationToken,
}

/// Why a controller has come to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It was stopped, or cannot run as it is written.
    Stopped,
    /// Its kinds or its hooks are no longer what they were.
    Anew,
    /// Something beside its passes panicked.
    Broken,
}

/// The pause after a panic, so that a bug heats nothing.
const AFTER_BUG: Duration = Duration::from_secs(5);

/// How often figures of calls are written to the status.
const FIGURES: Duration = Duration::from_mins(5);

/// What a controller needs to work.
struct Started {
    controller: Arc<Controller>,
    queue: Arc<Queue<Key>>,
    kinds: Kinds,
    modules: Modules,
}

impl Run {
    /// `None`: the controller was stopped.
    async fn start(&self, checked: &Composite) -> Option<Started> {
        let kinds = self.kinds(checked).await?;
        let hooks = match checked.common.hooks.try_map(|name, hook| self.hook(name, hook)) {
            Ok(hooks) => hooks,
            Err(error) => {
                self.refuse("InvalidSpec", &error.to_string());
                return None;
            }
        };
        let mut modules = Modules::of(&hooks);
        self.loaded(&mut modules).await?;
        let home = self.tools.rest.client().default_namespace().to_owned();
        let queue = Arc::new(Queue::new());
        let tools = self.tools.acting_as(checked.common.account.as_ref());
        let uid = self.object.uid.clone();
        let relations = Relations::new(uid, Arc::clone(&queue), &tools, checked.common.account.is_some());
        let controller = Controller {
            tools,
            object: Arc::clone(&self.object),
            parents: self.tools.stores.open(&kinds.parent),
            selected: Mutex::default(),
            children: kinds.claimed().map(|resource| self.tools.stores.open(resource)).collect(),
            terms: Terms {
                controller: self.object.key.name.to_string(),
                kind: Kind::Composite {
                    generate_selector: checked.generate_selector,
                    rolling: kinds.rolling(checked, &home),
                },
                selection: Selection {
                    rules: checked.parent.rules.clone(),
                    finalizer: gate::finalizer(ControllerKind::Composite, &self.object.key.name),
                    finalizes: checked.common.hooks.finalize.is_some(),
                },
                rules: kinds.rules.clone(),
                snapshot: spec(&self.object)
                    .map_or_else(|_| "{}".to_owned(), |spec| snapshot(&self.object, &spec)),
                hooks: checked.common.hooks.map(|_, hook| HookTerms::of(hook)),
                max_children: self.tools.max_children,
            },
            hooks: Hooks::new(hooks),
            relations: Arc::new(relations),
            tasks: Tasks::default(),
            told: Mutex::default(),
            standings: Mutex::new(Standings::new(self.tools.purity_check)),
            ledgers: Ledgers::default(),
            others: self.tools.stores.open(&composite_controllers()),
            started: Instant::now(),
            meter: self.tools.metrics.meter(&self.object.gvk.kind, &self.object.key.name),
        };
        Some(Started { controller: Arc::new(controller), queue, kinds, modules })
    }

    fn hook(&self, name: HookName, hook: &EnabledHook) -> Result<Hook, SpecError> {
        match &hook.call {
            Call::Wasm(WasmHook { module, mounts, limits, .. }) => {
                Ok(Hook::Wasm { source: self.tools.sources.follow(module, mounts), limits: *limits })
            }
            Call::Webhook(target) => {
                if let Some(timeout) = &target.ignored_timeout {
                    let (field, instead) = (&target.field, target.timeout.as_secs());
                    tracing::warn!(controller = %self.object.key, "{field}.timeout: {timeout} is no time: {instead}s are used");
                }
                let object = &self.object;
                let webhooks = &self.tools.metrics.webhooks;
                let meter = webhooks.meter(&object.gvk.kind, &object.key.name, name, &target.url);
                Ok(Hook::Webhook(Arc::new(Webhook::new(target, meter)?)))
            }
        }
    }

    /// `None`: the controller cannot run as it is written.
    fn check(&self) -> Option<Composite> {
        let (reason, message) = match spec(&self.object)
            .map(|spec| spec.check(&self.object.key.name, &self.tools.policy))
        {
            Ok(Ok(checked)) => {
                for hook in &checked.common.disabled_hooks {
                    let text = format!(
                        "spec.hooks.{hook} names neither a webhook nor a wasm module: it is not called"
                    );
                    self.warn("DisabledHook", &text);
                }
                for kind in &checked.common.declared_again {
                    let text = format!(
                        "spec.childResources declares {kind} more than once: the last entry counts, so take the others out"
                    );
                    self.warn("KindDeclaredAgain", &text);
                }
                if let Some(seconds) = checked.common.too_often {
                    let text =
                        format!("spec.resyncPeriodSeconds: {seconds} is taken for 1, the shortest period");
                    self.warn("ShortResync", &text);
                }
                return Some(checked);
            }
            Ok(Err(error @ ControllerError::NoSyncHook)) => ("NoSyncHook", error.to_string()),
            Ok(Err(error @ ControllerError::Spec(_))) => ("InvalidSpec", error.to_string()),
            Err(error) => ("InvalidSpec", format!("the spec cannot be read: {error}")),
        };
        self.refuse(reason, &message);
        None
    }

    /// Says why the controller does not run.
    fn refuse(&self, reason: &'static str, message: &str) {
        self.reporter.change(|report| report.ready = Finding::bad(reason, message));
        self.warn("CreateError", &format!("Cannot create new controller: {message}"));
    }

    /// Works until `stop`, or until the kinds are no longer what they were; then ends what is under way.
    async fn serve(
        &self,
        checked: &Composite,
        Started { controller, queue, kinds, modules }: Started,
    ) -> End {
        if self.synced(&controller).await.is_none() {
            return End::Stopped;
        }
        let name = &self.object.key;
        self.tools.recorder.record(
            &self.object,
            Severity::Normal,
            "Started",
            &format!("Started controller: {name}"),
        );
        let sweep = Sweep {
            tools: self.tools.clone(),
            controllers: Arc::clone(&self.controllers),
            parents: checked.parent.resource.clone(),
            account: checked.common.account.clone(),
        };
        tokio::spawn(sweep.run(self.stop.clone()));
        // Before the first pass: whatever comes after it is a change.
        controller.hooks.renew();
        let tasks = controller.tasks.until_dropped();
        triggers::spawn(&controller, &queue, self.begun);
        if self.begun == Begun::Anew {
            triggers::sync_all(&controller, &queue);
        }
        let pass = Arc::clone(&controller);
        let work = move |key, streaks| {
            let controller = Arc::clone(&pass);
            async move { controller.sync(&key, streaks).await }
        };
        let mut workers = workers::start(&queue, self.tools.workers, work, after_panic);
        let period = checked.common.resync_period.or(self.tools.resync);
        let end = tokio::select! {
            () = self.stop.cancelled() => End::Stopped,
            () = controller.tasks.broken() => End::Broken,
            () = self.kinds_change(checked, &kinds) => End::Anew,
            () = controller.wake_where_kinds_appear() => End::Anew,
            () = controller.close_places() => End::Anew,
            () = self.follow(&controller, &queue, modules) => End::Anew,
            () = triggers::resync(&controller, &queue, period) => End::Anew,
        };
        drop(tasks);
        queue.close();
        while workers.join_next().await.is_some() {}
        end
    }

    /// Keeps the report up to date and syncs all parents anew when a module or a mount changes.
    async fn follow(&self, controller: &Controller, queue: &Queue<Key>, mut modules: Modules) {
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        let mut figures = tokio::time::interval(FIGURES);
        loop {
            tokio::select! {
                _ = clock.tick() => self.reporter.count(controller),
                _ = figures.tick() => self.reporter.figures(controller),
                changed = modules.changed() => {
                    let Some(name) = changed else { return };
                    self.tell(&modules, name, true);
                    if controller.hooks.renew() {
                        triggers::sync_all(controller, queue);
                    }
                }
            }
        }
    }

    /// Waits until all stores are filled, and says so where one cannot be.
    async fn synced(&self, controller: &Controller) -> Option<()> {
        let all = async {
            for store in controller.stores() {
                store.synced().await;
            }
        };
        let mut all = std::pin::pin!(all);
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                () = &mut all => return Some(()),
                () = self.stop.cancelled() => return None,
                _ = clock.tick() => if let Some(trouble) = controller.stores().find_map(|store| store.trouble()) {
                    self.reporter.change(|report| report.ready = Finding::bad("NotListed", trouble));
                }
            }
        }
    }

    pub(super) fn warn(&self, reason: &'static str, message: &str) {
        self.tools.recorder.record(&self.object, Severity::Warning, reason, message);
    }
}

fn spec(object: &Object) -> Result<CompositeControllerSpec, serde_json::Error> {
    #[derive(Deserialize)]
    struct Specified {
        spec: CompositeControllerSpec,
    }
    serde_json::from_str(object.json()).map(|object: Specified| object.spec)
}
