//! Removal of stale finalizers, whose controllers are gone: an object that carries one could never be deleted; and the records
//! by which a server finds those of controllers that were deleted while no server ran.
//! See <https://github.com/metacontroller/metacontroller/issues/1062>.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use metahook_core::api::ControllerKind;
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::selection::{self, FinalizerChange};
use metahook_core::api::stored_hooks::has_no_hooks;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Key, ObjectId};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::ApiClient;
use crate::cluster::config_maps::{config_map_id, delete_config_map, labelled_config_maps, read_config_map};
use crate::cluster::discovery::Discovery;
use crate::cluster::objects::RequestError;
use crate::controller::Context;
use crate::controller::runner::ControllerRunner;
use crate::store::Store;
use crate::telemetry::error_chain;

/// Pause before a failed removal is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The parents of one kind.
pub(crate) struct StaleFinalizers {
    pub(crate) context: Context,
    pub(crate) parents: Gvr,
    /// The account by whose rights the finalizers were written; the server's own rights are tried besides.
    pub(crate) account: Option<ServiceAccountRef>,
}

impl StaleFinalizers {
    /// Ends when no object of the kind carries a stale finalizer, or at `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let accounts = self.account.iter().map(|account| self.context.cluster.api.acting_as(account));
        let clients: Vec<ApiClient> = accounts.chain([self.context.cluster.api.clone()]).collect();
        let removal = async {
            self.context.cluster.api.gate().opened().await;
            self.context.controllers.synced().await;
            for api in clients.iter().cycle() {
                let Err(error) = self.once(api).await else { return };
                tracing::warn!(parents = %self.parents, error = error_chain(error.as_ref()), "finalizers of controllers that are gone could not be taken off; tried again");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        };
        tokio::select! {
            () = removal => {}
            () = stop.cancelled() => {}
        }
    }

    /// Goes on after a failure, so that one parent does not hold the others; gives back the first.
    async fn once(&self, api: &ApiClient) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        // A kind that is served in no version has no objects.
        let resource = match self.context.cluster.discovery.resolve_any_version(&self.parents).await {
            Err(error) if error.is_not_served() => return Ok(()),
            resource => resource?,
        };
        let store = self.context.cluster.stores.open(&resource);
        if !listed(&store, &self.context.cluster.discovery).await {
            return Ok(());
        }
        let is_stale = |finalizer: &str| self.is_stale(finalizer);
        let stale = marked(&store, |finalizer| self.is_stale(finalizer));
        let mut first = Ok(());
        for object in stale {
            let id = ObjectId { resource: Arc::clone(&resource), key: object.key.clone() };
            match api.change_finalizers(&id, &object, FinalizerChange::Remove(&is_stale)).await {
                Ok(events) => {
                    store.observe_write(events);
                    tracing::info!(object = %id, "the finalizer of a controller that is gone was taken off");
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        Ok(first?)
    }

    /// No controller of that name reconciles these parents now.
    fn is_stale(&self, finalizer: &str) -> bool {
        selection::finalizer_owner(finalizer).is_some_and(|(kind, name)| {
            let controller = self.context.controllers.get(kind, name);
            !controller.is_some_and(|now| is_about(kind, &now, &self.parents) && !has_no_hooks(&now))
        })
    }
}

/// The kinds of parents that may carry the finalizers of a controller, and whose rights wrote them.
pub(crate) type Finalized = BTreeMap<Gvr, Option<ServiceAccountRef>>;

/// Records that a controller is about to put finalizers on these kinds, beside those that it did before.
async fn record(
    api: &ApiClient,
    kind: ControllerKind,
    name: &str,
    finalized: &Finalized,
) -> Result<(), RequestError> {
    let key = record_place(api, kind, name);
    let known = read_config_map(api, &key).await?.and_then(|record| record.data).unwrap_or_default();
    let account = |account: &ServiceAccountRef| format!("{}/{}", account.namespace, account.name);
    let ours = finalized
        .iter()
        .map(|(parents, by)| (selection::record_key(parents), by.as_ref().map(account).unwrap_or_default()));
    let mut data = known.clone();
    data.extend(ours);
    if data == known {
        return Ok(());
    }
    let [label, value] = selection::RECORD_LABEL;
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": &*key.name, "namespace": &*key.namespace, "labels": {label: value}},
        "data": data,
    });
    api.apply::<Value>(&config_map_id(&key), &body, "metahook").await.map(drop)
}

fn record_place(api: &ApiClient, kind: ControllerKind, name: &str) -> Key {
    Key::new(api.client.default_namespace(), &selection::record_name(kind, name))
}

impl ControllerRunner {
    /// Records, before the first finalizer, which kinds of parents get one.
    pub(super) async fn record_finalizers(&self) {
        let name = &self.object.key.name;
        let finalized = finalized_by(self.kind, &self.object);
        if let Err(error) = record(&self.context.cluster.api, self.kind, name, &finalized).await {
            tracing::warn!(controller = %name, error = error_chain(&error), "the kinds of parents that get the controller's finalizer are not recorded: if it is deleted while no server runs, they cannot be deleted; let the server create, patch and delete ConfigMaps in its namespace");
        }
    }

    /// Takes the finalizers of controllers that are gone off its parents, beside its reconciles.
    pub(super) fn remove_stale_finalizers(&self) {
        for (parents, account) in finalized_by(self.kind, &self.object) {
            let stale = StaleFinalizers { context: self.context.clone(), parents, account };
            tokio::spawn(stale.run(self.stop.clone()));
        }
    }
}

/// The kinds of parents that a controller is about, with its account.
pub(crate) fn finalized_by(kind: ControllerKind, controller: &Object) -> Finalized {
    let account = || {
        let spec = controller.value().ok()?.get_mut("spec").map(Value::take)?;
        ServiceAccountRef::deserialize(spec.get("serviceAccountRef")?).ok()
    };
    let account = account();
    parents(kind, controller)
        .unwrap_or_default()
        .into_iter()
        .map(|parents| (parents, account.clone()))
        .collect()
}

/// Cleans up after a controller: its finalizers come off kinds that it is no longer about; once it is gone, so is its record.
pub(crate) async fn clean_up(
    context: Context,
    (kind, name): (ControllerKind, String),
    finalized: Finalized,
    stop: CancellationToken,
) {
    // The leader does that; the next one begins with `clean_up_all`.
    if !context.cluster.api.gate().is_open() {
        return;
    }
    let removals = finalized.into_iter().filter_map(|(parents, account)| {
        let now = context.controllers.get(kind, &name);
        let is_left = !now.is_some_and(|now| is_about(kind, &now, &parents));
        is_left.then(|| StaleFinalizers { context: context.clone(), parents, account }.run(stop.clone()))
    });
    join_all(removals).await;
    if stop.is_cancelled() || context.controllers.get(kind, &name).is_some() {
        return;
    }
    let api = &context.cluster.api;
    if let Err(error) = delete_config_map(api, &record_place(api, kind, &name)).await {
        tracing::warn!(
            controller = name,
            error = error_chain(&error),
            "the record of a controller that is gone could not be deleted"
        );
    }
}

/// Cleans up after all controllers that were deleted while no server ran.
pub(crate) async fn clean_up_all(context: Context, stop: CancellationToken) {
    let api = &context.cluster.api;
    tokio::select! {
        () = api.gate().opened() => {}
        () = stop.cancelled() => return,
    }
    let listed = labelled_config_maps(api, api.client.default_namespace(), selection::RECORD_LABEL).await;
    let records = listed.unwrap_or_else(|error| {
        tracing::warn!(error = error_chain(&error), "finalizers of controllers that were deleted while no server ran are not known: let the server list ConfigMaps in its namespace");
        Vec::new()
    });
    context.controllers.synced().await;
    let owned = |record: ConfigMap| {
        Some((selection::record_owner(&record.metadata.name?)?, finalized(record.data.unwrap_or_default())))
    };
    let all = records.into_iter().filter_map(owned);
    join_all(all.map(|(owner, finalized)| clean_up(context.clone(), owner, finalized, stop.clone()))).await;
}

fn finalized(data: BTreeMap<String, String>) -> Finalized {
    let account = |text: String| {
        let (namespace, name) = text.split_once('/')?;
        Some(ServiceAccountRef { namespace: namespace.to_owned(), name: name.to_owned() })
    };
    data.into_iter().filter_map(|(key, by)| Some((selection::record_kind(&key)?, account(by)))).collect()
}

/// Waits for the first list; `false`: the kind is no longer served, so that there will be none.
async fn listed(store: &Store, discovery: &Discovery) -> bool {
    let mut changes = discovery.changes();
    loop {
        tokio::select! {
            () = store.synced() => return true,
            news = changes.changed() => {
                let served = discovery.resolve(&store.resource.gvr()).await;
                if news.is_err() || served.is_err_and(|error| error.is_not_served()) {
                    return false;
                }
            }
        }
    }
}

/// The objects with a finalizer of a controller that is judged so, each finalizer once. `judge` does not run under the store's lock:
/// it may be the store of controllers that has to be asked.
fn marked(store: &Store, judge: impl Fn(&str) -> bool) -> Vec<Arc<Object>> {
    let ours = |finalizer: &&String| selection::finalizer_owner(finalizer).is_some();
    let mut marked: Vec<_> = store.view(|all| {
        all.all_whole()
            .filter(|object| object.finalizers.iter().any(|one| ours(&one)))
            .map(Arc::clone)
            .collect()
    });
    let names: BTreeSet<_> = marked.iter().flat_map(|object| object.finalizers.iter().filter(ours)).collect();
    let stale: BTreeSet<_> = names.into_iter().filter(|one| judge(one)).cloned().collect();
    marked.retain(|object| object.finalizers.iter().any(|one| stale.contains(one)));
    marked
}

/// Whether a controller, as it is written, is about these parents, in whichever version. One that cannot be read may be.
fn is_about(kind: ControllerKind, controller: &Object, parents: &Gvr) -> bool {
    self::parents(kind, controller).is_none_or(|all| all.iter().any(|its| its.is_kin(parents)))
}

/// The kinds of parents that a controller is about; `None` where it cannot be read.
pub(crate) fn parents(kind: ControllerKind, controller: &Object) -> Option<Vec<Gvr>> {
    let controller = controller.value().ok()?;
    let parent = |parent: &Value| {
        let field = |name| parent.get(name).and_then(Value::as_str);
        Some(Gvr::new(field("apiVersion")?, field("resource")?))
    };
    match kind {
        ControllerKind::Composite => Some(vec![parent(controller.pointer("/spec/parentResource")?)?]),
        ControllerKind::Decorator => {
            controller.pointer("/spec/resources")?.as_array()?.iter().map(parent).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, mpsc};

    use http::Response;
    use metahook_core::cache::CacheEvent;
    use metahook_core::object::id::{Gvk, Resource};
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::cluster::fake;
    use crate::store::Stores;

    /// A store of controllers, two of which carry finalizers of others; it gets no more events.
    fn controllers() -> Arc<Store> {
        let resource = Resource {
            gvk: Gvk::new("metacontroller.k8s.io/v1alpha1", "DecoratorController"),
            plural: "decoratorcontrollers".into(),
            namespaced: false,
            has_status: true,
        };
        let store = Stores::new(fake::answering(|_| None)).open(&Arc::new(resource));
        let finalizer = |name| selection::finalizer(ControllerKind::Decorator, name);
        for (name, finalizers) in [
            ("a", vec![finalizer("a"), finalizer("gone"), "example.com/other".to_owned()]),
            ("b", vec![finalizer("a")]),
            ("c", vec!["example.com/other".to_owned()]),
            ("d", vec![finalizer("gone")]),
        ] {
            let object = json!({
                "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "DecoratorController",
                "metadata": { "name": name, "uid": name, "resourceVersion": "1", "finalizers": finalizers },
            });
            let object = Object::parse(&object.to_string(), None).unwrap();
            store.observe_write(vec![CacheEvent::Applied(object)]);
        }
        store
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_kind_that_is_gone_ends_and_its_watch_too() {
        let served = Arc::new(AtomicBool::new(true));
        let is_served = Arc::clone(&served);
        let api = fake::answering(move |request| {
            let kinds = r#"{"resources":[{"name":"things","kind":"Thing","namespaced":true}]}"#;
            let is_asked = request.uri().path() == "/apis/example.com/v1";
            let found = is_asked && is_served.load(Ordering::Relaxed);
            let status = if found { 200 } else { 404 };
            Response::builder().status(status).body(if found { kinds } else { "{}" }.to_owned()).ok()
        });
        let discovery = Arc::new(Discovery::new(api.clone()));
        let fresh = Arc::clone(&discovery).keep_fresh(Duration::from_secs(30), CancellationToken::new());
        let _fresh = AbortOnDropHandle::new(tokio::spawn(fresh));
        let resource = discovery.resolve(&Gvr::new("example.com/v1", "things")).await.unwrap();
        let store = Stores::new(api.clone()).open(&resource);
        {
            let (mut wait, a_while) = (std::pin::pin!(listed(&store, &discovery)), Duration::from_mins(5));
            let waited = tokio::time::timeout(a_while, &mut wait).await;
            assert!(waited.is_err(), "the kind is served, and may be listed yet");
            assert_eq!(api.watches.count(), 2, "of the kind, and of kinds");
            served.store(false, Ordering::Relaxed);
            assert_eq!(tokio::time::timeout(a_while, &mut wait).await, Ok(false));
        }
        drop(store);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(api.watches.count(), 1);
    }

    #[tokio::test]
    async fn controllers_as_parents_of_controllers_cause_no_deadlock() {
        let (store, (done, is_done)) = (controllers(), mpsc::channel());
        // A thread of its own, which may hang as long as it likes.
        std::thread::spawn(move || {
            let judged = Mutex::new(Vec::new());
            let stale = marked(&store, |finalizer| {
                let (_, name) = selection::finalizer_owner(finalizer).unwrap();
                judged.lock().unwrap().push(name.to_owned());
                store.get(&Key::new("", name)).is_none()
            });
            let names: Vec<_> = stale.iter().map(|object| object.key.name.to_string()).collect();
            done.send((names, judged.into_inner().unwrap())).unwrap();
        });
        let (stale, judged) = is_done.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!((stale, judged), (vec!["a".into(), "d".into()], vec!["a".into(), "gone".into()]));
    }
}
