//! Queue of the parents of one kind: its workers, and the tasks that add parents to it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{pending, select_all};
use metahook_core::object::id::Key;
use tokio::task::JoinSet;

use crate::controller::Context;
use crate::controller::decorator_conflicts::Decorator;
use crate::controller::hooks::HookCaller;
use crate::controller::reconcile::Reconciler;
use crate::controller::related::RelatedObjects;
use crate::controller::runner::triggers;
use crate::controller::runner::{StartReason, StopReason};
use crate::queue::{Queue, workers};
use crate::sync::Tasks;

pub(crate) struct ParentQueue {
    pub(crate) reconciler: Arc<Reconciler>,
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) tasks: Arc<Tasks>,
}

impl ParentQueue {
    /// `restricted`: the controller reads related objects with the rights of a ServiceAccount.
    pub(crate) fn new(
        hooks: HookCaller,
        decorator: Option<Decorator>,
        context: &Context,
        restricted: bool,
    ) -> Self {
        let queue = Arc::new(Queue::new());
        let tasks = Arc::new(Tasks::default());
        let related = RelatedObjects::new(
            hooks.clone(),
            Arc::clone(&queue),
            Arc::clone(&tasks),
            &context.cluster,
            restricted,
        );
        let reconciler = Reconciler::new(hooks, Arc::new(related), decorator, context);
        Self { reconciler: Arc::new(reconciler), queue, tasks }
    }

    /// Starts the workers; they end with the queue.
    pub(crate) fn begin(&self, begun: StartReason, count: usize, period: Option<Duration>) -> JoinSet<()> {
        if let Some(Decorator { id, coordinator }) = &self.reconciler.decorator {
            coordinator.works(id, &self.reconciler.data.parents, &self.queue);
        }
        triggers::spawn(self, begun);
        if let Some(period) = period {
            let resync = triggers::resync(Arc::clone(&self.reconciler), Arc::clone(&self.queue), period);
            self.tasks.spawn(resync);
        }
        if begun == StartReason::Anew {
            self.sync_all();
        }
        let reconciler = Arc::clone(&self.reconciler);
        let work = move |key, streaks| {
            let reconciler = Arc::clone(&reconciler);
            async move { reconciler.reconcile(&key, streaks).await }
        };
        workers::start(&self.queue, count, work)
    }

    pub(crate) fn sync_all(&self) {
        triggers::sync_all(&self.reconciler.parents, &self.queue);
    }

    async fn tend(&self) -> StopReason {
        tokio::select! {
            () = self.tasks.broken() => StopReason::Broken,
            () = self.reconciler.related.watch_discovery() => StopReason::Anew,
            () = self.reconciler.related.close_scopes() => StopReason::Anew,
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
