//! Notes on a plan: what the server would record as Events, and what it leaves as it is.

use metahook_core::api::hook::HookName;
use metahook_core::api::reason::EventReason;
use metahook_core::children::Skip;
use metahook_core::reconcile::plan::ReconcilePlan;
use metahook_core::reconcile::ports::Fact;

use super::RenderedReconcile;

impl RenderedReconcile {
    /// Keeps what an author wants to know of a fact.
    pub(crate) fn note(&mut self, fact: Fact<'_>) {
        match fact {
            Fact::Warnings(
                EventReason::ChildrenLeftOut
                | EventReason::UnmanagedChild
                | EventReason::NameTaken
                | EventReason::Paused
                | EventReason::PauseUnclear,
                all,
            ) => {
                self.notes.extend(all);
            }
            Fact::Event(EventReason::DryRunRefused, message) => self.notes.push(message),
            Fact::Planned { input, plan, .. } => {
                note(input.hook, plan, &mut self.notes);
                self.ignored.extend(plan.feedback.ignored.clone());
                self.resync_after = plan.resync_after;
            }
            // The steps and the notes on the plan show them.
            Fact::Warnings(..)
            | Fact::Event(..)
            | Fact::Differing(_)
            | Fact::Held { .. }
            | Fact::StatusLeft(_)
            | Fact::TwoAnswers(_) => {}
        }
    }
}

/// Notes what the server records, and what it leaves as it is.
fn note(hook: HookName, plan: &ReconcilePlan, notes: &mut Vec<String>) {
    let feedback = &plan.feedback;
    notes.extend(feedback.warnings.iter().map(|odd| format!("the {hook} hook's answer {odd}")));
    notes.extend(
        feedback
            .events
            .iter()
            .map(|event| format!("Event {:?} {}: {}", event.kind, event.reason, event.message)),
    );
    notes.extend(feedback.without_annotations.clone());
    notes.extend(
        feedback.left_out.iter().map(|(revision, why)| format!("revision {revision} is left out: {why}")),
    );
    notes.extend(plan.children.differing.as_ref().map(ToString::to_string));
    for (id, skip) in &plan.children.skips {
        let why = match skip {
            Skip::Unchanged => continue,
            Skip::OnDelete => {
                "differs from what the hook wants, and its updateStrategy OnDelete leaves it as it is: another method (InPlace, Recreate) would write it"
            }
            Skip::BeingDeleted => "is being deleted",
            Skip::LeftOut => "was not shown to the hook",
            Skip::Held => "is named in another version, or without its namespace",
            Skip::Flapping => "is changed back again and again",
        };
        notes.push(format!("{id} {why}"));
    }
}
