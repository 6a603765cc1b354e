//! Types in Go: structs with tags of encoding/json.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use super::names::{pascal, unique};
use super::{Field, Kind, Named, Shape, Type, comment};

const METADATA: &str = r#"
// ObjectMeta is the part of an object's metadata that hooks ask for.
type ObjectMeta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	CreationTimestamp string            `json:"creationTimestamp,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
}
"#;

pub(super) fn print(kinds: &[Kind<'_>]) -> Result<String, fmt::Error> {
    let mut text = format!("// Made by `metahook types`; changes will be lost.\n\npackage main\n{METADATA}");
    let mut names: BTreeSet<_> = kinds.iter().map(|kind| kind.name.clone()).collect();
    names.extend(kinds.iter().flat_map(|kind| &kind.types).map(|one| one.name.clone()));
    for Kind { gvk, name, fields, about, types } in kinds {
        let says = format!("{name} is the {} of {}.", gvk.kind, gvk.api_version());
        write!(text, "\n{}", comment(Some(&says), "//"))?;
        if about.is_some() {
            write!(text, "//\n{}", comment(about.as_deref(), "//"))?;
        }
        writeln!(text, "type {name} struct {{")?;
        text.push_str("\tAPIVersion string `json:\"apiVersion\"`\n\tKind string `json:\"kind\"`\n");
        text.push_str("\tMetadata ObjectMeta `json:\"metadata\"`\n");
        let mut taken = BTreeSet::from(["APIVersion".to_owned(), "Kind".to_owned(), "Metadata".to_owned()]);
        // Without pointers: what is absent is empty.
        for one in fields {
            field(&mut text, &mut taken, one, false)?;
        }
        text.push_str("}\n");
        for one in types {
            named(&mut text, &mut names, one)?;
        }
    }
    Ok(text)
}

fn named(
    text: &mut String,
    names: &mut BTreeSet<String>,
    Named { name, about, shape }: &Named,
) -> fmt::Result {
    write!(text, "\n{}", comment(about.as_deref(), "//"))?;
    match shape {
        Shape::Struct(fields) => {
            let mut taken = BTreeSet::new();
            writeln!(text, "type {name} struct {{")?;
            for one in fields {
                field(text, &mut taken, one, one.optional)?;
            }
            text.push_str("}\n");
        }
        Shape::Enum(values) => {
            writeln!(text, "type {name} string\n\nconst (")?;
            for value in values {
                let constant = unique(names, &format!("{name}{}", pascal(value)));
                writeln!(text, "\t{constant} {name} = {}", quoted(value))?;
            }
            text.push_str(")\n");
        }
    }
    Ok(())
}

fn field(text: &mut String, taken: &mut BTreeSet<String>, field: &Field, optional: bool) -> fmt::Result {
    text.push_str(&comment(field.about.as_deref(), "\t//"));
    let is_fine = |one: char| one.is_alphanumeric() || "!#$%&()*+-./:;<=>?@[]^_{|}~ ".contains(one);
    if field.key.is_empty() || field.key == "-" || !field.key.chars().all(is_fine) {
        writeln!(text, "\t// encoding/json has no tag for the field {}", quoted(&field.key))?;
        return Ok(());
    }
    let name = unique(taken, &pascal(&field.key));
    let of = of(&field.of);
    let needs_pointer = !matches!(field.of, Type::List(_) | Type::Map(_) | Type::Any | Type::TextOrNumber);
    let pointer = if optional && needs_pointer { "*" } else { "" };
    let omit = if field.optional { ",omitempty" } else { "" };
    writeln!(text, "\t{name} {pointer}{of} `json:\"{}{omit}\"`", field.key)?;
    Ok(())
}

fn of(one: &Type) -> String {
    match one {
        Type::Bool => "bool".to_owned(),
        Type::Integer => "int64".to_owned(),
        Type::Integer32 => "int32".to_owned(),
        Type::Number => "float64".to_owned(),
        Type::Text => "string".to_owned(),
        Type::TextOrNumber | Type::Any => "any".to_owned(),
        Type::Named(name) => name.clone(),
        Type::List(items) => format!("[]{}", of(items)),
        Type::Map(values) => format!("map[string]{}", of(values)),
    }
}

/// Go reads JSON's escapes as JSON does.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
