//! Prints what has grown: files with many lines of code, and what the deciding crate pulls in.

use std::fs;
use std::path::{Path, PathBuf};

use acceptance::paths;
use anyhow::{Context, Result};

use crate::cargo;

/// Above this a file is asked which two things it knows.
const MANY: usize = 400;

pub(crate) fn run() -> Result<()> {
    let root = paths::workspace();
    let mut files = Vec::new();
    for folder in ["runtime", "guest-sdk", "guests", "tests"] {
        rust_files(&root.join(folder), &mut files)?;
    }
    let mut sizes = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        sizes.push((code_lines(&text), file.strip_prefix(&root).unwrap_or(file)));
    }
    sizes.sort_by_key(|(lines, _)| usize::MAX - lines);
    let sum: usize = sizes.iter().map(|(lines, _)| lines).sum();
    println!("{sum} lines of code in {} files; those above {MANY}:", sizes.len());
    sizes
        .iter()
        .filter(|(lines, _)| *lines > MANY)
        .for_each(|(lines, file)| println!("  {lines} {}", file.display()));
    println!("metahook-core pulls in:");
    cargo::run(&mut cargo::cargo(&["tree", "-p", "metahook-core", "-e", "normal"]))
}

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?.flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

/// Lines that are neither empty nor a comment, without the tests at a file's end.
fn code_lines(text: &str) -> usize {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_empty_lines_and_tests_are_no_code() {
        let text = "//! Knows one.\n\nfn one() -> u8 {\n    1 // one\n}\n\n#[cfg(test)]\nmod tests {\n    fn two() {}\n}\n";
        assert_eq!(code_lines(text), 3);
    }
}
