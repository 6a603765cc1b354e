//! Tokens of a Rust file: words and signs with their lines, without comments, texts and what only tests compile.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

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

/// Tokens of a file that are compiled into the product, and the modules that it declares for tests alone.
#[derive(Debug, Default)]
pub(super) struct Product {
    pub(super) tokens: Vec<Token>,
    pub(super) test_modules: Vec<String>,
}

pub(super) fn product(text: &str) -> Product {
    let mut all = Vec::new();
    // A file that cannot be read has no tokens: the compiler refuses it.
    flatten(text.parse().unwrap_or_default(), &mut all);
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

/// Appends the tokens of a stream, with the signs around its groups.
fn flatten(stream: TokenStream, found: &mut Vec<Token>) {
    let mut joins = false; // a `:` that belongs to the last one
    for tree in stream {
        let line = tree.span().start().line;
        let mut add = |text: String| found.push(Token { text, line });
        let last_joins = std::mem::take(&mut joins);
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                let line = group.span_close().start().line;
                add(open.to_owned());
                flatten(group.stream(), found);
                found.push(Token { text: close.to_owned(), line });
            }
            TokenTree::Punct(sign) if last_joins && sign.as_char() == ':' => {
                if let Some(last) = found.last_mut() {
                    last.text.push(':');
                }
            }
            TokenTree::Punct(sign) => {
                joins = sign.as_char() == ':' && sign.spacing() == Spacing::Joint;
                add(sign.as_char().to_string());
            }
            TokenTree::Ident(word) => add(word.to_string()),
            TokenTree::Literal(_) => {}
        }
    }
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
