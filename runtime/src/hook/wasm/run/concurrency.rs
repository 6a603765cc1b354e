//! Concurrency of calls: controllers take turns, and no controller has all permits.
//!
//! There is a fixed number of permits, by default two per core, and a call runs only while it holds one. A call that runs for
//! longer than [`TURN`](super::instance_permits::TURN) hands its permit on and waits for the next, so that what a hook takes of a core
//! depends on how many controllers want it, and not on the limits of its controller. Waiting controllers are served round
//! robin, and none has more than a quarter of the permits (at least one): what its hooks do to a core they never do to all
//! cores. The shadows of a controller take turns as if they were a controller of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::instance_permits::{InstancePermit, InstancePermits};
use crate::sync::lock;

/// Calls that have begun, for each permit: those of many controllers that loop wait in their instances for the next turn.
const BEGUN_PER_PERMIT: usize = 16;

/// A server with very many cores reserves no more address space than for so many calls.
const MAX_BEGUN: usize = 512;

/// The permits of all calls.
#[derive(Debug)]
pub(super) struct Concurrency {
    permits: Arc<Semaphore>,
    /// Each call that has begun has one, and an instance of the pool.
    instances: InstancePermits,
    /// Calls of one controller that have begun: hooks that keep their cores busy leave some to others.
    max_per_controller: usize,
    /// Controllers, at least those that have or want a permit.
    controllers: Mutex<BTreeMap<Box<str>, Controller>>,
}

/// The queues that the calls of one controller go through first.
#[derive(Debug, Clone)]
struct Controller {
    permits: Arc<Semaphore>,
    turn: Arc<Semaphore>,
    /// Calls of the controller begin no earlier: one of them kept a thread from everybody.
    held_until: Arc<Mutex<Option<Instant>>>,
}

/// A call that has begun, until dropped: it runs in turns.
#[derive(Debug)]
pub(super) struct AdmittedCall {
    permits: Arc<Semaphore>,
    controller: Controller,
    _of_controller: Option<OwnedSemaphorePermit>,
    instance: InstancePermit,
}

/// A turn of one call, until dropped.
#[derive(Debug)]
pub(super) struct Permit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Calls that have begun at most, with so many permits.
fn max_begun(permits: usize) -> usize {
    (permits * BEGUN_PER_PERMIT).min(MAX_BEGUN).max(permits)
}

/// Calls whose instances there may be at once: one that is dropped while it runs gives its own back a little after its permit.
pub(super) fn max_instances(permits: usize) -> usize {
    max_begun(permits) + permits
}

impl Concurrency {
    /// A controller has a quarter of the permits, at least one: with two per core it keeps half of the cores busy.
    pub(super) fn new(permits: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(permits)),
            instances: InstancePermits::new(max_begun(permits)),
            max_per_controller: (permits / 4).max(1),
            controllers: Mutex::default(),
        }
    }

    /// Waits until a call may begin. A call that is dropped while it waits leaves the queue.
    pub(super) async fn begin(&self, controller: &str) -> AdmittedCall {
        let controller = self.controller(controller);
        // No semaphore is ever closed.
        let of_controller = Arc::clone(&controller.permits).acquire_owned().await.ok();
        let instance = loop {
            controller.until_not_held().await;
            let instance = self.instances.acquire().await;
            // Another call of the controller may have ended meanwhile.
            if controller.held().is_none() {
                break instance;
            }
        };
        let permits = Arc::clone(&self.permits);
        AdmittedCall { permits, controller, _of_controller: of_controller, instance }
    }

    fn controller(&self, name: &str) -> Controller {
        let mut controllers = lock(&self.controllers);
        if let Some(controller) = controllers.get(name) {
            return controller.clone();
        }
        controllers.retain(|_, controller| !controller.is_idle());
        let controller = Controller {
            permits: Arc::new(Semaphore::new(self.max_per_controller)),
            turn: Arc::new(Semaphore::new(1)),
            held_until: Arc::default(),
        };
        controllers.insert(name.into(), controller.clone());
        controller
    }
}

impl Controller {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.permits) == 1 && self.held().is_none()
    }

    fn held(&self) -> Option<Instant> {
        lock(&self.held_until).filter(|until| *until > Instant::now())
    }

    async fn until_not_held(&self) {
        while let Some(until) = self.held() {
            tokio::time::sleep_until(until).await;
        }
    }
}

impl AdmittedCall {
    /// Waits for the first turn.
    pub(super) async fn turn(&self) -> Permit {
        turn(&self.permits, &self.controller).await
    }

    /// Waits for the next turn of a call that has run for so long; `None`: another call is to have its instance.
    pub(super) async fn next_turn(&mut self, used: Duration) -> Option<Permit> {
        self.instance.has_run(used);
        tokio::select! {
            biased;
            () = self.instance.is_wanted(used) => None,
            permit = turn(&self.permits, &self.controller) => Some(permit),
        }
    }

    /// Lets the controller begin no other call for so long, at least.
    pub(super) fn hold_back(&self, pause: Duration) {
        let mut held_until = lock(&self.controller.held_until);
        *held_until = (*held_until).max(Some(Instant::now() + pause));
    }
}

/// One call of each controller waits beside those of others, so that controllers take turns.
async fn turn(permits: &Arc<Semaphore>, controller: &Controller) -> Permit {
    let turn = controller.turn.acquire().await;
    let permit = Arc::clone(permits).acquire_owned().await.ok();
    drop(turn);
    Permit { _permit: permit }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use proptest::prelude::*;

    use super::*;

    /// A call in its first turn.
    type Running = (Permit, AdmittedCall);
    type Waiting = BoxFuture<'static, Running>;

    fn new(permits: usize) -> Arc<Concurrency> {
        Arc::new(Concurrency::new(permits))
    }

    fn asks(permits: &Arc<Concurrency>, controller: &'static str) -> Waiting {
        let permits = Arc::clone(permits);
        async move {
            let begun = permits.begin(controller).await;
            (begun.turn().await, begun)
        }
        .boxed()
    }

    /// It has a permit at once.
    fn runs(permits: &Arc<Concurrency>, controller: &'static str) -> Option<Running> {
        asks(permits, controller).now_or_never()
    }

    fn waits(permits: &Arc<Concurrency>, controller: &'static str) -> Waiting {
        let mut waiting = asks(permits, controller);
        assert!(got(&mut waiting).is_none(), "there is a permit");
        waiting
    }

    fn got(waiting: &mut Waiting) -> Option<Running> {
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
        let taken = [runs(&permits, "a").unwrap(), runs(&permits, "b").unwrap()];
        assert!(runs(&permits, "c").is_none());
        drop(taken);
        assert_eq!(free(&permits), 2);
    }

    #[test]
    fn a_controller_has_a_quarter_of_the_permits() {
        let permits = new(8);
        let mut bad = [runs(&permits, "bad"), runs(&permits, "bad")];
        let mut third = waits(&permits, "bad");
        let good = runs(&permits, "good");
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
        let mut running = runs(&permits, "busy").unwrap();
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
        let running = runs(&permits, "a").unwrap();
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
        let running = runs(&permits, "a").unwrap();
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
                let _running = asks(&permits, ["a", "b", "c"][number % 3]).await;
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
