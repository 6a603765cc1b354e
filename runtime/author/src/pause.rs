//! `metahook pause` and `metahook resume`: the annotation of an object that controllers reconcile, or `spec.paused` of a controller.

use std::collections::BTreeSet;
use std::sync::Arc;

use metahook_core::api::PAUSED;
use metahook_core::bundle::parents_of;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::RequestError;
use serde_json::{Value, json};

use crate::controllers::{self, FindError, KINDS, full_name, is_named, resource};

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
}

impl Pauser {
    /// Pauses or resumes an object; gives back what was changed. `kind`: `controller`, or a plural or singular name; `name`: with or
    /// without `namespace/`.
    ///
    /// # Errors
    /// There is no such object, it may be one of several, or the API server refused the change: nothing was changed.
    pub async fn set(&self, kind: &str, name: &str, paused: bool) -> Result<ObjectId, PauseError> {
        let discovery = Discovery::new(self.api.clone());
        if kind.eq_ignore_ascii_case(CONTROLLER) {
            let (id, _) = controllers::find(&self.api, name).await?;
            return self.change(id, spec(paused)).await;
        }
        let mut parents = BTreeSet::new();
        for controllers in KINDS {
            let resource = resource(&discovery, controllers).await?;
            if is_named(&resource, kind) {
                return self.change(self.id(resource, name)?, spec(paused)).await;
            }
            for controller in self.api.list_objects(&resource).await? {
                parents.extend(controller.value().iter().flat_map(parents_of));
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
        self.change(self.id(resource, name)?, annotation(paused)).await
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

    async fn change(&self, id: ObjectId, patch: Value) -> Result<ObjectId, PauseError> {
        match self.api.merge::<Value>(&id, &patch).await? {
            Some(_) => Ok(id),
            None => Err(PauseError::NotFound(id.to_string())),
        }
    }
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
    fn what_is_resumed_has_no_trace_of_a_pause() {
        assert_eq!(spec(true), json!({ "spec": { "paused": true } }));
        assert_eq!(spec(false), json!({ "spec": { "paused": null } }));
        assert_eq!(annotation(false)["metadata"]["annotations"][PAUSED], Value::Null);
    }
}
