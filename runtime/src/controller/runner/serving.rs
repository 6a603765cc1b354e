//! Service of a controller whose kinds, modules and stores are there: it waits until its server leads, starts the workers, and
//! follows what its hooks are made of, until it stops or begins anew.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;
use metahook_core::api::CheckedSpec;
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::Finding;
use metahook_core::reconcile::kinds::Kinds;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::rights::naming;
use crate::controller::ControllerData;
use crate::controller::brake::Brake;
use crate::controller::hooks::FollowedHooks;
use crate::controller::observer::Observed;
use crate::controller::runner::missing_rights::MissingRights;
use crate::controller::runner::modules::Modules;
use crate::controller::runner::parent_queue::{ParentQueue, tend, version_changed};
use crate::controller::runner::reading::taken_away;
use crate::controller::runner::{ControllerRunner, RunningController, StartReason, StopReason};
use crate::queue::Workers;

/// How often figures of calls are written to the status.
const FIGURES_INTERVAL: Duration = Duration::from_mins(5);

impl ControllerRunner {
    /// Works until `stop`, or until the kinds are no longer what they were; then ends what is under way.
    pub(super) async fn serve(
        &self,
        spec: &CheckedSpec,
        RunningController { parts, hooks, kinds, reads, modules, brake }: RunningController,
    ) -> StopReason {
        let restores = self.context.cluster.api.restores.count();
        let listed = async {
            for part in &parts {
                self.synced(&part.reconciler.data).await?;
            }
            Some(())
        };
        tokio::select! {
            listed = listed => if listed.is_none() {
                return StopReason::Stopped;
            },
            () = self.outdated((spec, &kinds), &parts, false) => return StopReason::Anew,
        }
        let reason = tokio::select! {
            reason = self.lead(spec, &brake) => reason,
            () = self.stop.cancelled() => return StopReason::Stopped,
            () = self.outdated((spec, &kinds), &parts, true) => return StopReason::Anew,
        };
        let name = &self.object.key;
        self.context.cluster.recorder.record(
            &self.object,
            EventReason::Started,
            &format!("Started controller: {name}"),
        );
        let common = spec.common();
        // A session of dev takes its finalizers off before it ends, and the next one does after one that was killed.
        if common.hooks.finalize.is_some() && !self.context.hosting.is_dev() {
            tokio::select! {
                () = self.record_finalizers() => {}
                () = self.stop.cancelled() => return StopReason::Stopped,
            }
        }
        self.remove_stale_finalizers();
        let rights = MissingRights::of(self, common.account.as_ref(), &parts);
        let rights = AbortOnDropHandle::new(tokio::spawn(rights.run()));
        // Before the first reconcile: everything after it is a change.
        hooks.renew(|_| ());
        if let Ok(hooks) = hooks.loaded() {
            version_changed(&brake, hooks.identity, &parts);
        }
        let tasks: Vec<_> = parts.iter().map(|part| part.tasks.until_dropped()).collect();
        let mut workers = self.begin(&parts, reason, common.resync_period);
        let running = self.context.telemetry.running.add(&self.context, (self.kind, &name.name), &parts);
        let end = tokio::select! {
            () = self.stop.cancelled() => StopReason::Stopped,
            () = self.outdated((spec, &kinds), &parts, true) => StopReason::Anew,
            () = taken_away(&reads) => StopReason::Anew,
            // Versions that parents settled with may be given a second time.
            () = self.context.cluster.api.restores.after(restores) => StopReason::Anew,
            () = self.follow(&parts, &hooks, modules, &brake) => StopReason::Anew,
            end = tend(&parts) => end,
        };
        drop((tasks, rights, running));
        for part in &parts {
            part.queue.close();
        }
        for workers in &mut workers {
            while workers.join_next().await.is_some() {}
        }
        self.reporter.count(&parts, &brake);
        end
    }

    /// Starts the workers; from now on other decorators wait for the reconciles of this one.
    fn begin(
        &self,
        parts: &[ParentQueue],
        reason: StartReason,
        period: Option<Duration>,
    ) -> Vec<JoinSet<()>> {
        let period = period.or(self.context.options.resync);
        let decorator = parts.first().and_then(|part| part.reconciler.parents.decorator.as_ref());
        if decorator.is_some() {
            let target = |part: &ParentQueue| {
                let ControllerData { parents, config, .. } = &*part.reconciler.data;
                (parents.resource.gvr(), config.selection.clone())
            };
            self.context.decorators.host(&self.object, parts.iter().map(target).collect());
        }
        let workers = Workers::new(self.context.options.workers);
        let workers = parts.iter().map(|part| part.begin(reason, &workers, period)).collect();
        if let Some(decorator) = decorator {
            // Objects that it selected before and no longer does are forgotten; later changes are seen by reconciles.
            let selects = |uid: &_| parts.iter().any(|part| part.reconciler.parents.includes(uid));
            self.context.decorators.begin(&decorator.id, selects);
        }
        workers
    }

    /// Keeps the report up to date and syncs parents anew: all when a module or a mount changes, those that fail when the
    /// certificates or credentials of a webhook do.
    async fn follow(
        &self,
        parts: &[ParentQueue],
        hooks: &FollowedHooks,
        mut modules: Modules,
        brake: &Brake,
    ) {
        let mut last_held = None;
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        let mut figures = tokio::time::interval(FIGURES_INTERVAL);
        loop {
            tokio::select! {
                _ = clock.tick() => {
                    self.tend_brake(brake, parts, &mut last_held);
                    self.reporter.count(parts, brake);
                }
                _ = figures.tick() => self.reporter.figures(parts),
                changed = modules.changed() => {
                    let Some(name) = changed else { return };
                    self.report_module(&modules, name, true);
                    if hooks.renew(|version| version_changed(brake, version, parts)) {
                        parts.iter().for_each(ParentQueue::sync_all);
                    } else if modules.may_end_failures(name) {
                        parts.iter().for_each(ParentQueue::sync_failing);
                    }
                }
            }
        }
    }

    /// Ends when the kinds are no longer what they were, or when a store of parents or children gives way: its objects are no
    /// longer followed.
    async fn outdated(&self, (spec, kinds): (&CheckedSpec, &Kinds), parts: &[ParentQueue], running: bool) {
        let stores = parts.iter().flat_map(|part| part.reconciler.data.stores());
        tokio::select! {
            () = self.kinds_change(spec, kinds, running) => {}
            _ = select_all(stores.map(|store| store.gave_way().boxed())) => {}
        }
    }

    /// Waits until all stores are filled, and says so where one cannot be.
    async fn synced(&self, controller: &ControllerData) -> Option<()> {
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
                    self.stand_aside();
                    let trouble = naming(&trouble, self.kind, &self.object.key.name);
                    self.context.telemetry.observer.note(|| Observed::Problem { message: trouble.clone() });
                    let is_too_large = controller.stores().any(|store| store.too_large().is_some());
                    let reason =
                        if is_too_large { ConditionReason::CacheTooLarge } else { ConditionReason::NotListed };
                    self.reporter.change(|report| report.ready = Finding::new(reason, &trouble));
                }
            }
        }
    }

    /// Waits until this server leads. A controller that stood by goes on from what the leader before it accepted, and all
    /// parents are new to it.
    async fn lead(&self, spec: &CheckedSpec, brake: &Brake) -> StartReason {
        if !self.stands_by.load(Ordering::Relaxed) {
            return self.reason;
        }
        self.context.cluster.api.gate().opened().await;
        self.reporter.read_again(self.context.controllers.get(self.kind, &self.object.key.name).as_deref());
        brake.set(self.reporter.brake(spec.common().deletion_brake.clone()));
        self.stands_by.store(false, Ordering::Relaxed);
        StartReason::First
    }
}
