//! Delay that a busy server, a webhook or the API server, asks for with `Retry-After`.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// Sooner would be a hot loop.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// A longer delay is not believed: of the API server, on which everything waits, and of a webhook, on which its own parents
/// wait.
pub(crate) const MAX_API_DELAY: Duration = Duration::from_mins(2);
pub(crate) const MAX_WEBHOOK_DELAY: Duration = Duration::from_hours(1);

/// How long a server that answers like this wants to be left alone, if it does; at most `longest`.
pub(crate) fn busy(status: StatusCode, headers: &HeaderMap, longest: Duration) -> Option<Duration> {
    let later = headers.get(RETRY_AFTER);
    let busy = status == StatusCode::TOO_MANY_REQUESTS
        || (status == StatusCode::SERVICE_UNAVAILABLE && later.is_some());
    let delay = || retry_after(later.and_then(|value| value.to_str().ok()), Timestamp::now());
    busy.then(|| delay().clamp(MIN_DELAY, longest))
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
    Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(header: Option<&str>) -> u64 {
        let now: Timestamp = "2026-11-21T08:00:00.25Z".parse().unwrap();
        retry_after(header, now).clamp(MIN_DELAY, MAX_WEBHOOK_DELAY).as_secs()
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
    fn what_asks_for_ages_is_not_believed() {
        for header in ["3601", "1000000000", "18446744073709551615", "Thu, 31 Dec 9998 00:00:00 GMT"] {
            assert_eq!(seconds(Some(header)), 3600, "{header}");
            let headers = [(RETRY_AFTER, header.parse().unwrap())].into_iter().collect();
            let delay = busy(StatusCode::TOO_MANY_REQUESTS, &headers, MAX_API_DELAY);
            assert_eq!(delay, Some(MAX_API_DELAY), "{header}");
        }
        assert_eq!(seconds(Some("3600")), 3600);
    }
}
