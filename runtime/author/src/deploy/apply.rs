//! `metahook apply` on a cluster: namespaces, definitions, modules, other objects, controllers; then a server has to take them up.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use metahook_core::bundle::{self, Bundle, ModulePlace, ModuleUser};
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::readiness::{Readiness, readiness};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::packed::apply_packed;
use super::{DeployError, Deployment, FIELD_MANAGER, LOOK_INTERVAL, MAX_STATUS_AGE, config_map};
use crate::pack::{Packed, optimize, pack, pack_script};
use metahook_server::cluster::config_maps::read_config_map;
use metahook_server::cluster::definitions::wait_until_established;

/// Digest of the module that is to be called, by controller and hook.
type Digests = BTreeMap<(ObjectId, String), String>;

/// A controller that is applied.
type Applied = (ObjectId, Value);

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
        for object in &bundle.others {
            self.apply_one(object, bundle, say).await?;
        }
        let (mut applied, mut digests) = (Vec::new(), Digests::new());
        for (kind, controller) in &bundle.controllers {
            let (id, stored) = self.apply_one(controller, bundle, say).await?;
            for (place, module) in &packed {
                let users = needed.get(place).into_iter().flatten();
                let own = users.filter(|(of, name, _)| of == kind && *name == *id.key.name);
                let hooks = own.filter_map(|(.., hook)| *hook);
                digests.extend(hooks.map(|hook| {
                    ((id.clone(), hook.as_str().to_owned()), format!("sha256:{}", module.sha256))
                }));
            }
            applied.push((id, stored));
        }
        self.wait_until_ready(&applied, &digests, say).await
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

    async fn apply_one(
        &self,
        object: &Value,
        bundle: &Bundle,
        say: &mut impl Write,
    ) -> Result<Applied, DeployError> {
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

    /// All controllers share the time.
    async fn wait_until_ready(
        &self,
        applied: &[Applied],
        digests: &Digests,
        say: &mut impl Write,
    ) -> Result<(), DeployError> {
        if self.timeout.is_zero() {
            return Ok(());
        }
        let start = Instant::now();
        for (id, _) in applied {
            let own = digests.iter().filter(|((of, _), _)| of == id);
            let modules = own.map(|((_, hook), digest)| (hook.clone(), digest.clone())).collect();
            let said = self.wait_for(id, &modules, start).await?;
            writeln!(say, "{id} {said}")?;
        }
        Ok(())
    }

    /// Waits until a controller is ready and was called, and returns what is said of it.
    async fn wait_for(
        &self,
        id: &ObjectId,
        modules: &BTreeMap<String, String>,
        start: Instant,
    ) -> Result<String, DeployError> {
        let mut waiting = self.progress.waiting();
        let mut fails_since = None;
        let object = || id.to_string();
        loop {
            let is_over = start.elapsed() >= self.timeout;
            let now = self.api.read_as(id).await?.map(|now| readiness(&now, modules));
            let now = now.unwrap_or_else(|| Readiness::Waits("another client deleted it".to_owned()));
            if !matches!(now, Readiness::Failing(_)) {
                fails_since = None;
            }
            let why = match now {
                Readiness::Ready => return Ok("is ready".to_owned()),
                Readiness::Paused => {
                    let name = &id.key.name;
                    return Ok(format!(
                        "is ready, and paused: nothing is written until `metahook resume controller {name}`"
                    ));
                }
                Readiness::NotCalled if is_over || start.elapsed() >= MAX_STATUS_AGE => {
                    return Ok("is ready; no parent has been reconciled with it yet".to_owned());
                }
                Readiness::NotCalled => "no parent has been reconciled with it yet".to_owned(),
                Readiness::Refused(why) => return Err(DeployError::Refused { object: object(), why }),
                Readiness::Failing(why) => {
                    let since: Instant = *fails_since.get_or_insert_with(Instant::now);
                    if is_over || since.elapsed() >= MAX_STATUS_AGE {
                        return Err(DeployError::Fails { object: object(), why });
                    }
                    why
                }
                Readiness::Waits(why) if is_over => {
                    return Err(DeployError::NotReady { object: object(), after: self.timeout, why });
                }
                Readiness::Waits(why) => why,
            };
            waiting.because(&format!("waiting for {id}: {why}"));
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
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
    use std::sync::Arc;
    use std::time::Duration;

    use http::Response;
    use metahook_core::api::hook::Language;
    use metahook_core::object::id::{Gvk, Resource};

    use super::*;
    use crate::progress::Progress;
    use crate::progress::tests::recorded;
    use metahook_server::cluster::fake;

    fn controller() -> ObjectId {
        let gvk = Gvk::new("metacontroller.k8s.io/v1alpha1", "CompositeController");
        let plural = "compositecontrollers".into();
        let resource = Resource { gvk, plural, namespaced: false, has_status: true };
        ObjectId { resource: Arc::new(resource), key: Key::new("", "c") }
    }

    fn deployment(status: &Value, timeout: u64) -> Deployment {
        let body = json!({ "metadata": { "name": "c", "generation": 1 }, "status": status }).to_string();
        let api = fake::answering(move |_| Some(Response::new(body.clone())));
        let (namespace, timeout) = ("n".to_owned(), Duration::from_secs(timeout));
        Deployment { api, namespace, timeout, progress: Progress::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_no_server_takes_up_is_waited_for_until_the_timeout() {
        let applied = [(controller(), Value::Null)];
        let mut said = Vec::new();
        let start = Instant::now();
        let (progress, told) = recorded();
        let waiting = Deployment { progress, ..deployment(&json!({}), 60) };
        let waits = waiting.wait_until_ready(&applied, &Digests::new(), &mut said).await;
        assert!(told().starts_with("metahook: waiting for CompositeController c: no server"), "{}", told());
        assert_eq!(told().lines().count(), 1, "{}", told());
        let error = waits.unwrap_err().to_string();
        assert!(
            error.starts_with("CompositeController c is not ready after 60 s: no server has said"),
            "{error}"
        );
        assert!(start.elapsed() >= Duration::from_mins(1) && said.is_empty());
        let start = Instant::now();
        deployment(&json!({}), 0).wait_until_ready(&applied, &Digests::new(), &mut said).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO, "no time to wait");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_calls_another_module_is_waited_for() {
        let ready = json!({
            "observedGeneration": 1,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "t" }],
            "hooks": { "sync": { "digest": "sha256:1" } },
        });
        let waits = async |digest: &str| {
            let digests = [((controller(), "sync".to_owned()), digest.to_owned())].into();
            let (applied, mut said) = ([(controller(), Value::Null)], Vec::new());
            let waits = deployment(&ready, 1).wait_until_ready(&applied, &digests, &mut said).await;
            waits.map_err(|error| error.to_string()).map(|()| String::from_utf8(said).unwrap())
        };
        assert_eq!(waits("sha256:1").await, Ok("CompositeController c is ready\n".to_owned()));
        assert!(waits("sha256:2").await.unwrap_err().contains("is to call sha256:2"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_decided_is_not_waited_for() {
        let waits = async |kind: &str, reason: &str, message: &str, status: Value| {
            let of = if status["failing"] == 1 || kind == "ModulesLoaded" { "False" } else { "True" };
            let condition = json!({ "type": kind, "status": of, "reason": reason, "message": message, "lastTransitionTime": "t" });
            let mut all = json!({ "observedGeneration": 1, "conditions": [condition], "parents": 1 });
            all.as_object_mut().unwrap().extend(status.as_object().cloned().unwrap());
            let digests = [((controller(), "sync".to_owned()), "sha256:2".to_owned())].into();
            let (applied, mut said, start) = ([(controller(), Value::Null)], Vec::new(), Instant::now());
            let waits = deployment(&all, 60).wait_until_ready(&applied, &digests, &mut said).await;
            let said = waits.map_or_else(|error| error.to_string(), |()| String::from_utf8(said).unwrap());
            (said, start.elapsed().as_secs())
        };
        let (said, after) = waits("ModulesLoaded", "ModuleInvalid", "l; refused: sha256:2", json!({})).await;
        assert!(said.contains("waiting does not help: ModulesLoaded is False (ModuleInvalid)"), "{said}");
        assert_eq!(after, 0);
        let hooks = |earlier: Value| json!({ "sync": { "digest": "sha256:2", "instructionsP50": 5, "earlier": earlier } });
        let failing = json!({ "failing": 1, "hooks": hooks(json!([])) });
        let (said, after) = waits("Ready", "AllParentsFailing", "boom", failing).await;
        assert_eq!((&*said, after), ("CompositeController c runs, and its parents fail: boom", 12));
        let (said, after) = waits("Ready", "Paused", "", json!({ "hooks": hooks(json!([])) })).await;
        assert!(
            said.ends_with("is ready, and paused: nothing is written until `metahook resume controller c`\n")
        );
        assert_eq!(after, 0);
        let uncalled = json!({ "hooks": { "sync": { "digest": "sha256:2" } } });
        let (said, after) = waits("Ready", "Running", "", uncalled).await;
        assert!(
            said.ends_with("is ready; no parent has been reconciled with it yet\n") && after == 12,
            "{said}"
        );
    }

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
