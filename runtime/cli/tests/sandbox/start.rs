//! The start of a call, which the host does before the hook's first instruction.

use metahook_core::api::policy::Limits;
use metahook_server::hook::wasm::compile::ModuleError;
use metahook_server::hook::wasm::run::CallError;

use crate::{call, limits, load, registry};

/// A module that begins with so many pages of data and one far away, all of which each call writes.
fn pages(count: usize) -> String {
    let data = "x".repeat(count * 4096);
    format!(
        r#"(module (memory 900) (data (i32.const 0) "{data}") (data (i32.const 50000000) "x")
             (func (export "_start")))"#
    )
}

#[tokio::test]
async fn a_start_up_to_the_bound_costs_instructions() {
    let registry = registry();
    let module = registry.load(wat::parse_str(pages(2498)).unwrap()).await.unwrap();
    let steps = 2 + 2499 * 160;
    let cost = (steps - 10_000) * 10;
    let called = registry.runtime().call(&module, call("", limits())).await;
    assert_eq!(called.answer, Ok(Vec::new()));
    // The engine charges the bytes besides.
    assert!(called.usage.instructions > cost + 2498 * 4096, "{:?}", called.usage);
    let too_few = Limits { instructions: cost - 1, ..limits() };
    let called = registry.runtime().call(&module, call("", too_few)).await;
    assert!(matches!(called.answer, Err(CallError::Instructions { .. })), "{:?}", called.answer);
    assert_eq!(called.usage.memory, 0, "nothing was written");
}

#[tokio::test]
async fn a_start_beyond_the_bound_is_refused_by_name() {
    let error = load(&pages(2499)).await;
    assert_eq!(error, ModuleError::Start { found: 400_002, bound: 400_000 });
    assert_eq!(
        error.to_string(),
        "each call of the module begins with 400002 steps of the host (imports, functions, data, elements of tables, globals), and 400000 are allowed: lay its first data together, write it in the module, or instantiate it less often"
    );
}

#[tokio::test]
async fn data_that_lies_together_costs_nothing_however_much() {
    let segments = (0..40_000).map(|at| format!("(data (i32.const {}) \"xyz\")", at * 4));
    let segments = segments.collect::<Vec<_>>().concat();
    let registry = registry();
    let text = format!(r#"(module (memory 900) {segments} (func (export "_start")))"#);
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    let called = registry.runtime().call(&module, call("", limits())).await;
    assert_eq!((called.answer, called.usage.instructions), (Ok(Vec::new()), 1));
}
