//! A controller whose account may not read the kinds of its spec: it does not start, or stops, and says which right is missing.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{pending, select_all};
use metahook_core::api::CheckedSpec;
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::read_access::CHECK_INTERVAL;
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::Finding;
use metahook_core::cache::Cache;
use metahook_core::object::id::Resource;
use metahook_core::pacing::ungranted_delay;
use metahook_core::reconcile::kinds::Kinds;

use crate::cluster::rights::naming;
use crate::controller::read_rights::{ReadRights, ReadRightsError};
use crate::controller::runner::ControllerRunner;
use crate::store::Store;
use crate::telemetry::error_chain;

/// Rights to read the parents of one kind, and the store of these parents.
pub(super) type Readable = (Arc<Store>, Arc<ReadRights>);

impl ControllerRunner {
    /// Waits until all kinds are served and the account may read them; `None`: the controller was stopped.
    pub(super) async fn readable_kinds(&self, spec: &CheckedSpec) -> Option<(Kinds, Vec<Readable>)> {
        loop {
            let kinds = self.kinds(spec).await?;
            let rights = self.read_rights(spec.common().account.as_ref(), &kinds);
            tokio::select! {
                readable = self.until_readable(&rights) => {
                    readable?;
                    return Some((kinds, rights));
                }
                () = self.kinds_change(spec, &kinds, false) => {}
                () = gave_way(&rights) => {}
            }
        }
    }

    /// Read rights of each kind of parents that is served; none without an account.
    fn read_rights(&self, account: Option<&ServiceAccountRef>, kinds: &Kinds) -> Vec<Readable> {
        let Some(account) = account else { return Vec::new() };
        let cluster = &self.context.cluster;
        let of = |parents: &Arc<Resource>| {
            let api = cluster.api.acting_as(account);
            let children = kinds.rules.iter().map(|rule| &rule.resource);
            (cluster.stores.open(parents), Arc::new(ReadRights::new(api, account.clone(), parents, children)))
        };
        kinds.parents.iter().flatten().map(of).collect()
    }

    async fn until_readable(&self, rights: &[Readable]) -> Option<()> {
        let mut said = String::new();
        loop {
            let unreadable = tokio::select! {
                unreadable = unreadable(rights) => unreadable,
                () = self.stop.cancelled() => return None,
            };
            let Some(error) = unreadable else {
                if !said.is_empty() {
                    self.reporter.change(|report| {
                        (report.ready, report.rights) = (Finding::Unknown, Finding::Unknown);
                    });
                }
                return Some(());
            };
            let message = naming(&error_chain(&error), self.kind, &self.object.key.name);
            self.stand_aside();
            self.reporter.change(|report| {
                report.ready = Finding::new(ConditionReason::NotListed, &message);
                if matches!(error, ReadRightsError::Missing(_)) {
                    report.rights = Finding::new(ConditionReason::RightsMissing, &message);
                }
            });
            if said != message {
                self.warn(EventReason::RightsMissing, &message);
                said = message;
            }
            let controllers = self.context.controllers.all().map(|store| store.view(Cache::len)).iter().sum();
            tokio::select! {
                () = tokio::time::sleep(ungranted_delay(controllers)) => {}
                () = self.stop.cancelled() => return None,
            }
        }
    }
}

/// Ends when a store of parents gives way.
async fn gave_way(rights: &[Readable]) {
    if rights.is_empty() {
        return pending().await;
    }
    drop(select_all(rights.iter().map(|(parents, _)| parents.gave_way().boxed())).await);
}

/// Ends when the account may no longer read a kind of the spec.
pub(super) async fn taken_away(rights: &[Readable]) {
    if rights.is_empty() {
        return pending().await;
    }
    loop {
        let refused = select_all(rights.iter().map(|(_, rights)| rights.refused.notified().boxed()));
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            _ = refused => {}
        }
        if let Some(ReadRightsError::Missing(_)) = unreadable(rights).await {
            return;
        }
    }
}

/// Why the account may not read one of the kinds, in no namespace.
async fn unreadable(rights: &[Readable]) -> Option<ReadRightsError> {
    for (parents, rights) in rights {
        if let Err(error) = rights.check_any(parents).await {
            return Some(error);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use http::Response;
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::cluster::fake;
    use crate::controller::reconcile::testing::resource;
    use crate::store::Stores;

    /// The rights to read ConfigMaps, by an API server that answers so.
    fn rights(answer: impl Fn() -> (u16, bool) + Send + Sync + 'static) -> Readable {
        let api = fake::answering(move |request| {
            if request.method() == http::Method::GET {
                return None;
            }
            let (status, allowed) = answer();
            let body = json!({"status": {"allowed": allowed}}).to_string();
            Response::builder().status(status).body(body).ok()
        });
        let account = ServiceAccountRef { namespace: "n".to_owned(), name: "a".to_owned() };
        let parents = resource("v1", "ConfigMap");
        let store = Stores::new(api.clone()).open(&parents);
        (store, Arc::new(ReadRights::new(api, account, &parents, std::iter::empty())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_that_is_taken_away_stops_a_controller_within_five_minutes() {
        let granted = Arc::new(AtomicBool::new(true));
        let answer = Arc::clone(&granted);
        let rights = [rights(move || (201, answer.load(Ordering::Relaxed)))];
        assert!(unreadable(&rights).await.is_none());
        let long = tokio::time::timeout(Duration::from_hours(1), taken_away(&rights)).await;
        assert!(long.is_err(), "it was granted all the time");
        granted.store(false, Ordering::Relaxed);
        let began = Instant::now();
        taken_away(&rights).await;
        assert!(began.elapsed() <= Duration::from_mins(5), "{:?}", began.elapsed());
        let error = unreadable(&rights).await.map(|error| error.to_string()).unwrap_or_default();
        let says = "User \"system:serviceaccount:n:a\" cannot list resource \"configmaps\" in API group \"\"; grant it";
        assert!(error.starts_with(says), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_write_has_the_right_to_read_asked_for_at_once() {
        let granted = Arc::new(AtomicBool::new(true));
        let answer = Arc::clone(&granted);
        let rights = [rights(move || (201, answer.load(Ordering::Relaxed)))];
        assert!(unreadable(&rights).await.is_none());
        granted.store(false, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(rights[0].1.check("n").await.is_ok(), "the answer still counts");
        rights[0].1.doubt();
        let began = Instant::now();
        taken_away(&rights).await;
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert!(rights[0].1.check("n").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_takes_no_right_away_and_grants_none() {
        let rights = [rights(|| (503, true))];
        assert!(matches!(unreadable(&rights).await, Some(ReadRightsError::Unknown(_))));
        let ended = tokio::time::timeout(Duration::from_hours(1), taken_away(&rights)).await;
        assert!(ended.is_err());
    }
}
