//! Hook whose answers are texts in its parent: `spec.answer` for sync and `spec.onDelete` for finalize. Of an object that a
//! decorator shows it, the annotation `cases.test/answer`.
//!
//! A text reaches the server as it was written: with its nulls, with `1.0`, in its order.

use std::io::{Read, Write};

use serde_json::Value;

const NOTHING: &str = r#"{"status": {}, "children": []}"#;
const GONE: &str = r#"{"status": {}, "children": [], "finalized": true}"#;
const NOTHING_ATTACHED: &str = r#"{"attachments": []}"#;

fn answer(request: &Value) -> &str {
    let text = |pointer: &str| request.pointer(pointer).and_then(Value::as_str);
    if request.get("object").is_some() {
        text("/object/metadata/annotations/cases.test~1answer").unwrap_or(NOTHING_ATTACHED)
    } else if request.get("finalizing").and_then(Value::as_bool) == Some(true) {
        text("/parent/spec/onDelete").unwrap_or(GONE)
    } else {
        text("/parent/spec/answer").unwrap_or(NOTHING)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut request = String::new();
    std::io::stdin().read_to_string(&mut request)?;
    let request = serde_json::from_str(&request)?;
    std::io::stdout().write_all(answer(&request).as_bytes())?;
    Ok(())
}
