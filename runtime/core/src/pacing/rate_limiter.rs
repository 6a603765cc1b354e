//! Rate limiter of requests: a token bucket with client-go's settings.

use std::time::Duration;

/// A limit: a burst at once, then a number of requests per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    per_second: f64,
    burst: u32,
}

/// What is left of a rate. Times are those since the bucket was made.
#[derive(Debug)]
pub struct RateLimiter {
    rate: Rate,
    /// Below zero where requests wait.
    tokens: f64,
    last: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    #[error("write a number of requests in a second, such as 20 or 0.5; a number below 0 is no limit")]
    PerSecond,
    #[error("write a number of requests from 1 on")]
    Burst,
}

impl Rate {
    /// What client-go assumes where one of the two is left out.
    const USUAL: Self = Self { per_second: 5.0, burst: 10 };

    /// As client-go reads its settings: without both there is no limit here, below 0 there is none, and 0 is the usual.
    pub fn of(per_second: Option<f64>, burst: Option<u32>) -> Result<Option<Self>, RateError> {
        if per_second.is_none() && burst.is_none() {
            return Ok(None);
        }
        let per_second = per_second.unwrap_or_default();
        let burst = burst.unwrap_or(Self::USUAL.burst);
        if !per_second.is_finite() {
            return Err(RateError::PerSecond);
        }
        if burst == 0 {
            return Err(RateError::Burst);
        }
        if per_second < 0.0 {
            return Ok(None);
        }
        let per_second = if per_second > 0.0 { per_second } else { Self::USUAL.per_second };
        Ok(Some(Self { per_second, burst }))
    }
}

impl RateLimiter {
    pub fn new(rate: Rate) -> Self {
        Self { rate, tokens: f64::from(rate.burst), last: Duration::ZERO }
    }

    /// Takes a token and returns how long the request waits.
    pub fn take(&mut self, now: Duration) -> Duration {
        let since = now.saturating_sub(self.last).as_secs_f64();
        self.last = self.last.max(now);
        self.tokens = (self.tokens + since * self.rate.per_second).min(f64::from(self.rate.burst)) - 1.0;
        let missing = (-self.tokens).max(0.0) / self.rate.per_second;
        Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(bucket: &mut RateLimiter, now: u64, times: usize) -> Vec<u128> {
        (0..times).map(|_| bucket.take(Duration::from_millis(now)).as_millis()).collect()
    }

    #[test]
    fn a_burst_waits_for_nothing_and_the_rest_in_turn() {
        let rate = Rate::of(Some(10.0), Some(3)).unwrap().unwrap();
        let mut bucket = RateLimiter::new(rate);
        assert_eq!(waits(&mut bucket, 0, 5), [0, 0, 0, 100, 200]);
        assert_eq!(waits(&mut bucket, 200, 1), [100], "those before it are still waiting");
        assert_eq!(waits(&mut bucket, 10_000, 4), [0, 0, 0, 100], "never more at once than the burst");
        assert_eq!(waits(&mut bucket, 9_000, 1), [200], "time that goes back gives nothing");
    }

    #[test]
    fn what_is_left_out_is_as_usual_and_nothing_given_is_no_limit() {
        assert_eq!(Rate::of(None, None), Ok(None));
        assert_eq!(Rate::of(Some(-1.0), Some(7)), Ok(None));
        assert_eq!(Rate::of(Some(20.0), None), Ok(Some(Rate { per_second: 20.0, burst: 10 })));
        assert_eq!(Rate::of(None, Some(7)), Ok(Some(Rate { per_second: 5.0, burst: 7 })));
        assert_eq!(Rate::of(Some(0.0), Some(7)), Ok(Some(Rate { per_second: 5.0, burst: 7 })));
        assert_eq!(Rate::of(Some(f64::NAN), None), Err(RateError::PerSecond));
        assert_eq!(Rate::of(Some(1.0), Some(0)), Err(RateError::Burst));
    }

    #[test]
    fn a_rate_next_to_nothing_waits_as_long_as_there_is_time() {
        let mut bucket = RateLimiter::new(Rate::of(Some(f64::MIN_POSITIVE), Some(1)).unwrap().unwrap());
        assert_eq!(
            (bucket.take(Duration::ZERO), bucket.take(Duration::ZERO)),
            (Duration::ZERO, Duration::MAX)
        );
    }
}
