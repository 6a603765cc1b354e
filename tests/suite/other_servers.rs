//! Servers that host the same controllers without an election notice each other, and say so until one is gone.

use std::net::SocketAddr;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{Hook, condition, config_map, has_condition, is_true};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::Webhook;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::attacks::measure::metric;
use crate::pages::symptoms;

const NOTICED: &str = "another server hosts the same controllers";

async fn until_others(metrics: SocketAddr, count: f64) -> Result<()> {
    until(&format!("{count} other servers"), PATIENCE, async || {
        let others = metric(metrics, "metahook_other_servers").unwrap_or(-1.0);
        Ok(if others.total_cmp(&count).is_eq() { Ok(()) } else { Err(others.to_string()) })
    })
    .await
}

pub(crate) async fn a_second_server_with_the_same_controllers_is_told_of_until_it_is_gone(
    test: &mut Fixture,
) -> Result<()> {
    let hook = Webhook::answering(json!({ "children": [config_map("child", json!({}), json!({}))] })).await?;
    test.define_kind().await?;
    let mut second = test.second_server();
    let log = test.plane().logs().join(format!("{}-stranger.log", test.name()));
    let mut stranger = test.server().another(&log).only("metahook-test=stranger");
    let metrics = [free_address()?, free_address()?, free_address()?];
    let flag = |at: usize| format!("--metrics-address={}", metrics[at]);
    test.server().flag(&flag(0));
    second.flag(&flag(1));
    stranger.flag(&flag(2));
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(Hook::webhook(&hook.url("/"))))
        .await?;
    let alone = |cc: &Value| is_true(cc, "Ready") && condition(cc, "SingleWriter").is_none();
    test.until_controller("ready, and alone", alone).await?;

    stranger.start()?;
    second.start()?;
    for server in [&metrics[0], &metrics[1]] {
        until_others(*server, 1.0).await?;
    }
    let told = |cc: &Value| has_condition(cc, "SingleWriter", "False", "OtherServer");
    test.until_controller("told of", told).await?;
    symptoms::is_shown(test, "SingleWriter", &symptoms::controller(test.name())).await?;
    test.server().until_log("the warning", |log| log.contains(NOTICED)).await?;
    second.until_log("the other's warning", |log| log.contains(NOTICED)).await?;
    // It hosts controllers with other labels.
    until_others(metrics[2], 0.0).await?;

    second.stop().await?;
    until_others(metrics[0], 0.0).await?;
    test.until_controller("alone again", alone).await?;
    let warnings =
        |log: &str| log.lines().filter(|line| line.contains("WARN") && line.contains(NOTICED)).count();
    let healed = |log: &str| log.contains("no other server hosts the same controllers any more");
    let log = test.server().until_log("that it is gone", healed).await?;
    ensure!(warnings(&log) == 1, "{} warnings", warnings(&log));
    stranger.stop().await?;
    Ok(())
}
