//! Delay that a busy server, a webhook or the API server, asks for with `Retry-After`.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// Sooner would be a hot loop.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// A longer delay means never.
const MAX_DELAY: Duration = Duration::from_hours(24 * 365);

/// How long a server that answers like this wants to be left alone, if it does.
pub(crate) fn busy(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let later = headers.get(RETRY_AFTER);
    let busy = status == StatusCode::TOO_MANY_REQUESTS
        || (status == StatusCode::SERVICE_UNAVAILABLE && later.is_some());
    busy.then(|| retry_after(later.and_then(|value| value.to_str().ok()), Timestamp::now()))
}

/// Reads `Retry-After`: a date, rounded up to whole seconds from now, or a number of seconds. What says neither, or
/// nothing that lies ahead, means soon.
fn retry_after(header: Option<&str>, now: Timestamp) -> Duration {
    let text = header.unwrap_or_default().trim();
    let seconds = match rfc2822::parse(text) {
        Ok(date) => {
            let nanos = date.timestamp().as_nanosecond().saturating_sub(now.as_nanosecond());
            u64::try_from(nanos.max(0).unsigned_abs().div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
        }
        Err(_) => text.parse().unwrap_or_default(),
    };
    Duration::from_secs(seconds).clamp(MIN_DELAY, MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(header: Option<&str>) -> u64 {
        let now: Timestamp = "2026-11-21T08:00:00.25Z".parse().unwrap();
        retry_after(header, now).as_secs()
    }

    #[test]
    fn a_number_is_seconds_and_a_date_is_rounded_up() {
        assert_eq!(seconds(Some("7")), 7);
        assert_eq!(seconds(Some(" 120 ")), 120);
        assert_eq!(seconds(Some("Sat, 21 Nov 2026 08:00:05 GMT")), 5);
        assert_eq!(seconds(Some("Sat, 21 Nov 2026 09:00:00 UTC")), 3600);
    }

    #[test]
    fn what_does_not_lie_ahead_is_soon() {
        for header in [
            None,
            Some(""),
            Some("0"),
            Some("-5"),
            Some("soon"),
            Some("1.5"),
            Some("99999999999999999999999"),
            Some("Sat, 21 Nov 2026 08:00:00 GMT"),
            Some("Sat, 21 Nov 2015 08:00:00 GMT"),
        ] {
            assert_eq!(seconds(header), 1, "{header:?}");
        }
    }

    #[test]
    fn what_asks_for_ages_means_never() {
        assert_eq!(seconds(Some("18446744073709551615")), MAX_DELAY.as_secs());
        assert_eq!(seconds(Some("Thu, 31 Dec 9998 00:00:00 GMT")), MAX_DELAY.as_secs());
    }
}
