//! Scopes of stores of related objects: open from the first rule that asks until a while after the last one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::object::id::Resource;

/// A resource, in one namespace or in all.
pub type Place = (Arc<Resource>, Option<Arc<str>>);

/// Rules come back, and opening a scope costs a list: an unused one stays open for this time.
pub const CLOSE_DELAY: Duration = Duration::from_mins(1);

/// What is open at each place. Times are counted from the controller's start.
#[derive(Debug)]
pub struct StoreScopes<T>(BTreeMap<Place, Open<T>>);

#[derive(Debug)]
struct Open<T> {
    what: T,
    /// Since when no rule has used it, as of the last check.
    unused: Option<Duration>,
}

impl<T> Default for StoreScopes<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> StoreScopes<T> {
    /// The store of a scope, marked as used.
    pub fn get(&mut self, place: &Place) -> Option<&T> {
        let open = self.0.get_mut(place)?;
        open.unused = None;
        Some(&open.what)
    }

    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|open| &open.what)
    }

    pub fn open(&mut self, place: Place, what: T) {
        self.0.insert(place, Open { what, unused: None });
    }

    /// Takes out what has not been used for a while.
    #[must_use]
    pub fn close(&mut self, is_used: impl Fn(&Place) -> bool, now: Duration) -> BTreeMap<Place, T> {
        for (place, open) in &mut self.0 {
            open.unused = if is_used(place) { None } else { open.unused.or(Some(now)) };
        }
        let over = |open: &Open<T>| open.unused.is_some_and(|since| now.saturating_sub(since) >= CLOSE_DELAY);
        let closed = self.0.extract_if(.., |_, open| over(open));
        closed.map(|(place, open)| (place, open.what)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::resource;

    fn place(namespace: &str) -> Place {
        (resource("v1", "Pod"), Some(namespace.into()))
    }

    fn opened() -> StoreScopes<&'static str> {
        let mut all = StoreScopes::default();
        for namespace in ["m", "n"] {
            all.open(place(namespace), namespace);
        }
        all
    }

    #[test]
    fn a_place_that_no_rule_is_about_is_closed_after_a_while() {
        let (mut all, start) = (opened(), Duration::from_hours(1));
        let mut close = |now| all.close(|used| *used == place("n"), now).into_values().collect::<Vec<_>>();
        assert!(close(start).is_empty());
        assert!(close(start + CLOSE_DELAY / 2).is_empty());
        assert_eq!(close(start + CLOSE_DELAY), ["m"]);
        assert!(close(start + CLOSE_DELAY * 100).is_empty(), "the other one is used");
        assert_eq!(all.get(&place("m")), None);
        assert_eq!(all.get(&place("n")), Some(&"n"));
    }

    #[test]
    fn a_place_that_is_asked_for_again_stays_open() {
        let (mut all, start) = (opened(), Duration::from_hours(1));
        assert!(all.close(|_| false, start).is_empty());
        assert_eq!(all.get(&place("m")), Some(&"m"), "a pass is about to use it");
        assert_eq!(all.close(|_| false, start + CLOSE_DELAY).into_values().collect::<Vec<_>>(), ["n"]);
        assert!(all.close(|_| true, start + CLOSE_DELAY).is_empty());
        assert!(all.close(|_| false, start + CLOSE_DELAY * 2).is_empty());
    }
}
