//! Tests of calls of modules.

use std::time::SystemTime;

use bytes::Bytes;
use metahook_core::api::policy::Limits;

use super::*;

fn call(limits: Limits) -> Call<'static> {
    let now = SystemTime::UNIX_EPOCH;
    let request = Bytes::new();
    Call {
        controller: "c",
        hook: "sync",
        request,
        now,
        limits,
        seed: Seed::default(),
        mounts: &[],
        memory: Reservation::default(),
    }
}

/// A module compiled in this process, whatever it imports.
fn module(runtime: &Runtime, text: &str) -> Module {
    let bytes = wat::parse_str(text).unwrap();
    let compiled = Compiled::Module(wasmtime::Module::new(&runtime.engines.modules, &bytes).unwrap());
    let code = Code { compiled, space: Arc::default() };
    let (digest, size) = (Digest::of(&bytes), bytes.len());
    let facts = ModuleFacts { digest, size, start: StartWork::default() };
    runtime.module(facts, &code, Origin::Compiled(Duration::ZERO)).unwrap()
}

#[tokio::test]
async fn a_panic_of_the_host_fails_its_call_alone() {
    let limits = LimitBounds::default();
    let settings = RuntimeSettings { concurrency: 1, limits, modules: ModuleSettings::new("none") };
    let runtime = Runtime::new(&settings).unwrap();
    let panics = module(
        &runtime,
        r#"(module (import "test" "panic" (func $panic)) (memory (export "memory") 1)
             (func (export "_start") (call $panic)))"#,
    );
    let fine = module(&runtime, "(module (func (export \"_start\")))");
    for _ in 0..3 {
        let error = runtime.call(&panics, call(limits.default)).await.answer.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the server failed while it ran the hook, which is a bug of the server: a test asked for it"
        );
        assert_eq!(runtime.call(&fine, call(limits.default)).await.answer, Ok(Vec::new()));
    }
}
