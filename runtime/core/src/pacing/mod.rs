//! Delays: the rate limiter of requests, and the spreading of resyncs.

pub mod rate_limiter;
pub mod resync;
