//! Records of a reconcile for people: Events about answers of hooks and about waits, and its line in the log.

use std::sync::Arc;

use metahook_core::api::hook::HookName;
use metahook_core::api::reason::EventReason;
use metahook_core::api::selection::waits_for_finalize;
use metahook_core::children::write_history::Drift;
use metahook_core::children::{flapping, managed_fields};
use metahook_core::controller_metrics::ReconcileResult;
use metahook_core::object::Object;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::Key;
use metahook_core::reconcile::error::MAX_MESSAGE_LENGTH;
use metahook_core::reconcile::input::ReconcileInput;
use metahook_core::reconcile::outcome::{Changed, Failure, Retry, RetryState};
use metahook_core::reconcile::plan::HookFeedback;
use metahook_core::reconcile::ports::Customized;
use metahook_core::rollout::revisions::MAX_REVISIONS;
use metahook_core::shorten_middle;
use serde_json::Value;

use crate::controller::reconcile::Reconciler;
use crate::store::Store;

/// Events about revisions of one parent that do not count.
const MAX_LEFT_OUT_EVENTS: usize = 3;

/// A parent whose clean-up fails so often in a row, which takes some 20 s, is told how to go without it.
const STUCK_FAILURES: u32 = 12;

impl Reconciler {
    pub(super) fn log(&self, parent: &Key, result: &Result<Changed, Failure>) {
        match result {
            Ok(changed) => {
                let wrote = *changed != Changed::Nothing;
                self.data.telemetry.meter.counts().reconciled(if wrote {
                    ReconcileResult::Wrote
                } else {
                    ReconcileResult::Unchanged
                });
                tracing::debug!(wrote, "synced");
            }
            Err(Failure { retry: Retry::Silent, message, .. }) => {
                self.data.telemetry.meter.counts().reconciled(ReconcileResult::Conflict);
                tracing::debug!(reason = message, "tried again");
            }
            Err(Failure { retry: Retry::After(again), message, .. }) => {
                self.data.telemetry.meter.counts().reconciled(ReconcileResult::Postponed);
                tracing::debug!(?again, reason = message, "postponed");
            }
            Err(Failure { retry: Retry::WithEvent, message, category, .. }) => {
                self.data.telemetry.meter.counts().reconciled(ReconcileResult::Failed);
                self.parents.fail(parent, (category, message));
                tracing::warn!(category, reason = message, "sync failed");
            }
        }
    }

    /// Records that a parent which is being deleted waits for a clean-up that fails for long.
    pub(super) fn record_wait(
        &self,
        parent: &Object,
        retry_state: RetryState,
        result: &Result<Changed, Failure>,
    ) {
        let failure = result.as_ref().err().filter(|_| retry_state.failures >= STUCK_FAILURES);
        let waits = failure.filter(|failure| failure.retry == Retry::WithEvent).and_then(
            |Failure { message, .. }| {
                let config = &self.data.config;
                waits_for_finalize(
                    parent,
                    &self.data.parent_id(parent),
                    (config.kind.name(), &config.name),
                    message,
                )
            },
        );
        self.parents.record_new(parent, EventReason::FinalizerWaits, waits);
    }

    /// Records that a hook gave two answers to one request about a parent.
    pub(super) fn record_two_answers(&self, parent: &Object, hook: HookName) {
        let message = format!(
            "The {hook} hook gave two answers to one request about {}: nothing is skipped any more until its module or a mount changes",
            parent.key
        );
        self.data.recorder.record(&self.data.object, EventReason::ImpureHook, &message);
    }

    /// Warns of another controller that makes children of the same kind for the same parent.
    pub(super) fn record_overlaps(&self, input: &ReconcileInput) {
        let parent = &input.parent;
        let overlap = |store: &Arc<Store>| {
            let all = store.candidates(&parent.uid, &parent.key.namespace, input.selector.as_ref());
            let controlled = |child: &&CachedObject| child.controller.as_ref() == Some(&parent.uid);
            let (child, other) = all
                .iter()
                .filter(controlled)
                .find_map(|child| Some((child, self.data.other_controller(child)?)))?;
            Some(format!(
                "{} {} of this parent was made by the controller {other}, and {} makes such children too: each leaves the other's alone, so see that they choose other names",
                child.gvk.kind, child.key, self.data.config.name
            ))
        };
        let overlaps = self.data.children.iter().filter_map(overlap);
        self.parents.record_new(parent, EventReason::ControllersOverlap, overlaps);
    }

    /// Records values that another client keeps changing back.
    pub(super) async fn record_flapping(&self, parent: &Object, flapping: &[Drift]) {
        for flapping in flapping {
            let is_new =
                self.parents.histories.change(&parent.key, |history| history.mark_reported(flapping));
            if !is_new {
                continue;
            }
            let live =
                self.writer.api.read_as::<Value>(&flapping.id).await.ok().flatten().unwrap_or_default();
            let fields = live.pointer("/metadata/managedFields").unwrap_or(&Value::Null);
            let ours = [managed_fields::DYNAMIC_MANAGER, &*self.manager];
            let managers = flapping::managers(flapping, fields, &ours);
            self.parents.histories.note_managers(&parent.key, &flapping.id, managers);
            let message = flapping::message(flapping, fields, &ours);
            self.data.recorder.record(parent, EventReason::ValueFlapping, &message);
        }
    }

    /// Records the hook's own Events, and warnings about its answer.
    pub(super) fn record_feedback(
        &self,
        input: &ReconcileInput,
        feedback: &HookFeedback,
        customized: &[Customized],
    ) {
        let ReconcileInput { parent, hook, .. } = input;
        for event in &feedback.events {
            self.data.recorder.record_of_hook(parent, event);
        }
        let missing = (feedback.missing_children > 0).then(|| {
            format!(
                "The {hook} hook's answer has no list of {}, so {}: an empty list is how to say that this is meant",
                self.data.config.kind.name().children(),
                if feedback.missing_children == 1 {
                    "the only one is deleted".to_owned()
                } else {
                    format!("all {} of them are deleted", feedback.missing_children)
                }
            )
        });
        self.parents.record_new(parent, EventReason::MissingChildren, missing);
        self.parents.record_new(
            parent,
            EventReason::AnnotationsLeftOut,
            feedback.without_annotations.iter().map(|message| format!("The {hook} hook: {message}")),
        );
        let of_customize = customized.iter().filter_map(|one| one.answer.ignored.as_deref());
        let ignored = feedback.ignored.as_deref().into_iter().chain(of_customize).map(str::to_owned);
        self.parents.record_new(parent, EventReason::AnswerIgnored, ignored);
        self.record_revisions(input, feedback);
        for odd in &feedback.warnings {
            tracing::debug!(%hook, "the hook's answer {odd}");
        }
    }

    /// Records the revisions of the parent that do not count.
    fn record_revisions(&self, input: &ReconcileInput, feedback: &HookFeedback) {
        let Some(history) = input.rollout.as_ref().and_then(|rollout| rollout.history().ok()) else { return };
        let pruned = (history.pruned > 0).then(|| {
            format!("More than {MAX_REVISIONS} older ControllerRevisions are the parent's: the oldest are deleted, and their children are updated at once")
        });
        self.parents.record_new(&input.parent, EventReason::RevisionsPruned, pruned);
        let failed = feedback.left_out.iter().map(|(name, error)| {
            format!("The {} hook fails about the parent as it was at ControllerRevision {name}: its children stay as they are until it is their turn: {error}", input.hook)
        });
        let unreadable = history.unreadable.iter().map(ToString::to_string);
        let all = failed.chain(unreadable).take(MAX_LEFT_OUT_EVENTS);
        self.parents.record_new(
            &input.parent,
            EventReason::RevisionLeftOut,
            all.map(|message| shorten_middle(&message, MAX_MESSAGE_LENGTH)),
        );
    }
}
