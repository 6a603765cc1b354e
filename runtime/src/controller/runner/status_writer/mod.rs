//! Writer of a controller's status: each change a moment later, and the last deletions before the end.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::as_stored;
use metahook_core::api::reason::EventReason;
use metahook_core::api::status::{self, ControllerStatus, LAST_SEEN_INTERVAL, Report};
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::hash::hash64;
use metahook_core::hosting::Hosting;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId, Uid};
use metahook_core::pacing::{Rate, RateLimiter};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::ApiClient;
use crate::cluster::events::Recorder;
use crate::cluster::objects::RequestError;
use crate::cluster::rights::UNGRANTED_DELAY;
use crate::controller::Context;
use crate::controller::brake::{RecordError, RecordRequest};
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

/// A status is written again so long before it is too old: a write may have to wait, or be tried again.
const REWRITE_MARGIN: Duration = Duration::from_secs(30);

/// A change is written soon, a status that keeps changing seldom.
const WRITE_RATE: Rate = Rate { per_second: 0.1, burst: 6 };

/// A write that a reconcile waits for is tried so often where another client changes the controller at the same time.
const MAX_RECORD_TRIES: usize = 10;

/// Writer of the status of one controller.
pub(super) struct StatusWriter {
    api: ApiClient,
    recorder: Recorder,
    store: Arc<Store>,
    key: Key,
    uid: Uid,
    /// Which controllers the server hosts.
    hosting: Hosting,
    /// Reconciles that wait until the status has the number of their deletions.
    requests: mpsc::UnboundedReceiver<RecordRequest>,
    /// The status as this server wrote it last, or found it to be what it would write.
    written: Option<ControllerStatus>,
    /// By then the status is written again, so that it shows that a server hosts the controller.
    due: Instant,
    attempt: WriteAttempt,
}

/// The last attempt to write a status.
struct WriteAttempt {
    at: Instant,
    state: WriteState,
}

/// Result of a write.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum WriteState {
    #[default]
    Written,
    /// The API server takes it and drops what is in it.
    Dropped,
    /// The server may not write it.
    Ungranted,
    Failed,
}

impl WriteState {
    /// Whether a change of the report is worth a write.
    fn is_hopeful(self) -> bool {
        matches!(self, Self::Written | Self::Failed)
    }

    fn retry_delay(self) -> Duration {
        match self {
            Self::Written | Self::Failed => RETRY_DELAY,
            Self::Dropped => DROPPED_RETRY_DELAY,
            Self::Ungranted => UNGRANTED_DELAY,
        }
    }
}

impl WriteAttempt {
    /// When the write is tried again, where it did not succeed.
    fn retry_at(&self) -> Instant {
        self.at + self.state.retry_delay()
    }
}

impl StatusWriter {
    pub(super) fn new(
        context: &Context,
        store: Arc<Store>,
        controller: &Object,
        requests: mpsc::UnboundedReceiver<RecordRequest>,
    ) -> Self {
        let (api, recorder) = (context.cluster.api.clone(), context.cluster.recorder.clone());
        let hosting = context.hosting.clone();
        let (key, uid) = (controller.key.clone(), controller.uid.clone());
        let attempt = WriteAttempt { at: Instant::now(), state: WriteState::default() };
        // By then there is something to say.
        let due = attempt.at + LAST_SEEN_INTERVAL / 10 + spread(&uid) / 2;
        Self { api, recorder, store, key, uid, hosting, requests, written: None, due, attempt }
    }

    /// Ends after the reporter.
    pub(super) async fn run(mut self, mut report: watch::Receiver<Report>, stop: CancellationToken) {
        self.write_changes(&mut report, &stop).await;
        // The last reconciles may delete children, too.
        loop {
            tokio::select! {
                changed = report.changed() => if changed.is_err() { break },
                Some(request) = self.requests.recv() => self.record(request, &mut report).await,
            }
        }
        if !self.api.gate().is_open() {
            return;
        }
        let last = report.borrow().clone();
        if self.is_released() {
            // Nothing else depends on it: where the API server does not take it in time, the status stays as it is.
            drop(tokio::time::timeout(LAST_WRITE_TIMEOUT, self.release(&last)).await);
            return;
        }
        let is_dropped = self.attempt.state == WriteState::Dropped;
        if is_dropped || self.now().is_none_or(|object| seen(&object).deletions == last.deletions) {
            return;
        }
        let written = tokio::time::timeout(LAST_WRITE_TIMEOUT, self.write(&last)).await;
        if !matches!(written, Ok(Ok(_))) {
            tracing::warn!(controller = %self.key, "the last deletions are not written to the controller's status: a server that starts may let as many through again");
        }
    }

    /// Writes each change a moment later, and at once where a reconcile waits for it, until the reporter is gone.
    async fn write_changes(&mut self, report: &mut watch::Receiver<Report>, stop: &CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.api.gate().opened() => {}
        }
        let (start, mut limiter) = (Instant::now(), RateLimiter::new(WRITE_RATE));
        let mut rewrites = tokio::time::interval(REWRITE_INTERVAL);
        // A write that a reconcile waits for may come first, any number of times: the next change has the same turn then.
        let mut turn = None;
        loop {
            let (state, retry_at) = (self.attempt.state, self.attempt.retry_at());
            tokio::select! {
                () = stop.cancelled() => return,
                Some(request) = self.requests.recv() => {
                    self.record(request, report).await;
                    continue;
                }
                _ = rewrites.tick(), if state == WriteState::Written => if !self.is_overwritten() && !self.is_due() { continue },
                changed = report.changed(), if state.is_hopeful() => if changed.is_err() { return },
                () = tokio::time::sleep_until(retry_at), if state != WriteState::Written => {}
            }
            // Once the right is granted, the status is there within seconds.
            let is_ungranted = state == WriteState::Ungranted;
            let next = || Instant::now() + limiter.take(start.elapsed());
            let soonest = if state.is_hopeful() { Instant::now() } else { retry_at } + WRITE_DELAY;
            let at = if is_ungranted { soonest } else { soonest.max(*turn.get_or_insert_with(next)) };
            tokio::select! {
                () = stop.cancelled() => return,
                Some(request) = self.requests.recv() => {
                    self.record(request, report).await;
                    continue;
                }
                () = tokio::time::sleep_until(at) => {}
            }
            if !is_ungranted {
                turn = None;
            }
            let now = report.borrow_and_update().clone();
            let result = self.write(&now).await;
            self.note(&result);
        }
    }

    /// Writes the status at once, for all reconciles that wait for it. One that cannot be kept at all stops none: then the
    /// server counts for itself alone.
    async fn record(&mut self, request: RecordRequest, report: &mut watch::Receiver<Report>) {
        let mut waiting = vec![request];
        while let Ok(request) = self.requests.try_recv() {
            waiting.push(request);
        }
        let result = self.record_now(report).await;
        for request in waiting {
            // A reconcile that was stopped waits no longer.
            drop(request.send(result.clone()));
        }
    }

    async fn record_now(&mut self, report: &mut watch::Receiver<Report>) -> Result<(), RecordError> {
        if !self.attempt.state.is_hopeful() {
            return Ok(());
        }
        // Another server may have the controller by now, and its status.
        if self.is_released() {
            return Err(RecordError::Stopped);
        }
        let mut tries = 1..=MAX_RECORD_TRIES;
        loop {
            let now = report.borrow_and_update().clone();
            let result = self.write(&now).await;
            if result.as_ref().is_err_and(RequestError::is_conflict) && tries.next().is_some() {
                // Another version of the controller has come, or comes.
                tokio::time::sleep(WRITE_DELAY).await;
                continue;
            }
            self.note(&result);
            return match result {
                Err(error) if !error.is_ungranted() => Err(RecordError::Write(Arc::new(error))),
                Ok(_) | Err(_) => Ok(()),
            };
        }
    }

    /// Notes what came of a write, and logs what is new about it.
    fn note(&mut self, result: &Result<bool, RequestError>) {
        let key = &self.key;
        let before = self.attempt.state;
        let state = match result {
            Ok(true) => WriteState::Written,
            Ok(false) => WriteState::Dropped,
            Err(error) if error.is_ungranted() => WriteState::Ungranted,
            // What is known of the API server stays so.
            Err(_) if !before.is_hopeful() => before,
            Err(_) => WriteState::Failed,
        };
        self.attempt = WriteAttempt { at: Instant::now(), state };
        match result {
            Ok(true) => {}
            Ok(false) if before == WriteState::Dropped => {}
            Ok(false) => {
                tracing::warn!(controller = %key, "the API server drops the status of controllers: apply metahook's CustomResourceDefinitions (kubectl apply --server-side -f manifests/crds)");
            }
            Err(error) if error.is_ungranted() => {
                if before != WriteState::Ungranted {
                    self.record_ungranted(error);
                }
            }
            Err(error) => {
                tracing::debug!(controller = %key, error = error_chain(error), "the status of a controller could not be written; it is tried again");
            }
        }
    }

    /// The controller works all the same, as with roles that Metacontroller's users wrote.
    fn record_ungranted(&self, error: &RequestError) {
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

    /// The status was written so long ago that it could be another server's, or that of one that is gone.
    fn is_due(&self) -> bool {
        Instant::now() >= self.due
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
    async fn write(&mut self, report: &Report) -> Result<bool, RequestError> {
        let Some(object) = self.now() else {
            return Ok(true);
        };
        let before = seen(&object);
        let now = timestamp();
        let next = status::next(&before, report, &now);
        let again = || status::seen_again(&before, report, &now);
        let Some(status) = next.or_else(|| self.is_due().then(again)) else {
            self.written = Some(before);
            return Ok(true);
        };
        self.put(&object, &status).await
    }

    async fn put(&mut self, object: &Object, status: &ControllerStatus) -> Result<bool, RequestError> {
        let body = json!({
            "apiVersion": object.gvk.api_version(),
            "kind": &*object.gvk.kind,
            "metadata": {"name": &*self.key.name, "uid": object.uid.as_str(), "resourceVersion": object.version.as_str()},
            "status": as_stored(status),
        });
        let id = ObjectId { resource: Arc::clone(&self.store.resource), key: self.key.clone() };
        let known = self.api.carry_out(&Op::Status { id, body }).await?.events;
        self.due = Instant::now() + LAST_SEEN_INTERVAL - REWRITE_MARGIN - spread(&self.uid);
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

/// The statuses of many controllers are not written again at once: a time up to a minute, the same for each controller.
fn spread(uid: &Uid) -> Duration {
    let mut hash = hash64();
    hash.write(uid.as_str().as_bytes());
    Duration::from_millis(hash.finish() % 60_000)
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
