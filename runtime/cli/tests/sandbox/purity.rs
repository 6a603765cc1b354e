//! Purity of hooks: a hook sees nothing outside of its request that differs from call to call, but for the time if it
//! asks.

use std::time::{Duration, UNIX_EPOCH};

use metahook_server::hook::wasm::run::{Call, Called, Seed};

use crate::{call, limits, run, run_as};

/// Prints 32 random bytes, asked for in two pieces.
const RANDOM: &str = "(func $main
    (call $must (i32.const 0) (call $random (i32.const 64) (i32.const 20)))
    (call $must (i32.const 0) (call $random (i32.const 84) (i32.const 12)))
    (call $dump (i32.const 64) (i32.const 32)))";

/// Prints what a clock says at two readings.
fn reads(clock: u32) -> String {
    format!(
        "(func $main
           (call $must (i32.const 0) (call $time (i32.const {clock}) (i64.const 0) (i32.const 64)))
           (call $must (i32.const 0) (call $time (i32.const {clock}) (i64.const 0) (i32.const 72)))
           (call $dump (i32.const 64) (i32.const 16)))"
    )
}

/// Waits for a clock, then prints the monotonic one.
fn waits(clock: u32, nanoseconds: u64, absolute: bool) -> String {
    format!(
        "(func $main
           (i64.store (i32.const 64) (i64.const 42))
           (i32.store (i32.const 80) (i32.const {clock}))
           (i64.store (i32.const 88) (i64.const {nanoseconds}))
           (i32.store16 (i32.const 104) (i32.const {}))
           (call $must (i32.const 0) (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 200)))
           (call $must (i32.const 1) (i32.load (i32.const 200)))
           (call $must (i32.const 42) (i32.wrap_i64 (i64.load (i32.const 128))))
           (call $must (i32.const 0) (i32.load (i32.const 136)))
           (call $must (i32.const 0) (call $time (i32.const 1) (i64.const 0) (i32.const 64)))
           (call $dump (i32.const 64) (i32.const 8)))",
        u8::from(absolute)
    )
}

fn numbers(called: &Called) -> Vec<u64> {
    let bytes = called.answer.as_ref().unwrap();
    bytes.chunks_exact(8).map(|number| u64::from_le_bytes(number.try_into().unwrap())).collect()
}

fn later(seconds: u64) -> Call<'static> {
    let call = call("{}", limits());
    Call { now: call.now + Duration::from_secs(seconds), ..call }
}

#[tokio::test]
async fn the_same_seed_gives_the_same_random_bytes() {
    let seeded = |seed| Call { seed: Seed([seed; 32]), ..call("{}", limits()) };
    let first = run_as(RANDOM, seeded(1)).await;
    let again = run_as(RANDOM, seeded(1)).await;
    let other = run_as(RANDOM, seeded(2)).await;
    assert_eq!(first.answer, again.answer);
    assert_ne!(first.answer, other.answer);
    assert_eq!(first.answer.unwrap().len(), 32);
    assert!(first.pure && again.pure && other.pure);
}

#[tokio::test]
async fn time_that_passes_is_the_same_at_each_call() {
    for clock in [1, 2, 3] {
        let now = run_as(&reads(clock), later(0)).await;
        let tomorrow = run_as(&reads(clock), later(86_400)).await;
        assert_eq!(numbers(&now), [1_000, 2_000]);
        assert_eq!(numbers(&tomorrow), [1_000, 2_000]);
        assert!(now.pure && tomorrow.pure);
    }
}

#[tokio::test]
async fn who_asks_what_time_it_is_is_told_and_is_not_pure() {
    let called = run_as(&reads(0), later(5)).await;
    assert_eq!(numbers(&called), [1_000_000_005_000_001_000, 1_000_000_005_000_002_000]);
    assert!(!called.pure);
}

#[tokio::test]
async fn a_call_that_fails_is_not_pure_either_if_it_asked_for_the_time() {
    let body = "(func $main (drop (call $time (i32.const 0) (i64.const 0) (i32.const 64))) unreachable)";
    let called = run(body, limits()).await;
    assert!(called.answer.is_err() && !called.pure);
}

#[tokio::test]
async fn an_hours_sleep_is_over_at_once_and_the_clock_says_it_took_place() {
    const HOUR: u64 = 3_600_000_000_000;
    for (clock, absolute) in [(1, false), (1, true), (0, false)] {
        let called = run(&waits(clock, HOUR, absolute), limits()).await;
        assert_eq!(numbers(&called), [HOUR + 1_000], "clock {clock}, absolute: {absolute}");
        assert!(called.pure);
    }
}

#[tokio::test]
async fn to_wait_for_a_time_of_day_is_to_know_the_time() {
    let start = call("{}", limits()).now.duration_since(UNIX_EPOCH).unwrap();
    let until = u64::try_from(start.as_nanos()).unwrap() + 7_000_000_000;
    let called = run(&waits(0, until, true), limits()).await;
    assert_eq!(numbers(&called), [7_000_001_000]);
    assert!(!called.pure);
}

/// Two at 64 and 112: stdin (1: read), stdout (2: write), and a third for a descriptor that is none.
#[tokio::test]
async fn pipes_are_ready_at_once() {
    let body = "(func $main
        (i32.store8 (i32.const 72) (i32.const 1))
        (i32.store8 (i32.const 120) (i32.const 2))
        (i32.store (i32.const 128) (i32.const 1))
        (i32.store8 (i32.const 168) (i32.const 1))
        (i32.store (i32.const 176) (i32.const 9))
        (call $must (i32.const 0) (call $poll (i32.const 64) (i32.const 256) (i32.const 3) (i32.const 200)))
        (call $must (i32.const 3) (i32.load (i32.const 200)))
        (call $dump (i32.const 256) (i32.const 96)))";
    let called = run(body, limits()).await;
    // By event: user data, error and kind, bytes that are there, flags.
    assert_eq!(numbers(&called), [0, 1 << 16, 2, 0, 0, 2 << 16, 1, 0, 0, (1 << 16) + 8, 0, 0]);
    assert!(called.pure);
}

#[tokio::test]
async fn clocks_are_as_fine_as_they_go_on() {
    let body = "(func $main
        (call $must (i32.const 0) (call $resolution (i32.const 0) (i32.const 64)))
        (call $must (i32.const 0) (call $resolution (i32.const 1) (i32.const 72)))
        (call $dump (i32.const 64) (i32.const 16)))";
    let called = run(body, limits()).await;
    assert_eq!(numbers(&called), [1_000, 1_000]);
    assert!(called.pure, "how fine a clock is tells no time");
}

#[tokio::test]
async fn the_arguments_are_the_controller_and_the_hook() {
    let body = "(func $main
        (call $must (i32.const 0) (call $args_sizes (i32.const 100) (i32.const 104)))
        (call $must (i32.const 2) (i32.load (i32.const 100)))
        (call $must (i32.const 0) (call $args (i32.const 64) (i32.const 200)))
        (call $must (i32.const 200) (i32.load (i32.const 64)))
        (call $must (i32.const 209) (i32.load (i32.const 68)))
        (call $dump (i32.const 200) (i32.load (i32.const 104))))";
    let called = run_as(body, Call { controller: "greeting", hook: "finalize", ..later(0) }).await;
    assert_eq!(called.answer.unwrap(), b"greeting\0finalize\0");
    assert!(called.pure);
}
