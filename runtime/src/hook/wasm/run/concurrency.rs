//! Who runs next: each controller that waits gets its turn before any gets a second one, and none has all places.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use crate::sync::lock;

/// The places where hooks run.
#[derive(Debug, Clone)]
pub(crate) struct Slots(Arc<Mutex<Queue>>);

/// A place, held until dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    controller: Arc<str>,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    /// So many places may one controller have: what its hooks do to a core, they never do to all of them.
    most: usize,
    /// By controller, how many places it has; one that has none is not in it.
    held: BTreeMap<Arc<str>, usize>,
    /// By controller, the longest waiting first; a controller without calls is not in it.
    waiting: BTreeMap<Arc<str>, VecDeque<oneshot::Sender<Slot>>>,
    /// The controllers in it, the next one first.
    turns: VecDeque<Arc<str>>,
}

impl Slots {
    /// A controller has a quarter of the places, at least one: with two per core it keeps half of the cores busy.
    pub(crate) fn new(free: usize) -> Self {
        let most = (free / 4).max(1);
        let (held, waiting, turns) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self(Arc::new(Mutex::new(Queue { free, most, held, waiting, turns })))
    }

    /// Waits for a place, if none is free. A call that is given up while it waits leaves the queue.
    pub(crate) async fn acquire(&self, controller: &str) -> Slot {
        // Short calls one after the other never wait for anything: whoever makes them gives way now and then.
        tokio::task::coop::consume_budget().await;
        let controller: Arc<str> = controller.into();
        loop {
            let Some(turn) = self.lock().enter(&controller) else {
                return Slot { slots: self.clone(), controller };
            };
            // A turn cannot be lost: who has a place hands it on. If it could, we would ask anew.
            if let Ok(slot) = turn.await {
                return slot;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = self.slots.lock().leave(&self.controller);
        if let Some((controller, turn)) = next {
            // If its call is given up in this very moment, the place comes back to us and is dropped, which hands it on.
            drop(turn.send(Self { slots: self.slots.clone(), controller }));
        }
    }
}

impl Queue {
    /// Takes a free place, or queues for one.
    fn enter(&mut self, controller: &Arc<str>) -> Option<oneshot::Receiver<Slot>> {
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

    /// Takes a place back, and says who gets it; it is free if nobody who waits may have it.
    fn leave(&mut self, controller: &Arc<str>) -> Option<(Arc<str>, oneshot::Sender<Slot>)> {
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
        self.held.get(controller).is_none_or(|held| *held < self.most)
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

    type Waiting = BoxFuture<'static, Slot>;

    fn waits(slots: &Slots, controller: &'static str) -> Waiting {
        let slots = slots.clone();
        let mut waiting = async move { slots.acquire(controller).await }.boxed();
        assert!(got(&mut waiting).is_none(), "there is a place");
        waiting
    }

    fn got(waiting: &mut Waiting) -> Option<Slot> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(slot) => Some(slot),
            Poll::Pending => None,
        }
    }

    fn free(slots: &Slots) -> usize {
        slots.lock().free
    }

    #[test]
    fn a_free_place_is_taken_without_waiting() {
        let slots = Slots::new(2);
        let taken = [slots.acquire("a").now_or_never().unwrap(), slots.acquire("b").now_or_never().unwrap()];
        assert!(slots.acquire("c").now_or_never().is_none());
        drop(taken);
        assert_eq!(free(&slots), 2);
    }

    #[test]
    fn a_controller_has_a_quarter_of_the_places_and_others_find_the_rest() {
        let slots = Slots::new(8);
        let mut bad = [slots.acquire("bad").now_or_never(), slots.acquire("bad").now_or_never()];
        let mut third = waits(&slots, "bad");
        let good = slots.acquire("good").now_or_never();
        assert!(bad.iter().all(Option::is_some) && good.is_some());
        drop(good);
        assert!(got(&mut third).is_none(), "a place that another one gives back is not for it");
        bad[0] = None;
        assert!(got(&mut third).is_some(), "its own is");
        drop(bad);
        assert_eq!(free(&slots), 8);
    }

    #[test]
    fn a_thousand_calls_of_one_controller_do_not_hold_up_the_first_of_another() {
        let slots = Slots::new(1);
        let mut running = slots.acquire("busy").now_or_never().unwrap();
        let mut busy: Vec<_> = (0..1000).map(|_| waits(&slots, "busy")).collect();
        let mut quiet = waits(&slots, "quiet");
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
        let slots = Slots::new(1);
        let running = slots.acquire("a").now_or_never().unwrap();
        let asked = ["a", "a", "a", "b", "b", "c"];
        let mut waiting: Vec<_> = asked.map(|controller| (controller, waits(&slots, controller))).into();
        drop(running);
        let mut served = Vec::new();
        while let Some(at) = waiting.iter_mut().position(|(_, waiting)| got(waiting).is_some()) {
            served.push(waiting.remove(at).0);
        }
        assert_eq!(served, ["a", "b", "c", "a", "b", "a"]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_call_that_is_given_up_gives_its_place_on() {
        let slots = Slots::new(1);
        let running = slots.acquire("a").now_or_never().unwrap();
        let (first, second, mut third) = (waits(&slots, "a"), waits(&slots, "b"), waits(&slots, "c"));
        drop(first); // while it waits
        drop(running);
        drop(second); // when it has been given the place and does not know yet
        assert!(got(&mut third).is_some());
        assert_eq!(free(&slots), 1);
        assert!(slots.lock().waiting.is_empty() && slots.lock().turns.is_empty());
    }

    /// What happens to the slots in a random run.
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
        fn never_more_run_than_there_are_places_and_none_is_lost(places in 1..13_usize, steps in steps()) {
            let slots = Slots::new(places);
            let (mut waiting, mut running) = (Vec::<Waiting>::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Ask(controller) => {
                        let slots = slots.clone();
                        waiting.push(async move { slots.acquire(controller).await }.boxed());
                    }
                    Step::GiveUp(which) if !waiting.is_empty() => drop(waiting.remove(which % waiting.len())),
                    Step::End(which) if !running.is_empty() => drop(running.remove(which % running.len())),
                    Step::GiveUp(_) | Step::End(_) => {}
                }
                waiting.retain_mut(|waiting| got(waiting).map(|slot| running.push(slot)).is_none());
                prop_assert!(running.len() <= places);
                let free = running.len() < places;
                let held = |controller: &str| running.iter().filter(|slot| *slot.controller == *controller).count();
                for controller in ["a", "b", "c"] {
                    let most = (places / 4).max(1);
                    prop_assert!(held(controller) <= most);
                    let waits = slots.lock().waiting.get(controller).is_some_and(|calls| calls.iter().any(|call| !call.is_closed()));
                    prop_assert!(!waits || !free || held(controller) == most, "{controller} waits for a place that is free");
                }
            }
            waiting.clear();
            running.clear();
            prop_assert_eq!(free(&slots), places);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn on_many_threads_too_everybody_is_served() {
        let slots = Slots::new(2);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let calls = (0..200_usize).map(|number| {
            let (slots, now, most) = (slots.clone(), Arc::clone(&now), Arc::clone(&most));
            tokio::spawn(async move {
                let _slot = slots.acquire(["a", "b", "c"][number % 3]).await;
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
        assert_eq!((most.load(Ordering::SeqCst), free(&slots)), (2, 2));
    }
}
