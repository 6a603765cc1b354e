//! Rollouts that have waited for the same child for long.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::reason::ConditionReason;
use crate::api::status::Finding;
use crate::counted;
use crate::object::id::{Key, ObjectId};
use crate::rollout::step::Progress;

/// A rollout that waits for one child for longer needs attention: most Pods are ready, or fail, within it.
const LONG_WAIT: Duration = Duration::from_mins(5);

/// The parents whose rollouts wait. Others have no entry.
#[derive(Debug, Default)]
pub struct WaitingRollouts(BTreeMap<Key, WaitingRollout>);

#[derive(Debug)]
struct WaitingRollout {
    child: ObjectId,
    /// Reason why the child is not ready.
    why: String,
    since: Duration,
}

impl WaitingRollouts {
    /// To be called after each plan, and with `None` where the parent is gone.
    pub fn note(&mut self, parent: &Key, progress: Option<&Progress>, now: Duration) {
        let Some(Progress::Waits(child, not_ready)) = progress else {
            self.0.remove(parent);
            return;
        };
        let before = self.0.get(parent).filter(|before| before.child == *child);
        let since = before.map_or(now, |before| before.since);
        let waiting = WaitingRollout { child: child.clone(), why: not_ready.to_string(), since };
        self.0.insert(parent.clone(), waiting);
    }

    /// The number of rollouts that have waited for long, and the first of them.
    pub fn long(&self, now: Duration) -> (usize, Option<String>) {
        let is_long = |(_, it): &(&Key, &WaitingRollout)| now.saturating_sub(it.since) >= LONG_WAIT;
        let mut long = self.0.iter().filter(is_long);
        let first = long.next().map(|(parent, it)| format!("{parent} waits for {}: {}", it.child, it.why));
        (usize::from(first.is_some()) + long.count(), first)
    }
}

/// Finding of the condition `RolloutsProceed`, about so many rollouts.
pub fn finding(rollouts: usize, first: &str) -> Finding {
    let many = counted(rollouts, "rollout has", "rollouts have");
    let one = if rollouts > 1 { "; the first, of " } else { ": that of " };
    let minutes = LONG_WAIT.as_secs() / 60;
    let message = format!("{many} waited for a child for more than {minutes} minutes{one}{first}");
    Finding::new(ConditionReason::RolloutWaits, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::resource;
    use crate::rollout::NotReady;

    #[test]
    fn a_rollout_that_waits_for_the_same_child_is_counted_after_a_while() {
        let mut all = WaitingRollouts::default();
        let parent = Key::new("n", "p");
        let waits = |name: &str, not_ready| {
            Progress::Waits(ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", name) }, not_ready)
        };
        let at = Duration::from_mins;
        all.note(&parent, Some(&waits("a", NotReady::Missing)), at(0));
        assert_eq!(all.long(at(4)), (0, None));
        all.note(&parent, Some(&waits("a", NotReady::NoCondition("Ready".to_owned()))), at(4));
        let first = "n/p waits for Pod n/a: status.conditions has no Ready";
        assert_eq!(all.long(at(5)), (1, Some(first.to_owned())), "another lack of the same child");
        all.note(&parent, Some(&waits("b", NotReady::Missing)), at(5));
        assert_eq!(all.long(at(9)), (0, None), "another child");
        all.note(&parent, Some(&Progress::Done), at(9));
        assert_eq!(all.long(at(90)), (0, None));
        assert!(all.0.is_empty());
    }

    #[test]
    fn one_rollout_and_many_are_told_apart() {
        let message = |rollouts| match finding(rollouts, "n/p waits for Pod n/a: it is not there") {
            Finding::Known { message, .. } => message,
            Finding::Unknown => panic!("unknown"),
        };
        let one = "1 rollout has waited for a child for more than 5 minutes: that of n/p waits for Pod n/a: it is not there";
        assert_eq!(message(1), one);
        assert!(message(2).starts_with(
            "2 rollouts have waited for a child for more than 5 minutes; the first, of n/p waits"
        ));
    }
}
