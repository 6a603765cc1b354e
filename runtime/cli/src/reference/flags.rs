//! Reference of flags: the page of the book lists every flag of every command.

use std::fmt::Write as _;

use clap::{CommandFactory, Parser};

use crate::Cli;

/// With `BLESS=1` the page is written.
#[test]
fn reference_lists_every_flag() {
    let mut tables = String::new();
    for command in Cli::command().get_subcommands() {
        table_of_flags(command, &mut tables);
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/reference/flags.md");
    let (begin, end) = ("<!-- generated: flags -->\n", "<!-- end generated -->");
    let shown = std::fs::read_to_string(page).unwrap();
    let (head, rest) = shown.split_once(begin).unwrap();
    let (_, tail) = rest.split_once(end).unwrap();
    let expected = format!("{head}{begin}{tables}\n{end}{tail}");
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(page, expected).unwrap();
    }
    assert!(shown == expected, "{page} does not show these flags; BLESS=1 writes them:\n{tables}");
}

fn table_of_flags(command: &clap::Command, out: &mut String) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    write!(out, "\n## metahook {}\n\n{about}.\n", command.get_name()).unwrap();
    let mut last_heading = None;
    for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
        let heading = flag.get_help_heading();
        if last_heading != Some(heading) {
            let title = heading.map(|title| format!("\n### {title}\n")).unwrap_or_default();
            write!(out, "{title}\n| flag | default | meaning |\n|---|---|---|\n").unwrap();
            last_heading = Some(heading);
        }
        let value = flag.get_value_names().and_then(<[_]>::first);
        let value = value.filter(|_| flag.get_action().takes_values());
        let short = flag.get_short().map(|short| format!("-{short}"));
        let names = short.into_iter().chain(flag.get_long().map(|long| format!("--{long}")));
        let names =
            [names.collect::<Vec<_>>().join(", "), value.map(ToString::to_string).unwrap_or_default()];
        let name = names.join(" ");
        let name = name.trim().replace('|', "\\|");
        let default = flag.get_default_values().first().filter(|text| value.is_some() && !text.is_empty());
        let default = default.map(|text| format!("`{}` ", text.display())).unwrap_or_default();
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let values = flag.get_possible_values();
        let values: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        let one_of = if value.is_some() && !values.is_empty() {
            format!("{} One of {}", if help.ends_with('.') { "" } else { "." }, values.join(", "))
        } else {
            String::new()
        };
        writeln!(out, "| `{name}` | {default}| {help}{one_of} |").unwrap();
    }
}

/// Lines of a page's blocks that begin a command of the program, without what a shell does with them.
fn commands(page: &str) -> impl Iterator<Item = &str> {
    let mut is_block = false;
    let lines = page.lines().map(str::trim).filter(move |line| {
        is_block ^= line.starts_with("```");
        is_block
    });
    let shown = lines.map(|line| line.strip_prefix("$ ").unwrap_or(line));
    let parts = shown.flat_map(|line| line.split(" && ")).filter(|part| part.starts_with("metahook "));
    parts.map(|part| {
        [" |", " >", " #"]
            .iter()
            .filter_map(|end| part.split_once(end))
            .fold(part, |shortest, (begin, _)| if begin.len() < shortest.len() { begin } else { shortest })
    })
}

#[test]
fn each_command_that_the_book_shows_is_one_of_the_program() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = ["runtime/docs/src", "guests"].map(|folder| root.join(folder)).to_vec();
    let mut pages = vec![root.join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.extension() {
                Some(end) if end == "md" => pages.push(entry),
                _ if entry.is_dir() => folders.push(entry),
                _ => {}
            }
        }
    }
    let mut shown = 0;
    for path in pages {
        for command in commands(&std::fs::read_to_string(&path).unwrap()) {
            let read = Cli::try_parse_from(command.split_whitespace());
            assert!(read.is_ok(), "{}: `{command}`: {}", path.display(), read.err().unwrap());
            shown += 1;
        }
    }
    assert!(shown >= 60, "only {shown} commands are shown");
}
