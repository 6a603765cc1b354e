//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time of this call, in whole seconds, as Kubernetes writes times: `2026-01-31T23:59:58Z`.
///
/// # What it costs
/// The answer of a hook that asks for the time does not follow from the request alone. So the parent is not settled after
/// such a call: the server calls the hook again at the next trigger. When that call does not ask for the time, the parent
/// can settle. The server calls a hook that asks in every call at every trigger. A hook that asks only when something
/// changes, as [`Conditions`](crate::Conditions) do, costs one more call.
///
/// ```
/// let now = metahook_sdk::now();
/// assert_eq!((now.len(), &now[10..11], &now[19..]), (20, "T", "Z"));
/// ```
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    written(since.as_secs())
}

/// Seconds since 1970, by the calendar.
fn written(seconds: u64) -> String {
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (day, hour, minute, second) = (days + 1, second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_by_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (86_399, "1970-01-01T23:59:59Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(written(seconds), text);
        }
    }
}
