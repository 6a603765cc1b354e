//! The hooks of [`hostile_hooks`] as components: each row of modules, encoded with the adapter that tools use for preview 1.
//!
//! These rows of modules have none, as the adapter hands nothing of them to the host: it traps at a call of a socket, and writes one
//! piece of a list at a time. What a component hands over by itself is in the sandbox's tests of preview 2. Those that are no hook
//! have components among them.

use std::time::{Duration, Instant};

use acceptance::api::CONFIG_MAP;
use acceptance::expected_messages;
use acceptance::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::json;

use crate::attacks::form;
use crate::attacks::measure::{health_p99, with_probes};
use crate::hostile_hooks::{self, AT_ONCE, MEMORY, MEMORY_FOR_LARGE_ANSWERS, do_no_harm};
use crate::hostile_loops;
use crate::leader_election::{flags_of_election, leases, until_leads};
use crate::scripts::until_loaded;
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

/// Components that have the host poll for them, without the adapter: a list of more pollables than there may be handles, one
/// of more than a poll may have, and as many as a poll may have, again and again.
fn polls() -> [Result<Row>; 3] {
    let polls = |entries| Ok(Code::Component(polls_of(entries)?));
    let too_many_handles = "the hook was stopped in main: it has more than 10000 handles at once";
    let too_many = expected_messages::polls("main", 9_998);
    let budget = 100_000_000;
    let used_up = expected_messages::instructions(budget, "main");
    [
        polls(60_000).map(|code| Row::fails("poll-of-many", code, too_many_handles)),
        polls(9_998).map(|code| Row::fails("poll-of-too-many", code, &too_many)),
        polls(1000).map(|code| Row::fails("poll-loop", code, &used_up).limited("instructions", budget)),
    ]
}

/// A component that polls so many pollables at once, again and again.
fn polls_of(entries: u32) -> Result<Vec<u8>> {
    Ok(wat::parse_str(POLLS.replace("ENTRIES", &entries.to_string()))?)
}

/// The leader renews its Lease every two seconds.
const MAX_SECONDS_BETWEEN_RENEWALS: f64 = 6.0;

/// A server that stops waits for its reconciles, and for no call of a hook.
const MAX_SECONDS_TO_END: f64 = 5.0;

pub(crate) async fn components_that_poll_delay_neither_lease_nor_probes_nor_the_end(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    test.store("polls", &polls_of(1000)?).await?;
    test.server().flag(AT_ONCE);
    flags_of_election(test);
    let probes = with_probes(test)?;
    test.serve()?;
    until_leads(test.server()).await?;
    for number in 0..4 {
        let row = format!("polls-{number}");
        let hook = test.hook("polls").limited("instructions", 100_000_000_000_u64).limited("timeout", "60s");
        let name = format!("{}-{row}", test.name());
        let controller = test.controller().renamed(&name).of_parents_with("row", &row);
        test.host(controller.making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
        until_loaded(test, &name).await?;
        for parent in 0..3 {
            test.create(test.parent(&format!("{row}-{parent}")).labelled("row", &row)).await?;
        }
    }
    let ((renewals, longest), health) = health_p99(probes, renewals(test)).await?;
    // The suite relaxes the bounds on times alone. It would renew the Lease six times, or thirty, and other tests run beside it.
    test.at_least("renewals of the Lease", f64::from(renewals), "renewals", form(1.0, 20.0))?;
    let longest = longest.as_secs_f64();
    test.at_most(
        "the longest time between renewals of the Lease",
        longest,
        "s",
        MAX_SECONDS_BETWEEN_RENEWALS,
    )?;
    test.at_most("p99 of /healthz", health.as_secs_f64() * 1000.0, "ms", 100.0)?;
    let start = Instant::now();
    let ended = test.server().stop().await?;
    ensure!(ended.success(), "{ended}");
    test.at_most("SIGTERM to the server's end", start.elapsed().as_secs_f64(), "s", MAX_SECONDS_TO_END)?;
    test.server().start()
}

/// How often the Lease is renewed, and the longest time in which it stays as it is.
async fn renewals(test: &Fixture) -> Result<(u32, Duration)> {
    let mut version = lease_version(test).await?;
    let (start, mut count, mut longest) = (Instant::now(), 0, Duration::ZERO);
    let mut renewed = start;
    while start.elapsed() < form(Duration::from_secs(12), Duration::from_mins(1)) {
        let now = lease_version(test).await?;
        if now != version {
            (renewed, version) = (Instant::now(), now);
            count += 1;
        }
        longest = longest.max(renewed.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok((count, longest))
}

async fn lease_version(test: &Fixture) -> Result<String> {
    let lease = leases(test).get("metacontroller").await?;
    Ok(lease["metadata"]["resourceVersion"].to_string())
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
