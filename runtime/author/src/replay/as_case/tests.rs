use std::fs;

use metahook_core::recording::{RecordedHook, print_seed};
use metahook_core::trace::TracedObject;
use serde_json::json;

use super::*;

const REQUEST: &str = r#"{"controller":{"kind":"CompositeController","metadata":{"name":"c","uid":"u"},"status":{}},"parent":{"z":1.0,"a":[]},"children":{ },"finalizing":false}"#;

/// A call that begins this many milliseconds after 2023-11-14T22:13:20Z.
fn call(name: &str, millis: u64) -> RecordedCall {
    let parent = TracedObject {
        group: "example.com".into(),
        resource: "greetings".into(),
        kind: "Greeting".into(),
        namespace: "n".into(),
        name: name.into(),
    };
    RecordedCall {
        controller: "c".to_owned(),
        parent,
        hook: "sync".to_owned(),
        digest: Some(hook().digest),
        limits: None,
        mounts: Vec::new(),
        now_nanos: 1_700_000_000_000_000_000 + millis * 1_000_000 + 789,
        seed: Some(print_seed(&[7; 32])),
        request: REQUEST.to_owned(),
        answer: Some(json!({ "children": [], "status": { "word": "first" } }).to_string()),
        error: None,
        took_us: 1,
        usage: None,
        replaced: false,
    }
}

fn failed(name: &str) -> RecordedCall {
    RecordedCall { answer: None, error: Some("it was not reached".to_owned()), ..call(name, 0) }
}

fn hook() -> RecordedHook {
    RecordedHook::new(Digest::of(b"module").to_string(), "hook.wasm".to_owned(), None, b"module")
}

fn recorded(calls: Vec<RecordedCall>) -> Recorded {
    let definitions = vec![json!({ "kind": "CustomResourceDefinition" })];
    Recorded { calls, hooks: vec![hook()], definitions, ..Recorded::default() }
}

/// A folder in one that is empty.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("night");
    (root, folder)
}

fn cases(recorded: &Recorded, folder: &Path) -> Result<CallCases, String> {
    CallCases::of(recorded, folder).map_err(|error| error.to_string())
}

fn written(recorded: &Recorded, folder: &Path) -> Result<Vec<String>, String> {
    let cases = cases(recorded, folder)?;
    cases.write(folder).map_err(|error| error.to_string())?;
    Ok(cases.remarks)
}

#[test]
fn each_call_that_was_answered_is_a_case_named_after_its_parent_and_its_time() {
    let (_root, folder) = folder();
    let all = recorded(vec![call("a", 123), call("a", 123), failed("b"), call("b", 4000)]);
    let remarks = written(&all, &folder).unwrap();
    let says = "1 call is no case. The first: the sync hook for Greeting n/b failed: it was not reached";
    assert_eq!(remarks, [says]);
    let names: Vec<_> = crate::cases::find(&folder).unwrap().into_iter().map(|case| case.name).collect();
    let first = "n/a/2023-11-14T22-13-20.123Z-sync";
    let expected = [first, "n/a/2023-11-14T22-13-20.123Z-sync-2", "n/b/2023-11-14T22-13-24.000Z-sync"];
    assert_eq!(names, expected);
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let request = read(&format!("{first}/request.json"));
    assert!(request.contains("  \"parent\": {\n    \"z\": 1.0,\n    \"a\": []\n  },\n"), "{request}");
    assert_eq!(read(&format!("{first}/response.yaml")), "children: []\nstatus:\n  word: first\n");
    let input = CallInput::read(&folder.join(first), "call").unwrap_or_default();
    let nanos = input.time.map(Timestamp::as_nanosecond);
    assert_eq!((input.hook, nanos), (Some(HookName::Sync), Some(1_700_000_000_123_000_789)));
    assert!(input.seed == Some(Seed([7; 32])) && !read(&format!("{first}/call.yaml")).contains("Secret"));
    assert_eq!(read("hook.wasm"), "module");
    assert_eq!(read("controller.yaml"), "kind: CompositeController\nmetadata:\n  name: c\n");
    assert_eq!(read("crd.yaml"), "kind: CustomResourceDefinition\n");
}

#[test]
fn a_case_says_that_values_of_secrets_were_replaced() {
    let (_root, folder) = folder();
    let replaced = RecordedCall { replaced: true, seed: None, ..call("a", 0) };
    let remarks = written(&recorded(vec![replaced, call("b", 0)]), &folder).unwrap();
    assert_eq!(remarks, ["values of Secrets are replaced in 1 case: call.yaml says in which"]);
    let input = folder.join("n/a/2023-11-14T22-13-20.000Z-sync/call.yaml");
    let text = fs::read_to_string(&input).unwrap();
    assert!(text.contains("# ") && text.contains("Values of Secrets were replaced"), "{text}");
    let input = CallInput::read(input.parent().unwrap(), "call").unwrap_or_default();
    assert!(input.time.is_some() && input.seed.is_none());
}

#[test]
fn nothing_is_overwritten_and_nothing_is_written_where_something_is_there() {
    let (_root, folder) = folder();
    let (first, second) = (recorded(vec![call("a", 0)]), recorded(vec![call("b", 0), call("a", 1)]));
    written(&first, &folder).unwrap();
    let again = written(&first, &folder).unwrap_err();
    let place = folder.join("n/a/2023-11-14T22-13-20.000Z-sync");
    assert!(again.starts_with(&format!("{}: it is there already", place.display())), "{again}");
    fs::write(folder.join("hook.wasm"), "mine").unwrap();
    let other = written(&second, &folder).unwrap_err();
    let path = folder.join("hook.wasm");
    assert!(other.starts_with(&format!("{}: it is there already", path.display())), "{other}");
    assert!(!folder.join("n/b").exists() && fs::read(&path).unwrap() == b"mine");
    fs::write(&path, "module").unwrap();
    written(&second, &folder).unwrap();
    assert_eq!(crate::cases::find(&folder).unwrap().len(), 3, "files that are the same are shared");
    let file = folder.join("file");
    fs::write(&file, "mine").unwrap();
    let no_folder = written(&first, &file).unwrap_err();
    assert!(no_folder.contains("cannot be written") && fs::read(&file).unwrap() == b"mine", "{no_folder}");
}

#[test]
fn what_an_author_has_beside_the_folder_counts() {
    let (root, folder) = folder();
    let own = root.path().join("controller.yaml");
    fs::write(&own, "").unwrap();
    let says = format!(
        "{} counts for `metahook test`: the recorded one is not written, nor its hooks",
        own.display()
    );
    assert_eq!(written(&recorded(vec![call("a", 0)]), &folder).unwrap(), [says]);
    assert!(folder.join("n/a").is_dir());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn what_the_cases_need_besides_is_told() {
    let (_root, folder) = folder();
    let webhook = RecordedCall { digest: None, ..call("a", 0) };
    let gone = RecordedCall { digest: Some("sha256:gone".to_owned()), ..call("b", 0) };
    let mounted = RecordedCall { mounts: vec!["/etc/greeting".to_owned()], ..call("c", 0) };
    let remarks = cases(&recorded(vec![webhook, gone, mounted]), &folder).unwrap().remarks;
    let expected = ["--module", "has no sha256:gone", "--mount /etc/greeting=FOLDER"];
    assert!(
        remarks.len() == 3 && remarks.iter().zip(expected).all(|(said, part)| said.contains(part)),
        "{remarks:?}"
    );
}

#[test]
fn parents_of_several_kinds_have_folders_of_their_own() {
    let (_root, folder) = folder();
    let mut other = call("a", 0);
    other.parent.resource = "farewells".into();
    other.parent.namespace = "".into();
    let cases = cases(&recorded(vec![call("a", 0), other]), &folder).unwrap();
    let folders: Vec<_> = cases.cases.iter().map(|case| case.place[..2].join("/")).collect();
    assert_eq!(folders, ["greetings/n", "farewells/a"]);
}

#[test]
fn what_cannot_be_cases_is_refused() {
    let (root, folder) = folder();
    let refused = |recorded: &Recorded| written(recorded, &folder).unwrap_err();
    let whole = || recorded(vec![call("a", 0)]);
    let cut = refused(&Recorded { is_cut_off: true, ..whole() });
    assert_eq!(
        cut,
        "the recording is cut off: it has no last line, and 1 calls: cases are made of a whole recording, so record again, or copy the whole file"
    );
    let many = refused(&recorded(vec![call("a", 0); MAX_CASES + 1]));
    assert!(many.contains("at most 10000 become cases"), "{many}");
    let none = refused(&recorded(vec![failed("a")]));
    assert!(none.contains("no call of the recording can be a case. The first: the sync hook for"), "{none}");
    for name in ["..", "a/b", "/etc"] {
        let outside = refused(&recorded(vec![call(name, 0)]));
        assert!(outside.contains("cannot be the name of a file"), "{name}: {outside}");
    }
    let with = |hooks: Vec<RecordedHook>| Recorded { hooks, ..whole() };
    for key in ["../x", "crd.yaml", "n", "request.json", "parent.yaml"] {
        let named = refused(&with(vec![RecordedHook { key: key.to_owned(), ..hook() }]));
        assert!(named.contains("cannot be the name of a file"), "{key}: {named}");
    }
    assert!(refused(&with(vec![hook(), hook()])).contains("have the key \"hook.wasm\""));
    let damaged = refused(&with(vec![RecordedHook { digest: "sha256:1".to_owned(), ..hook() }]));
    assert!(damaged.contains("the recording is damaged: its hook.wasm is not"), "{damaged}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "something was written");
}

#[test]
fn requests_that_a_case_could_not_be_read_with_are_left_out() {
    let (_root, folder) = folder();
    let deep = |depth| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let long = |length: u64| format!("\"{}\"", "x".repeat(usize::try_from(length).unwrap() - 3));
    let with = |name: &str, request| RecordedCall { request, ..call(name, 0) };
    let shallow = [with("a", deep(100)), with("b", long(MAX_FILE))];
    assert!(cases(&recorded(shallow.to_vec()), &folder).unwrap().remarks.is_empty());
    for (request, why) in [
        (deep(200), "is no JSON: recursion limit exceeded"),
        (
            long(MAX_FILE + 1),
            "takes 67108865 bytes over several lines, and `metahook test` reads at most 67108864",
        ),
    ] {
        let remarks = cases(&recorded(vec![with("a", request), call("b", 0)]), &folder).unwrap().remarks;
        let of = "1 call is no case. The first: the request of the sync hook for Greeting n/a ";
        assert!(remarks.len() == 1 && remarks[0].starts_with(&format!("{of}{why}")), "{remarks:?}");
    }
}

#[test]
fn json_is_the_same_over_several_lines() {
    for text in [
        "{}",
        "[ ]",
        "7",
        r#""{[,:]}""#,
        r#"{"a":"b\"{,\\","c":[[],{},[1,2.50,-1e3]],"d":{"e":null}}"#,
        "{ \"a\" :\t[ 1 ,\r\n 2 ] , \"b\" : { } }",
    ] {
        let lines = indented(text);
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(read(&lines), read(text), "{lines}");
        assert!(lines.ends_with('\n') && !lines.contains(" \n"), "{lines:?}");
        assert_eq!(indented(&lines), lines);
    }
    let two = indented(r#"{"b":1.50,"a":["x, y"]}"#);
    assert_eq!(two, "{\n  \"b\": 1.50,\n  \"a\": [\n    \"x, y\"\n  ]\n}\n");
}
