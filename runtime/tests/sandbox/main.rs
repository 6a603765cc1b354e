//! What a hook may use, what it cannot reach, and what is a hook at all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test: a broken fixture ends it")]

use std::sync::Arc;

use bytes::Bytes;
use metahook::hook::wasm::module::{ModuleError, Runtime};
use metahook::hook::wasm::run::{Call, Called, Seed};
use metahook_core::spec::hook::{LimitBounds, Limits};

mod limits;
mod modules;
mod reach;

const IMPORTS: &str = r#"
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "ok\n")
  (data (i32.const 32) "/etc/passwd")
  ;; Prints `len` bytes from 16 on, to stdout (1) or stderr (2).
  (func $print (param $fd i32) (param $len i32)
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (local.get $len))
    (drop (call $write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
"#;

fn limits() -> Limits {
    LimitBounds::default().default
}

fn runtime() -> Arc<Runtime> {
    Arc::new(Runtime::new(4, &LimitBounds::default()).unwrap())
}

/// Runs `(func $main …)` of a module that has the imports above.
async fn run(body: &str, limits: Limits) -> Called {
    let text = format!("(module {IMPORTS} {body} (export \"_start\" (func $main)))");
    let runtime = runtime();
    let module = runtime.load(wat::parse_str(text).unwrap()).await.unwrap();
    runtime.call(&module, call("{}", limits)).await
}

/// Why a module is refused.
async fn load(text: &str) -> ModuleError {
    runtime().load(wat::parse_str(text).unwrap()).await.unwrap_err()
}

fn call(request: impl Into<Bytes>, limits: Limits) -> Call<'static> {
    Call {
        controller: "c",
        hook: "sync",
        request: request.into(),
        limits,
        seed: Seed::default(),
        mounts: &[],
    }
}
