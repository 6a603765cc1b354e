//! Rule of a customize answer: the objects of a kind, in one namespace, some or all.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use crate::api::hook::HookVersion;
use crate::object::ObjectMeta;
use crate::object::id::{Gvk, Gvr, Resource};
use crate::object::selector::Selector;

/// A rule as the hook wrote it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestedRule {
    pub gvr: Gvr,
    pub labels: Option<Selector>,
    pub namespaces: Option<Selector>,
    pub namespace: Option<Arc<str>>,
    pub names: Names,
}

/// Names in order, each once; all copies share them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Names(Arc<[Arc<str>]>);

impl Names {
    /// Bytes that they take, about.
    fn memory(&self) -> usize {
        const NAME: usize = 48;
        self.iter().map(|name| NAME + name.len()).sum()
    }
}

impl FromIterator<Arc<str>> for Names {
    fn from_iter<T: IntoIterator<Item = Arc<str>>>(names: T) -> Self {
        Self(names.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
    }
}

impl Deref for Names {
    type Target = [Arc<str>];

    fn deref(&self) -> &[Arc<str>] {
        &self.0
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// Version of the customize hook.
    pub version: HookVersion,
    /// Empty: the parent has none.
    pub parent_namespace: &'a str,
}

/// A rule that can be carried out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelatedRule {
    pub resource: Arc<Resource>,
    pub finds: Finds,
}

/// Which objects of the rule's kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finds {
    /// Without a namespace: in any.
    Names {
        namespace: Option<Arc<str>>,
        names: Names,
    },
    Labels {
        place: RuleScope,
        labels: Selector,
    },
}

/// In which namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleScope {
    Anywhere,
    Namespace(Arc<str>),
    /// Namespaces whose labels match.
    Namespaces(Selector),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("the hook's answer: relatedResources[{at}] has names and a {field}: give one of them")]
    NamesAndSelector { at: usize, field: &'static str },
    #[error(
        "the hook's answer: relatedResources[{at}] has a namespace and a namespaceSelector: give one of them"
    )]
    NamespaceTwice { at: usize },
    #[error(
        "the hook's answer: relatedResources[{at}].namespace is {found:?}; a customize hook of version v1 sees objects in the namespace of its parent, {parent:?}: declare version v2 for this hook and for sync and finalize"
    )]
    OtherNamespace { at: usize, found: Arc<str>, parent: String },
    #[error(
        "the hook's answer: relatedResources[{at}].namespaceSelector is not for a customize hook of version v1 whose parent has a namespace: declare version v2 for this hook and for sync and finalize"
    )]
    SelectorInV1 { at: usize },
    #[error(
        "the hook's answer: relatedResources[{at}].namespaceSelector: {gvk} has no namespaces; leave it out"
    )]
    ClusterScoped { at: usize, gvk: Gvk },
}

impl RequestedRule {
    /// Bytes that it takes, about.
    pub(crate) fn memory(&self) -> usize {
        const RULE: usize = 256;
        let selectors = self.labels.iter().chain(&self.namespaces);
        RULE + self.names.memory() + selectors.map(Selector::memory).sum::<usize>()
    }

    /// The rule for a kind, which is known to be this rule's; `at` is the rule's place in the answer.
    pub fn rule(
        &self,
        at: usize,
        resource: &Arc<Resource>,
        asker: Asker<'_>,
    ) -> Result<RelatedRule, RuleError> {
        let selectors = [("labelSelector", &self.labels), ("namespaceSelector", &self.namespaces)];
        let given = selectors.into_iter().find(|(_, selector)| selector.is_some());
        if let Some((field, _)) = given.filter(|_| !self.names.is_empty()) {
            return Err(RuleError::NamesAndSelector { at, field });
        }
        let home = asker.parent_namespace;
        let local = asker.version == HookVersion::V1 && !home.is_empty() && resource.namespaced;
        let namespace = match (&self.namespace, &self.namespaces) {
            (Some(_), Some(_)) => return Err(RuleError::NamespaceTwice { at }),
            (None, Some(_)) if local => return Err(RuleError::SelectorInV1 { at }),
            (None, Some(_)) if !resource.namespaced => {
                return Err(RuleError::ClusterScoped { at, gvk: resource.gvk.clone() });
            }
            (Some(found), None) if local && **found != *home => {
                let (found, parent) = (Arc::clone(found), home.to_owned());
                return Err(RuleError::OtherNamespace { at, found, parent });
            }
            (namespace, _) => namespace.clone().filter(|_| resource.namespaced),
        };
        let finds = if self.names.is_empty() {
            let place = match (namespace, &self.namespaces) {
                (Some(namespace), _) => RuleScope::Namespace(namespace),
                (None, Some(selector)) => RuleScope::Namespaces(selector.clone()),
                (None, None) if local => RuleScope::Namespace(home.into()),
                (None, None) => RuleScope::Anywhere,
            };
            Finds::Labels { place, labels: self.labels.clone().unwrap_or_default() }
        } else {
            // Names alone are looked for everywhere, whatever the version.
            Finds::Names { namespace, names: self.names.clone() }
        };
        Ok(RelatedRule { resource: Arc::clone(resource), finds })
    }
}

impl RelatedRule {
    /// Whether the rule finds this object of its kind; `namespace` is the object's, where it has one.
    pub fn matches(&self, object: &ObjectMeta, namespace: Option<&ObjectMeta>) -> bool {
        match &self.finds {
            Finds::Names { namespace, names } => {
                let there = namespace.as_ref().is_none_or(|namespace| *namespace == object.key.namespace);
                there && names.binary_search(&object.key.name).is_ok()
            }
            Finds::Labels { place, labels } => {
                labels.matches(&object.labels)
                    && match place {
                        RuleScope::Anywhere => true,
                        RuleScope::Namespace(namespace) => *namespace == object.key.namespace,
                        RuleScope::Namespaces(selector) => {
                            namespace.is_some_and(|found| selector.matches(&found.labels))
                        }
                    }
            }
        }
    }

    /// The labels of namespaces that the rule asks about.
    pub fn namespace_selector(&self) -> Option<&Selector> {
        match &self.finds {
            Finds::Labels { place: RuleScope::Namespaces(selector), .. } => Some(selector),
            Finds::Labels { place: RuleScope::Anywhere | RuleScope::Namespace(_), .. }
            | Finds::Names { .. } => None,
        }
    }

    /// Whether it takes labels to find what the rule asks for.
    pub fn asks_for_labels(&self) -> bool {
        matches!(&self.finds, Finds::Labels { labels, .. } if !labels.is_empty())
    }

    /// Bytes that it takes, with its entries in an index of rules, about.
    pub(crate) fn memory(&self) -> usize {
        const RULE: usize = 1024;
        const ENTRY: usize = 128;
        RULE + match &self.finds {
            Finds::Names { names, .. } => names.memory() + names.len() * ENTRY,
            Finds::Labels { labels, place } => {
                labels.memory()
                    + match place {
                        RuleScope::Anywhere | RuleScope::Namespace(_) => 0,
                        RuleScope::Namespaces(selector) => selector.memory(),
                    }
            }
        }
    }

    /// The namespace of all that the rule may ever find, where it is one.
    pub fn reach(&self) -> Option<&Arc<str>> {
        match &self.finds {
            Finds::Names { namespace, .. } => namespace.as_ref(),
            Finds::Labels { place: RuleScope::Namespace(namespace), .. } => Some(namespace),
            Finds::Labels { place: RuleScope::Anywhere | RuleScope::Namespaces(_), .. } => None,
        }
    }
}

impl Finds {
    /// All objects of a kind whose labels match.
    pub fn matching(labels: &Selector) -> Self {
        Self::Labels { place: RuleScope::Anywhere, labels: labels.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::customize::CustomizeBounds;
    use crate::api::hook::HookTransport;
    use crate::cache::{Cache, CacheEvent};
    use crate::hook::customize;
    use crate::hook::response::Mode;
    use crate::object::id::Key;
    use crate::object::testing::{a, cluster_resource, resource};
    use crate::related::selection::{namespaces, select};

    const NAMES: &str = r#""names":["a"]"#;
    const LABELS: &str = r#""labelSelector":{"matchLabels":{"l":"1"}}"#;
    const NO_LABELS: &str = r#""labelSelector":{}"#;
    const HOME: &str = r#""namespace":"n""#;
    const AWAY: &str = r#""namespace":"m""#;
    const SELECTOR: &str = r#""namespaceSelector":{"matchLabels":{"team":"x"}}"#;

    /// A rule with these fields, of a customize hook of this version, about a parent in this namespace.
    fn rule(
        fields: &[&str],
        version: HookVersion,
        parent_namespace: &str,
        namespaced: bool,
    ) -> Result<RelatedRule, String> {
        let resource = if namespaced { resource("v1", "Pod") } else { cluster_resource("v1", "Pod") };
        let mut text = r#"{"relatedResources":[{"apiVersion":"v1","resource":"pods""#.to_owned();
        for field in fields {
            text.extend([",", field]);
        }
        let text = format!("{text}}}]}}");
        let asked = customize::rules(
            text.as_bytes(),
            HookTransport::Webhook,
            Mode::Strict,
            &CustomizeBounds::default(),
        )
        .unwrap()
        .rules;
        asked[0].1.rule(0, &resource, Asker { version, parent_namespace }).map_err(|error| error.to_string())
    }

    /// Keys of the objects that a rule finds in the same small cluster.
    fn found(fields: &[&str], version: HookVersion, parent_namespace: &str, namespaced: bool) -> String {
        let rule = match rule(fields, version, parent_namespace, namespaced) {
            Ok(rule) => rule,
            Err(error) => return error,
        };
        let (mut index, mut all_namespaces) = (Cache::default(), Cache::default());
        for (name, team) in [("n", "x"), ("m", "x"), ("o", "y")] {
            let namespace = a("v1", "Namespace", name).label("team", team);
            all_namespaces.apply(CacheEvent::Applied((*namespace.object()).clone()));
            for pod in ["a", "b"] {
                let key = if namespaced { format!("{name}/{pod}") } else { format!("{pod}{name}") };
                let pod = a("v1", "Pod", &key).uid(&key).label("l", if pod == "a" { "1" } else { "2" });
                index.apply(CacheEvent::Applied((*pod.object()).clone()));
            }
        }
        let selector = rule.namespace_selector();
        let within = selector.map(|one| namespaces(one, &all_namespaces)).unwrap_or_default();
        let found = select(&rule.finds, &index, &within);
        let mut keys: Vec<_> = found.iter().map(|o| o.key.to_string()).collect();
        let scan: BTreeSet<_> = index
            .all()
            .filter(|o| rule.matches(o, all_namespaces.get(&Key::new("", &o.key.namespace)).map(|n| &**n)))
            .map(|o| o.key.to_string())
            .collect();
        keys.sort();
        assert_eq!(keys, scan.into_iter().collect::<Vec<_>>(), "what is selected is what matches");
        keys.join(" ")
    }

    #[test]
    fn each_class_finds_what_its_version_and_scopes_say() {
        use HookVersion::{V1, V2};
        for (fields, v1_local, otherwise, cluster_scoped) in [
            (&[][..], "n/a n/b", "m/a m/b n/a n/b o/a o/b", "am an ao bm bn bo"),
            (&[NO_LABELS], "n/a n/b", "m/a m/b n/a n/b o/a o/b", "am an ao bm bn bo"),
            (&[LABELS], "n/a", "m/a n/a o/a", "am an ao"),
            (&[HOME, LABELS], "n/a", "n/a", "am an ao"),
            (&[AWAY, LABELS], "other namespace", "m/a", "am an ao"),
            (&[HOME], "n/a n/b", "n/a n/b", "am an ao bm bn bo"),
            (&[AWAY], "other namespace", "m/a m/b", "am an ao bm bn bo"),
            (&[HOME, NAMES], "n/a", "n/a", ""),
            (&[AWAY, NAMES], "other namespace", "m/a", ""),
            (&[NAMES], "m/a n/a o/a", "m/a n/a o/a", ""),
            (&[r#""names":["an","x"]"#], "", "", "an"),
            (&[SELECTOR], "no selector", "m/a m/b n/a n/b", "no namespaces"),
            (&[SELECTOR, LABELS], "no selector", "m/a n/a", "no namespaces"),
        ] {
            let says = |expected: &str| {
                match expected {
                "other namespace" => {
                    "relatedResources[0].namespace is \"m\"; a customize hook of version v1 sees objects in the namespace of its parent, \"n\""
                }
                "no selector" => {
                    "relatedResources[0].namespaceSelector is not for a customize hook of version v1 whose parent has a namespace"
                }
                "no namespaces" => "relatedResources[0].namespaceSelector: v1 Pod has no namespaces",
                _ => return expected.to_owned(),
            }
            .to_owned()
            };
            let check = |version, home, namespaced, expected: &str| {
                let (found, says) = (found(fields, version, home, namespaced), says(expected));
                let same = if says.contains("related") { found.contains(&says) } else { found == says };
                assert!(
                    same,
                    "{fields:?} {version:?} of a parent in {home:?}, kind namespaced: {namespaced}: {found}, not {says}"
                );
            };
            check(V1, "n", true, v1_local);
            check(V1, "", true, otherwise);
            check(V2, "n", true, otherwise);
            check(V2, "", true, otherwise);
            for version in [V1, V2] {
                for home in ["n", ""] {
                    check(version, home, false, cluster_scoped);
                }
            }
        }
    }

    #[test]
    fn what_excludes_each_other_is_refused_by_name() {
        for version in [HookVersion::V1, HookVersion::V2] {
            for (fields, says) in [
                (&[NAMES, LABELS][..], "relatedResources[0] has names and a labelSelector"),
                (&[NAMES, NO_LABELS], "relatedResources[0] has names and a labelSelector"),
                (&[NAMES, SELECTOR], "relatedResources[0] has names and a namespaceSelector"),
                (&[HOME, SELECTOR], "relatedResources[0] has a namespace and a namespaceSelector"),
            ] {
                let error = rule(fields, version, "n", true).unwrap_err();
                assert!(error.contains(says), "{error}");
            }
        }
    }

    #[test]
    fn null_and_empty_are_absent() {
        let nothing = ["\"labelSelector\":null,\"namespaceSelector\":null,\"namespace\":null,\"names\":null"];
        let all = rule(&[], HookVersion::V2, "n", true);
        assert_eq!(rule(&nothing, HookVersion::V2, "n", true), all);
        assert_eq!(rule(&[r#""namespace":"","names":[]"#], HookVersion::V2, "n", true), all);
        assert!(rule(&[LABELS, r#""names":[]"#], HookVersion::V2, "n", true).is_ok());
    }
}
