//! Request of a CompositeController's sync and finalize hooks, and the fields that other requests share.

use crate::keep::put;
use crate::{Map, Raw, Str};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// Request to the sync and the finalize hook of a `CompositeController`. [`Sync`](crate::Sync) is its usual form.
///
/// You choose the type of each part. The SDK skips fields that your types do not name.
///
/// | part | usual types |
/// |---|---|
/// | `parent` | [`Object<Spec>`](crate::Object), or a struct |
/// | `children` | [`Children`], or a struct with a [`Map`] for each kind. Without a choice it keeps only the names |
/// | `settings`, `related` | a struct, `serde_json::Value` or [`Raw`]. Without a choice it keeps nothing |
///
/// ```
/// use metahook_sdk::{Children, Object, SyncRequest, SyncResponse};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, Default)]
/// struct Settings {
///     image: Option<String>,
/// }
///
/// fn sync(request: &SyncRequest<Object<'_>, Children<'_>, Settings>) -> SyncResponse {
///     SyncResponse::new().status(request.settings.image.as_deref().unwrap_or("busybox"))
/// }
/// # let answer = metahook_sdk::testing::Request::of(serde_json::json!({})).call(sync).unwrap();
/// # assert_eq!(answer.status, "busybox");
/// ```
///
/// Only `parent` must be in the request. The other parts are `Default` when they are absent or null.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SyncRequest<P, C = Children<'static>, S = IgnoredAny, R = IgnoredAny> {
    /// The parent.
    pub parent: P,
    /// The children that exist, also those that are being deleted.
    pub children: C,
    /// `settings` of the hook in the controller's spec; `Default` if there are none.
    pub settings: S,
    /// Objects that the customize hook's rules select, keyed like children: [`Children`] of [`Object`](crate::Object)s, for one.
    pub related: R,
    /// This is a call of the finalize hook: the parent is being deleted, or the controller no longer selects it. See
    /// [`SyncResponse::finalized`](crate::SyncResponse::finalized).
    pub finalizing: bool,
}

impl<'de, P, C, S, R> Deserialize<'de> for SyncRequest<P, C, S, R>
where
    P: Deserialize<'de>,
    C: Deserialize<'de> + Default,
    S: Deserialize<'de> + Default,
    R: Deserialize<'de> + Default,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Parts { object: parent, owned: children, settings, related, finalizing } =
            Fields::deserialize(from, "parent", "children")?;
        Ok(Self { parent, children, settings, related, finalizing })
    }
}

/// Fields of the requests of both kinds of controllers.
pub(crate) struct Parts<P, C, S, R> {
    pub(crate) object: P,
    pub(crate) owned: C,
    pub(crate) settings: S,
    pub(crate) related: R,
    pub(crate) finalizing: bool,
}

/// By hand, like [`Object`](crate::Object) and for its reasons.
pub(crate) struct Fields<T> {
    object: &'static str,
    owned: &'static str,
    parts: PhantomData<T>,
}

impl<'de, P, C, S, R> Fields<Parts<P, C, S, R>>
where
    P: Deserialize<'de>,
    C: Deserialize<'de> + Default,
    S: Deserialize<'de> + Default,
    R: Deserialize<'de> + Default,
{
    /// The parts of a request that names these two so.
    pub(crate) fn deserialize<D: Deserializer<'de>>(
        from: D,
        object: &'static str,
        owned: &'static str,
    ) -> Result<Parts<P, C, S, R>, D::Error> {
        from.deserialize_map(Self { object, owned, parts: PhantomData })
    }
}

impl<'de, P, C, S, R> Visitor<'de> for Fields<Parts<P, C, S, R>>
where
    P: Deserialize<'de>,
    C: Deserialize<'de> + Default,
    S: Deserialize<'de> + Default,
    R: Deserialize<'de> + Default,
{
    type Value = Parts<P, C, S, R>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut parts = ManuallyDrop::new((None, None, None, None, None));
        while let Some(key) = fields.next_key::<Str<'de>>()? {
            match &*key {
                key if key == self.object => put(&mut parts.0, Some(fields.next_value()?)),
                key if key == self.owned => put(&mut parts.1, fields.next_value()?),
                "settings" => put(&mut parts.2, fields.next_value()?),
                "related" => put(&mut parts.3, fields.next_value()?),
                "finalizing" => parts.4 = fields.next_value()?,
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        let (object, owned, settings, related, finalizing) = ManuallyDrop::into_inner(parts);
        Ok(Parts {
            object: object.ok_or_else(|| A::Error::missing_field(self.object))?,
            owned: owned.unwrap_or_default(),
            settings: settings.unwrap_or_default(),
            related: related.unwrap_or_default(),
            finalizing: finalizing.unwrap_or_default(),
        })
    }
}

/// Observed children, attachments or related objects: by group key (`Pod.v1`, `Deployment.apps/v1`), then by name
/// (hooks of version v2: `namespace/name`).
///
/// All groups have children of one type. When each kind needs its own type, use a struct in place of `Children`:
///
/// ```
/// use metahook_sdk::{Map, Object, SyncRequest, SyncResponse};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, Default)]
/// struct Observed<'a> {
///     #[serde(rename = "Pod.v1", borrow)]
///     pods: Map<'a, Object<'a>>,
///     #[serde(rename = "Deployment.apps/v1", borrow)]
///     deployments: Map<'a, Object<'a>>,
/// }
///
/// fn sync(request: &SyncRequest<Object<'_>, Observed<'_>>) -> SyncResponse {
///     let children = request.children.pods.len() + request.children.deployments.len();
///     // …
/// #   assert_eq!(children, 0);
/// #   SyncResponse::new()
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Children<'a, C = IgnoredAny> {
    groups: Map<'a, Map<'a, C>>,
    none: Map<'a, C>,
}

impl<'a, C> Children<'a, C> {
    /// The children of one kind, for example `request.children.group("Pod.v1")`. It is empty when there are none, and also
    /// when the controller does not declare the kind.
    ///
    /// ```
    /// # use metahook_sdk::{IgnoredAny, Object, Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// /// The status is the name of the oldest Pod.
    /// fn sync(request: &Sync<'_, IgnoredAny, IgnoredAny, Object<'_>>) -> SyncResponse {
    ///     let pods = request.children.group("Pod.v1").values();
    ///     let oldest = pods.min_by_key(|pod| &pod.metadata.creation_timestamp);
    ///     SyncResponse::new().status(oldest.map(|pod| &pod.metadata.name))
    /// }
    /// # let pod = |name, created| {
    /// #     let metadata = json!({ "name": name, "creationTimestamp": created });
    /// #     json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata })
    /// # };
    /// # let request = Request::of(json!({})).observed(pod("a", "2026-01-02T00:00:00Z"));
    /// # assert_eq!(request.observed(pod("b", "2026-01-01T00:00:00Z")).call(sync).unwrap().status, "b");
    /// ```
    pub fn group(&self, key: &str) -> &Map<'a, C> {
        self.groups.get(key).unwrap_or(&self.none)
    }

    /// All kinds that the controller declares: the key of each, such as `Pod.v1`, and its children.
    ///
    /// ```
    /// # use metahook_sdk::{Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// fn sync(request: &Sync<'_>) -> SyncResponse {
    ///     let counts: Vec<_> = request.children.groups().map(|(key, group)| (key, group.len())).collect();
    ///     SyncResponse::new().status(counts)
    /// }
    /// # let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } });
    /// # let answer = Request::of(json!({})).observed(pod).declared("Job.batch/v1").call(sync).unwrap();
    /// # assert_eq!(answer.status, json!([["Job.batch/v1", 0], ["Pod.v1", 1]]));
    /// ```
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = (&str, &Map<'a, C>)> + ExactSizeIterator {
        self.groups.iter()
    }
}

impl<'a> Children<'a, Raw<'a>> {
    /// The children of one kind as a type of their own, such as a `Pod` of `k8s-openapi`. This function decodes the [`Raw`]
    /// children, so each kind may have another type.
    ///
    /// ```
    /// use metahook_sdk::{IgnoredAny, Object, Raw, Result, Sync, SyncResponse};
    ///
    /// fn sync(request: &Sync<'_, IgnoredAny, IgnoredAny, Raw<'_>>) -> Result {
    ///     let pods: Vec<Object<'_>> = request.children.decoded("Pod.v1")?;
    ///     let leaving = pods.iter().filter(|pod| pod.metadata.deleting()).count();
    ///     // …
    /// #   assert_eq!(leaving, 0);
    /// #   Ok(SyncResponse::new())
    /// }
    /// # metahook_sdk::testing::Request::of(serde_json::json!({})).call(sync).unwrap();
    /// ```
    ///
    /// # Errors
    /// One line that names the child and the field that has another type.
    pub fn decoded<T: Deserialize<'a>>(&self, key: &str) -> Result<Vec<T>, String> {
        let decode =
            |(name, child): (&str, &Raw<'a>)| child.decode().map_err(|why| format!("{key} {name}: {why}"));
        self.group(key).iter().map(decode).collect()
    }
}

impl<C> Default for Children<'_, C> {
    fn default() -> Self {
        Self { groups: Map::new(), none: Map::new() }
    }
}

impl<'de: 'a, 'a, C: Deserialize<'de>> Deserialize<'de> for Children<'a, C> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self { groups: Map::deserialize(from)?, none: Map::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;
    use crate::decode::decode;

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    struct Settings {
        greeting: Option<String>,
    }

    const REQUEST: &[u8] = br#"{"controller":{"spec":{"x":"}"}},"new":[null,1.5e3],
        "parent":{"metadata":{"name":"p\u0061rent"}},
        "children":{"Pod.v1":{"a":{"metadata":{"name":"a"}},"b":{}},"Deployment.apps/v1":{}},
        "related":{"Secret.v1":null},"settings":{"greeting":"hi","other":0},"finalizing":true}"#;

    #[test]
    fn each_part_is_decoded_as_the_type_that_was_chosen() {
        type Request<'a> = SyncRequest<Object<'a>, Children<'a, Object<'a>>, Settings, Raw<'a>>;
        let request: Request<'_> = decode("request", REQUEST).unwrap();
        assert_eq!(request.parent.metadata.name, "parent");
        let pods = request.children.group("Pod.v1");
        assert_eq!(pods.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(pods.get("a").unwrap().metadata.name, "a");
        assert!(request.children.group("Deployment.apps/v1").is_empty());
        assert!(request.children.group("Pod.v2").is_empty());
        assert_eq!(
            request.children.groups().map(|(key, group)| (key, group.len())).collect::<Vec<_>>(),
            [("Deployment.apps/v1", 0), ("Pod.v1", 2)]
        );
        assert_eq!(request.settings, Settings { greeting: Some("hi".to_owned()) });
        assert_eq!(request.related.text(), r#"{"Secret.v1":null}"#);
        assert!(request.finalizing);
    }

    #[test]
    fn children_of_a_kind_are_decoded_as_a_type_of_their_own() {
        let request: SyncRequest<IgnoredAny, Children<'_, Raw<'_>>> = decode("request", REQUEST).unwrap();
        let pods: Vec<Object<'_>> = request.children.decoded("Pod.v1").unwrap();
        assert_eq!(pods.iter().map(|pod| &*pod.metadata.name).collect::<Vec<_>>(), ["a", ""]);
        assert_eq!(request.children.decoded::<Object<'_>>("Job.batch/v1"), Ok(Vec::new()));
        let why = request.children.decoded::<Vec<u8>>("Pod.v1").unwrap_err();
        assert!(why.starts_with("Pod.v1 a: value: an object where"), "{why}");
    }

    #[test]
    fn nothing_but_the_parent_has_to_be_there() {
        let least: SyncRequest<Object<'_>> = decode("request", br#"{"parent":{}}"#).unwrap();
        let nulls = br#"{"parent":{},"children":null,"settings":null,"related":null,"finalizing":null}"#;
        assert_eq!(decode("request", nulls), Ok(least));
        let empty = br#"{"parent":{},"children":{"Pod.v1":null}}"#;
        let empty: SyncRequest<Object<'_>> = decode("request", empty).unwrap();
        assert!(empty.children.group("Pod.v1").is_empty());
    }

    #[test]
    fn what_cannot_be_decoded_is_named() {
        type Request<'a> = SyncRequest<Object<'a, Settings>, Children<'a, Object<'a, Settings>>>;
        let refused = |text: &'static str| decode::<Request<'_>>("request", text.as_bytes()).unwrap_err();
        assert_eq!(
            refused(r#"{"parent":{"spec":{"greeting":5}}}"#),
            "request.parent.spec.greeting: 5 where a string should be (at byte 30 of 34)"
        );
        assert_eq!(
            refused(r#"{"parent":{},"children":{"Pod.v1":{"a":{"spec":[]}}}}"#),
            r#"request.children["Pod.v1"].a.spec: a list where struct Settings should be (at byte 47 of 53)"#
        );
        assert_eq!(
            refused(r#"{"parent":{"metadata":{"name":true}}}"#),
            "request.parent.metadata.name: true where a string should be (at byte 30 of 37)"
        );
        assert_eq!(
            refused(r#"{"parent":{},"finalizing":"no"}"#),
            "request.finalizing: \"no\" where a boolean should be (at byte 26 of 31)"
        );
        assert_eq!(refused(r#"{"children":{}}"#), "request: missing field `parent` (at byte 15 of 15)");
    }

    #[test]
    fn any_change_of_a_byte_is_decoded_or_refused() {
        for at in 0..REQUEST.len() {
            for byte in [0, b'"', b'\\', b'{', b'}', b',', b'9', 0xff] {
                let mut text = REQUEST.to_vec();
                text[at] = byte;
                if let Err(why) =
                    decode::<SyncRequest<Object<'_>, Children<'_, Object<'_>>, Settings>>("request", &text)
                {
                    assert!(why.starts_with("request") && !why.contains('\n'), "{why}");
                }
            }
        }
    }
}
