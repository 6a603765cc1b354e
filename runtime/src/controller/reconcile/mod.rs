//! Reconcile of one parent, of either kind of controller: the sequence of `metahook_core::reconcile`, run over the server's caches,
//! hooks and API server.

mod held_back;
mod memory;
mod observe;
pub(super) mod parents;
mod record;
#[cfg(test)]
pub(in crate::controller) mod testing;
#[cfg(test)]
mod tests;
mod world;
mod write;

use std::sync::{Arc, Mutex};

use metahook_core::api::reason::EventReason;
use metahook_core::controller_metrics::ReconcileResult;
use metahook_core::object::Object;
use metahook_core::object::id::Key;
use metahook_core::pacing::ungranted_delay;
use metahook_core::reconcile::error::{HELD_RETRY_DELAY, ReconcileError};
use metahook_core::reconcile::outcome::{Failure, Outcome, RetryState};
use metahook_core::reconcile::ports::PortError;
use metahook_core::reconcile::sequence::{Reached, ReconcileReport, reconcile};
use metahook_core::reconcile::watched::Watched;
use metahook_core::trace::TraceEnd;
use tokio::time::Instant;
use tracing::Instrument;

use crate::cluster::discovery::Discovery;
use crate::cluster::rights::naming;
use crate::controller::decorator_conflicts::Decorator;
use crate::controller::heavy_work::HeavyWorkLimiter;
use crate::controller::hooks::HookCaller;
use crate::controller::related::RelatedObjects;
use crate::controller::{Context, ControllerData};
use crate::sync::lock;
use crate::telemetry::reconcile_span;
use memory::{Attempts, ReconcileMemory};
use observe::Course;
use parents::Parents;
use world::Attempt;
use write::ObjectWriter;

/// The parts of a reconcile, for the parents of one kind of one controller.
pub(crate) struct Reconciler {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) parents: Arc<Parents>,
    pub(crate) hooks: HookCaller,
    pub(crate) related: Arc<RelatedObjects>,
    writer: ObjectWriter,
    discovery: Arc<Discovery>,
    /// The field manager of server-side apply.
    manager: Arc<str>,
    memory: ReconcileMemory,
    heavy_work: HeavyWorkLimiter,
    /// When the next resync begins; `None`: the controller has none.
    next_resync: Mutex<Option<Instant>>,
}

impl Reconciler {
    pub(crate) fn new(
        hooks: HookCaller,
        related: Arc<RelatedObjects>,
        decorator: Option<Decorator>,
        context: &Context,
    ) -> Self {
        let data = Arc::clone(&hooks.data);
        let parents = Arc::new(Parents::new(
            Arc::clone(&data),
            Arc::clone(&hooks.followed),
            decorator,
            context.options.purity_check,
        ));
        let writer = ObjectWriter {
            data: Arc::clone(&data),
            parents: Arc::clone(&parents),
            api: context.cluster.api.clone(),
        };
        let discovery = Arc::clone(&context.cluster.discovery);
        let manager = Arc::clone(&context.options.applying.manager);
        let memory = ReconcileMemory::new(context.memory.clone());
        let heavy_work = context.cluster.heavy_work.clone();
        Self {
            data,
            parents,
            hooks,
            related,
            writer,
            discovery,
            manager,
            memory,
            heavy_work,
            next_resync: Mutex::default(),
        }
    }

    /// The entry point of workers: the one place where a result becomes an outcome for the queue, an Event and a log line.
    pub(crate) async fn reconcile(&self, key: &Key, retry_state: RetryState) -> Outcome {
        let mut attempts = Attempts::default();
        loop {
            let Some(parent) = self.data.parents.get(key) else {
                self.parents.settled().forget(key);
                self.forget(key);
                return Outcome::Settled(None);
            };
            if self.parents.needing_reconcile(std::slice::from_ref(&parent)).is_empty() {
                self.note_settled(&parent, retry_state);
                return Outcome::Settled(None);
            }
            // On the heap: most reconciles end above, and their futures stay small.
            let run = Box::pin(self.attempt(Arc::clone(&parent), retry_state, &mut attempts));
            // At the level of errors: warnings keep it where less is not logged.
            let span = tracing::error_span!("reconcile", controller = %self.data.object.key, parent = %key);
            let sent = self.data.telemetry.traces.begin_span(|| self.data.elapsed());
            let outcome = reconcile_span::within(sent, run.instrument(span)).await;
            self.parents.forget_if_gone(&parent.uid);
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    /// One attempt; `None`: there was not enough memory for it.
    async fn attempt(
        &self,
        parent: Arc<Object>,
        retry_state: RetryState,
        attempts: &mut Attempts,
    ) -> Option<Outcome> {
        let mut course = self.begins(&parent, retry_state, attempts);
        // Held until all is written.
        let memory = match self.memory.reserve(&self.data, attempts).await {
            Ok(memory) => memory,
            Err(too_large) => {
                let report =
                    ReconcileReport::failed(PortError::from(too_large).into(), attempts.start(retry_state));
                return Some(self.finish(&parent, report, retry_state, course));
            }
        };
        // It may have changed while this waited; where it is gone, another attempt sees it.
        let now = self.data.parents.get(&parent.key)?;
        let world = Attempt::new(self, &memory, &parent.key, retry_state);
        let watched = Watched::keeping(self.data.telemetry.traces.are_wanted(), &world);
        let report = reconcile(&watched, now, attempts.start(retry_state)).await;
        course.steps = watched.into_steps();
        course.changing = world.changing();
        attempts.wrote_before_plan = report.wrote_before_plan;
        if self.memory.ended(&memory, attempts) {
            return None;
        }
        if report.result.as_ref().is_err_and(ReconcileError::is_stopping) {
            // It is left to the server that comes next.
            return Some(Outcome::Postponed(HELD_RETRY_DELAY));
        }
        self.parents.record_new(&parent, EventReason::MemoryShort, attempts.warning());
        self.record_flapping(&parent, &report.flapping).await;
        Some(self.finish(&parent, report, retry_state, course))
    }

    /// Log line, Events, trace and outcome of a reconcile.
    fn finish(
        &self,
        parent: &Object,
        report: ReconcileReport,
        retry_state: RetryState,
        mut course: Course,
    ) -> Outcome {
        match report.reached {
            Reached::Settled => {
                self.parents.changing.forget(&parent.key);
                self.data.telemetry.meter.counts().skipped(1);
                tracing::debug!("settled");
                self.data.telemetry.traces.count_settled([(&parent.key, course.cause)]);
                return Outcome::Settled(None);
            }
            Reached::Paused => {
                self.parents.changing.forget(&parent.key);
                self.parents.note_rollout(&parent.key, None);
                // No other decorator writes an object with the annotation either: they go on waiting until its pause ends.
                if let Some(decorator) = self.parents.decorator.as_ref().filter(|_| self.data.config.paused) {
                    decorator.paused(&parent.uid);
                }
                self.data.telemetry.meter.counts().reconciled(ReconcileResult::Paused);
                tracing::debug!("paused");
                self.trace(parent, course, TraceEnd::Paused, Outcome::Settled(None));
                return Outcome::Settled(None);
            }
            Reached::Ignored => {
                if let Some(decorator) = &self.parents.decorator {
                    decorator.leave(&parent.uid);
                }
                self.forget(&parent.key);
            }
            Reached::Preparation => {
                if let Some(decorator) = &self.parents.decorator {
                    decorator.failed(&parent.uid);
                }
            }
            Reached::WroteBeforePlan | Reached::Plan => {}
        }
        self.observe(parent, &course, &report.result, retry_state);
        let is_ungranted = report.result.as_ref().is_err_and(ReconcileError::is_ungranted);
        if is_ungranted {
            self.doubt_rights();
        }
        let result = report.result.map_err(|error| self.failure(&error));
        self.log(&parent.key, &result);
        let changing = course.changing.take();
        let warnings = self.record_changing(parent, &result, retry_state, report.reads_clock, changing);
        if let Some(message) = result.as_ref().err().and_then(Failure::event) {
            self.data.recorder.record(parent, EventReason::SyncError, &message);
        }
        self.record_wait(parent, retry_state, &result);
        let outcome = Outcome::of(&result, report.resync_after, retry_state, report.accepted);
        let outcome = match if report.reads_clock { outcome.by_clock() } else { outcome } {
            Outcome::Failed(delay) if is_ungranted => {
                let failing = self.parents.settled().failing().len();
                Outcome::Failed(delay.min(ungranted_delay(failing)))
            }
            outcome => outcome,
        };
        if report.reached != Reached::Ignored {
            course.ended(&result, &warnings, retry_state, outcome);
            self.trace(parent, course, TraceEnd::of(&result), outcome);
        }
        outcome
    }

    /// The API server has refused something: maybe the account lacks more.
    fn doubt_rights(&self) {
        self.data.telemetry.ungranted.notify_one();
        self.data.reads.iter().for_each(|reads| reads.doubt());
    }

    /// Describes the error for users: the advice about a missing right names the controller.
    fn failure(&self, error: &ReconcileError) -> Failure {
        let (failure, config) = (error.failure(), &self.data.config);
        let message = naming(&failure.message, config.kind.name(), &config.name);
        Failure { message, ..failure }
    }

    /// The parent needs no reconcile: the deletion brake counts that, and nothing holds the parent back.
    fn note_settled(&self, parent: &Object, retry_state: RetryState) {
        let settled = || Some((self.data.parent_id(parent), self.hooks.identity()?));
        self.data.brake.with(|brake, now| brake.still_settled(settled, now));
        if self.data.tells_causes() {
            let cause = lock(&self.data.telemetry.causes).settled(&parent.key, retry_state);
            self.data.telemetry.traces.count_settled([(&parent.key, cause)]);
        }
        self.parents.changing.forget(&parent.key);
    }

    fn forget(&self, parent: &Key) {
        self.parents.forget(parent);
        self.related.forget(parent);
        self.hooks.forget(parent);
    }
}
