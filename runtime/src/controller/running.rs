//! One controller from its start to its stop: its kinds, its module, its stores, its queue, its workers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Key, Resource};
use metahook_core::plan::desired::Rule;
use metahook_core::spec::composite::{Composite, CompositeControllerSpec, CompositeError};
use metahook_core::spec::hook::{Call, EnabledHook, WasmHook};
use metahook_core::spec::status::{Finding, HookStatus};
use metahook_core::trigger;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Tools;
use super::composite::{Controller, Hook};
use super::report::Reporter;
use crate::cluster::discovery::DiscoveryError;
use crate::cluster::events::Severity;
use crate::hook::wasm::source::{Followed, ModuleState};
use crate::queue::{Queue, workers};
use crate::store::{Change, Store};
use crate::telemetry::timestamp;

/// Runs a controller until `stop`; returns when its last pass has ended.
pub(super) async fn run(tools: Tools, object: Arc<Object>, reporter: Reporter, stop: CancellationToken) {
    let run = Run {
        tools,
        object,
        reporter,
        stop,
    };
    if let Some(started) = run.start().await {
        run.serve(started).await;
    }
    run.stop.cancelled().await;
    run.reporter.ended().await;
}

struct Run {
    tools: Tools,
    object: Arc<Object>,
    reporter: Reporter,
    stop: CancellationToken,
}

/// What a controller needs to work.
struct Started {
    controller: Arc<Controller>,
    module: Arc<Followed>,
}

impl Run {
    /// `None`: the controller was stopped, or cannot run as it is written.
    async fn start(&self) -> Option<Started> {
        let checked = self.check()?;
        let (parent, rules) = self.kinds(&checked).await?;
        let Composite {
            sync: EnabledHook { version, call },
            generate_selector,
            parent_selector,
            ..
        } = checked;
        // The check refuses the others.
        let Call::Wasm(WasmHook {
            module,
            settings,
            limits,
        }) = call
        else {
            return None;
        };
        let module = self.tools.modules.follow(&module);
        self.loaded(&module).await?;
        let parents = self.tools.stores.open(&parent);
        let children = rules
            .iter()
            .map(|rule| (rule.clone(), self.tools.stores.open(&rule.resource)))
            .collect();
        let controller = Controller {
            tools: self.tools.clone(),
            object: Arc::clone(&self.object),
            snapshot: snapshot(&self.object),
            parents,
            parent_selector,
            children,
            rules,
            generate_selector,
            hook: Hook {
                module: Arc::clone(&module),
                naming: version.naming(),
                version,
                settings: settings.map(|s| s.to_string()),
                limits,
            },
            failing: Mutex::default(),
        };
        Some(Started {
            controller: Arc::new(controller),
            module,
        })
    }

    fn check(&self) -> Option<Composite> {
        let refused = |reason, message: String| {
            self.reporter
                .change(|report| report.ready = Finding::bad(reason, &message));
            let message = format!("Cannot create new controller: {message}");
            self.tools
                .recorder
                .record(&self.object, Severity::Warning, "CreateError", &message);
        };
        let spec = match spec(&self.object) {
            Ok(spec) => spec,
            Err(error) => {
                refused("InvalidSpec", format!("the spec cannot be read: {error}"));
                return None;
            }
        };
        let error = match spec.check(&self.tools.bounds) {
            Ok(checked) => return Some(checked),
            Err(error) => error,
        };
        let reason = match error {
            CompositeError::NoSyncHook => "NoSyncHook",
            CompositeError::Spec(_) => "InvalidSpec",
        };
        refused(reason, error.to_string());
        None
    }

    /// Waits until all kinds are served.
    async fn kinds(&self, checked: &Composite) -> Option<(Arc<Resource>, Vec<Rule>)> {
        let mut changes = self.tools.discovery.changes();
        let mut pause = Duration::from_millis(500);
        let mut said = String::new();
        loop {
            changes.mark_unchanged();
            match self.resolve(checked).await {
                Ok(found) => {
                    self.reporter
                        .change(|report| report.kinds = Finding::good("AllServed", ""));
                    return Some(found);
                }
                Err(error) => {
                    let message = error.to_string();
                    self.reporter.change(|report| {
                        report.kinds = Finding::bad("KindNotServed", &message);
                        report.ready = Finding::bad("KindNotServed", &message);
                    });
                    if said != message {
                        let text = format!("Cannot create new controller: {message}");
                        self.tools
                            .recorder
                            .record(&self.object, Severity::Warning, "CreateError", &text);
                        said = message;
                    }
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => return None,
                _ = changes.changed() => {}
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(self.tools.discovery_interval),
            }
        }
    }

    async fn resolve(&self, checked: &Composite) -> Result<(Arc<Resource>, Vec<Rule>), KindError> {
        let parent = self.tools.discovery.resolve(&checked.parent).await?;
        if !parent.has_status {
            return Err(KindError::NoStatus(checked.parent.clone()));
        }
        let mut rules = Vec::new();
        for child in &checked.children {
            let resource = self.tools.discovery.resolve(&child.resource).await?;
            rules.push(Rule {
                resource,
                method: child.method,
            });
        }
        Ok((parent, rules))
    }

    /// Waits until there is a module that can be called.
    async fn loaded(&self, module: &Followed) -> Option<()> {
        let mut changes = module.changes();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                next = changes.changed() => next.ok()?,
            }
            let state = changes.borrow_and_update().clone();
            self.tell(&state);
            if state.module.is_some() {
                return Some(());
            }
            if let Some(problem) = state.problem {
                self.reporter
                    .change(|report| report.ready = Finding::bad("ModuleNotLoaded", problem.to_string()));
            }
        }
    }

    /// Says what is loaded and what is wrong with what should be.
    fn tell(&self, state: &ModuleState) {
        let status = state.module.as_ref().map(|module| HookStatus {
            digest: Some(module.digest.to_string()),
            size: i64::try_from(module.size).ok(),
            loaded_at: Some(timestamp()),
            compile_millis: i64::try_from(module.compile_time.as_millis()).ok(),
            pure: None,
        });
        let finding = match (&state.problem, &state.module) {
            (None, None) => return,
            (None, Some(_)) => Finding::good("Loaded", ""),
            (Some(problem), None) => Finding::bad(problem.reason(), problem.to_string()),
            (Some(problem), Some(module)) => Finding::bad(
                problem.reason(),
                format!("{problem}; {} goes on being called", module.digest),
            ),
        };
        if let Finding::Bad { message, .. } = &finding {
            let text = format!("Cannot create new controller: {message}");
            self.tools
                .recorder
                .record(&self.object, Severity::Warning, "CreateError", &text);
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

    /// Works until `stop`, then ends what is under way.
    async fn serve(&self, Started { controller, module }: Started) {
        let ready = async {
            controller.parents.synced().await;
            for (_, store) in &controller.children {
                store.synced().await;
            }
        };
        tokio::select! {
            () = ready => {}
            () = self.stop.cancelled() => return,
        }
        let name = self.object.key.to_string();
        self.tools.recorder.record(
            &self.object,
            Severity::Normal,
            "Started",
            &format!("Started controller: {name}"),
        );
        let queue = Arc::new(Queue::new());
        let triggers = spawn_triggers(&controller, &queue);
        let pass = Arc::clone(&controller);
        let work = move |key, streaks| {
            let controller = Arc::clone(&pass);
            async move { controller.sync(&key, streaks).await }
        };
        let mut workers = workers::start(&queue, self.tools.workers, work, super::composite::after_panic);
        self.follow(&controller, &queue, module.changes()).await;
        triggers.iter().for_each(tokio::task::AbortHandle::abort);
        queue.close();
        while workers.join_next().await.is_some() {}
    }

    /// Keeps the report up to date and syncs all parents anew when the module changes, until `stop`.
    async fn follow(
        &self,
        controller: &Controller,
        queue: &Queue<Key>,
        mut modules: watch::Receiver<ModuleState>,
    ) {
        let mut called = controller.hook.module.module().map(|module| module.digest);
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = clock.tick() => self.count(controller),
                changed = modules.changed() => {
                    if changed.is_err() { return }
                    let state = modules.borrow_and_update().clone();
                    self.tell(&state);
                    let now = state.module.map(|module| module.digest);
                    if now != called {
                        called = now;
                        controller.parent_keys().into_iter().for_each(|key| queue.add_fresh(key));
                    }
                }
            }
        }
    }

    fn count(&self, controller: &Controller) {
        let parents = controller.parent_keys();
        let failing: BTreeSet<(Key, &'static str)> = {
            let mut failing = controller.failing.lock().unwrap_or_else(PoisonError::into_inner);
            failing.retain(|key, _| parents.contains(key));
            failing
                .iter()
                .map(|(key, category)| (key.clone(), *category))
                .collect()
        };
        let ready = match failing.first() {
            None => Finding::good("Running", ""),
            Some((key, category)) => {
                let all = failing.len();
                Finding::good(
                    "ParentsFailing",
                    format!(
                        "{all} of {} parents fail, the first is {key} ({category}); see its Events",
                        parents.len()
                    ),
                )
            }
        };
        self.reporter.change(|report| {
            report.ready = ready;
            report.parents = i64::try_from(parents.len()).unwrap_or(i64::MAX);
            report.failing = i64::try_from(failing.len()).unwrap_or(i64::MAX);
        });
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

/// From stores to the queue: one task per store, which end with the stores' senders or when they are aborted.
fn spawn_triggers(controller: &Arc<Controller>, queue: &Arc<Queue<Key>>) -> Vec<tokio::task::AbortHandle> {
    let children = controller.children.iter().map(|(_, store)| (store, true));
    let mut sources: Vec<(&Arc<Store>, bool)> = vec![(&controller.parents, false)];
    sources.extend(children);
    let tasks = sources.into_iter().map(|(store, child)| {
        let (controller, queue) = (Arc::clone(controller), Arc::clone(queue));
        tokio::spawn(trigger_all(controller, queue, store.listen(), child)).abort_handle()
    });
    tasks.collect()
}

async fn trigger_all(
    controller: Arc<Controller>,
    queue: Arc<Queue<Key>>,
    mut changes: mpsc::UnboundedReceiver<Change>,
    child: bool,
) {
    while let Some(Change { touched, by }) = changes.recv().await {
        let own = by
            .filter(|writer| writer.controller == controller.object.uid)
            .map(|writer| writer.parent);
        let keys = if child {
            controller
                .parents
                .view(|parents| trigger::on_child(&touched, parents, controller.generate_selector))
        } else {
            trigger::on_parent(&touched, &controller.parent_selector)
                .into_iter()
                .collect()
        };
        // The pass that wrote it looks again by itself.
        keys.into_iter()
            .filter(|key| own.as_ref() != Some(key))
            .for_each(|key| queue.add(key));
    }
}

fn spec(object: &Object) -> Result<CompositeControllerSpec, serde_json::Error> {
    #[derive(Deserialize)]
    struct Specified {
        spec: CompositeControllerSpec,
    }
    serde_json::from_str(object.json()).map(|object: Specified| object.spec)
}

/// The controller as hooks see it: typed, so without unknown fields, and without status.
fn snapshot(object: &Object) -> String {
    let mut value = object.value().unwrap_or_default();
    if let (Some(fields), Ok(spec)) = (value.as_object_mut(), spec(object)) {
        fields.insert("spec".to_owned(), serde_json::to_value(spec).unwrap_or_default());
        fields.insert("status".to_owned(), serde_json::json!({}));
    }
    value.to_string()
}
