//! Names and numbers of related objects in traces: only users who may list these objects see them.

use metahook_core::trace::{ReconcileTrace, TracedStep};

use super::guard::{Guard, Refusal, User};
use super::reach_rights::{Need, ReachRights};

/// Leaves the names and numbers of related objects out that the user may not list: a user may be let write the names in a parent,
/// and learn so which objects there are.
pub(super) async fn hide(
    guard: &Guard,
    user: &User,
    reconciles: &mut [ReconcileTrace],
) -> Result<(), Refusal> {
    let mut rights = ReachRights::new(guard, user, Need::List);
    for trace in reconciles {
        if let Some(object) = &trace.related_cause
            && let Some(why) = rights.hides(object.reach()).await?
        {
            trace.hide_cause(why);
        }
        if let Some(settled) = &mut trace.settled
            && let Some(object) = &settled.related_cause
            && let Some(why) = rights.hides(object.reach()).await?
        {
            settled.hide_cause(why);
        }
        for reach in trace.related_failure.clone() {
            if let Some(why) = rights.hides(reach).await? {
                trace.hide_end(why);
                break;
            }
        }
        for step in &mut trace.steps {
            hide_in_step(&mut rights, step).await?;
        }
    }
    Ok(())
}

async fn hide_in_step(rights: &mut ReachRights<'_>, step: &mut TracedStep) -> Result<(), Refusal> {
    for rule in step.rules() {
        if let Some(why) = rights.hides(rule.reach()).await? {
            rule.hide(why);
        }
    }
    step.recount();
    if let Some(deleted) = step.deleted_related()
        && let Some(object) = deleted
        && rights.hides(object.reach()).await?.is_some()
    {
        *deleted = None;
    }
    Ok(())
}
