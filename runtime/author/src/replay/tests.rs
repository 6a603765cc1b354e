use metahook_core::api::policy::LimitBounds;
use metahook_core::hook::Usage;
use metahook_core::recording::{Beginning, Ending, RecordedLine, print_seed};
use metahook_core::trace::TracedObject;
use serde_json::json;

use super::*;

fn call(answer: Option<&Value>) -> RecordedCall {
    let parent = TracedObject {
        group: "example.com".into(),
        resource: "greetings".into(),
        kind: "Greeting".into(),
        namespace: "n".into(),
        name: "a".into(),
    };
    RecordedCall {
        controller: "c".to_owned(),
        parent,
        hook: "sync".to_owned(),
        digest: Some("sha256:1".to_owned()),
        limits: Some(LimitBounds::default().default.into()),
        mounts: Vec::new(),
        now_nanos: 0,
        seed: Some(print_seed(&[7; 32])),
        request: "{}".to_owned(),
        answer: answer.map(Value::to_string),
        error: answer.is_none().then(|| "unreachable".to_owned()),
        took_us: 1,
        usage: Some(Usage { instructions: 100, memory: 0 }),
        replaced: false,
    }
}

fn begin(format: u32) -> RecordedLine {
    let (version, controller) = ("0.0.9".to_owned(), "CompositeController c".to_owned());
    RecordedLine::Recording(Beginning { format, version, controller })
}

fn end() -> RecordedLine {
    RecordedLine::End(Ending { calls: 1, reconciles: 1, lost: 0 })
}

fn read(text: &str) -> Result<Recorded, String> {
    Recorded::read(Path::new("file"), text.as_bytes()).map_err(|error| error_chain(&error))
}

fn printed(lines: &[RecordedLine]) -> String {
    lines.iter().map(|line| line.print() + "\n").collect()
}

#[test]
fn a_recording_is_read_whole() {
    let one = RecordedLine::Call(Box::new(call(Some(&json!({ "children": [] })))));
    let recorded = read(&printed(&[begin(FORMAT), one.clone(), end()])).unwrap();
    assert_eq!((recorded.calls.len(), &*recorded.controller), (1, "CompositeController c"));
    assert!(recorded.remarks.is_empty(), "{:?}", recorded.remarks);
}

#[test]
fn what_is_no_recording_or_is_cut_off_is_told() {
    let one = RecordedLine::Call(Box::new(call(None)));
    let whole = printed(&[begin(FORMAT), one.clone(), one.clone(), end()]);
    for text in ["", "{}\n", "apiVersion: v1\n", &printed(std::slice::from_ref(&one))] {
        assert_eq!(
            read(text).unwrap_err(),
            "file: this is no recording: `metahook record --reconciles` writes one",
            "{text}"
        );
    }
    let other = read(&printed(&[begin(FORMAT + 1), one.clone(), end()])).unwrap_err();
    assert!(
        other.contains("metahook 0.0.9 wrote it in the format 2") && other.contains("reads the format 1"),
        "{other}"
    );
    assert_eq!(read(&printed(&[begin(FORMAT), end()])).unwrap_err(), "file: it has no call of a hook");
    let damaged = whole.replacen("\"request\"", "\"reqest\"", 1);
    assert!(read(&damaged).unwrap_err().starts_with("file: line 2: "), "{damaged}");
    // Cut at each byte: no more than what is whole is read, and that it is cut is said.
    let first = begin(FORMAT).print().len() + 1 + one.print().len() + 1;
    for length in first..whole.len() - 1 {
        let recorded = read(whole.get(..length).unwrap()).unwrap();
        let cut = &recorded.remarks[..];
        assert!(matches!(cut, [one] if one.starts_with("the recording is cut off")), "{length}: {cut:?}");
    }
}

#[test]
fn ends_are_compared() {
    let answer = json!({ "children": [], "status": {} });
    let now = |text: &str| Ok(text.as_bytes().to_vec());
    let is_same = |call: &RecordedCall, now: Result<Vec<u8>, String>| compared(call, &now) == Compared::Same;
    let (answered, failed) = (call(Some(&answer)), call(None));
    assert!(
        is_same(&answered, now("{ \"status\":{}, \"children\":[] }")),
        "the order of fields says nothing"
    );
    assert!(!is_same(&answered, now("{\"children\":[]}")) && !is_same(&answered, now("no json")));
    assert!(!is_same(&answered, Err("unreachable".to_owned())) && !is_same(&failed, now("{}")));
    assert!(is_same(&failed, Err("unreachable".to_owned())) && !is_same(&failed, Err("other".to_owned())));
}

#[test]
fn calls_are_counted_and_shown() {
    let mut summary = ReplaySummary::default();
    let mut out = Vec::new();
    let one = |compared| Replayed {
        hook: "sync".to_owned(),
        parent: "Greeting n/a".to_owned(),
        compared,
        recorded_instructions: Some(100),
        instructions: Some(107),
    };
    let (recorded, now, replaced) = (json!({ "a": 1 }), json!({ "a": 2 }), true);
    let plans = Some(Plans::Different { recorded: json!({ "b": 3 }), now: json!({ "b": 4 }) });
    let different = Compared::Different { recorded: recorded.clone(), now: now.clone(), replaced, plans };
    let same_plan = Compared::Different { recorded, now, replaced, plans: Some(Plans::Same) };
    let other = Compared::OtherEnd { recorded: None, now: Some("no\u{1b}[2J".to_owned()) };
    let not_made = Compared::NotMade { why: "its hook is a webhook".to_owned() };
    for compared in [Compared::Same, different, same_plan, other, not_made] {
        let one = one(compared);
        summary.add(&one);
        print_one(&mut out, &one, false).unwrap();
    }
    print_summary(&mut out, &summary).unwrap();
    let out = String::from_utf8(out).unwrap();
    let expected = [
        "# sync hook, Greeting n/a: another answer\n  (its request shows Secrets",
        "- a: 1\n+ a: 2\n# the server would write:\n- b: 3\n+ b: 4\n",
        "- a: 1\n+ a: 2\n# the server would write the same\n",
        "# sync hook, Greeting n/a: another end\n- an answer\n+ error: no",
        "# sync hook, Greeting n/a: not called: its hook is a webhook\n",
        "5 calls: 1 same, 3 different (1 with the same writes), 1 not called; +7 % instructions\n",
    ];
    for part in expected {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains('\u{1b}'), "{out}");
}

#[tokio::test]
async fn plans_of_two_answers_are_compared() {
    let kind = json!({ "group": "example.com", "scope": "Namespaced", "names": { "kind": "Greeting", "plural": "greetings" },
        "versions": [{ "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": { "type": "object" } } }] });
    let definitions = [json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "greetings.example.com" }, "spec": kind })];
    let hook = json!({ "wasm": { "configMap": { "namespace": "n", "name": "hook" } } });
    let controller = json!({ "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": { "name": "c" }, "spec": {
            "parentResource": { "apiVersion": "example.com/v1", "resource": "greetings" }, "generateSelector": true,
            "childResources": [{ "apiVersion": "v1", "resource": "configmaps", "updateStrategy": { "method": "InPlace" } }],
            "hooks": { "sync": hook, "customize": hook } } });
    let parent = json!({ "apiVersion": "example.com/v1", "kind": "Greeting",
        "metadata": { "name": "a", "namespace": "n", "uid": "1" } });
    let map = |is: &str| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "m", "namespace": "n" }, "data": { "is": is } })
    };
    let mut other_map = map("related");
    other_map["metadata"]["name"] = json!("other");
    let mut sibling = parent.clone();
    sibling["metadata"]["name"] = json!("b");
    // No parent of this reconcile: it would make the same child.
    let related =
        json!({ "ConfigMap.v1": { "n/other": other_map }, "Greeting.example.com/v1": { "n/b": sibling } });
    let request = json!({ "controller": controller, "parent": parent, "children": { "ConfigMap.v1": {} },
        "related": related, "finalizing": false });
    let answer = |is: &str| json!({ "children": [map(is)], "status": {} }).to_string();
    let mut call = call(Some(&Value::Null));
    call.request = request.to_string();
    let plans = async |call: &RecordedCall, now: String| {
        Plans::of(call, &definitions, &answer("one"), now.as_bytes()).await
    };
    let blanks = answer("one").replace(',', " , ");
    assert_eq!(plans(&call, blanks).await, Plans::Same);
    let Plans::Different { recorded, now } = plans(&call, answer("two")).await else { panic!("they differ") };
    assert!(recorded.to_string().contains("one") && now.to_string().contains("two"), "{recorded} {now}");
    call.request = json!({ "parent": parent }).to_string();
    let why = "the request has no controller".to_owned();
    assert_eq!(plans(&call, answer("two")).await, Plans::Unknown { why });
}
