//! Differences between two values, by path.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::hash::{Fingerprint, Fingerprinter};
use crate::json::identity::Identity;
use crate::json::lists::Lists;
use crate::json::to_go_string;
use crate::shorten_middle;

/// Bytes of a path. Without a bound each of the members under a key of 500 KB would have a copy of it.
const MAX_PATH: usize = 1024;

/// Depth of nested lists down to which another order is looked for. Each level reads all that is below it, and an object may
/// have a hundred levels.
const MAX_ORDERED_DEPTH: usize = 8;

/// Differences of two values. Each has a path, which is many times as long as a small value.
const MAX_DIFFERENCES: usize = 10_000;

/// Stands for the differences beyond them. Its values are hashes of theirs.
const FURTHER_PLACES: &str = "(further places)";

/// One place, and what stands there; a missing value is a null.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// `spec.containers[name=web].image`; one beyond a bound is cut, and no two places have the same.
    pub path: String,
    pub wanted: Value,
    pub found: Value,
    pub change: Change,
}

/// Kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Value,
    /// The order of a list's items: the two values are their names, or the whole list where nothing names them.
    Order,
    /// A named item of a list is not wanted.
    ExtraItem,
}

impl Difference {
    /// Whether an object that is otherwise as wanted is not worth being made anew for it.
    pub fn is_order_or_extra_item(&self) -> bool {
        matches!(self.change, Change::Order | Change::ExtraItem)
    }

    /// Fingerprint of the difference: the same for the same two values at the same place.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut all = Fingerprinter::default();
        for text in [&self.path, &to_go_string(&self.wanted), &to_go_string(&self.found)] {
            all.add(text.as_bytes());
        }
        all.finish()
    }
}

/// # Guarantees
/// Empty exactly if the two are the same to the API server, but for the order of a set.
pub fn differences(wanted: &Value, found: &Value, lists: Option<&Lists>) -> Vec<Difference> {
    let mut differences = Differences::default();
    // Nearly always, and much cheaper.
    if !same(wanted, found) {
        compare(&mut differences, &mut String::new(), (wanted, found), lists);
    }
    let Differences { mut all, left_out, .. } = differences;
    all.extend(left_out.map(LeftOut::difference));
    all
}

/// Differences so far.
#[derive(Default)]
struct Differences {
    all: Vec<Difference>,
    /// Lists around the place that is compared.
    depth: usize,
    /// Those beyond [`MAX_DIFFERENCES`].
    left_out: Option<LeftOut>,
}

/// Differences of which no list is made, as one.
struct LeftOut {
    wanted: Fingerprinter,
    found: Fingerprinter,
    /// None of the places is wanted.
    wants_nothing: bool,
    change: Change,
}

impl LeftOut {
    /// The kind of all is Value where that of one is, else Order where that of one is.
    fn add(&mut self, path: &str, (wanted, found): (&Value, &Value), change: Change) {
        for (all, value) in [(&mut self.wanted, wanted), (&mut self.found, found)] {
            all.add(path.as_bytes());
            all.add(to_go_string(value).as_bytes());
        }
        self.wants_nothing &= wanted.is_null();
        if change != Change::ExtraItem && self.change != Change::Value {
            self.change = change;
        }
    }

    fn difference(self) -> Difference {
        let wanted = self.wanted.finish().to_string();
        Difference {
            path: FURTHER_PLACES.to_owned(),
            wanted: if self.wants_nothing { Value::Null } else { wanted.into() },
            found: self.found.finish().to_string().into(),
            change: self.change,
        }
    }
}

fn compare(
    differences: &mut Differences,
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
                at(path, &format!("{dot}{name}"), |path| compare(differences, path, pair, below));
            }
        }
        (Value::Array(wanted), Value::Array(found)) => {
            let kind = lists.and_then(|lists| lists.kind.as_ref());
            let below = lists.and_then(Lists::item);
            differences.depth += 1;
            match Identity::of([wanted, found], kind) {
                Some(by) => compare_named(differences, path, by, (wanted, found), below),
                None => compare_items(differences, path, (wanted, found), below),
            }
            differences.depth -= 1;
        }
        _ if same(wanted, found) => {}
        _ => push(differences, path, (wanted.clone(), found.clone()), Change::Value),
    }
}

fn push(differences: &mut Differences, path: &str, (wanted, found): (Value, Value), change: Change) {
    if differences.all.len() >= MAX_DIFFERENCES {
        let nothing = || LeftOut {
            wanted: Fingerprinter::default(),
            found: Fingerprinter::default(),
            wants_nothing: true,
            change: Change::ExtraItem,
        };
        differences.left_out.get_or_insert_with(nothing).add(path, (&wanted, &found), change);
        return;
    }
    differences.all.push(Difference { path: path.to_owned(), wanted, found, change });
}

fn compare_named(
    differences: &mut Differences,
    path: &mut String,
    by: Identity<'_>,
    (wanted, found): (&[Value], &[Value]),
    below: Option<&Lists>,
) {
    let (of_wanted, of_found) = (by.by_name(wanted), by.by_name(found));
    let names: BTreeSet<_> = of_wanted.keys().chain(of_found.keys()).collect();
    for name in names {
        at(path, &format!("[{}]", by.shown(name)), |path| match (of_wanted.get(name), of_found.get(name)) {
            (None, Some(found)) => {
                push(differences, path, (Value::Null, (*found).clone()), Change::ExtraItem);
            }
            (wanted, found) => {
                compare(differences, path, (or_null(wanted), or_null(found)), below);
            }
        });
    }
    if let Some(orders) = by.orders(wanted, found) {
        let [wanted, found] = orders.map(|names| names.into_iter().map(Cow::into_owned).collect());
        push(differences, path, (wanted, found), Change::Order);
    }
}

fn or_null<'a>(item: Option<&&'a Value>) -> &'a Value {
    item.copied().unwrap_or(&Value::Null)
}

/// Items without names are compared by their places.
fn compare_items(
    differences: &mut Differences,
    path: &mut String,
    (wanted, found): (&[Value], &[Value]),
    below: Option<&Lists>,
) {
    let may_be_reordered = differences.depth <= MAX_ORDERED_DEPTH;
    if wanted.len() == found.len() && !(may_be_reordered && is_reordered(wanted, found)) {
        for (i, pair) in wanted.iter().zip(found).enumerate() {
            at(path, &format!("[{i}]"), |path| compare(differences, path, pair, below));
        }
    } else if !all_same(wanted, found) {
        let change = if wanted.len() == found.len() { Change::Order } else { Change::Value };
        push(differences, path, (wanted.to_vec().into(), found.to_vec().into()), change);
    }
}

/// Whether two lists have the same items in another order.
fn is_reordered(one: &[Value], other: &[Value]) -> bool {
    let sorted = |items: &[Value]| {
        let mut all: Vec<_> = items.iter().map(|item| to_go_string(&plain(item))).collect();
        all.sort_unstable();
        all
    };
    one.len() > 1 && one.len() == other.len() && !all_same(one, other) && sorted(one) == sorted(other)
}

/// The value without null members, which are no fields: Go's spelling is one for all those that are the [`same`].
pub(crate) fn plain(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let named = members.iter().filter(|(_, value)| !value.is_null());
            named.map(|(name, value)| (name.clone(), plain(value))).collect()
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn member<'a>(of: &'a Map<String, Value>, name: &str) -> &'a Value {
    of.get(name).unwrap_or(&Value::Null)
}

/// One path for all members, cut as it grows.
fn at(path: &mut String, step: &str, look: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push_str(step);
    if path.len() <= MAX_PATH {
        look(path);
        path.truncate(length);
    } else {
        look(&mut cut(path));
        path.truncate(length);
    }
}

/// A path within its bound. Its hash stands for what is cut, since paths tell places apart.
fn cut(path: &str) -> String {
    let hash = format!("#{}", Fingerprint::of(path.as_bytes()));
    shorten_middle(path, MAX_PATH - hash.len()) + &hash
}

/// Whether two values mean the same to the API server: `1.0` is `1`, an explicit null is no field.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.as_f64() == b.as_f64() && a.is_f64() != b.is_f64()
        }
        (Value::Array(a), Value::Array(b)) => all_same(a, b),
        (Value::Object(a), Value::Object(b)) => {
            // Each pair is compared once: the second loop only finds members that the first could not see.
            a.iter().all(|(key, a)| b.get(key).map_or(a.is_null(), |b| same(a, b)))
                && b.iter().all(|(key, b)| b.is_null() || a.contains_key(key))
        }
        _ => a == b,
    }
}

fn all_same(a: &[Value], b: &[Value]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::json::lists::ListKind;
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
        let expected = Difference {
            path: "l".to_owned(),
            wanted: json!([1]),
            found: json!([1, 2]),
            change: Change::Value,
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn another_order_is_one_difference_of_the_list() {
        let of = |wanted: &Value, found: &Value| {
            let all = differences(wanted, found, None).into_iter();
            all.map(|it| (it.path, it.wanted, it.found, it.change)).collect::<Vec<_>>()
        };
        let item = |name: &str| json!({"name": name, "v": name});
        let (ab, ba) = (json!({"l": [item("a"), item("b")]}), json!({"l": [item("b"), item("a")]}));
        assert_eq!(of(&ab, &ba), [("l".to_owned(), json!(["a", "b"]), json!(["b", "a"]), Change::Order)]);
        let (ab, ba) = (json!({"l": [["a"], ["b"]]}), json!({"l": [["b"], ["a"]]}));
        let whole = [("l".to_owned(), ab["l"].clone(), ba["l"].clone(), Change::Order)];
        assert_eq!(of(&ab, &ba), whole);
        let set = Lists {
            members: [("l".to_owned(), Lists { kind: Some(ListKind::Set), ..Lists::default() }.into())]
                .into(),
            ..Lists::default()
        };
        assert_eq!(differences(&json!({"l": ["a", "b"]}), &json!({"l": ["b", "a"]}), Some(&set)), []);
    }

    #[test]
    fn another_order_of_what_is_the_same_is_no_other_value() {
        let one_order = |wanted: Value, found: Value| {
            let all = differences(&json!({ "l": wanted }), &json!({ "l": found }), None);
            assert!(all.len() == 1 && all.iter().all(Difference::is_order_or_extra_item), "{all:?}");
        };
        one_order(json!([{"name": false}, {}]), json!([{"a": null}, {"name": false}]));
        one_order(json!([{"x": [{"a": null}]}, 1]), json!([1.0, {"x": [{}]}]));
        one_order(json!([1e300, 2]), json!([2.0, 1e300]));
    }

    #[test]
    fn items_of_others_in_between_are_no_other_order() {
        let list = |names: &str| json!(names.chars().map(|name| json!({"name": name})).collect::<Vec<_>>());
        let found = differences(&list("ab"), &list("XaYb"), None);
        assert!(found.iter().all(|it| it.change == Change::ExtraItem) && found.len() == 2, "{found:?}");
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

    #[test]
    fn a_path_is_cut_beyond_its_bound_and_tells_places_apart() {
        let of = |key: &str| paths(&json!({ key: {"a": 1, "b": 1} }), &json!({ key: {"a": 2, "b": 2} }));
        let longest = "k".repeat(MAX_PATH - 2);
        assert_eq!(of(&longest), [format!("{longest}.a"), format!("{longest}.b")]);
        let [a, b] = of(&format!("{longest}k")).try_into().expect("two places");
        assert!(a.len() <= MAX_PATH && a.starts_with("kkk") && a.contains(".a#"), "{a}");
        assert!(b.contains(".b#") && a != b, "{b}");
        let with = |letter: char| of(&format!("{longest}{letter}{longest}"));
        assert_ne!(with('x'), with('y'));
    }

    #[test]
    fn members_under_a_long_key_do_not_copy_it() {
        let members = |value: u32| json!({ "k".repeat(500_000): vec![value; 10_000] });
        let all = paths(&members(1), &members(2));
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 10_000);
        assert!(all.iter().all(|path| path.len() <= MAX_PATH));
    }

    #[test]
    fn deep_places_have_paths_within_the_bound() {
        let deep = |value: u32| (0..400).fold(json!([value, value]), |inner, _| json!({ "member": inner }));
        let [first, second] = paths(&deep(1), &deep(2)).try_into().expect("two places");
        assert!(first.len() <= MAX_PATH && first != second, "{first}\n{second}");
    }

    #[test]
    fn there_are_differences_up_to_a_bound_and_one_for_all_others() {
        let many =
            |items: usize, value: u32| json!({ "l": vec![value; items], "z": [{"name": "a", "v": value}] });
        let of = |items, value| differences(&many(items, 1), &many(items, value), None);
        assert_eq!(of(MAX_DIFFERENCES - 1, 2).len(), MAX_DIFFERENCES);
        let all = of(MAX_DIFFERENCES, 2);
        assert_eq!((all.len(), all[MAX_DIFFERENCES].path.as_str()), (MAX_DIFFERENCES + 1, FURTHER_PLACES));
        assert!(!all[MAX_DIFFERENCES].is_order_or_extra_item());
        assert_ne!(all.last().unwrap().fingerprint(), of(MAX_DIFFERENCES, 3).last().unwrap().fingerprint());
    }

    #[test]
    fn what_is_beyond_the_bound_is_of_its_strongest_kind_and_of_no_other_place() {
        let item = |name: usize| json!({"name": format!("{name:05}")});
        let extra = |more: usize, status: u32| {
            let found: Vec<_> = (0..=MAX_DIFFERENCES + more).map(item).collect();
            let (wanted, found) = (json!({"l": [item(0)]}), json!({"l": found, "a": status}));
            differences(&wanted, &found, None)
        };
        let all = extra(5, 1);
        let last = all.last().unwrap();
        assert_eq!(
            (last.path.as_str(), &last.wanted, last.change),
            (FURTHER_PLACES, &Value::Null, Change::ExtraItem)
        );
        assert_eq!(last.fingerprint(), extra(5, 2).last().unwrap().fingerprint(), "another place changed");
        assert_ne!(last.fingerprint(), extra(6, 1).last().unwrap().fingerprint());
    }

    /// Each level would read all below it once more.
    #[test]
    fn another_order_deep_in_lists_is_compared_by_place() {
        let deep = |levels: usize, inner: Value| (0..levels).fold(inner, |inner, _| json!([0, inner]));
        let changes = |levels: usize| {
            let (one, other) = (deep(levels, json!([1, 2])), deep(levels, json!([2, 1])));
            differences(&one, &other, None).into_iter().map(|it| it.change).collect::<Vec<_>>()
        };
        assert_eq!(changes(MAX_ORDERED_DEPTH - 1), [Change::Order]);
        assert_eq!(changes(MAX_ORDERED_DEPTH), [Change::Value; 2]);
        assert_eq!(changes(120), [Change::Value; 2]);
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
