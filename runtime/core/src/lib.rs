//! Decisions of metahook: pure functions of values, without I/O, clock or logging. The modules, in the order of the data:
//!
//! - [`object`]: one object; its bytes, its identity, its labels
//! - [`api`]: our API; what is stored, and what of it can be run
//! - [`cache`]: objects by name, owner and uid, kept up to date by events; which parents an event concerns
//! - [`related`]: objects that a hook is shown besides its children, and the parents that a change of one concerns
//! - [`hook`]: requests to hooks, and their answers
//! - [`rollout`]: rolling updates: revisions of a parent, and the child that moves next
//! - [`children`]: the plan of writes of children
//! - [`decorator`]: the writes of a decorated object, and conflicts between decorators
//! - [`reconcile`]: these in a row: what a reconcile reads, asks and decides, and how it goes on
//! - [`trace`]: a reconcile's steps as people read them, and the latest ones of all parents
//! - [`shadow`]: how the answers of a hook's shadow differ from those of the hook
//! - [`settled`]: parents that need no call of a hook until something changes
//! - [`pacing`]: delays of requests and resyncs
//! - [`leader_election`]: which of several servers writes, and until when
//! - [`hosting`]: which controllers a server runs, and which a session of `metahook dev`
//! - [`dev`]: what such a session writes to its controller
//! - [`bundle`]: objects of an author's files, in the order in which a cluster takes them
//! - [`readiness`]: whether a server has taken a controller up, and if not, why not
//! - [`presence`]: servers that host the same controllers without an election
//! - [`json`]: JSON as Go writes it, merges, comparisons

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::borrow::Cow;
use std::error::Error;

pub mod api;
pub mod bundle;
pub mod cache;
pub mod children;
pub mod controller_metrics;
pub mod decorator;
pub mod dev;
pub mod hash;
pub mod hook;
pub mod hosting;
pub mod inspection_paths;
pub mod json;
pub mod last_calls;
pub mod leader_election;
pub mod object;
pub mod overview;
pub mod pacing;
pub mod presence;
pub mod readiness;
pub mod reconcile;
pub mod recording;
pub mod refused_versions;
pub mod related;
pub mod rollout;
pub mod settled;
pub mod shadow;
pub mod trace;

/// An error with its causes, in one line. A cause that the words before it end with is not told again.
pub fn error_chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut line = String::new();
    for cause in causes.map(ToString::to_string) {
        if !line.is_empty() && line.ends_with(&cause) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&cause);
    }
    line
}

/// At most `max` bytes, cut between characters and marked where it was cut.
pub fn shorten(text: &str, max: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(MARK.len());
    let end = (0..=room).rev().find(|i| text.is_char_boundary(*i)).unwrap_or_default();
    format!("{}{MARK}", text.get(..end).unwrap_or_default())
}

/// The text in at most `max` bytes, cut in its middle: the end of a message is often its reason, or what to do about
/// it.
pub fn shorten_middle(text: &str, max: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(MARK.len());
    let tail = text.len() - room / 3;
    let start = (tail..=text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
    let head = shorten(text, max - (text.len() - start).min(max));
    format!("{head}{}", text.get(start..).unwrap_or_default())
}

/// A number with its noun: `1 child is`, `2 children are`.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The text in one line: a line break becomes a space, with all white space around it.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let is_break =
        |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    if !text.contains(is_break) {
        return text.into();
    }
    let lines: Vec<_> = text.split(is_break).map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{words}")]
        struct Caused {
            words: &'static str,
            source: Option<Box<Caused>>,
        }
        let chain = |words: &[&'static str]| {
            let error =
                words.iter().rev().fold(None, |source, words| Some(Box::new(Caused { words, source })));
            error_chain(&error.unwrap())
        };
        assert_eq!(chain(&["a", "b", "c"]), "a: b: c");
        assert_eq!(chain(&["no file: gone", "gone", "why"]), "no file: gone: why");
        assert_eq!(chain(&["same", "same"]), "same");
        assert_eq!(chain(&["", "", "a"]), "a");
    }

    #[test]
    fn a_long_text_keeps_its_end_where_it_is_cut_in_the_middle() {
        assert_eq!(shorten_middle("short", 5), "short");
        assert_eq!(shorten_middle("aaaaaaaaaaaaaaaaaaaabbb", 12), "aaaaaa…bbb");
        for max in 0..40 {
            let text = shorten_middle(&"ü".repeat(100), max);
            assert!(text.len() <= max.max("…".len()), "{max}: {text}");
        }
    }

    #[test]
    fn one_is_no_plural() {
        let said = |number| counted(number, "child is", "children are");
        assert_eq!([said(0), said(1), said(2)], ["0 children are", "1 child is", "2 children are"]);
    }

    #[test]
    fn lines_become_one() {
        assert_eq!(one_line("a:\n\n  * b\r\n  * c  d\n"), "a: * b * c  d");
        assert!(matches!(one_line("a  b\tc"), Cow::Borrowed(_)));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = shorten(&"ü".repeat(2000), 1024);
        assert!(text.len() <= 1024 && text.len() > 1018 && text.ends_with('…'));
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten("longer", 5), "lo…");
    }
}
