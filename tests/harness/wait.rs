//! Waits for a condition, and says what it waited for and what it last saw when the wait runs out.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// What one look gave: what was waited for, or what is there instead.
pub type Seen<T> = Result<T, String>;

/// Long enough for a busy machine with two cores; a test that passes never uses it up.
pub const PATIENCE: Duration = Duration::from_mins(1);

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

/// The time since `start` as people say it: `0.4 s`, `12 s`, `3 min 05 s`.
pub fn elapsed(start: Instant) -> String {
    spoken(start.elapsed())
}

/// A duration as people say it.
pub fn spoken(duration: Duration) -> String {
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

    #[test]
    fn durations_are_spoken_in_the_unit_that_fits() {
        let said: Vec<String> = [450, 12_900, 185_000].map(|ms| spoken(Duration::from_millis(ms))).into();
        assert_eq!(said, ["0.5 s", "12 s", "3 min 05 s"]);
    }
}
