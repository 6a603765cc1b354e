//! Settling changes nothing: whatever happens in whatever order, reconciles that end where nothing changed bring the cluster
//! to the same state as reconciles that ask the hook each time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test: a broken model ends it")]

mod deed;
mod model;
mod reconciles;
mod server;
mod world;

use std::time::Duration;

use deed::{Deed, WatchOf};
use metahook_core::api::common::UpdateMethod;
use metahook_core::children::deletion_brake::Census;
use metahook_core::hash::Fingerprint;
use metahook_core::settled::Purity;
use proptest::prelude::*;
use server::{Saving, Server};

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let parent = 0..3_u8;
    let watch = prop::sample::select(vec![
        WatchOf::Parents,
        WatchOf::Children,
        WatchOf::Settings,
        WatchOf::Revisions,
    ]);
    let deed = prop_oneof![
        3 => (parent.clone(), 0..4_u8).prop_map(|(parent, children)| Deed::Parent { parent, children }),
        1 => parent.clone().prop_map(Deed::NoParent),
        2 => (parent.clone(), 0..4_u8, 0..3_u8).prop_map(|(parent, child, data)| Deed::Edit { parent, child, data }),
        1 => (parent.clone(), 0..4_u8).prop_map(|(parent, child)| Deed::Unlabel { parent, child }),
        1 => (parent.clone(), 0..4_u8).prop_map(|(parent, child)| Deed::Bare { parent, child }),
        1 => Just(Deed::Relist),
        2 => (parent.clone(), 0..4_u8).prop_map(|(parent, child)| Deed::NoChild { parent, child }),
        1 => parent.clone().prop_map(Deed::NoRevisions),
        1 => (parent.clone(), 0..4_u8).prop_map(|(parent, child)| Deed::Orphan { parent, child }),
        2 => (parent.clone(), any::<bool>()).prop_map(|(parent, paused)| Deed::Pause { parent, paused }),
        1 => (0..3_u8).prop_map(Deed::Module),
        2 => (0..4_u8, prop::option::weighted(0.8, parent.clone()), 0..3_u8)
            .prop_map(|(setting, parent, data)| Deed::Setting { setting, parent, data }),
        3 => (watch, 1..4_u8).prop_map(|(of, events)| Deed::Deliver { of, events }),
        4 => parent.prop_map(Deed::Reconcile),
        4 => Just(Deed::Work),
    ];
    prop::collection::vec(deed, 0..40)
}

fn methods() -> impl Strategy<Value = UpdateMethod> {
    use UpdateMethod::{InPlace, OnDelete, Recreate, RollingInPlace, RollingRecreate};
    prop::sample::select(vec![OnDelete, Recreate, InPlace, RollingInPlace, RollingRecreate])
}

fn ends_in(saving: Saving, method: UpdateMethod, deeds: &[Deed]) -> Server {
    after(Server::new(saving, method), deeds)
}

fn after(mut server: Server, deeds: &[Deed]) -> Server {
    for deed in deeds {
        server.does(*deed);
    }
    server.settle_all();
    server
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn reconciles_with_settling_end_where_those_without_do(deeds in deeds(), method in methods()) {
        let (with, without) =
            (ends_in(Saving::Settling, method, &deeds), ends_in(Saving::Nothing, method, &deeds));
        prop_assert_eq!(&with.cluster.objects, &without.cluster.objects);
        prop_assert!(with.calls <= without.calls);
    }

    /// An object that is held by its metadata alone is read before it counts. A read may be ahead of the watch, so that
    /// the watch delivers its events before each reconcile.
    #[test]
    fn reconciles_over_a_cut_cache_do_what_those_over_a_whole_one_do(deeds in deeds(), method in methods()) {
        let before = |deed: &Deed| matches!(deed, Deed::Reconcile(_)).then_some(Deed::Deliver { of: WatchOf::Children, events: u8::MAX });
        let deeds: Vec<_> = deeds.into_iter().flat_map(|deed| before(&deed).into_iter().chain([deed])).collect();
        let whole = ends_in(Saving::Settling, method, &deeds);
        let cut = after(Server::new(Saving::Settling, method).cutting(), &deeds);
        prop_assert_eq!(cut.cluster.objects, whole.cluster.objects);
        prop_assert_eq!(cut.calls, whole.calls);
    }

    #[test]
    fn a_settled_parent_calls_no_hook(deeds in deeds(), method in methods()) {
        let mut server = ends_in(Saving::Settling, method, &deeds);
        let calls = server.calls;
        server.settle_all();
        let fails = !server.settled.failing().is_empty();
        prop_assert!(server.calls == calls || fails);
        prop_assert!(server.statuses_are_current() || fails);
    }
}

/// A parent with two children that settles; then a user edits one of them.
const EDITED: [Deed; 4] = [
    Deed::Parent { parent: 0, children: 2 },
    Deed::Work,
    Deed::Edit { parent: 0, child: 1, data: 1 },
    Deed::Work,
];

#[test]
fn a_fingerprint_that_forgets_the_children_would_be_noticed() {
    let (with, without) = (
        ends_in(Saving::Forgetful, UpdateMethod::InPlace, &EDITED),
        ends_in(Saving::Nothing, UpdateMethod::InPlace, &EDITED),
    );
    assert_ne!(with.cluster.objects, without.cluster.objects);
}

/// Another client takes off the annotations of a child; then the server is started anew, and its module changes.
#[test]
fn a_child_that_is_held_by_its_metadata_is_read_once() {
    let deeds = [
        Deed::Parent { parent: 0, children: 2 },
        Deed::Work,
        Deed::Bare { parent: 0, child: 1 },
        Deed::Relist,
        Deed::Work,
        Deed::Work,
    ];
    let cut = after(Server::new(Saving::Settling, UpdateMethod::OnDelete).cutting(), &deeds);
    let whole = ends_in(Saving::Settling, UpdateMethod::OnDelete, &deeds);
    assert_eq!((cut.reads, cut.calls), (1, whole.calls));
    assert_eq!(cut.cluster.objects, whole.cluster.objects);
}

#[test]
fn a_fingerprint_that_forgets_the_revisions_would_be_noticed() {
    let lost = [Deed::Parent { parent: 0, children: 2 }, Deed::Work, Deed::NoRevisions(0), Deed::Work];
    let (with, without) = (
        ends_in(Saving::Forgetful, UpdateMethod::RollingInPlace, &lost),
        ends_in(Saving::Nothing, UpdateMethod::RollingInPlace, &lost),
    );
    assert_ne!(with.cluster.objects, without.cluster.objects);
}

#[test]
fn a_reconcile_shows_its_steps_and_a_settled_one_has_none_but_reads() {
    let shown = |server: &Server| server.steps.iter().map(|step| format!("{step:?}")).collect::<Vec<_>>();
    let mut server = Server::new(Saving::Settling, UpdateMethod::InPlace);
    server.does(Deed::Parent { parent: 0, children: 1 });
    server.does(Deed::Deliver { of: WatchOf::Parents, events: 1 });
    server.does(Deed::Reconcile(0));
    let steps = shown(&server);
    let begins = [
        "Related",
        "Asked { hook: Sync, is_older: false",
        "Planned(Decisions { writes: [(\"create\"",
        "Wrote { verb: \"create\"",
        "StatusLeft(PutOff)",
    ];
    assert!(steps.iter().zip(begins).all(|(step, begin)| step.starts_with(begin)), "{steps:?}");
    assert_eq!(steps.len(), begins.len(), "{steps:?}");
    server.does(Deed::Deliver { of: WatchOf::Children, events: 1 });
    server.does(Deed::Reconcile(0));
    let steps = shown(&server);
    assert!(steps.last().is_some_and(|last| last.starts_with("Wrote { verb: \"status\"")), "{steps:?}");
    server.does(Deed::Reconcile(0));
    let steps = shown(&server);
    assert_eq!(steps.last().map(String::as_str), Some("StatusLeft(Unchanged)"), "{steps:?}");
    server.settle_all();
    server.does(Deed::Reconcile(0));
    let steps = shown(&server);
    assert!(matches!(&steps[..], [only] if only.starts_with("Related")), "{steps:?}");
}

#[test]
fn a_paused_parent_is_left_alone_and_caught_up() {
    let mut server = Server::new(Saving::Settling, UpdateMethod::InPlace);
    server.does(Deed::Parent { parent: 0, children: 2 });
    server.does(Deed::Work);
    let calls = server.calls;
    server.does(Deed::Pause { parent: 0, paused: true });
    for deed in [Deed::NoChild { parent: 0, child: 0 }, Deed::Parent { parent: 0, children: 3 }] {
        server.does(deed);
        server.does(Deed::Work);
    }
    assert_eq!((server.calls, server.settled.paused(), server.settled.settled()), (calls, 1, 0));
    let census = Census { parents: [server.parent(0)].into(), children: 2 };
    for hooks in [b"a", b"b"] {
        server.brake.version_changed(Fingerprint::of(hooks), Duration::ZERO, |_| census.clone());
    }
    server.brake.deleted(Duration::from_hours(1));
    let accepted = Fingerprint::of(b"a").to_string();
    assert_eq!(server.brake.accepted(), Some(&*accepted), "the version that the parent settled with");
    server.does(Deed::Pause { parent: 0, paused: false });
    server.does(Deed::Work);
    assert_eq!((server.settled.paused(), server.settled.settled()), (0, 1));
    assert!(server.statuses_are_current());
    assert_eq!(server.children.all().count(), 3);
}

#[test]
fn a_hook_that_gives_two_answers_is_found_out_and_called_each_time() {
    let mut server = Server::new(Saving::Checking, UpdateMethod::InPlace);
    server.does(Deed::Parent { parent: 0, children: 1 });
    server.does(Deed::Work);
    assert_eq!(server.purity(), Some(Purity::Pure), "nothing has shown yet");
    server.seed = 1;
    server.does(Deed::Reconcile(0));
    assert_eq!(server.purity(), Some(Purity::Differs));
    assert_eq!(server.status_of(0)["seed"], 1, "the other answer is carried out");
    let calls = server.calls;
    server.does(Deed::Reconcile(0));
    assert_eq!(server.calls, calls + 1);
    server.does(Deed::Module(1));
    server.settle_all();
    assert_eq!((server.purity(), server.settled.settled()), (Some(Purity::Pure), 1));
}
