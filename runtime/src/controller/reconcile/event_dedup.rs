//! Deduplication of Events: a warning that stays true from reconcile to reconcile is recorded once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use metahook_core::api::reason::EventReason;
use metahook_core::object::Object;
use metahook_core::object::id::Key;

use crate::cluster::events::Recorder;
use crate::sync::lock;

pub(crate) struct EventDedup {
    recorder: Recorder,
    warnings: Mutex<Warnings>,
}

/// The warnings of the last reconcile of each parent, by reason. Parents without warnings have no entry.
#[derive(Debug, Default)]
struct Warnings(BTreeMap<Key, BTreeMap<EventReason, BTreeSet<String>>>);

impl EventDedup {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { recorder, warnings: Mutex::default() }
    }

    /// Records those of a parent's present warnings that its last reconcile did not have.
    pub(crate) fn record(
        &self,
        parent: &Object,
        reason: EventReason,
        warnings: impl IntoIterator<Item = String>,
    ) {
        let warnings: BTreeSet<_> = warnings.into_iter().collect();
        let new = lock(&self.warnings).replace(&parent.key, reason, &warnings);
        for message in new {
            self.recorder.record(parent, reason, &message);
        }
    }

    pub(crate) fn forget(&self, parent: &Key) {
        lock(&self.warnings).0.remove(parent);
    }
}

impl Warnings {
    /// The new ones.
    fn replace(&mut self, parent: &Key, reason: EventReason, warnings: &BTreeSet<String>) -> Vec<String> {
        if warnings.is_empty() {
            if let Some(reasons) = self.0.get_mut(parent) {
                reasons.remove(&reason);
                if reasons.is_empty() {
                    self.0.remove(parent);
                }
            }
            return Vec::new();
        }
        let reasons = self.0.entry(parent.clone()).or_default();
        let before = reasons.insert(reason, warnings.clone()).unwrap_or_default();
        warnings.difference(&before).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_recorded_once_and_again_when_it_comes_back() {
        let mut warnings = Warnings::default();
        let parent = Key::new("n", "p");
        let mut replace = |messages: &[&str]| {
            warnings.replace(
                &parent,
                EventReason::MissingChildren,
                &messages.iter().map(|&message| message.to_owned()).collect(),
            )
        };
        assert_eq!(replace(&["a"]), ["a"]);
        assert_eq!(replace(&["a", "b"]), ["b"]);
        assert!(replace(&["a", "b"]).is_empty());
        assert!(replace(&[]).is_empty());
        assert_eq!(replace(&["a"]), ["a"]);
        replace(&[]);
        assert!(warnings.0.is_empty(), "a parent without warnings costs nothing");
    }
}
