//! Cache of customize answers: the same request is not sent twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::hash::{Fingerprint, Fingerprinter};
use crate::object::Object;
use crate::object::id::Key;
use crate::related::rule::Asked;

/// A webhook may be replaced without notice: it is called again after this time.
pub const WEBHOOK: Duration = Duration::from_mins(20);

/// The answers about the parents of one controller. Times are counted from its start.
#[derive(Debug, Default)]
pub struct CustomizeCache(BTreeMap<Key, Vec<Kept>>);

/// What a hook asked for, and its answer as it came.
#[derive(Debug, Clone)]
pub struct Answer {
    pub rules: Arc<[Asked]>,
    pub print: Fingerprint,
}

#[derive(Debug)]
struct Kept {
    question: Fingerprint,
    answer: Answer,
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
        self.0.get(parent)?.iter().find(fresh).map(|kept| kept.answer.clone())
    }

    pub fn keep(&mut self, parent: &Key, question: Fingerprint, answer: Answer, until: Option<Duration>) {
        let all = self.0.entry(parent.clone()).or_default();
        all.retain(|kept| kept.question != question);
        all.push(Kept { question, answer, until });
    }

    /// A pass is about to ask these questions, about the parent and the states that its children are at. Others lie in the
    /// past, and answers whose time is over are of no use.
    pub fn keep_only(&mut self, parent: &Key, questions: &BTreeSet<Fingerprint>, now: Duration) {
        let Some(all) = self.0.get_mut(parent) else { return };
        all.retain(|kept| questions.contains(&kept.question) && kept.is_fresh(now));
        if all.is_empty() {
            self.0.remove(parent);
        }
    }

    /// The parent is gone, or no longer this controller's.
    pub fn forget(&mut self, parent: &Key) {
        self.0.remove(parent);
    }
}

/// What a module is asked: its answer follows from all of the parent, and from the module.
pub fn to_module(module: Fingerprint, parent: &Object) -> Fingerprint {
    let mut all = Fingerprinter::default();
    all.add(module.as_bytes());
    all.add(parent.json().as_bytes());
    all.finish()
}

/// What a webhook is asked. A call is dear, so what changes all the time is left out, the status: rules are not to
/// depend on it.
pub fn to_webhook(parent: &Object) -> Fingerprint {
    match parent.content() {
        Some(content) => Fingerprint::of(content.to_string().as_bytes()),
        None => Fingerprint::of(parent.json().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::testing::{Build, a};

    fn parent() -> Build {
        a("e/v1", "P", "n/p").uid("1").with("spec", json!({"x": 1}))
    }

    fn none() -> Answer {
        Answer { rules: Arc::new([]), print: print(0) }
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
        all.keep(&key, print(1), none(), Some(now + WEBHOOK));
        assert!(all.recall(&key, print(1), WEBHOOK + Duration::from_hours(6)).is_some());
        assert!(all.recall(&key, print(1), now + WEBHOOK).is_none());
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
        assert_eq!(all.0[&key].len(), 2, "the parent as it is, and an older state");
        all.keep(&key, print(1), none(), Some(now + WEBHOOK));
        all.keep_only(&key, &BTreeSet::from([print(1)]), now + WEBHOOK);
        assert!(all.0.is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_webhook_is_asked_when_the_content_changed_and_a_module_when_anything_did() {
        let asks = |module: bool, changed: Build| {
            let question = |parent: Build| {
                let parent = parent.object();
                if module { to_module(print(1), &parent) } else { to_webhook(&parent) }
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
        assert_ne!(to_module(print(1), &parent().object()), to_module(print(2), &parent().object()));
    }
}
