//! Clock of a leader election: a machine that was suspended goes on later than the others think.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// For how long the machine was suspended since it started. The clock of timers does not count this.
pub(super) fn suspended() -> Duration {
    // Read first: never less than the true time.
    let awake = of(clock_gettime(ClockId::Monotonic));
    since_boot().saturating_sub(awake)
}

#[cfg(not(test))]
fn since_boot() -> Duration {
    of(clock_gettime(ClockId::Boottime))
}

#[cfg(test)]
fn since_boot() -> Duration {
    of(clock_gettime(ClockId::Boottime)) + testing::SUSPENDED.get()
}

fn of(time: Timespec) -> Duration {
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), nanos)
}

#[cfg(test)]
pub(super) mod testing {
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        pub(super) static SUSPENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// For this thread the machine was suspended for so long, right now.
    pub(in crate::cluster) fn suspend(time: Duration) {
        SUSPENDED.set(SUSPENDED.get() + time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_suspension_counts_and_that_of_a_sleep_does_not() {
        let before = suspended();
        std::thread::sleep(Duration::from_millis(20));
        assert!(suspended().abs_diff(before) < Duration::from_millis(10));
        testing::suspend(Duration::from_secs(3));
        let time = suspended().saturating_sub(before);
        assert!(time.abs_diff(Duration::from_secs(3)) < Duration::from_millis(10), "{time:?}");
    }
}
