//! An object that the servers remember no reconcile of: why that may be, and what to do next.

use std::fmt;

use metahook_core::api::reason::ConditionType;
use metahook_core::api::stored_hooks::StoredHooks;
use metahook_core::api::stored_selection::stored_selection;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::overview::ControllerAnswer;
use metahook_core::trace::TracedObject;
use metahook_server::cluster::discovery::Discovery;
use serde_json::Value;

use super::{ExplainError, Explainer};
use crate::controllers::{self, KINDS, full_name, resource};
use crate::inspected_server::{Question, Servers};
use metahook_core::inspection_paths::CONTROLLER;

/// Why no reconcile of an object is remembered. Controllers are named by kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unremembered {
    /// The API server has no such object.
    Missing { id: ObjectId },
    /// Controllers that are to reconcile it do not run; others do.
    NotRunning { id: ObjectId, stopped: Vec<Stopped>, running: Vec<String> },
    /// These controllers reconcile objects of its kind, and none of them selects it. `parent`: its owner, if it has one.
    NotSelected { id: ObjectId, controllers: Vec<String>, parent: Option<String> },
    /// It is there, and these controllers, which select it, run. `ignoring`: those of them that may ignore it all the same.
    Calm { id: ObjectId, controllers: Vec<String>, ignoring: Vec<Ignoring> },
    /// It is there, and no controller reconciles its kind: it is a child at most. `parent`: its owner, if it has one.
    Child { id: ObjectId, parent: Option<String> },
}

/// A controller that may ignore an object that it selects, as far as its spec shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ignoring {
    /// It has a finalize hook and no sync hook.
    FinalizesOnly { controller: String },
    /// Its hooks are shown Secrets of some namespaces alone.
    SecretsElsewhere { controller: String },
}

impl Ignoring {
    fn of(controller: &str, stored: &Value, id: &ObjectId) -> Option<Self> {
        let (hooks, controller) = (StoredHooks::of(stored), controller.to_owned());
        if hooks.only_finalize() {
            return Some(Self::FinalizesOnly { controller });
        }
        let is_secret = full_name(&id.resource) == "secrets";
        let has_account = stored.pointer("/spec/serviceAccountRef").is_some_and(|account| !account.is_null());
        let is_bounded = !has_account && hooks.is_any_sandboxed();
        (is_secret && is_bounded).then_some(Self::SecretsElsewhere { controller })
    }
}

impl fmt::Display for Ignoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FinalizesOnly { controller } => {
                write!(
                    f,
                    "{controller}, which has a finalize hook alone, reconciles it once it is being deleted"
                )
            }
            Self::SecretsElsewhere { controller } => write!(
                f,
                "{controller}, whose hooks are modules or scripts, reconciles Secrets of the namespaces of --mount-secret-namespaces alone"
            ),
        }
    }
}

/// A controller that does not run, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    pub controller: String,
    pub why: String,
}

/// A controller that reconciles objects of the kind.
struct Candidate {
    /// Its kind and name.
    name: String,
    object: TracedObject,
    /// Its rules, or its finalizer, select the object.
    selects: bool,
    /// Reason and message in the controller's status, where it is not ready.
    why: Option<String>,
    ignoring: Option<Ignoring>,
}

impl Explainer {
    /// Why the servers remember no reconcile of an object.
    ///
    /// # Errors
    /// The object or the controllers cannot be read.
    pub async fn unremembered(&self, id: &ObjectId) -> Result<Unremembered, ExplainError> {
        let id = id.clone();
        let Some(object) = self.inspector.api.read(&id).await? else {
            return Ok(Unremembered::Missing { id });
        };
        let (selecting, others): (Vec<_>, Vec<_>) =
            self.candidates(&id, &object).await?.into_iter().partition(|candidate| candidate.selects);
        if selecting.is_empty() && !others.is_empty() {
            let controllers = others.into_iter().map(|candidate| candidate.name).collect();
            return Ok(Unremembered::NotSelected { id, controllers, parent: parent_of(&object) });
        }
        if selecting.is_empty() {
            return Ok(Unremembered::Child { id, parent: parent_of(&object) });
        }
        let (mut servers, mut running, mut stopped) = (Servers::default(), Vec::new(), Vec::new());
        let mut ignoring = Vec::new();
        for candidate in selecting {
            let question = Question { path: CONTROLLER, object: &candidate.object, more: &[] };
            let asked = self.inspector.reach_and_ask::<ControllerAnswer>(&mut servers, question).await;
            // Where a server does not say, its condition has to do.
            let runs = match asked {
                Ok((answers, None)) => answers.iter().any(|answer| answer.running.is_some()),
                Ok(_) | Err(_) => candidate.why.is_none(),
            };
            let controller = candidate.name;
            if runs {
                running.push(controller);
                ignoring.extend(candidate.ignoring);
            } else {
                let why = candidate.why.unwrap_or_else(|| "no server runs it".to_owned());
                stopped.push(Stopped { controller, why });
            }
        }
        Ok(if stopped.is_empty() {
            Unremembered::Calm { id, controllers: running, ignoring }
        } else {
            Unremembered::NotRunning { id, stopped, running }
        })
    }

    /// The controllers that reconcile objects of this kind.
    async fn candidates(&self, id: &ObjectId, object: &Object) -> Result<Vec<Candidate>, ExplainError> {
        let (api, gvr) = (&self.inspector.api, id.resource.gvr());
        let (discovery, mut all) = (Discovery::new(api.clone()), Vec::new());
        for kind in KINDS {
            let resource = resource(&discovery, kind).await?;
            for controller in api.list_objects(&resource).await? {
                if let Some(selection) = stored_selection(kind, &controller, &gvr) {
                    let name = format!("{} {}", kind.as_str(), controller.key.name);
                    let stored = controller.value().unwrap_or_default();
                    all.push(Candidate {
                        object: TracedObject::new(&resource, &controller.key),
                        selects: selection.includes(object),
                        why: not_ready(&stored),
                        ignoring: Ignoring::of(&name, &stored, id),
                        name,
                    });
                }
            }
        }
        Ok(all)
    }
}

/// Reason and message in the status of a controller, where it is not ready.
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
            Self::NotRunning { id, stopped, running } => {
                write!(f, "{id}: ")?;
                for (nth, Stopped { controller, why }) in stopped.iter().enumerate() {
                    let name = controller.split_once(' ').map_or(&**controller, |(_, name)| name);
                    let space = if nth == 0 { "" } else { ". " };
                    write!(
                        f,
                        "{space}{controller}, which is to reconcile it, does not run: {why}. See metahook status {name}"
                    )?;
                }
                if running.is_empty() {
                    return Ok(());
                }
                write!(f, ". {}, and the server remembers no reconcile of it", run_and_select(running))
            }
            Self::NotSelected { id, controllers, parent } => write!(
                f,
                "{id}: it is there, and of the controllers of its kind none selects it: compare its labels and annotations with the {} of {}. {}",
                if controllers.len() == 1 { "selector" } else { "selectors" },
                controllers.join(" and "),
                as_child(parent.as_deref())
            ),
            Self::Child { id, parent } => write!(
                f,
                "{id}: it is there, and the server remembers no reconcile that wrote it or decided about it. It remembers the latest ones since it started (--trace-memory-max), and the first hundred children of each. {}; if a customize hook selects it, explain the parents of that controller",
                as_child(parent.as_deref())
            ),
            Self::Calm { id, controllers, ignoring } => {
                write!(
                    f,
                    "{id}: it is there, {}, and the server remembers no reconcile of it: it settled, and later reconciles of others took its room (--trace-memory-max)",
                    run_and_select(controllers)
                )?;
                for one in ignoring {
                    write!(f, "; or {one}")?;
                }
                write!(f, ". To see its next reconcile, change it beside metahook explain -f")
            }
        }
    }
}

/// The owner of an object that is its controller, as all parents of children are.
fn parent_of(object: &Object) -> Option<String> {
    let value = object.value().ok()?;
    let owners = value.pointer("/metadata/ownerReferences")?.as_array()?;
    let is_controller = |owner: &&Value| owner.get("controller").and_then(Value::as_bool) == Some(true);
    let owner = owners.iter().find(is_controller)?;
    let text = |field: &str| owner.get(field).and_then(Value::as_str);
    Some(format!("{} {}", text("kind")?, text("name")?))
}

fn as_child(parent: Option<&str>) -> String {
    match parent {
        Some(parent) => format!("Its owner is {parent}: if this is its parent, explain it"),
        None => "No controller owns it, so it is no child".to_owned(),
    }
}

fn run_and_select(controllers: &[String]) -> String {
    let verbs = if controllers.len() == 1 { "runs and selects it" } else { "run and select it" };
    format!("{} {verbs}", controllers.join(" and "))
}

#[cfg(test)]
mod tests;
