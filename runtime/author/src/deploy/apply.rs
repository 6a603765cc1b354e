//! `metahook apply` on a cluster: namespaces, definitions, modules, other objects, controllers; then a server has to take them up.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use metahook_core::bundle::{self, Bundle, ModulePlace, ModuleUser};
use metahook_core::object::id::{Key, ObjectId};
use serde_json::{Value, json};

use super::packed::apply_packed;
use super::ready::{AppliedController, parents_among};
use super::{DeployError, Deployment, FIELD_MANAGER, config_map, parsed};
use crate::pack::{Packed, optimize, pack, pack_script};
use metahook_server::cluster::config_maps::read_config_map;
use metahook_server::cluster::definitions::wait_until_established;

impl Deployment {
    /// `files`: of the modules. Remarks go to `say`.
    pub async fn apply(
        &self,
        bundle: &Bundle,
        files: &BTreeMap<ModulePlace, PathBuf>,
        say: &mut impl Write,
    ) -> Result<(), DeployError> {
        let pack = |(place, path): (_, &PathBuf)| {
            let _step = self.progress.step(format!("packing {}", path.display()));
            Ok((place, packed(place, path)?))
        };
        let packed: BTreeMap<_, _> = files.iter().map(pack).collect::<Result<_, DeployError>>()?;
        self.find_kinds(bundle).await?;
        let needed = bundle.modules(&self.namespace);
        for (place, users) in &needed {
            if !packed.contains_key(place) {
                self.find_module(place, users, say).await?;
            }
        }
        for object in &bundle.namespaces {
            self.apply_one(object, bundle, say).await?;
        }
        for definition in &bundle.definitions {
            let (id, _) = self.apply_one(definition, bundle, say).await?;
            let _step = self.progress.step(format!("waiting until {id} is served"));
            wait_until_established(&self.api, &id.key.name).await?;
        }
        for (place, module) in &packed {
            self.apply_module(place, module, bundle, say).await?;
        }
        let mut others = Vec::new();
        for object in &bundle.others {
            let (id, stored) = self.apply_one(object, bundle, say).await?;
            others.push((id.clone(), parsed(&id, &stored)?));
        }
        let mut applied = Vec::new();
        for (kind, controller) in &bundle.controllers {
            let (id, stored) = self.apply_one(controller, bundle, say).await?;
            let mut modules = BTreeMap::new();
            for (place, module) in &packed {
                let users = needed.get(place).into_iter().flatten();
                let own = users.filter(|(of, name, _)| of == kind && *name == *id.key.name);
                let hooks = own.filter_map(|(.., hook)| *hook);
                modules.extend(
                    hooks.map(|hook| (hook.as_str().to_owned(), format!("sha256:{}", module.sha256))),
                );
            }
            let parents = parents_among(&others, *kind, &parsed(&id, &stored)?);
            applied.push(AppliedController { id, modules, parents });
        }
        self.wait_until_ready(&applied, say).await
    }

    /// Nothing is written where a kind is neither served nor among the definitions.
    async fn find_kinds(&self, bundle: &Bundle) -> Result<(), DeployError> {
        let objects = bundle.others.iter().chain(bundle.controllers.iter().map(|(_, controller)| controller));
        let mut seen = BTreeSet::new();
        for object in objects {
            let kind = bundle::gvk(object);
            if !bundle.defines(&kind) && seen.insert(kind) {
                self.place(object, bundle).await?;
            }
        }
        Ok(())
    }

    /// Where the object is, and as the API server has it.
    async fn apply_one(
        &self,
        object: &Value,
        bundle: &Bundle,
        say: &mut impl Write,
    ) -> Result<(ObjectId, Value), DeployError> {
        let (id, body) = self.place(object, bundle).await?;
        let stored = self.api.apply(&id, &body, FIELD_MANAGER).await?;
        writeln!(say, "{id} applied")?;
        Ok((id, stored))
    }

    /// A module without a file has to be in the cluster.
    async fn find_module(
        &self,
        place: &ModulePlace,
        users: &[ModuleUser],
        say: &mut impl Write,
    ) -> Result<(), DeployError> {
        config_map(place)?;
        let key = Key::new(&place.namespace, &place.name);
        if read_config_map(&self.api, &key).await?.is_some() {
            return Ok(writeln!(say, "ConfigMap {key} stays as it is: no file is named for its module")?);
        }
        let user = users.first().map(|(kind, name, _)| format!("{} {name}", kind.as_str()));
        let (user, map) = (user.unwrap_or_default(), key.to_string());
        Err(match place.language {
            None => DeployError::NoModule { user, map },
            Some(_) => DeployError::NoScript { user, map, key: place.key.clone() },
        })
    }

    async fn apply_module(
        &self,
        place: &ModulePlace,
        module: &Packed,
        bundle: &Bundle,
        say: &mut impl Write,
    ) -> Result<(), DeployError> {
        self.make_namespace(&place.namespace, bundle, say).await?;
        let what = if place.language.is_some() { "script" } else { "module" };
        writeln!(say, "{what} of {} bytes, sha256:{}", module.size, module.sha256)?;
        Ok(apply_packed(&self.api, module, &config_map(place)?, say).await?)
    }

    /// Makes the namespace of a module where it is missing.
    async fn make_namespace(
        &self,
        name: &str,
        bundle: &Bundle,
        say: &mut impl Write,
    ) -> Result<(), DeployError> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let (id, body) = self.place(&namespace, bundle).await?;
        // Who may not read it may write into it all the same.
        if !matches!(self.api.read_as::<Value>(&id).await, Ok(None)) {
            return Ok(());
        }
        self.api.apply::<Value>(&id, &body, FIELD_MANAGER).await?;
        Ok(writeln!(say, "{id} created")?)
    }
}

/// A module as `metahook pack` makes it, a script as it is.
fn packed(place: &ModulePlace, path: &Path) -> Result<Packed, DeployError> {
    let is_script = place.language.is_some();
    let place = config_map(place)?;
    let refused = |source| DeployError::Pack { path: path.to_owned(), source };
    let module =
        std::fs::read(path).map_err(|source| DeployError::ReadModule { path: path.to_owned(), source })?;
    if is_script {
        return pack_script(&module, &place).map_err(refused);
    }
    let (small, _) = optimize(Path::new("wasm-opt"), &module).map_err(refused)?;
    pack(&small, &place).map_err(refused)
}

#[cfg(test)]
mod tests {
    use metahook_core::api::hook::Language;

    use super::*;

    #[test]
    fn a_module_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wasm");
        let place = ModulePlace { namespace: "n".into(), name: "m".into(), key: "k".into(), language: None };
        assert!(matches!(packed(&place, &path), Err(DeployError::ReadModule { .. })));
        std::fs::write(&path, "text").unwrap();
        assert!(matches!(packed(&place, &path), Err(DeployError::Pack { .. })));
        let script = ModulePlace { language: Some(Language::Python), ..place.clone() };
        assert_eq!(packed(&script, &path).unwrap().main["data"]["k"], "text");
        let odd = ModulePlace { name: "M".into(), ..place };
        assert!(packed(&odd, &path).unwrap_err().is_input());
    }
}
