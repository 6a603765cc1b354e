//! What was said of each parent that stays true from pass to pass: it is said once.

use std::collections::{BTreeMap, BTreeSet};

use metahook_core::api::reason::EventReason;
use metahook_core::object::Object;
use metahook_core::object::id::Key;

use crate::controller::reconcile::Reconciler;
use crate::sync::lock;

/// What the last pass over each parent said, by reason. Nothing is kept of a parent of which there is nothing to say.
#[derive(Debug, Default)]
pub(crate) struct EventDedup(BTreeMap<Key, BTreeMap<EventReason, BTreeSet<String>>>);

impl Reconciler {
    /// Warns of what is true of the parent from now on, and is not already known to be.
    pub(crate) fn warn_once(
        &self,
        parent: &Object,
        reason: EventReason,
        now: impl IntoIterator<Item = String>,
    ) {
        let now: BTreeSet<_> = now.into_iter().collect();
        let news = lock(&self.told).news(&parent.key, reason, &now);
        for message in news {
            self.tools.recorder.record(parent, reason, &message);
        }
    }

    pub(crate) fn forget_told(&self, parent: &Key) {
        lock(&self.told).0.remove(parent);
    }
}

impl EventDedup {
    /// What was not said the last time.
    fn news(&mut self, parent: &Key, reason: EventReason, now: &BTreeSet<String>) -> Vec<String> {
        if now.is_empty() {
            if let Some(told) = self.0.get_mut(parent) {
                told.remove(&reason);
                if told.is_empty() {
                    self.0.remove(parent);
                }
            }
            return Vec::new();
        }
        let before =
            self.0.entry(parent.clone()).or_default().insert(reason, now.clone()).unwrap_or_default();
        now.difference(&before).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_true_is_said_once_and_again_when_it_comes_back() {
        let (mut told, parent) = (EventDedup::default(), Key::new("n", "p"));
        let mut say = |messages: &[&str]| {
            told.news(
                &parent,
                EventReason::MissingChildren,
                &messages.iter().map(|&message| message.to_owned()).collect(),
            )
        };
        assert_eq!(say(&["a"]), ["a"]);
        assert_eq!(say(&["a", "b"]), ["b"]);
        assert!(say(&["a", "b"]).is_empty());
        assert!(say(&[]).is_empty());
        assert_eq!(say(&["a"]), ["a"]);
        say(&[]);
        assert!(told.0.is_empty(), "a parent of which there is nothing to say costs nothing");
    }
}
