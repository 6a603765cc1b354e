//! Fields that differ between two versions of an object: their paths alone, since a value may be secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::difference::differences;
use crate::object::Object;
use crate::shorten_middle;

/// Paths that are kept of a change.
const MAX_PATHS: usize = 4;

/// Bytes of a path.
const MAX_PATH: usize = 80;

/// Levels that are compared: each one reads the text below it again.
const MAX_LEVELS: usize = 8;

/// Bytes of two lists that are compared item by item: they are read as trees.
const MAX_LISTS: usize = 64 << 10;

/// Fields that the API server changes with each write.
const UNTOLD: [&str; 3] = ["metadata.generation", "metadata.managedFields", "metadata.resourceVersion"];

/// Paths of changed fields: the first ones of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedFields {
    paths: Vec<String>,
    are_more: bool,
}

impl ChangedFields {
    /// The fields that differ. It takes memory for the names of the members, not for their values.
    pub fn between(before: &Object, after: &Object) -> Self {
        let mut all = Self::default();
        // Another object of the same name has nothing in common with the one before.
        if before.uid == after.uid {
            all.compare(&mut String::new(), [before.json(), after.json()], MAX_LEVELS);
        }
        all
    }

    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Adds the fields of a later change.
    pub fn add(&mut self, later: Self) {
        for path in later.paths {
            self.push(&path);
        }
        self.are_more |= later.are_more;
    }

    /// The paths, and `…` at their end where there are more.
    pub fn into_paths(self) -> Vec<String> {
        let more = self.are_more.then(|| "…".to_owned());
        self.paths.into_iter().chain(more).collect()
    }

    fn push(&mut self, path: &str) {
        if UNTOLD.contains(&path) {
            return;
        }
        let path = shorten_middle(path, MAX_PATH);
        if self.paths.contains(&path) {
            return;
        }
        if self.paths.len() < MAX_PATHS {
            self.paths.push(path);
        } else {
            self.are_more = true;
        }
    }

    fn compare(&mut self, path: &mut String, texts: [&str; 2], levels: usize) {
        if self.are_more || texts[0] == texts[1] {
            return;
        }
        match texts.map(members) {
            [Some(before), Some(after)] if levels > 0 => {
                let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
                for name in names {
                    let length = path.len();
                    if length > 0 {
                        path.push('.');
                    }
                    path.push_str(name);
                    match (before.get(name), after.get(name)) {
                        (Some(before), Some(after)) => {
                            self.compare(path, [before.get(), after.get()], levels - 1);
                        }
                        _ => self.push(path),
                    }
                    path.truncate(length);
                }
            }
            _ => self.compare_values(path, texts),
        }
    }

    /// Items of a list are named as in the places of drift.
    fn compare_values(&mut self, path: &str, texts: [&str; 2]) {
        let are_lists = texts.iter().all(|text| text.starts_with('['));
        if !are_lists || texts.map(str::len).iter().sum::<usize>() > MAX_LISTS {
            return self.push(path);
        }
        let [before, after] = texts.map(|text| serde_json::from_str::<Value>(text).unwrap_or_default());
        for difference in differences(&after, &before, None) {
            self.push(&format!("{path}{}", difference.path));
        }
    }
}

impl fmt::Display for ChangedFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.paths.join(", "))?;
        if self.are_more { f.write_str(", …") } else { Ok(()) }
    }
}

/// `None` where the value is no object.
fn members(text: &str) -> Option<BTreeMap<String, &RawValue>> {
    if text.trim_start().starts_with('{') { serde_json::from_str(text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::testing::{Build, a};

    fn before() -> Build {
        a("v1", "Secret", "n/s")
            .with("metadata.uid", json!("u"))
            .with("metadata.resourceVersion", json!("1"))
            .with("metadata.labels", json!({"app": "one", "kept": "x"}))
            .with("data", json!({"password": "aGlkZGVu"}))
            .with("spec", json!({"replicas": 1, "containers": [{"name": "web", "image": "one"}]}))
    }

    fn changed(after: Build) -> Vec<String> {
        ChangedFields::between(&before().object(), &after.object()).into_paths()
    }

    #[test]
    fn changed_fields_are_paths_without_values() {
        let after = before()
            .with("metadata.resourceVersion", json!("2"))
            .with("metadata.generation", json!(2))
            .with("metadata.labels", json!({"app": "two", "kept": "x"}))
            .with("data", json!({"password": "b3RoZXI="}))
            .with("spec", json!({"containers": [{"name": "web", "image": "two"}]}));
        let expected =
            ["data.password", "metadata.labels.app", "spec.containers[name=web].image", "spec.replicas"];
        assert_eq!(changed(after), expected);
        assert!(changed(before().with("metadata.resourceVersion", json!("2"))).is_empty());
    }

    #[test]
    fn another_object_of_the_same_name_has_no_changed_fields() {
        let after = before().with("metadata.uid", json!("v")).with("data", json!({}));
        assert!(changed(after).is_empty());
    }

    #[test]
    fn paths_are_bounded_in_number_length_and_depth() {
        let mut deep = json!(1);
        for level in 0..50 {
            deep = json!({ format!("l{level}"): deep });
        }
        let data = json!({"a".repeat(1000): 1, "b": 1, "c": 1, "d": 1, "e": 1});
        let after = before().with("data", data).with("spec", json!({"deep": deep}));
        let paths = changed(after);
        assert_eq!((paths.len(), &*paths[MAX_PATHS]), (MAX_PATHS + 1, "…"), "{paths:?}");
        assert!(paths.iter().all(|path| path.len() <= MAX_PATH), "{paths:?}");
        let nested = |value: i64| {
            let mut nested = json!(value);
            for _ in 0..50 {
                nested = json!({ "x": nested });
            }
            before().with("spec", nested).object()
        };
        let paths = ChangedFields::between(&nested(1), &nested(2)).into_paths();
        assert_eq!(paths, ["spec.x.x.x.x.x.x.x"]);
    }

    #[test]
    fn a_later_change_adds_its_fields_once() {
        let of = |paths: &[&str]| {
            let mut all = ChangedFields::default();
            for path in paths {
                all.push(path);
            }
            all
        };
        let mut all = of(&["a", "b"]);
        all.add(of(&["b", "c"]));
        assert_eq!(all.to_string(), "a, b, c");
        all.add(of(&["d", "e"]));
        assert_eq!(all.to_string(), "a, b, c, d, …");
    }
}
