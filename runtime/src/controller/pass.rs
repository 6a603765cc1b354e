//! The pass over one parent, of either kind of controller: the stages in a row, each a decision or an effect.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use metahook_core::children::NoSelector;
use metahook_core::fingerprint::Fingerprint;
use metahook_core::gate::{self, Gate};
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::outcome::{self, Failure, Outcome, Passed, Retry};
use metahook_core::pass::{AnswerError, Before, Decided, Kind, Seen, Terms};
use metahook_core::plan::Problem;
use metahook_core::rollout::revisions::RevisionError;
use metahook_core::spec::hook::HookName;
use metahook_core::standing::{Ask, Rest, Standings};
use metahook_core::text::shorten;
use metahook_core::trigger::Selected;
use metahook_core::wishes::Claimant;
use serde_json::Value;

use super::Tools;
use super::acting::Acted;
use super::claiming::ClaimError;
use super::hooks::{Callees, Calls, HookError, Hooks};
use super::ledgers::Ledgers;
use super::related::{Asking, Customized, RelatedError, Relations};
use super::tasks::Tasks;
use super::told::Told;
use crate::cluster::apply::ApplyError;
use crate::cluster::discovery::DiscoveryError;
use crate::cluster::events::Severity;
use crate::queue::{After, Streaks};
use crate::store::{Store, Writer};
use crate::telemetry::metrics::Meter;
use crate::told::told;

/// A running controller and its parents of one kind: all that a CompositeController has; each kind of objects that a
/// DecoratorController is about has its own.
pub(super) struct Controller {
    pub(super) tools: Tools,
    pub(super) object: Arc<Object>,
    pub(super) terms: Terms,
    /// A DecoratorController, among its like.
    pub(super) claimant: Option<Arc<Claimant>>,
    pub(super) parents: Arc<Store>,
    /// Those of them that are this controller's, where not all are.
    pub(super) selected: Mutex<Selected>,
    /// Of the kinds of children, and of revisions, which are claimed as they are.
    pub(super) children: Vec<Arc<Store>>,
    /// One and the same for all kinds of parents.
    pub(super) hooks: Arc<Hooks>,
    pub(super) relations: Arc<Relations>,
    pub(super) tasks: Tasks,
    pub(super) told: Mutex<Told>,
    pub(super) standings: Mutex<Standings>,
    pub(super) ledgers: Ledgers,
    pub(super) started: Instant,
    pub(super) meter: Arc<Meter>,
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

/// What one pass decided to do, and what it decided on.
pub(super) struct Decision {
    /// The parent as the hook saw it.
    pub(super) parent: Arc<Object>,
    pub(super) decided: Decided,
    rest: Rest,
    /// `None`: nobody knows.
    pure: Option<bool>,
    /// Something was written on the way.
    pub(super) wrote: bool,
}

impl Decision {
    pub(super) fn desired(&self, id: &ObjectId) -> Option<&Value> {
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
pub(super) enum SyncError {
    #[error("selecting children")]
    Selector(#[from] NoSelector),
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

impl Controller {
    /// What a worker calls. The one place where a result becomes queue behaviour, an Event and a log line.
    pub(super) async fn sync(&self, key: &Key, streaks: Streaks) -> After {
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
            Ok(Done::AtRest) => {
                self.meter.tally().skipped(1);
                tracing::debug!(controller = %self.object.key, parent = %key, "at rest");
                return After::Settled(None);
            }
            Ok(done @ (Done::NotOurs | Done::Wrote)) => {
                self.standings().unsettle(key);
                if matches!(done, Done::NotOurs) {
                    self.leave(&parent);
                    self.relations.forget(key);
                    self.ledgers.forget(key);
                    self.forget_told(key);
                }
                (Ok(matches!(done, Done::Wrote)), None)
            }
            Ok(Done::Decided(decision)) => {
                moved = decision.decided.moved;
                let acted = self.act(&decision, &writer, streaks).await;
                self.note(key, &decision, &acted);
                // A write in vain taught what the API server makes of a value: a rollout may go on by that, once.
                let learned = self.terms.kind.rolling().is_some() && streaks.own == 0;
                let again = |acted| acted >= Acted::Wrote || (acted == Acted::InVain && learned);
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
        match outcome::of(Passed { wrote, resync_after }, streaks.failures, streaks.own) {
            Outcome::Settled { again } => After::Settled(again),
            Outcome::FollowUp { .. } if moved => After::GoesOn,
            Outcome::FollowUp { again } => After::FollowUp(again),
            Outcome::Postponed { again } => After::Postponed(again),
            Outcome::Failed { again, event } => {
                if let Some(message) = event {
                    self.tools.recorder.record(&parent, Severity::Warning, "SyncError", &message);
                }
                After::Failed(again)
            }
        }
    }

    /// What cannot be undone comes last, and not where something else is still to be done.
    async fn act(&self, decision: &Decision, writer: &Writer, streaks: Streaks) -> Result<Acted, SyncError> {
        let acted = match self.terms.kind {
            Kind::Composite { .. } => self.compose(decision, writer, streaks).await?,
            Kind::Decorator => self.decorate(decision, writer, streaks).await?,
        };
        if acted == Acted::Gone {
            return Ok(acted);
        }
        Ok(acted.max(self.delete_related(decision, writer, streaks).await?))
    }

    /// From what is observed to what is to be done. Claims are carried out on the way: the hook sees the result.
    async fn decide(&self, parent: Arc<Object>, writer: &Writer) -> Result<Done, SyncError> {
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
            Ask::Nothing => {
                self.standings().stamp(&parent.key, print, stamp);
                return Ok(Done::AtRest);
            }
            Ask::Call => None,
            Ask::Check(answer) => {
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
            self.claim(&parent, &seen.claims, writer).await.map_err(SyncError::Claim)?;
        if let Some(rolled) = &seen.rolled {
            let (_, wrote) =
                self.claim(&parent, &rolled.revisions, writer).await.map_err(SyncError::Claim)?;
            if wrote {
                // What is claimed by which revision is read when they are the parent's.
                return Ok(Done::Wrote);
            }
        }
        let decided = self.consult(&callees, &seen, &children, &mut calls).await?;
        self.say(ask, &parent, &decided.said);
        if !asked.is_empty() {
            self.tell_hidden(&seen);
        }
        self.tell_overlaps(&seen);
        let (answers, pure) = calls.finish();
        let rest = Rest { seen: print, answer: answers, stamp };
        self.judge(&seen, &rest, expected, pure);
        Ok(Done::Decided(Box::new(Decision { parent, decided, rest, pure, wrote: entered || claimed })))
    }

    /// Everything that decides about a parent, and what the customize hook said on the way.
    async fn see(
        &self,
        callees: &Callees,
        parent: &Arc<Object>,
        ask: HookName,
        asking: Asking,
    ) -> Result<(Seen, Vec<Customized>), SyncError> {
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
        let before = Before { ask, hooks: callees.identity, related, rolled, elders };
        let seen = self.terms.see(parent, before, candidates)?;
        Ok((seen, asked))
    }

    /// Through the gate: our finalizer comes on before anything else, and off where no hook waits for it.
    async fn enter(
        &self,
        mut parent: Arc<Object>,
        writer: &Writer,
    ) -> Result<Result<Entered, Done>, SyncError> {
        let mut wrote = false;
        loop {
            let change = match gate::decide(&parent, &self.terms.selection) {
                Gate::Ignore => return Ok(Err(if wrote { Done::Wrote } else { Done::NotOurs })),
                Gate::Ask(ask) => return Ok(Ok(Entered { parent, ask, wrote })),
                // Somebody undoes what we write: that is for another pass, which the brake holds.
                Gate::AddFinalizer | Gate::DropFinalizer if wrote => return Ok(Err(Done::Wrote)),
                Gate::AddFinalizer => self.add_finalizer(&parent, writer).await,
                Gate::DropFinalizer => self.drop_finalizer(&parent, writer).await,
            };
            match change.map_err(SyncError::Finalizer)? {
                Some(now) => (parent, wrote) = (now, true),
                None => return Ok(Err(Done::NotOurs)),
            }
        }
    }

    /// Remembers a parent that has come to rest.
    fn note(&self, key: &Key, decision: &Decision, acted: &Result<Acted, SyncError>) {
        let mut standings = self.standings();
        match acted {
            // What is put right later is still to be done.
            Ok(Acted::Nothing) if decision.pure == Some(true) && decision.decided.plan.again.is_none() => {
                standings.settle(key, decision.rest);
            }
            Ok(_) => standings.unsettle(key),
            // What failed is told with its reason.
            Err(_) => {}
        }
    }

    /// What an answer says about the hooks.
    fn judge(&self, seen: &Seen, rest: &Rest, expected: Option<Fingerprint>, pure: Option<bool>) {
        let Some(pure) = pure else { return };
        let mut standings = self.standings();
        standings.called(seen.hooks, pure);
        if expected.is_some_and(|expected| expected != rest.answer) && standings.differed(seen.hooks) {
            drop(standings);
            let message = format!(
                "The {} hook gave two answers to one request about {}: nothing is skipped any more until its module or a mount changes",
                seen.ask, seen.parent.key
            );
            self.tools.recorder.record(&self.object, Severity::Warning, "ImpureHook", &message);
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
                self.meter.tally().passed(if *wrote { "wrote" } else { "nothing_to_do" });
                tracing::debug!(controller = %self.object.key, parent = %key, wrote, "synced");
            }
            Err(Failure { retry: Retry::Quiet, message, .. }) => {
                self.meter.tally().passed("overtaken");
                tracing::debug!(controller = %self.object.key, parent = %key, reason = message, "tried again");
            }
            Err(Failure { retry: Retry::After(again), message, .. }) => {
                self.meter.tally().passed("postponed");
                tracing::debug!(controller = %self.object.key, parent = %key, ?again, reason = message, "postponed");
            }
            Err(Failure { retry: Retry::Loud, message, category }) => {
                self.meter.tally().passed("failed");
                self.standings().fail(key, category);
                tracing::warn!(controller = %self.object.key, parent = %key, category, reason = message, "sync failed");
            }
        }
    }

    /// What has to be known before anything is decided: without all controllers, too, another one's children would look
    /// like one's own.
    pub(super) fn stores(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.children.iter().chain([&self.parents]).chain(self.tools.controllers.all())
    }

    pub(super) fn standings(&self) -> MutexGuard<'_, Standings> {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pass that panicked says nothing of its parent: it is tried again as after any failure.
pub(super) fn after_panic(streaks: Streaks) -> After {
    let failure = Failure { category: "Bug", message: String::new(), retry: Retry::Quiet };
    match outcome::of(Passed { wrote: Err(failure), resync_after: None }, streaks.failures, streaks.own) {
        Outcome::Settled { again } => After::Settled(again),
        Outcome::Postponed { again } | Outcome::FollowUp { again } | Outcome::Failed { again, .. } => {
            After::Failed(again)
        }
    }
}

fn failure(error: &SyncError) -> Failure {
    let (category, retry) = match error {
        SyncError::Selector(_) => ("Selector", Retry::Loud),
        SyncError::Hook(error) => (error.category(), error.retry()),
        SyncError::Older { source, .. } => (source.category(), source.retry()),
        SyncError::Answer(_, error) => (category(error), Retry::Loud),
        SyncError::Revision(_) => ("Revision", Retry::Loud),
        SyncError::Related(error) => (error.category(), error.retry()),
        SyncError::Claim(error) => ("Claim", error.retry()),
        SyncError::Finalizer(error) => ("Finalizer", error.retry()),
        SyncError::Child { .. } => ("Child", Retry::Loud),
        SyncError::Stray(error) => ("Child", error.retry()),
        SyncError::Apply(error) => ("Write", error.retry()),
    };
    Failure { category, message: shorten(&told(error), 2048), retry }
}

fn category(error: &AnswerError) -> &'static str {
    match error {
        AnswerError::Response(_) | AnswerError::Deletion(_) => "HookAnswer",
        AnswerError::Desired(_) => "HookChildren",
        AnswerError::Revision(_) => "Revision",
        AnswerError::Older { source, .. } => category(source),
    }
}
