//! Long texts that a command was not asked for in full: some of their lines, and how many more there are.

use std::fmt::Write;

/// Lines that a result shows unasked.
pub(super) const MAX_LINES: usize = 60;

/// Lines of a log's beginning, which shows what the hook did, and of its end, which shows why it failed.
const FIRST: usize = 90;
const LAST: usize = 90;

/// The first lines of a text. `whole`: how all of it is had.
pub(super) fn first_lines(text: &str, whole: &str) -> String {
    shown(text, MAX_LINES, 0, whole)
}

/// The first lines of a log and its last ones.
pub(super) fn first_and_last_lines(text: &str, whole: &str) -> String {
    shown(text, FIRST, LAST, whole)
}

/// So many lines of a text from its beginning, and so many of its end.
pub(super) fn shown(text: &str, first: usize, last: usize, whole: &str) -> String {
    let count = text.lines().count();
    let left = count.saturating_sub(first.saturating_add(last));
    let mut shown = String::new();
    for (number, line) in text.lines().enumerate() {
        if left > 0 && number == first {
            // Writing to a String cannot fail.
            let _written = writeln!(shown, "… {left} more lines; {whole}");
        }
        if number < first || number >= first.saturating_add(left) {
            shown.push_str(line);
            shown.push('\n');
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_its_rest_counted() {
        let lines = |count: usize| "x\n".repeat(count);
        assert_eq!(first_lines(&lines(MAX_LINES), "?"), lines(MAX_LINES));
        let cut = format!("{}… 2 more lines; --all\n", lines(MAX_LINES));
        assert_eq!(first_lines(&lines(MAX_LINES + 2), "--all"), cut);
    }

    #[test]
    fn a_long_log_shows_its_beginning_and_its_end() {
        let log = (1..=100_000).map(|number| number.to_string()).collect::<Vec<_>>().join("\n");
        let cut = first_and_last_lines(&log, "--all");
        let lines: Vec<_> = cut.lines().collect();
        assert_eq!((lines.len(), lines.first(), lines.last()), (181, Some(&"1"), Some(&"100000")));
        assert_eq!(lines.get(90), Some(&"… 99820 more lines; --all"));
        assert_eq!(shown("a\nb\n", 1, 1, "?"), "a\nb\n");
    }
}
