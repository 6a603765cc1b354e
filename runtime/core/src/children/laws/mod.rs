//! Laws of planning: whatever the API server makes of values, a plan of random children ends with nothing to do.

mod server;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::api::ControllerKind;
use crate::api::common::UpdateMethod;
use crate::children::desired::{Apply, ChildKind, Desired};
use crate::children::plan::{children, learn, read_late};
use crate::children::write_history::{PastWrites, WriteHistory};
use crate::children::{Op, Owner};
use crate::json::difference::same;
use crate::object::id::{Key, ObjectId, Resource};
use crate::object::testing::{a, any_json, resource};
use crate::object::{ChildMap, Object};
use server::{Habit, Server, Stored, parse};

fn thing() -> Arc<Resource> {
    resource("v1", "Thing")
}

fn parent() -> Arc<Object> {
    a("e/v1", "P", "n/p").uid("p").object()
}

fn owner<'a>(parent: &'a Object, child_kinds: &'a [ChildKind]) -> Owner<'a> {
    Owner { parent, kind: ControllerKind::Composite, controller: "c", child_kinds, hash_secrets: false }
}

fn wanted(things: &[(String, Value)]) -> Desired {
    let mut desired = Desired::new();
    for (name, spec) in things {
        let thing_value = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name, "namespace": "n"}, "spec": spec});
        desired.entry(thing()).or_default().insert(Key::new("n", name), thing_value);
    }
    desired
}

/// The desired children, each with the fields that the API server added to it.
fn echoed(server: &Server, things: &[(String, Value)]) -> Desired {
    let mut desired = wanted(things);
    for (key, body) in desired.get_mut(&thing()).into_iter().flatten() {
        if let Some(Stored { value, .. }) = server.objects.get(key) {
            for field in ["uid", "resourceVersion", "generation"] {
                body["metadata"][field] = value["metadata"][field].clone();
            }
            body["status"] = json!({"version": value["metadata"]["resourceVersion"]});
        }
    }
    desired
}

/// One controller's strategy, in words that a failing case prints.
#[derive(Debug, Clone, Copy)]
struct Way {
    method: UpdateMethod,
    server_side: bool,
}

impl Way {
    fn rules(self) -> Vec<ChildKind> {
        let apply = if self.server_side { Apply::ServerSide("me".into()) } else { Apply::Dynamic };
        vec![ChildKind { apply, ..ChildKind::new(thing(), self.method) }]
    }
}

fn ways() -> impl Strategy<Value = Way> {
    let method =
        prop_oneof![Just(UpdateMethod::OnDelete), Just(UpdateMethod::Recreate), Just(UpdateMethod::InPlace)];
    (method, any::<bool>()).prop_map(|(method, server_side)| Way { method, server_side })
}

fn habits() -> impl Strategy<Value = Habit> {
    prop_oneof![
        Just(Habit::Keeps),
        Just(Habit::DropsEmpty),
        Just(Habit::Respells),
        Just(Habit::Sorts),
        Just(Habit::Adds),
        Just(Habit::RespellsForGood),
    ]
}

fn things() -> impl Strategy<Value = Vec<(String, Value)>> {
    let spec = prop::collection::btree_map("[a-b]", any_json(), 0..3)
        .prop_map(|members| Value::Object(members.into_iter().collect()));
    prop::collection::btree_map("[a-c]", spec, 0..3).prop_map(|things| things.into_iter().collect())
}

/// A spec with a list of items that differ by their names.
fn named_list() -> impl Strategy<Value = Value> {
    let names = prop::sample::subsequence(vec!["a", "b", "c", "d"], 0..=4).prop_shuffle();
    names.prop_map(|names| json!({"l": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()}))
}

/// Plans and carries out until nothing is to be done, at most so often; gives back how many operations wrote.
fn settle(
    server: &mut Server,
    desired: &Desired,
    way: Way,
    history: &mut WriteHistory,
    passes: usize,
) -> Result<usize, TestCaseError> {
    let (parent, rules) = (parent(), way.rules());
    let owner = owner(&parent, &rules);
    let mut written = 0;
    for _ in 0..passes {
        history.resolve_pending(read_late(history, owner, &server.observed()));
        let plan = children(owner, &server.observed(), desired, PastWrites { history, now: Duration::ZERO });
        prop_assert!(plan.problems.is_empty());
        for op in plan.ops {
            written += usize::from(server.carry_out(op, desired, owner, history));
        }
    }
    let plan = children(owner, &server.observed(), desired, PastWrites { history, now: Duration::ZERO });
    prop_assert_eq!(plan.ops, Vec::<Op>::new());
    Ok(written)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// An answer shows the same whether it is read when it comes or when another client has changed the child.
    #[test]
    fn learning_late_is_learning_at_once(
        first in things(), second in things(), same in any::<bool>(), theirs in any_json(), way in ways(), habit in habits(),
    ) {
        let (mut server, mut late, mut at_once) = (Server::new(habit), WriteHistory::default(), WriteHistory::default());
        let (parent, rules, sent) = (parent(), way.rules(), wanted(&first));
        let owner = owner(&parent, &rules);
        settle(&mut server, &sent, way, &mut late, 1)?;
        for (key, stored) in &mut server.objects {
            let id = ObjectId { resource: thing(), key: key.clone() };
            learn(&mut at_once, owner, &id, &sent[&thing()][key], &parse(&stored.value));
            stored.value["spec"]["theirs"] = theirs.clone();
            stored.value["metadata"]["resourceVersion"] = json!("1000");
            stored.value["metadata"]["generation"] = json!(2);
        }
        let (desired, observed) = (if same { sent } else { wanted(&second) }, server.observed());
        let plan = |history: &WriteHistory| children(owner, &observed, &desired, PastWrites { history, now: Duration::ZERO });
        let expected = plan(&at_once);
        prop_assert_eq!(&plan(&late), &expected);
        let outcomes = read_late(&late, owner, &observed);
        prop_assert_eq!(outcomes.len(), if way.server_side { 0 } else { server.objects.len() });
        late.resolve_pending(outcomes);
        prop_assert!(read_late(&late, owner, &observed).is_empty());
        prop_assert_eq!(&plan(&late), &expected);
    }

    /// In one reconcile, and in two where dynamic apply's fields are handed over first.
    #[test]
    fn planning_again_ends_in_nothing_to_do(
        first in things(), second in things(), was in ways(), way in ways(), habit in habits(),
    ) {
        prop_assume!(habit != Habit::RespellsForGood || way.method != UpdateMethod::InPlace);
        prop_assume!(habit != Habit::RespellsForGood || was.method != UpdateMethod::InPlace);
        // After a change to server-side apply and a restart, the owner of a list's items is not known: what cannot be changed for the
        // sake of one is refused, with an Event, and not made anew.
        prop_assume!(habit != Habit::RespellsForGood || was.server_side || !way.server_side);
        let (mut server, mut history) = (Server::new(habit), WriteHistory::default());
        settle(&mut server, &wanted(&first), was, &mut history, 1)?;
        history = WriteHistory::default();
        settle(&mut server, &wanted(&second), way, &mut history, 2)?;
    }

    /// Whatever was there before, and whichever items another client added.
    #[test]
    fn items_of_an_answer_end_in_its_order(
        first in named_list(), second in named_list(), theirs in 0..5_usize, way in ways(),
    ) {
        prop_assume!(way.method != UpdateMethod::OnDelete);
        let (mut server, mut history) = (Server::new(Habit::Keeps), WriteHistory::default());
        let one = |spec: &Value| wanted(&[("a".to_owned(), spec.clone())]);
        settle(&mut server, &one(&first), way, &mut history, 1)?;
        for stored in server.objects.values_mut() {
            let items = stored.value["spec"]["l"].as_array_mut().unwrap();
            items.insert(theirs.min(items.len()), json!({"name": "theirs"}));
            stored.value["metadata"]["resourceVersion"] = json!("1000");
            stored.value["metadata"]["generation"] = json!(2);
        }
        settle(&mut server, &one(&second), way, &mut history, 2)?;
        for stored in server.objects.values() {
            let items = stored.value["spec"]["l"].as_array().unwrap().iter();
            let ours: Vec<_> = items.filter(|item| item["name"] != "theirs").collect();
            prop_assert_eq!(json!({ "l": ours }), second.clone());
        }
    }

    /// A restart finds what was written: nothing is made anew, whatever is forgotten and whichever strategy comes next.
    #[test]
    fn a_restart_and_another_strategy_make_nothing_anew(
        all in things(), was in ways(), way in ways(), habit in habits(),
    ) {
        let (mut server, desired) = (Server::new(habit), wanted(&all));
        settle(&mut server, &desired, was, &mut WriteHistory::default(), 1)?;
        let before = server.objects.clone();
        // What cannot be changed afterwards can be handed over, but not respelled once more.
        prop_assume!(habit != Habit::RespellsForGood || !way.server_side && !was.server_side);
        settle(&mut server, &desired, way, &mut WriteHistory::default(), 2)?;
        for (key, stored) in &server.objects {
            let before = &before[key].value;
            prop_assert_eq!(&stored.value["metadata"]["uid"], &before["metadata"]["uid"]);
            prop_assert!(same(&stored.value["spec"], &before["spec"]));
        }
    }

    #[test]
    fn a_restart_writes_each_child_at_most_once(all in things(), way in ways(), habit in habits()) {
        prop_assume!(habit != Habit::RespellsForGood || !way.server_side);
        let (mut server, desired) = (Server::new(habit), wanted(&all));
        settle(&mut server, &desired, way, &mut WriteHistory::default(), 1)?;
        let wrote = settle(&mut server, &desired, way, &mut WriteHistory::default(), 2)?;
        prop_assert!(wrote <= all.len());
        if way.method != UpdateMethod::InPlace {
            prop_assert_eq!(wrote, 0, "dry runs are enough");
        }
    }

    /// Fields that a hook copies from its children change with each write of them.
    #[test]
    fn a_hook_that_answers_with_the_children_it_sees_comes_to_rest(
        all in things(), way in ways(), habit in habits(),
    ) {
        let (mut server, mut history) = (Server::new(habit), WriteHistory::default());
        settle(&mut server, &wanted(&all), way, &mut history, 1)?;
        let before = server.counter;
        for _ in 0..3 {
            let desired = echoed(&server, &all);
            settle(&mut server, &desired, way, &mut history, 1)?;
        }
        prop_assert_eq!(server.counter, before);
    }

    #[test]
    fn no_operation_names_a_stranger(observed in things(), desired in things(), way in ways()) {
        let mut server = Server::new(Habit::Keeps);
        settle(&mut server, &wanted(&observed), way, &mut WriteHistory::default(), 1)?;
        let (parent, rules) = (parent(), way.rules());
        let owner = Owner { parent: &parent, kind: ControllerKind::Composite, controller: "c", child_kinds: &rules, hash_secrets: false };
        let plan = children(owner, &server.observed(), &wanted(&desired), PastWrites { history: &WriteHistory::default(), now: Duration::ZERO });
        for op in &plan.ops {
            let name = &*op.id().key.name;
            prop_assert!(observed.iter().chain(&desired).any(|(known, _)| known == name));
        }
    }

    #[test]
    fn the_order_of_what_is_observed_and_wanted_changes_nothing(
        observed in things(), desired in things(), way in ways(), habit in habits(),
    ) {
        let mut server = Server::new(habit);
        settle(&mut server, &wanted(&observed), way, &mut WriteHistory::default(), 1)?;
        let (parent, rules) = (parent(), way.rules());
        let owner = Owner { parent: &parent, kind: ControllerKind::Composite, controller: "c", child_kinds: &rules, hash_secrets: false };
        let mut turned = ChildMap::default();
        let history = WriteHistory::default();
        for stored in server.objects.values().rev() {
            turned.insert(&thing(), Arc::new(parse(&stored.value)));
        }
        let last_first: Vec<_> = desired.iter().rev().cloned().collect();
        let plan = |observed: &ChildMap, desired: &[(String, Value)]| {
            children(owner, observed, &wanted(desired), PastWrites { history: &history, now: Duration::ZERO })
        };
        prop_assert_eq!(plan(&server.observed(), &desired), plan(&turned, &last_first));
    }
}
