//! Which controllers run: CompositeControllers come, change and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, Resource};
use metahook_core::object::selector::Selector;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::running;
use super::{Tools, report};
use crate::cluster::events::Severity;
use crate::store::{Change, Store};
use crate::told::told;

/// The controllers that are running, by name.
pub(crate) struct Host {
    tools: Tools,
    selector: Selector,
    hosted: BTreeMap<Key, Hosted>,
}

/// A controller that is running, or waiting until it can.
struct Hosted {
    object: Arc<Object>,
    spec: Value,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Host {
    pub(crate) fn new(tools: Tools, selector: Selector) -> Self {
        Self {
            tools,
            selector,
            hosted: BTreeMap::new(),
        }
    }

    /// Hosts what the cluster asks for until `stop`, and ends all of it before it returns.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let resource = Arc::new(Resource {
            gvk: Gvk::new("metacontroller.k8s.io/v1alpha1", "CompositeController"),
            plural: "compositecontrollers".into(),
            namespaced: false,
            has_status: true,
        });
        let store = self.tools.stores.open(&resource);
        let mut changes = store.listen();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                change = changes.recv() => match change {
                    Some(change) => self.take_in(&store, &change).await,
                    None => break,
                },
            }
        }
        for hosted in self.hosted.values() {
            hosted.stop.cancel();
        }
        for hosted in std::mem::take(&mut self.hosted).into_values() {
            hosted.ended().await;
        }
    }

    async fn take_in(&mut self, store: &Arc<Store>, change: &Change) {
        let Some(key) = change
            .touched
            .after
            .as_ref()
            .or(change.touched.before.as_ref())
            .map(|o| o.key.clone())
        else {
            return;
        };
        let now = store
            .get(&key)
            .filter(|object| self.selector.matches(&object.labels));
        match (now, self.hosted.get(&key)) {
            (None, None) => {}
            (None, Some(_)) => self.end(&key).await,
            (Some(object), Some(hosted)) if hosted.is(&object) => {}
            (Some(object), _) => {
                self.end(&key).await;
                self.begin(store, &object);
            }
        }
    }

    fn begin(&mut self, store: &Arc<Store>, object: &Arc<Object>) {
        let name = object.key.to_string();
        let stop = CancellationToken::new();
        self.tools.recorder.record(
            object,
            Severity::Normal,
            "Starting",
            &format!("Starting controller: {name}"),
        );
        let reporter =
            report::Reporter::start(self.tools.rest.clone(), Arc::clone(store), object, stop.clone());
        let task = running::run(self.tools.clone(), Arc::clone(object), reporter, stop.clone());
        let hosted = Hosted {
            spec: spec(object),
            stop,
            task: tokio::spawn(task),
            object: Arc::clone(object),
        };
        self.hosted.insert(object.key.clone(), hosted);
    }

    async fn end(&mut self, key: &Key) {
        if let Some(hosted) = self.hosted.remove(key) {
            let (object, recorder) = (Arc::clone(&hosted.object), &self.tools.recorder);
            recorder.record(
                &object,
                Severity::Normal,
                "Stopping",
                &format!("Stopping controller: {key}"),
            );
            hosted.stop.cancel();
            hosted.ended().await;
            recorder.record(
                &object,
                Severity::Normal,
                "Stopped",
                &format!("Stopped controller: {key}"),
            );
        }
    }
}

impl Hosted {
    /// The same controller with the same spec: whatever else changed is no reason to start it anew.
    fn is(&self, object: &Object) -> bool {
        self.object.uid == object.uid
            && (self.object.generation == object.generation || self.spec == spec(object))
    }

    async fn ended(self) {
        if let Err(error) = self.task.await {
            tracing::error!(controller = %self.object.key, error = told(&error), "a controller did not end by itself: this is a bug in metahook");
        }
    }
}

fn spec(object: &Object) -> Value {
    #[derive(Deserialize)]
    struct Specified {
        #[serde(default)]
        spec: Value,
    }
    serde_json::from_str(object.json())
        .map(|object: Specified| object.spec)
        .unwrap_or_default()
}
