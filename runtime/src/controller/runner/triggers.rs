//! What makes a controller look at its parents: changes of objects, another hook, the time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_core::cache::ObjectChange;
use metahook_core::cache::orphan_adopters::OrphanAdopters;
use metahook_core::cache::trigger;
use metahook_core::object::id::{Key, Resource, Uid};
use metahook_core::pacing::resync::{self, ResyncRounds};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::controller::reconcile::Reconciler;
use crate::controller::runner::StartReason;
use crate::queue::Queue;
use crate::store::{Change, Store, Writer};
use crate::sync::lock;

/// Looks at all parents again as after a failure that lies in the past, not all at once.
pub(crate) fn sync_all(controller: &Reconciler, queue: &Queue<Key>) {
    let keys = controller.parent_keys();
    let total = keys.len();
    for (nth, key) in keys.into_iter().enumerate() {
        queue.add_fresh(key, resync::delay(nth, total));
    }
}

/// So many parents are looked at before other tasks of this thread get their turn.
const WITHOUT_PAUSE: usize = 128;

/// Looks at all parents again and again. Those that are not at rest get a pass, evenly over each period; the others cost
/// next to nothing, and are looked at in between.
pub(crate) async fn resync(controller: Arc<Reconciler>, queue: Arc<Queue<Key>>, period: Duration) {
    let mut next = Instant::now() + period;
    loop {
        tokio::time::sleep_until(next).await;
        let start = std::mem::replace(&mut next, Instant::now() + period);
        let mut rounds = ResyncRounds::new(controller.count_parents(), period);
        let mut last = None;
        loop {
            let some = controller.parents_after(last.as_ref(), WITHOUT_PAUSE);
            let Some(end) = some.last() else { break };
            last = Some(end.key.clone());
            let restless = controller.restless(&some);
            let mut waiting = restless.as_slice();
            while !waiting.is_empty() {
                let (count, next) = rounds.next(waiting.len());
                let (now, later) = waiting.split_at(count);
                queue.look_all(now);
                waiting = later;
                tokio::time::sleep_until(start + next).await;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// From stores to the queue: one task per store.
pub(crate) fn spawn(controller: &Arc<Reconciler>, queue: &Arc<Queue<Key>>, begun: StartReason) {
    let adopts = controller.terms.kind.adopts_by_own_selectors();
    let adopters = adopts.then(|| Arc::new(Mutex::new(OrphanAdopters::default())));
    let spawn = |store: &Arc<Store>, child| {
        let trigger = Trigger {
            controller: Arc::clone(controller),
            queue: Arc::clone(queue),
            adopters: adopters.clone(),
            child,
        };
        let changes = match begun {
            StartReason::First => store.listen(),
            StartReason::Anew => store.changes(),
        };
        controller.tasks.spawn(trigger.all(changes));
    };
    spawn(&controller.parents, false);
    // From here on changes arrive; what was there before they do not name.
    controller.parents.view(|parents| {
        for parent in parents.all() {
            let touched = ObjectChange { before: None, after: Some(Arc::clone(parent)) };
            controller.learn_parent(&touched);
            if let Some(adopters) = &adopters {
                lock(adopters).learn(&touched);
            }
        }
    });
    controller.children.iter().for_each(|store| spawn(store, true));
}

/// What the changes of one store mean for the queue.
struct Trigger {
    controller: Arc<Reconciler>,
    queue: Arc<Queue<Key>>,
    /// Where parents have selectors of their own.
    adopters: Option<Arc<Mutex<OrphanAdopters>>>,
    child: bool,
}

impl Trigger {
    async fn all(self, mut changes: mpsc::UnboundedReceiver<Change>) {
        while let Some(change) = changes.recv().await {
            let touched = &change.touched;
            let keys = if self.child { self.child(touched) } else { self.parent(touched) };
            let whose = (&self.controller.object.uid, self.controller.parents.resource());
            wake(&self.queue, keys, &change, whose);
        }
    }

    fn parent(&self, touched: &ObjectChange) -> BTreeSet<Key> {
        if let Some(adopters) = &self.adopters {
            lock(adopters).learn(touched);
        }
        self.controller.learn_parent(touched).into_iter().collect()
    }

    fn child(&self, touched: &ObjectChange) -> BTreeSet<Key> {
        self.controller.parents.view(|parents| {
            let mut keys = match &self.adopters {
                Some(adopters) => trigger::on_child(touched, parents, Some(&lock(adopters))),
                None => trigger::on_child(touched, parents, None),
            };
            // What others own of the same kinds wakes nobody here.
            let selection = &self.controller.terms.selection;
            keys.retain(|key| parents.get(key).is_some_and(|parent| selection.includes(parent)));
            keys
        })
    }
}

/// Wakes the parents that a change concerns: those of one kind, of one controller.
pub(crate) fn wake(
    queue: &Queue<Key>,
    keys: BTreeSet<Key>,
    change: &Change,
    (controller, parents): (&Uid, &Arc<Resource>),
) {
    let is_ours = |writer: &Writer| writer.controller == *controller && writer.parents == *parents;
    for key in keys {
        match &change.by {
            None => queue.add(key),
            Some(by) if !is_ours(by) || by.parent != key => queue.nudge(key),
            // What a pass deleted may be gone long after the last look.
            Some(_) if change.touched.after.is_none() => queue.look(key),
            Some(_) => {} // The pass that wrote it looks again by itself.
        }
    }
}
