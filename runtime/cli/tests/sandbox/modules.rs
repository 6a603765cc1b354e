//! Which bytes are a hook, and which are refused with what to do; what compiling may cost.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flate2::write::GzEncoder;
use metahook_server::hook::wasm::compile::{ModuleBounds, ModuleError, ModuleSettings, Origin};
use metahook_server::hook::wasm::source::ModuleRegistry;

use crate::{call, limits, load, modules, registry, registry_with, until};

fn smallest() -> Vec<u8> {
    wat::parse_str("(module (func (export \"_start\")))").unwrap()
}

/// A command with so many functions besides.
fn with_functions(count: usize) -> Vec<u8> {
    wat::parse_str(format!("(module {} (func (export \"_start\")))", "(func)".repeat(count))).unwrap()
}

fn bounded(bounds: ModuleBounds) -> Arc<ModuleRegistry> {
    registry_with(ModuleSettings { bounds, ..modules() })
}

async fn refused(registry: &Arc<ModuleRegistry>, stored: Vec<u8>) -> String {
    match registry.unpack(stored).await {
        Ok(bytes) => registry.load(bytes).await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_module_is_compiled_once_as_long_as_it_is_used() {
    let registry = registry();
    let first = registry.load(smallest()).await.unwrap();
    let second = registry.load(smallest()).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(registry.compilations(), 1);
    assert!(matches!(first.origin, Origin::Compiled(time) if time > Duration::ZERO), "{:?}", first.origin);
    drop((first, second));
    registry.load(smallest()).await.unwrap();
    assert_eq!(registry.compilations(), 2);
}

#[tokio::test]
async fn a_thousand_loads_of_one_module_are_one_compilation() {
    let registry = registry();
    let loads = (0..1000).map(|_| {
        let registry = Arc::clone(&registry);
        tokio::spawn(async move { registry.load(smallest()).await.unwrap() })
    });
    let loads: Vec<_> = loads.collect();
    let mut loaded = Vec::new();
    for load in loads {
        loaded.push(load.await.unwrap());
    }
    assert!(loaded.iter().all(|module| Arc::ptr_eq(module, &loaded[0])));
    assert_eq!(registry.compilations(), 1);
}

/// Processes that this thread has started: a test is a thread of its own.
fn children() -> String {
    std::fs::read_to_string("/proc/thread-self/children").unwrap()
}

#[tokio::test]
async fn a_compiler_without_a_waiting_caller_is_ended() {
    let registry = registry();
    let load = {
        let registry = Arc::clone(&registry);
        tokio::spawn(async move { registry.load(with_functions(20_000)).await.map(drop) })
    };
    until("the compiler runs", || !children().is_empty()).await;
    load.abort();
    until("it has ended", || children().is_empty()).await;
    assert!(load.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn a_refused_module_is_not_compiled_again() {
    let registry = registry();
    let wrong = wat::parse_str("(module (func (export \"_start\") (drop (i32.add))))").unwrap();
    let first = registry.load(wrong.clone()).await.unwrap_err();
    assert_eq!(
        first.to_string(),
        "the module is refused: type mismatch: expected i32 but nothing on stack (at offset 0x23)"
    );
    assert_eq!(registry.load(wrong).await.unwrap_err(), first);
    assert_eq!(registry.compilations(), 1);
}

#[tokio::test]
async fn what_is_no_hook_is_refused_with_what_to_do() {
    let registry = registry();
    let no_module = refused(&registry, b"hello".to_vec()).await;
    assert!(
        no_module.starts_with("this is not a WebAssembly module: its first bytes are 68 65"),
        "{no_module}"
    );
    assert_eq!(load("(component)").await, ModuleError::NoRun);
    let http = load(r#"(component (import "wasi:http/types@0.2.0" (instance)))"#).await.to_string();
    assert!(
        http.contains("wants what hooks cannot have: wasi:http/types@0.2.0; a hook has no network"),
        "{http}"
    );
    assert_eq!(load("(module)").await, ModuleError::NoStart);
    let import = load(r#"(module (import "env" "launch" (func)) (func (export "_start")))"#).await;
    assert_eq!(import, ModuleError::Import("env.launch".to_owned()));
    assert_eq!(registry.compilations(), 0);
}

#[tokio::test]
async fn a_host_function_with_another_type_is_refused_by_name() {
    let import = r#"(import "wasi_snapshot_preview1" "fd_write" (func))"#;
    let error = load(&format!("(module {import} (func (export \"_start\")))")).await.to_string();
    assert!(
        error.starts_with("the module wants what hooks cannot have: ") && error.contains("fd_write"),
        "{error}"
    );
}

#[tokio::test]
async fn features_that_hooks_do_not_need_are_refused_by_name() {
    for (text, name) in [
        ("(memory i64 1)", "memory64"),
        ("(memory 1 1 shared)", "threads (shared memory, atomics)"),
        ("(memory 1) (memory 1)", "several memories"),
        ("(tag)", "exceptions"),
        ("(type (struct))", "garbage collection"),
        ("(func (return_call 0))", "tail calls"),
    ] {
        let error = load(&format!("(module {text} (func (export \"_start\")))")).await.to_string();
        let wanted = format!("the module is refused: it uses {name}, which hooks do not have: build with");
        assert!(error.starts_with(&wanted), "{text}: {error}");
    }
}

#[tokio::test]
async fn a_compressed_module_runs_like_a_plain_one() {
    let module = smallest();
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&module).unwrap();
    let registry = registry();
    for stored in [module.clone(), gzip.finish().unwrap(), zstd::encode_all(module.as_slice(), 0).unwrap()] {
        let bytes = registry.unpack(stored).await.unwrap();
        let module = registry.load(bytes).await.unwrap();
        assert_eq!(registry.runtime().call(&module, call("", limits())).await.answer, Ok(Vec::new()));
    }
}

#[tokio::test]
async fn a_bomb_is_refused_at_the_bound() {
    let zeros = vec![0; (64 << 20) + 1];
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&zeros).unwrap();
    let registry = registry();
    for bomb in [gzip.finish().unwrap(), zstd::encode_all(zeros.as_slice(), 0).unwrap(), zeros] {
        let error = refused(&registry, bomb).await;
        assert_eq!(
            error,
            "the module has more than 64Mi (--module-size-max): strip it, or build it for size"
        );
    }
}

#[tokio::test]
async fn functions_up_to_the_bound_are_compiled() {
    let registry = bounded(ModuleBounds { functions: 100, ..ModuleBounds::default() });
    registry.load(with_functions(99)).await.unwrap();
    let error = refused(&registry, with_functions(100)).await;
    assert_eq!(
        error,
        "the module has 101 functions, and 100 are allowed (--module-functions-max): make it smaller"
    );
}

#[tokio::test]
async fn sixty_thousand_functions_are_too_many() {
    let registry = registry();
    assert_eq!(
        refused(&registry, with_functions(59_999)).await,
        "the module has 60000 functions, and 50000 are allowed (--module-functions-max): make it smaller"
    );
    assert_eq!(registry.compilations(), 0);
}

#[tokio::test]
async fn a_table_may_have_as_many_elements_as_a_module_functions() {
    let table = |elements: u32| {
        wat::parse_str(format!("(module (table {elements} funcref) (func (export \"_start\")))")).unwrap()
    };
    let registry = bounded(ModuleBounds { functions: 100, ..ModuleBounds::default() });
    let module = registry.load(table(100)).await.unwrap();
    assert_eq!(registry.runtime().call(&module, call("", limits())).await.answer, Ok(Vec::new()));
    assert!(
        refused(&registry, table(101)).await.starts_with("the module has a table of 101 elements, and 100")
    );
}

/// As Go builds them: functions can be called by their number in a table. With so many an instance has over 1 MiB.
#[tokio::test]
async fn a_module_may_have_tens_of_thousands_of_functions_in_its_table() {
    let all = 33_000;
    let text = format!(
        "(module {} (table {all} funcref) (elem (i32.const 0) {}) (func (export \"_start\")))",
        "(func)".repeat(all),
        (0..all).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
    );
    // However busy the machine is.
    let registry = bounded(ModuleBounds { compile_time: Duration::from_mins(10), ..ModuleBounds::default() });
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    assert_eq!(registry.runtime().call(&module, call("", limits())).await.answer, Ok(Vec::new()));
}

#[tokio::test]
async fn a_second_table_is_refused_by_name() {
    let text = "(module (table 1 funcref) (table 1 funcref) (func (export \"_start\")))";
    assert_eq!(
        load(text).await.to_string(),
        "the module has 2 tables, and a hook has one: build with --target wasm32-wasip1"
    );
}

#[tokio::test]
async fn a_compiler_that_uses_up_its_processor_time_is_ended() {
    let registry =
        bounded(ModuleBounds { compile_time: Duration::from_millis(1), ..ModuleBounds::default() });
    let late = "compiling the module takes more than 0.001s of processor time (--module-compile-timeout): make it smaller";
    // The kernel counts whole seconds: this takes several.
    let large = adding(20_000, 400);
    assert_eq!(refused(&registry, large.clone()).await, late);
    assert_eq!(refused(&registry, large).await, late);
    assert_eq!(registry.compilations(), 1, "it is not tried again at once");
    assert_eq!(children(), "");
}

/// A module of functions that add so often.
fn adding(functions: u32, times: usize) -> Vec<u8> {
    let add = [0x41, 1, 0x6a]; // i32.const 1, i32.add
    let code = [&[0, 0x41, 0][..], &add.repeat(times), &[0x1a, 0x0b]].concat();
    let body = [leb(code.len()), code].concat();
    let count = leb(functions as usize);
    let section = |number: u8, content: Vec<u8>| [vec![number], leb(content.len()), content].concat();
    [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, vec![1, 0x60, 0, 0]),
        section(3, [count.clone(), vec![0; functions as usize]].concat()),
        section(7, [&[1, 6][..], b"_start", &[0, 0]].concat()),
        section(10, [count, body.repeat(functions as usize)].concat()),
    ]
    .concat()
}

/// A number as WebAssembly writes it.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(u8::try_from(number & 0x7f | 0x80).unwrap());
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

/// A type that others may extend, called where another one lies in the table: engines of some versions end the process.
#[tokio::test]
async fn types_with_supertypes_are_refused() {
    let text = "(module
        (type $open (sub (func))) (type $final (func (param i32)))
        (table 1 funcref) (elem (i32.const 0) $takes)
        (func $takes (type $final))
        (func (export \"_start\") (call_indirect (type $open) (i32.const 0))))";
    let error = load(text).await.to_string();
    assert!(error.contains("gc") || error.contains("GC"), "{error}");
}

/// Loads three modules at once, and counts the compilers that run at the same time.
async fn most_at_once(compilations: usize) -> usize {
    let registry = registry_with(ModuleSettings { compilations, ..modules() });
    let load = |functions| {
        let registry = Arc::clone(&registry);
        tokio::spawn(async move { registry.load(with_functions(functions)).await.map(drop) })
    };
    let loads: Vec<_> = [2000, 2001, 2002].map(load).into();
    let most = AtomicUsize::new(0);
    until("all are loaded", || {
        most.fetch_max(children().split_ascii_whitespace().count(), Ordering::Relaxed);
        loads.iter().all(tokio::task::JoinHandle::is_finished)
    })
    .await;
    most.into_inner()
}

#[tokio::test]
async fn no_more_compilers_run_at_once_than_may() {
    assert_eq!(most_at_once(1).await, 1);
    assert_eq!(most_at_once(3).await, 3);
}

#[tokio::test]
async fn a_compiler_that_wants_too_much_memory_ends_alone() {
    let registry = bounded(ModuleBounds { compile_memory: 1 << 20, ..ModuleBounds::default() });
    assert_eq!(
        refused(&registry, smallest()).await,
        "compiling the module takes more than 1Mi of memory (--module-compile-memory): make it smaller"
    );
}

#[tokio::test]
async fn a_failed_compiler_is_reported_with_its_last_words() {
    for (program, wanted) in [
        ("/nowhere/at/all", "the compiler cannot be started: No such file or directory (os error 2)"),
        ("/bin/false", "the compiler failed on this module: exit status: 1"),
        ("/usr/bin/yes", "the compiled module has more than 256Mi: make it smaller"),
        ("/bin/true", "the compiler failed on this module: its output is no code of this engine"),
    ] {
        let registry = registry_with(ModuleSettings { compiler: program.into(), ..modules() });
        let error = refused(&registry, smallest()).await;
        assert!(error.starts_with(wanted), "{program}: {error}");
        assert_eq!(children(), "", "{program}");
    }
}

#[tokio::test]
async fn the_compiler_has_given_up_what_it_does_not_need() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_metahook"))
        .args(["compile", "1073741824", "60", "machine"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let about = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap();
    let limits = || about("limits").split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    until("its limits are set", || limits().contains("Max open files 3 3 files")).await;
    for limit in [
        "Max cpu time 60 61 seconds",
        "Max file size 0 0 bytes",
        "Max core file size 0 0 bytes",
        "Max address space 1073741824 1073741824 bytes",
    ] {
        assert!(limits().contains(limit), "{}", limits());
    }
    assert_eq!(std::fs::read_link(format!("/proc/{}/cwd", child.id())).unwrap().to_str(), Some("/"));
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(3), "nothing is no module");
}
