//! `metahook pack`: what is printed, and what its bytes are.

use serde_json::Value;

use crate::{Folder, prints};

#[test]
fn a_module_is_printed_as_config_maps_and_its_bytes_are_counted() {
    let folder = Folder::new().answers("hook.wasm", "{}").with("text.wasm", "hello");
    let pack = |module: &str, more: &[&str]| {
        folder.metahook(&[&["pack", module, "--namespace=n", "hook"][..], more].concat())
    };
    let ended = pack("hook.wasm", &[]);
    ended.is(0, "by section:\n");
    ended.is(0, "  code\n");
    ended.is(0, "code by crate:\n");
    let said: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(said["items"][0]["metadata"]["name"], "hook");
    pack("text.wasm", &["--no-optimize"]).is(1, "this is not a WebAssembly module");
    // Noise after the header: it is stored as it is, and nothing can be said about it.
    let folder = folder.with("noise.wasm", b"\0asm\x01\0\0\0\x01\xff");
    folder
        .metahook(&["pack", "noise.wasm", "-n=n", "hook", "--no-optimize"])
        .is(0, "its sections cannot be read: ");
    folder.metahook(&["pack", "none.wasm", "-n=n", "hook"]).is(1, "none.wasm cannot be read: No such file");
    let trap = folder.module("long.wasm", &prints(2, "x"));
    trap.metahook(&["pack", "long.wasm", "-n=N", "hook"]).is(1, "\"N\" is no name of a ConfigMap");
}
