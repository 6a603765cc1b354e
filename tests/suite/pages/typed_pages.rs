//! Which pages of the book have commands, and which tests type them.

use std::collections::BTreeSet;
use std::fs;

use acceptance::fixture::Fixture;
use acceptance::paths;
use anyhow::{Context, Result, ensure};

use crate::chart::chart_node;
use crate::pages::{author_pages, operation_pages, parse};
use crate::{node, tutorial_scripts};

pub(crate) async fn each_page_with_commands_is_typed_by_a_test(_: &mut Fixture) -> Result<()> {
    let mut typed: BTreeSet<&str> = [chart_node::PAGE, chart_node::MIGRATION, node::TUTORIAL].into();
    typed.extend(author_pages::PAGES.map(|(page, _)| page));
    typed.extend(operation_pages::PAGES);
    typed.extend(tutorial_scripts::PAGES.map(|(page, _)| page));
    let mut with_commands = BTreeSet::new();
    for entry in fs::read_dir(paths::workspace().join("runtime/docs/src"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "md") && !parse(&fs::read_to_string(&path)?).is_empty() {
            let name = path.file_name().and_then(|name| name.to_str()).context("a name")?;
            with_commands.insert(name.to_owned());
        }
    }
    let with_commands: BTreeSet<&str> = with_commands.iter().map(String::as_str).collect();
    ensure!(typed == with_commands, "typed are {typed:?}, and these have commands: {with_commands:?}");
    Ok(())
}
