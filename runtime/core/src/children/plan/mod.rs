//! Planning of children: observed and desired objects, strategies and the write history make a plan.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::children::child::{Child, Compared, Decision};
use crate::children::desired::{Apply, Desired};
use crate::children::differing::Differing;
use crate::children::last_applied::{LAST_APPLIED, annotation, applied_print, drop_the_servers, is_secret};
use crate::children::write_history::{Drift, PastWrites, WriteHistory};
use crate::children::{Op, Owner, Plan, Problem, Skip};
use crate::hash::Fingerprint;
use crate::json::difference::{Change, Difference, differences, same};
use crate::json::merge::merge;
use crate::json::places::FirstChanges;
use crate::object::id::{ObjectId, Resource};
use crate::object::{ChildMap, Object};

/// Children whose changed places a plan names, for people.
const MAX_CHANGES: usize = 100;

/// The plan that makes the observed children of a parent the desired ones.
///
/// # Flow
/// An observed child that is not desired is deleted, and a desired child that is missing is created. For a child that is
/// there and desired, the apply strategy and the update method of its kind decide, with what past writes have shown.
///
/// # Guarantees
/// Same input, same plan. Carried out, its answers learned from and planned again, it ends in no ops. Never names an
/// object that is neither observed nor desired.
///
/// # Assumptions
/// Each observed object is a child of the parent: one that is not desired is deleted. `past` is about this parent's children.
///
/// # Errors
/// A child whose object or record is not JSON is one of [`Plan::problems`], without an operation. The others are planned.
pub fn children(owner: Owner<'_>, observed: &ChildMap, desired: &Desired, past: PastWrites<'_>) -> Plan {
    let mut plan = Plan::default();
    for (resource, object) in observed.objects() {
        let wanted = desired.get(resource).is_some_and(|group| group.contains_key(&object.key));
        if !wanted {
            let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
            if object.deleting {
                plan.skips.push((id, Skip::BeingDeleted));
            } else {
                plan.ops.push(Op::Delete { id, uid: object.uid.clone() });
            }
        }
    }
    for (resource, group) in desired {
        for (key, desired) in group {
            let id = ObjectId { resource: Arc::clone(resource), key: key.clone() };
            let child = Child { owner, kind: owner.child_kind(resource), desired, id: &id };
            let Some(object) = observed.get(resource, key) else {
                plan.ops.push(child.create());
                continue;
            };
            match child.update(object, past) {
                Ok(Decision::Do(op, changes)) => {
                    plan.ops.push(op);
                    if !changes.is_empty() && plan.changes.len() < MAX_CHANGES {
                        let changes = FirstChanges::of(&changes, id.resource.is_secret());
                        plan.changes.push((id, changes));
                    }
                }
                Ok(Decision::CorrectDrift(op, values)) => {
                    plan.ops.push(op);
                    plan.drifts.push(Drift { id, uid: object.uid.clone(), values });
                }
                Ok(Decision::Leave(skip)) => plan.skips.push((id, skip)),
                Ok(Decision::Differs(values)) => {
                    Differing::add(&mut plan.differing, &id, &values);
                    plan.skips.push((id, Skip::OnDelete));
                }
                Ok(Decision::Wait(pause, values)) => {
                    plan.skips.push((id.clone(), Skip::Flapping));
                    plan.flapping.push(Drift { id, uid: object.uid.clone(), values });
                    plan.again = Some(plan.again.map_or(pause, |other| other.min(pause)));
                }
                Err(problem) => plan.problems.push((id, problem)),
            }
        }
    }
    plan
}

/// Texts of so many bytes together are read without a count.
const UNCOUNTED: usize = 64 << 10;

/// The observed objects that planning reads: those that are desired and may have to change. Few bytes are not counted.
pub fn to_read<'a>(
    owner: Owner<'_>,
    observed: &'a ChildMap,
    desired: &Desired,
    past: PastWrites<'_>,
) -> Vec<&'a Object> {
    let all = || observed.objects();
    if all().map(|(_, object)| object.json().len()).sum::<usize>() <= UNCOUNTED {
        return Vec::new();
    }
    let is_read = |(resource, object): &(&Arc<Resource>, &'a Arc<Object>)| {
        let wanted = desired.get(*resource).and_then(|group| group.get(&object.key));
        wanted.is_some_and(|desired| {
            let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
            let child = Child { owner, kind: owner.child_kind(resource), desired, id: &id };
            !past.history.is_settled(&id, object, || child.print())
        })
    };
    all().filter(is_read).map(|(_, object)| &**object).collect()
}

/// Result of the dry run of an [`Op::DryRun`].
#[derive(Debug)]
pub enum DryRunResult {
    /// The object would become this.
    Becomes(Box<Object>),
    /// The object cannot become that: what cannot be changed is made anew.
    Refused,
    /// It may not be changed so, or not at all, whatever with.
    Forbidden,
    /// Dry runs are not possible here, so nothing is known.
    Unable,
}

/// Decision after a dry run.
#[derive(Debug, Clone, PartialEq)]
pub enum DryRunVerdict {
    /// One of the probe's two operations.
    Do(Op),
    /// The child is left: it differs only by what the API server makes of the wanted one.
    AsItIs,
    /// The child is left, but the dry run did not show whether it should be.
    Unknown,
}

/// The operation that follows from a dry run of `write`.
///
/// # Flow
/// A dry run that changes the object leads to `otherwise`, or to `write` where it takes out items of other clients alone. One
/// that changes nothing leads to `write` where the record changes, and else leaves the object. A refused one leads to
/// `otherwise`, unless what differs is what the API server made at first, or an order that cannot be changed. One that is
/// forbidden or not possible leads to `otherwise`, or to `Unknown` where that would recreate an object about which nothing is known.
///
/// # Guarantees
/// An object that the write would not change is never made anew, nor one about which nothing is known.
///
/// # Assumptions
/// `probed` is the result for `write` over `observed`, and `otherwise` is about the same object.
///
/// # Errors
/// The observed object, or the one that it would become, is not the JSON of an object.
pub fn judge(
    (write, otherwise): (Op, Op),
    observed: &Object,
    probed: &DryRunResult,
    history: &WriteHistory,
) -> Result<DryRunVerdict, Problem> {
    let value = |object: &Object| object.value().map_err(|_invalid| Problem::Observed);
    let before = value(observed)?;
    let becomes = match probed {
        DryRunResult::Becomes(object) => object,
        DryRunResult::Refused | DryRunResult::Forbidden | DryRunResult::Unable
            if is_as_made(&write, observed, &before) =>
        {
            return Ok(DryRunVerdict::AsItIs);
        }
        DryRunResult::Refused if write == otherwise && is_another_order(&write, &before) => {
            return Ok(DryRunVerdict::AsItIs);
        }
        DryRunResult::Refused => return Ok(DryRunVerdict::Do(otherwise)),
        DryRunResult::Forbidden | DryRunResult::Unable => {
            let sure = history.has_answer(observed) || !matches!(otherwise, Op::Recreate { .. });
            return Ok(if sure { DryRunVerdict::Do(otherwise) } else { DryRunVerdict::Unknown });
        }
    };
    let (now, then) = (content(before.clone()), content(value(becomes)?));
    if !same(&now, &then) {
        let in_place = is_of_others(&write, observed, history, &differences(&then, &now, None));
        return Ok(DryRunVerdict::Do(if in_place { write } else { otherwise }));
    }
    Ok(if records(&write, &before) { DryRunVerdict::Do(write) } else { DryRunVerdict::AsItIs })
}

/// In the first generation of an object no client has changed anything but its metadata since it was made: what is different
/// there is what the API server made of what was applied.
/// See <https://github.com/metacontroller/metacontroller/issues/863>.
fn is_as_made(write: &Op, observed: &Object, before: &Value) -> bool {
    let Op::Replace { body, .. } = write else { return false };
    let metadata = |object: &Value| content(object.clone()).get("metadata").cloned();
    observed.generation == 1 && !records(write, before) && metadata(body) == metadata(before)
}

/// Whether a write would change the order of lists alone: one that cannot be changed, as in a Pod, is left.
fn is_another_order(write: &Op, before: &Value) -> bool {
    let Op::Replace { body, .. } = write else { return false };
    let changes = differences(&content(body.clone()), &content(before.clone()), None);
    !changes.is_empty() && changes.iter().all(Difference::is_order_or_extra_item)
}

/// Whether server-side apply would only take named items out of lists that other clients put there: the server knows that it
/// applied the very same before. Such a list has one owner, so they do not stay; but no child is made anew for them.
fn is_of_others(write: &Op, observed: &Object, history: &WriteHistory, changes: &[Difference]) -> bool {
    let Op::Apply { id, body, .. } = write else { return false };
    let extra = |difference: &Difference| difference.change == Change::ExtraItem;
    changes.iter().all(extra) && history.has_applied(id, observed, applied_print(body))
}

/// Whether the record of what was applied would change.
fn records(write: &Op, before: &Value) -> bool {
    match write {
        Op::Replace { body, .. } => annotation(body, LAST_APPLIED) != annotation(before, LAST_APPLIED),
        _ => false,
    }
}

/// Learns from the answer to a write of a child, or to a dry run after which the child was left as it is.
pub fn learn(history: &mut WriteHistory, owner: Owner<'_>, id: &ObjectId, desired: &Value, answer: &Object) {
    let child = Child { owner, kind: owner.child_kind(&id.resource), desired, id };
    let Ok(observed) = answer.value() else { return };
    if child.recreates() {
        history.answered(&answer.uid);
    }
    let (applied, server_defaults, recorded) = match child.apply() {
        Apply::Dynamic => match child.compare(&observed) {
            Ok(Compared { differences, recorded, .. }) => (None, differences, recorded),
            Err(_problem) => return,
        },
        Apply::ServerSide(_) => {
            let (body, server_defaults) = child.compare_applied(&observed);
            (Some(applied_print(&body)), server_defaults, true)
        }
    };
    let settled = recorded.then(|| child.print());
    history.record_response(id, answer, applied, &server_defaults, settled);
}

/// Learns from the answer to `op`, which wrote a child. Changes that the API server made to what dynamic apply sent
/// matter when the child is another than in the answer, which most never are: until then the answer is kept as it is.
pub fn wrote(history: &mut WriteHistory, owner: Owner<'_>, op: &Op, desired: &Value, answer: &Arc<Object>) {
    let id = op.id();
    let child = Child { owner, kind: owner.child_kind(&id.resource), desired, id };
    let record = match op {
        // Of Secrets the record is not what was sent.
        Op::Create { body, .. } | Op::Replace { body, .. } | Op::Recreate { body, .. }
            if !is_secret(body) =>
        {
            annotation(body, LAST_APPLIED)
        }
        _ => None,
    };
    if record.is_none_or(|record| answer.annotations().get(LAST_APPLIED).is_none_or(|text| text != record)) {
        return learn(history, owner, id, desired, answer);
    }
    if child.recreates() {
        history.answered(&answer.uid);
    }
    history.record_write(id, child.print(), answer);
}

/// Reads answers about children that are others by now; empty nearly always.
pub fn read_late(
    history: &WriteHistory,
    owner: Owner<'_>,
    observed: &ChildMap,
) -> Vec<(ObjectId, BTreeSet<Fingerprint>)> {
    let read = |(id, answer): (&ObjectId, &Arc<Object>)| {
        let child = Child { owner, kind: owner.child_kind(&id.resource), desired: &Value::Null, id };
        (id.clone(), child.server_defaults(answer))
    };
    history.stale_responses(observed).map(read).collect()
}

/// Whether writing a child would change nothing.
pub fn is_as_wanted(
    owner: Owner<'_>,
    id: &ObjectId,
    object: &Object,
    desired: &Value,
    history: &WriteHistory,
) -> bool {
    let child = Child { owner, kind: owner.child_kind(&id.resource), desired, id };
    let Ok(observed) = object.value() else { return false };
    let differences = match child.apply() {
        Apply::Dynamic => match child.compare(&observed) {
            Ok(compared) if compared.changed_mind => return false,
            Ok(compared) => compared.differences,
            Err(_problem) => return false,
        },
        Apply::ServerSide(_) => {
            let (body, differences) = child.compare_applied(&observed);
            // A field that is not sent any longer is no difference, and goes with the next apply all the same. After a
            // restart nothing is known to have been applied: then it is applied once where the child is now.
            if !history.has_applied(id, object, applied_print(&body)) {
                return false;
            }
            differences
        }
    };
    child.unknown(history, object, differences).is_empty()
}

/// The first place where a wanted value is not as the observed one.
pub fn first_difference(observed: &Value, wanted: &Value) -> Option<String> {
    differences(wanted, observed, None).into_iter().next().map(|difference| difference.path)
}

/// The first place of an object that a write of `body` changes, less what the server and the API server note in each write.
pub fn first_change(observed: &Value, body: &Value) -> Option<String> {
    let merged = merge(observed, None, body, None);
    let all = differences(&content(merged), &content(observed.clone()), None);
    all.into_iter().next().map(|difference| difference.path)
}

/// The object to create for an unmanaged child.
pub fn new_object(owner: Owner<'_>, id: &ObjectId, desired: &Value) -> Value {
    Child { owner, kind: None, desired, id }.new_object()
}

/// The part of an object that matters to its owner: all but the API server's fields and the record of what was applied.
fn content(mut object: Value) -> Value {
    drop_the_servers(&mut object);
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
    {
        annotations.remove(LAST_APPLIED);
        // The last one of an object may have been the record.
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    object
}
