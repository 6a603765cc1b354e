//! What the API server publishes about the lists of a kind: asked for once per kind, and again when it was published anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metahook_core::json::lists::Lists;
use metahook_core::json::published::Document;
use metahook_core::object::id::Gvk;
use serde::Deserialize;

use super::rest::{Rest, version_path};
use crate::told::told;

/// Where the schemas of each group and version are, by path. The address of one changes with its content.
type Addresses = BTreeMap<String, String>;

pub(crate) struct OpenApi {
    rest: Rest,
    addresses: Mutex<Option<Arc<Addresses>>>,
    known: Mutex<BTreeMap<Gvk, Known>>,
}

struct Known {
    address: String,
    lists: Arc<Lists>,
}

impl OpenApi {
    pub(crate) fn new(rest: Rest) -> Self {
        Self { rest, addresses: Mutex::default(), known: Mutex::default() }
    }

    /// Something may be published anew.
    pub(crate) fn refresh(&self) {
        *lock(&self.addresses) = None;
    }

    /// What is published, or was when it could last be read; nothing where it never could.
    pub(crate) async fn lists(&self, gvk: &Gvk) -> Arc<Lists> {
        let known =
            || lock(&self.known).get(gvk).map(|known| (known.address.clone(), Arc::clone(&known.lists)));
        let Some(addresses) = self.addresses().await else {
            return known().map(|(_, lists)| lists).unwrap_or_default();
        };
        let path = version_path(&gvk.group, &gvk.version);
        let Some(address) = addresses.get(path.trim_start_matches('/')) else { return Arc::default() };
        let before = known();
        if let Some((_, lists)) = before.as_ref().filter(|(known, _)| known == address) {
            return Arc::clone(lists);
        }
        let Some(document) = self.read(address).await.and_then(|text| Document::parse(&text).ok()) else {
            return before.map(|(_, lists)| lists).unwrap_or_default();
        };
        let lists = document.lists(gvk);
        let known = Known { address: address.clone(), lists: Arc::clone(&lists) };
        lock(&self.known).insert(gvk.clone(), known);
        lists
    }

    async fn addresses(&self) -> Option<Arc<Addresses>> {
        #[derive(Deserialize)]
        struct Index {
            paths: BTreeMap<String, Path>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Path {
            #[serde(rename = "serverRelativeURL")]
            url: String,
        }
        if let Some(known) = lock(&self.addresses).clone() {
            return Some(known);
        }
        let index: Index = serde_json::from_str(&self.read("/openapi/v3").await?).ok()?;
        let fresh: Arc<Addresses> =
            Arc::new(index.paths.into_iter().map(|(path, at)| (path, at.url)).collect());
        *lock(&self.addresses) = Some(Arc::clone(&fresh));
        Some(fresh)
    }

    async fn read(&self, path: &str) -> Option<String> {
        match self.rest.get(path).await {
            Ok(answer) if answer.status.is_success() => Some(answer.body),
            Ok(answer) => {
                tracing::debug!(
                    path,
                    answer = answer.message(),
                    "no schemas are published here: lists are merged by convention"
                );
                None
            }
            Err(error) => {
                tracing::debug!(
                    path,
                    error = told(&error),
                    "what is published about lists could not be read"
                );
                None
            }
        }
    }
}

/// The values inside are whole after each change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
