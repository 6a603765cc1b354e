//! The tutorial's hook in each language: what is stored of it, and what a call takes, beside the same function behind web
//! servers.

mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use binaries::paths;
use metahook_author::pack::{PackTarget, optimize, pack};
use metahook_core::api::hook::Language;

use self::report::{Figures, Report, Row, machine};
use crate::meter::Meter;
use crate::stats::{Times, micros, ratio};
use crate::{fixture, ours, webhook};

/// Each is measured once a round, so that a slow moment of the machine hits all of them.
const ROUNDS: usize = 10;

/// Observed children, and calls a round.
const SIZES: [(usize, usize); 2] = [(1, 100), (100, 20)];

/// So often a hook is loaded anew; medians are printed.
const LOADS: usize = 5;

/// A hook that is called in the sandbox.
struct Guest {
    name: &'static str,
    file: PathBuf,
    times: [Times; 2],
}

/// A hook's function behind a web server of its own.
struct Peer {
    name: &'static str,
    /// The path that requests are sent to.
    path: &'static str,
    caller: Meter,
    _server: Meter,
    times: [Times; 2],
}

pub(crate) fn run(json: bool) -> Result<()> {
    let mut meter = ours()?;
    eprintln!("compiling the interpreters");
    meter.ask("runners")?;
    let (mut guests, mut left_out) = guests()?;
    let mut peers = peers(&mut left_out)?;
    let folder = tempfile::tempdir()?;
    let requests = [fixture::write(folder.path(), SIZES[0].0)?, fixture::write(folder.path(), SIZES[1].0)?];
    for round in 0..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for ((size, (_, calls)), request) in SIZES.iter().enumerate().zip(&requests) {
            // The first round warms up, and does not count.
            let counts = round > 0;
            for guest in &mut guests {
                let question = format!("answer {} {} {calls}", guest.file.display(), request.display());
                count(&mut guest.times, size, counts, meter.ask(&question)?);
            }
            for peer in &mut peers {
                let question = format!("{} {} {calls}", peer.path, request.display());
                count(&mut peer.times, size, counts, peer.caller.ask(&question)?);
            }
        }
    }
    let hooks = guests.iter().map(|guest| guest.row(&mut meter, &requests)).collect::<Result<Vec<_>>>()?;
    let servers = peers.iter().map(|peer| Row::of_server(peer.name, peer.times.each_ref().map(Times::p50)));
    let rows = hooks.into_iter().chain(servers).collect();
    let report = Report::new(machine(), rows, left_out);
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.table());
    }
    Ok(())
}

fn count(times: &mut [Times; 2], size: usize, counts: bool, more: Times) {
    if let Some(times) = times.get_mut(size).filter(|_| counts) {
        times.extend(more);
    }
}

/// The hooks that are here, and the names of the others.
fn guests() -> Result<(Vec<Guest>, Vec<&'static str>)> {
    let script = |language: &str, file: &str| -> Result<Option<PathBuf>> {
        Ok(paths::runner(language)?.map(|_| paths::workspace().join("guests").join(file)))
    };
    let candidates = [
        ("Rust, module", Some(paths::guest("hello")?)),
        ("Rust, component", Some(paths::component("hello")?)),
        ("C, module", paths::guest("hello_c").ok()),
        ("Go, module", Some(paths::guest("hello_go")?)),
        ("JavaScript", script("javascript", "hello-js/hook.js")?),
        ("Python", script("python", "hello-python/sync.py")?),
    ];
    let (mut guests, mut left_out) = (Vec::new(), Vec::new());
    for (name, file) in candidates {
        match file {
            Some(file) => guests.push(Guest { name, file, times: <[Times; 2]>::default() }),
            None => left_out.push(name),
        }
    }
    Ok((guests, left_out))
}

fn peers(left_out: &mut Vec<&'static str>) -> Result<Vec<Peer>> {
    let scripts = paths::workspace().join("tests/bench/peers");
    let mut go = Command::new(webhook()?);
    go.arg("serve");
    let mut peers = vec![Peer::start(report::GO_SERVER, "unread", &mut go)?];
    for (name, program, script) in
        [(report::NODE_SERVER, "node", "hello.mjs"), (report::PYTHON_SERVER, "python3", "hello.py")]
    {
        if is_here(program) {
            peers.push(Peer::start(name, "sync", Command::new(program).arg(scripts.join(script)))?);
        } else {
            left_out.push(name);
        }
    }
    Ok(peers)
}

fn is_here(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

impl Peer {
    fn start(name: &'static str, path: &'static str, server: &mut Command) -> Result<Self> {
        let mut server = Meter::start(server)?;
        let caller = Meter::start(Command::new(webhook()?).args(["call", &server.line()?]))?;
        Ok(Self { name, path, caller, _server: server, times: <[Times; 2]>::default() })
    }
}

impl Guest {
    fn row(&self, meter: &mut Meter, requests: &[PathBuf; 2]) -> Result<Row> {
        let mut loads = Vec::new();
        for _ in 0..LOADS {
            loads.push(Usage::ask(meter, &self.file, &requests[0])?);
        }
        let (once, many) = (loads.first().context("no loads")?, Usage::ask(meter, &self.file, &requests[1])?);
        let (stored_bytes, packed_bytes) = sizes(&self.file)?;
        let figures = Figures {
            stored_bytes,
            packed_bytes,
            compile_ms: median_ms(&loads, |usage| usage.load),
            first_call_ms: median_ms(&loads, |usage| usage.first_call),
            instructions: [once.instructions, many.instructions],
            memory_bytes: [once.memory, many.memory],
            is_pure: once.is_pure && many.is_pure,
        };
        Ok(Row::of_hook(self.name, self.times.each_ref().map(Times::p50), figures))
    }
}

/// Bytes of a hook's file, and those that `metahook pack` stores of it: a script stays text.
fn sizes(file: &Path) -> Result<(usize, usize)> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    if Language::of_file(&file.to_string_lossy()).is_some() {
        return Ok((bytes.len(), bytes.len()));
    }
    let place =
        PackTarget { name: "hello".to_owned(), namespace: "hello".to_owned(), key: "hook.wasm".to_owned() };
    let (small, _) = optimize(Path::new("wasm-opt"), &bytes)?;
    Ok((bytes.len(), pack(&small, &place)?.stored))
}

/// Figures of a hook that was loaded anew, and of its first call; nanoseconds and bytes.
struct Usage {
    load: u64,
    first_call: u64,
    instructions: u64,
    memory: u64,
    is_pure: bool,
}

impl Usage {
    fn ask(meter: &mut Meter, hook: &Path, request: &Path) -> Result<Self> {
        let answer = meter.ask(&format!("guest {} {}", hook.display(), request.display()))?;
        let [load, first_call, instructions, memory, pure] = *answer.numbers() else {
            bail!("the meter answered with other than five numbers")
        };
        Ok(Self { load, first_call, instructions, memory, is_pure: pure == 1 })
    }
}

fn median_ms(loads: &[Usage], of: impl Fn(&Usage) -> u64) -> f64 {
    let mut all: Vec<u64> = loads.iter().map(of).collect();
    all.sort_unstable();
    all.get(all.len() / 2).map_or(0.0, |median| ratio(micros(*median), 1000.0))
}
