//! Removal of a controller's finalizers where no server goes on with it: from all objects that it may have put them on.

use std::sync::Arc;

use metahook_core::api::ControllerKind;
use metahook_core::api::selection::{FinalizerChange, finalizer};
use metahook_core::counted;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, ObjectId};

use crate::cluster::api_client::ApiClient;
use crate::cluster::discovery::{Discovery, DiscoveryError};
use crate::cluster::objects::RequestError;
use crate::controller::runner::stale_finalizers;

#[derive(Debug, thiserror::Error)]
pub enum FinalizerCleanupError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    List(#[from] RequestError),
    #[error("the controller's finalizer could not be taken off {}; the first", counted(*count, "object", "objects"))]
    Finalizers { count: usize, source: RequestError },
}

/// The kinds of parents of a controller as it is written; none where it cannot be read.
pub fn parent_kinds(kind: ControllerKind, controller: &Object) -> Vec<Gvr> {
    stale_finalizers::parents(kind, controller).unwrap_or_default()
}

/// The objects that carry the controller's finalizer.
pub async fn finalized(
    api: &ApiClient,
    kind: ControllerKind,
    controller: &Object,
) -> Result<Vec<(ObjectId, Object)>, FinalizerCleanupError> {
    let discovery = Discovery::new(api.clone());
    let own = finalizer(kind, &controller.key.name);
    let mut all = Vec::new();
    for parents in parent_kinds(kind, controller) {
        let resource = match discovery.resolve_any_version(&parents).await {
            // A kind that is served in no version has no objects.
            Err(error) if error.is_not_served() => continue,
            resource => resource?,
        };
        let found = api.list_objects(&resource).await?.into_iter();
        let found = found.filter(|object| object.finalizers.contains(&own));
        all.extend(
            found.map(|object| {
                (ObjectId { resource: Arc::clone(&resource), key: object.key.clone() }, object)
            }),
        );
    }
    Ok(all)
}

/// Takes the finalizer off all parents; gives back how many had it. One that fails does not hold the others.
pub async fn take_off_finalizers(
    api: &ApiClient,
    kind: ControllerKind,
    controller: &Object,
) -> Result<usize, FinalizerCleanupError> {
    let own = finalizer(kind, &controller.key.name);
    let is_own = |one: &str| one == own;
    let all = finalized(api, kind, controller).await?;
    let (mut failed, mut first) = (0, None);
    for (id, object) in &all {
        if let Err(error) = api.change_finalizers(id, object, FinalizerChange::Remove(&is_own)).await {
            failed += 1;
            first.get_or_insert(error);
        }
    }
    match first {
        None => Ok(all.len()),
        Some(source) => Err(FinalizerCleanupError::Finalizers { count: failed, source }),
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Response};
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::fake;
    use crate::sync::lock;
    use std::sync::Mutex;

    fn thing(name: &str, finalizers: &Value) -> Value {
        json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {
            "name": name, "uid": name, "resourceVersion": "1", "finalizers": finalizers,
        } })
    }

    #[tokio::test]
    async fn each_object_with_the_finalizer_loses_it_and_a_failure_holds_no_other() {
        let own = finalizer(ControllerKind::Composite, "c");
        let items = json!([
            thing("a", &json!([own])),
            thing("b", &json!(["x/y"])),
            thing("c", &json!([own])),
            thing("d", &json!(["x/y", own]))
        ]);
        let patched = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&patched);
        let api = fake::answering(move |request| {
            let path = request.uri().path().to_owned();
            let (status, body) = match (request.method(), path.as_str()) {
                (&Method::GET, "/apis/example.com/v1") => (
                    200,
                    json!({ "resources": [{ "name": "things", "kind": "Thing", "namespaced": false }] }),
                ),
                (&Method::GET, _) => (200, json!({ "items": items, "metadata": {} })),
                _ => {
                    lock(&seen).push(path.rsplit('/').next().unwrap().to_owned());
                    let is_refused = path.ends_with("/c");
                    (if is_refused { 400 } else { 200 }, thing("a", &json!([])))
                }
            };
            Response::builder().status(status).body(body.to_string()).ok()
        });
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
            "metadata": { "name": "c", "uid": "u", "resourceVersion": "1" },
            "spec": { "parentResource": { "apiVersion": "example.com/v1", "resource": "things" } },
        });
        let controller = Object::parse(&controller.to_string(), None).unwrap();
        let error = take_off_finalizers(&api, ControllerKind::Composite, &controller).await.unwrap_err();
        assert!(matches!(error, FinalizerCleanupError::Finalizers { count: 1, .. }), "{error:?}");
        assert_eq!(*lock(&patched), ["a", "c", "d"]);
    }
}
