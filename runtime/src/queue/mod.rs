//! Work queue of parents: each key is queued once, never runs on two workers, and runs at once or after a delay.

mod keys;
pub(crate) mod workers;

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use metahook_core::reconcile::outcome::{Outcome, Streaks};
use tokio::sync::Notify;

use self::keys::Keys;

use crate::sync::lock;

/// # Guarantees
/// A key that is added while its worker runs is handed out again afterwards. The earliest of several delays counts. A
/// throttled key waits until another client of the API server, not another reconcile of this server, changes something.
/// The size is bounded by the number of distinct keys.
pub(crate) struct Queue<K> {
    inner: Mutex<Inner<K>>,
    wake: Notify,
}

struct Inner<K> {
    keys: Keys<K>,
    closed: bool,
}

impl<K: Ord + Hash + Clone> Queue<K> {
    pub(crate) fn new() -> Self {
        Self { inner: Mutex::new(Inner { keys: Keys::default(), closed: false }), wake: Notify::new() }
    }

    /// Another client changed something about the key: it runs now, also if it is throttled. A delay that it asked for
    /// before stays.
    pub(crate) fn add(&self, key: K) {
        if self.lock().keys.add(key) {
            self.wake.notify_one();
        }
    }

    /// Another reconcile of this server changed something about the key: it runs now, unless its own writes have it
    /// throttled, or two hooks that never settle would keep each other running. A key that failed or was postponed may wait
    /// for this very change, and is called back a few times.
    pub(crate) fn add_from_peer(&self, key: K) {
        if self.lock().keys.add_from_peer(key) {
            self.wake.notify_one();
        }
    }

    /// Time has passed, or an effect of the key's own writes is complete: it runs now, unless it is throttled.
    pub(crate) fn add_if_idle(&self, key: K) {
        if self.lock().keys.add_if_idle(key) {
            self.wake.notify_one();
        }
    }

    /// [`Queue::add_if_idle`] for many keys at once.
    pub(crate) fn add_all_if_idle(&self, keys: &[K]) {
        let mut inner = self.lock();
        for key in keys {
            inner.keys.add_if_idle(key.clone());
        }
        drop(inner);
        // A worker that takes one of several keys wakes the next worker.
        self.wake.notify_one();
    }

    /// The key runs after this delay, or earlier for another reason. That run resets its streaks, so that the next failure
    /// starts with the shortest delay again.
    pub(crate) fn add_after(&self, key: K, delay: Duration) {
        self.lock().keys.add_after(key, delay);
        self.wake.notify_one();
    }

    /// The next key, or `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<(K, Streaks)> {
        loop {
            let notified = self.wake.notified();
            let until = {
                let mut inner = self.lock();
                if inner.closed {
                    return None;
                }
                if let Some(taken) = inner.keys.take() {
                    // There may be more for the other workers.
                    if inner.keys.has_more() {
                        self.wake.notify_one();
                    }
                    return Some(taken);
                }
                inner.keys.next_due()
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
        self.lock().keys.done(key, outcome);
    }

    /// No key is handed out any more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Inner<K>> {
        lock(&self.inner)
    }
}

#[cfg(test)]
mod tests;
