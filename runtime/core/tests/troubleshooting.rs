//! The page on symptoms: what its commands print is what the program says.

use std::path::Path;
use std::{fs, io};

/// `…` stands for names and numbers.
const ANYTHING: char = '…';

fn read(path: &Path, all: &mut String) -> io::Result<()> {
    let is_source = |path: &Path| path.extension().is_some_and(|end| end == "rs" || end == "py");
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, all)?;
        } else if is_source(&path) {
            all.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Lines that the page shows as printed, by the command before them.
fn printed(page: &str) -> Vec<&str> {
    let mut is_shown = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            is_shown = line == "```console";
        } else if is_shown && !line.starts_with("$ ") {
            lines.push(line);
        }
    }
    lines
}

#[test]
fn what_the_page_on_symptoms_shows_is_said_somewhere() {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(runtime.join("docs/src/troubleshooting.md")).unwrap();
    let mut sources = String::new();
    for folder in ["core/src", "src", "author/src", "cli/src", "runners/python"] {
        read(&runtime.join(folder), &mut sources).unwrap();
    }
    let sources = sources.replace("\\\"", "\"");
    let symptoms = page.lines().filter(|line| line.starts_with("## ")).count();
    assert_eq!(symptoms, 21, "twenty symptoms, and what the server logs");
    let printed = printed(&page);
    assert!(printed.len() >= 20, "{printed:?}");
    for line in printed {
        for piece in line.split(ANYTHING).map(str::trim).filter(|piece| piece.len() > 2) {
            assert!(sources.contains(piece), "{line:?}: nothing says {piece:?}");
        }
    }
}
