//! The customize hook: its request, and its answer as rules, or an error that says where it is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::response::{MOST_MEMORY, Mode, memory_of, name_of};
use crate::json::twice;
use crate::object::Object;
use crate::object::id::Gvr;
use crate::object::selector::{Expression, LabelSelector, Selector, SelectorError};
use crate::related::rule::Asked;

/// A customize request; both kinds of controllers call the object `parent`.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The controller object as it was when its controller started.
    pub controller: &'a str,
    pub parent: &'a Object,
    /// JSON from the controller's spec; only Wasm hooks have it.
    pub settings: Option<&'a str>,
}

impl Request<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let settings = self.settings.map(|settings| format!(r#","settings":{settings}"#)).unwrap_or_default();
        let (controller, parent) = (self.controller, self.parent.json());
        format!(r#"{{"controller":{controller},"parent":{parent}{settings}}}"#).into_bytes()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CustomizeError {
    #[error(
        "the customize hook answered nothing: it answers with a JSON object that has a list relatedResources"
    )]
    Empty,
    #[error("the customize hook's answer is not JSON")]
    Json(#[source] serde_json::Error),
    #[error("the customize hook's answer has so many values that it is not read")]
    TooManyValues,
    #[error("the customize hook's answer: relatedResources has {found} items, and {MOST_RULES} are allowed")]
    TooManyRules { found: usize },
    #[error("the customize hook's answer: {path} must be {expected}, not {found}")]
    Type { path: String, expected: &'static str, found: &'static str },
    #[error("the customize hook's answer: {path} is missing")]
    Missing { path: String },
    #[error("the customize hook's answer has the unknown field {0}")]
    Unknown(String),
    #[error("the customize hook's answer has {0} twice")]
    Twice(String),
    #[error("the customize hook's answer: {path}")]
    Selector { path: String, source: SelectorError },
}

/// Far more than anybody writes by hand; each may stand for any number of objects.
const MOST_RULES: usize = 10_000;

/// Reads the answer of a customize hook.
///
/// # Errors
/// Whatever is wrong, also within one rule, refuses all of it.
pub fn rules(bytes: &[u8], mode: Mode) -> Result<Vec<Asked>, CustomizeError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(CustomizeError::Empty);
    }
    if memory_of(bytes) > MOST_MEMORY {
        return Err(CustomizeError::TooManyValues);
    }
    let answer: Value = serde_json::from_slice(bytes).map_err(CustomizeError::Json)?;
    if mode == Mode::Strict
        && let Some(path) = twice::first(bytes)
    {
        return Err(CustomizeError::Twice(path));
    }
    if answer.is_null() {
        return Ok(Vec::new());
    }
    let mut answer = Fields::of(String::new(), answer, mode)?;
    let rules = answer.list("relatedResources")?.unwrap_or_default();
    answer.end()?;
    if rules.len() > MOST_RULES {
        return Err(CustomizeError::TooManyRules { found: rules.len() });
    }
    let at = |(at, rule)| asked(Fields::of(format!("relatedResources[{at}]"), rule, mode)?);
    rules.into_iter().enumerate().map(at).collect()
}

fn asked(mut rule: Fields) -> Result<Asked, CustomizeError> {
    let gvr = Gvr::new(&rule.needed("apiVersion")?, &rule.needed("resource")?);
    let labels = rule.selector("labelSelector")?;
    let namespaces = rule.selector("namespaceSelector")?;
    let namespace = rule.text("namespace")?.filter(|namespace| !namespace.is_empty()).map(Arc::from);
    let names = rule.texts("names")?.unwrap_or_default().into_iter().map(Arc::from).collect::<BTreeSet<_>>();
    rule.end()?;
    Ok(Asked { gvr, labels, namespaces, namespace, names })
}

/// The fields of one object of an answer, taken out one by one; `null` is as good as absent.
struct Fields {
    /// Empty: the whole answer.
    path: String,
    left: Map<String, Value>,
    mode: Mode,
}

impl Fields {
    fn of(path: String, value: Value, mode: Mode) -> Result<Self, CustomizeError> {
        match value {
            Value::Object(left) => Ok(Self { path, left, mode }),
            other => {
                let path = if path.is_empty() { "it".to_owned() } else { path };
                Err(CustomizeError::Type { path, expected: "an object", found: name_of(&other) })
            }
        }
    }

    fn path(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    fn take(&mut self, field: &str) -> Option<Value> {
        self.left.remove(field).filter(|value| !value.is_null())
    }

    fn text(&mut self, field: &str) -> Result<Option<String>, CustomizeError> {
        self.take(field).map(|value| text(value, || self.path(field))).transpose()
    }

    /// A text that is not empty.
    fn needed(&mut self, field: &str) -> Result<String, CustomizeError> {
        let found = self.text(field)?.filter(|text| !text.is_empty());
        found.ok_or_else(|| CustomizeError::Missing { path: self.path(field) })
    }

    fn list(&mut self, field: &str) -> Result<Option<Vec<Value>>, CustomizeError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(CustomizeError::Type {
                path: self.path(field),
                expected: "a list",
                found: name_of(&other),
            }),
        }
    }

    fn texts(&mut self, field: &str) -> Result<Option<Vec<String>>, CustomizeError> {
        let Some(list) = self.list(field)? else { return Ok(None) };
        let one = |(at, value)| text(value, || format!("{}[{at}]", self.path(field)));
        list.into_iter().enumerate().map(one).collect::<Result<_, _>>().map(Some)
    }

    fn object(&mut self, field: &str) -> Result<Option<Self>, CustomizeError> {
        self.take(field).map(|value| Self::of(self.path(field), value, self.mode)).transpose()
    }

    fn selector(&mut self, field: &str) -> Result<Option<Selector>, CustomizeError> {
        let Some(mut fields) = self.object(field)? else { return Ok(None) };
        let path = fields.path.clone();
        let mut all = BTreeMap::new();
        if let Some(Fields { path, left, .. }) = fields.object("matchLabels")? {
            for (key, value) in left {
                let value = text(value, || format!("{path}.{key}"))?;
                all.insert(key, value);
            }
        }
        let expressions = fields.list("matchExpressions")?.unwrap_or_default();
        let one = |(at, value)| {
            let mut fields = Fields::of(format!("{path}.matchExpressions[{at}]"), value, fields.mode)?;
            let (key, operator) = (fields.needed("key")?, fields.needed("operator")?);
            let expression = Expression { key, operator, values: fields.texts("values")? };
            fields.end().map(|()| expression)
        };
        let expressions = expressions.into_iter().enumerate().map(one).collect::<Result<_, _>>()?;
        fields.end()?;
        let selector = LabelSelector { match_labels: Some(all), match_expressions: Some(expressions) };
        Selector::of(&selector).map(Some).map_err(|source| CustomizeError::Selector { path, source })
    }

    /// What nobody took is unknown.
    fn end(self) -> Result<(), CustomizeError> {
        match self.left.keys().next() {
            Some(field) if self.mode == Mode::Strict => Err(CustomizeError::Unknown(self.path(field))),
            Some(_) | None => Ok(()),
        }
    }
}

fn text(value: Value, path: impl FnOnce() -> String) -> Result<String, CustomizeError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(CustomizeError::Type { path: path(), expected: "a string", found: name_of(&other) }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::object::testing::{a, any_json};

    fn read(text: &str, mode: Mode) -> Result<Vec<Asked>, String> {
        rules(text.as_bytes(), mode).map_err(|error| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })
    }

    /// An answer with one rule of these fields.
    fn of(fields: &str) -> String {
        format!(r#"{{"relatedResources":[{{"apiVersion":"v1","resource":"pods"{fields}}}]}}"#)
    }

    #[test]
    fn the_request_is_the_controller_and_the_parent() {
        let parent = a("e/v1", "P", "n/p").object();
        let request = |settings| {
            let request = Request { controller: r#"{"kind":"C"}"#, parent: &parent, settings };
            serde_json::from_slice::<Value>(&request.bytes()).unwrap()
        };
        let object = parent.value().unwrap();
        assert_eq!(request(None), json!({"controller": {"kind": "C"}, "parent": object}));
        assert_eq!(request(Some("[1]"))["settings"], json!([1]), "a Wasm hook gets its settings");
    }

    #[test]
    fn no_rules_may_be_said_in_any_way() {
        for text in ["{}", "null", r#"{"relatedResources":null}"#, r#"{"relatedResources":[]}"#] {
            assert_eq!(read(text, Mode::Strict), Ok(Vec::new()), "{text}");
        }
    }

    #[test]
    fn a_rule_is_read_whole() {
        let fields = r#","labelSelector":{"matchLabels":{"a":"1"},"matchExpressions":[{"key":"b","operator":"In","values":["2"]}]},"namespaceSelector":{},"namespace":"n","names":["x","y","x"]"#;
        let asked = read(&of(fields), Mode::Strict).unwrap().remove(0);
        assert_eq!(asked.gvr, Gvr::new("v1", "pods"));
        assert_eq!(asked.labels, Some(Selector::parse("a=1,b in (2)").unwrap()));
        assert_eq!(asked.namespaces, Some(Selector::default()));
        assert_eq!(asked.namespace.as_deref(), Some("n"));
        assert_eq!(asked.names.iter().map(|name| &**name).collect::<Vec<_>>(), ["x", "y"]);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        for (text, says) in [
            (String::new(), "answered nothing"),
            (" \n".to_owned(), "answered nothing"),
            ("{\"relatedResources\":[".to_owned(), "is not JSON"),
            ("{} {}".to_owned(), "is not JSON"),
            (r#"[{"apiVersion":"v1","resource":"pods"}]"#.to_owned(), "it must be an object, not a list"),
            (r#"{"relatedResources":{}}"#.to_owned(), "relatedResources must be a list, not an object"),
            (r#"{"relatedResources":[null]}"#.to_owned(), "relatedResources[0] must be an object, not null"),
            (
                r#"{"relatedResources":[{"resource":"pods"}]}"#.to_owned(),
                "relatedResources[0].apiVersion is missing",
            ),
            (
                r#"{"relatedResources":[{"apiVersion":"v1","resource":""}]}"#.to_owned(),
                "relatedResources[0].resource is missing",
            ),
            (of(r#","namespace":1"#), "relatedResources[0].namespace must be a string, not a number"),
            (of(r#","names":"a""#), "relatedResources[0].names must be a list, not a string"),
            (of(r#","names":["a",null]"#), "relatedResources[0].names[1] must be a string, not null"),
            (of(r#","labelSelector":[]"#), "relatedResources[0].labelSelector must be an object, not a list"),
            (
                of(r#","labelSelector":{"matchLabels":{"a":1}}"#),
                "relatedResources[0].labelSelector.matchLabels.a must be a string, not a number",
            ),
            (
                of(r#","namespaceSelector":{"matchExpressions":[{"key":"a"}]}"#),
                "relatedResources[0].namespaceSelector.matchExpressions[0].operator is missing",
            ),
            (
                of(r#","labelSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}"#),
                "relatedResources[0].labelSelector: operator \"Near\" is none of",
            ),
        ] {
            for mode in [Mode::Loose, Mode::Strict] {
                let error = read(&text, mode).unwrap_err();
                assert!(error.contains(says), "{text}: {error}");
            }
        }
    }

    #[test]
    fn strictness_reaches_into_the_rules() {
        for (text, says) in [
            (r#"{"related":[]}"#.to_owned(), "the unknown field related"),
            (of(r#","selector":{}"#), "the unknown field relatedResources[0].selector"),
            (
                of(r#","labelSelector":{"matchlabels":{}}"#),
                "the unknown field relatedResources[0].labelSelector.matchlabels",
            ),
            (
                of(r#","labelSelector":{"matchExpressions":[{"key":"a","operator":"Exists","value":1}]}"#),
                "the unknown field relatedResources[0].labelSelector.matchExpressions[0].value",
            ),
            (r#"{"relatedResources":[],"relatedResources":[]}"#.to_owned(), "relatedResources twice"),
            (of(r#","names":[],"names":["a"]"#), "relatedResources[0].names twice"),
            (
                of(r#","labelSelector":{"matchLabels":{"a":"1","a":"1"}}"#),
                "relatedResources[0].labelSelector.matchLabels.a twice",
            ),
        ] {
            let error = read(&text, Mode::Strict).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
            assert!(read(&text, Mode::Loose).is_ok(), "{text}");
        }
        let last = read(&of(r#","names":["a"],"names":["b"]"#), Mode::Loose).unwrap().remove(0);
        assert_eq!(last.names, BTreeSet::from([Arc::from("b")]), "of two the last counts");
    }

    #[test]
    fn floods_are_refused() {
        let of = |rules: usize| {
            let rule = r#"{"apiVersion":"v1","resource":"p"}"#;
            format!(r#"{{"relatedResources":[{}]}}"#, vec![rule; rules].join(","))
        };
        assert!(read(&of(10_000), Mode::Strict).is_ok());
        assert!(
            read(&of(10_001), Mode::Strict).unwrap_err().contains("has 10001 items, and 10000 are allowed")
        );
        assert!(read(&of(300_000), Mode::Loose).unwrap_err().contains("so many values"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(rules(&bytes, Mode::Strict));
        }

        #[test]
        fn no_values_make_it_panic(
            fields in prop::collection::vec((prop::sample::select(vec!["labelSelector", "names", "namespace", "namespaceSelector", "x"]), any_json()), 0..4)
        ) {
            let fields: Vec<_> = fields.iter().map(|(name, value)| format!(r#","{name}":{value}"#)).collect();
            let fields = fields.concat();
            let strict = read(&of(&fields), Mode::Strict);
            prop_assert!(strict.is_err() || strict == read(&of(&fields), Mode::Loose), "strict is loose or an error");
        }
    }
}
