//! Names of a list's items, by which two versions of a list are compared and merged.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::json::lists::{ListKey, ListKind};

/// Fields that name the items of a list about which nothing is published, in the order they are tried. A convention:
/// most lists of the Kubernetes API that are maps at heart use one of them.
const MERGE_KEYS: [&str; 7] = ["containerPort", "port", "mountPath", "name", "uid", "ip", "path"];

/// The part of an item that identifies it in its list.
#[derive(Debug, Clone, Copy)]
pub(super) enum Identity<'a> {
    /// One field, by convention.
    Field(&'static str),
    /// Kind, namespace and name, as the subjects of a `RoleBinding` have them. Without a kind, which the API server may add,
    /// there is no reference.
    Reference,
    /// The kind of the list that the API server publishes.
    Kind(&'a ListKind),
}

impl<'a> Identity<'a> {
    /// `None` where the lists are values as a whole: nothing identifies their items. By convention it is the first field
    /// that every item of all lists has, and that differs within each list: identified by `port` alone, 53/TCP and 53/UDP
    /// would become one.
    /// See <https://github.com/kubernetes/kubernetes/issues/58477>.
    ///
    /// A list that is published as atomic is identified by names alone. `Metacontroller` merges it so, and other clients
    /// rely on that: `OpenShift` adds to the `imagePullSecrets` of each `ServiceAccount`.
    /// See <https://github.com/stacklok/toolhive/issues/3622>.
    pub(super) fn of<const N: usize>(all: [&[Value]; N], kind: Option<&'a ListKind>) -> Option<Self> {
        let tells_apart = |by: &Self| {
            all.iter().all(|list| match list {
                [] => true,
                [one] => by.name(one).is_some(),
                many => {
                    let mut names = BTreeSet::new();
                    many.iter().all(|item| by.name(item).is_some_and(|name| names.insert(name)))
                }
            })
        };
        match kind {
            _ if all.iter().all(|list| list.is_empty()) => None,
            Some(ListKind::Atomic) => [Self::Reference, Self::Field("name")].into_iter().find(tells_apart),
            Some(kind @ (ListKind::Set | ListKind::Map(_))) => Some(Self::Kind(kind)).filter(tells_apart),
            None => MERGE_KEYS.into_iter().map(Self::Field).find(tells_apart),
        }
    }

    /// The items by their names.
    pub(super) fn by_name(self, items: &[Value]) -> BTreeMap<Cow<'_, str>, &Value> {
        self.named(items).collect()
    }

    pub(super) fn named(self, items: &[Value]) -> impl Iterator<Item = (Cow<'_, str>, &Value)> {
        items.iter().filter_map(move |item| Some((self.name(item)?, item)))
    }

    /// Whether the order of items has no meaning.
    pub(super) fn is_unordered(self) -> bool {
        matches!(self, Self::Kind(ListKind::Set))
    }

    /// The names that both lists have, as each of them orders them; `None` where the order is the same or has no meaning.
    pub(super) fn orders<'b>(self, one: &'b [Value], other: &'b [Value]) -> Option<[Vec<Cow<'b, str>>; 2]> {
        if self.is_unordered() {
            return None;
        }
        let names = |items: &'b [Value]| self.named(items).map(|(name, _)| name);
        let (in_one, in_other): (BTreeSet<_>, BTreeSet<_>) = (names(one).collect(), names(other).collect());
        let orders = [
            names(one).filter(|name| in_other.contains(name)).collect::<Vec<_>>(),
            names(other).filter(|name| in_one.contains(name)).collect(),
        ];
        (orders[0] != orders[1]).then_some(orders)
    }

    /// The names of all items, in the order of a merge: items of the answer as the answer has them. An item of another
    /// client stays behind the item of the answer that it stands behind in `observed`, or in front of all.
    /// See <https://github.com/metacontroller/metacontroller/issues/562>.
    pub(super) fn merged_order<'b>(self, observed: &'b [Value], desired: &'b [Value]) -> Vec<Cow<'b, str>> {
        let names = |items: &'b [Value]| self.named(items).map(|(name, _)| name);
        let wanted: BTreeSet<_> = names(desired).collect();
        if self.is_unordered() {
            let new = names(desired).collect::<Vec<_>>();
            let known: BTreeSet<_> = names(observed).collect();
            return names(observed).chain(new.into_iter().filter(|name| !known.contains(name))).collect();
        }
        // Each item of the answer with the items of other clients behind it; the first group has no item of the answer.
        let mut groups = vec![Vec::new()];
        let mut group_of = BTreeMap::new();
        for name in names(observed) {
            if wanted.contains(&name) {
                group_of.insert(name, groups.len());
                groups.push(Vec::new());
            } else if let Some(group) = groups.last_mut() {
                group.push(name);
            }
        }
        let mut take = |nth: usize| groups.get_mut(nth).map(std::mem::take).unwrap_or_default();
        let mut all = take(0);
        for name in names(desired) {
            let followers = group_of.get(&name).map(|nth| take(*nth)).unwrap_or_default();
            all.push(name);
            all.extend(followers);
        }
        all
    }

    /// Name of an item in its list.
    fn name<'b>(&self, item: &'b Value) -> Option<Cow<'b, str>> {
        match self {
            Self::Field(field) => text(item.get(field)?),
            Self::Reference => {
                let (kind, name) = (item.get("kind")?.as_str()?, item.get("name")?.as_str()?);
                let namespace = item.get("namespace").and_then(Value::as_str).unwrap_or_default();
                Some(format!("kind={kind},namespace={namespace},name={name}").into())
            }
            Self::Kind(ListKind::Map(keys)) => match keys.as_slice() {
                [key] => part(item.as_object()?, key),
                keys => {
                    let item = item.as_object()?;
                    let part = |key: &ListKey| Some(format!("{}={}", key.field, part(item, key)?));
                    let mut parts = keys.iter().map(part).collect::<Option<Vec<_>>>()?;
                    parts.sort();
                    Some(parts.join(",").into())
                }
            },
            Self::Kind(ListKind::Set) => text(item),
            Self::Kind(ListKind::Atomic) => None,
        }
    }

    /// The name with its field, for people.
    pub(super) fn shown(&self, name: &str) -> String {
        match self {
            Self::Field(field) => format!("{field}={name}"),
            Self::Kind(ListKind::Map(keys)) => match keys.as_slice() {
                [key] => format!("{}={name}", key.field),
                _ => name.to_owned(),
            },
            Self::Reference | Self::Kind(ListKind::Set | ListKind::Atomic) => name.to_owned(),
        }
    }
}

/// The value of a field, or its default; an absent value identifies an item, too.
fn part<'a>(item: &'a Map<String, Value>, key: &ListKey) -> Option<Cow<'a, str>> {
    match (item.get(&key.field), &key.default) {
        (Some(value), _) => text(value),
        (None, Some(default)) => text(default).map(|text| text.into_owned().into()),
        (None, None) => Some("".into()),
    }
}

/// `80` and `"80"` are one name; what has parts is none.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
