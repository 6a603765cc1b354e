//! Reader of JSON: the bounds of values, strings, numbers.
//!
//! Not `serde_json`'s reader, for the modules' sake: with that one the hello hook is 116 instead of 97 KB (223 instead of
//! 160 with Cargo's own release profile), and skipping what a hook did not ask for, most of every request, takes a third
//! longer: a call with 100 children 136 instead of 117 µs, with 1,000 1.0 instead of 0.78 ms. In skipped values only
//! quotes and brackets are checked, as the server wrote them.

use std::borrow::Cow;
use std::fmt::Display;

/// Message about a fault; the reader knows its place.
#[derive(Debug)]
pub(crate) struct Error(pub(crate) Box<str>);

impl Error {
    #[cold]
    #[inline(never)]
    pub(crate) fn new(why: &dyn Display) -> Self {
        Self(why.to_string().into())
    }
}

/// A number without fraction and exponent.
pub(crate) enum Number {
    Natural(u64),
    Negative(i64),
}

/// Reads one text from its beginning to its end.
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
    /// How much deeper values may be nested.
    pub(crate) depth: u8,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, depth: 128 }
    }

    /// The first byte of what comes next; 0 at the end.
    pub(crate) fn peek(&mut self) -> u8 {
        while let [b' ' | b'\n' | b'\t' | b'\r', after @ ..] = self.rest {
            self.rest = after;
        }
        self.rest.first().copied().unwrap_or(0)
    }

    /// Goes past this byte if it comes next.
    #[inline(never)]
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let there = self.peek() == byte;
        if let (true, [_, after @ ..]) = (there, self.rest) {
            self.rest = after;
        }
        there
    }

    /// Goes past this byte, which has to come next.
    #[inline(never)]
    pub(crate) fn expect(&mut self, byte: u8) -> Result<(), Error> {
        if self.eat(byte) { Ok(()) } else { Err(self.unexpected(&char::from(byte))) }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn unexpected(&mut self, wanted: &dyn Display) -> Error {
        self.peek();
        match self.rest.first() {
            None => Error::new(&format_args!("ends where {wanted} should be")),
            Some(byte) => Error::new(&format_args!("'{}' where {wanted} should be", byte.escape_ascii())),
        }
    }

    /// A number or one of the words null, true and false.
    #[inline(never)]
    pub(crate) fn word(&mut self) -> &'a [u8] {
        self.peek();
        let plain = |byte: &u8| !byte.is_ascii_alphanumeric() && !matches!(byte, b'+' | b'-' | b'.');
        let end = self.rest.iter().position(plain).unwrap_or(self.rest.len());
        let (word, after) = self.rest.split_at_checked(end).unwrap_or_default();
        self.rest = after;
        word
    }

    /// Goes past one value, whatever it is, and returns its text.
    #[inline(never)]
    pub(crate) fn skip(&mut self) -> Result<&'a [u8], Error> {
        let first = self.peek();
        let start = self.rest;
        if !matches!(first, b'"' | b'{' | b'[') {
            return match self.word() {
                [] => Err(self.unexpected(&"a value")),
                word => Ok(word),
            };
        }
        let mut rest = start; // here, not in self: this loop runs over most of every request
        let mut open = 0_u32;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                b'"' => match closing(rest).and_then(|(end, _)| rest.get(end + 1..)) {
                    Some(after) => rest = after,
                    None => break,
                },
                b'{' | b'[' => open += 1,
                b'}' | b']' => open -= 1,
                _ => continue,
            }
            if open == 0 {
                self.rest = rest;
                return Ok(start.get(..start.len() - rest.len()).unwrap_or_default());
            }
        }
        self.rest = &[];
        Err(self.unexpected(&"the end of a value"))
    }

    /// A string: as it stands if it has no escapes.
    #[inline(never)]
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, Error> {
        self.expect(b'"')?;
        let Some((end, escapes)) = closing(self.rest) else {
            return Err(Error::new(&"a string does not end, or has a control character in it"));
        };
        let (text, after) = self.rest.split_at_checked(end).unwrap_or_default();
        self.rest = after.get(1..).unwrap_or_default();
        if escapes { unescape(text).map(Cow::Owned) } else { self::text(text).map(Cow::Borrowed) }
    }

    /// A number without fraction and exponent, if that comes next.
    pub(crate) fn integer(&mut self) -> Option<Number> {
        self.number(|word| match word.as_bytes() {
            [b'-', ..] => word.parse().ok().map(Number::Negative),
            _ => word.parse().ok().map(Number::Natural),
        })
    }

    pub(crate) fn float(&mut self) -> Option<f64> {
        let digit = |word: &&str| word.ends_with(|last: char| last.is_ascii_digit());
        self.number(|word| Some(word).filter(digit)?.parse().ok().filter(|float: &f64| float.is_finite()))
    }

    fn number<N>(&mut self, parse: impl FnOnce(&str) -> Option<N>) -> Option<N> {
        let start = self.rest;
        let number = str::from_utf8(self.word()).ok().and_then(parse);
        if number.is_none() {
            self.rest = start;
        }
        number
    }

    /// Past the word null, if that comes next.
    pub(crate) fn null(&mut self) -> bool {
        self.peek();
        let null = self.rest.starts_with(b"null");
        if null {
            self.word();
        }
        null
    }
}

/// Bytes of a JSON text as what they should be.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Error> {
    str::from_utf8(bytes).ok().ok_or_else(|| Error::new(&"not UTF-8"))
}

/// The end of a string whose opening quote is past, and whether it has escapes.
#[inline]
fn closing(text: &[u8]) -> Option<(usize, bool)> {
    let mut rest = text;
    let mut escapes = false;
    loop {
        rest = rest.get(plain(rest)..)?;
        match rest {
            [b'"', ..] => return Some((text.len() - rest.len(), escapes)),
            [b'\\', _, after @ ..] => (rest, escapes) = (after, true),
            _ => return None,
        }
    }
}

/// How many bytes of a string come before a quote, a backslash or a control character. Eight at a time: most of a
/// request is strings.
#[inline]
fn plain(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    const QUOTE: u64 = ONES * b'"' as u64;
    const SLASH: u64 = ONES * b'\\' as u64;
    let mut rest = text;
    while let Some((bytes, after)) = rest.split_first_chunk() {
        // The lowest high bit is that of the first byte looked for: subtraction makes a 0 negative.
        let word = u64::from_le_bytes(*bytes);
        let zero = (word ^ QUOTE).wrapping_sub(ONES) | (word ^ SLASH).wrapping_sub(ONES);
        let found = (zero | word.wrapping_sub(ONES * 0x20)) & !word & HIGH;
        if found != 0 {
            return text.len() - rest.len() + found.trailing_zeros() as usize / 8;
        }
        rest = after;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    text.len() - rest.len() + rest.iter().position(special).unwrap_or(rest.len())
}

/// A string's text with its escapes resolved. Half a surrogate pair becomes the replacement character, as in Go.
fn unescape(text: &[u8]) -> Result<String, Error> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, [_, escape, after @ ..])) = rest.split_at_checked(plain(rest)) {
        out.extend_from_slice(before);
        rest = after;
        out.push(match escape {
            b'"' | b'\\' | b'/' => *escape,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (unit, after) = code_unit(after)?;
                rest = after;
                let char = match (unit, after) {
                    (0xd800..0xdc00, [b'\\', b'u', low @ ..]) => match code_unit(low)? {
                        (low @ 0xdc00..0xe000, after) => {
                            rest = after;
                            char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
                        }
                        _ => None,
                    },
                    _ => char::from_u32(unit),
                };
                let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return Err(Error::new(&"unknown escape in a string")),
        });
    }
    out.extend_from_slice(rest);
    String::from_utf8(out).ok().ok_or_else(|| Error::new(&"not UTF-8"))
}

/// The four digits behind `\u`, and what follows them.
fn code_unit(text: &[u8]) -> Result<(u32, &[u8]), Error> {
    let digit = |unit: u32, byte: &u8| char::from(*byte).to_digit(16).map(|digit| unit << 4 | digit);
    let unit = text
        .split_first_chunk::<4>()
        .and_then(|(digits, after)| Some((digits.iter().try_fold(0, digit)?, after)));
    unit.ok_or_else(|| Error::new(&"\\u without four digits"))
}

#[cfg(test)]
mod tests {
    use crate::decode::decode;
    use crate::{IgnoredAny, Raw};
    use serde_json::Value;

    const TEXT: &str = r#"{"a":[1,-25,3.5e-2,1e400,18446744073709551616,true,false,null,"",{}],
        "b\u0041\n":"\"\\\/\b\f\n\r\t\u00e9\u20AC\ud83d\ude00é€😀", "long enough for words":"plain text of many bytes"}"#;

    fn value(text: &[u8]) -> Result<Value, String> {
        decode("value", text)
    }

    #[test]
    fn what_serde_json_reads_is_read_alike_also_with_any_byte_changed() {
        let text = TEXT.replace("1e400", "1e4");
        assert!(value(text.as_bytes()).is_ok());
        for at in 0..text.len() {
            for byte in 0..=255 {
                let mut text = text.clone().into_bytes();
                text[at] = byte;
                let ours = value(&text);
                if let (Ok(theirs), false) =
                    (serde_json::from_slice::<Value>(&text), text.windows(2).any(|w| w == b"-0"))
                {
                    assert_eq!(ours, Ok(theirs), "{}", String::from_utf8_lossy(&text));
                }
                let skipped = decode::<IgnoredAny>("value", &text);
                assert!(ours.is_err() || skipped.is_ok(), "{}", String::from_utf8_lossy(&text));
            }
        }
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        for end in 0..TEXT.len() {
            assert!(value(&TEXT.as_bytes()[..end]).is_err(), "{}", &TEXT.as_bytes()[..end].escape_ascii());
            assert!(decode::<IgnoredAny>("value", &TEXT.as_bytes()[..end]).is_err());
        }
    }

    #[test]
    fn numbers_keep_their_value_or_are_refused() {
        let number = |text: &str| value(text.as_bytes()).map(|number| number.to_string());
        assert_eq!(number("9223372036854775808").unwrap(), "9223372036854775808");
        assert_eq!(number("-9223372036854775808").unwrap(), "-9223372036854775808");
        assert_eq!(number("0.1").unwrap(), "0.1");
        assert_eq!(
            number("1e400").unwrap_err(),
            "value: 1e400 where any valid JSON value should be (at byte 0 of 5)"
        );
        assert_eq!(
            number("1.").unwrap_err(),
            "value: 1. where any valid JSON value should be (at byte 0 of 2)"
        );
        assert_eq!(decode::<f32>("value", b"7").map(f64::from), Ok(7.0));
        assert_eq!(
            decode::<u8>("value", b"256").unwrap_err(),
            "value: 256 where u8 should be (at byte 3 of 3)"
        );
        assert_eq!(
            decode::<u8>("value", b"1.5").unwrap_err(),
            "value: 1.5 where u8 should be (at byte 0 of 3)"
        );
        assert_eq!(
            decode::<u8>("value", b"-1").unwrap_err(),
            "value: -1 where u8 should be (at byte 2 of 2)"
        );
    }

    #[test]
    fn half_a_surrogate_pair_becomes_the_replacement_character() {
        let text = |text: &str| decode::<String>("value", text.as_bytes()).unwrap();
        assert_eq!(text(r#""\ud83d""#), "\u{fffd}");
        assert_eq!(text(r#""\ude00.""#), "\u{fffd}.");
        assert_eq!(text(r#""\ud83d\u0041""#), "\u{fffd}A");
        assert_eq!(text(r#""\ud83d\ud83d\ude00""#), "\u{fffd}😀");
    }

    #[test]
    fn strings_end_wherever_their_quote_is() {
        for length in 0..40 {
            let plain = "x".repeat(length);
            assert_eq!(decode::<&str>("value", format!("\"{plain}\"").as_bytes()), Ok(&*plain));
            assert_eq!(
                decode::<String>("value", format!("\"{plain}\\n{plain}\"").as_bytes()),
                Ok(format!("{plain}\n{plain}"))
            );
            assert!(decode::<String>("value", format!("\"{plain}\n\"").as_bytes()).is_err());
            assert!(
                decode::<String>("value", [b"\"", plain.as_bytes(), b"\xff\""].concat().as_slice()).is_err()
            );
        }
    }

    #[test]
    fn nesting_ends_at_128_but_what_is_skipped_may_be_deeper() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(value(nested(128).as_bytes()).is_ok());
        assert!(value(nested(129).as_bytes()).unwrap_err().contains("nested too deeply"));
        assert!(value(nested(100_000).as_bytes()).is_err());
        assert!(decode::<IgnoredAny>("value", nested(100_000).as_bytes()).is_ok());
        let many = format!("[{}[]]", "[],".repeat(500)); // side by side is not deeper
        let list: Vec<Vec<u8>> = decode("value", many.as_bytes()).unwrap();
        assert_eq!(list.len(), 501);
    }

    #[test]
    fn raw_is_the_text_as_it_came() {
        let raw: Vec<Raw<'_>> = decode("value", br#"[ {"a" : "]\""} , 1 ]"#).unwrap();
        assert_eq!(raw.iter().map(|raw| raw.text()).collect::<Vec<_>>(), [r#"{"a" : "]\""}"#, "1"]);
        assert_eq!(raw[1].decode(), Ok(1));
        assert_eq!(
            raw[1].decode::<bool>().unwrap_err(),
            "value: 1 where a boolean should be (at byte 0 of 1)"
        );
        assert_eq!(Raw::default().decode::<Option<u8>>(), Ok(None));
    }
}
