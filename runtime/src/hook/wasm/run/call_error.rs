//! Errors of calls, in words for the author of the hook.

use std::any::Any;
use std::fmt::{self, Write as _};
use std::time::Duration;

use metahook_core::api::policy::Limits;
use metahook_core::api::units::print_bytes;
use metahook_core::hook::RequestTooLarge;
use metahook_core::hook::last_words::{last_words, script_words};
use metahook_core::shorten;
use wasmtime::{Trap, WasmBacktrace};

use crate::hook::wasm::wasi::{CallState, Exit, RefusedGrowth, exceeded};
use crate::memory::MemoryShort;

/// Bytes of a function's name.
const MAX_NAME: usize = 200;

/// Bytes of a name that the module has in mangled form. Each piece of one that is written out may be found by reading all of it.
const MAX_MANGLED: usize = 1 << 10;

/// Functions between an author's function and the trap: their names say nothing to an author.
const FOREIGN: [&str; 9] = [
    "abort",
    "rust_panic",
    "__rust",
    "rust_begin_unwind",
    "core::",
    "std::",
    "alloc::",
    "<alloc::",
    "metahook_sdk::",
];

/// Bytes of an error that wasmtime or a panic describes.
pub(super) const MAX_ERROR: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error(
        "the hook used up its {budget} instructions{place} (limits.instructions): it loops, or the limit is too low"
    )]
    Instructions { budget: u64, place: String },
    #[error("the hook did not end within {}s (limits.timeout){kept}", budget.as_secs_f64())]
    Timeout { budget: Duration, kept: String },
    /// More controllers loop than there are instances.
    #[error(
        "the hook had run for {:.1}s while calls of other controllers could not begin: it was ended, and the next call of its \
         controller waits {:.0}s",
        used.as_secs_f64(), pause.as_secs_f64()
    )]
    CrowdedOut { used: Duration, pause: Duration },
    #[error("the hook wanted {wanted} of memory and may have {budget} (limits.memory){then}")]
    Memory { wanted: String, budget: String, then: String },
    #[error(
        "the hook wanted a table of {wanted} elements and may have {budget} (--module-functions-max){then}"
    )]
    Table { wanted: usize, budget: usize, then: String },
    #[error("the hook printed more than {budget} (limits.output)")]
    Output { budget: String },
    #[error("the hook trapped{place}: {trap}{said}")]
    Trap { trap: String, place: String, said: String },
    #[error("the hook exited with code {code}; 0 is success{said}")]
    Exit { code: i32, said: String },
    /// Error that the interpreter prints: the place and the error, then the lines that led there.
    #[error("the script failed: {0}")]
    Script(String),
    #[error("the hook could not be started: {0}")]
    Start(String),
    #[error("the hook was stopped{place}: {why}")]
    Stopped { why: String, place: String },
    #[error(transparent)]
    MemoryShort(MemoryShort),
    #[error(transparent)]
    Request(RequestTooLarge),
    #[error("the server stops, and no longer waits for the hook")]
    Stopping,
    #[error("the server failed while it ran the hook, which is a bug of the server: {0}")]
    Bug(String),
}

impl CallError {
    /// One word, for metrics and for the controller's status.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Instructions { .. } => "HookInstructions",
            Self::Timeout { .. } => "HookTimeout",
            Self::CrowdedOut { .. } => "HookCrowdedOut",
            Self::Memory { .. } => "HookMemory",
            Self::Table { .. } => "HookTable",
            Self::Output { .. } => "HookOutput",
            Self::Trap { .. } => "HookTrap",
            Self::Exit { .. } => "HookExit",
            Self::Script(_) => "HookScript",
            Self::Start(_) => "HookStart",
            Self::Stopped { .. } => "HookStopped",
            Self::MemoryShort(_) => "MemoryShort",
            Self::Request(_) => "HookRequest",
            Self::Stopping => "ServerStopping",
            Self::Bug(_) => "HookBug",
        }
    }
}

/// The end of a call that failed, by the step it had come to.
#[derive(Debug)]
pub(super) enum Failure {
    /// `busy`: for so long it kept its thread past the timeout without giving way.
    TimedOut {
        busy: Option<Duration>,
    },
    /// Others needed its instance when it had run for so long: its controller's next call waits.
    CrowdedOut {
        used: Duration,
        pause: Duration,
    },
    Panicked(String),
    Starting(wasmtime::Error),
    Running(wasmtime::Error),
}

/// Text of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason was given");
    shorten(text, MAX_ERROR)
}

impl Failure {
    pub(super) fn panicked(panic: &(dyn Any + Send)) -> Self {
        Self::Panicked(panic_text(panic))
    }

    pub(super) fn explain(&self, limits: &Limits, state: &CallState) -> CallError {
        if state.is_short() {
            return CallError::MemoryShort(MemoryShort);
        }
        let (error, then) = match self {
            Self::TimedOut { busy } => {
                let kept = busy.map(|busy| {
                    let busy = busy.as_secs_f64();
                    format!(", and did not give way for {busy:.1}s: the next call of its controller waits")
                });
                let kept = kept.unwrap_or_default();
                return CallError::Timeout { budget: limits.timeout, kept };
            }
            Self::CrowdedOut { used, pause } => {
                return CallError::CrowdedOut { used: *used, pause: *pause };
            }
            Self::Panicked(message) => return CallError::Bug(message.clone()),
            Self::Starting(error) => (error, String::new()),
            Self::Running(error) if state.stdout.lost == 0 => {
                (error, format!("; then {}", stopped(error, state)))
            }
            Self::Running(_) => return CallError::Output { budget: print_bytes(limits.output) },
        };
        if let Some(Trap::OutOfFuel) = error.downcast_ref() {
            return CallError::Instructions { budget: limits.instructions, place: place(error) };
        }
        // A program that did not get its memory gives up in its own way.
        match (state.limiter.refused, self) {
            (Some(RefusedGrowth::Memory(wanted)), _) => {
                CallError::Memory { wanted: print_bytes(wanted), budget: print_bytes(limits.memory), then }
            }
            (Some(RefusedGrowth::Table(wanted)), _) => {
                CallError::Table { wanted, budget: state.limiter.max_table_elements, then }
            }
            (None, Self::Starting(error)) if error.downcast_ref::<Trap>().is_none() => {
                CallError::Start(shorten(&error.root_cause().to_string(), MAX_ERROR))
            }
            (None, _) => stopped(error, state),
        }
    }
}

fn stopped(error: &wasmtime::Error, state: &CallState) -> CallError {
    let place = place(error);
    let log = || state.stderr.with_tail();
    let network = if state.wanted_network { "; it wanted a socket, and a hook has no network" } else { "" };
    let said = || format!("{network}{}", last_words(&log()));
    match (error.downcast_ref::<Trap>(), error.downcast_ref::<Exit>()) {
        (Some(trap), _) => {
            let trap = trap.to_string().trim_start_matches("wasm trap: ").to_owned();
            CallError::Trap { trap, place, said: said() }
        }
        (None, Some(_)) if state.is_script => CallError::Script(script_words(&log()) + network),
        (None, Some(Exit(code))) => CallError::Exit { code: *code, said: said() },
        (None, None) => {
            let why = exceeded(error).unwrap_or_else(|| error.root_cause().to_string());
            CallError::Stopped { why: shorten(&why, MAX_ERROR) + network, place }
        }
    }
}

/// ` in <function>`, where the module has names: the innermost one that the author wrote, as far as names tell.
fn place(error: &wasmtime::Error) -> String {
    let frames = error.downcast_ref::<WasmBacktrace>().map(WasmBacktrace::frames).unwrap_or_default();
    let mut names = frames.iter().filter_map(|frame| Some(readable(frame.func_name()?)));
    let first = names.next();
    let is_own = |name: &String| !FOREIGN.iter().any(|start| name.starts_with(start));
    let own = first.iter().cloned().chain(names).find(is_own).or(first);
    own.map(|name| format!(" in {name}")).unwrap_or_default()
}

/// The start of a function's name as its author wrote it, without the hash of legacy mangling.
///
/// *Guarantees*: a name that repeats its parts is not written out beyond what is kept of it.
fn readable(name: &str) -> String {
    if name.len() > MAX_MANGLED {
        return shorten(name, MAX_NAME);
    }
    let mut start = NameStart(String::new());
    // It fails where there is more of the name than is kept.
    write!(start, "{:#}", rustc_demangle::demangle(name)).unwrap_or_default();
    shorten(&start.0, MAX_NAME)
}

/// Text that takes no more pieces once it is longer than a name may be.
struct NameStart(String);

impl fmt::Write for NameStart {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if self.0.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(piece);
        Ok(())
    }
}
