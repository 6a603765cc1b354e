//! Breaks of a watch: whether it fails now, though a watch that is taken up again says nothing as long as nothing changes.

use std::time::Duration;

use crate::cache::CacheEvent;

/// A watch that breaks so often in a row fails; others are taken up again before a user could read of it.
pub const MAX_BREAKS: u32 = 3;

/// A watch that has not broken for this long, which is longer than the longest pause between two tries and the time of an
/// unanswered one, is whole again.
pub const BREAK_TIMEOUT: Duration = Duration::from_mins(2);

/// Breaks of one watch since its last event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchBreaks {
    /// All objects were listed, and the watch began after that list.
    listed: bool,
    in_a_row: u32,
    last: Duration,
}

impl WatchBreaks {
    pub fn came(&mut self, event: &CacheEvent) {
        match event {
            // A watch that broke and is listed anew is no list that fails.
            CacheEvent::ListBegins if self.listed && self.in_a_row < MAX_BREAKS => *self = Self::default(),
            CacheEvent::ListBegins => self.listed = false,
            CacheEvent::ListEnds => *self = Self { listed: true, ..Self::default() },
            // Of a list that fails half-way there are objects, too.
            CacheEvent::Applied(_) | CacheEvent::Deleted(_) if self.listed => self.in_a_row = 0,
            _ => {}
        }
    }

    pub fn broke(&mut self, now: Duration) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.last = now;
    }

    /// There was none since the last event.
    pub fn is_none(&self) -> bool {
        self.in_a_row == 0
    }

    /// The server cannot list the objects, or cannot watch them. A list fails with its first break: until it ends, the server knows
    /// nothing of the objects.
    pub fn is_broken(&self, now: Duration) -> bool {
        if self.listed {
            self.in_a_row >= MAX_BREAKS && now.saturating_sub(self.last) < BREAK_TIMEOUT
        } else {
            self.in_a_row > 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_mins(5);

    #[test]
    fn a_list_that_fails_is_broken_until_it_ends() {
        let (mut breaks, now) = (WatchBreaks::default(), Duration::ZERO);
        breaks.came(&CacheEvent::ListBegins);
        assert!(!breaks.is_broken(now), "it is under way");
        breaks.broke(now);
        breaks.came(&CacheEvent::ListBegins);
        assert!(breaks.is_broken(now) && breaks.is_broken(LATER), "nothing is known yet");
        breaks.came(&CacheEvent::ListEnds);
        assert!(!breaks.is_broken(now) && breaks.is_none());
    }

    #[test]
    fn a_watch_that_breaks_now_and_then_is_whole() {
        let (mut breaks, now) = (WatchBreaks::default(), Duration::ZERO);
        breaks.came(&CacheEvent::ListEnds);
        breaks.broke(now);
        breaks.broke(now);
        assert!(!breaks.is_broken(now) && !breaks.is_none());
        let listed_anew = {
            let mut one = breaks;
            one.came(&CacheEvent::ListBegins);
            one
        };
        assert!(!listed_anew.is_broken(now), "nothing has failed since");
        breaks.broke(now);
        assert!(breaks.is_broken(now));
        assert!(!breaks.is_broken(LATER), "it was taken up again, and nothing has changed");
        breaks.broke(LATER);
        assert!(breaks.is_broken(LATER));
        breaks.came(&CacheEvent::ListBegins);
        assert!(breaks.is_broken(LATER), "and the list has not ended");
    }
}
