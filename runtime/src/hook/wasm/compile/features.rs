//! Features of WebAssembly that hooks may use, and the settings of the engine that decide about code.

use wasmparser::{
    BinaryReaderError, FuncValidatorAllocations, Parser, ValidPayload, Validator, WasmFeatures,
};
use wasmtime::Config;

/// The features that toolchains use for wasm32-wasip1; any other would be attack surface.
const ALLOWED: WasmFeatures =
    WasmFeatures::WASM2.difference(WasmFeatures::GC_TYPES).union(WasmFeatures::FLOATS);

/// The other features: their common name, and the target feature of compilers that brings them.
const NAMES: [(WasmFeatures, &str, &str); 14] = [
    (WasmFeatures::MEMORY64, "memory64", "memory64"),
    (WasmFeatures::THREADS, "threads (shared memory, atomics)", "atomics"),
    (WasmFeatures::SHARED_EVERYTHING_THREADS, "shared-everything threads", "shared-everything"),
    (WasmFeatures::MULTI_MEMORY, "several memories", "multimemory"),
    (WasmFeatures::RELAXED_SIMD, "relaxed SIMD", "relaxed-simd"),
    (WasmFeatures::TAIL_CALL, "tail calls", "tail-call"),
    (WasmFeatures::EXCEPTIONS, "exceptions", "exception-handling"),
    (WasmFeatures::LEGACY_EXCEPTIONS, "exceptions", "exception-handling"),
    (WasmFeatures::EXTENDED_CONST, "extended constant expressions", "extended-const"),
    (WasmFeatures::GC, "garbage collection", "gc"),
    (WasmFeatures::GC_TYPES, "garbage collected types", "gc"),
    (WasmFeatures::FUNCTION_REFERENCES, "typed function references", "gc"),
    (WasmFeatures::CUSTOM_PAGE_SIZES, "custom page sizes", "custom-page-sizes"),
    (WasmFeatures::WIDE_ARITHMETIC, "wide arithmetic", "wide-arithmetic"),
];

/// The settings of an engine that decide about code: the compiler's process and the server share them. A pool of instances
/// is none of them.
pub(in crate::hook::wasm) fn engine_config() -> Config {
    let mut config = Config::new();
    // Fuel is the measure of a call, equal on every machine; yields make a long call give way.
    config.consume_fuel(true);
    config.cranelift_nan_canonicalization(true);
    config.max_wasm_stack(512 << 10);
    config.async_stack_size(2 << 20);
    config.wasm_features(ALLOWED.complement(), false);
    config
}

/// Validates a whole module. The error names the feature, where one is missing.
pub(super) fn validate(bytes: &[u8]) -> Result<(), String> {
    let Err(error) = check(bytes, ALLOWED) else { return Ok(()) };
    // Some errors do not name their feature: with it they are gone, or come later.
    let goes_with = |feature: WasmFeatures| {
        check(bytes, ALLOWED | feature).err().is_none_or(|other| other.offset() > error.offset())
    };
    let known = NAMES.iter().find(|(feature, ..)| match error.missing_wasm_feature() {
        Some(missing) => *feature == missing,
        None => goes_with(*feature),
    });
    Err(match (known, error.missing_wasm_feature()) {
        (Some((_, name, target_feature)), _) => format!(
            "it uses {name}, which hooks do not have: build with --target wasm32-wasip1 and without the target feature {target_feature}"
        ),
        (None, Some(_)) => {
            format!("it uses a feature that hooks do not have: {error}; build with --target wasm32-wasip1")
        }
        (None, None) => error.to_string(),
    })
}

fn check(bytes: &[u8], features: WasmFeatures) -> Result<(), BinaryReaderError> {
    let mut validator = Validator::new_with_features(features);
    let mut allocations = FuncValidatorAllocations::default();
    for payload in Parser::new(0).parse_all(bytes) {
        if let ValidPayload::Func(function, body) = validator.payload(&payload?)? {
            let mut function = function.into_validator(allocations);
            function.validate(&body)?;
            allocations = function.into_allocations();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        validate(&wat::parse_str(format!("(module {text})")).unwrap()).unwrap_err()
    }

    #[test]
    fn the_features_of_toolchains_are_allowed() {
        let text = r#"(module
            (memory 1) (table 1 funcref) (global (mut i32) (i32.const 0)) (data "x") (elem declare func $f)
            (func $f (param f64) (result i32 i32)
              (memory.copy (i32.const 0) (i32.const 1) (i32.const 1))
              (memory.init 0 (i32.const 0) (i32.const 0) (i32.const 1))
              (drop (i32x4.splat (i32.const 1)))
              (drop (ref.func $f))
              (i32.trunc_sat_f64_s (local.get 0))
              (i32.extend8_s (i32.const 1))))"#;
        assert_eq!(validate(&wat::parse_str(text).unwrap()), Ok(()));
    }

    #[test]
    fn a_feature_that_is_off_is_named() {
        for (text, name) in [
            ("(memory i64 1)", "memory64"),
            ("(table i64 1 funcref)", "memory64"),
            ("(memory 1 1 shared)", "threads (shared memory, atomics)"),
            ("(memory 1) (func (drop (i32.atomic.load (i32.const 0))))", "threads (shared memory, atomics)"),
            ("(memory 1) (memory 1)", "several memories"),
            ("(func (return_call 0))", "tail calls"),
            ("(tag)", "exceptions"),
            ("(func (try_table))", "exceptions"),
            ("(type (struct))", "garbage collection"),
            ("(func (param externref))", "garbage collected types"),
            ("(func (param (ref func)))", "typed function references"),
            ("(memory 1 (pagesize 1))", "custom page sizes"),
            ("(global i32 (i32.add (i32.const 1) (i32.const 1)))", "extended constant expressions"),
            ("(func (param v128) (drop (i32x4.relaxed_trunc_f32x4_s (local.get 0))))", "relaxed SIMD"),
            (
                "(func (param i64) (result i64 i64) (i64.mul_wide_s (local.get 0) (local.get 0)))",
                "wide arithmetic",
            ),
        ] {
            let said = error(text);
            assert!(
                said.starts_with(&format!("it uses {name}, which hooks do not have: build with")),
                "{text}: {said}"
            );
        }
        assert_eq!(
            error("(func (return_call 0))"),
            "it uses tail calls, which hooks do not have: build with --target wasm32-wasip1 and without the target feature tail-call"
        );
    }

    #[test]
    fn wrong_code_is_refused_with_its_offset() {
        assert_eq!(
            error("(func (result i32))"),
            "type mismatch: expected i32 but nothing on stack (at offset 0x18)"
        );
    }
}
