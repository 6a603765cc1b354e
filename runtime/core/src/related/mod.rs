//! Related objects: those that a customize hook asks to see besides the parent's children. In the order of the data:
//!
//! - [`CustomizeCache`]: the answers of the hook, so that the same request is not sent twice
//! - [`rule`]: the objects that one of its rules asks for
//! - [`selection`]: these objects, found a slice at a time
//! - [`Related`]: the objects that rules find, and those that a request cannot name
//! - [`found`]: what each rule finds, for people
//! - [`pending`]: changes of objects that wait to be matched with rules
//! - [`related_index`]: the parents that a change of an object concerns, and the scopes of stores that rules need
//! - [`deletion`]: the objects that a hook may have deleted
//!
//! Rules are kept from both sides: by parent, so that a customize hook is asked again only when its request differs, and by name,
//! namespace and selector, so that an event finds its parents without asking each (a law compares the two). A reconcile
//! registers its rules before it looks at a cache: what changes after that wakes it. The fingerprint contains the objects and not
//! the rules, as rules have no other effect.

pub mod deletion;
pub mod found;
pub mod pending;
pub mod related_index;
pub mod rule;
pub mod selection;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::hash::{Fingerprint, Fingerprinter};
use crate::object::id::Key;
use crate::object::{ChildMap, Naming, Object};
use crate::related::found::{FoundByRule, Hidden, MAX_FOUND_RULES};
use crate::related::rule::{Finds, RelatedRule, RequestedRule};

/// The objects that the rules of a parent find.
#[derive(Debug, Default)]
pub struct Related {
    /// Every rule's kind has its group, also an empty one.
    pub objects: ChildMap,
    /// Objects of rules that are not in the namespace of the parent, which has one.
    elsewhere: Vec<Hidden>,
    /// The first rules, and what each of them finds.
    pub found: Vec<FoundByRule>,
}

impl Related {
    /// Adds the objects that a rule of a parent in the namespace `home` finds; `at` is the rule's place in the answer.
    pub fn add(&mut self, home: &str, at: usize, rule: &RelatedRule, found: Vec<Arc<Object>>) {
        self.objects.declare(&rule.resource);
        let elsewhere = if home.is_empty() { 0 } else { elsewhere(home, rule, &found) };
        if self.found.len() < MAX_FOUND_RULES {
            self.found.push(FoundByRule { rule: rule.clone(), objects: found.len(), elsewhere });
        }
        for object in found {
            self.objects.insert(&rule.resource, object);
        }
        if elsewhere > 0 {
            self.elsewhere.push(Hidden { at, gvk: rule.resource.gvk.clone(), objects: elsewhere });
        }
    }

    /// Bytes that a request shows of it, or a little more.
    pub(crate) fn bytes(&self) -> usize {
        self.objects.objects().map(|(_, object)| object.json().len() + object.key.len()).sum()
    }

    pub fn hidden(&self, naming: Naming) -> &[Hidden] {
        match naming {
            Naming::Uniform => &[],
            Naming::Relative => &self.elsewhere,
        }
    }

    /// Adds what a request shows of it: the groups, and the objects by uid, version and the deletion that
    /// was asked for.
    pub fn fingerprint(&self, all: &mut Fingerprinter) {
        all.add(&self.objects.groups().count().to_le_bytes());
        for (resource, objects) in self.objects.groups() {
            all.add(resource.gvk.group_key().as_bytes());
            all.add(&objects.len().to_le_bytes());
            for object in objects.values() {
                all.add(object.uid.as_str().as_bytes());
                all.add(object.version.as_str().as_bytes());
                all.add(&[u8::from(object.deleting)]);
            }
        }
    }
}

/// How many objects of a rule are not at home. A rule with a name and no namespace means the one at home, where it is
/// there: its namesakes are not meant.
fn elsewhere(home: &str, rule: &RelatedRule, found: &[Arc<Object>]) -> usize {
    let at_home = |object: &&Arc<Object>| *object.key.namespace == *home;
    let by_name = matches!(rule.finds, Finds::Names { namespace: None, .. });
    let met: BTreeSet<_> =
        found.iter().filter(|_| by_name).filter(at_home).map(|object| &object.key.name).collect();
    found.iter().filter(|object| !at_home(object) && !met.contains(&object.key.name)).count()
}

/// A webhook may be replaced without notice: it is called again after this time.
pub const WEBHOOK_REFRESH_INTERVAL: Duration = Duration::from_mins(20);

/// The answers about the parents of one controller. Times are counted from its start.
#[derive(Debug, Default)]
pub struct CustomizeCache {
    answers: BTreeMap<Key, Vec<Kept>>,
    /// Bytes that they take.
    memory: usize,
}

/// Bytes of an answer without rules.
const KEPT: usize = 128;

/// Rules of a hook's answer, and the print of the answer as it came.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Each with its place in the answer.
    pub rules: Arc<[(usize, RequestedRule)]>,
    /// Message about the parts of a module's answer that have no effect.
    pub ignored: Option<Arc<str>>,
    pub print: Fingerprint,
}

#[derive(Debug)]
struct Kept {
    question: Fingerprint,
    answer: Answer,
    memory: usize,
    /// `None`: for good.
    until: Option<Duration>,
}

impl Kept {
    fn is_fresh(&self, now: Duration) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl CustomizeCache {
    pub fn recall(&self, parent: &Key, question: Fingerprint, now: Duration) -> Option<Answer> {
        let fresh = |kept: &&Kept| kept.question == question && kept.is_fresh(now);
        self.answers.get(parent)?.iter().find(fresh).map(|kept| kept.answer.clone())
    }

    pub fn keep(&mut self, parent: &Key, question: Fingerprint, answer: Answer, until: Option<Duration>) {
        self.retain(parent, |kept| kept.question != question);
        let ignored = answer.ignored.as_ref().map_or(0, |message| message.len());
        let memory = KEPT + ignored + answer.rules.iter().map(|(_, rule)| rule.memory()).sum::<usize>();
        self.memory += memory;
        self.answers.entry(parent.clone()).or_default().push(Kept { question, answer, memory, until });
    }

    /// Bytes that all answers take.
    pub fn memory(&self) -> usize {
        self.memory
    }

    fn retain(&mut self, parent: &Key, stays: impl Fn(&Kept) -> bool) {
        let Some(all) = self.answers.get_mut(parent) else { return };
        all.retain(|kept| {
            let stays = stays(kept);
            self.memory -= if stays { 0 } else { kept.memory };
            stays
        });
        if all.is_empty() {
            self.answers.remove(parent);
        }
    }

    /// A reconcile is about to ask these questions, about the parent and the states that its children are at. Others lie in the
    /// past, and answers whose time is over are of no use.
    pub fn keep_only(&mut self, parent: &Key, questions: &BTreeSet<Fingerprint>, now: Duration) {
        self.retain(parent, |kept| questions.contains(&kept.question) && kept.is_fresh(now));
    }

    /// The parent is gone, or no longer this controller's.
    pub fn forget(&mut self, parent: &Key) {
        self.retain(parent, |_| false);
    }
}

/// Fingerprint of a question to a module: its answer follows from all of the parent, and from the module.
pub fn question_to_module(module: Fingerprint, parent: &Object) -> Fingerprint {
    let mut all = Fingerprinter::default();
    all.add(module.as_bytes());
    all.add(parent.json().as_bytes());
    all.finish()
}

/// Fingerprint of a question to a webhook. A call is dear, so what changes all the time is left out, the status: rules
/// are not to depend on it.
pub fn question_to_webhook(parent: &Object) -> Fingerprint {
    match parent.content() {
        Some(content) => Fingerprint::of(content.to_string().as_bytes()),
        None => Fingerprint::of(parent.json().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::id::Resource;
    use crate::object::selector::Selector;
    use crate::object::testing::{Build, a, cluster_resource, resource};
    use crate::related::rule::RuleScope;

    fn rule(resource: Arc<Resource>) -> RelatedRule {
        RelatedRule {
            resource,
            finds: Finds::Labels { place: RuleScope::Anywhere, labels: Selector::default() },
        }
    }

    fn related(parent: &str, pods: Vec<Build>, nodes: Vec<Build>) -> Related {
        let parent = a("e/v1", "P", parent).object();
        let (pods, nodes): (Vec<_>, Vec<_>) =
            (pods.into_iter().map(Build::object).collect(), nodes.into_iter().map(Build::object).collect());
        let rules =
            [rule(resource("v1", "Pod")), rule(cluster_resource("v1", "Node")), rule(resource("v1", "Pod"))];
        find(&parent, &rules, |rule| match &*rule.resource.gvk.kind {
            "Pod" => pods.clone(),
            _ => nodes.clone(),
        })
    }

    fn find(
        parent: &Object,
        rules: &[RelatedRule],
        select: impl Fn(&RelatedRule) -> Vec<Arc<Object>>,
    ) -> Related {
        let mut related = Related::default();
        for (at, rule) in rules.iter().enumerate() {
            related.add(&parent.key.namespace, at, rule, select(rule));
        }
        related
    }

    fn pod(key: &str) -> Build {
        a("v1", "Pod", key)
    }

    #[test]
    fn rules_of_one_kind_share_a_group_and_no_group_is_missing() {
        let related = related("n/p", vec![pod("n/a"), pod("m/a")], vec![]);
        let groups =
            related.objects.groups().map(|(resource, objects)| (resource.gvk.group_key(), objects.len()));
        assert_eq!(groups.collect::<Vec<_>>(), [("Node.v1".to_owned(), 0), ("Pod.v1".to_owned(), 2)]);
    }

    #[test]
    fn what_v1_has_no_name_for_is_told_rule_by_rule() {
        let both = |parent| related(parent, vec![pod("n/a"), pod("m/a")], vec![a("v1", "Node", "x")]);
        let both_at_home = both("n/p");
        let hidden = both_at_home.hidden(Naming::Relative);
        let hidden: Vec<_> = hidden.iter().map(|one| (one.at, &*one.gvk.kind, one.objects)).collect();
        assert_eq!(hidden, [(0, "Pod", 1), (1, "Node", 1), (2, "Pod", 1)]);
        assert!(both("n/p").hidden(Naming::Uniform).is_empty());
        assert!(
            both("p").hidden(Naming::Relative).is_empty(),
            "a parent without a namespace sees everything"
        );
        assert!(related("n/p", vec![pod("n/a")], vec![]).hidden(Naming::Relative).is_empty());
    }

    #[test]
    fn namesakes_of_what_is_at_home_are_not_missed() {
        let parent = a("e/v1", "P", "n/p").object();
        let finds = Finds::Names { namespace: None, names: ["a".into(), "b".into()].into_iter().collect() };
        let by_name = RelatedRule { resource: resource("v1", "Pod"), finds };
        let hidden = |pods: &[&str]| {
            let pods: Vec<_> = pods.iter().map(|key| pod(key).object()).collect();
            let related = find(&parent, std::slice::from_ref(&by_name), |_| pods.clone());
            related.hidden(Naming::Relative).iter().map(|rule| rule.objects).sum::<usize>()
        };
        assert_eq!(hidden(&["n/a", "m/a", "o/a"]), 0);
        assert_eq!(hidden(&["n/a", "m/a", "m/b"]), 1);
        assert_eq!(hidden(&["m/a"]), 1);
    }

    #[test]
    fn whatever_a_request_tells_of_is_in_the_fingerprint() {
        let print = |related: Related| {
            let mut all = Fingerprinter::default();
            related.fingerprint(&mut all);
            all.finish()
        };
        let usual = || print(related("n/p", vec![pod("n/a")], vec![]));
        assert_eq!(usual(), usual());
        for (what, other) in [
            ("a version", related("n/p", vec![pod("n/a").version("2")], vec![])),
            ("a deletion asked for", related("n/p", vec![pod("n/a").deleting()], vec![])),
            ("another object of that name", related("n/p", vec![pod("n/a").uid("b")], vec![])),
            ("one that came", related("n/p", vec![pod("n/a"), pod("n/b")], vec![])),
            ("one that went", related("n/p", vec![], vec![])),
            ("one of another kind", related("n/p", vec![pod("n/a")], vec![a("v1", "Node", "x")])),
            ("a group", Related::default()),
        ] {
            assert_ne!(print(other), usual(), "{what}");
        }
    }

    fn parent() -> Build {
        a("e/v1", "P", "n/p").uid("1").with("spec", json!({"x": 1}))
    }

    fn none() -> Answer {
        Answer { rules: Arc::new([]), ignored: None, print: print(0) }
    }

    fn print(number: usize) -> Fingerprint {
        Fingerprint::of(number.to_string().as_bytes())
    }

    #[test]
    fn the_same_question_is_not_asked_twice() {
        let (mut all, key, now) = (CustomizeCache::default(), Key::new("n", "p"), Duration::from_hours(7));
        assert!(all.recall(&key, print(1), now).is_none());
        all.keep(&key, print(1), none(), None);
        assert!(all.recall(&key, print(1), now + Duration::from_hours(1000)).is_some());
        assert!(all.recall(&key, print(2), now).is_none());
        assert!(all.recall(&Key::new("n", "q"), print(1), now).is_none());
        all.forget(&key);
        assert!(all.recall(&key, print(1), now).is_none());
    }

    #[test]
    fn a_webhook_is_asked_again_after_a_while() {
        let (mut all, key, now) = (CustomizeCache::default(), Key::new("n", "p"), Duration::from_hours(7));
        all.keep(&key, print(1), none(), Some(now + WEBHOOK_REFRESH_INTERVAL));
        assert!(all.recall(&key, print(1), WEBHOOK_REFRESH_INTERVAL + Duration::from_hours(6)).is_some());
        assert!(all.recall(&key, print(1), now + WEBHOOK_REFRESH_INTERVAL).is_none());
    }

    #[test]
    fn what_no_state_of_the_parent_asks_any_longer_is_forgotten() {
        let (mut all, key, now) = (CustomizeCache::default(), Key::new("n", "p"), Duration::from_hours(7));
        for version in 0..100 {
            let questions = BTreeSet::from([print(version), print(1000)]);
            all.keep_only(&key, &questions, now);
            for question in &questions {
                all.keep(&key, *question, none(), None);
            }
        }
        assert_eq!(all.answers[&key].len(), 2, "the parent as it is, and an older state");
        assert_eq!(all.memory(), 2 * KEPT);
        all.keep(&key, print(1), none(), Some(now + WEBHOOK_REFRESH_INTERVAL));
        all.keep_only(&key, &BTreeSet::from([print(1)]), now + WEBHOOK_REFRESH_INTERVAL);
        assert!(all.answers.is_empty() && all.memory() == 0, "nothing is left behind");
    }

    #[test]
    fn a_message_of_a_kept_answer_is_counted_and_freed() {
        let (mut all, key) = (CustomizeCache::default(), Key::new("n", "p"));
        all.keep(&key, print(1), Answer { ignored: Some("message".into()), ..none() }, None);
        assert_eq!(all.memory(), KEPT + "message".len());
        all.forget(&key);
        assert_eq!(all.memory(), 0);
    }

    #[test]
    fn a_webhook_is_asked_when_the_content_changed_and_a_module_when_anything_did() {
        let asks = |module: bool, changed: Build| {
            let question = |parent: Build| {
                let parent = parent.object();
                if module { question_to_module(print(1), &parent) } else { question_to_webhook(&parent) }
            };
            question(parent()) != question(changed)
        };
        for (what, changed, webhook) in [
            ("nothing", parent(), false),
            ("the spec", parent().with("spec", json!({"x": 2})), true),
            ("a label", parent().label("a", "b"), true),
            ("an annotation", parent().with("metadata.annotations", json!({"a": "b"})), true),
            ("a deletion", parent().deleting(), true),
            ("another parent of that name", parent().uid("2"), true),
            ("content outside of the spec", parent().with("data", json!({})), true),
            ("the status", parent().with("status", json!({"a": 1})).version("2"), false),
        ] {
            assert_eq!(asks(false, changed), webhook, "{what}");
        }
        assert!(!asks(true, parent()) && asks(true, parent().with("status", json!({"a": 1}))));
        assert_ne!(
            question_to_module(print(1), &parent().object()),
            question_to_module(print(2), &parent().object())
        );
    }
}
