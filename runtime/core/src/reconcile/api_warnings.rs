//! Warnings of the API server about writes: the text of a `Warning` header, and the texts that a parent's Events reported already.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use crate::api::reason::ConditionReason;
use crate::api::status::Finding;
use crate::children::Op;
use crate::hash::{Fingerprint, hash64};
use crate::object::id::Key;
use crate::{counted, shorten};

/// Warnings that are read of one answer.
pub const MAX_WARNINGS: usize = 16;

/// Bytes that are read of one warning.
pub const MAX_WARNING_BYTES: usize = 512;

/// Warnings of one parent that are remembered, as 8 bytes each. Beyond it the oldest is forgotten, and reported again when it
/// comes back.
pub const MAX_REPORTED: usize = 32;

/// The text of one `Warning` header: a code, an agent, and a quoted text that a date may follow. `None` where it is another
/// code than the API server's, or empty.
pub fn text(header: &str) -> Option<String> {
    let rest = header.trim_start().strip_prefix("299 ")?;
    let (_, quoted) = rest.split_once(" \"")?;
    let mut text = String::new();
    let mut characters = quoted.chars();
    while let Some(one) = characters.next() {
        let one = match one {
            '"' => break,
            '\\' => characters.next()?,
            one => one,
        };
        text.push(if one.is_control() { ' ' } else { one });
        if text.len() > MAX_WARNING_BYTES {
            break;
        }
    }
    (!text.is_empty()).then(|| shorten(&text, MAX_WARNING_BYTES))
}

/// The warnings about writes for one parent that were reported, by hash.
#[derive(Debug, Default)]
pub struct ReportedWarnings(VecDeque<u64>);

impl ReportedWarnings {
    /// Whether this warning about objects of a kind is to be reported now: once for each version of the hooks, so that who mends one
    /// learns whether it is mended.
    pub fn is_new(&mut self, hooks: Option<Fingerprint>, kind: &str, text: &str) -> bool {
        let mut hash = hash64();
        (hooks, kind, text).hash(&mut hash);
        let hash = hash.finish();
        if self.0.contains(&hash) {
            return false;
        }
        if self.0.len() == MAX_REPORTED {
            self.0.pop_front();
        }
        self.0.push_back(hash);
        true
    }
}

/// Objects of one parent whose warnings are remembered, as 8 bytes each. Beyond it the first ones stay: the parent counts until these
/// are written without a warning.
pub const MAX_WARNED: usize = 8;

/// Parents about whose objects the API server warned when these were written last, by the present version of the hooks.
#[derive(Debug, Default)]
pub struct WarnedParents {
    hooks: Option<Fingerprint>,
    /// With hashes of the objects whose latest write was warned about. Other parents have no entry.
    parents: BTreeMap<Key, BTreeSet<u64>>,
    /// One of them, with the hash of its object, and the warning.
    shown: Option<(Key, u64, String)>,
}

impl WarnedParents {
    /// An object was written for a parent, with or without a warning. `hooks`: the version by which it was written, and the
    /// present one.
    pub fn wrote(
        &mut self,
        hooks: [Option<Fingerprint>; 2],
        parent: &Key,
        op: &Op,
        warning: Option<&String>,
    ) {
        let [hooks, present] = hooks;
        // The answer came late: it says nothing about the present version.
        if hooks != present {
            return;
        }
        if self.hooks != hooks {
            *self = Self { hooks, ..Self::default() };
        }
        // Nearly always, and with each write.
        if warning.is_none() && self.parents.is_empty() {
            return;
        }
        let object = op.id();
        let hash = hash_of(&object.resource.gvk.kind, &object.key, matches!(op, Op::Status { .. }));
        let Some(warning) = warning else {
            self.mended(parent, hash);
            return;
        };
        let objects = self.parents.entry(parent.clone()).or_default();
        if objects.len() < MAX_WARNED {
            objects.insert(hash);
        }
        // Another object stays: the message would change with each write, and with it the controller's status.
        if self.shown.as_ref().is_none_or(|(shown, of, _)| shown == parent && *of == hash) {
            let text = format!("{object}: {}", shorten(warning, MAX_WARNING_BYTES));
            self.shown = Some((parent.clone(), hash, text));
        }
    }

    fn mended(&mut self, parent: &Key, object: u64) {
        let Some(objects) = self.parents.get_mut(parent) else { return };
        objects.remove(&object);
        self.after_removal(parent);
    }

    /// Forgets objects of a parent that are none of these, by kind and name: no reconcile writes them again.
    pub fn keep<'a>(&mut self, parent: &Key, objects: impl IntoIterator<Item = (&'a str, &'a Key)>) {
        // Nearly always, and with each plan.
        let Some(warned) = self.parents.get_mut(parent) else { return };
        let both = |(kind, key)| [false, true].map(|is_status| hash_of(kind, key, is_status));
        let known: BTreeSet<_> = objects.into_iter().flat_map(both).collect();
        warned.retain(|object| known.contains(object));
        self.after_removal(parent);
    }

    /// Forgets a parent without objects, and the warning about an object that is none of its parent's any more.
    fn after_removal(&mut self, parent: &Key) {
        let Some(objects) = self.parents.get(parent) else { return };
        if objects.is_empty() {
            self.forget(parent);
            return;
        }
        self.shown.take_if(|(shown, of, _)| shown == parent && !objects.contains(of));
    }

    /// To be called where the parent is gone.
    pub fn forget(&mut self, parent: &Key) {
        self.parents.remove(parent);
        self.shown.take_if(|(shown, ..)| shown == parent);
    }

    /// The number of parents, and one of them with its warning where that is known.
    pub fn count(&self, hooks: Option<Fingerprint>) -> (usize, Option<String>) {
        if self.hooks != hooks {
            return (0, None);
        }
        let shown = self.shown.as_ref().map(|(parent, _, warning)| format!("{parent}: {warning}"));
        let first = || self.parents.first_key_value().map(|(parent, _)| format!("{parent}: see its Events"));
        (self.parents.len(), shown.or_else(first))
    }
}

/// The status is written apart: the one write says nothing about the other.
fn hash_of(kind: &str, key: &Key, is_status: bool) -> u64 {
    let mut hash = hash64();
    (kind, key, is_status).hash(&mut hash);
    hash.finish()
}

/// Finding of the condition `ApiWarnings`, about so many parents.
pub fn finding(parents: usize, one: &str) -> Finding {
    let many = counted(parents, "parent", "parents");
    let message = format!("the API server warns about what is written for {many}, one is {one}");
    Finding::new(ConditionReason::WritesWarned, message)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::object::id::ObjectId;
    use crate::object::testing::resource;

    /// Writes for parents, by the present version of the hooks.
    #[derive(Default)]
    struct Written(WarnedParents);

    impl Written {
        fn wrote(&mut self, hooks: Option<Fingerprint>, parent: &Key, op: &Op, warning: Option<&str>) {
            self.0.wrote([hooks; 2], parent, op, warning.map(str::to_owned).as_ref());
        }
    }

    fn write(name: &str) -> Op {
        let id = ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", name) };
        Op::Replace { id, body: Value::Null }
    }

    fn versions() -> [Option<Fingerprint>; 2] {
        [&b"old"[..], b"new"].map(|version| Some(Fingerprint::of(version)))
    }

    const WARNING: Option<&str> = Some("unknown field \"spec.x\"");

    #[test]
    fn a_parent_is_warned_about_until_its_object_is_written_without() {
        let mut all = Written::default();
        let (one, other) = (Key::new("n", "1"), Key::new("n", "2"));
        let [old, new] = versions();
        all.wrote(old, &one, &write("a"), None);
        assert_eq!(all.0.count(old), (0, None));
        all.wrote(old, &one, &write("a"), WARNING);
        all.wrote(old, &other, &write("b"), WARNING);
        let said = |parent: &str, why: &str| Some(format!("n/{parent}: {why}"));
        let first = said("1", "Pod n/a: unknown field \"spec.x\"");
        assert_eq!(all.0.count(old), (2, first.clone()), "the message stays while it is true");
        assert_eq!(all.0.count(new), (0, None), "another version may have mended it");
        all.wrote(old, &other, &write("another"), None);
        assert_eq!(all.0.count(old).0, 2, "another object says nothing about this one");
        all.wrote(old, &other, &write("b"), None);
        assert_eq!(all.0.count(old), (1, first));
        all.wrote(old, &other, &write("b"), WARNING);
        all.0.forget(&one);
        assert_eq!(all.0.count(old), (1, said("2", "see its Events")));
        all.0.forget(&other);
        assert_eq!(all.0.count(old), (0, None));
        all.wrote(old, &one, &write("a"), WARNING);
        all.wrote(new, &one, &write("c"), None);
        assert!(all.0.parents.is_empty() && all.0.shown.is_none());
    }

    #[test]
    fn objects_of_a_parent_that_are_warned_about_in_turn_leave_the_message_as_it_is() {
        let (mut all, parent) = (Written::default(), Key::new("n", "p"));
        let status = Op::Status { id: write("a").id().clone(), body: Value::Null };
        all.wrote(None, &parent, &write("a"), Some("w"));
        let first = (1, Some("n/p: Pod n/a: w".to_owned()));
        for _ in 0..2 {
            all.wrote(None, &parent, &write("b"), Some("w"));
            assert_eq!(all.0.count(None), first);
            all.wrote(None, &parent, &status, None);
            assert_eq!(all.0.count(None), first, "the status is written apart");
            all.wrote(None, &parent, &write("b"), None);
            assert_eq!(all.0.count(None), first, "the first one is not mended");
            all.wrote(None, &parent, &write("a"), Some("w"));
            assert_eq!(all.0.count(None), first);
        }
        all.wrote(None, &parent, &write("b"), Some("w"));
        all.wrote(None, &parent, &write("a"), None);
        assert_eq!(all.0.count(None), (1, Some("n/p: see its Events".to_owned())));
        all.wrote(None, &parent, &write("b"), None);
        assert_eq!(all.0.count(None), (0, None));
    }

    #[test]
    fn so_many_objects_of_a_parent_are_remembered_as_warned_about() {
        let (mut all, parent) = (Written::default(), Key::new("n", "p"));
        let writes: Vec<_> = (0..=MAX_WARNED).map(|nth| write(&nth.to_string())).collect();
        let first = (1, Some("n/p: Pod n/0: w".to_owned()));
        for write in writes.iter().chain(&writes) {
            all.wrote(None, &parent, write, Some("w"));
            assert_eq!(all.0.count(None), first);
        }
        assert_eq!(all.0.parents[&parent].len(), MAX_WARNED);
        for (nth, write) in writes.iter().take(MAX_WARNED).enumerate() {
            assert_eq!(all.0.count(None).0, 1, "{nth}");
            all.wrote(None, &parent, write, None);
        }
        assert_eq!(all.0.count(None), (0, None), "the one above the bound is not remembered");
    }

    #[test]
    fn jobs_that_come_and_go_leave_nothing_behind() {
        let (mut all, parent) = (Written::default(), Key::new("n", "p"));
        let status = Op::Status { id: write("a").id().clone(), body: Value::Null };
        for nth in 0..2 * MAX_WARNED {
            let name = nth.to_string();
            all.wrote(None, &parent, &write(&name), Some("w"));
            assert_eq!(all.0.count(None), (1, Some(format!("n/p: Pod n/{name}: w"))), "one that is there");
            all.0.keep(&parent, [("Pod", &Key::new("n", &name))]);
            assert_eq!(all.0.parents[&parent].len(), 1);
            all.0.keep(&parent, [("Job", &Key::new("n", &name))]);
            assert_eq!(all.0.count(None), (0, None));
        }
        all.wrote(None, &parent, &write("b"), Some("w"));
        all.wrote(None, &parent, &status, Some("w"));
        all.0.keep(&parent, [("Pod", &Key::new("n", "a"))]);
        assert_eq!(
            all.0.count(None),
            (1, Some("n/p: see its Events".to_owned())),
            "the status is of an object"
        );
    }

    #[test]
    fn a_late_answer_says_nothing_about_the_present_version() {
        let (mut all, parent) = (Written::default(), Key::new("n", "p"));
        let [old, new] = versions();
        let warning = WARNING.map(str::to_owned);
        all.0.wrote([old, new], &parent, &write("a"), warning.as_ref());
        assert_eq!(all.0.count(new), (0, None));
        all.wrote(new, &parent, &write("a"), WARNING);
        all.0.wrote([old, new], &parent, &write("a"), None);
        all.0.wrote([old, new], &parent, &write("b"), warning.as_ref());
        let first = "n/p: Pod n/a: unknown field \"spec.x\"";
        assert_eq!(all.0.count(new), (1, Some(first.to_owned())), "what the present one wrote stays");
    }

    #[test]
    fn the_text_of_a_warning_is_read() {
        let read = |header: &str| text(header).unwrap_or_default();
        let unknown = r#"299 - "unknown field \"spec.restartPolicyy\"""#;
        assert_eq!(read(unknown), r#"unknown field "spec.restartPolicyy""#);
        assert_eq!(read(r#"299 webhook "a \\ b" "Wed, 21 Oct 2015 07:28:00 GMT""#), r"a \ b");
        assert_eq!(read("299 - \"a\tb\x1b[31m\""), "a b [31m");
        for other in ["", "199 - \"stale\"", "299 -", "299 - \"\"", "299", r#"299 - "\"#] {
            assert_eq!(text(other), None, "{other}");
        }
    }

    #[test]
    fn the_text_of_a_warning_is_bounded() {
        let header = |length: usize| format!("299 - \"{}\"", "w".repeat(length));
        assert_eq!(text(&header(MAX_WARNING_BYTES)).unwrap(), "w".repeat(MAX_WARNING_BYTES));
        let cut = text(&header(MAX_WARNING_BYTES + 1)).unwrap();
        assert!(cut.len() <= MAX_WARNING_BYTES && cut.ends_with('…'), "{cut}");
        assert_eq!(text(&header(1 << 20)).unwrap(), cut);
    }

    #[test]
    fn a_warning_is_told_once_for_each_kind() {
        let mut reported = ReportedWarnings::default();
        assert!(
            reported.is_new(None, "Pod", "a")
                && reported.is_new(None, "Job", "a")
                && reported.is_new(None, "Pod", "b")
        );
        assert!(!reported.is_new(None, "Pod", "a") && !reported.is_new(None, "Job", "a"));
        let mended = Some(Fingerprint::of(b"another version of the hook"));
        assert!(reported.is_new(mended, "Pod", "a") && !reported.is_new(mended, "Pod", "a"));
    }

    #[test]
    fn so_many_warnings_of_a_parent_are_remembered() {
        let mut reported = ReportedWarnings::default();
        let text = |nth: usize| nth.to_string();
        assert!((0..MAX_REPORTED).all(|nth| reported.is_new(None, "Pod", &text(nth))));
        assert!(!(0..MAX_REPORTED).any(|nth| reported.is_new(None, "Pod", &text(nth))));
        assert!(reported.is_new(None, "Pod", "one more"));
        assert_eq!(reported.0.len(), MAX_REPORTED);
        assert!(reported.is_new(None, "Pod", &text(0)), "the oldest was forgotten");
        assert!(!reported.is_new(None, "Pod", "one more"));
    }
}
