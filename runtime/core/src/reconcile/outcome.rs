//! Outcome of a reconcile: when the parent is reconciled again, and which Event and log line it gets.
//!
//! Reconciles that a parent's own writes cause run at once ten times, then slower and slower, up to 30 s. That ends when a
//! reconcile writes nothing, or when another client changes something. Neither time nor the writes of this server's other
//! reconciles shorten it: hooks that never rest would keep each other going.

use std::time::Duration;

/// Why a pass failed, for the queue and for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One word, for metrics and for the controller's status.
    pub category: &'static str,
    pub message: String,
    pub retry: Retry,
}

/// How a failed pass is taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// After a delay that grows, with an Event.
    Loud,
    /// Somebody else was faster: after a delay that grows, without a word.
    Quiet,
    /// The hook asked to be called later: that is no failure.
    After(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was written: wait for the next change, or for the time the hook asked for.
    Settled { again: Option<Duration> },
    /// Something was written: look at what came of it.
    FollowUp { again: Duration },
    /// Try again after a delay; with an Event unless it is quiet.
    Failed { again: Duration, event: Option<String> },
    /// Look again at that time; neither a success nor a failure.
    Postponed { again: Duration },
}

/// What a pass came to: whether something was written, or why it failed; and when the hook asked to be called again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciled {
    pub wrote: Result<bool, Failure>,
    pub resync_after: Option<Duration>,
}

/// `failures`: how often this parent failed in a row before; `own`: how many passes in a row it caused itself.
pub fn of(Reconciled { wrote, resync_after }: Reconciled, failures: u32, own: u32) -> Outcome {
    let sooner = |soon: Duration| resync_after.map_or(soon, |asked| asked.min(soon));
    match wrote {
        Ok(true) => Outcome::FollowUp { again: sooner(pace(own)) },
        Ok(false) => Outcome::Settled { again: resync_after },
        Err(Failure { retry: Retry::After(again), .. }) => Outcome::Postponed { again },
        Err(failure) => {
            let event = (failure.retry == Retry::Loud).then(|| format!("Sync error: {}", failure.message));
            Outcome::Failed { again: sooner(backoff(failures)), event }
        }
    }
}

/// Whether a parent that woke itself so often is made to wait.
pub fn is_held(own: u32) -> bool {
    !pace(own).is_zero()
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
    first.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(wrote: Result<bool, Failure>) -> Reconciled {
        Reconciled { wrote, resync_after: None }
    }

    #[test]
    fn a_pass_with_nothing_to_write_waits() {
        let resync_after = Some(Duration::from_secs(7));
        assert_eq!(of(passed(Ok(false)), 0, 0), Outcome::Settled { again: None });
        assert_eq!(
            of(Reconciled { wrote: Ok(false), resync_after }, 0, 0),
            Outcome::Settled { again: resync_after }
        );
    }

    #[test]
    fn own_writes_are_followed_up_at_once_and_then_slower() {
        for (own, millis) in [(0, 0), (9, 0), (10, 100), (12, 400), (u32::MAX, 30_000)] {
            let again = Duration::from_millis(millis);
            assert_eq!(of(passed(Ok(true)), 0, own), Outcome::FollowUp { again });
        }
    }

    #[test]
    fn failures_back_off_up_to_a_cap_and_say_why_unless_quiet() {
        let failure = |retry| Err(Failure { category: "Hook", message: "it trapped".into(), retry });
        let loud = Outcome::Failed {
            again: Duration::from_millis(40),
            event: Some("Sync error: it trapped".into()),
        };
        assert_eq!(of(passed(failure(Retry::Loud)), 3, 0), loud);
        let quiet = Outcome::Failed { again: Duration::from_secs(1000), event: None };
        assert_eq!(of(passed(failure(Retry::Quiet)), 40, 0), quiet);
    }

    #[test]
    fn a_failure_does_not_forget_when_the_hook_wanted_to_be_called() {
        let failure = Err(Failure { category: "Write", message: String::new(), retry: Retry::Quiet });
        let passed = Reconciled { wrote: failure, resync_after: Some(Duration::from_secs(3)) };
        assert_eq!(of(passed, 40, 0), Outcome::Failed { again: Duration::from_secs(3), event: None });
    }

    #[test]
    fn a_hook_that_asks_for_time_gets_it_whatever_happened_before() {
        let again = Duration::from_secs(20);
        let busy = Err(Failure { category: "Busy", message: String::new(), retry: Retry::After(again) });
        assert_eq!(of(passed(busy), 40, 40), Outcome::Postponed { again });
    }
}
