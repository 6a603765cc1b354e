//! Small files of which the engine makes much: bounds of what the server keeps of them.

use std::fmt::Write as _;

use metahook_server::hook::wasm::compile::ModuleError;

use super::{call, limits, load, registry};

/// A hook of the world `metahook:hook` that has something besides.
fn component(besides: &str) -> String {
    format!(
        r#"(component {besides}
          (core module $own
            (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
            (func (export "f") (param i32 i32) (result i32) (i32.const 0)))
          (core instance $own (instantiate $own))
          (func (export "sync") (param "request" string) (result (result string (error string)))
            (canon lift (core func $own "f") (memory (core memory $own "memory")) (realloc (core func $own "realloc")))))"#
    )
}

/// Loads and runs what is within all bounds.
async fn runs(text: &str) {
    let registry = registry();
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    assert_eq!(registry.runtime().call(&module, call("{}", limits())).await.answer, Ok(Vec::new()));
}

/// Instances, each of which exports the one before twice.
fn doubling(levels: usize) -> String {
    let mut text = "(instance $i0)".to_owned();
    for level in 1..=levels {
        let below = level - 1;
        write!(
            text,
            r#"(instance $i{level} (export "a" (instance $i{below})) (export "b" (instance $i{below})))"#
        )
        .unwrap();
    }
    text
}

#[tokio::test]
async fn instances_that_repeat_are_taken_up_to_the_bound() {
    let import = |number: usize, name: usize| {
        format!(r#"(import "wasi:io/n{number}{}" (instance))"#, "a".repeat(name))
    };
    let with = |name| component(&(import(1, 80_000) + &import(2, 80_000) + &import(3, name) + &doubling(11)));
    let counted =
        |levels: usize| 100 + (1..=levels).map(|level| 100 + 202 * ((1 << level) - 1)).sum::<usize>();
    let imports = 3 * (100 + "wasi:io/n1".len()) + 160_000;
    let left = (1 << 20) - imports - counted(11) - (100 + "sync".len());
    runs(&with(left)).await;
    let refused = load(&with(left + 1)).await.to_string();
    assert_eq!(
        refused,
        "the module is refused: its imports, exports and instances have 1048577 bytes when they are written out, and 1048576 are allowed: nest and repeat fewer instances"
    );
}

/// Written out it would have 2^60 exports.
#[tokio::test]
async fn exports_that_nest_and_repeat_are_refused_and_not_written_out() {
    // The engine's own bound of a type's size is a million.
    for levels in [13, 17] {
        let text = component(&(doubling(levels) + &format!(r#"(export "x" (instance $i{levels}))"#)));
        let bytes = wat::parse_str(&text).unwrap();
        assert!(bytes.len() < 1000, "{}", bytes.len());
        let refused = load(&text).await.to_string();
        assert!(refused.contains("bytes when they are written out, and 1048576 are allowed"), "{refused}");
    }
    let inner = format!("(component $c {})", doubling(10));
    let twice = "(instance (instantiate $c))".repeat(2);
    let nested = (0..40).fold(inner, |inner, _| format!("(component $c {inner} {twice})"));
    let refused = load(&component(&(nested + &twice))).await.to_string();
    assert!(refused.contains("bytes when they are written out, and 1048576 are allowed"), "{refused}");
}

#[tokio::test]
async fn zeros_between_data_are_taken_up_to_the_bound() {
    let half = |more: u32| {
        let end = (32 << 20) + 1 + more;
        format!("(core module (memory 600) (data (i32.const 0) \"x\") (data (i32.const {end}) \"x\"))")
    };
    runs(&component(&half(0).repeat(2))).await;
    let refused = load(&component(&(half(0) + &half(1)))).await;
    assert_eq!(refused, ModuleError::Gaps { found: (64 << 20) + 1, bound: 64 << 20 });
}

#[tokio::test]
async fn names_are_taken_up_to_the_bound() {
    let module = |bytes: usize| {
        let name =
            |number: usize, len: usize| format!("(export \"{number:02}{}\" (func $f))", "x".repeat(len - 2));
        let names: String = (0..10).map(|number| name(number, 100_000)).collect();
        let last = name(10, bytes - 1_000_000 - "_start".len());
        format!("(module (func $f (export \"_start\")) {names} {last})")
    };
    runs(&module(1 << 20)).await;
    let refused = load(&module((1 << 20) + 1)).await;
    assert_eq!(refused, ModuleError::Names { found: (1 << 20) + 1, bound: 1 << 20 });
}

/// Types of functions with so many bytes together.
#[tokio::test]
async fn types_are_taken_up_to_the_bound() {
    let module = |types: usize| {
        // Ten bytes each; the section begins with their number, and ends with the type of `_start`.
        let ty = |number: usize| {
            let params = (0..7).map(|digit| ["i32 ", "i64 ", "f32 ", "f64 "][number >> (2 * digit) & 3]);
            format!("(type (func (param {})))", params.collect::<String>())
        };
        let types: String = (0..types).map(ty).collect();
        format!("(module {types} (func (export \"_start\")))")
    };
    runs(&module(13_106)).await;
    assert_eq!(load(&module(13_107)).await, ModuleError::Types { found: 131_075, bound: 131_072 });
}

/// The engine lists the imports of each instance.
#[tokio::test]
async fn imports_count_as_often_as_their_module_is_instantiated() {
    let with = |imports: usize| {
        let (mut exported, mut imported) = (String::new(), String::new());
        for number in 0..imports {
            write!(exported, "(export \"{number:03x}\" (func 0))").unwrap();
            write!(imported, "(import \"\" \"{number:03x}\" (func))").unwrap();
        }
        let instances = "(core instance (instantiate $many (with \"\" (instance $has))))".repeat(100);
        component(&format!(
            "(core module $has (func) {exported}) (core module $many {imported}) (core instance $has (instantiate $has)) {instances}"
        ))
    };
    runs(&with(600)).await;
    assert_eq!(load(&with(4001)).await, ModuleError::Start { found: 400_101, bound: 400_000 });
}

/// Each component has a module with one memory and no table besides.
#[tokio::test]
async fn a_component_that_no_call_has_room_for_is_refused_with_both_numbers() {
    for (has, own, what, bound) in [
        ("(memory 1)", 1, "Wasm linear memories", 4),
        ("(table 1 funcref)", 0, "tables", 16),
        ("", 1, "core module instances", 128),
    ] {
        let with = |count: usize| {
            let instances = "(core instance (instantiate $m))".repeat(count - own);
            component(&format!("(core module $m {has}) {instances}"))
        };
        runs(&with(bound)).await;
        let refused = load(&with(bound + 1)).await.to_string();
        assert!(
            refused.starts_with("a call of the module has no room in the server: ")
                && refused.contains(&format!("{} {what}", bound + 1))
                && refused.contains(&format!("maximum of {bound}")),
            "{refused}"
        );
    }
}
