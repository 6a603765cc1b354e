//! Tests of label selectors.

use serde_json::json;

use super::*;
use crate::object::testing::a;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn each_operator_matches_as_kubernetes_does() {
    let object = labels(&[("a", "1"), ("b", "")]);
    for (text, expected) in [
        ("", true),
        ("a=1", true),
        ("a==1", true),
        ("a=2", false),
        ("a!=2", true),
        ("c!=2", true),
        ("a in (1, 2)", true),
        ("a notin (1,2)", false),
        ("c notin (1)", true),
        ("b", true),
        ("!c", true),
        ("!a", false),
        ("a=1,b,!c", true),
        ("b=", true),
    ] {
        assert_eq!(Selector::parse(text).unwrap().matches(&object), expected, "{text}");
    }
}

#[test]
fn the_label_that_does_not_match_is_named() {
    for (selector, says) in [
        ("a=1", None),
        ("a=1,b=2", Some("label b is missing, and \"2\" is needed")),
        ("a in (2,3)", Some("label a is \"1\", and one of \"2\", \"3\" is needed")),
        ("a!=1", Some("label a is \"1\", and none of \"1\" is needed")),
        ("b", Some("label b is missing, and any value is needed")),
        ("!a", Some("label a is \"1\", and no such label is needed")),
    ] {
        let mismatch = Selector::parse(selector).unwrap().mismatch(&labels(&[("a", "1")]));
        assert_eq!(mismatch.as_deref(), says, "{selector}");
    }
}

#[test]
fn malformed_text_is_refused() {
    for text in ["a in 1", "a in (1", "a b", "=1", "a=b=c", "a near (1)", "!", "-a=1", "a=-1"] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn comparisons_of_numbers_are_refused() {
    for text in ["a>1", "a<1", "a > 1", "a=>1", "a=<1", "a in (<1)", "b=1,a>1"] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
    for (operator, value) in [("Gt", "1"), ("Lt", "1"), (">", "1"), ("<", "1"), ("In", ">1"), ("NotIn", "<1")]
    {
        let values = Some(vec![value.to_owned()]);
        let expression = Expression { key: "a".into(), operator: operator.into(), values };
        let selector = LabelSelector { match_expressions: Some(vec![expression]), ..Default::default() };
        let error = Selector::of(&selector).unwrap_err().to_string();
        let named = if operator.ends_with("In") { value } else { operator };
        assert!(error.contains(&format!("{named:?}")), "{error}");
    }
    let selector = LabelSelector { match_labels: Some(labels(&[("a", ">1")])), ..Default::default() };
    assert!(Selector::of(&selector).is_err());
}

#[test]
fn labels_and_expressions_all_have_to_hold() {
    let selector = LabelSelector {
        match_labels: Some(labels(&[("a", "1")])),
        match_expressions: Some(vec![Expression {
            key: "b".into(),
            operator: "Exists".into(),
            values: None,
        }]),
    };
    let selector = Selector::of(&selector).unwrap();
    assert!(selector.matches(&labels(&[("a", "1"), ("b", "x")])));
    assert!(!selector.matches(&labels(&[("a", "1")])));
}

#[test]
fn what_no_label_can_be_is_refused() {
    let of = |key: &str, value: &str| {
        let selector = LabelSelector { match_labels: Some(labels(&[(key, value)])), ..Default::default() };
        Selector::of(&selector).map_err(|error| error.to_string())
    };
    let (most, long) = ("x".repeat(63), "x".repeat(64));
    for (key, value) in [("a", ""), ("example.com/a.b_c-D", "V-1_.2"), (&most, &most), ("1", "2")] {
        assert!(of(key, value).is_ok(), "{key} {value}");
    }
    for key in ["", "-a", "a-", "a b", "/a", "x/", "X.com/a", "x..y/a", "a/b/c", "ä", &long] {
        assert!(of(key, "v").unwrap_err().contains("is no key of a label"), "{key}");
    }
    for value in ["a b", "-", "a=b", "/x", "a.", "ü", &long] {
        assert!(of("k", value).unwrap_err().contains("asked for of key \"k\", is no value"), "{value}");
    }
    let expression = |values: &[&str]| {
        let values = Some(values.iter().map(|value| (*value).to_owned()).collect());
        let expression = Expression { key: "k".into(), operator: "NotIn".into(), values };
        Selector::of(&LabelSelector { match_expressions: Some(vec![expression]), ..Default::default() })
    };
    assert!(expression(&["a", "b"]).is_ok() && expression(&["a", "b c"]).is_err());
}

#[test]
fn an_unknown_operator_is_refused_by_name() {
    let expression = Expression { key: "a".into(), operator: "Near".into(), values: None };
    let selector = LabelSelector { match_expressions: Some(vec![expression]), ..Default::default() };
    assert_eq!(Selector::of(&selector), Err(SelectorError::Operator("Near".into())));
}

#[test]
fn a_generated_selector_ignores_the_parents_own() {
    let parent = a("e/v1", "P", "n/p").uid("u").with("spec.selector", json!("nonsense")).object();
    assert_eq!(child_selector(&parent, true).unwrap(), Selector::equals("controller-uid", "u"));
}

#[test]
fn a_parent_has_to_select_something() {
    for spec in [json!({}), json!({"selector": {}}), json!({"selector": null}), json!(null)] {
        let parent = a("e/v1", "P", "n/p").with("spec", spec).object();
        assert!(matches!(child_selector(&parent, false), Err(ChildSelectorError::Empty)));
    }
    let parent = a("e/v1", "P", "n/p").with("spec.selector", json!({"matchLabels": 1})).object();
    assert!(matches!(child_selector(&parent, false), Err(ChildSelectorError::Malformed(_))));
}

#[test]
fn a_selector_is_written_as_it_is_parsed() {
    for text in ["", "a=b", "a=", "a in (c,b),d/e.f!=g,h notin (i,j),k,!l"] {
        let selector = Selector::parse(text).unwrap();
        assert_eq!(Selector::parse(&selector.to_string()), Ok(selector), "{text}");
    }
}
