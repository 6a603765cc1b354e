//! What traces tell of related objects: their names and numbers are for users who may list them.

use metahook_core::trace::{ReconcileTrace, TracedObject, TracedStep};

use super::guard::{Guard, Refusal, User};

/// Kinds and namespaces of related objects that are reviewed for one answer.
const MAX_REVIEWS: usize = 20;

/// Leaves the names and numbers of related objects out that the user may not list: a user may be let write the names in a parent,
/// and learn so which objects there are.
pub(super) async fn hide(
    guard: &Guard,
    user: &User,
    reconciles: &mut [ReconcileTrace],
) -> Result<(), Refusal> {
    let mut reviewed = Reviewed { guard, user, answers: Vec::new() };
    for trace in reconciles {
        if let Some(object) = &trace.related_cause
            && !reviewed.may_list(object.reach()).await?
        {
            trace.hide_cause();
        }
        if let Some(settled) = &mut trace.settled
            && let Some(object) = &settled.related_cause
            && !reviewed.may_list(object.reach()).await?
        {
            settled.hide_cause();
        }
        for reach in trace.related_failure.clone() {
            if !reviewed.may_list(reach).await? {
                trace.hide_end();
            }
        }
        for step in &mut trace.steps {
            hide_in_step(&mut reviewed, step).await?;
        }
    }
    Ok(())
}

async fn hide_in_step(reviewed: &mut Reviewed<'_>, step: &mut TracedStep) -> Result<(), Refusal> {
    for rule in step.rules() {
        if !reviewed.may_list(rule.reach()).await? {
            rule.hide();
        }
    }
    step.recount();
    if let Some(deleted) = step.deleted_related()
        && let Some(object) = deleted
        && !reviewed.may_list(object.reach()).await?
    {
        *deleted = None;
    }
    Ok(())
}

/// Which related objects a user may list. Each kind and namespace is reviewed once, and where there are too many, the rest is
/// taken for forbidden.
struct Reviewed<'a> {
    guard: &'a Guard,
    user: &'a User,
    answers: Vec<(TracedObject, bool)>,
}

impl Reviewed<'_> {
    async fn may_list(&mut self, reach: TracedObject) -> Result<bool, Refusal> {
        if let Some((_, may)) = self.answers.iter().find(|(known, _)| known.is(&reach)) {
            return Ok(*may);
        }
        if self.answers.len() >= MAX_REVIEWS {
            return Ok(false);
        }
        let may = match self.guard.may_list(self.user, &reach).await {
            Ok(()) => true,
            Err(Refusal::Forbidden { .. }) => false,
            Err(refusal) => return Err(refusal),
        };
        self.answers.push((reach, may));
        Ok(may)
    }
}
