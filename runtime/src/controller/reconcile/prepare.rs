//! First half of a reconcile: finalizer, input, claims, hook calls, plan.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use metahook_core::api::hook::{HookName, Via};
use metahook_core::api::reason::EventReason;
use metahook_core::children::claims::ClaimedObject;
use metahook_core::children::plan::read_late;
use metahook_core::children::write_history::PastWrites;
use metahook_core::hash::{Fingerprint, Fingerprinter};
use metahook_core::object::id::{ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::object::{ChildMap, Object};
use metahook_core::reconcile::input::{InputParts, ReconcileInput};
use metahook_core::reconcile::memory as estimate;
use metahook_core::reconcile::outcome::{Retry, Streaks};
use metahook_core::reconcile::plan::{Answers, ReconcilePlan};
use metahook_core::reconcile::rollout::{ParentState, RolloutState};
use metahook_core::reconcile::{Phase, phase};
use metahook_core::settled::{HookNeed, Purity, SettledState};

use crate::controller::hooks::{Asked, HookAnswer, HookError, LoadedHooks};
use crate::controller::reconcile::memory::Attempts;
use crate::controller::reconcile::write::Claimed;
use crate::controller::reconcile::{ClaimError, Progress, Reconcile, ReconcileError, Reconciler};
use crate::controller::related::{Asking, Customized};
use crate::hook::wasm::run::CallError;
use crate::memory::{MemoryShort, Reservation};
use crate::store::Writer;
use crate::telemetry::error_chain;

/// A child that was replaced meanwhile is read again at most so often.
const MAX_READS: usize = 3;

/// The input of a reconcile, and the answers of the customize hook that it is made with.
struct Gathered {
    input: ReconcileInput,
    fingerprint: Fingerprint,
    customized: Vec<Customized>,
}

impl Reconciler {
    /// From the parent to a plan. Claims are carried out on the way, so that the hook is shown their result.
    pub(super) async fn prepare(
        &self,
        parent: Arc<Object>,
        writer: Writer,
        streaks: Streaks,
        (memory, attempts): (&Reservation, &mut Attempts),
    ) -> Result<Progress, ReconcileError> {
        memory.charge(estimate::of_parent(&parent))?;
        let (parent, hook, entered) = match self.enter(parent, &writer).await? {
            ControlFlow::Continue(entered) => entered,
            ControlFlow::Break(progress) => return Ok(progress),
        };
        attempts.wrote |= entered;
        let hooks = self.hooks.hooks.now()?;
        // Before anything is read: later changes give another revision.
        let revision = self.parents.cache_revision(&parent, &hooks, self.data.controllers.changes());
        let mut gathered = self.gather(&hooks, &parent, hook, (Asking::Cached, memory)).await?;
        let need = self.parents.settled().hook_need(&parent.key, gathered.fingerprint);
        let expected = match need {
            HookNeed::Nothing => {
                self.parents.settled().renew(&parent.key, gathered.fingerprint, revision);
                return Ok(Progress::Settled);
            }
            HookNeed::Call => None,
            HookNeed::Check(answer) => {
                gathered = self.gather(&hooks, &parent, hook, (Asking::Anew, memory)).await?;
                Some(answer)
            }
        };
        let gathered = self.read_children(&hooks, gathered, memory).await?;
        let Gathered { input, fingerprint, customized } = gathered;
        if memory.short_of().is_some() {
            return Err(MemoryShort.into());
        }
        memory.charge(estimate::of_claims(&input.claims))?;
        let left_out = input.left_out.message(self.data.config.shown_bounds(hook));
        self.parents.record_new(&parent, EventReason::ChildrenLeftOut, left_out);
        let claimed = match self.claim((&parent, &input), &writer, attempts).await? {
            ControlFlow::Continue(claimed) => claimed,
            ControlFlow::Break(progress) => return Ok(progress),
        };
        let (plan, answers) = self.plan(&hooks, &input, &claimed.children, memory).await?;
        self.check_deletions(&input, &plan).await?;
        self.record_feedback(&input, &plan.feedback, &customized);
        if !customized.is_empty() {
            self.related.record_hidden(&input);
        }
        self.children.record_overlaps(&input);
        let (answer, mut pure) = summary(&customized, &answers);
        if !plan.feedback.left_out.is_empty() {
            pure = None;
        }
        if let Some(pure) = pure {
            let differs = expected.is_some_and(|expected| expected != answer);
            self.check_purity(&input, pure, differs);
        }
        self.compare(input, claimed.children, answers);
        let state = SettledState { seen: fingerprint, answer, revision };
        let (wrote, version) = (attempts.wrote, hooks.identity);
        let unrenewed = claimed.error.map(ReconcileError::Claim);
        let reconcile = Reconcile { parent, plan, writer, streaks, state, pure, wrote, unrenewed, version };
        Ok(Progress::Planned(Box::new(reconcile)))
    }

    /// Carries out the claims on children, then those on the revisions of a rollout.
    async fn claim(
        &self,
        (parent, input): (&Object, &ReconcileInput),
        writer: &Writer,
        attempts: &mut Attempts,
    ) -> Result<ControlFlow<Progress, Claimed>, ReconcileError> {
        let claim = async |claims| {
            let claimed = self.children.writer.claim(parent, claims, writer).await;
            claimed.map_err(ReconcileError::Claim)
        };
        let mut claimed = claim(&input.claims).await?;
        attempts.wrote |= claimed.wrote;
        if let Some(rollout) = &input.rollout {
            let revisions = claim(&rollout.revisions).await?;
            if revisions.wrote {
                // The content of revisions is read once they are the parent's.
                return Ok(ControlFlow::Break(Progress::Wrote));
            }
            claimed.error = claimed.error.or(revisions.error);
        }
        Ok(ControlFlow::Continue(claimed))
    }

    /// Has the hook's shadow asked the same.
    fn compare(&self, input: ReconcileInput, children: ChildMap, answers: Vec<HookAnswer>) {
        if let (Some(shadows), Some(latest)) = (&self.hooks.shadows, answers.into_iter().next()) {
            let history = self.parents.histories.of(&input.parent.key);
            shadows.answered(input, children, history, latest.bytes);
        }
    }

    /// Puts the finalizer in order: it is added before anything else, and dropped where no hook waits for it. Returns the
    /// parent, the hook that decides about it, and whether a finalizer was written.
    async fn enter(
        &self,
        mut parent: Arc<Object>,
        writer: &Writer,
    ) -> Result<ControlFlow<Progress, (Arc<Object>, HookName, bool)>, ReconcileError> {
        let mut wrote = false;
        loop {
            let phase = phase(&parent, &self.data.config.selection);
            if let (Phase::AddFinalizer | Phase::Ask(_), Some(reads)) = (phase, &self.data.reads) {
                reads.check(&parent.key.namespace).await?;
            }
            let change = match phase {
                Phase::Ignore if wrote => return Ok(ControlFlow::Break(Progress::Wrote)),
                Phase::Ignore => return Ok(ControlFlow::Break(Progress::Ignored)),
                Phase::Ask(hook) => return Ok(ControlFlow::Continue((parent, hook, wrote))),
                // Another client undoes the write: that is left to another reconcile, which the queue throttles.
                Phase::AddFinalizer | Phase::DropFinalizer if wrote => {
                    return Ok(ControlFlow::Break(Progress::Wrote));
                }
                Phase::AddFinalizer => self.children.writer.add_finalizer(&parent, writer).await,
                Phase::DropFinalizer => self.children.writer.drop_finalizer(&parent, writer).await,
            };
            let Some(now) = change.map_err(ReconcileError::Finalizer)? else {
                return Ok(ControlFlow::Break(Progress::Ignored));
            };
            parent = now;
            wrote = true;
        }
    }

    /// Reads the children that the cache holds by their metadata alone, and the rest once more. What is read stays whole.
    async fn read_children(
        &self,
        hooks: &LoadedHooks,
        mut gathered: Gathered,
        memory: &Reservation,
    ) -> Result<Gathered, ReconcileError> {
        for _ in 0..MAX_READS {
            if gathered.input.unread().next().is_none() {
                break;
            }
            for ClaimedObject { resource, object, .. } in gathered.input.unread() {
                let Some(store) = self.data.children_of(resource) else { continue };
                memory.charge(estimate::of_read(object))?;
                let read = store.read_whole(object).await;
                memory.refund(estimate::of_read(object));
                read?;
            }
            let (parent, hook) = (Arc::clone(&gathered.input.parent), gathered.input.hook);
            gathered = self.gather(hooks, &parent, hook, (Asking::Cached, memory)).await?;
        }
        let id = |one: &ClaimedObject| ObjectId {
            resource: Arc::clone(&one.resource),
            key: one.object.key.clone(),
        };
        let unread = gathered.input.unread().next().map(id);
        match unread {
            Some(id) => Err(ReconcileError::Claim(ClaimError::Unread { id })),
            None => Ok(gathered),
        }
    }

    /// Reads everything that decides about the parent.
    async fn gather(
        &self,
        hooks: &LoadedHooks,
        parent: &Arc<Object>,
        hook: HookName,
        (asking, memory): (Asking, &Reservation),
    ) -> Result<Gathered, ReconcileError> {
        let config = &self.data.config;
        let candidates = |resource: &Arc<Resource>, selector: Option<&Selector>| {
            self.data.candidates(parent, resource, selector)
        };
        let mut rollout = RolloutState::of(config, parent, candidates);
        let mut states = vec![Arc::clone(parent)];
        if let Some(rollout) = rollout.as_ref().filter(|_| config.hooks.customize.is_some()) {
            memory.charge(estimate::of_revisions(rollout, parent))?;
            states.extend(rollout.history()?.older.iter().map(|older| Arc::clone(&older.parent)));
        }
        // Cached answers of a module that gave two answers to one request are not used.
        let is_wasm = config.hooks.customize.as_ref().is_some_and(|customize| customize.via == Via::Wasm);
        let differs = self.parents.settled().purity_of(hooks.identity) == Some(Purity::Differs);
        let asking = if is_wasm && differs { Asking::Anew } else { asking };
        let mut found = match self.related.find(hooks, &states, asking, memory).await {
            // An older state may be forged: where the customize hook fails about one, no hook is asked about any of them.
            Err(error) if states.len() > 1 && error.retry() == Retry::Loud => {
                states.truncate(1);
                let found = self.related.find(hooks, &states, asking, memory).await?;
                if let Some(rollout) = &mut rollout {
                    rollout.left_out = Some(error_chain(&error));
                }
                found
            }
            found => found?,
        };
        if let Some(rollout) = &mut rollout {
            rollout.related = found.related.split_off(1);
        }
        let parts = InputParts {
            hook,
            hooks: hooks.identity,
            related: found.related.pop().unwrap_or_default(),
            rollout,
            older_decorators: self.parents.older_decorators(parent),
        };
        let input = ReconcileInput::of(config, parent, parts, candidates)?;
        Ok(Gathered { fingerprint: input.fingerprint(), input, customized: found.customized })
    }

    /// Asks the hook about the parent and its older revisions; a plan, and the answers that it is made from.
    async fn plan(
        &self,
        hooks: &LoadedHooks,
        input: &ReconcileInput,
        children: &ChildMap,
        memory: &Reservation,
    ) -> Result<(ReconcilePlan, Vec<HookAnswer>), ReconcileError> {
        let ReconcileInput { parent, hook, .. } = input;
        let config = &self.data.config;
        // With a customize hook they are read before.
        if let Some(rollout) = input.rollout.as_ref().filter(|_| config.hooks.customize.is_none()) {
            memory.charge(estimate::of_revisions(rollout, parent))?;
        }
        let latest = self.ask(hooks, input, input.state(), children, memory).await?;
        let older = self.ask_about_older(hooks, input, children, memory).await?;
        let histories = &self.parents.histories;
        let mut history = histories.of(&parent.key);
        let late = read_late(&history, config.owner(parent), children);
        if !late.is_empty() {
            drop(history);
            histories.change(&parent.key, |history| history.read(late));
            history = histories.of(&parent.key);
        }
        let past = PastWrites { history: &history, now: self.data.elapsed() };
        let older_bytes: Vec<_> = older
            .iter()
            .map(|answer| answer.as_ref().map(|answer| &*answer.bytes).map_err(Clone::clone))
            .collect();
        let bytes = older_bytes.iter().filter_map(|answer| answer.as_ref().ok().copied());
        let planning = estimate::of_answers(bytes.chain([&*latest.bytes]));
        memory.charge(planning)?;
        let answers = Answers { latest: &latest.bytes, older: &older_bytes };
        let span = tracing::debug_span!("plan");
        let planned = self.turns.work(planning, || {
            let read = Cell::new(0);
            let has_room = |more: usize| {
                read.set(more);
                memory.charge(more).is_ok()
            };
            let plan = span.in_scope(|| config.plan_within(input, children, answers, past, &has_room));
            (plan.map_err(|error| ReconcileError::Answer(*hook, error)), read.get())
        });
        let (plan, read) = planned.await;
        if memory.short_of().is_some() {
            return Err(MemoryShort.into());
        }
        let plan = plan?;
        // From here on the reservation only shrinks.
        memory.refund(planning + read);
        memory.charge(plan.memory() + estimate::of_decoration(&plan, parent))?;
        memory.shrink();
        if !history.is_empty() {
            drop(history);
            histories.change(&parent.key, |history| history.keep(children, &plan.desired));
        }
        Ok((plan, std::iter::once(latest).chain(older.into_iter().flatten()).collect()))
    }

    /// The answers about the older revisions, one after the other: each request is as large as all children.
    async fn ask_about_older(
        &self,
        hooks: &LoadedHooks,
        input: &ReconcileInput,
        children: &ChildMap,
        memory: &Reservation,
    ) -> Result<Vec<Result<HookAnswer, String>>, ReconcileError> {
        let older = input.rollout.as_ref().map(RolloutState::older_states).transpose()?.unwrap_or_default();
        let left_out = input.rollout.as_ref().and_then(|rollout| rollout.left_out.as_ref());
        let mut answers = Vec::new();
        for (revision, state) in older {
            let answer = match left_out {
                Some(why) => Err(why.clone()),
                None => match self.ask(hooks, input, state, children, memory).await {
                    Err(source) if matches!(source.retry(), Retry::After(_)) => {
                        return Err(ReconcileError::Older {
                            hook: input.hook,
                            revision: revision.to_owned(),
                            source,
                        });
                    }
                    answer => answer.map_err(|error| error_chain(&error)),
                },
            };
            answers.push(answer);
            if memory.short_of().is_some() {
                return Err(MemoryShort.into());
            }
        }
        Ok(answers)
    }

    /// Deletions of children count from here on, before they are carried out: other reconciles run at the same time, and a
    /// server that starts after a crash goes on from the status. Those of a parent that goes do not count.
    async fn check_deletions(
        &self,
        input: &ReconcileInput,
        plan: &ReconcilePlan,
    ) -> Result<(), ReconcileError> {
        let parent = self.data.parent_id(&input.parent);
        if input.parent.deleting {
            self.data.brake.with(|brake, now| brake.forget(&parent, now));
            return Ok(());
        }
        let unwanted = plan.unwanted_children();
        if !self.data.brake.with(|brake, now| brake.lets_through(&parent, input.hooks, &unwanted, now)) {
            return Err(ReconcileError::DeletionsHeld(unwanted.len()));
        }
        if !unwanted.is_empty() {
            self.data.brake.record().await?;
        }
        Ok(())
    }

    async fn ask(
        &self,
        hooks: &LoadedHooks,
        input: &ReconcileInput,
        state: ParentState<'_>,
        children: &ChildMap,
        memory: &Reservation,
    ) -> Result<HookAnswer, HookError> {
        let config = &self.data.config;
        let request = input.sized_request(config, state, children);
        let size = request.capacity();
        memory.charge(size)?;
        let request = input.put_together(config, request);
        let request =
            request.map_err(|too_large| HookError::Wasm(input.hook, CallError::Request(too_large)))?;
        let asked = Asked::of(state.parent, &input.parent);
        let answer = self.hooks.call(hooks, input.hook, asked, request, memory).await;
        memory.refund(size);
        answer
    }
}

/// The fingerprint of all answers, and whether they depend on the requests alone; `None`: unknown.
fn summary(customized: &[Customized], answers: &[HookAnswer]) -> (Fingerprint, Option<bool>) {
    let mut all = Fingerprinter::default();
    let mut pure = Some(true);
    let customized = customized.iter().map(|one| (one.answer.print.as_bytes(), one.pure));
    let answers = answers.iter().map(|answer| (&*answer.bytes, answer.pure));
    for (bytes, one) in customized.chain(answers) {
        all.add(bytes);
        pure = pure.zip(one).map(|(before, now)| before && now);
    }
    (all.finish(), pure)
}
