//! Who runs next: each controller that waits gets its turn before any gets a second one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The places where hooks run.
#[derive(Debug, Clone)]
pub(super) struct Slots(Arc<Mutex<Queue>>);

/// A place, held until dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    /// By controller, the longest waiting first; a controller without calls is not in it.
    waiting: BTreeMap<String, VecDeque<oneshot::Sender<Slot>>>,
    /// The controllers in it, the next one first.
    turns: VecDeque<String>,
}

impl Slots {
    pub(super) fn new(free: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue { free, waiting: BTreeMap::new(), turns: VecDeque::new() })))
    }

    /// Waits for a place, if none is free. A call that is given up while it waits leaves the queue.
    pub(super) async fn acquire(&self, controller: &str) -> Slot {
        loop {
            let Some(turn) = self.lock().enter(controller) else {
                return Slot { slots: self.clone() };
            };
            // A turn cannot be lost: who has a place hands it on. If it could, we would ask anew.
            if let Ok(slot) = turn.await {
                return slot;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = self.slots.lock().leave();
        if let Some(turn) = next {
            // If its call is given up in this very moment, the place comes back to us and is dropped, which hands it on.
            drop(turn.send(Self { slots: self.slots.clone() }));
        }
    }
}

impl Queue {
    /// Takes a free place, or queues for one.
    fn enter(&mut self, controller: &str) -> Option<oneshot::Receiver<Slot>> {
        if let Some(free) = self.free.checked_sub(1) {
            self.free = free;
            return None;
        }
        let (send, turn) = oneshot::channel();
        if let Some(calls) = self.waiting.get_mut(controller) {
            calls.push_back(send);
        } else {
            self.waiting.insert(controller.to_owned(), VecDeque::from([send]));
            self.turns.push_back(controller.to_owned());
        }
        Some(turn)
    }

    /// Who gets a place that is given back; it is free if nobody waits.
    fn leave(&mut self) -> Option<oneshot::Sender<Slot>> {
        while let Some(controller) = self.turns.pop_front() {
            let Some(calls) = self.waiting.get_mut(&controller) else { continue };
            let next = std::iter::from_fn(|| calls.pop_front()).find(|turn| !turn.is_closed());
            if calls.is_empty() {
                self.waiting.remove(&controller);
            } else {
                self.turns.push_back(controller);
            }
            if next.is_some() {
                return next;
            }
        }
        self.free = self.free.saturating_add(1);
        None
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
        let taken = [slots.acquire("a").now_or_never().unwrap(), slots.acquire("a").now_or_never().unwrap()];
        assert!(slots.acquire("b").now_or_never().is_none());
        drop(taken);
        assert_eq!(free(&slots), 2);
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
        fn never_more_run_than_there_are_places_and_none_is_lost(places in 1..4_usize, steps in steps()) {
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
                prop_assert!(running.len() == places || waiting.is_empty(), "a place is free and somebody waits");
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
