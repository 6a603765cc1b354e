//! Workers that take keys from a queue; a panic is a failed pass; the last pass ends before they do.

use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::task::JoinSet;

use crate::queue::{After, Queue, Streaks};

/// Runs `count` workers until the queue is closed. `work` answers how its key goes on; `panicked` does when it cannot.
pub(crate) fn start<K, W, F>(
    queue: &Arc<Queue<K>>,
    count: usize,
    work: W,
    panicked: fn(Streaks) -> After,
) -> JoinSet<()>
where
    K: Ord + Hash + Clone + Send + Sync + std::fmt::Display + 'static,
    W: Fn(K, Streaks) -> F + Clone + Send + 'static,
    F: Future<Output = After> + Send,
{
    let mut workers = JoinSet::new();
    for _ in 0..count {
        let (queue, work) = (Arc::clone(queue), work.clone());
        workers.spawn(async move {
            while let Some((key, streaks)) = queue.next().await {
                let pass = AssertUnwindSafe(work(key.clone(), streaks)).catch_unwind();
                let after = pass.await.unwrap_or_else(|_panic| {
                    tracing::error!(parent = %key, "a pass panicked: this is a bug in metahook");
                    panicked(streaks)
                });
                queue.done(&key, after);
                // Passes with nothing to do wait for nothing: others of this thread get their turn here.
                tokio::task::coop::consume_budget().await;
            }
        });
    }
    workers
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
                After::Settled(None)
            }
        };
        let mut workers = start(&queue, 1, work, |_| After::Failed(Duration::from_secs(1)));
        queue.add(1);
        queue.add(2);
        assert_eq!((seen.recv().await, seen.recv().await), (Some(2), Some(1)));
        queue.close();
        while workers.join_next().await.is_some() {}
    }
}
