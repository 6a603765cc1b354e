//! Tables of the fields that a schema has: path, type, default, meaning.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::table;

const COLUMNS: [&str; 4] = ["field", "type", "default", "meaning"];

/// Fields below a field that its own table shows. A field with more has a section of its own.
const MAX_INLINE: usize = 8;

/// Fields below a field that each table repeats. A table with more leads to the first table that shows them.
const MAX_REPEATED: usize = 3;

/// Fields that come first, in this order. The others are in the order of the alphabet.
const FIRST: [&str; 21] = [
    "parentResource",
    "childResources",
    "resources",
    "attachments",
    "controller",
    "parent",
    "object",
    "hooks",
    "sync",
    "finalize",
    "customize",
    "wasm",
    "script",
    "webhook",
    "apiVersion",
    "kind",
    "resource",
    "namespace",
    "name",
    "path",
    "type",
];

/// What one field of a schema is.
pub(super) struct Field {
    pub(super) kind: String,
    pub(super) default: String,
    pub(super) meaning: String,
    /// Rules that the API server checks, as sentences.
    pub(super) rules: String,
}

impl Field {
    pub(super) fn of(path: &str, schema: &Value, is_required: bool) -> Self {
        let mut described = [Some(schema), schema.get("items")].into_iter().flatten();
        let text = described.find_map(|schema| schema.get("description")?.as_str());
        let text = text.unwrap_or_else(|| panic!("{path} has no description")).replace('\n', " ");
        let (meaning, default) = match text.rsplit_once("Default: ") {
            Some((meaning, default)) => (meaning.trim_end().to_owned(), default.trim_end_matches('.')),
            None => (text.clone(), ""),
        };
        let default = match schema.get("default") {
            _ if is_required => "required".to_owned(),
            Some(Value::String(default)) => format!("`{default}`"),
            Some(default) => format!("`{default}`"),
            None => default.to_owned(),
        };
        Self { kind: type_of(schema), default, meaning, rules: rules(schema) }
    }
}

/// The fields of an object by name, in the order of their table, and whether each is required.
pub(super) fn ordered(schema: &Value) -> Vec<(&str, &Value, bool)> {
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().collect();
    let fields = schema["properties"].as_object().into_iter().flatten();
    let mut all: Vec<_> =
        fields.map(|(name, field)| (name.as_str(), field, required.iter().any(|one| *one == name))).collect();
    all.sort_by_key(|(name, ..)| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
    all
}

/// The anchor of a heading.
pub(super) fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Tables of one page. It shows the fields of each object once.
#[derive(Default)]
pub(super) struct Tables {
    /// By the properties of an object: the path that shows them, and the heading above it.
    shown: BTreeMap<String, (String, String)>,
}

/// Rows of a table, and objects that are too large for it, each with the path that is its heading.
#[derive(Default)]
struct Section<'a> {
    heading: &'a str,
    rows: Vec<Vec<String>>,
    large: Vec<(String, &'a Value)>,
}

impl Tables {
    /// The link to the fields of an object that the page shows already, or a note that it shows them below a heading.
    pub(super) fn shown_before(&mut self, path: &str, heading: &str, schema: &Value) -> Option<String> {
        let object = object_below(schema)?.0;
        let key = object["properties"].to_string();
        if let Some((path, heading)) = self.shown.get(&key) {
            return Some(format!("[`{path}`](#{})", anchor(heading)));
        }
        self.shown.insert(key, (path.to_owned(), heading.to_owned()));
        None
    }

    /// The table of an object's fields, and the sections below it. The paths in it begin with `prefix`.
    pub(super) fn of(&mut self, heading: &str, prefix: &str, schema: &Value) -> String {
        let Some((object, suffix)) = object_below(schema) else { return String::new() };
        let mut section = Section { heading, ..Section::default() };
        self.add_rows(&format!("{prefix}{suffix}"), object, &mut section);
        let Section { rows, large, .. } = section;
        let mut text = table(&COLUMNS, &rows);
        for (path, schema) in large {
            let Field { meaning, rules, .. } = Field::of(&path, schema, false);
            write!(text, "\n#### `{path}`\n\n{meaning}{rules}\n\n").unwrap();
            let prefix = path.rsplit('.').next().unwrap_or_default().to_owned();
            text += &self.of(&path, &prefix, schema);
        }
        text
    }

    fn add_rows<'a>(&mut self, prefix: &str, object: &'a Value, section: &mut Section<'a>) {
        for (name, schema, is_required) in ordered(object) {
            let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
            let Field { kind, default, mut meaning, rules } = Field::of(&path, schema, is_required);
            let (below, suffix) = object_below(schema).unwrap_or((&Value::Null, String::new()));
            let (size, own) = (count(below), format!("{}.{name}", section.heading));
            let heading = if size > MAX_INLINE { own.as_str() } else { section.heading };
            let link = (size > MAX_REPEATED).then(|| self.shown_before(&path, heading, schema)).flatten();
            let is_large = link.is_none() && size > MAX_INLINE;
            if let Some(link) = &link {
                write!(meaning, " Its fields are those of {link}.").unwrap();
            } else if is_large {
                write!(meaning, " Its fields are [below](#{}).", anchor(&own)).unwrap();
            } else {
                meaning += &rules;
            }
            section.rows.push(vec![format!("`{path}`"), kind, default, meaning]);
            if is_large {
                section.large.push((own, schema));
            } else if link.is_none() {
                self.add_rows(&format!("{path}{suffix}"), below, section);
            }
        }
    }
}

/// The object with fields that a field holds: itself, or in a list or a map.
fn object_below(schema: &Value) -> Option<(&Value, String)> {
    let (mut schema, mut suffix) = (schema, String::new());
    loop {
        if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
            // Keys such as `Pod.v1` are kinds, which differ from one controller to the next.
            let is_one = !fields.is_empty() && !fields.keys().any(|name| name.contains('.'));
            return is_one.then_some((schema, suffix));
        }
        let (below, word) = match (schema.get("items"), schema.get("additionalProperties")) {
            (Some(items), _) => (items, "[]"),
            (None, Some(values @ Value::Object(_))) => (values, ".*"),
            (None, _) => return None,
        };
        schema = below;
        suffix += word;
    }
}

/// The number of fields in an object, with those of all objects in it.
fn count(object: &Value) -> usize {
    let below = |schema| object_below(schema).map_or(0, |(object, _)| count(object));
    ordered(object).iter().map(|(_, schema, _)| 1 + below(schema)).sum()
}

/// The type of a field in words, with its bounds.
fn type_of(schema: &Value) -> String {
    let words = |values: &[Value]| {
        let words = values.iter().filter_map(Value::as_str).map(|word| format!("`{word}`"));
        words.collect::<Vec<_>>().join(", ")
    };
    let many = |schema: &Value| match type_of(schema) {
        kind if kind.ends_with("any value") => "values".to_owned(),
        // "map of objects" becomes "maps of objects"; bounds follow the word, too.
        kind => {
            let end = kind.find([' ', ',']).unwrap_or(kind.len());
            let (word, rest) = kind.split_at(end);
            format!("{word}s{rest}")
        }
    };
    let named = schema.get("type").and_then(|kind| match kind {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        kind => kind.as_str(),
    });
    let mut text = match (named, schema.get("enum"), schema.get("additionalProperties")) {
        (_, Some(Value::Array(values)), _) => words(values),
        (Some("array"), ..) => format!("list of {}", schema.get("items").map_or("values".to_owned(), many)),
        (Some("object"), None, Some(values @ Value::Object(_))) => format!("map of {}", many(values)),
        (Some(kind), ..) => kind.to_owned(),
        (None, ..) if schema.get("$ref").or(schema.get("anyOf")).is_some() => "object".to_owned(),
        (None, ..) => "any value".to_owned(),
    };
    match (schema.get("minimum"), schema.get("maximum")) {
        (Some(min), Some(max)) => write!(text, ", {min} to {max}").unwrap(),
        (Some(min), None) => write!(text, ", at least {min}").unwrap(),
        (None, Some(max)) => write!(text, ", at most {max}").unwrap(),
        (None, None) => {}
    }
    for (word, what) in [("maxItems", "items"), ("maxLength", "characters")] {
        if let Some(max) = schema.get(word) {
            write!(text, ", at most {max} {what}").unwrap();
        }
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        write!(text, ", pattern `{pattern}`").unwrap();
    }
    text
}

/// The rules that the API server checks of a field and of its items.
fn rules(schema: &Value) -> String {
    let holders = [Some(schema), schema.get("items")].into_iter().flatten();
    let rules = holders.filter_map(|schema| schema.get("x-kubernetes-validations")?.as_array()).flatten();
    let messages = rules.filter_map(|rule| rule.get("message")?.as_str());
    messages.map(|message| format!(" Rule: {message}.")).collect::<Vec<_>>().concat()
}
