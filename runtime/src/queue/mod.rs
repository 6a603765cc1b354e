//! Work queue of parents: each key is queued once, never runs on two workers, and runs at once or after a delay.

mod entry;
mod figures;
mod keys;

use std::fmt::Display;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use metahook_core::pacing::lanes::{Cause, NamespaceOf};
use metahook_core::reconcile::outcome::{Outcome, RetryState};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::sync::lock;
pub(crate) use figures::{BUCKETS, QueueFigures, Times};
use keys::Keys;
pub(crate) use keys::Throttle;

/// # Guarantees
/// A key that is added while its worker runs is handed out again afterwards. The earliest of several delays counts. A key whose
/// budget is used up waits until it is refilled. The size is bounded by the number of distinct keys.
pub(crate) struct Queue<K> {
    keys: Mutex<Keys<K>>,
    closed: AtomicBool,
    wake: Notify,
}

impl<K: Ord + Hash + Clone> Queue<K> {
    pub(crate) fn new(throttle: Throttle, namespace_of: NamespaceOf<K>) -> Self {
        let keys = Mutex::new(Keys::new(throttle, namespace_of));
        Self { keys, closed: AtomicBool::new(false), wake: Notify::new() }
    }

    /// The key runs as soon as its lane and its budget let it. A delay that it asked for before stays, and one that its hook
    /// or the API server asked for holds against [`Cause::Periodic`].
    pub(crate) fn add(&self, key: K, cause: Cause) {
        if lock(&self.keys).add(key, cause, Instant::now()) {
            self.wake.notify_one();
        }
    }

    /// [`Queue::add`] for many keys at once.
    pub(crate) fn add_all(&self, keys: &[K], cause: Cause) {
        let (mut all, now) = (lock(&self.keys), Instant::now());
        for key in keys {
            all.add(key.clone(), cause, now);
        }
        drop(all);
        // A worker that takes one of several keys wakes the next worker.
        self.wake.notify_one();
    }

    /// The key runs after this delay, or earlier for another reason. That run resets its state of retries, so that the next failure
    /// starts with the shortest delay again. Its budget stays as it is.
    pub(crate) fn add_after(&self, key: K, delay: Duration) {
        lock(&self.keys).add_after(key, delay, Instant::now());
        self.wake.notify_one();
    }

    /// The next key, or `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<(K, RetryState)> {
        loop {
            let notified = self.wake.notified();
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            let until = {
                let mut keys = lock(&self.keys);
                if let Some(taken) = keys.take(Instant::now()) {
                    // There may be more for the other workers, or a time to wait for in place of this one.
                    if keys.are_waiting() {
                        self.wake.notify_one();
                    }
                    return Some(taken);
                }
                keys.next_due(Instant::now())
            };
            match until {
                Some(at) => tokio::select! {
                    () = notified => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => notified.await,
            }
        }
    }

    /// Gives a key back that [`Queue::next`] handed out. No worker is woken: this one asks for the next key.
    pub(crate) fn done(&self, key: &K, outcome: Outcome) {
        lock(&self.keys).done(key, outcome, Instant::now());
    }

    /// How long a key still has to wait; `None`: it is due, or nothing is to come.
    pub(crate) fn due_in(&self, key: &K) -> Option<Duration> {
        lock(&self.keys).due_in(key, Instant::now())
    }

    pub(crate) fn figures(&self) -> QueueFigures {
        lock(&self.keys).figures(Instant::now())
    }

    /// No key is handed out any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }
}

/// Workers that the queues of one controller share.
#[derive(Clone)]
pub(crate) struct Workers {
    count: usize,
    at_once: Arc<Semaphore>,
}

impl Workers {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, at_once: Arc::new(Semaphore::new(count)) }
    }
}

/// Runs workers until the queue is closed. A panic fails its key alone, and a run ends before its worker does.
/// See <https://github.com/GoogleCloudPlatform/metacontroller/issues/191>.
///
/// # Guarantees
/// At most as many keys run at once as there are workers, over all queues that share them. Queues take turns, key by
/// key.
pub(crate) fn start_workers<K, W, F>(queue: &Arc<Queue<K>>, workers: &Workers, work: W) -> JoinSet<()>
where
    K: Ord + Hash + Clone + Send + Sync + Display + 'static,
    W: Fn(K, RetryState) -> F + Clone + Send + 'static,
    F: Future<Output = Outcome> + Send,
{
    let mut tasks = JoinSet::new();
    for _ in 0..workers.count {
        let (queue, work, at_once) = (Arc::clone(queue), work.clone(), Arc::clone(&workers.at_once));
        tasks.spawn(async move {
            while let Some((key, retry_state)) = queue.next().await {
                // Never closed, so that there is always a permit in the end.
                let _permit = at_once.acquire().await;
                let run = AssertUnwindSafe(work(key.clone(), retry_state)).catch_unwind();
                let outcome = run.await.unwrap_or_else(|_panic| {
                    tracing::error!(parent = %key, "a reconcile panicked: this is a bug in metahook");
                    Outcome::after_panic(retry_state)
                });
                queue.done(&key, outcome);
                // A reconcile with nothing to do never waits: other tasks of this thread get their turn here.
                tokio::task::coop::consume_budget().await;
            }
        });
    }
    tasks
}

#[cfg(test)]
mod budget_tests;
#[cfg(test)]
mod tests;
