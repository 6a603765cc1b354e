//! Kept versions of modules and scripts: written once to ConfigMaps in the server's namespace, read where the stored one is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use metahook_core::api::hook::ModuleRef;
use metahook_core::api::kept::{
    ACCEPTED, BYTES, BYTES_KEY, DIGEST, KEPT_LABEL, KeptBounds, KeptPart, KeptVersion, PART, PART_BYTES,
    SOURCE_LABEL, STORED_IN, parse_part, part_name, source_id, surplus, versions,
};
use metahook_core::object::ObjectMeta as Controller;
use metahook_core::object::id::{Key, Uid};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::cluster::api_client::ApiClient;
use crate::cluster::config_maps::{
    change_config_map, create_config_map, delete_config_map, labelled_metadata, read_config_map,
};
use crate::cluster::objects::RequestError;
use crate::telemetry::error_chain;

/// A controller whose hook a module is. Kept versions go with the last of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    api_version: String,
    kind: Arc<str>,
    pub(super) name: Arc<str>,
    uid: Uid,
}

/// The versions that are kept of all modules.
pub(crate) struct KeptVersions {
    api: ApiClient,
    bounds: KeptBounds,
    /// One version is written at a time.
    writing: Mutex<()>,
}

/// A version that was loaded, as it is stored.
pub(super) struct Accepted {
    /// 64 hexadecimal digits.
    pub(super) digest: String,
    pub(super) stored: Vec<u8>,
}

/// A kept version.
pub struct Kept {
    pub version: KeptVersion,
    /// Of its ConfigMaps.
    pub namespace: String,
    /// The uids of its controllers.
    pub owners: Vec<String>,
}

impl Owner {
    pub(crate) fn of(controller: &Controller) -> Self {
        Self {
            api_version: controller.gvk.api_version(),
            kind: Arc::clone(&controller.gvk.kind),
            name: Arc::from(&*controller.key.name),
            uid: controller.uid.clone(),
        }
    }

    fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.clone(),
            kind: self.kind.to_string(),
            name: self.name.to_string(),
            uid: self.uid.to_string(),
            ..OwnerReference::default()
        }
    }
}

impl KeptVersions {
    pub(crate) fn new(api: ApiClient, bounds: KeptBounds) -> Self {
        Self { api, bounds, writing: Mutex::default() }
    }

    fn namespace(&self) -> &str {
        self.api.client.default_namespace()
    }

    /// The bytes of a kept version.
    pub(super) async fn read(&self, kept: &Kept) -> Result<Option<Vec<u8>>, RequestError> {
        kept.read(&self.api).await
    }

    /// This server writes now; one that stands by keeps a version once it leads.
    pub(super) fn leads(&self) -> bool {
        self.api.gate().is_open()
    }

    /// Whether a version of so many bytes may be kept.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        self.bounds.versions > 0 && u64::try_from(bytes).is_ok_and(|bytes| bytes <= self.bounds.bytes)
    }

    /// Keeps a version once this server leads, beside all else. What fails is told, and harms nothing else.
    pub(super) async fn keep(&self, module: &ModuleRef, owners: &BTreeSet<Owner>, accepted: Accepted) {
        self.api.gate().opened().await;
        let _one = self.writing.lock().await;
        if let Err(error) = self.write(module, owners, accepted).await {
            let module = format!("{}/{}", module.namespace, module.name);
            tracing::warn!(
                module,
                error = error_chain(&error),
                "a version of a module is not kept: if a later one is refused, a server that starts has none to go on with; let the server get, list, create, patch and delete ConfigMaps in its namespace"
            );
        }
    }

    async fn write(
        &self,
        module: &ModuleRef,
        owners: &BTreeSet<Owner>,
        Accepted { digest, stored }: Accepted,
    ) -> Result<(), RequestError> {
        let source = id(module);
        let [label, value] = KEPT_LABEL;
        let known = labelled_metadata(&self.api, self.namespace(), [label, value]).await?;
        let count = stored.len().div_ceil(PART_BYTES).max(1);
        let mut parts: Vec<_> = known.iter().filter_map(part).collect();
        let of_module = versions(parts.iter().filter(|part| part.source == source).cloned());
        let newest = of_module.first().map(|version| version.digest.clone());
        let newest = newest.as_deref();
        // Versions may follow each other within a second.
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        for (number, bytes) in (1..).zip(stored.chunks(PART_BYTES)) {
            let name = part_name(&source, &digest, number);
            if let Some(known) = known.iter().find(|map| map.name.as_deref() == Some(&name)) {
                let is_newest = newest.is_none_or(|newest| newest == digest);
                self.accept_again(known, owners, (!is_newest).then_some(&*now)).await?;
                continue;
            }
            let map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    namespace: Some(self.namespace().to_owned()),
                    labels: Some([(label, value), (SOURCE_LABEL, &source)].map(text).into()),
                    annotations: Some(
                        [
                            (DIGEST, &*digest),
                            (ACCEPTED, &*now),
                            (PART, &format!("{number}/{count}")),
                            (BYTES, &bytes.len().to_string()),
                            (STORED_IN, &format!("{}/{} {}", module.namespace, module.name, module.key)),
                        ]
                        .map(text)
                        .into(),
                    ),
                    owner_references: Some(owners.iter().map(Owner::reference).collect()),
                    ..ObjectMeta::default()
                },
                immutable: Some(true),
                binary_data: Some(BTreeMap::from([(BYTES_KEY.to_owned(), ByteString(bytes.to_vec()))])),
                data: None,
            };
            parts.extend(part(&map.metadata));
            create_config_map(&self.api, &Key::new(self.namespace(), &name), &map).await?;
        }
        for name in surplus(&parts, self.bounds, (&source, &digest)) {
            delete_config_map(&self.api, &Key::new(self.namespace(), &name)).await?;
        }
        Ok(())
    }

    /// Has all controllers own a part. `now`: the version takes the place of a newer one again.
    async fn accept_again(
        &self,
        map: &ObjectMeta,
        owners: &BTreeSet<Owner>,
        now: Option<&str>,
    ) -> Result<(), RequestError> {
        let known = map.owner_references.clone().unwrap_or_default();
        let is_known = |owner: &&Owner| known.iter().any(|one| one.uid == owner.uid.as_str());
        let missing: Vec<_> = owners.iter().filter(|owner| !is_known(owner)).map(Owner::reference).collect();
        let is_news = !missing.is_empty() || now.is_some();
        let Some(name) = map.name.as_ref().filter(|_| is_news) else { return Ok(()) };
        let all: Vec<_> = known.into_iter().chain(missing).collect();
        let mut patch = json!({ "metadata": {
            "resourceVersion": map.resource_version, "ownerReferences": all,
        } });
        if let (Some(now), Some(metadata)) = (now, patch.get_mut("metadata").and_then(Value::as_object_mut)) {
            metadata.insert("annotations".to_owned(), json!({ ACCEPTED: now }));
        }
        change_config_map(&self.api, &Key::new(self.namespace(), name), &patch).await
    }

    /// The versions that are kept of a module for one of these controllers, the newest first.
    pub(super) async fn of(
        &self,
        module: &ModuleRef,
        owners: &BTreeSet<Owner>,
    ) -> Result<Vec<Kept>, RequestError> {
        if self.bounds.versions == 0 {
            return Ok(Vec::new());
        }
        let mut all = kept_versions(&self.api, self.namespace(), &id(module)).await?;
        all.retain(|kept| kept.owners.iter().any(|uid| owners.iter().any(|owner| owner.uid.as_str() == uid)));
        Ok(all)
    }
}

fn id(module: &ModuleRef) -> String {
    source_id(module.language, [&module.namespace, &module.name, &module.key])
}

/// The versions that are kept of a module, the newest first. `namespace`: the server's.
///
/// # Errors
/// ConfigMaps cannot be listed.
pub async fn kept_versions(
    api: &ApiClient,
    namespace: &str,
    source: &str,
) -> Result<Vec<Kept>, RequestError> {
    let maps = labelled_metadata(api, namespace, [SOURCE_LABEL, source]).await?;
    let find = |name: &String| maps.iter().find(|map| map.name.as_ref() == Some(name));
    let kept = versions(maps.iter().filter_map(part)).into_iter().filter_map(|version| {
        let first = find(version.parts.first()?)?;
        let references = first.owner_references.iter().flatten();
        let owners = references.map(|reference| reference.uid.clone()).collect();
        Some(Kept { version, namespace: first.namespace.clone()?, owners })
    });
    Ok(kept.collect())
}

impl Kept {
    /// Reads the version, as it is stored; `None`: a part of it is gone.
    ///
    /// # Errors
    /// A ConfigMap cannot be read.
    pub async fn read(&self, api: &ApiClient) -> Result<Option<Vec<u8>>, RequestError> {
        let mut stored = Vec::new();
        for name in &self.version.parts {
            let map = read_config_map(api, &Key::new(&self.namespace, name)).await?;
            let Some(bytes) = map.and_then(|map| map.binary_data?.remove(BYTES_KEY)) else { return Ok(None) };
            stored.extend(bytes.0);
        }
        Ok(Some(stored))
    }
}

fn text((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// What the metadata of a ConfigMap say of the part that it holds; `None`: nothing that a server wrote.
fn part(map: &ObjectMeta) -> Option<KeptPart> {
    let annotations = map.annotations.as_ref()?;
    let (number, count) = parse_part(annotations.get(PART)?)?;
    Some(KeptPart {
        name: map.name.clone()?,
        source: map.labels.as_ref()?.get(SOURCE_LABEL)?.clone(),
        digest: annotations.get(DIGEST)?.clone(),
        accepted: annotations.get(ACCEPTED)?.clone(),
        number,
        count,
        bytes: annotations.get(BYTES)?.parse().ok()?,
    })
}
