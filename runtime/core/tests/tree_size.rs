//! The estimated memory of JSON beside what an allocator counts.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::alloc::System;

use metahook_core::json::size::{ValueSize, tree_size};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The mean of what malloc adds to an allocation: a word, and rounding to two.
const OVERHEAD: usize = 16;

/// Smaller trees do not matter.
const SMALL: usize = 4 << 10;

/// The memory of the values of a text, counted.
fn counted(text: &str) -> (Value, usize) {
    let region = Region::new(COUNTING);
    let value = serde_json::from_str(text).unwrap();
    let counts = region.change();
    let live = counts.allocations - counts.deallocations;
    (value, counts.bytes_allocated - counts.bytes_deallocated + live * OVERHEAD)
}

/// How much the estimate differs, in percent; of a small tree nothing.
fn off(text: &str) -> f64 {
    let (value, truth) = counted(text);
    assert!(truth < SMALL || ValueSize::of(&value).tree.abs_diff(tree_size(text.as_bytes())) <= truth / 5);
    let number = |size: usize| f64::from(u32::try_from(size).unwrap());
    if truth < SMALL { 0.0 } else { 100.0 * (number(tree_size(text.as_bytes())) / number(truth) - 1.0) }
}

fn members(count: usize, key: impl Fn(usize) -> String) -> String {
    let members: Vec<_> = (0..count).map(|nth| format!("{:?}:{nth}", key(nth))).collect();
    format!("{{{}}}", members.join(","))
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 600, 30, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..40).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,12}", inner, 0..40)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// One test, so that no other one allocates meanwhile.
#[test]
fn the_memory_of_a_tree_is_estimated_within_a_fifth() {
    let deep = format!("{}{}{}", "[".repeat(100), r#"{"a":{"b":[1]}}"#, "]".repeat(100));
    let scattered = |nth: usize| format!("{:016x}", nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let child = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":"b"}},"data":{"k":"v"}}"#;
    for (what, text) in [
        ("empty keys", format!("[{}]", vec![r#"{"":0}"#; 50_000].join(","))),
        ("members in order", members(100_000, |nth| format!("{nth:06}"))),
        ("members in no order", members(100_000, scattered)),
        ("a dozen members", format!("[{}]", vec![members(12, scattered); 1_000].join(","))),
        ("thirty members", format!("[{}]", vec![members(30, |nth| format!("k{nth:02}")); 1_000].join(","))),
        ("numbers", format!("[{}]", vec!["1"; 60_000].join(","))),
        ("lists", format!("[{}]", vec!["[0]"; 20_000].join(","))),
        ("texts", format!("[{}]", vec![r#""some text""#; 20_000].join(","))),
        ("a long text", format!("[{:?}]", "x".repeat(1 << 20))),
        ("deep", format!("[{}]", vec![&*deep; 500].join(","))),
        ("children", format!("[{}]", vec![child; 2_000].join(","))),
    ] {
        let off = off(&text);
        println!("{what}: {off:.1} %");
        assert!(off.abs() <= 20.0, "{what}: {off:.1} %");
    }
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let random = TestRunner::new(config).run(&tree(), |value| {
        let off = off(&value.to_string());
        prop_assert!(off.abs() <= 20.0, "{off:.1} %");
        Ok(())
    });
    random.unwrap();
}
