//! Knows what is to be done about a `ConfigMap`: from what it holds, what is noted on it, and the Pods that there are.

use std::collections::BTreeSet;

/// More do not fit into an annotation: those of an object have 256 KiB in all.
pub(crate) const MOST: usize = 5_000;

/// Notes of earlier reconciles.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The digest of the data that was seen last.
    pub(crate) seen: Option<String>,
    pub(crate) restart: Restart,
}

/// How far a restart has come.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum Restart {
    #[default]
    None,
    /// The data has changed; which Pods there are has not been noted yet.
    Due,
    /// These Pods, by their uids, go: they were there when the change was noticed.
    Of(BTreeSet<String>),
}

/// Action of one reconcile.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    Rest,
    Note(Noted),
    /// By their uids.
    Delete(BTreeSet<&'a str>),
    /// So many that they cannot be noted.
    TooMany(usize),
}

/// The next step; `pods` are the uids of those that match and are not being deleted.
///
/// Nothing is deleted that an earlier pass has not noted, and what is noted is never added to but by another change. So
/// whoever comes after a crash deletes the rest, and nothing that came into being since. Between noticing a change and
/// noting the Pods lies a write: Pods are told of separately, and one made just before the change may be seen after it.
pub(crate) fn step<'a>(now: &str, noted: Noted, pods: &BTreeSet<&'a str>) -> Step<'a> {
    let Some(seen) = noted.seen else {
        return Step::Note(Noted { seen: Some(now.to_owned()), restart: Restart::None });
    };
    let note = |restart| Step::Note(Noted { seen: Some(now.to_owned()), restart });
    if seen != now {
        return note(Restart::Due); // also in the middle of another restart: the Pods that are left are noted again
    }
    match noted.restart {
        Restart::None => Step::Rest,
        Restart::Due if pods.is_empty() => note(Restart::None),
        Restart::Due if pods.len() > MOST => Step::TooMany(pods.len()),
        Restart::Due => note(Restart::Of(pods.iter().map(|&uid| uid.to_owned()).collect())),
        Restart::Of(uids) => {
            let left: BTreeSet<_> = pods.iter().copied().filter(|&uid| uids.contains(uid)).collect();
            if left.is_empty() { note(Restart::None) } else { Step::Delete(left) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next<'a>(now: &str, noted: Noted, pods: &[&'a str]) -> Step<'a> {
        step(now, noted, &pods.iter().copied().collect())
    }

    fn noted(seen: &str, restart: Restart) -> Noted {
        Noted { seen: Some(seen.to_owned()), restart }
    }

    fn of(uids: &[&str]) -> Restart {
        Restart::Of(uids.iter().map(|&uid| uid.to_owned()).collect())
    }

    #[test]
    fn the_first_sight_is_noted_and_restarts_nothing() {
        assert_eq!(next("1", Noted::default(), &["a"]), Step::Note(noted("1", Restart::None)));
        let left_over = Noted { seen: None, restart: of(&["a"]) };
        assert_eq!(next("1", left_over, &["a"]), Step::Note(noted("1", Restart::None)));
    }

    #[test]
    fn what_has_not_changed_is_left_alone() {
        assert_eq!(next("1", noted("1", Restart::None), &["a"]), Step::Rest);
    }

    #[test]
    fn a_change_is_noticed_then_its_pods_are_noted_then_they_go_then_it_is_over() {
        assert_eq!(next("2", noted("1", Restart::None), &["a", "b"]), Step::Note(noted("2", Restart::Due)));
        assert_eq!(next("2", noted("2", Restart::Due), &["a", "b"]), Step::Note(noted("2", of(&["a", "b"]))));
        let both = || noted("2", of(&["a", "b"]));
        assert_eq!(next("2", both(), &["a", "b"]), Step::Delete(BTreeSet::from(["a", "b"])));
        assert_eq!(next("2", both(), &["b", "c"]), Step::Delete(BTreeSet::from(["b"])));
        assert_eq!(next("2", both(), &["c", "d"]), Step::Note(noted("2", Restart::None)));
    }

    #[test]
    fn a_change_without_pods_is_over_at_once() {
        assert_eq!(next("2", noted("2", Restart::Due), &[]), Step::Note(noted("2", Restart::None)));
    }

    #[test]
    fn a_change_in_the_middle_takes_the_new_pods_along() {
        let middle = noted("2", of(&["a", "b"]));
        assert_eq!(next("3", middle, &["b", "c"]), Step::Note(noted("3", Restart::Due)));
        assert_eq!(next("3", noted("3", Restart::Due), &["b", "c"]), Step::Note(noted("3", of(&["b", "c"]))));
    }

    #[test]
    fn each_change_is_noticed_by_itself() {
        assert_eq!(next("3", noted("2", Restart::Due), &["a"]), Step::Note(noted("3", Restart::Due)));
    }

    #[test]
    fn a_change_that_is_taken_back_once_noticed_restarts_all_the_same() {
        assert_eq!(next("1", noted("2", Restart::Due), &["a"]), Step::Note(noted("1", Restart::Due)));
    }

    #[test]
    fn more_pods_than_can_be_noted_are_none_of_them_deleted() {
        let all: Vec<String> = (0..=MOST).map(|number| number.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(next("2", noted("2", Restart::Due), &all), Step::TooMany(MOST + 1));
        let fits = next("2", noted("2", Restart::Due), &all[1..]);
        assert!(matches!(fits, Step::Note(Noted { restart: Restart::Of(uids), .. }) if uids.len() == MOST));
    }
}
