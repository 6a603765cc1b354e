//! Long texts that a command was not asked for in full: their first lines, and how many more there are.

use std::fmt::Write;

/// Lines that a result shows unasked.
const MAX_LINES: usize = 60;

/// The first lines of a text. `whole`: how all of it is had.
pub(super) fn first_lines(text: &str, whole: &str) -> String {
    let mut shown = String::new();
    for line in text.lines().take(MAX_LINES) {
        shown.push_str(line);
        shown.push('\n');
    }
    let left = text.lines().count().saturating_sub(MAX_LINES);
    if left > 0 {
        // Writing to a String cannot fail.
        let _written = writeln!(shown, "… {left} more lines; {whole}");
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
}
