//! Rights of a user to objects of many kinds and namespaces, for one answer.

use std::sync::Arc;

use metahook_core::trace::{Hidden, TracedObject};

use super::guard::{Guard, Refusal, User};

/// Kinds and namespaces that are reviewed for one answer.
pub(super) const MAX_REVIEWS: usize = 20;

/// What a user needs to be shown objects.
#[derive(Clone, Copy)]
pub(super) enum Need {
    Get,
    List,
}

/// Which objects a user may get or list. Each kind is reviewed in all namespaces first: a right there holds in each. The others are
/// reviewed by namespace, each once.
pub(super) struct ReachRights<'a> {
    guard: &'a Guard,
    user: &'a User,
    need: Need,
    answers: Vec<(TracedObject, bool)>,
}

impl<'a> ReachRights<'a> {
    pub(super) fn new(guard: &'a Guard, user: &'a User, need: Need) -> Self {
        Self { guard, user, need, answers: Vec::new() }
    }

    /// Why objects of a kind and namespace are hidden; `None`: the user has the right.
    pub(super) async fn hides(&mut self, reach: TracedObject) -> Result<Option<Hidden>, Refusal> {
        let everywhere = TracedObject { namespace: Arc::default(), ..reach.clone() };
        let mut hidden = Hidden::Unreviewed;
        for one in [everywhere, reach] {
            hidden = match self.may(one).await? {
                Some(true) => return Ok(None),
                Some(false) => Hidden::Forbidden,
                None => Hidden::Unreviewed,
            };
        }
        Ok(Some(hidden))
    }

    /// `None`: there were too many reviews before.
    async fn may(&mut self, reach: TracedObject) -> Result<Option<bool>, Refusal> {
        if let Some((_, may)) = self.answers.iter().find(|(reviewed, _)| reviewed.is(&reach)) {
            return Ok(Some(*may));
        }
        if self.answers.len() >= MAX_REVIEWS {
            return Ok(None);
        }
        let review = match self.need {
            Need::Get => self.guard.may_get(self.user, &reach).await,
            Need::List => self.guard.may_list(self.user, &reach).await,
        };
        let may = match review {
            Ok(()) => true,
            Err(Refusal::Forbidden { .. }) => false,
            Err(refusal) => return Err(refusal),
        };
        self.answers.push((reach, may));
        Ok(Some(may))
    }
}
