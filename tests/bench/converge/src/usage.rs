//! Usage of the machine by a process, and whether the machine has time.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::sleep;

/// The kernel tells times of processes in hundredths of a second.
const TICK: f64 = 0.01;

/// Seconds of CPU, of the process and of the kernel for it.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').context("no program name in stat")?.1;
    let ticks = |nth: usize| -> Result<f64> {
        Ok(fields.split_whitespace().nth(nth).context("stat is too short")?.parse()?)
    };
    Ok((ticks(11)? + ticks(12)?) * TICK)
}

/// Nanoseconds of CPU by thread: finer than [`cpu_seconds`], but threads that end take theirs with them.
pub(crate) fn cpu_of_threads(pid: u32) -> Result<BTreeMap<String, u64>> {
    let mut threads = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let Ok(stat) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        let time = stat.split_whitespace().next().context("schedstat is empty")?.parse()?;
        threads.insert(task.file_name().to_string_lossy().into_owned(), time);
    }
    Ok(threads)
}

/// Nanoseconds between two looks at the same threads; new ones began at nothing.
pub(crate) fn between(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> u64 {
    after.iter().map(|(thread, now)| now.saturating_sub(before.get(thread).copied().unwrap_or(0))).sum()
}

/// Megabytes (10^6) that the process has in memory.
pub(crate) fn memory_mb(pid: u32) -> Result<f64> {
    megabytes(pid, "VmRSS:")
}

/// Megabytes (10^6) of the process, of which those that it shares with others count for each by its part.
pub(crate) fn proportional_mb(pid: u32) -> Result<f64> {
    megabytes_in(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// The most megabytes (10^6) that it ever had.
pub(crate) fn peak_mb(pid: u32) -> Result<f64> {
    megabytes(pid, "VmHWM:")
}

fn megabytes(pid: u32, what: &str) -> Result<f64> {
    megabytes_in(&format!("/proc/{pid}/status"), what)
}

#[expect(clippy::cast_precision_loss, reason = "whole kilobytes")]
fn megabytes_in(file: &str, what: &str) -> Result<f64> {
    let status = read(file)?;
    let found = status.lines().find_map(|line| line.strip_prefix(what));
    let line = found.with_context(|| format!("the kernel tells no {what}"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok((kib * 1024) as f64 / 1e6)
}

/// Waits until what was done before has no consequences any more; says so where another program keeps the machine busy.
pub(crate) async fn quiet() -> Result<()> {
    const LOOK: Duration = Duration::from_millis(500);
    for _ in 0..40 {
        let before = busy_and_all()?;
        sleep(LOOK).await;
        let after = busy_and_all()?;
        let (busy, all) = (after.0 - before.0, after.1 - before.1);
        if busy * 8 <= all {
            return Ok(());
        }
    }
    eprintln!("the machine is busy with something else: figures are rough");
    Ok(())
}

/// Ticks of all processors.
fn busy_and_all() -> Result<(u64, u64)> {
    let stat = read("/proc/stat")?;
    let line =
        stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).context("no cpu in /proc/stat")?;
    let ticks: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let all = ticks.iter().take(8).sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Ok((all - idle, all))
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {file}"))
}
