//! What is known of a controller, written to its status when it changes.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::status::{self, ControllerStatus, Report};
use metahook_core::cache::objects::CacheEvent;
use metahook_core::children::Op;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::ApiClient;
use crate::error_chain::error_chain;
use crate::store::Store;
use crate::telemetry::timestamp;

/// A status that could not be written is tried again this much later; one that the API server dropped, that much.
const SOON: Duration = Duration::from_secs(2);
const SELDOM: Duration = Duration::from_mins(5);

/// Changes that come together are written together.
const GATHER: Duration = Duration::from_millis(200);

/// So many writes at once, and one more each `REFILL`: what changes is told soon, what keeps changing is told seldom.
const BURST: u32 = 6;
const REFILL: Duration = Duration::from_secs(10);

/// Where a running controller puts what it knows of itself.
pub(crate) struct Reporter {
    report: watch::Sender<Report>,
    task: JoinHandle<()>,
}

impl Reporter {
    pub(crate) fn start(
        rest: ApiClient,
        store: Arc<Store>,
        controller: &Object,
        stop: CancellationToken,
    ) -> Self {
        let report = watch::Sender::new(Report { generation: controller.generation, ..Report::default() });
        let task = tokio::spawn(write_all(rest, store, controller.key.clone(), report.subscribe(), stop));
        Self { report, task }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Report)) {
        self.report.send_if_modified(|report| {
            let before = report.clone();
            change(report);
            *report != before
        });
    }

    pub(crate) async fn ended(self) {
        drop(self.report);
        // Ends by itself; a panic has been printed, and its message is all there is to say.
        self.task.await.unwrap_or_default();
    }
}

async fn write_all(
    rest: ApiClient,
    store: Arc<Store>,
    key: Key,
    mut report: watch::Receiver<Report>,
    stop: CancellationToken,
) {
    let (mut written, mut dropped) = (true, false);
    let mut pace = Pace::new(Instant::now());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = report.changed(), if !dropped => if changed.is_err() { return },
            () = tokio::time::sleep(if dropped { SELDOM } else { SOON }), if !written => {}
        }
        let wait = pace.next(Instant::now());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait.max(GATHER)) => {}
        }
        let now = report.borrow_and_update().clone();
        written = match write(&rest, &store, &key, &now).await {
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

/// How often a status may be written.
struct Pace {
    /// When all writes that were made will have been made up for.
    made_up: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { made_up: now }
    }

    /// Takes one write, and says how long it has to wait.
    fn next(&mut self, now: Instant) -> Duration {
        self.made_up = self.made_up.max(now) + REFILL;
        self.made_up.saturating_duration_since(now + REFILL * BURST)
    }
}

/// `Ok(false)`: the API server took the write and dropped what was in it.
async fn write(rest: &ApiClient, store: &Arc<Store>, key: &Key, report: &Report) -> Result<bool, String> {
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
        "status": status,
    });
    let id = ObjectId { resource: Arc::clone(store.resource()), key: key.clone() };
    let known = rest.carry_out(&Op::Status { id, body }).await.map_err(|error| error_chain(&error))?;
    let kept = known.iter().all(|event| match event {
        CacheEvent::Wrote(object) => !seen(object).conditions.is_empty(),
        _ => true,
    });
    store.absorb(known);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_writes_are_made_at_once_and_many_are_spread() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let waits: Vec<u64> = (0..8).map(|_| pace.next(start).as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 0, 10, 20]);
        let later = start + Duration::from_mins(10);
        assert_eq!(pace.next(later), Duration::ZERO, "a quiet time makes up for it");
    }
}
