//! Types of the kinds in definitions: what a schema says, as the structs, enums and fields that every language has.

mod go;
mod names;
mod rust;
mod typescript;

use std::collections::BTreeSet;
use std::fmt;

use metahook_core::object::id::Gvk;
use serde_json::{Map, Value};

use names::{pascal, unique};

/// A language that types are printed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Language {
    Rust,
    Go,
    #[value(alias = "typescript")]
    Ts,
}

/// The types of one kind.
struct Kind<'a> {
    gvk: &'a Gvk,
    name: String,
    /// Of the whole object, without apiVersion, kind and metadata.
    fields: Vec<Field>,
    about: Option<String>,
    /// Each before those that it refers to.
    types: Vec<Named>,
}

/// A type with a name of its own.
struct Named {
    name: String,
    about: Option<String>,
    shape: Shape,
}

enum Shape {
    Struct(Vec<Field>),
    Enum(Vec<String>),
}

struct Field {
    /// As JSON has it.
    key: String,
    about: Option<String>,
    /// It is not required, or may be null.
    optional: bool,
    of: Type,
}

enum Type {
    Bool,
    Integer,
    Integer32,
    Number,
    Text,
    TextOrNumber,
    Any,
    Named(String),
    List(Box<Type>),
    Map(Box<Type>),
}

/// The types of these kinds, each with its schema, as a file of the language.
pub(crate) fn print(kinds: &[(&Gvk, Option<&Value>)], language: Language) -> Result<String, fmt::Error> {
    let mut taken = BTreeSet::from(["ObjectMeta".to_owned()]);
    // The names of kinds come first: those of their parts make way.
    let names: Vec<_> = kinds.iter().map(|(gvk, _)| unique(&mut taken, &pascal(&gvk.kind))).collect();
    let kinds: Vec<_> =
        kinds.iter().zip(names).map(|((gvk, schema), name)| kind(gvk, name, *schema, &mut taken)).collect();
    match language {
        Language::Rust => rust::print(&kinds),
        Language::Go => go::print(&kinds),
        Language::Ts => typescript::print(&kinds),
    }
}

fn kind<'a>(gvk: &'a Gvk, name: String, schema: Option<&Value>, taken: &mut BTreeSet<String>) -> Kind<'a> {
    let mut types = Types { taken, made: Vec::new() };
    let none = Map::new();
    let schema = schema.and_then(Value::as_object).unwrap_or(&none);
    let mut fields = types.fields(schema, &name);
    fields.retain(|field| !["apiVersion", "kind", "metadata"].contains(&field.key.as_str()));
    Kind { gvk, name, fields, about: about(schema), types: types.made }
}

struct Types<'a> {
    taken: &'a mut BTreeSet<String>,
    made: Vec<Named>,
}

impl Types<'_> {
    fn fields(&mut self, schema: &Map<String, Value>, name: &str) -> Vec<Field> {
        let required = schema.get("required").and_then(Value::as_array);
        let properties = schema.get("properties").and_then(Value::as_object);
        let all = properties.into_iter().flatten().map(|(key, below)| {
            let none = Map::new();
            let below = below.as_object().unwrap_or(&none);
            let of = self.of(below, &format!("{name}{}", pascal(key)));
            let is_required = required.is_some_and(|all| all.iter().any(|one| one == key));
            let optional = !is_required || below.get("nullable").is_some_and(|it| *it == true);
            Field { key: key.clone(), about: about(below), optional, of }
        });
        all.collect()
    }

    /// The type of a schema, whose own name would be this one.
    fn of(&mut self, schema: &Map<String, Value>, name: &str) -> Type {
        let is = |field: &str| schema.get(field).is_some_and(|value| *value == true);
        if is("x-kubernetes-int-or-string") {
            return Type::TextOrNumber;
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("boolean") => Type::Bool,
            Some("integer") if schema.get("format").is_some_and(|it| it == "int32") => Type::Integer32,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("string") => self.text(schema, name),
            Some("array") => match schema.get("items") {
                Some(Value::Object(items)) => Type::List(Box::new(self.of(items, name))),
                _ => Type::List(Box::new(Type::Any)),
            },
            Some("object") => self.object(schema, name),
            _ => Type::Any,
        }
    }

    fn text(&mut self, schema: &Map<String, Value>, name: &str) -> Type {
        let values = schema.get("enum").and_then(Value::as_array);
        let texts: Vec<_> =
            values.into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned)).collect();
        if texts.is_empty() { Type::Text } else { self.named(name, schema, |_, _| Shape::Enum(texts)) }
    }

    fn object(&mut self, schema: &Map<String, Value>, name: &str) -> Type {
        let has_fields =
            schema.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
        match schema.get("additionalProperties") {
            _ if has_fields => {
                self.named(name, schema, |types, name| Shape::Struct(types.fields(schema, name)))
            }
            Some(Value::Object(values)) => Type::Map(Box::new(self.of(values, name))),
            _ => Type::Any,
        }
    }

    fn named(
        &mut self,
        name: &str,
        schema: &Map<String, Value>,
        shape: impl FnOnce(&mut Self, &str) -> Shape,
    ) -> Type {
        let name = unique(self.taken, name);
        let at = self.made.len();
        let shape = shape(self, &name);
        self.made.insert(at, Named { name: name.clone(), about: about(schema), shape });
        Type::Named(name)
    }
}

fn about(schema: &Map<String, Value>) -> Option<String> {
    schema.get("description").and_then(Value::as_str).map(str::to_owned)
}

/// A description as lines of a comment, each with its mark.
fn comment(about: Option<&str>, mark: &str) -> String {
    let lines = about.into_iter().flat_map(str::lines).map(|line| {
        let line: String = line.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        format!("{mark} {line}").trim_end().to_owned() + "\n"
    });
    lines.collect()
}
