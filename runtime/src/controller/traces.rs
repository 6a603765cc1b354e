//! Traces of the latest reconciles, where the server keeps them, for `metahook explain`; and recordings of those that come.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::reconcile::trigger::ReconcileCause;
use metahook_core::trace::recent::{ParentId, PrintedTrace, RecentTraces, read};
use metahook_core::trace::{ReconcileTrace, TracedObject};

use super::recordings::RunningRecordings;
use crate::spans::Spans;
use crate::sync::lock;
use crate::telemetry::reconcile_span::ReconcileSpan;

/// The consumers of the steps of reconciles; by default there are none.
#[derive(Clone, Default)]
pub(crate) struct Traces {
    /// A server without --inspection-address shows no trace.
    kept: Option<Arc<KeptTraces>>,
    spans: Option<Spans>,
}

struct KeptTraces {
    recent: Mutex<RecentTraces>,
    recordings: RunningRecordings,
}

/// The latest trace of each parent of a controller, as it is kept.
#[derive(Default)]
pub(crate) struct LatestTraces(Vec<(ParentId, Arc<str>)>);

/// Bytes that traces take.
#[derive(Default)]
pub(crate) struct TraceBytes {
    pub(crate) of_controller: usize,
    pub(crate) all: usize,
    pub(crate) max: usize,
}

impl LatestTraces {
    pub(crate) fn read(&self) -> impl Iterator<Item = (ObjectId, ReconcileTrace)> {
        self.0.iter().filter_map(|((key, resource), json)| {
            let parent = ObjectId { resource: Arc::clone(resource), key: key.clone() };
            Some((parent, serde_json::from_str(json).ok()?))
        })
    }
}

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
        let recent = Mutex::new(RecentTraces::new(max));
        let kept = KeptTraces { recent, recordings: RunningRecordings::default() };
        Self { kept: Some(Arc::new(kept)), spans: None }
    }

    /// Sends spans, too.
    pub(crate) fn sending(self, spans: Option<Spans>) -> Self {
        Self { spans, ..self }
    }

    pub(crate) fn recordings(&self) -> Option<&RunningRecordings> {
        self.kept.as_ref().map(|kept| &kept.recordings)
    }

    /// Bytes of all traces, and their bound.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        self.kept.as_ref().map(|kept| lock(&kept.recent).bytes()).unwrap_or_default()
    }

    pub(crate) fn of_controller(
        &self,
        (kind, name): (&str, &str),
        parents: &Arc<Resource>,
    ) -> ControllerTraces {
        let controller = format!("{kind} {name}");
        ControllerTraces { all: self.clone(), controller, parents: Arc::clone(parents) }
    }

    /// The traces of the object's own reconciles, and of those that wrote it or decided about it; the latest first.
    pub(crate) fn about(&self, object: &TracedObject) -> Vec<ReconcileTrace> {
        let found = self.kept.as_ref().map(|kept| lock(&kept.recent).all());
        read(found.unwrap_or_default(), object, |time| {
            let time = Timestamp::UNIX_EPOCH.checked_add(time).unwrap_or_default();
            print_time(time)
        })
    }
}

impl ControllerTraces {
    /// Whether traces are kept, and not only sent.
    pub(crate) fn are_kept(&self) -> bool {
        self.all.kept.is_some()
    }

    /// Whether somebody wants the steps of reconciles.
    pub(crate) fn are_wanted(&self) -> bool {
        self.all.kept.is_some() || self.all.spans.is_some()
    }

    /// The span of a reconcile that begins. `clock`: now, by the clock of its steps.
    pub(crate) fn begin_span(&self, clock: impl FnOnce() -> Duration) -> Option<ReconcileSpan> {
        self.all.spans.as_ref().map(|spans| spans.begin(clock()))
    }

    /// The recordings, where the server has an inspection address.
    pub(crate) fn recordings(&self) -> Option<&RunningRecordings> {
        self.all.recordings()
    }

    /// The controller's kind and name.
    pub(crate) fn controller(&self) -> &str {
        &self.controller
    }

    /// The latest traces of the controller's parents of all kinds.
    pub(crate) fn latest(&self) -> LatestTraces {
        let kept = self.all.kept.as_ref();
        LatestTraces(kept.map(|kept| lock(&kept.recent).latest(&self.controller)).unwrap_or_default())
    }

    /// The latest trace of one parent of the controller, of any kind.
    pub(crate) fn latest_of(&self, parent: &ObjectId) -> Option<ReconcileTrace> {
        let id = (parent.key.clone(), Arc::clone(&parent.resource));
        let json = lock(&self.all.kept.as_ref()?.recent).latest_of(&self.controller, &id)?;
        serde_json::from_str(&json).ok()
    }

    pub(crate) fn bytes(&self) -> TraceBytes {
        let Some(kept) = &self.all.kept else { return TraceBytes::default() };
        let kept = lock(&kept.recent);
        let (all, max) = kept.bytes();
        TraceBytes { of_controller: kept.bytes_of(&self.controller), all, max }
    }

    /// `trace` is made only where it is kept, and before others have to wait for it.
    pub(crate) fn add<'a>(&self, trace: impl FnOnce() -> (&'a Key, PrintedTrace)) {
        if let Some(kept) = &self.all.kept {
            let (key, trace) = trace();
            kept.recordings.reconciled(&self.controller, key, trace.json());
            lock(&kept.recent).add(trace);
        }
    }

    /// Counts triggers of parents that changed nothing, with their causes. Most triggers of a large cluster are such: where
    /// nothing is kept this does nothing, else it takes one lock and hardly ever allocates.
    pub(crate) fn count_settled<'a>(&self, parents: impl IntoIterator<Item = (&'a Key, ReconcileCause)>) {
        let Some(kept) = &self.all.kept else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let mut kept = lock(&kept.recent);
        for (parent, cause) in parents {
            kept.count_settled(&self.controller, (&self.parents, parent), cause, now);
        }
    }
}

/// A time in RFC 3339 with milliseconds.
pub(crate) fn print_time(time: Timestamp) -> String {
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use metahook_core::object::id::Gvk;

    use super::*;

    fn greetings() -> Arc<Resource> {
        let gvk = Gvk::new("example.com/v1", "Greeting");
        Arc::new(Resource { gvk, plural: "greetings".into(), namespaced: true, has_status: true })
    }

    fn trace(controller: &str, key: &Key) -> PrintedTrace {
        let trace = ReconcileTrace {
            controller: controller.to_owned(),
            parent: TracedObject::new(&greetings(), key),
            generation: 1,
            resource_version: "1".to_owned(),
            took_us: 1,
            cause: "first reconcile".to_owned(),
            ..ReconcileTrace::default()
        };
        PrintedTrace::new((&greetings(), key), trace)
    }

    #[test]
    fn triggers_that_change_nothing_are_counted_by_controller() {
        let (all, key) = (Traces::keeping(1 << 20), Key::new("n", "a"));
        let [one, other] =
            ["one", "other"].map(|name| all.of_controller(("CompositeController", name), &greetings()));
        for traces in [&one, &other] {
            traces.add(|| (&key, trace(traces.controller(), &key)));
        }
        one.count_settled([(&key, "resync".into()), (&key, "own writes".into())]);
        one.count_settled([(&Key::new("n", "untraced"), "resync".into())]);
        let [of_other, of_one] = &all.about(&TracedObject::new(&greetings(), &key))[..] else {
            panic!("two")
        };
        let settled = of_one.settled.as_ref().unwrap();
        assert_eq!((settled.triggers, &*settled.last_cause, &of_other.settled), (2, "own writes", &None));
        let time: Timestamp = settled.last.parse().unwrap();
        assert!(time.duration_since(Timestamp::now()).as_secs().abs() < 60, "{}", settled.last);
    }

    #[test]
    fn nothing_is_looked_at_where_nothing_is_kept() {
        let traces = Traces::default().of_controller(("CompositeController", "c"), &greetings());
        let unread = std::iter::from_fn(|| -> Option<(&Key, ReconcileCause)> { panic!("it is read") });
        traces.count_settled(unread);
        traces.add(|| panic!("it is made"));
        assert!(!traces.are_wanted() && !traces.are_kept());
        assert!(traces.begin_span(|| panic!("the clock is read")).is_none());
    }
}
