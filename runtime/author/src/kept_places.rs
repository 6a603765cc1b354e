//! Kept versions of a controller's modules, read from the namespace of the server that keeps them.

use std::collections::{BTreeMap, BTreeSet};

use metahook_core::api::hook::HookName;
use metahook_core::api::kept::source_id;
use metahook_core::api::packed::Index;
use metahook_core::api::status::ControllerStatus;
use metahook_core::bundle::{ModulePlace, modules_of};
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::objects::RequestError;
use metahook_server::hook::wasm::compile::{Digest, ModuleBounds};
use metahook_server::hook::wasm::source::kept::{Kept, kept_namespaces, kept_versions};
use metahook_server::hook::wasm::source::unpack::unpack;
use serde_json::Value;

use crate::controllers::{self, plain};
use crate::stored_hooks::StoredHook;
use crate::version_figures::{VersionFigures, figures};

/// A place where a module is stored, the hooks that call it, and what is kept of it.
pub(crate) struct HookPlace {
    pub(crate) place: ModulePlace,
    pub(crate) hooks: Vec<HookName>,
    pub(crate) running: Option<String>,
    /// The digest of what is stored there now: it may be refused, so that another version runs.
    pub(crate) stored: Option<String>,
    /// By the field: what the hooks pin.
    pub(crate) pins: BTreeMap<String, String>,
    pub(crate) kept: Vec<Kept>,
    /// By digest.
    pub(crate) figures: BTreeMap<String, VersionFigures>,
}

/// The places of a controller's modules, and the hooks that call each.
pub(crate) struct KeptPlaces<'a> {
    api: &'a ApiClient,
    controller: &'a Value,
    status: ControllerStatus,
    hooks: BTreeMap<ModulePlace, Vec<HookName>>,
}

/// Which kept versions of a namespace count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    All,
    /// Versions that ran: tenants may write to the namespace, but not to the status of controllers.
    Ran,
}

impl<'a> KeptPlaces<'a> {
    pub(crate) fn of(api: &'a ApiClient, controller: &'a Value) -> Self {
        let mut hooks = BTreeMap::<ModulePlace, Vec<HookName>>::new();
        for (place, hook) in modules_of(controller) {
            hooks.entry(place).or_default().extend(hook);
        }
        hooks.retain(|_, hooks| !hooks.is_empty());
        Self { api, controller, status: controllers::status(controller), hooks }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// All places, with what is kept of each in a namespace.
    pub(crate) async fn kept_in(
        &self,
        namespace: &str,
        trust: Trust,
    ) -> Result<Vec<HookPlace>, RequestError> {
        let uid = self.controller.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let mut places = Vec::new();
        for (place, hooks) in self.hooks.clone() {
            let ran = ran(&self.status, &hooks);
            let mut kept = kept_versions(self.api, namespace, &source(&place)).await?;
            kept.retain(|kept| {
                let is_trusted = trust == Trust::All || ran.contains(&kept.version.digest);
                is_trusted && kept.owners.iter().any(|owner| owner == uid)
            });
            let digest = |hook: &HookName| self.status.hooks.get(hook.as_str())?.digest.clone();
            let running = hooks.iter().find_map(digest).map(|digest| plain(&digest));
            let figures = figures(&self.status, &hooks);
            let pins = hooks.iter().flat_map(|hook| pins(self.controller, *hook)).collect();
            // Who may not read it may still list what is kept.
            let stored = stored_digest(self.api, &place).await.unwrap_or_default();
            places.push(HookPlace { place, hooks, running, stored, pins, kept, figures });
        }
        Ok(places)
    }

    /// The namespaces besides this one where versions are kept; none where the user may not list ConfigMaps of all namespaces.
    pub(crate) async fn other_namespaces(&self, namespace: &str) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for place in self.hooks.keys() {
            all.extend(kept_namespaces(self.api, &source(place)).await.unwrap_or_default());
        }
        all.remove(namespace);
        all
    }
}

impl HookPlace {
    /// The version that is stored, where it is kept.
    pub(crate) fn left(&self) -> Option<&str> {
        let stored = self.stored.as_deref()?;
        self.kept.iter().map(|kept| &*kept.version.digest).find(|digest| *digest == stored)
    }

    pub(crate) fn names(&self) -> String {
        self.hooks.iter().map(|hook| hook.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Bounds under which everything that was stored can be read.
pub(crate) fn all_sizes() -> ModuleBounds {
    ModuleBounds { packed: u64::MAX, ..ModuleBounds::default() }
}

fn source(place: &ModulePlace) -> String {
    source_id(place.language, [&place.namespace, &place.name, &place.key])
}

/// The digests of the versions of these hooks that the status names.
fn ran(status: &ControllerStatus, hooks: &[HookName]) -> BTreeSet<String> {
    let statuses: Vec<_> = hooks.iter().filter_map(|hook| status.hooks.get(hook.as_str())).collect();
    let now = statuses.iter().filter_map(|hook| hook.digest.as_deref());
    let earlier = statuses.iter().flat_map(|hook| hook.earlier.iter().map(|one| &*one.digest));
    now.chain(earlier).map(plain).collect()
}

/// The digest that the hook pins, by the field.
fn pins(controller: &Value, hook: HookName) -> impl Iterator<Item = (String, String)> {
    ["wasm", "script"].into_iter().filter_map(move |kind| {
        let hook = hook.as_str();
        let pinned = controller.pointer(&format!("/spec/hooks/{hook}/{kind}/sha256"))?.as_str()?;
        Some((format!("spec.hooks.{hook}.{kind}.sha256"), plain(pinned)))
    })
}

/// The digest of what a ConfigMap holds now; `None` where that is no module.
async fn stored_digest(api: &ApiClient, place: &ModulePlace) -> Result<Option<String>, RequestError> {
    Ok(match StoredHook::read(api, place).await? {
        Some(StoredHook::Packed(index)) => Index::parse(&index, u64::MAX).ok().map(|index| index.sha256),
        Some(StoredHook::Whole(stored)) => {
            unpack(stored, &all_sizes()).ok().map(|bytes| Digest::of(&bytes).hex())
        }
        None => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_that_ran_are_those_of_the_status() {
        let status = json!({ "status": { "hooks": {
            "sync": { "digest": "sha256:aa", "earlier": [{ "digest": "sha256:bb" }] },
            "finalize": { "digest": "sha256:cc" },
        } } });
        let all = ran(&controllers::status(&status), &[HookName::Sync]);
        assert_eq!(all.into_iter().collect::<Vec<_>>(), ["aa", "bb"], "another hook's is none");
    }

    #[test]
    fn the_pins_of_a_hook_are_known_by_their_fields() {
        let controller = serde_json::json!({ "spec": { "hooks": {
            "sync": { "wasm": { "sha256": "sha256:cc1" } }, "finalize": { "script": {} },
        } } });
        let pinned: Vec<_> = pins(&controller, HookName::Sync).collect();
        assert_eq!(pinned, [("spec.hooks.sync.wasm.sha256".to_owned(), "cc1".to_owned())]);
        assert_eq!(pins(&controller, HookName::Finalize).count(), 0);
    }
}
