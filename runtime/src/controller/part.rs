//! The parents of one kind that a running controller looks at: their queue, its workers, and what wakes them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{pending, select_all};
use metahook_core::object::id::Key;
use tokio::task::JoinSet;

use super::pass::{Controller, after_panic};
use super::running::{Begun, End};
use super::triggers;
use crate::queue::{Queue, workers};

pub(super) struct Part {
    pub(super) controller: Arc<Controller>,
    pub(super) queue: Arc<Queue<Key>>,
}

impl Part {
    /// From now on passes are made; those that work end with the queue.
    pub(super) fn begin(&self, begun: Begun, count: usize, period: Option<Duration>) -> JoinSet<()> {
        if let Some(who) = &self.controller.claimant {
            self.controller.tools.wishing.works(who, &self.controller.parents, &self.queue);
        }
        triggers::spawn(&self.controller, &self.queue, begun);
        if let Some(period) = period {
            let resync = triggers::resync(Arc::clone(&self.controller), Arc::clone(&self.queue), period);
            self.controller.tasks.spawn(resync);
        }
        if begun == Begun::Anew {
            self.sync_all();
        }
        let pass = Arc::clone(&self.controller);
        let work = move |key, streaks| {
            let controller = Arc::clone(&pass);
            async move { controller.sync(&key, streaks).await }
        };
        workers::start(&self.queue, count, work, after_panic)
    }

    pub(super) fn sync_all(&self) {
        triggers::sync_all(&self.controller, &self.queue);
    }

    async fn tend(&self) -> End {
        tokio::select! {
            () = self.controller.tasks.broken() => End::Broken,
            () = self.controller.wake_where_kinds_appear() => End::Anew,
            () = self.controller.close_places() => End::Anew,
        }
    }
}

/// Does what is done again and again, until one of the parts can go on no longer.
pub(super) async fn tend(parts: &[Part]) -> End {
    if parts.is_empty() {
        return pending().await;
    }
    select_all(parts.iter().map(|part| part.tend().boxed())).await.0
}
