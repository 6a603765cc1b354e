//! One controller from its start to its stop: its kinds, its module, its stores, its queue, its workers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_core::fingerprint::Fingerprint;
use metahook_core::gate;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Key, Resource};
use metahook_core::pass::Terms;
use metahook_core::plan::desired::Rule;
use metahook_core::spec::composite::{Composite, CompositeControllerSpec, CompositeError};
use metahook_core::spec::hook::{Call, EnabledHook, WasmHook};
use metahook_core::spec::snapshot::snapshot;
use metahook_core::spec::status::{self, Finding, HookStatus};
use metahook_core::spread;
use metahook_core::standing::{Purity, Standings};
use metahook_core::trigger::{self, Selection};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::Tools;
use super::composite::{Controller, Hook, after_panic};
use super::report::Reporter;
use crate::cluster::discovery::DiscoveryError;
use crate::cluster::events::Severity;
use crate::hook::wasm::source::{Followed, SourceState};
use crate::queue::{Queue, workers};
use crate::store::{Change, Store};
use crate::telemetry::timestamp;

/// Whether a controller takes the place of one with another spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// Nobody has looked at its parents yet: all are synced at once.
    First,
    /// They are synced again, not all at once.
    Anew,
}

/// Runs a controller until `stop`; returns when its last pass has ended.
pub(super) async fn run(
    tools: Tools,
    object: Arc<Object>,
    begun: Begun,
    reporter: Reporter,
    stop: CancellationToken,
) {
    let run = Run { tools, object, begun, reporter, stop };
    if let Some(checked) = run.check() {
        while !run.stop.is_cancelled() {
            let Some(started) = run.start(&checked).await else {
                break;
            };
            run.serve(&checked, started).await;
        }
    }
    run.stop.cancelled().await;
    run.reporter.ended().await;
}

struct Run {
    tools: Tools,
    object: Arc<Object>,
    begun: Begun,
    reporter: Reporter,
    stop: CancellationToken,
}

/// How often figures of calls are written to the status.
const FIGURES: Duration = Duration::from_mins(5);

/// The kinds of a controller as the API server serves them.
type Kinds = (Arc<Resource>, Vec<Rule>);

/// What a controller needs to work.
struct Started {
    controller: Arc<Controller>,
    kinds: Kinds,
}

impl Run {
    /// `None`: the controller was stopped.
    async fn start(&self, checked: &Composite) -> Option<Started> {
        let kinds = self.kinds(checked).await?;
        let EnabledHook { version, call } = checked.sync.clone();
        // The check refuses the others.
        let Call::Wasm(WasmHook { module, settings, mounts, limits }) = call else {
            return None;
        };
        let source = self.tools.sources.follow(&module, &mounts);
        self.loaded(&source).await?;
        let (parent, rules) = kinds.clone();
        let controller = Controller {
            tools: self.tools.clone(),
            object: Arc::clone(&self.object),
            parents: self.tools.stores.open(&parent),
            children: rules.iter().map(|rule| self.tools.stores.open(&rule.resource)).collect(),
            terms: Terms {
                selection: Selection {
                    labels: checked.parent_selector.clone(),
                    finalizer: gate::finalizer(&self.object.key.name),
                    ignore_status: checked.ignore_status_changes,
                },
                rules,
                generate_selector: checked.generate_selector,
                snapshot: spec(&self.object)
                    .map_or_else(|_| "{}".to_owned(), |spec| snapshot(&self.object, &spec)),
                version,
                settings: settings.map(|settings| settings.to_string()),
                max_children: self.tools.max_children,
            },
            hook: Hook { source, limits },
            standings: Mutex::new(Standings::new(self.tools.purity_check)),
            meter: self.tools.metrics.meter(&self.object.gvk.kind, &self.object.key.name),
        };
        Some(Started { controller: Arc::new(controller), kinds })
    }

    /// `None`: the controller cannot run as it is written.
    fn check(&self) -> Option<Composite> {
        let (reason, message) = match spec(&self.object).map(|spec| spec.check(&self.tools.policy)) {
            Ok(Ok(checked)) => {
                for hook in &checked.disabled_hooks {
                    let text = format!(
                        "spec.hooks.{hook} names neither a webhook nor a wasm module: it is not called"
                    );
                    self.warn("DisabledHook", &text);
                }
                return Some(checked);
            }
            Ok(Err(error @ CompositeError::NoSyncHook)) => ("NoSyncHook", error.to_string()),
            Ok(Err(error @ CompositeError::Spec(_))) => ("InvalidSpec", error.to_string()),
            Err(error) => ("InvalidSpec", format!("the spec cannot be read: {error}")),
        };
        self.reporter.change(|report| report.ready = Finding::bad(reason, &message));
        self.warn("CreateError", &format!("Cannot create new controller: {message}"));
        None
    }

    /// Waits until all kinds are served.
    async fn kinds(&self, checked: &Composite) -> Option<Kinds> {
        const SHORT: Duration = Duration::from_millis(500);
        let (mut changes, mut pause, mut said) = (self.tools.discovery.changes(), SHORT, String::new());
        loop {
            changes.mark_unchanged();
            let error = match self.resolve(checked).await {
                Ok(found) => {
                    self.reporter.change(|report| {
                        report.kinds = Finding::good("AllServed", "");
                        report.ready = Finding::Unknown;
                    });
                    return Some(found);
                }
                Err(error) => error,
            };
            let message = error.to_string();
            self.reporter.change(|report| {
                report.kinds = Finding::bad("KindNotServed", &message);
                report.ready = Finding::bad("KindNotServed", &message);
            });
            if said != message {
                self.warn(error.event(), &format!("Cannot create new controller: {message}"));
                said = message;
            }
            tokio::select! {
                () = self.stop.cancelled() => return None,
                _ = changes.changed() => pause = SHORT,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(self.tools.discovery_interval),
            }
        }
    }

    async fn resolve(&self, checked: &Composite) -> Result<Kinds, KindError> {
        let parent = self.tools.discovery.resolve(&checked.parent).await?;
        if !parent.has_status {
            return Err(KindError::NoStatus(checked.parent.clone()));
        }
        let mut rules = Vec::new();
        for child in &checked.children {
            let resource = self.tools.discovery.resolve(&child.resource).await?;
            rules.push(Rule { resource, method: child.method });
        }
        Ok((parent, rules))
    }

    /// Waits until there is a module that can be called, and all that it mounts.
    async fn loaded(&self, source: &Followed) -> Option<()> {
        let mut changes = source.changes();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                next = changes.changed() => next.ok()?,
            }
            let state = changes.borrow_and_update().clone();
            self.tell(&state, false);
            if state.loaded.is_some() {
                self.reporter.change(|report| report.ready = Finding::Unknown);
                return Some(());
            }
            if let Some(problem) = state.problem {
                self.reporter
                    .change(|report| report.ready = Finding::bad("ModuleNotLoaded", problem.to_string()));
            }
        }
    }

    /// Says what is loaded and what is wrong with what should be.
    fn tell(&self, state: &SourceState, running: bool) {
        let module = state.loaded.as_ref().map(|loaded| &loaded.module);
        let status = module.map(|module| HookStatus {
            digest: Some(module.digest.to_string()),
            size: i64::try_from(module.size).ok(),
            loaded_at: Some(timestamp()),
            compile_millis: module
                .origin
                .compile_time()
                .and_then(|time| i64::try_from(time.as_millis()).ok()),
            pure: None,
            latest: None,
        });
        let finding = match (&state.problem, module) {
            (None, None) => return,
            (None, Some(_)) => Finding::good("Loaded", ""),
            (Some(problem), None) => Finding::bad(problem.reason(), problem.to_string()),
            (Some(problem), Some(module)) => {
                let refused = problem.refused().map(|digest| format!(", not sha256:{digest}"));
                let goes_on =
                    format!("{} goes on being called{}", module.digest, refused.unwrap_or_default());
                Finding::bad(problem.reason(), format!("{problem}; {goes_on}"))
            }
        };
        if let Finding::Bad { message, .. } = &finding {
            if running {
                self.warn("ModuleRefused", &format!("The hook is not replaced: {message}"));
            } else {
                self.warn("CreateError", &format!("Cannot create new controller: {message}"));
            }
        }
        self.reporter.change(|report| {
            report.modules = finding;
            if let Some(status) = status
                && report.hooks.get("sync").map(|hook| &hook.digest) != Some(&status.digest)
            {
                report.hooks.insert("sync".to_owned(), status);
            }
        });
    }

    /// Works until `stop`, or until the kinds are no longer what they were; then ends what is under way.
    async fn serve(&self, checked: &Composite, Started { controller, kinds }: Started) {
        if self.synced(&controller).await.is_none() {
            return;
        }
        let name = &self.object.key;
        self.tools.recorder.record(
            &self.object,
            Severity::Normal,
            "Started",
            &format!("Started controller: {name}"),
        );
        let queue = Arc::new(Queue::new());
        // Before the first pass: whatever comes after it is a change.
        let called = controller.hook.source.loaded().map(|loaded| loaded.identity());
        let triggers = spawn_triggers(&controller, &queue, self.begun);
        if self.begun == Begun::Anew {
            sync_all(&controller, &queue);
        }
        let pass = Arc::clone(&controller);
        let work = move |key, streaks| {
            let controller = Arc::clone(&pass);
            async move { controller.sync(&key, streaks).await }
        };
        let mut workers = workers::start(&queue, self.tools.workers, work, after_panic);
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.kinds_change(checked, &kinds) => {}
            () = self.follow(&controller, &queue, called) => {}
            () = resync(&controller, &queue, checked.resync_period) => {}
        }
        triggers.iter().for_each(AbortHandle::abort);
        queue.close();
        while workers.join_next().await.is_some() {}
    }

    /// Waits until all stores are filled, and says so where one cannot be.
    async fn synced(&self, controller: &Controller) -> Option<()> {
        let stores = || controller.children.iter().chain([&controller.parents]);
        let all = async {
            for store in stores() {
                store.synced().await;
            }
        };
        let mut all = std::pin::pin!(all);
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                () = &mut all => return Some(()),
                () = self.stop.cancelled() => return None,
                _ = clock.tick() => if let Some(trouble) = stores().find_map(|store| store.trouble()) {
                    self.reporter.change(|report| report.ready = Finding::bad("NotListed", trouble));
                }
            }
        }
    }

    /// Ends when a kind is no longer served, or served as another one.
    async fn kinds_change(&self, checked: &Composite, kinds: &Kinds) {
        let mut changes = self.tools.discovery.changes();
        while changes.changed().await.is_ok() {
            match self.resolve(checked).await {
                Ok(now) if now == *kinds => {}
                // It could not be asked: that says nothing about the kinds.
                Err(KindError::Discovery(DiscoveryError::Unreachable(_) | DiscoveryError::Refused(_))) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Keeps the report up to date and syncs all parents anew when the module or a mount changes.
    async fn follow(&self, controller: &Controller, queue: &Queue<Key>, mut called: Option<Fingerprint>) {
        let mut source = controller.hook.source.changes();
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        let mut figures = tokio::time::interval(FIGURES);
        loop {
            tokio::select! {
                _ = clock.tick() => self.count(controller),
                _ = figures.tick() => self.figures(controller),
                changed = source.changed() => {
                    if changed.is_err() { return }
                    let state = source.borrow_and_update().clone();
                    self.tell(&state, true);
                    let now = state.loaded.map(|loaded| loaded.identity());
                    if now != called {
                        called = now;
                        sync_all(controller, queue);
                    }
                }
            }
        }
    }

    /// Tells of the latest calls, if there were any.
    fn figures(&self, controller: &Controller) {
        if let Some(figures) = controller.meter.tally().figures(&controller.hook.limits) {
            self.reporter.change(|report| {
                for hook in report.hooks.values_mut() {
                    hook.latest = Some(figures.clone());
                }
            });
        }
    }

    fn count(&self, controller: &Controller) {
        let parents = controller
            .parents
            .view(|all| all.all().filter(|one| controller.terms.selection.includes(one)).count());
        let hook = controller.hook.source.loaded().map(|loaded| loaded.identity());
        let (settled, failing, first, purity) = {
            let standings = controller.standings();
            let first = standings.failing().next().map(|(key, category)| (key.clone(), category));
            let purity = hook.and_then(|hook| standings.purity_of(hook));
            (standings.settled(), standings.failing().count(), first, purity)
        };
        let ready = match first {
            None => Finding::good("Running", ""),
            Some((key, category)) => {
                let message = format!(
                    "{failing} of {parents} parents fail, the first is {key} ({category}); see its Events"
                );
                Finding::good("ParentsFailing", message)
            }
        };
        {
            let mut tally = controller.meter.tally();
            (tally.parents, tally.settled, tally.failing) = (parents, settled, failing);
        }
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.reporter.change(|report| {
            report.ready = ready;
            report.pure = purity.map_or(Finding::Unknown, status::purity);
            for hook in report.hooks.values_mut() {
                hook.pure = purity.map(|purity| purity == Purity::Pure);
            }
            (report.parents, report.settled, report.failing) =
                (count(parents), count(settled), count(failing));
        });
    }

    fn warn(&self, reason: &'static str, message: &str) {
        self.tools.recorder.record(&self.object, Severity::Warning, reason, message);
    }
}

#[derive(Debug, thiserror::Error)]
enum KindError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(
        "{0} does not have subresource 'Status' enabled: add `subresources: {{status: {{}}}}` to the version of its CustomResourceDefinition"
    )]
    NoStatus(Gvr),
}

impl KindError {
    /// The reason Metacontroller gives for it.
    fn event(&self) -> &'static str {
        match self {
            Self::Discovery(_) => "CreateError",
            Self::NoStatus(_) => "SyncError",
        }
    }
}

/// Looks at all parents again as after a failure that lies in the past, not all at once.
fn sync_all(controller: &Controller, queue: &Queue<Key>) {
    let keys = controller.parent_keys();
    let total = keys.len();
    for (nth, key) in keys.into_iter().enumerate() {
        queue.add_fresh(key, spread::delay(nth, total));
    }
}

/// Looks at all parents again and again, where the controller asks for it.
async fn resync(controller: &Controller, queue: &Queue<Key>, period: Option<Duration>) {
    let Some(period) = period else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(period).await;
        controller.parent_keys().into_iter().for_each(|key| queue.add(key));
    }
}

/// From stores to the queue: one task per store.
fn spawn_triggers(controller: &Arc<Controller>, queue: &Arc<Queue<Key>>, begun: Begun) -> Vec<AbortHandle> {
    let spawn = |store: &Arc<Store>, child| {
        let (controller, queue) = (Arc::clone(controller), Arc::clone(queue));
        let changes = match begun {
            Begun::First => store.listen(),
            Begun::Anew => store.changes(),
        };
        tokio::spawn(trigger_all(controller, queue, changes, child)).abort_handle()
    };
    let mut tasks = vec![spawn(&controller.parents, false)];
    tasks.extend(controller.children.iter().map(|store| spawn(store, true)));
    tasks
}

async fn trigger_all(
    controller: Arc<Controller>,
    queue: Arc<Queue<Key>>,
    mut changes: mpsc::UnboundedReceiver<Change>,
    child: bool,
) {
    while let Some(Change { touched, by }) = changes.recv().await {
        let own = by.filter(|writer| writer.controller == controller.object.uid).map(|writer| writer.parent);
        let keys = if child {
            controller
                .parents
                .view(|parents| trigger::on_child(&touched, parents, controller.terms.generate_selector))
        } else {
            trigger::on_parent(&touched, &controller.terms.selection).into_iter().collect()
        };
        // The pass that wrote it looks again by itself.
        keys.into_iter().filter(|key| own.as_ref() != Some(key)).for_each(|key| queue.add(key));
    }
}

fn spec(object: &Object) -> Result<CompositeControllerSpec, serde_json::Error> {
    #[derive(Deserialize)]
    struct Specified {
        spec: CompositeControllerSpec,
    }
    serde_json::from_str(object.json()).map(|object: Specified| object.spec)
}
