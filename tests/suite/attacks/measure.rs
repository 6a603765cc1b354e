//! Measures of a server under attack: time until probes are answered, sums of its metrics, its memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use anyhow::{Context, Result, anyhow, ensure};

const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// A probe that is not answered within this time counts as one that took it.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// Probes the server again and again from a thread of its own, so that a busy test delays nothing.
struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

/// Lets the server answer probes from its next start on.
pub(crate) fn with_probes(test: &mut Fixture) -> Result<SocketAddr> {
    let address = free_address()?;
    test.server().flag(&format!("--health-probe-bind-address={address}"));
    Ok(address)
}

/// Lets the server serve metrics from its next start on.
pub(crate) fn with_metrics(test: &mut Fixture) -> Result<SocketAddr> {
    let address = free_address()?;
    test.server().flag(&format!("--metrics-address={address}"));
    Ok(address)
}

/// Result of `work`, and how long 99 of 100 GETs of a path took while it ran.
pub(crate) async fn p99_of<T>(
    address: SocketAddr,
    path: &'static str,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Duration)> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = spawn(move || {
        let mut took = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            let start = Instant::now();
            took.push(get(address, path).map_or(PROBE_TIMEOUT, |_| start.elapsed()));
            sleep(PROBE_INTERVAL);
        }
        took
    });
    let probe = Probe { stop, thread };
    let done = work.await;
    let took = probe.end()?;
    let done = done?;
    ensure!(!took.is_empty(), "no probe was sent");
    Ok((done, percentile(took, 99)))
}

/// Result of `work`, and the milliseconds that 99 of 100 GETs of `/readyz` took, which the server's main runtime
/// answers.
pub(crate) async fn runtime_p99<T>(
    address: SocketAddr,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, f64)> {
    let (done, p99) = p99_of(address, "/readyz", Box::pin(work)).await?;
    Ok((done, p99.as_secs_f64() * 1000.0))
}

/// Result of `work`, and how long 99 of 100 GETs of `/healthz` took, which has a thread of its own.
pub(crate) async fn health_p99<T>(
    address: SocketAddr,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Duration)> {
    p99_of(address, "/healthz", work).await
}

/// The sum of a metric over all of its labels.
pub(crate) fn metric(address: SocketAddr, name: &str) -> Result<f64> {
    let text = get(address, "/metrics")?;
    let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
    let lines: Vec<_> = text.lines().filter(of_name).collect();
    ensure!(!lines.is_empty(), "there is no metric {name} in\n{text}");
    let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
    lines.iter().map(|line| value(line).with_context(|| format!("no number in {line}"))).sum()
}

/// Writes of the server to the API server in this time.
pub(crate) async fn writes_per_second(metrics: SocketAddr, time: Duration) -> Result<f64> {
    let before = metric(metrics, "metahook_writes_total").unwrap_or_default();
    tokio::time::sleep(time).await;
    let after = metric(metrics, "metahook_writes_total").unwrap_or_default();
    Ok((after - before) / time.as_secs_f64())
}

/// Records the most memory that the server ever had; the bound is in MiB.
pub(crate) fn memory_at_most(test: &mut Fixture, what: &str, bound: f64) -> Result<()> {
    let most = u32::try_from(test.server().most_memory()? >> 20)?;
    test.at_most(what, most.into(), "MiB", bound)
}

impl Probe {
    fn end(self) -> Result<Vec<Duration>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_panic| anyhow!("the thread of probes panicked"))
    }
}

pub(crate) fn percentile(mut took: Vec<Duration>, percent: usize) -> Duration {
    took.sort_unstable();
    let place = (took.len() * percent).div_ceil(100).saturating_sub(1);
    took.get(place).copied().unwrap_or_default()
}

/// The page at a path: head and body.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    ensure!(page.starts_with("HTTP/1.1 200"), "{path} is answered with {page}");
    Ok(page)
}
