//! Tests of the parents of one kind.

use std::sync::OnceLock;

use http::header::WARNING;
use http::{Method, Response};
use metahook_core::api::hook::{HookName, PerHook};
use metahook_core::api::webhook;
use metahook_core::children::Op;
use metahook_core::children::write_history::Drift;
use metahook_core::hook::DEFAULT_WEBHOOK_ANSWER;
use metahook_core::json::difference::{Change, Difference};
use metahook_core::object::id::{Gvk, Resource};
use metahook_core::reconcile::input::ReconcileInput;
use metahook_core::reconcile::plan::ReconcilePlan;
use metahook_core::reconcile::ports::{Fact, Record};
use metahook_core::reconcile::shown::LeftOut;
use metahook_core::related::Related;
use serde_json::json;

use super::histories::{FlappingChild, MAX_NAMED};
use super::*;
use crate::controller::reconcile::testing::{
    COMPOSITE, Scenario, body, children, id, object, parents, response,
};
use crate::hook::Hook;
use crate::hook::web::{Pools, RedirectPolicy, Webhook};
use crate::memory::Reservation;
use crate::telemetry::metrics::Metrics;

fn drift(name: &str) -> Drift {
    let resource =
        Resource { gvk: Gvk::new("v1", "Pod"), plural: "pods".into(), namespaced: true, has_status: true };
    Drift {
        id: ObjectId { resource: Arc::new(resource), key: Key::new("n", name) },
        uid: Uid::new(name),
        values: vec![Difference {
            path: "spec.x".to_owned(),
            wanted: json!(1),
            found: json!(2),
            change: Change::Value,
        }],
    }
}

#[test]
fn flapping_children_are_counted_without_a_walk() {
    let histories = WriteHistories::default();
    let correct = |parent: &Key, second| {
        let now = Duration::from_secs(second);
        histories.drift_corrected(parent, &drift(&parent.name), now);
    };
    let parents = 20_000;
    (0..parents).for_each(|number| correct(&Key::new("n", &number.to_string()), 0));
    // A walk over all of them each time would take 400 million steps, and minutes.
    (0..parents).for_each(|_| assert_eq!(histories.flapping(Duration::ZERO), (0, None)));
    let (one, two) = (Key::new("n", "1"), Key::new("n", "2"));
    (1..9).for_each(|second| [&one, &two].into_iter().for_each(|parent| correct(parent, second)));
    let flapping = |count, name| {
        let (id, paths, by) = (drift(name).id, vec!["spec.x".to_owned()], "kubectl".to_owned());
        (count, Some(FlappingChild { id, paths, by }))
    };
    for parent in [&one, &two] {
        histories.note_managers(parent, &drift(&parent.name).id, "kubectl".to_owned());
    }
    let now = Duration::from_secs(8);
    assert_eq!(histories.flapping(now), flapping(2, "1"));
    histories.forget(&one);
    assert_eq!(histories.flapping(now), flapping(1, "2"));
    histories.forget(&two);
    assert_eq!(histories.flapping(now), (0, None));
}

/// The value of a child flaps, which is corrected last at this second.
fn flap(histories: &WriteHistories, parent: &Key, child: &str, last: u64) {
    for second in last - 8..=last {
        histories.drift_corrected(parent, &drift(child), Duration::from_secs(second));
    }
}

#[test]
fn a_child_is_shown_with_the_client_that_changes_it() {
    let (histories, parent) = (WriteHistories::default(), Key::new("n", "p"));
    let note = |child: &str, by: &str| histories.note_managers(&parent, &drift(child).id, by.to_owned());
    let by = || histories.flapping(Duration::from_secs(8)).1.map(|child| child.by);
    for child in ["a", "b"] {
        flap(&histories, &parent, child, 8);
    }
    assert_eq!(by(), Some(String::new()));
    note("b", "helm");
    assert_eq!(by(), Some(String::new()), "helm changes the other child");
    note("a", "kubectl");
    note("b", "argocd");
    assert_eq!(by().as_deref(), Some("kubectl"), "the other child has its own client");
    note("a", "");
    assert_eq!(by().as_deref(), Some("kubectl"), "what was known stays");
    note("a", "kubectl-edit");
    assert_eq!(by().as_deref(), Some("kubectl-edit"));
}

#[test]
fn so_many_children_of_a_parent_keep_their_clients() {
    let (histories, parent) = (WriteHistories::default(), Key::new("n", "p"));
    let names: Vec<_> = (0..=MAX_NAMED).map(|nth| format!("{nth:03}")).collect();
    (8..).zip(&names).for_each(|(last, name)| flap(&histories, &parent, name, last));
    for name in names.iter().rev() {
        histories.note_managers(&parent, &drift(name).id, format!("client-{name}"));
    }
    // After nine corrections a child flaps for 140 s, so that one after the other is the first.
    let shown = (147..).zip(&names).map(|(second, _)| {
        let first = histories.flapping(Duration::from_secs(second)).1.unwrap();
        (first.id.key.name.to_string(), first.by)
    });
    let expected = names.iter().enumerate().map(|(nth, name)| {
        let by = if nth < MAX_NAMED { format!("client-{name}") } else { String::new() };
        (name.clone(), by)
    });
    assert_eq!(shown.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn children_that_stay_as_they_are_stop_flapping_without_a_reconcile() {
    let (histories, parent) = (WriteHistories::default(), Key::new("n", "p"));
    (0..9).for_each(|second| {
        histories.drift_corrected(&parent, &drift("p"), Duration::from_secs(second));
    });
    let at = |minutes: u64| histories.flapping(Duration::from_mins(minutes)).0;
    assert_eq!([at(1), at(7), at(30)], [1, 0, 0]);
    histories.drift_corrected(&parent, &drift("p"), Duration::from_mins(8));
    assert_eq!(histories.flapping(Duration::from_mins(8)).0, 1, "it goes on");
}

/// Hooks that are loaded: the scenario's have no module.
fn loaded_hooks() -> FollowedHooks {
    let spec: webhook::Webhook = serde_json::from_value(json!({ "url": "http://hook.example/" })).unwrap();
    let target = spec.check("spec.hooks.sync.webhook").unwrap();
    let pools = Pools::new(DEFAULT_WEBHOOK_ANSWER, RedirectPolicy::default());
    let meter = Metrics::new(|| 0).webhook("CompositeController", "c", HookName::Sync, &target.url);
    let sync = Hook::Webhook(Arc::new(Webhook::alone(&target, &pools, meter).unwrap()));
    FollowedHooks::new(PerHook { sync, finalize: None, customize: None }, Fingerprint::of(b"spec"))
}

#[tokio::test(start_paused = true)]
async fn a_warning_counts_for_the_version_of_the_hooks_that_wrote() {
    // Set: they are renewed while the API server answers a write.
    let renewed = Arc::new(OnceLock::<Arc<FollowedHooks>>::new());
    let hooks = Arc::clone(&renewed);
    let scenario = Scenario::answering(COMPOSITE, move |method, path| {
        if let Some(hooks) = hooks.get().filter(|_| *method == Method::PUT) {
            hooks.take(&loaded_hooks());
        }
        let answer: Response<String> = response(method, path, Some(200))?;
        let (mut head, body) = answer.into_parts();
        head.headers.insert(WARNING, "299 - \"unknown field\"".parse().ok()?);
        Some(Response::from_parts(head, body))
    });
    scenario.observe(&parents());
    scenario.observe(&children());
    let replace = Op::Replace { id: id(children()), body: body(&children(), "1") };
    let warned = async || {
        scenario.write(&replace).await;
        scenario.reconciler.parents.warned().0
    };
    assert_eq!(warned().await, 1);
    assert!(renewed.set(Arc::clone(&scenario.reconciler.hooks.followed)).is_ok());
    assert_eq!(warned().await, 0, "the new version has written nothing yet");
    assert_eq!(warned().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_plan_ends_warnings_about_objects_that_are_neither_there_nor_wanted() {
    let scenario = Scenario::answering(COMPOSITE, move |method, path| {
        let (mut head, body) = response(method, path, Some(200))?.into_parts();
        head.headers.insert(WARNING, "299 - \"unknown field\"".parse().ok()?);
        Some(Response::from_parts(head, body))
    });
    scenario.observe(&parents());
    scenario.observe(&children());
    let child = id(children());
    scenario.write(&Op::Replace { id: child.clone(), body: body(&children(), "1") }).await;
    let input = ReconcileInput {
        parent: Arc::new(object(&parents())),
        hook: HookName::Sync,
        hooks: Fingerprint::of(b"hooks"),
        related: Related::default(),
        selector: None,
        claims: Vec::new(),
        left_out: LeftOut::default(),
        rollout: None,
        older_decorators: None,
    };
    let memory = Reservation::default();
    let warned_after = |plan: ReconcilePlan| {
        let planned = Fact::Planned { input: &input, plan: &plan, customized: &[] };
        scenario.world(&memory).record(&input.parent, planned);
        scenario.reconciler.parents.warned().0
    };
    let wanted = [(child.resource, [(child.key, json!({}))].into())].into();
    assert_eq!(warned_after(ReconcilePlan { desired: wanted, ..ReconcilePlan::default() }), 1);
    assert_eq!(warned_after(ReconcilePlan::default()), 0);
}
