//! The answer of a sync hook: bytes to a checked value, or an error that says where it is wrong.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// What a sync hook wants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Response {
    /// Absent: the status becomes empty.
    pub status: Map<String, Value>,
    pub children: Vec<Map<String, Value>>,
    pub resync_after: Option<Duration>,
    /// The parent may go: our finalizer comes off.
    pub finalized: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    #[error("the hook printed nothing: a sync hook answers with a JSON object on stdout")]
    Empty,
    #[error("the hook's answer is not JSON")]
    Json(#[source] serde_json::Error),
    #[error("the hook's answer: children has {found} items, and {max} are allowed (--max-children)")]
    TooManyChildren { found: usize, max: usize },
    #[error("the hook's answer has so many values that reading it would take more than {} MiB", MOST_MEMORY >> 20)]
    TooManyValues,
    #[error("the hook's answer: {path} must be {expected}, not {found}")]
    Type { path: String, expected: &'static str, found: &'static str },
    #[error("the hook's answer has no field children: an empty list is how to say that there are none")]
    NoChildren,
    #[error("the hook's answer has the unknown field {0}")]
    Unknown(String),
}

/// Who asks for more means never.
const LONGEST_RESYNC: Duration = Duration::from_hours(24 * 365);

/// What an answer may take in memory once it is read: far more than 10,000 large children do.
const MOST_MEMORY: usize = 128 << 20;

/// Whether unknown fields are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Loose,
    Strict,
}

/// Reads the answer of a Wasm sync hook.
///
/// # Errors
/// Anything that could be a mistake that would delete children: nothing, half JSON, trailing bytes, wrong types, no
/// `children`. More than `max` of them.
pub fn sync(bytes: &[u8], mode: Mode, max: usize) -> Result<Response, ResponseError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(ResponseError::Empty);
    }
    if memory_of(bytes) > MOST_MEMORY {
        few_enough(named(bytes), max)?;
        return Err(ResponseError::TooManyValues);
    }
    let answer: Value = serde_json::from_slice(bytes).map_err(ResponseError::Json)?;
    let Value::Object(mut answer) = answer else {
        return Err(wrong("the answer", "an object", &answer));
    };
    let status = match answer.remove("status").unwrap_or_default() {
        Value::Null => Map::new(),
        Value::Object(status) => status,
        other => return Err(wrong("status", "an object", &other)),
    };
    let children = match answer.remove("children").unwrap_or_default() {
        Value::Null => return Err(ResponseError::NoChildren),
        Value::Array(children) => {
            few_enough(children.len(), max)?;
            children.into_iter().enumerate().map(child).collect::<Result<_, _>>()?
        }
        other => return Err(wrong("children", "a list", &other)),
    };
    let resync_after = match answer.remove("resyncAfterSeconds").unwrap_or_default() {
        Value::Null => None,
        Value::Number(seconds) => seconds.as_f64().filter(|seconds| *seconds > 0.0).map(|seconds| {
            Duration::try_from_secs_f64(seconds).map_or(LONGEST_RESYNC, |asked| asked.min(LONGEST_RESYNC))
        }),
        other => return Err(wrong("resyncAfterSeconds", "a number", &other)),
    };
    let finalized = match answer.remove("finalized").unwrap_or_default() {
        Value::Null => false,
        Value::Bool(finalized) => finalized,
        other => return Err(wrong("finalized", "true or false", &other)),
    };
    match answer.keys().next() {
        Some(unknown) if mode == Mode::Strict => Err(ResponseError::Unknown(unknown.clone())),
        Some(_) | None => Ok(Response { status, children, resync_after, finalized }),
    }
}

/// About what the values of this JSON take in memory, known without making them. (An object with one short member is
/// 7 bytes of text and one node of a B-tree.)
fn memory_of(json: &[u8]) -> usize {
    let (mut memory, mut in_text, mut escaped) = (json.len(), false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' if !in_text => memory += 700,
            b'[' if !in_text => memory += 128,
            b',' if !in_text => memory += 64,
            _ => {}
        }
    }
    memory
}

/// How many children an answer names, counted without making one.
fn named(answer: &[u8]) -> usize {
    #[derive(Deserialize)]
    struct Answer {
        children: Vec<IgnoredAny>, // of no size
    }
    serde_json::from_slice(answer).map_or(0, |answer: Answer| answer.children.len())
}

fn few_enough(found: usize, max: usize) -> Result<(), ResponseError> {
    if found > max { Err(ResponseError::TooManyChildren { found, max }) } else { Ok(()) }
}

fn child((i, child): (usize, Value)) -> Result<Map<String, Value>, ResponseError> {
    match child {
        Value::Object(child) => Ok(child),
        other => Err(wrong(&format!("children[{i}]"), "an object", &other)),
    }
}

fn wrong(path: &str, expected: &'static str, found: &Value) -> ResponseError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ResponseError::Type { path: path.to_owned(), expected, found }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const MAX: usize = 3;

    fn loose(text: &str) -> Result<Response, String> {
        sync(text.as_bytes(), Mode::Loose, MAX).map_err(|error| error.to_string())
    }

    #[test]
    fn a_full_answer_is_read() {
        let answer = loose(
            r#"{"status":{"a":1},"children":[{"kind":"Pod"}],"resyncAfterSeconds":1.5,"finalized":true}"#,
        )
        .unwrap();
        assert_eq!(answer.status, *json!({"a": 1}).as_object().unwrap());
        assert_eq!(answer.children.len(), 1);
        assert_eq!((answer.resync_after, answer.finalized), (Some(Duration::from_millis(1500)), true));
    }

    #[test]
    fn what_may_be_absent_may_be_null() {
        assert_eq!(loose(r#"{"children":[]}"#), Ok(Response::default()));
        let nulls = r#"{"children":[],"status":null,"resyncAfterSeconds":null,"finalized":null}"#;
        assert_eq!(loose(nulls), Ok(Response::default()));
        assert_eq!(loose(r#"{"children":[],"resyncAfterSeconds":-1}"#).unwrap().resync_after, None);
    }

    #[test]
    fn what_could_delete_children_by_mistake_is_refused() {
        for (text, says) in [
            ("", "printed nothing"),
            (" \n", "printed nothing"),
            ("{\"children\":[", "not JSON"),
            ("{\"children\":[]} {}", "not JSON"),
            ("hello", "not JSON"),
            ("null", "the answer must be an object, not null"),
            ("[]", "the answer must be an object, not a list"),
            ("{}", "no field children"),
            (r#"{"children":null}"#, "no field children"),
            (r#"{"children":{}}"#, "children must be a list, not an object"),
            (r#"{"children":[{},null]}"#, "children[1] must be an object, not null"),
            (r#"{"children":[],"status":[]}"#, "status must be an object, not a list"),
            (
                r#"{"children":[],"resyncAfterSeconds":"1"}"#,
                "resyncAfterSeconds must be a number, not a string",
            ),
            (r#"{"children":[],"finalized":1}"#, "finalized must be true or false, not a number"),
        ] {
            let error = loose(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn unknown_fields_are_an_error_in_strict_mode_only() {
        let text = r#"{"children":[],"childern":[]}"#;
        assert!(loose(text).is_ok());
        assert!(
            matches!(sync(text.as_bytes(), Mode::Strict, MAX), Err(ResponseError::Unknown(field)) if field == "childern")
        );
    }

    #[test]
    fn what_asks_for_ages_means_never() {
        for seconds in ["1e19", "18446744073709551615", "1e300"] {
            let answer = loose(&format!(r#"{{"children":[],"resyncAfterSeconds":{seconds}}}"#)).unwrap();
            assert_eq!(answer.resync_after, Some(LONGEST_RESYNC));
        }
    }

    #[test]
    fn children_beyond_the_bound_are_counted_and_refused() {
        let of = |children: usize| format!(r#"{{"children":[{}]}}"#, vec!["{}"; children].join(","));
        assert_eq!(loose(&of(3)).unwrap().children.len(), 3);
        for found in [4, 1_000_000] {
            let says =
                format!("the hook's answer: children has {found} items, and 3 are allowed (--max-children)");
            assert_eq!(loose(&of(found)).unwrap_err(), says);
        }
    }

    #[test]
    fn an_answer_of_very_many_values_is_refused_unread() {
        let bomb =
            format!(r#"{{"children":[],"status":{{"x":[{}]}}}}"#, vec![r#"{"":0}"#; 300_000].join(","));
        assert!(loose(&bomb).unwrap_err().contains("would take more than 128 MiB"));
        let text = format!(r#"{{"children":[],"status":{{"x":"{}\""}}}}"#, "{[,".repeat(500_000));
        assert!(loose(&text).is_ok(), "brackets in a text are text");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            // Whatever it is, an answer or an error comes back.
            drop(sync(&bytes, Mode::Strict, MAX));
        }
    }
}
