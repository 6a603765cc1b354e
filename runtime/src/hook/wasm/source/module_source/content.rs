//! Content of the ConfigMaps that a module is read from.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use metahook_core::api::packed::{Index, index_key};
use metahook_core::shorten;

use super::super::module_state::ModuleSourceError;
use crate::cluster::named_objects::{Reference, ReferenceKind};

/// The content of a ConfigMap under a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    Plain(Vec<u8>),
    Packed(Index),
}

pub(super) fn config_map(namespace: &str, name: &str) -> Arc<Reference> {
    Arc::new(Reference {
        kind: ReferenceKind::ConfigMap,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

pub(super) fn read(map: &Arc<Reference>, json: &str) -> Result<ConfigMap, ModuleSourceError> {
    serde_json::from_str(json).map_err(|error| ModuleSourceError::Unreadable {
        map: Arc::clone(map),
        message: error.to_string().into(),
    })
}

/// The content under the key: in `binaryData`, else in `data`; or the index of a packed module.
pub(super) fn content(
    map: Arc<Reference>,
    key: String,
    json: &str,
    max_size: u64,
) -> Result<Content, ModuleSourceError> {
    let stored = read(&map, json)?;
    let (mut binary, mut text) = (stored.binary_data.unwrap_or_default(), stored.data.unwrap_or_default());
    let index = text.remove(&index_key(&key));
    let plain = binary.remove(&key).map(|bytes| bytes.0);
    match (plain.or_else(|| text.remove(&key).map(String::into_bytes)), index) {
        (Some(bytes), None) => Ok(Content::Plain(bytes)),
        (Some(_), Some(_)) => Err(ModuleSourceError::TwoModules { map, key }),
        (None, Some(index)) => Index::parse(&index, max_size)
            .map(Content::Packed)
            .map_err(|source| ModuleSourceError::Index { map, key, source }),
        (None, None) => {
            let keys: Vec<_> = binary.into_keys().chain(text.into_keys()).collect();
            let found =
                if keys.is_empty() { "no keys at all".to_owned() } else { shorten(&keys.join(", "), 300) };
            Err(ModuleSourceError::NoKey { map, key, found })
        }
    }
}
