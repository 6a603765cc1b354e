//! Tests of what a ConfigMap holds under a key.

use serde_json::json;

use super::*;

fn hook(json: &str) -> Result<Content, String> {
    content(config_map("n", "m"), "hook.wasm".to_owned(), json, 1 << 20).map_err(|error| error.to_string())
}

#[test]
fn bytes_come_from_binary_data_and_else_from_data() {
    let both = r#"{"binaryData":{"hook.wasm":"AGFzbQ=="},"data":{"hook.wasm":"text"}}"#;
    assert_eq!(hook(both), Ok(Content::Plain(b"\0asm".to_vec())));
    assert_eq!(hook(r#"{"data":{"hook.wasm":"text"}}"#), Ok(Content::Plain(b"text".to_vec())));
}

#[test]
fn a_missing_key_is_an_error_that_names_the_others() {
    assert_eq!(
        hook(r#"{"binaryData":{"a.wasm":""},"data":{"b":""}}"#).unwrap_err(),
        "the ConfigMap n/m has no key \"hook.wasm\" in binaryData or data; it has a.wasm, b"
    );
    assert!(hook("{}").unwrap_err().ends_with("it has no keys at all"));
}

#[test]
fn an_index_names_the_parts_and_stands_alone() {
    let index = Index::of("m", &"0".repeat(64), 1000, 2);
    let text = json!(index).to_string();
    let map =
        |extra: serde_json::Value| json!({"data": {"hook.wasm.json": text}, "binaryData": extra}).to_string();
    assert_eq!(hook(&map(json!({}))), Ok(Content::Packed(index)));
    assert_eq!(
        hook(&map(json!({"hook.wasm": "AGFzbQ=="}))).unwrap_err(),
        "the ConfigMap n/m has both \"hook.wasm\", a module, and \"hook.wasm.json\", the index of one: remove one of the keys"
    );
    assert_eq!(
        hook(r#"{"data":{"hook.wasm.json":"{}"}}"#).unwrap_err(),
        "ConfigMap n/m, key \"hook.wasm.json\": it is not the JSON of an index (missing field `sha256` at line 1 column 2): write it with `metahook pack`"
    );
}
