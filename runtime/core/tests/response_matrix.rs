//! Values that each field of an answer may have, for modules and webhooks, read loosely and strictly.

#![allow(clippy::unwrap_used, reason = "a test: a broken row ends it")]

use metahook_core::api::ControllerKind;
use metahook_core::api::hook::HookTransport;
use metahook_core::decorator::Decoration;
use metahook_core::hook::MAX_ANSWER_MEMORY;
use metahook_core::hook::read::ReadOptions;
use metahook_core::hook::response::{self, Mode, Response};
use serde_json::{Map, json};

const ALL: [(HookTransport, Mode); 4] = [
    (HookTransport::Wasm, Mode::Loose),
    (HookTransport::Wasm, Mode::Strict),
    (HookTransport::Webhook, Mode::Loose),
    (HookTransport::Webhook, Mode::Strict),
];

fn read(via: HookTransport, mode: Mode, answer: &str) -> Result<Response, String> {
    read_of(ControllerKind::Composite, via, mode, answer)
}

fn decorator(via: HookTransport, mode: Mode, answer: &str) -> Result<Response, String> {
    read_of(ControllerKind::Decorator, via, mode, answer)
}

fn read_of(kind: ControllerKind, via: HookTransport, mode: Mode, answer: &str) -> Result<Response, String> {
    let text = |error: &dyn std::error::Error| match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    response::sync(
        answer.as_bytes(),
        ReadOptions { kind, via, mode, max_children: 10, max_memory: MAX_ANSWER_MEMORY, deletes: false },
    )
    .map_err(|error| text(&error))
}

/// An answer that is in order but for this field.
fn with(field: &str, value: &str) -> String {
    if field == "children" {
        format!(r#"{{"children":{value}}}"#)
    } else {
        format!(r#"{{"children":[],"{field}":{value}}}"#)
    }
}

#[test]
fn what_is_wrong_for_everybody_says_where() {
    for (answer, says) in [
        (String::new(), "nothing|empty body"),
        (" \n\t".to_owned(), "nothing|empty body"),
        ("hello".to_owned(), "is not JSON: expected value at line 1 column 1"),
        (r#"{"children":["#.to_owned(), "is not JSON: EOF while parsing a list at line 1 column 13"),
        (r#"{"children":[]} {}"#.to_owned(), "is not JSON: trailing characters at line 1 column 17"),
        (r#"{"children":[]}]"#.to_owned(), "is not JSON: trailing characters"),
        (r#"{"children":[],}"#.to_owned(), "is not JSON: trailing comma"),
        (r#"{"children":[],"resyncAfterSeconds":1e999}"#.to_owned(), "is not JSON: number out of range"),
        ("[]".to_owned(), "the answer must be an object, not a list"),
        ("\"{}\"".to_owned(), "the answer must be an object, not a string"),
        ("0".to_owned(), "the answer must be an object, not a number"),
        ("false".to_owned(), "the answer must be an object, not a boolean"),
        (with("children", "{}"), "children must be a list, not an object"),
        (with("children", "\"\""), "children must be a list, not a string"),
        (with("children", "[null]"), "children[0] must be an object, not null"),
        (with("children", r#"[{"kind":"P"},[]]"#), "children[1] must be an object, not a list"),
        (with("children", "[{}]"), "children[0].kind must be a string that is not empty"),
        (with("children", r#"[{"kind":""}]"#), "children[0].kind must be"),
        (with("children", r#"[{"kind":null}]"#), "children[0].kind must be"),
        (with("children", r#"[{"kind":1}]"#), "children[0].kind must be"),
        (with("status", "[]"), "status must be an object, not a list"),
        (with("status", "\"ok\""), "status must be an object, not a string"),
        (with("status", "false"), "status must be an object, not a boolean"),
        (with("resyncAfterSeconds", "\"1\""), "resyncAfterSeconds must be a number, not a string"),
        (with("resyncAfterSeconds", "true"), "resyncAfterSeconds must be a number, not a boolean"),
        (with("finalized", "\"true\""), "finalized must be true or false, not a string"),
        (with("finalized", "1"), "finalized must be true or false, not a number"),
        (with("finalized", "{}"), "finalized must be true or false, not an object"),
    ] {
        for (via, mode) in ALL {
            let error = read(via, mode, &answer).unwrap_err();
            assert!(says.split('|').any(|says| error.contains(says)), "{via:?} {mode:?} {answer}: {error}");
        }
    }
}

#[test]
fn what_is_absent_or_null_has_its_default() {
    let decoration = Decoration { status: Some(Map::new()), ..Decoration::default() };
    let nothing = Response { decoration, ..Response::default() };
    for field in ["status", "resyncAfterSeconds", "finalized", "events"] {
        for (via, mode) in ALL {
            assert_eq!(read(via, mode, r#"{"children":[]}"#).unwrap(), nothing, "{via:?} {mode:?}");
            assert_eq!(read(via, mode, &with(field, "null")).unwrap(), nothing, "{via:?} {mode:?} {field}");
        }
    }
    for value in ["0", "-0.0", "-1", "-1e300"] {
        let answer = read(HookTransport::Webhook, Mode::Strict, &with("resyncAfterSeconds", value)).unwrap();
        assert_eq!(answer.resync_after, None, "{value}");
    }
}

/// For a webhook that is an order to delete all children, as it always was; from a module it is taken for a mistake.
#[test]
fn an_answer_without_children_is_refused_from_a_module_only() {
    for answer in ["{}", r#"{"children":null}"#, r#"{"status":{},"finalized":false}"#] {
        for mode in [Mode::Loose, Mode::Strict] {
            let says = read(HookTransport::Wasm, mode, answer).unwrap_err();
            assert!(says.contains("has no field children"), "{answer}: {says}");
            let deletes = read(HookTransport::Webhook, mode, answer).unwrap();
            assert!(deletes.children.is_empty() && deletes.forgot_children, "{answer}");
        }
    }
    for mode in [Mode::Loose, Mode::Strict] {
        assert!(
            read(HookTransport::Wasm, mode, "null")
                .unwrap_err()
                .contains("the answer must be an object, not null")
        );
        assert!(read(HookTransport::Webhook, mode, "null").unwrap().forgot_children);
        assert!(!read(HookTransport::Webhook, mode, r#"{"children":[]}"#).unwrap().forgot_children);
    }
}

#[test]
fn strict_mode_refuses_unknown_and_repeated_fields_loose_mode_warns() {
    for (answer, says) in [
        (r#"{"children":[],"childern":[]}"#, "has the unknown field childern"),
        (r#"{"children":[],"Status":{}}"#, "has the unknown field Status"),
        (r#"{"children":[],"children":[]}"#, "has the field children more than once"),
        (r#"{"children":[],"finalized":true,"finalized":false}"#, "has the field finalized more than once"),
        (r#"{"children":[],"status":{"a":[{"b":1,"b":1}]}}"#, "has the field status.a[0].b more than once"),
        (r#"{"children":[],"events":[{"reason":"R","note":"n"}]}"#, "has the unknown field events[0].note"),
    ] {
        for via in [HookTransport::Wasm, HookTransport::Webhook] {
            let error = read(via, Mode::Strict, answer).unwrap_err();
            assert_eq!(error, format!("the hook's answer {says}"));
            let warnings = read(via, Mode::Loose, answer).unwrap().warnings;
            assert_eq!(warnings.iter().map(ToString::to_string).collect::<Vec<_>>(), [says]);
        }
    }
}

#[test]
fn repeated_fields_within_children_are_the_childs_affair() {
    let answer = r#"{"children":[{"kind":"A","kind":"P","spec":{"a":1,"a":2},"extra":1}]}"#;
    for (via, mode) in ALL {
        let answer = read(via, mode, answer).unwrap();
        assert_eq!(json!(answer.children), json!([{"kind": "P", "spec": {"a": 2}, "extra": 1}]));
        assert!(answer.warnings.is_empty());
    }
}

#[test]
fn whole_numbers_stay_whole() {
    let answer = read(
        HookTransport::Webhook,
        Mode::Strict,
        &with("status", r#"{"a":1,"b":1.0,"c":-9223372036854775808}"#),
    );
    assert_eq!(
        json!(answer.unwrap().decoration.status).to_string(),
        r#"{"a":1,"b":1.0,"c":-9223372036854775808}"#
    );
}

#[test]
fn events_say_where_they_are_wrong() {
    for (events, says) in [
        ("{}", "events must be a list, not an object"),
        ("[null]", "events[0] must be an object, not null"),
        ("[{}]", "events[0].reason must be a word of at most 128 bytes"),
        (r#"[{"reason":"R"},{"reason":1}]"#, "events[1].reason must be a string, not a number"),
        (r#"[{"reason":"R","type":"normal"}]"#, "events[0].type must be Normal or Warning"),
        (r#"[{"reason":"R","message":[]}]"#, "events[0].message must be a string, not a list"),
    ] {
        let answer = with("events", events);
        for (via, mode) in [
            (HookTransport::Wasm, Mode::Loose),
            (HookTransport::Wasm, Mode::Strict),
            (HookTransport::Webhook, Mode::Strict),
        ] {
            let error = read(via, mode, &answer).unwrap_err();
            assert!(error.contains(says), "{events}: {error}");
        }
        // A webhook may have had such a field for reasons of its own.
        let loose = read(HookTransport::Webhook, Mode::Loose, &answer).unwrap();
        assert!(loose.events.is_empty() && loose.warnings[0].to_string().contains(says), "{events}");
    }
}

/// An answer of a decorator's hook that is in order but for this field.
fn decorated(field: &str, value: &str) -> String {
    if field == "attachments" {
        format!(r#"{{"attachments":{value}}}"#)
    } else {
        format!(r#"{{"attachments":[],"{field}":{value}}}"#)
    }
}

#[test]
fn what_is_wrong_with_a_decorators_answer_says_where() {
    for (answer, says) in [
        (String::new(), "nothing|empty body"),
        ("[]".to_owned(), "the answer must be an object, not a list"),
        (r#"{"attachments":[]}]"#.to_owned(), "is not JSON: trailing characters"),
        (decorated("attachments", "{}"), "attachments must be a list, not an object"),
        (decorated("attachments", "[null]"), "attachments[0] must be an object, not null"),
        (decorated("attachments", r#"[{"kind":"P"},{}]"#), "attachments[1].kind must be a string that is"),
        (decorated("labels", "[]"), "labels must be an object, not a list"),
        (decorated("labels", "\"a\""), "labels must be an object, not a string"),
        (decorated("labels", r#"{"a":1}"#), "labels.a must be a string or null, not a number"),
        (
            decorated("labels", r#"{"a":"x","b.c/d":false}"#),
            "labels.b.c/d must be a string or null, not a bool",
        ),
        (decorated("annotations", "true"), "annotations must be an object, not a boolean"),
        (decorated("annotations", r#"{"a":{}}"#), "annotations.a must be a string or null, not an object"),
        (decorated("annotations", r#"{"a":["x"]}"#), "annotations.a must be a string or null, not a list"),
        (decorated("status", "[]"), "status must be an object, not a list"),
        (decorated("status", "\"ok\""), "status must be an object, not a string"),
        (decorated("resyncAfterSeconds", "\"1\""), "resyncAfterSeconds must be a number, not a string"),
        (decorated("finalized", "1"), "finalized must be true or false, not a number"),
    ] {
        for (via, mode) in ALL {
            let error = decorator(via, mode, &answer).unwrap_err();
            assert!(says.split('|').any(|says| error.contains(says)), "{via:?} {mode:?} {answer}: {error}");
        }
    }
}

#[test]
fn an_answer_is_about_a_thousand_labels_and_as_many_annotations() {
    let of = |field: &str, keys: usize| {
        let all: Vec<_> = (0..keys).map(|key| format!(r#""{key}":null"#)).collect();
        decorated(field, &format!("{{{}}}", all.join(",")))
    };
    for (via, mode) in ALL {
        for field in ["labels", "annotations"] {
            assert!(decorator(via, mode, &of(field, 1000)).is_ok());
            let error = decorator(via, mode, &of(field, 100_000)).unwrap_err();
            let says = format!("the hook's answer: {field} has 100000 keys, and 1000 are allowed");
            assert!(error.starts_with(&says), "{error}");
        }
    }
}

#[test]
fn what_a_decorator_does_not_say_stays_as_it_is() {
    for field in ["labels", "annotations", "status", "resyncAfterSeconds", "finalized", "events"] {
        for (via, mode) in ALL {
            for answer in [r#"{"attachments":[]}"#.to_owned(), decorated(field, "null")] {
                assert_eq!(decorator(via, mode, &answer).unwrap(), Response::default(), "{field}");
            }
        }
    }
    let answer = decorator(HookTransport::Webhook, Mode::Strict, &decorated("status", "{}")).unwrap();
    assert_eq!(answer.decoration.status, Some(Map::new()), "no field is a status, too");
}

#[test]
fn a_decorators_texts_set_and_its_nulls_take_off() {
    for (via, mode) in ALL {
        let answer = decorator(via, mode, r#"{"attachments":[],"labels":{"a":"","b":null}}"#).unwrap();
        let labels = [("a".to_owned(), Some(String::new())), ("b".to_owned(), None)];
        assert_eq!(answer.decoration.labels, labels.into());
        assert!(answer.decoration.annotations.is_empty() && answer.decoration.status.is_none());
    }
}

/// For a webhook that is an order to delete all attachments, as it always was; from a module it is taken for a mistake.
#[test]
fn an_answer_without_attachments_is_refused_from_a_module_only() {
    for answer in ["{}", r#"{"attachments":null}"#, r#"{"labels":{},"finalized":false}"#] {
        for mode in [Mode::Loose, Mode::Strict] {
            let says = decorator(HookTransport::Wasm, mode, answer).unwrap_err();
            assert!(says.contains("has no field attachments"), "{answer}: {says}");
            let deletes = decorator(HookTransport::Webhook, mode, answer).unwrap();
            assert!(deletes.children.is_empty() && deletes.forgot_children, "{answer}");
        }
    }
    assert!(decorator(HookTransport::Webhook, Mode::Strict, "null").unwrap().forgot_children);
    let says = decorator(
        HookTransport::Wasm,
        Mode::Loose,
        &decorated("attachments", &format!("[{}1]", "1,".repeat(20))),
    );
    assert!(says.unwrap_err().contains("attachments has 21 items, and 10 are allowed"));
}

#[test]
fn each_kind_of_controllers_has_its_own_fields() {
    for (answer, says) in [
        (r#"{"attachments":[],"children":[]}"#, "has the unknown field children"),
        (r#"{"attachments":[],"Labels":{}}"#, "has the unknown field Labels"),
        (r#"{"attachments":[],"attachments":[]}"#, "has the field attachments more than once"),
        (r#"{"attachments":[],"labels":{"a":"1","a":"2"}}"#, "has the field labels.a more than once"),
    ] {
        for via in [HookTransport::Wasm, HookTransport::Webhook] {
            let error = decorator(via, Mode::Strict, answer).unwrap_err();
            assert_eq!(error, format!("the hook's answer {says}"));
            let warnings = decorator(via, Mode::Loose, answer).unwrap().warnings;
            assert_eq!(warnings.iter().map(ToString::to_string).collect::<Vec<_>>(), [says]);
        }
    }
    let twice = r#"{"attachments":[{"kind":"P","spec":{"a":1,"a":2}}]}"#;
    assert!(
        decorator(HookTransport::Wasm, Mode::Strict, twice).unwrap().warnings.is_empty(),
        "that is its own affair"
    );
    let error = read(HookTransport::Webhook, Mode::Strict, r#"{"children":[],"labels":{}}"#).unwrap_err();
    assert_eq!(error, "the hook's answer has the unknown field labels");
}

/// For webhooks whose controller grants no deletion it is an unknown field like any other.
#[test]
fn related_objects_are_deleted_for_modules_and_where_the_spec_lets_webhooks() {
    let pod = |more: &str| format!(r#"{{"apiVersion":"v1","kind":"Pod","namespace":"n","name":"a"{more}}}"#);
    let (fine, nameless) = (pod(r#","uid":"u""#), pod(""));
    let kinds = [ControllerKind::Composite, ControllerKind::Decorator];
    for (kind, (via, mode)) in kinds.iter().flat_map(|kind| ALL.map(|reader| (*kind, reader))) {
        let read = |deletes, list: &str| {
            let answer = match kind {
                ControllerKind::Composite => with("deleteRelated", list),
                ControllerKind::Decorator => decorated("deleteRelated", list),
            };
            let reading =
                ReadOptions { kind, via, mode, max_children: 10, max_memory: MAX_ANSWER_MEMORY, deletes };
            response::sync(answer.as_bytes(), reading).map_err(|error| error.to_string())
        };
        for (list, says) in [
            ("{}", "deleteRelated must be a list, not an object"),
            ("[null]", "deleteRelated[0] must be an object, not null"),
            (&*format!("[{fine},{nameless}]"), "deleteRelated[1].uid must be a string that is not empty"),
        ] {
            let error = read(true, list).unwrap_err();
            assert!(error.contains(says), "{via:?} {mode:?} {list}: {error}");
        }
        assert_eq!(read(true, &format!("[{fine},{fine}]")).unwrap().deletions.len(), 1);
        assert_eq!(read(true, "null").unwrap().deletions, []);
        let unasked = read(false, "{}");
        match (via, mode) {
            (HookTransport::Wasm, _) => {
                assert!(unasked.unwrap_err().contains("deleteRelated must be a list"));
            }
            (HookTransport::Webhook, Mode::Strict) => {
                assert!(unasked.unwrap_err().ends_with("has the unknown field deleteRelated"));
            }
            (HookTransport::Webhook, Mode::Loose) => {
                let warnings: Vec<_> = unasked.unwrap().warnings.iter().map(ToString::to_string).collect();
                assert_eq!(warnings, ["has the unknown field deleteRelated"]);
            }
        }
    }
}
