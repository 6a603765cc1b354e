//! The record of what was applied last: an annotation that any client may write to a child.

use metahook_core::children::last_applied::{LAST_APPLIED, last_applied};
use metahook_core::json::merge::merge;
use metahook_core::json::to_go_string;
use serde_json::{Value, json};

/// Fields in which a record may not differ from what the hook wants: the API server writes them.
const SYSTEM_FIELDS: [&str; 3] = ["uid", "resourceVersion", "managedFields"];

/// The bytes are the annotation, and as JSON of the form `[observed, desired, last]` also the rest.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    record(text);
    if let Ok(Value::Array(parts)) = serde_json::from_str(text)
        && let [observed, desired, last] = parts.as_slice()
    {
        record(&last.to_string());
        merges(observed, desired, last);
    }
}

fn record(text: &str) {
    let annotated = |text: &str| json!({ "metadata": { "annotations": { LAST_APPLIED: text } } });
    let observed = annotated(text);
    let Ok(Some((last, read))) = last_applied(&observed) else {
        assert!(text.is_empty() || serde_json::from_str::<Value>(text).is_err());
        return;
    };
    assert_eq!(read, text);
    assert!(SYSTEM_FIELDS.iter().all(|field| last.pointer(&format!("/metadata/{field}")).is_none()));
    let written = to_go_string(&last);
    let again = annotated(&written);
    let (same, _) = last_applied(&again).expect("it was just written").expect("it is there");
    assert_eq!(to_go_string(&same), written, "what is read is what was written");
}

/// Applying the same once more changes nothing.
fn merges(observed: &Value, desired: &Value, last: &Value) {
    let merged = merge(observed, Some(last), desired, None);
    let again = merge(&merged, Some(desired), desired, None);
    assert_eq!(again, merged);
}
