//! Slices of a call: what it does between two times that it gives way to others.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use super::threads::{self, ThreadTime};
use super::watchdog::Watch;

/// The engine interrupts a call each few microseconds, since it cannot know how long its instructions take. Giving way wakes
/// another thread, which takes as long: a call that could go on does so until its slice has lasted this long.
const MIN_SLICE: Duration = Duration::from_micros(250);

thread_local! {
    /// The call that runs on this thread wants no more of its turn.
    static TURN_ENDS: Cell<bool> = const { Cell::new(false) };
}

/// How a call gave way.
pub(super) enum Slice<T> {
    Ended(T),
    /// Before its turn was over.
    TurnEnded,
}

/// A call's future, whose slices are timed: what it does between two times that it gives way.
pub(super) struct Sliced<F> {
    run: F,
    /// It wakes the call, and knows whether it runs.
    waker: Waker,
    wakes: Arc<Wakes>,
    pub(super) longest: Duration,
    /// Longest time of the processor; only on threads of hooks.
    pub(super) longest_busy: Duration,
    watch: Watch,
    pub(super) timeout_at: Instant,
    min_slice: Duration,
}

/// Wakes of a call: one that comes while the call runs is its own, and says that it can go on.
#[derive(Default)]
struct Wakes {
    task: AtomicWaker,
    runs: AtomicBool,
    woken: AtomicBool,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if !self.runs.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

impl<F> Sliced<F> {
    pub(super) fn new(run: F, watch: Watch, timeout_at: Instant) -> Self {
        let wakes = Arc::new(Wakes::default());
        Self {
            run,
            waker: Waker::from(Arc::clone(&wakes)),
            wakes,
            longest: Duration::ZERO,
            longest_busy: Duration::ZERO,
            watch,
            timeout_at,
            min_slice: MIN_SLICE,
        }
    }
}

impl<F: Future + Unpin> Sliced<F> {
    /// Polls the call until it ends, waits for something, or its slice is over.
    fn poll_for(&mut self, start: Instant, context: &mut Context<'_>) -> Poll<F::Output> {
        self.wakes.task.register(context.waker());
        loop {
            self.wakes.woken.store(false, Ordering::SeqCst);
            self.wakes.runs.store(true, Ordering::SeqCst);
            let polled = Pin::new(&mut self.run).poll(&mut Context::from_waker(&self.waker));
            self.wakes.runs.store(false, Ordering::SeqCst);
            // A wake from elsewhere that comes in between is seen here, or has woken the task.
            if polled.is_ready() || !self.wakes.woken.load(Ordering::SeqCst) {
                return polled;
            }
            if start.elapsed() >= self.min_slice {
                context.waker().wake_by_ref();
                return polled;
            }
        }
    }
}

/// Ends the turn of the call that waits for this: it goes on in its next one.
pub(super) async fn end_turn() {
    let mut has_ended = false;
    poll_fn(|_| {
        if std::mem::replace(&mut has_ended, true) {
            return Poll::Ready(());
        }
        // The call is polled again as soon as it has its next turn.
        TURN_ENDS.set(true);
        Poll::Pending
    })
    .await;
}

impl<F: Future + Unpin> Future for Sliced<F> {
    type Output = Slice<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let busy = threads::is_of_hooks().then(ThreadTime::now);
        let start = Instant::now();
        self.watch.slice_begins(self.timeout_at);
        let polled = self.poll_for(start, context);
        self.watch.slice_ends();
        self.longest = self.longest.max(start.elapsed());
        if let Some(busy) = busy {
            self.longest_busy = self.longest_busy.max(busy.elapsed());
        }
        match polled {
            Poll::Ready(ended) => Poll::Ready(Slice::Ended(ended)),
            Poll::Pending if TURN_ENDS.take() => Poll::Ready(Slice::TurnEnded),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::watchdog;
    use super::*;

    fn sliced<F: Future>(run: F, min_slice: Duration) -> Sliced<Pin<Box<F>>> {
        let watch = watchdog::Calls::new().watch("c", "sync");
        Sliced { min_slice, ..Sliced::new(Box::pin(run), watch, Instant::now()) }
    }

    /// Gives way three times, and could go on each time.
    async fn gives_way() {
        let mut left = 3;
        poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// How often the task of a call is woken and polled until the call ends.
    async fn polls(min_slice: Duration) -> usize {
        let (mut call, mut polls) = (Box::pin(sliced(gives_way(), min_slice)), 0);
        poll_fn(|context| {
            polls += 1;
            call.as_mut().poll(context).map(drop)
        })
        .await;
        polls
    }

    #[tokio::test]
    async fn a_call_that_can_go_on_does_so_until_its_slice_is_over() {
        assert_eq!(polls(Duration::from_hours(1)).await, 1);
        assert_eq!(polls(Duration::ZERO).await, 4);
    }

    #[tokio::test]
    async fn a_call_that_waits_is_woken_by_what_it_waits_for() {
        for _ in 0..1000 {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let call = sliced(receiver, Duration::from_hours(1));
            let sends = std::thread::spawn(|| sender.send(7));
            let ended = tokio::time::timeout(Duration::from_mins(1), call).await;
            assert!(matches!(ended, Ok(Slice::Ended(Ok(7)))));
            sends.join().unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_call_that_ends_its_turn_gives_way_at_once() {
        let call = sliced(end_turn(), Duration::from_hours(1));
        assert!(matches!(call.await, Slice::TurnEnded));
    }
}
