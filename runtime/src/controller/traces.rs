//! Traces of the latest reconciles, where the server keeps them, for `metahook explain`.

use std::sync::{Arc, Mutex};

use metahook_core::object::id::{Key, Resource};
use metahook_core::trace::recent::RecentTraces;
use metahook_core::trace::{ReconcileTrace, TracedObject};

use crate::sync::lock;

/// Keeps nothing by default, as where nobody can ask.
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

    /// `trace` is made only where it is kept.
    pub(crate) fn add(&self, parent: (&Arc<Resource>, &Key), trace: impl FnOnce() -> ReconcileTrace) {
        if let Some(kept) = &self.0 {
            let trace = trace();
            lock(kept).add(parent, &trace);
        }
    }

    /// See [`RecentTraces::about`].
    pub(crate) fn about(&self, object: &TracedObject) -> Vec<ReconcileTrace> {
        self.0.as_ref().map(|kept| lock(kept).about(object)).unwrap_or_default()
    }
}
