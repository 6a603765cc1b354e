//! Rights that a controller's account lacks to write what the spec declares: told of before the first write, until none is missing.

use std::sync::Arc;

use metahook_core::api::access::{Writes, to_own, to_work};
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::{Finding, Report};
use metahook_core::cache::Cache;
use metahook_core::object::Object;
use metahook_core::pacing::ungranted_delay;
use tokio::sync::{OnceCell, watch};

use crate::cluster::access;
use crate::cluster::api_client::{ApiClient, Unreachable};
use crate::cluster::events::Recorder;
use crate::controller::runner::ControllerRunner;
use crate::controller::runner::report::changed;
use crate::store::Store;
use crate::telemetry::error_chain;

/// Asks for one controller.
pub(crate) struct MissingRights {
    /// Acts as the account.
    api: ApiClient,
    account: Option<ServiceAccountRef>,
    needs: Vec<Writes>,
    /// Rights that it needs besides where the API server guards owner references.
    owns: Vec<Writes>,
    /// Whether the API server guards owner references, asked once and only where one of these is missing.
    guards: OnceCell<bool>,
    /// Client with the server's own rights.
    server: ApiClient,
    object: Arc<Object>,
    recorder: Recorder,
    report: watch::Sender<Report>,
    /// All controllers: with many of them, each asks less often.
    controllers: Vec<Arc<Store>>,
}

impl MissingRights {
    pub(crate) fn of(runner: &ControllerRunner, account: Option<&ServiceAccountRef>) -> Self {
        let ControllerRunner { context, kind, object, reporter, .. } = runner;
        let needs = to_work(*kind, object, context.options.applying.strategy);
        Self {
            api: account.map_or_else(
                || context.cluster.api.clone(),
                |account| context.cluster.api.acting_as(account),
            ),
            account: account.cloned(),
            needs: needs.unwrap_or_default(),
            owns: to_own(*kind, object).unwrap_or_default(),
            guards: OnceCell::new(),
            server: context.cluster.api.clone(),
            object: Arc::clone(object),
            recorder: context.cluster.recorder.clone(),
            report: reporter.shared(),
            controllers: context.controllers.all().map(Arc::clone).into(),
        }
    }

    /// Ends once nothing is missing, or where the API server does not say what is.
    pub(crate) async fn run(self) {
        let mut said = None;
        loop {
            match self.missing().await {
                Ok(None) => return,
                Ok(Some(missing)) => {
                    let Some(first) = missing.first() else {
                        return self.tell(ConditionReason::AllGranted, "");
                    };
                    let message =
                        access::message(&self.api, self.account.as_ref(), first, missing.len() - 1).await;
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
        for one in &self.needs {
            match may(one).await? {
                None => return Ok(None),
                Some(true) => {}
                Some(false) => missing.push(one),
            }
        }
        let mut unowned = Vec::new();
        for one in &self.owns {
            if may(one).await? == Some(false) {
                unowned.push(one);
            }
        }
        if !unowned.is_empty() && *self.guards.get_or_try_init(|| self.guards_owners()).await? {
            missing.append(&mut unowned);
        }
        Ok(Some(missing))
    }

    /// The server may record Events, but where it may finalize anything the guard lets it pass; then the account may tell.
    async fn guards_owners(&self) -> Result<bool, Unreachable> {
        let is_on = access::guards_owners(&self.server, &self.object).await?;
        Ok(is_on || (self.account.is_some() && access::guards_owners(&self.api, &self.object).await?))
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

    fn tell(&self, reason: ConditionReason, message: &str) {
        changed(&self.report, |report| report.rights = Finding::new(reason, message));
    }
}
