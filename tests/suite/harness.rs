//! Does the harness itself keep its word?

use std::path::Path;
use std::process::Stdio;

use acceptance::api::POD;
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{is_true, uid};
use acceptance::proxy::{Moment, Proxy, Write};
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

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

/// The command lines of processes that name the folder.
pub(crate) fn using(folder: &str) -> Result<Vec<String>> {
    let processes = Path::new("/proc").read_dir()?.flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    Ok(lines.filter(|line| line.contains(folder)).collect())
}
