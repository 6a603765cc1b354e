//! Smaller inputs that show the same: parts are taken out as long as a fault stays.

use serde_json::Value;

/// Tries for one input.
const MAX_TRIES: usize = 400;

/// The part of an input that shows what `shows` finds, without what it does as well without. `keep`: pointers of what stays.
pub(crate) async fn shrink(input: Value, keep: &[&str], shows: impl AsyncFn(&Value) -> bool) -> Value {
    let (mut small, mut tries) = (input, 0);
    loop {
        let mut is_smaller = false;
        // From the largest parts to the smallest.
        for part in parts(&small) {
            if part.pointers().iter().any(|pointer| keep.iter().any(|kept| is_within(kept, pointer))) {
                continue;
            }
            let Some(candidate) = without(&small, &part) else { continue };
            tries += 1;
            if tries > MAX_TRIES {
                return small;
            }
            if shows(&candidate).await {
                small = candidate;
                is_smaller = true;
            }
        }
        if !is_smaller {
            return small;
        }
    }
}

/// Some members of an object, or a range of a list.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    /// Where the object or list is.
    holder: String,
    cut: Cut,
}

#[derive(Debug, Clone, PartialEq)]
enum Cut {
    Members(Vec<String>),
    Items(usize, usize),
}

impl Part {
    fn pointers(&self) -> Vec<String> {
        match &self.cut {
            Cut::Members(names) => names.iter().map(|name| below(&self.holder, name)).collect(),
            Cut::Items(start, end) => (*start..*end).map(|nth| format!("{}/{nth}", self.holder)).collect(),
        }
    }
}

/// The pointer of a member.
pub(crate) fn below(holder: &str, name: &str) -> String {
    format!("{holder}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Ranges of so many places: halves, then quarters, and so on down to single ones.
fn ranges(count: usize) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    let mut width = count.div_ceil(2);
    while width > 0 {
        all.extend((0..count).step_by(width).map(|start| (start, (start + width).min(count))));
        width = if width == 1 { 0 } else { width.div_ceil(2) };
    }
    all
}

/// Whether taking out the part at a pointer would take what is kept.
fn is_within(kept: &str, pointer: &str) -> bool {
    kept == pointer || kept.strip_prefix(pointer).is_some_and(|rest| rest.starts_with('/'))
}

/// All parts, those that hold others first.
fn parts(value: &Value) -> Vec<Part> {
    fn walk(value: &Value, at: &str, all: &mut Vec<Part>) {
        let holder = || at.to_owned();
        match value {
            Value::Object(members) => {
                let names: Vec<_> = members.keys().cloned().collect();
                for (start, end) in ranges(names.len()) {
                    let names = names.get(start..end).unwrap_or_default().to_vec();
                    all.push(Part { holder: holder(), cut: Cut::Members(names) });
                }
                members.iter().for_each(|(name, member)| walk(member, &below(at, name), all));
            }
            Value::Array(items) => {
                for (start, end) in ranges(items.len()) {
                    all.push(Part { holder: holder(), cut: Cut::Items(start, end) });
                }
                for (nth, item) in items.iter().enumerate() {
                    walk(item, &format!("{at}/{nth}"), all);
                }
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    walk(value, "", &mut all);
    all.sort_by_key(|part| part.holder.matches('/').count());
    all
}

/// `None`: the part has gone with another one.
fn without(value: &Value, part: &Part) -> Option<Value> {
    let mut smaller = value.clone();
    match (smaller.pointer_mut(&part.holder)?, &part.cut) {
        (Value::Object(members), Cut::Members(names)) => {
            let before = members.len();
            members.retain(|name, _| !names.contains(name));
            (members.len() < before).then_some(smaller)
        }
        (Value::Array(items), Cut::Items(start, end)) if *end <= items.len() && start < end => {
            items.drain(*start..*end);
            Some(smaller)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn what_does_not_matter_goes_and_what_is_kept_stays() {
        let input = json!({
            "parent": {"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"list": [1, 2, 3, 7, 5, 6], "b": {"c": 1}}},
            "related": {"x": {}},
        });
        let shows = async |value: &Value| {
            let list = value.pointer("/parent/spec/list").and_then(Value::as_array);
            list.is_some_and(|list| list.contains(&json!(7)))
        };
        let small = shrink(input, &["/parent/metadata/name"], shows).await;
        assert_eq!(small, json!({"parent": {"metadata": {"name": "a"}, "spec": {"list": [7]}}}));
    }

    #[tokio::test]
    async fn of_many_members_as_few_stay_as_show_it() {
        let members = (0..1000).map(|number| (format!("c-{number}"), json!(number))).collect();
        let input = json!({"children": {"Pod.v1": Value::Object(members)}});
        let count = |value: &Value| value["children"]["Pod.v1"].as_object().map_or(0, serde_json::Map::len);
        let small = shrink(input, &["/children"], async |value: &Value| count(value) >= 10).await;
        assert!((10..20).contains(&count(&small)), "{small}");
    }

    #[tokio::test]
    async fn tries_are_bounded() {
        let input = json!((0..2000).collect::<Vec<_>>());
        let tries = std::cell::Cell::new(0);
        shrink(input, &[], async |_: &Value| {
            tries.set(tries.get() + 1);
            false
        })
        .await;
        assert_eq!(tries.get(), MAX_TRIES);
    }
}
