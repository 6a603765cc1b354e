//! The failure that a controller's status tells of: that of the first of its parents that fail.

use std::time::Duration;

use crate::object::id::Key;
use crate::shorten_middle;

/// Bytes of a failure that are remembered.
pub const MAX_FAILURE: usize = 512;

/// Messages of one parent that differ, by a time or a number, change the status no more often.
pub const CHANGE_INTERVAL: Duration = Duration::from_secs(10);

/// The latest failure of the first parent.
#[derive(Debug, Default)]
pub struct FirstFailure(Option<ReportedFailure>);

#[derive(Debug)]
struct ReportedFailure {
    parent: Key,
    category: &'static str,
    message: String,
    at: Duration,
}

impl FirstFailure {
    /// The first of the parents that fail has failed.
    pub fn note(&mut self, parent: &Key, (category, message): (&'static str, &str), now: Duration) {
        let stays = |told: &ReportedFailure| {
            told.parent == *parent && told.category == category && now < told.at + CHANGE_INTERVAL
        };
        if !self.0.as_ref().is_some_and(stays) {
            let message = shorten_middle(message, MAX_FAILURE);
            self.0 = Some(ReportedFailure { parent: parent.clone(), category, message, at: now });
        }
    }

    /// How this parent failed; `None` where that is not known.
    pub fn of(&self, parent: &Key, category: &str) -> Option<&str> {
        let told = self.0.as_ref().filter(|told| told.parent == *parent && told.category == category)?;
        Some(&told.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn the_failure_of_another_parent_or_category_is_told_at_once() {
        let (mut first, a, b) = (FirstFailure::default(), Key::new("n", "a"), Key::new("n", "b"));
        assert_eq!(first.of(&a, "HookTrap"), None);
        first.note(&a, ("HookTrap", "one"), seconds(0));
        assert_eq!((first.of(&a, "HookTrap"), first.of(&a, "HookExit")), (Some("one"), None));
        assert_eq!(first.of(&b, "HookTrap"), None);
        first.note(&a, ("HookExit", "two"), seconds(0));
        assert_eq!(first.of(&a, "HookExit"), Some("two"));
        first.note(&b, ("HookExit", "three"), seconds(0));
        assert_eq!((first.of(&a, "HookExit"), first.of(&b, "HookExit")), (None, Some("three")));
    }

    #[test]
    fn words_that_change_all_the_time_are_told_now_and_then() {
        let (mut first, parent) = (FirstFailure::default(), Key::new("n", "a"));
        let mut told = |message: &str, at: Duration| {
            first.note(&parent, ("HookTrap", message), at);
            first.of(&parent, "HookTrap").unwrap().to_owned()
        };
        assert_eq!(told("at 1", seconds(1)), "at 1");
        assert_eq!(told("at 2", CHANGE_INTERVAL + Duration::from_nanos(999_999_999)), "at 1");
        assert_eq!(told("at 3", CHANGE_INTERVAL + seconds(1)), "at 3");
    }

    #[test]
    fn a_failure_is_remembered_up_to_its_bound() {
        let (mut first, parent) = (FirstFailure::default(), Key::new("n", "a"));
        for (length, kept) in [(MAX_FAILURE, MAX_FAILURE), (1 << 20, MAX_FAILURE)] {
            first.note(&parent, ("HookTrap", &"x".repeat(length)), seconds(length as u64));
            assert_eq!(first.of(&parent, "HookTrap").unwrap().len(), kept);
        }
    }
}
