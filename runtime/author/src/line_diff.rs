//! Differences of two texts, line by line, with the lines around them.

use std::time::{Duration, Instant};

use metahook_core::json::hidden::{hide, remove_records};
use serde_json::Value;
use similar::{Algorithm, ChangeTag, capture_diff_slices_deadline, group_diff_ops};

use crate::yaml;

/// Lines before and after each difference.
const CONTEXT: usize = 3;

/// After this time the lines that are left are shown as removed and added.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The lines that differ, behind `-` and `+`; with colours where they are wanted. Empty for texts that are the same.
pub fn print(old: &str, new: &str, colours: bool) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let deadline = Instant::now().checked_add(TIMEOUT);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, deadline);
    let (red, green, end) = if colours { ("\u{1b}[31m", "\u{1b}[32m", "\u{1b}[0m") } else { ("", "", "") };
    let (mut out, mut shown) = (String::new(), 0);
    for group in group_diff_ops(ops, CONTEXT) {
        if group.first().is_some_and(|op| op.old_range().start > shown) {
            out.push_str("...\n");
        }
        shown = group.last().map_or(shown, |op| op.old_range().end);
        for change in group.iter().flat_map(|op| op.iter_changes(&old, &new)) {
            let line: &str = change.value();
            match change.tag() {
                ChangeTag::Equal => out.push_str(&["  ", line, "\n"].concat()),
                ChangeTag::Delete => out.push_str(&[red, "- ", line, end, "\n"].concat()),
                ChangeTag::Insert => out.push_str(&[green, "+ ", line, end, "\n"].concat()),
            }
        }
    }
    out
}

/// The lines of an object that differ, without the values of Secrets. Those of the annotations that repeat what an object was made of
/// are shown where nothing else differs. Empty where only values of Secrets differ.
pub fn print_objects(old: Option<&Value>, new: Option<&Value>, colours: bool) -> String {
    let print_with = |edit: fn(&mut Value)| {
        let text = |object: Option<&Value>| {
            let edited = |mut object: Value| {
                hide(&mut object);
                edit(&mut object);
                yaml::print(&object)
            };
            object.cloned().map(edited).unwrap_or_default()
        };
        print(&text(old), &text(new), colours)
    };
    Some(print_with(remove_records)).filter(|text| !text.is_empty()).unwrap_or_else(|| print_with(|_| {}))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_of_what_was_applied_is_shown_where_nothing_else_differs() {
        let object = |text: &str, record: &str| {
            let annotations = json!({ "metacontroller.k8s.io/last-applied-configuration": record });
            json!({ "metadata": { "annotations": annotations }, "data": { "text": text } })
        };
        let difference = |old, new| print_objects(Some(&old), Some(&new), false);
        let both = difference(object("a", "{1}"), object("b", "{2}"));
        assert!(both.contains("-   text: a\n+   text: b\n") && !both.contains("last-applied"), "{both}");
        let record = difference(object("a", "{1}"), object("a", "{2}"));
        assert!(record.contains("last-applied-configuration"), "{record}");
        assert_eq!(difference(object("a", "{1}"), object("a", "{1}")), "");
    }

    #[test]
    fn lines_that_differ_are_shown_with_those_around_them() {
        let old: Vec<_> = (1..=20).map(|number| number.to_string()).collect();
        let mut new = old.clone();
        new[9] = "ten".to_owned();
        new.remove(0);
        let shown = print(&old.join("\n"), &new.join("\n"), false);
        let expected = "- 1\n  2\n  3\n  4\n...\n  7\n  8\n  9\n- 10\n+ ten\n  11\n  12\n  13\n";
        assert_eq!(shown, expected);
        assert_eq!(print("a\nb", "a\nb", false), "");
        assert_eq!(print("", "a", true), "\u{1b}[32m+ a\u{1b}[0m\n");
        assert_eq!(print("a\nb\nc", "b\nx\nc", false), "- a\n  b\n+ x\n  c\n");
    }

    #[test]
    fn long_texts_are_shown_whole() {
        let text = |word: &str| vec![word; 2001].join("\n");
        let shown = print(&text("a"), &text("b"), false);
        assert_eq!(
            (shown.lines().count(), shown.starts_with("- a"), shown.ends_with("+ b\n")),
            (4002, true, true)
        );
    }

    #[test]
    fn of_long_texts_that_hardly_differ_few_lines_are_shown() {
        let old: Vec<_> = (0..5000).map(|number| number.to_string()).collect();
        let mut new = old.clone();
        new[2500] = "other".to_owned();
        let shown = print(&old.join("\n"), &new.join("\n"), false);
        assert_eq!(shown.lines().count(), 1 + 3 + 2 + 3, "{shown}");
    }
}
