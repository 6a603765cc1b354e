//! Clock of a leader election: a machine that was suspended goes on later than the others think.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// For how long the machine was suspended since it started. The clock of timers does not count this.
pub(super) fn suspended() -> Duration {
    // Read first: never less than the true time.
    let awake = of(clock_gettime(ClockId::Monotonic));
    of(clock_gettime(ClockId::Boottime)).saturating_sub(awake)
}

fn of(time: Timespec) -> Duration {
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_awake_is_not_suspended() {
        let before = suspended();
        std::thread::sleep(Duration::from_millis(20));
        assert!(suspended().abs_diff(before) < Duration::from_millis(10));
    }
}
