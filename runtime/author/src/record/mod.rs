//! `metahook record`: live parents become cases of `metahook test`, with the objects that their hook is shown.

pub(crate) mod folder;
pub mod reconciles;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use metahook_core::api::hook::HookName;
use metahook_core::api::mount::is_file_name;
use metahook_core::object::id::{Gvr, Key};
use metahook_core::recording::secret_values::{SecretValues, TooManyValues};
use metahook_server::cluster::dry_run::DefinitionsError;
use serde_json::{Map, Value};

use crate::cases;
use crate::deploy::written_by_authors;
use crate::diff::Differ;
use crate::render::RenderedReconcile;
use crate::stored_hooks::{StoredHookError, stored_bytes};
use crate::yaml;
use folder::Folder;

/// Parents that one command records at most.
pub const MAX_PARENTS: usize = 100;

/// Bytes of the values of Secrets that are looked for in all cases.
const MAX_SECRET_BYTES: usize = 16 << 20;

/// Files beside the cases that no hook's key may name.
const OWN_NAMES: [&str; 3] = ["controller.yaml", "crd.yaml", "tests"];

/// Checks that a hook's key can be the name of a file in a recording or among cases, where some names have their own meaning.
pub(crate) fn check_key(key: &str) -> Result<(), RecordError> {
    let is_taken = OWN_NAMES.contains(&key) || cases::is_case_file(key);
    if is_taken || !is_file_name(key) { Err(RecordError::Name(key.to_owned())) } else { Ok(()) }
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{found} parents are selected, and {MAX_PARENTS} can be recorded at once: name some of them")]
    TooMany { found: usize },
    #[error(
        "there is no parent to record: see which ones the controller selects, and whether --namespace has any"
    )]
    NoParent,
    #[error("no parent can be recorded. The first: {0}")]
    NotCalled(String),
    #[error("{}: it is there already: remove it, or record into another folder", .0.display())]
    Exists(PathBuf),
    #[error("{0:?} cannot be the name of a file in the recording")]
    Name(String),
    #[error(
        "two hooks of the controller have the key {0:?} in two ConfigMaps, and a recording has one file of this name: name the file of one by --module"
    )]
    SameKey(String),
    #[error("{} cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Secrets(#[from] TooManyValues),
    #[error(transparent)]
    Definitions(#[from] DefinitionsError),
    #[error(transparent)]
    Stored(#[from] StoredHookError),
}

/// A live parent as a case.
#[derive(Debug, PartialEq)]
struct LiveCase {
    /// Its folder below `tests`.
    place: Vec<String>,
    parent: Value,
    observed: Vec<Value>,
}

/// The parents that are recorded, and the folder that they are recorded into.
pub struct Recording<'a> {
    pub differ: &'a Differ,
    /// The folder of the controller: cases are in `tests` below it.
    pub folder: &'a Path,
    pub with_secrets: bool,
}

impl Recording<'_> {
    /// Writes all cases, and what they need beside them. `wrote`: the files so far, also where an error ends it. Gives back remarks.
    ///
    /// # Errors
    /// No hook is called, or a file cannot be written.
    pub async fn write(&self, wrote: &mut Vec<PathBuf>) -> Result<Vec<String>, RecordError> {
        match self.differ.parents() {
            0 => return Err(RecordError::NoParent),
            found if found > MAX_PARENTS => return Err(RecordError::TooMany { found }),
            _ => {}
        }
        let (mut cases, mut remarks) = (Vec::new(), Vec::new());
        let each = |one: &RenderedReconcile| -> Result<(), RecordError> {
            match self.case_of(one) {
                Ok(case) => cases.push(case),
                Err(why) => remarks.push(format!("{}: it is not recorded: {why}", one.parent)),
            }
            Ok(())
        };
        self.differ.run(each).await?;
        if cases.is_empty() {
            return Err(RecordError::NotCalled(remarks.into_iter().next().unwrap_or_default()));
        }
        let mut controller = written_by_authors(&self.differ.document.value);
        // A case of a paused controller would call no hook.
        if let Some(spec) = controller.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("paused");
        }
        if !self.with_secrets {
            let mut values = SecretValues::within(MAX_SECRET_BYTES);
            for object in cases.iter().flat_map(LiveCase::objects) {
                values.add(object);
            }
            let replacer = values.replacer()?;
            for object in cases.iter_mut().flat_map(LiveCase::objects_mut) {
                replacer.replace(object);
            }
            replacer.replace(&mut controller);
        }
        let places: BTreeSet<_> = cases.iter().map(|case| &case.place).collect();
        let taken = places.into_iter().find_map(|place| folder::case_folder(self.folder, place).transpose());
        if let Some(taken) = taken.transpose()? {
            return Err(RecordError::Exists(taken));
        }
        // All is read before the first file is written.
        let (definitions, hooks) = (self.definitions().await?, self.hooks().await?);
        let mut folder = Folder { root: self.folder, is_private: self.with_secrets, wrote };
        for case in &cases {
            folder.write_case(case)?;
        }
        folder.write_new("controller.yaml", yaml::print(&controller).as_bytes())?;
        if !definitions.is_empty() {
            folder.write_new("crd.yaml", definitions.as_bytes())?;
        }
        for (key, bytes) in hooks {
            folder.write_new(&key, &bytes)?;
        }
        Ok(remarks)
    }

    /// The definitions of all kinds that the controller deals with.
    async fn definitions(&self) -> Result<String, RecordError> {
        let kinds = self.differ.kinds();
        let mut definitions = self.differ.api().definitions().await?;
        definitions.retain(|one| kinds.iter().any(|kind| defines(one, kind)));
        let printed: Vec<_> = definitions.iter().map(|one| yaml::print(&written_by_authors(one))).collect();
        Ok(printed.join("---\n"))
    }

    /// The modules and scripts that the cluster stores, each under its key.
    async fn hooks(&self) -> Result<BTreeMap<String, Vec<u8>>, RecordError> {
        let mut by_key = BTreeMap::new();
        for place in &self.differ.stored {
            check_key(&place.key)?;
            let bytes = stored_bytes(self.differ.api(), place).await?;
            if by_key.insert(place.key.clone(), bytes).is_some() {
                return Err(RecordError::SameKey(place.key.clone()));
            }
        }
        Ok(by_key)
    }

    /// The case about a parent: the objects of the request about its present state; or why there is none.
    fn case_of(&self, one: &RenderedReconcile) -> Result<LiveCase, String> {
        let calls = || one.calls.iter();
        let call = calls().find(|call| call.hook != HookName::Customize).or_else(|| calls().next());
        let Some(call) = call else {
            let error = one.error.as_ref().map(|error| error.failure().message);
            let why = error.or_else(|| one.notes.first().cloned());
            return Err(why.unwrap_or_else(|| "its hook is not called now".to_owned()));
        };
        let request = serde_json::from_slice(&call.request).map_err(|error| error.to_string())?;
        let (parent, mut observed) = objects_of(request);
        let seen: BTreeSet<_> = observed.iter().chain([&parent]).map(uid).collect();
        let unseen = self.unseen_by_hooks(one, &observed).into_iter();
        observed.extend(unseen.filter(|object| !seen.contains(&uid(object))));
        let several = (self.differ.parent_kinds() > 1).then(|| one.parent.resource.plural.to_string());
        let Key { namespace, name } = &one.parent.key;
        let place = several.into_iter().chain([namespace.to_string(), name.to_string()]);
        let place = place.filter(|part| !part.is_empty()).collect();
        Ok(LiveCase { place, parent: kept(parent), observed: observed.into_iter().map(kept).collect() })
    }

    /// Objects that no request has, and that a reconcile needs: the parent's revisions, and the namespaces that a rule selects by.
    fn unseen_by_hooks(&self, one: &RenderedReconcile, observed: &[Value]) -> Vec<Value> {
        let namespaces: BTreeSet<_> =
            observed.iter().filter_map(|object| object.pointer("/metadata/namespace")?.as_str()).collect();
        let mut all = self.differ.revisions_of(&one.parent);
        all.extend(namespaces.into_iter().filter_map(|name| self.differ.known_namespace(name)));
        all.iter().filter_map(|object| object.value().ok()).collect()
    }
}

impl LiveCase {
    fn objects(&self) -> impl Iterator<Item = &Value> {
        self.observed.iter().chain([&self.parent])
    }

    fn objects_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.observed.iter_mut().chain([&mut self.parent])
    }
}

/// The parent of a request, and all other objects in it, each once.
fn objects_of(mut request: Value) -> (Value, Vec<Value>) {
    let mut take = |name: &str| request.as_object_mut().and_then(|fields| fields.remove(name));
    let parent = take("parent").or_else(|| take("object")).unwrap_or_default();
    let mut seen: BTreeSet<_> = [uid(&parent)].into();
    let groups = ["children", "attachments", "related"].into_iter().filter_map(take).filter_map(as_object);
    let groups: Vec<_> = groups.flat_map(Map::into_iter).collect();
    let objects = groups.into_iter().filter_map(|(_, group)| as_object(group)).flat_map(Map::into_iter);
    let observed = objects.map(|(_, object)| object).filter(|object| seen.insert(uid(object))).collect();
    (parent, observed)
}

fn uid(object: &Value) -> Option<String> {
    object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned)
}

fn as_object(value: Value) -> Option<Map<String, Value>> {
    if let Value::Object(fields) = value { Some(fields) } else { None }
}

/// The object as a file keeps it.
fn kept(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// Whether a CustomResourceDefinition is that of a kind.
fn defines(definition: &Value, kind: &Gvr) -> bool {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    (text("/spec/group"), text("/spec/names/plural")) == (&*kind.group, &*kind.resource)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_case_has_each_object_of_a_request_once() {
        let object = |name: &str| json!({ "kind": "ConfigMap", "metadata": { "name": name, "uid": name } });
        let request = json!({
            "controller": object("c"), "parent": object("p"), "finalizing": false,
            "children": { "ConfigMap.v1": { "a": object("a") }, "Pod.v1": {} },
            "related": { "ConfigMap.v1": { "a": object("a"), "n/b": object("b"), "p": object("p") } },
        });
        let (parent, observed) = objects_of(request);
        assert_eq!((parent, observed), (object("p"), vec![object("a"), object("b")]));
        let (parent, observed) = objects_of(json!({ "object": object("p"), "attachments": {} }));
        assert_eq!((parent, observed.len()), (object("p"), 0));
    }
}
