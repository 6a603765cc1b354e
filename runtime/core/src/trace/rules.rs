//! Rules of a customize hook, as a trace shows them, and what each of them finds.
//!
//! Names and numbers of objects are for users who may list such objects: [`TracedRule::hide`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Hidden, TracedObject, is_zero};
use crate::object::id::join_api_version;
use crate::reconcile::config::RelatedLimits;
use crate::reconcile::steps::Looked;
use crate::related::found::FoundByRule;
use crate::related::rule::{Finds, RuleScope};
use crate::shorten;

/// Names that are shown of a rule.
const MAX_NAMES: usize = 5;

/// Bytes of a name or a selector.
const MAX_TEXT: usize = 200;

/// A rule of the customize hook.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracedRule {
    pub api_version: String,
    /// The plural.
    pub resource: String,
    /// The namespace that the rule is about; empty: any, or the kind has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The first names that the rule asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_names: usize,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label_selector: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace_selector: String,
    /// Objects that the rule finds; absent where the user who asks may not list such objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<usize>,
    /// They are absent because the server did not ask whether the user may list such objects: there were too many rules.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreviewed: bool,
    /// Objects outside of the parent's namespace among them that the hook is not shown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unseen: usize,
    /// The customize hook selects objects of its parent's namespace alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parent_namespace_only: bool,
}

impl TracedRule {
    pub(super) fn all(looked: &Looked) -> Vec<Self> {
        looked.found.iter().map(|found| Self::of(found, looked.limits)).collect()
    }

    fn of(found: &FoundByRule, limits: RelatedLimits) -> Self {
        let FoundByRule { rule, objects, elsewhere } = found;
        let gvk = &rule.resource.gvk;
        let mut all = Self {
            api_version: join_api_version(&gvk.group, &gvk.version),
            resource: rule.resource.plural.to_string(),
            namespace: rule.reach().map(|it| shorten(it, MAX_TEXT)).unwrap_or_default(),
            names: Vec::new(),
            more_names: 0,
            label_selector: String::new(),
            namespace_selector: String::new(),
            objects: Some(*objects),
            unreviewed: false,
            unseen: if limits.shown_are_local { *elsewhere } else { 0 },
            parent_namespace_only: false,
        };
        match &rule.finds {
            Finds::Names { names, .. } => {
                all.names = names.iter().take(MAX_NAMES).map(|name| shorten(name, MAX_TEXT)).collect();
                all.more_names = names.len() - all.names.len();
            }
            Finds::Labels { place, labels } => {
                all.parent_namespace_only = limits.rules_are_local && rule.resource.namespaced;
                all.label_selector = shorten(&labels.brief(), MAX_TEXT);
                if let RuleScope::Namespaces(selector) = place {
                    all.namespace_selector = shorten(&selector.brief(), MAX_TEXT);
                }
            }
        }
        all
    }

    /// All objects that the rule may find: they have no name.
    pub fn reach(&self) -> TracedObject {
        let group = self.api_version.split_once('/').map_or("", |(group, _version)| group);
        TracedObject {
            group: group.into(),
            resource: (*self.resource).into(),
            kind: Arc::default(),
            namespace: (*self.namespace).into(),
            name: Arc::default(),
        }
    }

    /// Leaves out what a user may learn of objects that they may not list: names, and whether there are any.
    pub fn hide(&mut self, why: Hidden) {
        self.unreviewed = why == Hidden::Unreviewed;
        self.more_names += self.names.len();
        self.names.clear();
        (self.objects, self.unseen) = (None, 0);
    }

    /// The rule finds nothing that the hook is shown.
    pub fn finds_nothing(&self) -> bool {
        self.objects.is_some_and(|objects| objects <= self.unseen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::id::Resource;
    use crate::object::selector::Selector;
    use crate::object::testing::{cluster_resource, resource};
    use std::sync::Arc;

    fn traced(resource: Arc<Resource>, finds: Finds, objects: usize, elsewhere: usize) -> TracedRule {
        let found =
            FoundByRule { rule: crate::related::rule::RelatedRule { resource, finds }, objects, elsewhere };
        TracedRule::of(&found, RelatedLimits { rules_are_local: true, shown_are_local: true })
    }

    #[test]
    fn a_rule_is_shown_with_what_it_finds_and_hidden_without() {
        let labels = Selector::parse("role in (prices),tier in (a,b)").unwrap();
        let place = RuleScope::Namespace("shop".into());
        let rule = traced(resource("v1", "ConfigMap"), Finds::Labels { place, labels }, 0, 0);
        assert_eq!((&*rule.api_version, &*rule.namespace), ("v1", "shop"));
        assert_eq!(rule.label_selector, "role=prices,tier in (a,b)");
        assert!(rule.finds_nothing() && rule.parent_namespace_only);

        let names = (0..8).map(|nth| format!("{nth}").into()).collect();
        let mut rule =
            traced(resource("apps/v1", "Deployment"), Finds::Names { namespace: None, names }, 2, 2);
        assert_eq!((rule.names.len(), rule.more_names, rule.unseen), (MAX_NAMES, 3, 2));
        assert!(rule.finds_nothing(), "the hook sees its own namespace alone");
        assert!(!rule.parent_namespace_only, "names are looked for everywhere");
        assert_eq!((&*rule.reach().group, &*rule.reach().name), ("apps", ""));
        rule.hide(Hidden::Forbidden);
        assert_eq!((rule.names.len(), rule.more_names, rule.objects, rule.unseen), (0, 8, None, 0));
        assert!(!rule.finds_nothing());

        let finds = Finds::matching(&Selector::default());
        let rule = traced(cluster_resource("v1", "Node"), finds, 3, 3);
        assert!(!rule.parent_namespace_only, "a Node has no namespace");
        assert_eq!(rule.unseen, 3, "nor is it in that of the parent");
    }
}
