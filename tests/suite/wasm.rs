//! Wasm hooks that do one thing each, good or bad.

use anyhow::Result;
use serde_json::Value;

/// The exit code of `exits`.
pub(crate) const EXIT_CODE: u8 = 3;

/// Answers every request with this.
pub(crate) fn answers(response: &Value) -> Result<Vec<u8>> {
    prints(&response.to_string())
}

/// Prints a text and ends well.
pub(crate) fn prints(text: &str) -> Result<Vec<u8>> {
    let escape = |byte: &u8| format!("\\{byte:02x}");
    let bytes = |bytes: &[u8]| bytes.iter().map(escape).collect::<String>();
    let length = u32::try_from(text.len())?;
    let start = bytes(&16_u32.to_le_bytes()) + &bytes(&length.to_le_bytes()); // the one iovec, at address 0
    command(&format!(
        r#"(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
           (memory (export "memory") 16)
           (data (i32.const 0) "{start}")
           (data (i32.const 16) "{text}")
           (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))"#,
        text = bytes(text.as_bytes()),
    ))
}

/// Answers with no children and a field that is not looked at, made of a random number.
pub(crate) fn answers_with_noise() -> Result<Vec<u8>> {
    let answer = r#"{\"children\":[],\"noise\":\"     \"}"#;
    let noise = 16 + answer.replace('\\', "").find("     ").unwrap_or_default();
    command(&format!(
        r#"(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
           (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
           (memory (export "memory") 1)
           (data (i32.const 0) "\10\00\00\00\{length:02x}\00\00\00")
           (data (i32.const 16) "{answer}")
           (func (export "_start") (local $at i32)
             (drop (call $random (i32.const {noise}) (i32.const 4)))
             ;; Letters, whatever the bytes are.
             (i32.store (i32.const {noise}) (i32.or (i32.const 0x61616161)
               (i32.and (i32.load (i32.const {noise})) (i32.const 0x0f0f0f0f))))
             (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))"#,
        length = answer.replace('\\', "").len(),
    ))
}

pub(crate) fn traps() -> Result<Vec<u8>> {
    command(r#"(memory (export "memory") 1) (func $here (export "_start") unreachable)"#)
}

pub(crate) fn loops() -> Result<Vec<u8>> {
    command(r#"(memory (export "memory") 1) (func (export "_start") (loop $again (br $again)))"#)
}

pub(crate) fn exits() -> Result<Vec<u8>> {
    command(&format!(
        r#"(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
           (memory (export "memory") 1)
           (func (export "_start") (call $exit (i32.const {EXIT_CODE})))"#
    ))
}

fn command(body: &str) -> Result<Vec<u8>> {
    Ok(wat::parse_str(format!("(module {body})"))?)
}
