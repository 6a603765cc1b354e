//! Memory that JSON takes: the tree of its values and its text, estimated without building either.
//!
//! The tree is that of `serde_json::Value` with its maps as B-trees. `tests/tree_size.rs` compares the estimate with an
//! allocator that counts.

use std::mem::size_of;

use serde_json::{Map, Value};

/// `serde_json` refuses deeper texts.
const MAX_DEPTH: usize = 128;

/// Entries of a B-tree's node; a list's first allocation.
const NODE_ENTRIES: usize = 11;
const FIRST_ITEMS: usize = 4;

const LEAF: usize = NODE_ENTRIES * (size_of::<String>() + size_of::<Value>()) + size_of::<usize>() + 4;
const INNER_NODE: usize = LEAF + (NODE_ENTRIES + 1) * size_of::<usize>();

/// Entries per two nodes of a large map, with the one between them: keys that come in order fill them half, others two thirds.
const ENTRIES_OF_TWO_NODES: usize = 15;

/// Rounds so that 12 to 18 entries are in two nodes and 19 in three, as they are where keys come in order.
const UP_TO_THE_SECOND_SPLIT: usize = 8;

/// Bytes of a character as Go escapes it: `\u003c`.
const ESCAPED: usize = 6;

/// An open list or object, with the number of its items so far.
#[derive(Clone, Copy, Default)]
struct OpenContainer {
    is_list: bool,
    items: usize,
}

impl OpenContainer {
    fn size(self) -> usize {
        if self.is_list { list_size(self.items) } else { map_size(self.items) }
    }
}

/// The memory that the values of this JSON take once they are read. Text that is no JSON, or that ends too early, gives at
/// least what it takes until that is noticed.
pub fn tree_size(json: &[u8]) -> usize {
    let (mut open, mut depth, mut size) = ([OpenContainer::default(); MAX_DEPTH], 0_usize, 0_usize);
    let mut rest = json;
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                size += open.get(depth).copied().unwrap_or_default().size();
                continue;
            }
            b' ' | b'\t' | b'\r' | b'\n' | b':' => continue,
            _ => {}
        }
        if let Some(within) = depth.checked_sub(1).and_then(|at| open.get_mut(at)) {
            if *byte == b',' {
                within.items += 1;
            } else {
                within.items = within.items.max(1);
            }
        }
        match byte {
            b'"' => {
                let length = text_length(rest);
                rest = rest.get(length + 1..).unwrap_or_default();
                size += allocation(length);
            }
            b'[' | b'{' => {
                let Some(next) = open.get_mut(depth) else { break };
                *next = OpenContainer { is_list: *byte == b'[', items: 0 };
                depth += 1;
            }
            _ => {}
        }
    }
    // What is never closed is read up to there, and refused then.
    size + open.iter().take(depth).map(|open| open.size()).sum::<usize>()
}

/// The bytes of a text up to its closing quote.
fn text_length(rest: &[u8]) -> usize {
    let mut length = 0;
    while let Some(byte) = rest.get(length) {
        match byte {
            b'"' => break,
            b'\\' => length += 2,
            _ => length += 1,
        }
    }
    length
}

/// The memory of a tree, and the bytes of its text as it is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueSize {
    pub tree: usize,
    pub text: usize,
}

impl ValueSize {
    pub fn of(value: &Value) -> Self {
        match value {
            // As long as the longest of each.
            Value::Null | Value::Bool(_) => Self { tree: 0, text: 5 },
            Value::Number(_) => Self { tree: 0, text: 24 },
            Value::String(text) => Self { tree: allocation(text.len()), text: quoted(text) },
            Value::Array(items) => {
                let own = Self { tree: list_size(items.len()), text: 2 + items.len() };
                items.iter().map(Self::of).fold(own, Self::plus)
            }
            Value::Object(members) => Self::of_members(members),
        }
    }

    pub fn of_members(members: &Map<String, Value>) -> Self {
        let own = Self { tree: map_size(members.len()), text: 2 + 2 * members.len() };
        let member = |(key, value): (&String, &Value)| {
            Self { tree: allocation(key.len()), text: quoted(key) }.plus(Self::of(value))
        };
        members.iter().map(member).fold(own, Self::plus)
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { tree: self.tree + other.tree, text: self.text + other.text }
    }
}

/// Bytes of a text with quotes and escapes.
fn quoted(text: &str) -> usize {
    let escapes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' => 1,
        0..=0x1f => ESCAPED - 1,
        _ => 0,
    });
    2 + text.len() + escapes.sum::<usize>()
}

fn list_size(items: usize) -> usize {
    let room = if items == 0 { 0 } else { items.next_power_of_two().max(FIRST_ITEMS) };
    allocation(room * size_of::<Value>())
}

fn map_size(entries: usize) -> usize {
    if entries <= NODE_ENTRIES {
        return allocation(if entries == 0 { 0 } else { LEAF });
    }
    let (mut below, mut size) = (entries, 0);
    let mut node = LEAF;
    while below > NODE_ENTRIES {
        below = (below * 2 + UP_TO_THE_SECOND_SPLIT) / ENTRIES_OF_TWO_NODES;
        size += below * allocation(node);
        node = INNER_NODE;
    }
    size + allocation(INNER_NODE)
}

/// Bytes that an allocator takes for so many: a word of its own, and steps of two.
fn allocation(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + size_of::<usize>()).next_multiple_of(2 * size_of::<usize>()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn text_and_value_have_one_size() {
        for value in [
            json!(null),
            json!([[], {}, "", 1, true]),
            json!({"a": [1, 2, 3, 4, 5], "b": {"c": "text", "d": [{"": 0}]}}),
            json!({"many": (0..1000).map(|nth| (nth.to_string(), json!({}))).collect::<Map<_, _>>()}),
        ] {
            let text = value.to_string();
            assert_eq!(tree_size(text.as_bytes()), ValueSize::of(&value).tree, "{text}");
        }
    }

    #[test]
    fn spaces_and_escaped_quotes_are_understood() {
        assert_eq!(tree_size(b"[ 1 ,\n2\t]"), tree_size(b"[1,2]"));
        assert_eq!(tree_size(b"[ ]"), 0);
        assert_eq!(tree_size(br#"["\"]","a"]"#), tree_size(br#"["123","a"]"#));
        assert_eq!(tree_size(br#"{"a":1}"#), allocation(LEAF) + allocation(1));
    }

    #[test]
    fn what_is_never_closed_counts_up_to_there() {
        let items = "0,".repeat(1000);
        assert!(tree_size(format!("[{items}").as_bytes()) >= 1000 * size_of::<Value>());
        let deep = format!("{}{items}", "[".repeat(500));
        assert!(tree_size(deep.as_bytes()) > 0);
        let wide_and_deep = format!("[{items}{}", "[".repeat(500));
        assert!(tree_size(wide_and_deep.as_bytes()) >= 1000 * size_of::<Value>());
    }

    proptest! {
        #[test]
        fn no_end_of_a_text_makes_it_smaller(depth in 1..20_usize, items in 0..300_usize) {
            let text = format!("{}{}", "[1,".repeat(depth), "{\"a\":[1,2]},".repeat(items));
            let (before, ended) = (tree_size(text.as_bytes()), format!("{text}1{}", "]".repeat(depth)));
            let ended = tree_size(ended.as_bytes());
            prop_assert!(before <= ended && ended <= 2 * before + 4096, "{before} {ended}");
        }

        #[test]
        fn any_bytes_have_some_size(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            tree_size(&bytes);
        }

        #[test]
        fn a_text_is_not_longer_than_estimated(text in "\\PC*[\\x00-\\x1f\"\\\\]*", number in any::<f64>()) {
            let value = json!({ text.clone(): [text, number, null, i64::MIN] });
            let size = ValueSize::of(&value).text;
            prop_assert!(value.to_string().len() <= size);
        }
    }
}
