//! `metahook pause` and `metahook resume`: the annotation of an object that controllers reconcile, or `spec.paused` of a controller.

use std::collections::BTreeSet;
use std::time::Duration;

use metahook_core::api::PAUSED;
use metahook_core::bundle::parents_of;
use metahook_core::object::id::{Gvr, ObjectId};
use metahook_core::readiness::shows_pause;
use metahook_core::reconcile::pause::paused_by;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::RequestError;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::controllers::{self, FindError, KINDS, is_named, resource};
use crate::object_names::{NameError, find_kind, object_id, served};

/// The cluster is looked at so often.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);

/// The word for a controller of either kind.
const CONTROLLER: &str = "controller";

#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("{0} does not exist")]
    NotFound(String),
    #[error(
        "{0}: the API server drops spec.paused, which its CustomResourceDefinitions do not have: apply metahook's own, by `metahook crds | kubectl apply --server-side -f -`"
    )]
    Dropped(String),
    #[error("the kinds of the cluster cannot be read")]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// A cluster whose objects are paused and resumed.
pub struct Pauser {
    pub api: ApiClient,
    /// Where objects are whose name has no namespace.
    pub namespace: String,
    /// How long is waited for a server; zero does not wait.
    pub timeout: Duration,
}

/// An object that was paused or resumed.
#[derive(Debug)]
pub struct Changed {
    pub id: ObjectId,
    pub shown: Shown,
}

/// Knowledge about the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// It has shown the change.
    Yes,
    /// Several controllers may reconcile the object, and these have not shown the change within the time.
    ButBy(Vec<String>),
    /// It has not, within the time; with why that could not be seen, if it could not.
    NotYet(Option<String>),
    /// Nothing can show it, or it was not waited for.
    NotAwaited,
    /// The object was so before.
    Unchanged,
}

/// State of the cluster at one look.
enum Look {
    All,
    /// These controllers have not shown it, and whether any has.
    Without(Vec<String>, bool),
}

impl Pauser {
    /// Pauses or resumes an object. A pause is waited for, until a server has shown it; so is the end of a controller's pause, but not that
    /// of an object's, which nothing shows. `kind`: `controller`, or a plural or singular name; `name`: with or without `namespace/`.
    ///
    /// # Errors
    /// There is no such object, it may be one of several, or the API server refused or dropped the change: nothing was changed.
    pub async fn set(&self, kind: &str, name: &str, paused: bool) -> Result<Changed, PauseError> {
        let discovery = Discovery::new(self.api.clone());
        if kind.eq_ignore_ascii_case(CONTROLLER) {
            let (id, _) = controllers::find(&self.api, name).await?;
            return self.set_controller(id, paused).await;
        }
        let (mut parents, mut hosted) = (BTreeSet::new(), Vec::new());
        for controllers in KINDS {
            let resource = resource(&discovery, controllers).await?;
            if is_named(&resource, kind) {
                return self.set_controller(object_id(resource, name, &self.namespace)?, paused).await;
            }
            for controller in self.api.list_objects(&resource).await? {
                let name = format!("{} {}", controllers.as_str(), controller.key.name);
                let controller = controller.value().unwrap_or_default();
                parents.extend(parents_of(&controller));
                hosted.push((name, controller));
            }
        }
        let parents = served(&discovery, parents).await;
        let resource = find_kind(&discovery, kind, "reconciles", parents).await?;
        let of_kind = resource.gvr();
        let tells = |(name, controller): (String, Value)| tells(&controller, &of_kind).then_some(name);
        let tell = hosted.into_iter().filter_map(tells).collect();
        self.set_parent(object_id(resource, name, &self.namespace)?, paused, tell).await
    }

    /// `tell`: the controllers that write an Event about a pause, if they select the object.
    async fn set_parent(&self, id: ObjectId, paused: bool, tell: Vec<String>) -> Result<Changed, PauseError> {
        let before: Option<Value> = self.api.read_as(&id).await?;
        let before = before.ok_or_else(|| PauseError::NotFound(id.to_string()))?;
        let uid = before.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let namespace = &*id.key.namespace;
        let seen = self.api.list_events(uid, namespace).await;
        let after = self.change(&id, annotation(paused)).await?;
        if version(&before) == version(&after) {
            return Ok(Changed { id, shown: Shown::Unchanged });
        }
        if !paused || tell.is_empty() {
            return Ok(Changed { id, shown: Shown::NotAwaited });
        }
        let seen = match seen {
            Ok(seen) => seen,
            // It would not be seen what is new.
            Err(error) => return Ok(Changed { id, shown: Shown::NotYet(Some(error.to_string())) }),
        };
        let look = async || {
            let now = self.api.list_events(uid, namespace).await?;
            let missing: Vec<_> = tell.iter().filter(|one| !is_told(&seen, &now, one)).cloned().collect();
            let has_any = missing.len() < tell.len();
            Ok(if missing.is_empty() { Look::All } else { Look::Without(missing, has_any) })
        };
        let shown = self.until(look).await;
        Ok(Changed { id, shown })
    }

    async fn set_controller(&self, id: ObjectId, paused: bool) -> Result<Changed, PauseError> {
        let after = self.change(&id, spec(paused)).await?;
        if after.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or_default() != paused {
            return Err(PauseError::Dropped(id.to_string()));
        }
        let look = async || {
            let now: Option<Value> = self.api.read_as(&id).await?;
            let is_shown = now.is_some_and(|now| shows_pause(&now, paused));
            Ok(if is_shown { Look::All } else { Look::Without(Vec::new(), false) })
        };
        let shown = self.until(look).await;
        Ok(Changed { id, shown })
    }

    /// The object is changed by now: an error of a look is what its last words say.
    async fn until(&self, look: impl AsyncFn() -> Result<Look, RequestError>) -> Shown {
        if self.timeout.is_zero() {
            return Shown::NotAwaited;
        }
        let start = Instant::now();
        loop {
            let seen = look().await;
            match (seen, start.elapsed() >= self.timeout) {
                (Ok(Look::All), _) => return Shown::Yes,
                (Ok(Look::Without(missing, true)), true) => return Shown::ButBy(missing),
                (Ok(Look::Without(..)), true) => return Shown::NotYet(None),
                (Err(error), true) => return Shown::NotYet(Some(error.to_string())),
                (_, false) => tokio::time::sleep(LOOK_INTERVAL).await,
            }
        }
    }

    /// Changes the object; gives it back as it is then.
    async fn change(&self, id: &ObjectId, patch: Value) -> Result<Value, PauseError> {
        let after: Option<Value> = self.api.merge(id, &patch).await?;
        after.ok_or_else(|| PauseError::NotFound(id.to_string()))
    }
}

fn version(object: &Value) -> Option<&Value> {
    object.pointer("/metadata/resourceVersion")
}

/// Whether a controller writes an Event about a paused parent of this kind. One that is paused itself does so seldom.
fn tells(controller: &Value, parents: &Gvr) -> bool {
    let is_paused = controller.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or_default();
    !is_paused && parents_of(controller).iter().any(|kind| kind.is_kin(parents))
}

/// Whether a controller has written an Event, or counted one more time, since the object was changed. `seen`: the Events before.
fn is_told(seen: &[Value], now: &[Value], controller: &str) -> bool {
    let begin = paused_by(controller);
    let is_about = |event: &&Value| event["message"].as_str().is_some_and(|text| text.starts_with(&begin));
    let is_new = |event: &Value| seen.iter().all(|before| version(before) != version(event));
    now.iter().filter(is_about).any(is_new)
}

/// The change of a controller. A field that is gone says the same as `false`, and is less to read.
fn spec(paused: bool) -> Value {
    json!({ "spec": { "paused": paused.then_some(true) } })
}

/// The change of a parent.
fn annotation(paused: bool) -> Value {
    json!({ "metadata": { "annotations": { PAUSED: paused.then_some("true") } } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_of_the_kind_tells_unless_it_is_paused_itself() {
        let controller = |paused: Value, version: &str| {
            let parent = json!({ "apiVersion": format!("e.com/{version}"), "resource": "hellos" });
            json!({ "spec": { "parentResource": parent, "paused": paused } })
        };
        let hellos = Gvr::new("e.com/v1", "hellos");
        assert!(
            tells(&controller(Value::Null, "v1"), &hellos) && tells(&controller(json!(false), "v2"), &hellos)
        );
        assert!(!tells(&controller(json!(true), "v1"), &hellos));
        assert!(!tells(&controller(Value::Null, "v1"), &Gvr::new("e.com/v1", "others")));
    }

    #[test]
    fn an_event_since_the_change_shows_a_pause() {
        let event = |version: &str, controller: &str| {
            let message = format!("{controller} calls no hook for this object and writes nothing");
            json!({ "metadata": { "resourceVersion": version }, "reason": "Paused", "message": message })
        };
        let [one, two] = ["CompositeController a", "CompositeController ab"];
        let seen = [event("1", one)];
        assert!(!is_told(&seen, &seen, one), "of an earlier pause");
        assert!(is_told(&seen, &[event("2", one)], one), "counted once more");
        assert!(!is_told(&seen, &[event("2", two)], one) && is_told(&[], &[event("2", two)], two));
    }

    #[test]
    fn what_is_resumed_has_no_trace_of_a_pause() {
        assert_eq!(spec(true), json!({ "spec": { "paused": true } }));
        assert_eq!(spec(false), json!({ "spec": { "paused": null } }));
        assert_eq!(annotation(false)["metadata"]["annotations"][PAUSED], Value::Null);
    }
}
