//! Label selectors: as an object's field or as text, checked, matched against labels; the selector of a parent's children.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::Object;
use crate::object::id::is_dns_name;

/// A label selector as it stands in an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    pub match_labels: Option<BTreeMap<String, String>>,
    pub match_expressions: Option<Vec<Expression>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Expression {
    pub key: String,
    pub operator: String,
    pub values: Option<Vec<String>>,
}

/// A checked selector: all of its requirements have to hold. Without any, it matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector(Arc<[Requirement]>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    DoesNotExist(String),
}

/// A label without which nothing matches a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin<'a> {
    /// The label has one of these values.
    In(&'a str, &'a BTreeSet<String>),
    Exists(&'a str),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("operator {0:?} is none of In, NotIn, Exists, DoesNotExist")]
    Operator(String),
    #[error("{operator} on key {key:?} needs at least one value")]
    NoValues { key: String, operator: String },
    #[error("{operator} on key {key:?} takes no values")]
    Values { key: String, operator: String },
    #[error(
        "{0:?} is no key of a label: at most 63 letters, digits and any of - _ . between them, behind a DNS name and a slash if there is one"
    )]
    Key(String),
    #[error(
        "{value:?}, asked for of key {key:?}, is no value of a label: at most 63 letters, digits and any of - _ . between them"
    )]
    Value { key: String, value: String },
    #[error(
        "{0:?} is no requirement: write key, !key, key=value, key!=value, key in (a,b) or key notin (a,b)"
    )]
    Text(String),
}

impl Selector {
    pub fn equals(key: &str, value: &str) -> Self {
        Self([Requirement::In(key.to_owned(), [value.to_owned()].into())].into())
    }

    pub fn of(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let labels = selector.match_labels.iter().flatten();
        let mut all: Vec<_> =
            labels.map(|(key, value)| Requirement::In(key.clone(), [value.clone()].into())).collect();
        for expression in selector.match_expressions.iter().flatten() {
            all.push(expression.check()?);
        }
        all.iter().try_for_each(Requirement::check)?;
        Ok(Self(all.into()))
    }

    /// Parses the text form of `kubectl -l`: `a=b,c!=d,e in (f,g),h,!i`. Numbers are not compared: `a>1` is refused.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let parts = split_outside_parentheses(text).map(str::trim).filter(|part| !part.is_empty());
        let all: Vec<_> = parts.map(parse_one).collect::<Result<_, _>>()?;
        all.iter().try_for_each(Requirement::check)?;
        Ok(Self(all.into()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many requirements it looks at, and one.
    pub(crate) fn cost(&self) -> usize {
        1 + self.0.len()
    }

    /// The label by which what matches is found fastest; `None` where the selector only excludes labels.
    pub fn pin(&self) -> Option<Pin<'_>> {
        let pins = self.0.iter().filter_map(|requirement| match requirement {
            Requirement::In(label, values) => Some((values.len(), Pin::In(label, values))),
            Requirement::Exists(label) => Some((usize::MAX, Pin::Exists(label))),
            Requirement::NotIn(..) | Requirement::DoesNotExist(_) => None,
        });
        pins.min_by_key(|(values, _)| *values).map(|(_, pin)| pin)
    }

    /// A label that all objects that match have, where there is one.
    pub fn pinned(&self) -> Option<(&str, &str)> {
        match self.pin()? {
            Pin::In(label, values) if values.len() == 1 => Some((label, values.first()?)),
            Pin::In(..) | Pin::Exists(_) => None,
        }
    }

    /// Bytes that it takes, about.
    pub(crate) fn memory(&self) -> usize {
        const REQUIREMENT: usize = 384;
        const VALUE: usize = 64;
        let one = |requirement: &Requirement| match requirement {
            Requirement::In(key, values) | Requirement::NotIn(key, values) => {
                key.len() + values.iter().map(|value| VALUE + value.len()).sum::<usize>()
            }
            Requirement::Exists(key) | Requirement::DoesNotExist(key) => key.len(),
        };
        self.0.iter().map(|requirement| REQUIREMENT + one(requirement)).sum()
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }

    /// The first label that keeps the selector from matching: what there is, and what is needed, in words.
    pub fn mismatch(&self, labels: &BTreeMap<String, String>) -> Option<String> {
        let requirement = self.0.iter().find(|requirement| !requirement.holds(labels))?;
        let (key, needed) = requirement.in_words();
        Some(match labels.get(key) {
            Some(value) => format!("label {key} is {value:?}, and {needed} is needed"),
            None => format!("label {key} is missing, and {needed} is needed"),
        })
    }
}

impl Selector {
    /// The text form with `key=value` for a label of one value, as people write it.
    pub fn brief(&self) -> String {
        let one = |requirement: &Requirement| match requirement {
            Requirement::In(key, values) if values.len() == 1 => {
                format!("{key}={}", values.first().map_or("", String::as_str))
            }
            other => Self(Arc::new([other.clone()])).to_string(),
        };
        self.0.iter().map(one).collect::<Vec<_>>().join(",")
    }
}

/// The text form that [`Selector::parse`] reads.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |values: &BTreeSet<String>| values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        for (nth, requirement) in self.0.iter().enumerate() {
            f.write_str(if nth > 0 { "," } else { "" })?;
            match requirement {
                Requirement::In(key, values) => write!(f, "{key} in ({})", list(values)),
                Requirement::NotIn(key, values) => write!(f, "{key} notin ({})", list(values)),
                Requirement::Exists(key) => f.write_str(key),
                Requirement::DoesNotExist(key) => write!(f, "!{key}"),
            }?;
        }
        Ok(())
    }
}

/// Values that a message names.
const MAX_VALUES: usize = 5;

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
        }
    }

    /// The key, and the value that is asked for.
    fn in_words(&self) -> (&str, String) {
        let list = |values: &BTreeSet<String>| {
            let more = if values.len() > MAX_VALUES { ", …" } else { "" };
            let named: Vec<_> = values.iter().take(MAX_VALUES).map(|value| format!("{value:?}")).collect();
            format!("{}{more}", named.join(", "))
        };
        match self {
            Self::In(key, values) if values.len() == 1 => (key, list(values)),
            Self::In(key, values) => (key, format!("one of {}", list(values))),
            Self::NotIn(key, values) => (key, format!("none of {}", list(values))),
            Self::Exists(key) => (key, "any value".to_owned()),
            Self::DoesNotExist(key) => (key, "no such label".to_owned()),
        }
    }

    /// Refuses keys and values that no label can have: such a selector would silently select nothing.
    fn check(&self) -> Result<(), SelectorError> {
        let none = BTreeSet::new();
        let (key, values) = match self {
            Self::In(key, values) | Self::NotIn(key, values) => (key, values),
            Self::Exists(key) | Self::DoesNotExist(key) => (key, &none),
        };
        if !is_key(key) {
            return Err(SelectorError::Key(key.clone()));
        }
        match values.iter().find(|value| !value.is_empty() && !is_name(value)) {
            Some(value) => Err(SelectorError::Value { key: key.clone(), value: value.clone() }),
            None => Ok(()),
        }
    }
}

/// A key of a label: a name, behind a DNS subdomain and a slash if there is one.
fn is_key(text: &str) -> bool {
    let Some((prefix, name)) = text.split_once('/') else { return is_name(text) };
    is_name(name) && is_dns_name(prefix)
}

fn is_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63 && is_word(text) && ends(text.chars().next()) && ends(text.chars().next_back())
}

impl Expression {
    fn check(&self) -> Result<Requirement, SelectorError> {
        let key = self.key.clone();
        let values: BTreeSet<String> = self.values.iter().flatten().cloned().collect();
        let operator = self.operator.clone();
        match (operator.as_str(), values.is_empty()) {
            ("In", false) => Ok(Requirement::In(key, values)),
            ("NotIn", false) => Ok(Requirement::NotIn(key, values)),
            ("Exists", true) => Ok(Requirement::Exists(key)),
            ("DoesNotExist", true) => Ok(Requirement::DoesNotExist(key)),
            ("In" | "NotIn", true) => Err(SelectorError::NoValues { key, operator }),
            ("Exists" | "DoesNotExist", false) => Err(SelectorError::Values { key, operator }),
            _ => Err(SelectorError::Operator(operator)),
        }
    }
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Whether a text has only characters that values of labels may have; an empty text is one, too.
fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn parse_one(part: &str) -> Result<Requirement, SelectorError> {
    let bad = || SelectorError::Text(part.to_owned());
    // A key that no label can have would silently select nothing.
    let key = |text: &str| {
        let text = text.trim();
        let (prefix, name) = text.split_once('/').unwrap_or(("prefix", text));
        let word = is_word(name) && !name.is_empty() && is_word(prefix) && !prefix.is_empty();
        if word { Ok(text.to_owned()) } else { Err(bad()) }
    };
    let value = |text: &str| {
        let text = text.trim();
        if is_word(text) { Ok(text.to_owned()) } else { Err(bad()) }
    };
    if let Some(rest) = part.strip_prefix('!') {
        return Ok(Requirement::DoesNotExist(key(rest)?));
    }
    if let Some((left, right)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(key(left)?, [value(right)?].into()));
    }
    if let Some((left, right)) = part.split_once('=') {
        return Ok(Requirement::In(key(left)?, [value(right.strip_prefix('=').unwrap_or(right))?].into()));
    }
    let Some((left, list)) = part.split_once('(') else {
        return key(part).map(Requirement::Exists);
    };
    let list = list.strip_suffix(')').ok_or_else(bad)?.split(',').map(value).collect::<Result<_, _>>()?;
    match left.split_whitespace().collect::<Vec<_>>().as_slice() {
        [name, "in"] => Ok(Requirement::In(key(name)?, list)),
        [name, "notin"] => Ok(Requirement::NotIn(key(name)?, list)),
        _ => Err(bad()),
    }
}

/// The label of a generated selector; its value is the parent's uid.
pub const UID_LABEL: &str = "controller-uid";

#[derive(Debug, thiserror::Error)]
pub enum ChildSelectorError {
    #[error(
        "spec.selector of the parent selects nothing: give it matchLabels or matchExpressions, or set generateSelector in the controller"
    )]
    Empty,
    #[error(
        "spec.selector of the parent only excludes labels, so that it matches nearly every object: give it a label that its children have (matchLabels, In, Exists), or set allowNegativeSelectors in the controller"
    )]
    Negative,
    #[error("spec.selector of the parent is no label selector")]
    Malformed(#[source] serde_json::Error),
    #[error("spec.selector of the parent")]
    Refused(#[from] SelectorError),
}

/// The selector of one parent's children.
pub fn child_selector(parent: &Object, generated: bool) -> Result<Selector, ChildSelectorError> {
    if generated {
        return Ok(Selector::equals(UID_LABEL, parent.uid.as_str()));
    }
    let selector = Selector::of(&own_selector(parent).map_err(ChildSelectorError::Malformed)?)?;
    if selector.is_empty() { Err(ChildSelectorError::Empty) } else { Ok(selector) }
}

/// The selector in `spec.selector` of a parent; empty where it has none.
pub(crate) fn own_selector(parent: &Object) -> Result<LabelSelector, serde_json::Error> {
    #[derive(Deserialize)]
    struct Parent {
        spec: Option<Spec>,
    }
    #[derive(Deserialize)]
    struct Spec {
        selector: Option<LabelSelector>,
    }
    let Parent { spec } = serde_json::from_str(parent.json())?;
    Ok(spec.and_then(|spec| spec.selector).unwrap_or_default())
}
