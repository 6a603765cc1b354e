//! Changes of an object's finalizers: one patch, or, where patches are refused, a rewrite.

use std::borrow::Cow;

use http::StatusCode;
use metahook_core::api::selection::FinalizerChange;
use metahook_core::cache::CacheEvent;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;

use crate::cluster::api_client::{ApiClient, JSON_PATCH};
use crate::cluster::apply::{MAX_TRIES, OPTIONS, gone, wrote, wrote_over};
use crate::cluster::objects::RequestError;

impl ApiClient {
    /// Changes the finalizers of an object as it was seen, by one patch; where another client was faster, of the object as it
    /// is then. The object is replaced where the server may not patch it. Events for the store as above.
    pub(crate) async fn change_finalizers(
        &self,
        id: &ObjectId,
        seen: &Object,
        change: FinalizerChange<'_>,
    ) -> Result<Vec<CacheEvent>, RequestError> {
        let failed = |why| RequestError::new("patch", id, why);
        let mut now = Cow::Borrowed(seen);
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(steps) = change.patch(&now) else {
                return Ok(vec![CacheEvent::Wrote(now.into_owned().into())]);
            };
            let answer = self
                .request_patch(id, JSON_PATCH, &steps, OPTIONS)
                .await
                .map_err(|error| failed(error.into()))?;
            let refused = match answer.status {
                StatusCode::FORBIDDEN => {
                    return self.rewrite(id, &seen.uid, |object| change.apply(object)).await;
                }
                // A test of the patch failed, or the API server refuses the object as it would be.
                StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY if tries < MAX_TRIES => answer,
                _ => return wrote_over(id, &seen.uid, &answer).map(|done| done.events).map_err(failed),
            };
            match self.read(id).await?.filter(|found| found.uid == seen.uid) {
                None => return Ok(gone(id, &seen.uid)),
                Some(found) if found.version == now.version => {
                    return wrote(id, &refused).map(|done| done.events).map_err(failed);
                }
                Some(found) => now = Cow::Owned(found),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, Response};
    use metahook_core::object::id::{Gvk, Key, Resource};
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::fake::{self, Requests};

    /// Result of a change of finalizers, and the requests that it takes. The object is at version 1 where it was seen,
    /// and reads find `found`; the first patches are refused with `refusals`.
    async fn changed(change: FinalizerChange<'_>, refusals: &'static [u16], found: Value) -> String {
        let object = |more: &Value| {
            let mut object = json!({"apiVersion": "e.com/v1", "kind": "P", "metadata": {
                "name": "x", "uid": "u", "resourceVersion": "1", "finalizers": ["y", "ours"],
            }});
            for (field, value) in more.as_object().unwrap() {
                object["metadata"][field] = value.clone();
            }
            object.to_string()
        };
        let (requests, patches, found) = (Requests::default(), AtomicUsize::new(0), object(&found));
        let api = fake::recording(&requests, move |request| {
            let refusal = (request.method() == Method::PATCH)
                .then(|| refusals.get(patches.fetch_add(1, Ordering::Relaxed)))
                .flatten();
            Response::builder().status(*refusal.unwrap_or(&200)).body(found.clone()).ok()
        });
        let gvk = Gvk::new("e.com/v1", "P");
        let resource = Resource { gvk, plural: "ps".into(), namespaced: false, has_status: true };
        let id = ObjectId { resource: Arc::new(resource), key: Key::new("", "x") };
        let seen = Object::parse(&object(&json!({})), None).unwrap();
        let what = match api.change_finalizers(&id, &seen, change).await.as_deref() {
            Ok([CacheEvent::Wrote(now)]) => format!("version {}", now.version.as_str()),
            Ok(_) => "gone".to_owned(),
            Err(error) => format!("{:?}", error.retry()),
        };
        format!("{what}: {}", requests.take().join(", ").replace(" /apis/e.com/v1/ps/x", ""))
    }

    #[tokio::test]
    async fn finalizers_are_patched_and_replaced_only_where_patches_are_refused() {
        let drop = || FinalizerChange::Remove(&|one| one == "ours");
        let newer = || json!({"resourceVersion": "2"});
        assert_eq!(changed(drop(), &[], newer()).await, "version 2: PATCH");
        assert_eq!(changed(FinalizerChange::Add("ours"), &[], newer()).await, "version 1: ");
        assert_eq!(changed(drop(), &[403], newer()).await, "version 2: PATCH, GET, PUT");
        assert_eq!(changed(drop(), &[404], newer()).await, "gone: PATCH");
        // Another client was faster: as often as it is so, up to a bound.
        assert_eq!(changed(drop(), &[409], newer()).await, "version 2: PATCH, GET, PATCH");
        assert_eq!(changed(drop(), &[422], newer()).await, "version 2: PATCH, GET, PATCH");
        assert_eq!(changed(drop(), &[422], json!({})).await, "WithEvent: PATCH, GET", "nothing has changed");
        assert_eq!(changed(drop(), &[409], json!({"uid": "v"})).await, "gone: PATCH, GET");
        let deleting = json!({"resourceVersion": "2", "deletionTimestamp": "2026-11-22T18:00:00Z"});
        assert_eq!(changed(FinalizerChange::Add("z"), &[422], deleting).await, "version 2: PATCH, GET");
    }
}
