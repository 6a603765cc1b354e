//! Which bytes are a hook, and which are refused with what to do.

use std::sync::Arc;

use metahook::hook::wasm::module::ModuleError;

use crate::{load, runtime};

#[tokio::test]
async fn a_module_is_compiled_once_as_long_as_somebody_uses_it() {
    let runtime = runtime();
    let bytes = wat::parse_str("(module (func (export \"_start\")))").unwrap();
    let first = runtime.load(bytes.clone()).await.unwrap();
    let second = runtime.load(bytes).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
}

#[tokio::test]
async fn what_is_no_hook_is_refused_with_what_to_do() {
    let runtime = runtime();
    let refused = |bytes: &[u8]| {
        let (runtime, bytes) = (Arc::clone(&runtime), bytes.to_vec());
        async move { runtime.load(bytes).await.unwrap_err().to_string() }
    };
    assert_eq!(
        refused(b"hello").await,
        "this is not a WebAssembly module: its first bytes are 68 65 6c 6c 6f, not 00 61 73 6d"
    );
    assert!(refused(b"").await.starts_with("this is not a WebAssembly module"));
    let component = wat::parse_str("(component)").unwrap();
    assert!(refused(&component).await.contains("build with --target wasm32-wasip1"));
    assert!(refused(b"\0asm\x01\0\0\0\xff").await.starts_with("the module is refused"));
    assert_eq!(load("(module)").await, ModuleError::NoStart);
    let import = load(r#"(module (import "env" "launch" (func)) (func (export "_start")))"#).await;
    assert!(import.to_string().contains("env") && import.to_string().contains("launch"), "{import}");
}

#[tokio::test]
async fn features_that_hooks_do_not_need_are_off() {
    for text in [
        "(module (memory i64 1) (func (export \"_start\")))",
        "(module (memory 1 1 shared) (func (export \"_start\")))",
        "(module (memory 1) (memory 1) (func (export \"_start\")))",
        "(module (func (export \"_start\") (return_call 0)))",
        "(module (tag) (func (export \"_start\")))",
        "(module (type (struct)) (func (export \"_start\")))",
    ] {
        assert!(matches!(load(text).await, ModuleError::Refused(_)), "{text}");
    }
}
