//! Short names for the usual choices of types.

use crate::{Children, CustomizeRequest, DecorateRequest, Object, SyncResponse};
use serde::de::IgnoredAny;

/// The usual [`SyncRequest`](crate::SyncRequest): a parent with these parts, children and related objects of one type
/// each. The SDK does not read the parts that you leave out.
///
/// ```
/// use metahook_sdk::{Sync, SyncResponse};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, Default)]
/// struct Spec {
///     replicas: usize,
/// }
///
/// fn sync(request: &Sync<'_, Spec>) -> SyncResponse {
///     let missing = request.parent.spec.replicas.saturating_sub(request.children.group("Pod.v1").len());
///     // …
/// #   assert_eq!(missing, 2);
/// #   SyncResponse::new()
/// }
/// # let request = metahook_sdk::testing::Request::of(serde_json::json!({ "spec": { "replicas": 2 } }));
/// # request.call(sync).unwrap();
/// ```
pub type Sync<
    'a,
    Spec = IgnoredAny,
    Status = IgnoredAny,
    Child = IgnoredAny,
    Settings = IgnoredAny,
    Related = IgnoredAny,
> = crate::SyncRequest<Object<'a, Spec, Status>, Children<'a, Child>, Settings, Children<'a, Related>>;

/// The usual [`DecorateRequest`]: an object with these parts, attachments and related objects of one type each.
///
/// ```
/// use metahook_sdk::{Decorate, DecorateResponse};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, Default)]
/// struct Spec {
///     replicas: usize,
/// }
///
/// fn sync(request: &Decorate<'_, Spec>) -> DecorateResponse {
///     DecorateResponse::new().label("replicas", request.object.spec.replicas.to_string())
/// }
/// # let request = metahook_sdk::testing::Request::decorating(serde_json::json!({ "spec": { "replicas": 2 } }));
/// # assert_eq!(request.call(sync).unwrap().labels["replicas"], "2");
/// ```
pub type Decorate<
    'a,
    Spec = IgnoredAny,
    Status = IgnoredAny,
    Attachment = IgnoredAny,
    Settings = IgnoredAny,
    Related = IgnoredAny,
> = DecorateRequest<Object<'a, Spec, Status>, Children<'a, Attachment>, Settings, Children<'a, Related>>;

/// The usual [`CustomizeRequest`]: a parent, or a decorated object, with these parts.
///
/// ```
/// use metahook_sdk::{Customize, CustomizeResponse, RelatedRule, Str};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, Default)]
/// struct Spec<'a> {
///     #[serde(borrow)]
///     config: Str<'a>,
/// }
///
/// fn customize(request: &Customize<'_, Spec<'_>>) -> CustomizeResponse {
///     let parent = &request.parent;
///     let rule = RelatedRule::new("v1", "configmaps").namespace(&*parent.metadata.namespace).name(&*parent.spec.config);
///     CustomizeResponse::new().related(rule)
/// }
/// # let request = metahook_sdk::testing::Request::of(serde_json::json!({ "spec": { "config": "a" } }));
/// # assert_eq!(request.call(customize).unwrap().related_resources[0]["names"][0], "a");
/// ```
pub type Customize<'a, Spec = IgnoredAny, Status = IgnoredAny, Settings = IgnoredAny> =
    CustomizeRequest<Object<'a, Spec, Status>, Settings>;

/// Any error, for hooks that fail in more than one way. `?` makes one of every `std::error::Error`, and also of a `String`
/// and a `&str`: see [`Result`].
///
/// ```
/// use metahook_sdk::Error;
///
/// fn replicas(text: &str) -> Result<u8, Error> {
///     match text.parse()? {
///         0 => Err("no replicas".into()),
///         count => Ok(count),
///     }
/// }
///
/// assert_eq!(replicas("3").unwrap(), 3);
/// assert_eq!(replicas("0").unwrap_err().to_string(), "no replicas");
/// assert_eq!(replicas("x").unwrap_err().to_string(), "invalid digit found in string");
/// ```
pub type Error = Box<dyn std::error::Error + Send + std::marker::Sync>;

/// Result of a hook that may fail. When the hook returns an error, the server writes and deletes nothing, and tries again.
///
/// ```
/// use metahook_sdk::{Result, Sync, SyncResponse, testing::Request};
/// use serde_json::json;
///
/// fn sync(request: &Sync<'_, Option<String>>) -> Result {
///     let size: usize = request.parent.spec.as_deref().ok_or("spec is missing")?.parse()?;
///     Ok(SyncResponse::new().status(json!({ "size": size })))
/// }
///
/// let call = |spec| Request::of(json!({ "spec": spec })).call(sync).map(|answer| answer.status);
/// assert_eq!(call(json!("7")), Ok(json!({ "size": 7 })));
/// assert_eq!(call(json!(null)), Err("spec is missing".to_owned()));
/// assert_eq!(call(json!("seven")), Err("invalid digit found in string".to_owned()));
/// ```
pub type Result<R = SyncResponse> = std::result::Result<R, Error>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Raw, testing};
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    #[test]
    fn types_of_k8s_openapi_are_children_both_ways() {
        fn sync(request: &Sync<'_, IgnoredAny, IgnoredAny, Raw<'_>>) -> Result {
            let mut pods: Vec<Pod> = request.children.decoded("Pod.v1")?;
            pods.iter_mut().filter_map(|pod| pod.spec.as_mut()).for_each(|spec| spec.priority = Some(7));
            Ok(SyncResponse::new().children(pods))
        }
        let pod = |priority: Option<i32>| {
            let spec = priority.map_or_else(
                || json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 80 }] }] }),
                |priority| json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 80 }] }], "priority": priority }),
            );
            let metadata = json!({ "name": "a", "creationTimestamp": "2026-01-01T00:00:00Z" });
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
        };
        let request = testing::Request::of(json!({})).observed(pod(None));
        assert_eq!(request.call(sync).unwrap().children, [pod(Some(7))]);
    }
}
