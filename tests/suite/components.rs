//! Components see and reach what modules do, and nothing else: the same probes, built for preview 2.

use acceptance::fixture::Fixture;
use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::purity::{Answer, Probe, has_an_order_of_its_seed, mount, request, with_settings};

pub(crate) async fn a_component_with_a_hash_map_is_pure(_: &mut Fixture) -> Result<()> {
    has_an_order_of_its_seed(&Probe::load_component("probe_hashmap").await?).await.map(drop)
}

pub(crate) async fn a_component_that_asks_for_the_time_is_not_pure(_: &mut Fixture) -> Result<()> {
    let probe = Probe::load_component("probe_clock").await?;
    let answer = probe.call(&request(), 1, 1_000_000).await?;
    ensure!(answer.status == json!({ "seconds": 1_000_000 }), "{}", answer.status);
    ensure!(!answer.pure, "it knows what time it is");
    Ok(())
}

/// The numbers are those of its C library: 69 `rofs`, 63 `perm`, 44 `noent`.
pub(crate) async fn a_component_reads_its_mounts_and_changes_nothing(_: &mut Fixture) -> Result<()> {
    let probe = Probe::load_component("probe_files").await?;
    let expected = json!({
        "names": ["greeting", "name"],
        "content": "World",
        "end": "ld",
        "told": [5, 5, 0],
        "refused": [69, 69, 69, 69, 69, 63, 44, 44]
    });
    for seconds in [1, 2] {
        let answer = probe.call_with(&mount(), &request(), (1, seconds)).await?;
        ensure!(answer.status == expected, "{}", answer.status);
        ensure!(answer.pure, "to read is not to know the time");
    }
    Ok(())
}

pub(crate) async fn a_component_has_no_network_and_is_told_so(_: &mut Fixture) -> Result<()> {
    let probe = Probe::load_component("probe_component").await?;
    for way in ["tcp", "udp", "name"] {
        let said = failure(&probe, way).await?;
        ensure!(said.contains("; it wanted a socket, and a hook has no network"), "{way}: {said}");
        ensure!(said.contains("exited with code 1"), "{way}: {said}");
    }
    let answer = tried(&probe, "tcp, and goes on").await?;
    ensure!(answer.status["tried"] == json!(true) && answer.pure, "{}", answer.status);
    Ok(())
}

pub(crate) async fn a_component_waits_no_time_and_has_the_limits_of_a_module(_: &mut Fixture) -> Result<()> {
    let probe = Probe::load_component("probe_component").await?;
    let answer = tried(&probe, "sleep").await?;
    ensure!(answer.status["tried"] == json!(3600) && answer.pure, "{}", answer.status);
    let answer = tried(&probe, "environment").await?;
    ensure!(answer.status["tried"] == json!([["probe", "sync"], 0]), "{}", answer.status);
    let answer = tried(&probe, "log").await?;
    ensure!(answer.log.starts_with("line 0") && answer.log.len() == 64 << 10, "{} bytes", answer.log.len());
    for (way, says) in [
        ("loop", "used up its 1000000000 instructions"),
        ("memory", "of memory and may have 64Mi (limits.memory); then"),
        ("open", "resource table has no free keys"),
        ("print", "printed more than 4Mi (limits.output)"),
        ("panic", "last stderr output: it was asked for"),
    ] {
        let said = failure(&probe, way).await?;
        ensure!(said.contains(says), "{way}: {said}");
    }
    Ok(())
}

async fn tried(probe: &Probe, way: &str) -> Result<Answer> {
    probe.call_with(&mount(), &with_settings(json!(way)), (1, 1)).await
}

/// Error of a call that has to fail.
async fn failure(probe: &Probe, way: &str) -> Result<String> {
    let failed = tried(probe, way).await.err();
    Ok(format!("{:#}", failed.with_context(|| format!("{way} is allowed"))?))
}
