//! Details of children in traces: only users who may get these children see more than their names.

use std::collections::HashMap;

use metahook_core::trace::{ReconcileTrace, TracedObject};

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
        let mut hidden = HashMap::new();
        for reach in trace.detailed().filter(|object| !is_reviewed(object)).map(TracedObject::reach) {
            if !hidden.contains_key(&reach)
                && let Some(why) = rights.hides(reach.clone()).await?
            {
                hidden.insert(reach, why);
            }
        }
        if !hidden.is_empty() {
            trace
                .hide_details(|object| hidden.get(&object.reach()).copied().filter(|_| !is_reviewed(object)));
        }
    }
    Ok(())
}
