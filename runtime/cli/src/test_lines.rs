//! Lines of `metahook test` on a terminal: many cases must not hide each other, and what is left out is counted.

use std::io::{self, Write};

use crate::first_lines::{MAX_LINES, shown};

/// How a user sees everything.
const WHOLE: &str = "--output json prints all";

/// Lines that are left of the 200 of one run: those of cases that passed, of cases that failed, and of differences and logs.
#[derive(Debug)]
pub(super) struct LineBudget {
    passed: usize,
    failed: usize,
    details: usize,
    left_out: usize,
    details_left_out: usize,
}

impl Default for LineBudget {
    fn default() -> Self {
        Self { passed: 40, failed: 35, details: 120, left_out: 0, details_left_out: 0 }
    }
}

impl LineBudget {
    /// Prints the line of a case, or counts it.
    pub(super) fn head(&mut self, has_passed: bool, line: &str, out: &mut impl Write) -> io::Result<()> {
        let left = if has_passed { &mut self.passed } else { &mut self.failed };
        let Some(rest) = left.checked_sub(1) else {
            self.left_out += 1;
            return Ok(());
        };
        *left = rest;
        writeln!(out, "{line}")
    }

    /// The lines of a difference or of a log that are shown; the line that counts the rest is one of them.
    pub(super) fn detail(&mut self, text: &str) -> String {
        let count = text.lines().count();
        let max = MAX_LINES.min(self.details.saturating_sub(1));
        if max == 0 {
            self.details_left_out += count;
            return String::new();
        }
        let part = shown(text, max, 0, WHOLE);
        self.details -= part.lines().count().min(self.details);
        part
    }

    /// Names what was left out.
    pub(super) fn end(&self, out: &mut impl Write) -> io::Result<()> {
        let lines = |count: usize, what: &str| (count > 0).then(|| format!("{count} more lines of {what}"));
        let parts = [lines(self.left_out, "cases"), lines(self.details_left_out, "differences and logs")];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() { Ok(()) } else { writeln!(out, "… {}; {WHOLE}", parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failing_cases_print_two_hundred_lines_at_most() {
        let (mut budget, mut out) = (LineBudget::default(), Vec::new());
        for number in 0..300 {
            budget.head(number % 2 == 0, &format!("case {number}"), &mut out).unwrap();
            if number % 2 == 1 {
                for text in ["-x\n".repeat(100), "one\ntwo\n".to_owned()] {
                    out.extend(budget.detail(&text).into_bytes());
                }
            }
        }
        budget.end(&mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.lines().count() <= 199, "{}", out.lines().count());
        assert!(out.contains("… 40 more lines; --output json prints all\n"), "{out}");
        let end =
            "… 225 more lines of cases, 15098 more lines of differences and logs; --output json prints all\n";
        assert!(out.ends_with(end), "{out}");
    }

    #[test]
    fn few_cases_are_shown_in_full() {
        let (mut budget, mut out) = (LineBudget::default(), Vec::new());
        budget.head(false, "FAIL one", &mut out).unwrap();
        assert_eq!(budget.detail("a\nb"), "a\nb\n");
        budget.end(&mut out).unwrap();
        assert_eq!(out, b"FAIL one\n");
    }
}
