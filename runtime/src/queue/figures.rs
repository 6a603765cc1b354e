//! Figures of a queue since it began: keys added, waits, runs. Their names and buckets are those of client-go.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Upper bounds of the buckets of times, in seconds.
pub(crate) const BUCKETS: [f64; 12] =
    [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];

/// Figures of a queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct QueueFigures {
    /// Keys that wait for a worker.
    pub(crate) depth: u64,
    pub(crate) adds: u64,
    /// Keys that were added with a delay.
    pub(crate) retries: u64,
    /// How long keys waited for a worker.
    pub(crate) waits: Times,
    /// How long workers had keys.
    pub(crate) works: Times,
    /// Seconds that the runs under way have taken, together.
    pub(crate) unfinished: f64,
    /// Seconds that the longest of them has taken.
    pub(crate) longest: f64,
    /// Runs under way.
    pub(crate) running: u64,
    /// Keys that are added again after a delay.
    pub(crate) later: u64,
}

/// A histogram.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Times {
    pub(crate) sum: f64,
    pub(crate) count: u64,
    /// Counts by [`BUCKETS`], and of the longer ones.
    pub(crate) buckets: [u64; BUCKETS.len() + 1],
}

impl Times {
    fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.sum += seconds;
        self.count += 1;
        let at = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket += 1;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.count += other.count;
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += more;
        }
    }
}

impl QueueFigures {
    /// The figures of two queues of one controller.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.depth += other.depth;
        self.adds += other.adds;
        self.retries += other.retries;
        self.waits.merge(&other.waits);
        self.works.merge(&other.works);
        self.unfinished += other.unfinished;
        self.longest = self.longest.max(other.longest);
        self.running += other.running;
        self.later += other.later;
    }
}

/// Counts of a queue. As many runs are under way as there are workers.
pub(super) struct Counts<K> {
    figures: QueueFigures,
    running: BTreeMap<K, Instant>,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self { figures: QueueFigures::default(), running: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Counts<K> {
    pub(super) fn queued(&mut self) {
        self.figures.adds += 1;
        self.figures.depth += 1;
    }

    pub(super) fn delayed(&mut self) {
        self.figures.retries += 1;
    }

    /// `since`: when the key was queued.
    pub(super) fn began(&mut self, key: &K, since: Option<Instant>, now: Instant) {
        self.figures.depth = self.figures.depth.saturating_sub(1);
        self.figures.waits.add(since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)));
        self.running.insert(key.clone(), now);
    }

    pub(super) fn ended(&mut self, key: &K, now: Instant) {
        if let Some(start) = self.running.remove(key) {
            self.figures.works.add(now.saturating_duration_since(start));
        }
    }

    /// `later`: keys that are added again after a delay.
    pub(super) fn figures(&self, now: Instant, later: usize) -> QueueFigures {
        let times = || self.running.values().map(|start| now.saturating_duration_since(*start).as_secs_f64());
        let (unfinished, longest) = (times().sum(), times().fold(0.0, f64::max));
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let (running, later) = (count(self.running.len()), count(later));
        QueueFigures { unfinished, longest, running, later, ..self.figures.clone() }
    }
}
