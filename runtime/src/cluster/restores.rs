//! Restored clusters: where etcd goes back to a snapshot, versions go backwards, and what was cached is worth nothing.
//!
//! A watch does not tell: the API server holds it until versions are as high as before. So every version is compared that can
//! only grow; and where a watch broke, the version of the whole cluster is asked for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::sync::lock;

/// All caches begin anew at most this often: an API server that is not etcd's may answer with old versions again and again.
const MIN_INTERVAL: Duration = Duration::from_mins(1);

/// The restores so far, for everything that caches.
#[derive(Clone)]
pub(crate) struct Restores {
    count: Arc<watch::Sender<u64>>,
    last: Arc<Mutex<Option<Instant>>>,
}

impl Default for Restores {
    fn default() -> Self {
        Self { count: Arc::new(watch::Sender::new(0)), last: Arc::default() }
    }
}

impl Restores {
    pub(crate) fn count(&self) -> u64 {
        *self.count.borrow()
    }

    /// Waits until there were more restores than this.
    pub(crate) async fn after(&self, count: u64) {
        let mut changes = self.count.subscribe();
        // The sender is held here.
        let _more = changes.wait_for(|now| *now > count).await;
    }

    /// A version was lower than an earlier one. `what` had it.
    pub(crate) fn note(&self, what: &str) {
        let now = Instant::now();
        let mut last = lock(&self.last);
        if last.is_some_and(|last| now.duration_since(last) < MIN_INTERVAL) {
            return;
        }
        *last = Some(now);
        tracing::warn!(
            what,
            "a version went backwards, as after the cluster was restored from a snapshot: everything is listed again"
        );
        self.count.send_modify(|count| *count += 1);
    }
}

/// Versions that can only grow, unless the cluster is restored.
#[derive(Debug, Default)]
pub(crate) struct Growing(Option<u128>);

impl Growing {
    /// A version that tells nothing of the order, as that of one of many objects in a list.
    pub(crate) fn saw(&mut self, version: Option<u128>) {
        self.0 = self.0.max(version);
    }

    pub(crate) fn last(&self) -> Option<u128> {
        self.0
    }

    /// Whether this version is lower than the one before. One that is no integer tells nothing.
    pub(crate) fn goes_back(&mut self, version: Option<u128>) -> bool {
        let Some(version) = version else { return false };
        self.0.replace(version).is_some_and(|before| version < before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_version_that_goes_back_tells_of_a_restore_once_a_minute() {
        let mut versions = Growing::default();
        let seen =
            [Some(3), Some(3), None, Some(5), Some(4), Some(5)].map(|version| versions.goes_back(version));
        assert_eq!(seen, [false, false, false, false, true, false]);
        let restores = Restores::default();
        restores.note("a Lease");
        restores.note("a Lease");
        assert_eq!(restores.count(), 1);
        tokio::time::advance(MIN_INTERVAL).await;
        restores.note("a Lease");
        restores.after(1).await;
    }
}
