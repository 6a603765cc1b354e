//! Refused versions of a controller's hooks: how many there were, and whether a last good one runs in the place of one.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::hook::HookName;
use crate::api::reason::ConditionReason;

/// Why the version of a hook that is stored is not called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionProblem {
    /// The reason of the condition `ModulesLoaded`.
    pub reason: ConditionReason,
    /// Its digest, or what is wrong with it where that is unknown.
    pub version: String,
    /// An earlier version is called meanwhile.
    pub has_last_good: bool,
}

/// The hooks of one controller, as long as it is hosted with one spec.
#[derive(Debug, Default)]
pub struct RefusedVersions {
    count: u64,
    /// The version that was refused last, by hook.
    refused: BTreeMap<HookName, String>,
    last_good: BTreeSet<HookName>,
}

impl RefusedVersions {
    /// Notes how the stored version of a hook stands. A version counts once as long as it stays stored, and once where
    /// several hooks are made of it.
    pub fn note(&mut self, hook: HookName, problem: Option<VersionProblem>) {
        let is_in_use = problem.as_ref().is_some_and(|problem| {
            // The server prepares it; nothing of it is refused.
            problem.has_last_good && problem.reason != ConditionReason::RunnerNotReady
        });
        if is_in_use {
            self.last_good.insert(hook);
        } else {
            self.last_good.remove(&hook);
        }
        let Some(VersionProblem { version, .. }) = problem.filter(|problem| is_refusal(problem.reason))
        else {
            self.refused.remove(&hook);
            return;
        };
        if !self.refused.values().any(|known| *known == version) {
            self.count += 1;
        }
        self.refused.insert(hook, version);
    }

    /// Versions that were refused so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A hook runs its last good version.
    pub fn is_last_good_in_use(&self) -> bool {
        !self.last_good.is_empty()
    }
}

/// There is a version of a module or script, and it is refused: it is neither missing nor unreadable.
fn is_refusal(reason: ConditionReason) -> bool {
    matches!(
        reason,
        ConditionReason::ModuleInvalid
            | ConditionReason::DigestMismatch
            | ConditionReason::IndexInvalid
            | ConditionReason::KeysConflict
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(reason: ConditionReason, version: &str, has_last_good: bool) -> VersionProblem {
        VersionProblem { reason, version: version.to_owned(), has_last_good }
    }

    #[test]
    fn a_version_counts_once_while_it_is_stored() {
        let mut versions = RefusedVersions::default();
        let refused = |version| Some(problem(ConditionReason::ModuleInvalid, version, false));
        versions.note(HookName::Sync, refused("a"));
        versions.note(HookName::Sync, refused("a"));
        versions.note(HookName::Finalize, refused("a"));
        assert_eq!(versions.count(), 1, "both hooks are made of it");
        versions.note(HookName::Sync, refused("b"));
        assert_eq!(versions.count(), 2);
        versions.note(HookName::Sync, None);
        versions.note(HookName::Sync, refused("b"));
        assert_eq!(versions.count(), 3, "it is stored a second time");
        assert!(!versions.is_last_good_in_use(), "there never was a good one");
    }

    #[test]
    fn what_is_missing_is_no_version() {
        let mut versions = RefusedVersions::default();
        versions.note(HookName::Sync, Some(problem(ConditionReason::ConfigMapNotFound, "a", true)));
        assert_eq!((versions.count(), versions.is_last_good_in_use()), (0, true));
        versions.note(HookName::Sync, Some(problem(ConditionReason::RunnerNotReady, "a", true)));
        assert_eq!((versions.count(), versions.is_last_good_in_use()), (0, false), "it is prepared");
    }

    #[test]
    fn the_last_good_version_is_in_use_until_each_hook_has_a_better_one() {
        let mut versions = RefusedVersions::default();
        for hook in [HookName::Sync, HookName::Customize] {
            versions.note(hook, Some(problem(ConditionReason::DigestMismatch, "a", true)));
        }
        versions.note(HookName::Sync, None);
        assert!(versions.is_last_good_in_use());
        versions.note(HookName::Customize, None);
        assert!(!versions.is_last_good_in_use());
    }
}
