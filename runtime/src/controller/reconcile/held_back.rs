//! Warning about a parent that its own writes hold back, and the place that each of them changes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use metahook_core::children::Op;
use metahook_core::children::plan::{first_change, first_difference};
use metahook_core::decorator::status;
use metahook_core::object::Object;
use metahook_core::object::id::Key;
use metahook_core::pacing::self_triggered::Pace;
use metahook_core::reconcile::outcome::{Changed, Failure, RetryState};
use metahook_core::reconcile::plan::ReconcilePlan;
use metahook_core::shorten;

use crate::controller::reconcile::Reconciler;
use crate::sync::lock;

/// Bytes of a path that are remembered.
const MAX_PATH: usize = 200;

/// Operations of a plan that are compared with what they change.
const MAX_COMPARED: usize = 3;

const RATIONED: &str = "The hook reads the clock, and each reconcile of this object writes something else: more than ten in a row did. From now on there is one each 10 s, until one has nothing to write or another client changes the object's spec, labels or annotations. Change the hook so that it leaves the time out of its answers, or rounds it";

const THROTTLED: &str = "What the controller writes for this object triggers one reconcile after the other, more than --self-triggered-max. From now on there is one each 10 s, until another client changes the object's spec, labels or annotations. Change the hook so that its answers settle";

/// The places that the reconciles of parents change while they are held back. Other parents have no entry.
#[derive(Default)]
pub(super) struct ChangingPlaces(Mutex<BTreeMap<Key, Places>>);

#[derive(Default)]
struct Places {
    /// The place that the last reconcile changed.
    last: Option<String>,
    /// The first place that two reconciles in a row changed. It stays, so that fields that take turns are one warning.
    named: Option<String>,
}

impl ChangingPlaces {
    /// Notes the place that a reconcile of a parent changed that is held back; gives back the one to name.
    fn note(&self, parent: &Key, place: Option<String>) -> Option<String> {
        let mut all = lock(&self.0);
        let places = all.entry(parent.clone()).or_default();
        if places.named.is_none() && place.is_some() && places.last == place {
            places.named.clone_from(&place);
        }
        places.last = place;
        places.named.clone()
    }

    /// How many parents are held back.
    pub(super) fn count(&self) -> usize {
        lock(&self.0).len()
    }

    /// To be called where the parent is not held back.
    pub(super) fn forget(&self, parent: &Key) {
        lock(&self.0).remove(parent);
    }
}

/// Whether a reconcile that writes something is followed by none at all for a while. Those that only share a rate are no sign of
/// a fault: a parent may well have a hundred children that become ready one after the other.
fn is_held_back(retry_state: RetryState) -> bool {
    matches!(retry_state.next, Pace::At(_))
}

impl Reconciler {
    /// The warning about a parent that is held back after this reconcile.
    pub(super) fn held_back(
        &self,
        parent: &Key,
        result: &Result<Changed, Failure>,
        retry_state: RetryState,
        reads_clock: bool,
        changing: Option<String>,
    ) -> Option<String> {
        let places = &self.parents.changing;
        if *result != Ok(Changed::Something) || !is_held_back(retry_state) {
            places.forget(parent);
            return None;
        }
        let message = if reads_clock { RATIONED } else { THROTTLED };
        Some(match places.note(parent, changing) {
            Some(place) => format!("{message}. What changes each time is {place}"),
            None => message.to_owned(),
        })
    }

    /// The first child and field that a plan changes, or the field of the status; `None` for a parent that is not held back.
    pub(super) fn changing(
        &self,
        parent: &Object,
        plan: &ReconcilePlan,
        retry_state: RetryState,
    ) -> Option<String> {
        if !is_held_back(retry_state) {
            return None;
        }
        let of_child = |op: &Op| {
            let op = if let Op::Probe { write, .. } = op { write } else { op };
            let (Op::Replace { id, body } | Op::Apply { id, body, .. }) = op else { return None };
            let observed = self.data.observed_child(id)?.value().ok()?;
            Some(format!("{id}: {}", shorten(&first_change(&observed, body)?, MAX_PATH)))
        };
        let mut compared = plan.children.ops.iter().take(MAX_COMPARED);
        compared.find_map(of_child).or_else(|| {
            let wanted = plan.decoration.status.as_ref()?;
            let body = status(parent, wanted.clone())?;
            let observed = parent.value().ok()?;
            let place = first_difference(observed.get("status")?, body.get("status")?)?;
            Some(format!("status.{}", shorten(&place, MAX_PATH)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::controller::reconcile::testing::Scenario;

    fn paced(next: Pace) -> RetryState {
        RetryState { next, ..RetryState::default() }
    }

    const HELD: Pace = Pace::At(Duration::from_secs(10));

    fn warning(reconciler: &Reconciler, next: Pace, result: Changed, place: &str) -> Option<String> {
        let changing = (!place.is_empty()).then(|| place.to_owned());
        reconciler.held_back(&Key::new("n", "p"), &Ok(result), paced(next), false, changing)
    }

    #[tokio::test]
    async fn a_parent_whose_children_become_ready_one_after_the_other_gets_no_warning() {
        let reconciler = Scenario::new(Some(200)).reconciler;
        for _ in 0..100 {
            let shown = warning(&reconciler, Pace::Throttled, Changed::Something, "status.ready");
            assert_eq!(shown, None);
        }
        assert_eq!(reconciler.parents.throttled(), 0, "nothing is kept for it");
    }

    #[tokio::test]
    async fn a_place_is_named_once_two_reconciles_in_a_row_change_it_and_stays_named() {
        let reconciler = Scenario::new(Some(200)).reconciler;
        let named = |place: &str| {
            let shown = warning(&reconciler, HELD, Changed::Something, place).unwrap();
            shown.split_once(" each time is ").map(|(_, place)| place.to_owned())
        };
        assert_eq!(["a", "b", "a", ""].map(named), [const { None }; 4], "they take turns");
        assert_eq!(["b", "b"].map(named), [None, Some("b".to_owned())]);
        assert_eq!(reconciler.parents.throttled(), 1);
        assert_eq!(["a", "a", "b", ""].map(named), [const { "b" }; 4].map(|place| Some(place.to_owned())));
        for (pace, result) in [(HELD, Changed::Nothing), (Pace::Throttled, Changed::Something)] {
            assert_eq!(warning(&reconciler, pace, result, "b"), None);
            assert_eq!(reconciler.parents.throttled(), 0);
            assert_eq!(["b", "b"].map(named), [None, Some("b".to_owned())], "it begins anew");
        }
    }
}
