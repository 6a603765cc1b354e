//! Keeps the versions of one module in the order in which they are loaded, beside all else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use metahook_core::api::hook::ModuleRef;
use metahook_core::object::Version;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{Accepted, KeptVersions, Owner};
use crate::cluster::objects::RequestError;
use crate::hook::wasm::compile::retry_delay;
use crate::sync::lock;
use crate::telemetry::error_chain;

/// Keeps what is loaded of one module. It ends with the module's source.
pub(in super::super) struct Keeper {
    pub(in super::super) versions: Arc<KeptVersions>,
    owners: watch::Receiver<BTreeSet<Owner>>,
    /// The digest and the owners that were asked for last.
    asked: Mutex<Option<(String, BTreeSet<Owner>)>>,
    /// The version that is not kept yet. A later version takes its place: a server that stands by for long holds one alone.
    next: watch::Sender<Option<Arc<Accepted>>>,
    /// The digest of the last version that could not be kept, or may not be.
    not_kept: watch::Sender<Option<String>>,
    _task: AbortOnDropHandle<()>,
}

impl Keeper {
    pub(in super::super) fn new(
        versions: Arc<KeptVersions>,
        module: ModuleRef,
        owners: watch::Receiver<BTreeSet<Owner>>,
        not_kept: watch::Sender<Option<String>>,
    ) -> Self {
        let next = watch::Sender::new(None);
        let task = tokio::spawn(write_all(Arc::clone(&versions), module, next.clone(), not_kept.clone()));
        let task = AbortOnDropHandle::new(task);
        Self { versions, owners, asked: Mutex::default(), next, not_kept, _task: task }
    }

    pub(in super::super) fn owners(&self) -> BTreeSet<Owner> {
        self.owners.borrow().clone()
    }

    /// Waits until the module has other owners.
    pub(in super::super) async fn owners_changed(&mut self) {
        if self.owners.changed().await.is_err() {
            // The source has ended, and its task ends with it.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the version is kept for all of today's owners, will be, or may not be.
    pub(in super::super) fn has(&self, digest: &str) -> bool {
        let asked = lock(&self.asked);
        asked.as_ref().is_some_and(|(known, owners)| known == digest && *owners == *self.owners.borrow())
    }

    /// Keeps a version that was loaded; `stored`: `None` where it may not be kept. `read`: the version of the ConfigMap that the spec
    /// names.
    pub(in super::super) fn keep(&self, digest: String, stored: Option<Vec<u8>>, read: Option<Version>) {
        let owners = self.owners();
        *lock(&self.asked) = Some((digest.clone(), owners.clone()));
        match stored {
            Some(stored) => {
                self.next.send_replace(Some(Arc::new(Accepted::now(digest, stored, owners, read))));
            }
            None => drop(self.not_kept.send_replace(Some(digest))),
        }
    }

    /// Has all of today's owners own the version that they go on with in the place of a refused one. One that is about to be
    /// written is not lost.
    pub(in super::super) fn share(&self, digest: &str) {
        if self.has(digest) {
            return;
        }
        let owners = self.owners();
        *lock(&self.asked) = Some((digest.to_owned(), owners.clone()));
        self.next.send_if_modified(|next| {
            let stored = match next {
                Some(next) if next.digest != digest => return false,
                Some(next) => next.stored.clone(),
                None => Vec::new(),
            };
            let read = next.as_ref().and_then(|next| next.read.clone());
            *next = Some(Arc::new(Accepted::now(digest.to_owned(), stored, owners, read)));
            true
        });
    }
}

/// Writes each version once this server leads, and again where that fails: it is told once, and harms nothing else.
async fn write_all(
    versions: Arc<KeptVersions>,
    module: ModuleRef,
    next: watch::Sender<Option<Arc<Accepted>>>,
    not_kept: watch::Sender<Option<String>>,
) {
    let mut changes = next.subscribe();
    let mut failures = 0;
    loop {
        let asked = changes.borrow_and_update().clone();
        let Some(accepted) = asked else {
            if changes.changed().await.is_err() {
                return;
            }
            continue;
        };
        tokio::select! {
            () = versions.leads() => {}
            _changed = changes.changed() => continue,
        }
        let kept = versions.keep(&module, &accepted).await;
        // Without its bytes a version is kept already, and gets other owners.
        if !accepted.stored.is_empty() {
            note(&not_kept, &accepted.digest, &kept);
        }
        if let Ok(true) = kept {
            failures = 0;
            next.send_if_modified(|next| {
                let is_last = next.as_ref().is_some_and(|next| Arc::ptr_eq(next, &accepted));
                if is_last {
                    *next = None;
                }
                is_last
            });
            continue;
        }
        failures += 1;
        if let (Err(error), 1) = (kept, failures) {
            let name = format!("{}/{}", module.namespace, module.name);
            let advice = if error.is_ungranted() {
                "; let the server get, list, create, patch and delete ConfigMaps in its namespace"
            } else {
                "; it is tried again"
            };
            tracing::warn!(
                module = name,
                error = error_chain(&error),
                "a version of a module is not kept: if a later one is refused, a server that starts has none to go on with{advice}"
            );
        }
        // A later version ends the delay.
        let _later = tokio::time::timeout(retry_delay(failures), changes.changed()).await;
    }
}

/// Notes whether a version could not be kept.
fn note(not_kept: &watch::Sender<Option<String>>, digest: &str, kept: &Result<bool, RequestError>) {
    not_kept.send_if_modified(|not_kept| {
        let was = not_kept.as_deref() == Some(digest);
        match kept {
            Ok(true) if was => *not_kept = None,
            Err(_) if !was => *not_kept = Some(digest.to_owned()),
            _ => return false,
        }
        true
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Method, Response};
    use metahook_core::api::kept::{
        ACCEPTED, BYTES, DIGEST, KeptBounds, PART, SOURCE_LABEL, part_name, source_id,
    };
    use serde_json::json;

    use super::*;
    use crate::cluster::fake;

    fn module() -> ModuleRef {
        let [namespace, name, key] = ["n", "m", "hook.wasm"].map(str::to_owned);
        ModuleRef { language: None, namespace, name, key, sha256: None, reader: None }
    }

    /// The list of what is kept: nothing, or the one part of the version `digest`.
    fn listed(digest: Option<&str>) -> String {
        let source = source_id(None, ["n", "m", "hook.wasm"]);
        let item = |digest: &str| {
            json!({ "metadata": {
                "name": part_name(&source, digest, 1), "namespace": "default", "resourceVersion": "1",
                "labels": { SOURCE_LABEL: source },
                "annotations": { DIGEST: digest, ACCEPTED: "2026-01-01T00:00:00Z", PART: "1/1", BYTES: "6" },
            } })
        };
        let items: Vec<_> = digest.map(item).into_iter().collect();
        json!({ "kind": "List", "metadata": { "resourceVersion": "1" }, "items": items }).to_string()
    }

    /// Answers creations as `status` says, and lists as they ended. What the creations were answered, in order.
    fn api(status: impl Fn(usize) -> u16 + Send + Sync + 'static) -> (KeptVersions, Arc<Mutex<Vec<u16>>>) {
        let made = Arc::new(Mutex::new(Vec::new()));
        let creations = Arc::clone(&made);
        let api = fake::answering(move |request| {
            let mut creations = lock(&creations);
            let status = if request.method() == Method::POST {
                let status = status(creations.len());
                creations.push(status);
                status
            } else {
                200
            };
            let digest = "a".repeat(64);
            let body = listed(creations.contains(&201).then_some(&*digest));
            Response::builder().status(status).body(body).ok()
        });
        (KeptVersions::new(api, KeptBounds::default()), made)
    }

    fn keeper(versions: KeptVersions, owners: &watch::Sender<BTreeSet<Owner>>) -> Keeper {
        Keeper::new(Arc::new(versions), module(), owners.subscribe(), watch::Sender::new(None))
    }

    async fn until(what: impl Fn() -> bool) {
        while !what() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_kept_is_tried_again_until_it_is() {
        let (versions, made) = api(|before| if before < 2 { 500 } else { 201 });
        let owners = watch::Sender::new(BTreeSet::from([Owner::named("c", "1")]));
        let keeper = keeper(versions, &owners);
        let began = tokio::time::Instant::now();
        keeper.keep("a".repeat(64), Some(b"module".to_vec()), None);
        until(|| *keeper.not_kept.borrow() == Some("a".repeat(64))).await;
        until(|| lock(&made).len() == 3).await;
        assert_eq!(*lock(&made), [500, 500, 201]);
        assert!(began.elapsed() >= Duration::from_secs(30), "{:?}", began.elapsed());
        until(|| keeper.next.borrow().is_none()).await;
        assert_eq!(*keeper.not_kept.borrow(), None);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(lock(&made).len(), 3, "once");
        keeper.keep("b".repeat(64), None, None);
        assert_eq!(*keeper.not_kept.borrow(), Some("b".repeat(64)), "it may not be kept");
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_is_asked_for_once_for_the_same_owners() {
        let (versions, _) = api(|_| 201);
        let owners = watch::Sender::new(BTreeSet::from([Owner::named("c", "1")]));
        let keeper = keeper(versions, &owners);
        let digest = "a".repeat(64);
        assert!(!keeper.has(&digest));
        keeper.keep(digest.clone(), Some(b"module".to_vec()), None);
        assert!(keeper.has(&digest) && !keeper.has("b"));
        owners.send_modify(|owners| assert!(Owner::named("d", "3").joins(owners)));
        assert!(!keeper.has(&digest), "another controller owns it, too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_joins_owns_the_version_in_use_too() {
        let digest = "a".repeat(64);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (requests, kept) = (Arc::clone(&asked), listed(Some(&digest)));
        let api = fake::answering(move |request| {
            lock(&requests).push(request.method().clone());
            Response::builder().status(200).body(kept.clone()).ok()
        });
        let owners = watch::Sender::new(BTreeSet::from([Owner::named("c", "1")]));
        let keeper = keeper(KeptVersions::new(api, KeptBounds::default()), &owners);
        keeper.share(&digest);
        until(|| keeper.next.borrow().is_none()).await;
        assert_eq!(*lock(&asked), [Method::GET, Method::PATCH]);
        keeper.share(&digest);
        assert!(keeper.next.borrow().is_none(), "it is the owner of it already");
        owners.send_modify(|owners| assert!(Owner::named("d", "3").joins(owners)));
        keeper.share(&digest);
        until(|| keeper.next.borrow().is_none()).await;
        assert_eq!(*lock(&asked), [Method::GET, Method::PATCH, Method::GET, Method::PATCH]);
        keeper.share(&"b".repeat(64));
        until(|| keeper.next.borrow().is_none()).await;
        assert_eq!(lock(&asked).last(), Some(&Method::GET), "what is not kept has no owners");
    }

    #[tokio::test]
    async fn the_writer_of_a_module_is_known_as_long_as_its_config_map_is_the_same() {
        let by = async |status: u16, version: &str| {
            let api = fake::answering(move |request| {
                let query = request.uri().query()?;
                assert!(query.contains("fieldSelector=metadata.name%3Dm&"), "{query}");
                let fields =
                    json!([{ "manager": "kubectl", "fieldsV1": { "f:binaryData": { "f:hook.wasm": {} } } }]);
                let map =
                    json!({ "metadata": { "name": "m", "resourceVersion": "7", "managedFields": fields } });
                let body = json!({ "metadata": {}, "items": [map] }).to_string();
                Response::builder().status(status).body(body).ok()
            });
            let read = Some(Version::new(version));
            let accepted = Accepted::now("a".repeat(64), Vec::new(), BTreeSet::new(), read);
            KeptVersions::new(api, KeptBounds::default()).last_writer(&module(), &accepted).await
        };
        assert_eq!(by(200, "7").await.as_deref(), Some("kubectl"));
        assert_eq!(by(200, "6").await, None, "another one was stored meanwhile");
        assert_eq!(by(403, "7").await, None, "the account may not list it");
    }

    #[test]
    fn a_controller_that_is_made_again_takes_the_place_of_the_one_before() {
        let mut all = BTreeSet::from([Owner::named("c", "1")]);
        assert!(!Owner::named("c", "1").joins(&mut all));
        let again = Owner::named("c", "2");
        assert!(again.clone().joins(&mut all));
        assert_eq!(all, BTreeSet::from([again]));
    }
}
