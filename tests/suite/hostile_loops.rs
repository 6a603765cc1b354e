//! Hooks that loop for as long as their limits may allow, in many controllers: a neighbour's parents converge meanwhile.

use std::time::Instant;

use acceptance::api::{CONFIG_MAP, POD};
use acceptance::expected_messages;
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::Hook;
use anyhow::{Result, ensure};

use crate::attacks::form;
use crate::hostile_hooks::{AT_ONCE, converges};
use crate::scripts::until_loaded;
use crate::wasm;

/// Seconds in which a neighbour's parent converges beside hooks that loop for [`LOOP_TIMEOUT`]: its calls wait 5 / 4 x 250 ms
/// each, and a busy machine stretches them.
const MAX_SECONDS_BESIDE_LOOPS: f64 = 10.0;

/// Seconds in which a neighbour's parent converges where all calls that may be under way loop: each of its two or three calls
/// waits for sixteen turns of 250 ms, and for the end of the longest one for at most 500 ms.
const MAX_SECONDS_BESIDE_CROWD: f64 = 30.0;

/// A server that stops waits for calls under way.
const LOOP_TIMEOUT: &str = "20s";

pub(crate) async fn many_hooks_that_loop_at_their_ceilings_take_turns(test: &mut Fixture) -> Result<()> {
    test.store("loops", &wasm::loops()?).await?;
    let hook = test.hook("loops");
    take_turns(test, hook).await
}

/// Sixteen calls may be under way where one runs at once: a neighbour's call then gets the place of the one that ran longest,
/// and waits for a turn of each of the others.
pub(crate) async fn more_hooks_that_loop_than_may_be_under_way_take_turns(test: &mut Fixture) -> Result<()> {
    test.store("loops", &wasm::loops()?).await?;
    let hook = test.hook("loops");
    test.server().flag("--hook-concurrency=1");
    loop_beside_a_neighbour(test, hook, 20, MAX_SECONDS_BESIDE_CROWD).await?;
    let log = std::fs::read_to_string(test.server().log())?;
    ensure!(log.contains(expected_messages::CROWDED_OUT), "no call gave its place to another one");
    Ok(())
}

pub(crate) async fn take_turns(test: &mut Fixture, loops: Hook) -> Result<()> {
    test.server().flag(AT_ONCE);
    loop_beside_a_neighbour(test, loops, 5, MAX_SECONDS_BESIDE_LOOPS).await
}

/// Controllers whose hooks loop for as long as their limits may allow, so that no limit of theirs ends one in time. A
/// neighbour's parents converge within `bound` seconds each.
async fn loop_beside_a_neighbour(
    test: &mut Fixture,
    loops: Hook,
    controllers: usize,
    bound: f64,
) -> Result<()> {
    test.define_kind().await?;
    test.store("good", &guest("hello")?).await?;
    test.serve()?;
    let good = test.controller().of_parents_with("row", "good").making(&POD, "Recreate");
    test.host(good.synced_by(test.hook("good"))).await?;
    converges(test, "good").await?;
    let mut names = Vec::new();
    for number in 0..controllers {
        let row = format!("loops-{number}");
        let hook =
            loops.clone().limited("instructions", 100_000_000_000_u64).limited("timeout", LOOP_TIMEOUT);
        let name = format!("{}-{row}", test.name());
        let controller = test.controller().renamed(&name).of_parents_with("row", &row);
        test.host(controller.making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
        test.create(test.parent(&row).labelled("row", &row)).await?;
        names.push(name);
    }
    for name in &names {
        until_loaded(test, name).await?;
    }
    for number in 0..form(3, 20) {
        let start = Instant::now();
        converges(test, &format!("beside-{number}")).await?;
        let took = start.elapsed().as_secs_f64();
        test.at_most("a neighbour's parent converged", took, "s", bound)?;
    }
    Ok(())
}
