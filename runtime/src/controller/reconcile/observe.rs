//! Observation of a reconcile's begin, course and end: for the log, for `metahook dev`, and for the traces that `metahook explain`
//! shows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::reconcile::changing_place::{Warnings, why_the_next_waits};
use metahook_core::reconcile::outcome::{Changed, Failure, Outcome, Retry, RetryState};
use metahook_core::reconcile::steps::TimedStep;
use metahook_core::reconcile::trigger::{Beginning, RESYNC, ReconcileCause};
use metahook_core::trace::recent::PrintedTrace;
use metahook_core::trace::{self, ReconcileTrace, TraceEnd};

use super::memory::Attempts;
use super::{ReconcileError, Reconciler};
use crate::controller::observer::{Observed, ObservedReconcile, ReconcileEnd};
use crate::controller::traces::print_time;
use crate::sync::lock;
use crate::telemetry::{error_chain, reconcile_span};

/// Facts about a reconcile, gathered until its end.
pub(super) struct Course {
    start: Instant,
    /// Why it takes place; empty where neither the log nor a trace has it.
    pub(super) cause: ReconcileCause,
    /// State that the reconcile began with, where it is observed.
    pub(super) observed: Option<Beginning>,
    /// The steps, and the number of those that found no room.
    pub(super) steps: (Vec<TimedStep>, usize),
    /// The place that the plan changes, of a parent that is watched.
    pub(super) changing: Option<String>,
    /// Why the next reconcile waits where the parent is throttled, and how long after the begin of this one, where that is known.
    throttled: Option<(String, Option<Duration>)>,
    /// The related objects that its failure may name.
    related_failure: Vec<ObjectId>,
}

impl Course {
    /// Notes what a failure may name, and why the next reconcile waits, where the parent is throttled.
    pub(super) fn ended(
        &mut self,
        result: &Result<Changed, Failure>,
        warnings: &Warnings,
        retry_state: RetryState,
        outcome: Outcome,
    ) {
        if let Err(failure) = result {
            self.related_failure.clone_from(&failure.related);
        }
        if matches!(outcome, Outcome::FollowUp | Outcome::FollowUpByClock) {
            let wait = Some(retry_state.wait).filter(|wait| !wait.is_zero());
            self.throttled = why_the_next_waits(warnings, retry_state).map(|why| (why, wait));
        }
    }
}

impl Reconciler {
    pub(super) fn begins(&self, parent: &Object, retry_state: RetryState, attempts: &mut Attempts) -> Course {
        let beginning = || Beginning::of(parent, self.hooks.identity());
        if attempts.cause.is_none() && self.data.tells_causes() {
            let cause = lock(&self.data.telemetry.causes).take(&parent.key, beginning(), retry_state);
            let fields = (!cause.fields.is_empty()).then(|| tracing::field::display(&cause.fields));
            tracing::debug!(cause = &*cause.text, changed_fields = fields, "reconcile");
            attempts.cause = Some(cause);
        }
        let cause = attempts.cause.clone().unwrap_or_default();
        Course {
            start: Instant::now(),
            cause,
            observed: self.data.telemetry.observer.is_observed().then(beginning),
            steps: <(Vec<TimedStep>, usize)>::default(),
            changing: None,
            throttled: None,
            related_failure: Vec::new(),
        }
    }

    /// Keeps the trace of a reconcile that ended, and sends its spans.
    pub(super) fn trace(&self, parent: &Object, course: Course, end: TraceEnd, outcome: Outcome) {
        // Nothing is made that nobody keeps or sends.
        let span = reconcile_span::current().filter(|span| span.is_sent());
        if span.is_none() && !self.data.telemetry.traces.are_kept() {
            return;
        }
        let resource = &self.data.parents.resource;
        let Course { start, cause, steps: (steps, left_out), throttled, related_failure, .. } = course;
        let took = start.elapsed();
        let (throttled, wait) = throttled.unzip();
        let began = Timestamp::now().checked_sub(took).unwrap_or_default();
        let reconciled = trace::TraceInput {
            controller: self.data.telemetry.traces.controller(),
            resource,
            parent,
            began: print_time(began),
            took,
            cause,
            end,
            related_failure,
            next: trace::NextReconcile {
                after: outcome.delay().or(wait.flatten().map(|wait| wait.saturating_sub(took))),
                resync: self.until_resync(outcome),
                throttled,
            },
        };
        let (trace, times) = ReconcileTrace::new(reconciled, &steps, left_out);
        if let Some(span) = span {
            span.end(&trace, &times);
        }
        self.data.telemetry.traces.add(|| (&parent.key, PrintedTrace::new((resource, &parent.key), trace)));
    }

    pub(crate) fn set_next_resync(&self, next: tokio::time::Instant) {
        *lock(&self.next_resync) = Some(next);
    }

    /// The delay until the next resync, where it may be the next thing to happen.
    fn until_resync(&self, outcome: Outcome) -> Option<Duration> {
        let waits = matches!(outcome, Outcome::Settled(_) | Outcome::NoEffect(_));
        let next = lock(&self.next_resync).filter(|_| waits)?;
        Some(next.saturating_duration_since(tokio::time::Instant::now()))
    }

    /// Counts the parents of a resync that need no reconcile. `needing`: those that need one, in the same order.
    pub(crate) fn count_resynced(&self, parents: &[Arc<Object>], needing: &[Key]) {
        let mut needing = needing.iter().peekable();
        let settled = parents.iter().filter(|parent| needing.next_if(|key| **key == parent.key).is_none());
        self.data.telemetry.traces.count_settled(settled.map(|parent| (&parent.key, RESYNC.into())));
    }

    pub(super) fn observe(
        &self,
        parent: &Object,
        course: &Course,
        result: &Result<Changed, ReconcileError>,
        retry_state: RetryState,
    ) {
        let Some(beginning) = &course.observed else { return };
        self.data.telemetry.observer.note(|| {
            let end = match result.as_ref().map_err(|error| (error, error.failure().retry)) {
                Ok(_) => ReconcileEnd::Ok,
                Err((error, Retry::WithEvent)) => ReconcileEnd::failed(&error_chain(error)),
                Err((error, Retry::Silent | Retry::After(_))) => ReconcileEnd::Again(error_chain(error)),
            };
            Observed::Reconciled(Box::new(ObservedReconcile {
                parent: self.data.parent_id(parent),
                beginning: beginning.clone(),
                retry_state,
                took: course.start.elapsed(),
                end,
            }))
        });
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::api::PAUSED;
    use metahook_core::cache::CacheEvent;
    use metahook_core::trace::TracedObject;
    use opentelemetry_sdk::trace::Sampler;
    use serde_json::json;

    use super::*;
    use crate::controller::reconcile::testing::{Scenario, body, parents};
    use crate::controller::traces::Traces;
    use crate::spans::Spans;
    use crate::telemetry::reconcile_span::ATTRIBUTES;

    /// Attributes that the reconcile of a paused parent makes, and the traces that are kept of it.
    async fn made_and_kept(traces: Traces) -> (usize, usize) {
        let scenario = Scenario::traced(traces.clone());
        let mut parent = body(&parents(), "1");
        parent["metadata"]["annotations"] = json!({ PAUSED: "true" });
        let parent = Object::parse(&parent.to_string(), None).unwrap();
        let key = parent.key.clone();
        scenario.store(&parents()).observe_write(vec![CacheEvent::Applied(parent)]);
        let before = ATTRIBUTES.get();
        let outcome = scenario.reconciler.reconcile(&key, RetryState::default()).await;
        assert_eq!(outcome, Outcome::Settled(None));
        let kept = traces.about(&TracedObject::new(&parents(), &key));
        (ATTRIBUTES.get() - before, kept.len())
    }

    #[tokio::test]
    async fn attributes_of_spans_are_made_only_where_they_are_sent() {
        let sampled = |sampler| Some(Spans::sampled_by(sampler));
        for (what, traces, kept) in [
            ("nothing is kept or sent", Traces::default(), 0),
            ("traces are kept", Traces::keeping(1 << 20), 1),
            ("none is sampled", Traces::default().sending(sampled(Sampler::AlwaysOff)), 0),
            ("kept, none is sampled", Traces::keeping(1 << 20).sending(sampled(Sampler::AlwaysOff)), 1),
        ] {
            assert_eq!(made_and_kept(traces).await, (0, kept), "{what}");
        }
        let (sent, _) = made_and_kept(Traces::default().sending(sampled(Sampler::AlwaysOn))).await;
        assert!(sent > 3, "{sent}");
    }
}
