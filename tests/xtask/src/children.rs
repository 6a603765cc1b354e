//! Signals for child processes: Ctrl-C, or a signal to xtask alone, ends all that xtask has started.

use std::fs;
use std::process::{self, Command, ExitStatus};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The signal that came; 0 before one came.
static SIGNAL: AtomicU8 = AtomicU8::new(0);

/// The signal that ends xtask, if one came.
pub(crate) fn interrupted() -> Option<u8> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// From now on the first signal is passed on to all child processes, and xtask ends when they have; the second one ends
/// xtask at once.
pub(crate) fn end_on_signals() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen to signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            let number = u8::try_from(signal).unwrap_or_default();
            if SIGNAL.swap(number, Ordering::Relaxed) != 0 {
                leave(number);
            }
            eprintln!("\nending what runs; once more to leave at once");
            pass_on(number);
        }
    });
    Ok(())
}

/// Runs it to its end.
pub(crate) fn wait(command: &mut Command) -> Result<ExitStatus> {
    ensure!(interrupted().is_none(), "interrupted");
    command.status().with_context(|| format!("cannot run {}", command.get_program().display()))
}

#[expect(clippy::exit, reason = "the main thread waits for a child")]
fn leave(signal: u8) -> ! {
    process::exit(128 + i32::from(signal))
}

/// By the shell's own `kill`: a terminal's Ctrl-C reaches them anyway, a signal to xtask alone does not.
fn pass_on(signal: u8) {
    let processes: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Process::parse(&fs::read_to_string(entry.path().join("stat")).ok()?))
        .collect();
    let script = format!("kill -s {signal} \"$@\" 2>/dev/null");
    let mut kill = Command::new("/bin/sh");
    kill.args(["-c", &script, "kill"]);
    kill.args(descendants(process::id(), &processes).iter().map(u32::to_string));
    drop(kill.status()); // a process that has ended meanwhile is no error
}

/// One line of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    group: u32,
}

impl Process {
    fn parse(stat: &str) -> Option<Self> {
        let (pid, _) = stat.split_once(" (")?;
        let (_, rest) = stat.rsplit_once(") ")?; // a name may have parentheses
        let mut fields = rest.split(' ').skip(1);
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        Some(Self { pid: pid.parse().ok()?, parent, group })
    }
}

/// Without process groups that a child has made: it ends those itself.
fn descendants(root: u32, all: &[Process]) -> Vec<u32> {
    let Some(group) = all.iter().find(|process| process.pid == root).map(|process| process.group) else {
        return Vec::new();
    };
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = all.iter().filter(|process| process.parent == parent && process.group == group);
        found.extend(children.map(|process| process.pid));
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, group: u32) -> Process {
        Process { pid, parent, group }
    }

    #[test]
    fn a_line_of_proc_is_read_with_any_name() {
        let stat = "4711 (a) b (c) S 17 42 42 34816 4711 4194304 1 2 3";
        assert_eq!(Process::parse(stat), Some(process(4711, 17, 42)));
        assert_eq!(Process::parse("no process"), None);
    }

    #[test]
    fn descendants_are_those_of_the_same_group() {
        let all = [
            process(1, 0, 1),
            process(10, 1, 10),
            process(11, 10, 10),
            process(12, 11, 10),
            process(13, 11, 13), // a group of its own
            process(20, 1, 10),
        ];
        assert_eq!(descendants(10, &all), [11, 12]);
    }
}
