//! Last words of a hook that failed: the part of its log that says why, in the form of its language.

use std::ops::Range;

use crate::hook::log_line::LogLine;
use crate::{shorten, shorten_middle};

/// Bytes of a hook's last words.
const MAX_WORDS: usize = 400;

/// Lines of the last paragraph that are looked through where no language is known.
const MAX_LINES: usize = 20;

/// Lines from the end that are looked through for a message: a program in Go prints the stacks of its goroutines behind it.
const MAX_SEARCHED: usize = 2000;

/// Lines of a traceback that a message has.
const MAX_LED: usize = 5;

/// Lines of one message.
const MAX_MESSAGE_LINES: usize = 8;

/// An interpreter's last words: the error with its place, and the lines above it that are set in, which led there.
pub fn script_words(log: &str) -> String {
    let mut lines = log.lines().rev().filter(|line| !line.trim().is_empty());
    let error = lines.next().unwrap_or("it said nothing");
    let mut led: Vec<_> = lines
        .take_while(|line| line.starts_with("  "))
        .take(MAX_LED)
        .map(|line| frame(line.trim()))
        .collect();
    led.reverse();
    let said = if led.is_empty() { error.to_owned() } else { format!("{error}; by {}", led.join(", ")) };
    // A terminal obeys control characters.
    shorten(&said.replace(char::is_control, " "), MAX_WORDS)
}

/// A line of a traceback; JavaScript's begin with `at`.
fn frame(line: &str) -> &str {
    line.strip_prefix("at ").unwrap_or(line)
}

/// A program's last words, as the end of a message: a panic or an exception in the form of its language, else its last
/// line.
/// See <https://github.com/tinygo-org/tinygo/issues/4873>.
pub fn last_words(log: &str) -> String {
    let is_said = |line: &&str| !line.trim().is_empty() && !is_hint(line);
    let mut lines: Vec<_> = log.lines().rev().filter(is_said).take(MAX_SEARCHED).collect();
    lines.reverse();
    let found =
        [rust, go, cpp, python].into_iter().filter_map(|find| find(&lines)).max_by_key(|found| found.start);
    let frame = found.as_ref().filter(|found| go(&lines).as_ref() == Some(*found));
    let frame = frame.and_then(|found| go_frame(lines.get(found.end..)?));
    let last = lines.len().saturating_sub(1)..lines.len();
    let said = lines.get(found.unwrap_or(last)).unwrap_or_default();
    let said: Vec<_> = said.iter().map(|line| LogLine::of(line).message).collect();
    let said: Vec<_> = said.iter().map(|line| line.trim()).collect();
    // A terminal obeys control characters.
    let said = said.join(" ") + &frame.map_or_else(String::new, |frame| format!(" ({frame})"));
    let said = said.replace(char::is_control, " ");
    if said.is_empty() {
        String::new()
    } else {
        format!("; last stderr output: {}", shorten_middle(&said, MAX_WORDS))
    }
}

/// A hint of its language's runtime.
fn is_hint(line: &str) -> bool {
    ["note: run with `RUST_BACKTRACE", "note: run with the `RUST_BACKTRACE"]
        .iter()
        .any(|hint| line.starts_with(hint))
}

/// `thread 'main' panicked at src/main.rs:7:9:`, and the lines of its message up to the end.
fn rust(lines: &[&str]) -> Option<Range<usize>> {
    let start = lines.iter().rposition(|line| line.contains(" panicked at "))?;
    let length = lines.len() - start;
    (length <= MAX_LINES).then_some(start..lines.len())
}

/// `panic: …` or `fatal error: …`, the lines of its message, and, by Go alone, `goroutine 1 [running]:` with the stacks.
/// A panic that follows another one repeats it: all of them are one message.
fn go(lines: &[&str]) -> Option<Range<usize>> {
    let is_start = |line: &&str| {
        ["panic: ", "fatal error: ", "runtime error: "].iter().any(|start| line.starts_with(start))
    };
    let start = lines.iter().rposition(is_start)?;
    let behind = lines.get(start + 1..)?;
    let stack = |line: &&str| {
        (line.starts_with("goroutine ") && line.trim_end().ends_with("]:"))
            || line.starts_with("[signal ")
            || line.starts_with("[originating from ")
    };
    match behind.iter().position(stack) {
        Some(length) => Some(start..start + 1 + length.min(MAX_MESSAGE_LINES)),
        // TinyGo prints no stack.
        None if behind.len() < MAX_MESSAGE_LINES => Some(start..lines.len()),
        None => None,
    }
}

/// The author's function that a stack of Go begins with, and its place: `main.colour, main.go:6`.
fn go_frame(stack: &[&str]) -> Option<String> {
    let mut frames = stack.iter().zip(stack.iter().skip(1));
    let (call, place) = frames.find(|(call, place)| call.starts_with("main.") && place.starts_with('\t'))?;
    let (function, _) = call.rsplit_once('(')?;
    let place = place.split_whitespace().next()?;
    Some(format!("{function}, {}", place.rsplit('/').next().unwrap_or(place)))
}

/// `terminate called after …`, and `what():  …` in the line below it; libc++abi says both in one.
fn cpp(lines: &[&str]) -> Option<Range<usize>> {
    let is_start = |line: &&str| line.contains("terminate called ") || line.starts_with("libc++abi: ");
    let start = lines.iter().rposition(is_start)?;
    let what = lines.get(start + 1).is_some_and(|line| line.trim_start().starts_with("what():"));
    Some(start..start + if what { 2 } else { 1 })
}

/// The line behind the last traceback: `ValueError: …`, and the lines of its message up to the end.
fn python(lines: &[&str]) -> Option<Range<usize>> {
    let traceback = lines.iter().rposition(|line| line.starts_with("Traceback (most recent call last)"))?;
    let behind = lines.get(traceback + 1..)?;
    let start = traceback + 1 + behind.iter().position(|line| !line.starts_with(char::is_whitespace))?;
    Some(start..lines.len().min(start + MAX_MESSAGE_LINES))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUST: &str = "starting\n\nthread 'main' (1) panicked at src/main.rs:7:9:\nindex out of bounds: the len is 1\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";

    const GO: &str = "reading\npanic: no colour for \"a\"\n\ngoroutine 1 [running]:\nmain.colour(...)\n\t/src/main.go:6\nmain.main()\n\t/src/main.go:10 +0x13\n";

    const GO_ERROR: &str = "panic: runtime error: index out of range [7] with length 1\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:6 +0x13\nexit status 2\n";

    const GO_AGAIN: &str = "panic: first [recovered]\n\tpanic: second\n\ngoroutine 1 [running]:\nmain.main.func1()\n\t/src/main.go:7 +0x2\npanic({0x1, 0x2})\n\t/go/src/runtime/panic.go:787 +0x3\n";

    const GO_NIL: &str = "panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x0 addr=0x0 pc=0x0]\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:8 +0x3\n";

    const GO_FATAL: &str = "fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [chan receive]:\nmain.main()\n\t/src/main.go:5 +0x3\n\ngoroutine 4 [select]:\nmain.wait()\n\t/src/main.go:9 +0x4\n";

    const GO_LONG: &str =
        "panic: line one\nline two\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:6 +0x13\n";

    const TINY: &str = "panic: runtime error: index out of range\n";

    const TINY_PLACE: &str =
        "[tinygo: panic at 0x1a2]\npanic: runtime error at 0x00000e3f: nil pointer dereference\n";

    const CPP: &str = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no colour\nAborted\n";

    const CPP_LLVM: &str =
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: no colour\n";

    const PYTHON: &str = "Traceback (most recent call last):\n  File \"/hook/sync.py\", line 9, in <module>\n    sync(request)\n    ~~~~^^^^^^^^^\n  File \"/hook/sync.py\", line 3, in sync\n    raise ValueError(\"no colour\")\nValueError: no colour\n";

    const PYTHON_CHAIN: &str = "Traceback (most recent call last):\n  File \"a.py\", line 2, in a\n    {}[1]\nKeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"a.py\", line 4, in a\n    raise ValueError(\"two\\nlines\")\nValueError: two\nlines\n";

    #[test]
    fn the_message_is_found_in_the_form_of_each_language() {
        for (log, words) in [
            (RUST, "thread 'main' (1) panicked at src/main.rs:7:9: index out of bounds: the len is 1"),
            (GO, "panic: no colour for \"a\" (main.colour, main.go:6)"),
            (GO_ERROR, "panic: runtime error: index out of range [7] with length 1 (main.main, main.go:6)"),
            (GO_AGAIN, "panic: first [recovered] panic: second (main.main.func1, main.go:7)"),
            (
                GO_NIL,
                "panic: runtime error: invalid memory address or nil pointer dereference (main.main, main.go:8)",
            ),
            (GO_FATAL, "fatal error: all goroutines are asleep - deadlock! (main.main, main.go:5)"),
            (GO_LONG, "panic: line one line two (main.main, main.go:6)"),
            (TINY, "panic: runtime error: index out of range"),
            (TINY_PLACE, "panic: runtime error at 0x00000e3f: nil pointer dereference"),
            (CPP, "terminate called after throwing an instance of 'std::runtime_error' what():  no colour"),
            (
                CPP_LLVM,
                "libc++abi: terminating due to uncaught exception of type std::runtime_error: no colour",
            ),
            (PYTHON, "ValueError: no colour"),
            (PYTHON_CHAIN, "ValueError: two lines"),
            ("one\ntwo\n\n", "two"),
            (r#"{"level":"error","message":"no colour"}"#, "no colour"),
            ("\u{1b}[2Jgone", " [2Jgone"),
        ] {
            assert_eq!(last_words(log), format!("; last stderr output: {words}"), "{log}");
        }
        assert_eq!(last_words(" \n"), "");
    }

    #[test]
    fn a_stack_of_many_goroutines_hides_no_message() {
        let stack = "goroutine 7 [running]:\nmain.f()\n\t/src/main.go:6\n\n".repeat(200);
        assert_eq!(
            last_words(&format!("panic: first\n\n{stack}")),
            "; last stderr output: panic: first (main.f, main.go:6)"
        );
    }

    #[test]
    fn the_last_of_two_messages_counts() {
        let both = format!("{PYTHON}{GO}");
        assert!(last_words(&both).ends_with("panic: no colour for \"a\" (main.colour, main.go:6)"));
        let logged = format!("panic: averted\n{}{RUST}", "going on\n".repeat(30));
        assert!(last_words(&logged).contains("index out of bounds"));
    }

    #[test]
    fn a_script_s_error_comes_before_the_lines_that_led_there() {
        let log = "printed\n  hook.py:9 in sync: name(parent)\n  hook.py:3 in name: it[\"a\"]\nhook.py:3: KeyError: 'a'\n";
        assert_eq!(
            script_words(log),
            "hook.py:3: KeyError: 'a'; by hook.py:9 in sync: name(parent), hook.py:3 in name: it[\"a\"]"
        );
        let log = "    at sync (hook.js:7:133)\nhook.js:7: TypeError: not a function\n";
        assert_eq!(script_words(log), "hook.js:7: TypeError: not a function; by sync (hook.js:7:133)");
        assert_eq!(script_words("printed\nhook.py: no function\n\n"), "hook.py: no function");
        assert_eq!(script_words(""), "it said nothing");
        assert_eq!(script_words(&"x".repeat(MAX_WORDS + 1)).len(), MAX_WORDS);
    }

    #[test]
    fn last_words_have_a_bound() {
        let length = |bytes: usize| last_words(&"x".repeat(bytes)).len() - "; last stderr output: ".len();
        assert_eq!((length(MAX_WORDS), length(MAX_WORDS + 1)), (MAX_WORDS, MAX_WORDS));
        let long_ago = format!("thread 'main' panicked at a.rs:1:1:\n{}last", "line\n".repeat(MAX_LINES));
        assert_eq!(last_words(&long_ago), "; last stderr output: last");
    }
}
