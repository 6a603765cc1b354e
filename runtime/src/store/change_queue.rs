//! Queue of changes for a listener that may be slow, bounded by bytes.

use metahook_core::related::pending::{NextChange, PendingChange, PendingChanges};

use crate::store::listeners::{Listener, ListenerQueue};
use crate::store::{Change, Writer};

/// Bytes of the changes that wait.
const MAX_BYTES: usize = 4 << 20;

pub(crate) struct ChangeQueue(ListenerQueue<PendingChanges<Writer>>);

impl Default for ChangeQueue {
    fn default() -> Self {
        Self(ListenerQueue::new(PendingChanges::new(MAX_BYTES)))
    }
}

impl Listener for ChangeQueue {
    fn observe(&self, change: &Change) {
        if let Some(change) = PendingChange::of(&change.object, change.by.as_ref()) {
            self.push(change);
        }
    }
}

impl ChangeQueue {
    pub(crate) fn push(&self, change: PendingChange<Writer>) {
        self.0.add(|changes| changes.push(change));
    }

    pub(crate) async fn next(&self) -> NextChange<Writer> {
        self.0.next(PendingChanges::pop).await
    }
}
