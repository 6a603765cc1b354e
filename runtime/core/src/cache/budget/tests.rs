//! Which store gives way, and when it is listed again: cases, and laws over any order of changes.

use proptest::prelude::*;

use super::*;

const MI: u64 = 1 << 20;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Accounts with a budget of 100 MiB.
struct Bounded(CacheAccounts<&'static str>);

impl Bounded {
    fn new() -> Self {
        Self(CacheAccounts::new(Some(100 * MI)))
    }

    fn open(&mut self, place: &'static str) -> StoreId {
        self.0.open(place, false, at(0))
    }

    /// A store whose list is complete.
    fn listed(&mut self, place: &'static str, mib: u64) -> StoreId {
        let id = self.open(place);
        assert!(self.holds(id, mib).is_empty());
        self.0.listed(id, at(0));
        id
    }

    fn holds(&mut self, id: StoreId, mib: u64) -> Vec<StoreId> {
        self.0.change(id, mib * MI, at(0))
    }
}

#[test]
fn nothing_gives_way_at_the_budget_and_the_largest_does_above_it() {
    let mut all = Bounded::new();
    let (small, large) = (all.listed("small", 40), all.listed("large", 60));
    assert_eq!(all.0.too_large(large), None);
    assert_eq!(all.0.change(small, 40 * MI + 1, at(0)), [large]);
    assert!(all.0.is_leaving(large) && !all.0.is_leaving(small));
    let too_large = all.0.too_large(large).unwrap();
    assert_eq!(too_large, TooLarge { bytes: 60 * MI, budget: 100 * MI });
    assert!(
        too_large.to_string().starts_with(
            "60Mi of its objects were in memory when all caches exceeded 100Mi (--cache-budget): "
        ),
        "{too_large}"
    );
    assert_eq!(all.0.too_large(small), None);
    assert!(all.holds(small, 100).is_empty(), "what gives way no longer counts");
}

#[test]
fn a_list_that_is_not_complete_counts_twice() {
    let mut all = Bounded::new();
    let works = all.listed("works", 60);
    let begins = all.open("begins");
    assert!(all.holds(begins, 40).is_empty());
    assert_eq!(all.holds(begins, 41), [begins], "more of it is to come");
    all.0.emptied(begins);
    let small = all.open("small");
    assert!(all.holds(works, 90).is_empty());
    assert_eq!(all.holds(small, 11), [works], "a small one is not held off by a large one");
}

#[test]
fn a_store_that_is_listed_again_gives_way_before_smaller_ones() {
    let mut all = Bounded::new();
    let (one, other) = (all.open("one"), all.listed("other", 10));
    assert_eq!(all.holds(one, 91), [one]);
    all.0.emptied(one);
    assert!(all.holds(other, 80).is_empty());
    assert!(all.0.too_large(one).is_some(), "while it is listed again, too");
    assert_eq!(all.holds(one, 21), [one]);
    all.0.emptied(one);
    assert!(all.holds(one, 20).is_empty());
    all.0.listed(one, at(0));
    assert_eq!(all.0.too_large(one), None);
    assert_eq!(all.holds(one, 21), [other], "it is known to be small now");
}

#[test]
fn a_store_that_must_stay_counts_and_never_gives_way() {
    let mut all = Bounded::new();
    let stays = all.0.open("controllers", true, at(0));
    let other = all.listed("other", 10);
    assert_eq!(all.holds(stays, 95), [other]);
    assert!(all.holds(stays, 200).is_empty());
}

#[test]
fn several_give_way_where_one_is_not_enough() {
    let mut all = Bounded::new();
    let (one, two, three) = (all.listed("1", 40), all.listed("2", 30), all.0.open("3", true, at(0)));
    assert_eq!(all.holds(three, 80), [one, two]);
}

#[test]
fn a_store_is_listed_again_after_a_delay_that_doubles_up_to_ten_minutes() {
    let mut all = Bounded::new();
    let id = all.open("large");
    let mut now = at(0);
    for expected in [5, 10, 20, 40, 80, 160, 320, 600, 600] {
        assert!(all.0.may_list(id, now));
        assert_eq!(all.0.change(id, 101 * MI, now), [id]);
        all.0.emptied(id);
        assert!(!all.0.may_list(id, now + at(expected - 1)), "{expected}");
        now += at(expected);
    }
}

#[test]
fn the_delay_begins_anew_where_a_store_has_fitted_for_ten_minutes() {
    for (fitted, delay) in [(599, 10), (600, 5)] {
        let mut all = Bounded::new();
        let (other, id) = (all.listed("other", 45), all.listed("large", 55));
        assert_eq!(all.holds(other, 46), [id]);
        all.0.emptied(id);
        assert!(all.holds(other, 45).is_empty() && all.holds(id, 55).is_empty());
        all.0.listed(id, at(0));
        assert_eq!(all.0.change(other, 46 * MI, at(fitted)), [id]);
        assert!(!all.0.may_list(id, at(fitted + delay - 1)) && all.0.may_list(id, at(fitted + delay)));
    }
}

#[test]
fn an_estimate_that_fits_shortens_the_delay() {
    let mut all = Bounded::new();
    let (other, id) = (all.listed("other", 45), all.listed("large", 55));
    for _ in 0..3 {
        assert_eq!(all.holds(other, 46), [id]);
        all.0.emptied(id);
        assert!(all.holds(other, 20).is_empty() && all.holds(id, 55).is_empty());
        all.0.listed(id, at(0));
    }
    assert_eq!(all.holds(other, 46), [id]);
    assert!(!all.0.may_list(id, at(5)), "55 MiB are still in memory");
    all.0.emptied(id);
    assert!(!all.0.may_list(id, at(39)), "101 MiB do not fit");
    all.holds(other, 45);
    assert!(!all.0.may_list(id, at(4)) && all.0.may_list(id, at(5)));
}

#[test]
fn what_gave_way_is_remembered_for_a_while_after_its_last_store() {
    let mut all = Bounded::new();
    let id = all.open("large");
    all.holds(id, 101);
    all.0.close(id, at(0));
    let next = all.0.open("large", false, at(1));
    assert!(!all.0.may_list(next, at(1)), "a controller that starts anew");
    all.0.close(next, at(1));
    let late = all.0.open("large", false, at(1200));
    assert!(all.0.gave_way.is_empty() && all.0.may_list(late, at(1200)));
}

#[test]
fn without_a_budget_nothing_gives_way() {
    let mut all = CacheAccounts::new(None);
    let id = all.open("large", false, at(0));
    assert!(all.change(id, u64::MAX, at(0)).is_empty());
}

proptest! {
    /// Stores come, grow, shrink, are listed, give way and go in any order.
    #[test]
    fn what_stays_fits_and_what_is_gone_counts_no_more(
        steps in proptest::collection::vec((0_u8..4, 0_u8..6, 0_u64..60), 1..80),
    ) {
        let mut all = CacheAccounts::new(Some(100));
        let mut open = Vec::new();
        for (step, (what, which, bytes)) in steps.into_iter().enumerate() {
            let now = at(step as u64);
            let nth = usize::from(which) % open.len().max(1);
            match (what, open.get(nth).copied()) {
                (0, _) | (_, None) => open.push(all.open(which, false, now)),
                (1, Some(id)) => drop(all.change(id, bytes, now)),
                (2, Some(id)) => all.listed(id, now),
                (_, Some(id)) if all.is_leaving(id) && bytes > 30 => all.emptied(id),
                (_, Some(id)) => {
                    all.close(id, now);
                    open.remove(nth);
                }
            }
            let sum = |leaving| -> u64 {
                let those = all.stores.values().filter(|store| store.is_leaving == leaving);
                those.map(|store| store.bytes).sum()
            };
            prop_assert_eq!((all.held, all.leaving), (sum(false), sum(true)));
            prop_assert!(all.held <= 100);
            let leaving = all.stores.iter().filter(|(_, store)| store.is_leaving);
            for (id, _) in leaving {
                prop_assert!(all.too_large(*id).is_some());
            }
        }
        for id in open {
            all.close(id, at(100));
        }
        prop_assert_eq!((all.held, all.leaving, all.stores.len()), (0, 0, 0));
        let places: Vec<_> = all.gave_way.keys().copied().collect();
        for place in places {
            let id = all.open(place, false, at(100));
            prop_assert!(all.may_list(id, at(100) + MAX_RETRY_DELAY), "it is tried again");
        }
    }
}
