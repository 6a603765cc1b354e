//! `metahook replay --as-case`: what was recorded becomes cases, which pass with the recorded hook and fail with another one.

use metahook_core::recording::{
    Beginning, Ending, FORMAT, RecordedCall, RecordedHook, RecordedLine, print_seed,
};
use metahook_core::trace::TracedObject;
use metahook_server::hook::wasm::compile::Digest;
use serde_json::{Value, json};

use crate::render::{CRD, composite, module};
use crate::{Folder, metahook, prints};

const NOW: u64 = 1_700_000_000_123_456_789;

/// What a clock shows that is read for the first time: a reading takes a microsecond.
const FIRST_READING: u64 = NOW + 1000;

/// What the hook answers, which reads no request.
fn answer(word: &str) -> Value {
    json!({ "children": [], "status": { "word": word } })
}

/// A module that answers if its clock shows the time of the recording.
fn hook(word: &str) -> Vec<u8> {
    let print = prints(1, &answer(word).to_string()).replace("$main", "$answer");
    let main = format!(
        "(func $main
           (drop (call $time (i32.const 0) (i64.const 1) (i32.const 64)))
           (if (i64.ne (i64.load (i32.const 64)) (i64.const {FIRST_READING})) (then (call $exit (i32.const 3))))
           (call $answer))"
    );
    crate::module(&(print + &main))
}

fn recording(format: u32) -> String {
    let controller: Value = serde_json::from_str(&composite(&module(), "InPlace")).unwrap();
    let parent = json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "a", "namespace": "ns" } });
    let request = json!({ "controller": controller, "parent": parent, "children": {}, "related": {}, "finalizing": false });
    let bytes = hook("first");
    let stored = RecordedHook::new(Digest::of(&bytes).to_string(), "hook.wasm".to_owned(), None, &bytes);
    let call = RecordedCall {
        controller: "c".to_owned(),
        parent: TracedObject {
            group: "example.com".into(),
            resource: "things".into(),
            kind: "Thing".into(),
            namespace: "ns".into(),
            name: "a".into(),
        },
        hook: "sync".to_owned(),
        digest: Some(stored.digest.clone()),
        limits: None,
        mounts: Vec::new(),
        now_nanos: NOW,
        seed: Some(print_seed(&[7; 32])),
        request: request.to_string(),
        answer: Some(answer("first").to_string()),
        error: None,
        took_us: 1,
        usage: None,
        replaced: false,
    };
    let definition: Value = serde_saphyr::from_str(CRD).unwrap();
    let (version, controller) = ("0.0.9".to_owned(), "CompositeController c".to_owned());
    let lines = [
        RecordedLine::Recording(Beginning { format, version, controller }),
        RecordedLine::Call(Box::new(call)),
        RecordedLine::Hook(stored),
        RecordedLine::Definition(Box::new(definition)),
        RecordedLine::End(Ending { calls: 1, reconciles: 1, lost: 0 }),
    ];
    lines.iter().map(|line| line.print() + "\n").collect()
}

#[test]
fn a_recording_is_a_folder_of_cases() {
    let folder = Folder::new().with("a.recording", recording(FORMAT)).with("new/hook.wasm", hook("second"));
    let wrote = folder.metahook(&["replay", "a.recording", "--as-case", "night"]);
    wrote.is(0, "`metahook test night` runs them");
    assert_eq!(wrote.out, "wrote night: 1 case, controller.yaml, crd.yaml, hook.wasm\n");
    let passed = folder.metahook(&["test", "night"]);
    passed.is(0, "");
    assert!(passed.out.starts_with("ok   ns/a/2023-11-14T22-13-20.123Z-sync ("), "{}", passed.out);
    metahook(&folder.path("night"), &["test", "."], "").is(0, "");
    let other = folder.metahook(&["test", "night", "--module", "new/hook.wasm"]);
    other.is(1, "1 of 1 cases failed");
    assert!(
        other.out.contains("-   word: first\n") && other.out.contains("+   word: second\n"),
        "{}",
        other.out
    );
    folder
        .metahook(&["replay", "a.recording", "--as-case", "night"])
        .is(2, "night/ns/a/2023-11-14T22-13-20.123Z-sync: it is there already");
    folder
        .metahook(&["replay", "a.recording", "--as-case", "b", "--module", "new/hook.wasm"])
        .is(2, "cannot be used with");
}

#[test]
fn an_author_keeps_recorded_calls_among_the_own_cases() {
    let folder = Folder::new()
        .with("a.recording", recording(FORMAT))
        .with("controller.yaml", composite(&module(), "InPlace"))
        .with("crd.yaml", CRD)
        .with("target/wasm32-wasip1/release/own.wasm", hook("first"));
    let wrote = folder.metahook(&["replay", "a.recording", "--as-case", "tests"]);
    wrote.is(0, "controller.yaml counts for `metahook test`");
    assert_eq!(wrote.out, "wrote tests: 1 case\n");
    folder.metahook(&["test"]).is(0, "");
    let folder = folder.with("target/wasm32-wasip1/release/own.wasm", hook("second"));
    folder.metahook(&["test"]).is(1, "1 of 1 cases failed");
}

#[test]
fn of_a_recording_that_cannot_be_read_whole_nothing_is_written() {
    let whole = recording(FORMAT);
    let cut = whole.lines().take(2).map(|line| line.to_owned() + "\n").collect::<String>();
    let folder = Folder::new()
        .with("cut", cut)
        .with("half", whole.get(..whole.len() - 20).unwrap())
        .with("other", recording(FORMAT + 1))
        .with("none", "{}\n");
    for (name, says) in [
        ("cut", "the recording is cut off: it has no last line, and 1 calls"),
        ("half", "the recording is cut off: it has no last line, and 1 calls"),
        ("other", "in the format 2, and this program reads the format 1"),
        ("none", "none: this is no recording"),
    ] {
        let ended = folder.metahook(&["replay", name, "--as-case", "night"]);
        ended.is(2, says);
        assert!(ended.out.is_empty() && !folder.path("night").exists(), "{name}: {}", ended.out);
    }
}
