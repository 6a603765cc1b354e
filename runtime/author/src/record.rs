//! `metahook record`: live parents become cases of `metahook test`, with the objects that their hook is shown.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use metahook_core::api::hook::HookName;
use metahook_core::bundle::gvk;
use metahook_core::json::hidden::remove_records;
use metahook_core::object::id::Gvk;
use metahook_server::cluster::dry_run::DefinitionsError;
use serde_json::{Map, Value};

use crate::cases::run::run;
use crate::cases::{FindError, find};
use crate::deploy::written_by_authors;
use crate::diff::Differ;
use crate::documents::{Document, of_cluster};
use crate::render::Reconciled;
use crate::stored_hooks::{StoredHookError, stored_bytes};
use crate::yaml;

/// Stands for each value of a Secret, and in base64.
const REPLACED: &str = "replaced";
const REPLACED_DATA: &str = "cmVwbGFjZWQ=";

/// Parents of one recording.
pub const MAX_PARENTS: usize = 100;

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{found} parents are selected, and {MAX_PARENTS} can be recorded at once: name some of them")]
    TooMany { found: usize },
    #[error("the controller selects no parent")]
    NoParent,
    #[error("{}: the case is there already: remove the folder, or record into another one", .0.display())]
    Exists(PathBuf),
    #[error("{parent}: its hook is not called: {why}")]
    NotCalled { parent: String, why: String },
    #[error("{} cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Definitions(#[from] DefinitionsError),
    #[error(transparent)]
    Stored(#[from] StoredHookError),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("{0}")]
    Case(String),
}

/// A live parent as a case.
#[derive(Debug, PartialEq)]
struct LiveCase {
    folder: String,
    parent: Value,
    observed: Vec<Value>,
}

/// Parents that are recorded, and where.
pub struct Recording<'a> {
    pub differ: &'a Differ,
    /// The folder of the controller: cases are in `tests` below it.
    pub folder: &'a Path,
    pub with_secrets: bool,
}

impl Recording<'_> {
    /// Writes all cases, and what they need beside them; gives back the files.
    ///
    /// # Errors
    /// Files that were written stay.
    pub async fn write(&self) -> Result<Vec<PathBuf>, RecordError> {
        match self.differ.parents() {
            0 => return Err(RecordError::NoParent),
            found if found > MAX_PARENTS => return Err(RecordError::TooMany { found }),
            _ => {}
        }
        let mut all = Vec::new();
        self.differ.run(|one| case_of(one, self.with_secrets).map(|case| all.push(case))).await?;
        let tests = self.folder.join("tests");
        if let Some(taken) = all.iter().map(|case| tests.join(&case.folder)).find(|folder| folder.exists()) {
            return Err(RecordError::Exists(taken));
        }
        let (mut files, shared) = self.shared(&all).await?;
        for case in &all {
            let folder = tests.join(&case.folder);
            write(&mut files, folder.join("parent.yaml"), yaml::print(&case.parent).as_bytes())?;
            let observed = case.observed.iter().map(yaml::print).collect::<Vec<_>>().join("---\n");
            if !observed.is_empty() {
                write(&mut files, folder.join("observed.yaml"), observed.as_bytes())?;
            }
            for found in find(&folder)? {
                let outcome = run(&found, &shared, &self.differ.options).await;
                if let Some(error) = outcome.errors.first().filter(|_| outcome.compared.is_empty()) {
                    return Err(RecordError::Case(error.clone()));
                }
                for compared in &outcome.compared {
                    write(&mut files, compared.file.clone(), compared.content().as_bytes())?;
                }
            }
        }
        Ok(files)
    }

    /// Writes the controller, the definitions and the hooks that the cases need, where the folder has none of this name. Gives back
    /// the files, and the documents that all cases share.
    async fn shared(&self, all: &[LiveCase]) -> Result<(Vec<PathBuf>, Vec<Document>), RecordError> {
        let kinds: BTreeSet<Gvk> =
            all.iter().flat_map(|case| case.observed.iter().chain([&case.parent])).map(gvk).collect();
        let api = self.differ.api();
        let mut definitions = api.definitions().await?;
        definitions.retain(|one| kinds.iter().any(|kind| defines(one, kind)));
        let controller = &self.differ.document.value;
        let mut files = Vec::new();
        let printed = yaml::print(&written_by_authors(controller));
        write_new(&mut files, self.folder.join("controller.yaml"), printed.as_bytes())?;
        let printed: Vec<_> = definitions.iter().map(|one| yaml::print(&written_by_authors(one))).collect();
        if !printed.is_empty() {
            write_new(&mut files, self.folder.join("crd.yaml"), printed.join("---\n").as_bytes())?;
        }
        for place in &self.differ.stored {
            let path = self.folder.join(&place.key);
            if !path.exists() {
                write(&mut files, path, &stored_bytes(api, place).await?)?;
            }
        }
        let documents = definitions.into_iter().chain([controller.clone()]).collect();
        Ok((files, of_cluster(documents)))
    }
}

fn write_new(files: &mut Vec<PathBuf>, path: PathBuf, bytes: &[u8]) -> Result<(), RecordError> {
    if path.exists() { Ok(()) } else { write(files, path, bytes) }
}

fn write(files: &mut Vec<PathBuf>, path: PathBuf, bytes: &[u8]) -> Result<(), RecordError> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    match folder.and_then(|()| fs::write(&path, bytes)) {
        Ok(()) => {
            files.push(path);
            Ok(())
        }
        Err(source) => Err(RecordError::Write { path, source }),
    }
}

/// Whether a CustomResourceDefinition is that of a kind.
fn defines(definition: &Value, kind: &Gvk) -> bool {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    (text("/spec/group"), text("/spec/names/kind")) == (&*kind.group, &*kind.kind)
}

/// The case about a parent: the objects of the request about its present state.
fn case_of(one: &Reconciled, with_secrets: bool) -> Result<LiveCase, RecordError> {
    let call = one.calls.iter().find(|call| call.hook != HookName::Customize);
    let not_called =
        |why: &str| RecordError::NotCalled { parent: one.parent.to_string(), why: why.to_owned() };
    let Some(call) = call else {
        let error = one.error.as_ref().map(|error| error.failure().message);
        let why = error.as_deref().or(one.notes.first().map(String::as_str));
        return Err(not_called(why.unwrap_or("something else is written first, see `metahook diff`")));
    };
    let mut request: Value =
        serde_json::from_slice(&call.request).map_err(|error| not_called(&error.to_string()))?;
    let mut take =
        |names: [&str; 2]| names.into_iter().find_map(|name| request.as_object_mut()?.remove(name));
    let parent = take(["parent", "object"]).unwrap_or_default();
    let groups = [take(["children", "attachments"]), take(["related", ""])];
    let groups = groups.into_iter().flatten().filter_map(as_object).flat_map(Map::into_iter);
    let observed = groups.filter_map(|(_, group)| as_object(group)).flat_map(Map::into_iter);
    let kept = |object: Value| kept(object, with_secrets);
    let mut seen = BTreeSet::new();
    let is_new = |object: &Value| seen.insert(object.pointer("/metadata/uid").map(ToString::to_string));
    let observed = observed.map(|(_, object)| object).filter(is_new).map(kept).collect();
    let key = &one.parent.key;
    let folder = if key.namespace.is_empty() {
        key.name.to_string()
    } else {
        format!("{}-{}", key.namespace, key.name)
    };
    Ok(LiveCase { folder, parent: kept(parent), observed })
}

fn as_object(value: Value) -> Option<Map<String, Value>> {
    if let Value::Object(fields) = value { Some(fields) } else { None }
}

/// The object as a file keeps it. Values of a Secret are replaced, and so are the annotations that repeat them.
fn kept(mut object: Value, with_secrets: bool) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let is_secret =
        (object.get("kind"), object.get("apiVersion")) == (Some(&"Secret".into()), Some(&"v1".into()));
    if is_secret && !with_secrets {
        remove_records(&mut object);
        for (field, value) in [("data", REPLACED_DATA), ("stringData", REPLACED)] {
            for held in
                object.get_mut(field).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
            {
                *held = value.into();
            }
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_a_secret_are_replaced_unless_they_are_asked_for() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "managedFields": [], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"k\":\"dmFsdWU=\"}}",
            } },
            "data": { "k": "dmFsdWU=" },
        });
        let found = kept(secret.clone(), false);
        assert_eq!(found["data"], json!({ "k": "cmVwbGFjZWQ=" }));
        assert!(!found.to_string().contains("dmFsdWU="), "{found}");
        assert!(kept(secret, true).to_string().contains("dmFsdWU="));
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": { "k": "v" } });
        assert_eq!(kept(map.clone(), false), map);
    }
}
