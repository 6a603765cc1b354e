//! Reach of hooks: no files, no environment, no other calls.

use std::sync::Arc;

use metahook_server::hook::wasm::run::Call;

use crate::limits::counts_to;
use crate::{IMPORTS, call, limits, registry, run};

#[tokio::test]
async fn there_is_no_environment_and_there_are_no_files() {
    // Exits with 1 unless: no variables, no preopened directory, and /etc/passwd below any descriptor is refused.
    let body = "(func $main
        (drop (call $environ (i32.const 100) (i32.const 104)))
        (if (i32.load (i32.const 100)) (then (call $exit (i32.const 1))))
        (if (i32.eqz (call $prestat (i32.const 3) (i32.const 100))) (then (call $exit (i32.const 2))))
        (if (i32.eqz (call $open (i32.const 3) (i32.const 32) (i32.const 11))) (then (call $exit (i32.const 3)))))";
    assert_eq!(run(body, limits()).await.answer, Ok(Vec::new()));
}

#[tokio::test]
async fn nothing_outlives_a_call() {
    let text = format!(
        "(module {IMPORTS} (global $calls (mut i32) (i32.const 0))
           (func $main
             (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
             (if (i32.ne (global.get $calls) (i32.const 1)) (then unreachable))
             (if (i32.load (i32.const 1024)) (then unreachable))
             (i32.store (i32.const 1024) (i32.const 1)))
           (export \"_start\" (func $main)))"
    );
    let registry = registry();
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    for _ in 0..10 {
        let asked = call("", limits());
        assert!(registry.runtime().call(&module, asked).await.answer.is_ok());
    }
}

#[tokio::test]
async fn more_calls_than_slots_wait_for_their_turn() {
    let text = format!("(module {IMPORTS} {} (export \"_start\" (func $main)))", counts_to(100_000));
    let registry = registry();
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    let calls = (0..50).map(|number| {
        let (registry, module) = (Arc::clone(&registry), Arc::clone(&module));
        tokio::spawn(async move {
            let controller = ["a", "b", "c", "d", "e"][number % 5];
            let asked = Call { controller, ..call("", limits()) };
            registry.runtime().call(&module, asked).await.answer
        })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap(), b"ok\n");
    }
}
