//! Names and numbers of related objects in traces: only users who may list these objects see them.

use std::sync::Arc;

use metahook_core::trace::{Hidden, ReconcileTrace, TracedObject, TracedStep};

use super::guard::{Guard, Refusal, User};

/// Kinds and namespaces of related objects that are reviewed for one answer.
pub(super) const MAX_REVIEWS: usize = 20;

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
            && let Some(why) = reviewed.hides(object.reach()).await?
        {
            trace.hide_cause(why);
        }
        if let Some(settled) = &mut trace.settled
            && let Some(object) = &settled.related_cause
            && let Some(why) = reviewed.hides(object.reach()).await?
        {
            settled.hide_cause(why);
        }
        for reach in trace.related_failure.clone() {
            if let Some(why) = reviewed.hides(reach).await? {
                trace.hide_end(why);
                break;
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
        if let Some(why) = reviewed.hides(rule.reach()).await? {
            rule.hide(why);
        }
    }
    step.recount();
    if let Some(deleted) = step.deleted_related()
        && let Some(object) = deleted
        && reviewed.hides(object.reach()).await?.is_some()
    {
        *deleted = None;
    }
    Ok(())
}

/// Which related objects a user may list. Each kind is reviewed in all namespaces first: who may list it there may list it in each.
/// The others are reviewed by namespace, each once.
struct Reviewed<'a> {
    guard: &'a Guard,
    user: &'a User,
    answers: Vec<(TracedObject, bool)>,
}

impl Reviewed<'_> {
    /// Why objects of a kind and namespace are hidden; `None`: the user may list them.
    async fn hides(&mut self, reach: TracedObject) -> Result<Option<Hidden>, Refusal> {
        let everywhere = TracedObject { namespace: Arc::default(), ..reach.clone() };
        let mut hidden = Hidden::Unreviewed;
        for one in [everywhere, reach] {
            hidden = match self.may_list(one).await? {
                Some(true) => return Ok(None),
                Some(false) => Hidden::Forbidden,
                None => Hidden::Unreviewed,
            };
        }
        Ok(Some(hidden))
    }

    /// `None`: there were too many reviews before.
    async fn may_list(&mut self, reach: TracedObject) -> Result<Option<bool>, Refusal> {
        if let Some((_, may)) = self.answers.iter().find(|(known, _)| known.is(&reach)) {
            return Ok(Some(*may));
        }
        if self.answers.len() >= MAX_REVIEWS {
            return Ok(None);
        }
        let may = match self.guard.may_list(self.user, &reach).await {
            Ok(()) => true,
            Err(Refusal::Forbidden { .. }) => false,
            Err(refusal) => return Err(refusal),
        };
        self.answers.push((reach, may));
        Ok(Some(may))
    }
}
