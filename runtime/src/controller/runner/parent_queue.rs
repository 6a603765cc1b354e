//! The parents of one kind that a running controller looks at: their queue, its workers, and what wakes them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{pending, select_all};
use metahook_core::object::id::Key;
use tokio::task::JoinSet;

use crate::controller::reconcile::{Reconciler, after_panic};
use crate::controller::runner::triggers;
use crate::controller::runner::{StartReason, StopReason};
use crate::queue::{Queue, workers};

pub(crate) struct ParentQueue {
    pub(crate) controller: Arc<Reconciler>,
    pub(crate) queue: Arc<Queue<Key>>,
}

impl ParentQueue {
    /// From now on passes are made; those that work end with the queue.
    pub(crate) fn begin(&self, begun: StartReason, count: usize, period: Option<Duration>) -> JoinSet<()> {
        if let Some(who) = &self.controller.claimant {
            self.controller.tools.wishing.works(who, &self.controller.parents, &self.queue);
        }
        triggers::spawn(&self.controller, &self.queue, begun);
        if let Some(period) = period {
            let resync = triggers::resync(Arc::clone(&self.controller), Arc::clone(&self.queue), period);
            self.controller.tasks.spawn(resync);
        }
        if begun == StartReason::Anew {
            self.sync_all();
        }
        let pass = Arc::clone(&self.controller);
        let work = move |key, streaks| {
            let controller = Arc::clone(&pass);
            async move { controller.sync(&key, streaks).await }
        };
        workers::start(&self.queue, count, work, after_panic)
    }

    pub(crate) fn sync_all(&self) {
        triggers::sync_all(&self.controller, &self.queue);
    }

    async fn tend(&self) -> StopReason {
        tokio::select! {
            () = self.controller.tasks.broken() => StopReason::Broken,
            () = self.controller.wake_where_kinds_appear() => StopReason::Anew,
            () = self.controller.close_places() => StopReason::Anew,
        }
    }
}

/// Does what is done again and again, until one of the parts can go on no longer.
pub(crate) async fn tend(parts: &[ParentQueue]) -> StopReason {
    if parts.is_empty() {
        return pending().await;
    }
    select_all(parts.iter().map(|part| part.tend().boxed())).await.0
}
