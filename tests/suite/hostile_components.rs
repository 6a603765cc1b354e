//! The hooks of [`hostile_hooks`] as components: each row of modules, encoded with the adapter that tools use for preview 1.
//!
//! These rows of modules have none, as the adapter hands nothing of them to the host: it traps at a call of a socket, and writes one
//! piece of a list at a time. What a component hands over by itself is in the sandbox's tests of preview 2. Those that are no hook
//! have components among them.

use acceptance::expected_messages;
use acceptance::fixture::Fixture;
use anyhow::Result;
use serde_json::json;

use crate::hostile_hooks::{self, MEMORY, MEMORY_FOR_LARGE_ANSWERS, do_no_harm};
use crate::hostile_loops;
use crate::table::{Code, Row};
use crate::wasm;

/// Polls again and again.
const POLLS: &str = include_str!("polls.wat");

/// Rows of modules alone.
const OF_MODULES: [&str; 5] =
    ["socket-flood", "pieces", "empty-pieces", "pieces-without-end", "piece-without-end"];

fn component(row: Row) -> Result<Row> {
    let row = row.into_component()?;
    Ok(match row.name {
        // Preview 2 knows no other code of a failure.
        "exit" | "last-words" => row.but_fails(&expected_messages::exit(1)),
        // The adapter's table counts, too.
        "table-bomb" => row.but_fails("the hook wanted a table of 500"),
        // The adapter has 128 descriptors; 48: it has no memory for more.
        "opens" => row.but_answers(json!({ "hundreds": "01", "error": "48" })),
        _ => row,
    })
}

async fn components_do_no_harm(test: &mut Fixture, rows: Result<Vec<Row>>, memory: f64) -> Result<()> {
    do_no_harm(test, &components(rows)?, memory).await
}

fn components(rows: Result<Vec<Row>>) -> Result<Vec<Row>> {
    rows?.into_iter().filter(|row| !OF_MODULES.contains(&row.name)).map(component).collect()
}

pub(crate) async fn components_that_run_wild_do_no_harm(test: &mut Fixture) -> Result<()> {
    components_do_no_harm(test, hostile_hooks::wild(), MEMORY).await
}

pub(crate) async fn many_components_that_loop_at_their_ceilings_take_turns(test: &mut Fixture) -> Result<()> {
    test.store("loops", &wasm::component_of(&wasm::loops()?)?).await?;
    let hook = test.hook("loops");
    hostile_loops::take_turns(test, hook).await
}

pub(crate) async fn components_that_keep_the_host_busy_do_no_harm(test: &mut Fixture) -> Result<()> {
    let mut rows = components(hostile_hooks::busy_host())?;
    for row in polls() {
        rows.push(row?);
    }
    do_no_harm(test, &rows, MEMORY).await
}

/// Components that have the host poll for them, without the adapter: a list of more pollables than there may be, and as many
/// as there may be without an end.
fn polls() -> [Result<Row>; 2] {
    let polls = |entries: &str| Ok(Code::Component(wat::parse_str(POLLS.replace("ENTRIES", entries))?));
    let too_many =
        "the hook was stopped in main: it polls 60000 pollables at once and may poll 1000: poll fewer";
    let budget = 100_000_000;
    let used_up = expected_messages::instructions(budget, "main");
    [
        polls("60000").map(|code| Row::fails("poll-of-many", code, too_many)),
        polls("1000").map(|code| Row::fails("poll-loop", code, &used_up).limited("instructions", budget)),
    ]
}

pub(crate) async fn answers_of_components_that_are_none_do_no_harm(test: &mut Fixture) -> Result<()> {
    components_do_no_harm(test, hostile_hooks::no_answers(), MEMORY).await
}

pub(crate) async fn answers_of_components_that_are_too_large_do_no_harm(test: &mut Fixture) -> Result<()> {
    let rows = hostile_hooks::large_answers(test);
    components_do_no_harm(test, rows, MEMORY_FOR_LARGE_ANSWERS).await
}

pub(crate) async fn components_that_look_around_find_nothing(test: &mut Fixture) -> Result<()> {
    components_do_no_harm(test, hostile_hooks::looks_around(&[]), MEMORY).await
}

pub(crate) async fn components_can_read_their_mounts_and_do_nothing_else_there(
    test: &mut Fixture,
) -> Result<()> {
    hostile_hooks::mounts(test).await?;
    components_do_no_harm(test, hostile_hooks::reads_mounts(), MEMORY).await
}
