//! Status of a running controller: conditions and counters, written when they change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::hook::HookName;
use metahook_core::api::policy::BrakeLimits;
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::{self, ControllerStatus, DeletionStatus, Finding, ParentCounts, Report};
use metahook_core::api::{ONLY_FINALIZES, as_stored};
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::children::deletion_brake::{ALLOW_DELETIONS, DeletionBrake, HeldDeletions};
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::pacing::lanes::Cause;
use metahook_core::pacing::{Rate, RateLimiter};
use metahook_core::settled::Purity;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::ApiClient;
use crate::controller::Brake;
use crate::controller::hooks::Hook;
use crate::controller::reconcile::Reconciler;
use crate::controller::runner::ControllerRunner;
use crate::controller::runner::parent_queue::ParentQueue;
use crate::store::Store;
use crate::telemetry::{error_chain, timestamp};

/// A status that could not be written is tried again this much later; one that the API server dropped, that much.
const RETRY_DELAY: Duration = Duration::from_secs(2);
const DROPPED_RETRY_DELAY: Duration = Duration::from_mins(5);

/// Changes that come together are written together.
const WRITE_DELAY: Duration = Duration::from_millis(200);

/// A change is written soon, a status that keeps changing seldom.
const WRITE_RATE: Rate = Rate { per_second: 0.1, burst: 6 };

/// Writer of a running controller's status.
pub(crate) struct Reporter {
    report: watch::Sender<Report>,
    task: JoinHandle<()>,
}

impl Reporter {
    pub(crate) fn start(
        api: ApiClient,
        store: Arc<Store>,
        controller: &Object,
        stop: CancellationToken,
    ) -> Self {
        // A server that starts goes on from what the one before it accepted.
        let stored = store.get(&controller.key).map(|object| seen(&object)).unwrap_or_default();
        let report = watch::Sender::new(Report {
            generation: controller.generation,
            deletions: stored.deletions,
            ..Report::default()
        });
        let task = tokio::spawn(write_all(api, store, controller.key.clone(), report.subscribe(), stop));
        Self { report, task }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Report)) {
        self.report.send_if_modified(|report| {
            let before = report.clone();
            change(report);
            *report != before
        });
    }

    /// The deletion brake as the server before this one, or the controller with the spec before this one, left it.
    pub(crate) fn brake(&self, limits: BrakeLimits) -> Brake {
        let DeletionStatus { accepted, deleted } = self.report.borrow().deletions.clone();
        let deleted = deleted.and_then(|deleted| usize::try_from(deleted).ok()).unwrap_or_default();
        Brake::new(DeletionBrake::new(limits, accepted, deleted))
    }

    pub(crate) async fn ended(self) {
        drop(self.report);
        // Ends by itself; a panic has been printed, and its message is all there is to say.
        self.task.await.unwrap_or_default();
    }
}

async fn write_all(
    api: ApiClient,
    store: Arc<Store>,
    key: Key,
    mut report: watch::Receiver<Report>,
    stop: CancellationToken,
) {
    let (mut written, mut dropped) = (true, false);
    let (start, mut limiter) = (Instant::now(), RateLimiter::new(WRITE_RATE));
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = report.changed(), if !dropped => if changed.is_err() { return },
            () = tokio::time::sleep(if dropped { DROPPED_RETRY_DELAY } else { RETRY_DELAY }), if !written => {}
        }
        let wait = limiter.take(start.elapsed());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait.max(WRITE_DELAY)) => {}
        }
        let now = report.borrow_and_update().clone();
        written = match write(&api, &store, &key, &now).await {
            Ok(true) => {
                dropped = false;
                true
            }
            Ok(false) => {
                if !dropped {
                    tracing::warn!(controller = %key, "the API server drops the status of controllers: apply metahook's CustomResourceDefinitions (kubectl apply --server-side -f manifests/crds)");
                }
                dropped = true;
                false
            }
            Err(error) => {
                tracing::debug!(controller = %key, error, "the status of a controller could not be written; it is tried again");
                false
            }
        };
    }
}

/// `Ok(false)`: the API server took the write and dropped what was in it.
async fn write(api: &ApiClient, store: &Arc<Store>, key: &Key, report: &Report) -> Result<bool, String> {
    let Some(object) = store.get(key) else {
        return Ok(true);
    };
    let Some(status) = status::next(&seen(&object), report, &timestamp()) else {
        return Ok(true);
    };
    let body = json!({
        "apiVersion": object.gvk.api_version(),
        "kind": &*object.gvk.kind,
        "metadata": {"name": &*key.name, "uid": object.uid.as_str(), "resourceVersion": object.version.as_str()},
        "status": as_stored(&status),
    });
    let id = ObjectId { resource: Arc::clone(&store.resource), key: key.clone() };
    let known = api.carry_out(&Op::Status { id, body }).await.map_err(|error| error_chain(&error))?;
    let kept = known.iter().all(|event| match event {
        CacheEvent::Wrote(object) => !seen(object).conditions.is_empty(),
        _ => true,
    });
    store.observe_write(known);
    Ok(kept)
}

fn seen(object: &Object) -> ControllerStatus {
    #[derive(Deserialize)]
    struct Reported {
        #[serde(default)]
        status: ControllerStatus,
    }
    serde_json::from_str(object.json()).map(|object: Reported| object.status).unwrap_or_default()
}

/// How the parents of a controller stand.
#[derive(Default)]
struct Counts {
    parents: usize,
    settled: usize,
    failing: usize,
    /// The first that fails, and how.
    first: Option<(Key, &'static str)>,
    /// Purity of the hooks, for each kind of parents.
    purity: BTreeSet<Purity>,
    flapping: usize,
    first_flapping: Option<String>,
    trouble: Option<String>,
    /// Message about deletions that wait.
    held: Option<String>,
    only_finalizes: bool,
}

impl Counts {
    fn add(&mut self, controller: &Reconciler) {
        self.parents += controller.parents.count();
        self.only_finalizes = controller.data.config.selection.only_finalizes;
        let hooks = controller.hooks.hooks.now().ok();
        {
            let settled = controller.parents.settled();
            self.settled += settled.settled();
            self.failing += settled.failing().len();
            let first = settled.failing().first_key_value();
            self.first = self.first.take().or_else(|| first.map(|(key, category)| (key.clone(), *category)));
            self.purity.extend(hooks.and_then(|hooks| settled.purity_of(hooks.identity)));
        }
        let (flapping, first) = controller.parents.histories.flapping();
        self.flapping += flapping;
        let first = first.map(|(child, paths)| format!("{child} ({})", paths.join(", ")));
        self.first_flapping = self.first_flapping.take().or(first);
        let trouble = || controller.data.stores().find_map(|store| store.trouble());
        self.trouble = self.trouble.take().or_else(trouble).or_else(|| controller.related.trouble());
    }

    fn ready(&self) -> Finding {
        if self.only_finalizes {
            return Finding::new(ConditionReason::NoSyncHook, ONLY_FINALIZES);
        }
        if self.trouble.is_none()
            && let Some(held) = &self.held
        {
            return Finding::new(ConditionReason::WaitsForConsent, held);
        }
        match (&self.trouble, &self.first) {
            (Some(trouble), _) => Finding::new(
                ConditionReason::WatchBroken,
                format!("{trouble}; parents are synced as they were seen last"),
            ),
            (None, None) => Finding::new(ConditionReason::Running, ""),
            (None, Some((key, category))) => {
                let (failing, parents) = (self.failing, self.parents);
                let message = format!(
                    "{failing} of {parents} parents fail, the first is {key} ({category}); see its Events"
                );
                Finding::new(ConditionReason::ParentsFailing, message)
            }
        }
    }

    fn held(&self) -> Finding {
        match &self.held {
            None => Finding::new(ConditionReason::NothingHeld, ""),
            Some(held) => Finding::new(ConditionReason::ThresholdExceeded, held),
        }
    }

    fn stable(&self) -> Finding {
        let Some(first) = &self.first_flapping else {
            return Finding::new(ConditionReason::NoForeignChanges, "");
        };
        let message = format!(
            "{} children are changed back again and again, the first is {first}; see its parent's Events",
            self.flapping
        );
        Finding::new(ConditionReason::ValueFlapping, message)
    }
}

impl Reporter {
    /// Reports the latest calls, if there were any.
    pub(crate) fn figures(&self, parts: &[ParentQueue]) {
        // Calls are counted for all of them together.
        let Some(ParentQueue { reconciler: controller, .. }) = parts.first() else { return };
        for (name, hook) in controller.hooks.hooks.all.iter() {
            let Hook::Wasm { limits, .. } = hook else { continue };
            if let Some(figures) = controller.data.meter.counts().figures(name, limits) {
                self.change(|report| {
                    if let Some(hook) = report.hooks.get_mut(name.as_str()) {
                        hook.latest = Some(figures);
                    }
                });
            }
        }
    }

    pub(crate) fn count(&self, parts: &[ParentQueue], brake: &Brake) {
        let (held, deletions) = brake.with(|brake, now| {
            let deleted = count(brake.deleted(now));
            let deletions = DeletionStatus {
                accepted: brake.accepted().map(str::to_owned),
                deleted: (deleted > 0).then_some(deleted),
            };
            (brake.held().map(|held| held.to_string()), deletions)
        });
        let mut counts = Counts { held, ..Counts::default() };
        for part in parts {
            counts.add(&part.reconciler);
        }
        if let Some(ParentQueue { reconciler: controller, .. }) = parts.first() {
            let mut counted = controller.data.meter.counts();
            counted.parents = counts.parents;
            counted.settled = counts.settled;
            counted.failing = counts.failing;
        }
        // The worst there is.
        let purity = counts.purity.last().copied();
        self.change(|report| {
            report.ready = counts.ready();
            report.stable = counts.stable();
            report.pure = purity.map_or(Finding::Unknown, status::purity);
            if let Some(sync) = report.hooks.get_mut(HookName::Sync.as_str()) {
                sync.pure = purity.map(|purity| purity == Purity::Pure);
            }
            report.held = counts.held();
            report.deletions = deletions;
            report.counts = ParentCounts {
                parents: count(counts.parents),
                settled: count(counts.settled),
                failing: count(counts.failing),
            };
        });
    }
}

impl ControllerRunner {
    /// Records deletions that wait, once their number no longer rises, and lets them go on where a user agrees.
    pub(crate) fn tend_brake(
        &self,
        brake: &Brake,
        parts: &[ParentQueue],
        last: &mut Option<(HeldDeletions, bool)>,
    ) {
        let (is_changed, held) = brake.with(|brake, _| (brake.is_changed(), brake.held()));
        if !is_changed {
            *last = None;
            return;
        }
        let name = &self.object.key.name;
        let object = self.context.controllers.get(self.kind, name);
        if let Some(digest) = object.and_then(|object| object.annotations().remove(ALLOW_DELETIONS)) {
            let waiting = brake.with(|brake, _| brake.allow(&digest));
            if !waiting.is_empty() {
                tracing::info!(controller = %self.object.key, digest, parents = waiting.len(), "a user lets deletions go on");
            }
            for parent in waiting {
                let part = parts.iter().find(|part| part.reconciler.data.parents.resource == parent.resource);
                if let Some(part) = part {
                    part.queue.add(parent.key, Cause::Related);
                }
            }
            // The annotation may be an old one, about another version.
            if !brake.with(|brake, _| brake.is_changed()) {
                return;
            }
        }
        *last = held.map(|held| match last.take() {
            Some((before, recorded)) if before == held => {
                if !recorded {
                    self.warn(EventReason::DeletionsHeld, &held.to_string());
                }
                (held, true)
            }
            Some(_) | None => (held, false),
        });
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
