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
    if let Some(object) = request.get("object") {
        return object["metadata"]["annotations"]["cases.test/answer"].as_str().unwrap_or(NOTHING_ATTACHED);
    }
    let spec = &request["parent"]["spec"];
    if request["finalizing"] == true {
        return spec["onDelete"].as_str().unwrap_or(GONE);
    }
    spec["answer"].as_str().unwrap_or(NOTHING)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut request = String::new();
    std::io::stdin().read_to_string(&mut request)?;
    let request = serde_json::from_str(&request)?;
    std::io::stdout().write_all(answer(&request).as_bytes())?;
    Ok(())
}
