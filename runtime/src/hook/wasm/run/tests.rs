//! Tests of calls of modules.

use std::pin::pin;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use metahook_core::api::policy::Limits;

use super::threads::ThreadTime;
use super::watchdog::GRACE;
use super::*;

/// A runtime with one place, and with functions for tests.
fn runtime() -> Runtime {
    let limits = LimitBounds::default();
    let settings = RuntimeSettings { concurrency: 1, limits, modules: ModuleSettings::new("none") };
    let mut runtime = Runtime::new(&settings).unwrap();
    let linker = &mut runtime.linker;
    linker.func_wrap("test", "panic", || -> () { panic!("a test asked for it") }).unwrap();
    linker.func_wrap("test", "block", block).unwrap();
    linker.func_wrap("test", "is-of-hooks", || i32::from(threads::is_of_hooks())).unwrap();
    let mut linker = runtime.component_linker.root();
    linker.func_wrap("is-of-hooks", |_, (): ()| Ok((threads::is_of_hooks(),))).unwrap();
    runtime
}

/// Keeps its thread busy for longer than the grace of a call whose timeout is used up.
fn block() {
    let busy = ThreadTime::now();
    while busy.elapsed() < GRACE + Duration::from_millis(100) {
        std::hint::spin_loop();
    }
}

fn limits() -> Limits {
    LimitBounds::default().default
}

pub(in crate::hook::wasm) fn call(limits: Limits) -> Call<'static> {
    let now = SystemTime::UNIX_EPOCH;
    let request = Bytes::new();
    Call {
        controller: "c",
        hook: "sync",
        is_of_shadow: false,
        request,
        now,
        limits,
        seed: Seed::default(),
        mounts: &[],
        memory: Reservation::default(),
    }
}

/// A module or component compiled in this process, whatever it imports.
pub(in crate::hook::wasm) fn module(runtime: &Runtime, text: &str) -> Module {
    let bytes = wat::parse_str(text).unwrap();
    let compiled = if wasmparser::Parser::is_component(&bytes) {
        let engine = &runtime.engines.components;
        Compiled::Component(wasmtime::component::Component::new(engine, &bytes).unwrap())
    } else {
        Compiled::Module(wasmtime::Module::new(&runtime.engines.modules, &bytes).unwrap())
    };
    let code = Code { compiled, space: Arc::default() };
    let (digest, size) = (Digest::of(&bytes), bytes.len());
    let facts = ModuleFacts { digest, size, start: StartWork::default() };
    runtime.module(facts, &code, Origin::Compiled(Duration::ZERO)).unwrap()
}

/// A module that does nothing.
fn idle_module(runtime: &Runtime) -> Module {
    module(runtime, "(module (func (export \"_start\")))")
}

/// A module and a component that trap where they do not run on a thread of hooks.
const ON_HOOK_THREADS: [&str; 2] = [
    r#"(module (import "test" "is-of-hooks" (func $is_of_hooks (result i32)))
         (memory (export "memory") 1)
         (func (export "_start") (if (i32.eqz (call $is_of_hooks)) (then unreachable))))"#,
    r#"(component
         (import "is-of-hooks" (func $is_of_hooks (result bool)))
         (core func $is_of_hooks (canon lower (func $is_of_hooks)))
         (core module $own
           (import "test" "is-of-hooks" (func $is_of_hooks (result i32)))
           (memory (export "memory") 1)
           (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
           (func (export "sync") (param i32 i32) (result i32)
             (if (i32.eqz (call $is_of_hooks)) (then unreachable))
             (i32.const 0)))
         (core instance $own (instantiate $own
           (with "test" (instance (export "is-of-hooks" (func $is_of_hooks))))))
         (func (export "sync") (param "request" string) (result (result string (error string)))
           (canon lift (core func $own "sync") (memory (core memory $own "memory"))
             (realloc (core func $own "realloc")))))"#,
];

#[tokio::test]
async fn a_panic_of_the_host_fails_its_call_alone() {
    let runtime = runtime();
    let panics = module(
        &runtime,
        r#"(module (import "test" "panic" (func $panic)) (memory (export "memory") 1)
             (func (export "_start") (call $panic)))"#,
    );
    let fine = idle_module(&runtime);
    for _ in 0..3 {
        let error = runtime.call(&panics, call(limits())).await.answer.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the server failed while it ran the hook, which is a bug of the server: a test asked for it"
        );
        assert_eq!(runtime.call(&fine, call(limits())).await.answer, Ok(Vec::new()));
    }
}

/// The host copies texts of a component in one piece: on the caller's thread other tasks would wait for this.
#[tokio::test]
async fn a_trusted_module_begins_on_its_callers_thread_and_no_component_does() {
    let runtime = runtime();
    for (text, begins_here) in ON_HOOK_THREADS.into_iter().zip([true, false]) {
        let module = module(&runtime, text);
        let first = runtime.call(&module, call(limits())).await.answer;
        assert_eq!(first, Ok(Vec::new()), "it is not trusted yet");
        while !module.conduct.is_trusted() {
            module.conduct.ran(Duration::ZERO);
        }
        let later = runtime.call(&module, call(limits())).await.answer;
        assert_eq!(later.is_err(), begins_here, "{later:?}");
        let large = Limits { memory: limits().memory + 1, ..limits() };
        assert_eq!(runtime.call(&module, call(large)).await.answer, Ok(Vec::new()), "its memory is large");
    }
}

#[tokio::test]
async fn a_call_that_does_not_give_way_is_ended_and_holds_its_controller_back() {
    let runtime = runtime();
    let blocks = module(
        &runtime,
        r#"(module (import "test" "block" (func $block)) (memory (export "memory") 1)
             (func (export "_start") (call $block) (loop $again (br $again))))"#,
    );
    let fine = idle_module(&runtime);
    let short = Limits { timeout: Duration::from_millis(1), ..limits() };
    let error = runtime.call(&blocks, call(short)).await.answer.unwrap_err().to_string();
    let ended = "the hook did not end within 0.001s (limits.timeout), and did not give way for ";
    assert!(
        error.starts_with(ended) && error.ends_with("s: the next call of its controller waits"),
        "{error}"
    );
    let other = Call { controller: "other", ..call(limits()) };
    assert_eq!(runtime.call(&fine, other).await.answer, Ok(Vec::new()));
    let next = runtime.call(&fine, call(limits()));
    assert!(tokio::time::timeout(Duration::from_millis(300), next).await.is_err(), "it is held back");
}

#[tokio::test]
async fn a_shadow_keeps_no_call_of_its_controller_waiting() {
    let runtime = runtime();
    let fine = idle_module(&runtime);
    let shadow = || Call { is_of_shadow: true, ..call(limits()) };
    // A shadow's call has the one place of its queue, and the queue is held back.
    let under_way = runtime.concurrency.begin(&queue_of(&shadow())).await;
    under_way.hold_back(Duration::from_mins(1));
    let own = tokio::time::timeout(Duration::from_secs(10), runtime.call(&fine, call(limits())));
    assert_eq!(own.await.unwrap().answer, Ok(Vec::new()));
    let waits = tokio::time::timeout(Duration::from_millis(300), runtime.call(&fine, shadow())).await;
    assert!(waits.is_err(), "it is held back");
}

/// Its place goes to the call that waits, and it goes on when that has ended.
#[tokio::test]
async fn a_call_with_much_work_at_its_start_gives_way_before_its_first_instruction() {
    let runtime = runtime();
    for text in ON_HOOK_THREADS {
        let heavy = Module { start: StartWork::of(20_000).unwrap(), ..module(&runtime, text) };
        let (first, other) = (runtime.concurrency.begin("first").await, runtime.concurrency.begin("o").await);
        let place = first.turn().await;
        let (mut heavy, mut other) = (pin!(runtime.call(&heavy, call(limits()))), pin!(other.turn()));
        assert!(heavy.as_mut().now_or_never().is_none() && other.as_mut().now_or_never().is_none());
        drop(place);
        let Either::Right((place, mut heavy)) = select(heavy, other).await else {
            panic!("it kept its place")
        };
        let waits = tokio::time::timeout(Duration::from_millis(50), &mut heavy).await;
        assert!(waits.is_err(), "it ran before the other had its place");
        drop(place);
        assert_eq!(heavy.await.answer, Ok(Vec::new()));
    }
}
