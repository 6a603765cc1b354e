//! Durations as people read them.

use std::time::{Duration, Instant};

/// The time since `start` as people read it: `0.4 s`, `12 s`, `3 min 05 s`.
pub fn elapsed(start: Instant) -> String {
    readable(start.elapsed())
}

/// A duration as people read it.
pub fn readable(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_in_the_unit_that_fits() {
        let printed: Vec<String> =
            [450, 12_900, 185_000].map(|ms| readable(Duration::from_millis(ms))).into();
        assert_eq!(printed, ["0.5 s", "12 s", "3 min 05 s"]);
    }
}
