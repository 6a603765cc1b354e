//! Notes on a plan: what the server would record as Events, and what it leaves as it is.

use metahook_core::api::hook::HookName;
use metahook_core::children::Skip;
use metahook_core::reconcile::plan::ReconcilePlan;

/// Notes what the server records, and what it leaves as it is.
pub(super) fn note(hook: HookName, plan: &ReconcilePlan, notes: &mut Vec<String>) {
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
    if let Some(delay) = plan.resync_after {
        notes.push(format!("the parent is reconciled again after {}s", delay.as_secs_f64()));
    }
}
