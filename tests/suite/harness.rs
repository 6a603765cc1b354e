//! Does the harness itself keep its word?

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use acceptance::api::POD;
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{is_true, uid};
use acceptance::proxy::{Moment, Proxy, Write};
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use binaries::paths;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::attacks::{self, Report};

/// A control plane whose owner is killed with -9 leaves no process.
pub(crate) async fn a_control_plane_dies_with_an_owner_killed_with_9(_: &mut Fixture) -> Result<()> {
    let mut owner = Command::new(std::env::current_exe()?)
        .arg("--hold")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(owner.stdout.take().context("no pipe")?).lines();
    let folder = lines.next_line().await?.context("the owner ended without a control plane")?;
    ensure!(using(&folder)?.len() >= 3, "there should be three processes: {:?}", using(&folder)?);
    owner.kill().await?;
    until("no process of the killed owner", PATIENCE, || async {
        let left = using(&folder)?;
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join("\n")) })
    })
    .await
}

/// Before a write the API server has not got it, after it the server has not heard of it; another server goes on.
pub(crate) async fn a_server_is_held_up_at_its_writes_and_killed_there(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("hello-hook", &guest("hello")?).await?;
    let proxy = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
    test.server().reach_by(proxy.kubeconfig());
    test.serve()?;
    let hook = test.hook("hello-hook");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    test.until_controller("ready", |cc| is_true(cc, "Ready")).await?;
    let pods = format!("/api/v1/namespaces/{}/pods", test.name());
    for (name, moment, made) in [("before", Moment::Before, false), ("after", Moment::After, true)] {
        let path = pods.clone();
        proxy.hold(1, moment, move |write: &Write| write.path == path);
        test.create(test.parent(name)).await?;
        proxy.until_held().await?;
        test.server().kill().await?;
        proxy.pass();
        let held = test.pods().find(name).await?;
        ensure!(held.is_some() == made, "{moment:?}: {held:?}");
        test.server().start()?;
        test.parents().until(name, "a Pod", |parent| parent["status"]["pods"] == 1).await?;
        let (pod, answered) = (test.pods().get(name).await?, proxy.writes());
        ensure!(held.is_none_or(|held| uid(&held) == uid(&pod)), "the Pod was made twice");
        let statuses: Vec<_> =
            answered.iter().map(|write| write.status.map(|status| status.as_u16())).collect();
        ensure!(statuses == if made { vec![Some(201)] } else { vec![None, Some(201)] }, "{answered:?}");
    }
    Ok(())
}

/// An experiment that is renamed or new would not be there, and one that is gone would seem to hold.
pub(crate) async fn the_table_of_security_md_has_each_experiment_and_no_other(_: &mut Fixture) -> Result<()> {
    let text = std::fs::read_to_string(paths::workspace().join(".github/SECURITY.md"))?;
    let first_cell = |line: &str| Some(line.strip_prefix("| ")?.split_once(" | ")?.0.to_owned());
    let named: BTreeSet<_> = text.lines().filter_map(first_cell).filter(|cell| cell.contains("::")).collect();
    let titles: BTreeSet<_> = crate::experiments().iter().map(|test| test.title.to_owned()).collect();
    let (missing, gone): (Vec<_>, Vec<_>) =
        (titles.difference(&named).collect(), named.difference(&titles).collect());
    ensure!(missing.is_empty() && gone.is_empty(), "not in the table: {missing:?}; no experiments: {gone:?}");
    Ok(())
}

pub(crate) async fn a_skipped_experiment_does_not_hold(_: &mut Fixture) -> Result<()> {
    let skipped = Some("no node".to_owned());
    let report = Report { title: "a::b", took: Duration::ZERO, figures: Vec::new(), failure: None, skipped };
    let text = attacks::table(std::slice::from_ref(&report), false);
    let row = text.lines().last().context("no row")?;
    ensure!(row == "| a::b | its end |  | as it should | skipped: no node |", "{text}");
    let json: serde_json::Value = serde_json::from_str(&attacks::table(&[report], true))?;
    ensure!(json[0]["holds"] == false && json[0]["skipped"] == "no node", "{json}");
    Ok(())
}

/// The command lines of processes that name the folder.
pub(crate) fn using(folder: &str) -> Result<Vec<String>> {
    let processes = Path::new("/proc").read_dir()?.flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    Ok(lines.filter(|line| line.contains(folder)).collect())
}
