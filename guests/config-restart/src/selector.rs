//! Knows label selectors as text, as `kubectl get -l` reads them: `app=frontend,tier in (web, api),!canary,size>3`.

use metahook_sdk::{LabelSelector, Map, Operator, Requirement, Str};

/// Requirements on labels.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// All but numbers: of a label that is compared, only that it is there.
    pub(crate) selector: LabelSelector<'static>,
    bounds: Vec<Bound>,
}

/// A label is a number above or below another one. The selectors of objects cannot say that.
#[derive(Debug)]
struct Bound {
    key: String,
    above: bool,
    than: i64,
}

impl Wanted {
    /// Whether labels that the selector finds are as the text asks.
    pub(crate) fn finds(&self, labels: &Map<'_, Str<'_>>) -> bool {
        self.bounds.iter().all(|Bound { key, above, than }| {
            let number = labels.get(key).and_then(|value| value.parse::<i64>().ok());
            number.is_some_and(|number| if *above { number > *than } else { number < *than })
        })
    }
}

/// Requirements of the text, or why it is no selector.
///
/// # Errors
/// Also a text without any requirement: for `kubectl` it means every object, here that would be every Pod.
pub(crate) fn parse(text: &str) -> Result<Wanted, String> {
    let mut reader = Reader { rest: text.trim_start() };
    if reader.rest.is_empty() {
        return Err("it names no label: say which Pods are meant, such as app=frontend".to_owned());
    }
    let mut wanted = Wanted::default();
    loop {
        reader.requirement(&mut wanted)?;
        match reader.next() {
            Token::End => return Ok(wanted),
            Token::Comma => {}
            other => return Err(unexpected(other, "a comma or the end")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Sign(&'a str),
    Comma,
    End,
}

/// Text that is still to be read; no white space comes first.
#[derive(Clone, Copy)]
struct Reader<'a> {
    rest: &'a str,
}

/// The longest first.
const SIGNS: [&str; 8] = ["==", "!=", "=", "!", "(", ")", "<", ">"];

impl<'a> Reader<'a> {
    fn next(&mut self) -> Token<'a> {
        let (token, length) = self.look();
        self.rest = self.rest.get(length..).unwrap_or_default().trim_start();
        token
    }

    fn peek(self) -> Token<'a> {
        self.look().0
    }

    /// The next token, and its length.
    fn look(self) -> (Token<'a>, usize) {
        if self.rest.is_empty() {
            return (Token::End, 0);
        }
        if self.rest.starts_with(',') {
            return (Token::Comma, 1);
        }
        if let Some(sign) = SIGNS.into_iter().find(|sign| self.rest.starts_with(sign)) {
            return (Token::Sign(sign), sign.len());
        }
        let ends = |c: char| c.is_whitespace() || "=!()<>,".contains(c);
        let word = self.rest.split(ends).next().unwrap_or_default();
        (Token::Word(word), word.len())
    }

    fn requirement(&mut self, wanted: &mut Wanted) -> Result<(), String> {
        let absent = self.peek() == Token::Sign("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => check_key(key)?,
            other => return Err(unexpected(other, "the key of a label")),
        };
        let (operator, values) = match (absent, self.peek()) {
            (true, _) => (Operator::DoesNotExist, Vec::new()),
            (false, Token::End | Token::Comma) => (Operator::Exists, Vec::new()),
            (false, Token::Sign("=" | "==")) => (Operator::In, vec![self.value()?]),
            (false, Token::Sign("!=")) => (Operator::NotIn, vec![self.value()?]),
            (false, Token::Word("in")) => (Operator::In, self.set()?),
            (false, Token::Word("notin")) => (Operator::NotIn, self.set()?),
            (false, Token::Sign(sign @ ("<" | ">"))) => {
                let text = self.value()?;
                let Ok(than) = text.parse() else {
                    return Err(format!("{text:?} where a whole number should be"));
                };
                wanted.bounds.push(Bound { key: key.to_owned(), above: sign == ">", than });
                (Operator::Exists, Vec::new())
            }
            (false, other) => return Err(unexpected(other, "=, !=, in, notin, <, >, a comma or the end")),
        };
        let values = values.into_iter().map(|value| value.to_owned().into()).collect();
        let requirement = Requirement { key: key.to_owned().into(), operator, values };
        wanted.selector.match_expressions.push(requirement);
        Ok(())
    }

    /// The one value after a sign; without one it is the empty value.
    fn value(&mut self) -> Result<&'a str, String> {
        self.next();
        match self.peek() {
            Token::End | Token::Comma => Ok(""),
            Token::Word(value) => {
                self.next();
                check_value(value)
            }
            other @ Token::Sign(_) => Err(unexpected(other, "a value")),
        }
    }

    /// `in (a, b)`: after the word, values in parentheses; what is not there between commas is the empty value.
    fn set(&mut self) -> Result<Vec<&'a str>, String> {
        self.next();
        match self.next() {
            Token::Sign("(") => {}
            other => return Err(unexpected(other, "(")),
        }
        if self.peek() == Token::Sign(")") {
            return Err("() holds no value: say which are meant".to_owned());
        }
        let mut values = Vec::new();
        loop {
            if let Token::Word(value) = self.peek() {
                self.next();
                values.push(check_value(value)?);
            } else {
                values.push("");
            }
            match self.next() {
                Token::Comma => {}
                Token::Sign(")") => return Ok(values),
                other => return Err(unexpected(other, "a comma or )")),
            }
        }
    }
}

fn unexpected(token: Token<'_>, wanted: &str) -> String {
    match token {
        Token::Word(text) | Token::Sign(text) => format!("{text:?} where {wanted} should be"),
        Token::Comma => format!("a comma where {wanted} should be"),
        Token::End => format!("it ends where {wanted} should be"),
    }
}

/// `example.com/name` or `name`.
fn check_key(key: &str) -> Result<&str, String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_none_or(is_domain) && !name.is_empty() && is_name(name) {
        return Ok(key);
    }
    Err(format!("{key:?} is no key of a label: such as app or example.com/app, of {NAME}"))
}

fn check_value(value: &str) -> Result<&str, String> {
    if is_name(value) {
        Ok(value)
    } else {
        Err(format!("{value:?} is no value of a label: those are of {NAME}"))
    }
}

const NAME: &str = "at most 63 letters, digits, '-', '_' and '.', with a letter or a digit at both ends";

fn is_name(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= 63 && text.bytes().all(inside) && at_both_ends(text, |byte| byte.is_ascii_alphanumeric())
}

fn is_domain(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| letter(byte) || byte == b'-')
            && at_both_ends(part, letter)
    };
    text.len() <= 253 && text.split('.').all(part)
}

fn at_both_ends(text: &str, is: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_none_or(|&byte| is(byte)) && bytes.last().is_none_or(|&byte| is(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The selector as `key operator values` by requirement.
    fn parsed(text: &str) -> String {
        let Wanted { selector, bounds } = parse(text).unwrap_or_else(|why| panic!("{text:?}: {why}"));
        assert!(selector.match_labels.is_empty());
        let each = selector.match_expressions.iter();
        let words = each.map(|one| {
            format!(
                "{} {:?} [{}]",
                one.key,
                one.operator,
                one.values.iter().map(|value| &**value).collect::<Vec<_>>().join("|")
            )
        });
        let bounds = bounds.iter().map(|Bound { key, above, than }| {
            format!("{key} {} {than}", if *above { "above" } else { "below" })
        });
        words.chain(bounds).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn each_form_that_kubectl_knows_is_read() {
        for (text, wanted) in [
            ("app=frontend", "app In [frontend]"),
            ("app==frontend", "app In [frontend]"),
            ("app!=frontend", "app NotIn [frontend]"),
            ("app", "app Exists []"),
            ("!app", "app DoesNotExist []"),
            ("app in (a,b)", "app In [a|b]"),
            ("app notin (a)", "app NotIn [a]"),
            (
                "app=a,tier!=b,x,!y,z in (1)",
                "app In [a]; tier NotIn [b]; x Exists []; y DoesNotExist []; z In [1]",
            ),
            ("example.com/app=A.b_c-9", "example.com/app In [A.b_c-9]"),
            ("tier>3", "tier Exists []; tier above 3"),
            ("tier < 03, app", "tier Exists []; app Exists []; tier below 3"),
        ] {
            assert_eq!(parsed(text), wanted, "{text}");
        }
    }

    #[test]
    fn white_space_between_words_does_not_matter() {
        assert_eq!(parsed(" app = a , \n! y,z\tin(1 , 2)\n"), "app In [a]; y DoesNotExist []; z In [1|2]");
    }

    #[test]
    fn a_value_may_be_empty() {
        for (text, wanted) in [
            ("app=", "app In []"),
            ("app=,tier!=", "app In []; tier NotIn []"),
            ("app in (,a)", "app In [|a]"),
            ("app in (a,)", "app In [a|]"),
            ("app in (,)", "app In [|]"),
        ] {
            assert_eq!(parsed(text), wanted, "{text}");
        }
        assert_eq!(parse("app=").unwrap().selector.match_expressions[0].values, [""]);
    }

    #[test]
    fn numbers_are_compared_as_numbers_and_nothing_else_is_one() {
        let finds = |text: &str, tier: &'static str| {
            let labels = [("tier", Str::from(tier)), ("x", Str::from("100"))].into_iter().collect();
            parse(text).unwrap().finds(&labels)
        };
        for (text, tier, found) in [
            ("tier>3", "4", true),
            ("tier>3", "10", true),
            ("tier>3", "3", false),
            ("tier<3", "2", true),
            ("tier<10", "9", true),
            ("tier<3", "3", false),
            ("tier>3,tier<9", "8", true),
            ("tier>3,tier<9", "9", false),
            ("tier>3", "four", false),
            ("tier<3", "", false),
            ("tier<3", "99999999999999999999", false),
            ("tier=3", "four", true), // the selector looks at that
            ("missing<3", "1", false),
        ] {
            assert_eq!(finds(text, tier), found, "{text}: {tier:?}");
        }
    }

    #[test]
    fn words_that_are_operators_may_be_keys_and_values() {
        assert_eq!(
            parsed("in in (in),notin notin (notin),in,!notin"),
            "in In [in]; notin NotIn [notin]; in Exists []; notin DoesNotExist []"
        );
    }

    #[test]
    fn what_is_malformed_is_named() {
        let long = "a".repeat(64);
        for (text, wanted) in [
            ("", "it names no label"),
            (" \n", "it names no label"),
            ("=a", r#""=" where the key of a label should be"#),
            (",app", "a comma where the key of a label should be"),
            ("app,", "it ends where the key of a label should be"),
            ("app,,tier", "a comma where the key of a label should be"),
            ("app frontend", r#""frontend" where =, !=, in, notin, <, >, a comma or the end should be"#),
            ("app=a b", r#""b" where a comma or the end should be"#),
            ("app=a=b", r#""=" where a comma or the end should be"#),
            ("app=(a)", r#""(" where a value should be"#),
            ("app in a", r#""a" where ( should be"#),
            ("app in (a", "it ends where a comma or ) should be"),
            ("app in (a b)", r#""b" where a comma or ) should be"#),
            ("app in ()", "() holds no value"),
            ("app in", "it ends where ( should be"),
            ("!app=a", r#""=" where a comma or the end should be"#),
            ("!!app", r#""!" where the key of a label should be"#),
            ("!", "it ends where the key of a label should be"),
            ("app>", r#""" where a whole number should be"#),
            ("app>one", r#""one" where a whole number should be"#),
            ("app<99999999999999999999", "where a whole number should be"),
            ("app<-1", r#""-1" is no value of a label"#), // kubectl takes no number below zero
            ("app>=1", r#""=" where a value should be"#),
            ("!app>1", r#"">" where a comma or the end should be"#),
            ("app/=a", r#""app/" is no key of a label"#),
            ("/app=a", r#""/app" is no key of a label"#),
            ("Example.com/app", "is no key of a label"),
            ("a/b/c", "is no key of a label"),
            ("-app", "is no key of a label"),
            ("zoë=a", "is no key of a label"),
            ("app=-a", r#""-a" is no value of a label"#),
            ("app=a.", "is no value of a label"),
            ("app=\"a\"", "is no value of a label"),
            (&format!("app={long}"), "is no value of a label"),
            (&format!("{long}=a"), "is no key of a label"),
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.starts_with(wanted) || why.contains(wanted), "{text:?}: {why}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ a-c/=!()<>,inot\\PC]{0,24}") {
            drop(parse(&text));
        }
    }
}
