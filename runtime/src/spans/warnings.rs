//! Warnings about a collector that fails.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// A collector that fails is reported this often.
const INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct Warnings {
    last: Mutex<Option<Instant>>,
}

impl Warnings {
    pub(super) fn warn(&self, why: &str) {
        let mut last = lock(&self.last);
        if last.is_none_or(|last| last.elapsed() >= INTERVAL) {
            *last = Some(Instant::now());
            tracing::warn!(why, "spans were not sent to the collector (OTEL_EXPORTER_OTLP_ENDPOINT)");
        }
    }
}
