//! Work queue of parents: each key is queued once, never runs on two workers, and runs at once or after a delay.

mod keys;

use std::fmt::Display;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use metahook_core::reconcile::outcome::{Outcome, Streaks};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::sync::lock;
use keys::Keys;

/// # Guarantees
/// A key that is added while its worker runs is handed out again afterwards. The earliest of several delays counts. A
/// throttled key waits until another client of the API server, not another reconcile of this server, changes something.
/// The size is bounded by the number of distinct keys.
pub(crate) struct Queue<K> {
    keys: Mutex<Keys<K>>,
    closed: AtomicBool,
    wake: Notify,
}

impl<K: Ord + Hash + Clone> Queue<K> {
    pub(crate) fn new() -> Self {
        Self { keys: Mutex::default(), closed: AtomicBool::new(false), wake: Notify::new() }
    }

    /// Another client changed something about the key: it runs now, also if it is throttled. A delay that it asked for
    /// before stays.
    pub(crate) fn add(&self, key: K) {
        if lock(&self.keys).add(key) {
            self.wake.notify_one();
        }
    }

    /// Another reconcile of this server changed something about the key: it runs now, unless its own writes have it
    /// throttled, or two hooks that never settle would keep each other running. A key that failed or was postponed may wait
    /// for this very change, and is called back a few times.
    pub(crate) fn add_from_peer(&self, key: K) {
        if lock(&self.keys).add_from_peer(key) {
            self.wake.notify_one();
        }
    }

    /// Time has passed, or an effect of the key's own writes is complete: it runs now, unless it is throttled.
    pub(crate) fn add_if_idle(&self, key: K) {
        if lock(&self.keys).add_if_idle(key) {
            self.wake.notify_one();
        }
    }

    /// [`Queue::add_if_idle`] for many keys at once.
    pub(crate) fn add_all_if_idle(&self, keys: &[K]) {
        let mut all = lock(&self.keys);
        for key in keys {
            all.add_if_idle(key.clone());
        }
        drop(all);
        // A worker that takes one of several keys wakes the next worker.
        self.wake.notify_one();
    }

    /// The key runs after this delay, or earlier for another reason. That run resets its streaks, so that the next failure
    /// starts with the shortest delay again.
    pub(crate) fn add_after(&self, key: K, delay: Duration) {
        lock(&self.keys).add_after(key, delay);
        self.wake.notify_one();
    }

    /// The next key, or `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<(K, Streaks)> {
        loop {
            let notified = self.wake.notified();
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            let until = {
                let mut keys = lock(&self.keys);
                if let Some(taken) = keys.take() {
                    // There may be more for the other workers.
                    if keys.has_more() {
                        self.wake.notify_one();
                    }
                    return Some(taken);
                }
                keys.next_due()
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
        lock(&self.keys).done(key, outcome);
    }

    /// No key is handed out any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }
}

/// Runs `count` workers until the queue is closed. A panic fails its key alone, and a run ends before its worker does.
pub(crate) fn start_workers<K, W, F>(queue: &Arc<Queue<K>>, count: usize, work: W) -> JoinSet<()>
where
    K: Ord + Hash + Clone + Send + Sync + Display + 'static,
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
mod tests;
