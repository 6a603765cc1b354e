//! Tests of merges.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::json::lists::ListKey;
use crate::object::testing::any_json;

#[test]
fn items_that_share_a_key_are_told_apart_by_the_next_one_or_replaced_whole() {
    let named = json!([{"name": "tcp", "port": 53}, {"name": "udp", "port": 53}]);
    let nodes =
        json!([{"name": "tcp", "port": 53, "nodePort": 1}, {"name": "udp", "port": 53, "nodePort": 2}]);
    assert_eq!(merge(&nodes, Some(&named), &named, None), nodes);
    let nameless = json!([{"port": 53}, {"port": 53}]);
    assert_eq!(merge(&nameless, Some(&nameless), &nameless, None), nameless);
}

#[test]
fn the_published_vectors_hold() {
    for (observed, last, desired, expected) in [
        (
            json!({"keep":"o","rm":"o","rep":"o"}),
            json!({"rm":"x","rep":"x"}),
            json!({"rep":"n","add":"n"}),
            json!({"keep":"o","rep":"n","add":"n"}),
        ),
        (
            json!({"l":[1,2,{"a":true}]}),
            json!({"l":[4]}),
            json!({"l":[7,{"b":false}]}),
            json!({"l":[7,{"b":false}]}),
        ),
        (
            json!({"l":[{"name":"k","v":1},{"name":"r","v":1},{"name":"m","n":{"k":1}}]}),
            json!({"l":[{"name":"r"}]}),
            json!({"l":[{"name":"a"},{"name":"m","n":{"x":2}}]}),
            // But for the order: Metacontroller appends new items.
            json!({"l":[{"name":"k","v":1},{"name":"a"},{"name":"m","n":{"k":1,"x":2}}]}),
        ),
        (
            json!({"p":[{"port":80,"k":1}]}),
            json!({"p":[{"port":80,"r":1}]}),
            json!({"p":[{"port":80,"a":1},{"port":90}]}),
            json!({"p":[{"port":80,"k":1,"a":1},{"port":90}]}),
        ),
        (
            json!({"l":[{"name":"k"},{"other":1}]}),
            json!({}),
            json!({"l":[{"name":"a"}]}),
            json!({"l":[{"name":"a"}]}),
        ),
    ] {
        assert_eq!(merge(&observed, Some(&last), &desired, None), expected);
    }
}

#[test]
fn a_change_of_type_is_applied() {
    for (observed, desired) in
        [(json!({"a":{"b":1}}), json!({"a":1})), (json!({"a":[1]}), json!({"a":{"b":1}}))]
    {
        assert_eq!(merge(&observed, None, &desired, None), desired);
    }
}

#[test]
fn an_empty_list_removes_only_what_was_applied() {
    let observed = json!({"l":[{"name":"ours"},{"name":"theirs"}]});
    let last = json!({"l":[{"name":"ours"}]});
    assert_eq!(merge(&observed, Some(&last), &json!({"l":[]}), None), json!({"l":[{"name":"theirs"}]}));
}

fn tree(kind: ListKind) -> Lists {
    let below = Lists { kind: Some(kind), ..Lists::default() };
    Lists { members: [("l".to_owned(), Arc::new(below))].into(), ..Lists::default() }
}

#[test]
fn published_keys_tell_ports_apart_also_where_one_is_defaulted() {
    let key = |field: &str, default: Option<Value>| ListKey { field: field.to_owned(), default };
    let ports = tree(ListKind::Map(vec![key("port", None), key("protocol", Some(json!("TCP")))]));
    let observed =
        json!({"l":[{"port":53,"protocol":"TCP","nodePort":1},{"port":53,"protocol":"UDP","nodePort":2}]});
    let last = json!({"l":[{"port":53},{"port":53,"protocol":"UDP"}]});
    assert_eq!(merge(&observed, Some(&last), &last, Some(&ports)), observed);
    let less = json!({"l":[{"port":53}]});
    let expected = json!({"l":[{"port":53,"protocol":"TCP","nodePort":1}]});
    assert_eq!(merge(&observed, Some(&last), &less, Some(&ports)), expected);
}

#[test]
fn of_a_published_set_others_items_stay() {
    let merged = merge(
        &json!({"l":["theirs","dropped","kept"]}),
        Some(&json!({"l":["dropped","kept"]})),
        &json!({"l":["kept","new"]}),
        Some(&tree(ListKind::Set)),
    );
    assert_eq!(merged, json!({"l":["theirs","kept","new"]}));
}

#[test]
fn of_a_list_published_as_one_value_named_items_of_others_stay() {
    let atomic = tree(ListKind::Atomic);
    let observed = json!({"l":[{"name":"a","added":1},{"name":"b"}]});
    let desired = json!({"l":[{"name":"a"}]});
    for lists in [Some(&atomic), None] {
        assert_eq!(merge(&observed, Some(&desired), &desired, lists), observed);
        let none = merge(&observed, Some(&desired), &json!({"l":[]}), lists);
        assert_eq!(none, json!({"l":[{"name":"b"}]}));
    }
    let ports = json!({"l":[{"port":80}]});
    let more = json!({"l":[{"port":80},{"port":90}]});
    assert_eq!(merge(&more, Some(&ports), &ports, Some(&atomic)), ports, "a port is no name");
}

#[test]
fn subjects_of_one_name_are_told_apart_by_their_namespaces() {
    let atomic = tree(ListKind::Atomic);
    let account = |namespace: &str| json!({"kind":"ServiceAccount","name":"default","namespace":namespace});
    let ours = json!({"l":[account("a"), account("b")]});
    let observed = json!({"l":[account("a"), account("theirs"), account("b")]});
    assert_eq!(merge(&observed, Some(&ours), &ours, Some(&atomic)), observed);
    let less = json!({"l":[account("b")]});
    let expected = json!({"l":[account("theirs"), account("b")]});
    assert_eq!(merge(&observed, Some(&ours), &less, Some(&atomic)), expected);
}

#[test]
fn a_subject_of_another_kind_is_another_one() {
    let atomic = tree(ListKind::Atomic);
    let user = json!({"l":[{"kind":"User","name":"bob"}]});
    let observed = json!({"l":[{"kind":"User","name":"bob","apiGroup":"rbac.authorization.k8s.io"}]});
    let account = json!({"l":[{"kind":"ServiceAccount","name":"bob","namespace":"n"}]});
    assert_eq!(merge(&observed, Some(&user), &account, Some(&atomic)), account);
}

#[test]
fn references_whose_kind_the_api_server_adds_are_one_value() {
    let atomic = tree(ListKind::Atomic);
    let backend = |namespace: &str| json!({"name":"a","namespace":namespace});
    let answer = json!({"l":[backend("x"), backend("y")]});
    let mut observed = answer.clone();
    for item in observed["l"].as_array_mut().unwrap() {
        item["kind"] = json!("Service");
    }
    assert_eq!(merge(&observed, Some(&answer), &answer, Some(&atomic)), answer);
}

#[test]
fn a_null_that_was_applied_goes_when_the_answer_no_longer_has_it() {
    let nullable = Lists { nullable: true, ..Lists::default() };
    let lists = Lists { members: [("n".to_owned(), Arc::new(nullable))].into(), ..Lists::default() };
    let null = json!({"n": null});
    assert_eq!(merge(&null, Some(&null), &json!({}), Some(&lists)), json!({}));
    assert_eq!(merge(&null, None, &json!({}), Some(&lists)), null, "it is another client's");
    assert!(!changes_nothing(&null, Some(&null), &json!({}), Some(&lists)));
}

fn named(names: &str) -> Value {
    json!({"l": names.chars().map(|name| json!({"name": name})).collect::<Vec<_>>()})
}

/// Capital letters are items of other clients.
#[test]
fn named_items_have_the_order_of_the_answer() {
    let by_name = tree(ListKind::Map(vec![ListKey { field: "name".to_owned(), default: None }]));
    for (observed, last, desired, expected) in [
        ("ab", "ab", "ba", "ba"),
        ("ab", "ab", "anb", "anb"),
        ("ab", "ab", "nab", "nab"),
        ("aXb", "ab", "ba", "baX"),
        ("XabY", "ab", "ba", "XbYa"),
        ("aXbY", "ab", "anb", "aXnbY"),
        ("XaYb", "ab", "b", "XYb"),
        ("XY", "", "a", "XYa"),
        ("ab", "", "ba", "ba"),
    ] {
        for lists in [None, Some(&by_name), Some(&tree(ListKind::Atomic))] {
            let merged = merge(&named(observed), Some(&named(last)), &named(desired), lists);
            assert_eq!(merged, named(expected), "{observed} {last} {desired}");
        }
        if last == desired || last.is_empty() {
            assert_eq!(applied(&named(observed), &named(desired), Some(&by_name)), named(expected));
        }
    }
}

#[test]
fn a_null_takes_away_what_was_applied_and_nothing_else() {
    let observed = json!({"o":{"ours":1,"theirs":2},"ours":1,"theirs":1});
    let last = json!({"o":{"ours":1},"ours":1,"theirs":null});
    let desired = json!({"o":null,"ours":null,"theirs":null,"missing":null});
    assert_eq!(merge(&observed, Some(&last), &desired, None), json!({"o":{"theirs":2},"theirs":1}));
}

#[test]
fn where_the_schema_lets_it_be_a_null_is_a_value() {
    let open = Lists { open: true, nullable: true, ..Lists::default() };
    let of =
        |observed: Value, last: Value, desired: Value| merge(&observed, Some(&last), &desired, Some(&open));
    assert_eq!(
        of(json!({"n":1,"t":1}), json!({"n":1}), json!({"n":null,"m":null})),
        json!({"n":null,"m":null,"t":1})
    );
    assert_eq!(of(json!({"n":1}), json!({}), json!({"n":null})), json!({"n":null}), "also another client's");
    assert_eq!(of(json!({"o":{"ours":1}}), json!({"o":{"ours":1}}), json!({"o":null})), json!({"o":null}));
    let theirs = of(json!({"o":{"ours":1,"theirs":1}}), json!({"o":{"ours":1}}), json!({"o":null}));
    assert_eq!(theirs, json!({"o":{"theirs":1}}), "as server-side apply does");
}

fn any_kind() -> impl Strategy<Value = Option<ListKind>> {
    let key = |field: &str| ListKey { field: field.to_owned(), default: None };
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(ListKind::Atomic)),
        1 => Just(Some(ListKind::Set)),
        1 => Just(Some(ListKind::Map(vec![key("name")]))),
        1 => Just(Some(ListKind::Map(vec![key("a"), key("port")]))),
    ]
}

/// Schemas that publish the same about every list of a value.
fn everywhere() -> impl Strategy<Value = Option<Lists>> {
    (any_kind(), any::<bool>()).prop_map(|(kind, nullable)| {
        let mut lists = Lists { kind: kind.clone(), nullable, ..Lists::default() };
        for _ in 0..4 {
            let each = Some(Arc::new(lists));
            lists = Lists { kind: kind.clone(), each, nullable, ..Lists::default() };
        }
        (kind.is_some() || nullable).then_some(lists)
    })
}

/// A list of items that differ by their names.
fn names() -> impl Strategy<Value = Value> {
    let all = prop::sample::subsequence(vec!["a", "b", "c", "d", "e"], 0..=5).prop_shuffle();
    all.prop_map(
        |all| json!({"l": all.iter().map(|name| json!({"name": name, "a": name})).collect::<Vec<_>>()}),
    )
}

proptest! {
    #[test]
    fn merging_a_value_into_itself_changes_nothing(value in any_json(), lists in everywhere()) {
        // An item that is named twice is called so once.
        prop_assert_eq!(merge(&value, Some(&value), &value, lists.as_ref()), value);
    }

    #[test]
    fn what_changes_nothing_is_found_without_a_merge(
        observed in any_json(), last in any_json(), desired in any_json(), same in any::<bool>(), lists in everywhere()
    ) {
        let lists = lists.as_ref();
        let merged = merge(&observed, Some(&last), &desired, lists);
        prop_assert_eq!(changes_nothing(&observed, Some(&last), &desired, lists), merged == observed);
        let last = if same { Some(&desired) } else { None };
        let again = merge(&merged, last, &desired, lists);
        prop_assert_eq!(changes_nothing(&merged, last, &desired, lists), again == merged);
    }

    #[test]
    fn the_order_of_the_answer_is_that_of_its_items(
        observed in names(), last in names(), desired in names(), kind in any_kind()
    ) {
        prop_assume!(kind != Some(ListKind::Set));
        let lists = kind.map(tree);
        let merged = merge(&observed, Some(&last), &desired, lists.as_ref());
        let ours: Vec<_> = merged["l"].as_array().unwrap().iter().filter(|item| desired["l"].as_array().unwrap().contains(item)).collect();
        let wanted: Vec<_> = desired["l"].as_array().unwrap().iter().collect();
        prop_assert_eq!(ours, wanted);
    }

    #[test]
    fn applying_twice_is_applying_once(observed in any_json(), last in any_json(), desired in any_json(), lists in everywhere()) {
        let lists = lists.as_ref();
        let once = merge(&observed, Some(&last), &desired, lists);
        prop_assert_eq!(merge(&once, Some(&desired), &desired, lists), once);
    }
}

fn one_list(kind: ListKind) -> Lists {
    let below = Lists { kind: Some(kind), ..Lists::default() };
    Lists { members: [("x".to_owned(), Arc::new(below))].into(), ..Lists::default() }
}

#[test]
fn a_list_is_one_value_unless_it_is_published_to_be_none() {
    let (observed, body) =
        (json!({"x": [{"name": "a", "v": 1}, {"name": "b"}]}), json!({"x": [{"name": "a"}]}));
    assert_eq!(applied(&observed, &body, None), body);
    assert_eq!(applied(&observed, &body, Some(&one_list(ListKind::Atomic))), body);
    let key = ListKey { field: "name".to_owned(), default: None };
    assert_eq!(applied(&observed, &body, Some(&one_list(ListKind::Map(vec![key])))), observed);
    let set = applied(&json!({"x": ["a"]}), &json!({"x": ["b", "a"]}), Some(&one_list(ListKind::Set)));
    assert_eq!(set, json!({"x": ["a", "b"]}));
}

#[test]
fn an_object_keeps_what_others_set_unless_it_is_one_value() {
    let (observed, body) = (json!({"x": {"ours": 1, "theirs": 1}}), json!({"x": {"ours": 2}}));
    assert_eq!(applied(&observed, &body, None), json!({"x": {"ours": 2, "theirs": 1}}));
    assert_eq!(applied(&observed, &body, Some(&one_list(ListKind::Atomic))), body);
}
