//! Workers that take keys from a queue: a panic fails its key alone, and a run ends before its worker does.

use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use metahook_core::reconcile::outcome::{Outcome, Streaks};
use tokio::task::JoinSet;

use crate::queue::Queue;

/// Runs `count` workers until the queue is closed.
pub(crate) fn start<K, W, F>(queue: &Arc<Queue<K>>, count: usize, work: W) -> JoinSet<()>
where
    K: Ord + Hash + Clone + Send + Sync + std::fmt::Display + 'static,
    W: Fn(K, Streaks) -> F + Clone + Send + 'static,
    F: Future<Output = Outcome> + Send,
{
    let mut workers = JoinSet::new();
    for _ in 0..count {
        let (queue, work) = (Arc::clone(queue), work.clone());
        workers.spawn(async move {
            while let Some((key, streaks)) = queue.next().await {
                let run = AssertUnwindSafe(work(key.clone(), streaks)).catch_unwind();
                let outcome = run.await.unwrap_or_else(|_panic| {
                    tracing::error!(parent = %key, "a reconcile panicked: this is a bug in metahook");
                    Outcome::after_panic(streaks)
                });
                queue.done(&key, outcome);
                // A reconcile with nothing to do never waits: other tasks of this thread get their turn here.
                tokio::task::coop::consume_budget().await;
            }
        });
    }
    workers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_fails_its_own_key_alone() {
        let queue = Arc::new(Queue::new());
        let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let work = move |key: u32, streaks: Streaks| {
            let sender = sender.clone();
            async move {
                assert!(key != 1 || streaks.failures > 0, "the first time");
                sender.send(key).unwrap();
                Outcome::Settled(None)
            }
        };
        let mut workers = start(&queue, 1, work);
        queue.add(1);
        queue.add(2);
        assert_eq!((seen.recv().await, seen.recv().await), (Some(2), Some(1)));
        queue.close();
        while workers.join_next().await.is_some() {}
    }
}
