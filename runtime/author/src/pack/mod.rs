//! A module as it is stored: made small, and laid out in as many ConfigMaps as it needs.

pub mod size;

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use clap::Args;
use k8s_openapi::ByteString;
use metahook_core::api::mount::is_file_name;
use metahook_core::api::packed::{Index, MAX_PARTS, PART_KEY, index_key};
use metahook_core::api::units::print_bytes;
use metahook_core::object::id::is_dns_name;
use serde_json::{Value, json};
use wasmparser::{BinaryReaderError, Parser, Payload};

use metahook_server::hook::wasm::compile::Digest;
use metahook_server::hook::wasm::compile::outline::WasmKind;

/// The API server lets a ConfigMap hold as many bytes, counted as they are, not as base64.
const MAX_CONFIG_MAP: usize = 1 << 20;

/// Slow, and nothing is smaller without a larger window: at this level it is 8 MiB, and the server reads no larger one.
const COMPRESSION_LEVEL: i32 = 19;

/// A module starts with this; a component does not.
const HEADER: [u8; 8] = [0, b'a', b's', b'm', 1, 0, 0, 0];

/// Where a module is put.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct PackTarget {
    /// The ConfigMap that controllers name.
    pub name: String,
    /// Its namespace.
    #[arg(short, long)]
    pub namespace: String,
    /// The key that controllers name.
    #[arg(long, default_value = "hook.wasm")]
    pub key: String,
}

/// A module laid out.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// Digest of the module's bytes, which a controller pins.
    pub sha256: String,
    pub(crate) size: usize,
    /// Bytes in all ConfigMaps.
    pub stored: usize,
    pub parts: Vec<Value>,
    /// The ConfigMap that controllers name; to be written last.
    pub(crate) main: Value,
}

#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("{0:?} is no name of a ConfigMap: lower case letters, digits, - and ., at most 253")]
    Name(String),
    #[error("{0:?} is no key of a ConfigMap: letters, digits, -, _ and ., at most 248")]
    Key(String),
    #[error("the module cannot be packed")]
    Module(#[from] StripError),
    #[error("the module cannot be compressed")]
    Compress(#[source] io::Error),
    #[error(
        "the module has {} after compression, and {MAX_PARTS} ConfigMaps hold {}: it is too large for a hook",
        print_bytes(*stored),
        print_bytes(*most)
    )]
    TooLarge { stored: u64, most: u64 },
    #[error(
        "the script has {0} bytes, and a ConfigMap holds {MAX_CONFIG_MAP}: make it smaller, or make a component of it"
    )]
    LargeScript(usize),
    #[error("the script is no text in UTF-8")]
    ScriptText(#[source] std::str::Utf8Error),
}

impl PackTarget {
    pub fn check(&self) -> Result<(), PackError> {
        match self {
            Self { namespace, .. } if !is_dns_name(namespace) => Err(PackError::Name(namespace.clone())),
            Self { name, .. } if !is_dns_name(name) => Err(PackError::Name(name.clone())),
            Self { key, .. } if !is_file_name(&index_key(key)) => Err(PackError::Key(key.clone())),
            Self { .. } => Ok(()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StripError {
    #[error("this is not a WebAssembly module")]
    NotWasm,
    #[error("the module is broken")]
    Broken(#[from] BinaryReaderError),
}

/// Why a module is as the compiler left it.
#[derive(Debug, thiserror::Error)]
pub enum ShrinkError {
    #[error("it is not installed (it is part of binaryen)")]
    NotInstalled,
    #[error("it cannot be run: {0}")]
    Io(#[from] io::Error),
    #[error("it failed: {0}")]
    Failed(String),
}

/// The module without sections that no server reads, and why `wasm-opt` did not make it smaller, where it did not.
pub fn optimize(wasm_opt: &Path, module: &[u8]) -> Result<(Vec<u8>, Option<ShrinkError>), PackError> {
    check(module)?;
    // What a component is made of depends on its parts being as they are.
    if WasmKind::of(module) == WasmKind::Component {
        return Ok((module.to_vec(), None));
    }
    let (shrunk, why) = match shrink(wasm_opt, module) {
        Ok(shrunk) => (shrunk, None),
        Err(why) => (module.to_vec(), Some(why)),
    };
    Ok((strip(&shrunk)?, why))
}

/// One ConfigMap where the module fits into it, as it is or compressed, whichever is smaller; else parts and an index.
pub fn pack(module: &[u8], place: &PackTarget) -> Result<Packed, PackError> {
    check(module)?;
    let compressed = zstd::bulk::compress(module, COMPRESSION_LEVEL).map_err(PackError::Compress)?;
    let stored = if compressed.len() < module.len() { &compressed } else { module };
    let (sha256, size) = (Digest::of(module).hex(), module.len());
    if stored.len() <= MAX_CONFIG_MAP {
        let data = json!({ "binaryData": { &place.key: byte_string(stored) } });
        let main = config_map(place, &place.name, data);
        return Ok(Packed { sha256, size, stored: stored.len(), parts: Vec::new(), main });
    }
    let chunks: Vec<&[u8]> = compressed.chunks(MAX_CONFIG_MAP).collect();
    let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    if chunks.len() > MAX_PARTS {
        let (stored, most) = (wide(compressed.len()), wide(MAX_PARTS * MAX_CONFIG_MAP));
        return Err(PackError::TooLarge { stored, most });
    }
    let index = Index::of(&place.name, &sha256, wide(size), chunks.len());
    let part = |(name, bytes): (&String, &[u8])| {
        config_map(place, name, json!({ "immutable": true, "binaryData": { PART_KEY: byte_string(bytes) } }))
    };
    let parts = index.parts.iter().zip(chunks).map(part).collect();
    let main = config_map(
        place,
        &place.name,
        json!({ "data": { index_key(&place.key): json!(index).to_string() } }),
    );
    Ok(Packed { sha256, size, stored: compressed.len(), parts, main })
}

/// A script as text, which people read in the cluster, too.
pub(crate) fn pack_script(script: &[u8], place: &PackTarget) -> Result<Packed, PackError> {
    let size = script.len();
    if size > MAX_CONFIG_MAP {
        return Err(PackError::LargeScript(size));
    }
    let text = std::str::from_utf8(script).map_err(PackError::ScriptText)?;
    let main = config_map(place, &place.name, json!({ "data": { &place.key: text } }));
    Ok(Packed { sha256: Digest::of(script).hex(), size, stored: size, parts: Vec::new(), main })
}

impl Packed {
    /// The list that `kubectl apply` takes, in the order in which it is to be written.
    pub fn list(&self) -> Value {
        let items: Vec<&Value> = self.parts.iter().chain([&self.main]).collect();
        json!({ "apiVersion": "v1", "kind": "List", "items": items })
    }
}

fn config_map(place: &PackTarget, name: &str, content: Value) -> Value {
    let metadata = json!({ "namespace": place.namespace, "name": name });
    let mut map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
    if let (Value::Object(map), Value::Object(content)) = (&mut map, content) {
        map.extend(content);
    }
    map
}

fn byte_string(bytes: &[u8]) -> ByteString {
    ByteString(bytes.to_vec())
}

/// The module without its custom sections but for the names of its functions: messages of traps use them.
fn strip(module: &[u8]) -> Result<Vec<u8>, StripError> {
    check(module)?;
    let mut stripped = HEADER.to_vec();
    let mut start = HEADER.len();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        let Some((_, range)) = payload.as_section() else { continue };
        if !matches!(&payload, Payload::CustomSection(section) if section.name() != "name") {
            stripped.extend(module.get(start..range.end).unwrap_or_default());
        }
        start = range.end;
    }
    Ok(stripped)
}

/// Checks the first bytes.
pub fn check(module: &[u8]) -> Result<(), StripError> {
    match module {
        _ if module.starts_with(&HEADER) => Ok(()),
        [0, b'a', b's', b'm', ..] if WasmKind::of(module) == WasmKind::Component => Ok(()),
        _ => Err(StripError::NotWasm),
    }
}

/// `-g` keeps the names of functions: messages of traps use them.
fn shrink(program: &Path, module: &[u8]) -> Result<Vec<u8>, ShrinkError> {
    let folder = tempfile::tempdir()?;
    let (from, to) = (folder.path().join("in.wasm"), folder.path().join("out.wasm"));
    fs::write(&from, module)?;
    let ran = Command::new(program).args(["-Os", "-g"]).arg(&from).arg("-o").arg(&to).output();
    let output = ran.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ShrinkError::NotInstalled,
        _ => error.into(),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(ShrinkError::Failed(format!("{}: {last}", output.status)));
    }
    Ok(fs::read(to)?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn place() -> PackTarget {
        PackTarget { namespace: "hello".into(), name: "hook".into(), key: "hook.wasm".into() }
    }

    /// A module's header and noise that no compression makes smaller.
    fn noise(size: usize) -> Vec<u8> {
        let mut seed: u64 = 1;
        let noise = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed.to_be_bytes()[0]
        });
        HEADER.iter().copied().chain(noise).take(size).collect()
    }

    fn bytes(map: &Value, key: &str) -> Vec<u8> {
        serde_json::from_value::<ByteString>(map["binaryData"][key].clone()).unwrap().0
    }

    /// The module as the server reads it.
    fn unpacked(stored: &[u8]) -> Vec<u8> {
        let mut decoder = zstd::Decoder::with_buffer(stored).unwrap();
        decoder.window_log_max(23).unwrap();
        let mut module = Vec::new();
        decoder.read_to_end(&mut module).unwrap();
        module
    }

    #[test]
    fn a_module_that_fits_is_one_config_map_as_small_as_can_be() {
        let module = [HEADER.as_slice(), &vec![0; 3 << 20]].concat();
        let packed = pack(&module, &place()).unwrap();
        let stored = bytes(&packed.main, "hook.wasm");
        assert_eq!((unpacked(&stored), packed.stored), (module.clone(), stored.len()));
        assert_eq!(
            (packed.sha256, packed.size, packed.parts.len()),
            (Digest::of(&module).hex(), module.len(), 0)
        );
        assert_eq!(packed.main["metadata"], json!({"namespace": "hello", "name": "hook"}));
        let module = noise(1 << 20);
        assert_eq!(bytes(&pack(&module, &place()).unwrap().main, "hook.wasm"), module, "as it is");
    }

    #[test]
    fn a_larger_one_is_in_parts_that_an_index_names() {
        let module = noise((2 << 20) + 5);
        let packed = pack(&module, &place()).unwrap();
        let index = packed.main["data"]["hook.wasm.json"].as_str().unwrap();
        let index = Index::parse(index, 64 << 20).unwrap();
        assert_eq!((&index.sha256, index.size), (&packed.sha256, module.len() as u64));
        let names: Vec<_> =
            packed.parts.iter().map(|part| part["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, index.parts);
        assert!(packed.parts.iter().all(|part| part["immutable"] == true));
        let all: Vec<u8> = packed.parts.iter().flat_map(|part| bytes(part, "part")).collect();
        assert_eq!((unpacked(&all), packed.parts.len(), packed.stored), (module, 3, all.len()));
        let list = packed.list();
        assert_eq!((&list["items"][0], &list["items"][3]), (&packed.parts[0], &packed.main));
    }

    #[test]
    fn an_eight_mebibyte_window_is_enough_for_any_size() {
        let module = [HEADER.as_slice(), &vec![0; 20 << 20]].concat();
        let packed = pack(&module, &place()).unwrap();
        assert!(unpacked(&bytes(&packed.main, "hook.wasm")) == module);
    }

    #[test]
    fn what_cannot_be_packed_is_named() {
        assert!(matches!(pack(b"hello", &place()), Err(PackError::Module(StripError::NotWasm))));
        let refused = |place: PackTarget| place.check().unwrap_err();
        assert_eq!(
            refused(PackTarget { name: "Hook".into(), ..place() }).to_string(),
            "\"Hook\" is no name of a ConfigMap: lower case letters, digits, - and ., at most 253"
        );
        assert!(matches!(refused(PackTarget { namespace: String::new(), ..place() }), PackError::Name(_)));
        assert!(matches!(refused(PackTarget { key: "../x".into(), ..place() }), PackError::Key(_)));
    }

    #[test]
    fn names_and_code_stay_and_all_else_that_is_custom_goes() {
        let with = wat::parse_str(format!(
            r#"(module (@custom "producers" "rustc") (memory (export "memory") 1) (data (i32.const 0) "{}")
                 (func $main (export "_start") unreachable) (@custom ".debug_info" "debug") (@custom "x" "y"))"#,
            "d".repeat(300)
        ));
        let without = wat::parse_str(format!(
            r#"(module (memory (export "memory") 1) (data (i32.const 0) "{}")
                 (func $main (export "_start") unreachable))"#,
            "d".repeat(300)
        ));
        let (with, without) = (with.unwrap(), without.unwrap());
        assert!(without.windows(4).any(|bytes| bytes == b"main"), "it has names");
        assert_eq!(strip(&with).unwrap(), without);
    }

    #[test]
    fn a_component_is_packed_as_it_is() {
        let component = wat::parse_str("(component (core module (@custom \"x\" \"y\")))").unwrap();
        let (packed, why) = optimize(Path::new("no-such-wasm-opt"), &component).unwrap();
        assert!(packed == component && why.is_none());
        assert!(pack(&component, &place()).is_ok());
    }

    #[test]
    fn a_script_is_stored_as_text_up_to_its_bound() {
        let place = PackTarget { key: "hook.py".into(), ..place() };
        let script = vec![b'#'; MAX_CONFIG_MAP];
        let packed = pack_script(&script, &place).unwrap();
        assert_eq!((packed.size, packed.sha256), (script.len(), Digest::of(&script).hex()));
        assert_eq!(packed.main["data"]["hook.py"].as_str().unwrap().as_bytes(), script);
        let above = [script, vec![b'#']].concat();
        assert!(
            matches!(pack_script(&above, &place), Err(PackError::LargeScript(size)) if size == above.len())
        );
        assert!(matches!(pack_script(b"\xff", &place), Err(PackError::ScriptText(_))));
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let refused = |bytes: &[u8]| strip(bytes).unwrap_err().to_string();
        assert_eq!(refused(b"hello"), "this is not a WebAssembly module");
        assert_eq!(refused(b"\0asm\x01\0\0\0\x01\xff"), "the module is broken");
    }

    fn tool(script: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wasm-opt");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        (folder, path)
    }

    #[test]
    fn the_tool_gets_a_file_and_names_stay() {
        let (_folder, path) = tool(r#"test "$1 $2 $4" = "-Os -g -o" && tr a b < "$3" > "$5""#);
        assert_eq!(shrink(&path, b"banana").unwrap(), b"bbnbnb");
    }

    #[test]
    fn a_tool_that_is_not_there_or_fails_is_no_mystery() {
        let missing = shrink(Path::new("no-such-wasm-opt"), b"").unwrap_err();
        assert_eq!(missing.to_string(), "it is not installed (it is part of binaryen)");
        let (_folder, path) = tool("echo 'unknown section' >&2; exit 3");
        assert_eq!(shrink(&path, b"").unwrap_err().to_string(), "it failed: exit status: 3: unknown section");
    }
}
