//! Does the harness itself keep its word?

use std::path::Path;
use std::process::Stdio;

use acceptance::fixture::Fixture;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// Of a control plane whose owner is killed with -9 no process is left.
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

/// The command lines of processes that name the folder.
pub(crate) fn using(folder: &str) -> Result<Vec<String>> {
    let processes = Path::new("/proc").read_dir()?.flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    Ok(lines.filter(|line| line.contains(folder)).collect())
}
