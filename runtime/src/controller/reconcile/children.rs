//! Writer of children: all operations of a plan in stages, with dry runs, write histories and Events.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use futures_util::future::join_all;
use metahook_core::api::reason::EventReason;
use metahook_core::children::desired::UnmanagedChild;
use metahook_core::children::flapping;
use metahook_core::children::managed_fields;
use metahook_core::children::plan::{DryRunResult, DryRunVerdict, judge, learn, new_object, wrote};
use metahook_core::children::{Op, WriteConcurrency, stages};
use metahook_core::counted;
use metahook_core::object::Object;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::ObjectId;
use metahook_core::reconcile::config::KindConfig;
use metahook_core::reconcile::input::ReconcileInput;
use serde_json::Value;

use crate::cluster::discovery::Discovery;
use crate::controller::ControllerData;
use crate::controller::reconcile::parents::Parents;
use crate::controller::reconcile::write::{ObjectWriter, TAKEN_RETRY_DELAY, WriteResult, WriteResults};
use crate::controller::reconcile::{Reconcile, ReconcileError};
use crate::store::Store;
use crate::telemetry::error_chain;

pub(crate) struct ChildWriter {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) writer: ObjectWriter,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) parents: Arc<Parents>,
    /// The field manager of server-side apply.
    pub(crate) manager: Arc<str>,
}

impl ChildWriter {
    /// Writes all children. A child that fails does not stop the others.
    pub(crate) async fn write_all(&self, reconcile: &Reconcile) -> WriteResults {
        let plan = &reconcile.plan.children;
        let mut results = WriteResults::default();
        for (id, source) in &plan.problems {
            results.add(Err(ReconcileError::Child { id: Box::new(id.clone()), source: *source }));
        }
        for why in &reconcile.plan.failed {
            results.add(Err(ReconcileError::ChildFailed(why.clone())));
        }
        let mut taken = Vec::new();
        let mut width = WriteConcurrency::after(reconcile.streaks.failures);
        for mut left in stages(&plan.ops) {
            while !left.is_empty() {
                let (now, later) = width.split(left);
                let mut written = join_all(now.iter().map(|op| self.write(op, reconcile))).await;
                for result in &mut written {
                    self.leave_taken(result, &mut taken);
                }
                width.went(written.iter().all(Result::is_ok));
                for result in written {
                    results.add(result);
                }
                left = later;
            }
        }
        self.parents.record_new(&reconcile.parent, EventReason::NameTaken, taken_message(&taken));
        self.parents.note_differing(&reconcile.parent, plan.differing.as_ref());
        self.record_flapping(reconcile).await;
        self.create_unmanaged(reconcile, &mut results).await;
        results
    }

    /// Several decorated objects may want one attachment: the first one has it, and the others do not fail for it.
    fn leave_taken(&self, result: &mut Result<WriteResult, ReconcileError>, taken: &mut Vec<String>) {
        let KindConfig::Decorator = self.data.config.kind else { return };
        if let Err(ReconcileError::Apply(error)) = result
            && error.is_taken()
        {
            taken.push(error_chain(error));
            *result = Ok(WriteResult::Taken);
        }
    }

    /// Carries out one operation on a child, after its dry run.
    async fn write(&self, op: &Op, reconcile: &Reconcile) -> Result<WriteResult, ReconcileError> {
        let op = match op {
            Op::Probe { write, otherwise } => match self.dry_run(write, otherwise, reconcile).await? {
                ControlFlow::Continue(op) => Cow::Owned(op),
                ControlFlow::Break(result) => return Ok(result),
            },
            op => Cow::Borrowed(op),
        };
        // The deletion brake does not count these: what the API server would not make again is not deleted.
        if let Some(version) = self.data.brake.with(|brake, _| brake.changed_to()) {
            let tried = self.writer.api.try_making(&op, Some(&version)).await;
            self.writer.naming_rights(tried).await?;
        }
        let id = op.id();
        let written = self.writer.write(&op, &reconcile.writer).await?;
        let parent = &reconcile.parent;
        if let Some(answer) = written.object.filter(|_| !matches!(*op, Op::HandOver { .. }))
            && let Some(desired) = reconcile.desired(id)
        {
            // The store's own copy, where an event was faster than the answer.
            let same = |known: &Arc<Object>| known.uid == answer.uid && known.version == answer.version;
            let answer = self.data.observed_child(id).filter(same).unwrap_or(answer);
            let owner = self.data.config.owner(parent);
            self.parents
                .histories
                .change(&parent.key, |history| wrote(history, owner, &op, desired, &answer));
        }
        if let Some(drift) = reconcile.plan.children.drifts.iter().find(|drift| drift.id == *id) {
            let now = self.data.elapsed();
            self.parents.histories.drift_corrected(&parent.key, drift, now);
        }
        Ok(WriteResult::of(written.changed))
    }

    /// The operation to carry out, or the result where there is none.
    async fn dry_run(
        &self,
        write: &Op,
        otherwise: &Op,
        reconcile: &Reconcile,
    ) -> Result<ControlFlow<WriteResult, Op>, ReconcileError> {
        let id = write.id();
        let parent = &reconcile.parent;
        let Some(observed) = self.data.observed_child(id) else {
            return Ok(ControlFlow::Break(WriteResult::Wrote));
        };
        let tried = self.writer.api.dry_run(write).await?;
        tracing::debug!(object = %id, "tried by a dry run");
        let history = self.parents.histories.of(&parent.key);
        let verdict = judge((write.clone(), otherwise.clone()), &observed, &tried, &history)
            .map_err(|source| ReconcileError::Child { id: Box::new(id.clone()), source })?;
        drop(history);
        match verdict {
            DryRunVerdict::Do(op) => {
                // Where the hook wants another value than before, users of Recreate expect the deletion. Here only the API
                // server's refusal asks for it.
                if let DryRunResult::Refused | DryRunResult::Forbidden = tried {
                    let tried = self.writer.api.try_making(&op, None).await;
                    self.writer.naming_rights(tried).await?;
                }
                Ok(ControlFlow::Continue(op))
            }
            DryRunVerdict::AsItIs => {
                if let Some(desired) = reconcile.desired(id) {
                    let owner = self.data.config.owner(parent);
                    self.parents
                        .histories
                        .change(&parent.key, |history| learn(history, owner, id, desired, &observed));
                }
                Ok(ControlFlow::Break(WriteResult::NoOp))
            }
            DryRunVerdict::Unknown => {
                let message = format!(
                    "{id} is not as the hook wants it, and is left as it is: whether it has to be made anew is asked by a dry run, which the API server or one of its webhooks refuses; delete it to have it made anew"
                );
                self.data.recorder.record(parent, EventReason::DryRunRefused, &message);
                Ok(ControlFlow::Break(WriteResult::NoOp))
            }
        }
    }

    /// Creates the children of undeclared kinds that do not exist yet.
    async fn create_unmanaged(&self, reconcile: &Reconcile, results: &mut WriteResults) {
        let unmanaged = &reconcile.plan.unmanaged;
        let created_once =
            |child: &UnmanagedChild| format!("{}; it is created once and then left alone", child.why);
        self.parents.record_new(
            &reconcile.parent,
            EventReason::UnmanagedChild,
            unmanaged.iter().map(created_once),
        );
        for child in unmanaged {
            results.add(self.create(child, reconcile).await);
        }
    }

    async fn create(
        &self,
        child: &UnmanagedChild,
        reconcile: &Reconcile,
    ) -> Result<WriteResult, ReconcileError> {
        let unknown = |source| ReconcileError::UnmanagedChild {
            kind: (*child.gvk.kind).into(),
            key: Box::new(child.key.clone()),
            source,
        };
        let resource = self.discovery.resolve_kind(&child.gvk).await.map_err(unknown)?;
        let id = ObjectId { resource, key: child.key.clone() };
        let body = new_object(self.data.config.owner(&reconcile.parent), &id, &child.body);
        match self.writer.write(&Op::Create { id, body }, &reconcile.writer).await {
            Err(error) if error.is_there_already() => Ok(WriteResult::Nothing),
            written => Ok(WriteResult::of(written?.changed)),
        }
    }

    /// Warns of another controller that makes children of the same kind for the same parent.
    pub(crate) fn record_overlaps(&self, input: &ReconcileInput) {
        let parent = &input.parent;
        let overlap = |store: &Arc<Store>| {
            let all = store.candidates(&parent.uid, &parent.key.namespace, input.selector.as_ref());
            let controlled = |child: &&CachedObject| child.controller.as_ref() == Some(&parent.uid);
            let (child, other) = all
                .iter()
                .filter(controlled)
                .find_map(|child| Some((child, self.data.other_controller(child)?)))?;
            Some(format!(
                "{} {} of this parent was made by the controller {other}, and {} makes such children too: each leaves the other's alone, so see that they choose other names",
                child.gvk.kind, child.key, self.data.config.name
            ))
        };
        self.parents.record_new(
            parent,
            EventReason::ControllersOverlap,
            self.data.children.iter().filter_map(overlap),
        );
    }

    /// Records values that another client keeps changing back.
    async fn record_flapping(&self, reconcile: &Reconcile) {
        let parent = &reconcile.parent;
        for flapping in &reconcile.plan.children.flapping {
            let mut is_new = false;
            self.parents.histories.change(&parent.key, |history| is_new = history.mark_reported(flapping));
            if !is_new {
                continue;
            }
            let live = self.writer.api.live(&flapping.id).await.unwrap_or_default();
            let fields = live.pointer("/metadata/managedFields").unwrap_or(&Value::Null);
            let message =
                flapping::message(flapping, fields, &[managed_fields::DYNAMIC_MANAGER, &self.manager]);
            self.data.recorder.record(parent, EventReason::ValueFlapping, &message);
        }
    }
}

/// One message, whatever the order of the answers.
fn taken_message(taken: &[String]) -> Option<String> {
    let others = match taken.len() {
        0 | 1 => String::new(),
        count => format!("; the same goes for {}", counted(count - 1, "other", "others")),
    };
    taken.iter().min().map(|first| {
        format!(
            "{first}. It is left as it is, and tried again {} minutes later{others}",
            TAKEN_RETRY_DELAY.as_secs() / 60
        )
    })
}
