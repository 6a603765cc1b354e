//! Places of differences as people are shown them.

use crate::json::difference::Difference;
use crate::shorten;

/// Places of differences that people are shown.
const MAX_PLACES: usize = 5;

/// Bytes of one.
const MAX_PLACE: usize = 100;

/// The first places of differences, and `…` where there are more.
pub fn places(values: &[Difference]) -> Vec<String> {
    shown(values.iter().map(|value| &*value.path))
}

fn shown<'a>(mut paths: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut first: Vec<_> = paths.by_ref().take(MAX_PLACES).map(|path| shorten(path, MAX_PLACE)).collect();
    first.extend(paths.next().map(|_| "…".to_owned()));
    first
}

/// The first places of differences whose values nobody needs any more. They become [`places`] only where people are shown them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstPlaces(Vec<String>);

impl FirstPlaces {
    pub fn of(values: Vec<Difference>) -> Self {
        let mut paths = Vec::with_capacity(values.len().min(MAX_PLACES + 1));
        paths.extend(values.into_iter().take(MAX_PLACES + 1).map(|value| value.path));
        Self(paths)
    }

    pub fn shown(&self) -> Vec<String> {
        shown(self.0.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::json::difference::differences;

    #[test]
    fn first_places_are_shown_as_those_of_all_differences() {
        for number in [0, 1, MAX_PLACES, MAX_PLACES + 1, 50] {
            let key = |nth: usize| format!("{nth:02}{}", "k".repeat(2 * MAX_PLACE));
            let wanted: Map<_, _> = (0..number).map(|nth| (key(nth), json!(1))).collect();
            let all = differences(&wanted.into(), &json!({}), None);
            assert_eq!(all.len(), number);
            let shown = places(&all);
            let first = FirstPlaces::of(all);
            assert_eq!((first.shown(), first.0.len()), (shown, number.min(MAX_PLACES + 1)));
            assert!(first.0.iter().all(|path| path.len() > MAX_PLACE), "no text is made before it is shown");
        }
    }
}
