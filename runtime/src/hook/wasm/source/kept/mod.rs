//! Kept versions of modules and scripts: written once to ConfigMaps in the server's namespace, read where the stored one is refused.

mod keeper;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use metahook_core::api::hook::ModuleRef;
use metahook_core::api::kept::{
    ACCEPTED, BYTES, BYTES_KEY, DIGEST, KEPT_LABEL, KeptBounds, KeptPart, KeptVersion, PART, PART_BYTES,
    SOURCE_LABEL, STORED_IN, WRITTEN_BY, last_writer, parse_part, part_name, shown_manager, source_id,
    surplus, versions,
};
use metahook_core::object::id::{Key, Uid};
use metahook_core::object::{ObjectMeta as Controller, Version};
use serde_json::json;
use tokio::sync::Mutex;

use crate::cluster::api_client::ApiClient;
use crate::cluster::config_maps::{
    change_config_map, create_config_map, delete_config_map, labelled_metadata, named_metadata,
    read_config_map,
};
use crate::cluster::objects::RequestError;

pub(super) use keeper::Keeper;

/// Halves of a version that are older are written by nobody any more.
const WRITING_TIME: Duration = Duration::from_mins(10);

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
struct Accepted {
    /// 64 hexadecimal digits.
    digest: String,
    /// None where the version is kept already, and gets other owners alone.
    stored: Vec<u8>,
    owners: BTreeSet<Owner>,
    at: String,
    /// The version of the ConfigMap that the spec names.
    read: Option<Version>,
}

/// A kept version.
pub struct Kept {
    pub version: KeptVersion,
    /// The namespace of its ConfigMaps.
    pub namespace: String,
    /// The uids of its controllers.
    pub owners: Vec<String>,
}

impl Accepted {
    fn now(digest: String, stored: Vec<u8>, owners: BTreeSet<Owner>, read: Option<Version>) -> Self {
        Self { digest, stored, owners, at: stamp(Timestamp::now()), read }
    }
}

/// Versions may follow each other within a second. Stamps sort as their times do.
fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
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

    #[cfg(test)]
    pub(super) fn named(name: &str, uid: &str) -> Self {
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
            "metadata": { "name": name, "uid": uid },
        });
        Self::of(&metahook_core::object::Object::parse(&controller.to_string(), None).unwrap())
    }

    /// Joins the others, in the place of a controller of its name that is gone; `false` where it is known.
    pub(super) fn joins(self, all: &mut BTreeSet<Self>) -> bool {
        all.retain(|one| one.uid == self.uid || one.name != self.name || one.kind != self.kind);
        all.insert(self)
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

    /// Waits until this server writes.
    async fn leads(&self) {
        self.api.gate().opened().await;
    }

    /// Whether a version of so many bytes may be kept.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        self.bounds.versions > 0 && u64::try_from(bytes).is_ok_and(|bytes| bytes <= self.bounds.bytes)
    }

    /// Writes a version where it is not there yet, and deletes what is too many then. `false`: it is not whole afterwards, as another
    /// server took parts of it for halves that nobody writes.
    async fn keep(&self, module: &ModuleRef, accepted: &Accepted) -> Result<bool, RequestError> {
        let _one = self.writing.lock().await;
        let (source, Accepted { digest, stored, at, .. }) = (id(module), accepted);
        let known = labelled_metadata(&self.api, self.namespace(), KEPT_LABEL).await?;
        let parts: Vec<_> = known.iter().filter_map(part).collect();
        let of_module = versions(parts.iter().filter(|part| part.source == source).cloned());
        let is_back = of_module.first().is_some_and(|newest| newest.digest != *digest);
        let found = of_module.iter().find(|version| version.digest == *digest);
        if stored.is_empty() {
            return match found {
                Some(version) => self.accept_again(version, &known, &accepted.owners, None).await,
                None => Ok(true),
            };
        }
        let by = if is_back || found.is_none() { self.last_writer(module, accepted).await } else { None };
        let again = is_back.then_some((&**at, by.as_deref()));
        // It may have been stored in another packing then.
        let is_kept = match found {
            Some(version) => self.accept_again(version, &known, &accepted.owners, again).await?,
            None => false,
        };
        if !is_kept {
            let halves = parts.iter().filter(|part| part.source == source && part.digest == *digest);
            self.write(module, accepted, by.as_deref(), halves).await?;
        }
        // Other owners change neither versions nor their order.
        let parts = if is_kept && !is_back {
            parts
        } else {
            let known = labelled_metadata(&self.api, self.namespace(), KEPT_LABEL).await?;
            known.iter().filter_map(part).collect()
        };
        let young = stamp(Timestamp::now() - WRITING_TIME);
        for name in surplus(&parts, self.bounds, (&source, digest), &young) {
            delete_config_map(&self.api, &Key::new(self.namespace(), &name)).await?;
        }
        let is_it = |version: &KeptVersion| version.source == source && version.digest == *digest;
        Ok(versions(parts).iter().any(is_it))
    }

    /// The field manager that wrote the module; `None` where it is unknown, as the ConfigMap is another one by now. Nothing waits for it.
    async fn last_writer(&self, module: &ModuleRef, accepted: &Accepted) -> Option<String> {
        let read = accepted.read.as_ref()?;
        let reader = module.reader.as_ref();
        let api = reader.map_or_else(|| self.api.clone(), |reader| self.api.acting_as(reader));
        let map = named_metadata(&api, &Key::new(&module.namespace, &module.name)).await.ok()??;
        let is_it = map.resource_version.as_deref() == Some(read.as_str());
        last_writer(&json!(map.managed_fields), &module.key).filter(|_| is_it)
    }

    /// Writes the parts of a version, in the place of halves of another packing. `by`: the field manager that wrote it.
    async fn write<'a>(
        &self,
        module: &ModuleRef,
        accepted: &Accepted,
        by: Option<&str>,
        halves: impl Iterator<Item = &'a KeptPart>,
    ) -> Result<(), RequestError> {
        let (source, Accepted { digest, stored, .. }) = (id(module), accepted);
        let count = stored.len().div_ceil(PART_BYTES);
        let size = |number: usize| stored.chunks(PART_BYTES).nth(number - 1).map(|bytes| bytes.len() as u64);
        for half in halves.filter(|half| half.count != count || size(half.number) != Some(half.bytes)) {
            delete_config_map(&self.api, &Key::new(self.namespace(), &half.name)).await?;
        }
        for (number, bytes) in (1..).zip(stored.chunks(PART_BYTES)) {
            let map = ConfigMap {
                immutable: Some(true),
                binary_data: Some(BTreeMap::from([(BYTES_KEY.to_owned(), ByteString(bytes.to_vec()))])),
                data: None,
                metadata: self.metadata(module, accepted, (number, count), bytes.len(), by),
            };
            let name = part_name(&source, digest, number);
            create_config_map(&self.api, &Key::new(self.namespace(), &name), &map).await?;
        }
        Ok(())
    }

    fn metadata(
        &self,
        module: &ModuleRef,
        Accepted { digest, owners, at, .. }: &Accepted,
        (number, count): (usize, usize),
        bytes: usize,
        by: Option<&str>,
    ) -> ObjectMeta {
        let source = id(module);
        let [label, value] = KEPT_LABEL;
        let annotations = [
            (DIGEST, &**digest),
            (ACCEPTED, at),
            (PART, &format!("{number}/{count}")),
            (BYTES, &bytes.to_string()),
            (STORED_IN, &format!("{}/{} {}", module.namespace, module.name, module.key)),
        ];
        ObjectMeta {
            name: Some(part_name(&source, digest, number)),
            namespace: Some(self.namespace().to_owned()),
            labels: Some([(label, value), (SOURCE_LABEL, &source)].map(text).into()),
            annotations: Some(
                annotations.into_iter().chain(by.map(|by| (WRITTEN_BY, by))).map(text).collect(),
            ),
            owner_references: Some(owners.iter().map(Owner::reference).collect()),
            ..ObjectMeta::default()
        }
    }

    /// Has all controllers own the parts of a version; `false` where one is gone meanwhile. `again`: when it took the place of a newer
    /// one, and which field manager had it do so.
    async fn accept_again(
        &self,
        version: &KeptVersion,
        known: &[ObjectMeta],
        owners: &BTreeSet<Owner>,
        again: Option<(&str, Option<&str>)>,
    ) -> Result<bool, RequestError> {
        for map in
            known.iter().filter(|map| map.name.as_ref().is_some_and(|name| version.parts.contains(name)))
        {
            let known = map.owner_references.clone().unwrap_or_default();
            let is_known = |owner: &&Owner| known.iter().any(|one| one.uid == owner.uid.as_str());
            let missing: Vec<_> =
                owners.iter().filter(|owner| !is_known(owner)).map(Owner::reference).collect();
            if missing.is_empty() && again.is_none() {
                continue;
            }
            let all: Vec<_> = known.into_iter().chain(missing).collect();
            let mut metadata = json!({ "resourceVersion": map.resource_version, "ownerReferences": all });
            if let (Some((at, by)), Some(metadata)) = (again, metadata.as_object_mut()) {
                metadata.insert("annotations".to_owned(), json!({ ACCEPTED: at, WRITTEN_BY: by }));
            }
            let key = Key::new(self.namespace(), map.name.as_deref().unwrap_or_default());
            if !change_config_map(&self.api, &key, &json!({ "metadata": metadata })).await? {
                return Ok(false);
            }
        }
        Ok(true)
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

/// The namespaces where versions of a module are kept.
///
/// # Errors
/// ConfigMaps of all namespaces cannot be listed.
pub async fn kept_namespaces(api: &ApiClient, source: &str) -> Result<BTreeSet<String>, RequestError> {
    let maps = labelled_metadata(api, "", [SOURCE_LABEL, source]).await?;
    Ok(maps.into_iter().filter_map(|map| map.namespace).collect())
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

/// The part that a ConfigMap holds, by its metadata; `None`: nothing that a server wrote.
fn part(map: &ObjectMeta) -> Option<KeptPart> {
    let annotations = map.annotations.as_ref()?;
    let (number, count) = parse_part(annotations.get(PART)?)?;
    let accepted: Timestamp = annotations.get(ACCEPTED)?.parse().ok()?;
    Some(KeptPart {
        name: map.name.clone()?,
        source: map.labels.as_ref()?.get(SOURCE_LABEL)?.clone(),
        digest: annotations.get(DIGEST).filter(|digest| is_digest(digest))?.clone(),
        accepted: stamp(accepted),
        number,
        count,
        bytes: annotations.get(BYTES)?.parse().ok()?,
        written_by: annotations.get(WRITTEN_BY).and_then(|by| shown_manager(by)),
    })
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
