//! Merges: the three-way merge of dynamic apply, and the result of server-side apply.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::json::identity::Identity;
use crate::json::lists::{ListKind, Lists};

/// The value that `observed` becomes when `desired` is applied over it, given that `last` was applied before.
///
/// # Guarantees
/// Fields that neither `last` nor `desired` mention stay. Fields of `last` that `desired` no longer mentions go. A null
/// mentions nothing, but of an object that was applied before it takes only what was applied. Where the schema lets nulls be
/// (`Lists::nullable`) a null is a value like another, and stands for an object of which nothing is left.
/// Named items of `desired` have its order; items that only `observed` has stay behind the item that they stand behind.
/// Where the types of `observed` and `desired` differ, `desired` wins whole.
/// See <https://github.com/VictoriaMetrics/operator/issues/1215>.
pub fn merge(observed: &Value, last: Option<&Value>, desired: &Value, lists: Option<&Lists>) -> Value {
    match (observed, desired) {
        (Value::Object(observed), Value::Object(desired)) => {
            Value::Object(objects(observed, last.and_then(Value::as_object), desired, |key| {
                lists.and_then(|lists| lists.member(key))
            }))
        }
        (Value::Array(observed), Value::Array(desired)) => {
            arrays(observed, last.and_then(Value::as_array).map_or(&[], Vec::as_slice), desired, lists)
        }
        _ => desired.clone(),
    }
}

fn objects<'a>(
    observed: &Map<String, Value>,
    last: Option<&Map<String, Value>>,
    desired: &Map<String, Value>,
    below: impl Fn(&str) -> Option<&'a Lists>,
) -> Map<String, Value> {
    let nullable = |key: &str| below(key).is_some_and(|below| below.nullable);
    let applied =
        |key: &str| last.and_then(|last| last.get(key)).filter(|value| !value.is_null() || nullable(key));
    let mut merged = Map::new();
    for (key, existing) in observed {
        let value = match desired.get(key) {
            Some(Value::Null) if existing.is_object() => {
                match merge(existing, applied(key), &Value::Object(Map::new()), below(key)) {
                    Value::Object(left) if left.is_empty() && nullable(key) => Value::Null,
                    left => left,
                }
            }
            Some(Value::Null) if nullable(key) => Value::Null,
            None | Some(Value::Null) if applied(key).is_some() => continue,
            None | Some(Value::Null) => existing.clone(),
            Some(wanted) => merge(existing, applied(key), wanted, below(key)),
        };
        merged.insert(key.clone(), value);
    }
    let is_new = |(key, wanted): &(&String, &Value)| {
        !observed.contains_key(*key) && (!wanted.is_null() || nullable(key))
    };
    for (key, wanted) in desired.iter().filter(is_new) {
        merged.insert(key.clone(), wanted.clone());
    }
    merged
}

fn arrays(observed: &[Value], last: &[Value], desired: &[Value], lists: Option<&Lists>) -> Value {
    let Some(by) = Identity::of([observed, last, desired], lists.and_then(|lists| lists.kind.as_ref()))
    else {
        return Value::Array(desired.to_vec());
    };
    let (before, last, wanted) = (by.by_name(observed), by.by_name(last), by.by_name(desired));
    // An item that has a name is no null.
    let item = |name: Cow<'_, str>| match (before.get(&name), wanted.get(&name)) {
        (Some(existing), Some(wanted)) => {
            Some(merge(existing, last.get(&name).copied(), wanted, lists.and_then(Lists::item)))
        }
        (Some(_), None) if last.contains_key(&name) => None,
        (one, other) => one.or(other).map(|item| (*item).clone()),
    };
    Value::Array(by.merged_order(observed, desired).into_iter().filter_map(item).collect())
}

/// Whether a merge would leave `observed` as it is, as most do: no merged value is made to find that.
pub fn changes_nothing(
    observed: &Value,
    last: Option<&Value>,
    desired: &Value,
    lists: Option<&Lists>,
) -> bool {
    match (observed, desired) {
        (Value::Object(observed), Value::Object(desired)) => {
            let last = last.and_then(Value::as_object);
            let stays = |(key, existing): (&String, &Value)| {
                let below = lists.and_then(|lists| lists.member(key));
                let nullable = below.is_some_and(|below| below.nullable);
                let applied =
                    last.and_then(|last| last.get(key)).filter(|value| !value.is_null() || nullable);
                match desired.get(key) {
                    Some(Value::Null) if existing.is_object() => {
                        let becomes_null = nullable && existing.as_object().is_some_and(Map::is_empty);
                        !becomes_null && changes_nothing(existing, applied, &Value::Object(Map::new()), below)
                    }
                    Some(Value::Null) if nullable => existing.is_null(),
                    None | Some(Value::Null) => applied.is_none(),
                    Some(wanted) => changes_nothing(existing, applied, wanted, below),
                }
            };
            let nullable =
                |key: &str| lists.and_then(|lists| lists.member(key)).is_some_and(|below| below.nullable);
            let is_there = |(key, wanted): (&String, &Value)| {
                observed.contains_key(key) || wanted.is_null() && !nullable(key)
            };
            observed.iter().all(stays) && desired.iter().all(is_there)
        }
        (Value::Array(observed), Value::Array(desired)) => {
            let last = last.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let kind = lists.and_then(|lists| lists.kind.as_ref());
            let Some(by) = Identity::of([observed, last, desired], kind) else {
                return observed == desired;
            };
            let (last, mut wanted) = (by.by_name(last), by.by_name(desired));
            let mut order = by.named(desired).map(|(name, _)| name);
            let stays = |(name, item)| match wanted.remove(&name) {
                None => !last.contains_key(&name),
                Some(wanted) => {
                    (by.is_unordered() || order.next().is_some_and(|next| next == name))
                        && changes_nothing(
                            item,
                            last.get(&name).copied(),
                            wanted,
                            lists.and_then(Lists::item),
                        )
                }
            };
            by.named(observed).all(stays) && wanted.is_empty()
        }
        _ => observed == desired,
    }
}

/// The value that `observed` becomes when `body` is applied over it.
///
/// # Guarantees
/// Lists are replaced whole where nothing is published about them, and so is what is published to be one value.
pub fn applied(observed: &Value, body: &Value, lists: Option<&Lists>) -> Value {
    let kind = lists.and_then(|lists| lists.kind.as_ref());
    match (observed, body) {
        (Value::Object(observed), Value::Object(body)) if kind != Some(&ListKind::Atomic) => {
            let now = |(name, now): (&String, &Value)| {
                let below = lists.and_then(|lists| lists.member(name));
                (name.clone(), body.get(name).map_or_else(|| now.clone(), |body| applied(now, body, below)))
            };
            let new = body.iter().filter(|(name, _)| !observed.contains_key(*name));
            let new = new.map(|(name, value)| (name.clone(), value.clone()));
            Value::Object(observed.iter().map(now).chain(new).collect())
        }
        (Value::Array(observed), Value::Array(body)) => {
            let kind = kind.filter(|kind| **kind != ListKind::Atomic);
            let by = kind.and_then(|kind| Identity::of([observed.as_slice(), body], Some(kind)));
            by.map_or_else(|| Value::Array(body.clone()), |by| items(by, observed, body, lists))
        }
        _ => body.clone(),
    }
}

fn items(by: Identity<'_>, observed: &[Value], body: &[Value], lists: Option<&Lists>) -> Value {
    let (before, wanted) = (by.by_name(observed), by.by_name(body));
    let item = |name: Cow<'_, str>| match (before.get(&name), wanted.get(&name)) {
        (Some(before), Some(wanted)) => Some(applied(before, wanted, lists.and_then(Lists::item))),
        (one, other) => one.or(other).map(|item| (*item).clone()),
    };
    Value::Array(by.merged_order(observed, body).into_iter().filter_map(item).collect())
}
