//! Errors of calls that tell where the hook was: the names are the hook's own.

use std::fmt::Write as _;
use std::time::Duration;

use super::{call, limits, registry};

/// A place in a mangled name, counted from behind its prefix, as another place refers to it.
fn reference(place: usize) -> String {
    const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let (mut rest, mut digits) = (place - 1, String::new());
    loop {
        digits.insert(0, char::from(DIGITS[rest % 62]));
        rest /= 62;
        if rest == 0 {
            return format!("B{digits}_");
        }
    }
}

/// The mangled name of a function of the crate `core` that repeats its first part a million times. That has so many bytes, all of
/// which are read each time and of which few are written.
fn repeats(bytes: usize) -> String {
    let mut name = "IC4core".to_owned();
    let mut place = name.len();
    write!(name, "MIC1a{}Eu", "u".repeat(bytes)).unwrap();
    for _ in 0..6 {
        let next = name.len();
        write!(name, "T{}E", reference(place).repeat(10)).unwrap();
        place = next;
    }
    format!("_R{name}E")
}

/// Traps twenty calls deep in a function with a name; gives back the error.
async fn traps_in(name: &str) -> String {
    let text = format!(
        r#"(module
          (func $f (@name "{name}") (param i32)
            (if (local.get 0) (then (call $f (i32.sub (local.get 0) (i32.const 1)))))
            unreachable)
          (func (export "_start") (call $f (i32.const 20))))"#
    );
    let registry = registry();
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    let runtime = registry.runtime();
    let called = tokio::time::timeout(Duration::from_mins(1), runtime.call(&module, call("", limits())));
    called.await.expect("the call ends").answer.unwrap_err().to_string()
}

#[tokio::test]
async fn a_name_that_repeats_its_parts_is_not_written_out() {
    for (bytes, start) in [(700, "core::<<()>, (<()>, <()>, "), (90_000, "_RIC4coreMIC1auuuu")] {
        let error = traps_in(&repeats(bytes)).await;
        assert!(error.starts_with(&format!("the hook trapped in {start}")), "{error}");
        assert!(error.contains("…: ") && error.len() < 300, "{error}");
    }
}

#[tokio::test]
async fn a_mangled_name_is_told_as_its_author_wrote_it() {
    let error = traps_in("_ZN4hook4sync17h05af221e174051e9E").await;
    assert!(error.starts_with("the hook trapped in hook::sync: "), "{error}");
}
