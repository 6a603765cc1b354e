//! What makes a controller look at its parents: changes of objects, another hook, the time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_core::cache::ObjectChange;
use metahook_core::cache::orphan_adopters::OrphanAdopters;
use metahook_core::cache::trigger;
use metahook_core::object::id::Key;
use metahook_core::pacing::resync::{self, ResyncRounds};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::controller::reconcile::Reconciler;
use crate::controller::reconcile::parents::Parents;
use crate::controller::runner::StartReason;
use crate::controller::runner::parent_queue::ParentQueue;
use crate::queue::Queue;
use crate::store::{Change, Store};
use crate::sync::lock;

/// Looks at all parents again as after a failure that lies in the past, not all at once.
pub(crate) fn sync_all(parents: &Parents, queue: &Queue<Key>) {
    let keys = parents.keys();
    let total = keys.len();
    for (nth, key) in keys.into_iter().enumerate() {
        queue.add_after(key, resync::delay(nth, total));
    }
}

/// So many parents are looked at before other tasks of this thread get their turn.
const WITHOUT_PAUSE: usize = 128;

/// Looks at all parents again and again. Those that are not at rest get a pass, evenly over each period; the others cost
/// next to nothing, and are looked at in between.
pub(crate) async fn resync(reconciler: Arc<Reconciler>, queue: Arc<Queue<Key>>, period: Duration) {
    let mut next = Instant::now() + period;
    loop {
        tokio::time::sleep_until(next).await;
        let start = std::mem::replace(&mut next, Instant::now() + period);
        let mut rounds = ResyncRounds::new(reconciler.parents.count(), period);
        let mut last = None;
        loop {
            let some = reconciler.parents.after(last.as_ref(), WITHOUT_PAUSE);
            let Some(end) = some.last() else { break };
            last = Some(end.key.clone());
            let found = reconciler.parents.needing_reconcile(&some);
            let mut waiting = found.as_slice();
            while !waiting.is_empty() {
                let (count, next) = rounds.next(waiting.len());
                let (now, later) = waiting.split_at(count);
                queue.add_all_if_idle(now);
                waiting = later;
                tokio::time::sleep_until(start + next).await;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Spawns a task for each store that adds the parents of changed objects to the queue.
pub(crate) fn spawn(part: &ParentQueue, begun: StartReason) {
    let data = &part.reconciler.data;
    let adopts = data.config.kind.adopts_by_own_selectors();
    let adopters = adopts.then(|| Arc::new(Mutex::new(OrphanAdopters::default())));
    let spawn = |store: &Arc<Store>, child| {
        let trigger = Trigger {
            reconciler: Arc::clone(&part.reconciler),
            queue: Arc::clone(&part.queue),
            adopters: adopters.clone(),
            child,
        };
        let changes = match begun {
            StartReason::First => store.listen(),
            StartReason::Anew => store.changes(),
        };
        part.tasks.spawn(trigger.run(changes));
    };
    spawn(&data.parents, false);
    // From here on changes arrive. The parents that were listed before are observed here.
    data.parents.view(|parents| {
        for parent in parents.all() {
            let change = ObjectChange { before: None, after: Some(Arc::clone(parent)) };
            part.reconciler.parents.observe(&change);
            if let Some(adopters) = &adopters {
                lock(adopters).learn(&change);
            }
        }
    });
    data.children.iter().for_each(|store| spawn(store, true));
}

/// The changes of one store, as keys for the queue.
struct Trigger {
    reconciler: Arc<Reconciler>,
    queue: Arc<Queue<Key>>,
    /// Where parents have selectors of their own.
    adopters: Option<Arc<Mutex<OrphanAdopters>>>,
    child: bool,
}

impl Trigger {
    async fn run(self, mut changes: mpsc::UnboundedReceiver<Change>) {
        while let Some(change) = changes.recv().await {
            let touched = &change.touched;
            let keys = if self.child { self.child(touched) } else { self.parent(touched) };
            self.reconciler.data.add_changed(&self.queue, keys, &change);
        }
    }

    fn parent(&self, change: &ObjectChange) -> BTreeSet<Key> {
        if let Some(adopters) = &self.adopters {
            lock(adopters).learn(change);
        }
        self.reconciler.parents.observe(change).into_iter().collect()
    }

    fn child(&self, change: &ObjectChange) -> BTreeSet<Key> {
        let data = &self.reconciler.data;
        data.parents.view(|parents| {
            let mut keys = match &self.adopters {
                Some(adopters) => trigger::on_child(change, parents, Some(&lock(adopters))),
                None => trigger::on_child(change, parents, None),
            };
            // Objects that the controller does not select may own children of the same kinds.
            keys.retain(|key| parents.get(key).is_some_and(|parent| data.config.selection.includes(parent)));
            keys
        })
    }
}
