//! Bounds of customize answers, each at its value and above it.

use metahook_core::api::customize::CustomizeBounds;
use metahook_core::api::hook::HookTransport;
use metahook_core::api::webhook::UnmarshallMode;
use metahook_core::hook::customize;
use metahook_core::related::rule::RequestedRule;

fn read(text: &str, bounds: &CustomizeBounds) -> Result<Vec<(usize, RequestedRule)>, String> {
    let read = customize::rules(text.as_bytes(), HookTransport::Webhook, UnmarshallMode::Strict, bounds);
    read.map(|answer| answer.rules).map_err(|error| error.to_string())
}

#[test]
fn equal_rules_count_once_and_keep_their_places() {
    let pods = |name: &str| format!(r#"{{"apiVersion":"v1","resource":"pods","names":["{name}"]}}"#);
    let [a, b] = [pods("a"), pods("b")];
    let answer = format!(r#"{{"relatedResources":[{b},{b},{a},{b},{a}]}}"#);
    let bounds = CustomizeBounds { names: 2, ..CustomizeBounds::default() };
    let rules = read(&answer, &bounds).unwrap();
    let found: Vec<_> = rules.iter().map(|(at, rule)| (*at, &*rule.names[0])).collect();
    assert_eq!(found, [(0, "b"), (2, "a")]);
}

#[test]
fn each_bound_holds_and_is_named_with_its_path_above() {
    let selectors = |field: &str| {
        format!(
            r#","{field}":{{"matchLabels":{{"a":"1"}},"matchExpressions":[{{"key":"b","operator":"In","values":["2","3"]}}]}}"#
        )
    };
    let both = selectors("labelSelector") + &selectors("namespaceSelector");
    let names = r#","names":["a","b","b"]"#;
    let most = CustomizeBounds::default();
    for (fields, bounds, says) in [
        (
            names,
            CustomizeBounds { names: 3, ..most },
            "the hook's answer: relatedResources[1].names brings it to 4 names, and 3 are allowed (--customize-names-max): ask by",
        ),
        (
            &both,
            CustomizeBounds { expressions: 7, ..most },
            "relatedResources[1] brings it to 8 labels and expressions, and 7 are allowed (--customize-expressions-max)",
        ),
        (
            &both,
            CustomizeBounds { values: 11, ..most },
            "relatedResources[1] brings it to 12 values of labels, and 11 are allowed (--customize-values-max)",
        ),
    ] {
        let rule = |resource| format!(r#"{{"apiVersion":"v1","resource":"{resource}"{fields}}}"#);
        let answer = format!(r#"{{"relatedResources":[{},{}]}}"#, rule("pods"), rule("nodes"));
        let more = CustomizeBounds {
            names: bounds.names + 1,
            expressions: bounds.expressions + 1,
            values: bounds.values + 1,
            ..most
        };
        assert!(read(&answer, &more).is_ok(), "{says}");
        let refused = read(&answer, &bounds).unwrap_err();
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn an_answer_with_too_many_bytes_is_not_read() {
    let read = |text: &str, bytes| read(text, &CustomizeBounds { bytes, ..CustomizeBounds::default() });
    assert!(read("{    }", 6).is_ok());
    let refused = read("{     ", 5).unwrap_err();
    assert!(
        refused.contains("relatedResources brings it to 6 bytes, and 5 are allowed (--customize-bytes-max)"),
        "{refused}"
    );
}
