//! Packed modules in a cluster: all parts before the ConfigMap that names them, and those of the module before are removed.

use std::io::{self, Write};

use k8s_openapi::api::core::v1::ConfigMap;
use metahook_core::api::packed::{Index, index_key};
use metahook_core::object::id::Key;

use crate::pack::{PackTarget, Packed};
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::config_maps::{config_map_id, delete_config_map, read_config_map};
use metahook_server::cluster::objects::RequestError;

/// Owner of the fields that are written.
pub(crate) const FIELD_MANAGER: &str = "metahook-pack";

#[derive(Debug, thiserror::Error)]
pub enum ApplyPackedError {
    #[error("cannot print")]
    Print(#[from] io::Error),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(
        "ConfigMap {key} has now both keys {one:?} and {other:?}, and no server loads it, because another client wrote {other:?}: remove that one, for example with `kubectl -n {} patch configmap {} --type=json -p '[{{\"op\":\"remove\",\"path\":\"/{field}/{other}\"}}]'`",
        key.namespace,
        key.name
    )]
    TwoModules { key: Key, one: String, other: String, field: &'static str },
}

/// Parts first: only the ConfigMap that is written last names them.
pub async fn apply_packed(
    api: &ApiClient,
    packed: &Packed,
    place: &PackTarget,
    say: &mut impl Write,
) -> Result<(), ApplyPackedError> {
    let main = Key::new(&place.namespace, &place.name);
    let before = read_config_map(api, &main).await?;
    for part in packed.parts.iter().chain([&packed.main]) {
        let name = part.pointer("/metadata/name").and_then(serde_json::Value::as_str).unwrap_or_default();
        let key = Key::new(&place.namespace, name);
        let now = api.apply(&config_map_id(&key), part, FIELD_MANAGER).await?;
        writeln!(say, "applied ConfigMap {key}")?;
        if key == main {
            one_module(&now, &main, place, packed.parts.is_empty())?;
        }
    }
    for name in before.map(|map| parts(&map, place)).unwrap_or_default() {
        if !packed.parts.iter().any(|part| part.pointer("/metadata/name").is_some_and(|now| *now == *name)) {
            let key = Key::new(&place.namespace, &name);
            delete_config_map(api, &key).await?;
            writeln!(say, "removed ConfigMap {key}, a part of the module before")?;
        }
    }
    Ok(())
}

/// A key that another manager owns stays when ours is applied.
fn one_module(now: &ConfigMap, main: &Key, place: &PackTarget, plain: bool) -> Result<(), ApplyPackedError> {
    let index = index_key(&place.key);
    let has_binary = now.binary_data.as_ref().is_some_and(|data| data.contains_key(&place.key));
    let text = |key: &str| now.data.as_ref().is_some_and(|data| data.contains_key(key));
    let (key, key_name) = (main.clone(), place.key.clone());
    if !(text(&index) && (has_binary || text(&place.key))) {
        return Ok(());
    }
    Err(if plain {
        ApplyPackedError::TwoModules { key, one: key_name, other: index, field: "data" }
    } else {
        let field = if has_binary { "binaryData" } else { "data" };
        ApplyPackedError::TwoModules { key, one: index, other: key_name, field }
    })
}

/// The parts that an index names, where they are named as this program names them: nothing else is ours to delete.
pub(crate) fn parts(map: &ConfigMap, place: &PackTarget) -> Vec<String> {
    let index = map.data.as_ref().and_then(|data| data.get(&index_key(&place.key)));
    let index = index.and_then(|index| Index::parse(index, u64::MAX).ok());
    let ours = |index: &Index| *index == Index::of(&place.name, &index.sha256, index.size, index.parts.len());
    index.filter(ours).map(|index| index.parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn map(content: Value) -> ConfigMap {
        serde_json::from_value(content).unwrap()
    }

    fn place() -> PackTarget {
        PackTarget { namespace: "hello".into(), name: "hook".into(), key: "hook.wasm".into() }
    }

    #[test]
    fn only_parts_that_are_surely_ours_are_removed() {
        let with = |index: &Index| map(json!({"data": {"hook.wasm.json": json!(index).to_string()}}));
        let index = Index::of("hook", &"a".repeat(64), 5, 2);
        assert_eq!(parts(&with(&index), &place()), ["hook-aaaaaaaaaaaaaaaa-0", "hook-aaaaaaaaaaaaaaaa-1"]);
        let other = Index { parts: vec!["settings".to_owned()], ..index };
        assert_eq!(parts(&with(&other), &place()), [""; 0]);
        assert_eq!(parts(&map(json!({"data": {"hook.wasm.json": "{}"}})), &place()), [""; 0]);
    }

    #[test]
    fn a_key_of_another_manager_is_named_with_how_to_remove_it() {
        let both = map(json!({"data": {"hook.wasm.json": ""}, "binaryData": {"hook.wasm": ""}}));
        let main = Key::new("hello", "hook");
        let error = one_module(&both, &main, &place(), false).unwrap_err().to_string();
        assert_eq!(
            error,
            "ConfigMap hello/hook has now both keys \"hook.wasm.json\" and \"hook.wasm\", and no server loads it, because another client wrote \"hook.wasm\": remove that one, for example with `kubectl -n hello patch configmap hook --type=json -p '[{\"op\":\"remove\",\"path\":\"/binaryData/hook.wasm\"}]'`"
        );
        let error = one_module(&both, &main, &place(), true).unwrap_err().to_string();
        assert!(error.contains("/data/hook.wasm.json"), "{error}");
        let one = map(json!({"binaryData": {"hook.wasm": ""}}));
        assert!(one_module(&one, &main, &place(), true).is_ok());
    }
}
