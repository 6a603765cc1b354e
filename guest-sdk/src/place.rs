//! Path to a place in a JSON text.

use crate::json::Reader;
use std::borrow::Cow;
use std::fmt::{self, Display};

enum Step<'a> {
    Object { key: Option<&'a str>, in_key: bool },
    List(usize),
}

/// The path of what stands at the end of this beginning of a text: `.parent.spec.replicas`,
/// `.children["Pod.v1"].a`. The text is read once more for it, so that calls that succeed pay nothing.
pub(crate) fn path(read: &[u8]) -> String {
    let mut from = Reader::new(read);
    let mut open = Vec::new();
    while let [byte, after @ ..] = from.rest {
        if let b'"' = byte {
            let Ok(text) = from.string() else { break };
            if let (Cow::Borrowed(text), Some(Step::Object { key, in_key: true })) = (text, open.last_mut()) {
                *key = Some(text);
            }
            continue;
        }
        from.rest = after;
        match (byte, open.last_mut()) {
            (b'{', _) => open.push(Step::Object { key: None, in_key: true }),
            (b'[', _) => open.push(Step::List(0)),
            (b'}' | b']', _) => drop(open.pop()),
            (b':', Some(Step::Object { in_key, .. })) => *in_key = false,
            (b',', Some(Step::Object { key, in_key })) => (*key, *in_key) = (None, true),
            (b',', Some(Step::List(at))) => *at += 1,
            _ => {}
        }
    }
    open.iter().map(ToString::to_string).collect()
}

impl Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(at) => write!(f, "[{at}]"),
            Self::Object { key: Some(key), .. } if key.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                write!(f, ".{key}")
            }
            Self::Object { key: Some(key), .. } => write!(f, "[\"{key}\"]"),
            Self::Object { key: None, .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn a_path_names_what_was_read_last() {
        let text = br#"{"a":{"b":1,"c.d/e":[0,{"f":"x\"{["}]}, "g" : "h"}"#;
        let at = |end: &str| {
            let end = end.as_bytes();
            let at = text.windows(end.len()).position(|part| part == end).unwrap();
            path(&text[..at + end.len()])
        };
        assert_eq!(path(b""), "");
        assert_eq!(at("{"), "");
        assert_eq!(at("\"a\""), ".a");
        assert_eq!(at("1"), ".a.b");
        assert_eq!(at("[0"), r#".a["c.d/e"][0]"#);
        assert_eq!(at("[0,"), r#".a["c.d/e"][1]"#);
        assert_eq!(at("{["), r#".a["c.d/e"][1].f"#);
        assert_eq!(at("}]"), r#".a["c.d/e"]"#);
        assert_eq!(at("]}"), ".a");
        assert_eq!(at("h\""), ".g");
        assert_eq!(path(text), "");
    }

    #[test]
    fn any_bytes_have_a_path() {
        for text in ["\"", "{\"", "{\"a", "}}]]", ",", "[,,", "{\"\\", "{\"\u{1}\":", "{{{\"a\"\"b\":"] {
            path(text.as_bytes());
        }
    }
}
