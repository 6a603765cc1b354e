//! `CustomResourceDefinition`s in manifests/crds, made from the Rust types of metahook-core: `crds` writes them,
//! `crds --check` compares them.

#![allow(clippy::print_stdout, reason = "commands print")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use binaries::exit_code;
use metahook_core::api::composite::{CompositeControllerSpec, ControllerRevision};
use metahook_core::api::decorator::DecoratorControllerSpec;
use metahook_core::api::status::ControllerStatus;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

const GROUP: &str = "metacontroller.k8s.io";

fn main() -> ExitCode {
    exit_code(run(env::args().skip(1).any(|argument| argument == "--check")))
}

/// Writes the files, or with `check` only compares them.
fn run(check: bool) -> Result<()> {
    let folder = binaries::paths::workspace().join("manifests/crds");
    let mut stale = Vec::new();
    for crd in all()? {
        let name = crd["spec"]["names"]["plural"].as_str().unwrap_or_default();
        let path = folder.join(format!("{name}.yaml"));
        let text = file(&crd);
        if check {
            if fs::read_to_string(&path).unwrap_or_default() != text {
                stale.push(path.display().to_string());
            }
        } else {
            write(&path, &text)?;
        }
    }
    if stale.is_empty() { Ok(()) } else { bail!("not current, run `cargo xtask crds`: {}", stale.join(", ")) }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

fn all() -> Result<Vec<Value>> {
    let columns = json!([
        column("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#, 0),
        column("Reason", "string", r#".status.conditions[?(@.type=="Ready")].reason"#, 0),
        column("Parents", "integer", ".status.parents", 0),
        column("Settled", "integer", ".status.settled", 0),
        column("Failing", "integer", ".status.failing", 0),
        column("Paused", "integer", ".status.paused", 0),
        column("Seen", "date", ".status.lastSeen", 0),
        column("Module", "string", ".status.hooks.sync.shortDigest", 0),
        column("Digest", "string", ".status.hooks.sync.digest", 1),
        column("Age", "date", ".metadata.creationTimestamp", 0),
    ]);
    let controller =
        |spec: Value| -> Result<Value> { Ok(json!({"spec": spec, "status": schema::<ControllerStatus>()?})) };
    let composite = Definition {
        kind: "CompositeController",
        plural: "compositecontrollers",
        short: &["cc", "cctl"],
        scope: "Cluster",
        required: &["metadata", "spec"],
        columns: columns.clone(),
    };
    let decorator = Definition {
        kind: "DecoratorController",
        plural: "decoratorcontrollers",
        short: &["dec", "decorators", "dc"],
        ..composite.clone()
    };
    let revision = Definition {
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        short: &[],
        scope: "Namespaced",
        required: &["metadata", "parentPatch"],
        columns: Value::Null,
    };
    let fields = schema::<ControllerRevision>()?["properties"].take();
    Ok(vec![
        composite.crd(controller(schema::<CompositeControllerSpec>()?)?),
        decorator.crd(controller(schema::<DecoratorControllerSpec>()?)?),
        revision.crd(fields),
    ])
}

#[derive(Clone)]
struct Definition {
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    scope: &'static str,
    required: &'static [&'static str],
    columns: Value,
}

impl Definition {
    fn crd(&self, mut properties: Value) -> Value {
        properties["apiVersion"] = json!({"type": "string"});
        properties["kind"] = json!({"type": "string"});
        properties["metadata"] = json!({"type": "object"});
        let mut version = json!({
            "name": "v1alpha1",
            "served": true,
            "storage": true,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "required": self.required, "properties": properties}},
        });
        if !self.columns.is_null() {
            version["additionalPrinterColumns"] = self.columns.clone();
        }
        let mut names = json!({
            "kind": self.kind,
            "listKind": format!("{}List", self.kind),
            "plural": self.plural,
            "singular": self.kind.to_lowercase(),
        });
        if !self.short.is_empty() {
            names["shortNames"] = json!(self.short);
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{GROUP}", self.plural),
                "annotations": {"api-approved.kubernetes.io": "unapproved, request not yet submitted"},
            },
            "spec": {"group": GROUP, "names": names, "scope": self.scope, "versions": [version]},
        })
    }
}

fn column(name: &str, kind: &str, path: &str, priority: i32) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "priority": priority})
}

fn schema<T: JsonSchema>() -> Result<Value> {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    make_structural(&mut schema)
        .context("the schema has a shape that no CustomResourceDefinition may have")?;
    Ok(schema)
}

/// Structural schemas know neither alternatives nor references, and nulls are pruned anyway.
fn make_structural(schema: &mut Value) -> Result<()> {
    let Value::Object(schema) = schema else {
        return Ok(());
    };
    for word in ["title", "nullable"] {
        schema.remove(word);
    }
    if schema.get("default").is_some_and(|default| !default.is_string()) {
        schema.remove("default");
    }
    // "Any members" prunes all that is within them; x-kubernetes-preserve-unknown-fields is what keeps it.
    if schema.get("additionalProperties") == Some(&json!(true)) {
        schema.remove("additionalProperties");
    }
    // The API server knows signed numbers alone, and warns of others; minimum and maximum stay.
    let signed = match schema.get("format").and_then(Value::as_str) {
        Some("int8" | "int16" | "uint8" | "uint16") => Some("int32"),
        Some("uint32" | "uint64" | "uint" | "int") => Some("int64"),
        _ => None,
    };
    if let Some(signed) = signed {
        schema.insert("format".to_owned(), json!(signed));
    }
    for word in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(choices)) = schema.remove(word) {
            join(schema, choices)?;
        }
    }
    if let Some(Value::Array(types)) = schema.get("type") {
        let named: Vec<_> = types.iter().filter(|kind| *kind != &json!("null")).cloned().collect();
        let [one] = named.as_slice() else { bail!("a field of several types: {types:?}") };
        let one = one.clone();
        schema.insert("type".to_owned(), one);
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    for member in ["items", "additionalProperties"] {
        schema.get_mut(member).map_or(Ok(()), make_structural)?;
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().try_for_each(make_structural)?;
    }
    Ok(())
}

/// `something or null` is something; `one of these words` is an enumeration.
fn join(schema: &mut Map<String, Value>, choices: Vec<Value>) -> Result<()> {
    let mut words = Vec::new();
    for choice in choices {
        let Value::Object(choice) = choice else { bail!("an alternative that is no object: {choice}") };
        match (choice.get("const"), choice.get("enum")) {
            (Some(word @ Value::String(_)), _) => words.push(word.clone()),
            (None, Some(Value::Array(several)))
                if several.iter().all(|word| word.is_string() || word.is_null()) =>
            {
                words.extend(several.iter().filter(|word| word.is_string()).cloned());
            }
            (None, None) if choice.get("type") == Some(&json!("null")) => {}
            (None, None) => {
                let described = schema.get("description").cloned();
                schema.extend(choice);
                if let Some(described) = described {
                    schema.insert("description".to_owned(), described);
                }
            }
            _ => bail!("an alternative that is neither a word nor null: {choice:?}"),
        }
    }
    if !words.is_empty() {
        schema.insert("type".to_owned(), json!("string"));
        schema.insert("enum".to_owned(), Value::Array(words));
    }
    // What came in by an alternative may have alternatives itself.
    for word in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(choices)) = schema.remove(word) {
            join(schema, choices)?;
        }
    }
    Ok(())
}

fn file(crd: &Value) -> String {
    let mut text =
        "# Made by `cargo xtask crds` from the types in runtime/core/src/api: do not edit.\n".to_owned();
    yaml(&mut text, crd, 0);
    text
}

/// Block style; every string in quotes, every key plain.
fn yaml(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (key, member) in members {
                let key = if key.chars().all(|c| c.is_ascii_alphanumeric() || "-./$_".contains(c)) {
                    key.clone()
                } else {
                    json!(key).to_string()
                };
                out.push_str(&" ".repeat(indent));
                out.push_str(&key);
                out.push(':');
                nested(out, member, indent + 2);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                out.push_str(&" ".repeat(indent));
                out.push('-');
                let mut inner = String::new();
                nested(&mut inner, item, indent + 2);
                // The first member of an item stands beside its dash.
                let beside = inner.strip_prefix('\n').map(|rest| format!(" {}", rest.trim_start()));
                out.push_str(&beside.unwrap_or(inner));
            }
        }
        scalar => {
            out.push_str(&" ".repeat(indent));
            out.push_str(&scalar.to_string());
            out.push('\n');
        }
    }
}

fn nested(out: &mut String, value: &Value, indent: usize) {
    let block = match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if block {
        out.push('\n');
        yaml(out, value, indent);
    } else {
        out.push(' ');
        out.push_str(&value.to_string());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_crds_in_manifests_are_current() {
        super::run(true).unwrap();
    }
}
