//! `metahook run`: the answer, what the call used, and each way that it fails.

use serde_json::{Value, json};

use crate::render::{CRD, composite, module};
use crate::{Folder, prints};

const REQUEST: &str = r#"{"parent": {}, "children": {}, "finalizing": false}"#;

fn folder() -> Folder {
    Folder::new().with("r.json", REQUEST).answers("hook.wasm", r#"{"children": []}"#)
}

const RUN: [&str; 4] = ["run", "hook.wasm", "--request", "r.json"];

#[test]
fn the_answer_is_on_stdout_and_what_it_took_on_stderr() {
    let ended = folder().metahook(&RUN);
    ended.is(0, "sync hook: ");
    assert_eq!(ended.out, r#"{"children": []}"#);
    for says in [
        "after compiling for",
        "of 1000000000\n",
        "memory: 64Ki of 64Mi\n",
        "answer: 16 bytes of 4Mi\n",
        "pure: yes",
    ] {
        ended.is(0, says);
    }
}

#[test]
fn limits_of_a_controller_that_no_server_takes_are_an_error() {
    let mut hooks = module();
    hooks["sync"]["wasm"]["limits"] = json!({"memory": "1Gi"});
    let folder = folder().with("controller.yaml", composite(&hooks, "InPlace"));
    let says = "controller.yaml, document 1 (line 1): spec.hooks.sync.wasm.limits.memory: 1Gi is above";
    folder.metahook(&[&RUN[..], &["-f", "controller.yaml"]].concat()).is(2, says);
    let beside = folder.metahook(&RUN);
    beside.is(0, says);
    beside.is(0, ": the limits are the server's defaults");
}

#[test]
fn a_program_reads_everything_as_json() {
    let ended = folder().metahook(&[&RUN[..], &["--output", "json"]].concat());
    let said: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((ended.code, &*ended.say), (0, ""));
    assert_eq!(
        (&said["answer"], &said["hook"], &said["error"]),
        (&json!({"children": []}), &json!("sync"), &Value::Null)
    );
    assert_eq!(
        (&said["pure"], &said["memory"], said["instructions"].as_u64().is_some_and(|it| it > 0)),
        (&json!(true), &json!(65536), true)
    );
    let ended = folder().metahook(&[&RUN[..], &["--output", "yaml"]].concat());
    ended.is(0, "");
    assert!(ended.out.starts_with("answer:\n  children: []\n"), "{}", ended.out);
}

#[test]
fn an_answer_with_an_unknown_field_is_shown_and_fails() {
    let answer = r#"{"children": [], "statuss": {}}"#;
    let folder = folder().answers("hook.wasm", answer);
    let ended = folder.metahook(&RUN);
    ended.is(
        1,
        "metahook: the sync hook: The sync hook's answer has the unknown field statuss; that has no effect",
    );
    assert_eq!(ended.out, answer);
}

#[test]
fn a_request_may_be_yaml_or_come_by_stdin() {
    let folder = folder().with("r.yaml", "parent: {}\nchildren: {}\n");
    folder.metahook(&["run", "hook.wasm", "--request=r.yaml"]).is(0, "sync hook");
    folder.metahook_with(&["run", "hook.wasm", "--request=-"], REQUEST).is(0, "sync hook");
    folder.metahook_with(&["run", "hook.wasm", "--request=-"], "").is(2, "--request: - holds no document");
}

#[test]
fn lines_of_the_hook_command_no_terminal() {
    let folder = folder().module("log.wasm", &prints(2, "one\n\u{1b}[2Jtwo"));
    let ended = folder.metahook(&["run", "log.wasm", "--request=r.json"]);
    ended.is(1, "one\n\\u{1b}[2Jtwo\n");
    ended.is(1, "metahook: the sync hook: the hook printed nothing");
}

#[test]
fn a_hook_that_reads_the_time_is_not_pure() {
    let body = prints(1, r#"{"children":[]}"#).replace(
        "(func $main ",
        "(func $main (drop (call $time (i32.const 0) (i64.const 0) (i32.const 64))) ",
    );
    folder().module("hook.wasm", &body).metahook(&RUN).is(0, "pure: no: the hook reads the time");
}

#[test]
fn what_fails_the_hook_is_told_with_its_limit() {
    let endless = "(func $main (loop $again (br $again)))";
    let folder = folder().module("endless.wasm", endless).module("trap.wasm", "(func $main unreachable)");
    let run = |more: &[&str]| folder.metahook(&[&["run", "endless.wasm", "--request=r.json"], more].concat());
    let ended = run(&["--limits.instructions=1000"]);
    ended.is(1, "the hook used up its 1000 instructions");
    ended.is(1, "instructions: 1000 of 1000");
    run(&["--limits.instructions=100000000001"]).is(2, "--limits.instructions: 100000000001 is above");
    run(&["--limits.timeout=soon"]).is(2, "--limits.timeout: \"soon\" is no duration");
    folder.metahook(&["run", "trap.wasm", "--request=r.json"]).is(1, "the sync hook: the hook trapped");
    let said = folder.metahook(&["run", "trap.wasm", "--request=r.json", "--output=json"]);
    said.is(1, "the hook trapped");
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert!(said["error"].as_str().unwrap().starts_with("the sync hook: the hook trapped"), "{said}");
}

#[test]
fn an_answer_that_the_server_would_refuse_fails() {
    let folder = folder().answers("hook.wasm", r#"{"childs": []}"#);
    folder.metahook(&RUN).is(1, "the hook's answer has no field children");
    let decorator = r#"{"object": {}, "attachments": {}}"#;
    let ended = folder.with("r.json", decorator).metahook(&RUN);
    ended.is(1, "has no field attachments");
    assert_eq!(ended.out, r#"{"childs": []}"#, "the answer is shown all the same");
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let folder = folder()
        .with("text.wasm", "hello")
        .with("library.wasm", wat::parse_str("(module)").unwrap())
        .with("bad.json", "{\"a\":")
        .with("list.json", "[1]")
        .with("example.yaml", "apiVersion: example.com/v1\nkind: Demo\nmetadata: {name: first}\n");
    let run = |module: &str, request: &str| folder.metahook(&["run", module, "--request", request]);
    run("none.wasm", "r.json").is(2, "the module (`cargo build --target wasm32-wasip1 --release` makes one): none.wasm cannot be read: No such file");
    run("hook.wasm", "none.json").is(2, "--request: none.json cannot be read: No such file");
    run("hook.wasm", "bad.json").is(2, "--request: bad.json, document 1 (line 1) is neither YAML nor JSON");
    run("hook.wasm", "list.json")
        .is(2, "--request list.json: a request is a JSON object, and this is a list");
    run("hook.wasm", "example.yaml").is(2, "--request example.yaml: this is an object, Demo first, and not a request: put it under `parent:`, for a DecoratorController under `object:`, or use `metahook render -f example.yaml`");
    folder
        .metahook(&["check", "hook.wasm", "--request=example.yaml"])
        .is(2, "or give a controller and this file with -f");
    run("text.wasm", "r.json").is(1, "text.wasm: this is not a WebAssembly module");
    run("library.wasm", "r.json").is(1, "library.wasm: the module has no function _start");
    folder.metahook(&["run", "hook.wasm"]).is(2, "--request");
    folder
        .metahook(&["run", "hook.wasm", "--request=r.json", "--hook=synk"])
        .is(2, "sync, finalize or customize");
    folder
        .metahook(&["run", "hook.wasm", "--request=r.json", "--mount=/x=none"])
        .is(2, "--mount none: No such file");
}

#[test]
fn a_module_may_be_compressed() {
    let folder = folder();
    let module = std::fs::read(folder.path("hook.wasm")).unwrap();
    let packed = zstd::encode_all(&*module, 3).unwrap();
    folder.with("hook.wasm", packed).metahook(&RUN).is(0, "pure: yes");
}

#[test]
fn the_interpreter_of_a_script_is_looked_for_where_the_flag_says() {
    let folder = Folder::new().with("r.json", REQUEST).with("sync.py", "def sync(request):\n    return {}\n");
    std::fs::create_dir(folder.path("no-runners")).unwrap();
    for command in ["run", "check"] {
        let ended = folder.metahook(&[command, "sync.py", "--request", "r.json", "--runners", "no-runners"]);
        ended.is(2, "sync.py: no-runners/python.wasm, the interpreter of Python, is not there: name the folder that has it with --runners FOLDER; the server's image has it in /usr/bin/runners");
        assert!(!ended.say.contains("this server"), "{command}: {ended:#?}");
    }
}

/// An interpreter whose bytecode is empty, as is its answer.
fn interpreter() -> Vec<u8> {
    wat::parse_str("(module (func (export \"_start\")))").unwrap()
}

#[test]
fn an_interpreter_that_is_compiled_for_one_command_is_named() {
    let folder = Folder::new()
        .with("r.json", REQUEST)
        .with("hook.js", "export const sync = () => ({});\n")
        .with("runners/javascript.wasm", interpreter());
    let run = || folder.metahook(&["run", "hook.js", "--request=r.json", "--runners=runners"]);
    let absent = run();
    absent.is(1, "metahook: compiling the interpreter of JavaScript, as runners/javascript.code is missing; `metahook compile-runners --runners runners` compiles it once and keeps it\n");
    absent.is(1, "metahook: the interpreter of JavaScript is compiled, after ");
    absent.is(1, "after compiling for ");
    folder.metahook(&["compile-runners", "--runners=runners"]).is(0, "");
    let kept = run();
    assert!(!kept.say.contains("interpreter of JavaScript"), "{kept:#?}");
    std::fs::write(folder.path("runners/javascript.code"), "junk").unwrap();
    run().is(1, "as runners/javascript.code is not used: it is damaged, or of another runner");
}

#[test]
fn a_long_log_is_cut_in_its_middle() {
    let log = (1..=5000).map(|number| number.to_string()).collect::<Vec<_>>().join("\n");
    let ended =
        folder().module("log.wasm", &prints(2, &log)).metahook(&["run", "log.wasm", "--request=r.json"]);
    ended.is(1, "\n90\n… 4820 more lines; --output json prints all\n4911\n");
    assert!(ended.say.lines().count() < 200, "{}", ended.say);
}

#[test]
fn the_only_controller_says_which_hook_and_which_kinds_a_short_request_is_for() {
    let folder = folder().with("controller.yaml", composite(&module(), "InPlace")).with("crd.yaml", CRD);
    folder.with("r.json", r#"{"parent": {"spec": {}}}"#).metahook(&RUN).is(0, "sync hook: ");
}
