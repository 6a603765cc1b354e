//! The pass over one parent of a CompositeController: the stages in a row, each a decision or an effect.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use metahook_core::children::NoSelector;
use metahook_core::fingerprint::Fingerprint;
use metahook_core::gate::{self, Gate};
use metahook_core::index;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::outcome::{self, Failure, Outcome, Passed};
use metahook_core::pass::{AnswerError, Decided, Seen, Terms};
use metahook_core::plan::{self, Op, Problem};
use metahook_core::spec::hook::Limits;
use metahook_core::standing::{Ask, Rest, Standings};
use metahook_core::tally;
use metahook_core::text::shorten;
use serde_json::{Map, Value};

use super::Tools;
use super::claiming::ClaimError;
use crate::cluster::apply::ApplyError;
use crate::cluster::events::Severity;
use crate::hook::wasm::run::{Call, CallError, Log};
use crate::hook::wasm::source::{Followed, Loaded};
use crate::queue::{After, Streaks};
use crate::store::{Store, Writer};
use crate::telemetry::metrics::Meter;
use crate::told::told;

/// A running CompositeController.
pub(super) struct Controller {
    pub(super) tools: Tools,
    pub(super) object: Arc<Object>,
    pub(super) terms: Terms,
    pub(super) parents: Arc<Store>,
    pub(super) children: Vec<Arc<Store>>,
    pub(super) hook: Hook,
    pub(super) standings: Mutex<Standings>,
    pub(super) meter: Arc<Meter>,
}

/// The sync hook.
pub(super) struct Hook {
    pub(super) source: Arc<Followed>,
    pub(super) limits: Limits,
}

/// How far a pass came without an error.
enum Done {
    /// The parent is none of ours.
    NotOurs,
    /// Nothing changed since the parent came to rest.
    AtRest,
    /// Something was written before there was anything to decide.
    Wrote,
    Decided(Box<Decision>),
}

/// What became of what a pass wanted done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Acted {
    /// There was nothing to do.
    Nothing,
    /// The API server took what was written and kept what it had, as it does with fields that it does not know.
    InVain,
    Wrote,
}

/// What one pass decided to do, and what it decided on.
struct Decision {
    decided: Decided,
    rest: Rest,
    pure: bool,
    /// Something was written on the way.
    wrote: bool,
}

#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error("selecting children")]
    Selector(#[from] NoSelector),
    #[error("sync hook")]
    Hook(#[from] CallError),
    #[error("sync hook")]
    Answer(#[from] AnswerError),
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
            self.standings().unsettle(key);
            return After::Settled(None);
        };
        let writer = Writer { controller: self.object.uid.clone(), parent: key.clone() };
        let (wrote, resync_after) = match self.decide(&parent, &writer).await {
            Ok(Done::AtRest) => {
                self.meter.tally().skipped();
                tracing::debug!(controller = %self.object.key, parent = %key, "at rest");
                return After::Settled(None);
            }
            Ok(done @ (Done::NotOurs | Done::Wrote)) => {
                self.standings().unsettle(key);
                (Ok(matches!(done, Done::Wrote)), None)
            }
            Ok(Done::Decided(decision)) => {
                let acted = self.act(&parent, &decision, &writer).await;
                self.note(key, &decision, &acted);
                (acted.map(|acted| acted == Acted::Wrote), decision.decided.resync_after)
            }
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
    async fn decide(&self, parent: &Arc<Object>, writer: &Writer) -> Result<Done, SyncError> {
        match gate::decide(parent, &self.terms.selection) {
            Gate::Ignore => return Ok(Done::NotOurs),
            Gate::DropFinalizer => {
                let wrote = self.drop_finalizer(parent, writer).await?;
                return Ok(if wrote { Done::Wrote } else { Done::NotOurs });
            }
            Gate::Sync => {}
        }
        let hook = self.hook.source.loaded().ok_or(SyncError::NoModule)?;
        let seen = self.terms.see(parent, hook.identity(), |resource| self.candidates(parent, resource))?;
        let print = seen.fingerprint();
        let expected = match self.standings().look(&parent.key, print) {
            Ask::Nothing => return Ok(Done::AtRest),
            Ask::Call => None,
            Ask::Check(answer) => Some(answer),
        };
        let (children, wrote) = self.claim(&seen, writer).await?;
        let (answer, pure) = self.call(&hook, parent, self.terms.request(parent, &children)).await?;
        let rest = Rest { seen: print, answer: Fingerprint::of(&answer) };
        self.judge(&seen, &rest, expected, pure);
        let decided = self.terms.decide(&seen, &children, &answer)?;
        Ok(Done::Decided(Box::new(Decision { decided, rest, pure, wrote })))
    }

    /// Goes on after a failed operation, so that one child does not hold the others.
    async fn act(&self, parent: &Object, decision: &Decision, writer: &Writer) -> Result<Acted, SyncError> {
        let Decided { plan, status, .. } = &decision.decided;
        let mut first = plan
            .problems
            .first()
            .map(|(id, problem)| SyncError::Child { id: Box::new(id.clone()), source: *problem });
        let mut acted = if decision.wrote { Acted::Wrote } else { Acted::Nothing };
        let became = |changed| if changed { Acted::Wrote } else { Acted::InVain };
        for op in &plan.ops {
            match self.carry_out(op, writer).await {
                Ok(changed) => acted = acted.max(became(changed)),
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        if let Some(op) = self.status(parent, status.clone()) {
            match self.carry_out(&op, writer).await {
                Ok(changed) => acted = acted.max(became(changed)),
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        first.map_or(Ok(acted), Err)
    }

    /// Remembers a parent that has come to rest.
    fn note(&self, key: &Key, decision: &Decision, acted: &Result<Acted, SyncError>) {
        let mut standings = self.standings();
        match acted {
            Ok(Acted::Nothing) if decision.pure => standings.settle(key, decision.rest),
            Ok(_) => standings.unsettle(key),
            // What failed is told with its reason.
            Err(_) => {}
        }
    }

    /// What an answer says about the hook.
    fn judge(&self, seen: &Seen, rest: &Rest, expected: Option<Fingerprint>, pure: bool) {
        let mut standings = self.standings();
        standings.called(seen.hook, pure);
        if expected.is_some_and(|expected| expected != rest.answer) && standings.differed(seen.hook) {
            drop(standings);
            let message = format!(
                "The sync hook gave two answers to one request about {}: nothing is skipped any more until its module or a mount changes",
                seen.parent.key
            );
            self.tools.recorder.record(&self.object, Severity::Warning, "ImpureHook", &message);
        }
    }

    fn candidates(&self, parent: &Object, resource: &Arc<Resource>) -> Vec<Arc<Object>> {
        let store = self.children.iter().find(|store| store.resource() == resource);
        store.map(|store| store.candidates(&parent.uid, &parent.key.namespace)).unwrap_or_default()
    }

    /// The answer, and whether the request alone brought it about.
    async fn call(
        &self,
        hook: &Loaded,
        parent: &Object,
        request: Vec<u8>,
    ) -> Result<(Vec<u8>, bool), SyncError> {
        let call = Call {
            controller: &self.object.key.name,
            hook: "sync",
            request: request.into(),
            now: SystemTime::now(),
            limits: self.hook.limits,
            seed: self.tools.seeds.of(&parent.uid),
            mounts: hook.mounts.mounted(),
        };
        let start = Instant::now();
        let called = self.tools.sources.runtime().call(&hook.module, call).await;
        self.meter.tally().called(tally::Called {
            result: called.answer.as_ref().map_or_else(CallError::category, |_| tally::OK),
            took: start.elapsed(),
            memory: called.usage.memory,
            instructions: called.usage.instructions,
        });
        self.log(&parent.key, &called.log);
        Ok((called.answer?, called.pure))
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
            self.meter.tally().wrote(op.verb());
            tracing::info!(controller = %self.object.key, parent = %writer.parent, op = op.verb(), object = %op.id(), "written");
        }
        self.absorb(op.id(), known, writer);
        Ok(changed)
    }

    pub(super) fn absorb(&self, id: &ObjectId, known: Vec<index::Event>, writer: &Writer) {
        if let Some(store) =
            self.children.iter().chain([&self.parents]).find(|store| *store.resource() == id.resource)
        {
            store.absorb(known, Some(writer));
        }
    }

    fn tell(&self, key: &Key, wrote: &Result<bool, Failure>) {
        match wrote {
            Ok(wrote) => {
                self.meter.tally().passed(if *wrote { "wrote" } else { "nothing_to_do" });
                tracing::debug!(controller = %self.object.key, parent = %key, wrote, "synced");
            }
            Err(failure) if failure.quiet => {
                self.meter.tally().passed("overtaken");
                tracing::debug!(controller = %self.object.key, parent = %key, reason = failure.message, "tried again");
            }
            Err(failure) => {
                self.meter.tally().passed("failed");
                self.standings().fail(key, failure.category);
                tracing::warn!(controller = %self.object.key, parent = %key, category = failure.category, reason = failure.message, "sync failed");
            }
        }
    }

    pub(super) fn parent_keys(&self) -> Vec<Key> {
        self.parents.view(|parents| {
            parents
                .all()
                .filter(|parent| self.terms.selection.includes(parent))
                .map(|parent| parent.key.clone())
                .collect()
        })
    }

    pub(super) fn standings(&self) -> MutexGuard<'_, Standings> {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
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
        SyncError::Answer(AnswerError::Response(_)) => "HookAnswer",
        SyncError::Answer(AnswerError::Desired(_)) => "HookChildren",
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
