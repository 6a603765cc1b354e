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

/// What was read last, and where; nothing, from nowhere, before that.
#[derive(Clone, Default)]
struct Known {
    address: String,
    lists: Arc<Lists>,
}

impl Known {
    /// Where there is something else by now. An index that does not name the kind's version says nothing about it: while
    /// kinds come and go there are moments when it does not.
    fn outdated<'a>(&self, gvk: &Gvk, addresses: &'a Addresses) -> Option<&'a str> {
        let path = version_path(&gvk.group, &gvk.version);
        let address = addresses.get(path.trim_start_matches('/'))?;
        (*address != self.address).then_some(address)
    }
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
        let addresses = self.addresses().await.unwrap_or_default();
        let before = lock(&self.known).get(gvk).cloned().unwrap_or_default();
        let Some(address) = before.outdated(gvk, &addresses) else { return before.lists };
        let Some(document) = self.read(address).await.and_then(|text| Document::parse(&text).ok()) else {
            return before.lists;
        };
        let lists = document.lists(gvk);
        let known = Known { address: address.to_owned(), lists: Arc::clone(&lists) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_what_is_published_is_no_news() {
        let gvk = Gvk::new("example.com/v1", "Thing");
        let index = |hash| {
            Addresses::from([("apis/example.com/v1".to_owned(), format!("/openapi/v3/x?hash={hash}"))])
        };
        let known = Known { address: "/openapi/v3/x?hash=1".to_owned(), ..Known::default() };
        assert_eq!(known.outdated(&gvk, &Addresses::new()), None);
        assert_eq!(known.outdated(&gvk, &index(1)), None);
        assert_eq!(known.outdated(&gvk, &index(2)), Some("/openapi/v3/x?hash=2"));
        assert_eq!(Known::default().outdated(&gvk, &index(1)), Some("/openapi/v3/x?hash=1"));
    }
}
