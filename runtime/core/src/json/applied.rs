//! Result of server-side apply: a value is replaced, except where the published list types say that it is merged.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::json::lists::{ListKind, Lists};
use crate::json::merge::Identity;

/// What `observed` becomes when `body` is applied over it.
///
/// # Guarantees
/// Lists are replaced whole where nothing is published about them, and so is what is published to be one value.
pub fn applied(observed: &Value, body: &Value, lists: Option<&Lists>) -> Value {
    let kind = lists.and_then(|lists| lists.kind.as_ref());
    match (observed, body) {
        (Value::Object(observed), Value::Object(body)) if kind != Some(&ListKind::Atomic) => {
            let mut all = observed.clone();
            for (name, value) in body {
                let below = lists.and_then(|lists| lists.member(name));
                let value =
                    observed.get(name).map_or_else(|| value.clone(), |now| applied(now, value, below));
                all.insert(name.clone(), value);
            }
            Value::Object(all)
        }
        (Value::Array(observed), Value::Array(body)) => {
            let by = kind.and_then(|kind| Identity::of([observed.as_slice(), body], Some(kind)));
            by.map_or_else(|| Value::Array(body.clone()), |by| items(by, observed, body, lists))
        }
        _ => body.clone(),
    }
}

fn items(by: Identity<'_>, observed: &[Value], body: &[Value], lists: Option<&Lists>) -> Value {
    let (before, wanted) = (by.members(observed), by.members(body));
    let mut seen = BTreeSet::new();
    let all = by.named(observed).chain(by.named(body)).filter(|(name, _)| seen.insert(name.clone()));
    let item = |(name, item): (Cow<'_, str>, &Value)| match (before.get(&*name), wanted.get(&*name)) {
        (Some(before), Some(wanted)) => applied(before, wanted, lists.and_then(Lists::item)),
        _ => item.clone(),
    };
    Value::Array(all.map(item).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::json::lists::ListKey;

    fn tree(kind: ListKind) -> Lists {
        let below = Lists { kind: Some(kind), ..Lists::default() };
        Lists { members: [("x".to_owned(), Arc::new(below))].into(), ..Lists::default() }
    }

    #[test]
    fn a_list_is_one_value_unless_it_is_published_to_be_none() {
        let (observed, body) =
            (json!({"x": [{"name": "a", "v": 1}, {"name": "b"}]}), json!({"x": [{"name": "a"}]}));
        assert_eq!(applied(&observed, &body, None), body);
        assert_eq!(applied(&observed, &body, Some(&tree(ListKind::Atomic))), body);
        let key = ListKey { field: "name".to_owned(), default: None };
        assert_eq!(applied(&observed, &body, Some(&tree(ListKind::Map(vec![key])))), observed);
        let set = applied(&json!({"x": ["a"]}), &json!({"x": ["b", "a"]}), Some(&tree(ListKind::Set)));
        assert_eq!(set, json!({"x": ["a", "b"]}));
    }

    #[test]
    fn an_object_keeps_what_others_set_unless_it_is_one_value() {
        let (observed, body) = (json!({"x": {"ours": 1, "theirs": 1}}), json!({"x": {"ours": 2}}));
        assert_eq!(applied(&observed, &body, None), json!({"x": {"ours": 2, "theirs": 1}}));
        assert_eq!(applied(&observed, &body, Some(&tree(ListKind::Atomic))), body);
    }
}
