//! Read rights of a controller's account: asked for before its hooks are shown anything, and again while it runs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::read_access::{Access, Lists, ReadAccess};
use metahook_core::cache::Cache;
use metahook_core::object::id::Resource;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::access::{self, ReviewError};
use crate::cluster::api_client::ApiClient;
use crate::store::Store;
use crate::sync::lock;

/// A search for a namespace that the account may read asks five times in a second.
const SEARCH_DELAY: Duration = Duration::from_millis(200);

/// The rights to read parents of one kind and their children.
pub(crate) struct ReadRights {
    /// Acts as the account.
    api: ApiClient,
    account: ServiceAccountRef,
    lists: Vec<Lists>,
    namespaced: bool,
    access: Mutex<ReadAccess>,
    started: Instant,
    /// The API server has refused something to the account.
    pub(crate) refused: Notify,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadRightsError {
    #[error("{0}")]
    Missing(Arc<str>),
    #[error("the API server does not say what the controller's account may read")]
    Unknown(#[from] ReviewError),
}

impl ReadRights {
    /// `api` acts as the account.
    pub(crate) fn new<'a>(
        api: ApiClient,
        account: ServiceAccountRef,
        parents: &'a Arc<Resource>,
        children: impl Iterator<Item = &'a Arc<Resource>>,
    ) -> Self {
        Self {
            api,
            account,
            lists: Lists::of(std::iter::once(parents).chain(children)),
            namespaced: parents.namespaced,
            access: Mutex::default(),
            started: Instant::now(),
            refused: Notify::new(),
        }
    }

    /// Whether hooks may be shown the parents of a namespace, or those without one where it is empty.
    pub(crate) async fn check(&self, namespace: &str) -> Result<(), ReadRightsError> {
        // One moment for all questions, so that slow answers still count.
        let now = self.started.elapsed();
        loop {
            let access = lock(&self.access).of(namespace, now);
            let scope = match access {
                Access::Granted => return Ok(()),
                Access::Refused(message) => return Err(ReadRightsError::Missing(message)),
                Access::Ask(scope) => scope,
            };
            let refusal = access::unreadable(&self.api, &self.account, &self.lists, scope.as_deref()).await?;
            lock(&self.access).answered(scope, refusal.map(Arc::from), now);
        }
    }

    /// Whether hooks may be shown any of the parents: those of all namespaces, of the account's own, or of one where there are
    /// parents.
    pub(crate) async fn check_any(&self, parents: &Store) -> Result<(), ReadRightsError> {
        if lock(&self.access).grants_any(self.started.elapsed()) {
            return Ok(());
        }
        let everywhere = self.check("").await;
        if !self.namespaced || !matches!(everywhere, Err(ReadRightsError::Missing(_))) {
            return everywhere;
        }
        if self.check(&self.account.namespace).await.is_ok() {
            return Ok(());
        }
        let of_parents = |parents: &Cache| {
            parents.all().map(|parent| Arc::clone(&parent.key.namespace)).collect::<BTreeSet<_>>()
        };
        for namespace in parents.view(of_parents) {
            if self.check(&namespace).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(SEARCH_DELAY).await;
        }
        everywhere
    }

    /// The API server has refused something to the account: maybe more was taken away.
    pub(crate) fn doubt(&self) {
        lock(&self.access).refused(self.started.elapsed());
        self.refused.notify_one();
    }
}
