//! `metahook check`: each property with a module that breaks it, and the smaller request that shows it.

use serde_json::{Value, json};

use crate::render::{CRD, PARENT, composite, config_map, module};
use crate::{Ended, Folder};

/// Reads the request to 4096 on, with its length at 8; then `body`, which may ask `$has` for a byte in it and `$say` an answer.
fn reads(one: &str, other: &str, body: &str) -> String {
    let bytes = |text: &str| text.bytes().map(|byte| format!("\\{byte:02x}")).collect::<Vec<_>>().concat();
    format!(
        r#"(global $length (mut i32) (i32.const 0))
        (data (i32.const 1024) "{}") (data (i32.const 2048) "{}")
        (func $has (param $byte i32) (result i32) (local $at i32)
          (loop $next
            (if (i32.ge_u (local.get $at) (global.get $length)) (then (return (i32.const 0))))
            (if (i32.eq (i32.load8_u (i32.add (i32.const 4096) (local.get $at))) (local.get $byte))
              (then (return (i32.const 1))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $next))
          (unreachable))
        (func $say (param $other i32)
          (if (local.get $other)
            (then (i32.store (i32.const 0) (i32.const 2048)) (i32.store (i32.const 4) (i32.const {})))
            (else (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const {}))))
          (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
        (func $main
          (i32.store (i32.const 0) (i32.const 4096)) (i32.store (i32.const 4) (i32.const 60000))
          (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
          (global.set $length (i32.load (i32.const 8)))
          {body})"#,
        bytes(one),
        bytes(other),
        other.len(),
        one.len()
    )
}

const ONE: &str = r#"{"children":[],"status":{"x":1}}"#;
const OTHER: &str = r#"{"children":[],"status":{"x":2}}"#;

/// A request of every part that a property needs: a child, a status, texts.
fn request() -> Value {
    let child = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c", "uid": "u"}});
    json!({
        "parent": {"metadata": {"name": "a"}, "spec": {"size": "s", "other": [1, 2]}, "status": {"mark": "~"}},
        "children": {"Pod.v1": {"c": child}},
    })
}

fn check(body: &str) -> Ended {
    let folder =
        Folder::new().module("hook.wasm", &reads(ONE, OTHER, body)).with("r.json", request().to_string());
    folder.metahook(&["check", "hook.wasm", "--request=r.json"])
}

/// This property and no other one is violated; gives back what is printed.
#[track_caller]
fn breaks(property: &str, body: &str) -> String {
    let ended = check(body);
    let failed: Vec<_> = ended.out.lines().filter_map(|line| line.strip_prefix("FAIL ")).collect();
    assert_eq!((ended.code, failed), (1, vec![property]), "{}", ended.say);
    ended.out
}

#[test]
fn a_good_hook_keeps_all_laws() {
    let ended = check("(call $say (i32.const 0))");
    ended.is(0, "");
    let (holds, other): (Vec<_>, Vec<_>) = ended.out.lines().partition(|line| line.starts_with("ok   "));
    assert_eq!(holds.len(), 8, "{}", ended.out);
    assert_eq!(
        other,
        ["skip each spec that the definition allows is one to the hook: no request could be made for it"]
    );
}

#[test]
fn a_hook_whose_answer_follows_the_time_is_found() {
    let days = "(drop (call $time (i32.const 0) (i64.const 0) (i32.const 64)))
        (call $say (i32.wrap_i64 (i64.rem_u (i64.div_u (i64.load (i32.const 64)) (i64.const 3456000000000000)) (i64.const 2))))";
    let said = breaks("the same request gets the same answer, also later", days);
    assert!(said.contains("the answers differ: status.x: "), "{said}");
    assert!(said.contains("    parent:\n      metadata:\n        name: a\n      spec: {}\n"), "{said}");
}

/// The hook does as the SDK's conditions do.
#[test]
fn a_hook_may_note_the_time_of_a_change() {
    // Where the status has its mark it stays; else the answer follows the time.
    let notes = "(if (call $has (i32.const 0x7e)) (then (call $say (i32.const 0)) (return)))
        (drop (call $time (i32.const 0) (i64.const 0) (i32.const 64)))
        (call $say (i32.wrap_i64 (i64.rem_u (i64.div_u (i64.load (i32.const 64)) (i64.const 3456000000000000)) (i64.const 2))))";
    let (one, other) = (r#"{"children":[],"status":{"x":"~1"}}"#, r#"{"children":[],"status":{"x":"~2"}}"#);
    let mut request = request();
    request["parent"].as_object_mut().unwrap().remove("status");
    let folder =
        Folder::new().module("hook.wasm", &reads(one, other, notes)).with("r.json", request.to_string());
    let ended = folder.metahook(&["check", "hook.wasm", "--request=r.json"]);
    assert!(ended.out.contains("ok   the same request gets the same answer, also later"), "{}", ended.out);
}

#[test]
fn a_hook_that_takes_the_first_key_is_found() {
    let first = "(call $say (i32.eq (i32.load8_u (i32.const 4098)) (i32.const 0x70)))";
    breaks("the order of keys in a request does not matter", first);
}

#[test]
fn a_hook_that_knows_all_fields_is_found() {
    let said = breaks(
        "unknown fields do no harm",
        "(if (call $has (i32.const 0x3f)) (then unreachable)) (call $say (i32.const 0))",
    );
    assert!(said.contains("the sync hook: the hook trapped"), "{said}");
    assert_eq!(said.matches("text: \"?\"").count(), 1, "one of four is enough: {said}");
}

#[test]
fn a_hook_that_needs_a_status_is_found() {
    breaks(
        "a parent may have no status yet",
        "(if (i32.and (i32.lt_u (global.get $length) (i32.const 2000)) (i32.eqz (call $has (i32.const 0x7e)))) (then unreachable)) (call $say (i32.const 0))",
    );
}

#[test]
fn a_hook_that_does_not_know_a_value_of_the_definition_is_found() {
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"status": status, "spec": {
        "type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 3},
            "mode": {"type": "string", "enum": ["calm", "~wild"]},
            "names": {"type": "array", "items": {"type": "string"}},
        },
    }}}});
    let knows = "(if (call $has (i32.const 0x7e)) (then unreachable)) (call $say (i32.const 0))";
    let answer = r#"{"children":[]}"#;
    let folder = Folder::new()
        .with("controller.yaml", composite(&module(), "InPlace"))
        .with("crd.yaml", CRD.replace("storage: true,", &format!("storage: true, schema: {schema},")))
        .with("parent.yaml", PARENT)
        .module("hook.wasm", &reads(answer, answer, knows));
    let ended = folder.metahook(&[
        "check",
        "hook.wasm",
        "-f",
        "controller.yaml",
        "-f",
        "crd.yaml",
        "-f",
        "parent.yaml",
    ]);
    ended.is(1, "properties that do not hold: 1");
    assert!(ended.out.contains("FAIL each spec that the definition allows"), "{}", ended.out);
    // The request stays one that the definition allows.
    assert!(
        ended.out.contains("      spec:\n        mode: \"~wild\"\n        size: 1000\n"),
        "{}",
        ended.out
    );
}

#[test]
fn a_hook_that_knows_ascii_alone_is_found() {
    breaks(
        "texts may have any characters",
        "(if (call $has (i32.const 0xf0)) (then unreachable)) (call $say (i32.const 0))",
    );
}

#[test]
fn a_hook_that_fails_about_many_children_is_found_with_as_few_as_do() {
    let many =
        "(if (i32.ge_u (global.get $length) (i32.const 2000)) (then unreachable)) (call $say (i32.const 0))";
    let said = breaks("1,000 children are no problem", many);
    assert!(said.lines().count() < 200, "{} lines", said.lines().count());
}

#[test]
fn an_answer_with_an_unknown_field_is_not_taken() {
    let answer = r#"{"children":[],"statuss":{}}"#;
    let folder = Folder::new().answers("hook.wasm", answer).with("r.json", request().to_string());
    let ended = folder.metahook(&["check", "hook.wasm", "--request=r.json"]);
    ended.is(1, "properties that do not hold: 1");
    let says = "FAIL the server takes each answer\n  the sync hook: The sync hook's answer has the unknown field statuss";
    assert!(ended.out.contains(says), "{}", ended.out);
}

#[test]
fn an_answer_that_is_none_is_the_first_laws_concern() {
    let folder = Folder::new().answers("hook.wasm", "{}").with("r.json", request().to_string());
    let ended = folder.metahook(&["check", "hook.wasm", "--request=r.json"]);
    ended.is(1, "properties that do not hold: 1");
    assert!(
        ended.out.contains(
            "FAIL the server takes each answer\n  the sync hook: the hook's answer has no field children"
        ),
        "{}",
        ended.out
    );
}

#[test]
fn a_controller_is_tried_until_nothing_changes() {
    let folder = |answer: Value| {
        Folder::new()
            .with("controller.yaml", composite(&module(), "InPlace"))
            .with("crd.yaml", CRD)
            .with("parent.yaml", PARENT)
            .answers("hook.wasm", &answer.to_string())
    };
    let arguments = ["check", "hook.wasm", "-f", "controller.yaml", "-f", "crd.yaml", "-f", "parent.yaml"];
    let good = folder(json!({"children": [config_map("a", "x")]}));
    let ended = good.metahook(&arguments);
    ended.is(0, "");
    assert!(
        ended.out.contains("ok   what it answers is carried out")
            && ended.out.contains("ok   1,000 children"),
        "{}",
        ended.out
    );
    assert!(!ended.say.contains("ask for nothing"), "{}", ended.say);
    folder(json!({"children": []})).metahook(&arguments).is(0, "the hooks ask for nothing to be written");
    good.metahook(&[&arguments[..], &["--cycles=1"]].concat()).is(1, "properties that do not hold: 1");
    let undeclared = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let ended = folder(json!({"children": [undeclared]})).metahook(&arguments);
    ended.is(1, "properties that do not hold: 1");
    assert!(
        ended.out.contains("children[0] is a v1 Pod, which the controller's spec does not declare"),
        "{}",
        ended.out
    );
}

#[test]
fn each_hook_is_tried_with_its_own_limits() {
    // Called as customize, by the length of its arguments, it goes round 300,000 times and answers `{}`.
    let body = r#"(func $main
        (drop (call $sizes (i32.const 64) (i32.const 68)))
        (if (i32.le_u (i32.load (i32.const 68)) (i32.const 11))
          (then (call $print (i32.const 1) (i32.const 15)) (return)))
        (i32.store (i32.const 72) (i32.const 300000))
        (loop $next
          (i32.store (i32.const 72) (i32.sub (i32.load (i32.const 72)) (i32.const 1)))
          (br_if $next (i32.load (i32.const 72))))
        (i32.store16 (i32.const 1024) (i32.const 0x7d7b))
        (call $print (i32.const 1) (i32.const 2)))
        (data (i32.const 1024) "{\22children\22:[]}")"#;
    let sizes =
        "(import \"wasi_snapshot_preview1\" \"args_sizes_get\" (func $sizes (param i32 i32) (result i32)))";
    let text = format!("(module {sizes} {} {body} (export \"_start\" (func $main)))", crate::IMPORTS);
    let limited = |instructions: u64| {
        let mut hook = module()["sync"].clone();
        hook["wasm"]["limits"] = json!({ "instructions": instructions });
        hook
    };
    let hooks = json!({ "sync": limited(100_000), "customize": limited(100_000_000) });
    let folder = Folder::new()
        .with("controller.yaml", composite(&hooks, "InPlace"))
        .with("crd.yaml", CRD)
        .with("parent.yaml", PARENT)
        .with("hook.wasm", wat::parse_str(text).unwrap());
    folder
        .metahook(&["check", "hook.wasm", "-f", "controller.yaml", "-f", "crd.yaml", "-f", "parent.yaml"])
        .is(0, "");
}

#[test]
fn what_the_api_server_would_drop_or_refuse_is_found() {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "status": {"type": "object", "properties": {"maps": {"type": "integer"}}},
    }}});
    let crd = CRD.replace("storage: true,", &format!("storage: true, schema: {schema},"));
    let folder = |answer: Value| {
        Folder::new()
            .with("controller.yaml", composite(&module(), "InPlace"))
            .with("crd.yaml", &crd)
            .with("parent.yaml", PARENT)
            .answers("hook.wasm", &answer.to_string())
    };
    let arguments = ["check", "hook.wasm", "-f", "controller.yaml", "-f", "crd.yaml", "-f", "parent.yaml"];
    folder(json!({"children": [config_map("a", "x")], "status": {"maps": 1}})).metahook(&arguments).is(0, "");
    let mut odd = config_map("a", "x");
    odd["dataa"] = json!({});
    odd["immutable"] = json!("yes");
    let ended = folder(json!({"children": [odd], "status": {"mapps": 1}})).metahook(&arguments);
    ended.is(1, "properties that do not hold: 1");
    for says in [
        "ConfigMap ns/a: dataa is not in the schema (is data meant?)",
        "ConfigMap ns/a: immutable is a string, and the schema wants a boolean",
        "Thing ns/a: status.mapps is not in the schema (is maps meant?)",
    ] {
        assert!(ended.out.contains(says), "not {says:?}: {}", ended.out);
    }
}

#[test]
fn values_of_secrets_are_in_no_request_that_is_shown() {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "c2VzYW1l"}});
    let mut request = request();
    request["children"]["Secret.v1"] = json!({"s": secret});
    let folder = Folder::new().answers("hook.wasm", "no JSON").with("r.json", request.to_string());
    let ended = folder.metahook(&["check", "hook.wasm", "--request=r.json"]);
    ended.is(1, "");
    assert!(!format!("{ended:?}").contains("c2VzYW1l"), "{ended:#?}");
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let imports = "(module (import \"env\" \"socket\" (func)) (memory (export \"memory\") 1) (func (export \"_start\")))";
    let folder = Folder::new()
        .answers("hook.wasm", ONE)
        .with("imports.wasm", wat::parse_str(imports).unwrap())
        .with("broken.json", "{")
        .with("r.json", request().to_string());
    folder.metahook(&["check", "imports.wasm"]).is(1, "the module wants what hooks cannot have: env");
    folder.metahook(&["check", "none.wasm"]).is(2, "none.wasm cannot be read");
    folder
        .metahook(&["check", "hook.wasm", "--request=none.json"])
        .is(2, "--request: none.json cannot be read");
    folder
        .metahook(&["check", "hook.wasm", "--request=broken.json"])
        .is(2, "broken.json, document 1 (line 1)");
    folder.metahook(&["check", "hook.wasm", "-f", "r.json"]).is(2, "the files hold no CompositeController");
    folder.metahook(&["check", "hook.wasm", "--cycles=1001"]).is(2, "--cycles");
    let alone = folder.metahook(&["check", "hook.wasm"]);
    alone.is(0, "nothing more is tried: give a controller and an example of a parent with -f");
    assert_eq!(alone.out, "ok   the server takes the module\n");
}

#[test]
fn a_program_reads_each_law_as_json() {
    let folder =
        Folder::new().answers("hook.wasm", r#"{"childs": []}"#).with("r.json", request().to_string());
    let ended = folder.metahook(&["check", "hook.wasm", "--request=r.json", "--output=json"]);
    ended.is(1, "properties that do not hold: ");
    let said: Value = serde_json::from_str(&ended.out).unwrap();
    let properties = said["properties"].as_array().unwrap();
    let of =
        |result: &str| properties.iter().filter(|property| property["result"] == result).collect::<Vec<_>>();
    let violated = of("violated");
    assert_eq!(properties[0], json!({"property": "the server takes the module", "result": "holds"}));
    assert!(!violated.is_empty() && said["violated"] == violated.len(), "{said:#}");
    assert!(violated[0]["why"][0].as_str().unwrap().contains("no field children"), "{said:#}");
    assert!(violated[0]["request"].is_object(), "{said:#}");
}
