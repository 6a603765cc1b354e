//! Writer of parents: the status of a CompositeController's parent, the decoration of a DecoratorController's object.

use std::sync::Arc;

use metahook_core::children::Op;
use metahook_core::decorator::{self, status};
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use serde_json::{Map, Value};

use crate::cluster::apply::ApplyError;
use crate::controller::data::ControllerData;
use crate::controller::decorator_conflicts::Decorator;
use crate::controller::reconcile::Reconcile;
use crate::controller::reconcile::children::WriteResults;
use crate::controller::reconcile::error::ReconcileError;
use crate::controller::reconcile::parents::Parents;
use crate::controller::reconcile::write::{ObjectWriter, WriteResult};
use crate::store::Writer;

pub(crate) struct ParentWriter {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) writer: Arc<ObjectWriter>,
    pub(crate) parents: Arc<Parents>,
    pub(crate) decorator: Option<Decorator>,
}

/// A parent after a write.
struct WrittenParent {
    result: WriteResult,
    /// `None`: the API server did not answer with the object.
    object: Option<Arc<Object>>,
}

/// The parts of an object that are written by requests of their own.
#[derive(Clone, Copy)]
enum Part {
    Status,
    Rest,
}

impl ParentWriter {
    pub(crate) async fn write_status(
        &self,
        reconcile: &Reconcile,
        wanted: &Map<String, Value>,
    ) -> Result<WriteResult, ReconcileError> {
        let parent = &reconcile.parent;
        // An adoption or another client may have changed the parent since. The status is compared with the latest version of
        // the same generation, so that the API server refuses only an answer to another spec.
        let Some(now) = self.data.parents.get(&parent.key).filter(|now| now.uid == parent.uid) else {
            return Ok(WriteResult::Nothing);
        };
        let now = if now.generation == parent.generation { &now } else { parent };
        let Some(body) = status(now, wanted.clone()) else { return Ok(WriteResult::Nothing) };
        let op = Op::Status { id: self.data.parent_id(parent), body };
        Ok(self.write(&op, &reconcile.writer).await?.result)
    }

    /// Writes status, labels, annotations and finalizer. A conflict is no reason to leave the attachments alone: the next
    /// reconcile reads the object that the other client wrote.
    pub(crate) async fn decorate(&self, reconcile: &Reconcile) -> Result<WriteResults, ReconcileError> {
        let Reconcile { parent, plan, writer, .. } = reconcile;
        let id = self.data.parent_id(parent);
        let resolution = self.decorator.as_ref().map(|decorator| {
            decorator.resolve(&id.resource.gvr(), parent, &plan.decoration, &self.data.recorder)
        });
        let decoration = resolution.as_ref().map_or(&plan.decoration, |resolution| &resolution.decoration);
        let may_go =
            plan.finalized && resolution.as_ref().is_none_or(|resolution| resolution.lets_go(parent));
        let finalizer = may_go.then_some(self.data.config.selection.finalizer.as_str());
        let mut results = WriteResults::new(WriteResult::Nothing);
        let mut now = Arc::clone(parent);
        for part in [Part::Status, Part::Rest] {
            let op = match part {
                Part::Status => decorator::status_write(&id, &now, decoration),
                Part::Rest => decorator::object_write(&id, &now, decoration, finalizer),
            };
            let Some(op) = op else { continue };
            match self.write(&op, writer).await {
                Ok(written) => {
                    results.add(Ok(written.result));
                    if results.result == WriteResult::Gone {
                        break;
                    }
                    now = written.object.unwrap_or(now);
                }
                Err(error) if error.is_conflict() => {
                    results.add(Err(error.into()));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(results)
    }

    /// Writes the parent, unless the API server ignored the same write a short while ago.
    async fn write(&self, op: &Op, writer: &Writer) -> Result<WrittenParent, ApplyError> {
        let fingerprint = || Fingerprint::of(op.to_string().as_bytes());
        if self.parents.settled().is_vain(&writer.parent, fingerprint, self.data.elapsed()) {
            return Ok(WrittenParent { result: WriteResult::NoOp, object: None });
        }
        let written = self.writer.write(op, writer).await?;
        let result = match (&written.object, written.changed) {
            (None, true) => WriteResult::Gone,
            (_, changed) => WriteResult::of(changed),
        };
        if !written.changed {
            self.parents.settled().wrote_in_vain(&writer.parent, fingerprint(), self.data.elapsed());
        }
        Ok(WrittenParent { result, object: written.object })
    }
}
