//! Which controllers run: CompositeControllers come, change and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::spec::account::ServiceAccountRef;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::report::Reporter;
use super::running::{Begin, Begun};
use super::sweep::{self, Sweep};
use super::{Tools, running};
use crate::cluster::events::Severity;
use crate::store::{Change, Store};
use crate::told::told;

/// The controllers that are running, by name.
pub(crate) struct Host {
    tools: Tools,
    selector: Selector,
    store: Arc<Store>,
    hosted: BTreeMap<Key, Hosted>,
    /// The server ends.
    ends: CancellationToken,
}

/// A controller that is running, or waiting until it can, or ending.
struct Hosted {
    object: Arc<Object>,
    /// `None`: it ends.
    spec: Option<Value>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What controllers are stored as.
pub(super) fn composite_controllers() -> Arc<Resource> {
    Arc::new(Resource {
        gvk: Gvk::new("metacontroller.k8s.io/v1alpha1", "CompositeController"),
        plural: "compositecontrollers".into(),
        namespaced: false,
        has_status: true,
    })
}

impl Host {
    pub(crate) fn new(tools: Tools, selector: Selector) -> Self {
        let store = tools.stores.open(&composite_controllers());
        Self { tools, selector, store, hosted: BTreeMap::new(), ends: CancellationToken::new() }
    }

    /// Hosts what the cluster asks for until `stop`; is `ready` once it knows what that is; ends all of it before it returns.
    pub(crate) async fn run(mut self, ready: &watch::Sender<bool>, stop: CancellationToken) {
        let store = Arc::clone(&self.store);
        let mut listed = std::pin::pin!(store.synced());
        let mut changes = self.store.listen();
        let mut complaints = tokio::time::interval(Duration::from_secs(10));
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = &mut listed, if !*ready.borrow() => drop(ready.send_replace(true)),
                change = changes.recv() => match change {
                    Some(change) => self.take_in(&change),
                    None => break,
                },
                _ = complaints.tick() => if let Some(trouble) = self.store.trouble() {
                    tracing::warn!(reason = trouble, "CompositeControllers cannot be listed: apply metahook's CustomResourceDefinitions (kubectl apply --server-side -f manifests/crds), or give the server the right to list them");
                },
            }
        }
        self.ends.cancel();
        for hosted in self.hosted.values() {
            hosted.stop.cancel();
        }
        for hosted in std::mem::take(&mut self.hosted).into_values() {
            hosted.ended().await;
        }
    }

    fn take_in(&mut self, change: &Change) {
        let Some(key) =
            change.touched.after.as_ref().or(change.touched.before.as_ref()).map(|o| o.key.clone())
        else {
            return;
        };
        self.hosted.retain(|_, hosted| !hosted.has_ended());
        let now = self.store.get(&key).filter(|object| self.selector.matches(&object.labels));
        let next = match (now, self.hosted.remove(&key)) {
            (None, None) => None,
            (None, Some(before)) => Some(self.end(before)),
            (Some(object), Some(hosted)) if hosted.is(&object) => Some(hosted),
            (Some(object), before) => Some(self.begin(object, before)),
        };
        self.hosted.extend(next.map(|hosted| (key, hosted)));
    }

    /// Starts a controller, once the one of that name before it has ended.
    fn begin(&self, object: Arc<Object>, before: Option<Hosted>) -> Hosted {
        let (stop, spec) = (CancellationToken::new(), spec(&object));
        let (tools, store, begun, stopped) =
            (self.tools.clone(), Arc::clone(&self.store), Arc::clone(&object), stop.clone());
        let how = if before.is_some() { Begun::Anew } else { Begun::First };
        let ended = before.map(|before| self.ended(before));
        let task = tokio::spawn(async move {
            if let Some(ended) = ended {
                ended.await;
            }
            let name = begun.key.to_string();
            tools.recorder.record(
                &begun,
                Severity::Normal,
                "Starting",
                &format!("Starting controller: {name}"),
            );
            let reporter = Reporter::start(tools.rest.clone(), Arc::clone(&store), &begun, stopped.clone());
            let what = Begin { object: begun, begun: how, controllers: store };
            running::run(tools, what, reporter, stopped).await;
        });
        Hosted { object, spec: Some(spec), stop, task }
    }

    /// Stops a controller that has no successor yet; one that comes while it ends waits for it.
    fn end(&self, before: Hosted) -> Hosted {
        let (object, stop) = (Arc::clone(&before.object), before.stop.clone());
        Hosted { object, spec: None, stop, task: tokio::spawn(self.ended(before)) }
    }

    /// Stops a controller and waits for its last pass; its finalizers come off the parents that it leaves.
    fn ended(&self, before: Hosted) -> impl Future<Output = ()> + use<> {
        let (tools, controllers, ends) = (self.tools.clone(), Arc::clone(&self.store), self.ends.clone());
        async move {
            let Some(spec) = &before.spec else { return before.ended().await };
            let (object, account) = (Arc::clone(&before.object), account(spec));
            let tell = |reason: &'static str| {
                let message = format!("{reason} controller: {}", object.key);
                tools.recorder.record(&object, Severity::Normal, reason, &message);
            };
            tell("Stopping");
            before.stop.cancel();
            before.ended().await;
            tell("Stopped");
            if let Some(parents) = sweep::parents(&object)
                && !controllers.get(&object.key).is_some_and(|now| sweep::looks_at(&now, &parents))
            {
                let sweep = Sweep { tools: tools.clone(), controllers, parents, account };
                tokio::spawn(sweep.run(ends));
            }
        }
    }
}

impl Hosted {
    /// The same controller with the same spec: whatever else changed is no reason to start it anew.
    fn is(&self, object: &Object) -> bool {
        self.object.uid == object.uid
            && self.spec.as_ref().is_some_and(|spec| {
                self.object.generation == object.generation || *spec == self::spec(object)
            })
    }

    fn has_ended(&self) -> bool {
        self.spec.is_none() && self.task.is_finished()
    }

    async fn ended(self) {
        if let Err(error) = self.task.await {
            tracing::error!(controller = %self.object.key, error = told(&error), "a controller did not end by itself: this is a bug in metahook");
        }
    }
}

fn account(spec: &Value) -> Option<ServiceAccountRef> {
    spec.get("serviceAccountRef").and_then(|account| ServiceAccountRef::deserialize(account).ok())
}

fn spec(object: &Object) -> Value {
    #[derive(Deserialize)]
    struct Specified {
        #[serde(default)]
        spec: Value,
    }
    serde_json::from_str(object.json()).map(|object: Specified| object.spec).unwrap_or_default()
}
