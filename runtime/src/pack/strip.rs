//! What a module carries along that no server reads: debug information, notes of the tools that made it.

use std::ops::Range;

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

/// The module without its custom sections but for the names of its functions: traps are told by them.
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

/// What can be told by the first bytes.
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
}
