//! Laws of planning: whatever is there, whatever is wanted, and whatever the API server makes of it, it comes to rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::api::ControllerKind;
use crate::api::common::UpdateMethod;
use crate::children::desired::{Apply, ChildKind, Desired};
use crate::children::plan::{DryRunResult, DryRunVerdict, children, judge, learn, read_late, wrote};
use crate::children::write_history::{PastWrites, WriteHistory};
use crate::children::{Op, Owner, last_applied};
use crate::json::merge::merge;
use crate::json::same::same;
use crate::object::Object;
use crate::object::id::{Key, ObjectId, Resource};
use crate::object::map::ChildMap;
use crate::object::testing::{a, any_json, resource};

/// What an API server does with what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    Keeps,
    /// Nulls, and empty texts, lists and objects are no fields.
    DropsEmpty,
    /// Numbers become text, as quantities do.
    Respells,
    /// Each list gets an item, as an admission plugin adds tolerations; each object a member.
    Adds,
    /// Only when it is made; and what is not metadata cannot be changed later.
    RespellsForGood,
}

/// A store that normalises.
struct Server {
    habit: Habit,
    objects: BTreeMap<Key, Stored>,
    counter: u64,
}

#[derive(Clone)]
struct Stored {
    value: Value,
    /// What server-side apply has been given.
    applied: Value,
}

#[derive(Debug)]
struct Refused;

impl Server {
    fn new(habit: Habit) -> Self {
        Self { habit, objects: BTreeMap::new(), counter: 0 }
    }

    fn observed(&self) -> ChildMap {
        let mut all = ChildMap::default();
        all.declare(&thing());
        for stored in self.objects.values() {
            all.insert(&thing(), Arc::new(parse(&stored.value)));
        }
        all
    }

    fn habit(&self, value: &mut Value) {
        match self.habit {
            Habit::Keeps => {}
            Habit::DropsEmpty => drop_empty(value),
            Habit::Respells | Habit::RespellsForGood => respell(value),
            Habit::Adds => add(value),
        }
    }

    /// The object after a write of it, which is not carried out yet.
    fn becomes(&self, before: Option<&Stored>, mut value: Value) -> Result<Value, Refused> {
        let fixed = self.habit == Habit::RespellsForGood;
        match before {
            Some(_) if fixed => {}
            Some(_) | None => value.get_mut("spec").map_or((), |spec| self.habit(spec)),
        }
        let metadata = value["metadata"].as_object_mut().unwrap();
        metadata.retain(|_, value| !value.is_null());
        let Some(Stored { value: before, .. }) = before else {
            metadata.insert("uid".to_owned(), json!((self.counter + 1).to_string()));
            metadata.insert("generation".to_owned(), json!(1));
            return Ok(value);
        };
        for field in ["uid", "generation"] {
            metadata.insert(field.to_owned(), before["metadata"][field].clone());
        }
        if !same(&value["spec"], &before["spec"]) {
            if fixed {
                return Err(Refused);
            }
            value["metadata"]["generation"] = json!(before["metadata"]["generation"].as_i64().unwrap() + 1);
        }
        Ok(value)
    }

    fn put(&mut self, key: &Key, mut value: Value, applied: Value) -> Object {
        self.counter += 1;
        value["metadata"]["resourceVersion"] = json!(self.counter.to_string());
        self.objects.insert(key.clone(), Stored { value: value.clone(), applied });
        parse(&value)
    }

    /// What a write makes of an object; server-side apply takes away what it was given and is not given any longer.
    fn written(&self, op: &Op) -> Result<(Value, Value), Refused> {
        let before = self.objects.get(&op.id().key);
        match op {
            Op::Create { body, .. } | Op::Recreate { body, manager: None, .. } => {
                Ok((self.becomes(None, body.clone())?, json!({})))
            }
            Op::Apply { over: None, body, .. } | Op::Recreate { body, manager: Some(_), .. } => {
                Ok((self.becomes(None, body.clone())?, body.clone()))
            }
            Op::Replace { body, .. } => {
                let before = before.unwrap();
                Ok((self.becomes(Some(before), body.clone())?, before.applied.clone()))
            }
            Op::Apply { over: Some(_), body, .. } => {
                let before = before.unwrap();
                let merged = merge(&before.value, Some(&before.applied), body, None);
                Ok((self.becomes(Some(before), merged)?, body.clone()))
            }
            Op::HandOver { .. } => {
                let before = before.unwrap();
                let text = last_applied::annotation(&before.value, last_applied::LAST_APPLIED).unwrap();
                let applied = serde_json::from_str(text).unwrap();
                let mut value = before.value.clone();
                value["metadata"]["annotations"].as_object_mut().unwrap().remove(last_applied::LAST_APPLIED);
                Ok((value, applied))
            }
            Op::Probe { .. } | Op::Delete { .. } | Op::Status { .. } => unreachable!("no write of an object"),
        }
    }

    /// `false` where a dry run was all that was needed.
    fn carry_out(&mut self, op: Op, desired: &Desired, owner: Owner<'_>, ledger: &mut WriteHistory) -> bool {
        let id = op.id().clone();
        let wanted = || &desired[&thing()][&id.key];
        match op {
            Op::Delete { id, .. } => drop(self.objects.remove(&id.key)),
            Op::Probe { write, otherwise } => {
                let observed = parse(&self.objects[&id.key].value);
                let probed = match self.written(&write) {
                    Ok((value, _)) => DryRunResult::Becomes(Box::new(parse(&value))),
                    Err(Refused) => DryRunResult::Refused,
                };
                match judge((*write, *otherwise), &observed, &probed, ledger).unwrap() {
                    DryRunVerdict::Do(op) => return self.carry_out(op, desired, owner, ledger),
                    DryRunVerdict::AsItIs => {}
                    DryRunVerdict::Unknown => return false,
                }
                learn(ledger, owner, &id, wanted(), &observed);
                return false;
            }
            op => match self.written(&op) {
                Ok((value, applied)) => {
                    let answer = self.put(&id.key, value, applied);
                    if !matches!(op, Op::HandOver { .. }) {
                        wrote(ledger, owner, &op, wanted(), &answer.into());
                    }
                }
                Err(Refused) => assert!(!matches!(op, Op::Recreate { .. })),
            },
        }
        true
    }
}

fn parse(value: &Value) -> Object {
    Object::parse(&value.to_string(), None).unwrap()
}

fn drop_empty(value: &mut Value) {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(drop_empty);
            members.retain(|_, member| !empty(member));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

fn respell(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(respell),
        Value::Array(items) => items.iter_mut().for_each(respell),
        Value::Number(number) => *value = json!(number.to_string()),
        _ => {}
    }
}

fn add(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(add);
            members.insert("added".to_owned(), json!(true));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(add);
            if !items.contains(&json!("added")) {
                items.push(json!("added"));
            }
        }
        _ => {}
    }
}

fn thing() -> Arc<Resource> {
    resource("v1", "Thing")
}

fn parent() -> Arc<Object> {
    a("e/v1", "P", "n/p").uid("p").object()
}

fn owner<'a>(parent: &'a Object, rules: &'a [ChildKind]) -> Owner<'a> {
    Owner { parent, kind: ControllerKind::Composite, controller: "c", rules, hash_secrets: false }
}

fn wanted(things: &[(String, Value)]) -> Desired {
    let mut desired = Desired::new();
    for (name, spec) in things {
        let thing_value = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name, "namespace": "n"}, "spec": spec});
        desired.entry(thing()).or_default().insert(Key::new("n", name), thing_value);
    }
    desired
}

/// The same, with what the API server says about each.
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
        Just(Habit::Adds),
        Just(Habit::RespellsForGood),
    ]
}

fn things() -> impl Strategy<Value = Vec<(String, Value)>> {
    let spec = prop::collection::btree_map("[a-b]", any_json(), 0..3)
        .prop_map(|members| Value::Object(members.into_iter().collect()));
    prop::collection::btree_map("[a-c]", spec, 0..3).prop_map(|things| things.into_iter().collect())
}

/// Plans and carries out until nothing is to be done, at most so often; gives back how many operations wrote.
fn settle(
    server: &mut Server,
    desired: &Desired,
    way: Way,
    ledger: &mut WriteHistory,
    passes: usize,
) -> Result<usize, TestCaseError> {
    let (parent, rules) = (parent(), way.rules());
    let owner = owner(&parent, &rules);
    let mut written = 0;
    for _ in 0..passes {
        ledger.read(read_late(ledger, owner, &server.observed()));
        let plan = children(owner, &server.observed(), desired, PastWrites { ledger, now: Duration::ZERO });
        prop_assert!(plan.problems.is_empty());
        for op in plan.ops {
            written += usize::from(server.carry_out(op, desired, owner, ledger));
        }
    }
    let plan = children(owner, &server.observed(), desired, PastWrites { ledger, now: Duration::ZERO });
    prop_assert_eq!(plan.ops, Vec::<Op>::new());
    Ok(written)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// What an answer shows is the same whether it is looked at when it comes or when somebody has changed the child.
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
        let plan = |ledger: &WriteHistory| children(owner, &observed, &desired, PastWrites { ledger, now: Duration::ZERO });
        let expected = plan(&at_once);
        prop_assert_eq!(&plan(&late), &expected);
        let lessons = read_late(&late, owner, &observed);
        prop_assert_eq!(lessons.len(), if way.server_side { 0 } else { server.objects.len() });
        late.read(lessons);
        prop_assert!(read_late(&late, owner, &observed).is_empty());
        prop_assert_eq!(&plan(&late), &expected);
    }

    /// In one pass, and in two where dynamic apply's fields are handed over first.
    #[test]
    fn planning_again_ends_in_nothing_to_do(
        first in things(), second in things(), was in ways(), way in ways(), habit in habits(),
    ) {
        prop_assume!(habit != Habit::RespellsForGood || way.method != UpdateMethod::InPlace);
        prop_assume!(habit != Habit::RespellsForGood || was.method != UpdateMethod::InPlace);
        let (mut server, mut ledger) = (Server::new(habit), WriteHistory::default());
        settle(&mut server, &wanted(&first), was, &mut ledger, 1)?;
        ledger = WriteHistory::default();
        settle(&mut server, &wanted(&second), way, &mut ledger, 2)?;
    }

    /// What was written is found again: nothing is made anew, whatever is forgotten and whichever strategy comes next.
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

    /// What a hook copies from its children changes with each write of them.
    #[test]
    fn a_hook_that_answers_with_the_children_it_sees_comes_to_rest(
        all in things(), way in ways(), habit in habits(),
    ) {
        let (mut server, mut ledger) = (Server::new(habit), WriteHistory::default());
        settle(&mut server, &wanted(&all), way, &mut ledger, 1)?;
        let before = server.counter;
        for _ in 0..3 {
            let desired = echoed(&server, &all);
            settle(&mut server, &desired, way, &mut ledger, 1)?;
        }
        prop_assert_eq!(server.counter, before);
    }

    #[test]
    fn no_operation_names_a_stranger(observed in things(), desired in things(), way in ways()) {
        let mut server = Server::new(Habit::Keeps);
        settle(&mut server, &wanted(&observed), way, &mut WriteHistory::default(), 1)?;
        let (parent, rules) = (parent(), way.rules());
        let owner = Owner { parent: &parent, kind: ControllerKind::Composite, controller: "c", rules: &rules, hash_secrets: false };
        let plan = children(owner, &server.observed(), &wanted(&desired), PastWrites { ledger: &WriteHistory::default(), now: Duration::ZERO });
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
        let owner = Owner { parent: &parent, kind: ControllerKind::Composite, controller: "c", rules: &rules, hash_secrets: false };
        let mut turned = ChildMap::default();
        let ledger = WriteHistory::default();
        for stored in server.objects.values().rev() {
            turned.insert(&thing(), Arc::new(parse(&stored.value)));
        }
        let last_first: Vec<_> = desired.iter().rev().cloned().collect();
        let plan = |observed: &ChildMap, desired: &[(String, Value)]| {
            children(owner, observed, &wanted(desired), PastWrites { ledger: &ledger, now: Duration::ZERO }).to_string()
        };
        prop_assert_eq!(plan(&server.observed(), &desired), plan(&turned, &last_first));
    }
}
