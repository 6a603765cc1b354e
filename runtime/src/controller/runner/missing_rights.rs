//! Rights that a controller's account lacks to write what the spec declares: told of before the first write, and while any is missing.
//! Rights that are taken away are noticed within minutes.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::ControllerKind;
use metahook_core::api::access::{Writes, to_own, to_work};
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::{Finding, Report};
use metahook_core::cache::Cache;
use metahook_core::object::Object;
use metahook_core::pacing::ungranted_delay;
use tokio::sync::{Notify, OnceCell, watch};

use crate::cluster::access;
use crate::cluster::api_client::{ApiClient, Unreachable};
use crate::cluster::events::Recorder;
use crate::controller::runner::ControllerRunner;
use crate::controller::runner::parent_queue::ParentQueue;
use crate::controller::runner::report::changed;
use crate::store::Store;
use crate::telemetry::error_chain;

/// Where nothing is missing, the API server is asked again after this time, and later where there are many controllers.
const AGAIN: Duration = Duration::from_mins(4);

/// Asks for one controller.
pub(crate) struct MissingRights {
    /// Acts as the account.
    api: ApiClient,
    account: Option<ServiceAccountRef>,
    needs: RequiredRights,
    /// Client with the server's own rights.
    server: ApiClient,
    kind: ControllerKind,
    object: Arc<Object>,
    recorder: Recorder,
    report: watch::Sender<Report>,
    /// All controllers: with many of them, each asks less often.
    controllers: Vec<Arc<Store>>,
    /// The API server has refused something to the account.
    refused: Arc<Notify>,
}

/// Rights that a controller's account needs for what the spec declares.
struct RequiredRights {
    /// Rights that the account needs in any case.
    to_work: Vec<Writes>,
    /// Rights that the account needs besides where the API server guards owner references.
    to_own: Vec<Writes>,
    /// Whether the API server guards owner references, asked once and only where one of `to_own` is missing.
    guards: OnceCell<bool>,
}

impl MissingRights {
    pub(crate) fn of(
        runner: &ControllerRunner,
        account: Option<&ServiceAccountRef>,
        parts: &[ParentQueue],
    ) -> Self {
        let refused = parts.first().map(|part| Arc::clone(&part.reconciler.data.telemetry.ungranted));
        let ControllerRunner { context, kind, object, reporter, .. } = runner;
        let needs = RequiredRights {
            to_work: to_work(*kind, object, context.options.applying.strategy).unwrap_or_default(),
            to_own: to_own(*kind, object).unwrap_or_default(),
            guards: OnceCell::new(),
        };
        Self {
            api: account.map_or_else(
                || context.cluster.api.clone(),
                |account| context.cluster.api.acting_as(account),
            ),
            account: account.cloned(),
            needs,
            server: context.cluster.api.clone(),
            kind: *kind,
            object: Arc::clone(object),
            recorder: context.cluster.recorder.clone(),
            report: reporter.shared(),
            controllers: context.controllers.all().map(Arc::clone).into(),
            refused: refused.unwrap_or_default(),
        }
    }

    /// Never ends.
    pub(crate) async fn run(self) {
        let mut said = None;
        loop {
            match self.missing().await {
                Ok(None) => self.rest().await,
                Ok(Some(missing)) => {
                    let Some(first) = missing.first() else {
                        self.tell(ConditionReason::AllGranted, "");
                        said = None;
                        self.rest().await;
                        continue;
                    };
                    let message =
                        access::message(&self.server, self.account.as_ref(), &missing, &self.name()).await;
                    self.tell(ConditionReason::RightsMissing, &message);
                    if said.as_ref() != Some(&message) {
                        tracing::warn!(controller = %self.object.key, reason = EventReason::RightsMissing.as_str(), "{message}");
                        self.recorder.record(&self.object, EventReason::RightsMissing, &message);
                        said = Some(message);
                    }
                    self.until_granted(first).await;
                }
                Err(error) => {
                    tracing::debug!(controller = %self.object.key, error = error_chain(&error), "the API server does not say what an account may do; it is asked again");
                    self.pause().await;
                }
            }
        }
    }

    /// `None`: the API server does not say.
    async fn missing(&self) -> Result<Option<Vec<&Writes>>, Unreachable> {
        let (mut missing, anything) = (Vec::new(), Writes::anything());
        let may = async |what| access::may(&self.api, self.account.as_ref(), what).await;
        if may(&anything).await? == Some(true) {
            return Ok(Some(missing));
        }
        for one in &self.needs.to_work {
            match may(one).await? {
                None => return Ok(None),
                Some(true) => {}
                Some(false) => missing.push(one),
            }
        }
        let mut unowned = Vec::new();
        for one in &self.needs.to_own {
            if may(one).await? == Some(false) {
                unowned.push(one);
            }
        }
        if !unowned.is_empty() && *self.needs.guards.get_or_try_init(|| self.guards_owners()).await? {
            missing.append(&mut unowned);
        }
        Ok(Some(missing))
    }

    /// The server may record Events, but where it may finalize anything the guard lets it pass; then the account may tell.
    async fn guards_owners(&self) -> Result<bool, Unreachable> {
        let is_on = access::guards_owners(&self.server, &self.object).await?;
        Ok(is_on || (self.account.is_some() && access::guards_owners(&self.api, &self.object).await?))
    }

    /// The controller as commands take it, such as `compositecontroller/hello`.
    fn name(&self) -> String {
        format!("{}/{}", self.kind.as_str().to_lowercase(), self.object.key.name)
    }

    async fn until_granted(&self, first: &Writes) {
        loop {
            self.pause().await;
            if !matches!(access::may(&self.api, self.account.as_ref(), first).await, Ok(Some(false))) {
                return;
            }
        }
    }

    /// Pauses so long that, of all controllers, five ask in a second.
    async fn pause(&self) {
        let controllers = self.controllers.iter().map(|store| store.view(Cache::len)).sum();
        tokio::time::sleep(ungranted_delay(controllers)).await;
    }

    /// Until the API server is asked again, where nothing is missing: soon where it has refused something.
    async fn rest(&self) {
        drop(tokio::time::timeout(AGAIN, self.refused.notified()).await);
        self.pause().await;
    }

    fn tell(&self, reason: ConditionReason, message: &str) {
        changed(&self.report, |report| report.rights = Finding::new(reason, message));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use metahook_core::api::common::ApplyStrategy;
    use metahook_core::pacing::Rate;
    use serde_json::json;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::cluster::fake;

    #[tokio::test(start_paused = true)]
    async fn a_right_that_is_taken_away_is_missing_within_minutes_and_granted_again() {
        let allowed = Arc::new(AtomicBool::new(true));
        let is_allowed = Arc::clone(&allowed);
        let api = fake::answering(move |_| {
            let body = json!({"status": {"allowed": is_allowed.load(Ordering::Relaxed)}});
            http::Response::builder().status(201).body(body.to_string()).ok()
        });
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController", "metadata": {"name": "c"},
            "spec": {
                "parentResource": {"apiVersion": "e/v1", "resource": "things"},
                "childResources": [{"apiVersion": "v1", "resource": "pods"}],
                "hooks": {"sync": {"webhook": {"url": "http://hook"}}},
            },
        });
        let object = Object::parse(&controller.to_string(), None).unwrap();
        let (report, mut seen) = watch::channel(Report::default());
        let refused = Arc::new(Notify::new());
        let rights = MissingRights {
            needs: RequiredRights {
                to_work: to_work(ControllerKind::Composite, &object, ApplyStrategy::default()).unwrap(),
                to_own: Vec::new(),
                guards: OnceCell::new(),
            },
            account: None,
            server: api.clone(),
            kind: ControllerKind::Composite,
            object: Arc::new(object),
            recorder: Recorder::start(api.clone(), Rate::OF_EVENTS, CancellationToken::new()).0,
            api,
            report,
            controllers: Vec::new(),
            refused: Arc::clone(&refused),
        };
        let _asking = AbortOnDropHandle::new(tokio::spawn(rights.run()));
        let minutes = Duration::from_mins(5);
        for (is_allowed, is_refused, reason, within) in [
            (true, false, ConditionReason::AllGranted, minutes),
            (false, false, ConditionReason::RightsMissing, minutes),
            (true, false, ConditionReason::AllGranted, minutes),
            (false, true, ConditionReason::RightsMissing, Duration::from_secs(5)),
            (true, false, ConditionReason::AllGranted, minutes),
        ] {
            allowed.store(is_allowed, Ordering::Relaxed);
            if is_refused {
                refused.notify_one();
            }
            let began = Instant::now();
            let report = seen.wait_for(|report| report.rights.reason() == reason.as_str()).await.unwrap();
            let message = match &report.rights {
                Finding::Known { message, .. } => message.clone(),
                Finding::Unknown => String::new(),
            };
            drop(report);
            let says = "\"things/status\" in API group \"e\"; create, update, delete resource \"pods\" in API group \"\"; grant it: `metahook rbac --controller compositecontroller/c`";
            assert!(is_allowed || message.contains(says), "{message}");
            assert!(began.elapsed() <= within, "{:?} until {reason:?}", began.elapsed());
        }
    }
}
