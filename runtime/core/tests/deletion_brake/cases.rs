//! What one brake lets through: over changes of versions, pauses, restarts and the end of its window.

use std::time::Duration;

use metahook_core::api::policy::BrakeLimits;
use metahook_core::children::deletion_brake::{Census, DeletionBrake};
use metahook_core::object::id::{Gvr, Uid};

use crate::{id, parent, version};

const WINDOW: Duration = Duration::from_mins(10);

/// So many parents with so many children each, after a change from A to B.
fn controller(parents: usize, children: usize) -> DeletionBrake {
    let mut brake = DeletionBrake::new(BrakeLimits::default(), Some(version(b"a").to_string()), 0);
    change(&mut brake, b"b", parents, children);
    brake
}

fn change(brake: &mut DeletionBrake, to: &[u8], parents: usize, children: usize) {
    let census = |_: &BrakeLimits| Census {
        parents: (0..parents).map(parent).collect(),
        children: parents * children,
    };
    brake.version_changed(version(to), Duration::ZERO, census);
}

/// Whether a parent may delete these children.
fn deletes(brake: &mut DeletionBrake, of: usize, children: std::ops::Range<usize>, by: &[u8]) -> bool {
    deletes_at(brake, of, children, by, Duration::ZERO)
}

fn deletes_at(
    brake: &mut DeletionBrake,
    of: usize,
    children: std::ops::Range<usize>,
    by: &[u8],
    now: Duration,
) -> bool {
    let children: Vec<_> =
        children.map(|child| (id("Pod", child), Uid::new(&format!("{of} {child}")))).collect();
    let children: Vec<_> = children.iter().map(|(id, uid)| (id, uid)).collect();
    brake.let_through(&parent(of), version(by), &children, now).is_ok()
}

fn held(brake: &DeletionBrake) -> (usize, usize) {
    brake.held().map_or((0, 0), |held| (held.parents, held.children))
}

#[test]
fn the_first_version_is_accepted_and_nothing_is_counted() {
    let mut brake = DeletionBrake::new(BrakeLimits::default(), None, 0);
    brake.version_changed(version(b"a"), Duration::ZERO, |_| panic!("parents need not be counted"));
    assert_eq!(brake.accepted(), Some(&*version(b"a").to_string()));
    assert!(deletes(&mut brake, 0, 0..1000, b"a"));
}

#[test]
fn a_parent_with_ten_children_keeps_them_all() {
    let mut brake = controller(1, 10);
    assert!(!deletes(&mut brake, 0, 0..10, b"b"));
    assert_eq!((held(&brake), brake.deleted(Duration::ZERO)), ((1, 10), 0));
    let text = brake.held().unwrap().to_string();
    let (from, to) = (version(b"a"), version(b"b"));
    assert!(
        text.contains(&format!("from {from} to {to}, and now 10 of the controller's 10 children would be deleted, those of 1 parent")),
        "{text}"
    );
    assert!(text.ends_with(&format!("metahook.dev/allow-deletions: {to}")), "{text}");
    assert!(!deletes(&mut brake, 0, 0..10, b"b"), "also when it is tried again");
    assert_eq!(held(&brake), (1, 10), "and counted once");
}

#[test]
fn a_small_controller_changes_freely() {
    let mut brake = controller(3, 1);
    for parent in 0..3 {
        assert!(deletes(&mut brake, parent, 0..1, b"b"));
    }
    for of in 0..3 {
        brake.reconciled(&parent(of), version(b"b"), true, Duration::ZERO);
    }
    assert_eq!((brake.is_changed(), brake.accepted()), (true, Some(&*version(b"a").to_string())));
    assert_eq!(brake.deleted(WINDOW), 0);
    assert_eq!((brake.is_changed(), brake.accepted()), (false, Some(&*version(b"b").to_string())));
}

#[test]
fn of_a_thousand_parents_a_fifth_loses_children_and_the_others_wait() {
    let mut brake = controller(1000, 1);
    let through = (0..1000).filter(|of| deletes(&mut brake, *of, 0..1, b"b")).count();
    assert_eq!((through, held(&brake)), (200, (800, 800)));
    assert!(deletes(&mut brake, 0, 0..1, b"b"), "one that was let through counts once");
}

#[test]
fn small_deletions_do_not_pass_beside_a_large_one_that_waits() {
    let mut brake = controller(10, 10);
    assert!(!deletes(&mut brake, 0, 0..30, b"b"));
    assert!(!deletes(&mut brake, 1, 0..1, b"b"));
    assert!(deletes(&mut brake, 0, 0..0, b"b"), "its answer asks for nothing any more");
    assert!(deletes(&mut brake, 1, 0..1, b"b"));
    assert_eq!((held(&brake), brake.deleted(Duration::ZERO)), ((0, 0), 1));
}

#[test]
fn the_version_that_is_put_back_may_do_what_it_likes() {
    let mut brake = controller(1, 10);
    assert!(!deletes(&mut brake, 0, 0..10, b"b"));
    assert!(deletes(&mut brake, 0, 0..10, b"a"), "a reconcile that began before the change");
    assert!(!deletes(&mut brake, 0, 0..10, b"b"));
    change(&mut brake, b"a", 1, 10);
    assert_eq!((brake.is_changed(), brake.held()), (false, None));
    assert!(deletes(&mut brake, 0, 0..10, b"a"));
}

#[test]
fn a_user_agrees_to_one_version_only() {
    let mut brake = controller(2, 10);
    assert!(!deletes(&mut brake, 1, 0..10, b"b"));
    assert_eq!(brake.allow("another"), []);
    assert_eq!(brake.allow(&version(b"b").to_string()), [parent(1)]);
    assert!(deletes(&mut brake, 1, 0..10, b"b") && deletes(&mut brake, 0, 0..10, b"b"));
    assert_eq!(brake.accepted(), Some(&*version(b"b").to_string()));
    change(&mut brake, b"a", 2, 10);
    assert!(!deletes(&mut brake, 0, 0..10, b"a"), "the earlier version is a change by then");
}

#[test]
fn a_parent_that_settled_counts_until_the_window_ends() {
    let mut brake = controller(2, 10);
    for of in 0..2 {
        brake.reconciled(&parent(of), version(b"b"), true, Duration::ZERO);
        assert!(!deletes(&mut brake, of, 0..10, b"b"), "it answered well at first");
    }
    assert_eq!(held(&brake), (2, 20));
    brake.reconciled(&parent(0), version(b"a"), true, Duration::ZERO);
    assert_eq!(held(&brake), (2, 20), "it settled with the version before");
    assert_eq!(brake.deleted(WINDOW), 0);
    assert!(!deletes_at(&mut brake, 0, 0..10, b"b", WINDOW), "it waits however long");
    for of in 0..2 {
        brake.reconciled(&parent(of), version(b"b"), true, WINDOW);
    }
    assert!(!brake.is_changed() && deletes_at(&mut brake, 0, 0..10, b"b", WINDOW));

    let mut brake = controller(2, 10);
    brake.reconciled(&parent(0), version(b"b"), true, Duration::ZERO);
    brake.reconciled(&parent(1), version(b"b"), false, WINDOW);
    assert!(!brake.is_changed(), "a hook that never settles");
}

#[test]
fn the_window_of_a_version_that_goes_on_does_not_begin_anew() {
    let mut brake = controller(1, 10);
    let census = || Census { parents: [parent(0)].into(), children: 1000 };
    brake.version_changed(version(b"b"), Duration::from_mins(9), |_| census());
    assert!(!deletes_at(&mut brake, 0, 0..10, b"b", WINDOW), "and its children are those of the change");
    assert!(deletes_at(&mut brake, 0, 0..0, b"b", WINDOW));
    brake.reconciled(&parent(0), version(b"b"), true, WINDOW);
    assert!(!brake.is_changed());
}

#[test]
fn deletions_are_unrecorded_until_the_status_has_them() {
    let mut brake = DeletionBrake::new(BrakeLimits::default(), Some(version(b"a").to_string()), 2);
    change(&mut brake, b"b", 2, 10);
    assert_eq!(brake.unrecorded(), None);
    assert!(deletes(&mut brake, 0, 0..2, b"b"));
    assert_eq!(brake.unrecorded(), Some(4));
    brake.recorded(4);
    assert!(deletes(&mut brake, 0, 0..2, b"b") && brake.unrecorded().is_none());
    assert!(!deletes(&mut brake, 1, 0..2, b"b") && brake.unrecorded().is_none(), "what waits is not counted");
    change(&mut brake, b"a", 2, 10);
    assert_eq!(brake.deleted(WINDOW), 0);
    change(&mut brake, b"c", 2, 10);
    assert!(deletes(&mut brake, 0, 0..3, b"c"));
    assert_eq!(brake.unrecorded(), Some(3), "the status has another count since");
}

#[test]
fn parents_that_always_fail_keep_a_change_open_for_themselves_alone() {
    let mut brake = controller(3, 10);
    brake.reconciled(&parent(0), version(b"b"), true, Duration::ZERO);
    let (a, b) = (version(b"a").to_string(), version(b"b").to_string());
    assert_eq!((brake.deleted(Duration::from_mins(9)), brake.accepted()), (0, Some(&*a)));
    assert_eq!((brake.deleted(WINDOW), brake.accepted()), (0, Some(&*b)));
    assert!(deletes_at(&mut brake, 0, 0..10, b"b", WINDOW) && deletes_at(&mut brake, 7, 0..10, b"b", WINDOW));
    assert!(!deletes_at(&mut brake, 1, 0..10, b"b", WINDOW), "the first answer after a long time");
    let waiting = brake.held().unwrap();
    assert_eq!((&waiting.from, &waiting.to, waiting.children), (&a, &b, 10));
    assert_eq!(brake.changed_to().as_ref(), Some(&b), "it is named where a user may agree");
    assert_eq!(brake.allow(&b), [parent(1)]);
    assert!(!brake.is_changed() && deletes_at(&mut brake, 1, 0..10, b"b", WINDOW));

    let mut brake = controller(2, 10);
    assert_eq!(brake.deleted(WINDOW), 0);
    change(&mut brake, b"a", 2, 10);
    assert!(!deletes_at(&mut brake, 0, 0..10, b"a", WINDOW), "the earlier version is a change by then");

    let mut brake = controller(2, 10);
    assert!(!deletes(&mut brake, 0, 0..10, b"b"));
    assert_eq!((brake.deleted(WINDOW), brake.accepted()), (0, Some(&*a)), "what waits is not accepted");
}

/// The brake of a server that goes on from what this one has stored.
fn restarted(before: &mut DeletionBrake, parents: usize, children: usize) -> DeletionBrake {
    let deleted = before.deleted(WINDOW);
    let mut brake = DeletionBrake::new(BrakeLimits::default(), before.accepted().map(str::to_owned), deleted);
    change(&mut brake, b"b", parents, children);
    brake
}

#[test]
fn a_paused_parent_is_compared_with_the_version_that_it_settled_with_after_a_restart() {
    let mut brake = controller(3, 10);
    brake.pause(&parent(0));
    for of in 1..3 {
        brake.reconciled(&parent(of), version(b"b"), true, Duration::ZERO);
    }
    assert!(deletes_at(&mut brake, 1, 0..10, b"b", WINDOW), "the others go on");
    let mut brake = restarted(&mut brake, 3, 10);
    assert_eq!(brake.accepted(), Some(&*version(b"a").to_string()));
    brake.pause(&parent(0));
    assert!(!deletes_at(&mut brake, 0, 0..10, b"b", WINDOW), "its pause has ended");
    let mut brake = restarted(&mut brake, 3, 10);
    assert!(!deletes(&mut brake, 0, 0..10, b"b"), "it waits over a restart, too");
    assert!(deletes_at(&mut brake, 0, 0..0, b"b", WINDOW));
    for of in 0..3 {
        brake.reconciled(&parent(of), version(b"b"), true, Duration::ZERO);
    }
    assert_eq!((brake.deleted(WINDOW), brake.is_changed()), (0, false));
}

/// While one parent is paused, the version that the others live with is what the next change is one from.
#[test]
fn a_change_after_a_long_pause_is_one_from_the_version_in_use() {
    let change_at = |brake: &mut DeletionBrake, to: &[u8]| {
        let parents = (0..3).map(parent).collect();
        brake.version_changed(version(to), WINDOW, |_| Census { parents, children: 30 });
    };
    let mut brake = controller(3, 10);
    brake.pause(&parent(0));
    for of in 1..3 {
        brake.reconciled(&parent(of), version(b"b"), true, Duration::ZERO);
    }
    assert!(deletes_at(&mut brake, 1, 0..2, b"b", WINDOW));
    change_at(&mut brake, b"c");
    assert!(!deletes_at(&mut brake, 1, 0..10, b"c", WINDOW));
    assert_eq!(brake.held().unwrap().from, version(b"b").to_string(), "what the message says to put back");
    change_at(&mut brake, b"a");
    assert!(!deletes_at(&mut brake, 1, 0..10, b"a", WINDOW), "the others have not run a for long");
    change_at(&mut brake, b"b");
    assert!(!deletes_at(&mut brake, 0, 0..10, b"b", WINDOW), "the paused one never ran b");
    for of in 1..3 {
        brake.reconciled(&parent(of), version(b"b"), true, WINDOW);
    }
    change_at(&mut brake, b"c");
    assert!(!deletes_at(&mut brake, 1, 0..10, b"c", WINDOW));
    assert_eq!(brake.held().unwrap().from, version(b"b").to_string());
}

#[test]
fn a_paused_parent_that_goes_keeps_no_version_from_being_accepted() {
    let mut brake = controller(2, 10);
    brake.pause(&parent(0));
    brake.reconciled(&parent(1), version(b"b"), true, Duration::ZERO);
    brake.deleted(WINDOW);
    assert!(brake.is_changed());
    brake.forget(&parent(0), WINDOW);
    assert_eq!((brake.is_changed(), brake.accepted()), (false, Some(&*version(b"b").to_string())));
}

#[test]
fn a_parent_that_is_selected_only_after_the_change_counts() {
    let mut brake = controller(2, 10);
    brake.reconciled(&parent(1), version(b"b"), true, Duration::ZERO);
    brake.forget(&parent(0), Duration::ZERO);
    for of in [0, 7] {
        assert!(!deletes(&mut brake, of, 0..10, b"b"), "{of}");
        assert_eq!(held(&brake), (1, 10));
        assert!(!deletes_at(&mut brake, of, 0..10, b"b", WINDOW), "it waits however long");
        assert!(deletes(&mut brake, of, 0..0, b"b"), "its answer asks for nothing any more");
        brake.reconciled(&parent(of), version(b"b"), true, Duration::ZERO);
    }
    assert_eq!(brake.deleted(WINDOW), 0);
    assert!(!brake.is_changed() && deletes_at(&mut brake, 7, 0..10, b"b", WINDOW));
}

#[test]
fn a_parent_that_goes_leaves_nothing_behind() {
    let mut brake = controller(1, 10);
    assert!(!deletes(&mut brake, 0, 0..10, b"b"));
    brake.forget(&parent(0), Duration::ZERO);
    assert_eq!((brake.held(), brake.is_changed()), (None, false));
}

#[test]
fn deletions_of_exempt_kinds_are_not_counted() {
    let exempt = vec![Gvr::new("v2", "pods")];
    let limits = BrakeLimits { exempt, ..BrakeLimits::default() };
    let mut brake = DeletionBrake::new(limits, Some("before".to_owned()), 0);
    change(&mut brake, b"b", 1, 10);
    assert!(deletes(&mut brake, 0, 0..10, b"b"));
    assert_eq!(brake.deleted(Duration::ZERO), 0);
}

#[test]
fn deletions_that_do_not_count_are_not_among_those_that_wait() {
    let limits = BrakeLimits { exempt: vec![Gvr::new("v1", "pods")], ..BrakeLimits::default() };
    let mut brake = DeletionBrake::new(limits, Some(version(b"a").to_string()), 0);
    change(&mut brake, b"b", 1, 10);
    let children: Vec<_> = (0..20)
        .map(|nth| (id(if nth < 12 { "Job" } else { "Pod" }, nth), Uid::new(&nth.to_string())))
        .collect();
    let children: Vec<_> = children.iter().map(|(id, uid)| (id, uid)).collect();
    let mut asked = |children: &[_]| brake.let_through(&parent(0), version(b"b"), children, Duration::ZERO);
    assert_eq!(asked(&children[..2]), Ok(()), "within the threshold");
    // Two were let through, and eight are exempt.
    assert_eq!(asked(&children), Err(children[2..12].to_vec()));
    assert_eq!(held(&brake), (1, 10), "as the condition says");
}

#[test]
fn deletions_of_several_changes_and_servers_count_together_for_a_while() {
    let mut brake = DeletionBrake::new(BrakeLimits::default(), Some(version(b"a").to_string()), 4);
    change(&mut brake, b"b", 2, 5);
    assert!(deletes(&mut brake, 0, 0..1, b"b"));
    change(&mut brake, b"c", 2, 5);
    assert!(!deletes(&mut brake, 1, 0..1, b"c"));
    assert!(!deletes_at(&mut brake, 1, 0..1, b"c", WINDOW), "it waits however long");
    change(&mut brake, b"d", 2, 5);
    assert!(deletes_at(&mut brake, 1, 0..5, b"d", WINDOW), "the window is over");
}
