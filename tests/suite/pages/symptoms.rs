//! Tests of the page on troubleshooting: tests bring each symptom about, and the page's command prints the page's output.

use std::fs;
use std::path::Path;

use acceptance::fixture::Fixture;
use acceptance::paths;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, anyhow, ensure};

use crate::pages::Desk;

const PAGE: &str = "runtime/docs/src/troubleshooting.md";

/// Stands for names and numbers.
const ANYTHING: char = '…';

/// The call by which a test shows a line: a part of the line follows.
const CALL: &str = "symptoms::is_shown(";

/// A line that the page shows as printed.
struct Shown {
    symptom: String,
    command: String,
    line: String,
}

fn all_shown() -> Result<Vec<Shown>> {
    let page = fs::read_to_string(paths::workspace().join(PAGE))?;
    let (mut symptom, mut command, mut is_shown) = (String::new(), String::new(), false);
    let mut all = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut symptom);
        } else if line.starts_with("```") {
            is_shown = line == "```console";
        } else if let Some(typed) = line.strip_prefix("$ ").filter(|_| is_shown) {
            typed.clone_into(&mut command);
        } else if is_shown {
            all.push(Shown { symptom: symptom.clone(), command: command.clone(), line: line.to_owned() });
        }
    }
    Ok(all)
}

/// Whether the parts of a line are printed in its order: on one line, or anywhere in what is printed of one object.
fn is_in(line: &str, printed: &str, is_of_one_object: bool) -> bool {
    if !is_of_one_object {
        return printed.lines().any(|printed| is_in(line, printed, true));
    }
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = printed.as_str();
    line.split(ANYTHING).map(str::trim).all(|part| {
        let found = rest.split_once(part);
        rest = found.map_or("", |(_, behind)| behind);
        found.is_some()
    })
}

/// `kubectl` describes one object, the parts of a condition on lines of their own.
fn is_of_one_object(command: &str) -> bool {
    command.contains(" describe ")
}

/// The controller that the command is about.
pub(crate) fn controller(name: &str) -> [(&'static str, String); 1] {
    [("NAME", name.to_owned())]
}

/// The parent in the test's namespace that the command is about.
pub(crate) fn parent(test: &Fixture, name: &str) -> [(&'static str, String); 1] {
    parent_in(test, test.name(), name)
}

/// The parent, of the test's kind, that the command is about.
pub(crate) fn parent_in(test: &Fixture, namespace: &str, name: &str) -> [(&'static str, String); 1] {
    let (group, kind) = (&test.kind().group, &test.kind().plural);
    [("KIND NAME", format!("{kind}.{group} -n {namespace} {name}"))]
}

/// Types the command above the line of the page that has this part, with these words in place of the page's, until it prints
/// the line.
pub(crate) async fn is_shown(test: &Fixture, part: &str, words: &[(&'static str, String)]) -> Result<()> {
    let all = all_shown()?;
    let mut lines = all.iter().filter(|shown| shown.line.contains(part));
    let shown = lines.next().with_context(|| format!("{PAGE} shows no line with {part:?}"))?;
    ensure!(lines.next().is_none(), "{PAGE} shows {part:?} in two lines");
    let mut desk = Desk::new(test.plane(), &[])?;
    desk.words.extend(words.iter().cloned());
    let (command, line) = (desk.here(&shown.command), desk.here(&shown.line));
    let types = async || {
        let printed = desk.types_once(&command).await.map_err(|why| format!("{why:#}"))?;
        if is_in(&line, &printed, is_of_one_object(&command)) { Ok(()) } else { Err(printed) }
    };
    let what = format!("`{command}` prints {line:?}");
    if command.contains("rollback") {
        // Each time it puts another version back.
        return types().await.map_err(|failure| anyhow!("{what}: {failure}"));
    }
    until(&what, PATIENCE, async || Ok(types().await)).await
}

pub(crate) async fn each_line_of_the_page_on_troubleshooting_is_shown_by_a_test(
    _: &mut Fixture,
) -> Result<()> {
    let all = all_shown()?;
    let mut symptoms: Vec<_> = all.iter().map(|shown| &*shown.symptom).collect();
    symptoms.dedup();
    ensure!(symptoms.len() == 23, "the page has output of these symptoms: {symptoms:?}");
    let mut parts = Vec::new();
    find_parts(&paths::workspace().join("tests/suite"), &mut parts)?;
    for Shown { line, .. } in &all {
        let is_part = |part: &&String| !part.is_empty() && line.contains(part.as_str());
        ensure!(parts.iter().any(|part| is_part(&part)), "no test shows the line {line:?} of {PAGE}");
    }
    Ok(())
}

/// The parts of lines that tests show.
fn find_parts(folder: &Path, parts: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find_parts(&path, parts)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path)?;
            let calls = text.split(CALL).skip(1).filter_map(|call| call.split('"').nth(1));
            parts.extend(calls.map(str::to_owned));
        }
    }
    Ok(())
}
