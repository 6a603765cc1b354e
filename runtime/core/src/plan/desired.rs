//! A hook's children made into desired objects: named, placed, labelled, checked before anything is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::children::UID_LABEL;
use crate::json::lists::Lists;
use crate::object::Object;
use crate::object::id::{Gvk, Key, Resource};
use crate::object::selector::Selector;
use crate::spec::composite::UpdateMethod;

/// Desired children by resource and name.
pub type Desired = BTreeMap<Arc<Resource>, BTreeMap<Key, Value>>;

/// A declared kind of children as the API server serves it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub resource: Arc<Resource>,
    pub method: UpdateMethod,
    pub apply: Apply,
    /// What the API server publishes about the kind's lists.
    pub lists: Arc<Lists>,
}

/// How children are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Apply {
    /// By a merge of our own, with a record of what was applied last.
    Dynamic,
    /// By the API server's merge, as this field manager.
    ServerSide(Arc<str>),
}

impl Rule {
    /// Written by dynamic apply, with lists merged by convention.
    pub fn new(resource: Arc<Resource>, method: UpdateMethod) -> Self {
        Self { resource, method, apply: Apply::Dynamic, lists: Arc::default() }
    }
}

/// What a controller lets its hook ask for.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'a> {
    pub rules: &'a [Rule],
    pub selector: &'a Selector,
    /// The selector is made from the parent's uid, so its label may be added.
    pub generated: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DesiredError {
    #[error("the hook's answer: children[{at}].{field} must be {expected}")]
    Field { at: usize, field: &'static str, expected: &'static str },
    #[error(
        "the hook's answer: children[{at}] is a {gvk}, which the controller's spec does not declare: add it to spec.childResources"
    )]
    Undeclared { at: usize, gvk: Gvk },
    #[error(
        "the hook's answer: children[{at}].metadata.namespace is {found:?}; children of a parent in namespace {parent:?} have to be in that namespace"
    )]
    OtherNamespace { at: usize, found: String, parent: String },
    #[error(
        "the hook's answer: children[{at}] is a {gvk}, which has no namespace; a parent in a namespace cannot own it"
    )]
    ClusterScoped { at: usize, gvk: Gvk },
    #[error(
        "the hook's answer: children[{at}].metadata.namespace is missing; its parent has no namespace that could stand in"
    )]
    NoNamespace { at: usize },
    #[error("the hook's answer: children[{at}] is {gvk} {key} a second time")]
    Twice { at: usize, gvk: Gvk, key: Key },
    #[error(
        "labels on desired child {gvk} {key} don't match parent selector: give it the labels that spec.selector of the parent asks for"
    )]
    Labels { gvk: Gvk, key: Key },
}

/// # Errors
/// One child that is not in order refuses the whole answer: nothing has been written yet, and nothing will be.
pub fn desired(
    parent: &Object,
    bounds: Bounds<'_>,
    children: Vec<Map<String, Value>>,
) -> Result<Desired, DesiredError> {
    let mut all = Desired::new();
    for (at, child) in children.into_iter().enumerate() {
        let (resource, key, child) = one(parent, bounds, at, child)?;
        let group = all.entry(Arc::clone(&resource)).or_default();
        if group.insert(key.clone(), child).is_some() {
            return Err(DesiredError::Twice { at, gvk: resource.gvk.clone(), key });
        }
    }
    Ok(all)
}

fn one(
    parent: &Object,
    bounds: Bounds<'_>,
    at: usize,
    mut child: Map<String, Value>,
) -> Result<(Arc<Resource>, Key, Value), DesiredError> {
    let text = |field, value: Option<&Value>| match value.and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(DesiredError::Field { at, field, expected: "a string that is not empty" }),
    };
    let gvk = Gvk::new(&text("apiVersion", child.get("apiVersion"))?, &text("kind", child.get("kind"))?);
    let rule = bounds.rules.iter().find(|rule| rule.resource.gvk == gvk);
    let resource = rule
        .map(|rule| Arc::clone(&rule.resource))
        .ok_or_else(|| DesiredError::Undeclared { at, gvk: gvk.clone() })?;
    let Some(Value::Object(metadata)) = child.get_mut("metadata") else {
        return Err(DesiredError::Field { at, field: "metadata", expected: "an object" });
    };
    let name = text("metadata.name", metadata.get("name"))?;
    if matches!(name.as_str(), "." | "..") || name.contains(['/', '%', '?', '#']) {
        return Err(DesiredError::Field {
            at,
            field: "metadata.name",
            expected: "a name without any of / % ? #",
        });
    }
    let namespace = place(parent, &resource, at, metadata)?;
    let key = Key::new(&namespace, &name);
    if bounds.generated {
        let labels = metadata.entry("labels").or_insert(Value::Null);
        if labels.is_null() {
            *labels = json!({});
        }
        if let Value::Object(labels) = labels {
            labels.entry(UID_LABEL).or_insert_with(|| json!(parent.uid.as_str()));
        }
    }
    if !bounds.selector.matches(&labels(at, metadata)?) {
        return Err(DesiredError::Labels { gvk, key });
    }
    Ok((resource, key, Value::Object(child)))
}

/// Fills in the parent's namespace; what cannot be owned across scopes is refused.
fn place(
    parent: &Object,
    resource: &Resource,
    at: usize,
    metadata: &mut Map<String, Value>,
) -> Result<String, DesiredError> {
    let home = &*parent.key.namespace;
    let wanted = match metadata.get("namespace") {
        None | Some(Value::Null) => "",
        Some(Value::String(namespace)) => namespace,
        Some(_) => {
            return Err(DesiredError::Field { at, field: "metadata.namespace", expected: "a string" });
        }
    };
    let namespace = match (home, resource.namespaced, wanted) {
        ("", false, _) => return Ok(String::new()),
        ("", true, "") => return Err(DesiredError::NoNamespace { at }),
        ("", true, wanted) if !is_label(wanted) => {
            let expected = "a namespace: lower case letters, digits and dashes";
            return Err(DesiredError::Field { at, field: "metadata.namespace", expected });
        }
        ("", true, wanted) => wanted.to_owned(),
        (_, false, _) => {
            return Err(DesiredError::ClusterScoped { at, gvk: resource.gvk.clone() });
        }
        (home, true, wanted) if wanted.is_empty() || wanted == home => home.to_owned(),
        (home, true, wanted) => {
            return Err(DesiredError::OtherNamespace {
                at,
                found: wanted.to_owned(),
                parent: home.to_owned(),
            });
        }
    };
    metadata.insert("namespace".to_owned(), json!(namespace));
    Ok(namespace)
}

/// A DNS label (RFC 1123), as names of namespaces are.
fn is_label(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(allowed)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn labels(at: usize, metadata: &Map<String, Value>) -> Result<BTreeMap<String, String>, DesiredError> {
    let wrong = || DesiredError::Field { at, field: "metadata.labels", expected: "an object of strings" };
    match metadata.get("labels") {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(labels)) => labels
            .iter()
            .map(|(key, value)| Ok((key.clone(), value.as_str().ok_or_else(wrong)?.to_owned())))
            .collect(),
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::{a, cluster_resource, resource};

    fn try_it(parent: &str, children: Value) -> Result<Desired, String> {
        let rules = [
            Rule::new(resource("v1", "Pod"), UpdateMethod::InPlace),
            Rule::new(cluster_resource("v1", "Namespace"), UpdateMethod::InPlace),
        ];
        let parent = a("e/v1", "P", parent).uid("u").object();
        let selector = Selector::equals("controller-uid", "u");
        let bounds = Bounds { rules: &rules, selector: &selector, generated: true };
        let Value::Array(children) = children else { panic!() };
        let children = children.into_iter().map(|c| c.as_object().unwrap().clone()).collect();
        desired(&parent, bounds, children).map_err(|error| error.to_string())
    }

    #[test]
    fn namespace_and_generated_label_are_filled_in() {
        let desired = try_it(
            "n/p",
            json!([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": null}}]),
        )
        .unwrap();
        let pod = &desired[&resource("v1", "Pod")][&Key::new("n", "x")];
        assert_eq!(
            pod["metadata"],
            json!({"name": "x", "namespace": "n", "labels": {"controller-uid": "u"}})
        );
    }

    #[test]
    fn one_bad_child_refuses_the_whole_answer() {
        let good = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ok"}});
        for (bad, says) in [
            (json!({"apiVersion": "v1", "metadata": {"name": "x"}}), "children[1].kind must be a string"),
            (json!({"kind": "Pod", "metadata": {"name": "x"}}), "children[1].apiVersion must be a string"),
            (json!({"apiVersion": "v1", "kind": "Pod"}), "children[1].metadata must be an object"),
            (json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}), "children[1].metadata.name must be"),
            (
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ""}}),
                "children[1].metadata.name must be",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a/b"}}),
                "children[1].metadata.name must be a name without",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ".."}}),
                "children[1].metadata.name must be a name without",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "m"}}),
                "children[1].metadata.namespace is \"m\"",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": 1}}}),
                "children[1].metadata.labels must be",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"controller-uid": "z"}}}),
                "don't match parent selector",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}),
                "children[1] is a v1 Secret, which the controller's spec does not declare",
            ),
            (
                json!({"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "x"}}),
                "children[1] is a v2 Pod, which",
            ),
            (json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}), "has no namespace"),
            (good.clone(), "children[1] is v1 Pod n/ok a second time"),
        ] {
            let error = try_it("n/p", json!([good.clone(), bad])).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_parent_without_namespace_owns_anywhere_but_has_to_say_where() {
        let pod = |namespace: &str| json!([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": namespace}}]);
        assert!(try_it("p", pod("m")).unwrap()[&resource("v1", "Pod")].contains_key(&Key::new("m", "x")));
        assert!(try_it("p", pod("")).unwrap_err().contains("children[0].metadata.namespace is missing"));
        for odd in ["default/services/http:x:80/proxy", "a?b", "A", "-a", "a%2fb", ".."] {
            assert!(
                try_it("p", pod(odd))
                    .unwrap_err()
                    .contains("children[0].metadata.namespace must be a namespace")
            );
        }
        let namespace = json!([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}]);
        assert!(
            try_it("p", namespace).unwrap()[&cluster_resource("v1", "Namespace")]
                .contains_key(&Key::new("", "x"))
        );
    }
}
