//! Bounds of a hook: what it may use, what it cannot reach, and what is a hook at all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test: a broken fixture ends it"
)]

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use metahook_core::api::policy::{LimitBounds, Limits};
use metahook_server::hook::wasm::compile::{ModuleError, ModuleSettings};
use metahook_server::hook::wasm::run::{Call, Called, Reservation, RuntimeSettings, Seed};
use metahook_server::hook::wasm::source::ModuleRegistry;

mod cache;
mod components;
mod expansion;
mod limits;
mod modules;
mod mounts;
mod preview2;
mod purity;
mod reach;
mod shipped;
mod start;
mod traps;

/// Begins every module here: what it can call, and a few words of its own.
const IMPORTS: &str = r#"
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $time (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_res_get" (func $resolution (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pread" (func $pread (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_seek" (func $seek (param i32 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_renumber" (func $renumber (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_get" (func $fdstat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_get" (func $filestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_set_size" (func $set_size (param i32 i64) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_dir_name" (func $prestat_name (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir" (func $readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get" (func $path_stat (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory" (func $make (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_remove_directory" (func $remove (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename" (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_link" (func $link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_symlink" (func $symlink (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_readlink" (func $readlink (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_shutdown" (func $shutdown (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "ok\n")
  (data (i32.const 32) "/etc/passwd")
  ;; Prints `len` bytes from 16 on, to stdout (1) or stderr (2).
  (func $print (param $fd i32) (param $len i32)
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (local.get $len))
    (drop (call $write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
  ;; Prints `len` bytes from `at` on.
  (func $dump (param $at i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $at))
    (i32.store (i32.const 4) (local.get $len))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  ;; Exits with 1 more than what was got, if that is not what was wanted.
  (func $must (param $wanted i32) (param $got i32)
    (if (i32.ne (local.get $wanted) (local.get $got))
      (then (call $exit (i32.add (local.get $got) (i32.const 1))))))
  ;; Opens a path below a descriptor, with rights to read; the number lies at 12 then.
  (func $open (param $fd i32) (param $at i32) (param $len i32) (result i32)
    (call $path_open (local.get $fd) (i32.const 1) (local.get $at) (local.get $len)
      (i32.const 0) (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 12)))
"#;

fn limits() -> Limits {
    // What is not about time ends by itself, however busy the machine is.
    Limits { timeout: Duration::from_mins(1), ..LimitBounds::default().default }
}

fn registry() -> Arc<ModuleRegistry> {
    registry_with(modules())
}

fn registry_with(modules: ModuleSettings) -> Arc<ModuleRegistry> {
    let settings = RuntimeSettings { concurrency: 4, limits: LimitBounds::default(), modules };
    Arc::new(ModuleRegistry::new(&settings).unwrap())
}

fn modules() -> ModuleSettings {
    ModuleSettings::new(env!("CARGO_BIN_EXE_metahook"))
}

/// Runs `(func $main …)` of a module that has the imports above.
async fn run(body: &str, limits: Limits) -> Called {
    run_as(body, call("{}", limits)).await
}

/// Runs a module with this body by another call.
async fn run_as(body: &str, call: Call<'_>) -> Called {
    let text = format!("(module {IMPORTS} {body} (export \"_start\" (func $main)))");
    let registry = registry();
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    registry.runtime().call(&module, call).await
}

/// Why a module is refused.
async fn load(text: &str) -> ModuleError {
    registry().load(wat::parse_str(text).unwrap()).await.unwrap_err()
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
        is_of_shadow: false,
        request: request.into(),
        now: UNIX_EPOCH + Duration::from_secs(1_000_000_000),
        limits,
        seed: Seed::default(),
        mounts: &[],
        memory: Reservation::default(),
    }
}
