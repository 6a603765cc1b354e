//! What makes a controller look at its parents: changes of objects, another hook, the time.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::object::id::Key;
use metahook_core::spread;
use metahook_core::trigger;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::composite::Controller;
use super::running::Begun;
use crate::queue::Queue;
use crate::store::{Change, Store};

/// Looks at all parents again as after a failure that lies in the past, not all at once.
pub(super) fn sync_all(controller: &Controller, queue: &Queue<Key>) {
    let keys = controller.parent_keys();
    let total = keys.len();
    for (nth, key) in keys.into_iter().enumerate() {
        queue.add_fresh(key, spread::delay(nth, total));
    }
}

/// Looks at all parents again and again, where the controller asks for it.
pub(super) async fn resync(controller: &Controller, queue: &Queue<Key>, period: Option<Duration>) {
    let Some(period) = period else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(period).await;
        controller.parent_keys().into_iter().for_each(|key| queue.add(key));
    }
}

/// From stores to the queue: one task per store.
pub(super) fn spawn(controller: &Arc<Controller>, queue: &Arc<Queue<Key>>, begun: Begun) -> Vec<AbortHandle> {
    let spawn = |store: &Arc<Store>, child| {
        let (controller, queue) = (Arc::clone(controller), Arc::clone(queue));
        let changes = match begun {
            Begun::First => store.listen(),
            Begun::Anew => store.changes(),
        };
        tokio::spawn(trigger_all(controller, queue, changes, child)).abort_handle()
    };
    let mut tasks = vec![spawn(&controller.parents, false)];
    tasks.extend(controller.children.iter().map(|store| spawn(store, true)));
    tasks
}

async fn trigger_all(
    controller: Arc<Controller>,
    queue: Arc<Queue<Key>>,
    mut changes: mpsc::UnboundedReceiver<Change>,
    child: bool,
) {
    while let Some(Change { touched, by }) = changes.recv().await {
        let own = by.filter(|writer| writer.controller == controller.object.uid).map(|writer| writer.parent);
        let keys = if child {
            controller
                .parents
                .view(|parents| trigger::on_child(&touched, parents, controller.terms.generate_selector))
        } else {
            trigger::on_parent(&touched, &controller.terms.selection).into_iter().collect()
        };
        // The pass that wrote it looks again by itself.
        keys.into_iter().filter(|key| own.as_ref() != Some(key)).for_each(|key| queue.add(key));
    }
}
