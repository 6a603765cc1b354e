//! Modules made smaller: `wasm-opt` where it is installed, and custom sections that no server reads stripped.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use wasmparser::{BinaryReaderError, Parser, Payload};

/// A module starts with this; a component does not.
const HEADER: [u8; 8] = [0, b'a', b's', b'm', 1, 0, 0, 0];

#[derive(Debug, thiserror::Error)]
pub enum StripError {
    #[error("this is a component, and hooks are modules: build with --target wasm32-wasip1")]
    Component,
    #[error("this is not a WebAssembly module")]
    NotWasm,
    #[error("the module is broken")]
    Broken(#[from] BinaryReaderError),
}

/// The module without its custom sections but for the names of its functions: messages of traps use them.
pub(super) fn strip(module: &[u8]) -> Result<Vec<u8>, StripError> {
    check(module)?;
    let mut stripped = HEADER.to_vec();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        if let Payload::CustomSection(section) = &payload
            && section.name() != "name"
        {
            continue;
        }
        if let Some((id, range)) = payload.as_section() {
            put(&mut stripped, id, module, range);
        }
    }
    Ok(stripped)
}

/// Checks the first bytes.
pub(super) fn check(module: &[u8]) -> Result<(), StripError> {
    match module {
        _ if module.starts_with(&HEADER) => Ok(()),
        [0, b'a', b's', b'm', ..] => Err(StripError::Component),
        _ => Err(StripError::NotWasm),
    }
}

fn put(stripped: &mut Vec<u8>, id: u8, module: &[u8], range: Range<usize>) {
    let content = module.get(range).unwrap_or_default();
    stripped.push(id);
    let mut length = content.len();
    // LEB128: seven bits a byte, the lowest first.
    loop {
        let bits = u8::try_from(length & 0x7f).unwrap_or_default();
        length >>= 7;
        if length == 0 {
            stripped.push(bits);
            break;
        }
        stripped.push(bits | 0x80);
    }
    stripped.extend(content);
}

/// `-g` keeps the names of functions: messages of traps use them.
const ARGUMENTS: [&str; 2] = ["-Os", "-g"];

/// Why a module is as the compiler left it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShrinkError {
    #[error("it is not installed (it is part of binaryen)")]
    NotInstalled,
    #[error("it cannot be run: {0}")]
    Io(#[from] io::Error),
    #[error("it failed: {0}")]
    Failed(String),
}

pub(super) fn shrink(program: &Path, module: &[u8]) -> Result<Vec<u8>, ShrinkError> {
    let folder = tempfile::tempdir()?;
    let (from, to) = (folder.path().join("in.wasm"), folder.path().join("out.wasm"));
    fs::write(&from, module)?;
    let ran = Command::new(program).args(ARGUMENTS).arg(&from).arg("-o").arg(&to).output();
    let output = ran.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ShrinkError::NotInstalled,
        _ => error.into(),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(ShrinkError::Failed(format!("{}: {last}", output.status)));
    }
    Ok(fs::read(to)?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_no_module_is_refused() {
        let refused = |bytes: &[u8]| strip(bytes).unwrap_err().to_string();
        assert_eq!(refused(b"hello"), "this is not a WebAssembly module");
        assert!(refused(&wat::parse_str("(component)").unwrap()).contains("--target wasm32-wasip1"));
        assert_eq!(refused(b"\0asm\x01\0\0\0\x01\xff"), "the module is broken");
    }

    use std::os::unix::fs::PermissionsExt;

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
