//! Writes of children: all operations of a plan in stages, with dry runs and write histories.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::Value;

use crate::api::reason::EventReason;
use crate::children::deletion_reason::{Deleted, DeletionReason, event_messages};
use crate::children::desired::UnmanagedChild;
use crate::children::plan::{DryRunResult, DryRunVerdict, first_change, judge, learn, new_object, wrote};
use crate::children::{Op, WriteConcurrency, stages};
use crate::object::Object;
use crate::object::id::ObjectId;
use crate::reconcile::config::KindConfig;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::ports::{Fact, World, WriteErrorCause};
use crate::reconcile::sequence::apply::WriteEffects;
use crate::reconcile::sequence::{Planned, Sequence, TAKEN_RETRY_DELAY, WriteEffect};
use crate::{counted, error_chain};

impl<W: World> Sequence<'_, W> {
    /// Writes all children. A child that fails does not stop the others.
    pub(super) async fn write_children(&self, planned: &Planned) -> WriteEffects {
        let plan = &planned.plan.children;
        let mut effects = WriteEffects::default();
        for (id, source) in &plan.problems {
            effects.add(Err(ReconcileError::Child { id: Box::new(id.clone()), source: *source }));
        }
        for why in &planned.plan.unwritten.failed {
            effects.add(Err(ReconcileError::ChildFailed(why.clone())));
        }
        let (mut taken, mut deleted) = (Vec::new(), Vec::new());
        let mut width = WriteConcurrency::after(self.retry_state.failures);
        for mut left in stages(&plan.ops) {
            while !left.is_empty() {
                let (now, later) = width.split(left);
                let writes = now.iter().map(|op| self.write_child(op, planned)).collect();
                let written = self.world.join(writes).await;
                let mut written: Vec<_> =
                    written.into_iter().map(|child| child.noting(&mut deleted)).collect();
                for result in &mut written {
                    self.leave_taken(result, &mut taken);
                }
                width.record_batch(written.iter().all(Result::is_ok));
                for result in written {
                    effects.add(result);
                }
                left = later;
            }
        }
        let parent = &planned.parent;
        let taken = taken_message(&taken).into_iter().collect();
        self.world.record(parent, Fact::Warnings(EventReason::NameTaken, taken));
        self.world.record(parent, Fact::Differing(plan.differing.as_ref()));
        for message in event_messages(&parent.key.namespace, &deleted) {
            self.world.record(parent, Fact::Event(EventReason::ChildDeleted, message));
        }
        self.create_unmanaged(planned, &mut effects).await;
        effects
    }

    /// Several decorated objects may want one attachment: the first one has it, and the others do not fail for it.
    fn leave_taken(&self, result: &mut Result<WriteEffect, ReconcileError>, taken: &mut Vec<String>) {
        let KindConfig::Decorator = self.world.config().kind else { return };
        if let Err(ReconcileError::Write(error)) = result
            && error.cause == WriteErrorCause::Taken
        {
            taken.push(error_chain(error));
            *result = Ok(WriteEffect::NameTaken);
        }
    }

    /// Carries out one operation on a child, after its dry run.
    async fn write_child(&self, op: &Op, planned: &Planned) -> WrittenChild {
        let mut deleted = None;
        let effect = self.write_or_try(op, planned, &mut deleted).await;
        WrittenChild { effect, deleted }
    }

    /// `deleted`: the child, where it was.
    async fn write_or_try(
        &self,
        op: &Op,
        planned: &Planned,
        deleted: &mut Option<Deleted>,
    ) -> Result<WriteEffect, ReconcileError> {
        let op = match op {
            Op::DryRun { write, otherwise } => match self.dry_run(write, otherwise, planned).await? {
                ControlFlow::Continue(op) => Cow::Owned(op),
                ControlFlow::Break(effect) => return Ok(effect),
            },
            op => Cow::Borrowed(op),
        };
        // The deletion brake does not count these: what the API server would not make again is not deleted.
        if let Some(version) = self.world.brake(|brake, _| brake.changed_to()) {
            self.world.try_making(&op, Some(&version)).await?;
        }
        let id = op.id();
        let reason = self.deletion_reason(&op, planned);
        let answer = self.write_for(&op, reason.as_ref()).await?;
        *deleted = reason.map(|reason| Deleted { id: id.clone(), reason });
        let (parent, effect) = (&planned.parent, WriteEffect::of(&answer));
        if let Some(object) = answer.object.filter(|_| !matches!(*op, Op::HandOver { .. }))
            && let Some(desired) = planned.desired(id)
        {
            // The world's own copy, where an event was faster than the answer.
            let same = |known: &Arc<Object>| known.uid == object.uid && known.version == object.version;
            let object = self.world.child_now(id).filter(same).unwrap_or(object);
            let owner = self.world.config().owner(parent);
            let learn = |history: &mut _| wrote(history, owner, &op, desired, &object);
            self.world.change_history(&parent.key, learn);
        }
        if let Some(drift) = planned.plan.children.drifts.iter().find(|drift| drift.id == *id) {
            self.world.drift_corrected(&parent.key, drift);
        }
        Ok(effect)
    }

    /// Why an operation deletes a child; `None`: it does not.
    fn deletion_reason(&self, op: &Op, planned: &Planned) -> Option<DeletionReason> {
        match op {
            Op::Delete { .. } => Some(DeletionReason::Unlisted(planned.hook, planned.version)),
            Op::Recreate { id, .. } => {
                let owner = self.world.config().owner(&planned.parent);
                let is_rolling = owner.child_kind(&id.resource).is_some_and(|kind| kind.method.is_rolling());
                if is_rolling && planned.plan.rollout.moves {
                    return Some(DeletionReason::RolledOut);
                }
                let plan = &planned.plan.children;
                if let Some(drift) = plan.drifts.iter().find(|drift| drift.id == *id) {
                    return Some(DeletionReason::Drifted(
                        drift.values.first().map(|value| value.path.clone()),
                    ));
                }
                let changed = plan.changes.iter().find(|(of, _)| of == id);
                let place = changed.and_then(|(_, changes)| changes.places().into_iter().next());
                // The plan has the places of the first children alone.
                let found = || {
                    let observed = self.world.child_now(id).and_then(|child| child.value().ok())?;
                    first_change(&observed, planned.desired(id)?)
                };
                Some(DeletionReason::Changed(place.or_else(found)))
            }
            Op::Create { .. }
            | Op::Replace { .. }
            | Op::Apply { .. }
            | Op::HandOver { .. }
            | Op::DryRun { .. }
            | Op::Status { .. } => None,
        }
    }

    /// The operation to carry out, or the effect where there is none.
    async fn dry_run(
        &self,
        write: &Op,
        otherwise: &Op,
        planned: &Planned,
    ) -> Result<ControlFlow<WriteEffect, Op>, ReconcileError> {
        let id = write.id();
        let parent = &planned.parent;
        let Some(observed) = self.world.child_now(id) else {
            return Ok(ControlFlow::Break(WriteEffect::Changed));
        };
        let tried = self.world.dry_run(write).await?;
        let history = self.world.write_history(&parent.key);
        let verdict = judge((write.clone(), otherwise.clone()), &observed, &tried, &history)
            .map_err(|source| ReconcileError::Child { id: Box::new(id.clone()), source })?;
        drop(history);
        match verdict {
            DryRunVerdict::Do(op) => {
                // Where the hook wants another value than before, users of Recreate expect the deletion. Here only the API
                // server's refusal asks for it.
                if let DryRunResult::Refused | DryRunResult::Forbidden = tried {
                    self.world.try_making(&op, None).await?;
                }
                Ok(ControlFlow::Continue(op))
            }
            DryRunVerdict::AsItIs => {
                if let Some(desired) = planned.desired(id) {
                    let owner = self.world.config().owner(parent);
                    let learn = |history: &mut _| learn(history, owner, id, desired, &observed);
                    self.world.change_history(&parent.key, learn);
                }
                Ok(ControlFlow::Break(WriteEffect::NoEffect))
            }
            DryRunVerdict::Unknown => {
                let message = format!(
                    "{id} is not as the hook wants it, and is left as it is: whether it has to be made anew is asked by a dry run, which the API server or one of its webhooks refuses; delete it to have it made anew"
                );
                self.world.record(parent, Fact::Event(EventReason::DryRunRefused, message));
                Ok(ControlFlow::Break(WriteEffect::NoEffect))
            }
        }
    }

    /// Creates the children of undeclared kinds that do not exist yet.
    async fn create_unmanaged(&self, planned: &Planned, effects: &mut WriteEffects) {
        let unmanaged = &planned.plan.unwritten.unmanaged;
        let created_once =
            |child: &UnmanagedChild| format!("{}; it is created once and then left alone", child.why);
        let warnings = unmanaged.iter().map(created_once).collect();
        self.world.record(&planned.parent, Fact::Warnings(EventReason::UnmanagedChild, warnings));
        for child in unmanaged {
            effects.add(self.create(child, &planned.parent).await);
        }
    }

    async fn create(&self, child: &UnmanagedChild, parent: &Object) -> Result<WriteEffect, ReconcileError> {
        let unknown = |source| ReconcileError::UnmanagedChild {
            kind: (*child.gvk.kind).into(),
            key: Box::new(child.key.clone()),
            source,
        };
        let resource = self.world.resolve_kind(&child.gvk).await.map_err(unknown)?;
        let id = ObjectId { resource, key: child.key.clone() };
        let body = new_object(self.world.config().owner(parent), &id, &child.body);
        match self.write(&Op::Create { id, body }).await {
            Err(error) if error.is_there_already() => Ok(WriteEffect::Nothing),
            answer => Ok(WriteEffect::of(&answer?)),
        }
    }
}

/// Result of an operation on a child.
struct WrittenChild {
    effect: Result<WriteEffect, ReconcileError>,
    deleted: Option<Deleted>,
}

impl WrittenChild {
    fn noting(self, deleted: &mut Vec<Deleted>) -> Result<WriteEffect, ReconcileError> {
        deleted.extend(self.deleted);
        self.effect
    }
}

impl Planned {
    fn desired(&self, id: &ObjectId) -> Option<&Value> {
        self.plan.desired.get(&id.resource)?.get(&id.key)
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
