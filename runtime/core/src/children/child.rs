//! Decision about one child: the operation that makes the observed object the desired one.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::common::UpdateMethod;
use crate::children::claims::{MADE_BY, own, renew};
use crate::children::desired::{Apply, ChildKind};
use crate::children::last_applied::{
    LAST_APPLIED, SYSTEM_FIELDS, Wanted, annotate, annotation, applied_body, applied_print, fold,
    is_kept_otherwise, last_applied,
};
use crate::children::write_history::{PastWrites, WriteHistory};
use crate::children::{Op, Owner, Problem, Skip};
use crate::hash::{Fingerprint, hash_json};
use crate::json::difference::{Difference, differences};
use crate::json::lists::Lists;
use crate::json::merge::{applied, changes_nothing, merge};
use crate::json::to_go_string;
use crate::object::Object;
use crate::object::id::ObjectId;

/// One desired child.
pub(super) struct Child<'a> {
    pub(super) owner: Owner<'a>,
    /// `None`: the controller declares no such kind; the child is made and then left alone.
    pub(super) kind: Option<&'a ChildKind>,
    pub(super) desired: &'a Value,
    pub(super) id: &'a ObjectId,
}

pub(super) enum Decision {
    /// The places that it changes, where an object is there.
    Do(Op, Vec<Difference>),
    /// Another client changed these values.
    CorrectDrift(Op, Vec<Difference>),
    Leave(Skip),
    /// The hook wants these values to be others than before, and the strategy leaves them.
    Differs(Vec<Difference>),
    /// Another client keeps changing these values: they are left alone for a while.
    Wait(Duration, Vec<Difference>),
}

/// An object compared with what dynamic apply would make of it.
pub(super) struct Compared<'a> {
    pub(super) merged: Cow<'a, Value>,
    /// Where it is not that, but for the record.
    pub(super) differences: Vec<Difference>,
    /// The record is what is wanted now.
    pub(super) recorded: bool,
    /// The configuration that was applied last is another one.
    pub(super) changed_mind: bool,
}

impl Child<'_> {
    pub(super) fn apply(&self) -> &Apply {
        self.kind.map_or(&Apply::Dynamic, |kind| &kind.apply)
    }

    /// The published schema of the kind's lists.
    fn lists(&self) -> Option<&Lists> {
        self.kind.map(|kind| kind.lists.as_ref())
    }

    fn method(&self) -> UpdateMethod {
        self.kind.map(|kind| kind.method).unwrap_or_default()
    }

    pub(super) fn recreates(&self) -> bool {
        matches!(self.method(), UpdateMethod::Recreate | UpdateMethod::RollingRecreate)
    }

    /// Hash of the desired state, for the write history.
    pub(super) fn print(&self) -> u64 {
        hash_json(self.desired)
    }

    fn wanted(&self) -> Wanted {
        Wanted::of(self.desired, self.owner.salt())
    }

    pub(super) fn create(&self) -> Op {
        let (id, body) = (self.id.clone(), self.new_object());
        match self.apply() {
            Apply::Dynamic => Op::Create { id, body },
            Apply::ServerSide(manager) => Op::Apply { id, over: None, body, manager: Arc::clone(manager) },
        }
    }

    fn recreate(&self, object: &Object) -> Op {
        let manager = match self.apply() {
            Apply::Dynamic => None,
            Apply::ServerSide(manager) => Some(Arc::clone(manager)),
        };
        Op::Recreate { id: self.id.clone(), uid: object.uid.clone(), body: self.new_object(), manager }
    }

    /// The object to create: what is wanted, what was applied, who made it and whose it is.
    pub(super) fn new_object(&self) -> Value {
        let wanted = self.wanted();
        match self.apply() {
            Apply::ServerSide(_) => applied_body(self.owner, wanted, None, self.lists()),
            Apply::Dynamic => {
                let record = to_go_string(wanted.record());
                let mut object = wanted.object;
                // A hook may have copied them from an object it saw.
                if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                    metadata.retain(|field, _| !SYSTEM_FIELDS.contains(&field.as_str()));
                }
                annotate(&mut object, LAST_APPLIED, record);
                if let Some(maker) = self.owner.maker() {
                    annotate(&mut object, MADE_BY, maker.to_owned());
                }
                own(&mut object, self.owner.parent);
                object
            }
        }
    }

    pub(super) fn update(&self, object: &Object, past: PastWrites<'_>) -> Result<Decision, Problem> {
        if past.history.is_settled(self.id, object, || self.print()) {
            return Ok(Decision::Leave(Skip::Unchanged));
        }
        let observed = object.value().map_err(|_invalid| Problem::Observed)?;
        match self.apply() {
            Apply::Dynamic => self.merge(object, &observed, past),
            Apply::ServerSide(manager) => Ok(self.apply_server_side(object, &observed, manager, past)),
        }
    }

    fn merge(&self, object: &Object, observed: &Value, past: PastWrites<'_>) -> Result<Decision, Problem> {
        let compared = self.compare(observed)?;
        let drift = self.unknown(past.history, object, compared.differences);
        if drift.is_empty() && compared.recorded {
            return Ok(Decision::Leave(Skip::Unchanged));
        }
        if object.deleting {
            return Ok(Decision::Leave(Skip::BeingDeleted));
        }
        if self.method() == UpdateMethod::OnDelete {
            // What another client changed, or the API server made of it, is not what the author waits for.
            let is_left = compared.recorded;
            return Ok(if is_left { Decision::Leave(Skip::OnDelete) } else { Decision::Differs(drift) });
        }
        let drifted = compared.recorded && !drift.is_empty();
        let replace = Op::Replace { id: self.id.clone(), body: compared.merged.into_owned() };
        let in_place = drifted && is_corrected_in_place(&drift);
        let op = if !self.recreates() || in_place {
            // What the API server made of it when it was new may be what cannot be written any more, and so may an order.
            let is_tried = drifted && object.generation == 1 || in_place;
            if is_tried { probe(replace.clone(), replace) } else { replace }
        } else if drift.is_empty() {
            // What is in the object is as wanted: that is no reason to make it anew.
            replace
        } else if compared.changed_mind {
            self.recreate(object)
        } else {
            probe(replace, self.recreate(object))
        };
        Ok(self.correct_drift(op, drift, drifted, past))
    }

    fn apply_server_side(
        &self,
        object: &Object,
        observed: &Value,
        manager: &Arc<str>,
        past: PastWrites<'_>,
    ) -> Decision {
        let (mut body, differences) = self.compare_applied(observed);
        let differences = self.unknown(past.history, object, differences);
        let applied = past.history.has_applied(self.id, object, applied_print(&body));
        if applied && differences.is_empty() {
            return Decision::Leave(Skip::Unchanged);
        }
        if object.deleting {
            return Decision::Leave(Skip::BeingDeleted);
        }
        if self.method() == UpdateMethod::OnDelete {
            return match differences.is_empty() {
                true => Decision::Leave(Skip::Unchanged),
                // After a restart it is not known whether the answer was another one.
                false if past.history.has_applied_other(self.id, object, applied_print(&body)) => {
                    Decision::Differs(differences)
                }
                false => Decision::Leave(Skip::OnDelete),
            };
        }
        if annotation(observed, LAST_APPLIED).is_some() {
            let (id, uid) = (self.id.clone(), object.uid.clone());
            // It changes who owns the fields, and no value.
            return Decision::Do(Op::HandOver { id, uid, manager: Arc::clone(manager) }, Vec::new());
        }
        let is_another_answer = past.history.has_applied_other(self.id, object, applied_print(&body));
        // Another object of that name is none of ours.
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            metadata.insert("uid".to_owned(), Value::String(object.uid.as_str().to_owned()));
        }
        let write = Op::Apply {
            id: self.id.clone(),
            over: Some((object.uid.clone(), object.version.clone())),
            body,
            manager: Arc::clone(manager),
        };
        let in_place = !is_another_answer && is_corrected_in_place(&differences);
        let op = match self.recreates() {
            false => write,
            true if in_place => probe(write.clone(), write),
            true => probe(write, self.recreate(object)),
        };
        self.correct_drift(op, differences, applied, past)
    }

    /// `is_drift`: the answer is what it was, so that another client has changed these places.
    fn correct_drift(
        &self,
        op: Op,
        changes: Vec<Difference>,
        is_drift: bool,
        past: PastWrites<'_>,
    ) -> Decision {
        if !is_drift || changes.is_empty() {
            return Decision::Do(op, changes);
        }
        match past.wait(self.id, &changes) {
            Some(pause) => Decision::Wait(pause, changes),
            None => Decision::CorrectDrift(op, changes),
        }
    }

    pub(super) fn compare<'a>(&self, observed: &'a Value) -> Result<Compared<'a>, Problem> {
        let wanted = self.wanted();
        let last = last_applied(observed)?;
        let before = last.as_ref().map(|(last, _)| {
            let mut last = Cow::Borrowed(last);
            if is_kept_otherwise(&last) {
                fold(last.to_mut());
            }
            last
        });
        let lists = self.lists();
        let stays = changes_nothing(observed, before.as_deref(), &wanted.object, lists);
        let (mut merged, differences) = if stays {
            (Cow::Borrowed(observed), Vec::new())
        } else {
            let mut merged = merge(observed, before.as_deref(), &wanted.object, lists);
            leave_the_servers(&mut merged, observed);
            // A hook may write the reference itself, with a version of its own: that would be changed back for ever.
            renew(&mut merged, self.owner.parent);
            let differences = differences(&merged, observed, lists);
            (Cow::Owned(merged), differences)
        };
        // Other bytes with the same meaning, as another version may have written, are no reason to write.
        let recorded = last.as_ref().is_some_and(|(last, _)| wanted.is(last));
        if !recorded {
            annotate(merged.to_mut(), LAST_APPLIED, to_go_string(wanted.record()));
        }
        // A record in plain text where hashes are wanted says the same, and the other way round nothing.
        let changed_mind =
            !recorded && last.is_some_and(|(last, _)| !Wanted::of(self.desired, None).is(&last));
        Ok(Compared { merged, differences, recorded, changed_mind })
    }

    /// Differences that a write would end.
    pub(super) fn unknown(
        &self,
        history: &WriteHistory,
        object: &Object,
        all: Vec<Difference>,
    ) -> Vec<Difference> {
        history.unexplained_drift(self.id, object, all, |answer| self.server_defaults(answer))
    }

    /// Differences that the API server made: where its answer to dynamic apply is not as the record in it says.
    pub(super) fn server_defaults(&self, answer: &Object) -> BTreeSet<Fingerprint> {
        let Ok(answer) = answer.value() else { return BTreeSet::new() };
        let Ok(Some((sent, _))) = last_applied(&answer) else { return BTreeSet::new() };
        let compared = Child { desired: &sent, ..*self }.compare(&answer);
        compared.into_iter().flat_map(|it| it.differences).map(|it| it.fingerprint()).collect()
    }

    /// The body to apply, and the differences that applying it to `observed` would end.
    pub(super) fn compare_applied(&self, observed: &Value) -> (Value, Vec<Difference>) {
        let lists = self.lists();
        let body = applied_body(self.owner, self.wanted(), Some(observed), lists);
        let differences = differences(&applied(observed, &body, lists), observed, lists);
        (body, differences)
    }
}

fn probe(write: Op, otherwise: Op) -> Op {
    Op::DryRun { write: Box::new(write), otherwise: Box::new(otherwise) }
}

/// Another order of a list, and items that other clients added to one, make no child anew under Recreate: a `ServiceAccount`
/// would lose its Secrets.
/// See <https://github.com/kubernetes/kubernetes/issues/74099>.
fn is_corrected_in_place(drift: &[Difference]) -> bool {
    !drift.is_empty() && drift.iter().all(Difference::is_order_or_extra_item)
}

/// Restores the API server's fields and our annotations as they are in `observed`: they are no part of what is merged.
fn leave_the_servers(merged: &mut Value, observed: &Value) {
    restore(merged, observed, "status");
    if let (Some(metadata), Some(seen)) = (merged.get_mut("metadata"), observed.get("metadata")) {
        for field in SYSTEM_FIELDS {
            restore(metadata, seen, field);
        }
    }
    for name in [LAST_APPLIED, MADE_BY] {
        if let Some(text) = annotation(observed, name) {
            annotate(merged, name, text.to_owned());
        }
    }
}

fn restore(merged: &mut Value, observed: &Value, field: &str) {
    if let Value::Object(merged) = merged {
        match observed.get(field) {
            Some(value) => merged.insert(field.to_owned(), value.clone()),
            None => merged.remove(field),
        };
    }
}
