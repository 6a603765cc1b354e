//! Queue of the parents of one kind: its workers, and the triggers that add parents to it: changes of objects, another hook,
//! the time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{pending, select_all};
use metahook_core::api::policy::BrakeLimits;
use metahook_core::cache::label_index::OrphanAdopters;
use metahook_core::cache::waiting_changes::{Forgotten, WaitingChange};
use metahook_core::cache::{ObjectChange, trigger};
use metahook_core::children::deletion_brake::Census;
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{Key, Uid};
use metahook_core::pacing::lanes::Cause;
use metahook_core::pacing::{ResyncRounds, resync_delay};
use metahook_core::reconcile::changed_fields::ChangedFields;
use metahook_core::reconcile::trigger::ReconcileCause;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::controller::brake::Brake;
use crate::controller::decorator_conflicts::Decorator;
use crate::controller::hooks::HookCaller;
use crate::controller::reconcile::Reconciler;
use crate::controller::related::RelatedObjects;
use crate::controller::runner::{StartReason, StopReason};
use crate::controller::{ChangeOrigin, Context, changed_fields};
use crate::queue::{self, Queue, Throttle, Workers};
use crate::store::listeners::ObjectChanges;
use crate::store::{Change, Store};
use crate::sync::{Tasks, lock};
use crate::telemetry::standard::QueueMeter;

pub(crate) struct ParentQueue {
    pub(crate) reconciler: Arc<Reconciler>,
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) tasks: Arc<Tasks>,
    /// Held for the scrapes.
    _meter: Arc<QueueMeter>,
}

impl ParentQueue {
    /// `restricted`: the controller reads related objects with the rights of a ServiceAccount.
    pub(crate) fn new(
        hooks: HookCaller,
        decorator: Option<Decorator>,
        context: &Context,
        restricted: bool,
        throttle: Throttle,
    ) -> Self {
        let queue = Arc::new(Queue::new(throttle, |key: &Key| &key.namespace));
        let figures = Arc::clone(&queue);
        let config = &hooks.data.config;
        let meter =
            context.telemetry.metrics.queue(config.kind.name(), &config.name, move || figures.figures());
        let tasks = Arc::new(Tasks::default());
        let related = RelatedObjects::new(
            hooks.clone(),
            Arc::clone(&queue),
            Arc::clone(&tasks),
            &context.cluster,
            (context.options.customize, restricted),
        );
        let reconciler = Reconciler::new(hooks, Arc::new(related), decorator, context);
        Self { reconciler: Arc::new(reconciler), queue, tasks, _meter: meter }
    }

    /// Starts the workers; they end with the queue.
    pub(crate) fn begin(
        &self,
        reason: StartReason,
        workers: &Workers,
        period: Option<Duration>,
    ) -> JoinSet<()> {
        if let Some(Decorator { id, coordinator }) = &self.reconciler.parents.decorator {
            coordinator.works(id, &self.reconciler.data.parents, &self.queue);
        }
        spawn_triggers(self);
        if let Some(period) = period {
            let first = Instant::now() + ResyncRounds::first_start(self.reconciler.parents.count(), period);
            self.reconciler.set_next_resync(first);
            let resync = resync(Arc::clone(&self.reconciler), Arc::clone(&self.queue), first, period);
            self.tasks.spawn(resync);
        }
        match reason {
            StartReason::First => self.queue.add_all(&self.reconciler.parents.keys(), Cause::Periodic),
            StartReason::Anew => self.sync_all(),
        }
        let reconciler = Arc::clone(&self.reconciler);
        let work = move |key, retry_state| {
            let reconciler = Arc::clone(&reconciler);
            async move { reconciler.reconcile(&key, retry_state).await }
        };
        queue::start_workers(&self.queue, workers, work)
    }

    /// Adds all parents, not all at once: as after a failure that lies in the past.
    pub(crate) fn sync_all(&self) {
        let keys = self.reconciler.parents.keys();
        let total = keys.len();
        for (nth, key) in keys.into_iter().enumerate() {
            self.queue.add_after(key, resync_delay(nth, total));
        }
    }

    /// Adds the parents whose last reconcile failed, not all at once: their cause may be gone.
    pub(crate) fn sync_failing(&self) {
        let keys: Vec<_> = self.reconciler.parents.settled().failing().keys().cloned().collect();
        let total = keys.len();
        for (nth, key) in keys.into_iter().enumerate() {
            self.queue.add_after(key, resync_delay(nth, total));
        }
    }

    async fn tend(&self) -> StopReason {
        tokio::select! {
            () = self.tasks.broken() => StopReason::Broken,
            () = self.reconciler.related.watch_discovery() => StopReason::Anew,
            () = self.reconciler.related.close_scopes() => StopReason::Anew,
        }
    }
}

/// Runs the periodic work of all parts, until one of them stops.
pub(crate) async fn tend(parts: &[ParentQueue]) -> StopReason {
    if parts.is_empty() {
        return pending().await;
    }
    select_all(parts.iter().map(|part| part.tend().boxed())).await.0
}

/// Tells the brake of other hooks or another spec.
pub(crate) fn version_changed(brake: &Brake, version: Fingerprint, parts: &[ParentQueue]) {
    // Nothing is deleted meanwhile. The version that runs when the controller is resumed is compared with the one before.
    if parts.iter().any(|part| part.reconciler.data.config.paused) {
        return;
    }
    brake.with(|brake, now| brake.version_changed(version, now, |limits| census(parts, limits)));
}

/// The parents of all kinds, and the number of their children.
fn census(parts: &[ParentQueue], limits: &BrakeLimits) -> Census {
    let mut all = Census::default();
    for part in parts {
        let Census { parents, children } = part.reconciler.parents.census(limits);
        all.parents.extend(parents);
        all.children += children;
    }
    all
}

/// Parents that a resync checks before other tasks of the thread get their turn.
const RESYNC_CHUNK: usize = 128;

/// Checks all parents once in each period. Those that need a reconcile are added evenly over the period; to check the
/// settled ones costs next to nothing.
async fn resync(reconciler: Arc<Reconciler>, queue: Arc<Queue<Key>>, first: Instant, period: Duration) {
    let mut next = first;
    loop {
        tokio::time::sleep_until(next).await;
        let start = Instant::now();
        next = start + period;
        reconciler.set_next_resync(next);
        let mut rounds = ResyncRounds::new(reconciler.parents.count(), period);
        let mut last = None;
        loop {
            let some = reconciler.parents.after(last.as_ref(), RESYNC_CHUNK);
            let Some(end) = some.last() else { break };
            last = Some(end.key.clone());
            let found = reconciler.parents.needing_reconcile(&some);
            reconciler.count_resynced(&some, &found);
            let mut waiting = found.as_slice();
            while !waiting.is_empty() {
                let (count, next) = rounds.next(waiting.len());
                let (now, later) = waiting.split_at(count);
                queue.add_all(now, Cause::Periodic);
                waiting = later;
                tokio::time::sleep_until(start + next).await;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Spawns a task for each store that adds the parents of changed objects to the queue.
fn spawn_triggers(part: &ParentQueue) {
    let data = &part.reconciler.data;
    let adopts = data.config.kind.adopts_by_own_selectors();
    let adopters = adopts.then(|| Arc::new(Mutex::new(OrphanAdopters::default())));
    let spawn = |store: &Arc<Store>, child| {
        let trigger = Trigger {
            reconciler: Arc::clone(&part.reconciler),
            queue: Arc::clone(&part.queue),
            adopters: adopters.clone(),
            store: Arc::clone(store),
            child,
        };
        part.tasks.spawn(trigger.run(store.changes()));
    };
    spawn(&data.parents, false);
    // From here on changes arrive. The parents that were listed before are observed here.
    data.parents.view(|parents| {
        for parent in parents.all() {
            let change = ObjectChange { before: None, after: Some(parent.clone()) };
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
    /// Adopters among the parents, where those have selectors of their own.
    adopters: Option<Arc<Mutex<OrphanAdopters>>>,
    store: Arc<Store>,
    child: bool,
}

impl Trigger {
    async fn run(self, changes: Arc<ObjectChanges>) {
        loop {
            match changes.next().await {
                WaitingChange::Of(object, by) => self.changed(&Change { object, by }),
                WaitingChange::Forgotten(key, forgotten) => self.forgotten(&key, &forgotten),
            }
        }
    }

    fn changed(&self, change: &Change) {
        let (object, data) = (&change.object, &self.reconciler.data);
        let keys = if self.child { self.child(object, &BTreeSet::new()) } else { self.parent(object) };
        if self.child
            && let Some(key) = object.key()
        {
            let how = match (&object.before, &object.after) {
                (None, _) => "came",
                (Some(_), Some(_)) => "changed",
                (Some(_), None) => "went",
            };
            data.note_cause(&keys, || {
                let text = format!("{} {key} {how}", self.store.resource.gvk.kind);
                let fields =
                    if data.is_own(change) { ChangedFields::default() } else { changed_fields(object) };
                ReconcileCause { fields, ..text.into() }
            });
        } else if !keys.is_empty() {
            data.note_parent_change(change);
        }
        let cause = || if self.child { Cause::Related } else { trigger::parent_cause(object) };
        data.add_changed(&self.queue, keys, change, cause);
    }

    /// There were too many changes to remember how the object changed, and by whom.
    fn forgotten(&self, key: &Key, Forgotten { gone, controllers }: &Forgotten) {
        let keys = if self.child {
            self.child(&ObjectChange { before: None, after: self.store.held(key) }, controllers)
        } else {
            let now = self.store.get(key);
            if let Some(adopters) = &self.adopters {
                lock(adopters).learn_now(key, now.as_deref());
            }
            self.reconciler.parents.observe_forgotten(key, gone, now.as_deref()).into_iter().collect()
        };
        self.reconciler.data.add_concerned(&self.queue, keys, ChangeOrigin::default(), Cause::Related);
    }

    fn parent(&self, change: &ObjectChange) -> BTreeSet<Key> {
        if let Some(adopters) = &self.adopters {
            lock(adopters).learn(change);
        }
        self.reconciler.parents.observe(change).into_iter().collect()
    }

    /// `controllers`: those that the child had in between.
    fn child(&self, change: &ObjectChange, controllers: &BTreeSet<Uid>) -> BTreeSet<Key> {
        let data = &self.reconciler.data;
        data.parents.view(|parents| {
            let mut keys = match &self.adopters {
                Some(adopters) => trigger::on_child(change, parents, Some(&lock(adopters))),
                None => trigger::on_child(change, parents, None),
            };
            keys.append(&mut trigger::with_uids(controllers, parents));
            // Objects that the controller does not select may own children of the same kinds.
            let is_selected = |parent: &Arc<Object>| data.config.selection.includes(parent);
            keys.retain(|key| parents.get(key).and_then(CachedObject::whole).is_some_and(is_selected));
            keys
        })
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::cache::CacheEvent;
    use metahook_core::object::Object;
    use metahook_core::object::id::Resource;
    use metahook_core::reconcile::outcome::{Outcome, RetryState};
    use serde_json::json;

    use super::*;
    use crate::cluster::fake;
    use crate::controller::reconcile::testing;

    #[tokio::test(start_paused = true)]
    async fn parents_that_fail_run_at_once_where_the_cause_may_be_gone() {
        let part = testing::parent_queue(fake::answering(|_| None));
        let [failing, postponed] = ["failing", "postponed"].map(|name| Key::new("n", name));
        let hour = Duration::from_hours(1);
        for (key, outcome) in [(&failing, Outcome::Failed(hour)), (&postponed, Outcome::Postponed(hour))] {
            part.queue.add(key.clone(), Cause::Changed);
            assert_eq!(part.queue.next().await.map(|(key, _)| key).as_ref(), Some(key));
            part.queue.done(key, outcome);
        }
        part.reconciler.parents.settled().fail(&failing, "HookConnect");
        let start = Instant::now();
        part.sync_failing();
        let anew = RetryState { in_a_row: 1, ..RetryState::default() };
        assert_eq!(part.queue.next().await, Some((failing.clone(), anew)));
        assert_eq!(start.elapsed(), Duration::ZERO);
        part.queue.done(&failing, Outcome::Settled(None));
        assert_eq!(part.queue.next().await.map(|(key, _)| key), Some(postponed));
        assert!(start.elapsed() >= hour);
    }

    #[tokio::test(start_paused = true)]
    async fn a_resync_that_is_asked_for_after_a_tenth_of_a_second_comes_within_half_a_second() {
        let part = testing::parent_queue(fake::answering(|_| None));
        let (key, tenth) = (Key::new("n", "p"), Some(Duration::from_millis(100)));
        part.queue.add(key.clone(), Cause::Changed);
        assert!(part.queue.next().await.is_some());
        for outcome in [Outcome::Settled(tenth), Outcome::NoEffect(tenth)] {
            let start = Instant::now();
            part.queue.done(&key, outcome);
            assert_eq!(part.queue.next().await.map(|(next, _)| next).as_ref(), Some(&key));
            let took = start.elapsed();
            assert!((100..500).contains(&took.as_millis()), "{outcome:?}: {took:?}");
        }
    }

    fn trigger(part: &ParentQueue, store: &Arc<Store>, child: bool) -> Trigger {
        let (reconciler, queue) = (Arc::clone(&part.reconciler), Arc::clone(&part.queue));
        Trigger { reconciler, queue, adopters: None, store: Arc::clone(store), child }
    }

    /// Versions of an object with this uid, each of which takes a megabyte.
    fn version(kind: &Resource, (name, uid): (&str, &str), version: u32, owner: &str) -> CacheEvent {
        let owner = json!({"apiVersion": "v1", "kind": "P", "name": "p", "uid": owner, "controller": true});
        let metadata = json!({
            "namespace": "n", "name": name, "uid": uid, "resourceVersion": version.to_string(), "ownerReferences": [owner],
        });
        let text = "x".repeat(1 << 20);
        let object = json!({
            "apiVersion": kind.gvk.api_version(), "kind": kind.gvk.kind.to_string(), "metadata": metadata, "text": text,
        });
        CacheEvent::Wrote(Arc::new(Object::parse(&object.to_string(), None).unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn more_changes_than_are_remembered_trigger_the_same_parents() {
        let part = testing::parent_queue(fake::answering(|_| None));
        let data = &part.reconciler.data;
        let (parents, children) = (&data.parents, &data.children[0]);
        for (name, uid) in [("one", "1"), ("two", "2"), ("other", "3")] {
            parents.observe_write(vec![version(&parents.resource, (name, uid), 1, "q")]);
        }
        let mut latest = 1;
        for (child, count) in [(true, 40), (false, 40), (true, 3), (false, 3)] {
            let store = if child { children } else { parents };
            let changes = store.changes();
            // A child goes from one parent to the next; or the parent itself changes.
            for nth in 0..count {
                let (of, owner) = if child { (("c", "c"), ["1", "2"][nth % 2]) } else { (("one", "1"), "q") };
                latest += 1;
                store.observe_write(vec![version(&store.resource, of, latest, owner)]);
            }
            assert!(changes.held() <= 16 << 20, "{} bytes", changes.held());
            let run = tokio::spawn(trigger(&part, store, child).run(changes));
            let mut triggered = BTreeSet::new();
            while let Ok(Some((key, _))) =
                tokio::time::timeout(Duration::from_secs(1), part.queue.next()).await
            {
                part.queue.done(&key, Outcome::Settled(None));
                triggered.insert(key.name.to_string());
            }
            run.abort();
            let expected: &[&str] = if child { &["one", "two"] } else { &["one"] };
            assert_eq!(triggered.iter().collect::<Vec<_>>(), expected, "{child} {count}");
        }
    }
}
