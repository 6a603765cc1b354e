//! Customize hook: its request, and its answer as rules or as an error with the path of the fault.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde_json::Value;

use crate::api::customize::CustomizeBounds;
use crate::api::hook::HookTransport;
use crate::api::webhook::UnmarshallMode as Mode;
use crate::hook::read::{self, Fields, type_error};
use crate::hook::{AnswerWarning, AnswerWarnings, MAX_ANSWER_MEMORY, ResponseError};
use crate::object::Object;
use crate::object::id::{Gvr, is_api_version};
use crate::object::selector::{Expression, LabelSelector, Selector, SelectorError};
use crate::related::rule::{Names, RequestedRule};

/// The request about a parent; both kinds of controllers call the object `parent`. `controller` is the controller object, as
/// it was when the controller started; `settings` is JSON from its spec, which only Wasm hooks have.
pub fn request(controller: &str, parent: &Object, settings: Option<&str>) -> Vec<u8> {
    let settings = settings.map(|settings| format!(r#","settings":{settings}"#)).unwrap_or_default();
    let parent = parent.json();
    format!(r#"{{"controller":{controller},"parent":{parent}{settings}}}"#).into_bytes()
}

/// A checked answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Each different rule once, with its place in the answer.
    pub rules: Vec<(usize, RequestedRule)>,
    /// Warnings, in loose mode.
    pub warnings: Vec<AnswerWarning>,
}

#[derive(Debug, thiserror::Error)]
pub enum CustomizeError {
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error("the hook's answer: relatedResources has {found} items, and {MAX_RULES} are allowed")]
    TooManyRules { found: usize },
    #[error(
        "the hook's answer: {path} brings it to {found} {what}, and {max} are allowed ({flag}): ask by labels that the objects share, or raise the flag"
    )]
    TooMany { path: String, what: &'static str, found: usize, max: usize, flag: &'static str },
    #[error("the hook's answer: {path}")]
    Selector { path: String, source: SelectorError },
}

/// Rules in one answer.
const MAX_RULES: usize = 10_000;

/// Bytes of a name: of a kind, a namespace or an object.
const MAX_NAME: usize = 253;

/// Reads the answer of a customize hook; an empty one relates nothing.
///
/// # Errors
/// One fault refuses the whole answer.
pub fn rules(
    bytes: &[u8],
    via: HookTransport,
    mode: Mode,
    bounds: &CustomizeBounds,
) -> Result<Response, CustomizeError> {
    let path = || "relatedResources".to_owned();
    within(bytes.len(), bounds.bytes, path, ("bytes", "--customize-bytes-max"))?;
    let mut warnings = AnswerWarnings::default();
    let mut answer = read::answer(bytes, (via, MAX_ANSWER_MEMORY), "", &mut warnings)?;
    let items = answer.list("relatedResources")?.unwrap_or_default();
    answer.end(&mut warnings);
    if items.len() > MAX_RULES {
        return Err(CustomizeError::TooManyRules { found: items.len() });
    }
    let mut different = BTreeMap::new();
    let mut size = Size::default();
    for (nth, item) in items.into_iter().enumerate() {
        let (rule, its) = rule(Fields::of(format!("relatedResources[{nth}]"), item)?, &mut warnings)?;
        if let Entry::Vacant(vacant) = different.entry(rule) {
            vacant.insert(nth);
            size = size.with(its, nth, bounds)?;
        }
    }
    let mut rules: Vec<_> = different.into_iter().map(|(rule, nth)| (nth, rule)).collect();
    rules.sort_unstable_by_key(|(nth, _)| *nth);
    Ok(Response { rules, warnings: warnings.finish(mode)? })
}

/// The parts of rules that have bounds.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    names: usize,
    expressions: usize,
    values: usize,
}

impl Size {
    /// With one more rule.
    fn with(self, rule: Self, nth: usize, bounds: &CustomizeBounds) -> Result<Self, CustomizeError> {
        let field = |field| move || format!("relatedResources[{nth}]{field}");
        let names = self.names + rule.names;
        within(names, bounds.names, field(".names"), ("names", "--customize-names-max"))?;
        let expressions = self.expressions + rule.expressions;
        let what = ("labels and expressions", "--customize-expressions-max");
        within(expressions, bounds.expressions, field(""), what)?;
        let values = self.values + rule.values;
        within(values, bounds.values, field(""), ("values of labels", "--customize-values-max"))?;
        Ok(Self { names, expressions, values })
    }
}

fn within(
    found: usize,
    max: usize,
    path: impl FnOnce() -> String,
    (what, flag): (&'static str, &'static str),
) -> Result<(), CustomizeError> {
    if found > max {
        return Err(CustomizeError::TooMany { path: path(), what, found, max, flag });
    }
    Ok(())
}

fn rule(mut rule: Fields, warnings: &mut AnswerWarnings) -> Result<(RequestedRule, Size), CustomizeError> {
    let (api_version, resource) = (rule.required("apiVersion")?, rule.required("resource")?);
    if resource.len() > MAX_NAME {
        let (path, expected) = (rule.path("resource"), "a plural of at most 253 bytes");
        return Err(ResponseError::Value { path, expected }.into());
    }
    if !is_api_version(&api_version) || api_version.len() > 2 * MAX_NAME {
        let (path, expected) = (rule.path("apiVersion"), "a version such as v1 or apps/v1");
        return Err(ResponseError::Value { path, expected }.into());
    }
    let gvr = Gvr::new(&api_version, &resource);
    let mut size = Size::default();
    let labels = selector(&mut rule, "labelSelector", &mut size, warnings)?;
    let namespaces = selector(&mut rule, "namespaceSelector", &mut size, warnings)?;
    let namespace: Option<Arc<str>> =
        rule.text("namespace")?.filter(|namespace| !namespace.is_empty()).map(Arc::from);
    if namespace.as_ref().is_some_and(|namespace| namespace.len() > MAX_NAME) {
        let (path, expected) = (rule.path("namespace"), "a name of at most 253 bytes");
        return Err(ResponseError::Value { path, expected }.into());
    }
    let names: Names = texts(&mut rule, "names")?.unwrap_or_default().into_iter().map(Arc::from).collect();
    rule.end(warnings);
    size.names = names.len();
    Ok((RequestedRule { gvr, labels, namespaces, namespace, names }, size))
}

fn selector(
    of: &mut Fields,
    field: &str,
    size: &mut Size,
    warnings: &mut AnswerWarnings,
) -> Result<Option<Selector>, CustomizeError> {
    let path = of.path(field);
    let Some(members) = of.object(field)? else { return Ok(None) };
    let mut fields = Fields::of(path.clone(), Value::Object(members))?;
    let mut labels = BTreeMap::new();
    for (key, value) in fields.object("matchLabels")?.unwrap_or_default() {
        let value = text(value, || format!("{path}.matchLabels.{key}"))?;
        labels.insert(key, value);
    }
    size.values += labels.len();
    let mut expressions = Vec::new();
    for (nth, item) in fields.list("matchExpressions")?.into_iter().flatten().enumerate() {
        let mut item = Fields::of(format!("{path}.matchExpressions[{nth}]"), item)?;
        let (key, operator) = (item.required("key")?, item.required("operator")?);
        let values = texts(&mut item, "values")?;
        size.values += values.as_ref().map_or(0, Vec::len);
        expressions.push(Expression { key, operator, values });
        item.end(warnings);
    }
    size.expressions += labels.len() + expressions.len();
    fields.end(warnings);
    let selector = LabelSelector { match_labels: Some(labels), match_expressions: Some(expressions) };
    Selector::of(&selector).map(Some).map_err(|source| CustomizeError::Selector { path, source })
}

fn texts(of: &mut Fields, field: &str) -> Result<Option<Vec<String>>, ResponseError> {
    let Some(items) = of.list(field)? else { return Ok(None) };
    let one = |(nth, item)| text(item, || format!("{}[{nth}]", of.path(field)));
    items.into_iter().enumerate().map(one).collect::<Result<_, _>>().map(Some)
}

fn text(value: Value, path: impl FnOnce() -> String) -> Result<String, ResponseError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(type_error(&path(), "a string", &other)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::object::testing::{a, any_json};

    fn read(text: &str, mode: Mode) -> Result<Vec<RequestedRule>, String> {
        let read = rules(text.as_bytes(), HookTransport::Webhook, mode, &CustomizeBounds::default());
        let read = read.map(|answer| answer.rules.into_iter().map(|(_, rule)| rule).collect());
        read.map_err(|error| match std::error::Error::source(&error) {
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
            let request = request(r#"{"kind":"C"}"#, &parent, settings);
            serde_json::from_slice::<Value>(&request).unwrap()
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
            (String::new(), "with an empty body"),
            (" \n".to_owned(), "with an empty body"),
            ("{\"relatedResources\":[".to_owned(), "is not JSON"),
            ("{} {}".to_owned(), "is not JSON"),
            (
                r#"[{"apiVersion":"v1","resource":"pods"}]"#.to_owned(),
                "the answer must be an object, not a list",
            ),
            (r#"{"relatedResources":{}}"#.to_owned(), "relatedResources must be a list, not an object"),
            (r#"{"relatedResources":[null]}"#.to_owned(), "relatedResources[0] must be an object, not null"),
            (
                r#"{"relatedResources":[{"resource":"pods"}]}"#.to_owned(),
                "relatedResources[0].apiVersion must be a string that is not empty",
            ),
            (
                r#"{"relatedResources":[{"apiVersion":"v1","resource":""}]}"#.to_owned(),
                "relatedResources[0].resource must be a string that is not empty",
            ),
            (
                r#"{"relatedResources":[{"apiVersion":"apps/v1/x","resource":"p"}]}"#.to_owned(),
                "relatedResources[0].apiVersion must be a version such as v1 or apps/v1",
            ),
            (
                r#"{"relatedResources":[{"apiVersion":"../v1","resource":"p"}]}"#.to_owned(),
                "relatedResources[0].apiVersion must be a version such as v1 or apps/v1",
            ),
            (
                of(&format!(r#","namespace":"{}""#, "n".repeat(254))),
                "relatedResources[0].namespace must be a name of at most 253 bytes",
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
                "relatedResources[0].namespaceSelector.matchExpressions[0].operator must be a string that is not empty",
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
            (
                r#"{"relatedResources":[],"relatedResources":[]}"#.to_owned(),
                "the field relatedResources more than once",
            ),
            (of(r#","names":[],"names":["a"]"#), "the field relatedResources[0].names more than once"),
            (
                of(r#","labelSelector":{"matchLabels":{"a":"1","a":"1"}}"#),
                "relatedResources[0].labelSelector.matchLabels.a more than once",
            ),
        ] {
            let error = read(&text, Mode::Strict).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
            assert!(read(&text, Mode::Loose).is_ok(), "{text}");
        }
        let last = read(&of(r#","names":["a"],"names":["b"]"#), Mode::Loose).unwrap().remove(0);
        assert_eq!(*last.names, [Arc::from("b")], "of two the last counts");
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
        assert!(read(&of(300_000), Mode::Loose).unwrap_err().contains("(--customize-bytes-max)"));
        let values = format!(r#"{{"relatedResources":[{}]}}"#, vec![r#"{"":0}"#; 290_000].join(","));
        assert!(read(&values, Mode::Loose).unwrap_err().contains("so many values"));
    }

    #[test]
    fn a_kind_with_a_name_that_none_has_is_refused() {
        let (most, long) = ("x".repeat(253), "x".repeat(254));
        let rule = |version: &str, plural: &str| {
            let answer =
                format!(r#"{{"relatedResources":[{{"apiVersion":"{version}","resource":"{plural}"}}]}}"#);
            read(&answer, Mode::Strict)
        };
        assert!(rule("v1", &long).unwrap_err().contains("resource must be a plural of at most 253 bytes"));
        assert!(rule(&format!("{long}/{long}"), "x").unwrap_err().contains("apiVersion must be a version"));
        assert!(rule(&format!("{most}/v1"), &most).is_ok());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(rules(&bytes, HookTransport::Wasm, Mode::Strict, &CustomizeBounds::default()));
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
