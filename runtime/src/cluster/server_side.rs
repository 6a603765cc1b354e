//! Server-side apply, dry runs, and the handing over of fields from dynamic apply.

use std::borrow::Cow;

use http::StatusCode;
use metahook_core::children::claims::{ATTACHED_BY, MADE_BY};
use metahook_core::children::deletion_brake::ALLOW_DELETIONS;
use metahook_core::children::last_applied::LAST_APPLIED;
use metahook_core::children::plan::DryRunResult;
use metahook_core::children::refusal::{is_due_to_the_old_object, without_nulled};
use metahook_core::children::{Op, managed_fields};
use metahook_core::object::id::{ObjectId, Uid};
use serde_json::{Value, json};

use crate::cluster::api_client::{Answer, ApiClient, JSON_PATCH, SERVER_SIDE_APPLY, Unreachable};
use crate::cluster::apply::{Carried, OPTIONS, gone, wrote, wrote_over};
use crate::cluster::objects::{RequestError, RequestErrorKind, WAY_OUT, WriteOptions, found, object};

impl ApiClient {
    /// Applies over the object with this uid, which is inside; in two steps where that is the only way.
    pub(super) async fn apply_over(
        &self,
        id: &ObjectId,
        uid: &Uid,
        body: &Value,
        manager: &str,
    ) -> Result<Carried, RequestErrorKind> {
        let answer = self.apply_as(id, body, manager, true).await?;
        let Some(first) = without_nulled(answer.status.as_u16(), &answer.body, body) else {
            return wrote_over(id, uid, &answer);
        };
        let first = wrote_over(id, uid, &self.apply_as(id, &first, manager, true).await?)?;
        if self.dry_runs_only {
            // The second step needs what the first one stores.
            return Ok(first);
        }
        wrote_over(id, uid, &self.apply_as(id, body, manager, true).await?)
    }

    /// Makes an object by server-side apply. There is no way to ask for "only if there is none": whether there is one is
    /// asked first, and a client that creates one in between keeps its fields, since nothing is forced.
    /// `None` where the name is taken.
    pub(super) async fn apply_new(
        &self,
        id: &ObjectId,
        body: &Value,
        manager: &str,
    ) -> Result<Option<Carried>, RequestErrorKind> {
        if !self.is_gone(id).await? {
            return Ok(None);
        }
        wrote(id, &self.apply_as(id, body, manager, false).await?).map(Some)
    }

    /// Without `force` nothing is applied where another manager owns one of the fields.
    async fn apply_as(
        &self,
        id: &ObjectId,
        body: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Answer, Unreachable> {
        let options = WriteOptions::by(manager).force(force);
        self.request_patch(id, SERVER_SIDE_APPLY, body, options).await
    }

    /// Tries a write by a dry run.
    pub(crate) async fn dry_run(&self, write: &Op) -> Result<DryRunResult, RequestError> {
        let id = write.id();
        let answer = match write {
            Op::Apply { body, manager, .. } => {
                let options = WriteOptions::by(manager).force(true).dry_run();
                self.request_patch(id, SERVER_SIDE_APPLY, body, options).await
            }
            Op::Replace { body, .. } => self.request_replace(id, body, OPTIONS.dry_run()).await,
            Op::Create { .. }
            | Op::HandOver { .. }
            | Op::DryRun { .. }
            | Op::Delete { .. }
            | Op::Recreate { .. }
            | Op::Status { .. } => return Ok(DryRunResult::Unable),
        };
        let tried = answer.map_err(RequestErrorKind::from).and_then(|answer| match answer.status {
            StatusCode::UNPROCESSABLE_ENTITY => Ok(DryRunResult::Refused),
            // A policy is against it, or an account may not update.
            StatusCode::FORBIDDEN => Ok(DryRunResult::Forbidden),
            // A webhook of the cluster does not allow dry runs.
            StatusCode::BAD_REQUEST => Ok(DryRunResult::Unable),
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Err(RequestErrorKind::Conflict(answer.message())),
            _ => Ok(DryRunResult::Becomes(Box::new(object(id, &answer)?))),
        });
        tried.map_err(|why| RequestError::new("dry-run", id, why))
    }

    /// Whether an object that is there could be made anew, by a dry run of making it: that it is there itself is all that
    /// may be wrong. A policy refuses with the same answer as a field that cannot be changed, and what may not be made
    /// must not be deleted either. `version`: the one of the hooks for which a user may let deletions go on without this.
    pub(crate) async fn try_making(&self, op: &Op, version: Option<&str>) -> Result<(), RequestError> {
        let Op::Recreate { id, body, .. } = op else { return Ok(()) };
        let made = self.request_create(id, body, OPTIONS.dry_run()).await.map_err(RequestErrorKind::from);
        let made = made.and_then(|answer| match answer.status {
            status if status.is_success() => Ok(()),
            status if is_due_to_the_old_object(status.as_u16(), &answer.body) => Ok(()),
            _ => {
                let way_out = version.map(|version| {
                    format!("{WAY_OUT}, agree by the controller's annotation {ALLOW_DELETIONS}: {version}")
                });
                Err(RequestErrorKind::NotRecreatable(
                    answer.message() + way_out.as_deref().unwrap_or_default(),
                ))
            }
        });
        made.map_err(|why| RequestError::new(op.verb(), id, why))
    }

    /// Makes the fields that dynamic apply wrote those of `manager`, and takes away its record.
    pub(super) async fn hand_over(
        &self,
        id: &ObjectId,
        uid: &Uid,
        manager: &str,
    ) -> Result<Carried, RequestErrorKind> {
        let answer = self.request_get(id).await?;
        let Some(seen) = found(id, &answer)?.filter(|seen| seen.uid == *uid) else {
            return Ok(gone(id, uid).into());
        };
        let live: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let mut steps = vec![
            json!({"op": "replace", "path": "/metadata/resourceVersion", "value": seen.version.as_str()}),
        ];
        if live.pointer("/metadata/annotations").is_some_and(|all| all.get(LAST_APPLIED).is_some()) {
            let escaped = LAST_APPLIED.replace('/', "~1");
            steps.push(json!({"op": "remove", "path": format!("/metadata/annotations/{escaped}")}));
        }
        let fields = live.pointer("/metadata/managedFields").unwrap_or(&Value::Null);
        if let Some(fields) = managed_fields::handed_over(fields, manager) {
            steps.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": fields}));
        }
        wrote_over(id, uid, &self.request_patch(id, JSON_PATCH, &Value::Array(steps), OPTIONS).await?)
    }

    /// Why a name is taken: its holder.
    pub(super) async fn taken(
        &self,
        id: &ObjectId,
        body: &Value,
    ) -> Result<RequestErrorKind, RequestErrorKind> {
        let answer = self.request_get(id).await?;
        if !answer.status.is_success() {
            return Ok(RequestErrorKind::Conflict("it was there a moment ago".to_owned()));
        }
        let live: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let theirs = controller(&live);
        let uid = |owner: Option<&Value>| owner.and_then(|owner| owner.get("uid")).cloned();
        if uid(theirs).is_some() && uid(theirs) == uid(controller(body)) && makers(&live) == makers(body) {
            return Ok(RequestErrorKind::Unobserved);
        }
        Ok(RequestErrorKind::Exists(holder(&live)))
    }
}

fn controller(object: &Value) -> Option<&Value> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
}

/// Which controllers it says made it: one of composites, one of decorators.
fn makers(object: &Value) -> [Option<&str>; 2] {
    let annotations = object.pointer("/metadata/annotations");
    [MADE_BY, ATTACHED_BY].map(|name| annotations?.get(name)?.as_str())
}

/// Whose an object is, in words.
fn holder(live: &Value) -> String {
    let text =
        |owner: &Value, field: &str| owner.get(field).and_then(Value::as_str).unwrap_or("?").to_owned();
    let owner = match controller(live) {
        Some(owner) => Cow::Owned(format!("{} {} controls it", text(owner, "kind"), text(owner, "name"))),
        None => Cow::Borrowed("it has no controller, and it does not match what the parent selects"),
    };
    match makers(live).into_iter().flatten().next() {
        Some(maker) => format!("{owner}, made by the controller {maker}"),
        None => owner.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_name_is_named() {
        let owner = json!({"kind": "ReplicaSet", "name": "x", "uid": "u", "controller": true});
        let held = json!({"metadata": {"ownerReferences": [{"kind": "A", "name": "a"}, owner]}});
        assert_eq!(holder(&held), "ReplicaSet x controls it");
        let marked = json!({"metadata": {"annotations": {"metahook.dev/controller": "other"}, "ownerReferences": [owner]}});
        assert_eq!(holder(&marked), "ReplicaSet x controls it, made by the controller other");
        let attached = json!({"metadata": {"annotations": {"metacontroller.k8s.io/decorator-controller": "d"}, "ownerReferences": [owner]}});
        assert_eq!(holder(&attached), "ReplicaSet x controls it, made by the controller d");
        assert!(holder(&json!({"metadata": {}})).starts_with("it has no controller"));
    }
}
