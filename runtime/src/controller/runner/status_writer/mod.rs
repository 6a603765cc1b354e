//! Writer of a controller's status: each change a moment later, and the last deletions before the end.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::as_stored;
use metahook_core::api::reason::EventReason;
use metahook_core::api::status::{self, ControllerStatus, Report};
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::hosting::Hosting;
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
use crate::controller::Context;
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

/// A server that no longer selects a controller may say so after another one took it over, whose status is then written again
/// within this time.
const REWRITE_INTERVAL: Duration = Duration::from_secs(5);

/// A change is written soon, a status that keeps changing seldom.
const WRITE_RATE: Rate = Rate { per_second: 0.1, burst: 6 };

/// Writer of the status of one controller.
pub(super) struct StatusWriter {
    api: ApiClient,
    recorder: Recorder,
    store: Arc<Store>,
    key: Key,
    uid: Uid,
    /// Which controllers the server hosts.
    hosting: Hosting,
    /// The status as this server wrote it last, or found it to be what it would write.
    written: Option<ControllerStatus>,
}

impl StatusWriter {
    pub(super) fn new(context: &Context, store: Arc<Store>, controller: &Object) -> Self {
        let (api, recorder) = (context.cluster.api.clone(), context.cluster.recorder.clone());
        let hosting = context.hosting.clone();
        let (key, uid) = (controller.key.clone(), controller.uid.clone());
        Self { api, recorder, store, key, uid, hosting, written: None }
    }

    /// Ends after the reporter.
    pub(super) async fn run(mut self, mut report: watch::Receiver<Report>, stop: CancellationToken) {
        let is_dropped = self.write_changes(&mut report, &stop).await;
        // The last reconciles may delete children, too.
        while report.changed().await.is_ok() {}
        if !self.api.gate().is_open() {
            return;
        }
        let last = report.borrow().clone();
        if self.is_released() {
            // Nothing else depends on it: where the API server does not take it in time, the status stays as it is.
            drop(tokio::time::timeout(LAST_WRITE_TIMEOUT, self.release(&last)).await);
            return;
        }
        if is_dropped || self.now().is_none_or(|object| seen(&object).deletions == last.deletions) {
            return;
        }
        let written = tokio::time::timeout(LAST_WRITE_TIMEOUT, self.write(&last)).await;
        if !matches!(written, Ok(Ok(_))) {
            tracing::warn!(controller = %self.key, "the last deletions are not written to the controller's status: a server that starts may let as many through again");
        }
    }

    /// Writes each change a moment later, until the reporter is gone; whether the API server drops what is written.
    async fn write_changes(
        &mut self,
        report: &mut watch::Receiver<Report>,
        stop: &CancellationToken,
    ) -> bool {
        let (mut written, mut dropped, mut ungranted) = (true, false, false);
        tokio::select! {
            () = stop.cancelled() => return dropped,
            () = self.api.gate().opened() => {}
        }
        let (start, mut limiter) = (Instant::now(), RateLimiter::new(WRITE_RATE));
        let mut rewrites = tokio::time::interval(REWRITE_INTERVAL);
        loop {
            tokio::select! {
                () = stop.cancelled() => return dropped,
                _ = rewrites.tick(), if written => if !self.is_overwritten() { continue },
                changed = report.changed(), if !dropped && !ungranted => if changed.is_err() { return dropped },
                () = tokio::time::sleep(retry_delay(dropped, ungranted)), if !written => {}
            }
            // Once the right is granted, the status is there within seconds.
            let wait = if ungranted { Duration::ZERO } else { limiter.take(start.elapsed()) };
            tokio::select! {
                () = stop.cancelled() => return dropped,
                () = tokio::time::sleep(wait.max(WRITE_DELAY)) => {}
            }
            let now = report.borrow_and_update().clone();
            let result = self.write(&now).await;
            let key = &self.key;
            written = match result {
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

    /// The controller is there, and its labels do not match.
    fn is_released(&self) -> bool {
        self.now().is_some_and(|object| !self.hosting.hosts(&object))
    }

    /// A server that had the controller before has said that it does not select it.
    fn is_overwritten(&self) -> bool {
        self.now().is_some_and(|object| status::is_released(&seen(&object)))
    }

    /// Says that the server no longer selects the controller: once, and not over the status of a server that does.
    async fn release(&mut self, last: &Report) {
        while self.is_released() {
            let Some(object) = self.now() else { return };
            let (written, deletions) = (self.written.as_ref(), last.deletions.clone());
            let Some(status) = status::released(written, &seen(&object), deletions, &timestamp()) else {
                return;
            };
            match self.put(&object, &status).await {
                Ok(_) => return,
                // Another version of it has come, or comes.
                Err(error) => {
                    tracing::debug!(controller = %self.key, error = error_chain(&error), "the status of a controller that is not selected could not be written; it is tried again");
                    tokio::time::sleep(WRITE_DELAY).await;
                }
            }
        }
    }

    /// `Ok(false)`: the API server took the write and dropped what was in it.
    async fn write(&mut self, report: &Report) -> Result<bool, ApplyError> {
        let Some(object) = self.now() else {
            return Ok(true);
        };
        let before = seen(&object);
        let Some(status) = status::next(&before, report, &timestamp()) else {
            self.written = Some(before);
            return Ok(true);
        };
        self.put(&object, &status).await
    }

    async fn put(&mut self, object: &Object, status: &ControllerStatus) -> Result<bool, ApplyError> {
        let body = json!({
            "apiVersion": object.gvk.api_version(),
            "kind": &*object.gvk.kind,
            "metadata": {"name": &*self.key.name, "uid": object.uid.as_str(), "resourceVersion": object.version.as_str()},
            "status": as_stored(status),
        });
        let id = ObjectId { resource: Arc::clone(&self.store.resource), key: self.key.clone() };
        let known = self.api.carry_out(&Op::Status { id, body }).await?.events;
        let mut kept = true;
        for event in &known {
            if let CacheEvent::Wrote(object) = event {
                let stored = seen(object);
                kept = !stored.conditions.is_empty();
                self.written = Some(stored);
            }
        }
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
mod tests;
