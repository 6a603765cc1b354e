//! The pass over one parent of a CompositeController: the stages in a row, each a decision or an effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metahook_core::gate::{self, Gate};
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::object::map::ChildMap;
use metahook_core::object::selector::Selector;
use metahook_core::outcome::{self, Failure, Outcome, Passed};
use metahook_core::plan::desired::{Bounds, DesiredError, Rule};
use metahook_core::plan::{self, Op, Plan, Problem};
use metahook_core::protocol::request;
use metahook_core::protocol::response::{self, Mode, Response, ResponseError};
use metahook_core::spec::hook::{HookVersion, Limits};
use metahook_core::text::shorten;
use metahook_core::trigger::Selection;
use metahook_core::{children, index};
use serde_json::{Map, Value};

use super::Tools;
use super::claiming::ClaimError;
use crate::cluster::apply::ApplyError;
use crate::cluster::events::Severity;
use crate::hook::wasm::run::{Call, CallError, Log, Seed};
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
    pub(super) selection: Selection,
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
    pub(super) settings: Option<String>,
    pub(super) limits: Limits,
}

/// What one pass decided to do.
#[derive(Default)]
struct Decided {
    plan: Plan,
    /// `None`: the parent is none of ours.
    status: Option<Map<String, Value>>,
    resync_after: Option<Duration>,
    /// Something was written on the way.
    wrote: bool,
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
        let writer = Writer { controller: self.object.uid.clone(), parent: key.clone() };
        let (wrote, resync_after) = match self.decide(&parent, &writer).await {
            Ok(decided) => (self.act(&parent, &decided, &writer).await, decided.resync_after),
            Err(error) => (Err(error), None),
        };
        let wrote = wrote.map_err(|error| failure(&error));
        self.tell(key, &wrote);
        match outcome::of(Passed { wrote, resync_after }, streaks.failures, streaks.own) {
            Outcome::Settled { again } => After::Settled(again),
            Outcome::FollowUp { again } => After::FollowUp(again),
            Outcome::Failed { again, event } => {
                if let Some(message) = event {
                    self.tools.recorder.record(&parent, Severity::Warning, "SyncError", &message);
                }
                After::Failed(again)
            }
        }
    }

    /// From what is observed to what is to be done. Claims are carried out on the way: the hook sees the result.
    async fn decide(&self, parent: &Arc<Object>, writer: &Writer) -> Result<Decided, SyncError> {
        match gate::decide(parent, &self.selection) {
            Gate::Ignore => return Ok(Decided::default()),
            Gate::DropFinalizer => {
                let wrote = self.drop_finalizer(parent, writer).await?;
                return Ok(Decided { wrote, ..Decided::default() });
            }
            Gate::Sync => {}
        }
        let selector = children::selector(parent, self.generate_selector)?;
        let (observed, wrote) = self.claim(parent, &selector, writer).await?;
        let answer = self.call(parent, self.request(parent, &observed)).await?;
        let Response { status, children, resync_after } =
            response::sync(&answer, self.mode(), self.tools.max_children)?;
        let desired = plan::desired::desired(parent, self.bounds(&selector), children)?;
        let plan = plan::children::children(parent, &observed, &desired, &self.rules);
        Ok(Decided { plan, status: Some(status), resync_after, wrote })
    }

    /// `true` when something was written. Goes on after a failed operation, so that one child does not hold the others.
    async fn act(&self, parent: &Object, decided: &Decided, writer: &Writer) -> Result<bool, SyncError> {
        let mut first = decided
            .plan
            .problems
            .first()
            .map(|(id, problem)| SyncError::Child { id: Box::new(id.clone()), source: *problem });
        let mut wrote = decided.wrote;
        for op in &decided.plan.ops {
            match self.carry_out(op, writer).await {
                Ok(changed) => wrote |= changed,
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        if let Some(op) = decided.status.clone().and_then(|status| self.status(parent, status)) {
            match self.carry_out(&op, writer).await {
                Ok(changed) => wrote |= changed,
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        first.map_or(Ok(wrote), Err)
    }

    fn request(&self, parent: &Object, observed: &ChildMap) -> Vec<u8> {
        let (settings, naming) = (self.hook.settings.as_deref(), self.hook.version.naming());
        request::Sync { controller: &self.snapshot, parent, children: observed, settings, naming }.bytes()
    }

    fn mode(&self) -> Mode {
        match self.hook.version {
            HookVersion::V1 => Mode::Loose,
            HookVersion::V2 => Mode::Strict,
        }
    }

    fn bounds<'a>(&'a self, selector: &'a Selector) -> Bounds<'a> {
        Bounds { rules: &self.rules, selector, generated: self.generate_selector }
    }

    async fn call(&self, parent: &Object, request: Vec<u8>) -> Result<Vec<u8>, SyncError> {
        let module = self.hook.module.module().ok_or(SyncError::NoModule)?;
        let call = Call {
            controller: &self.object.key.name,
            hook: "sync",
            request: request.into(),
            limits: self.hook.limits,
            seed: Seed::default(),
            mounts: &[],
        };
        let called = self.tools.modules.runtime().call(&module, call).await;
        self.log(&parent.key, &called.log);
        Ok(called.answer?)
    }

    /// Each line of a hook's stderr is a log record; a flood of them is cut.
    fn log(&self, parent: &Key, log: &Log) {
        const MOST: usize = 100;
        let mut lines = log.text.lines().filter(|line| !line.trim().is_empty());
        for line in lines.by_ref().take(MOST) {
            tracing::info!(target: "hook", controller = %self.object.key, hook = "sync", %parent, "{line}");
        }
        let more = lines.count();
        if more > 0 || log.lost > 0 {
            tracing::info!(target: "hook", controller = %self.object.key, hook = "sync", %parent, "{more} more lines and {} bytes beyond limits.log were cut", log.lost);
        }
    }

    fn status(&self, parent: &Object, status: Map<String, Value>) -> Option<Op> {
        // An adoption or another writer may have changed the parent since: what is compared is the latest of the same
        // generation, so that only an answer to another spec is refused by the API server.
        let now = self.parents.get(&parent.key).filter(|now| now.uid == parent.uid)?;
        let now = if now.generation == parent.generation { &now } else { parent };
        let body = plan::status::status(now, status)?;
        Some(Op::Status {
            id: ObjectId { resource: Arc::clone(self.parents.resource()), key: parent.key.clone() },
            body,
        })
    }

    /// One operation, and what its answer says into the store; `true` when it changed something.
    async fn carry_out(&self, op: &Op, writer: &Writer) -> Result<bool, SyncError> {
        let known = self.tools.rest.carry_out(op).await?;
        let changed = op.is_answered_by_a_change(&known);
        if changed {
            tracing::info!(controller = %self.object.key, parent = %writer.parent, op = op.verb(), object = %op.id(), "written");
        }
        self.absorb(op.id(), known, writer);
        Ok(changed)
    }

    pub(super) fn absorb(&self, id: &ObjectId, known: Vec<index::Event>, writer: &Writer) {
        let children = self.children.iter().map(|(_, store)| store);
        if let Some(store) = children.chain([&self.parents]).find(|store| *store.resource() == id.resource) {
            store.absorb(known, Some(writer));
        }
    }

    fn tell(&self, key: &Key, wrote: &Result<bool, Failure>) {
        match wrote {
            Ok(wrote) => {
                self.failing().remove(key);
                tracing::debug!(controller = %self.object.key, parent = %key, wrote, "synced");
            }
            Err(failure) if failure.quiet => {
                tracing::debug!(controller = %self.object.key, parent = %key, reason = failure.message, "tried again");
            }
            Err(failure) => {
                self.failing().insert(key.clone(), failure.category);
                tracing::warn!(controller = %self.object.key, parent = %key, category = failure.category, reason = failure.message, "sync failed");
            }
        }
    }

    pub(super) fn parent_keys(&self) -> Vec<Key> {
        self.parents.view(|parents| {
            parents
                .all()
                .filter(|parent| self.selection.includes(parent))
                .map(|parent| parent.key.clone())
                .collect()
        })
    }

    pub(super) fn failing(&self) -> MutexGuard<'_, BTreeMap<Key, &'static str>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pass that panicked says nothing of its parent: it is tried again as after any failure.
pub(super) fn after_panic(streaks: Streaks) -> After {
    let failure = Failure { category: "Bug", message: String::new(), quiet: true };
    match outcome::of(Passed { wrote: Err(failure), resync_after: None }, streaks.failures, streaks.own) {
        Outcome::Settled { again } => After::Settled(again),
        Outcome::FollowUp { again } | Outcome::Failed { again, .. } => After::Failed(again),
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
    Failure { category, message: shorten(&told(error), 2048), quiet }
}
