//! Structs with many fields: a struct that knows two things is two structs.

use super::tokens::{Token, product};

const MAX_FIELDS: usize = 10;

/// Flags and images of JSON have the fields that users or Kubernetes give them.
const IMAGES: [&str; 3] = ["Args", "Serialize", "Deserialize"];

/// Structs that have more fields all the same: file, name, and why.
const EXCEPTIONS: [(&str, &str, &str); 5] = [
    ("runtime/core/src/api/common.rs", "CheckedCommon", "the settings of a spec"),
    ("runtime/core/src/reconcile/config.rs", "ControllerConfig", "the settings of a controller"),
    ("runtime/core/src/object/mod.rs", "ObjectMeta", "the image of Kubernetes' metadata"),
    ("runtime/core/src/api/status/report.rs", "Report", "the image of a controller's status"),
    ("runtime/src/server.rs", "Settings", "the settings of the server"),
];

/// Structs that have too many fields, and exceptions that are needed no longer. `files`: the path and the text of each.
pub(super) fn problems(files: &[(String, String)]) -> Vec<String> {
    let large: Vec<_> = files.iter().flat_map(|(path, text)| large(path, text)).collect();
    let is = |one: &Large, (path, name, _): &(&str, &str, &str)| one.path == *path && one.name == *name;
    let is_exception = |one: &&Large| EXCEPTIONS.iter().any(|exception| is(one, exception));
    let others = large.iter().filter(|one| !is_exception(one)).map(|Large { path, line, name, fields }| {
        format!("{path}:{line}: {name} has {fields} fields, and {MAX_FIELDS} are allowed")
    });
    let unused = EXCEPTIONS.iter().filter(|exception| !large.iter().any(|one| is(one, exception)));
    let unused = unused.map(|(path, name, _)| format!("{path}: {name} needs no exception any more"));
    others.chain(unused).collect()
}

/// A struct with more fields than are allowed.
struct Large {
    path: String,
    line: usize,
    name: String,
    fields: usize,
}

fn large(path: &str, text: &str) -> Vec<Large> {
    let tokens = product(text).tokens;
    let mut found = Vec::new();
    let mut derived: Vec<&str> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let rest = tokens.get(at..).unwrap_or_default();
        if token.is("derive") {
            derived.extend(rest.iter().take_while(|it| !it.is("]")).map(|it| it.text.as_str()));
        } else if token.is("enum") || token.is("fn") || token.is("impl") {
            derived.clear();
        } else if token.is("struct") {
            let name = rest.get(1).map_or("", |it| it.text.as_str());
            let fields = fields(rest);
            if fields > MAX_FIELDS && !IMAGES.iter().any(|image| derived.contains(image)) {
                found.push(Large { path: path.to_owned(), line: token.line, name: name.to_owned(), fields });
            }
            derived.clear();
        }
    }
    found
}

/// The number of named fields of the struct that the tokens begin with.
fn fields(tokens: &[Token]) -> usize {
    let open = tokens.iter().position(|it| it.is("{"));
    let end = tokens.iter().position(|it| it.is(";"));
    let Some(open) = open.filter(|open| end.is_none_or(|end| *open < end)) else { return 0 };
    let (mut depth, mut fields) = (0_usize, 0);
    for token in tokens.get(open..).unwrap_or_default() {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            // The `:` of a type is within parentheses or generics, which have no single `:` in a field's type.
            ":" if depth == 1 => fields += 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_fields(head: &str, fields: usize) -> Vec<String> {
        let field = |nth| format!("#[doc = \"a\"] pub f{nth}: std::sync::Arc<(u8, [u8; 2])>,\n");
        let fields: String = (0..fields).map(field).collect();
        let file = format!("use std::fmt;\n{head} {{\n{fields}}}\nstruct Empty;\nfn f() {{}}");
        problems(&[("a.rs".to_owned(), file)]).into_iter().filter(|it| it.starts_with("a.rs")).collect()
    }

    #[test]
    fn a_struct_with_too_many_fields_is_named() {
        let message = "a.rs:2: Large has 11 fields, and 10 are allowed";
        assert_eq!(with_fields("#[derive(Debug)] pub(crate) struct Large<T>", MAX_FIELDS + 1), [message]);
        assert!(with_fields("struct Large", MAX_FIELDS).is_empty());
        assert_eq!(with_fields("struct Settings", MAX_FIELDS + 1).len(), 1, "it is another one");
    }

    #[test]
    fn flags_and_images_may_have_more() {
        for head in
            ["#[derive(Debug, Args)] struct A", "#[derive(Serialize)]\n#[derive(Debug)]\npub struct B"]
        {
            assert!(with_fields(head, MAX_FIELDS + 1).is_empty(), "{head}");
        }
        let of_another = "#[derive(Serialize)] enum E { A } struct Large";
        assert_eq!(with_fields(of_another, MAX_FIELDS + 1).len(), 1);
    }

    #[test]
    fn an_exception_that_is_needed_no_longer_is_named() {
        let unused = problems(&[]);
        assert_eq!(unused.len(), EXCEPTIONS.len());
        assert!(unused[0].ends_with("CheckedCommon needs no exception any more"), "{unused:?}");
    }
}
