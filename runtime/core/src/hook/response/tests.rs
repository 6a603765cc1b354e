//! Tests of the answers of sync and finalize hooks.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::api::hook::HookTransport;
use crate::api::webhook::UnmarshallMode;
use crate::hook::{MAX_ANSWER_MEMORY, read, webhook_answer_memory};

const MAX: usize = 3;

fn read(via: HookTransport, mode: Mode, text: &str) -> Result<Response, String> {
    let max_memory = MAX_ANSWER_MEMORY;
    let kind = ControllerKind::Composite;
    let reading = ReadOptions { kind, via, mode, max_children: MAX, max_memory, deletes: false };
    sync(text.as_bytes(), reading).map_err(|error| error.to_string())
}

fn loose(text: &str) -> Result<Response, String> {
    read(HookTransport::Wasm, Mode::Loose, text)
}

#[test]
fn a_full_answer_is_read() {
    let answer = loose(
        r#"{"status":{"a":1},"children":[{"kind":"Pod"}],"resyncAfterSeconds":1.5,"finalized":true,"events":[{"type":"Warning","reason":"R","message":"m"}]}"#,
    )
    .unwrap();
    assert_eq!(answer.decoration.status, json!({"a": 1}).as_object().cloned());
    assert_eq!(answer.children.len(), 1);
    assert_eq!((answer.resync_after, answer.finalized), (Some(Duration::from_millis(1500)), true));
    let event = HookEvent { kind: EventKind::Warning, reason: "R".to_owned(), message: "m".to_owned() };
    assert_eq!(answer.events, [event]);
}

#[test]
fn what_asks_for_ages_means_never() {
    for seconds in ["1e19", "18446744073709551615", "1e300"] {
        let answer = loose(&format!(r#"{{"children":[],"resyncAfterSeconds":{seconds}}}"#)).unwrap();
        assert_eq!(answer.resync_after, Some(MAX_RESYNC));
    }
}

#[test]
fn a_resync_is_asked_for_after_a_tenth_of_a_second_at_least() {
    for (seconds, millis) in [("1e-9", 100), ("0.099", 100), ("0.1", 100), ("0.101", 101), ("1.001", 1_001)] {
        let answer = loose(&format!(r#"{{"children":[],"resyncAfterSeconds":{seconds}}}"#)).unwrap();
        assert_eq!(answer.resync_after, Some(Duration::from_millis(millis)), "{seconds}");
    }
}

#[test]
fn children_of_a_module_beyond_the_bound_are_counted_and_refused() {
    let of = |children: usize| format!(r#"{{"children":[{}]}}"#, vec![r#"{"kind":"P"}"#; children].join(","));
    assert_eq!(loose(&of(3)).unwrap().children.len(), 3);
    for found in [4, 1_000_000] {
        let says =
            format!("the hook's answer: children has {found} items, and 3 are allowed (--max-children)");
        assert_eq!(loose(&of(found)).unwrap_err(), says);
    }
    assert_eq!(read(HookTransport::Webhook, Mode::Strict, &of(4)).unwrap().children.len(), 4);
}

#[test]
fn an_answer_of_very_many_values_is_refused_unread() {
    let bomb = format!(r#"{{"children":[],"status":{{"x":[{}]}}}}"#, vec![r#"{"":0}"#; 300_000].join(","));
    assert!(loose(&bomb).unwrap_err().contains("would take more than 128 MiB"));
    let text = format!(r#"{{"children":[],"status":{{"x":"{}\""}}}}"#, "{[,".repeat(500_000));
    assert!(loose(&text).is_ok(), "brackets in a text are text");
}

#[test]
fn a_webhook_may_say_as_much_as_the_flag_allows() {
    let text = format!(r#"{{"children":[],"status":{{"x":[{}]}}}}"#, vec!["0"; 1000].join(","));
    let needs = text.len() + crate::json::size::tree_size(text.as_bytes());
    let read = |via, max_memory| {
        let (kind, mode) = (ControllerKind::Composite, Mode::Loose);
        let reading = ReadOptions { kind, via, mode, max_children: MAX, max_memory, deletes: false };
        sync(text.as_bytes(), reading).map(|_| ()).map_err(|error| error.to_string())
    };
    for via in [HookTransport::Wasm, HookTransport::Webhook] {
        assert_eq!(read(via, needs), Ok(()));
    }
    let says = "the hook's answer has so many values that reading it would take more than 0 MiB";
    assert_eq!(read(HookTransport::Wasm, needs - 1).unwrap_err(), says);
    let flag = ": answer with fewer, or raise --max-webhook-answer, of which this is the fourfold";
    assert_eq!(read(HookTransport::Webhook, needs - 1).unwrap_err(), format!("{says}{flag}"));
    let memory = [1, 32 << 20, (32 << 20) + 1, 1 << 30, usize::MAX].map(webhook_answer_memory);
    assert_eq!(memory, [128 << 20, 128 << 20, (128 << 20) + 4, 4 << 30, usize::MAX]);
}

#[test]
fn an_event_named_twice_is_one_and_more_than_ten_are_refused() {
    let of = |reasons: &mut dyn Iterator<Item = usize>| {
        let events: Vec<_> = reasons.map(|reason| json!({ "reason": format!("R{reason}") })).collect();
        loose(&json!({ "children": [], "events": events }).to_string()).map(|answer| answer.events.len())
    };
    assert_eq!(of(&mut (0..100).map(|nth| nth % 10)), Ok(10));
    assert!(of(&mut (0..11)).unwrap_err().contains("events has 11 different items, and 10 are allowed"));
    assert!(of(&mut (0..100_000)).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
                    for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            let reading = ReadOptions { kind, via: HookTransport::Webhook, mode: Mode::Strict, max_children: MAX, max_memory: MAX_ANSWER_MEMORY, deletes: true };
            drop(sync(&bytes, reading));
        }
    }
}

fn read_deletions(list: &Value, mode: UnmarshallMode) -> Result<Vec<Deletion>, String> {
    let mut warnings = AnswerWarnings::default();
    let text = json!({ "deleteRelated": list }).to_string();
    let mut answer =
        read::answer(text.as_bytes(), (HookTransport::Wasm, MAX_ANSWER_MEMORY), "", &mut warnings).unwrap();
    let read = deletions(&mut answer, &mut warnings).and_then(|read| warnings.finish(mode).map(|_| read));
    read.map_err(|error| error.to_string())
}

fn with(field: &str, value: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "a", "uid": "u"});
    pod[field] = value;
    pod
}

#[test]
fn an_object_is_named_whole_and_once() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "v"});
    let pod = with("name", json!("a"));
    let list = json!([node, pod, pod, with("uid", json!("w"))]);
    let read = read_deletions(&list, UnmarshallMode::Strict).unwrap();
    let text = |one: &Deletion| format!("{} {} {} {}", one.at, one.gvk, one.key, one.uid);
    assert_eq!(
        read.iter().map(text).collect::<Vec<_>>(),
        ["0 v1 Node x v", "1 v1 Pod n/a u", "3 v1 Pod n/a w"]
    );
}

#[test]
fn nothing_may_be_said_in_any_way() {
    for list in [json!(null), json!([])] {
        assert_eq!(read_deletions(&list, UnmarshallMode::Strict), Ok(Vec::new()));
    }
    assert_eq!(
        read_deletions(&json!([with("namespace", json!(null))]), UnmarshallMode::Strict).unwrap().len(),
        1
    );
}

#[test]
fn what_is_wrong_is_named_by_its_path() {
    for (list, says) in [
        (json!({}), "deleteRelated must be a list, not an object"),
        (json!(["a"]), "deleteRelated[0] must be an object, not a string"),
        (json!([with("uid", json!(null))]), "deleteRelated[0].uid must be a string that is not empty"),
        (json!([with("uid", json!(""))]), "deleteRelated[0].uid must be a string that is not empty"),
        (json!([with("uid", json!(1))]), "deleteRelated[0].uid must be a string, not a number"),
        (json!([with("name", json!(""))]), "deleteRelated[0].name must be a string that is not empty"),
        (json!([with("kind", json!(null))]), "deleteRelated[0].kind must be a string that is not empty"),
        (json!([with("namespace", json!([]))]), "deleteRelated[0].namespace must be a string, not a list"),
        (json!([with("apiVersion", json!(""))]), "deleteRelated[0].apiVersion must be a string that is not"),
        (
            json!([with("apiVersion", json!("../v1"))]),
            "deleteRelated[0].apiVersion must be a version such as",
        ),
    ] {
        for mode in [UnmarshallMode::Loose, UnmarshallMode::Strict] {
            let error = read_deletions(&list, mode).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
    let unknown = json!([with("why", json!("old"))]);
    assert!(read_deletions(&unknown, UnmarshallMode::Loose).is_ok());
    let error = read_deletions(&unknown, UnmarshallMode::Strict).unwrap_err();
    assert!(error.contains("has the unknown field deleteRelated[0].why"), "{error}");
}
