//! Accounts of the memory budget: cases, and the law that nobody waits for nothing.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const BUDGET: u64 = 6400;
const SMALL: u64 = 400;
const LARGE: u64 = 1600;

/// A run: what is held, and what waits with its controller.
struct Run {
    accounts: MemoryAccounts,
    held: Vec<(&'static str, u64)>,
    waiting: BTreeMap<Ticket, (&'static str, u64, InLine)>,
    /// Reservations that were admitted after they had waited.
    admitted: Vec<(&'static str, u64)>,
}

impl Run {
    fn new() -> Self {
        let accounts = MemoryAccounts::new(BUDGET);
        Self { accounts, held: Vec::new(), waiting: BTreeMap::new(), admitted: Vec::new() }
    }

    fn reserve(&mut self, controller: &'static str, bytes: u64) -> bool {
        match self.accounts.reserve(&controller.into(), bytes) {
            Ok(ReserveResult::Reserved) => self.held.push((controller, bytes)),
            Ok(ReserveResult::Waits(place)) => {
                self.waiting.insert(place.ticket, (controller, bytes, place));
                return false;
            }
            Err(TooLarge { wanted, max }) => assert!(wanted > max),
        }
        true
    }

    fn end(&mut self, which: usize) {
        let (_, bytes) = self.held.swap_remove(which);
        self.accounts.shrink(bytes, 0);
        self.admit();
    }

    fn admit(&mut self) {
        for ticket in self.accounts.admit() {
            let (controller, bytes, _) = self.waiting.remove(&ticket).unwrap();
            self.held.push((controller, bytes));
            self.admitted.push((controller, bytes));
        }
    }
}

#[test]
fn a_large_one_waits_and_small_ones_go_on_beside_it() {
    let mut run = Run::new();
    assert!((0..3).all(|_| run.reserve("hog", LARGE)));
    assert!(!run.reserve("hog", LARGE), "a quarter is kept");
    assert!((0..4).all(|_| run.reserve("small", SMALL)));
    assert!(!run.reserve("small", SMALL));
    assert_eq!(run.accounts.figures().reserved, BUDGET);
    run.end(0);
    assert_eq!(run.admitted, [("hog", LARGE)], "the quarter is all for small ones while a large one waits");
    let figures = run.accounts.figures();
    assert_eq!((figures.waits, figures.most_reserved, figures.refusals), (2, BUDGET, 0));
}

#[test]
fn small_ones_use_what_no_large_one_waits_for_and_give_it_back() {
    let mut run = Run::new();
    assert!((0..16).all(|_| run.reserve("small", SMALL)));
    assert!(!run.reserve("large", LARGE));
    for _ in 0..16 {
        if run.waiting.values().any(|(controller, ..)| *controller == "large") {
            run.end(0);
            run.reserve("small", SMALL);
        }
    }
    assert_eq!(run.admitted.first(), Some(&("large", LARGE)));
}

#[test]
fn controllers_take_turns() {
    let mut run = Run::new();
    for controller in ["hog"; 8].into_iter().chain(["one", "two"]) {
        run.reserve(controller, LARGE);
    }
    while !run.held.is_empty() {
        run.end(0);
    }
    let order: Vec<_> = run.admitted.iter().map(|(controller, _)| *controller).collect();
    assert_eq!(order, ["hog", "one", "two", "hog", "hog", "hog", "hog"]);
}

#[test]
fn growing_passes_none_that_waits() {
    let mut run = Run::new();
    assert!(run.reserve("a", SMALL) && run.accounts.grow(SMALL, LARGE));
    assert!(run.accounts.grow(LARGE, 3 * LARGE) && !run.accounts.grow(3 * LARGE, 3 * LARGE + 1));
    assert!(run.reserve("b", SMALL) && !run.reserve("c", LARGE));
    assert!(!run.accounts.grow(SMALL, SMALL + 1), "there is no room for two large ones");
    run.accounts.shrink(3 * LARGE, LARGE);
    assert!(!run.accounts.grow(SMALL, SMALL + 1), "there is, but another one waits for it");
    run.admit();
    assert!(run.accounts.grow(SMALL, SMALL + 1));
}

#[test]
fn more_than_three_quarters_are_refused() {
    let mut accounts = MemoryAccounts::new(BUDGET);
    let refused = accounts.reserve(&"a".into(), 4801);
    assert_eq!(refused, Err(TooLarge { wanted: 4801, max: 4800 }));
    assert_eq!(accounts.figures(), MemoryFigures { budget: BUDGET, refusals: 1, ..MemoryFigures::default() });
}

#[test]
fn the_usual_need_follows_the_largest_and_is_small() {
    let mut usual = UsualNeed::default();
    assert_eq!(usual.bytes(8 << 20), MIN_RESERVATION);
    usual.used(1 << 20);
    assert_eq!(usual.bytes(8 << 20), 3 << 19);
    usual.used(1 << 30);
    assert_eq!(usual.bytes(8 << 20), 8 << 20);
    (0..200).for_each(|_| usual.used(1));
    assert_eq!(usual.bytes(8 << 20), MIN_RESERVATION);
    assert_eq!(next_reservation(5, 100, 150), 150);
    assert_eq!(next_reservation(500, 100, 150), 500, "which is refused by name");
}

#[derive(Debug, Clone)]
enum Step {
    Reserve(&'static str, u64),
    Grow(usize, u64),
    Shrink(usize, u64),
    Leave(usize),
    End(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || prop_oneof![3 => 1..=SMALL, 1 => SMALL..5000];
    let controller = proptest::sample::select(vec!["a", "b", "c"]);
    let step = prop_oneof![
        4 => (controller, bytes()).prop_map(|(controller, bytes)| Step::Reserve(controller, bytes)),
        1 => (any::<usize>(), bytes()).prop_map(|(which, by)| Step::Grow(which, by)),
        1 => (any::<usize>(), bytes()).prop_map(|(which, to)| Step::Shrink(which, to)),
        1 => any::<usize>().prop_map(Step::Leave),
        3 => any::<usize>().prop_map(Step::End),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn no_more_is_held_than_there_is_and_all_that_wait_are_served(steps in steps()) {
        let mut run = Run::new();
        for step in steps {
            let count = run.held.len().max(1);
            match step {
                Step::Reserve(controller, bytes) => drop(run.reserve(controller, bytes)),
                Step::Grow(which, by) => if let Some((_, bytes)) = run.held.get_mut(which % count)
                    && run.accounts.grow(*bytes, *bytes + by)
                {
                    *bytes += by;
                }
                Step::Shrink(which, to) => if let Some((_, bytes)) = run.held.get_mut(which % count) {
                    run.accounts.shrink(*bytes, to);
                    *bytes = to.min(*bytes);
                    run.admit();
                }
                Step::Leave(which) => {
                    let waiting = run.waiting.len().max(1);
                    if let Some(ticket) = run.waiting.keys().nth(which % waiting).copied() {
                        let (.., place) = run.waiting.remove(&ticket).unwrap();
                        prop_assert!(run.accounts.leave(place) && !run.accounts.leave(place));
                        run.admit();
                    }
                }
                Step::End(which) => if !run.held.is_empty() { run.end(which % count) },
            }
            let held = |large: bool| run.held.iter().filter(|(_, bytes)| (*bytes > SMALL) == large).map(|(_, bytes)| bytes).sum::<u64>();
            prop_assert_eq!(run.accounts.figures().reserved, held(true) + held(false));
            prop_assert!(held(true) + held(false) <= BUDGET && held(true) <= BUDGET / 4 * 3);
            let waits = |large: bool| run.waiting.values().any(|(_, bytes, _)| (*bytes > SMALL) == large);
            prop_assert!(!waits(true) || held(true) > 0 || held(false) > BUDGET / 4);
            prop_assert!(!waits(false) || held(false) + SMALL > BUDGET / 4, "a small one waits, and its quarter is free");
        }
        while !run.held.is_empty() {
            run.end(0);
        }
        prop_assert!(run.waiting.is_empty(), "some wait for nothing");
        prop_assert_eq!(run.accounts.figures().reserved, 0);
    }
}
