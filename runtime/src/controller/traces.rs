//! Traces of the latest reconciles, where the server keeps them, for `metahook explain`.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use metahook_core::object::id::{Key, Resource};
use metahook_core::trace::recent::{PrintedTrace, RecentTraces, read};
use metahook_core::trace::{ReconcileTrace, TracedObject};

use crate::sync::lock;

/// Keeps nothing by default: a server without --inspection-address shows no trace.
#[derive(Clone, Default)]
pub(crate) struct Traces(Option<Arc<Mutex<RecentTraces>>>);

/// Traces of the parents of one kind of one controller.
pub(crate) struct ControllerTraces {
    all: Traces,
    /// Its kind and name.
    controller: String,
    parents: Arc<Resource>,
}

impl Traces {
    /// `max`: bytes of all traces.
    pub(crate) fn keeping(max: usize) -> Self {
        Self(Some(Arc::new(Mutex::new(RecentTraces::new(max)))))
    }

    pub(crate) fn of_controller(
        &self,
        (kind, name): (&str, &str),
        parents: &Arc<Resource>,
    ) -> ControllerTraces {
        let controller = format!("{kind} {name}");
        ControllerTraces { all: self.clone(), controller, parents: Arc::clone(parents) }
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
        read(found.unwrap_or_default(), object, |time| {
            let time = Timestamp::UNIX_EPOCH.checked_add(time).unwrap_or_default();
            print_time(time)
        })
    }
}

impl ControllerTraces {
    pub(crate) fn are_kept(&self) -> bool {
        self.all.0.is_some()
    }

    /// The controller's kind and name.
    pub(crate) fn controller(&self) -> &str {
        &self.controller
    }

    /// `trace` is made only where it is kept, and before others have to wait for it.
    pub(crate) fn add(&self, trace: impl FnOnce() -> PrintedTrace) {
        self.all.add(trace);
    }

    /// Counts triggers of parents that changed nothing, with their causes. Most triggers of a large cluster are such: where
    /// nothing is kept this does nothing, else it takes one lock and allocates nothing.
    pub(crate) fn count_settled<'a>(&self, parents: impl IntoIterator<Item = (&'a Key, Cow<'static, str>)>) {
        let Some(kept) = &self.all.0 else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let mut kept = lock(kept);
        for (parent, cause) in parents {
            kept.count_settled(&self.controller, (&self.parents, parent), cause, now);
        }
    }
}

/// A time in RFC 3339 with milliseconds.
pub(crate) fn print_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}
