//! Links of Markdown files: each leads to a file that is there, and to a heading that it has. Source files and modules that
//! a page names, such as `suite/main.rs` and `core::reconcile::phase`, are there, too.

use std::collections::BTreeSet;
use std::path::Path;

/// Where the book's pages are. Outside of it nothing can be reached from a built page.
const BOOK: &str = "runtime/docs/src/";

/// One line for each link that leads nowhere, and for each page that the book's summary does not name. Paths are those
/// below the checkout.
pub(super) fn broken(files: &[(String, String)], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut listed = BTreeSet::new();
    for (file, text) in files {
        for (line, target) in links(text) {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if path.is_empty() { file.clone() } else { join(file, path) };
            let page = files.iter().find(|(name, _)| *name == path);
            let problem = if file.starts_with(BOOK) && !path.starts_with(BOOK) {
                Some("leads out of the book")
            } else if page.is_none() && !exists(&path) {
                Some("there is no such file")
            } else if !anchor.is_empty()
                && !page.is_some_and(|(_, text)| headings(text).iter().any(|id| id == anchor))
            {
                Some("there is no such heading")
            } else {
                None
            };
            found.extend(problem.map(|problem| format!("{file}:{line}: ({target}): {problem}")));
            if *file == format!("{BOOK}SUMMARY.md") {
                listed.insert(path);
            }
        }
    }
    let pages = files.iter().map(|(file, _)| file).filter(|file| file.starts_with(BOOK));
    let unlisted = pages.filter(|page| !page.ends_with("/SUMMARY.md") && !listed.contains(*page));
    found.extend(unlisted.map(|page| format!("{page}: {BOOK}SUMMARY.md does not name it")));
    found.extend(unlisted_examples(files));
    found
}

/// One line for each example with a page of its own that `README.md` does not link.
fn unlisted_examples(files: &[(String, String)]) -> Vec<String> {
    let Some((_, readme)) = files.iter().find(|(file, _)| file == "README.md") else { return Vec::new() };
    let listed: BTreeSet<String> = links(readme).into_iter().map(|(_, target)| target).collect();
    let folders = files.iter().filter_map(|(file, _)| file.strip_suffix("/README.md"));
    let examples = folders.filter(|folder| folder.starts_with("guests/") && !listed.contains(*folder));
    examples.map(|example| format!("{example}/README.md: README.md does not name it")).collect()
}

/// One line for each source file that a page names by folder and name, and that is nowhere. `files` are all of the
/// checkout. A changelog may name what was there once.
pub(super) fn unknown_names(pages: &[(String, String)], files: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (page, text) in pages.iter().filter(|(page, _)| !page.ends_with("CHANGELOG.md")) {
        for (line, name) in named_sources(text) {
            let ending = name.trim_start_matches("../");
            let is_there = |file: &String| {
                file.strip_suffix(ending).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
            };
            if !files.iter().any(is_there) {
                found.push(format!("{page}:{line}: ({name}): there is no such file"));
            }
        }
    }
    found
}

/// Where the modules of `core::`, and those of other paths, lie.
const ROOTS: [(&str, &str); 2] = [("core::", "runtime/core/src"), ("", "runtime/src")];

/// One line for each module, function or type that `ARCHITECTURE.md` names by its path, such as `core::reconcile::phase`
/// or `Reconciler::reconcile`, and that is not there. `sources` are the Rust files of the checkout with their texts.
pub(super) fn unknown_items(page: &str, text: &str, sources: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (line, code) in code_spans(text) {
        let is_path = !code.ends_with("::")
            && code.contains("::")
            && code.chars().all(|one| one.is_alphanumeric() || "_:".contains(one));
        if is_path && !is_item(code, sources) {
            found.push(format!("{page}:{line}: ({code}): there is no such module or item"));
        }
    }
    found
}

/// Whether a path leads through folders and files to something that is defined there. A path that begins with a type may
/// be anywhere.
fn is_item(path: &str, sources: &[(String, String)]) -> bool {
    let root = ROOTS.iter().find_map(|(prefix, root)| Some((path.strip_prefix(prefix)?, *root)));
    let Some((path, root)) = root else { return false };
    let (mut module, mut names) = (root.to_owned(), path.split("::").peekable());
    while let Some(name) = names.peek() {
        let below = format!("{module}/{name}");
        if !sources.iter().any(|(file, _)| is_within(file, &below)) {
            break;
        }
        module = below;
        names.next();
    }
    let starts_with_type = path.starts_with(char::is_uppercase);
    if module == root && !starts_with_type {
        return false;
    }
    let is_place =
        |file: &str| if starts_with_type { file.starts_with("runtime/") } else { is_within(file, &module) };
    names.all(|name| sources.iter().any(|(file, text)| is_place(file) && defines(text, name)))
}

/// Whether a file is a module's, or lies in its folder.
fn is_within(file: &str, module: &str) -> bool {
    file.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn defines(text: &str, name: &str) -> bool {
    ["fn", "struct", "enum", "trait", "type", "const"].iter().any(|keyword| {
        text.match_indices(&format!("{keyword} {name}")).any(|(at, matched)| {
            let next = text.get(at + matched.len()..).and_then(|rest| rest.chars().next());
            !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
        })
    })
}

/// The code in a page that is the path of a Rust file, with its lines.
fn named_sources(text: &str) -> Vec<(usize, &str)> {
    let is_rust = |code: &str| Path::new(code).extension().is_some_and(|extension| extension == "rs");
    let is_path = |code: &&str| code.contains('/') && is_rust(code) && !code.contains([' ', '*', '{', '<']);
    code_spans(text).into_iter().filter(|(_, code)| is_path(code)).collect()
}

/// What stands between backquotes outside of code blocks, with its lines.
fn code_spans(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        in_code ^= is_fence(line);
        if !in_code {
            found.extend(line.split('`').skip(1).step_by(2).map(|code| (number, code)));
        }
    }
    found
}

/// Whether a block of code begins or ends here. It may begin an item of a list.
fn is_fence(line: &str) -> bool {
    let item = line.trim_start();
    let after_number = item.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(['.', ')']);
    let inner = item
        .strip_prefix(['-', '*', '+'])
        .or(after_number.filter(|_| item.starts_with(|c: char| c.is_ascii_digit())));
    inner.filter(|inner| inner.starts_with(' ')).unwrap_or(item).trim_start().starts_with("```")
}

/// A path from the folder of a file.
fn join(file: &str, path: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Lines outside of code blocks, with code in them blanked out.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        if is_fence(line) {
            in_code = !in_code;
            return None;
        }
        let parts = line.split('`').enumerate();
        let prose = parts.map(|(part, text)| if part % 2 == 0 { text } else { "code" });
        (!in_code).then(|| (number, prose.collect()))
    })
}

/// Targets of `[text](target)` and `[name]: target` within this checkout, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let named = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
        for target in inline.chain(named) {
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number, target.trim().to_owned()));
            }
        }
    }
    found
}

/// The anchors of the headings of a file: lower case, hyphens for spaces, no other signs; the second of a name
/// ends with `-1`.
fn headings(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut names: Vec<String> = Vec::new();
    let mut ids = Vec::new();
    for line in text.lines() {
        in_code ^= is_fence(line);
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if in_code || !(1..=6).contains(&level) || !title.starts_with(' ') {
            continue;
        }
        let shown = title.split("](").enumerate().map(|(part, text)| match part {
            0 => text,
            _ => text.split_once(')').map_or("", |(_, after)| after),
        });
        let name: String = shown
            .collect::<String>()
            .trim()
            .to_lowercase()
            .chars()
            .filter(|character| character.is_alphanumeric() || "-_ ".contains(*character))
            .map(|character| if character == ' ' { '-' } else { character })
            .collect();
        let before = names.iter().filter(|other| **other == name).count();
        ids.push(if before == 0 { name.clone() } else { format!("{name}-{before}") });
        names.push(name);
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        broken(&files, |path| path == "guests/hello")
    }

    #[test]
    fn links_to_files_headings_and_folders_are_good() {
        let files = [
            (
                "README.md",
                "[a](runtime/a.md#two-words) [b](guests/hello) [c](#here)\n# Here\n[d]: tests/b.md",
            ),
            ("runtime/a.md", "## Two `words`?\n[back](../README.md) <https://x> [out](https://x/y#z)"),
            ("tests/b.md", "[up](../runtime/a.md)"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_named_with_their_line() {
        let files = [("a/b.md", "# One\n\n[x](c.md) and [y](../a/b.md#two)")];
        let expected = [
            "a/b.md:3: (c.md): there is no such file",
            "a/b.md:3: (../a/b.md#two): there is no such heading",
        ];
        assert_eq!(found(&files), expected);
    }

    #[test]
    fn code_has_no_links() {
        assert_eq!(found(&[("a.md", "`[x](y)`\n```\n[x](y)\n```\n")]), [""; 0]);
    }

    #[test]
    fn the_second_heading_of_a_name_has_a_number() {
        assert_eq!(headings("# A b\n# A-b\n```\n# no\n```\n### [C](d) e"), ["a-b", "a-b-1", "c-e"]);
    }

    #[test]
    fn a_block_of_code_may_begin_an_item_of_a_list() {
        for item in ["- ```sh", "* ```", "1. ```sh", "10) ```"] {
            let page = format!("# A\n{item}\n  # no\n  `x/y.rs` [x](y)\n  ```\n`a/b.rs` [x](a.md)\n## B\n");
            assert_eq!(headings(&page), ["a", "b"], "{item}");
            assert_eq!(named_sources(&page), [(6, "a/b.rs")], "{item}");
            assert_eq!(links(&page), [(6, "a.md".to_owned())], "{item}");
        }
        for line in ["-```", "a ```", "1```"] {
            assert!(!is_fence(line), "{line}");
        }
    }

    #[test]
    fn the_readme_links_each_example() {
        let files = [
            ("README.md", "[hello](guests/hello)"),
            ("guests/hello/README.md", ""),
            ("guests/new/README.md", ""),
        ];
        assert_eq!(found(&files), ["guests/new/README.md: README.md does not name it"]);
    }

    #[test]
    fn a_source_file_that_a_page_names_is_there() {
        let text =
            "`suite/main.rs`, `../b/c.rs`, `rows.rs` and `a b/c.rs`\n`suite/rows.rs`\n```\n`x/y.rs`\n```";
        let pages = [("a/b.md".to_owned(), text.to_owned()), ("CHANGELOG.md".to_owned(), text.to_owned())];
        let files = ["tests/suite/main.rs", "b/c.rs"].map(str::to_owned).into();
        assert_eq!(unknown_names(&pages, &files), ["a/b.md:2: (suite/rows.rs): there is no such file"]);
    }

    #[test]
    fn an_item_that_the_architecture_names_by_its_path_is_there() {
        let sources = [
            ("runtime/core/src/reconcile/phase.rs", "pub fn phase() {}"),
            ("runtime/src/queue/mod.rs", "struct Queue; fn start_workers() {}"),
        ]
        .map(|(file, text)| (file.to_owned(), text.to_owned()));
        let good = "`core::reconcile` `core::reconcile::phase` `core::reconcile::phase::phase` `queue::Queue` `Queue::start_workers`";
        assert_eq!(unknown_items("a.md", good, &sources), [""; 0]);
        let bad = "`reconcile::phase` `queue::phase` `queue::start` `Parents::pop` `--a::b` `core::`";
        let named = |name| format!("a.md:1: ({name}): there is no such module or item");
        let expected = ["reconcile::phase", "queue::phase", "queue::start", "Parents::pop"].map(named);
        assert_eq!(unknown_items("a.md", bad, &sources), expected);
    }

    #[test]
    fn a_page_of_the_book_is_in_its_summary_and_stays_in_the_book() {
        let files = [
            ("README.md", ""),
            ("runtime/docs/src/SUMMARY.md", "- [A](a.md)"),
            ("runtime/docs/src/a.md", "[b](b.md) [readme](../../../README.md)"),
            ("runtime/docs/src/b.md", ""),
        ];
        let expected = [
            "runtime/docs/src/a.md:1: (../../../README.md): leads out of the book",
            "runtime/docs/src/b.md: runtime/docs/src/SUMMARY.md does not name it",
        ];
        assert_eq!(found(&files), expected);
    }
}
