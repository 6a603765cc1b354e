//! Concurrency of calls: controllers take turns, and no controller has all permits.
//!
//! There is a fixed number of permits, by default two per core. Waiting controllers are served round robin, and none has more
//! than a quarter of the permits (at least one): what its hooks do to a core they never do to all cores.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::lock;

/// The permits of all calls.
#[derive(Debug)]
pub(super) struct Concurrency {
    permits: Arc<Semaphore>,
    /// Permits of one controller: hooks that keep their cores busy leave some to others.
    max_per_controller: usize,
    /// At least those that have or want a permit.
    controllers: Mutex<BTreeMap<Box<str>, Controller>>,
}

/// The queues that the calls of one controller go through first.
#[derive(Debug, Clone)]
struct Controller {
    permits: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

/// The permit of one call, held until dropped.
#[derive(Debug)]
pub(super) struct Permit {
    _of_all: Option<OwnedSemaphorePermit>,
    _of_controller: Option<OwnedSemaphorePermit>,
}

impl Concurrency {
    /// A controller has a quarter of the permits, at least one: with two per core it keeps half of the cores busy.
    pub(super) fn new(permits: usize) -> Self {
        let max_per_controller = (permits / 4).max(1);
        Self { permits: Arc::new(Semaphore::new(permits)), max_per_controller, controllers: Mutex::default() }
    }

    /// Waits for a permit. A call that is dropped while it waits leaves the queue.
    pub(super) async fn acquire(&self, controller: &str) -> Permit {
        let Controller { permits, turn } = self.controller(controller);
        // No semaphore is ever closed.
        let of_controller = permits.acquire_owned().await.ok();
        // One call of each controller waits beside those of others, so that controllers take turns.
        let turn = turn.acquire().await;
        let of_all = Arc::clone(&self.permits).acquire_owned().await.ok();
        drop(turn);
        Permit { _of_all: of_all, _of_controller: of_controller }
    }

    fn controller(&self, name: &str) -> Controller {
        let mut controllers = lock(&self.controllers);
        if let Some(controller) = controllers.get(name) {
            return controller.clone();
        }
        controllers.retain(|_, controller| Arc::strong_count(&controller.permits) > 1);
        let permits = Arc::new(Semaphore::new(self.max_per_controller));
        let controller = Controller { permits, turn: Arc::new(Semaphore::new(1)) };
        controllers.insert(name.into(), controller.clone());
        controller
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use proptest::prelude::*;

    use super::*;

    type Waiting = BoxFuture<'static, Permit>;

    fn new(permits: usize) -> Arc<Concurrency> {
        Arc::new(Concurrency::new(permits))
    }

    fn asks(permits: &Arc<Concurrency>, controller: &'static str) -> Waiting {
        let permits = Arc::clone(permits);
        async move { permits.acquire(controller).await }.boxed()
    }

    fn waits(permits: &Arc<Concurrency>, controller: &'static str) -> Waiting {
        let mut waiting = asks(permits, controller);
        assert!(got(&mut waiting).is_none(), "there is a permit");
        waiting
    }

    fn got(waiting: &mut Waiting) -> Option<Permit> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    fn free(permits: &Concurrency) -> usize {
        permits.permits.available_permits()
    }

    #[test]
    fn a_free_permit_is_taken_without_waiting() {
        let permits = new(2);
        let taken =
            [permits.acquire("a").now_or_never().unwrap(), permits.acquire("b").now_or_never().unwrap()];
        assert!(permits.acquire("c").now_or_never().is_none());
        drop(taken);
        assert_eq!(free(&permits), 2);
    }

    #[test]
    fn a_controller_has_a_quarter_of_the_permits() {
        let permits = new(8);
        let mut bad = [permits.acquire("bad").now_or_never(), permits.acquire("bad").now_or_never()];
        let mut third = waits(&permits, "bad");
        let good = permits.acquire("good").now_or_never();
        assert!(bad.iter().all(Option::is_some) && good.is_some());
        drop(good);
        assert!(got(&mut third).is_none(), "a permit of another controller is not for it");
        bad[0] = None;
        assert!(got(&mut third).is_some(), "its own is");
        drop(bad);
        assert_eq!(free(&permits), 8);
    }

    #[test]
    fn calls_of_one_controller_do_not_delay_another_s_first() {
        let permits = new(1);
        let mut running = permits.acquire("busy").now_or_never().unwrap();
        let mut busy: Vec<_> = (0..1000).map(|_| waits(&permits, "busy")).collect();
        let mut quiet = waits(&permits, "quiet");
        drop(running);
        assert!(got(&mut busy[0]).is_none());
        running = got(&mut quiet).unwrap();
        drop(running);
        assert!(got(&mut busy[0]).is_some() && got(&mut busy[1]).is_some());
    }

    #[test]
    fn controllers_take_turns_and_each_is_served_in_its_order() {
        let permits = new(1);
        let running = permits.acquire("a").now_or_never().unwrap();
        let asked = ["a", "a", "a", "b", "b", "c"];
        let mut waiting: Vec<_> = asked.map(|controller| (controller, waits(&permits, controller))).into();
        drop(running);
        let mut served = Vec::new();
        while let Some(at) = waiting.iter_mut().position(|(_, waiting)| got(waiting).is_some()) {
            served.push(waiting.remove(at).0);
        }
        assert_eq!(served, ["b", "c", "a", "b", "a", "a"], "and a had the first");
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_dropped_call_hands_its_permit_on() {
        let permits = new(1);
        let running = permits.acquire("a").now_or_never().unwrap();
        let (first, second, mut third) = (waits(&permits, "a"), waits(&permits, "b"), waits(&permits, "c"));
        drop(first); // while it waits
        drop(running);
        drop(second); // when it has its permit, before it is polled
        assert!(got(&mut third).is_some());
        assert_eq!(free(&permits), 1);
        drop(third);
        drop(asks(&permits, "d").now_or_never());
        assert_eq!(lock(&permits.controllers).len(), 1, "controllers without calls are forgotten");
    }

    /// A step of a random run.
    #[derive(Debug, Clone)]
    enum Step {
        Ask(&'static str),
        GiveUp(usize),
        End(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => proptest::sample::select(vec!["a", "b", "c"]).prop_map(Step::Ask),
            1 => any::<usize>().prop_map(Step::GiveUp),
            2 => any::<usize>().prop_map(Step::End),
        ];
        proptest::collection::vec(step, 0..100)
    }

    proptest! {
        #[test]
        fn no_more_calls_run_than_permits_and_none_is_lost(total in 1..13_usize, steps in steps()) {
            let permits = new(total);
            let (mut waiting, mut running, mut holders) = (Vec::new(), Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Ask(controller) => waiting.push((controller, asks(&permits, controller))),
                    Step::GiveUp(which) if !waiting.is_empty() => drop(waiting.remove(which % waiting.len())),
                    Step::End(which) if !running.is_empty() => {
                        holders.remove(which % running.len());
                        drop(running.remove(which % running.len()));
                    }
                    Step::GiveUp(_) | Step::End(_) => {}
                }
                while let Some(at) = waiting.iter_mut().position(|(_, waiting)| {
                    got(waiting).map(|permit| running.push(permit)).is_some()
                }) {
                    let (controller, _) = waiting.remove(at);
                    holders.push(controller);
                }
                prop_assert!(running.len() <= total);
                for controller in ["a", "b", "c"] {
                    let held = holders.iter().filter(|holder| **holder == controller).count();
                    let most = (total / 4).max(1);
                    prop_assert!(held <= most);
                    let waits = waiting.iter().any(|(waits, _)| *waits == controller);
                    let free = running.len() < total;
                    prop_assert!(!waits || !free || held == most, "{controller} waits for a permit that is free");
                }
            }
            waiting.clear();
            running.clear();
            prop_assert_eq!(free(&permits), total);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn on_many_threads_all_calls_are_served() {
        let permits = new(2);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let calls = (0..200_usize).map(|number| {
            let (permits, now, most) = (Arc::clone(&permits), Arc::clone(&now), Arc::clone(&most));
            tokio::spawn(async move {
                let _permit = permits.acquire(["a", "b", "c"][number % 3]).await;
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
        assert_eq!((most.load(Ordering::SeqCst), free(&permits)), (2, 2));
    }
}
