//! One controller from its start to its stop: its kinds, its module, its stores, its queue, its workers.

mod counts;
mod missing_rights;
mod modules;
pub(super) mod parent_queue;
mod reading;
pub(super) mod report;
mod requirements;
mod serving;
pub(super) mod stale_finalizers;
mod status_writer;
mod waiting_parents;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::Finding;
use metahook_core::api::stored_hooks::has_no_hooks;
use metahook_core::api::{CheckedSpec, ControllerError, ControllerKind, UnusableSpec, spec_digest};
use metahook_core::decorator::conflicts::DecoratorId;
use metahook_core::object::Object;
use metahook_core::reconcile::kinds::{ConfigParts, Kinds};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::controller::brake::Brake;
use crate::controller::decorator_conflicts::Decorator;
use crate::controller::hooks::{FollowedHooks, HookCaller};
use crate::controller::observer::Observed;
use crate::controller::runner::modules::Modules;
use crate::controller::runner::parent_queue::ParentQueue;
use crate::controller::runner::reading::Readable;
use crate::controller::runner::report::Reporter;
use crate::controller::runner::waiting_parents::WaitingParents;
use crate::controller::{Context, ControllerData};
use crate::queue::Throttle;
use crate::store::{Store, Stores};

/// Why a controller is started: for the first time, or in place of one with another spec or other kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartReason {
    /// No reconcile has seen its parents yet: all are reconciled at once.
    First,
    /// The controller's parents are reconciled again, not all at once.
    Anew,
}

/// A controller as it is to run.
pub(crate) struct ControllerRunner {
    pub(crate) context: Context,
    pub(crate) kind: ControllerKind,
    pub(crate) object: Arc<Object>,
    pub(crate) reason: StartReason,
    /// The controller has not worked yet, and it was started when another server may have led.
    pub(crate) stands_by: AtomicBool,
    pub(crate) reporter: Reporter,
    pub(crate) stop: CancellationToken,
}

/// The pause after a panic, so that a bug heats nothing.
const PANIC_DELAY: Duration = Duration::from_secs(5);

/// Why a controller has come to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The controller was stopped, or cannot run as it is written.
    Stopped,
    /// The controller's kinds or its hooks are no longer what they were.
    Anew,
    /// A task beside its reconciles panicked.
    Broken,
}

/// Parts of a controller that works.
struct RunningController {
    /// One for each kind of parents.
    parts: Vec<ParentQueue>,
    hooks: Arc<FollowedHooks>,
    kinds: Kinds,
    /// One for each part, where the controller has an account.
    reads: Vec<Readable>,
    modules: Modules,
    brake: Arc<Brake>,
}

impl ControllerRunner {
    /// Runs the controller until `stop`; returns when its last reconcile has ended.
    pub(crate) async fn run(mut self) {
        let waiting = AbortOnDropHandle::new(tokio::spawn(WaitingParents::of(&self).run()));
        if let Some((checked, snapshot)) = self.check() {
            self.host(&checked);
            let brake = Arc::new(self.reporter.brake(checked.common().deletion_brake.clone()));
            loop {
                let served = async {
                    match self.start(&checked, &snapshot, &brake).await {
                        Some(started) => self.serve(&checked, started).await,
                        None => StopReason::Stopped,
                    }
                };
                match AssertUnwindSafe(served).catch_unwind().await.unwrap_or(StopReason::Broken) {
                    _ if self.stop.is_cancelled() => break,
                    StopReason::Stopped => break,
                    StopReason::Anew => {}
                    StopReason::Broken => {
                        tracing::error!(controller = %self.object.key, "a controller panicked outside of its reconciles: this is a bug in metahook; it is started anew");
                        tokio::select! {
                            () = self.stop.cancelled() => break,
                            () = tokio::time::sleep(PANIC_DELAY) => {}
                        }
                    }
                }
                self.reason = StartReason::Anew;
            }
        }
        self.stop.cancelled().await;
        drop(waiting);
        self.reporter.ended().await;
    }

    /// `None`: the controller was stopped.
    async fn start(
        &self,
        spec: &CheckedSpec,
        snapshot: &str,
        brake: &Arc<Brake>,
    ) -> Option<RunningController> {
        let common = spec.common();
        let (kinds, reads) = self.readable_kinds(spec).await?;
        let hooks = match common.hooks.try_map(|name, hook| self.hook(name, hook)) {
            Ok(hooks) => hooks,
            Err(error) => {
                self.refuse(ConditionReason::InvalidSpec, &error.to_string());
                return None;
            }
        };
        let mut modules = Modules::of(&hooks);
        self.loaded(&mut modules).await?;
        let shadows = self.shadows(common);
        let hooks = Arc::new(FollowedHooks::new(hooks, spec_digest(&self.object)));
        let name = &self.object.key.name;
        let meter = self.context.telemetry.metrics.meter(&self.object.gvk.kind, name);
        meter.counts().shadows = shadows.counts();
        let context = self.context.acting_as(common.account.as_ref());
        let targets = spec.targets().iter().zip(&kinds.parents);
        let served = targets.filter_map(|(target, parents)| Some((target, parents.as_ref()?)));
        let throttle = Throttle::new(self.context.options.self_triggered);
        let options = &self.context.options;
        let parts_of_config = ConfigParts {
            name,
            snapshot,
            home: self.context.cluster.api.client.default_namespace(),
            max_children: options.max_children,
            observed: options.observed,
            max_webhook_answer: options.max_webhook_answer,
        };
        let ungranted = Arc::default();
        let parts = served.enumerate().map(|(nth, (target, parents))| {
            let config = kinds.config(spec, (target, parents), parts_of_config);
            // Parents and children are read with the server's own rights, for all controllers together; hooks are shown what
            // their account may read.
            let (stores, telemetry) = (&self.context.cluster.stores, &context.telemetry);
            let data = ControllerData {
                object: Arc::clone(&self.object),
                telemetry: telemetry.of_controller(&meter, &ungranted, (self.kind, name), parents),
                config,
                parents: stores.open(parents),
                reads: reads.get(nth).map(|(_, reads)| Arc::clone(reads)),
                children: child_stores(stores, &kinds),
                controllers: Arc::clone(&context.controllers),
                recorder: context.cluster.recorder.clone(),
                brake: Arc::clone(brake),
                started: Instant::now(),
            };
            let data = Arc::new(data);
            let hooks = HookCaller {
                shadows: shadows.start(&data, &context),
                data,
                followed: Arc::clone(&hooks),
                sources: Arc::clone(&context.hooks.sources),
                seeds: Arc::clone(&context.hooks.seeds),
            };
            ParentQueue::new(hooks, self.decorator(), &context, common.account.is_some(), throttle.clone())
        });
        let parts = parts.collect();
        Some(RunningController { parts, hooks, kinds, reads, modules, brake: Arc::clone(brake) })
    }

    fn decorator(&self) -> Option<Decorator> {
        match self.kind {
            ControllerKind::Composite => None,
            ControllerKind::Decorator => Some(Decorator {
                id: Arc::new(DecoratorId::of(&self.object)),
                coordinator: Arc::clone(&self.context.decorators),
            }),
        }
    }

    /// The spec, and the controller as hooks see it; `None`: the controller cannot run as it is written.
    fn check(&self) -> Option<(CheckedSpec, String)> {
        let error = match CheckedSpec::of(self.kind, &self.object, &self.context.hooks.policy) {
            Ok((spec, snapshot)) => {
                for (reason, message) in spec.warnings() {
                    self.warn(reason, &message);
                }
                return Some((spec, snapshot));
            }
            Err(error) => error,
        };
        let reason = match error {
            UnusableSpec::Refused(ControllerError::NoSyncHook) => ConditionReason::NoSyncHook,
            UnusableSpec::Refused(ControllerError::Spec(_)) | UnusableSpec::Unreadable(_) => {
                ConditionReason::InvalidSpec
            }
        };
        self.refuse(reason, &error.to_string());
        if has_no_hooks(&self.object) {
            self.remove_stale_finalizers();
        }
        None
    }

    /// Lets the other decorators know of this one, before any of its reconciles: as soon as it is known, since all start
    /// together. When it works it is about what is served of that.
    fn host(&self, spec: &CheckedSpec) {
        if let CheckedSpec::Decorator(decorator) = spec {
            let selection = |target| spec.selection(target, &self.object.key.name);
            let targets = decorator.targets.iter().map(|target| (target.resource.clone(), selection(target)));
            self.context.decorators.host(&self.object, targets.collect());
        }
    }

    /// It cannot start: no other decorator waits for it, and its earlier decorations no longer count. One that only has to
    /// wait for the API server is none of these: all have to.
    pub(crate) fn stand_aside(&self) {
        if self.kind == ControllerKind::Decorator {
            self.context.decorators.end(&self.object);
        }
    }

    /// Says why the controller does not run.
    fn refuse(&self, reason: ConditionReason, message: &str) {
        self.stand_aside();
        self.context.telemetry.metrics.refused(self.kind);
        self.reporter.change(|report| report.ready = Finding::new(reason, message));
        self.warn(EventReason::CreateError, &format!("Cannot create new controller: {message}"));
    }

    /// Tells of something wrong with the controller, by an Event and in the log.
    pub(crate) fn warn(&self, reason: EventReason, message: &str) {
        tracing::warn!(controller = %self.object.key, reason = reason.as_str(), "{message}");
        self.context.telemetry.observer.note(|| Observed::Problem { message: message.to_owned() });
        self.context.cluster.recorder.record(&self.object, reason, message);
    }
}

/// The stores of the kinds of children, and of revisions, which are read whole.
fn child_stores(stores: &Stores, kinds: &Kinds) -> Vec<Arc<Store>> {
    let children = kinds.rules.iter().map(|rule| stores.open_for_children(&rule.resource));
    children.chain(kinds.revisions.iter().map(|revisions| stores.open(revisions))).collect()
}
