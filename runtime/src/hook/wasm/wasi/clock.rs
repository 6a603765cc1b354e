//! A hook's time: its own, not the server's, so that the same request takes the same course.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::hook::wasm::wasi::errno::Errno;

/// How far time goes on at each reading, and how fine the clocks are. Some: Go refuses a clock that says 0, and a
/// program that waits in a loop comes to an end. Little: a program that measures itself finds itself quick.
const STEP: u64 = 1000;

/// Go's time is an `i64`; beyond this a sleep takes no longer.
const END: u64 = i64::MAX as u64;

/// Nanoseconds.
type Nanos = u64;

/// The clocks of one call.
#[derive(Debug)]
pub(crate) struct Clock {
    /// When the call began.
    start: SystemTime,
    /// Since then, as the hook sees it.
    passed: Nanos,
    /// The hook knows what time it is.
    told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Realtime,
    /// Time since the call began. CPU time of process and thread are the same: nothing else takes time.
    Monotonic,
}

/// Until when a hook wants to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    After(Nanos),
    At(Nanos),
}

impl Kind {
    pub(super) fn of(number: u32) -> Result<Self, Errno> {
        match number {
            0 => Ok(Self::Realtime),
            1..=3 => Ok(Self::Monotonic),
            _ => Err(Errno::Inval),
        }
    }
}

impl Clock {
    pub(crate) fn new(start: SystemTime) -> Self {
        Self { start, passed: 0, told: false }
    }

    /// Whether the hook has seen anything of the time that the server has.
    pub(crate) fn told(&self) -> bool {
        self.told
    }

    pub(super) fn resolution() -> Nanos {
        STEP
    }

    pub(super) fn read(&mut self, kind: Kind) -> Nanos {
        self.pass(STEP);
        match kind {
            Kind::Monotonic => self.passed,
            Kind::Realtime => self.realtime(),
        }
    }

    /// Waiting takes no time of ours: it is over at once, and the hook's clocks say that it took place.
    pub(super) fn wait(&mut self, kind: Kind, until: Until) {
        let duration = match (until, kind) {
            (Until::After(duration), _) => duration,
            (Until::At(instant), Kind::Monotonic) => instant.saturating_sub(self.passed),
            (Until::At(instant), Kind::Realtime) => instant.saturating_sub(self.realtime()),
        };
        self.pass(duration);
    }

    fn pass(&mut self, duration: Nanos) {
        self.passed = self.passed.saturating_add(duration).min(END);
    }

    fn realtime(&mut self) -> Nanos {
        self.told = true;
        let start = self.start.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        u64::try_from(start).unwrap_or(END).saturating_add(self.passed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn clock() -> Clock {
        Clock::new(UNIX_EPOCH + Duration::from_secs(1_000_000))
    }

    #[test]
    fn the_monotonic_clock_starts_with_the_call_and_goes_on_at_each_reading() {
        let mut clock = clock();
        let read: Vec<_> = (0..3).map(|_| clock.read(Kind::Monotonic)).collect();
        assert_eq!(read, [1000, 2000, 3000]);
        assert!(!clock.told());
    }

    #[test]
    fn the_realtime_clock_is_the_start_of_the_call_and_what_passed_since() {
        let mut clock = clock();
        clock.wait(Kind::Realtime, Until::After(5_000_000_000));
        assert!(!clock.told(), "to wait is not to know the time");
        assert_eq!(clock.read(Kind::Realtime), 1_000_005_000_001_000);
        assert!(clock.told());
    }

    #[test]
    fn waiting_for_a_time_of_day_tells_what_time_it_is() {
        let mut clock = clock();
        clock.wait(Kind::Realtime, Until::At(1_000_007_000_000_000));
        assert!(clock.told());
        assert_eq!(clock.read(Kind::Monotonic), 7_000_001_000);
    }

    #[test]
    fn what_is_past_takes_no_waiting() {
        let mut clock = clock();
        clock.wait(Kind::Monotonic, Until::At(0));
        clock.wait(Kind::Realtime, Until::At(1));
        assert_eq!(clock.read(Kind::Monotonic), 1000);
    }

    #[test]
    fn time_comes_to_an_end_before_it_turns_negative_in_go() {
        let mut clock = clock();
        clock.wait(Kind::Monotonic, Until::After(u64::MAX));
        clock.wait(Kind::Monotonic, Until::After(u64::MAX));
        assert_eq!(clock.read(Kind::Monotonic), i64::MAX as u64);
        assert!(clock.read(Kind::Realtime) > i64::MAX as u64);
    }
}
