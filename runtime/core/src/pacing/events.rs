//! Which Events are written: repeated ones are counted, similar ones combined, floods cut.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Rate;
use crate::hash::{Fingerprint, Fingerprinter};

/// Most objects and reasons that are remembered.
const MAX_BUDGETS: usize = 10_000;
/// A message that has not been repeated for this long is written anew.
const REPEAT_TIMEOUT: Duration = Duration::from_mins(10);
/// Most Events that are remembered, to count them when they repeat.
const MAX_WRITTEN: usize = 10_000;
/// Events about one object with one reason that differ in their message: the others become one, as client-go does it.
const MAX_SIMILAR: usize = 10;
/// The message of an Event that stands for many, in client-go's words.
const COMBINED: &str = "(combined from similar events): ";

/// One Event to be.
#[derive(Debug, Clone, Copy)]
pub struct EventNote<'a> {
    /// Uid of the object.
    pub about: &'a str,
    pub kind: &'a str,
    pub reason: &'a str,
    /// A reason of the server's own, of which there are few; a hook makes up its own.
    pub is_ours: bool,
    pub message: &'a str,
}

/// How an Event is written.
#[derive(Debug, PartialEq, Eq)]
pub struct EventWrite<'a> {
    pub id: Fingerprint,
    pub message: Cow<'a, str>,
    /// Name of the Event that is counted once more, and its count so far.
    pub counts: Option<(String, u64)>,
}

/// Events written lately. Bounded by count and by time: nothing is remembered for longer than ten minutes. Times are those
/// since the memory was made.
#[derive(Debug)]
pub struct EventMemory {
    rate: Rate,
    written: BTreeMap<Fingerprint, Written>,
    similar: BTreeMap<Fingerprint, Similar>,
    budgets: BTreeMap<(String, String), Budget>,
    cleaned: Duration,
}

#[derive(Debug)]
struct Written {
    name: String,
    count: u64,
    last: Duration,
}

/// Messages about one object with one reason.
#[derive(Debug, Default)]
struct Similar {
    messages: BTreeSet<Fingerprint>,
    last: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Budget {
    left: f64,
    at: Duration,
}

impl EventNote<'_> {
    /// Each reason of the server has its own budget, so that a frequent one does not displace the others; all reasons of
    /// hooks share one.
    fn budget(&self) -> (String, String) {
        let reason = if self.is_ours { self.reason } else { "" };
        (self.about.to_owned(), reason.to_owned())
    }

    fn id(&self, message: &str) -> Fingerprint {
        let mut all = Fingerprinter::default();
        for part in [self.about, self.kind, self.reason, message] {
            all.add(part.as_bytes());
        }
        all.finish()
    }
}

impl Budget {
    fn left(self, now: Duration, rate: Rate) -> f64 {
        let refill = now.saturating_sub(self.at).as_secs_f64() * rate.per_second;
        (self.left + refill).min(f64::from(rate.burst))
    }
}

impl EventMemory {
    /// `rate`: of the Events about one object with one reason.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            written: BTreeMap::new(),
            similar: BTreeMap::new(),
            budgets: BTreeMap::new(),
            cleaned: Duration::ZERO,
        }
    }

    /// How the Event is written; `None` where its rate is used up.
    pub fn write<'a>(&mut self, note: &EventNote<'a>, now: Duration) -> Option<EventWrite<'a>> {
        self.forget(now);
        if !self.allows(note, now) {
            return None;
        }
        let one = note.id(note.message);
        let is_combined = self.is_one_too_many(note.id(""), one, now);
        let message = if is_combined {
            format!("{COMBINED}{}", note.message).into()
        } else {
            Cow::Borrowed(note.message)
        };
        let id = if is_combined { note.id(COMBINED) } else { one };
        let counts = self.written.get(&id).map(|written| (written.name.clone(), written.count));
        Some(EventWrite { id, message, counts })
    }

    /// The Event has this name and count now.
    pub fn wrote(&mut self, id: Fingerprint, name: String, count: u64, now: Duration) {
        if self.written.len() >= MAX_WRITTEN {
            let until = oldest_tenth(self.written.values().map(|written| written.last));
            self.written.retain(|_, written| until.is_none_or(|until| written.last > until));
        }
        self.written.insert(id, Written { name, count, last: now });
    }

    fn allows(&mut self, note: &EventNote<'_>, now: Duration) -> bool {
        let (whose, rate) = (note.budget(), self.rate);
        if !self.budgets.contains_key(&whose) && self.budgets.len() >= MAX_BUDGETS {
            let until = oldest_tenth(self.budgets.values().map(|budget| budget.at));
            self.budgets.retain(|_, budget| until.is_none_or(|until| budget.at > until));
        }
        let budget = self.budgets.entry(whose).or_insert(Budget { left: f64::from(rate.burst), at: now });
        *budget = Budget { left: budget.left(now, rate), at: now };
        let allowed = budget.left >= 1.0;
        if allowed {
            budget.left -= 1.0;
        }
        allowed
    }

    /// Whether `series` has as many messages already, and `one` is another one.
    fn is_one_too_many(&mut self, series: Fingerprint, one: Fingerprint, now: Duration) -> bool {
        if !self.similar.contains_key(&series) && self.similar.len() >= MAX_BUDGETS {
            let until = oldest_tenth(self.similar.values().map(|similar| similar.last));
            self.similar.retain(|_, similar| until.is_none_or(|until| similar.last > until));
        }
        let similar = self.similar.entry(series).or_default();
        if now.saturating_sub(similar.last) >= REPEAT_TIMEOUT {
            similar.messages.clear();
        }
        similar.last = now;
        if similar.messages.len() < MAX_SIMILAR {
            similar.messages.insert(one);
        }
        !similar.messages.contains(&one)
    }

    fn forget(&mut self, now: Duration) {
        if now.saturating_sub(self.cleaned) < REPEAT_TIMEOUT / 10 {
            return;
        }
        self.cleaned = now;
        let is_late = |last: Duration| now.saturating_sub(last) < REPEAT_TIMEOUT;
        self.written.retain(|_, written| is_late(written.last));
        self.similar.retain(|_, similar| is_late(similar.last));
        let rate = self.rate;
        self.budgets.retain(|_, budget| budget.left(now, rate) < f64::from(rate.burst));
    }
}

/// The end of the oldest tenth: so many are forgotten at once that it is rare.
fn oldest_tenth(times: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 10).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn note(about: &str) -> EventNote<'_> {
        EventNote { about, kind: "Warning", reason: "SyncError", is_ours: true, message: "m" }
    }

    /// A server that writes all that it may, with names that are numbers.
    fn write(memory: &mut EventMemory, note: EventNote<'_>, now: Duration) -> Option<(String, u64)> {
        let write = memory.write(&note, now)?;
        let (name, count) = write.counts.unwrap_or_else(|| (format!("{:?}", write.id), 0));
        memory.wrote(write.id, name, count + 1, now);
        Some((write.message.into_owned(), count + 1))
    }

    fn generous() -> EventMemory {
        EventMemory::new(Rate { per_second: 1000.0, burst: 1000 })
    }

    #[test]
    fn an_equal_event_is_counted() {
        let mut memory = generous();
        for count in 1..=20 {
            assert_eq!(write(&mut memory, note("a"), SECOND), Some(("m".to_owned(), count)));
        }
        for other in
            [note("b"), EventNote { reason: "R", ..note("a") }, EventNote { kind: "Normal", ..note("a") }]
        {
            assert_eq!(write(&mut memory, other, SECOND), Some(("m".to_owned(), 1)), "{other:?}");
        }
        assert_eq!(
            write(&mut memory, note("a"), SECOND + REPEAT_TIMEOUT),
            Some(("m".to_owned(), 1)),
            "later"
        );
    }

    #[test]
    fn more_than_ten_similar_events_are_combined() {
        let mut memory = generous();
        let texts: Vec<_> = (0..20).map(|nth| format!("failed {nth}")).collect();
        let similar = |nth: usize| EventNote { message: &texts[nth], ..note("a") };
        for (nth, text) in texts.iter().enumerate().take(10) {
            assert_eq!(write(&mut memory, similar(nth), SECOND), Some((text.clone(), 1)));
        }
        for nth in 10..20 {
            let combined = format!("(combined from similar events): failed {nth}");
            assert_eq!(
                write(&mut memory, similar(nth), SECOND),
                Some((combined, u64::try_from(nth).unwrap() - 9))
            );
        }
        assert_eq!(
            write(&mut memory, similar(3), SECOND),
            Some(("failed 3".to_owned(), 2)),
            "one that has its own"
        );
        let others = [EventNote { reason: "R", ..similar(15) }, EventNote { about: "b", ..similar(15) }];
        for other in others {
            assert_eq!(write(&mut memory, other, SECOND), Some(("failed 15".to_owned(), 1)), "{other:?}");
        }
        let later = SECOND + REPEAT_TIMEOUT;
        assert_eq!(
            write(&mut memory, similar(15), later),
            Some(("failed 15".to_owned(), 1)),
            "after ten minutes"
        );
    }

    #[test]
    fn similar_events_stay_combined_while_they_come() {
        let mut memory = generous();
        let mut last = None;
        for nth in 0..30_u64 {
            let text = nth.to_string();
            let similar = EventNote { message: &text, ..note("a") };
            last = write(&mut memory, similar, REPEAT_TIMEOUT / 2 * u32::try_from(nth).unwrap());
        }
        assert_eq!(last, Some(("(combined from similar events): 29".to_owned(), 20)));
    }

    #[test]
    fn a_flood_about_one_object_does_not_displace_others() {
        let mut memory = EventMemory::new(Rate::OF_EVENTS);
        let allowed = (0..100).filter(|_| memory.write(&note("a"), SECOND).is_some()).count();
        assert_eq!(allowed, 25);
        assert!(memory.write(&note("b"), SECOND).is_some());
        let later = SECOND + Duration::from_mins(5);
        assert!(memory.write(&note("a"), later).is_some());
        assert!(memory.write(&note("a"), later).is_none());
    }

    #[test]
    fn the_rate_and_the_burst_are_those_of_the_flags() {
        let mut memory = EventMemory::new(Rate { per_second: 2.0, burst: 3 });
        let mut allowed = |now| (0..100).filter(|_| memory.write(&note("a"), now).is_some()).count();
        assert_eq!(allowed(SECOND), 3);
        assert_eq!(allowed(2 * SECOND), 2);
        assert_eq!(allowed(60 * SECOND), 3, "never more than the burst");
    }

    #[test]
    fn frequent_reasons_and_those_of_hooks_leave_errors_alone() {
        let mut memory = EventMemory::new(Rate::OF_EVENTS);
        for _ in 0..100 {
            memory.write(&EventNote { is_ours: false, ..note("a") }, SECOND);
            memory.write(&EventNote { reason: "UnmanagedChild", ..note("a") }, SECOND);
        }
        assert!(memory.write(&note("a"), SECOND).is_some());
        let texts: Vec<_> = (0..100).map(|nth| format!("Reason{nth}")).collect();
        let made_up = |reason| EventNote { reason, is_ours: false, ..note("b") };
        let allowed = texts.iter().filter(|reason| memory.write(&made_up(reason), SECOND).is_some()).count();
        assert_eq!(allowed, 25, "of all reasons that a hook makes up");
        assert!(memory.write(&note("b"), SECOND).is_some());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut memory = EventMemory::new(Rate::OF_EVENTS);
        for number in 0..=u32::try_from(MAX_BUDGETS.max(MAX_WRITTEN)).unwrap() {
            let (about, now) = (number.to_string(), Duration::from_nanos(number.into()));
            assert_eq!(write(&mut memory, note(&about), now), Some(("m".to_owned(), 1)));
        }
        assert!(memory.budgets.len() <= MAX_BUDGETS, "{}", memory.budgets.len());
        assert!(memory.similar.len() <= MAX_BUDGETS, "{}", memory.similar.len());
        assert!(memory.written.len() <= MAX_WRITTEN, "{}", memory.written.len());
        let later = Duration::from_mins(6);
        memory.forget(later);
        assert!(memory.budgets.is_empty(), "a full budget costs nothing");
        memory.forget(later + REPEAT_TIMEOUT);
        assert!(memory.similar.is_empty() && memory.written.is_empty());
    }
}
