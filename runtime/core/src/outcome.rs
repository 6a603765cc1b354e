//! How a pass that ended goes on: when the parent is looked at again, and what is said about it.

use std::time::Duration;

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Something was written, so the parent is to be looked at again with what came of it.
    pub wrote: bool,
    /// The hook asked to be called again.
    pub resync_after: Option<Duration>,
}

/// Why a pass failed, for the queue and for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One word, for metrics and for the controller's status.
    pub category: &'static str,
    pub message: String,
    /// Somebody else was faster: try again without a word.
    pub quiet: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Wait for the next change, or for the time the hook asked for.
    Done { again: Option<Duration> },
    /// Try again after a delay; with an Event unless it is quiet.
    Failed { again: Duration, event: Option<String> },
}

/// `failures`: how often this parent failed in a row before; `own`: how many passes in a row it caused itself.
pub fn of(result: Result<Done, Failure>, failures: u32, own: u32) -> Outcome {
    match result {
        Ok(Done {
            wrote: true,
            resync_after,
        }) => {
            let soon = pace(own);
            Outcome::Done {
                again: Some(resync_after.map_or(soon, |asked| asked.min(soon))),
            }
        }
        Ok(Done {
            wrote: false,
            resync_after,
        }) => Outcome::Done { again: resync_after },
        Err(failure) => {
            let event = (!failure.quiet).then(|| format!("Sync error: {}", failure.message));
            Outcome::Failed {
                again: backoff(failures),
                event,
            }
        }
    }
}

/// Passes that a parent causes itself run at once ten times, then slower and slower: a hook whose answer never
/// comes to rest cannot heat the cluster.
fn pace(own: u32) -> Duration {
    match own.checked_sub(10) {
        None => Duration::ZERO,
        Some(beyond) => doubled(Duration::from_millis(100), beyond, Duration::from_secs(30)),
    }
}

/// 5 ms, doubled by each failure in a row, at most 1,000 s: the delays of client-go's queues.
fn backoff(failures: u32) -> Duration {
    doubled(Duration::from_millis(5), failures, Duration::from_secs(1000))
}

fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    first
        .saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX))
        .min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_with_nothing_to_write_waits() {
        let resync_after = Some(Duration::from_secs(7));
        assert_eq!(of(Ok(Done::default()), 0, 0), Outcome::Done { again: None });
        assert_eq!(
            of(
                Ok(Done {
                    wrote: false,
                    resync_after
                }),
                0,
                0
            ),
            Outcome::Done { again: resync_after }
        );
    }

    #[test]
    fn own_writes_are_followed_up_at_once_and_then_slower() {
        let again = |own| match of(
            Ok(Done {
                wrote: true,
                resync_after: None,
            }),
            0,
            own,
        ) {
            Outcome::Done { again } => again.unwrap(),
            Outcome::Failed { .. } => panic!(),
        };
        assert_eq!(again(0), Duration::ZERO);
        assert_eq!(again(9), Duration::ZERO);
        assert_eq!(again(10), Duration::from_millis(100));
        assert_eq!(again(12), Duration::from_millis(400));
        assert_eq!(again(u32::MAX), Duration::from_secs(30));
    }

    #[test]
    fn failures_back_off_up_to_a_cap_and_say_why_unless_quiet() {
        let failure = |quiet| Failure {
            category: "Hook",
            message: "it trapped".into(),
            quiet,
        };
        let loud = Outcome::Failed {
            again: Duration::from_millis(40),
            event: Some("Sync error: it trapped".into()),
        };
        assert_eq!(of(Err(failure(false)), 3, 0), loud);
        let quiet = Outcome::Failed {
            again: Duration::from_secs(1000),
            event: None,
        };
        assert_eq!(of(Err(failure(true)), 40, 0), quiet);
    }
}
