//! Each limit of a call, obeyed and violated.

use std::time::Duration;

use metahook_core::api::policy::Limits;
use metahook_server::hook::wasm::run::{CallError, Called};

use crate::{IMPORTS, call, limits, registry, run};

/// A loop of about 12 units of fuel a round.
pub(crate) fn counts_to(rounds: u32) -> String {
    format!(
        "(func $main (local $i i32)
           (loop $again
             (local.set $i (i32.add (local.get $i) (i32.const 1)))
             (br_if $again (i32.lt_u (local.get $i) (i32.const {rounds}))))
           (call $print (i32.const 1) (i32.const 3)))"
    )
}

#[tokio::test]
async fn a_hook_that_ends_in_time_answers() {
    let called = run(&counts_to(1000), limits()).await;
    assert_eq!(called.answer.unwrap(), b"ok\n");
    assert!(called.usage.instructions > 1000 && called.usage.instructions < 100_000, "{:?}", called.usage);
    assert_eq!(called.usage.memory, 64 << 10);
}

#[tokio::test]
async fn a_hook_that_loops_runs_out_of_instructions() {
    let called =
        run("(func $main (loop $again (br $again)))", Limits { instructions: 1_000_000, ..limits() }).await;
    assert_eq!(
        called.answer.unwrap_err().to_string(),
        "the hook used up its 1000000 instructions in main (limits.instructions): it loops, or the limit is too low"
    );
}

#[tokio::test]
async fn a_loop_within_its_instructions_is_no_loop() {
    let called = run(&counts_to(50_000), Limits { instructions: 1_000_000, ..limits() }).await;
    assert!(called.answer.is_ok());
}

#[tokio::test]
async fn a_long_hook_gives_way_to_others() {
    let text =
        format!("(module {IMPORTS} (func $main (loop $again (br $again))) (export \"_start\" (func $main)))");
    let registry = registry();
    let endless = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    let asked =
        call("", Limits { instructions: u64::MAX >> 1, timeout: Duration::from_millis(300), ..limits() });
    // On this single thread the other task gets its turn only if the hook gives way.
    let other = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    let (called, ()) = tokio::join!(registry.runtime().call(&endless, asked), other);
    assert!(matches!(called.answer, Err(CallError::Timeout { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_waits_for_no_hook() {
    let text =
        format!("(module {IMPORTS} (func $main (loop $again (br $again))) (export \"_start\" (func $main)))");
    let registry = registry();
    let endless = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    let limits = Limits { instructions: u64::MAX >> 1, timeout: Duration::from_mins(1), ..limits() };
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        registry.runtime().stop();
        std::time::Instant::now()
    };
    // Two run, and two of the same controller wait for their turn.
    let calls = (0..4).map(|_| registry.runtime().call_until_stop(&endless, call("", limits)));
    let (called, stopped) = tokio::join!(futures_util::future::join_all(calls), stop);
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    for called in called {
        assert_eq!(called.answer, Err(CallError::Stopping));
    }
    let late = registry.runtime().call_until_stop(&endless, call("", limits)).await;
    assert_eq!(late.answer, Err(CallError::Stopping), "nor begins another");
}

/// Waits an hour at each round.
fn sleeps(rounds: u32) -> String {
    // One subscription at 64: clock 1 (monotonic).
    format!(
        "(func $main (local $i i32)
           (i32.store (i32.const 80) (i32.const 1))
           (i64.store (i32.const 88) (i64.const 3600000000000))
           (loop $again
             (call $must (i32.const 0) (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 200)))
             (local.set $i (i32.add (local.get $i) (i32.const 1)))
             (br_if $again (i32.lt_u (local.get $i) (i32.const {rounds}))))
           (call $print (i32.const 1) (i32.const 3)))"
    )
}

#[tokio::test]
async fn a_hook_that_sleeps_has_slept_at_once() {
    let called = run(&sleeps(100), limits()).await;
    assert_eq!(called.answer.unwrap(), b"ok\n");
    assert!(called.usage.instructions > 100_000, "each sleep counts: {:?}", called.usage);
}

#[tokio::test]
async fn a_hook_that_sleeps_again_and_again_runs_out_of_instructions() {
    let called = run(&sleeps(u32::MAX), Limits { instructions: 10_000_000, ..limits() }).await;
    assert_eq!(
        called.answer.unwrap_err().to_string(),
        "the hook used up its 10000000 instructions in main (limits.instructions): it loops, or the limit is too low"
    );
}

/// Grows the memory by `pages` and traps where that is refused, as allocators do.
fn grows_by(pages: u32) -> String {
    format!(
        "(func $main
           (if (i32.eq (memory.grow (i32.const {pages})) (i32.const -1)) (then unreachable))
           (call $print (i32.const 1) (i32.const 3)))"
    )
}

#[tokio::test]
async fn memory_up_to_the_limit_is_given() {
    let called = run(&grows_by(15), Limits { memory: 1 << 20, ..limits() }).await;
    assert_eq!(called.answer.unwrap(), b"ok\n");
    assert_eq!(called.usage.memory, 1 << 20);
}

#[tokio::test]
async fn memory_beyond_the_limit_is_refused_by_name() {
    let called = run(&grows_by(16), Limits { memory: 1 << 20, ..limits() }).await;
    assert_eq!(
        called.answer.unwrap_err().to_string(),
        "the hook wanted 1088Ki of memory and may have 1Mi (limits.memory); then the hook trapped in main: wasm `unreachable` instruction executed"
    );
}

#[tokio::test]
async fn a_module_whose_first_memory_is_too_large_is_refused_by_name() {
    let text = r#"(module (memory (export "memory") 64) (func (export "_start")))"#;
    let registry = registry();
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    let asked = call("", Limits { memory: 1 << 20, ..limits() });
    let error = registry.runtime().call(&module, asked).await.answer.unwrap_err();
    assert_eq!(error.to_string(), "the hook wanted 4Mi of memory and may have 1Mi (limits.memory)");
}

#[tokio::test]
async fn output_up_to_the_limit_is_taken() {
    let called =
        run("(func $main (call $print (i32.const 1) (i32.const 3)))", Limits { output: 3, ..limits() }).await;
    assert_eq!(called.answer.unwrap(), b"ok\n");
}

#[tokio::test]
async fn output_beyond_the_limit_is_no_answer() {
    let called =
        run("(func $main (call $print (i32.const 1) (i32.const 3)))", Limits { output: 2, ..limits() }).await;
    assert_eq!(called.answer.unwrap_err().to_string(), "the hook printed more than 2 (limits.output)");
}

#[tokio::test]
async fn a_flood_of_output_ends_the_call() {
    let body = "(func $main (loop $again (call $print (i32.const 1) (i32.const 60000)) (br $again)))";
    let called = run(body, Limits { output: 1 << 20, ..limits() }).await;
    assert_eq!(called.answer.unwrap_err().to_string(), "the hook printed more than 1Mi (limits.output)");
}

#[tokio::test]
async fn log_beyond_the_limit_is_cut_and_counted() {
    let body =
        "(func $main (call $print (i32.const 2) (i32.const 3)) (call $print (i32.const 1) (i32.const 3)))";
    let called = run(body, Limits { log: 2, ..limits() }).await;
    assert_eq!(called.answer.unwrap(), b"ok\n", "that is no error");
    assert_eq!((called.log.text.as_str(), called.log.lost), ("ok", 1));
}

#[tokio::test]
async fn a_trap_names_its_function() {
    let called = run("(func $inner unreachable) (func $main (call $inner))", limits()).await;
    assert_eq!(
        called.answer.unwrap_err().to_string(),
        "the hook trapped in inner: wasm `unreachable` instruction executed"
    );
}

#[tokio::test]
async fn endless_recursion_is_a_trap() {
    let called = run("(func $deep (call $deep)) (func $main (call $deep))", limits()).await;
    assert_eq!(called.answer.unwrap_err().to_string(), "the hook trapped in deep: call stack exhausted");
}

#[tokio::test]
async fn an_exit_code_is_a_failure_with_its_last_words() {
    let body = "(func $main (call $print (i32.const 2) (i32.const 3)) (call $exit (i32.const 3)))";
    let called = run(body, limits()).await;
    assert_eq!(
        called.answer.unwrap_err().to_string(),
        "the hook exited with code 3; 0 is success; last stderr output: ok"
    );
    assert!(run("(func $main (call $exit (i32.const 0)))", limits()).await.answer.is_ok());
}

#[tokio::test]
async fn the_last_words_may_lie_beyond_the_limit_of_the_log() {
    let body = "(func $main (call $print (i32.const 2) (i32.const 3)) (call $exit (i32.const 3)))";
    for log in 0..=3 {
        let called = run(body, Limits { log, ..limits() }).await;
        let error = called.answer.unwrap_err().to_string();
        assert!(error.ends_with("; last stderr output: ok"), "{log}: {error}");
        assert_eq!(called.log.lost as u64, 3 - log);
    }
}

/// Runs what calls into the host again and again, with instructions without end: the timeout has to hold.
async fn ends_in_time(body: &str) -> Called {
    let limits = Limits { timeout: Duration::from_millis(200), instructions: u64::MAX >> 1, ..limits() };
    let called = tokio::time::timeout(Duration::from_secs(20), run(body, limits)).await;
    called.expect("the call does not end")
}

#[tokio::test]
async fn a_loop_of_random_bytes_runs_into_its_timeout() {
    let body =
        "(func $main (loop $again (drop (call $random (i32.const 16) (i32.const 16384))) (br $again)))";
    assert!(matches!(ends_in_time(body).await.answer, Err(CallError::Timeout { .. })));
}

#[tokio::test]
async fn a_flood_of_log_runs_into_its_timeout() {
    let body = "(func $main (loop $again (call $print (i32.const 2) (i32.const 60000)) (br $again)))";
    assert!(matches!(ends_in_time(body).await.answer, Err(CallError::Timeout { .. })));
}

#[tokio::test]
async fn a_loop_of_sleeps_runs_into_its_timeout() {
    assert!(matches!(ends_in_time(&sleeps(u32::MAX)).await.answer, Err(CallError::Timeout { .. })));
}

#[tokio::test]
async fn a_loop_of_clock_readings_runs_into_its_timeout() {
    let body = "(func $main (loop $again (drop (call $time (i32.const 1) (i64.const 0) (i32.const 64))) (br $again)))";
    assert!(matches!(ends_in_time(body).await.answer, Err(CallError::Timeout { .. })));
}

#[tokio::test]
async fn to_fill_memory_counts_for_what_is_filled() {
    let body = "(func $main (loop $again
        (memory.fill (i32.const 0) (i32.const 0) (i32.const 65536)) (br $again)))";
    assert!(matches!(ends_in_time(body).await.answer, Err(CallError::Timeout { .. })));
    let called = run(body, Limits { instructions: 1_000_000, ..limits() }).await;
    assert!(matches!(called.answer, Err(CallError::Instructions { budget: 1_000_000, .. })));
}

/// Also one that does next to nothing: the host does more than the instructions around it.
#[tokio::test]
async fn each_call_into_the_host_counts_as_a_hundred_instructions() {
    let at = "(i32.const 64)";
    for call in [
        "$random (i32.const 16) (i32.const 1)".to_owned(),
        format!("$args_sizes {at} {at}"),
        format!("$environ {at} {at}"),
        format!("$resolution (i32.const 1) {at}"),
        format!("$time (i32.const 1) (i64.const 0) {at}"),
        format!("$fdstat (i32.const 1) {at}"),
        format!("$seek (i32.const 0) (i64.const 0) (i32.const 0) {at}"),
        format!("$prestat (i32.const 3) {at}"),
        "$close (i32.const 9)".to_owned(),
        "$shutdown (i32.const 9) (i32.const 0)".to_owned(),
    ] {
        let body = format!(
            "(func $main (local $i i32) (loop $again (drop (call {call}))
               (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000)))))"
        );
        let called = run(&body, limits()).await;
        assert!(called.usage.instructions >= 100_000, "{call}: {:?}", called.usage);
        let error = run(&body, Limits { instructions: 50_000, ..limits() }).await.answer.unwrap_err();
        assert!(matches!(error, CallError::Instructions { budget: 50_000, .. }), "{call}: {error}");
    }
}

#[tokio::test]
async fn a_call_into_the_host_that_fails_in_the_end_counts_for_its_work() {
    let body =
        "(func $main (drop (call $poll (i32.const 1024) (i32.const 2048) (i32.const 20) (i32.const -1))))";
    let called = run(body, limits()).await;
    assert!(called.usage.instructions >= 20 * 1000, "{:?}", called.usage);
}

#[tokio::test]
async fn random_bytes_up_to_the_bound_are_given() {
    let body = "(func $main (call $must (i32.const 0) (call $random (i32.const 16) (i32.const 16384))))";
    assert_eq!(run(body, limits()).await.answer, Ok(Vec::new()));
}

#[tokio::test]
async fn a_huge_piece_of_randomness_ends_the_call() {
    for bytes in [16_385, i32::MAX] {
        let body = format!("(func $main (drop (call $random (i32.const 16) (i32.const {bytes}))))");
        assert_eq!(
            run(&body, limits()).await.answer.unwrap_err().to_string(),
            format!(
                "the hook was stopped in main: it wanted {bytes} random bytes at once and may have 16384: ask for less, more often"
            )
        );
    }
}

#[tokio::test]
async fn of_a_million_pieces_the_first_are_written() {
    // The list begins at 4096: a thousand pieces of "ok\n" fill 8 KiB, behind them lies nothing.
    let body = "(func $main (local $i i32)
        (loop $again
          (i32.store (i32.add (i32.const 4096) (local.get $i)) (i32.const 16))
          (i32.store (i32.add (i32.const 4100) (local.get $i)) (i32.const 3))
          (local.set $i (i32.add (local.get $i) (i32.const 8)))
          (br_if $again (i32.lt_u (local.get $i) (i32.const 8192))))
        (call $must (i32.const 0) (call $write (i32.const 1) (i32.const 4096) (i32.const 1000000) (i32.const 8)))
        (call $must (i32.const 3072) (i32.load (i32.const 8))))";
    assert_eq!(run(body, limits()).await.answer.unwrap(), b"ok\n".repeat(1024));
}

/// The log takes 1 MiB of 61 MB: one memory, a thousand times.
#[tokio::test]
async fn the_log_takes_a_mebibyte_at_once() {
    let pieces = |fd: u32, then: &str| {
        format!(
            "(func $main (local $i i32)
               (loop $again
                 (i32.store (i32.add (i32.const 4096) (local.get $i)) (i32.const 16))
                 (i32.store (i32.add (i32.const 4100) (local.get $i)) (i32.const 60000))
                 (local.set $i (i32.add (local.get $i) (i32.const 8)))
                 (br_if $again (i32.lt_u (local.get $i) (i32.const 8192))))
               (call $must (i32.const 0) (call $write (i32.const {fd}) (i32.const 4096) (i32.const 1024) (i32.const 8)))
               {then})"
        )
    };
    let called = run(&pieces(2, "(call $must (i32.const 1048576) (i32.load (i32.const 8)))"), limits()).await;
    assert_eq!(called.answer, Ok(Vec::new()));
    assert_eq!(called.log.lost as u64, (1 << 20) - limits().log);
    // The hook is stopped at the first byte beyond its output: what follows is not read.
    let called = run(&pieces(1, ""), Limits { output: 100_000, ..limits() }).await;
    assert_eq!(called.answer.unwrap_err().to_string(), "the hook printed more than 100000 (limits.output)");
    assert!(called.usage.instructions < 60_000, "{:?}", called.usage);
}

#[tokio::test]
async fn a_bad_piece_ends_a_call_and_what_was_copied_is_counted() {
    // The list begins at 4096: three bytes, then what no memory has.
    let body = "(func $main
        (i32.store (i32.const 4096) (i32.const 16))
        (i32.store (i32.const 4100) (i32.const 3))
        (i32.store (i32.const 4104) (i32.const -1))
        (i32.store (i32.const 4108) (i32.const 1))
        (call $must (i32.const 0) (call $write (i32.const 1) (i32.const 4096) (i32.const 2) (i32.const 8)))
        (call $must (i32.const 3) (i32.load (i32.const 8)))
        (call $must (i32.const 21) (call $write (i32.const 1) (i32.const 4104) (i32.const 1) (i32.const 8)))
        (call $must (i32.const 21) (call $read (i32.const 0) (i32.const 4104) (i32.const 1) (i32.const 8))))";
    assert_eq!(run(body, limits()).await.answer.unwrap().len(), 3);
}

#[tokio::test]
async fn a_million_empty_pieces_are_nothing() {
    let body = "(func $main
        (call $must (i32.const 0) (call $write (i32.const 1) (i32.const 4096) (i32.const 1000000) (i32.const 8)))
        (call $must (i32.const 0) (i32.load (i32.const 8)))
        (call $must (i32.const 0) (call $read (i32.const 0) (i32.const 4096) (i32.const 1000000) (i32.const 8)))
        (call $must (i32.const 0) (i32.load (i32.const 8))))";
    assert_eq!(run(body, limits()).await.answer, Ok(Vec::new()));
}

/// 21 is `fault`, 28 `inval`.
#[tokio::test]
async fn what_lies_outside_the_memory_is_a_fault_of_the_hook_only() {
    let body = "(func $main
        (i32.store (i32.const 4096) (i32.const 65535))
        (i32.store (i32.const 4100) (i32.const 2))
        (call $must (i32.const 21) (call $write (i32.const 1) (i32.const 4096) (i32.const 1) (i32.const 8)))
        (call $must (i32.const 21) (call $write (i32.const 1) (i32.const -8) (i32.const 1) (i32.const 8)))
        (call $must (i32.const 21) (call $write (i32.const 1) (i32.const 65535) (i32.const 1) (i32.const 8)))
        (call $must (i32.const 21) (call $read (i32.const 0) (i32.const 4096) (i32.const 1) (i32.const 8)))
        (call $must (i32.const 21) (call $random (i32.const -1) (i32.const 2)))
        (call $must (i32.const 21) (call $time (i32.const 1) (i64.const 0) (i32.const -4)))
        (call $must (i32.const 21) (call $args (i32.const -4) (i32.const 0)))
        (call $must (i32.const 21) (call $poll (i32.const -8) (i32.const 0) (i32.const 1) (i32.const 8)))
        (call $must (i32.const 21) (call $fdstat (i32.const 0) (i32.const -1)))
        (call $must (i32.const 28) (call $poll (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 8)))
        (call $must (i32.const 28) (call $poll (i32.const 0) (i32.const 0) (i32.const -1) (i32.const 8)))
        (call $must (i32.const 28) (call $time (i32.const 4) (i64.const 0) (i32.const 8))))";
    assert_eq!(run(body, limits()).await.answer, Ok(Vec::new()));
}

#[tokio::test]
async fn a_module_without_memory_has_nothing_to_say_where() {
    let text = r#"(module (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
        (func $main (export "_start") (drop (call $random (i32.const 0) (i32.const 1)))))"#;
    let registry = registry();
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    let error = registry.runtime().call(&module, call("", limits())).await.answer.unwrap_err();
    assert_eq!(error.to_string(), "the hook was stopped in main: the module exports no memory");
}

/// Grows a table to so many elements and traps where that is refused.
fn table_of(elements: u32) -> String {
    format!(
        "(table $t 0 funcref)
         (func $main
           (if (i32.eq (table.grow $t (ref.null func) (i32.const {elements})) (i32.const -1)) (then unreachable))
           (call $print (i32.const 1) (i32.const 3)))"
    )
}

#[tokio::test]
async fn a_table_up_to_the_bound_is_given() {
    assert_eq!(run(&table_of(50_000), limits()).await.answer.unwrap(), b"ok\n");
}

#[tokio::test]
async fn a_table_beyond_the_bound_is_refused_by_name() {
    let error = run(&table_of(50_001), limits()).await.answer.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the hook wanted a table of 50001 elements and may have 50000 (--module-functions-max); then the hook trapped in main: wasm `unreachable` instruction executed"
    );
}

#[tokio::test]
async fn a_request_beyond_its_bound_is_not_sent() {
    let registry = registry();
    let module = registry.load(wat::parse_str("(module (func (export \"_start\")))").unwrap()).await.unwrap();
    let request = vec![b' '; (32 << 20) + 1];
    let error = registry.runtime().call(&module, call(request, limits())).await.answer.unwrap_err();
    assert!(
        error.to_string().starts_with("the request has 33554433 bytes, and 33554432 are allowed"),
        "{error}"
    );
}
