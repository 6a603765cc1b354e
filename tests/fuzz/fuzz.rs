//! One target under libFuzzer, chosen by the environment variable `FUZZ_TARGET`.

#![no_main]
#![allow(unsafe_code, reason = "libFuzzer calls functions by their names")]
#![allow(clippy::panic, reason = "a target: without a name there is nothing to do")]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let names = fuzz::TARGETS.map(|target| target.name).join(", ");
    fuzz::target(&name).unwrap_or_else(|| panic!("FUZZ_TARGET is {name:?}, not one of {names}")).check
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
