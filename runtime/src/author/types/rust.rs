//! Types in Rust: structs with serde's derives, whose absent fields are defaults.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use super::names::{pascal, snake, unique};
use super::{Field, Kind, Named, Shape, Type, comment};

const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait",
    "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Keywords that cannot be written raw.
const NEVER_RAW: &[&str] = &["crate", "self", "super"];

pub(super) fn print(kinds: &[Kind<'_>]) -> Result<String, fmt::Error> {
    let mut body = String::new();
    for Kind { gvk, fields, types, .. } in kinds {
        let of = |key: &str| {
            fields
                .iter()
                .find(|field| field.key == key)
                .map_or_else(|| "IgnoredAny".to_owned(), |field| of(&field.of))
        };
        let (spec, status) = (of("spec"), of("status"));
        let says = format!("{} {}: metahook_sdk::Object<'_, {spec}, {status}>", gvk.api_version(), gvk.kind);
        write!(body, "\n{}", comment(Some(&says), "//"))?;
        for one in types {
            named(&mut body, one)?;
        }
    }
    let mut text = "// Made by `metahook types`; changes will be lost.\n\n".to_owned();
    text.push_str("#![allow(dead_code, reason = \"no hook reads all\")]\n\n");
    if body.contains("BTreeMap<") {
        text.push_str("use std::collections::BTreeMap;\n\n");
    }
    if body.contains("#[derive(") {
        text.push_str("use serde::{Deserialize, Serialize};\n");
    }
    text.push_str(&body);
    Ok(text)
}

fn named(text: &mut String, Named { name, about, shape }: &Named) -> fmt::Result {
    write!(text, "\n{}", comment(about.as_deref(), "///"))?;
    let mut taken = BTreeSet::new();
    match shape {
        Shape::Struct(fields) => {
            text.push_str(
                "#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]\n#[serde(default)]\n",
            );
            writeln!(text, "pub struct {name} {{")?;
            for one in fields {
                field(text, &mut taken, one)?;
            }
        }
        Shape::Enum(values) => {
            text.push_str("#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]\n");
            writeln!(text, "pub enum {name} {{\n    #[default]")?;
            for value in values {
                let variant = unique(&mut taken, &pascal(value));
                // `Self` is the only type's name that is a keyword.
                let variant = if variant == "Self" { unique(&mut taken, "Self_") } else { variant };
                if variant != *value {
                    writeln!(text, "    #[serde(rename = {value:?})]")?;
                }
                writeln!(text, "    {variant},")?;
            }
        }
    }
    text.push_str("}\n");
    Ok(())
}

fn field(
    text: &mut String,
    taken: &mut BTreeSet<String>,
    Field { key, about, optional, of: of_field }: &Field,
) -> fmt::Result {
    text.push_str(&comment(about.as_deref(), "    ///"));
    let plain = unique(taken, &snake(key));
    let name = match plain.as_str() {
        one if KEYWORDS.contains(&one) => format!("r#{one}"),
        one if NEVER_RAW.contains(&one) => unique(taken, &format!("{one}_")),
        _ => plain.clone(),
    };
    let mut serde = Vec::new();
    if name.trim_start_matches("r#") != key {
        serde.push(format!("rename = {key:?}"));
    }
    let of = of(of_field);
    let of = if *optional {
        serde.push("skip_serializing_if = \"Option::is_none\"".to_owned());
        format!("Option<{of}>")
    } else {
        of
    };
    if !serde.is_empty() {
        writeln!(text, "    #[serde({})]", serde.join(", "))?;
    }
    writeln!(text, "    pub {name}: {of},")?;
    Ok(())
}

fn of(one: &Type) -> String {
    match one {
        Type::Bool => "bool".to_owned(),
        Type::Integer => "i64".to_owned(),
        Type::Integer32 => "i32".to_owned(),
        Type::Number => "f64".to_owned(),
        Type::Text => "String".to_owned(),
        Type::TextOrNumber | Type::Any => "serde_json::Value".to_owned(),
        Type::Named(name) => name.clone(),
        Type::List(items) => format!("Vec<{}>", of(items)),
        Type::Map(values) => format!("BTreeMap<String, {}>", of(values)),
    }
}
