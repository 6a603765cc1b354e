//! Hooks as a cluster stores them: the modules and scripts that controllers name, and the objects that are mounted.

use k8s_openapi::api::core::v1::ConfigMap;
use metahook_core::api::mount::MountRef;
use metahook_core::api::packed::{Index, IndexError, PART_KEY, index_key};
use metahook_core::bundle::ModulePlace;
use metahook_core::object::id::Key;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::config_maps::read_config_map;
use metahook_server::cluster::objects::RequestError;
use metahook_server::hook::wasm::compile::{Digest, ModuleBounds};
use metahook_server::hook::wasm::run::MountedFolder;
use metahook_server::hook::wasm::source::mounted_files;
use metahook_server::hook::wasm::source::unpack::unpack;

/// Content of a ConfigMap under the key of a hook.
pub(crate) enum StoredHook {
    /// The index of a packed module, as JSON.
    Packed(String),
    Whole(Vec<u8>),
}

#[derive(Debug, thiserror::Error)]
pub enum StoredHookError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(
        "the ConfigMap {map} holds no {key}: name the hook's file with --module, or write it with `metahook apply`"
    )]
    NoHook { map: String, key: String },
    #[error("the index in the ConfigMap {map}")]
    Index { map: String, source: IndexError },
    #[error("the ConfigMap {map} names the part {part}, which is not there: pack the module again")]
    NoPart { map: String, part: String },
    #[error("the parts of the ConfigMap {map} make another module than its index says: pack it again")]
    OtherModule { map: String },
    #[error(
        "spec.hooks: the mount {path} is the {object}, which is not there: make it, or name a folder with --mount {path}=FOLDER"
    )]
    NoMount { path: String, object: String },
}

impl StoredHook {
    /// `None`: the ConfigMap holds no such key.
    pub(crate) async fn read(api: &ApiClient, place: &ModulePlace) -> Result<Option<Self>, RequestError> {
        let map = read_config_map(api, &Key::new(&place.namespace, &place.name)).await?.unwrap_or_default();
        let mut text = map.data.clone().unwrap_or_default();
        if let Some(index) = text.remove(&index_key(&place.key)) {
            return Ok(Some(Self::Packed(index)));
        }
        Ok(bytes_of(map, &place.key).map(Self::Whole))
    }
}

/// The value of a key, which is bytes or text.
fn bytes_of(map: ConfigMap, key: &str) -> Option<Vec<u8>> {
    let binary = map.binary_data.and_then(|mut all| all.remove(key)).map(|bytes| bytes.0);
    binary.or_else(|| map.data.and_then(|mut all| all.remove(key)).map(String::into_bytes))
}

/// The bytes of a module or a script as they are stored at a place; those of parts put together.
pub(crate) async fn stored_bytes(api: &ApiClient, place: &ModulePlace) -> Result<Vec<u8>, StoredHookError> {
    let map = format!("{}/{}", place.namespace, place.name);
    let index = match StoredHook::read(api, place).await? {
        None => return Err(StoredHookError::NoHook { map, key: place.key.clone() }),
        Some(StoredHook::Whole(bytes)) => return Ok(bytes),
        Some(StoredHook::Packed(index)) => index,
    };
    let bounds = ModuleBounds::default();
    let index = match Index::parse(&index, bounds.size) {
        Ok(index) => index,
        Err(source) => return Err(StoredHookError::Index { map, source }),
    };
    let mut packed = Vec::new();
    for part in &index.parts {
        let held = read_config_map(api, &Key::new(&place.namespace, part)).await?;
        match held.and_then(|held| bytes_of(held, PART_KEY)) {
            Some(bytes) => packed.extend(bytes),
            None => return Err(StoredHookError::NoPart { map, part: part.clone() }),
        }
    }
    let bytes = unpack(packed, &bounds).ok().filter(|bytes| Digest::of(bytes).hex() == index.sha256);
    bytes.ok_or(StoredHookError::OtherModule { map })
}

/// The files of a mount.
pub(crate) async fn mounted(api: &ApiClient, mount: &MountRef) -> Result<MountedFolder, StoredHookError> {
    let files = mounted_files(api, mount).await?.ok_or_else(|| StoredHookError::NoMount {
        path: mount.path.clone(),
        object: format!("{:?} {}/{}", mount.kind, mount.namespace, mount.name),
    })?;
    Ok(MountedFolder { path: mount.path.clone(), files: files.into() })
}
