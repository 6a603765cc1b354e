//! Writer of objects: one operation, its answer in the store, its metric and its log line.

use std::sync::Arc;

use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::object::Object;
use metahook_core::object::id::{ObjectId, Uid};
use serde_json::Value;
use tracing::Instrument;

use crate::cluster::api_client::ApiClient;
use crate::cluster::apply::ApplyError;
use crate::controller::data::ControllerData;
use crate::store::{WriteGuard, Writer};

/// What writing changed in the cluster; the strongest of several results counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteResult {
    /// There was nothing to write.
    Nothing,
    /// The API server accepted the write and kept its object as it was, as it does with unknown fields.
    NoOp,
    Wrote,
    /// The parent is gone: nothing else is done for it.
    Gone,
}

/// One operation that was carried out.
pub(crate) struct Written {
    pub(crate) changed: bool,
    /// The object as the API server answered; `None` where it is gone.
    pub(crate) object: Option<Arc<Object>>,
}

pub(crate) struct ObjectWriter {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) api: ApiClient,
}

impl WriteResult {
    pub(crate) fn of(changed: bool) -> Self {
        if changed { Self::Wrote } else { Self::NoOp }
    }
}

impl ObjectWriter {
    pub(crate) async fn write(&self, op: &Op, writer: &Writer) -> Result<Written, ApplyError> {
        let span = tracing::info_span!("write", op = op.verb(), object = %op.id());
        let guard = self.data.write_guard(op.id(), writer);
        let events = self.api.carry_out(op).instrument(span.clone()).await?;
        let changed = op.is_answered_by_a_change(&events);
        if changed {
            self.data.meter.counts().wrote(op.verb());
        }
        let message = if changed { "written" } else { "written in vain" };
        // Every change of a child ends with a write of the status.
        if changed && !matches!(op, Op::Status { .. }) {
            tracing::info!(parent: &span, "{message}");
        } else {
            tracing::debug!(parent: &span, "{message}");
        }
        Ok(Written { changed, object: observe(guard, events) })
    }

    /// Reads the object, changes it and writes it; gives back the object as it is then, `None` where it is gone.
    pub(crate) async fn rewrite(
        &self,
        id: &ObjectId,
        uid: &Uid,
        writer: &Writer,
        change: impl Fn(&mut Value),
    ) -> Result<Option<Arc<Object>>, ApplyError> {
        let guard = self.data.write_guard(id, writer);
        Ok(observe(guard, self.api.rewrite(id, uid, change).await?))
    }
}

/// Passes the answer of a write to the store; gives back the object as it was written last.
fn observe(guard: Option<WriteGuard>, events: Vec<CacheEvent>) -> Option<Arc<Object>> {
    let written = events.iter().rev().find_map(|event| match event {
        CacheEvent::Wrote(object) => Some(Arc::clone(object)),
        _ => None,
    });
    if let Some(guard) = guard {
        guard.answered(events);
    }
    written
}
