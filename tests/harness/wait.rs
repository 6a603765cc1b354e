//! Waits for a condition, and says what it waited for and what it last saw when the wait runs out.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
pub use binaries::elapsed::elapsed;

/// Result of one look: the value that was waited for, or a text about what is there instead.
pub type Seen<T> = Result<T, String>;

/// Long enough for a busy machine with two cores; a test that passes never uses it up.
pub const PATIENCE: Duration = Duration::from_mins(3);

const INTERVAL: Duration = Duration::from_millis(100);

/// Looks again and again until the look gives what is waited for.
///
/// # Errors
/// At once if a look fails (it can never come true); after `limit` with `what` and what was last seen.
pub async fn until<T, F, L>(what: &str, limit: Duration, mut look: F) -> Result<T>
where
    F: FnMut() -> L,
    L: Future<Output = Result<Seen<T>>>,
{
    let start = Instant::now();
    loop {
        let last = match look().await? {
            Ok(found) => return Ok(found),
            Err(last) => last,
        };
        if start.elapsed() >= limit {
            bail!("waited {} for: {what}\nlast seen: {last}", elapsed(start));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_that_runs_out_says_what_for_and_what_was_last_seen() {
        let mut looks = 0;
        let waited = until("a third look", Duration::ZERO, || {
            looks += 1;
            async move { Ok(if looks == 3 { Ok(()) } else { Err(format!("look {looks}")) }) }
        })
        .await;
        let said = waited.unwrap_err().to_string();
        assert_eq!(said, "waited 0.0 s for: a third look\nlast seen: look 1");
    }

    #[tokio::test]
    async fn a_look_that_fails_ends_the_wait_at_once() {
        let waited: Result<()> = until("nothing", PATIENCE, || async { bail!("the process ended") }).await;
        assert_eq!(waited.unwrap_err().to_string(), "the process ended");
    }
}
