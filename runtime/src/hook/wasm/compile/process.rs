//! The compiler's own process: a module on stdin, machine code on stdout, and little else that it could do.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, nice, set_parent_process_death_signal, setrlimit,
};
use wasmtime::Engine;

use super::features;
use crate::hook::wasm::run::engine;

/// The argument that asks for it; the memory in bytes and the processor time in seconds follow.
pub(crate) const COMMAND: &str = "compile";

/// The exit code that says: stderr is for the author of the module.
pub(crate) const REFUSED: u8 = 3;

/// Hooks that run meanwhile come first.
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
    // Nobody is left to tell if that fails; the exit code says enough.
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
    let engine = Engine::new(&engine::config()).map_err(|error| broken(&error))?;
    let artifact =
        engine.precompile_module(&module).map_err(|error| Failed::Refused(format!("{error:#}")))?;
    io::stdout().lock().write_all(&artifact).map_err(Failed::Broken)
}

fn broken(error: &wasmtime::Error) -> Failed {
    Failed::Broken(io::Error::other(format!("{error:#}")))
}

/// Gives up what compiling does not need: memory, time, files, the working directory, outliving the server.
fn limit(memory: u64, processor: u64) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    std::env::set_current_dir("/")?;
    nice(NICENESS)?;
    for (resource, most) in [
        (Resource::As, memory),
        (Resource::Cpu, processor),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        // Those that are open: stdin, stdout and stderr.
        (Resource::Nofile, 3),
    ] {
        let most = Some(getrlimit(resource).maximum.unwrap_or(u64::MAX).min(most));
        setrlimit(resource, Rlimit { current: most, maximum: most })?;
    }
    Ok(())
}
