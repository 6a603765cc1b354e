//! The pass over one parent, of either kind of controller: the stages in a row, each a decision or an effect.

pub(super) mod apply;
pub(super) mod children;
pub(super) mod claims;
pub(super) mod composite;
pub(super) mod decorator;
pub(super) mod event_dedup;
pub(super) mod hooks;
pub(super) mod needs_reconcile;
pub(super) mod related_deletion;
pub(super) mod rolling;
pub(super) mod write_histories;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use metahook_core::api::hook::HookName;
use metahook_core::api::reason::EventReason;
use metahook_core::cache::trigger::Selected;
use metahook_core::children::Problem;
use metahook_core::controller_metrics::ReconcileResult;
use metahook_core::decorator::conflicts::DecoratorId;
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::child_selector::ChildSelectorError;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::reconcile::outcome::{self, Failure, Outcome, Reconciled, Retry};
use metahook_core::reconcile::phase::{self, Phase};
use metahook_core::reconcile::plan::{
    AnswerError, ControllerConfig, InputParts, KindConfig, ReconcileInput, ReconcilePlan,
};
use metahook_core::rollout::revisions::RevisionError;
use metahook_core::settled::{HookNeed, SettledParents, SettledState};
use metahook_core::text::shorten;
use serde_json::Value;

use crate::cluster::apply::ApplyError;
use crate::cluster::discovery::DiscoveryError;
use crate::controller::Context;
use crate::controller::reconcile::apply::WriteResult;
use crate::controller::reconcile::claims::ClaimError;
use crate::controller::reconcile::event_dedup::EventDedup;
use crate::controller::reconcile::hooks::{Callees, Calls, HookError, Hooks};
use crate::controller::reconcile::write_histories::WriteHistories;
use crate::controller::related::{Asking, Customized, RelatedError, RelatedObjects};
use crate::error_chain::error_chain;
use crate::queue::{After, Streaks};
use crate::store::{Store, Writer};
use crate::sync::{Tasks, lock};
use crate::telemetry::metrics::Meter;

/// A running controller and its parents of one kind: all that a CompositeController has; each kind of objects that a
/// DecoratorController is about has its own.
pub(crate) struct Reconciler {
    pub(crate) tools: Context,
    pub(crate) object: Arc<Object>,
    pub(crate) terms: ControllerConfig,
    /// A DecoratorController, among its like.
    pub(crate) claimant: Option<Arc<DecoratorId>>,
    pub(crate) parents: Arc<Store>,
    /// Those of them that are this controller's, where not all are.
    pub(crate) selected: Mutex<Selected>,
    /// Of the kinds of children, and of revisions, which are claimed as they are.
    pub(crate) children: Vec<Arc<Store>>,
    /// One and the same for all kinds of parents.
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) relations: Arc<RelatedObjects>,
    pub(crate) tasks: Tasks,
    pub(crate) told: Mutex<EventDedup>,
    pub(crate) standings: Mutex<SettledParents>,
    pub(crate) ledgers: WriteHistories,
    pub(crate) started: Instant,
    pub(crate) meter: Arc<Meter>,
}

/// How far a pass came without an error.
enum Progress {
    /// The parent is none of ours.
    NotOurs,
    /// Nothing changed since the parent came to rest.
    AtRest,
    /// Something was written before there was anything to decide.
    Wrote,
    Decided(Box<Decision>),
}

/// What one pass decided to do, and what it decided on.
pub(crate) struct Decision {
    /// The parent as the hook saw it.
    pub(crate) parent: Arc<Object>,
    pub(crate) decided: ReconcilePlan,
    rest: SettledState,
    /// `None`: nobody knows.
    pure: Option<bool>,
    /// Something was written on the way.
    pub(crate) wrote: bool,
}

impl Decision {
    pub(crate) fn desired(&self, id: &ObjectId) -> Option<&Value> {
        self.decided.desired.get(&id.resource)?.get(&id.key)
    }
}

/// A parent that the gate lets through.
struct Entered {
    parent: Arc<Object>,
    ask: HookName,
    /// It has just been given or rid of a finalizer.
    wrote: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("selecting children")]
    Selector(#[from] ChildSelectorError),
    #[error(transparent)]
    Hook(#[from] HookError),
    #[error("{0} hook")]
    Answer(HookName, #[source] AnswerError),
    #[error("the {hook} hook, asked about the parent as it was at ControllerRevision {revision}")]
    Older { hook: HookName, revision: String, source: HookError },
    #[error(transparent)]
    Revision(#[from] RevisionError),
    #[error(transparent)]
    Related(#[from] RelatedError),
    #[error("claiming children")]
    Claim(#[source] ClaimError),
    #[error("the parent's finalizer")]
    Finalizer(#[source] ClaimError),
    #[error("{id}")]
    Child { id: Box<ObjectId>, source: Problem },
    #[error("a child")]
    Stray(#[from] DiscoveryError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl Reconciler {
    /// What a worker calls. The one place where a result becomes queue behaviour, an Event and a log line.
    pub(crate) async fn sync(&self, key: &Key, streaks: Streaks) -> After {
        let Some(parent) = self.parents.get(key) else {
            self.standings().forget(key);
            self.ledgers.forget(key);
            self.relations.forget(key);
            self.forget_told(key);
            return After::Settled(None);
        };
        if self.restless(std::slice::from_ref(&parent)).is_empty() {
            return After::Settled(None);
        }
        // On the heap: most looks end above, and whoever calls this would have to make room for the rest of a pass.
        let after = Box::pin(self.pass(key, Arc::clone(&parent), streaks)).await;
        self.forget_gone(&parent.uid);
        after
    }

    async fn pass(&self, key: &Key, parent: Arc<Object>, streaks: Streaks) -> After {
        let writer = Writer {
            controller: self.object.uid.clone(),
            parents: Arc::clone(self.parents.resource()),
            parent: key.clone(),
        };
        let mut moved = false;
        let (wrote, resync_after) = match self.decide(Arc::clone(&parent), &writer).await {
            Ok(Progress::AtRest) => {
                self.meter.counts().skipped(1);
                tracing::debug!(controller = %self.object.key, parent = %key, "at rest");
                return After::Settled(None);
            }
            Ok(done @ (Progress::NotOurs | Progress::Wrote)) => {
                self.standings().unsettle(key);
                if matches!(done, Progress::NotOurs) {
                    self.leave(&parent);
                    self.relations.forget(key);
                    self.ledgers.forget(key);
                    self.forget_told(key);
                }
                (Ok(matches!(done, Progress::Wrote)), None)
            }
            Ok(Progress::Decided(decision)) => {
                moved = decision.decided.moved;
                let acted = self.act(&decision, &writer, streaks).await;
                self.note(key, &decision, &acted);
                // A write in vain taught what the API server makes of a value: a rollout may go on by that, once.
                let learned = self.terms.kind.rolling().is_some() && streaks.own == 0;
                let again = |acted| acted >= WriteResult::Wrote || (acted == WriteResult::InVain && learned);
                (acted.map(again), decision.decided.resync_after)
            }
            Err(error) => {
                if let Some(who) = &self.claimant {
                    self.tools.wishing.passed(&parent.uid, who);
                }
                (Err(error), None)
            }
        };
        let wrote = wrote.map_err(|error| failure(&error));
        self.tell(key, &wrote);
        match outcome::of(Reconciled { wrote, resync_after }, streaks.failures, streaks.own) {
            Outcome::Settled { again } => After::Settled(again),
            Outcome::FollowUp { .. } if moved => After::GoesOn,
            Outcome::FollowUp { again } => After::FollowUp(again),
            Outcome::Postponed { again } => After::Postponed(again),
            Outcome::Failed { again, event } => {
                if let Some(message) = event {
                    self.tools.recorder.record(&parent, EventReason::SyncError, &message);
                }
                After::Failed(again)
            }
        }
    }

    /// What cannot be undone comes last, and not where something else is still to be done.
    async fn act(
        &self,
        decision: &Decision,
        writer: &Writer,
        streaks: Streaks,
    ) -> Result<WriteResult, ReconcileError> {
        let acted = match self.terms.kind {
            KindConfig::Composite { .. } => self.compose(decision, writer, streaks).await?,
            KindConfig::Decorator => self.decorate(decision, writer, streaks).await?,
        };
        if acted == WriteResult::Gone {
            return Ok(acted);
        }
        Ok(acted.max(self.delete_related(decision, writer, streaks).await?))
    }

    /// From what is observed to what is to be done. Claims are carried out on the way: the hook sees the result.
    async fn decide(&self, parent: Arc<Object>, writer: &Writer) -> Result<Progress, ReconcileError> {
        let Entered { parent, ask, wrote: entered } = match self.enter(parent, writer).await? {
            Ok(entered) => entered,
            Err(done) => return Ok(done),
        };
        let callees = self.hooks.now()?;
        // Before anything is looked at: what changes from now on has another number.
        let stamp = self.stamp(&parent, &callees, self.tools.controllers.changes());
        let (mut seen, mut asked) = self.see(&callees, &parent, ask, Asking::OnlyWhatIsNew).await?;
        let mut print = seen.fingerprint();
        let look = self.standings().look(&parent.key, print);
        let expected = match look {
            HookNeed::Nothing => {
                self.standings().stamp(&parent.key, print, stamp);
                return Ok(Progress::AtRest);
            }
            HookNeed::Call => None,
            HookNeed::Check(answer) => {
                (seen, asked) = self.see(&callees, &parent, ask, Asking::Anew).await?;
                print = seen.fingerprint();
                Some(answer)
            }
        };
        let mut calls = Calls::default();
        for asked in &asked {
            calls.customized(asked);
        }
        let (children, claimed) =
            self.claim(&parent, &seen.claims, writer).await.map_err(ReconcileError::Claim)?;
        if let Some(rolled) = &seen.rolled {
            let (_, wrote) =
                self.claim(&parent, &rolled.revisions, writer).await.map_err(ReconcileError::Claim)?;
            if wrote {
                // What is claimed by which revision is read when they are the parent's.
                return Ok(Progress::Wrote);
            }
        }
        let decided = self.consult(&callees, &seen, &children, &mut calls).await?;
        self.say(ask, &parent, &decided.said);
        if !asked.is_empty() {
            self.tell_hidden(&seen);
        }
        self.tell_overlaps(&seen);
        let (answers, pure) = calls.finish();
        let rest = SettledState { seen: print, answer: answers, stamp };
        self.judge(&seen, &rest, expected, pure);
        Ok(Progress::Decided(Box::new(Decision { parent, decided, rest, pure, wrote: entered || claimed })))
    }

    /// Everything that decides about a parent, and what the customize hook said on the way.
    async fn see(
        &self,
        callees: &Callees,
        parent: &Arc<Object>,
        ask: HookName,
        asking: Asking,
    ) -> Result<(ReconcileInput, Vec<Customized>), ReconcileError> {
        let candidates = self.candidates_of(parent);
        let mut rolled = self.terms.roll(parent, &candidates);
        let mut states = vec![Arc::clone(parent)];
        if self.terms.hooks.customize.is_some() {
            let history = self.terms.history(parent, rolled.as_ref())?;
            let older = history.into_iter().flat_map(|history| &history.older);
            states.extend(older.map(|one| Arc::clone(&one.parent)));
        }
        let (mut related, asked) = self.related(callees, &states, asking).await?;
        if let Some(rolled) = &mut rolled {
            rolled.related = related.split_off(1);
        }
        let related = related.pop().unwrap_or_default();
        let elders = self.elders(parent);
        let before = InputParts { ask, hooks: callees.identity, related, rolled, elders };
        let seen = self.terms.see(parent, before, candidates)?;
        Ok((seen, asked))
    }

    /// Through the gate: our finalizer comes on before anything else, and off where no hook waits for it.
    async fn enter(
        &self,
        mut parent: Arc<Object>,
        writer: &Writer,
    ) -> Result<Result<Entered, Progress>, ReconcileError> {
        let mut wrote = false;
        loop {
            let change = match phase::decide(&parent, &self.terms.selection) {
                Phase::Ignore => return Ok(Err(if wrote { Progress::Wrote } else { Progress::NotOurs })),
                Phase::Ask(ask) => return Ok(Ok(Entered { parent, ask, wrote })),
                // Somebody undoes what we write: that is for another pass, which the brake holds.
                Phase::AddFinalizer | Phase::DropFinalizer if wrote => return Ok(Err(Progress::Wrote)),
                Phase::AddFinalizer => self.add_finalizer(&parent, writer).await,
                Phase::DropFinalizer => self.drop_finalizer(&parent, writer).await,
            };
            match change.map_err(ReconcileError::Finalizer)? {
                Some(now) => (parent, wrote) = (now, true),
                None => return Ok(Err(Progress::NotOurs)),
            }
        }
    }

    /// Remembers a parent that has come to rest.
    fn note(&self, key: &Key, decision: &Decision, acted: &Result<WriteResult, ReconcileError>) {
        let mut standings = self.standings();
        match acted {
            // What is put right later is still to be done.
            Ok(WriteResult::Nothing)
                if decision.pure == Some(true) && decision.decided.plan.again.is_none() =>
            {
                standings.settle(key, decision.rest);
            }
            Ok(_) => standings.unsettle(key),
            // What failed is told with its reason.
            Err(_) => {}
        }
    }

    /// What an answer says about the hooks.
    fn judge(
        &self,
        seen: &ReconcileInput,
        rest: &SettledState,
        expected: Option<Fingerprint>,
        pure: Option<bool>,
    ) {
        let Some(pure) = pure else { return };
        let mut standings = self.standings();
        standings.called(seen.hooks, pure);
        if expected.is_some_and(|expected| expected != rest.answer) && standings.differed(seen.hooks) {
            drop(standings);
            let message = format!(
                "The {} hook gave two answers to one request about {}: nothing is skipped any more until its module or a mount changes",
                seen.ask, seen.parent.key
            );
            self.tools.recorder.record(&self.object, EventReason::ImpureHook, &message);
        }
    }

    /// What a parent could claim of a kind, without what another controller made.
    fn candidates_of(
        &self,
        parent: &Arc<Object>,
    ) -> impl Fn(&Arc<Resource>, Option<&Selector>) -> Vec<Arc<Object>> + use<'_> {
        let parent = Arc::clone(parent);
        move |resource, selector| {
            let store = self.children.iter().find(|store| store.resource() == resource);
            let mut all = store
                .map(|store| store.candidates(&parent.uid, &parent.key.namespace, selector))
                .unwrap_or_default();
            all.retain(|object| self.anothers(object).is_none());
            all
        }
    }

    fn tell(&self, key: &Key, wrote: &Result<bool, Failure>) {
        match wrote {
            Ok(wrote) => {
                self.meter.counts().reconciled(if *wrote {
                    ReconcileResult::Wrote
                } else {
                    ReconcileResult::Unchanged
                });
                tracing::debug!(controller = %self.object.key, parent = %key, wrote, "synced");
            }
            Err(Failure { retry: Retry::Quiet, message, .. }) => {
                self.meter.counts().reconciled(ReconcileResult::Conflict);
                tracing::debug!(controller = %self.object.key, parent = %key, reason = message, "tried again");
            }
            Err(Failure { retry: Retry::After(again), message, .. }) => {
                self.meter.counts().reconciled(ReconcileResult::Postponed);
                tracing::debug!(controller = %self.object.key, parent = %key, ?again, reason = message, "postponed");
            }
            Err(Failure { retry: Retry::Loud, message, category }) => {
                self.meter.counts().reconciled(ReconcileResult::Failed);
                self.standings().fail(key, category);
                tracing::warn!(controller = %self.object.key, parent = %key, category, reason = message, "sync failed");
            }
        }
    }

    /// What has to be known before anything is decided: without all controllers, too, another one's children would look
    /// like one's own.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.children.iter().chain([&self.parents]).chain(self.tools.controllers.all())
    }

    pub(crate) fn standings(&self) -> MutexGuard<'_, SettledParents> {
        lock(&self.standings)
    }
}

/// A pass that panicked says nothing of its parent: it is tried again as after any failure.
pub(crate) fn after_panic(streaks: Streaks) -> After {
    let failure = Failure { category: "Bug", message: String::new(), retry: Retry::Quiet };
    match outcome::of(Reconciled { wrote: Err(failure), resync_after: None }, streaks.failures, streaks.own) {
        Outcome::Settled { again } => After::Settled(again),
        Outcome::Postponed { again } | Outcome::FollowUp { again } | Outcome::Failed { again, .. } => {
            After::Failed(again)
        }
    }
}

fn failure(error: &ReconcileError) -> Failure {
    let (category, retry) = match error {
        ReconcileError::Selector(_) => ("Selector", Retry::Loud),
        ReconcileError::Hook(error) => (error.category(), error.retry()),
        ReconcileError::Older { source, .. } => (source.category(), source.retry()),
        ReconcileError::Answer(_, error) => (category(error), Retry::Loud),
        ReconcileError::Revision(_) => ("Revision", Retry::Loud),
        ReconcileError::Related(error) => (error.category(), error.retry()),
        ReconcileError::Claim(error) => ("Claim", error.retry()),
        ReconcileError::Finalizer(error) => ("Finalizer", error.retry()),
        ReconcileError::Child { .. } => ("Child", Retry::Loud),
        ReconcileError::Stray(error) => ("Child", error.retry()),
        ReconcileError::Apply(error) => ("Write", error.retry()),
    };
    Failure { category, message: shorten(&error_chain(error), 2048), retry }
}

fn category(error: &AnswerError) -> &'static str {
    match error {
        AnswerError::Response(_) | AnswerError::Deletion(_) => "HookAnswer",
        AnswerError::Desired(_) => "HookChildren",
        AnswerError::Revision(_) => "Revision",
        AnswerError::Older { source, .. } => category(source),
    }
}
