//! Limit of heavy work: what keeps a core busy for long takes a quarter of the cores at most, so that others go on.

use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes whose reading and comparing is heavy work: some milliseconds.
const HEAVY: usize = 1 << 20;

/// Work that pays for less rest than this goes on: timers have no finer steps.
const MIN_REST: Duration = Duration::from_millis(2);

/// Limits the heavy work of all reconciles of the server.
#[derive(Clone)]
pub(crate) struct HeavyWorkLimiter {
    free: Arc<Semaphore>,
    /// Turns for the matching of changes with rules, which would keep reconciles waiting.
    matching: Arc<Semaphore>,
    /// Rest after work, as a multiple of it.
    rest: u32,
}

/// A turn of a reconcile; ends when dropped.
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
    rest: u32,
    worked: Duration,
    since: Instant,
}

impl Default for HeavyWorkLimiter {
    fn default() -> Self {
        Self::of(std::thread::available_parallelism().map_or(1, NonZero::get))
    }
}

impl HeavyWorkLimiter {
    /// A quarter of these cores: less than one of them by resting in between.
    fn of(cores: usize) -> Self {
        let rest = match cores {
            0 | 1 => 3,
            2 | 3 => 1,
            _ => 0,
        };
        let turns = || Arc::new(Semaphore::new((cores / 4).max(1)));
        Self { free: turns(), matching: turns(), rest }
    }

    /// Waits for a turn; `None` only where the server ends.
    pub(crate) async fn take(&self) -> Option<Turn> {
        self.take_of(&self.free).await
    }

    /// Waits for a turn to match rules, apart from the turns of reconciles.
    pub(crate) async fn take_for_matching(&self) -> Option<Turn> {
        self.take_of(&self.matching).await
    }

    async fn take_of(&self, free: &Arc<Semaphore>) -> Option<Turn> {
        let permit = Arc::clone(free).acquire_owned().await.ok()?;
        Some(Turn { _permit: permit, rest: self.rest, worked: Duration::ZERO, since: Instant::now() })
    }

    /// Works on so many bytes: many wait for a turn, and then leave other tasks of this thread to another one.
    pub(crate) async fn work<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        if bytes < HEAVY {
            return work();
        }
        let turn = self.take().await;
        let done = match Handle::current().runtime_flavor() {
            RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
            _ => work(),
        };
        if let Some(mut turn) = turn {
            // Whoever had the turn goes on.
            tokio::spawn(async move { turn.pause().await });
        }
        done
    }
}

impl Turn {
    /// Lets others work, and rests where enough was done since the last time.
    pub(crate) async fn pause(&mut self) {
        self.worked += self.since.elapsed();
        if self.worked * self.rest >= MIN_REST {
            tokio::time::sleep(self.worked * self.rest).await;
            self.worked = Duration::ZERO;
        } else {
            tokio::task::yield_now().await;
        }
        self.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_work_takes_a_quarter_of_the_cores() {
        for (cores, turns, rest) in [(1, 1, 3), (2, 1, 1), (4, 1, 0), (7, 1, 0), (8, 2, 0), (64, 16, 0)] {
            let all = HeavyWorkLimiter::of(cores);
            assert_eq!((all.free.available_permits(), all.rest), (turns, rest), "{cores} cores");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_after_its_rest() {
        let limiter = HeavyWorkLimiter::of(1);
        let busy = || std::thread::sleep(Duration::from_millis(3));
        limiter.work(HEAVY - 1, busy).await;
        assert_eq!(limiter.free.available_permits(), 1, "nobody waits for little work");
        limiter.work(HEAVY, busy).await;
        assert_eq!(limiter.free.available_permits(), 0);
        let before = tokio::time::Instant::now();
        let next = limiter.take().await.unwrap();
        assert!(before.elapsed() >= Duration::from_millis(9), "{:?}", before.elapsed());
        drop(next);
        assert_eq!(limiter.free.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_rests_where_it_worked_enough() {
        let mut turn = HeavyWorkLimiter::of(2).take().await.unwrap();
        let before = tokio::time::Instant::now();
        turn.pause().await;
        assert_eq!(before.elapsed(), Duration::ZERO);
        std::thread::sleep(MIN_REST);
        turn.pause().await;
        assert!(before.elapsed() >= MIN_REST);
    }
}
