//! The three-way merge of dynamic apply: what the cluster has, what we applied last, what is wanted now.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Fields that name the items of a list, in the order they are tried. A convention: most lists of the
/// Kubernetes API that are maps at heart use one of them.
const MERGE_KEYS: [&str; 7] = ["containerPort", "port", "mountPath", "name", "uid", "ip", "path"];

/// What `observed` becomes when `desired` is applied over it, given that `last` was applied before.
///
/// # Guarantees
/// Fields that neither `last` nor `desired` mention stay. Fields of `last` that `desired` no longer mentions go.
/// Where the types of `observed` and `desired` differ, `desired` wins whole.
pub fn merge(observed: &Value, last: Option<&Value>, desired: &Value) -> Value {
    match (observed, desired) {
        (Value::Object(observed), Value::Object(desired)) => {
            Value::Object(objects(observed, last.and_then(Value::as_object), desired))
        }
        (Value::Array(observed), Value::Array(desired)) => {
            lists(observed, last.and_then(Value::as_array).map_or(&[], Vec::as_slice), desired)
        }
        _ => desired.clone(),
    }
}

fn objects(
    observed: &Map<String, Value>,
    last: Option<&Map<String, Value>>,
    desired: &Map<String, Value>,
) -> Map<String, Value> {
    let given_up =
        |key: &String| last.is_some_and(|last| last.contains_key(key)) && !desired.contains_key(key);
    let mut merged: Map<_, _> = observed
        .iter()
        .filter(|(key, _)| !given_up(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (key, wanted) in desired {
        let value = match observed.get(key) {
            Some(existing) => merge(existing, last.and_then(|last| last.get(key)), wanted),
            None => wanted.clone(),
        };
        merged.insert(key.clone(), value);
    }
    merged
}

fn lists(observed: &[Value], last: &[Value], desired: &[Value]) -> Value {
    let Some(key) = merge_key([observed, last, desired]) else {
        return Value::Array(desired.to_vec());
    };
    let merged = objects(&by_key(observed, key), Some(&by_key(last, key)), &by_key(desired, key));
    let mut seen = BTreeSet::new();
    let names = observed.iter().chain(desired).filter_map(|item| name_of(item, key));
    Value::Array(
        names
            .filter(|name| seen.insert(name.clone()))
            .filter_map(|name| merged.get(&name).cloned())
            .collect(),
    )
}

/// The first of the conventional keys that every item of all three lists has, and that tells the items of each list
/// apart: merged by another one, the ports 53/TCP and 53/UDP would become one.
fn merge_key(lists: [&[Value]; 3]) -> Option<&'static str> {
    if lists.iter().all(|list| list.is_empty()) {
        return None;
    }
    let tells_apart = |list: &[Value], key: &str| {
        let mut names = BTreeSet::new();
        list.iter().all(|item| name_of(item, key).is_some_and(|name| names.insert(name)))
    };
    MERGE_KEYS.into_iter().find(|key| lists.iter().all(|list| tells_apart(list, key)))
}

fn by_key(items: &[Value], key: &str) -> Map<String, Value> {
    items
        .iter()
        .filter_map(|item| Some((name_of(item, key)?, item.clone())))
        .collect::<BTreeMap<_, _>>()
        .into_iter()
        .collect()
}

fn name_of(item: &Value, key: &str) -> Option<String> {
    Some(match item.get(key)? {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::object::testing::any_json;

    #[test]
    fn items_that_share_a_key_are_told_apart_by_the_next_one_or_replaced_whole() {
        let named = json!([{"name": "tcp", "port": 53}, {"name": "udp", "port": 53}]);
        let nodes =
            json!([{"name": "tcp", "port": 53, "nodePort": 1}, {"name": "udp", "port": 53, "nodePort": 2}]);
        assert_eq!(merge(&nodes, Some(&named), &named), nodes);
        let nameless = json!([{"port": 53}, {"port": 53}]);
        assert_eq!(merge(&nameless, Some(&nameless), &nameless), nameless);
    }

    #[test]
    fn the_published_vectors_hold() {
        for (observed, last, desired, expected) in [
            (
                json!({"keep":"o","rm":"o","rep":"o"}),
                json!({"rm":"x","rep":"x"}),
                json!({"rep":"n","add":"n"}),
                json!({"keep":"o","rep":"n","add":"n"}),
            ),
            (
                json!({"l":[1,2,{"a":true}]}),
                json!({"l":[4]}),
                json!({"l":[7,{"b":false}]}),
                json!({"l":[7,{"b":false}]}),
            ),
            (
                json!({"l":[{"name":"k","v":1},{"name":"r","v":1},{"name":"m","n":{"k":1}}]}),
                json!({"l":[{"name":"r"}]}),
                json!({"l":[{"name":"a"},{"name":"m","n":{"x":2}}]}),
                json!({"l":[{"name":"k","v":1},{"name":"m","n":{"k":1,"x":2}},{"name":"a"}]}),
            ),
            (
                json!({"p":[{"port":80,"k":1}]}),
                json!({"p":[{"port":80,"r":1}]}),
                json!({"p":[{"port":80,"a":1},{"port":90}]}),
                json!({"p":[{"port":80,"k":1,"a":1},{"port":90}]}),
            ),
            (
                json!({"l":[{"name":"k"},{"other":1}]}),
                json!({}),
                json!({"l":[{"name":"a"}]}),
                json!({"l":[{"name":"a"}]}),
            ),
        ] {
            assert_eq!(merge(&observed, Some(&last), &desired), expected);
        }
    }

    #[test]
    fn a_change_of_type_is_applied() {
        for (observed, desired) in
            [(json!({"a":{"b":1}}), json!({"a":1})), (json!({"a":[1]}), json!({"a":{"b":1}}))]
        {
            assert_eq!(merge(&observed, None, &desired), desired);
        }
    }

    #[test]
    fn an_empty_list_removes_only_what_was_applied() {
        let observed = json!({"l":[{"name":"ours"},{"name":"theirs"}]});
        let last = json!({"l":[{"name":"ours"}]});
        assert_eq!(merge(&observed, Some(&last), &json!({"l":[]})), json!({"l":[{"name":"theirs"}]}));
    }

    proptest! {
        #[test]
        fn merging_a_value_into_itself_changes_nothing(value in any_json()) {
            // Items of one name collapse; that is the convention's known price.
            prop_assume!(no_list_has_twins(&value));
            prop_assert_eq!(merge(&value, Some(&value), &value), value);
        }

        #[test]
        fn applying_twice_is_applying_once(observed in any_json(), last in any_json(), desired in any_json()) {
            prop_assume!(no_list_has_twins(&desired) && no_list_has_twins(&observed));
            let once = merge(&observed, Some(&last), &desired);
            prop_assert_eq!(merge(&once, Some(&desired), &desired), once);
        }
    }

    fn no_list_has_twins(value: &Value) -> bool {
        match value {
            Value::Object(members) => members.values().all(no_list_has_twins),
            Value::Array(items) => {
                let twins = MERGE_KEYS.into_iter().any(|key| {
                    let mut seen = BTreeSet::new();
                    items.iter().filter_map(|item| name_of(item, key)).any(|name| !seen.insert(name))
                });
                !twins && items.iter().all(no_list_has_twins)
            }
            _ => true,
        }
    }
}
