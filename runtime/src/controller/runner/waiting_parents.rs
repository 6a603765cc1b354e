//! Parents that are being deleted and wait for a controller that cannot run: each gets an Event, the controller's condition counts them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use metahook_core::api::ControllerKind;
use metahook_core::api::reason::EventReason;
use metahook_core::api::selection::waits_for_finalize;
use metahook_core::api::status::Report;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Key, ObjectId};
use tokio::sync::watch;

use crate::controller::Context;
use crate::controller::runner::report::changed;
use crate::controller::runner::{ControllerRunner, stale_finalizers};
use crate::sync::lock;

/// The delay of the first look, so that what goes by in a moment costs no list of parents; and of a kind that is not served.
const DELAY: Duration = Duration::from_secs(1);
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// The parents of one controller.
pub(super) struct WaitingParents {
    context: Context,
    kind: ControllerKind,
    object: Arc<Object>,
    report: watch::Sender<Report>,
}

impl WaitingParents {
    pub(super) fn of(runner: &ControllerRunner) -> Self {
        Self {
            context: runner.context.clone(),
            kind: runner.kind,
            object: Arc::clone(&runner.object),
            report: runner.reporter.shared(),
        }
    }

    /// Goes on until it is dropped.
    pub(super) async fn run(self) {
        // The leader tells.
        self.context.cluster.api.gate().opened().await;
        let mut reports = self.report.subscribe();
        loop {
            let problem = reports.borrow_and_update().problem().map(str::to_owned);
            // The sender is our own, and not gone.
            let other =
                async { drop(reports.wait_for(|report| report.problem() != problem.as_deref()).await) };
            tokio::select! {
                () = other => {}
                () = self.record(problem.as_deref()) => {}
            }
            changed(&self.report, |report| report.waiting = None);
        }
    }

    /// Goes on until it is dropped.
    async fn record(&self, problem: Option<&str>) {
        let Some(problem) = problem else { return std::future::pending().await };
        tokio::time::sleep(DELAY).await;
        let kinds = stale_finalizers::parents(self.kind, &self.object).unwrap_or_default();
        let waiting = Mutex::default();
        join_all(kinds.iter().map(|parents| self.record_of(parents, problem, &waiting))).await;
        std::future::pending::<()>().await;
    }

    async fn record_of(&self, parents: &Gvr, problem: &str, waiting: &Mutex<BTreeSet<(Gvr, Key)>>) {
        let cluster = &self.context.cluster;
        let resource = loop {
            // The version that the spec names may be what keeps the controller from running.
            match cluster.discovery.resolve_any_version(parents).await {
                Ok(resource) => break resource,
                // Without the kind there are no parents; the server may only not know it yet.
                Err(_) => tokio::time::sleep(RETRY_DELAY).await,
            }
        };
        let mut store = cluster.stores.open(&resource);
        let mut changes = store.listen();
        loop {
            let key = tokio::select! {
                key = changes.next() => key,
                () = store.gave_way() => {
                    store = cluster.stores.open(&resource);
                    changes = store.listen();
                    continue;
                }
            };
            let of = (self.kind, &*self.object.key.name);
            let now = store.get(&key).and_then(|parent| {
                let id = ObjectId { resource: Arc::clone(&resource), key: key.clone() };
                let message = waits_for_finalize(&parent, &id, of, problem)?;
                Some((parent, message))
            });
            let (is_new, count, first) = {
                let mut waiting = lock(waiting);
                let entry = (parents.clone(), key);
                let is_new = if now.is_some() { waiting.insert(entry) } else { waiting.remove(&entry) };
                (is_new, waiting.len(), waiting.first().map(|(_, key)| key.clone()))
            };
            if !is_new {
                continue;
            }
            if let Some((parent, message)) = now {
                cluster.recorder.record(&parent, EventReason::FinalizerWaits, &message);
            }
            changed(&self.report, |report| report.waiting = first.map(|first| (count, first)));
        }
    }
}
