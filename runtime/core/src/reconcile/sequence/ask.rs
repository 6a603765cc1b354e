//! The hook's answers about a parent and its older states, and the plan that follows from them.

use std::cell::Cell;

use crate::children::plan::read_late;
use crate::children::write_history::PastWrites;
use crate::error_chain;
use crate::hash::{Fingerprint, Fingerprinter};
use crate::object::ChildMap;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::input::ReconcileInput;
use crate::reconcile::memory as estimate;
use crate::reconcile::outcome::Retry;
use crate::reconcile::plan::{Answers, ReconcilePlan};
use crate::reconcile::ports::{Customized, HookAnswer, ParentView, World};
use crate::reconcile::rollout::{ParentState, RolloutState};
use crate::reconcile::sequence::Sequence;

/// A plan, and the answers that it is made from, the latest one first.
type PlanOfAnswers = (ReconcilePlan, Vec<HookAnswer>);

impl<W: World> Sequence<'_, W> {
    /// Asks the hook about the parent and its older revisions, and plans.
    pub(super) async fn plan(
        &self,
        hooks: &W::Hooks,
        input: &ReconcileInput,
        children: &ChildMap,
    ) -> Result<PlanOfAnswers, ReconcileError> {
        let ReconcileInput { parent, hook, .. } = input;
        let (world, config) = (self.world, self.world.config());
        // With a customize hook they are read before.
        if let Some(rollout) = input.rollout.as_ref().filter(|_| config.hooks.customize.is_none()) {
            world.charge(estimate::of_revisions(rollout, parent))?;
        }
        let latest = self.ask(hooks, input, input.state(), children).await?;
        let older = self.ask_about_older(hooks, input, children).await?;
        let mut history = world.write_history(&parent.key);
        let late = read_late(&history, config.owner(parent), children);
        if !late.is_empty() {
            drop(history);
            world.change_history(&parent.key, |history| history.resolve_pending(late));
            history = world.write_history(&parent.key);
        }
        let past = PastWrites { history: &history, now: world.now() };
        let older_bytes: Vec<_> = older
            .iter()
            .map(|answer| answer.as_ref().map(|answer| &*answer.bytes).map_err(Clone::clone))
            .collect();
        let bytes = older_bytes.iter().filter_map(|answer| answer.as_ref().ok().copied());
        let planning = estimate::of_answers(bytes.chain([&*latest.bytes]));
        world.charge(planning)?;
        let answers = Answers { latest: &latest.bytes, older: &older_bytes };
        let planned = world.heavy(planning, || {
            let read = Cell::new(0);
            let has_room = |more: usize| {
                read.set(more);
                world.charge(more).is_ok()
            };
            let plan = config.plan(input, children, answers, past, &has_room);
            (plan.map_err(|error| ReconcileError::Answer(*hook, error)), read.get())
        });
        let (plan, read) = planned.await;
        world.check_room()?;
        let plan = plan?;
        // From here on the reservation only shrinks.
        world.refund(planning + read);
        world.charge(plan.memory() + estimate::of_decoration(&plan, parent))?;
        world.shrink();
        if !history.is_empty() {
            drop(history);
            world.change_history(&parent.key, |history| history.keep(children, &plan.desired));
        }
        Ok((plan, std::iter::once(latest).chain(older.into_iter().flatten()).collect()))
    }

    /// The answers about the older revisions, one after the other: each request is as large as all children.
    async fn ask_about_older(
        &self,
        hooks: &W::Hooks,
        input: &ReconcileInput,
        children: &ChildMap,
    ) -> Result<Vec<Result<HookAnswer, String>>, ReconcileError> {
        let older = input.rollout.as_ref().map(RolloutState::older_states).transpose()?.unwrap_or_default();
        let left_out = input.rollout.as_ref().and_then(|rollout| rollout.left_out.as_ref());
        let mut answers = Vec::new();
        for (revision, state) in older {
            let answer = match left_out {
                Some(why) => Err(why.clone()),
                None => match self.ask(hooks, input, state, children).await {
                    Err(ReconcileError::Port(source)) if matches!(source.retry, Retry::After(_)) => {
                        let (hook, revision) = (input.hook, revision.to_owned());
                        return Err(ReconcileError::Older { hook, revision, source });
                    }
                    answer => answer.map_err(|error| error_chain(&error)),
                },
            };
            answers.push(answer);
            self.world.check_room()?;
        }
        Ok(answers)
    }

    async fn ask(
        &self,
        hooks: &W::Hooks,
        input: &ReconcileInput,
        state: ParentState<'_>,
        children: &ChildMap,
    ) -> Result<HookAnswer, ReconcileError> {
        let (world, config) = (self.world, self.world.config());
        let request = input.sized_request(config, state, children);
        let size = request.capacity();
        world.charge(size)?;
        let request = input.put_together(config, request);
        let request = request.map_err(|too_large| ReconcileError::Request(input.hook, too_large))?;
        let asked = ParentView::of(state.parent, &input.parent);
        let answer = world.call(hooks, input.hook, asked, request).await;
        world.refund(size);
        Ok(answer?)
    }
}

/// The fingerprint of all answers, and whether they depend on the requests alone; `None`: unknown.
pub(super) fn summary(customized: &[Customized], answers: &[HookAnswer]) -> (Fingerprint, Option<bool>) {
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
