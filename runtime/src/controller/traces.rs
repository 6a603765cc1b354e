//! Traces of the latest reconciles, where the server keeps them, for `metahook explain`.

use std::sync::{Arc, Mutex};

use metahook_core::trace::recent::{PrintedTrace, RecentTraces, read};
use metahook_core::trace::{ReconcileTrace, TracedObject};

use crate::sync::lock;

/// Keeps nothing by default: a server without --inspection-address shows no trace.
#[derive(Clone, Default)]
pub(crate) struct Traces(Option<Arc<Mutex<RecentTraces>>>);

impl Traces {
    /// `max`: bytes of all traces.
    pub(crate) fn keeping(max: usize) -> Self {
        Self(Some(Arc::new(Mutex::new(RecentTraces::new(max)))))
    }

    pub(crate) fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    /// `trace` is made only where it is kept, and before others have to wait for it.
    pub(crate) fn add(&self, trace: impl FnOnce() -> PrintedTrace) {
        if let Some(kept) = &self.0 {
            let trace = trace();
            lock(kept).add(trace);
        }
    }

    /// The traces of the object's own reconciles, and of those that wrote it or decided about it; the latest first.
    pub(crate) fn about(&self, object: &TracedObject) -> Vec<ReconcileTrace> {
        let found = self.0.as_ref().map(|kept| lock(kept).that_name(object));
        read(found.unwrap_or_default(), object)
    }
}
