//! Threads of hooks: what a call does there keeps nothing else of the server waiting.
//!
//! A short call costs least where it was asked for: handing it to another thread and back takes a tenth of a millisecond, longer
//! than most hooks run. So a module earns its first milliseconds there by calls that gave way in time, and loses them by one
//! that did not. Everything else of a call runs on threads that hooks alone use, and so does all of a component's.

use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::call_error::panic_text;

/// Calls on the threads of hooks after which a module is trusted, as long as it has never kept one for long.
const PROBATION: u32 = 8;

/// Each long slice doubles the probation, up to this power of two.
const MAX_STRIKES: u32 = 16;

/// A slice uses a fraction of a millisecond of the processor.
const LONG_SLICE: Duration = Duration::from_millis(5);

/// A call of a trusted module is handed over at the end of the slice in which it has taken this long: that costs little then.
const MAX_TIME_HERE: Duration = Duration::from_millis(3);

thread_local! {
    static IS_OF_HOOKS: Cell<bool> = const { Cell::new(false) };
}

/// Threads on which hooks alone run.
pub(super) struct HookThreads {
    /// Until it is dropped.
    runtime: Option<runtime::Runtime>,
}

/// Behaviour that the calls of a module have shown so far.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    /// Calls since the last long slice.
    good: AtomicU32,
    long_slices: AtomicU32,
}

/// Time of the processor that this thread has used.
pub(super) struct ThreadTime(Duration);

/// Whether this is a thread on which hooks alone run.
pub(super) fn is_of_hooks() -> bool {
    IS_OF_HOOKS.get()
}

impl HookThreads {
    /// # Errors
    /// The system starts no thread.
    pub(super) fn start() -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(threads_of(cores))
            .thread_name("hook")
            .on_thread_start(|| IS_OF_HOOKS.set(true))
            .enable_time()
            .build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Runs a call: its first milliseconds here where its module is trusted, all else on the threads of hooks. A call that is
    /// dropped ends at its next slice.
    ///
    /// # Errors
    /// The call panicked outside of the hook, or the threads are gone.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: BoxFuture<'static, T>,
        is_trusted: bool,
    ) -> Result<T, String> {
        let mut call = AssertUnwindSafe(call).catch_unwind();
        let panicked = |panic: Box<dyn Any + Send>| panic_text(panic.as_ref());
        if is_trusted {
            let began = Instant::now();
            let here = poll_fn(|context| match call.poll_unpin(context) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending if began.elapsed() < MAX_TIME_HERE => Poll::Pending,
                Poll::Pending => Poll::Ready(None),
            });
            if let Some(ended) = here.await {
                return ended.map_err(panicked);
            }
        }
        let Some(runtime) = &self.runtime else { return Err("its threads are gone".to_owned()) };
        let task = AbortOnDropHandle::new(runtime.spawn(call.in_current_span()));
        task.await.map_err(|error| error.to_string())?.map_err(panicked)
    }
}

/// A quarter of the cores is left to everything else. Of two cores none is: with one thread hooks of different controllers
/// could run side by side no longer.
const fn threads_of(cores: usize) -> usize {
    cores - cores / 4
}

impl Drop for HookThreads {
    /// Waits for no call: a thread that one keeps ends with the process.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Conduct {
    pub(super) fn is_trusted(&self) -> bool {
        let strikes = self.long_slices.load(Ordering::Relaxed).min(MAX_STRIKES);
        self.good.load(Ordering::Relaxed) >= PROBATION << strikes
    }

    /// Takes note of a call that ended.
    pub(super) fn ran(&self, longest_slice: Duration) {
        if longest_slice > LONG_SLICE {
            self.good.store(0, Ordering::Relaxed);
            self.long_slices.fetch_add(1, Ordering::Relaxed);
        } else if !self.is_trusted() {
            self.good.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl ThreadTime {
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
        Self(Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default()))
    }

    pub(super) fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_quarter_of_the_cores_is_left_to_everything_else() {
        assert_eq!([1, 2, 3, 4, 8, 64].map(threads_of), [1, 2, 3, 3, 6, 48]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trusted_call_begins_where_it_was_asked_for_and_goes_on_on_the_threads_of_hooks() {
        let threads = HookThreads::start().unwrap();
        let places = |step: Duration| async move {
            let mut places = vec![is_of_hooks()];
            for _ in 0..3 {
                if !is_of_hooks() {
                    tokio::time::advance(step).await;
                }
                tokio::task::yield_now().await;
                places.push(is_of_hooks());
            }
            places
        };
        let run = async |step, is_trusted| threads.run(places(step).boxed(), is_trusted).await.unwrap();
        let short = MAX_TIME_HERE / 4;
        assert_eq!(run(short, true).await, [false; 4], "a short one never leaves");
        assert_eq!(run(MAX_TIME_HERE / 2, true).await, [false, false, true, true]);
        assert_eq!(run(MAX_TIME_HERE, true).await, [false, true, true, true], "its first slice is long");
        assert_eq!(run(short, false).await, [true; 4], "one that is not trusted");
    }

    #[tokio::test]
    async fn calls_that_never_give_way_keep_nobody_else() {
        let threads = Arc::new(HookThreads::start().unwrap());
        let (end, ends) = channel::<()>();
        let ends = Arc::new(std::sync::Mutex::new(ends));
        // One on each thread of hooks; the test itself has one thread.
        let calls: Vec<_> = (0..64)
            .map(|_| {
                let (threads, ends) = (Arc::clone(&threads), Arc::clone(&ends));
                let blocks = async move { ends.lock().unwrap().recv().unwrap_err() };
                tokio::spawn(async move { threads.run(blocks.boxed(), false).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(calls.iter().all(|call| !call.is_finished()));
        drop(end);
        for call in calls {
            call.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_panic_of_a_call_is_an_error_of_this_call() {
        let threads = HookThreads::start().unwrap();
        for is_trusted in [false, true] {
            let broken = async { panic!("a bug") }.boxed();
            assert_eq!(threads.run::<()>(broken, is_trusted).await, Err("a bug".to_owned()));
            let late = async {
                tokio::task::yield_now().await;
                panic!("another")
            };
            assert_eq!(threads.run::<()>(late.boxed(), is_trusted).await, Err("another".to_owned()));
        }
        assert_eq!(threads.run(async { 1 }.boxed(), false).await, Ok(1));
    }

    #[test]
    fn trust_is_earned_by_short_slices_and_costs_more_each_time_it_is_lost() {
        let conduct = Conduct::default();
        let until_trusted = || {
            let mut calls = 0;
            while !conduct.is_trusted() {
                conduct.ran(LONG_SLICE);
                calls += 1;
            }
            calls
        };
        assert_eq!(until_trusted(), 8);
        conduct.ran(LONG_SLICE + Duration::from_nanos(1));
        assert_eq!(until_trusted(), 16);
        for _ in 0..100 {
            conduct.ran(Duration::from_secs(1));
        }
        assert_eq!(until_trusted(), 8 << MAX_STRIKES);
    }
}
