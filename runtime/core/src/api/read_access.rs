//! Read access of a controller's account: whether its hooks may be shown the parents of a namespace and their children.
//!
//! Controllers share caches that the server fills with its own rights, so the API server is asked in the name of the account. An
//! answer counts for a while: a right that is taken away is noticed within five minutes, one that is granted within seconds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::object::id::Resource;

/// A granted right counts for this long.
pub const MAX_GRANT_AGE: Duration = Duration::from_mins(4);

/// A controller that runs asks at this interval whether it still may.
pub const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// A refusal counts for this long.
pub const MAX_REFUSAL_AGE: Duration = Duration::from_secs(4);

/// The right to read all objects of one kind in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lists {
    verb: &'static str,
    group: Arc<str>,
    resource: Arc<str>,
    namespaced: bool,
    /// Name of the one object that the right is about; `None`: all objects.
    name: Option<Arc<str>>,
}

impl Lists {
    /// Rights that it takes to watch one object.
    pub fn named(kind: &Arc<Resource>, name: &str) -> Vec<Self> {
        let name = Some(Arc::from(name));
        Self::of([kind]).into_iter().map(|right| Self { name: name.clone(), ..right }).collect()
    }

    /// Rights that it takes to be shown objects of these kinds.
    pub fn of<'a>(kinds: impl IntoIterator<Item = &'a Arc<Resource>>) -> Vec<Self> {
        let rights = |kind: &Arc<Resource>| {
            ["list", "watch"].map(|verb| Self {
                verb,
                group: Arc::clone(&kind.gvk.group),
                resource: Arc::clone(&kind.plural),
                namespaced: kind.namespaced,
                name: None,
            })
        };
        kinds.into_iter().flat_map(rights).collect()
    }

    /// The question that the API server is asked; without a namespace it is about all of them.
    pub fn review(&self, namespace: Option<&str>) -> Value {
        let Self { verb, group, resource, namespaced, name } = self;
        let name = name.as_deref().unwrap_or_default();
        // The right to a kind without namespaces is never one of a namespace.
        let namespace = namespace.filter(|_| *namespaced).unwrap_or_default();
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": &**group, "resource": &**resource, "namespace": namespace, "name": name,
            }},
        })
    }
}

impl fmt::Display for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource, .. } = self;
        write!(f, "{verb} resource \"{resource}\" in API group \"{group}\"")
    }
}

/// An account's access to the objects of a namespace, or to those of none, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    Granted,
    /// The message says which right is missing.
    Refused(Arc<str>),
    /// The API server has to be asked first: about a namespace, or about all of them.
    Ask(Option<Arc<str>>),
}

/// Answers of the API server about one account and the kinds of one kind of parents.
#[derive(Debug, Default)]
pub struct ReadAccess {
    /// `None` stands for all namespaces.
    answers: BTreeMap<Option<Arc<str>>, Answer>,
}

#[derive(Debug)]
struct Answer {
    at: Duration,
    /// `None`: the account may read there.
    refusal: Option<Arc<str>>,
}

impl Answer {
    fn counts(&self, now: Duration) -> bool {
        let max = if self.refusal.is_some() { MAX_REFUSAL_AGE } else { MAX_GRANT_AGE };
        now.saturating_sub(self.at) < max
    }
}

impl ReadAccess {
    /// About the objects of a namespace, or those without one where it is empty. `now` is the time since any fixed moment.
    pub fn of(&self, namespace: &str, now: Duration) -> Access {
        let namespace = (!namespace.is_empty()).then(|| Some(Arc::from(namespace)));
        let mut refused = None;
        for scope in std::iter::once(None).chain(namespace) {
            match self.answers.get(&scope).filter(|answer| answer.counts(now)) {
                None => return Access::Ask(scope),
                Some(Answer { refusal: None, .. }) => return Access::Granted,
                Some(Answer { refusal: Some(refusal), .. }) => refused = Some(Arc::clone(refusal)),
            }
        }
        refused.map_or(Access::Ask(None), Access::Refused)
    }

    /// Takes the answer about a namespace, or about all of them. `now`: before the question was sent.
    pub fn answered(&mut self, scope: Option<Arc<str>>, refusal: Option<Arc<str>>, now: Duration) {
        self.answers.retain(|_, answer| answer.counts(now));
        self.answers.insert(scope, Answer { at: now, refusal });
    }

    /// Whether the account may read in some namespace, as far as is known.
    pub fn grants_any(&self, now: Duration) -> bool {
        self.answers.values().any(|answer| answer.refusal.is_none() && answer.counts(now))
    }

    /// The API server has refused something to the account: what it granted before is asked for again. A refusal that comes again
    /// and again changes nothing within seconds.
    pub fn refused(&mut self, now: Duration) {
        self.answers.retain(|_, answer| now.saturating_sub(answer.at) < MAX_REFUSAL_AGE);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::id::Gvk;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn text(text: &str) -> Arc<str> {
        text.into()
    }

    fn kind(group: &str, plural: &str, namespaced: bool) -> Arc<Resource> {
        Arc::new(Resource { gvk: Gvk::new(group, "X"), plural: plural.into(), namespaced, has_status: false })
    }

    #[test]
    fn each_kind_is_to_be_listed_and_watched() {
        let rights = Lists::of([&kind("v1", "secrets", true), &kind("e/v1", "things", false)]);
        let texts: Vec<_> = rights.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "list resource \"secrets\" in API group \"\"",
                "watch resource \"secrets\" in API group \"\"",
                "list resource \"things\" in API group \"e\"",
                "watch resource \"things\" in API group \"e\"",
            ]
        );
        let namespaces = rights.iter().map(|right| {
            right.review(Some("n"))["spec"]["resourceAttributes"]["namespace"].as_str().unwrap().to_owned()
        });
        let expected = ["n", "n", "", ""];
        assert!(namespaces.eq(expected), "a namespace grants no kind that has none");
        assert_eq!(rights[0].review(None)["spec"]["resourceAttributes"]["namespace"], "");
        let named = Lists::named(&kind("v1", "secrets", true), "s");
        let asks = |right: &Lists| right.review(Some("n"))["spec"]["resourceAttributes"]["name"].clone();
        assert_eq!(named.iter().map(asks).collect::<Vec<_>>(), ["s", "s"]);
    }

    #[test]
    fn a_namespace_is_asked_about_where_the_account_may_not_read_all() {
        let mut access = ReadAccess::default();
        assert_eq!(access.of("n", secs(0)), Access::Ask(None));
        access.answered(None, Some(text("all")), secs(0));
        assert_eq!(access.of("n", secs(1)), Access::Ask(Some(text("n"))));
        assert_eq!(access.of("", secs(1)), Access::Refused("all".into()));
        access.answered(Some(text("n")), None, secs(1));
        access.answered(Some(text("m")), Some(text("m")), secs(1));
        assert_eq!(access.of("n", secs(1)), Access::Granted);
        assert_eq!(access.of("m", secs(1)), Access::Refused("m".into()));
        access.answered(None, None, secs(2));
        for namespace in ["", "n", "m", "o"] {
            assert_eq!(access.of(namespace, secs(2)), Access::Granted, "{namespace}");
        }
    }

    #[test]
    fn a_grant_counts_for_four_minutes_and_until_a_refusal() {
        let mut access = ReadAccess::default();
        access.answered(None, None, secs(10));
        assert_eq!(access.of("n", secs(249)), Access::Granted);
        assert!(access.grants_any(secs(249)) && !access.grants_any(secs(250)));
        assert_eq!(access.of("n", secs(250)), Access::Ask(None));
        access.answered(None, None, secs(310));
        access.refused(secs(313));
        assert_eq!(access.of("n", secs(313)), Access::Granted, "it was asked for a moment ago");
        access.refused(secs(314));
        assert_eq!(access.of("n", secs(314)), Access::Ask(None));
        access.answered(None, Some(text("no")), secs(320));
        assert!(!access.grants_any(secs(320)));
        assert_eq!(access.of("", secs(323)), Access::Refused("no".into()));
        assert_eq!(access.of("", secs(324)), Access::Ask(None), "it may be granted at any time");
    }

    #[test]
    fn answers_that_no_longer_count_are_dropped() {
        let mut access = ReadAccess::default();
        for namespace in 0..1_000 {
            access.answered(Some(text(&namespace.to_string())), Some(text("no")), secs(namespace));
        }
        assert!(access.answers.len() <= 4, "{}", access.answers.len());
    }

    proptest! {
        #[test]
        fn nothing_is_shown_long_after_the_last_grant(
            answers in proptest::collection::vec((0..3_usize, any::<bool>(), 0..400_u64), 0..20),
            asked in 0..2_usize,
        ) {
            let scopes = [None, Some(text("a")), Some(text("b"))];
            let (mut access, mut now, mut granted) = (ReadAccess::default(), Duration::ZERO, [None; 3]);
            for (scope, is_granted, later) in answers {
                now += secs(later);
                access.answered(scopes[scope].clone(), (!is_granted).then(|| "no".into()), now);
                granted[scope] = is_granted.then_some(now);
                let namespace = ["a", "b"][asked];
                if access.of(namespace, now) == Access::Granted {
                    let latest = granted[0].max(granted[asked + 1]);
                    prop_assert!(latest.is_some_and(|at| now.saturating_sub(at) < MAX_GRANT_AGE));
                }
            }
        }
    }
}
