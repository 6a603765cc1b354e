//! Fields of a hook's answer by type; an error names the path of the value that has another type.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::api::ControllerKind;
use crate::api::hook::HookTransport;
use crate::api::webhook::UnmarshallMode;
use crate::decorator::Changes;
use crate::hook::fault::MAX_PATH;
use crate::hook::{AnswerWarning, AnswerWarnings, MAX_KEYS, ResponseError};
use crate::json::size::tree_size;
use crate::json::type_of;
use crate::shorten;

/// Options for reading an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// The kind of controller whose hook answered.
    pub kind: ControllerKind,
    pub via: HookTransport,
    pub mode: UnmarshallMode,
    /// Bound on the children in the answer of a module; webhooks have none, as with Metacontroller.
    pub max_children: usize,
    /// Bound on the memory that its values take.
    pub max_memory: usize,
    /// The spec lets hooks delete related objects. A module may ask for it anyway and gets an error that names the missing grant.
    pub deletes: bool,
}

/// Members of one object of an answer. Reading a member takes it out; what is left at the end is unknown.
#[derive(Debug)]
pub(crate) struct Fields {
    /// Empty: the answer itself.
    path: String,
    members: Map<String, Value>,
}

/// Reads the fields of an answer. Repeated fields are a warning everywhere but in the items of the list `free`, which are
/// Kubernetes objects.
///
/// # Errors
/// The answer is empty, incomplete, too large, or no object. `null` from a webhook is an object without fields.
pub(crate) fn answer(
    bytes: &[u8],
    (via, max_memory): (HookTransport, usize),
    free: &str,
    warnings: &mut AnswerWarnings,
) -> Result<Fields, ResponseError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(match via {
            HookTransport::Wasm => ResponseError::Empty,
            HookTransport::Webhook => ResponseError::EmptyBody,
        });
    }
    if bytes.len() + tree_size(bytes) > max_memory {
        return Err(ResponseError::TooManyValues { max: max_memory, via });
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: &Path::Root, free, warnings: Some(warnings) }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| ResponseError::json(error, bytes))?;
    match value {
        Value::Object(members) => Ok(Fields { path: String::new(), members }),
        Value::Null if via.follows_metacontroller() => {
            Ok(Fields { path: String::new(), members: Map::new() })
        }
        other => Err(type_error("the answer", "an object", &other)),
    }
}

/// Number of children in an answer, counted without building them.
pub(crate) fn count_children(answer: &[u8], kind: ControllerKind) -> usize {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Lists {
        children: Vec<IgnoredAny>, // of no size
        attachments: Vec<IgnoredAny>,
    }
    let Lists { children, attachments } = serde_json::from_slice(answer).unwrap_or_default();
    match kind {
        ControllerKind::Composite => children.len(),
        ControllerKind::Decorator => attachments.len(),
    }
}

impl Fields {
    /// The members of the object at `path`.
    pub(crate) fn of(path: String, value: Value) -> Result<Self, ResponseError> {
        match value {
            Value::Object(members) => Ok(Self { path, members }),
            other => Err(type_error(&path, "an object", &other)),
        }
    }

    /// The path of a field, whose name may be the hook's.
    pub(crate) fn path(&self, field: &str) -> String {
        let field = shorten(field, MAX_PATH);
        if self.path.is_empty() { field } else { format!("{}.{field}", self.path) }
    }

    pub(crate) fn object(&mut self, field: &str) -> Result<Option<Map<String, Value>>, ResponseError> {
        match self.take(field) {
            Value::Null => Ok(None),
            Value::Object(members) => Ok(Some(members)),
            other => Err(type_error(&self.path(field), "an object", &other)),
        }
    }

    /// Strings by key; null removes the key.
    pub(crate) fn changes(&mut self, field: &str) -> Result<Changes, ResponseError> {
        let path = self.path(field);
        let members = self.object(field)?.unwrap_or_default();
        if members.len() > MAX_KEYS {
            return Err(ResponseError::TooManyKeys { path, found: members.len() });
        }
        let changes = members.into_iter().map(|(name, value)| match value {
            Value::Null => Ok((name, None)),
            Value::String(text) => Ok((name, Some(text))),
            other => {
                let path = format!("{path}.{}", shorten(&name, MAX_PATH));
                Err(type_error(&path, "a string or null", &other))
            }
        });
        changes.collect()
    }

    pub(crate) fn list(&mut self, field: &str) -> Result<Option<Vec<Value>>, ResponseError> {
        match self.take(field) {
            Value::Null => Ok(None),
            Value::Array(items) => Ok(Some(items)),
            other => Err(type_error(&self.path(field), "a list", &other)),
        }
    }

    pub(crate) fn text(&mut self, field: &str) -> Result<Option<String>, ResponseError> {
        self.scalar(field, "a string")
    }

    /// A string, a number or a boolean.
    pub(crate) fn scalar<T: DeserializeOwned>(
        &mut self,
        field: &str,
        expected: &'static str,
    ) -> Result<Option<T>, ResponseError> {
        let value = self.take(field);
        let found = type_of(&value);
        let wrong = |_| ResponseError::Type { path: self.path(field), expected, found };
        serde_json::from_value(value).map_err(wrong)
    }

    /// A string that must not be absent or empty.
    pub(crate) fn required(&mut self, field: &str) -> Result<String, ResponseError> {
        let found = self.text(field)?.filter(|text| !text.is_empty());
        let expected = "a string that is not empty";
        found.ok_or_else(|| ResponseError::Value { path: self.path(field), expected })
    }

    /// Warns of members that were not read.
    pub(crate) fn end(self, warnings: &mut AnswerWarnings) {
        for field in self.members.keys() {
            warnings.add(|| AnswerWarning::UnknownField(self.path(field)));
        }
    }

    fn take(&mut self, field: &str) -> Value {
        self.members.remove(field).unwrap_or_default()
    }
}

pub(crate) fn type_error(path: &str, expected: &'static str, found: &Value) -> ResponseError {
    ResponseError::Type { path: path.to_owned(), expected, found: type_of(found) }
}

/// Path of a value, printed only for an error or a warning.
enum Path<'p> {
    Root,
    Field(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl Path<'_> {
    /// The path, of which a long one has its beginning alone: no more of it is written out.
    fn shown(&self) -> String {
        let mut start = PathStart(String::new());
        // It fails where there is more than is kept.
        self.write(&mut start).unwrap_or_default();
        shorten(&start.0, MAX_PATH)
    }

    fn write(&self, path: &mut PathStart) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => path.push(name),
            Self::Field(of, name) => {
                of.write(path)?;
                path.push(".")?;
                path.push(name)
            }
            Self::Item(of, nth) => {
                of.write(path)?;
                path.push(&format!("[{nth}]"))
            }
        }
    }
}

/// The beginning of a path: a little more than is shown of it.
struct PathStart(String);

impl PathStart {
    fn push(&mut self, step: &str) -> fmt::Result {
        // A little more than is shown, so that the cut shows.
        self.0.extend(step.chars().take(MAX_PATH + 1));
        if self.0.len() > MAX_PATH { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Deserializes any value and warns of repeated members.
struct Node<'p, 'o> {
    path: &'p Path<'p>,
    free: &'p str,
    /// `None`: repeated members are fine here.
    warnings: Option<&'o mut AnswerWarnings>,
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let free = matches!(self.path, Path::Field(Path::Root, name) if *name == self.free);
        let mut list = Vec::new();
        loop {
            let path = Path::Item(self.path, list.len());
            let warnings = if free { None } else { self.warnings.as_deref_mut() };
            let item = items.next_element_seed(Node { path: &path, free: self.free, warnings })?;
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let path = Path::Field(self.path, &key);
            let value = members.next_value_seed(Node {
                path: &path,
                free: self.free,
                warnings: self.warnings.as_deref_mut(),
            })?;
            if let Some(warnings) = self.warnings.as_deref_mut()
                && map.contains_key(&key)
            {
                warnings.add(|| AnswerWarning::RepeatedField(path.shown()));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hook::fault::MAX_WARNINGS;

    fn read(text: &str) -> (Value, Vec<String>) {
        let mut warnings = AnswerWarnings::default();
        let fields =
            answer(text.as_bytes(), (HookTransport::Wasm, 1 << 20), "children", &mut warnings).unwrap();
        (
            Value::Object(fields.members),
            warnings.finish(UnmarshallMode::Loose).unwrap().iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn repeated_fields_are_noticed_with_their_path_and_the_last_one_counts() {
        let (value, warnings) =
            read(r#"{"a":1,"status":{"b":[{},{"c":1,"c":2}]},"children":[{"x":1,"x":2}],"a":2}"#);
        assert_eq!(value["a"], 2);
        assert_eq!(value["children"][0]["x"], 2);
        assert_eq!(
            warnings,
            ["has the field status.b[1].c more than once", "has the field a more than once"]
        );
    }

    #[test]
    fn only_the_first_warnings_are_reported() {
        let (_, warnings) = read(&format!("{{\"a\":1{}}}", ",\"a\":1".repeat(1000)));
        assert_eq!(warnings.len(), MAX_WARNINGS);
    }

    /// As many bytes as all warnings may show, for an answer in which each of them would be as long as the answer.
    #[test]
    fn the_path_of_a_repeated_field_is_cut() {
        let key = "k".repeat(100_000);
        let repeated = r#","a":0"#.repeat(1000);
        let (_, warnings) =
            read(&format!(r#"{{"status":{{"{key}":{{"a":0{repeated}}},"{key}":1}},"{key}":1}}"#));
        assert_eq!(warnings.len(), MAX_WARNINGS);
        let bytes: usize = warnings.iter().map(String::len).sum();
        assert!(bytes <= MAX_WARNINGS * (MAX_PATH + 40), "{bytes}");
        assert!(
            warnings[0].starts_with("has the field status.kkk") && warnings[0].contains('…'),
            "{}",
            warnings[0]
        );
        let exact = "k".repeat(MAX_PATH);
        let (_, warnings) = read(&format!(r#"{{"{exact}":1,"{exact}":1}}"#));
        assert_eq!(warnings, [format!("has the field {exact} more than once")]);
    }

    #[test]
    fn the_names_of_unknown_fields_and_of_changes_are_cut() {
        let key = "k".repeat(300_000);
        let fields = |members: Value| Fields::of("status".to_owned(), members).unwrap();
        let mut warnings = AnswerWarnings::default();
        fields(serde_json::json!({ &*key: 1 })).end(&mut warnings);
        let warnings = warnings.finish(UnmarshallMode::Loose).unwrap();
        assert!(warnings[0].to_string().len() < MAX_PATH + 60, "{}", warnings[0]);
        let error = fields(serde_json::json!({ "labels": { &*key: 1 } })).changes("labels").unwrap_err();
        assert!(error.to_string().len() < MAX_PATH + 100, "{error}");
    }

    #[test]
    fn a_field_that_serde_json_uses_for_itself_is_a_field() {
        let text = r#"{"status":{"$serde_json::private::RawValue":"{\"a\":1}"}}"#;
        assert_eq!(read(text).0["status"]["$serde_json::private::RawValue"], "{\"a\":1}");
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 30, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_serde_json_reads(value in anything()) {
            let text = serde_json::json!({ "it": value }).to_string();
            let expected: Value = serde_json::from_str(&text).unwrap();
            let (value, warnings) = read(&text);
            prop_assert_eq!(value, expected);
            prop_assert!(warnings.is_empty());
        }
    }
}
