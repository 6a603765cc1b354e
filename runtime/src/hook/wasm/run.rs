//! One call of a module: a fresh instance, its limits, what it printed.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use metahook_core::spec::hook::Limits;
use metahook_core::spec::units::print_bytes;
use metahook_core::text::shorten;
use wasmtime::{ResourceLimiter, Store, Trap, WasmBacktrace};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{I32Exit, WasiCtxBuilder, WasiView};

use super::module::{Module, Runtime};
use super::pipe::{Over, Sink};

/// A long hook gives way to the others after this many units of fuel.
const YIELD_EVERY: u64 = 100_000;

/// What one call into the host may copy; a request is read in one piece.
const HOST_COPIES: usize = LARGEST_REQUEST + (64 << 10);

/// A request may be this large.
const LARGEST_REQUEST: usize = 32 << 20;

/// Random bytes per call into the host: such a call costs no fuel, however long it takes.
const RANDOM_BYTES: u64 = 16 << 10;

/// Things of the host that a hook may hold at once, such as timers it waits for.
const HANDLES: usize = 1000;

/// A function name or a last word that is longer is cut.
const LONGEST_WORD: usize = 200;

/// What is asked of a hook.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// `argv[0]`.
    pub controller: &'a str,
    /// `argv[1]`: sync, finalize or customize.
    pub hook: &'a str,
    pub request: Bytes,
    pub limits: Limits,
    /// What the hook's random numbers are made of.
    pub seed: Seed,
    /// Folders that the hook may read.
    pub mounts: &'a [Mounted],
}

/// Where random numbers start: the same seed gives the same numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

/// A folder of the host that a hook sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Absolute, as the hook sees it.
    pub path: String,
    pub folder: PathBuf,
}

/// What came of a call, also of a failed one.
#[derive(Debug)]
pub struct Called {
    pub answer: Result<Vec<u8>, CallError>,
    pub log: Log,
    pub usage: Usage,
    /// The hook saw its request and nothing else: it never asked what time it is.
    pub pure: bool,
}

/// What the hook printed on stderr.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Log {
    pub text: String,
    /// Bytes beyond the limit.
    pub lost: usize,
}

/// What a call used of its budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub instructions: u64,
    /// Most linear memory, in bytes.
    pub memory: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error(
        "the hook used up its {budget} instructions{place} (limits.instructions): it loops, or the limit is too low"
    )]
    Instructions { budget: u64, place: String },
    #[error("the hook did not end within {}s (limits.timeout)", budget.as_secs_f64())]
    Timeout { budget: Duration },
    #[error("the hook wanted {wanted} of memory and may have {budget} (limits.memory){then}")]
    Memory { wanted: String, budget: String, then: String },
    #[error("the hook printed more than {budget} (limits.output)")]
    Output { budget: String },
    #[error("the hook trapped{place}: {trap}")]
    Trap { trap: String, place: String },
    #[error("the hook exited with code {code}; 0 is success{said}")]
    Exit { code: i32, said: String },
    #[error("the hook could not be started: {0}")]
    Start(String),
    #[error("the hook was stopped{place}: {why}")]
    Stopped { why: String, place: String },
    #[error(
        "the request has {0} bytes, and {LARGEST_REQUEST} are allowed: the parent has too many or too large children"
    )]
    Request(usize),
}

impl CallError {
    /// One word, for metrics and for the controller's status.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Instructions { .. } => "HookInstructions",
            Self::Timeout { .. } => "HookTimeout",
            Self::Memory { .. } => "HookMemory",
            Self::Output { .. } => "HookOutput",
            Self::Trap { .. } => "HookTrap",
            Self::Exit { .. } => "HookExit",
            Self::Start(_) => "HookStart",
            Self::Stopped { .. } => "HookStopped",
            Self::Request(_) => "HookRequest",
        }
    }
}

/// What belongs to one instance.
pub(super) struct Host {
    pub(super) wasi: WasiP1Ctx,
    limiter: Limiter,
}

impl Runtime {
    /// Calls a module once. Nothing outlives the call.
    pub async fn call(&self, module: &Module, call: Call<'_>) -> Called {
        if call.request.len() > LARGEST_REQUEST {
            let answer = Err(CallError::Request(call.request.len()));
            return Called { answer, log: Log::default(), usage: Usage::default(), pure: true };
        }
        // Never closed.
        let _slot = self.slots.acquire().await;
        let limits = call.limits;
        let (stdout, stderr) = (Sink::new(limits.output, Over::Fail), Sink::new(limits.log, Over::Cut));
        let mut store = self.store(&call, &stdout, &stderr);
        let ended =
            tokio::time::timeout(limits.timeout, start(&mut store, module, limits.instructions)).await;
        let usage = Usage {
            instructions: limits.instructions.saturating_sub(store.get_fuel().unwrap_or_default()),
            memory: store.data().limiter.most,
        };
        let written = stderr.take();
        let log = Log { text: String::from_utf8_lossy(&written.bytes).into_owned(), lost: written.lost };
        let output = stdout.take();
        let answer = match ended {
            Err(_elapsed) => Err(CallError::Timeout { budget: limits.timeout }),
            Ok(_) if output.lost > 0 => Err(CallError::Output { budget: print_bytes(limits.output) }),
            Ok(Ok(())) => Ok(output.bytes),
            Ok(Err(Ended::Running(error))) if exit_code(&error) == Some(0) => Ok(output.bytes),
            Ok(Err(ended)) => Err(why(&ended, &limits, store.data().limiter.refused, &log)),
        };
        Called { answer, log, usage, pure: true }
    }

    /// What the instance of one call may reach and use.
    fn store(&self, call: &Call<'_>, stdout: &Sink, stderr: &Sink) -> Store<Host> {
        let mut wasi = WasiCtxBuilder::new()
            .args(&[call.controller, call.hook])
            .stdin(MemoryInputPipe::new(call.request.clone()))
            .stdout(stdout.clone())
            .stderr(stderr.clone())
            .max_random_size(RANDOM_BYTES)
            .build_p1();
        WasiView::ctx(&mut wasi).table.set_max_capacity(HANDLES);
        let table = self.sandbox.table_elements;
        let limiter = Limiter { budget: call.limits.memory, table, most: 0, refused: None };
        let mut store = Store::new(&self.sandbox.engine, Host { wasi, limiter });
        store.limiter(|host| &mut host.limiter);
        store.set_hostcall_fuel(HOST_COPIES);
        store
    }
}

/// How far a call came that did not come to its end.
enum Ended {
    Starting(wasmtime::Error),
    Running(wasmtime::Error),
}

async fn start(store: &mut Store<Host>, module: &Module, instructions: u64) -> Result<(), Ended> {
    let ready = async {
        store.set_fuel(instructions)?;
        store.fuel_async_yield_interval(Some(YIELD_EVERY))?;
        module.ready.instantiate_async(&mut *store).await?.get_typed_func::<(), ()>(&mut *store, "_start")
    };
    let main = ready.await.map_err(Ended::Starting)?;
    main.call_async(store, ()).await.map_err(Ended::Running)
}

fn exit_code(error: &wasmtime::Error) -> Option<i32> {
    error.downcast_ref::<I32Exit>().map(|exit| exit.0)
}

fn why(ended: &Ended, limits: &Limits, refused: Option<u64>, log: &Log) -> CallError {
    let error = match ended {
        Ended::Starting(error) | Ended::Running(error) => error,
    };
    let cause = match (error.downcast_ref::<Trap>(), exit_code(error), ended) {
        (Some(Trap::OutOfFuel), ..) => {
            return CallError::Instructions { budget: limits.instructions, place: place(error) };
        }
        (Some(trap), ..) => {
            let trap = trap.to_string();
            CallError::Trap { trap: trap.trim_start_matches("wasm trap: ").to_owned(), place: place(error) }
        }
        (None, Some(code), _) => CallError::Exit { code, said: last_line(&log.text) },
        (None, None, Ended::Starting(error)) => {
            CallError::Start(shorten(&error.root_cause().to_string(), 1024))
        }
        (None, None, Ended::Running(error)) => {
            CallError::Stopped { why: shorten(&error.root_cause().to_string(), 1024), place: place(error) }
        }
    };
    // A program that did not get its memory gives up in its own way.
    match (refused, ended) {
        (None, _) => cause,
        (Some(wanted), Ended::Starting(_)) => memory(wanted, limits, String::new()),
        (Some(wanted), Ended::Running(_)) => memory(wanted, limits, format!("; then {cause}")),
    }
}

fn memory(wanted: u64, limits: &Limits, then: String) -> CallError {
    CallError::Memory { wanted: print_bytes(wanted), budget: print_bytes(limits.memory), then }
}

/// ` in <function>`, where the module has names.
fn place(error: &wasmtime::Error) -> String {
    let frames = error.downcast_ref::<WasmBacktrace>().map(WasmBacktrace::frames).unwrap_or_default();
    let named = frames.iter().find_map(|frame| frame.func_name());
    named.map(|name| format!(" in {}", rustc_demangle::demangle(name))).unwrap_or_default()
}

fn last_line(text: &str) -> String {
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map(|line| format!("; its last words: {}", shorten(line, LONGEST_WORD)))
        .unwrap_or_default()
}

/// Refuses what goes over the budget, and remembers that it did.
struct Limiter {
    budget: u64,
    /// Elements that a table may have.
    table: usize,
    most: u64,
    refused: Option<u64>,
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let desired = u64::try_from(desired).unwrap_or(u64::MAX);
        let granted = desired <= self.budget;
        if granted {
            self.most = self.most.max(desired);
        } else {
            self.refused = Some(desired);
        }
        Ok(granted)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= self.table)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        1
    }

    fn memories(&self) -> usize {
        1
    }
}
