//! Places of differences as people are shown them.

use serde::{Deserialize, Serialize};

use crate::json::difference::Difference;
use crate::json::hidden::shown_values;
use crate::shorten;

/// Places of differences that people are shown.
const MAX_PLACES: usize = 5;

/// Bytes of one.
const MAX_PLACE: usize = 100;

/// Bytes of a value.
const MAX_VALUE: usize = 100;

/// A place that a write changes, and what stands there before and after it, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedValue {
    pub path: String,
    /// Absent where nothing is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The first changes that end differences, as people are shown them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FirstChanges {
    values: Vec<ChangedValue>,
    /// There are more places.
    more: bool,
}

impl FirstChanges {
    /// `of_secret`: the object is a Secret.
    pub fn of(differences: &[Difference], of_secret: bool) -> Self {
        let changed = |difference: &Difference| {
            let [before, after] = shown_values(difference, of_secret, MAX_VALUE);
            ChangedValue { path: shorten(&difference.path, MAX_PLACE), before, after }
        };
        let values = differences.iter().take(MAX_PLACES).map(changed).collect();
        Self { values, more: differences.len() > MAX_PLACES }
    }

    pub fn values(&self) -> &[ChangedValue] {
        &self.values
    }

    /// The places alone, and `…` where there are more.
    pub fn places(&self) -> Vec<String> {
        let more = self.more.then(|| "…".to_owned());
        self.values.iter().map(|value| value.path.clone()).chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::json::difference::differences;

    #[test]
    fn the_first_places_are_shown_and_that_there_are_more() {
        for number in [0, 1, MAX_PLACES, MAX_PLACES + 1, 50] {
            let key = |nth: usize| format!("{nth:02}{}", "k".repeat(2 * MAX_PLACE));
            let wanted: Map<_, _> = (0..number).map(|nth| (key(nth), json!(1))).collect();
            let first = FirstChanges::of(&differences(&wanted.into(), &json!({}), None), false);
            let places = first.places();
            assert_eq!(first.values().len(), number.min(MAX_PLACES));
            assert_eq!(places.len(), number.min(MAX_PLACES + 1));
            assert_eq!(places.last().is_some_and(|last| last == "…"), number > MAX_PLACES);
            assert!(places.iter().all(|place| place.len() <= MAX_PLACE));
            assert!(first.values().iter().zip(&places).all(|(value, place)| value.path == *place));
        }
    }

    #[test]
    fn values_are_bounded_and_those_of_secrets_are_not_shown() {
        let values = |before: Value, after: Value, of_secret: bool| {
            let wanted = json!({ "data": { "a": after } });
            let all = differences(&wanted, &json!({ "data": { "a": before } }), None);
            let first = FirstChanges::of(&all, of_secret);
            let [ChangedValue { path, before, after }] = first.values() else { panic!("one place") };
            assert_eq!(path, "data.a");
            [before, after].map(|text| text.clone().unwrap_or_else(|| "nothing".to_owned()))
        };
        assert_eq!(values(json!(5), json!("x"), false), ["5", "\"x\""]);
        assert_eq!(values(Value::Null, json!([1, { "b": true }]), false), ["nothing", r#"[1,{"b":true}]"#]);
        assert_eq!(values(json!("old"), json!("sesame"), true), ["(hidden)", "(hidden)"]);
        let [_, long] = values(json!(1), json!("a".repeat(MAX_VALUE - 2)), false);
        assert_eq!(long.len(), MAX_VALUE);
        let [_, cut] = values(json!(1), json!("a".repeat(MAX_VALUE - 1)), false);
        assert!(cut.len() <= MAX_VALUE && cut.ends_with('…'), "{cut}");
        assert_eq!(values(json!("a".repeat(1 << 20)), json!(1), false), ["(a text of 1048576 bytes)", "1"]);
    }
}
