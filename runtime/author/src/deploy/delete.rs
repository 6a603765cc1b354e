//! `metahook delete` on a cluster: parents, controllers and what they leave, modules, other objects; definitions where asked.

use std::io::Write;

use k8s_openapi::api::core::v1::ConfigMap;
use metahook_core::api::ControllerKind;
use metahook_core::bundle::{self, Bundle, ModulePlace, modules_of};
use metahook_core::counted;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, ObjectId};
use serde_json::Value;
use tokio::time::Instant;

use super::packed::{self, parts};
use super::{DeployError, Deployment, LOOK_INTERVAL, config_map, parsed};
use metahook_server::cluster::config_maps::{delete_config_map, read_config_map};
use metahook_server::cluster::discovery::Discovery;
use metahook_server::cluster::objects::Precondition;
use metahook_server::controller::finalizer_cleanup::finalized;

impl Deployment {
    /// `definitions`: those of the bundle, and with them all objects of their kinds, go too. Remarks go to `say`.
    pub async fn delete(
        &self,
        bundle: &Bundle,
        definitions: bool,
        say: &mut impl Write,
    ) -> Result<(), DeployError> {
        let (parents, others) = self.split(bundle).await?;
        // Finalize hooks are called for as long as their controllers are there.
        for object in parents {
            self.delete_one(object, bundle, "its controller has not finalized it yet", say).await?;
        }
        for (kind, controller) in &bundle.controllers {
            self.delete_controller(*kind, controller, bundle, say).await?;
        }
        for object in others.into_iter().rev() {
            self.delete_one(object, bundle, "something holds it by a finalizer", say).await?;
        }
        for place in bundle.modules(&self.namespace).keys() {
            self.delete_module(place, say).await?;
        }
        for definition in bundle.definitions.iter().rev() {
            if definitions {
                self.delete_one(definition, bundle, "objects of its kind have finalizers", say).await?;
            } else {
                self.leave(definition, "--crds deletes it, and all objects of its kind", say).await?;
            }
        }
        for namespace in &bundle.namespaces {
            self.leave(namespace, "other objects may be in it", say).await?;
        }
        Ok(())
    }

    async fn leave(&self, object: &Value, why: &str, say: &mut impl Write) -> Result<(), DeployError> {
        let (id, _) = self.place(object, &Bundle::default()).await?;
        // Without the right to read it, it may be there.
        match self.api.read_as::<Value>(&id).await {
            Ok(None) => writeln!(say, "{id} is gone already")?,
            Ok(Some(_)) | Err(_) => writeln!(say, "{id} stays as it is: {why}")?,
        }
        Ok(())
    }

    /// The objects that the bundle's controllers reconcile, and the others.
    async fn split<'a>(&self, bundle: &'a Bundle) -> Result<(Vec<&'a Value>, Vec<&'a Value>), DeployError> {
        let discovery = Discovery::new(self.api.clone());
        let mut kinds = Vec::new();
        for parents in bundle.parents() {
            match discovery.resolve_any_version(&parents).await {
                Ok(resource) => kinds.push(resource.gvk.clone()),
                Err(error) if error.is_not_served() => {}
                Err(error) => {
                    return Err(DeployError::Kind { object: parents.to_string(), source: error.into() });
                }
            }
        }
        let is_parent = |object: &&Value| {
            let Gvk { group, kind, .. } = bundle::gvk(object);
            kinds.iter().any(|parents| parents.group == group && parents.kind == kind)
        };
        Ok(bundle.others.iter().partition(is_parent))
    }

    /// Waits until it is gone. `why`: the reason if it stays.
    async fn delete_one(
        &self,
        object: &Value,
        bundle: &Bundle,
        why: &str,
        say: &mut impl Write,
    ) -> Result<(), DeployError> {
        // Nothing is served of a kind that is gone, and the bundle's own definitions are not made here.
        let found = self.place(object, &Bundle::default()).await;
        let (id, _) = match found {
            Err(DeployError::Kind { .. }) if bundle.defines(&bundle::gvk(object)) => {
                let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                return Ok(writeln!(
                    say,
                    "{} {name} is gone already, with its kind",
                    bundle::gvk(object).kind
                )?);
            }
            found => found?,
        };
        self.delete_and_wait(&id, why, say).await.map(drop)
    }

    /// The object as it was; `None`: it was gone.
    async fn delete_and_wait(
        &self,
        id: &ObjectId,
        why: &str,
        say: &mut impl Write,
    ) -> Result<Option<Value>, DeployError> {
        let Some(seen) = self.api.read_as(id).await? else {
            writeln!(say, "{id} is gone already")?;
            return Ok(None);
        };
        self.api.delete(id, &Precondition::seen(&seen)).await?;
        let (start, mut waiting) = (Instant::now(), self.progress.waiting());
        let uid = seen.pointer("/metadata/uid");
        while !self.timeout.is_zero()
            && self.api.read_as::<Value>(id).await?.is_some_and(|now| now.pointer("/metadata/uid") == uid)
        {
            if start.elapsed() >= self.timeout {
                let (object, after) = (id.to_string(), self.timeout);
                return Err(DeployError::NotGone { object, after, why: why.to_owned() });
            }
            waiting.because(&format!("waiting until {id} is gone: {why}"));
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        writeln!(say, "{id} deleted")?;
        Ok(Some(seen))
    }

    /// Waits until its finalizers are off all parents: a server does that.
    async fn delete_controller(
        &self,
        kind: ControllerKind,
        controller: &Value,
        bundle: &Bundle,
        say: &mut impl Write,
    ) -> Result<(), DeployError> {
        let (id, _) = self.place(controller, bundle).await?;
        let Some(seen) = self.delete_and_wait(&id, "something holds it by a finalizer", say).await? else {
            return Ok(());
        };
        if self.timeout.is_zero() {
            return Ok(());
        }
        let seen = parsed(&id, &seen)?;
        let (start, mut waiting) = (Instant::now(), self.progress.waiting());
        loop {
            let left = finalized(&self.api, kind, &seen).await;
            let left = left.map_err(|error| DeployError::Finalizers(error.into()))?;
            let Some((first, _)) = left.first() else { return Ok(()) };
            let why = format!(
                "its finalizer is on {}, {first} among them; a server takes it off: see that one runs",
                counted(left.len(), "object", "objects")
            );
            waiting.because(&format!("waiting for what {id} leaves: {why}"));
            if start.elapsed() >= self.timeout {
                let (object, after) = (format!("what {id} leaves"), self.timeout);
                return Err(DeployError::NotGone { object, after, why });
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// A module that `apply` or `pack` wrote, and that no controller names any more.
    async fn delete_module(&self, place: &ModulePlace, say: &mut impl Write) -> Result<(), DeployError> {
        let key = Key::new(&place.namespace, &place.name);
        let Some(map) = read_config_map(&self.api, &key).await? else {
            return Ok(writeln!(say, "ConfigMap {key} is gone already")?);
        };
        if !is_packed(&map) {
            return Ok(writeln!(say, "ConfigMap {key} stays: another client wrote it")?);
        }
        if let Some(user) = self.user(place).await? {
            return Ok(writeln!(say, "ConfigMap {key} stays: {user} names it")?);
        }
        for part in parts(&map, &config_map(place)?) {
            delete_config_map(&self.api, &Key::new(&place.namespace, &part)).await?;
        }
        delete_config_map(&self.api, &key).await?;
        Ok(writeln!(say, "ConfigMap {key} deleted")?)
    }

    /// A controller that names the module's ConfigMap.
    async fn user(&self, place: &ModulePlace) -> Result<Option<String>, DeployError> {
        let discovery = Discovery::new(self.api.clone());
        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            let gvk = Gvk::new("metacontroller.k8s.io/v1alpha1", kind.as_str());
            let resource = match discovery.resolve_kind(&gvk).await {
                Err(error) if error.is_not_served() => continue,
                found => found.map_err(|error| DeployError::Kind {
                    object: kind.as_str().to_owned(),
                    source: error.into(),
                })?,
            };
            let names_it = |controller: &Object| {
                let value = controller.value().unwrap_or_default();
                let modules = modules_of(&value).into_iter();
                modules
                    .map(|(used, _)| used)
                    .any(|used| (used.namespace, used.name) == (place.namespace.clone(), place.name.clone()))
            };
            let all = self.api.list_objects(&resource).await?;
            if let Some(user) = all.iter().find(|one| names_it(one)) {
                return Ok(Some(format!("{} {}", kind.as_str(), user.key.name)));
            }
        }
        Ok(None)
    }
}

fn is_packed(map: &ConfigMap) -> bool {
    let managers = map.metadata.managed_fields.iter().flatten();
    managers.filter_map(|entry| entry.manager.as_deref()).any(|manager| manager == packed::FIELD_MANAGER)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::{Method, Response};
    use metahook_core::object::id::Resource;
    use serde_json::json;

    use super::*;
    use crate::progress::Progress;
    use metahook_server::cluster::fake;

    fn deployment(program: impl Fn(&Method) -> (u16, Value) + Send + Sync + 'static) -> Deployment {
        let api = fake::answering(move |request| {
            let (status, body) = program(request.method());
            Response::builder().status(status).body(body.to_string()).ok()
        });
        let (namespace, timeout) = ("n".to_owned(), Duration::from_secs(5));
        Deployment { api, namespace, timeout, progress: Progress::default() }
    }

    fn id() -> ObjectId {
        let gvk = Gvk::new("v1", "ConfigMap");
        let resource = Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: false };
        ObjectId { resource: Arc::new(resource), key: Key::new("n", "m") }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_stays_is_named_with_the_reason() {
        let stays = deployment(|_| (200, json!({ "metadata": { "uid": "u" } })));
        let error = stays.delete_and_wait(&id(), "it is held", &mut Vec::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "ConfigMap n/m is still there after 5 s: it is held");
        let gone = deployment(|_| (404, json!({})));
        let mut said = Vec::new();
        assert_eq!(gone.delete_and_wait(&id(), "", &mut said).await.unwrap(), None);
        assert_eq!(String::from_utf8(said).unwrap(), "ConfigMap n/m is gone already\n");
    }

    #[tokio::test]
    async fn a_missing_right_is_told_and_ends_the_command() {
        let refused = json!({ "kind": "Status", "message": "configmaps \"m\" is forbidden: no" });
        let forbidden = deployment(move |_| (403, refused.clone()));
        let mut said = Vec::new();
        let error = forbidden.delete_and_wait(&id(), "", &mut said).await.unwrap_err();
        let told = metahook_server::telemetry::error_chain(&error);
        assert!(told.starts_with("read ConfigMap n/m: configmaps \"m\" is forbidden: no"), "{told}");
        assert!(!error.is_input() && said.is_empty(), "{told}");
    }

    #[tokio::test]
    async fn a_module_of_another_client_stays() {
        let key = "hook.wasm".to_owned();
        let place = ModulePlace { namespace: "n".into(), name: "m".into(), key, language: None };
        let other = json!({ "metadata": { "name": "m", "managedFields": [{ "manager": "kubectl" }] } });
        let deployment = deployment(move |method| {
            assert_eq!(*method, Method::GET, "nothing is deleted");
            (200, other.clone())
        });
        let mut said = Vec::new();
        deployment.delete_module(&place, &mut said).await.unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), "ConfigMap n/m stays: another client wrote it\n");
    }
}
