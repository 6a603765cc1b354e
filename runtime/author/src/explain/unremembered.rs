//! An object that the servers remember no reconcile of: why that may be, and what to do next.

use std::fmt;

use metahook_core::api::reason::ConditionType;
use metahook_core::bundle::parents_of;
use metahook_core::object::id::ObjectId;
use metahook_core::overview::ControllerAnswer;
use metahook_core::trace::TracedObject;
use metahook_server::cluster::discovery::Discovery;
use serde_json::Value;

use super::{ExplainError, Explainer};
use crate::controllers::{self, KINDS, full_name, resource};
use crate::inspected_server::{Question, Servers};
use crate::status::controller::PATH;

/// Why no reconcile of an object is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unremembered {
    /// The API server has no such object.
    Missing { id: ObjectId },
    /// A controller that is to reconcile it does not run.
    NotRunning { id: ObjectId, controller: String, why: String },
    /// It is there, and these controllers run, which reconcile objects of its kind; none: it is a child at most.
    Calm { id: ObjectId, controllers: Vec<String> },
}

/// A controller that reconciles objects of the kind.
struct Candidate {
    /// Its kind and name.
    name: String,
    object: TracedObject,
    /// What its status says where it is not ready.
    why: Option<String>,
}

impl Explainer {
    /// Why the servers remember no reconcile of an object.
    ///
    /// # Errors
    /// The object or the controllers cannot be read.
    pub async fn unremembered(&self, id: &ObjectId) -> Result<Unremembered, ExplainError> {
        let id = id.clone();
        if self.inspector.api.read_as::<Value>(&id).await?.is_none() {
            return Ok(Unremembered::Missing { id });
        }
        let (mut servers, mut running) = (Servers::default(), Vec::new());
        for Candidate { name, object, why } in self.candidates(&id).await? {
            let question = Question { path: PATH, object: &object, more: &[] };
            let asked = self.inspector.reach_and_ask::<ControllerAnswer>(&mut servers, question).await;
            // Where a server does not say, its condition has to do.
            let runs = match asked {
                Ok((answers, None)) => answers.iter().any(|answer| answer.running.is_some()),
                Ok(_) | Err(_) => why.is_none(),
            };
            if !runs {
                let why = why.unwrap_or_else(|| "no server runs it".to_owned());
                return Ok(Unremembered::NotRunning { id, controller: name, why });
            }
            running.push(name);
        }
        Ok(Unremembered::Calm { id, controllers: running })
    }

    /// The controllers that reconcile objects of this kind.
    async fn candidates(&self, id: &ObjectId) -> Result<Vec<Candidate>, ExplainError> {
        let (api, gvr) = (&self.inspector.api, id.resource.gvr());
        let (discovery, mut all) = (Discovery::new(api.clone()), Vec::new());
        for kind in KINDS {
            let resource = resource(&discovery, kind).await?;
            for controller in api.list_objects(&resource).await? {
                let value = controller.value().unwrap_or_default();
                if parents_of(&value).iter().any(|parents| parents.is_kin(&gvr)) {
                    all.push(Candidate {
                        name: format!("{} {}", kind.as_str(), controller.key.name),
                        object: TracedObject::new(&resource, &controller.key),
                        why: not_ready(&value),
                    });
                }
            }
        }
        Ok(all)
    }
}

/// What the status of a controller says where it is not ready.
fn not_ready(controller: &Value) -> Option<String> {
    let status = controllers::status(controller);
    let ready = ConditionType::Ready.as_str();
    let condition = status.conditions.iter().find(|condition| condition.kind == ready)?;
    (condition.status != "True").then(|| format!("{}: {}", condition.reason, condition.message))
}

impl fmt::Display for Unremembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { id } => {
                let place = if id.key.namespace.is_empty() {
                    String::new()
                } else {
                    format!(" -n {}", id.key.namespace)
                };
                let kinds = full_name(&id.resource);
                write!(
                    f,
                    "{id}: there is no such object, and the server remembers none of this name; kubectl get {kinds}{place} lists those that there are"
                )
            }
            Self::NotRunning { id, controller, why } => {
                let name = controller.split_once(' ').map_or(&**controller, |(_, name)| name);
                write!(
                    f,
                    "{id}: {controller}, which is to reconcile it, does not run: {why}. See metahook status {name}"
                )
            }
            Self::Calm { id, controllers } if controllers.is_empty() => write!(
                f,
                "{id}: it is there, and the server remembers no reconcile that wrote it or decided about it. It remembers the latest ones since it started (--trace-memory-max), and the first hundred children of each. Explain its parent, which the owner reference of the object names"
            ),
            Self::Calm { id, controllers } => write!(
                f,
                "{id}: it is there, {} runs, and the server remembers no reconcile of it. Either it settled, and later reconciles of others took its room (--trace-memory-max), or the controller does not select it: compare its labels with the controller's selector. To see its next reconcile, change it beside metahook explain -f",
                controllers.join(" and ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::object::id::{Gvk, Key, Resource};
    use serde_json::json;

    use super::*;

    fn id() -> ObjectId {
        let gvk = Gvk::new("example.com/v1", "Hello");
        let resource = Resource { gvk, plural: "hellos".into(), namespaced: true, has_status: true };
        ObjectId { resource: resource.into(), key: Key::new("demo", "a") }
    }

    #[test]
    fn each_cause_has_its_own_message_with_what_to_do_next() {
        let controller = "CompositeController hello".to_owned();
        let not_running = Unremembered::NotRunning {
            id: id(),
            controller: controller.clone(),
            why: "InvalidSpec: no hook".to_owned(),
        };
        for (cause, says) in [
            (Unremembered::Missing { id: id() }, "kubectl get hellos.example.com -n demo lists"),
            (not_running, "does not run: InvalidSpec: no hook. See metahook status hello"),
            (
                Unremembered::Calm { id: id(), controllers: vec![controller] },
                "CompositeController hello runs",
            ),
            (Unremembered::Calm { id: id(), controllers: Vec::new() }, "Explain its parent"),
        ] {
            let said = cause.to_string();
            assert!(said.starts_with("Hello demo/a: ") && said.contains(says), "{said}");
        }
    }

    #[test]
    fn a_controller_that_is_not_ready_says_why() {
        let with = |status: &str| {
            json!({ "status": { "conditions": [{
                "type": "Ready", "status": status, "reason": "R", "message": "m", "lastTransitionTime": "",
            }] } })
        };
        assert_eq!(not_ready(&with("False")).as_deref(), Some("R: m"));
        assert_eq!((not_ready(&with("True")), not_ready(&json!({}))), (None, None));
    }
}
