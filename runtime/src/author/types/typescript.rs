//! Types in TypeScript: interfaces, and unions of texts.

use std::fmt::{self, Write};

use super::{Field, Kind, Named, Shape, Type, comment};

const METADATA: &str = "
/** The part of an object's metadata that hooks ask for. */
export interface ObjectMeta {
  name: string;
  namespace?: string;
  uid?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  finalizers?: string[];
}
";

pub(super) fn print(kinds: &[Kind<'_>]) -> Result<String, fmt::Error> {
    let mut text = format!("// Made by `metahook types`; changes will be lost.\n{METADATA}");
    for Kind { gvk, name, fields, about, types } in kinds {
        writeln!(text, "\n{}export interface {name} {{", remark(about.as_deref(), ""))?;
        writeln!(text, "  apiVersion: {};", quoted(&gvk.api_version()))?;
        writeln!(text, "  kind: {};\n  metadata: ObjectMeta;", quoted(&gvk.kind))?;
        for one in fields {
            field(&mut text, one)?;
        }
        text.push_str("}\n");
        for one in types {
            named(&mut text, one)?;
        }
    }
    Ok(text)
}

fn named(text: &mut String, Named { name, about, shape }: &Named) -> fmt::Result {
    write!(text, "\n{}", remark(about.as_deref(), ""))?;
    match shape {
        Shape::Struct(fields) => {
            writeln!(text, "export interface {name} {{")?;
            for one in fields {
                field(text, one)?;
            }
            text.push_str("}\n");
        }
        Shape::Enum(values) => {
            let values: Vec<_> = values.iter().map(|value| quoted(value)).collect();
            writeln!(text, "export type {name} = {};", values.join(" | "))?;
        }
    }
    Ok(())
}

fn field(text: &mut String, Field { key, about, optional, of: of_field }: &Field) -> fmt::Result {
    text.push_str(&remark(about.as_deref(), "  "));
    let is_name = |key: &str| {
        key.chars().all(|one| one.is_ascii_alphanumeric() || one == '_' || one == '$')
            && key.chars().next().is_some_and(|first| !first.is_ascii_digit())
    };
    let name = if is_name(key) { key.clone() } else { quoted(key) };
    let (mark, null) = if *optional { ("?", " | null") } else { ("", "") };
    writeln!(text, "  {name}{mark}: {}{null};", of(of_field))?;
    Ok(())
}

fn remark(about: Option<&str>, indent: &str) -> String {
    let lines = comment(about, &format!("{indent} *")).replace("*/", "* /");
    if lines.is_empty() { lines } else { format!("{indent}/**\n{lines}{indent} */\n") }
}

fn of(one: &Type) -> String {
    match one {
        Type::Bool => "boolean".to_owned(),
        Type::Integer | Type::Integer32 | Type::Number => "number".to_owned(),
        Type::Text => "string".to_owned(),
        Type::TextOrNumber => "number | string".to_owned(),
        Type::Any => "unknown".to_owned(),
        Type::Named(name) => name.clone(),
        Type::List(items) if matches!(**items, Type::TextOrNumber) => format!("({})[]", of(items)),
        Type::List(items) => format!("{}[]", of(items)),
        Type::Map(values) => format!("Record<string, {}>", of(values)),
    }
}

/// TypeScript reads JSON's escapes as JSON does.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
