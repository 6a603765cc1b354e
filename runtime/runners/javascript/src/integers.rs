//! Integers beyond 2^53: which ones JavaScript has rounded, and how the others are written exactly.

use std::collections::BTreeSet;

/// The last integer before which no double stands for two integers.
const MAX_SAFE: u128 = (1 << 53) - 1;

/// Digits of the first integer that a double cannot hold.
const MIN_DIGITS: usize = 16;

/// Digits of the largest integer that JavaScript prints without an exponent.
const MAX_DIGITS: usize = 21;

/// Doubles that stand for integers which they cannot hold: `9007199254740993` is `9007199254740992` to a script.
#[derive(Default)]
pub(crate) struct Rounded(BTreeSet<u64>);

impl Rounded {
    /// Adds those of a text: of its numbers and of the digits in its strings, which a script may take for numbers.
    pub(crate) fn read(&mut self, text: &[u8]) {
        let is_digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
        // So many digits in a row have one at a multiple of their number: a request costs little.
        let mut at = MIN_DIGITS - 1;
        while at < text.len() {
            if is_digit(at) {
                let start = (0..at).rev().find(|before| !is_digit(*before)).map_or(0, |before| before + 1);
                let end = (at..text.len()).find(|behind| !is_digit(*behind)).unwrap_or(text.len());
                self.add(text.get(start..end).unwrap_or_default());
                at = end;
            }
            at += MIN_DIGITS;
        }
    }

    /// Whether a number of an answer, of either sign, is one of them.
    pub(crate) fn has(&self, number: f64) -> bool {
        self.0.contains(&number.abs().to_bits())
    }

    fn add(&mut self, digits: &[u8]) {
        let digits = std::str::from_utf8(digits).unwrap_or_default();
        let Ok(double) = digits.parse::<f64>() else { return };
        let is_exact = digits.parse::<u128>().is_ok_and(|integer| value(double) == integer);
        if digits.len() >= MIN_DIGITS && !is_exact {
            self.0.insert(double.to_bits());
        }
    }
}

/// The integer that a double is.
fn value(double: f64) -> u128 {
    double as u128
}

/// Whether an answer has an integer beyond 2^53 - 1.
pub(crate) fn has_large(json: &str) -> bool {
    let mut found = false;
    each_large(json, |_, _| found = true);
    found
}

/// An answer whose integers beyond 2^53 - 1 are written as the doubles that they are: JavaScript prints
/// 1152921504606847000 of 2^60, which is 1152921504606846976.
///
/// # Errors
/// One of them stands for an integer that was rounded.
pub(crate) fn exact(json: &str, rounded: &Rounded) -> Result<String, String> {
    let (mut written, mut end, mut refused) = (String::with_capacity(json.len()), 0, None);
    each_large(json, |at, number| {
        let Ok(double) = number.parse::<f64>() else { return };
        if rounded.has(double) {
            let sign = json.get(..at).filter(|before| before.ends_with('-')).map_or("", |_| "-");
            refused.get_or_insert_with(|| format!("{sign}{number}"));
        }
        written.push_str(json.get(end..at).unwrap_or_default());
        written.push_str(&value(double).to_string());
        end = at + number.len();
    });
    written.push_str(json.get(end..).unwrap_or_default());
    refused.map_or(Ok(written), Err)
}

/// Integers of a JSON text beyond 2^53 - 1, without their signs, and where they begin.
fn each_large(json: &str, mut act: impl FnMut(usize, &str)) {
    let mut is_text = false;
    let mut bytes = json.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => is_text = !is_text,
            b'\\' if is_text => drop(bytes.next()),
            b'0'..=b'9' if !is_text => {
                let rest = json.get(at..).unwrap_or_default();
                let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
                let number =
                    rest.get(..rest.find(|c| !is_number(c)).unwrap_or(rest.len())).unwrap_or_default();
                let is_printed = (MIN_DIGITS..=MAX_DIGITS).contains(&number.len());
                if is_printed && number.parse::<u128>().is_ok_and(|integer| integer > MAX_SAFE) {
                    act(at, number);
                }
                if number.len() > 1 {
                    bytes.nth(number.len() - 2);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(request: &str, answer: &str) -> Result<String, String> {
        let mut rounded = Rounded::default();
        rounded.read(request.as_bytes());
        exact(answer, &rounded)
    }

    #[test]
    fn integers_beyond_2_53_are_found_outside_of_texts() {
        for (json, found) in [
            (r#"{"a":9007199254740991,"b":[-9007199254740991,0,7]}"#, false),
            (r#"{"a":[1,9007199254740992]}"#, true),
            (r#"{"a":-9007199254740993}"#, true),
            (r#"{"a":10000000000000000}"#, true),
            (r#"{"a":"9007199254740993 \\\" 9007199254740993"}"#, false),
            (r#"{"a":1e+21,"b":0.12345678901234567890,"c":1.5e300}"#, false),
        ] {
            assert_eq!(has_large(json), found, "{json}");
        }
    }

    #[test]
    fn an_integer_that_was_rounded_is_refused_wherever_it_came_in() {
        let answer = r#"{"id":9007199254740992}"#;
        for request in [
            "9007199254740993",
            r#"{"spec":{"id":9007199254740993}}"#,
            r#"{"spec":{"id":-9007199254740993}}"#,
            r#"{"spec":{"id":"9007199254740993"}}"#,
            "return { id: 9007199254740993 };",
        ] {
            for shift in 0..MIN_DIGITS {
                let request = " ".repeat(shift) + request;
                assert_eq!(answered(&request, answer), Err("9007199254740992".to_owned()), "{request}");
            }
        }
        assert_eq!(answered("9007199254740993", "[-9007199254740992]"), Err("-9007199254740992".to_owned()));
        // What JavaScript prints of it is another number than what came in.
        assert_eq!(
            answered("1152921504606846977", r#"[1,1152921504606847000]"#),
            Err("1152921504606847000".to_owned())
        );
    }

    #[test]
    fn an_integer_of_the_scripts_own_is_written_as_it_is() {
        for (request, answer, written) in [
            (
                "",
                r#"{"a":1000000000000000000,"b":[-1000000000000000000]}"#,
                r#"{"a":1000000000000000000,"b":[-1000000000000000000]}"#,
            ),
            (
                "return 2 ** 60",
                r#"{"a":1152921504606847000,"b":"é"}"#,
                r#"{"a":1152921504606846976,"b":"é"}"#,
            ),
            ("1152921504606846976", "[1152921504606847000]", "[1152921504606846976]"),
            ("9007199254740993", "[1000000000000000000]", "[1000000000000000000]"),
            ("9007199254740992", "[9007199254740992]", "[9007199254740992]"),
            ("0.12345678901234567890", "[1000000000000000000]", "[1000000000000000000]"),
        ] {
            assert_eq!(answered(request, answer).as_deref(), Ok(written), "{request} {answer}");
        }
    }

    #[test]
    fn long_rows_of_digits_are_read_once() {
        let mut rounded = Rounded::default();
        rounded.read("9".repeat(1 << 20).as_bytes());
        assert!(rounded.0.len() <= 1);
    }
}
