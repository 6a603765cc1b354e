//! The tutorial's hook in each language: what it is stored as, and what a call takes, beside the same function behind web servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use binaries::paths;

use crate::meter::Meter;
use crate::stats::{Times, micros, ratio};
use crate::{fixture, ours, verdict, webhook};

/// Each is measured once a round, so that a slow moment of the machine hits all of them.
const ROUNDS: usize = 10;

/// Observed children, and calls a round.
const SIZES: [(usize, usize); 2] = [(1, 100), (100, 20)];

/// A hook, and the most times the Rust module's time that a call may take with 1 and with 100 children.
struct Guest {
    name: &'static str,
    file: PathBuf,
    goals: Option<[f64; 2]>,
    /// The most of the instructions with 1 child.
    instructions: Option<u64>,
    peer: Option<Peer>,
    times: [Times; 2],
}

/// A hook's function behind a web server of its own.
struct Peer {
    name: &'static str,
    caller: Meter,
    _server: Meter,
    /// The most that ours may be of it.
    goal: f64,
    times: [Times; 2],
}

pub(crate) fn run() -> Result<()> {
    let mut meter = ours()?;
    let mut guests = guests()?;
    let folder = tempfile::tempdir()?;
    let requests = [fixture::write(folder.path(), SIZES[0].0)?, fixture::write(folder.path(), SIZES[1].0)?];
    for round in 0..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for guest in &mut guests {
            for (size, ((_, calls), request)) in SIZES.iter().zip(&requests).enumerate() {
                guest.round(&mut meter, size, request, *calls, round > 0)?;
            }
        }
    }
    print(&mut meter, &guests, &requests)
}

fn guests() -> Result<Vec<Guest>> {
    let guest = |name, file| Guest {
        name,
        file,
        goals: None,
        instructions: None,
        peer: None,
        times: <[Times; 2]>::default(),
    };
    let mut all = vec![
        guest("Rust, module", paths::guest("hello")?),
        guest("Rust, component", paths::component("hello")?),
    ];
    let script = |name: &str| paths::workspace().join("guests").join(name);
    let peers = paths::workspace().join("tests/bench/peers");
    if paths::runner("javascript")?.is_some() {
        let peer = Peer::start("node", "node http", peers.join("hello.mjs"), 2.0)?;
        let goals = Some([10.0, 10.0]);
        let hook = guest("JavaScript", script("hello-js/hook.js"));
        all.push(Guest { goals, instructions: Some(300_000), peer, ..hook });
    }
    if paths::runner("python")?.is_some() {
        let peer = Peer::start("python3", "python http.server", peers.join("hello.py"), 3.0)?;
        let goals = Some([60.0, 20.0]);
        let hook = guest("Python", script("hello-python/sync.py"));
        all.push(Guest { goals, instructions: Some(1_500_000), peer, ..hook });
    }
    Ok(all)
}

impl Peer {
    /// None where the language is not on this machine.
    fn start(program: &str, name: &'static str, file: PathBuf, goal: f64) -> Result<Option<Self>> {
        let asked =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !asked.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let mut server = Meter::start(Command::new(program).arg(file))?;
        let caller = Meter::start(Command::new(webhook()?).args(["call", &server.line()?]))?;
        Ok(Some(Self { name, caller, _server: server, goal, times: <[Times; 2]>::default() }))
    }
}

impl Guest {
    /// The first round warms up, and does not count.
    fn round(
        &mut self,
        meter: &mut Meter,
        size: usize,
        request: &Path,
        calls: usize,
        counts: bool,
    ) -> Result<()> {
        let request = request.display();
        let times = meter.ask(&format!("answer {} {request} {calls}", self.file.display()))?;
        if let Some(all) = self.times.get_mut(size).filter(|_| counts) {
            all.extend(times);
        }
        if let Some(peer) = &mut self.peer {
            let times = peer.caller.ask(&format!("sync {request} {calls}"))?;
            if let Some(all) = peer.times.get_mut(size).filter(|_| counts) {
                all.extend(times);
            }
        }
        Ok(())
    }
}

fn print(meter: &mut Meter, guests: &[Guest], requests: &[PathBuf; 2]) -> Result<()> {
    println!(
        "| hook | stored | packed | loaded in | first call | 1 child | 100 children | instructions | memory | pure |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let rust = guests.first().context("no guests")?;
    let mut remarks = Vec::new();
    for guest in guests {
        let [once, many] = requests
            .each_ref()
            .map(|request| meter.ask(&format!("guest {} {}", guest.file.display(), request.display())));
        let (once, many) = (Usage::of(&once?)?, Usage::of(&many?)?);
        println!("{}", guest.row(&once, &many)?);
        remarks.extend(guest.remarks(rust, &once));
    }
    println!();
    for remark in remarks {
        println!("- {remark}");
    }
    Ok(())
}

/// Figures of one call of a hook that was loaded anew.
struct Usage {
    load_us: f64,
    first_us: f64,
    instructions: u64,
    memory: u64,
    is_pure: bool,
}

impl Usage {
    fn of(answer: &Times) -> Result<Self> {
        let [load, first, instructions, memory, pure] = *answer.numbers() else { bail!("five numbers") };
        let (load_us, first_us) = (micros(load), micros(first));
        Ok(Self { load_us, first_us, instructions, memory, is_pure: pure == 1 })
    }
}

impl Guest {
    fn row(&self, once: &Usage, many: &Usage) -> Result<String> {
        let stored = fs::read(&self.file).with_context(|| self.file.display().to_string())?;
        let packed = zstd::bulk::compress(&stored, 19)?.len();
        let [small, large] = self.times.each_ref().map(Times::p50);
        Ok(format!(
            "| {} | {} B | {packed} B | {:.1} ms | {:.2} ms | {small:.0} us | {large:.0} us | {} / {} | {} KiB | {} |",
            self.name,
            stored.len(),
            once.load_us / 1e3,
            once.first_us / 1e3,
            once.instructions,
            many.instructions,
            once.memory >> 10,
            if once.is_pure { "yes" } else { "no" },
        ))
    }

    fn remarks(&self, rust: &Self, once: &Usage) -> Vec<String> {
        let mut remarks = Vec::new();
        let times = SIZES.iter().zip(&self.times).zip(&rust.times).zip(self.goals.into_iter().flatten());
        for ((((children, _), ours), theirs), goal) in times {
            let of_rust = ratio(ours.p50(), theirs.p50());
            let met = verdict(of_rust <= goal);
            remarks.push(format!(
                "{}, {children} children: {of_rust} x the Rust module [{goal}]: {met}",
                self.name
            ));
        }
        if let Some(most) = self.instructions {
            let met = verdict(once.instructions <= most);
            remarks.push(format!("{}: {} instructions [{most}]: {met}", self.name, once.instructions));
        }
        let Some(Peer { name, goal, times, .. }) = &self.peer else { return remarks };
        for (((children, _), ours), theirs) in SIZES.iter().zip(&self.times).zip(times) {
            let of_peer = ratio(ours.p50(), theirs.p50());
            let met = verdict(of_peer <= *goal);
            let theirs = theirs.p50();
            remarks.push(format!(
                "{}, {children} children: {of_peer} x {name} ({theirs:.0} us) [{goal}]: {met}",
                self.name
            ));
        }
        remarks
    }
}
