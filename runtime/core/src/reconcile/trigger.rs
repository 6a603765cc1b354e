//! Trigger of a reconcile in a person's words, told from what changed since the parent's reconcile before.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::hash::Fingerprint;
use crate::object::Object;
use crate::object::Version;
use crate::object::id::{Key, Uid};
use crate::reconcile::outcome::RetryState;

const OWN_WRITES: &str = "own writes";

/// State of a parent and its hooks when a reconcile began.
#[derive(Debug, Clone, PartialEq)]
pub struct Beginning {
    pub uid: Uid,
    pub generation: i64,
    pub version: Version,
    pub deleting: bool,
    /// The version of all hooks; `None`: one of them has no module.
    pub hooks: Option<Fingerprint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    First,
    Deletion,
    Spec,
    Module,
    Retry(u32),
    OwnWrites,
    Object,
    /// A cause that the parent itself does not show.
    Other,
}

impl Beginning {
    pub fn of(parent: &Object, hooks: Option<Fingerprint>) -> Self {
        Self {
            uid: parent.uid.clone(),
            generation: parent.generation,
            version: parent.version.clone(),
            deleting: parent.deleting,
            hooks,
        }
    }
}

impl Trigger {
    /// `before`: what the parent's reconcile before began with.
    pub fn of(before: Option<&Beginning>, now: &Beginning, retry_state: RetryState) -> Self {
        let Some(before) = before.filter(|before| before.uid == now.uid) else { return Self::First };
        if now.deleting && !before.deleting {
            return Self::Deletion;
        }
        // A deletion counts as a generation, too.
        if now.generation != before.generation {
            return Self::Spec;
        }
        if now.hooks != before.hooks {
            return Self::Module;
        }
        match retry_state {
            RetryState { failures: 1.., .. } => Self::Retry(retry_state.failures),
            RetryState { self_triggered: true, .. } => Self::OwnWrites,
            RetryState { .. } if now.version != before.version => Self::Object,
            RetryState { .. } => Self::Other,
        }
    }
}

/// The cause of a reconcile that no change asked for.
pub const RESYNC: &str = "resync";

/// Keys that are remembered at most: a fault is looked for in one of some parents.
const MAX_REMEMBERED: usize = 10_000;

/// Causes of the reconciles of a controller, where the log tells them.
#[derive(Debug, Default)]
pub struct Causes {
    /// The first change of another object that each waiting parent waits for.
    changed: BTreeMap<Key, String>,
    /// State of each parent, and of the hooks, when its last reconcile began.
    before: BTreeMap<Key, Beginning>,
}

impl Causes {
    /// Another object changed, which concerns these parents. The first change counts until their reconcile.
    pub fn object_changed<'a>(&mut self, parents: impl IntoIterator<Item = &'a Key>, what: &str) {
        for parent in parents {
            if self.changed.len() < MAX_REMEMBERED && !self.changed.contains_key(parent) {
                self.changed.insert(parent.clone(), what.to_owned());
            }
        }
    }

    /// Why a reconcile that begins now takes place.
    pub fn take(&mut self, parent: &Key, now: Beginning, retry_state: RetryState) -> String {
        let changed = self.changed.remove(parent);
        let is_full = self.before.len() >= MAX_REMEMBERED && !self.before.contains_key(parent);
        let trigger = Trigger::of(self.before.get(parent), &now, retry_state);
        if self.before.len() < MAX_REMEMBERED || self.before.contains_key(parent) {
            self.before.insert(parent.clone(), now);
        }
        match (trigger, changed) {
            // Nothing is known of the reconcile before: there are too many parents.
            (Trigger::First, changed) if is_full => changed.unwrap_or_default(),
            (Trigger::Other, Some(changed)) => changed,
            (Trigger::Other, None) => RESYNC.to_owned(),
            (trigger, _) => trigger.to_string(),
        }
    }

    /// The parent needed no reconcile: what had changed is no cause of a later one. Gives back the cause of the trigger.
    pub fn settled(&mut self, parent: &Key, retry_state: RetryState) -> Cow<'static, str> {
        match self.changed.remove(parent) {
            _ if retry_state.self_triggered => OWN_WRITES.into(),
            Some(changed) => changed.into(),
            None if self.changed.len() >= MAX_REMEMBERED => "".into(),
            None => RESYNC.into(),
        }
    }

    /// There is no such parent.
    pub fn forget(&mut self, parent: &Key) {
        self.changed.remove(parent);
        self.before.remove(parent);
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first reconcile",
            Self::Deletion => "deleted",
            Self::Spec => "spec changed",
            Self::Module => "module changed",
            Self::Retry(failures) => return write!(f, "retry {failures}"),
            Self::OwnWrites => OWN_WRITES,
            Self::Object => "labels, annotations or status changed",
            Self::Other => "child, related object or time",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_object_is_the_cause_where_the_parent_shows_none() {
        let (mut causes, key) = (Causes::default(), Key::new("n", "p"));
        let now = |generation: i64| Beginning {
            uid: Uid::new("u"),
            generation,
            version: Version::new("1"),
            deleting: false,
            hooks: None,
        };
        let calm = RetryState::default();
        assert_eq!(causes.take(&key, now(1), calm), "first reconcile");
        for what in ["Pod n/a changed", "Pod n/b changed"] {
            causes.object_changed([&key], what);
        }
        assert_eq!(causes.take(&key, now(1), calm), "Pod n/a changed");
        assert_eq!(causes.take(&key, now(1), calm), "resync");
        causes.object_changed([&key], "Pod n/a changed");
        assert_eq!(causes.take(&key, now(2), calm), "spec changed");
        assert_eq!(causes.take(&key, now(2), calm), "resync", "the change has been named");
        causes.object_changed([&key], "Pod n/a changed");
        assert_eq!(causes.settled(&key, calm), "Pod n/a changed");
        assert_eq!(causes.settled(&key, calm), "resync");
        assert_eq!(causes.settled(&key, RetryState { self_triggered: true, ..calm }), "own writes");
        assert_eq!(causes.take(&key, now(2), calm), "resync", "the change was of no concern");
        causes.forget(&key);
        assert_eq!(causes.take(&key, now(2), calm), "first reconcile");
    }

    #[test]
    fn no_more_parents_are_remembered_than_the_bound() {
        let mut causes = Causes::default();
        let keys: Vec<_> = (0..=MAX_REMEMBERED).map(|nth| Key::new("n", &nth.to_string())).collect();
        causes.object_changed(&keys, "Pod n/a changed");
        assert_eq!(causes.changed.len(), MAX_REMEMBERED);
        let now = Beginning {
            uid: Uid::new("u"),
            generation: 1,
            version: Version::new("1"),
            deleting: false,
            hooks: None,
        };
        let told: Vec<_> =
            keys.iter().map(|key| causes.take(key, now.clone(), RetryState::default())).collect();
        assert_eq!(told[MAX_REMEMBERED - 1], "first reconcile");
        assert_eq!(told[MAX_REMEMBERED], "", "whether it is the first one is not known");
    }

    #[test]
    fn the_strongest_reason_is_told() {
        let hooks = |text: &str| Some(Fingerprint::of(text.as_bytes()));
        let before = Beginning {
            uid: Uid::new("u"),
            generation: 1,
            version: Version::new("1"),
            deleting: false,
            hooks: hooks("a"),
        };
        let calm = RetryState::default();
        let retry = RetryState { failures: 2, self_triggered: true, ..calm };
        let own = RetryState { self_triggered: true, ..calm };
        let version = Version::new("2");
        let spec = Beginning { generation: 2, hooks: hooks("b"), version: version.clone(), ..before.clone() };
        for (now, retry_state, expected) in [
            (Beginning { uid: Uid::new("v"), ..spec.clone() }, retry, "first reconcile"),
            (Beginning { deleting: true, ..spec.clone() }, retry, "deleted"),
            (spec.clone(), retry, "spec changed"),
            (Beginning { generation: 1, ..spec }, retry, "module changed"),
            (Beginning { hooks: None, ..before.clone() }, calm, "module changed"),
            (before.clone(), retry, "retry 2"),
            (Beginning { version: version.clone(), ..before.clone() }, own, "own writes"),
            (Beginning { version, ..before.clone() }, calm, "labels, annotations or status changed"),
            (before.clone(), calm, "child, related object or time"),
        ] {
            assert_eq!(Trigger::of(Some(&before), &now, retry_state).to_string(), expected);
        }
        assert_eq!(Trigger::of(None, &before, retry), Trigger::First);
    }
}
