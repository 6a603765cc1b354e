//! The pass over one parent of a CompositeController: the stages in a row, each a decision or an effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use metahook_core::gate::{self, Gate};
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::object::map::{ChildMap, Naming};
use metahook_core::object::selector::Selector;
use metahook_core::outcome::{self, Done, Failure, Outcome};
use metahook_core::plan::desired::{Bounds, DesiredError, Rule};
use metahook_core::plan::{self, Op, Plan, Problem};
use metahook_core::protocol::request;
use metahook_core::protocol::response::{self, Mode, Response, ResponseError};
use metahook_core::spec::hook::{HookVersion, Limits};
use metahook_core::{children, index};

use super::Tools;
use super::claiming::ClaimError;
use crate::cluster::apply::ApplyError;
use crate::cluster::events::Severity;
use crate::hook::wasm::run::{Call, CallError};
use crate::hook::wasm::source::Followed;
use crate::queue::{After, Streaks};
use crate::store::{Store, Writer};
use crate::told::told;

/// A running CompositeController.
pub(super) struct Controller {
    pub(super) tools: Tools,
    pub(super) object: Arc<Object>,
    /// The controller as hooks see it.
    pub(super) snapshot: String,
    pub(super) parents: Arc<Store>,
    pub(super) parent_selector: Selector,
    pub(super) children: Vec<(Rule, Arc<Store>)>,
    pub(super) rules: Vec<Rule>,
    pub(super) generate_selector: bool,
    pub(super) hook: Hook,
    /// Parents whose last pass failed, and in which way.
    pub(super) failing: Mutex<BTreeMap<Key, &'static str>>,
}

/// The sync hook.
pub(super) struct Hook {
    pub(super) module: Arc<Followed>,
    pub(super) version: HookVersion,
    pub(super) naming: Naming,
    pub(super) settings: Option<String>,
    pub(super) limits: Limits,
}

#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error("selecting children")]
    Selector(#[from] children::NoSelector),
    #[error("sync hook")]
    Hook(#[from] CallError),
    #[error("sync hook")]
    Response(#[from] ResponseError),
    #[error("sync hook")]
    Desired(#[from] DesiredError),
    #[error("claiming children")]
    Claim(#[from] ClaimError),
    #[error("{id}")]
    Child { id: Box<ObjectId>, source: Problem },
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("no module is loaded")]
    NoModule,
}

impl Controller {
    /// What a worker calls. The one place where a result becomes queue behaviour, an Event and a log line.
    pub(super) async fn sync(&self, key: &Key, streaks: Streaks) -> After {
        let Some(parent) = self.parents.get(key) else {
            self.failing().remove(key);
            return After::Settled(None);
        };
        let result = self.pass(&parent).await.map_err(|error| failure(&error));
        match &result {
            Ok(done) => {
                self.failing().remove(key);
                tracing::debug!(controller = %self.object.key, parent = %key, wrote = done.wrote, "synced");
            }
            Err(failure) if failure.quiet => {
                tracing::debug!(controller = %self.object.key, parent = %key, reason = failure.message, "tried again");
            }
            Err(failure) => {
                self.failing().insert(key.clone(), failure.category);
                tracing::warn!(controller = %self.object.key, parent = %key, category = failure.category, reason = failure.message, "sync failed");
            }
        }
        let wrote = result.as_ref().is_ok_and(|done| done.wrote);
        match outcome::of(result, streaks.failures, streaks.own) {
            Outcome::Done { again: Some(again) } if wrote => After::FollowUp(again),
            Outcome::Done { again } => After::Settled(again),
            Outcome::Failed { again, event } => {
                if let Some(message) = event {
                    self.tools
                        .recorder
                        .record(&parent, Severity::Warning, "SyncError", &message);
                }
                After::Failed(again)
            }
        }
    }

    async fn pass(&self, parent: &Arc<Object>) -> Result<Done, SyncError> {
        if gate::decide(parent, &self.parent_selector) == Gate::Ignore {
            return Ok(Done::default());
        }
        let writer = Writer {
            controller: self.object.uid.clone(),
            parent: parent.key.clone(),
        };
        let selector = children::selector(parent, self.generate_selector)?;
        let (observed, claimed) = self.claim(parent, &selector, &writer).await?;
        let answer = self.call(parent, self.request(parent, &observed)).await?;
        let Response {
            status,
            children,
            resync_after,
        } = response::sync(&answer, self.mode())?;
        let bounds = Bounds {
            rules: &self.rules,
            selector: &selector,
            generated: self.generate_selector,
            max_children: self.tools.max_children,
        };
        let desired = plan::desired::desired(parent, bounds, children)?;
        let plan = plan::children::children(parent, &observed, &desired, &self.rules);
        let children = self.carry_out_all(&plan, &writer).await;
        let status = self.write_status(parent, status, &writer).await;
        Ok(Done {
            wrote: claimed | children? | status?,
            resync_after,
        })
    }

    fn request(&self, parent: &Object, observed: &ChildMap) -> Vec<u8> {
        let settings = self.hook.settings.as_deref();
        request::Sync {
            controller: &self.snapshot,
            parent,
            children: observed,
            settings,
            naming: self.hook.naming,
        }
        .bytes()
    }

    fn mode(&self) -> Mode {
        match self.hook.version {
            HookVersion::V1 => Mode::Loose,
            HookVersion::V2 => Mode::Strict,
        }
    }

    async fn call(&self, parent: &Object, request: Vec<u8>) -> Result<Vec<u8>, SyncError> {
        let module = self.hook.module.module().ok_or(SyncError::NoModule)?;
        let call = Call {
            controller: &self.object.key.name,
            hook: "sync",
            request,
            limits: self.hook.limits,
        };
        let called = self.tools.modules.runtime().call(&module, call).await;
        for line in called.log.text.lines() {
            tracing::info!(target: "hook", controller = %self.object.key, hook = "sync", parent = %parent.key, "{line}");
        }
        if called.log.lost > 0 {
            tracing::info!(target: "hook", controller = %self.object.key, hook = "sync", parent = %parent.key, "{} more bytes were cut (limits.log)", called.log.lost);
        }
        Ok(called.answer?)
    }

    /// Goes on after a failed operation, so that one child does not hold the others; answers with the first failure.
    async fn carry_out_all(&self, plan: &Plan, writer: &Writer) -> Result<bool, SyncError> {
        let mut first = plan.problems.first().map(|(id, problem)| SyncError::Child {
            id: Box::new(id.clone()),
            source: *problem,
        });
        for op in &plan.ops {
            if let Err(error) = self.carry_out(op, writer).await {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(!plan.ops.is_empty()), Err)
    }

    async fn write_status(
        &self,
        parent: &Object,
        status: serde_json::Map<String, serde_json::Value>,
        writer: &Writer,
    ) -> Result<bool, SyncError> {
        // What was just written to the parent (an adoption checks it, a stale answer is refused) is in the store.
        let Some(now) = self.parents.get(&parent.key).filter(|now| now.uid == parent.uid) else {
            return Ok(false);
        };
        let now = if now.generation == parent.generation {
            &now
        } else {
            parent
        };
        let Some(body) = plan::status::status(now, status) else {
            return Ok(false);
        };
        let id = ObjectId {
            resource: Arc::clone(self.parents.resource()),
            key: parent.key.clone(),
        };
        self.carry_out(&Op::Status { id, body }, writer).await?;
        Ok(true)
    }

    /// One operation, and what its answer says into the store.
    async fn carry_out(&self, op: &Op, writer: &Writer) -> Result<(), SyncError> {
        let known = self.tools.rest.carry_out(op).await?;
        tracing::info!(controller = %self.object.key, parent = %writer.parent, op = op.verb(), object = %op.id(), "written");
        self.absorb(op.id(), known, writer);
        Ok(())
    }

    pub(super) fn absorb(&self, id: &ObjectId, known: Vec<index::Event>, writer: &Writer) {
        let children = self.children.iter().map(|(_, store)| store);
        if let Some(store) = children
            .chain([&self.parents])
            .find(|store| *store.resource() == id.resource)
        {
            store.absorb(known, Some(writer));
        }
    }

    pub(super) fn parent_keys(&self) -> BTreeSet<Key> {
        self.parents.view(|parents| {
            let all = parents.in_namespace("");
            all.filter(|parent| self.parent_selector.matches(&parent.labels))
                .map(|parent| parent.key.clone())
                .collect()
        })
    }

    fn failing(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, &'static str>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pass that panicked says nothing of its parent: it is tried again as after any failure.
pub(super) fn after_panic(streaks: Streaks) -> After {
    let failure = Failure {
        category: "Bug",
        message: String::new(),
        quiet: true,
    };
    match outcome::of(Err(failure), streaks.failures, streaks.own) {
        Outcome::Done { again } => After::Settled(again),
        Outcome::Failed { again, .. } => After::Failed(again),
    }
}

fn failure(error: &SyncError) -> Failure {
    let category = match error {
        SyncError::Selector(_) => "Selector",
        SyncError::Hook(error) => error.category(),
        SyncError::Response(_) => "HookAnswer",
        SyncError::Desired(_) => "HookChildren",
        SyncError::Claim(_) => "Claim",
        SyncError::Child { .. } => "Child",
        SyncError::Apply(_) => "Write",
        SyncError::NoModule => "Module",
    };
    let quiet = match error {
        SyncError::Apply(error) | SyncError::Claim(ClaimError::Apply(error)) => error.is_conflict(),
        _ => false,
    };
    Failure {
        category,
        message: told(error),
        quiet,
    }
}
