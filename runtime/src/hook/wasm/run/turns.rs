//! Turns of one call: it runs until it ends, its timeout is used up, or others wait and its turn is over.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::call_error::Failure;
use super::concurrency::{AdmittedCall, Permit};
use super::instance_permits::TURN;
use super::slices::{Slice, Sliced};
use super::watchdog::{GRACE, Watch};

/// A controller is held back for so many times as long as its call kept a thread, up to a bound.
const HELD_BACK_FACTOR: u32 = 10;
const MAX_HELD_BACK: Duration = Duration::from_mins(5);

/// Processor time after which a slice is too long, whatever the call's timeout. The longest slice of an honest call, in which
/// one instruction fills a memory of 512 MiB, takes less than a third of it.
const MAX_BUSY: Duration = Duration::from_secs(1);

/// A controller is held back for so long where others needed the instance of its call.
const CROWDED_OUT_PAUSE: Duration = Duration::from_mins(1);

/// The turns of a call, the first of which it has.
pub(super) struct CallTurns {
    begun: AdmittedCall,
    permit: Option<Permit>,
    timeout: Duration,
}

/// How a call ran.
pub(super) struct Ran {
    pub(super) ended: Result<(), Failure>,
    /// The longest time for which it did not give way.
    pub(super) longest_slice: Duration,
    /// Others may run while this is held no longer.
    pub(super) turns: CallTurns,
}

impl CallTurns {
    pub(super) async fn first(begun: AdmittedCall, timeout: Duration) -> Self {
        let permit = Some(begun.turn().await);
        Self { begun, permit, timeout }
    }

    /// Runs the call. Its timeout counts its turns alone, and not the waits between them; also a panic ends this call alone.
    pub(super) async fn run(mut self, watch: Watch, run: impl Future<Output = Result<(), Failure>>) -> Ran {
        let (mut start, mut used) = (Instant::now(), Duration::ZERO);
        let run = pin!(AssertUnwindSafe(run).catch_unwind());
        let mut run = Sliced::new(run, watch, start.into_std());
        let ended = loop {
            let left = self.timeout.saturating_sub(used);
            let turn_until = start + TURN.min(left);
            (run.timeout_at, run.turn_until) = ((start + left).into_std(), turn_until.into_std());
            match tokio::time::timeout_at(turn_until, &mut run).await {
                Ok(Slice::Ended(Ok(ended))) => break ended,
                Ok(Slice::Ended(Err(panic))) => break Err(Failure::panicked(panic.as_ref())),
                Ok(Slice::TurnEnded) | Err(_) => {}
            }
            used += start.elapsed();
            if used >= self.timeout {
                break Err(self.timed_out(used, run.longest_busy));
            }
            // Others may run before it goes on.
            self.permit = None;
            self.permit = self.begun.next_turn(used).await;
            if self.permit.is_none() {
                break Err(self.crowded_out(used));
            }
            start = Instant::now();
        };
        if run.longest_busy > MAX_BUSY || matches!(ended, Err(Failure::TimedOut { busy: Some(_) })) {
            self.hold_back(run.longest_busy);
        }
        Ran { ended, longest_slice: run.longest, turns: self }
    }

    /// Holds the controller back, because its call kept its thread for so long.
    fn hold_back(&self, busy: Duration) {
        let pause = (busy * HELD_BACK_FACTOR).min(MAX_HELD_BACK);
        self.begun.hold_back(pause);
        tracing::warn!(
            ?busy,
            held_back = ?pause,
            "a hook kept its thread and did not give way: its controller's next call waits"
        );
    }

    /// Another call gets the instance. The controller waits, or its next call would take the instance back.
    fn crowded_out(&self, used: Duration) -> Failure {
        self.begun.hold_back(CROWDED_OUT_PAUSE);
        Failure::CrowdedOut { used, pause: CROWDED_OUT_PAUSE }
    }

    fn timed_out(&self, used: Duration, longest_busy: Duration) -> Failure {
        let late = used.saturating_sub(self.timeout);
        if late <= GRACE || longest_busy <= GRACE {
            return Failure::TimedOut { busy: None };
        }
        Failure::TimedOut { busy: Some(longest_busy) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::concurrency::Concurrency;
    use super::super::slices::end_turn;
    use super::super::threads::ThreadTime;
    use super::super::watchdog;
    use super::*;

    /// Gives way each 10 ms of the paused clock, and never ends.
    async fn loops() -> Result<(), Failure> {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn call(
        calls: &Concurrency,
        controller: &str,
        timeout: Duration,
        run: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let begun = calls.begin(controller).await;
        let watch = watchdog::Calls::new().watch(controller, "sync");
        CallTurns::first(begun, timeout).await.run(watch, run).await.ended
    }

    /// Controllers that call again and again: each call runs for so long, or for ever.
    fn busy_controllers(
        calls: &Arc<Concurrency>,
        controllers: std::ops::Range<u32>,
        run: Option<Duration>,
    ) -> tokio::task::JoinSet<()> {
        let mut all = tokio::task::JoinSet::new();
        for number in controllers {
            let (calls, name) = (Arc::clone(calls), format!("busy-{number}"));
            all.spawn(async move {
                loop {
                    let run = async {
                        let Some(run) = run else { return loops().await };
                        tokio::time::sleep(run).await;
                        Ok(())
                    };
                    drop(call(&calls, &name, Duration::from_mins(1), run).await);
                }
            });
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_neighbour_waits_a_turn_for_each_four_controllers_that_loop() {
        for controllers in [4, 40, 64, 65, 100, 300] {
            let calls = Arc::new(Concurrency::new(4));
            let _loops = busy_controllers(&calls, 0..controllers, None);
            // All loops are under way before the neighbour comes, and those that got no permit have had one.
            tokio::time::sleep(Duration::from_mins(2)).await;
            for _ in 0..40 {
                tokio::time::sleep(Duration::from_millis(777)).await;
                let asked = Instant::now();
                call(&calls, "neighbour", Duration::from_secs(1), async { Ok(()) }).await.unwrap();
                // Each timer of the loops is a step of 10 ms late at most.
                let bound = controllers / 4 * (TURN + Duration::from_millis(20));
                assert!(asked.elapsed() <= bound, "{controllers}: {:?}", asked.elapsed());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hooks_that_are_often_called_end_no_long_call_of_another_controller() {
        let calls = Arc::new(Concurrency::new(4));
        let _often = busy_controllers(&calls, 0..100, Some(Duration::from_millis(900)));
        for _ in 0..5 {
            let long = async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                Ok(())
            };
            call(&calls, "honest", Duration::from_secs(10), long).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_calls_get_no_instance_the_longest_is_ended_and_its_controller_waits() {
        let (calls, minute) = (Arc::new(Concurrency::new(1)), Duration::from_mins(1));
        let mut longest = pin!(call(&calls, "longest", minute, loops()));
        tokio::time::timeout(Duration::from_secs(2), &mut longest).await.unwrap_err();
        let mut others: Vec<_> =
            (1..16).map(|number| busy_controllers(&calls, number..number + 1, None)).collect();
        // All permits are taken, and no call wants to begin.
        tokio::time::timeout(Duration::from_secs(5), &mut longest).await.unwrap_err();
        let one = call(&calls, "one", minute, async { Ok(()) });
        let (ended, one) = tokio::join!(
            async {
                let ended = longest.await.unwrap_err();
                (ended, Instant::now())
            },
            one
        );
        one.unwrap();
        let (Failure::CrowdedOut { used, pause }, ended_at) = ended else { panic!("{ended:?}") };
        assert!(used >= Duration::from_secs(2) && pause == CROWDED_OUT_PAUSE, "{used:?} {pause:?}");
        others.clear();
        call(&calls, "longest", minute, async { Ok(()) }).await.unwrap();
        assert!(ended_at.elapsed() >= pause, "{:?} of {pause:?}", ended_at.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_ends_its_turn_goes_on_behind_those_that_wait() {
        let calls = Arc::new(Concurrency::new(1));
        let order = Mutex::new(Vec::new());
        let note = |what| order.lock().unwrap().push(what);
        let heavy = call(&calls, "heavy", Duration::from_secs(1), async {
            tokio::task::yield_now().await; // until the other waits
            note("starts");
            end_turn().await;
            note("goes on");
            Ok(())
        });
        let other = call(&calls, "other", Duration::from_secs(1), async {
            note("other");
            Ok(())
        });
        let (heavy, other) = tokio::join!(heavy, other);
        assert!(heavy.is_ok() && other.is_ok());
        assert_eq!(*order.lock().unwrap(), ["starts", "other", "goes on"]);
    }

    #[tokio::test]
    async fn a_call_that_never_gives_way_is_told_of_while_it_runs() {
        let (calls, watched) = (Concurrency::new(1), watchdog::Calls::new());
        let turns = CallTurns::first(calls.begin("bad").await, Duration::from_millis(1)).await;
        let watch = watched.watch("bad", "sync");
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let blocks = async move {
            ends.recv().unwrap_err();
            Ok(())
        };
        let runs = tokio::spawn(async { turns.run(watch, blocks).await.ended.is_ok() });
        let look = tokio::task::spawn_blocking(move || {
            loop {
                std::thread::sleep(Duration::from_millis(5));
                let late = watched.late(std::time::Instant::now());
                if let Some(call) = late.first() {
                    drop(end);
                    return call.controller.to_string();
                }
            }
        });
        assert_eq!(look.await.unwrap(), "bad");
        assert!(runs.await.unwrap());
    }

    /// Long before its timeout, and though it answers in the end.
    #[tokio::test]
    async fn the_controller_of_a_call_that_keeps_its_thread_for_a_second_waits() {
        let (calls, watched) = (Concurrency::new(4), watchdog::Calls::new());
        let keeps = async |controller: &str, time: Duration| {
            let turns = CallTurns::first(calls.begin(controller).await, Duration::from_hours(1)).await;
            let run = async move {
                // The first slice is not measured on a thread of this test.
                tokio::task::yield_now().await;
                let busy = ThreadTime::now();
                while busy.elapsed() < time {}
                Ok(())
            };
            turns.run(watched.watch(controller, "sync"), Box::pin(run)).await.ended.is_ok()
        };
        assert!(keeps("good", Duration::from_millis(100)).await);
        assert!(keeps("bad", MAX_BUSY + Duration::from_millis(10)).await);
        assert!(calls.begin("good").now_or_never().is_some());
        assert!(calls.begin("bad").now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_counts_turns_and_not_the_waits_between() {
        let calls = Arc::new(Concurrency::new(1));
        let timeout = Duration::from_secs(2);
        let start = Instant::now();
        let (one, other) =
            tokio::join!(call(&calls, "one", timeout, loops()), call(&calls, "other", timeout, loops()));
        for ended in [one, other] {
            assert!(matches!(ended, Err(Failure::TimedOut { busy: None })));
        }
        assert!(start.elapsed() + TURN >= timeout * 2, "{:?}", start.elapsed());
        assert!(start.elapsed() <= timeout * 2 + TURN, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_is_held_back_begins_no_call_and_others_do() {
        let calls = Concurrency::new(4);
        calls.begin("bad").await.hold_back(Duration::from_secs(9));
        let start = Instant::now();
        drop(calls.begin("good").await);
        assert_eq!(start.elapsed(), Duration::ZERO);
        drop(calls.begin("bad").await);
        assert!(start.elapsed() >= Duration::from_secs(9));
    }
}
