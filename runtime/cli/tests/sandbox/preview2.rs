//! Components that call preview 2: what the host does for them is bounded, counts as instructions and gives way.

use std::cell::Cell;

use bytes::Bytes;
use metahook_core::api::policy::Limits;
use metahook_server::hook::wasm::run::{Call, CallError, Called, Files, MountedFolder};

use super::{call, limits, registry};

/// The polls of `wasi:io`, and pollables of stdout.
const POLL: &str = r#"
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "poll" (func (param "in" (list (borrow 0))) (result (list u32))))))
  (alias export $poll "pollable" (type $pollable))
  (alias export $poll "poll" (func $host-poll))
  (core func $poll (canon lower (func $host-poll) (memory $memory) (realloc $realloc)))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer 1 $pollable (type $p))
    (export "output-stream" (type $out (sub resource)))
    (export "[method]output-stream.subscribe" (func (param "self" (borrow $out)) (result (own $p))))))
  (alias export $streams "output-stream" (type $out))
  (alias export $streams "[method]output-stream.subscribe" (func $host-subscribe))
  (core func $subscribe (canon lower (func $host-subscribe)))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $out (type $o))
    (export "get-stdout" (func (result (own $o))))))
  (alias export $stdout "get-stdout" (func $host-stdout))
  (core func $get-stdout (canon lower (func $host-stdout)))
  (core instance $host
    (export "poll" (func $poll)) (export "subscribe" (func $subscribe)) (export "stdout" (func $get-stdout)))"#;

const POLL_IMPORTS: &str = r#"
  (import "host" "poll" (func $poll (param i32 i32 i32)))
  (import "host" "subscribe" (func $subscribe (param i32) (result i32)))
  (import "host" "stdout" (func $stdout (result i32)))"#;

/// A component with a memory of 64 pages that a core module and the host share. `realloc` hands out the second half.
fn component(host: &str, imports: &str, body: &str) -> String {
    format!(
        r#"(component
          (core module $shared
            (memory (export "memory") 64)
            (global $free (mut i32) (i32.const 2097152))
            (func (export "realloc") (param i32 i32 i32 i32) (result i32)
              (global.get $free)
              (global.set $free
                (i32.and (i32.add (i32.add (global.get $free) (local.get 3)) (i32.const 7)) (i32.const -8)))))
          (core instance $shared (instantiate $shared))
          (alias core export $shared "memory" (core memory $memory))
          (alias core export $shared "realloc" (core func $realloc))
          {host}
          (core module $own
            (import "shared" "memory" (memory 64))
            {imports}
            ;; Answers with a text, or with an error.
            (func $answer (param $error i32) (param $at i32) (param $len i32) (result i32)
              (i32.store (i32.const 0) (local.get $error))
              (i32.store (i32.const 4) (local.get $at))
              (i32.store (i32.const 8) (local.get $len))
              (i32.const 0))
            (func $main (export "f") (param $at i32) (param $len i32) (result i32) (local $i i32) (local $handle i32)
              {body}))
          (core instance $i (instantiate $own
            (with "shared" (instance $shared))
            (with "host" (instance $host))))
          (func (export "sync") (param "request" string) (result (result string (error string)))
            (canon lift (core func $i "f") (memory $memory) (realloc $realloc))))"#
    )
}

/// Polls a list of so many pollables again and again.
fn polls(entries: u32, rounds: u32) -> String {
    let body = format!(
        "(local.set $handle (call $subscribe (call $stdout)))
         (loop $fill
           (i32.store (i32.add (i32.const 65536) (i32.mul (local.get $i) (i32.const 4))) (local.get $handle))
           (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if $fill (i32.lt_u (local.get $i) (i32.const {entries}))))
         (local.set $i (i32.const 0))
         (loop $again
           (call $poll (i32.const 65536) (i32.const {entries}) (i32.const 16))
           (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if $again (i32.lt_u (local.get $i) (i32.const {rounds}))))
         (call $answer (i32.const 0) (local.get $at) (local.get $len))"
    );
    component(POLL, POLL_IMPORTS, &body)
}

async fn run(text: &str, limits: Limits) -> Called {
    let registry = registry();
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    registry.runtime().call(&module, call("{}", limits)).await
}

#[tokio::test]
async fn a_poll_has_as_many_entries_as_there_may_be_resources() {
    let called = run(&polls(1000, 1), limits()).await;
    assert_eq!(called.answer, Ok(b"{}".to_vec()));
    for entries in [1001, 9_998] {
        let error = run(&polls(entries, 1), limits()).await.answer.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "the hook was stopped in main: it polls {entries} pollables at once and may poll 1000: poll fewer"
            )
        );
    }
}

/// The entries of a list of handles are handles, too, beside those that the hook has anyway.
#[tokio::test]
async fn a_component_has_ten_thousand_handles_at_once_and_not_more() {
    for entries in [10_000, 60_000] {
        let error = run(&polls(entries, 1), limits()).await.answer.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the hook was stopped in main: it has more than 10000 handles at once: drop those that it no longer needs"
        );
    }
}

#[tokio::test]
async fn each_entry_of_a_poll_costs_instructions() {
    let called = run(&polls(1000, 10), limits()).await;
    assert_eq!(called.answer, Ok(b"{}".to_vec()));
    let used = called.usage.instructions;
    assert!((10_000_000..11_000_000).contains(&used), "{used}");
    let error = run(&polls(1000, 10), Limits { instructions: 5_000_000, ..limits() }).await.answer;
    assert!(matches!(error, Err(CallError::Instructions { budget: 5_000_000, .. })), "{error:?}");
}

#[tokio::test]
async fn a_loop_of_polls_gives_way_to_others() {
    let registry = registry();
    let module = registry.load(wat::parse_str(polls(1000, 100)).unwrap()).await.unwrap();
    let (turns, ended) = (Cell::new(0), Cell::new(false));
    let polling = async {
        let called = registry.runtime().call(&module, call("{}", limits())).await;
        ended.set(true);
        called
    };
    // On this single thread the other task gets its turn only if the hook gives way.
    let other = async {
        while !ended.get() {
            turns.set(turns.get() + 1);
            tokio::task::yield_now().await;
        }
    };
    let (called, ()) = tokio::join!(polling, other);
    assert_eq!(called.answer, Ok(b"{}".to_vec()));
    assert!(turns.get() >= 100, "{} turns", turns.get());
}

/// Folders and the functions that take a path below them.
const FILES: &str = r#"
  (import "wasi:filesystem/types@0.2.0" (instance $files
    (export "descriptor" (type $descriptor (sub resource)))
    (type $code' (enum "access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota" "exist"
      "file-too-large" "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io" "is-directory" "loop"
      "too-many-links" "message-size" "name-too-long" "no-device" "no-entry" "no-lock" "insufficient-memory"
      "insufficient-space" "not-directory" "not-empty" "not-recoverable" "unsupported" "no-tty" "no-such-device"
      "overflow" "not-permitted" "pipe" "read-only" "invalid-seek" "text-file-busy" "cross-device"))
    (export "error-code" (type $code (eq $code')))
    (type $flags' (flags "symlink-follow"))
    (export "path-flags" (type $flags (eq $flags')))
    (type $how' (flags "create" "directory" "exclusive" "truncate"))
    (export "open-flags" (type $how (eq $how')))
    (type $mode' (flags "read" "write" "file-integrity-sync" "data-integrity-sync" "requested-write-sync" "mutate-directory"))
    (export "descriptor-flags" (type $mode (eq $mode')))
    (type $kind' (enum "unknown" "block-device" "character-device" "directory" "fifo" "symbolic-link" "regular-file"
      "socket"))
    (export "descriptor-type" (type $kind (eq $kind')))
    (type $time' (record (field "seconds" u64) (field "nanoseconds" u32)))
    (export "datetime" (type $time (eq $time')))
    (type $stat' (record (field "type" $kind) (field "link-count" u64) (field "size" u64)
      (field "data-access-timestamp" (option $time)) (field "data-modification-timestamp" (option $time))
      (field "status-change-timestamp" (option $time))))
    (export "descriptor-stat" (type $stat (eq $stat')))
    (type $hash' (record (field "lower" u64) (field "upper" u64)))
    (export "metadata-hash-value" (type $hash (eq $hash')))
    (export "[method]descriptor.stat-at" (func (param "self" (borrow $descriptor)) (param "path-flags" $flags)
      (param "path" string) (result (result $stat (error $code)))))
    (export "[method]descriptor.metadata-hash-at" (func (param "self" (borrow $descriptor)) (param "path-flags" $flags)
      (param "path" string) (result (result $hash (error $code)))))
    (export "[method]descriptor.readlink-at" (func (param "self" (borrow $descriptor)) (param "path" string)
      (result (result string (error $code)))))
    (export "[method]descriptor.open-at" (func (param "self" (borrow $descriptor)) (param "path-flags" $flags)
      (param "path" string) (param "open-flags" $how) (param "flags" $mode)
      (result (result (own $descriptor) (error $code)))))))
  (alias export $files "descriptor" (type $descriptor))
  (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
    (alias outer 1 $descriptor (type $d))
    (export "get-directories" (func (result (list (tuple (own $d) string)))))))
  (alias export $files "[method]descriptor.stat-at" (func $host-stat))
  (alias export $files "[method]descriptor.metadata-hash-at" (func $host-hash))
  (alias export $files "[method]descriptor.readlink-at" (func $host-readlink))
  (alias export $files "[method]descriptor.open-at" (func $host-open))
  (alias export $preopens "get-directories" (func $host-folders))
  (core func $stat (canon lower (func $host-stat) (memory $memory) (realloc $realloc)))
  (core func $hash (canon lower (func $host-hash) (memory $memory) (realloc $realloc)))
  (core func $readlink (canon lower (func $host-readlink) (memory $memory) (realloc $realloc)))
  (core func $open (canon lower (func $host-open) (memory $memory) (realloc $realloc)))
  (core func $folders (canon lower (func $host-folders) (memory $memory) (realloc $realloc)))
  (core instance $host
    (export "stat" (func $stat)) (export "hash" (func $hash)) (export "readlink" (func $readlink))
    (export "open" (func $open)) (export "folders" (func $folders)))"#;

const FILES_IMPORTS: &str = r#"
  (import "host" "stat" (func $stat (param i32 i32 i32 i32 i32)))
  (import "host" "hash" (func $hash (param i32 i32 i32 i32 i32)))
  (import "host" "readlink" (func $readlink (param i32 i32 i32 i32)))
  (import "host" "open" (func $open (param i32 i32 i32 i32 i32 i32 i32)))
  (import "host" "folders" (func $folders (param i32)))"#;

/// Looks at its first mount by the path that is its request. Its answer has a letter for each function: `=` where it found
/// something, or else the number of the error after `A`.
fn looks() -> String {
    // Results at 512, their errors at 520 or (without 8-byte members) at 516; the answer at 256.
    let look = |call: &str, error: u32, place: u32| {
        format!(
            "{call}
             (i32.store8 (i32.const {place})
               (if (result i32) (i32.load8_u (i32.const 512))
                 (then (i32.add (i32.const 65) (i32.load8_u (i32.const {error})))) (else (i32.const 61))))"
        )
    };
    let handle = "(local.get $handle)";
    let path = "(local.get $at) (local.get $len)";
    let body = [
        "(call $folders (i32.const 512)) (local.set $handle (i32.load (i32.load (i32.const 512))))"
            .to_owned(),
        look(&format!("(call $stat {handle} (i32.const 0) {path} (i32.const 512))"), 520, 256),
        look(&format!("(call $hash {handle} (i32.const 0) {path} (i32.const 512))"), 520, 257),
        look(
            &format!(
                "(call $open {handle} (i32.const 0) {path} (i32.const 0) (i32.const 1) (i32.const 512))"
            ),
            516,
            258,
        ),
        look(&format!("(call $readlink {handle} {path} (i32.const 512))"), 516, 259),
        "(call $answer (i32.const 0) (i32.const 256) (i32.const 4))".to_owned(),
    ];
    component(FILES, FILES_IMPORTS, &body.concat())
}

/// 4,096 bytes are the bound of Linux, and of modules.
#[tokio::test]
async fn a_path_is_as_long_as_one_of_a_module() {
    let files = Files::from([("name".to_owned(), Bytes::from("World"))]).into();
    let mounts = [MountedFolder { path: "/etc/greeting".to_owned(), files }];
    let registry = registry();
    let module = registry.load(wat::parse_str(looks()).unwrap()).await.unwrap();
    let look = async |path: String| {
        let call = Call { mounts: &mounts, ..call(path, limits()) };
        let answer = registry.runtime().call(&module, call).await.answer.unwrap();
        String::from_utf8(answer).unwrap()
    };
    // 12 is invalid: there are no links. 18 is name-too-long, 20 no-entry.
    assert_eq!(look("name".to_owned()).await, "===M");
    assert_eq!(look(format!("{}name", "./".repeat(2046))).await, "===M");
    assert_eq!(look("nobody".to_owned()).await, "UUUU");
    assert_eq!(look(format!("{}/name", "./".repeat(2046))).await, "SSSS");
    assert_eq!(look("./".repeat(500_000)).await, "SSSS");
}

/// Functions of wasmtime-wasi, and of the host's own.
const CALLS: &str = r#"
  (import "wasi:io/error@0.2.0" (instance $errors (export "error" (type (sub resource)))))
  (alias export $errors "error" (type $error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer 1 $error (type $e))
    (type $failed' (variant (case "last-operation-failed" (own $e)) (case "closed")))
    (export "stream-error" (type $failed (eq $failed')))
    (export "input-stream" (type $in (sub resource)))
    (export "output-stream" (type $out (sub resource)))
    (export "[method]input-stream.blocking-read" (func (param "self" (borrow $in)) (param "len" u64)
      (result (result (list u8) (error $failed)))))
    (export "[method]output-stream.check-write" (func (param "self" (borrow $out))
      (result (result u64 (error $failed)))))
    (export "[method]output-stream.write" (func (param "self" (borrow $out)) (param "contents" (list u8))
      (result (result (error $failed)))))))
  (alias export $streams "input-stream" (type $in))
  (alias export $streams "output-stream" (type $out))
  (alias export $streams "[method]input-stream.blocking-read" (func $host-read))
  (alias export $streams "[method]output-stream.check-write" (func $host-check))
  (alias export $streams "[method]output-stream.write" (func $host-write))
  (import "wasi:cli/stdin@0.2.0" (instance $stdin
    (alias outer 1 $in (type $i)) (export "get-stdin" (func (result (own $i))))))
  (import "wasi:cli/stderr@0.2.0" (instance $stderr
    (alias outer 1 $out (type $o)) (export "get-stderr" (func (result (own $o))))))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock (export "now" (func (result u64)))))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (alias export $stdin "get-stdin" (func $host-stdin))
  (alias export $stderr "get-stderr" (func $host-stderr))
  (alias export $clock "now" (func $host-now))
  (alias export $random "get-random-bytes" (func $host-random))
  (core func $read (canon lower (func $host-read) (memory $memory) (realloc $realloc)))
  (core func $check (canon lower (func $host-check) (memory $memory)))
  (core func $write (canon lower (func $host-write) (memory $memory)))
  (core func $stdin (canon lower (func $host-stdin)))
  (core func $stderr (canon lower (func $host-stderr)))
  (core func $now (canon lower (func $host-now)))
  (core func $random (canon lower (func $host-random) (memory $memory) (realloc $realloc)))
  (core instance $host
    (export "read" (func $read)) (export "check" (func $check)) (export "write" (func $write))
    (export "stdin" (func $stdin)) (export "stderr" (func $stderr))
    (export "now" (func $now)) (export "random" (func $random)))"#;

const CALLS_IMPORTS: &str = r#"
  (import "host" "read" (func $read (param i32 i64 i32)))
  (import "host" "check" (func $check (param i32 i32)))
  (import "host" "write" (func $write (param i32 i32 i32 i32)))
  (import "host" "stdin" (func $stdin (result i32)))
  (import "host" "stderr" (func $stderr (result i32)))
  (import "host" "now" (func $now (result i64)))
  (import "host" "random" (func $random (param i64 i32)))"#;

/// Calls a function so many times, with the handle of stdin or stderr.
fn repeats(host: &str, imports: &str, handle: &str, step: &str, rounds: u32) -> String {
    let body = format!(
        "{handle}
         (loop $again
           {step}
           (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if $again (i32.lt_u (local.get $i) (i32.const {rounds}))))
         (call $answer (i32.const 0) (local.get $at) (i32.const 1))"
    );
    component(host, imports, &body)
}

/// The instructions of one round.
async fn cost(host: &str, imports: &str, handle: &str, step: &str) -> u64 {
    let used = async |rounds| {
        let registry = registry();
        let text = repeats(host, imports, handle, step, rounds);
        let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
        let called = registry.runtime().call(&module, call("x".repeat(500_000), limits())).await;
        assert_eq!(called.answer, Ok(b"x".to_vec()), "{step}");
        called.usage.instructions
    };
    (used(21).await - used(1).await) / 20
}

#[tokio::test]
async fn a_call_of_the_host_costs_a_hundred_instructions_and_its_bytes() {
    let stdin = "(local.set $handle (call $stdin))";
    let stderr = "(local.set $handle (call $stderr))";
    for (handle, step, expected) in [
        ("", "(drop (call $now))", 100),
        ("", "(call $random (i64.const 1000) (i32.const 512))", 1100),
        (stderr, "(call $check (local.get $handle) (i32.const 512))", 100),
        (
            stderr,
            "(call $write (local.get $handle) (i32.const 65536) (i32.const 160000) (i32.const 512))",
            10_100,
        ),
        (stdin, "(call $read (local.get $handle) (i64.const 16000) (i32.const 512))", 1_100),
    ] {
        let cost = cost(CALLS, CALLS_IMPORTS, handle, step).await;
        assert!((expected..expected + 60).contains(&cost), "{step}: {cost}");
    }
}

#[tokio::test]
async fn a_component_hands_over_a_mebibyte_at_once_and_not_more() {
    for (bytes, holds) in [((1 << 20) - 1000, true), ((1 << 20) + 1, false)] {
        let write = format!(
            "(call $write (local.get $handle) (i32.const 65536) (i32.const {bytes}) (i32.const 512))"
        );
        let text = repeats(CALLS, CALLS_IMPORTS, "(local.set $handle (call $stderr))", &write, 1);
        let answer = run(&text, limits()).await.answer.map_err(|error| error.to_string());
        let refused = "the hook was stopped in main: it hands more than 1Mi to the host in one call: hand it over in pieces";
        assert_eq!(answer, if holds { Ok(b"{".to_vec()) } else { Err(refused.to_owned()) }, "{bytes}");
    }
}

/// A path that is refused was copied all the same.
#[tokio::test]
async fn a_path_costs_its_bytes() {
    let handle = "(call $folders (i32.const 512)) (local.set $handle (i32.load (i32.load (i32.const 512))))";
    let step =
        "(call $stat (local.get $handle) (i32.const 0) (local.get $at) (local.get $len) (i32.const 512))";
    let text = repeats(FILES, FILES_IMPORTS, handle, step, 100);
    let registry = registry();
    let module = registry.load(wat::parse_str(text).unwrap()).await.unwrap();
    let mounts = [MountedFolder { path: "/etc/greeting".to_owned(), files: Files::new().into() }];
    let call = Call { mounts: &mounts, ..call("x".repeat(800_000), limits()) };
    let used = registry.runtime().call(&module, call).await.usage.instructions;
    assert!((5_500_000..5_600_000).contains(&used), "{used}");
}
