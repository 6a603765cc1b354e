//! Hooks asked about a parent, and about the older states of it that its children are at.

use futures_util::future::{try_join, try_join_all};
use metahook_core::children::plan::read_late;
use metahook_core::children::write_history::PastWrites;
use metahook_core::object::map::ChildMap;
use metahook_core::reconcile::plan::{ReconcileInput, ReconcilePlan};
use metahook_core::related::selection::Related;
use metahook_core::rollout::revisions::History;

use crate::controller::reconcile::hooks::{Answer, Callees, Calls};
use crate::controller::reconcile::{ReconcileError, Reconciler};

impl Reconciler {
    /// Asks the hook, and decides on what it answers.
    pub(crate) async fn consult(
        &self,
        callees: &Callees,
        seen: &ReconcileInput,
        children: &ChildMap,
        calls: &mut Calls,
    ) -> Result<ReconcilePlan, ReconcileError> {
        let history = self.terms.history(&seen.parent, seen.rolled.as_ref())?;
        let request = self.terms.request(seen, (&seen.parent, &seen.related), children);
        let latest = async { Ok(self.ask(callees, seen.ask, &seen.parent, request).await?) };
        let (answer, older) =
            try_join(latest, self.ask_about_older(callees, (seen, history), children)).await?;
        for answer in std::iter::once(&answer).chain(&older) {
            calls.add(answer);
        }
        let older: Vec<_> = older.into_iter().map(|answer| answer.bytes).collect();
        let mut ledger = self.ledgers.of(&seen.parent.key);
        let late = read_late(&ledger, self.terms.owner(&seen.parent), children);
        if !late.is_empty() {
            drop(ledger);
            self.ledgers.change(&seen.parent.key, |ledger| ledger.read(late));
            ledger = self.ledgers.of(&seen.parent.key);
        }
        let past = PastWrites { ledger: &ledger, now: self.started.elapsed() };
        let decided = self.terms.decide_rolling(seen, children, (&answer.bytes, &older), past);
        let decided = decided.map_err(|error| ReconcileError::Answer(seen.ask, error))?;
        if !ledger.is_empty() {
            drop(ledger);
            self.ledgers.change(&seen.parent.key, |ledger| ledger.keep(children, &decided.desired));
        }
        Ok(decided)
    }

    async fn ask_about_older(
        &self,
        callees: &Callees,
        (seen, history): (&ReconcileInput, Option<&History>),
        children: &ChildMap,
    ) -> Result<Vec<Answer>, ReconcileError> {
        let (Some(history), Some(rolled)) = (history, &seen.rolled) else {
            return Ok(Vec::new());
        };
        // Where no customize hook is asked nothing is related to any state.
        let nothing = Related::default();
        let related = rolled.related.iter().chain(std::iter::repeat(&nothing));
        let asked = history.older.iter().zip(related).map(async |(revision, related)| {
            let request = self.terms.request(seen, (&revision.parent, related), children);
            self.ask(callees, seen.ask, &revision.parent, request).await.map_err(|source| {
                ReconcileError::Older { hook: seen.ask, revision: revision.name.clone(), source }
            })
        });
        try_join_all(asked).await
    }
}
