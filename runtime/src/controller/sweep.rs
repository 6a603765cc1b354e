//! Finalizers of controllers that are no more, taken off: who carries one could never be deleted.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::gate;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Key, ObjectId};
use tokio_util::sync::CancellationToken;

use super::Tools;
use crate::cluster::rewrite::{RewriteError, list};
use crate::store::Store;
use crate::told::told;

/// What could not be swept is tried again this much later.
const AGAIN: Duration = Duration::from_secs(5);

/// Which finalizers are taken off.
pub(super) enum Stale {
    /// This controller's, which is gone or looks at other parents now.
    Of(String),
    /// Those of all controllers that are not there.
    OfNobody(Arc<Store>),
}

impl Stale {
    fn is(&self, finalizer: &str) -> bool {
        match self {
            Self::Of(controller) => finalizer == gate::finalizer(controller),
            Self::OfNobody(controllers) => finalizer
                .strip_prefix(gate::FINALIZER)
                .is_some_and(|name| controllers.get(&Key::new("", name)).is_none()),
        }
    }

    fn is_on(&self, object: &Object) -> bool {
        object.finalizers.iter().any(|finalizer| self.is(finalizer))
    }
}

/// Ends when no object of this kind carries a stale finalizer, or at `stop`.
pub(super) async fn sweep(tools: Tools, parents: Gvr, stale: Stale, stop: CancellationToken) {
    if let Stale::OfNobody(controllers) = &stale {
        controllers.synced().await;
    }
    let sweeping = async {
        while let Err(error) = once(&tools, &parents, &stale).await {
            tracing::warn!(%parents, error = told(error.as_ref()), "finalizers of a controller that is gone could not be taken off; tried again");
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::select! {
        () = sweeping => {}
        () = stop.cancelled() => {}
    }
}

async fn once(
    tools: &Tools,
    parents: &Gvr,
    stale: &Stale,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // A kind that is not served has no objects.
    let resource = match tools.discovery.resolve(parents).await {
        Err(error) if error.is_not_served() => return Ok(()),
        resource => resource?,
    };
    let store = tools.stores.open(&resource);
    store.synced().await;
    let marked: Vec<_> =
        store.view(|all| all.all().filter(|object| stale.is_on(object)).map(Arc::clone).collect());
    for object in marked {
        let id = ObjectId { resource: Arc::clone(&resource), key: object.key.clone() };
        let known = clean(tools, &id, &object, stale).await?;
        tracing::info!(object = %id, "the finalizer of a controller that is gone was taken off");
        store.absorb(known);
    }
    Ok(())
}

async fn clean(
    tools: &Tools,
    id: &ObjectId,
    object: &Object,
    stale: &Stale,
) -> Result<Vec<metahook_core::index::Event>, RewriteError> {
    let clean = |object: &mut serde_json::Value| {
        list(object, "finalizers", |all| {
            all.retain(|one| !one.as_str().is_some_and(|one| stale.is(one)));
        });
    };
    tools.rest.rewrite(id, &object.uid, clean).await
}
