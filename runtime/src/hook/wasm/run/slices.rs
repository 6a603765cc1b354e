//! Slices of a call: what it does between two times that it gives way to others.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use super::threads::{self, ThreadTime};
use super::watchdog::Watch;

/// The engine interrupts a call each 100,000 instructions, which last tens of microseconds, and may last milliseconds. Giving way
/// takes as long, since it wakes another thread: a call that could go on does so until its slice has lasted this long.
const MIN_SLICE: Duration = Duration::from_micros(250);

thread_local! {
    /// The call that runs on this thread wants no more of its turn.
    static TURN_ENDS: Cell<bool> = const { Cell::new(false) };
}

/// How a call gave way.
pub(super) enum Slice<T> {
    Ended(T),
    /// The turn is over, or the call wants no more of it.
    TurnEnded,
}

/// A call's future, whose slices are timed: what it does between two times that it gives way.
pub(super) struct Sliced<F> {
    run: F,
    /// It wakes the call, and knows whether it runs.
    waker: Waker,
    wakes: Arc<Wakes>,
    pub(super) longest: Duration,
    /// Longest time of the processor; not of a first slice on its caller's thread.
    pub(super) longest_busy: Duration,
    watch: Watch,
    pub(super) timeout_at: Instant,
    /// End of the turn: the timers of a busy runtime may be late.
    pub(super) turn_until: Instant,
    min_slice: Duration,
}

/// Wakes of a call: one that comes while the call runs counts as its own, and says that it can go on.
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
            turn_until: timeout_at,
            min_slice: MIN_SLICE,
        }
    }
}

impl<F: Future + Unpin> Sliced<F> {
    /// Polls the call until it ends, waits for something, or its slice is over.
    fn poll_for(&mut self, start: Instant, context: &mut Context<'_>) -> Poll<F::Output> {
        self.wakes.task.register(context.waker());
        loop {
            // A swap: the poll has to see what a wake that is taken back here came for.
            self.wakes.woken.swap(false, Ordering::SeqCst);
            self.wakes.runs.store(true, Ordering::SeqCst);
            let polled = Pin::new(&mut self.run).poll(&mut Context::from_waker(&self.waker));
            self.wakes.runs.store(false, Ordering::SeqCst);
            // A wake from elsewhere that comes in between is seen here, or has woken the task.
            if polled.is_ready() || TURN_ENDS.get() || !self.wakes.woken.load(Ordering::SeqCst) {
                return polled;
            }
            if start.elapsed() >= self.min_slice {
                // All other tasks of the thread go first, and so do its timers and sockets.
                let _pending = pin!(tokio::task::yield_now()).poll(context);
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
        // Most calls end in their first slice on their caller's thread, and need no such time, which a system call tells.
        let is_first = self.longest.is_zero();
        let busy = (threads::is_of_hooks() || !is_first).then(ThreadTime::now);
        let start = Instant::now();
        self.watch.slice_begins(self.timeout_at);
        let polled = self.poll_for(start, context);
        self.watch.slice_ends();
        let end = Instant::now();
        self.longest = self.longest.max(end.duration_since(start));
        if let Some(busy) = busy {
            self.longest_busy = self.longest_busy.max(busy.elapsed());
        }
        let turn_ends = TURN_ENDS.take() || end >= self.turn_until;
        match polled {
            Poll::Ready(ended) => Poll::Ready(Slice::Ended(ended)),
            Poll::Pending if turn_ends => Poll::Ready(Slice::TurnEnded),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::super::watchdog;
    use super::*;

    fn sliced<F: Future>(run: F, min_slice: Duration) -> Sliced<Pin<Box<F>>> {
        let watch = watchdog::Calls::new().watch("c", "sync");
        let in_an_hour = Instant::now() + Duration::from_hours(1);
        Sliced { min_slice, ..Sliced::new(Box::pin(run), watch, in_an_hour) }
    }

    /// Counts wakes.
    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
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

    #[test]
    fn a_call_that_another_thread_wakes_is_polled_again_also_where_it_runs() {
        let counter = Arc::new(Counter::default());
        let task = Waker::from(Arc::clone(&counter));
        let (mut polls, mut kept) = (0, None);
        let wakes_elsewhere = poll_fn(|context| {
            polls += 1;
            let waker = context.waker().clone();
            if polls == 1 {
                std::thread::spawn(|| waker.wake()).join().unwrap();
            } else {
                kept = Some(waker);
            }
            Poll::<()>::Pending
        });
        let mut call = sliced(wakes_elsewhere, Duration::from_hours(1));
        assert!(Pin::new(&mut call).poll(&mut Context::from_waker(&task)).is_pending());
        drop(call);
        assert_eq!((polls, counter.0.load(Ordering::SeqCst)), (2, 0), "while it ran");
        kept.unwrap().wake();
        assert_eq!(counter.0.load(Ordering::SeqCst), 1, "while it waited");
    }

    #[test]
    fn a_call_that_ends_its_turn_gives_way_at_once() {
        let (mut polls, task) = (0, Waker::noop());
        let gives_way_too = poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            TURN_ENDS.set(true);
            Poll::<()>::Pending
        });
        let mut call = sliced(gives_way_too, Duration::from_hours(1));
        let polled = Pin::new(&mut call).poll(&mut Context::from_waker(task));
        assert!(matches!(polled, Poll::Ready(Slice::TurnEnded)));
        drop(call);
        assert_eq!((polls, TURN_ENDS.get()), (1, false));
    }

    #[test]
    fn a_turn_ends_also_where_no_timer_tells() {
        let mut call = sliced(std::future::pending::<()>(), Duration::ZERO);
        call.turn_until = Instant::now();
        let polled = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Slice::TurnEnded)));
    }

    #[test]
    fn time_of_the_processor_is_measured_from_the_second_slice_on() {
        let works = poll_fn(|_| {
            let start = ThreadTime::now();
            while start.elapsed() < Duration::from_millis(2) {}
            Poll::<()>::Pending
        });
        let mut call = sliced(works, Duration::ZERO);
        let mut poll = || {
            assert!(Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
            call.longest_busy
        };
        assert_eq!(poll(), Duration::ZERO, "its caller's");
        assert!(poll() >= Duration::from_millis(2));
    }
}
