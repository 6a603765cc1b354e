//! Differences between two values, by path.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::hash::{Fingerprint, Fingerprinter};
use crate::json::lists::{Identity, Lists};
use crate::json::to_go_string;

/// One place, and what stands there; a missing value is a null.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// `spec.containers[name=web].image`
    pub path: String,
    pub wanted: Value,
    pub found: Value,
}

impl Difference {
    /// The same for the same two values at the same place.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut all = Fingerprinter::default();
        for text in [&self.path, &to_go_string(&self.wanted), &to_go_string(&self.found)] {
            all.add(text.as_bytes());
        }
        all.finish()
    }
}

/// # Guarantees
/// Empty exactly if the two are the same to the API server, but for the order of items that something identifies.
pub fn differences(wanted: &Value, found: &Value, lists: Option<&Lists>) -> Vec<Difference> {
    let mut all = Vec::new();
    // Nearly always, and much cheaper.
    if !same(wanted, found) {
        compare(&mut all, &mut String::new(), (wanted, found), lists);
    }
    all
}

fn compare(
    all: &mut Vec<Difference>,
    path: &mut String,
    (wanted, found): (&Value, &Value),
    lists: Option<&Lists>,
) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            let names: BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
            for name in names {
                let dot = if path.is_empty() { "" } else { "." };
                let below = lists.and_then(|lists| lists.member(name));
                let pair = (member(wanted, name), member(found, name));
                at(path, &format!("{dot}{name}"), |path| compare(all, path, pair, below));
            }
        }
        (Value::Array(wanted), Value::Array(found)) => {
            let kind = lists.and_then(|lists| lists.kind.as_ref());
            let below = lists.and_then(Lists::item);
            if let Some(by) = Identity::of([wanted, found], kind) {
                let wanted: BTreeMap<_, _> = by.named(wanted).collect();
                let found: BTreeMap<_, _> = by.named(found).collect();
                let names: BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
                for name in names {
                    let item = |of: &BTreeMap<_, _>| of.get(name).copied().unwrap_or(&Value::Null);
                    let pair = (item(&wanted), item(&found));
                    at(path, &format!("[{}]", by.shown(name)), |path| compare(all, path, pair, below));
                }
            } else if wanted.len() == found.len() {
                for (i, pair) in wanted.iter().zip(found).enumerate() {
                    at(path, &format!("[{i}]"), |path| compare(all, path, pair, below));
                }
            } else {
                all.push(Difference {
                    path: path.clone(),
                    wanted: Value::Array(wanted.clone()),
                    found: Value::Array(found.clone()),
                });
            }
        }
        _ if same(wanted, found) => {}
        _ => all.push(Difference { path: path.clone(), wanted: wanted.clone(), found: found.clone() }),
    }
}

fn member<'a>(of: &'a Map<String, Value>, name: &str) -> &'a Value {
    of.get(name).unwrap_or(&Value::Null)
}

/// One path for all members: under a long name a path of its own for each would be copied again and again.
fn at(path: &mut String, step: &str, look: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push_str(step);
    look(path);
    path.truncate(length);
}

/// Whether two values mean the same to the API server: `1.0` is `1`, an explicit null is no field.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.as_f64() == b.as_f64() && a.is_f64() != b.is_f64()
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            // Each pair is compared once: the second loop only finds members that the first could not see.
            a.iter().all(|(key, a)| b.get(key).map_or(a.is_null(), |b| same(a, b)))
                && b.iter().all(|(key, b)| b.is_null() || a.contains_key(key))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::object::testing::any_json;

    fn paths(wanted: &Value, found: &Value) -> Vec<String> {
        differences(wanted, found, None).into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn a_difference_is_named_by_its_place() {
        let wanted = json!({"spec": {"containers": [{"name": "web", "image": "a", "cpu": 1}], "args": ["x", "y"], "off": null}});
        let found = json!({"spec": {"containers": [{"name": "log"}, {"name": "web", "image": "b", "cpu": 1.0}], "args": ["x", "z"]}});
        assert_eq!(
            paths(&wanted, &found),
            ["spec.args[1]", "spec.containers[name=log]", "spec.containers[name=web].image"]
        );
    }

    #[test]
    fn lists_of_another_length_differ_as_a_whole() {
        let found = differences(&json!({"l": [1]}), &json!({"l": [1, 2]}), None);
        let expected = Difference { path: "l".to_owned(), wanted: json!([1]), found: json!([1, 2]) };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn numbers_and_texts_are_not_confused() {
        assert_eq!(paths(&json!({"port": 80}), &json!({"port": "80"})), ["port"]);
        assert_eq!(paths(&json!({"port": 80}), &json!({"port": 80.0})), Vec::<String>::new());
    }

    #[test]
    fn values_apart_have_other_fingerprints() {
        let print = |wanted: Value, found: Value| differences(&wanted, &found, None)[0].fingerprint();
        let usual = print(json!({"a": 1}), json!({"a": 2}));
        assert_eq!(usual, print(json!({"a": 1}), json!({"a": 2})));
        for (wanted, found) in [
            (json!({"b": 1}), json!({"b": 2})),
            (json!({"a": 1}), json!({"a": 3})),
            (json!({"a": "1"}), json!({"a": 2})),
        ] {
            assert_ne!(usual, print(wanted, found));
        }
    }

    proptest! {
        #[test]
        fn what_is_the_same_has_no_differences(a in any_json(), b in any_json()) {
            prop_assert!(differences(&a, &a, None).is_empty());
            if same(&a, &b) {
                prop_assert!(differences(&a, &b, None).is_empty());
            }
        }
    }

    #[test]
    fn nulls_in_objects_and_the_spelling_of_numbers_do_not_count() {
        assert!(same(&json!({"a": 1.0, "b": null}), &json!({"a": 1})));
        assert!(same(&json!([{"x": null}]), &json!([{}])));
    }

    #[test]
    fn everything_else_counts() {
        for (a, b) in [
            (json!({"a": 1}), json!({"a": "1"})),
            (json!([null]), json!([])),
            (json!([1, 2]), json!([2, 1])),
            (json!({"a": ""}), json!({})),
            (json!({"a": {}}), json!({})),
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992_i64)),
        ] {
            assert!(!same(&a, &b), "{a} {b}");
        }
    }

    #[test]
    fn deep_values_are_compared_in_the_time_of_their_size() {
        let deep = (0..1000).fold(json!(1), |inner, _| json!({"a": inner, "b": 1.0}));
        let other = (0..1000).fold(json!(1.0), |inner, _| json!({"a": inner, "b": 1, "c": null}));
        assert!(same(&deep, &other));
    }
}
