//! `metahook test`: cases of both kinds, their blessing, bounds, reports and watch.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::Folder;
use crate::render::{CRD, PARENT, composite, config_map, module};

const REQUEST: &str = "{parent: {}, children: {}}";

/// A case of each kind, without what is to come out, and a module that answers with a child and a log line.
fn folder() -> Folder {
    let answer = json!({"children": [config_map("a", "x")]});
    Folder::new()
        .with("controller.yaml", composite(&module(), "InPlace"))
        .with("crd.yaml", CRD)
        .with("tests/call/request.yaml", REQUEST)
        .with("tests/reconcile/parent.yaml", PARENT)
        .answers("target/wasm32-wasip1/release/hook.wasm", &answer.to_string())
}

fn blessed() -> Folder {
    let folder = folder();
    folder.metahook(&["test", "--bless", "--max-instructions=+5%"]).is(0, "");
    folder
}

#[test]
fn what_is_blessed_is_what_comes_out_then() {
    let folder = folder();
    let first = folder.metahook(&["test"]);
    first.is(1, "2 of 2 cases failed");
    assert!(
        first.out.contains("tests/call/response.yaml: is missing, and --bless writes it"),
        "{}",
        first.out
    );
    let blessed = folder.metahook(&["test", "--bless"]);
    blessed.is(0, "");
    assert!(blessed.out.contains("wrote tests/reconcile/plan.yaml"), "{}", blessed.out);
    let plan = std::fs::read_to_string(folder.path("tests/reconcile/plan.yaml")).unwrap();
    assert!(plan.contains("end: settled\n") && plan.contains("change: create\n"), "{plan}");
    assert!(!plan.contains("resourceVersion"), "{plan}");
    let then = folder.metahook(&["test"]);
    then.is(0, "");
    assert!(then.out.contains("ok   call (") && then.out.ends_with("2 passed, 0 failed\n"), "{}", then.out);
}

#[test]
fn a_blessed_error_is_shown_and_is_no_success() {
    let fails = "(func $main (call $exit (i32.const 3)))";
    let folder = blessed().module("target/wasm32-wasip1/release/hook.wasm", fails);
    std::fs::remove_dir_all(folder.path("tests/call")).unwrap();
    let first = folder.metahook(&["test", "--bless"]);
    first.is(1, "1 of 1 blessed cases end in an error, and did not before");
    let shows = |ended: &crate::Ended| {
        assert!(ended.out.contains("ok   reconcile (ends in an error: "), "{}", ended.out);
        assert!(ended.out.ends_with("1 passed, 0 failed, 1 end in an error\n"), "{}", ended.out);
    };
    shows(&first);
    for again in [&["test", "--bless"][..], &["test"]] {
        let ended = folder.metahook(again);
        ended.is(0, "");
        shows(&ended);
    }
    let said = folder.metahook(&["test", "--output=json"]);
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert!(said["cases"][0]["error"].is_string(), "{said}");
}

#[test]
fn a_plan_that_is_a_new_error_is_shown_by_the_error() {
    let fails = "(func $main (call $exit (i32.const 3)))";
    let folder = blessed().module("target/wasm32-wasip1/release/hook.wasm", fails);
    let says = "differs: there is no plan, but an error: ";
    for arguments in [&["test", "--junit", "all.xml"][..], &["test", "--output", "github"]] {
        let ended = folder.metahook(arguments);
        ended.is(1, "2 of 2 cases failed");
        assert!(ended.out.contains("FAIL reconcile (ends in an error: "), "{}", ended.out);
        assert!(ended.out.contains(says) && !ended.out.contains("  - "), "{}", ended.out);
    }
    let junit = std::fs::read_to_string(folder.path("all.xml")).unwrap();
    assert!(junit.contains(says) && junit.contains("exit"), "{junit}");
}

#[test]
fn where_nothing_but_a_record_differs_it_is_shown() {
    let folder = blessed();
    let plan = folder.path("tests/reconcile/plan.yaml");
    let text = std::fs::read_to_string(&plan).unwrap();
    let record = text.lines().find(|line| line.contains("last-applied-configuration")).unwrap().to_owned();
    let other = record.split_once(": ").unwrap().0.to_owned() + ": '{}'";
    std::fs::write(&plan, text.replace(&record, &other)).unwrap();
    let ended = folder.metahook(&["test"]);
    ended.is(1, "1 of 2 cases failed");
    assert!(ended.out.contains("last-applied-configuration: \"{}\""), "{}", ended.out);
}

#[test]
fn another_answer_fails_with_its_difference() {
    let other = json!({"children": [config_map("a", "other")]}).to_string();
    let folder = blessed().answers("target/wasm32-wasip1/release/hook.wasm", &other);
    let ended = folder.metahook(&["test"]);
    ended.is(1, "2 of 2 cases failed");
    for says in ["FAIL call", "tests/call/response.yaml: differs", "-     text: x", "+     text: other"] {
        assert!(ended.out.contains(says), "{says}: {}", ended.out);
    }
    assert!(!ended.out.contains('\u{1b}'), "no colours but on a terminal");
    assert!(!ended.out.contains("last-applied"), "it repeats the child: {}", ended.out);
}

#[test]
fn an_answer_with_an_unknown_field_fails_cases_of_both_kinds() {
    let answer = json!({"children": [config_map("a", "x")], "statuss": {}}).to_string();
    let folder = blessed().answers("target/wasm32-wasip1/release/hook.wasm", &answer);
    let ended = folder.metahook(&["test"]);
    ended.is(1, "2 of 2 cases failed");
    let says = "The sync hook's answer has the unknown field statuss; that has no effect";
    assert_eq!(ended.out.matches(says).count(), 2, "{}", ended.out);
}

#[test]
fn what_the_api_server_would_drop_fails_cases_of_both_kinds() {
    let mut odd = config_map("a", "x");
    odd["dataa"] = json!({});
    let answer = json!({"children": [odd]}).to_string();
    let folder = blessed().answers("target/wasm32-wasip1/release/hook.wasm", &answer);
    let ended = folder.metahook(&["test"]);
    ended.is(1, "2 of 2 cases failed");
    let says = "dataa is not in the schema (is data meant?)";
    assert_eq!(ended.out.matches(says).count(), 2, "{}", ended.out);
}

#[test]
fn a_case_has_as_many_calls_as_requests_and_a_controller_of_its_own() {
    let folder = blessed()
        .with("tests/call/request.2.json", r#"{"object": {}, "attachments": {}}"#)
        .with("tests/reconcile/controller.yaml", composite(&module(), "OnDelete"));
    let ended = folder.metahook(&["test"]);
    ended.is(1, "1 of 2 cases failed");
    assert!(
        ended.out.contains("request.2.json: the sync hook: the hook's answer has no field attachments"),
        "{}",
        ended.out
    );
}

#[test]
fn an_observed_object_of_the_parent_is_its_child() {
    let observed = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
  namespace: ns
  ownerReferences: [{apiVersion: example.com/v1, kind: Thing, name: a, controller: true}]
data: {text: old}
";
    let folder = folder().with("tests/reconcile/observed.yaml", observed);
    folder.metahook(&["test", "--bless"]).is(0, "");
    let plan = std::fs::read_to_string(folder.path("tests/reconcile/plan.yaml")).unwrap();
    assert!(plan.contains("change: replace") && !plan.contains("change: create"), "{plan}");
}

#[test]
fn a_plan_may_ask_for_fewer_reconciles() {
    let folder = blessed().with("tests/reconcile/plan.yaml", "cycles: 1\n");
    folder.metahook(&["test", "--bless"]).is(0, "");
    let plan = std::fs::read_to_string(folder.path("tests/reconcile/plan.yaml")).unwrap();
    assert!(plan.starts_with("cycles: 1\nend: unfinished\n"), "{plan}");
    folder.metahook(&["test"]).is(0, "");
    let ended = folder.with("tests/reconcile/plan.yaml", "cycles: 1001\n").metahook(&["test"]);
    assert!(ended.out.contains("cycles is 1001, and is to be a number from 1 to 1000"), "{}", ended.out);
}

#[test]
fn instructions_are_bounded_by_a_number_or_by_what_was_recorded() {
    let folder = blessed();
    folder.metahook(&["test", "--max-instructions=+0%"]).is(0, "");
    let few = folder.metahook(&["test", "--max-instructions=1"]);
    few.is(1, "2 of 2 cases failed");
    assert!(few.out.contains("instructions are more than 1 (--max-instructions)"), "{}", few.out);
    let folder = folder.with("tests/instructions.json", "{\"call\": 1}");
    let ended = folder.metahook(&["test", "--max-instructions=+1000%"]);
    assert!(ended.out.contains("instructions are more than 11 "), "{}", ended.out);
    assert!(ended.out.contains("there are no recorded instructions"), "{}", ended.out);
    folder.metahook(&["test", "--max-instructions=5%"]).is(2, "write a number, or a share");
    let folder = folder.with("tests/instructions.json", "[]");
    folder.metahook(&["test"]).is(2, "the recorded instructions are no object of numbers");
}

#[test]
fn failures_are_told_to_junit_and_github() {
    let folder = blessed().with("tests/call/response.yaml", "children: []\n");
    let ended = folder.metahook(&["test", "--junit=results.xml", "--output=github"]);
    ended.is(1, "1 of 2 cases failed");
    assert!(
        ended.out.contains("::error file=tests/call/response.yaml,title=call::differs%0A"),
        "{}",
        ended.out
    );
    let xml = std::fs::read_to_string(folder.path("results.xml")).unwrap();
    assert!(xml.contains("tests=\"2\" failures=\"1\""), "{xml}");
    assert!(
        xml.contains("<testcase name=\"reconcile\"")
            && xml.contains("<failure message=\"tests/call/response.yaml: differs\">"),
        "{xml}"
    );
    folder.metahook(&["test", "--junit=none/results.xml"]).is(2, "none/results.xml cannot be written");
}

#[test]
fn a_program_reads_each_case_as_json() {
    let folder = folder();
    let said = |arguments: &[&str], code: i32| {
        let ended = folder.metahook(&[&["test", "--output=json"], arguments].concat());
        ended.is(code, "");
        serde_json::from_str::<Value>(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:#?}"))
    };
    let first = said(&[], 1);
    assert_eq!((&first["passed"], &first["failed"]), (&json!(0), &json!(2)));
    let case = &first["cases"][0];
    assert_eq!((&case["name"], &case["passed"]), (&json!("call"), &json!(false)));
    assert_eq!(case["failures"][0]["file"], "tests/call/response.yaml");
    assert!(case["instructions"].as_u64().is_some_and(|used| used > 0), "{case}");
    assert_eq!(said(&["--bless"], 0)["cases"][0]["wrote"], json!(["tests/call/response.yaml"]));
    assert_eq!(said(&[], 0)["passed"], 2);
}

#[test]
fn values_of_secrets_are_in_no_difference() {
    let secret = |value: &str| json!({"children": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": value}}]});
    let module = "target/wasm32-wasip1/release/hook.wasm";
    let folder = folder().answers(module, &secret("sesame").to_string());
    folder.metahook(&["test", "--bless"]).is(0, "");
    let ended = folder.answers(module, &secret("open").to_string()).metahook(&["test"]);
    ended.is(1, "2 of 2 cases failed");
    assert!(ended.out.contains("values of Secrets differ, which are not shown"), "{}", ended.out);
    assert!(!ended.out.contains("sesame") && !ended.out.contains("open"), "{}", ended.out);
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let folder = folder();
    folder.metahook(&["test", "none"]).is(2, "none: the folder of cases cannot be read: No such file");
    folder.metahook(&["test", "target"]).is(2, "target holds no case");
    folder.metahook(&["test", "--module=none.wasm"]).is(2, "none.wasm cannot be read");
    folder.metahook(&["test", "-f", "none.yaml"]).is(2, "-f: none.yaml cannot be read");
    let folder = folder.with("target/wasm32-wasip1/release/second.wasm", "");
    let ended = folder.metahook(&["test"]);
    assert!(
        ended.out.contains("a request needs a module (`cargo build --target wasm32-wasip1 --release` makes one) or a script: name its file with --module"),
        "{}",
        ended.out
    );
    let folder = folder.with("tests/call/request.yaml", PARENT);
    let ended = folder.metahook(&["test", "--module=target/wasm32-wasip1/release/hook.wasm"]);
    assert!(ended.out.contains("and not a request: put it under `parent:`"), "{}", ended.out);
    let folder = folder.with("tests/call/request.yaml", "a: [");
    let ended = folder.metahook(&["test", "--module=target/wasm32-wasip1/release/hook.wasm"]);
    assert!(
        ended.out.contains("tests/call/request.yaml, document 1 (line 1) is neither YAML nor JSON"),
        "{}",
        ended.out
    );
}

/// A program that ends with its test, also where that fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended.
        self.0.kill().unwrap_or_default();
        drop(self.0.wait());
    }
}

#[test]
fn a_watch_runs_again_when_a_case_changes() {
    let folder = blessed();
    let mut watch = Killed(
        Command::new(env!("CARGO_BIN_EXE_metahook"))
            .args(["test", "--watch"])
            .current_dir(folder.0.path())
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "2 passed, 0 failed"));
    let folder = folder.with("tests/call/response.yaml", "children: []\n");
    assert!(lines.any(|line| line == "1 passed, 1 failed"));
    drop((watch, folder));
}
