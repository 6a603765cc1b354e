//! Hooks asked about a parent, and about the older states of it that its children are at.

use futures_util::future::try_join_all;
use metahook_core::object::map::ChildMap;
use metahook_core::pass::{Decided, Seen};
use metahook_core::rollout::revisions::{History, Revision};

use super::composite::{Controller, SyncError};
use super::hooks::{Answer, Callees, Calls};

impl Controller {
    /// Asks the hook, and decides on what it answers.
    pub(super) async fn consult(
        &self,
        callees: &Callees,
        seen: &Seen,
        children: &ChildMap,
        calls: &mut Calls,
    ) -> Result<Decided, SyncError> {
        let history = self.terms.history(seen)?;
        let request = self.terms.request(seen, &seen.parent, children);
        let answer = self.ask(callees, seen.ask, &seen.parent, request).await?;
        calls.add(&answer);
        let decided = match &history {
            None => self.terms.decide(seen, children, &answer.bytes),
            Some(history) => {
                let older = self.ask_about_older(callees, seen, children, history).await?;
                for answer in &older {
                    calls.add(answer);
                }
                let older: Vec<_> = older.into_iter().map(|answer| answer.bytes).collect();
                self.terms.decide_rolling(seen, children, &answer.bytes, (history, &older))
            }
        };
        decided.map_err(|error| SyncError::Answer(seen.ask, error))
    }

    async fn ask_about_older(
        &self,
        callees: &Callees,
        seen: &Seen,
        children: &ChildMap,
        history: &History,
    ) -> Result<Vec<Answer>, SyncError> {
        let ask = async |Revision { name, parent, .. }: &Revision| {
            let request = self.terms.request(seen, parent, children);
            self.ask(callees, seen.ask, parent, request).await.map_err(|source| SyncError::Older {
                hook: seen.ask,
                revision: name.clone(),
                source,
            })
        };
        try_join_all(history.older.iter().map(ask)).await
    }
}
