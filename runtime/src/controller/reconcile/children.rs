//! One operation on a child, with its dry run, and what is learned of it; values that somebody keeps changing back.

use std::borrow::Cow;
use std::sync::Arc;

use metahook_core::api::reason::EventReason;
use metahook_core::children::flapping::others;
use metahook_core::children::plan::{DryRunResult, DryRunVerdict, judge, learn, wrote};
use metahook_core::children::write_history::Drift;
use metahook_core::children::{Op, server_side_apply};
use metahook_core::json::difference::Difference;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::reconcile::plan::ReconcileInput;
use serde_json::Value;

use crate::controller::reconcile::apply::WriteResult;
use crate::controller::reconcile::{Decision, ReconcileError, Reconciler};
use crate::store::{Store, Writer};

impl Reconciler {
    /// One operation on a child; what comes of it is learned.
    pub(crate) async fn act_on(
        &self,
        op: &Op,
        decision: &Decision,
        writer: &Writer,
    ) -> Result<WriteResult, ReconcileError> {
        let id = op.id();
        let op = match op {
            Op::Probe { write, otherwise } => {
                let Some(observed) = self.observed(id) else { return Ok(WriteResult::Wrote) };
                let probed = self.tools.rest.probe(write).await?;
                tracing::debug!(controller = %self.object.key, parent = %writer.parent, object = %id, "tried by a dry run");
                let judged = judge(
                    ((**write).clone(), (**otherwise).clone()),
                    &observed,
                    &probed,
                    &self.ledgers.of(&decision.parent.key),
                )
                .map_err(|source| ReconcileError::Child { id: Box::new(id.clone()), source })?;
                let next = match judged {
                    DryRunVerdict::Do(next) => next,
                    DryRunVerdict::AsItIs => {
                        if let Some(desired) = decision.desired(id) {
                            let (parent, owner) = (&decision.parent, self.terms.owner(&decision.parent));
                            let learned = |ledger: &mut _| learn(ledger, owner, id, desired, &observed);
                            self.ledgers.change(&parent.key, learned);
                        }
                        return Ok(WriteResult::InVain);
                    }
                    DryRunVerdict::Unknown => {
                        self.tell_unknown(&decision.parent, id);
                        return Ok(WriteResult::InVain);
                    }
                };
                // Where the hook wants something else than before, the child is deleted without such a question, as
                // users of Recreate know it; but here only the API server's refusal speaks for that.
                if let DryRunResult::Refused | DryRunResult::Forbidden = probed {
                    self.tools.rest.try_making(&next).await?;
                }
                Cow::Owned(next)
            }
            op => Cow::Borrowed(op),
        };
        let (changed, answer) = self.write(&op, writer).await?;
        if let Some(answer) = answer.filter(|_| !matches!(*op, Op::HandOver { .. }))
            && let Some(desired) = decision.desired(id)
        {
            // The store's own copy, where an event was faster than the answer.
            let same = |known: &Arc<Object>| known.uid == answer.uid && known.version == answer.version;
            let answer = self.observed(id).filter(same).unwrap_or(answer);
            let (parent, owner) = (&decision.parent, self.terms.owner(&decision.parent));
            self.ledgers.change(&parent.key, |ledger| wrote(ledger, owner, &op, desired, &answer));
        }
        if let Some(drift) = decision.decided.plan.drifts.iter().find(|drift| drift.id == *id) {
            let now = self.started.elapsed();
            self.ledgers.change(&decision.parent.key, |ledger| ledger.put_right(drift, now));
        }
        Ok(WriteResult::of(changed))
    }

    fn tell_unknown(&self, parent: &Object, id: &ObjectId) {
        let message = format!(
            "{id} is not as the hook wants it, and is left as it is: whether it has to be made anew is asked by a dry run, which the API server or one of its webhooks refuses; delete it to have it made anew"
        );
        self.tools.recorder.record(parent, EventReason::DryRunRefused, &message);
    }

    fn observed(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.children.iter().find(|store| *store.resource() == id.resource)?.get(&id.key)
    }

    /// The controller whose child this is, if it is another one: what it made is left to it as long as it exists.
    pub(crate) fn anothers<'a>(&self, child: &'a Object) -> Option<&'a str> {
        let maker = self.terms.other_maker(child)?;
        self.tools.controllers.get(maker.kind, maker.name).map(|_| maker.name)
    }

    /// Warns of another controller that makes children of the same kind for the same parent.
    pub(crate) fn tell_overlaps(&self, seen: &ReconcileInput) {
        let parent = &seen.parent;
        let overlap = |store: &Arc<Store>| {
            let all = store.candidates(&parent.uid, &parent.key.namespace, seen.selector.as_ref());
            let ours = |child: &&Arc<Object>| child.controller.as_ref() == Some(&parent.uid);
            let (child, other) =
                all.iter().filter(ours).find_map(|child| Some((child, self.anothers(child)?)))?;
            Some(format!(
                "{} {} of this parent was made by the controller {other}, and {} makes such children too: each leaves the other's alone, so see that they choose other names",
                child.gvk.kind, child.key, self.terms.controller
            ))
        };
        self.warn_once(parent, EventReason::ControllersOverlap, self.children.iter().filter_map(overlap));
    }

    /// Names values that somebody else keeps changing back, with both values and the other manager; of Secrets the
    /// places alone.
    pub(crate) async fn tell_flips(&self, decision: &Decision) {
        for flip in &decision.decided.plan.flips {
            let mut news = false;
            self.ledgers.change(&decision.parent.key, |ledger| news = ledger.tell(flip));
            if !news {
                continue;
            }
            let live = self.tools.rest.live(&flip.id).await.unwrap_or_default();
            let fields = live.pointer("/metadata/managedFields").unwrap_or(&Value::Null);
            let message =
                flipping(flip, fields, &[server_side_apply::DYNAMIC_MANAGER, &self.tools.applying.manager]);
            self.tools.recorder.record(&decision.parent, EventReason::ValueFlips, &message);
        }
    }
}

/// What a user is told of values that flip.
fn flipping(flip: &Drift, fields: &Value, ours: &[&str]) -> String {
    let secret = flip.id.resource.gvk.kind.as_ref() == "Secret";
    let told: Vec<_> = flip
        .values
        .iter()
        .map(|Difference { path, wanted, found }| {
            let others: Vec<_> = others(fields, path, ours).into_iter().collect();
            let by = if others.is_empty() { String::new() } else { format!(", by {}", others.join(", ")) };
            let values = if secret { String::new() } else { format!(" ({wanted} becomes {found}{by})") };
            format!("{path}{}", if secret { by } else { values })
        })
        .collect();
    format!(
        "{} is changed back again and again: {}; it is put right less and less often, so stop the one or the other",
        flip.id,
        told.join("; ")
    )
}
