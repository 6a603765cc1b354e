//! Check that each public item of the SDK has an example in its documentation: a code block.

use std::fs::{read_dir, read_to_string};
use std::path::Path;

const ITEMS: [&str; 6] = ["pub fn ", "pub const fn ", "pub struct ", "pub enum ", "pub trait ", "pub type "];

/// The begin and the end of an example. A link to an example elsewhere does not count.
const CODE_BLOCK: &str = "```";

/// The public items of this text whose documentation has no code block.
fn without_example(text: &str) -> Vec<&str> {
    let public = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
    let public = public.split("#[doc(hidden)]").next().unwrap_or_default();
    let (mut found, mut has_example) = (Vec::new(), false);
    for line in public.lines().map(str::trim) {
        let is_item = ITEMS.iter().any(|item| line.starts_with(item));
        if is_item && !has_example {
            found.push(line);
        }
        let is_start = is_item || line.is_empty();
        has_example = !is_start && (has_example || line.contains(CODE_BLOCK));
    }
    found
}

/// Checks the sources in a folder. Returns the number of files.
fn check(folder: &Path, found: &mut Vec<String>) -> usize {
    let mut files = 0;
    for entry in read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += check(&path, found);
        } else {
            let text = read_to_string(&path).unwrap();
            found.extend(without_example(&text).iter().map(|item| format!("{}: {item}", path.display())));
            files += 1;
        }
    }
    files
}

#[test]
fn each_public_item_has_an_example() {
    let mut found = Vec::new();
    assert!(check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found) > 10);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_item_without_an_example_is_found() {
    let text = "/// ```\n#[must_use]\npub fn a() {}\n/// See b.\npub fn b() {}\n\n/// A: see [`c`].\npub type C = u8;";
    assert_eq!(without_example(text), ["pub fn b() {}", "pub type C = u8;"]);
    assert!(without_example("#[doc(hidden)]\npub mod m {\npub fn a() {}").is_empty());
    assert!(without_example("#[cfg(test)]\nmod tests {\npub fn a() {}").is_empty());
}
