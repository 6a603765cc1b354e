//! In whatever order parents are reconciled, settle and go, and servers crash, the threshold holds.

use std::collections::BTreeSet;
use std::time::Duration;

use metahook_core::api::policy::BrakeLimits;
use metahook_core::children::deletion_brake::{Census, DeletionBrake};
use metahook_core::object::id::Uid;
use proptest::prelude::*;

use crate::{id, parent, version};

const PARENTS: usize = 20;

#[derive(Debug, Clone)]
enum Deed {
    /// A reconcile of a parent asks for the deletion of so many children.
    Reconcile {
        parent: usize,
        children: usize,
    },
    Settle(usize),
    Gone(usize),
    /// Another server goes on from what the status says.
    Restart,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        12 => (0..PARENTS, 0..10_usize).prop_map(|(parent, children)| Deed::Reconcile { parent, children }),
        2 => (0..PARENTS).prop_map(Deed::Settle),
        2 => (0..PARENTS).prop_map(Deed::Gone),
        1 => Just(Deed::Restart),
    ];
    prop::collection::vec(deed, 0..120)
}

/// The brake after a change from A to B.
fn changed(parents: &BTreeSet<usize>, managed: usize, deleted: usize) -> DeletionBrake {
    let mut brake = DeletionBrake::new(BrakeLimits::default(), Some(version(b"a").to_string()), deleted);
    let parents = parents.iter().map(|parent| id("Parent", *parent)).collect();
    brake.version_changed(version(b"b"), Duration::ZERO, |_: &BrakeLimits| Census {
        parents,
        children: managed,
    });
    brake
}

/// The children that the brake lets a parent delete.
fn deleted(brake: &mut DeletionBrake, of: usize, children: usize) -> Option<Vec<(usize, usize)>> {
    let all: Vec<_> =
        (0..children).map(|child| (id("Pod", child), Uid::new(&format!("{of} {child}")))).collect();
    let asked: Vec<_> = all.iter().map(|(id, uid)| (id, uid)).collect();
    let through = brake.let_through(&id("Parent", of), version(b"b"), &asked, Duration::ZERO).is_ok();
    through.then(|| (0..children).map(|child| (of, child)).collect())
}

proptest! {
    #[test]
    fn no_order_of_reconciles_deletes_more_than_the_threshold(deeds in deeds(), managed in 0..200_usize) {
        let (mut pending, mut settled): (BTreeSet<_>, _) = ((0..PARENTS).collect(), BTreeSet::new());
        let mut brake = changed(&pending, managed, 0);
        let mut gone = BTreeSet::new();
        for deed in deeds {
            match deed {
                Deed::Reconcile { parent, children } => {
                    let counts = brake.is_changed();
                    let through = deleted(&mut brake, parent, children);
                    prop_assert!(counts || through.is_some());
                    gone.extend(through.filter(|_| counts).unwrap_or_default());
                }
                Deed::Settle(of) => {
                    brake.reconciled(&id("Parent", of), version(b"b"), true, Duration::ZERO);
                    pending.remove(&of);
                    settled.insert(of);
                }
                Deed::Gone(of) => {
                    brake.forget(&id("Parent", of), Duration::ZERO);
                    pending.remove(&of);
                    settled.remove(&of);
                }
                Deed::Restart if brake.is_changed() => {
                    let deleted = brake.deleted(Duration::ZERO);
                    pending.append(&mut settled);
                    brake = changed(&pending, managed, deleted);
                }
                Deed::Restart => {}
            }
            prop_assert!(brake.is_changed() || (pending.is_empty() && brake.held().is_none()));
            prop_assert!(brake.held().is_none_or(|held| held.parents <= PARENTS && held.children > 0));
        }
        prop_assert!(gone.len() <= 5.max(managed / 5), "{} of {managed}", gone.len());
        // Whatever waits goes on once a user agrees.
        brake.allow(&version(b"b").to_string());
        prop_assert!((0..PARENTS).all(|parent| deleted(&mut brake, parent, 10).is_some()));
    }
}

/// A server that crashes before a write of the status, after it, or after some of the deletions of a reconcile.
#[derive(Debug, Clone, Copy)]
enum Crash {
    BeforeTheStatus,
    After(usize),
}

#[derive(Debug, Clone)]
enum Step {
    /// A reconcile of a parent: it asks for the deletion of all of its children from a number on.
    Reconcile {
        of: usize,
        keeps: usize,
        crash: Option<Crash>,
    },
    Settle(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let crash = prop_oneof![
        1 => Just(Some(Crash::BeforeTheStatus)),
        2 => (0..4_usize).prop_map(|after| Some(Crash::After(after))),
        1 => Just(None),
    ];
    let reconcile =
        (0..PARENTS, 0..4_usize, crash).prop_map(|(of, keeps, crash)| Step::Reconcile { of, keeps, crash });
    let step = prop_oneof![6 => reconcile, 1 => (0..PARENTS).prop_map(Step::Settle)];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn no_order_of_crashes_deletes_more_than_the_threshold(steps in steps(), children in 1..6_usize) {
        let managed = PARENTS * children;
        let start = |alive: &BTreeSet<(usize, usize)>, status: usize| {
            let mut brake = DeletionBrake::new(BrakeLimits::default(), Some(version(b"a").to_string()), status);
            let parents = (0..PARENTS).map(parent).collect();
            brake.version_changed(version(b"b"), Duration::ZERO, |_| Census { parents, children: alive.len() });
            brake
        };
        let mut alive: BTreeSet<_> =
            (0..PARENTS).flat_map(|of| (0..children).map(move |child| (of, child))).collect();
        let mut status = 0;
        let mut brake = start(&alive, status);
        for step in steps {
            let (of, keeps, crash) = match step {
                Step::Settle(of) => {
                    brake.reconciled(&parent(of), version(b"b"), true, Duration::ZERO);
                    continue;
                }
                Step::Reconcile { of, keeps, crash } => (of, keeps, crash),
            };
            let unwanted: Vec<_> = alive.range((of, keeps)..(of + 1, 0)).copied().collect();
            let asked: Vec<_> =
                unwanted.iter().map(|(of, child)| (id("Pod", *child), Uid::new(&format!("{of} {child}")))).collect();
            let asked: Vec<_> = asked.iter().map(|(id, uid)| (id, uid)).collect();
            if brake.let_through(&parent(of), version(b"b"), &asked, Duration::ZERO).is_ok() {
                let mut deletes = unwanted.len();
                match (crash, brake.unrecorded()) {
                    (Some(Crash::BeforeTheStatus), _) => deletes = 0,
                    (_, Some(count)) => {
                        status = count;
                        brake.recorded(count);
                    }
                    (_, None) => {}
                }
                if let Some(Crash::After(after)) = crash {
                    deletes = deletes.min(after);
                }
                for child in &unwanted[..deletes] {
                    alive.remove(child);
                }
            }
            if crash.is_some() {
                brake = start(&alive, status);
            }
        }
        let gone = managed - alive.len();
        prop_assert!(gone <= 5.max(managed / 5), "{gone} of {managed}");
    }
}
