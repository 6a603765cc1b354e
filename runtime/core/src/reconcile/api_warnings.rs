//! Warnings of the API server about writes: the text of a `Warning` header, and the texts that a parent's Events reported already.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use crate::api::reason::ConditionReason;
use crate::api::status::Finding;
use crate::hash::{Fingerprint, hash64};
use crate::object::id::{Key, ObjectId};
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

/// Parents about whose objects the API server warned when these were written last, by the present version of the hooks.
#[derive(Debug, Default)]
pub struct WarnedParents {
    hooks: Option<Fingerprint>,
    /// With a hash of the object of the latest warning. Other parents have no entry.
    parents: BTreeMap<Key, u64>,
    /// One of them, and the warning.
    shown: Option<(Key, String)>,
}

impl WarnedParents {
    /// An object was written for a parent, with or without a warning.
    pub fn wrote(
        &mut self,
        hooks: Option<Fingerprint>,
        parent: &Key,
        object: &ObjectId,
        warning: Option<&String>,
    ) {
        if self.hooks != hooks {
            *self = Self { hooks, ..Self::default() };
        }
        // Nearly always, and with each write.
        if warning.is_none() && self.parents.is_empty() {
            return;
        }
        let mut hash = hash64();
        (&object.resource.gvk.kind, &object.key).hash(&mut hash);
        let hash = hash.finish();
        if let Some(warning) = warning {
            self.parents.insert(parent.clone(), hash);
            // Another parent stays: the message would change with each write, and with it the controller's status.
            if self.shown.as_ref().is_none_or(|(shown, _)| shown == parent) {
                let text = format!("{object}: {}", shorten(warning, MAX_WARNING_BYTES));
                self.shown = Some((parent.clone(), text));
            }
        } else if self.parents.get(parent) == Some(&hash) {
            self.forget(parent);
        }
    }

    /// To be called where the parent is gone.
    pub fn forget(&mut self, parent: &Key) {
        self.parents.remove(parent);
        self.shown = self.shown.take().filter(|(shown, _)| shown != parent);
    }

    /// The number of parents, and one of them with its warning where that is known.
    pub fn count(&self, hooks: Option<Fingerprint>) -> (usize, Option<String>) {
        if self.hooks != hooks {
            return (0, None);
        }
        let shown = self.shown.as_ref().map(|(parent, warning)| format!("{parent}: {warning}"));
        let first = || self.parents.first_key_value().map(|(parent, _)| format!("{parent}: see its Events"));
        (self.parents.len(), shown.or_else(first))
    }
}

/// Finding of the condition `ApiWarnings`, about so many parents.
pub fn finding(parents: usize, one: &str) -> Finding {
    let many = counted(parents, "parent", "parents");
    let message = format!("the API server warns about what is written for {many}, one is {one}");
    Finding::new(ConditionReason::WritesWarned, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::resource;

    #[test]
    fn a_parent_is_warned_about_until_its_object_is_written_without() {
        let mut all = WarnedParents::default();
        let (one, other) = (Key::new("n", "1"), Key::new("n", "2"));
        let id = |name: &str| ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", name) };
        let (old, new) = (Some(Fingerprint::of(b"old")), Some(Fingerprint::of(b"new")));
        let text = "unknown field \"spec.x\"".to_owned();
        all.wrote(old, &one, &id("a"), None);
        assert_eq!(all.count(old), (0, None));
        all.wrote(old, &one, &id("a"), Some(&text));
        all.wrote(old, &other, &id("b"), Some(&text));
        let said = |parent: &str, why: &str| Some(format!("n/{parent}: {why}"));
        let first = said("1", "Pod n/a: unknown field \"spec.x\"");
        assert_eq!(all.count(old), (2, first.clone()), "the message stays while it is true");
        assert_eq!(all.count(new), (0, None), "another version may have mended it");
        all.wrote(old, &other, &id("another"), None);
        assert_eq!(all.count(old).0, 2, "another object says nothing about this one");
        all.wrote(old, &other, &id("b"), None);
        assert_eq!(all.count(old), (1, first));
        all.wrote(old, &other, &id("b"), Some(&text));
        all.forget(&one);
        assert_eq!(all.count(old), (1, said("2", "see its Events")));
        all.forget(&other);
        assert_eq!(all.count(old), (0, None));
        all.wrote(old, &one, &id("a"), Some(&text));
        all.wrote(new, &one, &id("c"), None);
        assert!(all.parents.is_empty() && all.shown.is_none());
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
