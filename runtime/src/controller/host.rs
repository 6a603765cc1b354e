//! Host of controllers: starts, restarts and stops them as the cluster asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use metahook_core::api::ControllerKind;
use metahook_core::api::access::{Reads, to_start};
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::reason::EventReason;
use metahook_core::object::Object;
use metahook_core::object::id::Key;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::access;
use crate::cluster::rights::UNGRANTED_DELAY;
use crate::controller::Context;
use crate::controller::runner::report::Reporter;
use crate::controller::runner::stale_finalizers;
use crate::controller::runner::{ControllerRunner, StartReason};
use crate::telemetry::error_chain;

/// The controllers that are running, by kind and name.
pub(crate) struct Host {
    context: Context,
    hosted: BTreeMap<(ControllerKind, Key), Hosted>,
    /// The server ends.
    ends: CancellationToken,
}

/// A controller that is running, or waiting until it can, or ending.
struct Hosted {
    object: Arc<Object>,
    /// `None`: it ends.
    spec: Option<Value>,
    stop: CancellationToken,
    /// The one before it runs until the account of this one may read what it starts with.
    waits: Arc<AtomicBool>,
    /// The one before it was paused.
    was_paused: bool,
    task: JoinHandle<()>,
}

impl Host {
    pub(crate) fn new(context: Context) -> Self {
        Self { context, hosted: BTreeMap::new(), ends: CancellationToken::new() }
    }

    /// Hosts what the cluster asks for until `stop`; ends all of it before it returns.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        if !self.context.hosting.is_dev() {
            tokio::spawn(stale_finalizers::clean_up_all(self.context.clone(), self.ends.clone()));
        }
        let controllers = Arc::clone(&self.context.controllers);
        let composites = controllers.of(ControllerKind::Composite).listen();
        let decorators = controllers.of(ControllerKind::Decorator).listen();
        let mut complaints = tokio::time::interval(Duration::from_secs(10));
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                key = composites.next() => self.take_in(ControllerKind::Composite, key),
                key = decorators.next() => self.take_in(ControllerKind::Decorator, key),
                _ = complaints.tick() => for store in controllers.all().into_iter().filter(|store| !store.is_synced()) {
                    if let Some(trouble) = store.trouble() {
                        tracing::warn!(reason = trouble, "controllers cannot be listed: apply metahook's CustomResourceDefinitions (kubectl apply --server-side -f manifests/crds), or give the server the right to list them");
                    }
                },
            }
        }
        self.ends.cancel();
        for hosted in self.hosted.values() {
            hosted.stop.cancel();
        }
        // Writes that are under way end; answers that are not there yet are left to the next server.
        self.context.hooks.sources.runtime().stop();
        for hosted in std::mem::take(&mut self.hosted).into_values() {
            hosted.ended().await;
        }
    }

    fn take_in(&mut self, kind: ControllerKind, key: Key) {
        let start = Instant::now();
        self.hosted.retain(|_, hosted| !hosted.has_ended());
        let now = self.context.controllers.get(kind, &key.name);
        let now = now.filter(|object| self.context.hosting.hosts(object));
        let key = (kind, key);
        let next = match (now, self.hosted.remove(&key)) {
            (None, None) => None,
            (None, Some(before)) => Some(self.end(kind, before)),
            (Some(object), Some(hosted)) if hosted.is(&object) => Some(hosted),
            (Some(object), before) => Some(self.begin(kind, object, before)),
        };
        self.hosted.extend(next.map(|hosted| (key, hosted)));
        self.context.telemetry.metrics.took_in(kind, start.elapsed());
    }

    /// Starts a controller, once the one of that name before it has ended.
    fn begin(&self, kind: ControllerKind, object: Arc<Object>, before: Option<Hosted>) -> Hosted {
        let (stop, spec) = (CancellationToken::new(), spec(&object));
        let (context, controller, stopped) = (self.context.clone(), Arc::clone(&object), stop.clone());
        let was_paused = before.as_ref().is_some_and(Hosted::runs_paused);
        let pauses = is_paused(&spec);
        // After a pause all parents are caught up at once.
        let reason = if before.is_some() && !was_paused { StartReason::Anew } else { StartReason::First };
        let pause = pause_event(was_paused, pauses);
        let needs = before
            .as_ref()
            .filter(|before| !pauses && before.goes_on_until(&spec))
            .and(to_start(kind, &object));
        let waits = Arc::new(AtomicBool::new(needs.is_some()));
        let waiting = Arc::clone(&waits);
        let ended = before.map(|before| self.ended(kind, before));
        let task = tokio::spawn(async move {
            if let Some((account, needs)) = needs {
                stopped.run_until_cancelled(granted(&context, &controller, &account, &needs)).await;
                waiting.store(stopped.is_cancelled(), Ordering::Relaxed);
            }
            if let Some(ended) = ended {
                ended.await;
            }
            if waiting.load(Ordering::Relaxed) {
                return;
            }
            let name = controller.key.to_string();
            context.cluster.recorder.record(
                &controller,
                EventReason::Starting,
                &format!("Starting controller: {name}"),
            );
            if let Some((reason, message)) = pause {
                context.cluster.recorder.record(&controller, reason, message);
            }
            let store = Arc::clone(context.controllers.of(kind));
            let stands_by = AtomicBool::new(!context.cluster.api.gate().is_open());
            let reporter = Reporter::start(&context, store, &controller, stopped.clone());
            let object = controller;
            ControllerRunner { context, kind, object, reason, stands_by, reporter, stop: stopped }
                .run()
                .await;
        });
        Hosted { object, spec: Some(spec), stop, waits, was_paused, task }
    }

    /// Stops a controller that has no successor yet; one that comes while it ends waits for it.
    fn end(&self, kind: ControllerKind, before: Hosted) -> Hosted {
        let (object, stop, waits) = (Arc::clone(&before.object), before.stop.clone(), Arc::default());
        let task = tokio::spawn(self.ended(kind, before));
        Hosted { object, spec: None, stop, waits, was_paused: false, task }
    }

    /// Stops a controller and waits for its last reconcile; its finalizers come off the parents that it leaves.
    fn ended(&self, kind: ControllerKind, before: Hosted) -> impl Future<Output = ()> + use<> {
        let (context, ends) = (self.context.clone(), self.ends.clone());
        async move {
            if before.spec.is_none() {
                return before.ended().await;
            }
            let object = Arc::clone(&before.object);
            let record = |reason: EventReason| {
                let message = format!("{} controller: {}", reason.as_str(), object.key);
                context.cluster.recorder.record(&object, reason, &message);
            };
            record(EventReason::Stopping);
            before.stop.cancel();
            before.ended().await;
            record(EventReason::Stopped);
            let now = context.controllers.get(kind, &object.key.name);
            let is_same = |now: &Object| now.uid == object.uid && context.hosting.hosts(now);
            // Its decorations stand until its successor changes them; those of a server that ends stand.
            let has_successor = now.as_deref().is_some_and(is_same);
            if kind == ControllerKind::Decorator && !has_successor && !ends.is_cancelled() {
                context.decorators.end(&object);
            }
            let finalized = stale_finalizers::finalized_by(kind, &object);
            let owner = (kind, object.key.name.to_string());
            tokio::spawn(stale_finalizers::clean_up(context.clone(), owner, finalized, ends.clone()));
        }
    }
}

impl Hosted {
    /// Whether an object is the same controller with the same spec: any other change is no reason to start it anew.
    fn is(&self, object: &Object) -> bool {
        self.object.uid == object.uid
            && self.spec.as_ref().is_some_and(|spec| {
                self.object.generation == object.generation || *spec == self::spec(object)
            })
    }

    /// Whether the controller runs, or one before it does, and a controller with this spec acts as another account.
    fn goes_on_until(&self, spec: &Value) -> bool {
        let account = |spec: &Value| spec.get("serviceAccountRef").cloned();
        let waits = self.waits.load(Ordering::Relaxed);
        self.spec.as_ref().is_some_and(|before| waits || account(before) != account(spec))
    }

    /// Whether what runs is paused: this controller, or the one before it while this one waits.
    fn runs_paused(&self) -> bool {
        let waits = self.waits.load(Ordering::Relaxed);
        if waits { self.was_paused } else { self.spec.as_ref().is_some_and(is_paused) }
    }

    fn has_ended(&self) -> bool {
        self.spec.is_none() && self.task.is_finished()
    }

    async fn ended(self) {
        if let Err(error) = self.task.await {
            tracing::error!(controller = %self.object.key, error = error_chain(&error), "a controller did not end by itself: this is a bug in metahook");
        }
    }
}

/// Returns when the account may read what a controller of its starts with.
async fn granted(context: &Context, controller: &Object, account: &ServiceAccountRef, needs: &[Reads]) {
    let api = context.cluster.api.acting_as(account);
    let mut said = None;
    loop {
        match access::missing(&api, account, needs).await {
            Ok(None) => return,
            Ok(Some(missing)) => {
                let message = format!("The controller goes on with its spec before this one: {missing}");
                if said.as_ref() != Some(&message) {
                    tracing::warn!(controller = %controller.key, reason = EventReason::RightsMissing.as_str(), "{message}");
                    context.cluster.recorder.record(controller, EventReason::RightsMissing, &message);
                    said = Some(message);
                }
            }
            Err(error) => {
                tracing::debug!(controller = %controller.key, error = error_chain(&error), "the API server does not say what an account may do; it is asked again");
            }
        }
        tokio::time::sleep(UNGRANTED_DELAY).await;
    }
}

/// The Event of a controller that starts, where it is paused or was.
fn pause_event(was_paused: bool, pauses: bool) -> Option<(EventReason, &'static str)> {
    match (was_paused, pauses) {
        (_, true) => Some((
            EventReason::ControllerPaused,
            "spec.paused is true: no hook is called and nothing is written",
        )),
        (true, false) => {
            Some((EventReason::Resumed, "spec.paused is no longer true: all parents are reconciled"))
        }
        (false, false) => None,
    }
}

fn is_paused(spec: &Value) -> bool {
    spec.get("paused").and_then(Value::as_bool).unwrap_or_default()
}

fn spec(object: &Object) -> Value {
    #[derive(Deserialize)]
    struct Specified {
        #[serde(default)]
        spec: Value,
    }
    serde_json::from_str(object.json()).map(|object: Specified| object.spec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A controller with this spec, which waits or runs; `was_paused`: the one before it.
    fn hosted(paused: bool, waits: bool, was_paused: bool) -> Hosted {
        let object = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
            "metadata": { "name": "c", "uid": "u" }, "spec": { "paused": paused },
        });
        let object = Arc::new(Object::parse(&object.to_string(), None).unwrap());
        let (spec, waits) = (spec(&object), Arc::new(AtomicBool::new(waits)));
        let task = tokio::spawn(async {});
        Hosted { object, spec: Some(spec), stop: CancellationToken::new(), waits, was_paused, task }
    }

    #[tokio::test]
    async fn a_controller_that_waits_for_the_rights_of_its_account_is_paused_as_the_one_before_it() {
        assert!(hosted(true, false, false).runs_paused());
        assert!(!hosted(false, false, true).runs_paused(), "it is resumed");
        assert!(hosted(false, true, true).runs_paused(), "it is resumed once its account may read");
        assert!(!hosted(false, true, false).runs_paused());
        assert_eq!(pause_event(true, false).map(|(reason, _)| reason), Some(EventReason::Resumed));
    }
}
