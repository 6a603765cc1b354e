//! Label selectors: as text and as JSON, and what they match.

use std::collections::BTreeMap;

use metahook_core::object::selector::{LabelSelector, Pin, Selector};

/// The first line is a selector as text, the second one more, each further line a label `key=value`. Bytes that begin
/// with `{` are a selector as JSON.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if text.starts_with('{') {
        json(text);
        return;
    }
    let mut lines = text.split('\n');
    let one = lines.next().unwrap_or_default();
    let other = lines.next().unwrap_or_default();
    let labels = lines.map(|line| line.split_once('=').unwrap_or((line, "")));
    let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let Ok(one_selector) = Selector::parse(one) else { return };
    let Ok(other_selector) = Selector::parse(other) else { return };
    matches_its_pin(&one_selector, &labels);
    let both = Selector::parse(&format!(" {one} , {other},")).expect("two selectors make one");
    let each = one_selector.matches(&labels) && other_selector.matches(&labels);
    assert_eq!(both.matches(&labels), each, "{one:?} and {other:?}");
    assert_eq!(both.is_empty(), one_selector.is_empty() && other_selector.is_empty());
}

fn json(text: &str) {
    let Ok(stored) = serde_json::from_str::<LabelSelector>(text) else { return };
    let printed = serde_json::to_string(&stored).expect("a selector has a text");
    assert_eq!(serde_json::from_str::<LabelSelector>(&printed).expect("it was just printed"), stored);
    match Selector::of(&stored) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(selector) => {
            let labels = stored.match_labels.unwrap_or_default();
            matches_its_pin(&selector, &labels);
            let expressions = stored.match_expressions.unwrap_or_default();
            assert!(!expressions.is_empty() || selector.matches(&labels), "it matches its own labels");
        }
    }
}

/// An index that is asked for the pin alone misses nothing.
fn matches_its_pin(selector: &Selector, labels: &BTreeMap<String, String>) {
    if !selector.matches(labels) {
        return;
    }
    match selector.pin() {
        Some(Pin::In(key, values)) => assert!(labels.get(key).is_some_and(|value| values.contains(value))),
        Some(Pin::Exists(key)) => assert!(labels.contains_key(key)),
        None => {}
    }
    if let Some((key, value)) = selector.pinned() {
        assert_eq!(labels.get(key).map(String::as_str), Some(value));
    }
}
