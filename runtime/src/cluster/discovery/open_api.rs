//! Published schemas: what the API server publishes about the lists of a kind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_core::json::lists::{Document, Lists};
use metahook_core::object::id::Gvk;
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::cluster::api_client::ApiClient;
use crate::cluster::paths::version_path;
use crate::sync::lock;
use crate::telemetry::error_chain;

/// Where the schemas of each group and version are, by path. The address of one changes with its content.
type Addresses = BTreeMap<String, String>;

/// Published schemas: read once for all concurrent callers.
pub(crate) struct OpenApi {
    api: ApiClient,
    addresses: Mutex<Arc<OnceCell<Addresses>>>,
    known: Mutex<BTreeMap<Gvk, PublishedLists>>,
}

#[derive(Clone, Default)]
struct PublishedLists {
    address: String,
    lists: Arc<OnceCell<Option<Arc<Lists>>>>,
    /// The lists that were published before.
    before: Arc<Lists>,
}

impl PublishedLists {
    fn latest(&self) -> Option<Arc<Lists>> {
        self.lists.get().map(|lists| lists.clone().unwrap_or_else(|| Arc::clone(&self.before)))
    }
}

/// Schemas could not be read: the next caller tries again.
struct Unread;

impl OpenApi {
    pub(crate) fn new(api: ApiClient) -> Self {
        Self { api, addresses: Mutex::default(), known: Mutex::default() }
    }

    /// Something may be published anew.
    pub(crate) fn refresh(&self) {
        *lock(&self.addresses) = Arc::default();
    }

    /// The published lists, or those of the last successful read; none where there was no such read. A kind that is served is
    /// published a moment later: that is waited for.
    pub(crate) async fn lists(&self, gvk: &Gvk) -> Arc<Lists> {
        for pause in [250, 500, 1000, 2000] {
            if let Some(lists) = self.published(gvk).await {
                return lists;
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.refresh();
        }
        self.published(gvk).await.unwrap_or_default()
    }

    /// `None` where the kind is not published yet.
    async fn published(&self, gvk: &Gvk) -> Option<Arc<Lists>> {
        let cell = Arc::clone(&lock(&self.addresses));
        let known = match cell.get_or_try_init(|| self.addresses()).await {
            Ok(addresses) => {
                let path = version_path(&gvk.group, &gvk.version);
                match addresses.get(path.trim_start_matches('/')) {
                    Some(address) => self.at(gvk, address),
                    // While kinds come and go there are moments when the index does not name them all.
                    None => return lock(&self.known).get(gvk).and_then(PublishedLists::latest),
                }
            }
            Err(Unread) => lock(&self.known).get(gvk).cloned().unwrap_or_default(),
        };
        match known.lists.get_or_try_init(|| self.read_lists(gvk, &known.address)).await {
            Ok(lists) => lists.clone(),
            Err(Unread) => Some(known.before),
        }
    }

    fn at(&self, gvk: &Gvk, address: &str) -> PublishedLists {
        let mut all = lock(&self.known);
        let known = all.entry(gvk.clone()).or_default();
        if known.address != address {
            let latest = known.lists.get().cloned().flatten();
            let before = latest.unwrap_or_else(|| Arc::clone(&known.before));
            *known = PublishedLists { address: address.to_owned(), lists: Arc::default(), before };
        }
        known.clone()
    }

    async fn addresses(&self) -> Result<Addresses, Unread> {
        #[derive(Deserialize)]
        struct Index {
            paths: BTreeMap<String, Path>,
        }
        #[derive(Deserialize)]
        struct Path {
            #[serde(rename = "serverRelativeURL")]
            url: String,
        }
        let text = self.read("/openapi/v3").await?;
        let index: Index = serde_json::from_str(&text).map_err(|_no_index| Unread)?;
        Ok(index.paths.into_iter().map(|(path, at)| (path, at.url)).collect())
    }

    async fn read_lists(&self, gvk: &Gvk, address: &str) -> Result<Option<Arc<Lists>>, Unread> {
        if address.is_empty() {
            return Err(Unread);
        }
        let text = self.read(address).await?;
        Ok(Document::parse(&text).map_err(|_no_document| Unread)?.lists(gvk))
    }

    async fn read(&self, path: &str) -> Result<String, Unread> {
        let why = match self.api.get_large(path).await {
            Ok(answer) if answer.status.is_success() => return Ok(answer.body),
            Ok(answer) => answer.message(),
            Err(error) => error_chain(&error),
        };
        tracing::debug!(path, why, "no schemas could be read here: lists are merged by convention");
        Err(Unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_what_is_published_is_no_news() {
        assert!(PublishedLists::default().latest().is_none(), "nothing was ever read");
        let (read, before) = (Arc::new(Lists::default()), Arc::new(Lists::default()));
        let known = |lists| PublishedLists {
            address: "x".to_owned(),
            lists: Arc::new(lists),
            before: Arc::clone(&before),
        };
        let latest = known(OnceCell::new_with(Some(Some(Arc::clone(&read))))).latest();
        assert!(latest.is_some_and(|latest| Arc::ptr_eq(&latest, &read)));
        let latest = known(OnceCell::new_with(Some(None))).latest();
        assert!(latest.is_some_and(|latest| Arc::ptr_eq(&latest, &before)), "its kind is gone from it");
    }
}
