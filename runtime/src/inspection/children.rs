//! Details of children in traces: only users who may get these children see more than their names.

use metahook_core::trace::{Hidden, ReconcileTrace, TracedObject};

use super::guard::{Guard, Refusal, User};
use super::reach_rights::{Need, ReachRights};

/// Leaves out what traces say of children that the user may not get. `asked`: the object that the request names. The user may
/// get it, and all parents of the traces.
pub(super) async fn hide(
    guard: &Guard,
    user: &User,
    asked: &TracedObject,
    reconciles: &mut [ReconcileTrace],
) -> Result<(), Refusal> {
    let mut rights = ReachRights::new(guard, user, Need::Get);
    for trace in reconciles {
        let parent = trace.parent.clone();
        let is_reviewed = |object: &TracedObject| object.is(asked) || object.is(&parent);
        for step in &mut trace.steps {
            let mut hidden: Vec<(TracedObject, Hidden)> = Vec::new();
            let detailed = step.detailed().into_iter().filter(|object| !is_reviewed(object));
            for reach in detailed.map(TracedObject::reach).collect::<Vec<_>>() {
                if hidden.iter().all(|(other, _)| !other.is(&reach))
                    && let Some(why) = rights.hides(reach.clone()).await?
                {
                    hidden.push((reach, why));
                }
            }
            step.hide_details(|object| {
                let why = |(reach, why): &(TracedObject, Hidden)| reach.is(&object.reach()).then_some(*why);
                hidden.iter().find_map(why).filter(|_| !is_reviewed(object))
            });
        }
    }
    Ok(())
}
