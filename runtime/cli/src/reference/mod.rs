//! Reference pages of the book that are made from the program: flags, resources, requests.
//! `BLESS=1 cargo test -p metahook --lib -- reference` writes their generated parts anew.

mod fields;
mod flags;
#[path = "../../tests/author/json_schema.rs"]
mod json_schema;
mod requests;
mod resources;

use std::fs;
use std::path::Path;

/// Compares the part of a page between its markers, or writes it.
fn compare(page: &str, part: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference").join(page);
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- generated: {part} -->\n\n"), "\n<!-- end generated -->");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{page} has no {begin}"));
    let (found, after) = rest.split_once(end).unwrap();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, [before, &begin, expected, end, after].concat()).unwrap();
    } else {
        assert!(found == expected, "{page} is not up to date, BLESS=1 writes it:\n{expected}");
    }
}

fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells = cells.iter().map(|cell| match cell.replace('|', "\\|") {
            empty if empty.is_empty() => " ".to_owned(),
            cell => format!(" {cell} "),
        });
        format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
    };
    let head: Vec<_> = columns.iter().map(|column| (*column).to_owned()).collect();
    let rows: String = rows.iter().map(|row| line(row)).collect();
    line(&head) + &"|---".repeat(columns.len()) + "|\n" + &rows
}
