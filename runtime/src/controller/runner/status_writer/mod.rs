//! Writer of a controller's status: each change a moment later, and the last deletions before the end.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::as_stored;
use metahook_core::api::reason::EventReason;
use metahook_core::api::status::{self, ControllerStatus, Report};
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId, Uid};
use metahook_core::pacing::{Rate, RateLimiter};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::ApiClient;
use crate::cluster::apply::ApplyError;
use crate::cluster::events::Recorder;
use crate::cluster::rights::UNGRANTED_DELAY;
use crate::controller::Cluster;
use crate::store::Store;
use crate::telemetry::{error_chain, timestamp};

/// A status that could not be written is tried again this much later; one that the API server dropped, that much; one that
/// the server may not write, after [`UNGRANTED_DELAY`].
const RETRY_DELAY: Duration = Duration::from_secs(2);
const DROPPED_RETRY_DELAY: Duration = Duration::from_mins(5);

/// The last status is written within this time, or not at all.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Changes that come together are written together.
const WRITE_DELAY: Duration = Duration::from_millis(200);

/// A change is written soon, a status that keeps changing seldom.
const WRITE_RATE: Rate = Rate { per_second: 0.1, burst: 6 };

/// Writer of the status of one controller.
pub(super) struct StatusWriter {
    api: ApiClient,
    recorder: Recorder,
    store: Arc<Store>,
    key: Key,
    uid: Uid,
}

impl StatusWriter {
    pub(super) fn new(cluster: &Cluster, store: Arc<Store>, controller: &Object) -> Self {
        let (api, recorder) = (cluster.api.clone(), cluster.recorder.clone());
        Self { api, recorder, store, key: controller.key.clone(), uid: controller.uid.clone() }
    }

    /// Ends after the reporter.
    pub(super) async fn run(self, mut report: watch::Receiver<Report>, stop: CancellationToken) {
        let is_dropped = self.write_changes(&mut report, &stop).await;
        // The last reconciles may delete children, too.
        while report.changed().await.is_ok() {}
        let last = report.borrow().clone();
        if is_dropped || self.now().is_none_or(|object| seen(&object).deletions == last.deletions) {
            return;
        }
        let written = tokio::time::timeout(LAST_WRITE_TIMEOUT, self.write(&last)).await;
        if !matches!(written, Ok(Ok(_))) {
            tracing::warn!(controller = %self.key, "the last deletions are not written to the controller's status: a server that starts may let as many through again");
        }
    }

    /// Writes each change a moment later, until the reporter is gone; whether the API server drops what is written.
    async fn write_changes(&self, report: &mut watch::Receiver<Report>, stop: &CancellationToken) -> bool {
        let (mut written, mut dropped, mut ungranted) = (true, false, false);
        let (start, mut limiter) = (Instant::now(), RateLimiter::new(WRITE_RATE));
        loop {
            tokio::select! {
                () = stop.cancelled() => return dropped,
                changed = report.changed(), if !dropped && !ungranted => if changed.is_err() { return dropped },
                () = tokio::time::sleep(retry_delay(dropped, ungranted)), if !written => {}
            }
            // Once the right is granted, the status is there within seconds.
            let wait = if ungranted { Duration::ZERO } else { limiter.take(start.elapsed()) };
            tokio::select! {
                () = stop.cancelled() => return dropped,
                () = tokio::time::sleep(wait.max(WRITE_DELAY)) => {}
            }
            let (now, key) = (report.borrow_and_update().clone(), &self.key);
            written = match self.write(&now).await {
                Ok(true) => {
                    (dropped, ungranted) = (false, false);
                    true
                }
                Ok(false) => {
                    ungranted = false;
                    if !dropped {
                        tracing::warn!(controller = %key, "the API server drops the status of controllers: apply metahook's CustomResourceDefinitions (kubectl apply --server-side -f manifests/crds)");
                    }
                    dropped = true;
                    false
                }
                Err(error) if error.is_ungranted() => {
                    if !ungranted {
                        self.record_ungranted(&error);
                    }
                    ungranted = true;
                    false
                }
                Err(error) => {
                    tracing::debug!(controller = %key, error = error_chain(&error), "the status of a controller could not be written; it is tried again");
                    false
                }
            };
        }
    }

    /// The controller works all the same, as with roles that Metacontroller's users wrote.
    fn record_ungranted(&self, error: &ApplyError) {
        let message = format!("The controller works, and its status is not written: {}", error_chain(error));
        tracing::warn!(controller = %self.key, reason = message, "the status of a controller may not be written");
        if let Some(object) = self.now() {
            self.recorder.record(&object, EventReason::StatusForbidden, &message);
        }
    }

    fn now(&self) -> Option<Arc<Object>> {
        self.store.get(&self.key).filter(|object| object.uid == self.uid)
    }

    /// `Ok(false)`: the API server took the write and dropped what was in it.
    async fn write(&self, report: &Report) -> Result<bool, ApplyError> {
        let Some(object) = self.now() else {
            return Ok(true);
        };
        let Some(status) = status::next(&seen(&object), report, &timestamp()) else {
            return Ok(true);
        };
        let body = json!({
            "apiVersion": object.gvk.api_version(),
            "kind": &*object.gvk.kind,
            "metadata": {"name": &*self.key.name, "uid": object.uid.as_str(), "resourceVersion": object.version.as_str()},
            "status": as_stored(&status),
        });
        let id = ObjectId { resource: Arc::clone(&self.store.resource), key: self.key.clone() };
        let known = self.api.carry_out(&Op::Status { id, body }).await?;
        let kept = known.iter().all(|event| match event {
            CacheEvent::Wrote(object) => !seen(object).conditions.is_empty(),
            _ => true,
        });
        self.store.observe_write(known);
        Ok(kept)
    }
}

fn retry_delay(dropped: bool, ungranted: bool) -> Duration {
    match (dropped, ungranted) {
        (_, true) => UNGRANTED_DELAY,
        (true, false) => DROPPED_RETRY_DELAY,
        (false, false) => RETRY_DELAY,
    }
}

/// The status that a controller has now.
pub(super) fn seen(object: &Object) -> ControllerStatus {
    #[derive(Deserialize)]
    struct Reported {
        #[serde(default)]
        status: ControllerStatus,
    }
    serde_json::from_str(object.json()).map(|object: Reported| object.status).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use metahook_core::api::status::DeletionStatus;
    use metahook_core::object::id::Resource;

    use super::*;
    use crate::cluster::fake;
    use crate::controller::reconcile::testing::context;
    use crate::controller::runner::report::Reporter;
    use crate::store::Stores;

    fn controller() -> Object {
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "1"},
        });
        Object::parse(&controller.to_string(), None).unwrap()
    }

    /// A reporter over this API server.
    fn reporter(api: ApiClient, stop: &CancellationToken) -> Reporter {
        let controller = controller();
        let resource = Resource {
            gvk: controller.gvk.clone(),
            plural: "compositecontrollers".into(),
            namespaced: false,
            has_status: true,
        };
        let store = Stores::new(api.clone()).open(&Arc::new(resource));
        store.observe_write(vec![CacheEvent::Applied(controller.clone())]);
        Reporter::start(&context(api).cluster, store, &controller, stop.clone())
    }

    /// The writes of a status after a change that is followed by the end at once.
    async fn last_writes(change: impl FnOnce(&mut Report)) -> usize {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let api = fake::answering(move |request| {
            let is_write = *request.method() == http::Method::PUT;
            is_write.then(|| counted.fetch_add(1, Ordering::Relaxed));
            None
        });
        let stop = CancellationToken::new();
        let reporter = reporter(api, &stop);
        reporter.change(change);
        stop.cancel();
        reporter.ended().await;
        writes.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_may_not_be_written_is_told_once_and_written_soon_after_the_grant() {
        let (events, refused) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let (is_granted, written) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let seen = (Arc::clone(&events), Arc::clone(&refused), Arc::clone(&is_granted), Arc::clone(&written));
        let api = fake::answering(move |request| {
            let (status, message) = match (request.method().as_str(), seen.2.load(Ordering::Relaxed)) {
                ("POST", _) => {
                    seen.0.fetch_add(1, Ordering::Relaxed);
                    (201, "")
                }
                ("PUT", false) => {
                    seen.1.fetch_add(1, Ordering::Relaxed);
                    (403, "x is forbidden: User \"u\" cannot update resource \"compositecontrollers/status\"")
                }
                ("PUT", true) => {
                    seen.3.store(true, Ordering::Relaxed);
                    (200, "")
                }
                _ => return None,
            };
            let mut body: serde_json::Value = serde_json::from_str(controller().json()).unwrap();
            body["message"] = json!(message);
            http::Response::builder().status(status).body(body.to_string()).ok()
        });
        let stop = CancellationToken::new();
        let reporter = reporter(api, &stop);
        reporter.change(|report| report.counts.parents = 3);
        tokio::time::sleep(Duration::from_mins(1)).await;
        let tries = refused.load(Ordering::Relaxed);
        assert!((10..30).contains(&tries), "{tries}");
        assert_eq!(events.load(Ordering::Relaxed), 1, "told once");
        is_granted.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(written.load(Ordering::Relaxed));
        stop.cancel();
        reporter.ended().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_deletions_are_written_before_the_end_and_nothing_else() {
        let deletions = DeletionStatus { deleted: Some(3), ..DeletionStatus::default() };
        assert_eq!(last_writes(|report| report.deletions = deletions).await, 1);
        assert_eq!(last_writes(|report| report.counts.parents = 3).await, 0);
    }
}
