//! Process of the compiler: a module on stdin, machine code on stdout, and few rights beyond that.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, nice, set_parent_process_death_signal, setrlimit,
};
use wasmtime::Engine;

use super::features;

/// The command of this program that compiles; the memory in bytes and the processor time in seconds follow.
pub(super) const COMMAND: &str = "compile";

/// The exit code for a refused module, with the reason on stderr.
pub(super) const REFUSED: u8 = 3;

/// Lower priority than the calls of hooks.
const NICENESS: i32 = 5;

/// Compiles, if that is what the arguments ask for.
pub fn compile(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next().is_none_or(|command| command != COMMAND) {
        return None;
    }
    let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
    let compiled = match (number(), number()) {
        (Some(memory), Some(processor)) => {
            limit(memory, processor).map_err(Failed::Broken).and_then(|()| run())
        }
        _ => Err(Failed::Broken(io::Error::other("only the server itself calls this command"))),
    };
    let (text, code) = match compiled {
        Ok(()) => return Some(ExitCode::SUCCESS),
        Err(Failed::Refused(text)) => (text, ExitCode::from(REFUSED)),
        Err(Failed::Broken(error)) => (error.to_string(), ExitCode::FAILURE),
    };
    // Where stderr is closed, the exit code has to do.
    io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    Some(code)
}

enum Failed {
    Refused(String),
    Broken(io::Error),
}

fn run() -> Result<(), Failed> {
    let mut module = Vec::new();
    io::stdin().lock().read_to_end(&mut module).map_err(Failed::Broken)?;
    features::validate(&module).map_err(Failed::Refused)?;
    let engine = Engine::new(&features::engine_config()).map_err(|error| broken(&error))?;
    let artifact =
        engine.precompile_module(&module).map_err(|error| Failed::Refused(format!("{error:#}")))?;
    io::stdout().lock().write_all(&artifact).map_err(Failed::Broken)
}

fn broken(error: &wasmtime::Error) -> Failed {
    Failed::Broken(io::Error::other(format!("{error:#}")))
}

/// Gives up the rights that compiling does not need: memory, time, files, the working directory, a longer life than the
/// server's.
fn limit(memory: u64, processor: u64) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    std::env::set_current_dir("/")?;
    nice(NICENESS)?;
    for (resource, max) in [
        (Resource::As, memory),
        (Resource::Cpu, processor),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        // Stdin, stdout and stderr, which are open.
        (Resource::Nofile, 3),
    ] {
        let max = Some(getrlimit(resource).maximum.unwrap_or(u64::MAX).min(max));
        setrlimit(resource, Rlimit { current: max, maximum: max })?;
    }
    Ok(())
}
