//! `metahook pause` and `metahook resume`: the annotation of an object that controllers reconcile, or `spec.paused` of a controller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::PAUSED;
use metahook_core::api::status::ControllerStatus;
use metahook_core::bundle::parents_of;
use metahook_core::object::id::{Gvr, Key, ObjectId, Resource};
use metahook_core::readiness::{shows_pause, shows_paused_parent};
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::RequestError;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::controllers::{self, FindError, KINDS, full_name, is_named, resource};

/// The status of controllers is read so often.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);

/// Kinds that a message names.
const MAX_NAMES: usize = 10;

/// The word for a controller of either kind.
const CONTROLLER: &str = "controller";

#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error("{kind:?}: no controller of the cluster reconciles objects of this kind; {known}")]
    UnknownKind { kind: String, known: String },
    #[error("{kind:?} may be any of {found}: add the group to the plural name, for example {example}")]
    SeveralKinds { kind: String, found: String, example: String },
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("{0} does not exist")]
    NotFound(String),
    #[error("{0} has no namespaces, and {1:?} names one: leave it out")]
    NoNamespace(String, String),
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

/// What is known of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The status of a controller shows the change.
    Yes,
    /// It does not, after the time.
    NotYet,
    /// It was not waited for; or nothing can show it, as nothing was changed, or the controllers of the object are paused themselves.
    NotAwaited,
}

/// A controller, and its status before the change.
type Before = (ObjectId, ControllerStatus);

impl Pauser {
    /// Pauses or resumes an object, and waits until a server has shown that. `kind`: `controller`, or a plural or singular name; `name`: with or
    /// without `namespace/`.
    ///
    /// # Errors
    /// There is no such object, it may be one of several, or the API server refused the change: nothing was changed.
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
                return self.set_controller(self.id(resource, name)?, paused).await;
            }
            for controller in self.api.list_objects(&resource).await? {
                let id = ObjectId { resource: Arc::clone(&resource), key: controller.key.clone() };
                let controller = controller.value().unwrap_or_default();
                parents.extend(parents_of(&controller));
                hosted.push((id, controller));
            }
        }
        let mut known = BTreeSet::new();
        for parent in parents {
            match discovery.resolve_any_version(&parent).await {
                Ok(resource) => drop(known.insert(resource)),
                Err(error) if error.is_not_served() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let resource = one_of(kind, &known)?;
        let of_kind = resource.gvr();
        let id = self.id(resource, name)?;
        let is_changed = self.change(&id, annotation(paused)).await?.is_some();
        let before: Vec<_> = hosted
            .into_iter()
            .filter(|(_, controller)| counts(controller, &of_kind))
            .map(with_status)
            .collect();
        let shown = if is_changed { self.until_counted(&before, paused).await? } else { Shown::NotAwaited };
        Ok(Changed { id, shown })
    }

    async fn set_controller(&self, id: ObjectId, paused: bool) -> Result<Changed, PauseError> {
        self.change(&id, spec(paused)).await?;
        let is_shown = async || {
            let now: Option<Value> = self.api.read_as(&id).await?;
            Ok(now.is_some_and(|now| shows_pause(&now, paused)))
        };
        let shown = self.until(is_shown).await?;
        Ok(Changed { id, shown })
    }

    /// Waits until a controller counts the parent, or does no longer.
    async fn until_counted(&self, before: &[Before], paused: bool) -> Result<Shown, PauseError> {
        if before.is_empty() {
            return Ok(Shown::NotAwaited);
        }
        let is_shown = async || {
            for (id, before) in before {
                let now: Option<Value> = self.api.read_as(id).await?;
                if now.is_some_and(|now| shows_paused_parent(before, &controllers::status(&now), paused)) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        self.until(is_shown).await
    }

    async fn until(
        &self,
        is_shown: impl AsyncFn() -> Result<bool, RequestError>,
    ) -> Result<Shown, PauseError> {
        if self.timeout.is_zero() {
            return Ok(Shown::NotAwaited);
        }
        let start = Instant::now();
        while !is_shown().await? {
            if start.elapsed() >= self.timeout {
                return Ok(Shown::NotYet);
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(Shown::Yes)
    }

    fn id(&self, resource: Arc<Resource>, name: &str) -> Result<ObjectId, PauseError> {
        let (given, name) = name.split_once('/').map_or((None, name), |(given, name)| (Some(given), name));
        let namespace = match (resource.namespaced, given) {
            (true, given) => given.unwrap_or(&self.namespace),
            (false, None) => "",
            (false, Some(given)) => {
                return Err(PauseError::NoNamespace(resource.gvk.kind.to_string(), given.to_owned()));
            }
        };
        let key = Key::new(namespace, name);
        Ok(ObjectId { resource, key })
    }

    /// Changes the object; `None`: it was so before.
    async fn change(&self, id: &ObjectId, patch: Value) -> Result<Option<()>, PauseError> {
        let version = |object: &Value| object.pointer("/metadata/resourceVersion").cloned();
        let before: Option<Value> = self.api.read_as(id).await?;
        let after: Option<Value> = self.api.merge(id, &patch).await?;
        let after = after.ok_or_else(|| PauseError::NotFound(id.to_string()))?;
        Ok((before.as_ref().and_then(version) != version(&after)).then_some(()))
    }
}

/// Whether a controller counts paused parents of this kind: one that is paused itself counts all of its parents in any case.
fn counts(controller: &Value, parents: &Gvr) -> bool {
    let is_paused = controller.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or_default();
    !is_paused && parents_of(controller).iter().any(|kind| kind.is_kin(parents))
}

fn with_status((id, controller): (ObjectId, Value)) -> Before {
    (id, controllers::status(&controller))
}

/// The change of a controller. A field that is gone says the same as `false`, and is less to read.
fn spec(paused: bool) -> Value {
    json!({ "spec": { "paused": paused.then_some(true) } })
}

/// The change of a parent.
fn annotation(paused: bool) -> Value {
    json!({ "metadata": { "annotations": { PAUSED: paused.then_some("true") } } })
}

/// The kind of parents that a word names.
fn one_of(kind: &str, known: &BTreeSet<Arc<Resource>>) -> Result<Arc<Resource>, PauseError> {
    let found: Vec<_> = known.iter().filter(|resource| is_named(resource, kind)).collect();
    match found.as_slice() {
        [one] => Ok(Arc::clone(one)),
        [] => {
            let known = match known.len() {
                0 => "there are no controllers".to_owned(),
                _ => format!("those that are: {}", names(&known.iter().collect::<Vec<_>>())),
            };
            Err(PauseError::UnknownKind { kind: kind.to_owned(), known })
        }
        [first, ..] => Err(PauseError::SeveralKinds {
            kind: kind.to_owned(),
            found: names(&found),
            example: full_name(first),
        }),
    }
}

/// Names for a message, the first ones of many.
fn names(all: &[&Arc<Resource>]) -> String {
    let first: Vec<_> = all.iter().take(MAX_NAMES).map(|one| full_name(one)).collect();
    let rest = all.len() - first.len();
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    first.join(", ") + &rest
}

#[cfg(test)]
mod tests {
    use metahook_core::object::id::Gvk;

    use super::*;

    fn kind(api_version: &str, kind: &str, plural: &str) -> Arc<Resource> {
        Arc::new(Resource {
            gvk: Gvk::new(api_version, kind),
            plural: plural.into(),
            namespaced: true,
            has_status: true,
        })
    }

    fn found(kind: &str, known: &[Arc<Resource>]) -> Result<String, String> {
        let known = known.iter().cloned().collect();
        one_of(kind, &known).map(|resource| full_name(&resource)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_kind_is_named_as_kubectl_takes_it() {
        let known = [kind("v1", "Pod", "pods"), kind("example.com/v1", "Hello", "hellos")];
        for word in ["hellos", "hello", "Hello", "hellos.example.com"] {
            assert_eq!(found(word, &known), Ok("hellos.example.com".to_owned()), "{word}");
        }
        assert_eq!(found("pod", &known), Ok("pods".to_owned()));
        let error = found("things", &known).unwrap_err();
        assert!(error.contains("\"things\"") && error.ends_with("hellos.example.com"), "{error}");
        assert!(found("things", &[]).unwrap_err().ends_with("there are no controllers"));
    }

    #[test]
    fn of_many_kinds_a_message_names_the_first_and_counts_the_rest() {
        let known: Vec<_> = (0..12).map(|nth| kind(&format!("g{nth}.com/v1"), "Job", "jobs")).collect();
        let error = found("things", &known[..10]).unwrap_err();
        assert!(!error.contains("more"), "{error}");
        assert!(found("things", &known).unwrap_err().ends_with(" and 2 more"));
    }

    #[test]
    fn a_word_for_two_kinds_needs_the_group() {
        let known = [kind("a.com/v1", "Job", "jobs"), kind("batch/v1", "Job", "jobs")];
        let error = found("jobs", &known).unwrap_err();
        assert!(error.contains("jobs.a.com, jobs.batch"), "{error}");
        assert_eq!(found("jobs.batch", &known), Ok("jobs.batch".to_owned()));
    }

    #[test]
    fn a_controller_of_the_kind_counts_unless_it_is_paused_itself() {
        let controller = |paused: Value, version: &str| {
            let parent = json!({ "apiVersion": format!("e.com/{version}"), "resource": "hellos" });
            json!({ "spec": { "parentResource": parent, "paused": paused } })
        };
        let hellos = Gvr::new("e.com/v1", "hellos");
        assert!(
            counts(&controller(Value::Null, "v1"), &hellos)
                && counts(&controller(json!(false), "v2"), &hellos)
        );
        assert!(!counts(&controller(json!(true), "v1"), &hellos));
        assert!(!counts(&controller(Value::Null, "v1"), &Gvr::new("e.com/v1", "others")));
    }

    #[test]
    fn what_is_resumed_has_no_trace_of_a_pause() {
        assert_eq!(spec(true), json!({ "spec": { "paused": true } }));
        assert_eq!(spec(false), json!({ "spec": { "paused": null } }));
        assert_eq!(annotation(false)["metadata"]["annotations"][PAUSED], Value::Null);
    }
}
