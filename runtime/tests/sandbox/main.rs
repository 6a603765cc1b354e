//! What a hook may use, what it cannot reach, and what is a hook at all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test: a broken fixture ends it")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metahook::hook::wasm::bounds::ModuleSettings;
use metahook::hook::wasm::module::{ModuleError, Runtime, RuntimeSettings};
use metahook::hook::wasm::run::{Call, Called, Seed};
use metahook_core::spec::hook::{LimitBounds, Limits};

mod cache;
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
    runtime_with(modules())
}

fn runtime_with(modules: ModuleSettings) -> Arc<Runtime> {
    let settings = RuntimeSettings { slots: 4, limits: LimitBounds::default(), modules };
    Arc::new(Runtime::new(&settings).unwrap())
}

fn modules() -> ModuleSettings {
    ModuleSettings::new(env!("CARGO_BIN_EXE_metahook"))
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

/// Waits until something is so.
async fn until(what: &str, is: impl Fn() -> bool) {
    let is = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_mins(1), is).await.is_ok(), "not so: {what}");
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
