//! Clocks of a hook: virtual time, so that the same request takes the same course.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::hook::wasm::wasi::errno::Errno;

/// Nanoseconds that pass at each reading, which are also the clocks' resolution: more than none, since Go refuses a clock
/// at 0 and a program that waits in a loop has to end; few, so that a program that measures itself finds itself quick.
const STEP: u64 = 1000;

/// The last time of the clocks: Go's time is an `i64`.
const MAX_TIME: u64 = i64::MAX as u64;

/// Nanoseconds.
type Nanos = u64;

/// The clocks of one call.
#[derive(Debug)]
pub(in crate::hook::wasm) struct Clock {
    /// The server's time when the call began.
    start: SystemTime,
    /// The time since then, as the hook sees it.
    passed: Nanos,
    /// The hook has read the realtime clock.
    realtime_read: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Realtime,
    /// Time since the call began. CPU time of process and thread are the same: nothing else takes time.
    Monotonic,
}

/// The end of a wait.
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
    pub(in crate::hook::wasm) fn new(start: SystemTime) -> Self {
        Self { start, passed: 0, realtime_read: false }
    }

    /// Whether the hook has seen the server's time.
    pub(in crate::hook::wasm) fn realtime_was_read(&self) -> bool {
        self.realtime_read
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

    /// A wait is over at once: only the hook's clocks go on.
    pub(super) fn wait(&mut self, kind: Kind, until: Until) {
        let duration = match (until, kind) {
            (Until::After(duration), _) => duration,
            (Until::At(instant), Kind::Monotonic) => instant.saturating_sub(self.passed),
            (Until::At(instant), Kind::Realtime) => instant.saturating_sub(self.realtime()),
        };
        self.pass(duration);
    }

    fn pass(&mut self, duration: Nanos) {
        self.passed = self.passed.saturating_add(duration).min(MAX_TIME);
    }

    fn realtime(&mut self) -> Nanos {
        self.realtime_read = true;
        let start = self.start.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        u64::try_from(start).unwrap_or(MAX_TIME).saturating_add(self.passed)
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
    fn the_monotonic_clock_starts_with_the_call_and_ticks_per_read() {
        let mut clock = clock();
        let read: Vec<_> = (0..3).map(|_| clock.read(Kind::Monotonic)).collect();
        assert_eq!(read, [1000, 2000, 3000]);
        assert!(!clock.realtime_was_read());
    }

    #[test]
    fn the_realtime_clock_starts_at_the_call_s_time() {
        let mut clock = clock();
        clock.wait(Kind::Realtime, Until::After(5_000_000_000));
        assert!(!clock.realtime_was_read(), "a wait for a duration does not show the time");
        assert_eq!(clock.read(Kind::Realtime), 1_000_005_000_001_000);
        assert!(clock.realtime_was_read());
    }

    #[test]
    fn waiting_for_a_time_of_day_reads_the_realtime_clock() {
        let mut clock = clock();
        clock.wait(Kind::Realtime, Until::At(1_000_007_000_000_000));
        assert!(clock.realtime_was_read());
        assert_eq!(clock.read(Kind::Monotonic), 7_000_001_000);
    }

    #[test]
    fn a_time_in_the_past_takes_no_waiting() {
        let mut clock = clock();
        clock.wait(Kind::Monotonic, Until::At(0));
        clock.wait(Kind::Realtime, Until::At(1));
        assert_eq!(clock.read(Kind::Monotonic), 1000);
    }

    #[test]
    fn time_ends_before_it_is_negative_in_go() {
        let mut clock = clock();
        clock.wait(Kind::Monotonic, Until::After(u64::MAX));
        clock.wait(Kind::Monotonic, Until::After(u64::MAX));
        assert_eq!(clock.read(Kind::Monotonic), i64::MAX as u64);
        assert!(clock.read(Kind::Realtime) > i64::MAX as u64);
    }
}
