//! Reconcile of one parent, of either kind of controller: input, hook calls, plan, writes, outcome.

mod apply;
mod children;
mod claims;
mod error;
mod event_dedup;
mod parent;
pub(super) mod parents;
mod prepare;
mod related_deletion;
#[cfg(test)]
mod scenario;
#[cfg(test)]
mod tests;
mod write;
mod write_histories;

use std::sync::Arc;

use metahook_core::api::reason::EventReason;
use metahook_core::controller_metrics::ReconcileResult;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::reconcile::outcome::{Changed, Failure, Outcome, Retry, Streaks};
use metahook_core::reconcile::plan::ReconcilePlan;
use metahook_core::settled::SettledState;
use serde_json::Value;
use tracing::Instrument;

use crate::controller::Context;
use crate::controller::data::ControllerData;
use crate::controller::decorator_conflicts::Decorator;
use crate::controller::hooks::HookCaller;
use crate::controller::related::RelatedObjects;
use crate::store::Writer;
use children::ChildWriter;
use claims::ClaimWriter;
use event_dedup::EventDedup;
use parent::ParentWriter;
use parents::Parents;
use related_deletion::RelatedDeleter;
use write::ObjectWriter;
use write_histories::WriteHistories;

/// The parts of a reconcile, for the parents of one kind of one controller.
pub(crate) struct Reconciler {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) parents: Arc<Parents>,
    pub(crate) hooks: HookCaller,
    pub(crate) related: Arc<RelatedObjects>,
    pub(crate) decorator: Option<Decorator>,
    claims: ClaimWriter,
    children: ChildWriter,
    parent: ParentWriter,
    related_deleter: RelatedDeleter,
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
        let api = context.cluster.api.clone();
        let writer = Arc::new(ObjectWriter { data: Arc::clone(&data), api: api.clone() });
        let parents = Arc::new(Parents::new(
            Arc::clone(&data),
            Arc::clone(&hooks.hooks),
            decorator.clone(),
            context.options.purity_check,
        ));
        Self {
            claims: ClaimWriter { data: Arc::clone(&data), writer: Arc::clone(&writer) },
            children: ChildWriter {
                data: Arc::clone(&data),
                writer: Arc::clone(&writer),
                discovery: Arc::clone(&context.cluster.discovery),
                histories: Arc::new(WriteHistories::default()),
                events: Arc::new(EventDedup::new(data.recorder.clone())),
                manager: Arc::clone(&context.options.applying.manager),
            },
            parent: ParentWriter {
                data: Arc::clone(&data),
                writer,
                parents: Arc::clone(&parents),
                decorator: decorator.clone(),
            },
            related_deleter: RelatedDeleter { data: Arc::clone(&data), api, related: Arc::clone(&related) },
            data,
            parents,
            hooks,
            related,
            decorator,
        }
    }

    pub(crate) fn histories(&self) -> &WriteHistories {
        &self.children.histories
    }

    /// The entry point of workers: the one place where a result becomes an outcome for the queue, an Event and a log line.
    pub(crate) async fn reconcile(&self, key: &Key, streaks: Streaks) -> Outcome {
        let Some(parent) = self.data.parents.get(key) else {
            self.parents.settled().forget(key);
            self.forget(key);
            return Outcome::Settled(None);
        };
        if self.parents.needing_reconcile(std::slice::from_ref(&parent)).is_empty() {
            return Outcome::Settled(None);
        }
        // On the heap: most reconciles end above, and their futures stay small.
        let run = Box::pin(self.run(key, Arc::clone(&parent), streaks));
        // At the level of errors: warnings keep it where less is not logged.
        let span = tracing::error_span!("reconcile", controller = %self.data.object.key, parent = %key);
        let outcome = run.instrument(span).await;
        self.parents.forget_if_gone(&parent.uid);
        outcome
    }

    async fn run(&self, key: &Key, parent: Arc<Object>, streaks: Streaks) -> Outcome {
        let writer = self.data.writer(key);
        let mut resync_after = None;
        let result = match self.prepare(Arc::clone(&parent), writer, streaks).await {
            Ok(Progress::Settled) => {
                self.data.meter.counts().skipped(1);
                tracing::debug!("at rest");
                return Outcome::Settled(None);
            }
            Ok(Progress::Ignored) => {
                self.parents.settled().unsettle(key);
                if let Some(decorator) = &self.decorator {
                    decorator.leave(&parent.uid);
                }
                self.forget(key);
                Ok(Changed::Nothing)
            }
            Ok(Progress::Wrote) => {
                self.parents.settled().unsettle(key);
                Ok(Changed::Something)
            }
            Ok(Progress::Planned(reconcile)) => {
                resync_after = reconcile.plan.resync_after;
                let written = self.apply(&reconcile).await;
                self.settle(&reconcile, &written);
                written.map(|written| self.changed(&reconcile, written))
            }
            Err(error) => {
                if let Some(decorator) = &self.decorator {
                    decorator.failed(&parent.uid);
                }
                Err(error)
            }
        };
        let result = result.map_err(|error| error.failure());
        self.log(key, &result);
        if let Some(message) = result.as_ref().err().and_then(Failure::event) {
            self.data.recorder.record(&parent, EventReason::SyncError, &message);
        }
        Outcome::of(&result, resync_after, streaks)
    }

    fn forget(&self, parent: &Key) {
        self.children.histories.forget(parent);
        self.children.events.forget(parent);
        self.related.forget(parent);
    }

    fn log(&self, parent: &Key, result: &Result<Changed, Failure>) {
        match result {
            Ok(changed) => {
                let wrote = *changed != Changed::Nothing;
                self.data.meter.counts().reconciled(if wrote {
                    ReconcileResult::Wrote
                } else {
                    ReconcileResult::Unchanged
                });
                tracing::debug!(wrote, "synced");
            }
            Err(Failure { retry: Retry::Quiet, message, .. }) => {
                self.data.meter.counts().reconciled(ReconcileResult::Conflict);
                tracing::debug!(reason = message, "tried again");
            }
            Err(Failure { retry: Retry::After(again), message, .. }) => {
                self.data.meter.counts().reconciled(ReconcileResult::Postponed);
                tracing::debug!(?again, reason = message, "postponed");
            }
            Err(Failure { retry: Retry::Loud, message, category }) => {
                self.data.meter.counts().reconciled(ReconcileResult::Failed);
                self.parents.settled().fail(parent, category);
                tracing::warn!(category, reason = message, "sync failed");
            }
        }
    }
}
