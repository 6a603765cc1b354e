//! Reconcile of one parent, of either kind of controller: input, hook calls, plan, writes, outcome.

mod apply;
mod children;
mod error;
mod held_back;
mod memory;
mod observe;
pub(super) mod parents;
mod prepare;
mod record;
#[cfg(test)]
pub(in crate::controller) mod testing;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::reason::EventReason;
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::pacing::ungranted_delay;
use metahook_core::reconcile::outcome::{Changed, Failure, Outcome, Streaks};
use metahook_core::reconcile::plan::ReconcilePlan;
use metahook_core::settled::SettledState;
use serde_json::Value;
use tracing::Instrument;

use crate::controller::decorator_conflicts::Decorator;
use crate::controller::hooks::HookCaller;
use crate::controller::related::RelatedObjects;
use crate::controller::turns::Turns;
use crate::controller::{Context, ControllerData};
use crate::memory::Reservation;
use crate::store::Writer;
use children::ChildWriter;
pub(crate) use error::{ClaimError, ReconcileError};
use held_back::is_held_back;
use memory::{Attempts, ReconcileMemory};
use parents::Parents;
use write::{ObjectWriter, TAKEN_RETRY_DELAY, WriteResult};

const MAX_MESSAGE_LENGTH: usize = 2048;

/// A hook whose deletions wait is asked again this much later, since it may no longer want them.
const HELD_RETRY_DELAY: Duration = Duration::from_mins(1);

/// The parts of a reconcile, for the parents of one kind of one controller.
pub(crate) struct Reconciler {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) parents: Arc<Parents>,
    pub(crate) hooks: HookCaller,
    pub(crate) related: Arc<RelatedObjects>,
    children: ChildWriter,
    memory: ReconcileMemory,
    turns: Turns,
}

/// The data of one reconcile, once it is planned.
pub(crate) struct Reconcile {
    /// The parent as the hook was shown it.
    parent: Arc<Object>,
    plan: ReconcilePlan,
    /// The author of all writes.
    writer: Writer,
    streaks: Streaks,
    /// The state that the parent settles in, if nothing is written.
    state: SettledState,
    /// Whether the answers depend on the requests alone; `None`: unknown.
    pure: Option<bool>,
    /// Finalizers or claims were written before the plan was made.
    wrote: bool,
    /// An owner reference could not be renewed.
    unrenewed: Option<ReconcileError>,
    /// The versions of all hooks.
    version: Fingerprint,
}

/// What the hook calls of a reconcile mean for the next one.
struct HookHints {
    resync_after: Option<Duration>,
    reads_clock: bool,
    /// The place that the reconcile changes, of a parent that is held back.
    changing: Option<String>,
}

/// How far a reconcile came without an error.
enum Progress {
    /// The controller does not select the parent.
    Ignored,
    /// Nothing changed since the parent settled.
    Settled,
    /// Something was written before a plan could be made.
    Wrote,
    Planned(Box<Reconcile>),
}

impl Reconcile {
    fn desired(&self, id: &ObjectId) -> Option<&Value> {
        self.plan.desired.get(&id.resource)?.get(&id.key)
    }
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
            Arc::clone(&hooks.hooks),
            decorator,
            context.options.purity_check,
        ));
        let children = ChildWriter {
            data: Arc::clone(&data),
            writer: ObjectWriter {
                data: Arc::clone(&data),
                parents: Arc::clone(&parents),
                api: context.cluster.api.clone(),
            },
            discovery: Arc::clone(&context.cluster.discovery),
            parents: Arc::clone(&parents),
            manager: Arc::clone(&context.options.applying.manager),
        };
        let memory = ReconcileMemory::new(context.memory.clone());
        let turns = context.cluster.turns.clone();
        Self { data, parents, hooks, related, children, memory, turns }
    }

    /// The entry point of workers: the one place where a result becomes an outcome for the queue, an Event and a log line.
    pub(crate) async fn reconcile(&self, key: &Key, streaks: Streaks) -> Outcome {
        let mut attempts = Attempts::default();
        loop {
            let Some(parent) = self.data.parents.get(key) else {
                self.parents.settled().forget(key);
                self.forget(key);
                return Outcome::Settled(None);
            };
            if self.parents.needing_reconcile(std::slice::from_ref(&parent)).is_empty() {
                self.note_settled(&parent);
                return Outcome::Settled(None);
            }
            // On the heap: most reconciles end above, and their futures stay small.
            let run = Box::pin(self.run(key, Arc::clone(&parent), streaks, &mut attempts));
            // At the level of errors: warnings keep it where less is not logged.
            let span = tracing::error_span!("reconcile", controller = %self.data.object.key, parent = %key);
            let outcome = run.instrument(span).await;
            self.parents.forget_if_gone(&parent.uid);
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    /// One attempt; `None`: there was not enough memory for it.
    async fn run(
        &self,
        key: &Key,
        parent: Arc<Object>,
        streaks: Streaks,
        attempts: &mut Attempts,
    ) -> Option<Outcome> {
        let (began, writer) = (self.begins(&parent), self.data.writer(key));
        let accepted = writer.accepted.clone();
        // Held until all is written.
        let (_memory, prepared) = self.attempt(&parent, writer, streaks, attempts).await?;
        if attempts.wrote {
            accepted.note();
        }
        if prepared.as_ref().is_err_and(ReconcileError::is_stopping) {
            // It is left to the server that comes next.
            return Some(Outcome::Postponed(HELD_RETRY_DELAY));
        }
        self.parents.record_new(&parent, EventReason::MemoryShort, attempts.warning());
        let (mut resync_after, mut reads_clock, mut changing) = (None, false, None);
        let result = match prepared {
            Ok(Progress::Settled) => {
                self.data.meter.counts().skipped(1);
                self.note_settled(&parent);
                tracing::debug!("settled");
                return Some(Outcome::Settled(None));
            }
            Ok(Progress::Ignored) => {
                self.parents.settled().unsettle(key);
                if let Some(decorator) = &self.parents.decorator {
                    decorator.leave(&parent.uid);
                }
                self.forget(key);
                Ok(Changed::Nothing)
            }
            Ok(Progress::Wrote) => {
                self.parents.settled().unsettle(key);
                Ok(Changed::Something)
            }
            Ok(Progress::Planned(mut reconcile)) => {
                resync_after = reconcile.plan.resync_after;
                reads_clock = reconcile.pure == Some(false);
                // Few reconciles come so far: the objects are read again for these alone.
                changing = is_held_back(streaks).then(|| self.changing(&reconcile)).flatten();
                let written = self.apply(&reconcile).await;
                let written = match reconcile.unrenewed.take() {
                    Some(error) if written.is_ok() => Err(error),
                    Some(_) | None => written,
                };
                let again = matches!(written, Ok(WriteResult::Taken)).then_some(TAKEN_RETRY_DELAY);
                resync_after = resync_after.into_iter().chain(again).min();
                self.settle(&reconcile, &written);
                if written.is_ok() {
                    let settled = reconcile.plan.children.ops.is_empty();
                    self.parents.reconciled(&parent, reconcile.version, settled);
                }
                written.map(|written| self.changed(&reconcile, written))
            }
            Err(error) => {
                if let Some(decorator) = &self.parents.decorator {
                    decorator.failed(&parent.uid);
                }
                Err(error)
            }
        };
        self.observe(&parent, began, &result, streaks);
        let hook = HookHints { resync_after, reads_clock, changing };
        Some(self.finish(&parent, result, &hook, streaks, accepted.is_noted()))
    }

    /// Log line, Events and outcome of a reconcile. `wrote`: also in vain.
    fn finish(
        &self,
        parent: &Object,
        result: Result<Changed, ReconcileError>,
        hook: &HookHints,
        streaks: Streaks,
        wrote: bool,
    ) -> Outcome {
        let is_ungranted = result.as_ref().is_err_and(ReconcileError::is_ungranted);
        if let Some(reads) = self.data.reads.as_ref().filter(|_| is_ungranted) {
            reads.doubt();
        }
        let result = result.map_err(|error| error.failure());
        self.log(&parent.key, &result);
        let warning = self.held_back(&parent.key, &result, streaks, hook);
        self.parents.record_new(parent, EventReason::Throttled, warning);
        if let Some(message) = result.as_ref().err().and_then(Failure::event) {
            self.data.recorder.record(parent, EventReason::SyncError, &message);
        }
        self.record_wait(parent, streaks, &result);
        let outcome = Outcome::of(&result, hook.resync_after, streaks, wrote);
        match if hook.reads_clock { outcome.by_clock() } else { outcome } {
            Outcome::Failed(delay) if is_ungranted => {
                let failing = self.parents.settled().failing().len();
                Outcome::Failed(delay.min(ungranted_delay(failing)))
            }
            outcome => outcome,
        }
    }

    /// The first half of an attempt, and its memory; `None`: there was not enough.
    async fn attempt(
        &self,
        parent: &Arc<Object>,
        writer: Writer,
        streaks: Streaks,
        attempts: &mut Attempts,
    ) -> Option<(Option<Reservation>, Result<Progress, ReconcileError>)> {
        let memory = match self.memory.reserve(&self.data, attempts).await {
            Ok(memory) => memory,
            Err(too_large) => return Some((None, Err(too_large.into()))),
        };
        // It may have changed while this waited; where it is gone, another attempt sees it.
        let parent = self.data.parents.get(&parent.key)?;
        let prepared = self.prepare(parent, writer, streaks, (&memory, attempts)).await;
        let is_short = self.memory.ended(&memory, attempts);
        (!is_short).then_some((Some(memory), prepared))
    }

    /// A version that is put back may find parents that are still settled with it.
    fn note_settled(&self, parent: &Object) {
        if self.data.brake.with(|brake, _| brake.is_changed())
            && let Ok(hooks) = self.hooks.hooks.now()
        {
            self.parents.reconciled(parent, hooks.identity, true);
        }
    }

    fn forget(&self, parent: &Key) {
        self.parents.forget(parent);
        self.related.forget(parent);
        self.hooks.forget(parent);
    }
}
