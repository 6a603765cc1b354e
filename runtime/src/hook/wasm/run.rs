//! One call of a module: a fresh instance, its limits, what it printed.

use std::time::Duration;

use metahook_core::spec::hook::Limits;
use metahook_core::spec::units::print_bytes;
use wasmtime::{ResourceLimiter, Store, Trap, WasmBacktrace};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};

use super::engine::TABLE_ELEMENTS;
use super::module::{Module, Runtime};
use super::pipe::{Over, Sink};

/// A long hook gives way to the others after this many units of fuel.
const YIELD_EVERY: u64 = 100_000;

/// What is asked of a hook.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// `argv[0]`.
    pub controller: &'a str,
    /// `argv[1]`: sync, finalize or customize.
    pub hook: &'a str,
    pub request: Vec<u8>,
    pub limits: Limits,
}

/// What came of a call, also of a failed one.
#[derive(Debug)]
pub struct Called {
    pub answer: Result<Vec<u8>, CallError>,
    pub log: Log,
    pub usage: Usage,
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
    #[error("the hook wanted {wanted} of memory and may have {budget} (limits.memory)")]
    Memory { wanted: String, budget: String },
    #[error("the hook printed more than {budget} (limits.output)")]
    Output { budget: String },
    #[error("the hook trapped{place}: {trap}")]
    Trap { trap: String, place: String },
    #[error("the hook exited with code {code}; 0 is success{said}")]
    Exit { code: i32, said: String },
    #[error("the hook could not be started: {0}")]
    Start(String),
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
        // Never closed.
        let _slot = self.slots.acquire().await;
        let limits = call.limits;
        let (stdout, stderr) = (
            Sink::new(limits.output, Over::Fail),
            Sink::new(limits.log, Over::Cut),
        );
        let wasi = WasiCtxBuilder::new()
            .args(&[call.controller, call.hook])
            .stdin(MemoryInputPipe::new(call.request))
            .stdout(stdout.clone())
            .stderr(stderr.clone())
            .build_p1();
        let host = Host {
            wasi,
            limiter: Limiter {
                budget: limits.memory,
                most: 0,
                refused: None,
            },
        };
        let mut store = Store::new(&self.sandbox.engine, host);
        store.limiter(|host| &mut host.limiter);
        let ended = match budget(&mut store, limits.instructions) {
            Ok(()) => tokio::time::timeout(limits.timeout, start(&mut store, module)).await,
            Err(error) => Ok(Err(error)),
        };
        let usage = Usage {
            instructions: limits
                .instructions
                .saturating_sub(store.get_fuel().unwrap_or_default()),
            memory: store.data().limiter.most,
        };
        let written = stderr.take();
        let log = Log {
            text: String::from_utf8_lossy(&written.bytes).into_owned(),
            lost: written.lost,
        };
        let output = stdout.take();
        let answer = match ended {
            Err(_elapsed) => Err(CallError::Timeout {
                budget: limits.timeout,
            }),
            Ok(_) if output.lost > 0 => Err(CallError::Output {
                budget: print_bytes(limits.output),
            }),
            Ok(Ok(())) => Ok(output.bytes),
            Ok(Err(error)) if exit_code(&error) == Some(0) => Ok(output.bytes),
            Ok(Err(error)) => Err(why(&error, &limits, store.data().limiter.refused, &log)),
        };
        Called { answer, log, usage }
    }
}

fn budget(store: &mut Store<Host>, instructions: u64) -> wasmtime::Result<()> {
    store.set_fuel(instructions)?;
    store.fuel_async_yield_interval(Some(YIELD_EVERY))
}

async fn start(store: &mut Store<Host>, module: &Module) -> wasmtime::Result<()> {
    let instance = module.ready.instantiate_async(&mut *store).await?;
    instance
        .get_typed_func::<(), ()>(&mut *store, "_start")?
        .call_async(store, ())
        .await
}

fn exit_code(error: &wasmtime::Error) -> Option<i32> {
    error.downcast_ref::<I32Exit>().map(|exit| exit.0)
}

fn why(error: &wasmtime::Error, limits: &Limits, refused: Option<u64>, log: &Log) -> CallError {
    let trap = error.downcast_ref::<Trap>();
    match (trap, refused, exit_code(error)) {
        (Some(Trap::OutOfFuel), _, _) => CallError::Instructions {
            budget: limits.instructions,
            place: place(error),
        },
        (_, Some(wanted), _) => CallError::Memory {
            wanted: print_bytes(wanted),
            budget: print_bytes(limits.memory),
        },
        (_, _, Some(code)) => CallError::Exit {
            code,
            said: last_line(&log.text),
        },
        (Some(trap), ..) => {
            let trap = trap.to_string();
            CallError::Trap {
                trap: trap.trim_start_matches("wasm trap: ").to_owned(),
                place: place(error),
            }
        }
        (None, None, None) => CallError::Start(format!("{error:#}")),
    }
}

/// ` in <function>`, where the module has names.
fn place(error: &wasmtime::Error) -> String {
    let frames = error
        .downcast_ref::<WasmBacktrace>()
        .map(WasmBacktrace::frames)
        .unwrap_or_default();
    let named = frames.iter().find_map(|frame| frame.func_name());
    named
        .map(|name| format!(" in {}", rustc_demangle::demangle(name)))
        .unwrap_or_default()
}

fn last_line(text: &str) -> String {
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map(|line| format!("; its last words: {line}"))
        .unwrap_or_default()
}

/// Refuses what goes over the budget, and remembers that it did.
struct Limiter {
    budget: u64,
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
        Ok(desired <= TABLE_ELEMENTS)
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
