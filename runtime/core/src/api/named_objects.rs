//! ConfigMaps and Secrets that the spec of a controller names: modules, mounts, certificates and credentials.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::common::Hooks;
use crate::api::hook::{HookSpec, Script, Shadow, Wasm, Ways};
use crate::api::mount::Mount;
use crate::api::webhook::EndpointConfig;

/// Names of ConfigMaps and Secrets in one namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Objects {
    pub(super) config_maps: BTreeSet<String>,
    pub(super) secrets: BTreeSet<String>,
}

/// All entries of `endpoints`, whether a webhook uses them or not: a change of a URL needs no other role.
pub(super) fn objects(endpoints: &[EndpointConfig], hooks: Option<&Hooks>) -> BTreeMap<String, Objects> {
    let mut all: BTreeMap<String, Objects> = BTreeMap::new();
    let hooks =
        hooks.into_iter().flat_map(|hooks| [&hooks.sync, &hooks.finalize, &hooks.customize]).flatten();
    let shadows = hooks.clone().filter_map(|hook| hook.shadow.as_ref()).map(Shadow::ways);
    let (mut webhooks, mut stored) = (Vec::new(), Vec::new());
    for Ways { webhook, wasm, script } in hooks.map(HookSpec::ways).chain(shadows) {
        webhooks.extend(webhook);
        stored.extend(wasm.map(of_wasm));
        stored.extend(script.map(of_script));
    }
    let webhooks = webhooks.into_iter();
    for trust in webhooks.map(|webhook| &webhook.trust).chain(endpoints.iter().map(|one| &one.trust)) {
        let bundle = trust.ca_bundle.as_ref();
        if let Some(map) = bundle.and_then(|bundle| bundle.config_map_ref.as_ref()) {
            all.entry(map.namespace.clone()).or_default().config_maps.insert(map.name.clone());
        }
        let secrets = [
            bundle.and_then(|bundle| bundle.secret_ref.as_ref()).map(|one| (&one.namespace, &one.name)),
            trust.client_tls.as_ref().map(|one| (&one.secret_ref.namespace, &one.secret_ref.name)),
            trust.authorization.as_ref().map(|one| (&one.secret_ref.namespace, &one.secret_ref.name)),
            trust.basic_auth.as_ref().map(|one| (&one.secret_ref.namespace, &one.secret_ref.name)),
        ];
        for (namespace, name) in secrets.into_iter().flatten() {
            all.entry(namespace.clone()).or_default().secrets.insert(name.clone());
        }
    }
    for (namespace, name, mounts) in stored {
        all.entry(namespace.clone()).or_default().config_maps.insert(name.clone());
        for mount in mounts.iter().flatten() {
            if let Some(map) = &mount.config_map {
                all.entry(map.namespace.clone()).or_default().config_maps.insert(map.name.clone());
            }
            if let Some(secret) = &mount.secret {
                all.entry(secret.namespace.clone()).or_default().secrets.insert(secret.name.clone());
            }
        }
    }
    all
}

/// Namespace and name of a ConfigMap that holds a module or a script, and what that may read.
type Stored<'a> = (&'a String, &'a String, &'a Option<Vec<Mount>>);

fn of_wasm(wasm: &Wasm) -> Stored<'_> {
    (&wasm.config_map.namespace, &wasm.config_map.name, &wasm.mounts)
}

fn of_script(script: &Script) -> Stored<'_> {
    (&script.config_map.namespace, &script.config_map.name, &script.mounts)
}
