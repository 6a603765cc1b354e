//! Request and response of a customize hook.

use crate::body::Body;
use crate::request::{Fields, Parts};
use crate::{IntoResponse, Map, Str};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, IgnoredAny};

/// Request to the customize hook of either kind of controller. The answer selects the `related` objects that the other
/// hooks see.
///
/// ```no_run
/// use metahook_sdk::{CustomizeRequest, CustomizeResponse, Hook, Object, RelatedRule, SyncRequest, SyncResponse};
///
/// /// The Pods of the parent's namespace with the label `app=web`, and one ConfigMap.
/// fn customize(request: &CustomizeRequest<Object<'_>>) -> CustomizeResponse {
///     let namespace = &*request.parent.metadata.namespace;
///     CustomizeResponse::new()
///         .related(RelatedRule::new("v1", "pods").namespace(namespace).label("app", "web"))
///         .related(RelatedRule::new("v1", "configmaps").namespace(namespace).name("settings"))
/// }
///
/// # fn sync(_: &SyncRequest<Object<'_>>) -> SyncResponse { SyncResponse::new() }
/// /// One module for all hooks of a controller.
/// fn main() -> std::process::ExitCode {
///     match metahook_sdk::hook() {
///         Hook::Sync | Hook::Finalize => metahook_sdk::run(sync),
///         Hook::Customize => metahook_sdk::run(customize),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CustomizeRequest<P, S = IgnoredAny> {
    /// The parent, or the object that is decorated.
    pub parent: P,
    /// `settings` of the hook in the controller's spec; `Default` if there are none.
    pub settings: S,
}

impl<'de, P: Deserialize<'de>, S: Deserialize<'de> + Default> Deserialize<'de> for CustomizeRequest<P, S> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Parts { object: parent, settings, .. }: Parts<P, IgnoredAny, S, IgnoredAny> =
            Fields::deserialize(from, "parent", "children")?;
        Ok(Self { parent, settings })
    }
}

/// Answer of a customize hook: rules, which select objects.
///
/// ```
/// use metahook_sdk::{CustomizeResponse, RelatedRule};
///
/// let mut answer = CustomizeResponse::new().related(RelatedRule::new("v1", "nodes"));
/// for name in ["a", "b"] {
///     answer.push(RelatedRule::new("v1", "secrets").namespace("keys").name(name));
/// }
/// # let json = metahook_sdk::IntoResponse::into_response(answer).unwrap();
/// # assert!(json.ends_with(br#""resource":"secrets","namespace":"keys","names":["b"]}]}"#));
/// ```
#[derive(Debug)]
#[must_use]
pub struct CustomizeResponse {
    body: Body,
}

impl CustomizeResponse {
    /// An answer without rules: the other hooks see no related objects.
    ///
    /// ```
    /// # use metahook_sdk::{CustomizeResponse, IntoResponse, RelatedRule};
    /// let answer = CustomizeResponse::new();
    /// assert_eq!(answer.into_response().unwrap(), br#"{"relatedResources":[]}"#);
    /// ```
    pub fn new() -> Self {
        Self { body: Body::new("relatedResources") }
    }

    /// Adds a rule: a [`RelatedRule`], or any value that serializes like one.
    ///
    /// ```
    /// # use metahook_sdk::{CustomizeResponse, IntoResponse, RelatedRule};
    /// let answer = CustomizeResponse::new().related(RelatedRule::new("v1", "nodes"));
    /// let json = br#"{"relatedResources":[{"apiVersion":"v1","resource":"nodes"}]}"#;
    /// assert_eq!(answer.into_response().unwrap(), json);
    /// ```
    pub fn related(mut self, rule: impl Serialize) -> Self {
        self.push(rule);
        self
    }

    /// Adds a rule, from within a loop.
    ///
    /// ```
    /// # use metahook_sdk::{CustomizeResponse, IntoResponse, RelatedRule};
    /// let mut answer = CustomizeResponse::new();
    /// for resource in ["nodes", "pods"] {
    ///     answer.push(RelatedRule::new("v1", resource));
    /// }
    /// assert!(answer.into_response().unwrap().ends_with(br#",{"apiVersion":"v1","resource":"pods"}]}"#));
    /// ```
    pub fn push(&mut self, rule: impl Serialize) {
        self.body.push(rule);
    }
}

impl Default for CustomizeResponse {
    fn default() -> Self {
        Self::new()
    }
}

impl IntoResponse for CustomizeResponse {
    fn into_response(self) -> Result<Vec<u8>, String> {
        self.body.encode()
    }
}

/// Selects objects of one kind by `names` or by labels, in one namespace, in namespaces with certain labels, or
/// everywhere. A new rule selects all objects of the kind.
///
/// Pods with the label `app=web` whose `tier` is not `test`:
///
/// ```
/// use metahook_sdk::{LabelSelector, Operator, RelatedRule, Requirement};
///
/// let tier = Requirement { key: "tier".into(), operator: Operator::NotIn, values: vec!["test".into()] };
/// let selector = LabelSelector { match_expressions: vec![tier], ..LabelSelector::default() };
/// let rule = RelatedRule::new("v1", "pods").labels(selector).label("app", "web");
/// assert_eq!(rule.label_selector.unwrap().match_labels.get("app").unwrap(), &"web");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelatedRule<'a> {
    /// Group and version, `apps/v1`.
    pub api_version: Str<'a>,
    /// The kind as the API server lists it: plural, lower case, `configmaps`.
    pub resource: Str<'a>,
    /// Selector for the labels of the objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector<'a>>,
    /// Selector for the labels of the objects' namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector<'a>>,
    /// The namespace of the objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Str<'a>>,
    /// The names of the objects; empty for all names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Str<'a>>,
}

impl<'a> RelatedRule<'a> {
    /// All objects of a kind: `("apps/v1", "deployments")`.
    ///
    /// ```
    /// # use metahook_sdk::RelatedRule;
    /// let rule = RelatedRule::new("apps/v1", "deployments");
    /// assert_eq!((rule.api_version, rule.resource), ("apps/v1".into(), "deployments".into()));
    /// ```
    pub fn new(api_version: impl Into<Str<'a>>, resource: impl Into<Str<'a>>) -> Self {
        Self {
            api_version: api_version.into(),
            resource: resource.into(),
            label_selector: None,
            namespace_selector: None,
            namespace: None,
            names: Vec::new(),
        }
    }

    /// Narrows the rule to the objects in a namespace.
    ///
    /// ```
    /// # use metahook_sdk::RelatedRule;
    /// let rule = RelatedRule::new("v1", "pods").namespace("shop");
    /// assert_eq!(rule.namespace.unwrap(), "shop");
    /// ```
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<Str<'a>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Narrows the rule to the object with this name; each further call adds a name.
    ///
    /// ```
    /// # use metahook_sdk::RelatedRule;
    /// let rule = RelatedRule::new("v1", "configmaps").namespace("shop").name("prices").name("colours");
    /// assert_eq!(rule.names, ["prices", "colours"]);
    /// ```
    #[must_use]
    pub fn name(mut self, name: impl Into<Str<'a>>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Narrows the rule to the objects with this label.
    ///
    /// ```
    /// # use metahook_sdk::RelatedRule;
    /// let rule = RelatedRule::new("v1", "pods").label("app", "web").label("tier", "db");
    /// assert_eq!(rule.label_selector.unwrap().match_labels.len(), 2);
    /// ```
    #[must_use]
    pub fn label(mut self, key: impl Into<Str<'a>>, value: impl Into<Str<'a>>) -> Self {
        self.label_selector.get_or_insert_default().match_labels.insert(key, value.into());
        self
    }

    /// Narrows the rule to the objects that a selector matches. It replaces labels that were set before.
    ///
    /// ```
    /// # use metahook_sdk::RelatedRule;
    /// # use metahook_sdk::LabelSelector;
    /// let selector = LabelSelector::default(); // matches all objects
    /// let rule = RelatedRule::new("v1", "pods").label("app", "web").labels(selector);
    /// assert!(rule.label_selector.unwrap().match_labels.is_empty());
    /// ```
    #[must_use]
    pub fn labels(mut self, selector: LabelSelector<'a>) -> Self {
        self.label_selector = Some(selector);
        self
    }
}

/// Selector for labels. It matches an object that meets all requirements.
///
/// All Pods in namespaces with the label `team=a`:
///
/// ```
/// use metahook_sdk::{LabelSelector, RelatedRule};
///
/// let match_labels = [("team", "a".into())].into_iter().collect();
/// let namespaces = LabelSelector { match_labels, ..LabelSelector::default() };
/// let rule = RelatedRule { namespace_selector: Some(namespaces), ..RelatedRule::new("v1", "pods") };
/// let json = serde_json::to_value(rule).unwrap();
/// assert_eq!(json["namespaceSelector"]["matchLabels"]["team"], "a");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector<'a> {
    /// Labels with their values.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub match_labels: Map<'a, Str<'a>>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement<'a>>,
}

/// A requirement for one label, for [`LabelSelector::match_expressions`].
///
/// ```
/// use metahook_sdk::{Operator, Requirement};
///
/// let values = vec!["web".into(), "db".into()];
/// let tier = Requirement { key: "tier".into(), operator: Operator::In, values };
/// let json = r#"{"key":"tier","operator":"In","values":["web","db"]}"#;
/// assert_eq!(serde_json::to_string(&tier).unwrap(), json);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Requirement<'a> {
    /// The label.
    pub key: Str<'a>,
    /// The kind of requirement.
    pub operator: Operator,
    /// The values of `In` and `NotIn`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Str<'a>>,
}

/// The kind of requirement for a label.
///
/// ```
/// use metahook_sdk::{Operator, Requirement};
///
/// let canary = Requirement { key: "canary".into(), operator: Operator::DoesNotExist, values: vec![] };
/// assert_eq!(serde_json::to_string(&canary).unwrap(), r#"{"key":"canary","operator":"DoesNotExist"}"#);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is absent.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;
    use crate::decode::decode;
    use serde_json::json;

    fn written(response: CustomizeResponse) -> String {
        String::from_utf8(response.into_response().unwrap()).unwrap()
    }

    #[test]
    fn a_request_has_a_parent_and_may_have_settings() {
        let request: CustomizeRequest<Object<'_>, Vec<u8>> =
            decode("request", br#"{"controller":{},"parent":{"kind":"P"},"settings":[1]}"#).unwrap();
        assert_eq!((&*request.parent.kind, request.settings), ("P", vec![1]));
        let why = decode::<CustomizeRequest<Object<'_>>>("request", b"{}").unwrap_err();
        assert_eq!(why, "request: missing field `parent` (at byte 2 of 2)");
    }

    #[test]
    fn who_asks_for_nothing_says_so() {
        assert_eq!(written(CustomizeResponse::new()), r#"{"relatedResources":[]}"#);
    }

    #[test]
    fn a_rule_is_written_without_what_it_does_not_say() {
        let operator = Operator::NotIn;
        let selector = LabelSelector {
            match_expressions: vec![Requirement { key: "a".into(), operator, values: vec!["b".into()] }],
            ..LabelSelector::default()
        };
        let response = CustomizeResponse::new()
            .related(RelatedRule::new("v1", "pods"))
            .related(RelatedRule::new("v1", "pods").namespace("n").name("x").name("y"))
            .related(RelatedRule::new("v1", "pods").label("b", "2").label("a", "1"))
            .related(RelatedRule::new("v1", "pods").labels(selector))
            .related(json!({ "any": "thing" }));
        let pods = |fields| format!(r#"{{"apiVersion":"v1","resource":"pods"{fields}}}"#);
        let rules = [
            pods(""),
            pods(r#","namespace":"n","names":["x","y"]"#),
            pods(r#","labelSelector":{"matchLabels":{"a":"1","b":"2"}}"#),
            pods(r#","labelSelector":{"matchExpressions":[{"key":"a","operator":"NotIn","values":["b"]}]}"#),
            r#"{"any":"thing"}"#.to_owned(),
        ];
        assert_eq!(written(response), format!(r#"{{"relatedResources":[{}]}}"#, rules.join(",")));
    }
}
