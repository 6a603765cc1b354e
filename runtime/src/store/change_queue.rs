//! Queue of changes for a listener that may be slow, bounded by bytes.

use std::sync::Mutex;

use metahook_core::related::pending::{NextChange, PendingChange, PendingChanges};
use tokio::sync::Notify;

use crate::store::listeners::Listener;
use crate::store::{Change, Writer};
use crate::sync::lock;

/// Bytes of the changes that wait.
const MAX_BYTES: usize = 4 << 20;

pub(crate) struct ChangeQueue {
    changes: Mutex<PendingChanges<Writer>>,
    added: Notify,
}

impl Default for ChangeQueue {
    fn default() -> Self {
        Self { changes: Mutex::new(PendingChanges::new(MAX_BYTES)), added: Notify::new() }
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
        lock(&self.changes).push(change);
        self.added.notify_one();
    }

    /// For one listener.
    pub(crate) async fn next(&self) -> NextChange<Writer> {
        loop {
            let next = lock(&self.changes).pop();
            match next {
                Some(next) => return next,
                None => self.added.notified().await,
            }
        }
    }
}
