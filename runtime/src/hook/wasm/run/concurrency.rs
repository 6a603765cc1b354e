//! Concurrency of calls: controllers take turns, and no controller has all permits.
//!
//! There is a fixed number of permits, by default two per core. Waiting controllers are served round robin, and none has more
//! than a quarter of the permits (at least one): what its hooks do to a core they never do to all cores.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use crate::sync::lock;

/// The permits of all calls.
#[derive(Debug, Clone)]
pub(super) struct Concurrency(Arc<Mutex<Queue>>);

/// The permit of one call, held until dropped.
#[derive(Debug)]
pub(super) struct Permit {
    permits: Concurrency,
    controller: Arc<str>,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    /// Permits of one controller: hooks that keep their cores busy leave some to others.
    max_per_controller: usize,
    /// Permits by controller, for those that have some.
    held: BTreeMap<Arc<str>, usize>,
    /// Waiting calls by controller, the longest waiting first; a controller without calls is not in it.
    waiting: BTreeMap<Arc<str>, VecDeque<oneshot::Sender<Permit>>>,
    /// The controllers of `waiting`, the next one first.
    turns: VecDeque<Arc<str>>,
}

impl Concurrency {
    /// A controller has a quarter of the permits, at least one: with two per core it keeps half of the cores busy.
    pub(super) fn new(free: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue {
            free,
            max_per_controller: (free / 4).max(1),
            held: BTreeMap::new(),
            waiting: BTreeMap::new(),
            turns: VecDeque::new(),
        })))
    }

    /// Waits for a permit. A call that is dropped while it waits leaves the queue.
    pub(super) async fn acquire(&self, controller: &str) -> Permit {
        // Short calls one after the other never wait for anything: here their task gives way now and then.
        tokio::task::coop::consume_budget().await;
        let controller: Arc<str> = controller.into();
        loop {
            let Some(turn) = self.lock().enter(&controller) else {
                return Permit { permits: self.clone(), controller };
            };
            // Each permit is handed on when it is dropped. If one were lost, the call would queue again.
            if let Ok(permit) = turn.await {
                return permit;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = self.permits.lock().leave(&self.controller);
        if let Some((controller, turn)) = next {
            // If that call is dropped at this moment, the permit comes back and is dropped, which hands it on.
            drop(turn.send(Self { permits: self.permits.clone(), controller }));
        }
    }
}

impl Queue {
    /// Takes a free permit, or queues for one.
    fn enter(&mut self, controller: &Arc<str>) -> Option<oneshot::Receiver<Permit>> {
        if self.free > 0 && self.may_have_more(controller) {
            self.give(controller);
            return None;
        }
        let (send, turn) = oneshot::channel();
        if let Some(calls) = self.waiting.get_mut(controller) {
            calls.push_back(send);
        } else {
            self.waiting.insert(Arc::clone(controller), VecDeque::from([send]));
            self.turns.push_back(Arc::clone(controller));
        }
        Some(turn)
    }

    /// Takes a permit back. Returns the waiting call that gets it; without one the permit is free.
    fn leave(&mut self, controller: &Arc<str>) -> Option<(Arc<str>, oneshot::Sender<Permit>)> {
        self.free = self.free.saturating_add(1);
        if let Some(held) = self.held.get_mut(controller) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(controller);
            }
        }
        for _ in 0..self.turns.len() {
            let controller = self.turns.pop_front()?;
            if !self.may_have_more(&controller) {
                self.turns.push_back(controller);
                continue;
            }
            let Some(calls) = self.waiting.get_mut(&controller) else { continue };
            let next = std::iter::from_fn(|| calls.pop_front()).find(|turn| !turn.is_closed());
            if calls.is_empty() {
                self.waiting.remove(&controller);
            } else {
                self.turns.push_back(Arc::clone(&controller));
            }
            if let Some(next) = next {
                self.give(&controller);
                return Some((controller, next));
            }
        }
        None
    }

    fn may_have_more(&self, controller: &Arc<str>) -> bool {
        self.held.get(controller).is_none_or(|held| *held < self.max_per_controller)
    }

    fn give(&mut self, controller: &Arc<str>) {
        self.free = self.free.saturating_sub(1);
        *self.held.entry(Arc::clone(controller)).or_default() += 1;
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

    fn waits(permits: &Concurrency, controller: &'static str) -> Waiting {
        let permits = permits.clone();
        let mut waiting = async move { permits.acquire(controller).await }.boxed();
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
        permits.lock().free
    }

    #[test]
    fn a_free_permit_is_taken_without_waiting() {
        let permits = Concurrency::new(2);
        let taken =
            [permits.acquire("a").now_or_never().unwrap(), permits.acquire("b").now_or_never().unwrap()];
        assert!(permits.acquire("c").now_or_never().is_none());
        drop(taken);
        assert_eq!(free(&permits), 2);
    }

    #[test]
    fn a_controller_has_a_quarter_of_the_permits() {
        let permits = Concurrency::new(8);
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
        let permits = Concurrency::new(1);
        let mut running = permits.acquire("busy").now_or_never().unwrap();
        let mut busy: Vec<_> = (0..1000).map(|_| waits(&permits, "busy")).collect();
        let mut quiet = waits(&permits, "quiet");
        drop(running);
        running = got(&mut busy[0]).unwrap();
        assert!(got(&mut quiet).is_none());
        drop(running);
        running = got(&mut quiet).unwrap();
        drop(running);
        assert!(got(&mut busy[1]).is_some() && got(&mut busy[2]).is_some());
    }

    #[test]
    fn controllers_take_turns_and_each_is_served_in_its_order() {
        let permits = Concurrency::new(1);
        let running = permits.acquire("a").now_or_never().unwrap();
        let asked = ["a", "a", "a", "b", "b", "c"];
        let mut waiting: Vec<_> = asked.map(|controller| (controller, waits(&permits, controller))).into();
        drop(running);
        let mut served = Vec::new();
        while let Some(at) = waiting.iter_mut().position(|(_, waiting)| got(waiting).is_some()) {
            served.push(waiting.remove(at).0);
        }
        assert_eq!(served, ["a", "b", "c", "a", "b", "a"]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_dropped_call_hands_its_permit_on() {
        let permits = Concurrency::new(1);
        let running = permits.acquire("a").now_or_never().unwrap();
        let (first, second, mut third) = (waits(&permits, "a"), waits(&permits, "b"), waits(&permits, "c"));
        drop(first); // while it waits
        drop(running);
        drop(second); // when it has its permit, before it is polled
        assert!(got(&mut third).is_some());
        assert_eq!(free(&permits), 1);
        assert!(permits.lock().waiting.is_empty() && permits.lock().turns.is_empty());
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
            let permits = Concurrency::new(total);
            let (mut waiting, mut running) = (Vec::<Waiting>::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Ask(controller) => {
                        let permits = permits.clone();
                        waiting.push(async move { permits.acquire(controller).await }.boxed());
                    }
                    Step::GiveUp(which) if !waiting.is_empty() => drop(waiting.remove(which % waiting.len())),
                    Step::End(which) if !running.is_empty() => drop(running.remove(which % running.len())),
                    Step::GiveUp(_) | Step::End(_) => {}
                }
                waiting.retain_mut(|waiting| got(waiting).map(|permit| running.push(permit)).is_none());
                prop_assert!(running.len() <= total);
                let free = running.len() < total;
                let held = |controller: &str| running.iter().filter(|permit| *permit.controller == *controller).count();
                for controller in ["a", "b", "c"] {
                    let most = (total / 4).max(1);
                    prop_assert!(held(controller) <= most);
                    let waits = permits.lock().waiting.get(controller).is_some_and(|calls| calls.iter().any(|call| !call.is_closed()));
                    prop_assert!(!waits || !free || held(controller) == most, "{controller} waits for a permit that is free");
                }
            }
            waiting.clear();
            running.clear();
            prop_assert_eq!(free(&permits), total);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn on_many_threads_all_calls_are_served() {
        let permits = Concurrency::new(2);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let calls = (0..200_usize).map(|number| {
            let (permits, now, most) = (permits.clone(), Arc::clone(&now), Arc::clone(&most));
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
