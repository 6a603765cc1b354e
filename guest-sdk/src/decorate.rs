//! Request and response of a DecoratorController's sync and finalize hooks.

use crate::body::Body;
use crate::request::{Fields, Parts};
use crate::response::answers;
use crate::{Children, IntoResponse, Map, Reference};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, IgnoredAny};
use std::time::Duration;

/// Request to the sync and the finalize hook of a `DecoratorController`. Choose its types like those of a
/// [`SyncRequest`](crate::SyncRequest).
///
/// ```no_run
/// use metahook_sdk::{DecorateRequest, DecorateResponse, Object};
/// use serde_json::json;
///
/// /// Makes a ConfigMap for each object, and labels the object.
/// fn decorate(request: &DecorateRequest<Object<'_>>) -> DecorateResponse {
///     let name = &request.object.metadata.name;
///     DecorateResponse::new().label("mapped", "true").remove_annotation("map-wanted").attachment(json!({
///         "apiVersion": "v1",
///         "kind": "ConfigMap",
///         "metadata": { "name": format!("{name}-map") },
///     }))
/// }
///
/// fn main() -> std::process::ExitCode {
///     metahook_sdk::run(decorate)
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DecorateRequest<O, A = Children<'static>, S = IgnoredAny, R = IgnoredAny> {
    /// The object that is decorated.
    pub object: O,
    /// The object's attachments that exist, also those that are being deleted.
    pub attachments: A,
    /// `settings` of the hook in the controller's spec; `Default` if there are none.
    pub settings: S,
    /// Objects that the customize hook's rules select, keyed like attachments.
    pub related: R,
    /// This is a call of the finalize hook: the object is being deleted, or the controller no longer selects it. See
    /// [`DecorateResponse::finalized`].
    pub finalizing: bool,
}

impl<'de, O, A, S, R> Deserialize<'de> for DecorateRequest<O, A, S, R>
where
    O: Deserialize<'de>,
    A: Deserialize<'de> + Default,
    S: Deserialize<'de> + Default,
    R: Deserialize<'de> + Default,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Parts { object, owned: attachments, settings, related, finalizing } =
            Fields::deserialize(from, "object", "attachments")?;
        Ok(Self { object, attachments, settings, related, finalizing })
    }
}

/// Answer of the sync and the finalize hook of a `DecoratorController`.
///
/// ```
/// use metahook_sdk::{DecorateResponse, IntoResponse};
/// use serde_json::json;
///
/// let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
/// let answer = DecorateResponse::new().attachment(map).label("seen", "true").remove_annotation("todo");
/// let json: serde_json::Value = serde_json::from_slice(&answer.into_response().unwrap()).unwrap();
/// assert_eq!(json["labels"], json!({ "seen": "true" }));
/// assert_eq!(json["annotations"], json!({ "todo": null }));
/// ```
#[derive(Debug)]
#[must_use]
pub struct DecorateResponse {
    body: Body,
    labels: Changes,
    annotations: Changes,
}

/// New values by key; `None` removes the key.
type Changes = Map<'static, Option<String>>;

answers! { DecorateResponse, "DecorateRequest" }

impl DecorateResponse {
    /// An answer without attachments: the server deletes every attachment of this decorator, and leaves the object as it is.
    ///
    /// ```
    /// # use metahook_sdk::{DecorateResponse, IntoResponse};
    /// assert_eq!(DecorateResponse::new().into_response().unwrap(), br#"{"attachments":[]}"#);
    /// ```
    pub fn new() -> Self {
        Self { body: Body::new("attachments"), labels: Map::new(), annotations: Map::new() }
    }

    /// Sets a label of the object. Other labels stay as they are, also those that an earlier response set.
    ///
    /// ```
    /// # use metahook_sdk::{DecorateResponse, IntoResponse};
    /// let answer = DecorateResponse::new().label("tier", "web");
    /// assert_eq!(answer.into_response().unwrap(), br#"{"attachments":[],"labels":{"tier":"web"}}"#);
    /// ```
    pub fn label(mut self, key: &str, value: impl Into<String>) -> Self {
        self.labels.insert(key.to_owned(), Some(value.into()));
        self
    }

    /// Removes a label of the object.
    ///
    /// ```
    /// # use metahook_sdk::{DecorateResponse, IntoResponse};
    /// let answer = DecorateResponse::new().remove_label("tier");
    /// assert_eq!(answer.into_response().unwrap(), br#"{"attachments":[],"labels":{"tier":null}}"#);
    /// ```
    pub fn remove_label(mut self, key: &str) -> Self {
        self.labels.insert(key.to_owned(), None);
        self
    }

    /// Sets an annotation of the object. Other annotations stay as they are.
    ///
    /// ```
    /// # use metahook_sdk::{DecorateResponse, IntoResponse};
    /// let answer = DecorateResponse::new().annotation("example.com/owner", "team a");
    /// assert!(answer.into_response().unwrap().ends_with(br#""annotations":{"example.com/owner":"team a"}}"#));
    /// ```
    pub fn annotation(mut self, key: &str, value: impl Into<String>) -> Self {
        self.annotations.insert(key.to_owned(), Some(value.into()));
        self
    }

    /// Removes an annotation of the object.
    ///
    /// ```
    /// # use metahook_sdk::{DecorateResponse, IntoResponse};
    /// let answer = DecorateResponse::new().remove_annotation("example.com/owner");
    /// assert!(answer.into_response().unwrap().ends_with(br#""annotations":{"example.com/owner":null}}"#));
    /// ```
    pub fn remove_annotation(mut self, key: &str) -> Self {
        self.annotations.insert(key.to_owned(), None);
        self
    }

    /// Replaces the whole status of the object. Without it the status stays as it is.
    ///
    /// ```
    /// # use metahook_sdk::{DecorateResponse, IntoResponse};
    /// let answer = DecorateResponse::new().status(serde_json::json!({ "maps": 1 }));
    /// assert_eq!(answer.into_response().unwrap(), br#"{"attachments":[],"status":{"maps":1}}"#);
    /// ```
    pub fn status(mut self, status: impl Serialize) -> Self {
        self.body.status(status);
        self
    }

    /// Adds an attachment that should exist. It may leave out fields that other writers set.
    ///
    /// ```
    /// # use metahook_sdk::{DecorateResponse, IntoResponse};
    /// let job = serde_json::json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "a" } });
    /// let json = DecorateResponse::new().attachment(job).into_response().unwrap();
    /// assert!(json.starts_with(br#"{"attachments":[{"apiVersion":"batch/v1","kind":"Job","#));
    /// ```
    pub fn attachment(mut self, attachment: impl Serialize) -> Self {
        self.push(attachment);
        self
    }

    /// Adds attachments of one type.
    ///
    /// ```
    /// # use metahook_sdk::{DecorateResponse, IntoResponse};
    /// let map = |name| serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    /// let json = DecorateResponse::new().attachments(["a", "b"].map(map)).into_response().unwrap();
    /// assert!(json.ends_with(br#",{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}]}"#));
    /// ```
    pub fn attachments<T: Serialize>(mut self, attachments: impl IntoIterator<Item = T>) -> Self {
        attachments.into_iter().for_each(|attachment| self.push(attachment));
        self
    }

    /// Adds an attachment, from within a loop.
    ///
    /// ```
    /// # use metahook_sdk::{DecorateResponse, IntoResponse};
    /// let mut answer = DecorateResponse::new();
    /// for name in ["a", "b"] {
    ///     let metadata = serde_json::json!({ "name": name });
    ///     answer.push(serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata }));
    /// }
    /// assert!(answer.into_response().unwrap().ends_with(br#""metadata":{"name":"b"}}]}"#));
    /// ```
    pub fn push(&mut self, attachment: impl Serialize) {
        self.body.push(attachment);
    }
}

impl IntoResponse for DecorateResponse {
    fn into_response(self) -> Result<Vec<u8>, String> {
        let mut body = self.body;
        for (name, changes) in [("labels", self.labels), ("annotations", self.annotations)] {
            if !changes.is_empty() {
                body.field(name, changes);
            }
        }
        body.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::{Object, Raw};
    use serde_json::json;

    #[test]
    fn each_part_of_a_request_is_decoded_as_the_type_that_was_chosen() {
        type Request<'a> = DecorateRequest<Object<'a>, Children<'a>, Raw<'a>, Children<'a, Object<'a>>>;
        let request: Request<'_> = decode(
            "request",
            br#"{"controller":{},"object":{"metadata":{"name":"a"}},"attachments":{"Pod.v1":{"b":{}}},
                "related":{"Secret.v1":{"c":{"metadata":{"uid":"u"}}}},"settings":[1],"finalizing":true}"#,
        )
        .unwrap();
        assert_eq!(request.object.metadata.name, "a");
        assert_eq!(request.attachments.group("Pod.v1").len(), 1);
        assert_eq!(request.related.group("Secret.v1").get("c").unwrap().metadata.uid, "u");
        assert_eq!((request.settings.text(), request.finalizing), ("[1]", true));
        let why = decode::<DecorateRequest<Object<'_>>>("request", br#"{"parent":{}}"#).unwrap_err();
        assert!(why.starts_with("request: missing field `object`"), "{why}");
    }

    fn written(response: DecorateResponse) -> String {
        String::from_utf8(response.into_response().unwrap()).unwrap()
    }

    #[test]
    fn an_empty_response_has_no_attachments_and_leaves_the_object_as_it_is() {
        assert_eq!(written(DecorateResponse::new()), r#"{"attachments":[]}"#);
    }

    #[test]
    fn labels_and_annotations_are_set_and_removed_and_the_last_word_counts() {
        let response = DecorateResponse::new()
            .label("b", "1")
            .remove_label("a")
            .label("b", "2")
            .annotation("c", "\n")
            .remove_annotation("c")
            .attachment(json!({ "kind": "A" }))
            .status(json!({ "n": 1 }))
            .finalized();
        assert_eq!(
            written(response),
            r#"{"attachments":[{"kind":"A"}],"labels":{"a":null,"b":"2"},"annotations":{"c":null},"status":{"n":1},"finalized":true}"#
        );
    }
}
