//! Tests of the checks of a module.

use super::*;

const BOUNDS: OutlineBounds = OutlineBounds { functions: 3, memory: 1 << 20 };
const START: &str = "(func (export \"_start\"))";

fn found(text: &str) -> Result<(), ModuleError> {
    inspect(&wat::parse_str(format!("(module {text})")).unwrap(), BOUNDS).map(drop)
}

fn refused(text: &str) -> String {
    found(text).unwrap_err().to_string()
}

#[test]
fn a_command_is_a_hook() {
    assert_eq!(found(START), Ok(()));
    let imports =
        r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))"#;
    assert_eq!(found(&format!("{imports} (func) {START}")), Ok(()));
    assert_eq!(
        found("(rec (type (func (param i32))) (type $t (func))) (func (export \"_start\") (type $t))"),
        Ok(())
    );
}

#[test]
fn bytes_that_are_no_module_are_described() {
    let refused = |bytes: &[u8]| inspect(bytes, BOUNDS).unwrap_err().to_string();
    assert_eq!(
        refused(b"hello"),
        "this is not a WebAssembly module: its first bytes are 68 65 6c 6c 6f, not 00 61 73 6d"
    );
    assert!(refused(b"").contains("its first bytes are none"));
    assert!(refused(b"\0asm\x02\0\0\0").starts_with("the module is refused: unknown binary version"));
    assert!(refused(b"\0asm\x01\0\0\0\xff").starts_with("the module is refused: "));
}

#[test]
fn a_module_without_start_is_no_hook() {
    for text in ["", "(func (export \"start\"))", "(memory (export \"_start\") 1)"] {
        assert_eq!(found(text), Err(ModuleError::NoStart), "{text}");
    }
    for text in ["(param i32)", "(result i32) (i32.const 1)"] {
        assert_eq!(
            found(&format!("(func (export \"_start\") {text})")),
            Err(ModuleError::StartType),
            "{text}"
        );
    }
}

#[test]
fn functions_up_to_the_bound_are_taken() {
    assert_eq!(found(&format!("(func) (func) {START}")), Ok(()));
    assert_eq!(
        refused(&format!("(func) (func) (func) {START}")),
        "the module has 4 functions, and 3 are allowed (--module-functions-max): make it smaller"
    );
}

#[test]
fn a_table_up_to_the_bound_is_taken() {
    assert_eq!(found(&format!("(table 3 funcref) {START}")), Ok(()));
    assert_eq!(
        refused(&format!("(table 4 funcref) {START}")),
        "the module has a table of 4 elements, and 3 are allowed (--module-functions-max): make it smaller"
    );
}

#[test]
fn a_first_memory_up_to_the_ceiling_is_taken() {
    assert_eq!(found(&format!("(memory 16) {START}")), Ok(()));
    assert_eq!(
        refused(&format!("(memory 17) {START}")),
        "the module begins with 1088Ki of memory, and no hook gets more than 1Mi (--hook-memory-max): lower its initial memory"
    );
}

#[test]
fn data_may_lie_on_so_many_pages_that_it_does_not_fill() {
    let data = |pages: u32, apart: u32, bytes: &str| {
        let segment = |page| format!("(data (i32.const {}) \"{bytes}\")", page * apart);
        (0..pages).map(segment).collect::<Vec<_>>().concat()
    };
    let found = |text: &str| {
        let text = format!("(module (memory 200) {text} {START})");
        inspect(&wat::parse_str(text).unwrap(), OutlineBounds { memory: 16 << 20, ..BOUNDS }).map(drop)
    };
    assert_eq!(found(&data(2000, 4096, "x")), Ok(()));
    assert_eq!(found(&data(2001, 4096, "x")), Err(ModuleError::Data { found: 2001, bound: 2000 }));
    // What fills its pages has no bound but the module's size, in one piece or in many.
    assert_eq!(found(&format!("(data (i32.const 0) \"{}\")", "x".repeat(9 << 20))), Ok(()));
    assert_eq!(found(&data(20_000, 4, "xyz")), Ok(()));
    // A place that is computed may be any; data without a place is written when the hook asks for it.
    let computed = "(global i32 (i32.const 0))".to_owned() + &"(data (global.get 0) \"x\")".repeat(1001);
    assert_eq!(found(&computed), Err(ModuleError::Data { found: 2002, bound: 2000 }));
    assert_eq!(found(&"(data \"x\")".repeat(3000)), Ok(()));
}

#[test]
fn unknown_imports_are_named() {
    let import = |module: &str, name: &str| format!("(import \"{module}\" \"{name}\" (func))");
    let two = import("env", "launch") + &import(WASI, "fd_launch");
    assert_eq!(
        refused(&format!("{two} {START}")),
        "the module wants what hooks cannot have: env.launch, wasi_snapshot_preview1.fd_launch; a hook gets WASI preview 1 and nothing else"
    );
    let seven: String = (0..7).map(|number| import("env", &number.to_string())).collect();
    assert!(refused(&format!("{seven} {START}")).contains("env.4 and 2 more;"));
    assert!(refused(&format!("(import \"env\" \"memory\" (memory 1)) {START}")).contains("env.memory;"));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_outline_panic(bytes: Vec<u8>, place: usize, value: u8) {
        drop(inspect(&[b"\0asm\x01\0\0\0", bytes.as_slice()].concat(), BOUNDS));
        let mut module = wat::parse_str(format!("(module (table 1 funcref) (memory 1) {START})")).unwrap();
        let place = place % module.len();
        module[place] = value;
        drop(inspect(&module, BOUNDS));
    }
}

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
