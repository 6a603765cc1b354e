//! Count of a shadow's answers: how many agree, where the others differ, and the latest failure. Bounded.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::hook::HookName;
use crate::api::reason::ConditionReason;
use crate::api::status::{Finding, ShadowDifference, ShadowStatus};
use crate::shorten;

/// Places that are remembered. Those that come later are in the count of different answers alone.
const MAX_PLACES: usize = 100;

/// Places in the status.
const MAX_SHOWN: usize = 10;

/// Answers in a row after which a shadow no longer fails, though none is about the parent of its latest failure: that
/// one may be gone.
const MAX_SINCE_FAILURE: u64 = 100;

/// Bytes of the latest failure.
const MAX_FAILURE: usize = 512;

/// Answers of one shadow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShadowCounts {
    equal: u64,
    different: u64,
    failed: u64,
    dropped: u64,
    places: BTreeMap<String, DifferenceCount>,
    /// Why it is not asked at all.
    refused: Option<String>,
    failure: Option<String>,
    /// The parent of the latest failure, and how many answers have been compared since.
    failing: Option<(String, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct DifferenceCount {
    count: u64,
    example: String,
}

impl ShadowCounts {
    /// Counts of a shadow that cannot be asked.
    pub fn refused(why: &str) -> Self {
        Self { refused: Some(shorten(why, MAX_FAILURE)), ..Self::default() }
    }

    /// An answer about `parent` was compared, and differs in these places.
    pub fn compared(&mut self, parent: &str, places: Vec<String>) {
        self.failing.take_if(|(of, since)| {
            *since += 1;
            of == parent || *since >= MAX_SINCE_FAILURE
        });
        if places.is_empty() {
            self.equal += 1;
            return;
        }
        self.different += 1;
        for place in places {
            if let Some(known) = self.places.get_mut(&place) {
                known.count += 1;
            } else if self.places.len() < MAX_PLACES {
                self.places.insert(place, DifferenceCount { count: 1, example: parent.to_owned() });
            }
        }
    }

    pub fn failed(&mut self, parent: &str, failure: &str) {
        self.failed += 1;
        self.failing = Some((parent.to_owned(), 0));
        self.failure = Some(shorten(&format!("{parent}: {failure}"), MAX_FAILURE));
    }

    /// There was no time or no memory to ask.
    pub fn dropped(&mut self) {
        self.dropped += 1;
    }

    /// Answers by result, as metrics count them.
    pub fn results(&self) -> [(&'static str, u64); 4] {
        [
            ("equal", self.equal),
            ("different", self.different),
            ("failed", self.failed),
            ("dropped", self.dropped),
        ]
    }

    pub fn status(&self) -> ShadowStatus {
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_by_key(|(_, place)| std::cmp::Reverse(place.count));
        let shown = places.into_iter().take(MAX_SHOWN).map(|(path, DifferenceCount { count, example })| {
            ShadowDifference { path: path.clone(), count: number(*count), example: example.clone() }
        });
        ShadowStatus {
            equal: number(self.equal),
            different: number(self.different),
            failed: number(self.failed),
            dropped: number(self.dropped),
            differences: shown.collect(),
            failure: self.refused.clone().or_else(|| self.failure.clone()),
        }
    }
}

/// The condition of all shadows of a controller: the worst there is to say.
pub fn finding(shadows: &BTreeMap<HookName, ShadowCounts>) -> Finding {
    if let Some(refused) = shadows.values().find_map(|counts| counts.refused.as_ref()) {
        return Finding::new(ConditionReason::ShadowRefused, refused);
    }
    let all = || shadows.iter().map(|(name, counts)| (name, counts.status()));
    let compared: i64 = all().map(|(_, one)| one.equal + one.different + one.failed).sum();
    if compared == 0 {
        return Finding::Unknown;
    }
    let answers = |count: i64| format!("{count} {}", if count == 1 { "answer" } else { "answers" });
    let of = |count: i64| format!("{count} of {compared} answers");
    let failed: i64 = all().map(|(_, one)| one.failed).sum();
    let different: i64 = all().map(|(_, one)| one.different).sum();
    let failure = |counts: &ShadowCounts| counts.failing.is_some().then(|| counts.failure.clone())?;
    if let Some((name, failure)) = shadows.iter().find_map(|(name, counts)| Some((name, failure(counts)?))) {
        let message = format!("{} failed; the shadow of the {name} hook, asked about {failure}", of(failed));
        return Finding::new(ConditionReason::ShadowFails, message);
    }
    match all().find_map(|(name, one)| Some((name, one.differences.into_iter().next()?))) {
        None => Finding::new(ConditionReason::ShadowsAgree, {
            let agree = if compared - failed == 1 { "agrees" } else { "agree" };
            let before = if failed == 0 { String::new() } else { format!("; {failed} failed before") };
            format!("{} {agree}{before}", answers(compared - failed))
        }),
        Some((name, ShadowDifference { path, count, example })) => {
            let message = format!(
                "{} differ; of the {name} hook's most at {path} ({count}, for example about {example}): status.shadows has more",
                of(different)
            );
            Finding::new(ConditionReason::ShadowsDiffer, message)
        }
    }
}

/// Whether `now` says more than other counts: it is worth a write at once.
pub fn is_news(before: &BTreeMap<String, ShadowStatus>, now: &BTreeMap<String, ShadowStatus>) -> bool {
    let gist = |all: &BTreeMap<String, ShadowStatus>| -> Vec<_> {
        let gist = |(name, one): (&String, &ShadowStatus)| {
            let paths: BTreeSet<_> = one.differences.iter().map(|one| one.path.clone()).collect();
            (name.clone(), one.equal > 0, one.different > 0, one.failure.is_some(), paths)
        };
        all.iter().map(gist).collect()
    };
    gist(before) != gist(now)
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(shadows: &BTreeMap<HookName, ShadowCounts>) -> Option<(ConditionReason, String)> {
        match finding(shadows) {
            Finding::Unknown => None,
            Finding::Known { reason, message } => Some((reason, message)),
        }
    }

    #[test]
    fn the_condition_says_the_worst() {
        let mut shadows = BTreeMap::from([(HookName::Sync, ShadowCounts::default())]);
        let counts = |shadows: &mut BTreeMap<_, ShadowCounts>, change: fn(&mut ShadowCounts)| {
            change(shadows.get_mut(&HookName::Sync).unwrap());
        };
        counts(&mut shadows, ShadowCounts::dropped);
        assert_eq!(said(&shadows), None, "nothing was compared");
        counts(&mut shadows, |one| one.compared("n/a", vec![]));
        assert_eq!(said(&shadows), Some((ConditionReason::ShadowsAgree, "1 answer agrees".to_owned())));
        counts(&mut shadows, |one| one.compared("n/b", vec!["status.x".to_owned()]));
        let (reason, message) = said(&shadows).unwrap();
        assert_eq!(reason, ConditionReason::ShadowsDiffer);
        let expected = "1 of 2 answers differ; of the sync hook's most at status.x (1, for example about n/b): status.shadows has more";
        assert_eq!(message, expected);
        let mut first = BTreeMap::from([(HookName::Sync, ShadowCounts::default())]);
        counts(&mut first, |one| one.compared("n/b", vec!["status.x".to_owned()]));
        assert!(said(&first).unwrap().1.starts_with("1 of 1 answers differ; "), "also of the first one");
        let mut refused = shadows.clone();
        refused.insert(HookName::Finalize, ShadowCounts::refused("no such field"));
        assert_eq!(said(&refused), Some((ConditionReason::ShadowRefused, "no such field".to_owned())));
        counts(&mut shadows, |one| one.failed("n/c", "trap"));
        let (reason, message) = said(&shadows).unwrap();
        assert_eq!(reason, ConditionReason::ShadowFails);
        assert_eq!(message, "1 of 3 answers failed; the shadow of the sync hook, asked about n/c: trap");
    }

    #[test]
    fn a_shadow_agrees_again_once_it_answers_about_the_parent_or_often() {
        let mut shadows = BTreeMap::from([(HookName::Sync, ShadowCounts::default())]);
        let mut reason = |change: &dyn Fn(&mut ShadowCounts)| {
            change(shadows.get_mut(&HookName::Sync).unwrap());
            said(&shadows).unwrap()
        };
        let fails = |one: &mut ShadowCounts| one.failed("n/a", "trap");
        assert_eq!(reason(&fails).0, ConditionReason::ShadowFails);
        assert_eq!(reason(&|one| one.compared("n/b", vec![])).0, ConditionReason::ShadowFails);
        let agrees = (ConditionReason::ShadowsAgree, "2 answers agree; 1 failed before".to_owned());
        assert_eq!(reason(&|one| one.compared("n/a", vec![])), agrees);
        assert_eq!(reason(&fails).0, ConditionReason::ShadowFails);
        for _ in 1..MAX_SINCE_FAILURE {
            assert_eq!(reason(&|one| one.compared("n/b", vec![])).0, ConditionReason::ShadowFails);
        }
        assert_eq!(reason(&|one| one.compared("n/b", vec![])).0, ConditionReason::ShadowsAgree);
    }

    #[test]
    fn the_most_frequent_places_are_shown_and_few_are_remembered() {
        let mut counts = ShadowCounts::default();
        for nth in 0..=MAX_PLACES {
            counts.compared(&format!("n/{nth}"), vec![format!("place {nth:03}"), "often".to_owned()]);
        }
        assert_eq!(counts.places.len(), MAX_PLACES);
        let status = counts.status();
        assert_eq!((status.different, status.differences.len()), (101, MAX_SHOWN));
        let first = &status.differences[0];
        assert_eq!((first.path.as_str(), first.count, first.example.as_str()), ("often", 101, "n/0"));
    }

    #[test]
    fn counts_alone_are_no_news() {
        let status = |change: fn(&mut ShadowCounts)| {
            let mut counts = ShadowCounts::default();
            counts.compared("n/a", vec![]);
            counts.compared("n/a", vec!["x".to_owned()]);
            change(&mut counts);
            BTreeMap::from([("sync".to_owned(), counts.status())])
        };
        let usual = status(|_| ());
        for same in [
            status(|counts| counts.compared("n/b", vec![])),
            status(|counts| counts.compared("n/b", vec!["x".to_owned()])),
            status(ShadowCounts::dropped),
        ] {
            assert!(!is_news(&usual, &same), "{same:?}");
        }
        for other in [
            status(|counts| counts.compared("n/b", vec!["y".to_owned()])),
            status(|counts| counts.failed("n/b", "trap")),
            status(|counts| *counts = ShadowCounts::default()),
        ] {
            assert!(is_news(&usual, &other), "{other:?}");
        }
        assert!(is_news(&BTreeMap::new(), &usual));
    }

    #[test]
    fn failures_are_cut() {
        let mut counts = ShadowCounts::default();
        counts.failed("n/a", &"x".repeat(10_000));
        assert_eq!(counts.status().failure.unwrap().len(), MAX_FAILURE);
    }
}
