//! Schemas of built-in kinds that authors' commands know: compared with what the API server publishes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use acceptance::fixture::Fixture;
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

/// Fields of a schema that commands read.
const READ: [&str; 7] = ["type", "properties", "items", "additionalProperties", "required", "enum", "$ref"];

/// Packages that types come from, the long and the short name.
const PACKAGES: [(&str, &str); 5] = [
    ("io.k8s.api.", ""),
    ("io.k8s.apimachinery.pkg.apis.", ""),
    ("io.k8s.apimachinery.pkg.", ""),
    ("io.k8s.kube-aggregator.pkg.apis.", ""),
    ("io.k8s.apiextensions-apiserver.pkg.apis.", ""),
];

/// With `BLESS=1` the file is written.
pub(crate) async fn the_schemas_of_built_in_kinds_are_those_of_the_api_server(
    test: &mut Fixture,
) -> Result<()> {
    let kubectl = test.plane().kubectl();
    let wanted: BTreeSet<_> =
        metahook_author::kinds::built_in_kinds().map(|(version, kind, ..)| (version, kind)).collect();
    let versions: BTreeSet<_> = wanted.iter().map(|(version, _)| version.as_str()).collect();
    let mut published = BTreeMap::new();
    for version in versions.iter().filter(|version| !version.starts_with("metacontroller.k8s.io/")) {
        let root = if version.contains('/') { "apis" } else { "api" };
        let all = kubectl.run(&["get", "--raw", &format!("/openapi/v3/{root}/{version}")]).await?;
        let mut all: Value = serde_json::from_str(&all)?;
        let schemas = all.pointer_mut("/components/schemas").map(Value::take).unwrap_or_default();
        for (name, schema) in schemas.as_object().into_iter().flatten() {
            published.insert(short(name), schema.clone());
        }
    }
    let lines = lines(&published, &wanted)?;
    let file = paths::workspace().join("runtime/author/src/schemas/built_in.jsonl");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, &lines)?;
    }
    let known = fs::read_to_string(&file)?;
    let differs = known.lines().zip(lines.lines()).find(|(known, published)| known != published);
    ensure!(known == lines, "{} is out of date, BLESS=1 writes it: {differs:?}", file.display());
    Ok(())
}

fn short(name: &str) -> String {
    let package = PACKAGES.iter().find_map(|(long, short)| Some((*short, name.strip_prefix(long)?)));
    package.map_or_else(|| name.to_owned(), |(short, rest)| format!("{short}{rest}"))
}

/// A line for each schema that a wanted kind leads to.
fn lines(published: &BTreeMap<String, Value>, wanted: &BTreeSet<(String, String)>) -> Result<String> {
    let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, schema) in published {
        let all = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
        for gvk in all.into_iter().flatten() {
            let text = |field: &str| gvk[field].as_str().unwrap_or_default();
            let version = match text("group") {
                "" => text("version").to_owned(),
                group => format!("{group}/{}", text("version")),
            };
            if wanted.contains(&(version.clone(), text("kind").to_owned())) {
                kinds.entry(name).or_default().push(format!("{version} {}", text("kind")));
            }
        }
    }
    let mut left: Vec<String> = kinds.keys().map(|name| (*name).to_owned()).collect();
    left.push("meta.v1.ObjectMeta".to_owned());
    let mut known: BTreeMap<String, Value> = BTreeMap::new();
    while let Some(name) = left.pop() {
        if let Entry::Vacant(new) = known.entry(name) {
            let schema =
                published.get(new.key()).with_context(|| format!("{} is not published", new.key()))?;
            new.insert(stripped(schema, &mut left));
        }
    }
    let mut text = String::new();
    for (name, schema) in known {
        let mut line = json!({ "name": name, "schema": schema });
        if let Some(kinds) = kinds.get(name.as_str()) {
            line["kinds"] = json!(kinds);
        }
        text += &line.to_string();
        text.push('\n');
    }
    Ok(text)
}

/// The part of a schema that is read; the names of others that it refers to are added to `seen`.
fn stripped(schema: &Value, seen: &mut Vec<String>) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    // A reference with a default is the only one of all.
    if let Some([only]) = fields.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        return stripped(only, seen);
    }
    if fields.contains_key("oneOf") || fields.get("format").is_some_and(|format| format == "int-or-string") {
        return json!({ "x-kubernetes-int-or-string": true });
    }
    let mut kept = Map::new();
    for (field, value) in fields.iter().filter(|(field, _)| READ.contains(&field.as_str())) {
        let value = match field.as_str() {
            "$ref" => {
                let name =
                    short(value.as_str().unwrap_or_default().trim_start_matches("#/components/schemas/"));
                seen.push(name.clone());
                json!(name)
            }
            "properties" => {
                let all = value.as_object().into_iter().flatten();
                all.map(|(name, below)| (name.clone(), stripped(below, seen))).collect::<Map<_, _>>().into()
            }
            "items" | "additionalProperties" => stripped(value, seen),
            _ => value.clone(),
        };
        kept.insert(field.clone(), value);
    }
    Value::Object(kept)
}
