//! Components of the world `metahook:hook`: functions that take and return text, without pipes.

use std::time::Duration;

use metahook_core::api::policy::Limits;
use metahook_server::hook::wasm::compile::ModuleError;
use metahook_server::hook::wasm::run::{CallError, Called};

use super::{call, limits, load, registry};

/// Components of one module with a memory, whose function takes a text and returns the address of a result.
fn component(name: &str, body: &str) -> String {
    with_memory(name, body, 4)
}

fn with_memory(name: &str, body: &str, pages: u32) -> String {
    format!(
        r#"(component
          (core module $own
            (memory (export "memory") {pages})
            (global $free (mut i32) (i32.const 4096))
            (func (export "realloc") (param i32 i32 i32 i32) (result i32)
              (global.get $free)
              (global.set $free (i32.add (global.get $free) (local.get 3))))
            (data (i32.const 1024) "no colour")
            (func (export "f") (param $at i32) (param $len i32) (result i32) {body}))
          (core instance $i (instantiate $own))
          (func (export "{name}") (param "request" string) (result (result string (error string)))
            (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"#
    )
}

/// Returns its request.
const ECHO: &str =
    "(i32.store (i32.const 4) (local.get $at)) (i32.store (i32.const 8) (local.get $len)) (i32.const 0)";

/// Returns an error.
const REFUSE: &str = "(i32.store (i32.const 0) (i32.const 1)) (i32.store (i32.const 4) (i32.const 1024))
    (i32.store (i32.const 8) (i32.const 9)) (i32.const 0)";

async fn run(text: &str, request: &str, limits: Limits) -> Called {
    let registry = registry();
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    registry.runtime().call(&module, call(request.to_owned(), limits)).await
}

#[tokio::test]
async fn a_function_gets_the_request_and_returns_the_answer() {
    let called = run(&component("sync", ECHO), r#"{"a":1}"#, limits()).await;
    assert_eq!(called.answer, Ok(br#"{"a":1}"#.to_vec()));
    assert!(called.pure && called.usage.instructions > 0 && called.usage.memory == 4 << 16);
}

/// As of a command that reads and writes them.
#[tokio::test]
async fn request_and_answer_cost_instructions_by_their_bytes() {
    let used = async |bytes: usize| {
        let called = run(&component("sync", ECHO), &"1".repeat(bytes), limits()).await;
        assert_eq!(called.answer.map(|answer| answer.len()), Ok(bytes));
        called.usage.instructions
    };
    let (short, long) = (used(1).await, used(160_001).await);
    assert!((20_000..20_100).contains(&(long - short)), "{short} {long}");
    let budget = Limits { instructions: 10_000, ..limits() };
    let error = run(&component("sync", ECHO), &"1".repeat(160_001), budget).await.answer.unwrap_err();
    assert!(error.to_string().contains("used up its 10000 instructions"), "{error}");
}

#[tokio::test]
async fn an_error_is_told_and_is_no_answer() {
    let error = run(&component("sync", REFUSE), "{}", limits()).await.answer.unwrap_err();
    assert_eq!(error.to_string(), "the hook was stopped: it returned an error: no colour");
}

#[tokio::test]
async fn a_hook_that_the_component_does_not_export_is_named() {
    let error = run(&component("finalize", ECHO), "{}", limits()).await.answer.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the hook could not be started: the component exports no function sync, and no wasi:cli/run"
    );
}

#[tokio::test]
async fn another_type_is_refused() {
    let text = r#"(component
        (core module $own (func (export "f") (result i32) (i32.const 0)))
        (core instance $i (instantiate $own))
        (func (export "sync") (result u32) (canon lift (core func $i "f"))))"#;
    let refused = load(text).await;
    assert!(matches!(&refused, ModuleError::HookType { name: "sync", .. }), "{refused}");
    assert!(refused.to_string().ends_with("a hook is func(request: string) -> result<string, string>"));
}

#[tokio::test]
async fn an_answer_may_be_as_long_as_its_bound() {
    let request = "x".repeat(1000);
    let bound = |output| Limits { output, ..limits() };
    let text = component("sync", ECHO);
    assert_eq!(run(&text, &request, bound(1000)).await.answer, Ok(request.clone().into_bytes()));
    let error = run(&text, &request, bound(999)).await.answer.unwrap_err();
    assert_eq!(error, CallError::Output { budget: "999".to_owned() });
}

/// Returns so many bytes.
fn returns(bytes: usize) -> String {
    let body = format!(
        "(i32.store (i32.const 4) (i32.const 65536)) (i32.store (i32.const 8) (i32.const {bytes})) (i32.const 0)"
    );
    with_memory("sync", &body, 400)
}

/// The default of `limits.output`, and more: as much as is never copied for a call.
#[tokio::test]
async fn the_bound_of_an_answer_is_that_of_a_command() {
    for bytes in [(1 << 20) + 1, 4 << 20] {
        let called = run(&returns(bytes), "{}", limits()).await;
        assert_eq!(called.answer.map(|answer| answer.len()), Ok(bytes));
    }
    for bytes in [(4 << 20) + 1, 20 << 20] {
        let error = run(&returns(bytes), "{}", limits()).await.answer.unwrap_err();
        assert_eq!(error.to_string(), "the hook printed more than 4Mi (limits.output)", "{bytes}");
    }
}

/// The bound is that of the answer's UTF-8, of which UTF-16 has up to twice as many bytes.
#[tokio::test]
async fn an_answer_in_utf16_has_the_same_bound() {
    let text = |units: usize| {
        let body = format!(
            "(memory.fill (i32.const 65536) (i32.const 32) (i32.const {}))
             (i32.store (i32.const 4) (i32.const 65536)) (i32.store (i32.const 8) (i32.const {units})) (i32.const 0)",
            2 * units
        );
        // 0x2020 is †, of three bytes in UTF-8.
        with_memory("sync", &body, 200).replace(
            "(canon lift (core func $i \"f\")",
            "(canon lift (core func $i \"f\") string-encoding=utf16",
        )
    };
    let bound = Limits { output: 3000, ..limits() };
    let called = run(&text(1000), "{}", bound).await;
    assert_eq!(called.answer.map(|answer| answer.len()), Ok(3000));
    let error = run(&text(1001), "{}", bound).await.answer.unwrap_err();
    assert_eq!(error, CallError::Output { budget: "3000".to_owned() });
}

#[tokio::test]
async fn instructions_and_memory_have_their_bounds() {
    let looping = component("sync", "(loop $on (br $on)) unreachable");
    let error = run(&looping, "{}", Limits { instructions: 100_000, ..limits() }).await.answer.unwrap_err();
    assert!(error.to_string().contains("used up its 100000 instructions"), "{error}");
    let limits = Limits { memory: 4 << 16, ..limits() };
    assert!(run(&component("sync", ECHO), "{}", limits).await.answer.is_ok());
    let error = run(&with_memory("sync", ECHO, 5), "{}", limits).await.answer.unwrap_err();
    assert!(error.to_string().contains("wanted 320Ki of memory and may have 256Ki"), "{error}");
}

/// Each memory alone is within the bound.
#[tokio::test]
async fn memories_are_added_up() {
    let two = r#"(component
        (core module $own (memory (export "memory") 3) (func (export "f") (param i32 i32) (result i32) (i32.const 0))
          (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
        (core instance $other (instantiate $own))
        (core instance $i (instantiate $own))
        (func (export "sync") (param "request" string) (result (result string (error string)))
          (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"#;
    let bound = |pages: u64| Limits { memory: pages << 16, ..limits() };
    assert_eq!(run(two, "{}", bound(6)).await.answer, Ok(Vec::new()));
    let error = run(two, "{}", bound(5)).await.answer.unwrap_err();
    assert!(error.to_string().contains("wanted 384Ki of memory and may have 320Ki"), "{error}");
}

/// An instance of an instance of an instance …: each level doubles them.
#[tokio::test]
async fn instances_have_a_bound() {
    let nested = |levels: u32| {
        let mut inner = "(component $c0 (core module $m) (core instance (instantiate $m)))".to_owned();
        for level in 1..=levels {
            let below = level - 1;
            inner = format!(
                "(component $c{level} {inner} (instance (instantiate $c{below})) (instance (instantiate $c{below})))"
            );
        }
        let own = component("sync", ECHO);
        let own = own.strip_prefix("(component").unwrap();
        format!("(component {inner} (instance (instantiate $c{levels})) {own}")
    };
    assert!(run(&nested(5), "{}", limits()).await.answer.is_ok(), "33 instances");
    let registry = registry();
    let many = registry.load(wat::parse_str(nested(9)).unwrap()).await;
    let said = match many {
        Err(refused) => refused.to_string(),
        Ok(module) => {
            registry.runtime().call(&module, call("{}", limits())).await.answer.unwrap_err().to_string()
        }
    };
    assert!(said.contains("instances"), "{said}");
}

/// Two components in one: the outer one passes a text to the inner one and gets it back. This is what `wac plug` and `wasm-tools
/// compose` make.
fn composed(lower: &str, body: &str) -> String {
    composed_with(64, lower, body)
}

/// Both have a memory of so many pages.
fn composed_with(pages: u32, lower: &str, body: &str) -> String {
    format!(
        r#"(component
          (component $inner
            (core module $own
              (memory (export "memory") {pages})
              (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536))
              (func (export "f") (param i32 i32) (result i32)
                (i32.store (i32.const 0) (local.get 0)) (i32.store (i32.const 4) (local.get 1)) (i32.const 0)))
            (core instance $i (instantiate $own))
            (func (export "f") (param "text" string) (result string)
              (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))
          (component $outer
            (import "f" (func $f (param "text" string) (result string)))
            (core module $shared
              (memory (export "memory") {pages})
              (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 2097152)))
            (core instance $shared (instantiate $shared))
            (alias core export $shared "memory" (core memory $memory))
            (alias core export $shared "realloc" (core func $realloc))
            (core func $f (canon lower (func $f) (memory $memory) (realloc $realloc) {lower}))
            (core module $own
              (import "shared" "memory" (memory {pages}))
              (import "host" "f" (func $f (param i32 i32 i32)))
              (func $main (export "sync") (param $at i32) (param $len i32) (result i32) {body}))
            (core instance $i (instantiate $own
              (with "shared" (instance $shared))
              (with "host" (instance (export "f" (func $f))))))
            (func (export "sync") (param "request" string) (result (result string (error string)))
              (canon lift (core func $i "sync") (memory $memory) (realloc $realloc))))
          (instance $inner (instantiate $inner))
          (instance $outer (instantiate $outer (with "f" (func $inner "f"))))
          (export "sync" (func $outer "sync")))"#
    )
}

#[tokio::test]
async fn a_component_of_components_that_pass_text_is_a_hook() {
    let echo = "(call $f (local.get $at) (local.get $len) (i32.const 4)) (i32.const 0)";
    let called = run(&composed("", echo), r#"{"a":"ä"}"#, limits()).await;
    assert_eq!(called.answer, Ok(r#"{"a":"ä"}"#.as_bytes().to_vec()));
    assert!(called.pure && called.usage.memory == 128 << 16, "{:?}", called.usage);
}

/// Each text costs the host time and the hook some thirty instructions.
#[tokio::test]
async fn a_component_that_passes_text_without_end_gives_way_and_runs_into_its_timeout() {
    let again =
        "(loop $again (call $f (i32.const 65536) (i32.const 1000000) (i32.const 4)) (br $again)) unreachable";
    for encoding in ["", "string-encoding=utf16"] {
        let limits = Limits { timeout: Duration::from_millis(500), ..limits() };
        let error = run(&composed(encoding, again), "{}", limits).await.answer.unwrap_err();
        // Longer than that it says how long it did not give way.
        assert_eq!(error.to_string(), "the hook did not end within 0.5s (limits.timeout)", "{encoding}");
    }
}

/// Of 80 MiB, in one piece, with memories near the ceiling: the engine cannot be interrupted within a text.
#[tokio::test]
async fn a_component_that_passes_long_texts_gives_way_after_each() {
    let again =
        "(loop $again (call $f (i32.const 3145728) (i32.const {len}) (i32.const 4)) (br $again)) unreachable";
    // In UTF-16 the length counts pairs of bytes.
    for (encoding, len) in [("", 80 << 20), ("string-encoding=utf16", 40 << 20)] {
        let limits = Limits { timeout: Duration::from_millis(500), memory: 512 << 20, ..limits() };
        let text = composed_with(4000, encoding, &again.replace("{len}", &len.to_string()));
        let error = run(&text, "{}", limits).await.answer.unwrap_err().to_string();
        assert!(error.starts_with("the hook did not end within 0.5s (limits.timeout)"), "{error}");
    }
}

#[tokio::test]
async fn the_memories_of_inner_components_are_added_up() {
    let limits = Limits { memory: 127 << 16, ..limits() };
    let error = run(&composed("", "unreachable"), "{}", limits).await.answer.unwrap_err();
    assert!(error.to_string().contains("wanted 8Mi of memory and may have 8128Ki"), "{error}");
}

/// Several memories are for the engine's own copies between inner components.
#[tokio::test]
async fn a_module_with_two_memories_is_refused_in_a_component_too() {
    let two = component("sync", ECHO).replace("(global $free", "(memory 1) (global $free");
    let refused = load(&two).await.to_string();
    assert!(refused.starts_with("the module is refused: it uses several memories"), "{refused}");
}
