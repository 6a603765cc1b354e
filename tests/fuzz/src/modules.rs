//! Modules as they come out of a ConfigMap: unpacked, and looked at before they are compiled.

use metahook_server::fuzzing::{self, OutlineBounds};
use metahook_server::hook::wasm::compile::ModuleBounds;

/// Bytes of an unpacked module.
const MAX_SIZE: u64 = 1 << 14;

/// Bytes of a message: it quotes names of a module, and cuts them.
const MAX_MESSAGE: usize = 2000;

/// The bytes are a module, with its header or without.
pub(crate) fn outline(bytes: &[u8]) {
    for module in [bytes, &[b"\0asm\x01\0\0\0", bytes].concat()] {
        if let Err(error) = fuzzing::inspect(module, OutlineBounds { functions: 100, memory: 1 << 20 }) {
            let message = error.to_string();
            assert!((1..MAX_MESSAGE).contains(&message.len()), "{message}");
        }
    }
}

/// The bytes are a stored module, with the first bytes of an encoding or without.
pub(crate) fn unpack(bytes: &[u8]) {
    let bounds = ModuleBounds { packed: 1 << 12, size: MAX_SIZE, ..ModuleBounds::default() };
    let firsts: [&[u8]; 3] = [b"", &[0x1f, 0x8b, 8, 0], &[0x28, 0xb5, 0x2f, 0xfd]];
    for first in firsts {
        match fuzzing::unpack([first, bytes].concat(), &bounds) {
            Ok(module) => assert!(module.len() as u64 <= MAX_SIZE, "{} bytes", module.len()),
            Err(error) => assert!((1..MAX_MESSAGE).contains(&error.to_string().len()), "{error}"),
        }
    }
}
