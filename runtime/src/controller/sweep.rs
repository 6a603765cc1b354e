//! Finalizers that no controller answers for any more, taken off: who carries one could never be deleted.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::gate;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, ObjectId};
use metahook_core::spec::account::ServiceAccountRef;
use metahook_core::spec::controller::ControllerKind;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Tools;
use crate::cluster::rest::Rest;
use crate::cluster::rewrite::{RewriteError, list};
use crate::store::Store;
use crate::told::told;

/// What could not be swept is tried again this much later.
const AGAIN: Duration = Duration::from_secs(5);

/// The parents of one kind.
pub(super) struct Sweep {
    pub(super) tools: Tools,
    pub(super) parents: Gvr,
    /// By whose rights the finalizers were written; the server's own are tried besides.
    pub(super) account: Option<ServiceAccountRef>,
}

impl Sweep {
    /// Ends when no object of the kind carries a stale finalizer, or at `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let accounts = self.account.iter().map(|account| self.tools.rest.acting_as(account));
        let rests: Vec<Rest> = accounts.chain([self.tools.rest.clone()]).collect();
        let sweeping = async {
            self.tools.controllers.synced().await;
            for rest in rests.iter().cycle() {
                let Err(error) = self.once(rest).await else { return };
                tracing::warn!(parents = %self.parents, error = told(error.as_ref()), "finalizers of controllers that are gone could not be taken off; tried again");
                tokio::time::sleep(AGAIN).await;
            }
        };
        tokio::select! {
            () = sweeping => {}
            () = stop.cancelled() => {}
        }
    }

    /// Goes on after a failure, so that one parent does not hold the others; gives back the first.
    async fn once(&self, rest: &Rest) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        // A kind that is not served has no objects.
        let resource = match self.tools.discovery.resolve(&self.parents).await {
            Err(error) if error.is_not_served() => return Ok(()),
            resource => resource?,
        };
        let store = self.tools.stores.open(&resource);
        store.synced().await;
        let marked: Vec<_> =
            store.view(|all| all.all().filter(|object| self.is_on(object)).map(Arc::clone).collect());
        let mut first = Ok(());
        for object in marked {
            let id = ObjectId { resource: Arc::clone(&resource), key: object.key.clone() };
            match self.clean(rest, &id, &object, &store).await {
                Ok(()) => {
                    tracing::info!(object = %id, "the finalizer of a controller that is gone was taken off");
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        Ok(first?)
    }

    async fn clean(
        &self,
        rest: &Rest,
        id: &ObjectId,
        object: &Object,
        store: &Store,
    ) -> Result<(), RewriteError> {
        let clean = |object: &mut Value| {
            list(object, "finalizers", |all| {
                all.retain(|one| !one.as_str().is_some_and(|one| self.is_stale(one)));
            });
        };
        store.absorb(rest.rewrite(id, &object.uid, clean).await?);
        Ok(())
    }

    fn is_on(&self, object: &Object) -> bool {
        object.finalizers.iter().any(|finalizer| self.is_stale(finalizer))
    }

    /// No controller of that name looks at these parents, now.
    fn is_stale(&self, finalizer: &str) -> bool {
        gate::whose(finalizer).is_some_and(|(kind, name)| {
            let controller = self.tools.controllers.get(kind, name);
            !controller.is_some_and(|controller| looks_at(kind, &controller, &self.parents))
        })
    }
}

/// Whether a controller, as it is written, is about these parents, in whichever version. One that cannot be read may be.
pub(super) fn looks_at(kind: ControllerKind, controller: &Object, parents: &Gvr) -> bool {
    self::parents(kind, controller).is_none_or(|all| all.iter().any(|its| its.is_kin(parents)))
}

/// The kinds of parents that a controller is about.
pub(super) fn parents(kind: ControllerKind, controller: &Object) -> Option<Vec<Gvr>> {
    #[derive(Deserialize)]
    struct Specified<S> {
        spec: S,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Composite {
        parent_resource: Parents,
    }
    #[derive(Deserialize)]
    struct Decorator {
        resources: Vec<Parents>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Parents {
        api_version: String,
        resource: String,
    }
    let all = match kind {
        ControllerKind::Composite => {
            let Specified::<Composite> { spec } = serde_json::from_str(controller.json()).ok()?;
            vec![spec.parent_resource]
        }
        ControllerKind::Decorator => {
            let Specified::<Decorator> { spec } = serde_json::from_str(controller.json()).ok()?;
            spec.resources
        }
    };
    Some(all.into_iter().map(|one| Gvr::new(&one.api_version, &one.resource)).collect())
}
