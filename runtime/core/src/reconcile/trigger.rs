//! Trigger of a reconcile in a person's words, told from what changed since the parent's reconcile before.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::hash::{FastMap, Fingerprint};
use crate::object::Object;
use crate::object::Version;
use crate::object::id::{Key, ObjectId, Uid};
use crate::reconcile::changed_fields::ChangedFields;
use crate::reconcile::outcome::RetryState;

const RETRY: &str = "retry ";
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

/// Why a reconcile takes place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReconcileCause {
    /// Empty where it is not known.
    pub text: Cow<'static, str>,
    /// Fields of the object that `text` names, or of the parent.
    pub fields: ChangedFields,
    /// The related object that `text` names: not everybody who may get the parent may know of it.
    pub related: Option<Arc<ObjectId>>,
}

/// Causes of the reconciles of a controller, where the log tells them.
#[derive(Debug, Default)]
pub struct Causes {
    /// The first change of another object that each waiting parent waits for.
    changed: FastMap<Key, ReconcileCause>,
    /// Fields of each waiting parent that changed since its last reconcile.
    own_fields: FastMap<Key, ChangedFields>,
    /// State of each parent, and of the hooks, when its last reconcile began.
    before: FastMap<Key, Beginning>,
}

impl Causes {
    /// Whether a change of another object is remembered for one of these parents.
    pub fn has_room<'a>(&self, parents: impl IntoIterator<Item = &'a Key>) -> bool {
        self.changed.len() < MAX_REMEMBERED
            && parents.into_iter().any(|parent| !self.changed.contains(parent))
    }

    /// Another object changed, which concerns these parents. The first change counts until their reconcile.
    pub fn object_changed<'a>(&mut self, parents: impl IntoIterator<Item = &'a Key>, cause: &ReconcileCause) {
        for parent in parents {
            if self.changed.len() < MAX_REMEMBERED && !self.changed.contains(parent) {
                self.changed.insert(parent.clone(), cause.clone());
            }
        }
    }

    /// Another client changed fields of a parent, which has this version now.
    pub fn parent_changed(&mut self, parent: &Key, now: &Version, fields: ChangedFields) {
        // The watch event may come later than a reconcile that has read the change.
        let is_read = self.before.get(parent).is_some_and(|before| before.version == *now);
        let has_room = self.own_fields.len() < MAX_REMEMBERED || self.own_fields.contains(parent);
        if !is_read && has_room && !fields.is_empty() {
            self.own_fields.or_default(parent).add(fields);
        }
    }

    /// Why a reconcile that begins now takes place.
    pub fn take(&mut self, parent: &Key, now: Beginning, retry_state: RetryState) -> ReconcileCause {
        let changed = self.changed.remove(parent);
        let fields = self.own_fields.remove(parent).unwrap_or_default();
        let is_full = self.before.len() >= MAX_REMEMBERED && !self.before.contains(parent);
        let trigger = Trigger::of(self.before.get(parent), &now, retry_state);
        if self.before.len() < MAX_REMEMBERED || self.before.contains(parent) {
            self.before.insert(parent.clone(), now);
        }
        match (trigger, changed) {
            // Nothing is known of the reconcile before: there are too many parents.
            (Trigger::First, changed) if is_full => changed.unwrap_or_default(),
            (Trigger::Other, Some(changed)) => changed,
            (Trigger::Other, None) => RESYNC.into(),
            (Trigger::Spec | Trigger::Object, _) => ReconcileCause { fields, ..trigger.to_string().into() },
            (trigger, _) => trigger.to_string().into(),
        }
    }

    /// The parent needed no reconcile: what had changed is no cause of a later one. Gives back the cause of the trigger.
    pub fn settled(&mut self, parent: &Key, retry_state: RetryState) -> ReconcileCause {
        self.own_fields.remove(parent);
        match self.changed.remove(parent) {
            _ if retry_state.self_triggered => OWN_WRITES.into(),
            Some(changed) => changed,
            None if self.changed.len() >= MAX_REMEMBERED => "".into(),
            None => RESYNC.into(),
        }
    }

    /// There is no such parent.
    pub fn forget(&mut self, parent: &Key) {
        self.changed.remove(parent);
        self.own_fields.remove(parent);
        self.before.remove(parent);
    }
}

impl<T: Into<Cow<'static, str>>> From<T> for ReconcileCause {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl fmt::Display for ReconcileCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, fields, .. } = self;
        if fields.is_empty() { f.write_str(text) } else { write!(f, "{text} ({fields})") }
    }
}

/// Whether the text of a cause is that of a retry, whatever its number.
pub fn is_retry(cause: &str) -> bool {
    cause.strip_prefix(RETRY).is_some_and(|number| number.parse::<u32>().is_ok())
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first reconcile",
            Self::Deletion => "deleted",
            Self::Spec => "spec changed",
            Self::Module => "module changed",
            Self::Retry(failures) => return write!(f, "{RETRY}{failures}"),
            Self::OwnWrites => OWN_WRITES,
            Self::Object => "labels, annotations or status changed",
            Self::Other => "child, related object or time",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::testing::a;

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
        assert_eq!(causes.take(&key, now(1), calm).to_string(), "first reconcile");
        for what in ["Pod n/a changed", "Pod n/b changed"] {
            causes.object_changed([&key], &what.into());
        }
        assert_eq!(causes.take(&key, now(1), calm).to_string(), "Pod n/a changed");
        assert_eq!(causes.take(&key, now(1), calm).to_string(), "resync");
        causes.object_changed([&key], &"Pod n/a changed".into());
        assert_eq!(causes.take(&key, now(2), calm).to_string(), "spec changed");
        assert_eq!(causes.take(&key, now(2), calm).to_string(), "resync", "the change has been named");
        causes.object_changed([&key], &"Pod n/a changed".into());
        assert_eq!(causes.settled(&key, calm), "Pod n/a changed".into());
        assert_eq!(causes.settled(&key, calm), "resync".into());
        assert_eq!(causes.settled(&key, RetryState { self_triggered: true, ..calm }), "own writes".into());
        assert_eq!(causes.take(&key, now(2), calm).to_string(), "resync", "the change was of no concern");
        causes.forget(&key);
        assert_eq!(causes.take(&key, now(2), calm).to_string(), "first reconcile");
    }

    #[test]
    fn a_cause_names_the_fields_that_changed() {
        let (mut causes, key) = (Causes::default(), Key::new("n", "p"));
        let parent = |version: &str, replicas: i64, app: &str| {
            a("e/v1", "P", "n/p")
                .version(version)
                .with("metadata.generation", json!(replicas))
                .label("app", app)
                .with("spec", json!({ "replicas": replicas }))
                .object()
        };
        let all = [parent("1", 1, "a"), parent("2", 1, "b"), parent("3", 2, "b"), parent("4", 2, "c")];
        let calm = RetryState::default();
        let take = |causes: &mut Causes, parent: &Object| {
            causes.take(&key, Beginning::of(parent, None), calm).to_string()
        };
        let changes = |causes: &mut Causes, nth: usize| {
            let fields = ChangedFields::between(&all[nth - 1], &all[nth]);
            causes.parent_changed(&Key::new("n", "p"), &all[nth].version, fields);
        };
        assert_eq!(take(&mut causes, &all[0]), "first reconcile");
        changes(&mut causes, 1);
        let labels = "labels, annotations or status changed (metadata.labels.app)";
        assert_eq!(take(&mut causes, &all[1]), labels);
        changes(&mut causes, 1);
        changes(&mut causes, 2);
        assert_eq!(
            take(&mut causes, &all[2]),
            "spec changed (spec.replicas)",
            "the other change was read before"
        );
        let fields = ChangedFields::between(&parent("1", 1, "a"), &parent("1", 2, "a"));
        causes.object_changed([&key], &ReconcileCause { fields, .."Pod n/a changed".into() });
        assert_eq!(take(&mut causes, &all[2]), "Pod n/a changed (spec.replicas)");
        changes(&mut causes, 3);
        causes.settled(&Key::new("n", "p"), calm);
        assert_eq!(take(&mut causes, &all[3]), "labels, annotations or status changed");
    }

    #[test]
    fn no_more_parents_are_remembered_than_the_bound() {
        let mut causes = Causes::default();
        let keys: Vec<_> = (0..=MAX_REMEMBERED).map(|nth| Key::new("n", &nth.to_string())).collect();
        assert!(causes.has_room(&keys));
        causes.object_changed(&keys, &"Pod n/a changed".into());
        assert!(!causes.has_room(&keys), "no change is compared in vain");
        assert_eq!(causes.changed.len(), MAX_REMEMBERED);
        let now = Beginning {
            uid: Uid::new("u"),
            generation: 1,
            version: Version::new("1"),
            deleting: false,
            hooks: None,
        };
        let told: Vec<_> =
            keys.iter().map(|key| causes.take(key, now.clone(), RetryState::default()).text).collect();
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
