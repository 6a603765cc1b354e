//! Watches of the API server that are open, and those of them that fail now.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metahook_core::cache::CacheEvent;
use metahook_core::cache::watch_breaks::WatchBreaks;
use tokio::time::Instant;

use crate::sync::lock;

/// The watches of all clients that share it.
#[derive(Clone)]
pub(crate) struct OpenWatches(Arc<Shared>);

struct Shared {
    start: Instant,
    open: AtomicU64,
    /// The number of the watch that is opened next.
    next: AtomicU64,
    /// Watches that have broken since their last event.
    broken: Mutex<BTreeMap<u64, WatchBreaks>>,
}

/// A watch that is open until this is dropped.
pub(crate) struct OpenWatch {
    all: OpenWatches,
    number: u64,
    breaks: WatchBreaks,
}

impl Default for OpenWatches {
    fn default() -> Self {
        let (open, next) = (AtomicU64::default(), AtomicU64::default());
        Self(Arc::new(Shared { start: Instant::now(), open, next, broken: Mutex::default() }))
    }
}

impl OpenWatches {
    pub(crate) fn begin(&self) -> OpenWatch {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        OpenWatch { all: self.clone(), number, breaks: WatchBreaks::default() }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.open.load(Ordering::Relaxed)
    }

    /// How many cannot list or watch.
    pub(crate) fn broken(&self) -> u64 {
        let now = self.0.start.elapsed();
        lock(&self.0.broken).values().filter(|breaks| breaks.is_broken(now)).count() as u64
    }
}

impl OpenWatch {
    pub(crate) fn came(&mut self, event: &CacheEvent) {
        let before = self.breaks;
        self.breaks.came(event);
        // Nearly always: events of watches that work wait for no lock.
        if before.is_none() {
            return;
        }
        let mut broken = lock(&self.all.0.broken);
        if self.breaks.is_none() {
            broken.remove(&self.number);
        } else {
            broken.insert(self.number, self.breaks);
        }
    }

    pub(crate) fn broke(&mut self) {
        self.breaks.broke(self.all.0.start.elapsed());
        lock(&self.all.0.broken).insert(self.number, self.breaks);
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.all.0.open.fetch_sub(1, Ordering::Relaxed);
        lock(&self.all.0.broken).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_fails_counts_until_it_works_or_is_closed() {
        let all = OpenWatches::default();
        let counts = || (all.count(), all.broken());
        let (mut first, mut second) = (all.begin(), all.begin());
        assert_eq!(counts(), (2, 0));
        for watch in [&mut first, &mut second] {
            watch.came(&CacheEvent::ListBegins);
            watch.broke();
        }
        assert_eq!(counts(), (2, 2));
        first.came(&CacheEvent::ListEnds);
        assert_eq!(counts(), (2, 1));
        drop(second);
        assert_eq!(counts(), (1, 0));
        first.broke();
        assert_eq!(counts(), (1, 0), "it is taken up again");
        first.broke();
        first.broke();
        assert_eq!(counts(), (1, 1));
    }
}
