//! What customize hooks asked for: as long as the question is the same, so is the answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::rule::Asked;
use crate::fingerprint::{Fingerprint, Fingerprinter};
use crate::object::Object;
use crate::object::id::Key;

/// Per parent: itself and as it was at revisions that still have children.
const MOST: usize = 16;

/// A webhook may be replaced by another one, and nobody tells: it is asked again after this time.
pub const WEBHOOK: Duration = Duration::from_mins(20);

/// The answers about the parents of one controller. Times are counted from its start.
#[derive(Debug, Default)]
pub struct Remembered(BTreeMap<Key, Vec<Kept>>);

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

impl Remembered {
    pub fn recall(&self, parent: &Key, question: Fingerprint, now: Duration) -> Option<Answer> {
        let fresh = |kept: &&Kept| kept.question == question && kept.until.is_none_or(|until| now < until);
        self.0.get(parent)?.iter().find(fresh).map(|kept| kept.answer.clone())
    }

    /// Of too many about one parent the oldest is forgotten.
    pub fn keep(&mut self, parent: &Key, question: Fingerprint, answer: Answer, until: Option<Duration>) {
        let all = self.0.entry(parent.clone()).or_default();
        all.retain(|kept| kept.question != question);
        if all.len() == MOST {
            all.remove(0);
        }
        all.push(Kept { question, answer, until });
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
    let Ok(mut content) = parent.value() else {
        return Fingerprint::of(parent.json().as_bytes());
    };
    if let Some(fields) = content.as_object_mut() {
        fields.remove("status");
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
        }
    }
    Fingerprint::of(content.to_string().as_bytes())
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
        let (mut all, key, now) = (Remembered::default(), Key::new("n", "p"), Duration::from_hours(7));
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
        let (mut all, key, now) = (Remembered::default(), Key::new("n", "p"), Duration::from_hours(7));
        all.keep(&key, print(1), none(), Some(now + WEBHOOK));
        assert!(all.recall(&key, print(1), WEBHOOK + Duration::from_hours(6)).is_some());
        assert!(all.recall(&key, print(1), now + WEBHOOK).is_none());
    }

    #[test]
    fn the_oldest_answers_about_a_parent_are_forgotten() {
        let (mut all, key, now) = (Remembered::default(), Key::new("n", "p"), Duration::from_hours(7));
        (0..MOST + 2).for_each(|number| all.keep(&key, print(number), none(), None));
        all.keep(&key, print(2), none(), None);
        let known = |number| all.recall(&key, print(number), now).is_some();
        assert_eq!((0..MOST + 2).filter(|number| known(*number)).count(), MOST);
        assert!(!known(0) && !known(1) && known(2));
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
