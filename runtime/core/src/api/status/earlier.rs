//! Earlier versions of hooks in a controller's status: each with its last figures, carried over from one status to the next.

use std::collections::BTreeMap;

use crate::api::status::{ControllerStatus, EarlierVersion, HookStatus};

/// Earlier versions of a hook that a status names.
const MAX_EARLIER: usize = 10;

/// The versions of a hook whose next version is loaded, the newest first. `failing`: parents that fail now, where that is known.
pub(super) fn replaced(
    hook: &HookStatus,
    failing: Option<i64>,
    next: Option<&String>,
) -> Vec<EarlierVersion> {
    once_each(left(hook, failing).into_iter().chain(hook.earlier.iter().cloned()), next)
}

/// The hooks of the next status, with what was known of their versions. Until reconciles run (`working`), hooks that are not
/// loaded yet keep it, too.
pub(super) fn carried_over(
    before: &ControllerStatus,
    reported: &BTreeMap<String, HookStatus>,
    working: bool,
) -> BTreeMap<String, HookStatus> {
    let known = before.hooks.keys().filter(|_| !working);
    let mut hooks = BTreeMap::new();
    for name in reported.keys().chain(known) {
        let now = reported.get(name).cloned().unwrap_or_default();
        let stored = before.hooks.get(name);
        let past = stored.map(|stored| {
            left(stored, before.failing).into_iter().chain(stored.earlier.iter().cloned()).collect::<Vec<_>>()
        });
        let all: Vec<_> = now.earlier.iter().cloned().chain(past.into_iter().flatten()).collect();
        let running = now.digest.as_ref();
        let median =
            || all.iter().filter(|one| Some(&one.digest) == running).find_map(|one| one.instructions_p50);
        let next = HookStatus {
            instructions_p50: now.instructions_p50.or_else(median),
            earlier: once_each(all.iter().cloned(), running),
            ..now
        };
        if next.digest.is_some() || !next.earlier.is_empty() {
            hooks.insert(name.clone(), next);
        }
    }
    hooks
}

/// The hooks, with the medians that a status has already.
pub(super) fn with_medians_of(
    before: &ControllerStatus,
    mut hooks: BTreeMap<String, HookStatus>,
) -> BTreeMap<String, HookStatus> {
    for (name, hook) in &mut hooks {
        let stored = before.hooks.get(name).filter(|stored| stored.digest == hook.digest);
        let median = stored.and_then(|stored| stored.instructions_p50);
        hook.instructions_p50 = median.or(hook.instructions_p50);
    }
    hooks
}

/// The version that runs, as an earlier one.
fn left(hook: &HookStatus, parents_failing: Option<i64>) -> Option<EarlierVersion> {
    let (digest, instructions_p50) = (hook.digest.clone()?, hook.instructions_p50);
    Some(EarlierVersion { digest, parents_failing, instructions_p50 })
}

/// Each version once, at its first place, with all that is known of it; without the one that runs.
fn once_each(
    versions: impl Iterator<Item = EarlierVersion>,
    running: Option<&String>,
) -> Vec<EarlierVersion> {
    let mut all = Vec::<EarlierVersion>::new();
    for version in versions.filter(|version| Some(&version.digest) != running) {
        if let Some(known) = all.iter_mut().find(|known| known.digest == version.digest) {
            known.parents_failing = known.parents_failing.or(version.parents_failing);
            known.instructions_p50 = known.instructions_p50.or(version.instructions_p50);
        } else {
            all.push(version);
        }
    }
    all.truncate(MAX_EARLIER);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::hook::HookName;
    use crate::api::status::{ParentCounts, Report, next, seen_again};

    fn module(digest: &str) -> HookStatus {
        HookStatus { digest: Some(digest.to_owned()), ..HookStatus::default() }
    }

    /// A server that runs a version.
    fn running(digest: &str, failing: i64, median: Option<i64>) -> Report {
        let hook = HookStatus { instructions_p50: median, ..module(digest) };
        Report {
            working: true,
            hooks: BTreeMap::from([("sync".to_owned(), hook)]),
            counts: ParentCounts { failing, ..ParentCounts::default() },
            ..Report::default()
        }
    }

    /// Digest, failing parents and median of each earlier version.
    fn earlier(status: &ControllerStatus) -> Vec<(&str, Option<i64>, Option<i64>)> {
        let all = status.hooks.get("sync").into_iter().flat_map(|hook| &hook.earlier);
        all.map(|one| (&*one.digest, one.parents_failing, one.instructions_p50)).collect()
    }

    #[test]
    fn a_version_that_is_replaced_stays_with_its_last_figures() {
        let first = next(&ControllerStatus::default(), &running("a", 0, Some(10)), "t1").unwrap();
        assert_eq!(earlier(&first), []);
        let second = next(&first, &running("b", 3, Some(20)), "t2").unwrap();
        assert_eq!(earlier(&second), [("a", Some(0), Some(10))]);
        let third = next(&second, &running("c", 1, None), "t3").unwrap();
        assert_eq!(earlier(&third), [("b", Some(3), Some(20)), ("a", Some(0), Some(10))]);
        assert_eq!(next(&third, &running("c", 1, None), "t4"), None);
        // One that runs again is no earlier one, and its median is known.
        let back = next(&third, &running("b", 0, None), "t5").unwrap();
        assert_eq!(earlier(&back), [("c", Some(1), None), ("a", Some(0), Some(10))]);
        assert_eq!(back.hooks["sync"].instructions_p50, Some(20));
    }

    #[test]
    fn earlier_versions_outlive_restarts() {
        let first = next(&ControllerStatus::default(), &running("a", 0, Some(10)), "t1").unwrap();
        let second = next(&first, &running("b", 3, Some(20)), "t2").unwrap();
        // Nothing is loaded yet.
        let starts = next(&second, &Report::default(), "t3").unwrap();
        let both = [("b", Some(3), Some(20)), ("a", Some(0), Some(10))];
        assert_eq!((&starts.hooks["sync"].digest, earlier(&starts)), (&None, both.to_vec()));
        let goes_on = next(&starts, &running("b", 2, None), "t4").unwrap();
        assert_eq!(earlier(&goes_on), both[1..]);
        assert_eq!(goes_on.hooks["sync"].instructions_p50, Some(20));
        // The hook is no longer in the spec.
        let gone = Report { working: true, ..Report::default() };
        assert!(next(&goes_on, &gone, "t5").unwrap().hooks.is_empty());
    }

    #[test]
    fn a_version_that_no_status_named_is_known_all_the_same() {
        let first = next(&ControllerStatus::default(), &running("a", 0, Some(10)), "t1").unwrap();
        let mut report = running("a", 0, Some(10));
        report.load(HookName::Sync, module("b"), None);
        report.counts.failing = 2;
        assert!(report.note_median(HookName::Sync, "b", 30));
        report.load(HookName::Sync, module("c"), None);
        let second = next(&first, &report, "t2").unwrap();
        assert_eq!(earlier(&second), [("b", Some(2), Some(30)), ("a", Some(0), Some(10))]);
        // A server that stands by does not know what fails.
        let mut standby = Report { working: false, ..running("b", 0, None) };
        standby.load(HookName::Sync, module("c"), None);
        assert_eq!(earlier(&next(&second, &standby, "t3").unwrap()), earlier(&second));
    }

    #[test]
    fn so_many_earlier_versions_are_named() {
        let mut status = ControllerStatus::default();
        for number in 0..20 {
            status = next(&status, &running(&format!("v{number}"), number, None), "t").unwrap();
        }
        let all = earlier(&status);
        assert_eq!((all.len(), all[0], all[9]), (10, ("v18", Some(18), None), ("v9", Some(9), None)));
    }

    #[test]
    fn another_median_is_no_reason_to_write_and_goes_along() {
        let first = next(&ControllerStatus::default(), &running("a", 0, None), "t1").unwrap();
        let known = next(&first, &running("a", 0, Some(10)), "t2").unwrap();
        assert_eq!(known.hooks["sync"].instructions_p50, Some(10), "the first one is written");
        let other = running("a", 0, Some(20));
        assert_eq!(next(&known, &other, "t3"), None);
        assert_eq!(seen_again(&known, &other, "t3").hooks["sync"].instructions_p50, Some(20));
        let failing = next(&known, &running("a", 1, Some(30)), "t4").unwrap();
        assert_eq!(failing.hooks["sync"].instructions_p50, Some(30));
        // Whether the watch is woken.
        let mut report = running("a", 0, None);
        assert!(report.note_median(HookName::Sync, "a", 10));
        assert!(!report.note_median(HookName::Sync, "a", 20));
        assert!(!report.note_median(HookName::Sync, "b", 30), "of another version");
        assert_eq!(report.hooks["sync"].instructions_p50, Some(20));
    }
}
