//! Answers of hooks as fields of known types, with the path of whatever is wrong with them.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::api::ControllerKind;
use crate::api::hook::Via;
use crate::api::webhook::UnmarshallMode;
use crate::decorator::object::Changes;
use crate::hook::response::{MOST_KEYS, ResponseError};

/// What an answer may take in memory once it is read: far more than 10,000 large children do.
pub(crate) const MOST_MEMORY: usize = 128 << 20;

/// An answer may be odd in more places; so many are told.
const MOST_ODDITIES: usize = 20;

/// How an answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Whose hook answered.
    pub kind: ControllerKind,
    pub via: Via,
    pub mode: UnmarshallMode,
    /// Children that the answer of a module may have. A webhook may have any number, as it always could.
    pub max_children: usize,
    /// The spec lets hooks delete related objects. A module may ask for that in any case, and is told what is missing.
    pub deletes: bool,
}

/// Something in an answer that changes nothing: fatal where answers are read strictly, else only told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Oddity {
    /// A field that nobody knows.
    Unknown(String),
    /// A field that is there more than once; the last one counts.
    Repeated(String),
    /// Something of no use where it stands.
    Ignored { path: String, why: String },
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(path) => write!(f, "has the unknown field {path}"),
            Self::Repeated(path) => write!(f, "has the field {path} more than once"),
            Self::Ignored { path, why } => write!(f, "{path} {why}"),
        }
    }
}

/// The members of one object of an answer, taken one by one.
#[derive(Debug)]
pub(crate) struct Fields {
    /// Empty: the answer itself.
    path: String,
    members: Map<String, Value>,
}

/// An answer as it is being read: what is odd about it so far.
#[derive(Debug, Default)]
pub(crate) struct Oddities(Vec<Oddity>);

impl Oddities {
    pub(crate) fn note(&mut self, odd: Oddity) {
        if self.0.len() < MOST_ODDITIES {
            self.0.push(odd);
        }
    }

    /// # Errors
    /// The first oddity, where answers are read strictly.
    pub(crate) fn judge(self, mode: UnmarshallMode) -> Result<Vec<Oddity>, ResponseError> {
        match (mode, self.0.into_iter()) {
            (UnmarshallMode::Strict, mut odd) if odd.len() > 0 => {
                Err(odd.next().map_or(ResponseError::TooManyValues, ResponseError::Odd))
            }
            (UnmarshallMode::Strict | UnmarshallMode::Loose, odd) => Ok(odd.collect()),
        }
    }
}

/// The fields of an answer. Repeated fields are noticed everywhere but in the items of the list `free`, which are
/// objects of Kubernetes.
///
/// # Errors
/// There is nothing, half of it, too much of it, or something that is no object. `null` is an object without fields if
/// a webhook says it.
pub(crate) fn answer(
    bytes: &[u8],
    via: Via,
    free: &str,
    odd: &mut Oddities,
) -> Result<Fields, ResponseError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(match via {
            Via::Wasm => ResponseError::Empty,
            Via::Webhook => ResponseError::EmptyBody,
        });
    }
    if memory_of(bytes) > MOST_MEMORY {
        return Err(ResponseError::TooManyValues);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: &Path::Root, free, odd: Some(odd) }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(ResponseError::Json)?;
    match (value, via) {
        (Value::Object(members), _) => Ok(Fields { path: String::new(), members }),
        (Value::Null, Via::Webhook) => Ok(Fields { path: String::new(), members: Map::new() }),
        (other, _) => Err(wrong("the answer", "an object", &other)),
    }
}

/// How many children an answer has, counted without making one.
pub(crate) fn children_of(answer: &[u8], kind: ControllerKind) -> usize {
    #[derive(Deserialize)]
    struct Composite {
        children: Vec<IgnoredAny>, // of no size
    }
    #[derive(Deserialize)]
    struct Decorator {
        attachments: Vec<IgnoredAny>,
    }
    match kind {
        ControllerKind::Composite => {
            serde_json::from_slice(answer).map_or(0, |answer: Composite| answer.children.len())
        }
        ControllerKind::Decorator => {
            serde_json::from_slice(answer).map_or(0, |answer: Decorator| answer.attachments.len())
        }
    }
}

impl Fields {
    /// The fields of an object at `path`.
    pub(crate) fn of(path: String, value: Value) -> Result<Self, ResponseError> {
        match value {
            Value::Object(members) => Ok(Self { path, members }),
            other => Err(wrong(&path, "an object", &other)),
        }
    }

    /// Where a field is.
    pub(crate) fn path(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    pub(crate) fn object(&mut self, field: &str) -> Result<Option<Map<String, Value>>, ResponseError> {
        match self.take(field) {
            Value::Null => Ok(None),
            Value::Object(members) => Ok(Some(members)),
            other => Err(wrong(&self.path(field), "an object", &other)),
        }
    }

    /// Texts by key; null: what has that key goes.
    pub(crate) fn changes(&mut self, field: &str) -> Result<Changes, ResponseError> {
        let path = self.path(field);
        let members = self.object(field)?.unwrap_or_default();
        if members.len() > MOST_KEYS {
            return Err(ResponseError::TooManyKeys { path, found: members.len() });
        }
        let changes = members.into_iter().map(|(name, value)| match value {
            Value::Null => Ok((name, None)),
            Value::String(text) => Ok((name, Some(text))),
            other => Err(wrong(&format!("{path}.{name}"), "a string or null", &other)),
        });
        changes.collect()
    }

    pub(crate) fn list(&mut self, field: &str) -> Result<Option<Vec<Value>>, ResponseError> {
        match self.take(field) {
            Value::Null => Ok(None),
            Value::Array(items) => Ok(Some(items)),
            other => Err(wrong(&self.path(field), "a list", &other)),
        }
    }

    pub(crate) fn number(&mut self, field: &str) -> Result<Option<Number>, ResponseError> {
        match self.take(field) {
            Value::Null => Ok(None),
            Value::Number(number) => Ok(Some(number)),
            other => Err(wrong(&self.path(field), "a number", &other)),
        }
    }

    pub(crate) fn boolean(&mut self, field: &str) -> Result<Option<bool>, ResponseError> {
        match self.take(field) {
            Value::Null => Ok(None),
            Value::Bool(value) => Ok(Some(value)),
            other => Err(wrong(&self.path(field), "true or false", &other)),
        }
    }

    pub(crate) fn text(&mut self, field: &str) -> Result<Option<String>, ResponseError> {
        match self.take(field) {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text)),
            other => Err(wrong(&self.path(field), "a string", &other)),
        }
    }

    /// A text that has to be there.
    pub(crate) fn needed(&mut self, field: &str) -> Result<String, ResponseError> {
        let found = self.text(field)?.filter(|text| !text.is_empty());
        let expected = "a string that is not empty";
        found.ok_or_else(|| ResponseError::Value { path: self.path(field), expected })
    }

    /// Whatever was not taken is unknown.
    pub(crate) fn end(self, odd: &mut Oddities) {
        for field in self.members.keys() {
            odd.note(Oddity::Unknown(self.path(field)));
        }
    }

    fn take(&mut self, field: &str) -> Value {
        self.members.remove(field).unwrap_or_default()
    }
}

pub(crate) fn wrong(path: &str, expected: &'static str, found: &Value) -> ResponseError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ResponseError::Type { path: path.to_owned(), expected, found }
}

/// About what the values of this JSON take in memory, known without making them. (An object with one short member is
/// 7 bytes of text and one node of a B-tree.)
fn memory_of(json: &[u8]) -> usize {
    let (mut memory, mut in_text, mut escaped) = (json.len(), false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' if !in_text => memory += 700,
            b'[' if !in_text => memory += 128,
            b',' if !in_text => memory += 64,
            _ => {}
        }
    }
    memory
}

/// Where a value stands, told only when somebody asks.
enum Path<'p> {
    Root,
    Field(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(of, name) => write!(f, "{of}.{name}"),
            Self::Item(of, nth) => write!(f, "{of}[{nth}]"),
        }
    }
}

/// Reads any value, and notices members that are there twice.
struct Node<'p, 'o> {
    path: &'p Path<'p>,
    free: &'p str,
    /// `None`: nobody minds.
    odd: Option<&'o mut Oddities>,
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

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let free = matches!(self.path, Path::Field(Path::Root, name) if *name == self.free);
        let mut list = Vec::new();
        loop {
            let path = Path::Item(self.path, list.len());
            let odd = if free { None } else { self.odd.as_deref_mut() };
            let item = items.next_element_seed(Node { path: &path, free: self.free, odd })?;
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
                odd: self.odd.as_deref_mut(),
            })?;
            let repeated = map.contains_key(&key).then(|| path.to_string());
            map.insert(key, value);
            if let (Some(path), Some(odd)) = (repeated, self.odd.as_deref_mut()) {
                odd.note(Oddity::Repeated(path));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> (Value, Vec<String>) {
        let mut odd = Oddities::default();
        let fields = answer(text.as_bytes(), Via::Wasm, "children", &mut odd).unwrap();
        (Value::Object(fields.members), odd.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn repeated_fields_are_noticed_with_their_path_and_the_last_one_counts() {
        let (value, odd) =
            read(r#"{"a":1,"status":{"b":[{},{"c":1,"c":2}]},"children":[{"x":1,"x":2}],"a":2}"#);
        assert_eq!(value["a"], 2);
        assert_eq!(value["children"][0]["x"], 2);
        assert_eq!(odd, ["has the field status.b[1].c more than once", "has the field a more than once"]);
    }

    #[test]
    fn only_the_first_oddities_are_told() {
        let (_, odd) = read(&format!("{{\"a\":1{}}}", ",\"a\":1".repeat(1000)));
        assert_eq!(odd.len(), MOST_ODDITIES);
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
            let (value, odd) = read(&text);
            prop_assert_eq!(value, expected);
            prop_assert!(odd.is_empty());
        }
    }
}
