//! Flapping values: another client keeps changing them, and their drift is corrected less and less often.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::json::difference::Difference;

/// Corrections of one value without delay.
const MAX_UNDELAYED: u32 = 5;
const MIN_DELAY: Duration = Duration::from_secs(5);
const MAX_DELAY: Duration = Duration::from_mins(5);
/// A value that changes later than this is not flapping.
const RESET_INTERVAL: Duration = Duration::from_mins(15);

/// The values of one child that another client keeps changing, by path. Times are since the server's start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flapping {
    places: BTreeMap<String, Place>,
    reported: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    times: u32,
    last: Duration,
}

impl Flapping {
    /// `drift` was corrected at `now`.
    pub fn drift_corrected(&mut self, drift: &[Difference], now: Duration) {
        self.places.retain(|_, place| now.saturating_sub(place.last) < RESET_INTERVAL);
        for difference in drift {
            let place = self
                .places
                .entry(difference.path.clone())
                .or_insert(Place { times: 0, last: Duration::ZERO });
            *place = Place { times: place.times.saturating_add(1), last: now };
        }
        self.reported = false;
    }

    /// How long `drift` is left alone from `now` on; `None` where it is corrected at once, as it is whole as soon as one
    /// place of it is due.
    pub fn wait(&self, drift: &[Difference], now: Duration) -> Option<Duration> {
        let left = |difference: &Difference| {
            let place = self.places.get(&difference.path)?;
            let due = place.last + place.delay()?;
            (now < due).then(|| due.saturating_sub(now))
        };
        drift.iter().map(left).min()?
    }

    /// The places that are worth a word.
    pub fn noticed(&self) -> BTreeSet<&str> {
        let noticed = self.places.iter().filter(|(_, place)| place.delay().is_some());
        noticed.map(|(path, _)| path.as_str()).collect()
    }

    /// `true` the first time since the last correction.
    pub(super) fn mark_reported(&mut self) -> bool {
        !std::mem::replace(&mut self.reported, true)
    }
}

impl Place {
    fn delay(&self) -> Option<Duration> {
        let doublings = self.times.checked_sub(MAX_UNDELAYED)?.min(16);
        Some((MIN_DELAY * 2_u32.pow(doublings)).min(MAX_DELAY))
    }
}

/// The managers of a field other than `ours`, as the managed fields of an object say.
pub fn others<'a>(fields: &'a Value, path: &str, ours: &[&str]) -> BTreeSet<&'a str> {
    let entries = fields.as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |entry: &'a Value, field: &str| entry.get(field).and_then(Value::as_str);
    let has = |entry: &&Value| entry.get("fieldsV1").is_some_and(|set| holds(set, path));
    let managers = entries.iter().filter(has).filter_map(|entry| text(entry, "manager"));
    managers.filter(|manager| !ours.contains(manager)).collect()
}

/// Whether a set of managed fields has the field at `path`, or the whole it is part of.
fn holds(set: &Value, path: &str) -> bool {
    let Some(set) = set.as_object() else { return false };
    let below = |rest: &str, set: &Value| {
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        rest.is_empty() || set.as_object().is_some_and(Map::is_empty) || holds(set, rest)
    };
    set.iter().any(|(key, set)| {
        if let Some(field) = key.strip_prefix("f:") {
            let rest =
                path.strip_prefix(field).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
            return rest.is_some_and(|rest| below(rest, set));
        }
        let (Some(item), Some(keys)) = (path.strip_prefix('['), key.strip_prefix("k:")) else { return false };
        let (Some((named, rest)), Ok(keys)) = (item.split_once(']'), serde_json::from_str(keys)) else {
            return false;
        };
        let keys: Map<String, Value> = keys;
        let said = |(field, value): (&String, &Value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            named.split(',').any(|part| part == format!("{field}={value}"))
        };
        keys.iter().any(said) && below(rest, set)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drift(paths: &[&str]) -> Vec<Difference> {
        let difference =
            |path: &&str| Difference { path: (*path).to_owned(), wanted: json!(1), found: json!(2) };
        paths.iter().map(difference).collect()
    }

    fn after(times: u32, every: Duration) -> (Flapping, Duration) {
        let mut flip = Flapping::default();
        for time in 0..times {
            flip.drift_corrected(&drift(&["a"]), every * time);
        }
        (flip, every * (times - 1))
    }

    #[test]
    fn a_value_is_put_right_at_once_a_few_times_and_then_less_and_less_often() {
        let second = Duration::from_secs(1);
        let (flip, now) = after(MAX_UNDELAYED - 1, second);
        assert_eq!((flip.wait(&drift(&["a"]), now), flip.noticed()), (None, BTreeSet::new()));
        let (flip, now) = after(MAX_UNDELAYED, second);
        assert_eq!(flip.wait(&drift(&["a"]), now), Some(MIN_DELAY));
        assert_eq!(flip.noticed(), BTreeSet::from(["a"]));
        assert_eq!(flip.wait(&drift(&["a"]), now + MIN_DELAY), None);
        let (flip, now) = after(MAX_UNDELAYED + 1, second);
        assert_eq!(flip.wait(&drift(&["a"]), now), Some(2 * MIN_DELAY));
        let (flip, now) = after(1000, second);
        assert_eq!(flip.wait(&drift(&["a"]), now), Some(MAX_DELAY));
    }

    #[test]
    fn another_value_does_not_wait() {
        let (flip, now) = after(MAX_UNDELAYED, Duration::from_secs(1));
        assert_eq!(flip.wait(&drift(&["a", "c"]), now), None);
    }

    #[test]
    fn values_that_change_in_turns_flip_both() {
        let mut flip = Flapping::default();
        for time in 0..MAX_UNDELAYED {
            flip.drift_corrected(&drift(&["a"]), Duration::from_secs((2 * time).into()));
            flip.drift_corrected(&drift(&["b"]), Duration::from_secs((2 * time + 1).into()));
        }
        assert_eq!(flip.noticed(), BTreeSet::from(["a", "b"]));
        let now = Duration::from_secs((2 * MAX_UNDELAYED).into());
        assert_eq!(flip.wait(&drift(&["a", "b"]), now), Some(Duration::from_secs(3)));
    }

    #[test]
    fn what_comes_back_rarely_is_no_flip() {
        let (flip, now) = after(100, RESET_INTERVAL);
        assert_eq!((flip.wait(&drift(&["a"]), now), flip.noticed()), (None, BTreeSet::new()));
    }

    #[test]
    fn the_other_manager_of_a_field_is_found() {
        let entry = |manager: &str, set: Value| json!({"manager": manager, "fieldsV1": set});
        let fields = json!([
            entry("hpa", json!({"f:spec": {"f:replicas": {}}})),
            entry(
                "vpa",
                json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}}}})
            ),
            entry("labels", json!({"f:metadata": {"f:labels": {"f:app.kubernetes.io/name": {}}}})),
            entry("rules", json!({"f:spec": {"f:rules": {}}})),
            entry("us", json!({"f:spec": {"f:replicas": {}, "f:rules": {}}})),
        ]);
        for (path, manager) in [
            ("spec.replicas", "hpa"),
            ("spec.containers[name=web].image", "vpa"),
            ("metadata.labels.app.kubernetes.io/name", "labels"),
            ("spec.rules[0].host", "rules"),
        ] {
            assert_eq!(others(&fields, path, &["us"]), BTreeSet::from([manager]), "{path}");
        }
        for nobody in ["spec.containers[name=log].image", "spec.replica", "metadata.name"] {
            assert_eq!(others(&fields, nobody, &["us"]), BTreeSet::new(), "{nobody}");
        }
    }
}
