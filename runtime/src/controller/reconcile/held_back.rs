//! Warning about parents whose reconciles change the same place again and again: see [`ChangingPlace`].

use std::collections::BTreeMap;
use std::sync::Mutex;

use metahook_core::api::reason::EventReason;
use metahook_core::object::Object;
use metahook_core::object::id::Key;
use metahook_core::reconcile::changing_place::{
    ChangingPlace, Unsettled, Warnings, changed_place, is_watched,
};
use metahook_core::reconcile::outcome::{Changed, Failure, RetryState};
use metahook_core::reconcile::plan::ReconcilePlan;

use crate::controller::reconcile::Reconciler;
use crate::sync::lock;

/// The places that the reconciles of watched parents change. Other parents have no entry.
#[derive(Default)]
pub(super) struct ChangingPlaces(Mutex<BTreeMap<Key, ChangingPlace>>);

impl ChangingPlaces {
    /// How many parents are held back.
    pub(super) fn held_back(&self) -> usize {
        lock(&self.0).values().filter(|place| place.is_held_back()).count()
    }

    /// Adds the parents that do not settle.
    pub(super) fn add_to(&self, unsettled: &mut Unsettled) {
        for (parent, place) in lock(&self.0).iter() {
            unsettled.add(parent, place);
        }
    }

    /// The first parents that are held back, and why.
    pub(super) fn throttled(&self, max: usize) -> Vec<(Key, String)> {
        let all = lock(&self.0);
        let throttled = all.iter().filter(|(_, place)| place.is_held_back());
        throttled.take(max).filter_map(|(parent, place)| Some((parent.clone(), place.why()?))).collect()
    }

    /// To be called where the parent is not watched.
    pub(super) fn forget(&self, parent: &Key) {
        lock(&self.0).remove(parent);
    }
}

impl Reconciler {
    /// Says after a reconcile whether its parent is held back, and which field never settles.
    pub(super) fn record_changing(
        &self,
        parent: &Object,
        result: &Result<Changed, Failure>,
        retry_state: RetryState,
        reads_clock: bool,
        changing: Option<String>,
    ) -> Warnings {
        let places = &self.parents.changing;
        let warnings = match result {
            Ok(Changed::Something) if is_watched(retry_state) => {
                let mut all = lock(&places.0);
                all.entry(parent.key.clone()).or_default().wrote(changing, retry_state, reads_clock)
            }
            Ok(_) => {
                places.forget(&parent.key);
                Warnings::default()
            }
            // The queue throttles it as before.
            Err(_) => Warnings::default(),
        };
        self.parents.record_new(parent, EventReason::Throttled, warnings.throttled.clone());
        self.parents.record_new(parent, EventReason::ChangesEachTime, warnings.unsettled.clone());
        warnings
    }

    /// The place that a plan changes, of a parent that is watched.
    pub(super) fn changing(
        &self,
        parent: &Object,
        plan: &ReconcilePlan,
        retry_state: RetryState,
    ) -> Option<String> {
        let observed = |id: &_| self.data.observed_child(id)?.value().ok();
        is_watched(retry_state).then(|| changed_place(parent, plan, retry_state, observed)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metahook_core::pacing::self_triggered::Pace;

    use super::*;
    use crate::controller::reconcile::testing::{Scenario, object, parents};

    #[tokio::test]
    async fn only_parents_that_are_held_back_are_counted_as_such() {
        let reconciler = Scenario::new(Some(200)).reconciler;
        let parent = object(&parents());
        let held = RetryState { next: Pace::At(Duration::from_secs(10)), ..RetryState::default() };
        let watched = RetryState { in_a_row: 20, next: Pace::Throttled, ..RetryState::default() };
        let count = |result: Changed, retry_state| {
            reconciler.record_changing(&parent, &Ok(result), retry_state, false, Some("status.a".to_owned()));
            reconciler.parents.throttled()
        };
        assert_eq!(count(Changed::Something, watched), 0);
        assert_eq!(count(Changed::Something, held), 1);
        assert_eq!(count(Changed::Nothing, held), 0);
        assert!(lock(&reconciler.parents.changing.0).is_empty(), "nothing is kept for it");
    }
}
