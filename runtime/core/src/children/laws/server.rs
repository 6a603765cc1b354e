//! An API server that changes values in one of several ways.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::thing;
use crate::children::desired::Desired;
use crate::children::plan::{DryRunResult, DryRunVerdict, judge, learn, wrote};
use crate::children::write_history::WriteHistory;
use crate::children::{Op, Owner, last_applied};
use crate::json::difference::{plain, same};
use crate::json::merge::merge;
use crate::json::to_go_string;
use crate::object::id::Key;
use crate::object::{ChildMap, Object};

/// How an API server changes what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    Keeps,
    /// Nulls, and empty texts, lists and objects are no fields.
    DropsEmpty,
    /// Numbers become text, as quantities do.
    Respells,
    /// Each list gets an item, as an admission plugin adds tolerations; each object a member.
    Adds,
    /// Lists are kept in an order of their own.
    Sorts,
    /// The server respells values at the creation only, and refuses later changes outside of metadata.
    RespellsForGood,
}

/// A store that normalises.
pub(super) struct Server {
    pub(super) habit: Habit,
    pub(super) objects: BTreeMap<Key, Stored>,
    pub(super) counter: u64,
}

#[derive(Clone)]
pub(super) struct Stored {
    pub(super) value: Value,
    /// Fields that server-side apply has been given.
    pub(super) applied: Value,
}

#[derive(Debug)]
pub(super) struct Refused;

impl Server {
    pub(super) fn new(habit: Habit) -> Self {
        Self { habit, objects: BTreeMap::new(), counter: 0 }
    }

    pub(super) fn observed(&self) -> ChildMap {
        let mut all = ChildMap::default();
        all.declare(&thing());
        for stored in self.objects.values() {
            all.insert(&thing(), Arc::new(parse(&stored.value)));
        }
        all
    }

    pub(super) fn habit(&self, value: &mut Value) {
        match self.habit {
            Habit::Keeps => {}
            Habit::DropsEmpty => drop_empty(value),
            Habit::Respells | Habit::RespellsForGood => respell(value),
            Habit::Sorts => sort(value),
            Habit::Adds => add(value),
        }
    }

    /// The object after a write of it, which is not carried out yet.
    pub(super) fn becomes(&self, before: Option<&Stored>, mut value: Value) -> Result<Value, Refused> {
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

    pub(super) fn put(&mut self, key: &Key, mut value: Value, applied: Value) -> Object {
        self.counter += 1;
        value["metadata"]["resourceVersion"] = json!(self.counter.to_string());
        self.objects.insert(key.clone(), Stored { value: value.clone(), applied });
        parse(&value)
    }

    /// The object and its applied fields after a write; server-side apply takes away what it was given and is not given
    /// any longer.
    pub(super) fn written(&self, op: &Op) -> Result<(Value, Value), Refused> {
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
            Op::DryRun { .. } | Op::Delete { .. } | Op::Status { .. } => {
                unreachable!("no write of an object")
            }
        }
    }

    /// `false` where a dry run was all that was needed.
    pub(super) fn carry_out(
        &mut self,
        op: Op,
        desired: &Desired,
        owner: Owner<'_>,
        history: &mut WriteHistory,
    ) -> bool {
        let id = op.id().clone();
        let wanted = || &desired[&thing()][&id.key];
        match op {
            Op::Delete { id, .. } => drop(self.objects.remove(&id.key)),
            Op::DryRun { write, otherwise } => {
                let observed = parse(&self.objects[&id.key].value);
                let probed = match self.written(&write) {
                    Ok((value, _)) => DryRunResult::Becomes(Box::new(parse(&value))),
                    Err(Refused) => DryRunResult::Refused,
                };
                match judge((*write, *otherwise), &observed, &probed, history).unwrap() {
                    DryRunVerdict::Do(op) => return self.carry_out(op, desired, owner, history),
                    DryRunVerdict::AsItIs => {}
                    DryRunVerdict::Unknown => return false,
                }
                learn(history, owner, &id, wanted(), &observed);
                return false;
            }
            op => match self.written(&op) {
                Ok((value, applied)) => {
                    let answer = self.put(&id.key, value, applied);
                    if !matches!(op, Op::HandOver { .. }) {
                        wrote(history, owner, &op, wanted(), &answer.into());
                    }
                }
                Err(Refused) => assert!(!matches!(op, Op::Recreate { .. })),
            },
        }
        true
    }
}

pub(super) fn parse(value: &Value) -> Object {
    Object::parse(&value.to_string(), None).unwrap()
}

pub(super) fn drop_empty(value: &mut Value) {
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

pub(super) fn respell(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(respell),
        Value::Array(items) => items.iter_mut().for_each(respell),
        Value::Number(number) => *value = json!(number.to_string()),
        _ => {}
    }
}

pub(super) fn sort(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(sort),
        Value::Array(items) => {
            items.iter_mut().for_each(sort);
            // What is the same has one place, however it is spelled.
            items.sort_by_key(|item| to_go_string(&plain(item)));
        }
        _ => {}
    }
}

pub(super) fn add(value: &mut Value) {
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
