//! Tokens of a Rust file: words and signs with their lines, without comments, texts and what only tests compile.

/// A word, `::`, or one sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

impl Token {
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(|first: char| first.is_alphabetic() || first == '_')
    }
}

/// What of a file is compiled into the product, and the modules that it declares for tests alone.
#[derive(Debug, Default)]
pub(super) struct Product {
    pub(super) tokens: Vec<Token>,
    pub(super) test_modules: Vec<String>,
}

pub(super) fn product(text: &str) -> Product {
    let all = tokens(&blanked(text));
    let mut product = Product::default();
    let mut at = 0;
    while let Some(token) = all.get(at) {
        let rest = all.get(at..).unwrap_or_default();
        if opens(rest, &["#", "!", "[", "cfg", "(", "test", ")", "]"]) {
            return Product::default();
        }
        if opens(rest, &["#", "[", "cfg", "(", "test", ")", "]"]) {
            let item = item(rest);
            product.test_modules.extend(declared_module(item));
            at += item.len();
        } else {
            product.tokens.push(token.clone());
            at += 1;
        }
    }
    product
}

fn opens(tokens: &[Token], with: &[&str]) -> bool {
    tokens.len() >= with.len() && tokens.iter().zip(with).all(|(token, text)| token.is(text))
}

/// An item with its attributes: to its `;`, to the end of its braces, or, for a field or an arm, to its `,`.
fn item(tokens: &[Token]) -> &[Token] {
    let mut depth = 0_usize;
    let mut generics = 0_usize;
    let mut last = "";
    for (at, token) in tokens.iter().enumerate() {
        let text = token.text.as_str();
        let arrow = text == ">" && matches!(last, "-" | "=");
        match text {
            ")" | "]" | "}" if depth == 0 => return tokens.get(..at).unwrap_or_default(),
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "<" => generics += 1,
            ">" if !arrow => generics = generics.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (matches!(text, ";" | "}") || text == "," && generics == 0) {
            return tokens.get(..=at).unwrap_or_default();
        }
        last = text;
    }
    tokens
}

/// `name` of `mod name;`.
fn declared_module(item: &[Token]) -> Option<String> {
    let [.., keyword, name, end] = item else {
        return None;
    };
    (keyword.is("mod") && end.is(";")).then(|| name.text.clone())
}

fn tokens(code: &str) -> Vec<Token> {
    let mut found: Vec<Token> = Vec::new();
    let mut line = 1;
    let mut joins = false; // the next character belongs to the last token
    for character in code.chars() {
        let in_word = character.is_alphanumeric() || character == '_';
        let last = found.last_mut().filter(|_| joins);
        match last {
            Some(last) if in_word && last.is_word() => last.text.push(character),
            Some(last) if character == ':' && last.is(":") => last.text.push(character),
            _ if character.is_whitespace() => {}
            _ => found.push(Token { text: character.into(), line }),
        }
        joins = !character.is_whitespace();
        line += usize::from(character == '\n');
    }
    found
}

/// The code with spaces in place of comments, texts and characters; lines stay.
fn blanked(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_word = code.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let length = if in_word && first == 'r' { 0 } else { literal(rest).unwrap_or(0) };
        if length == 0 {
            code.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        }
        let (gone, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        code.push(' ');
        code.extend(gone.chars().filter(|character| *character == '\n'));
        code.push(' ');
        rest = after;
    }
    code
}

/// The length of the comment, text or character that the code begins with.
fn literal(code: &str) -> Option<usize> {
    let to_end = |end: &str, from: usize| {
        let found = code.get(from..).and_then(|rest| rest.find(end));
        found.map_or(code.len(), |at| from + at + end.len())
    };
    if code.starts_with("//") {
        return Some(to_end("\n", 2) - 1);
    }
    if code.starts_with("/*") {
        return Some(to_end("*/", 2));
    }
    if let Some(raw) = code.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        return raw.trim_start_matches('#').starts_with('"').then(|| to_end(&end, hashes + 2));
    }
    match code.chars().next() {
        Some('"') => Some(escaped(code, '"')),
        Some('\'') => {
            let mut next = code.chars().skip(1);
            let second = next.next()?;
            let third = next.next()?;
            (second == '\\' || third == '\'').then(|| escaped(code, '\'')) // else a lifetime
        }
        _ => None,
    }
}

/// The length of a text in quotes, in which a backslash protects what follows.
fn escaped(code: &str, quote: char) -> usize {
    let mut protected = false;
    for (at, character) in code.char_indices().skip(1) {
        if character == quote && !protected {
            return at + 1;
        }
        protected = character == '\\' && !protected;
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &str) -> Vec<String> {
        product(code).tokens.into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_literals_are_no_tokens() {
        let code = r##"
            use a::b; // use c
            /* use d; */ let x: &'static str = "use \" e"; let y = r#"use " f"#; let z = ['"', '\'', 'g'];
        "##;
        let expected = "use a :: b ; let x : & ' static str = ; let y = ; let z = [ , , ] ;";
        assert_eq!(texts(code).join(" "), expected);
    }

    #[test]
    fn lines_are_counted_through_comments_and_texts() {
        let tokens = product("/* 1\n 2 */\nlet a = \"4\n5\";\nb").tokens;
        let last = tokens.last().unwrap();
        assert_eq!((last.text.as_str(), last.line), ("b", 5));
    }

    #[test]
    fn items_for_tests_are_left_out_and_their_modules_named() {
        let code = "#[cfg(test)] mod laws; mod real; #[cfg(test)] #[allow(x)] mod tests { fn a() { b } } c
            #[cfg(test)] use d; e";
        let product = product(code);
        assert_eq!(product.test_modules, ["laws"]);
        let texts: Vec<_> = product.tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts, ["mod", "real", ";", "c", "e"]);
    }

    #[test]
    fn fields_and_arms_for_tests_end_where_they_end() {
        let code = "struct A { #[cfg(test)] a: B<C, D>, b: E } match f { #[cfg(test)] g => h(i, j), k => { #[cfg(test)] l } } m";
        assert_eq!(texts(code).join(" "), "struct A { b : E } match f { k = > { } } m");
    }

    #[test]
    fn a_file_for_tests_has_no_tokens() {
        assert!(texts("//! Tests.\n#![cfg(test)]\nuse super::a;").is_empty());
    }
}
