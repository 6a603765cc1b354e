use super::decode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Size {
    Small,
    OfWidth(u8),
    OfBoth(u8, u8),
    Named { width: u8 },
}

#[derive(Debug, PartialEq, PartialOrd, Eq, Ord, Deserialize)]
struct Port(u16);

/// The value is the one that `serde_json` reads from the same text.
fn same<T: DeserializeOwned + PartialEq + std::fmt::Debug>(text: &str) {
    let ours = decode::<T>("value", text.as_bytes()).unwrap();
    assert_eq!(ours, serde_json::from_str(text).unwrap(), "{text}");
}

#[test]
fn types_of_all_shapes_are_decoded_as_by_serde_json() {
    same::<Vec<Size>>(r#"["small",{"ofWidth":1},{"ofBoth":[1,2]},{"named":{"width":3}}]"#);
    same::<(u8, Option<String>, Option<()>, char)>(r#" [ 1 , "a" , null , "\u00e9" ] "#);
    same::<BTreeMap<Port, bool>>(r#"{"80":true,"443":false}"#);
    same::<BTreeMap<bool, [i8; 2]>>(r#"{"true":[-1,1]}"#);
    same::<BTreeMap<char, Option<Port>>>(r#"{"a":null,"\n":7}"#);
    same::<BTreeMap<Option<String>, f32>>(r#"{"a":1.5}"#);
    same::<Box<[u64]>>("[]");
}

#[test]
fn what_does_not_fit_is_refused_with_its_path() {
    let refused = |text: &str| decode::<BTreeMap<String, Vec<Size>>>("value", text.as_bytes()).unwrap_err();
    assert_eq!(refused("7"), "value: 7 where a map should be (at byte 0 of 1)");
    assert_eq!(refused(r#"{"a":{}}"#), "value.a: an object where a sequence should be (at byte 5 of 8)");
    assert_eq!(refused(r#"{"a":["small",7]}"#), "value.a[1]: 7 where enum Size should be (at byte 14 of 17)");
    assert_eq!(
        refused(r#"{"a":[{"ofWidth":"1"}]}"#),
        r#"value.a[0].ofWidth: "1" where u8 should be (at byte 17 of 23)"#
    );
    assert_eq!(
        refused(r#"{"a":["big"]}"#),
        "value.a[0]: unknown variant `big`, expected one of `small`, `ofWidth`, `ofBoth`, `named` (at byte 11 of 13)"
    );
    assert_eq!(refused(r#"{"a":[] "b":[]}"#), r#"value.a: '\"' where , should be (at byte 8 of 15)"#);
    assert_eq!(refused(r#"{"a" []}"#), "value.a: '[' where : should be (at byte 5 of 8)");
    assert_eq!(
        decode::<[u8; 1]>("value", b"[1,2]").unwrap_err(),
        "value[1]: '2' where ] should be (at byte 3 of 5)"
    );
    assert_eq!(
        decode::<bool>("value", json!("x".repeat(500)).to_string().as_bytes()).unwrap_err(),
        format!("value: \"{} where a boolean should be (at byte 0 of 502)", "x".repeat(79))
    );
}
