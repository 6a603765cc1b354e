//! First half of a reconcile: from the parent to a plan that may be carried out. It writes finalizers and claims alone.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::api::hook::HookName;
use crate::api::reason::EventReason;
use crate::api::selection::FinalizerChange;
use crate::children::claims::{Claim, ClaimedObject};
use crate::error_chain;
use crate::hash::Fingerprint;
use crate::object::id::Resource;
use crate::object::selector::Selector;
use crate::object::{ChildMap, Object};
use crate::reconcile::error::{ClaimError, ReconcileError};
use crate::reconcile::input::{InputParts, ReconcileInput};
use crate::reconcile::memory as estimate;
use crate::reconcile::outcome::Retry;
use crate::reconcile::pause::Pause;
use crate::reconcile::plan::ReconcilePlan;
use crate::reconcile::ports::{Customized, Fact, RelatedQuery, World};
use crate::reconcile::rollout::RolloutState;
use crate::reconcile::sequence::ask::summary;
use crate::reconcile::sequence::{Planned, Reached, ReconcileReport, Sequence};
use crate::reconcile::{Phase, phase};
use crate::settled::{HookNeed, Purity, SettledState};

/// A child that was replaced meanwhile is read again at most so often.
const MAX_READS: usize = 3;

/// The input of a reconcile, and the answers of the customize hook that it is made with.
struct Gathered {
    input: ReconcileInput,
    fingerprint: Fingerprint,
    customized: Vec<Customized>,
}

/// The children of a parent once its claims are carried out.
#[derive(Debug)]
pub struct ClaimedChildren {
    pub children: ChildMap,
    /// A claim changed its object.
    pub has_changed: bool,
    /// Why owner references could not be renewed. The children are as they should be otherwise, so the reconcile goes on, and
    /// fails at its end.
    pub errors: Vec<ReconcileError>,
}

/// Claims that the API server refuses before the others have to wait for the next try: each costs a request.
const MAX_REFUSED: usize = 20;

impl<W: World> Sequence<'_, W> {
    /// From the parent to a plan. Claims are carried out on the way, so that the hook is shown their result.
    pub(super) async fn prepare(
        &self,
        parent: Arc<Object>,
        report: &mut ReconcileReport,
    ) -> Result<ControlFlow<Reached, Planned>, ReconcileError> {
        let world = self.world;
        world.charge(estimate::of_parent(&parent))?;
        let (parent, hook) = match self.enter(parent, report).await? {
            ControlFlow::Continue(parent_and_hook) => parent_and_hook,
            ControlFlow::Break(reached) => return Ok(ControlFlow::Break(reached)),
        };
        let hooks = world.hooks()?;
        let version = world.version(&hooks);
        // Before anything is read: later changes give another revision.
        let revision = world.cache_revision(&parent, version);
        let query = RelatedQuery { hook, cached: true };
        let mut gathered = self.gather(&hooks, &parent, query).await?;
        let need = world.settled(|settled| settled.hook_need(&parent.key, gathered.fingerprint));
        let expected = match need {
            HookNeed::Nothing => {
                world.settled(|settled| settled.renew(&parent.key, gathered.fingerprint, revision));
                world.brake(|brake, now| {
                    brake.still_settled(|| Some((world.parent_id(&parent), version)), now);
                });
                return Ok(ControlFlow::Break(Reached::Settled));
            }
            HookNeed::Call => None,
            HookNeed::Check(answer) => {
                gathered = self.gather(&hooks, &parent, RelatedQuery { cached: false, ..query }).await?;
                Some(answer)
            }
        };
        let Gathered { input, fingerprint, customized } = self.read_children(&hooks, gathered).await?;
        world.check_room()?;
        world.charge(estimate::of_claims(&input.claims))?;
        let left_out = input.left_out.message(world.config().shown_bounds(hook));
        world.record(&parent, Fact::Warnings(EventReason::ChildrenLeftOut, left_out.into_iter().collect()));
        let claimed = match self.claim_all(&input, report).await? {
            ControlFlow::Continue(claimed) => claimed,
            ControlFlow::Break(reached) => return Ok(ControlFlow::Break(reached)),
        };
        let (plan, answers) = self.plan(&hooks, &input, &claimed.children).await?;
        self.brake_deletions(&input, &plan).await?;
        world.record(&parent, Fact::Planned { input: &input, plan: &plan, customized: &customized });
        let (answer, pure) = summary(&customized, &answers);
        let pure = pure.filter(|_| plan.feedback.left_out.is_empty());
        if let Some(pure) = pure {
            let differs = expected.is_some_and(|expected| expected != answer);
            self.note_purity(&input, pure, differs);
        }
        if let Some(latest) = answers.into_iter().next() {
            world.answered(input, claimed.children, latest.bytes);
        }
        let state = SettledState { seen: fingerprint, answer, revision };
        let unrenewed = claimed.errors;
        Ok(ControlFlow::Continue(Planned { parent, plan, state, pure, unrenewed, version, hook }))
    }

    /// Puts the finalizer in order: it is added before anything else, and dropped where no hook waits for it. Gives back the
    /// parent, and the hook that decides about it.
    async fn enter(
        &self,
        mut parent: Arc<Object>,
        report: &mut ReconcileReport,
    ) -> Result<ControlFlow<Reached, (Arc<Object>, HookName)>, ReconcileError> {
        let selection = &self.world.config().selection;
        let mut has_written = false;
        loop {
            let phase = phase(&parent, selection);
            if phase != Phase::Ignore && self.is_paused(&parent) {
                return Ok(ControlFlow::Break(Reached::Paused));
            }
            if let Phase::AddFinalizer | Phase::Ask(_) = phase {
                self.world.may_show(&parent).await?;
            }
            let now = match phase {
                Phase::Ask(hook) => return Ok(ControlFlow::Continue((parent, hook))),
                // Another client undoes the write: that is left to another reconcile, which the queue throttles.
                Phase::Ignore | Phase::AddFinalizer | Phase::DropFinalizer if has_written => {
                    return Ok(ControlFlow::Break(Reached::WroteBeforePlan));
                }
                Phase::Ignore => return Ok(ControlFlow::Break(Reached::Ignored)),
                Phase::DropFinalizer => self.drop_finalizer(&parent).await?,
                Phase::AddFinalizer => {
                    self.change_finalizers(&parent, FinalizerChange::Add(&selection.finalizer)).await?
                }
            };
            let Some(now) = now else { return Ok(ControlFlow::Break(Reached::Ignored)) };
            parent = now;
            (has_written, report.wrote_before_plan) = (true, true);
        }
    }

    /// Whether the parent is paused; records it once, and forgets that once the pause has ended.
    fn is_paused(&self, parent: &Object) -> bool {
        let pause = Pause::of(parent, self.world.config());
        let event = pause.as_ref().and_then(|pause| pause.event(parent, self.world.config()));
        if pause.is_some() || self.world.settled(|settled| settled.is_paused(&parent.key)) {
            for reason in [EventReason::Paused, EventReason::PauseUnclear] {
                let message =
                    event.iter().filter(|(told, _)| *told == reason).map(|(_, message)| message.clone());
                self.world.record(parent, Fact::Warnings(reason, message.collect()));
            }
        }
        pause.is_some()
    }

    /// Reads the children that are known by their metadata alone, and the rest once more. What is read stays whole.
    async fn read_children(
        &self,
        hooks: &W::Hooks,
        mut gathered: Gathered,
    ) -> Result<Gathered, ReconcileError> {
        for _ in 0..MAX_READS {
            if gathered.input.unread().next().is_none() {
                break;
            }
            for child in gathered.input.unread() {
                let size = estimate::of_read(&child.object);
                self.world.charge(size)?;
                let read = self.world.read_child(child).await;
                self.world.refund(size);
                read?;
            }
            let (parent, hook) = (Arc::clone(&gathered.input.parent), gathered.input.hook);
            gathered = self.gather(hooks, &parent, RelatedQuery { hook, cached: true }).await?;
        }
        let unread = gathered.input.unread().next().map(ClaimedObject::id);
        match unread {
            Some(id) => Err(ReconcileError::Claim(ClaimError::Unread { id: Box::new(id) })),
            None => Ok(gathered),
        }
    }

    /// Reads everything that decides about the parent.
    async fn gather(
        &self,
        hooks: &W::Hooks,
        parent: &Arc<Object>,
        query: RelatedQuery,
    ) -> Result<Gathered, ReconcileError> {
        let (world, config) = (self.world, self.world.config());
        let candidates = |resource: &Arc<Resource>, selector: Option<&Selector>| {
            world.candidates(parent, resource, selector)
        };
        let mut rollout = RolloutState::of(config, parent, candidates);
        let mut states = vec![Arc::clone(parent)];
        if let Some(rollout) = rollout.as_ref().filter(|_| config.hooks.customize.is_some()) {
            world.charge(estimate::of_revisions(rollout, parent))?;
            states.extend(rollout.history()?.older.iter().map(|older| Arc::clone(&older.parent)));
        }
        let version = world.version(hooks);
        // Cached answers of a module that gave two answers to one request are not used.
        let in_sandbox = config.hooks.customize.as_ref().is_some_and(|hook| hook.via.runs_in_sandbox());
        let differs = world.settled(|settled| settled.purity_of(version)) == Some(Purity::Differs);
        let query = RelatedQuery { cached: query.cached && !(in_sandbox && differs), ..query };
        let mut found = match world.related(hooks, &states, query).await {
            // An older state may be forged: where the customize hook fails about one, no hook is asked about any of them.
            Err(error) if states.len() > 1 && error.retry == Retry::WithEvent => {
                states.truncate(1);
                let found = world.related(hooks, &states, query).await?;
                if let Some(rollout) = &mut rollout {
                    rollout.left_out = Some(error_chain(&error));
                }
                found
            }
            found => found?,
        };
        if let Some(rollout) = &mut rollout {
            rollout.related = found.related.split_off(found.related.len().min(1));
        }
        let parts = InputParts {
            hook: query.hook,
            hooks: version,
            related: found.related.pop().unwrap_or_default(),
            rollout,
            older_decorators: world.older_decorators(parent),
        };
        let input = ReconcileInput::of(config, parent, parts, candidates)?;
        Ok(Gathered { fingerprint: world.fingerprint(&input), input, customized: found.customized })
    }

    /// Carries out the claims on children, then those on the revisions of a rollout.
    async fn claim_all(
        &self,
        input: &ReconcileInput,
        report: &mut ReconcileReport,
    ) -> Result<ControlFlow<Reached, ClaimedChildren>, ReconcileError> {
        let mut claimed = self.claim(&input.parent, &input.claims).await?;
        report.wrote_before_plan |= claimed.has_changed;
        if let Some(rollout) = &input.rollout {
            let revisions = self.claim(&input.parent, &rollout.revisions).await?;
            if revisions.has_changed {
                // The content of revisions is read once they are the parent's.
                return Ok(ControlFlow::Break(Reached::WroteBeforePlan));
            }
            claimed.errors.extend(revisions.errors);
        }
        Ok(ControlFlow::Continue(claimed))
    }

    /// Carries claims out: orphans are adopted, children that no longer match are released, and owner references name the
    /// parent as it is read now. An object that the API server does not let the parent claim does not stop the other claims,
    /// so that the error names all of them, up to [`MAX_REFUSED`].
    pub(super) async fn claim(
        &self,
        parent: &Object,
        claims: &[ClaimedObject],
    ) -> Result<ClaimedChildren, ReconcileError> {
        let children = self.world.config().no_children();
        let mut claimed = ClaimedChildren { children, has_changed: false, errors: Vec::new() };
        let (mut failed, mut parent_exists) = (Vec::new(), false);
        for one @ ClaimedObject { resource, claim, .. } in claims {
            match self.claim_one(one, parent, &mut parent_exists).await {
                Ok(now) => {
                    if !matches!(claim, Claim::Keep | Claim::Leave) {
                        self.accept();
                        claimed.has_changed = true;
                    }
                    if let Some(now) = now {
                        claimed.children.insert(resource, now);
                    }
                }
                // The plan needs the child as it is now where another client was faster.
                Err(error) if *claim == Claim::Renew && error.retry() != Retry::Silent => {
                    claimed.children.insert(resource, whole(one).map_err(ReconcileError::Claim)?);
                    claimed.errors.push(ReconcileError::Claim(error));
                }
                Err(error) => {
                    let goes_on = error.is_refusal_of(one);
                    failed.push(ReconcileError::Claim(error));
                    if !goes_on || failed.len() >= MAX_REFUSED {
                        break;
                    }
                }
            }
        }
        if !failed.is_empty() {
            failed.append(&mut claimed.errors);
        }
        ReconcileError::of_all("claims", failed).map_or(Ok(claimed), Err)
    }

    /// Carries a claim out; gives back the child as it is then, where the parent has it. `parent_exists`: the API server said so
    /// in this reconcile.
    async fn claim_one(
        &self,
        one: &ClaimedObject,
        parent: &Object,
        parent_exists: &mut bool,
    ) -> Result<Option<Arc<Object>>, ClaimError> {
        let now = match one.claim {
            Claim::Leave => None,
            Claim::Keep => Some(whole(one)?),
            Claim::Renew => self.world.claim(one, parent).await?,
            Claim::Adopt => {
                // The one that was read may be long gone.
                if !*parent_exists && !self.world.is_there(parent).await? {
                    return Err(ClaimError::ParentGone { id: Box::new(one.id()) });
                }
                *parent_exists = true;
                // The plan is made for the version that the API server has now.
                self.world.claim(one, parent).await?
            }
            Claim::Release => {
                self.world.claim(one, parent).await?;
                None
            }
        };
        Ok(now)
    }

    /// Deletions of children count from here on, before they are carried out: other reconciles run at the same time, and a
    /// server that starts after a crash goes on from the status. Those of a parent that goes do not count.
    async fn brake_deletions(
        &self,
        input: &ReconcileInput,
        plan: &ReconcilePlan,
    ) -> Result<(), ReconcileError> {
        let parent = self.world.parent_id(&input.parent);
        if input.parent.deleting {
            self.world.brake(|brake, now| brake.forget(&parent, now));
            return Ok(());
        }
        let unwanted = plan.unwanted_children();
        let let_through =
            self.world.brake(|brake, now| brake.let_through(&parent, input.hooks, &unwanted, now));
        if let Err(held) = let_through {
            self.world.record(&input.parent, Fact::Held { deletions: &held, version: input.hooks });
            return Err(ReconcileError::DeletionsHeld(held.len()));
        }
        if !unwanted.is_empty() {
            self.world.record_deletions().await.map_err(ReconcileError::DeletionsUnrecorded)?;
        }
        Ok(())
    }

    /// Notes what a call tells of the hook; `differs`: it gave another answer to the same request before.
    fn note_purity(&self, input: &ReconcileInput, pure: bool, differs: bool) {
        let is_news = self.world.settled(|settled| {
            settled.called(input.hooks, pure);
            differs && settled.differed(input.hooks)
        });
        if is_news {
            self.world.record(&input.parent, Fact::TwoAnswers(input.hook));
        }
    }
}

/// Children are read before they are claimed.
fn whole(child: &ClaimedObject) -> Result<Arc<Object>, ClaimError> {
    child.object.whole().cloned().ok_or_else(|| ClaimError::Unread { id: Box::new(child.id()) })
}
