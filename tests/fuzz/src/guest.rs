//! Guest of WASI: a module that hands each function of WASI through, and sequences of calls made of bytes.

use std::fmt::Write as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use metahook_core::api::policy::Limits;
use metahook_server::fuzzing::{CallState, engine_config, linker};
use metahook_server::hook::wasm::run;
use wasmtime::{Engine, Instance, InstancePre, Module, Store, Val, ValType};

/// The functions of WASI with their parameters: a descriptor, a pointer, a length, a flag, an `I` for an `i64`, a `P` for
/// the address and length of a path, a `V` for those of a list of pieces.
pub const FUNCTIONS: [(&str, &str); 45] = [
    ("args_get", "pp"),
    ("args_sizes_get", "pp"),
    ("clock_res_get", "cp"),
    ("clock_time_get", "cIp"),
    ("environ_get", "pp"),
    ("environ_sizes_get", "pp"),
    ("fd_advise", "dIIc"),
    ("fd_allocate", "dII"),
    ("fd_close", "d"),
    ("fd_datasync", "d"),
    ("fd_fdstat_get", "dp"),
    ("fd_fdstat_set_flags", "dc"),
    ("fd_fdstat_set_rights", "dII"),
    ("fd_filestat_get", "dp"),
    ("fd_filestat_set_size", "dI"),
    ("fd_filestat_set_times", "dIIc"),
    ("fd_pread", "dVIp"),
    ("fd_prestat_dir_name", "dpl"),
    ("fd_prestat_get", "dp"),
    ("fd_pwrite", "dVIp"),
    ("fd_read", "dVp"),
    ("fd_readdir", "dplIp"),
    ("fd_renumber", "dd"),
    ("fd_seek", "dIcp"),
    ("fd_sync", "d"),
    ("fd_tell", "dp"),
    ("fd_write", "dVp"),
    ("path_create_directory", "dP"),
    ("path_filestat_get", "dcPp"),
    ("path_filestat_set_times", "dcPIIc"),
    ("path_link", "dcPdP"),
    ("path_open", "dcPcIIcp"),
    ("path_readlink", "dPplp"),
    ("path_remove_directory", "dP"),
    ("path_rename", "dPdP"),
    ("path_symlink", "PdP"),
    ("path_unlink_file", "dP"),
    ("poll_oneoff", "pplp"),
    ("proc_raise", "c"),
    ("random_get", "pl"),
    ("sched_yield", ""),
    ("sock_accept", "dcp"),
    ("sock_recv", "dVcpp"),
    ("sock_send", "dVcp"),
    ("sock_shutdown", "dc"),
];

/// Paths that lie in the memory.
pub const PATHS: [&str; 24] = [
    "a",
    "b.txt",
    "large",
    "none",
    ".",
    "./a",
    "..",
    "",
    "/",
    "/a",
    "a/",
    "a/.",
    "a/..",
    "a/../b.txt",
    "a/b",
    "none/",
    "none/..",
    "none/../a",
    "./",
    "./.",
    ".//b.txt",
    "../a",
    "a\0b",
    "b.txt/../../a",
];

const PATHS_AT: u64 = 0x1000;
const PATH: u64 = 64;

/// Lists of pieces: numbers and lengths in turn, of which the pieces lie one after the other.
const PIECES_AT: u64 = 0x2000;
const PIECES: [u32; 8] = [5, 0, 1, 700, 64, 3, 4000, 9];

/// Where pieces and results lie.
const BUFFER_AT: u64 = 0x3000;
const RESULTS_AT: u64 = 0x8000;

/// Bytes of the memory.
const MEMORY: u64 = 0x1_0000;

/// A call of a function by its number, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    pub arguments: Vec<u64>,
}

/// Where a path lies, and its length.
pub fn path(number: usize) -> (u64, u64) {
    (PATHS_AT + PATH * number as u64, PATHS[number].len() as u64)
}

/// The module, as text.
pub fn module() -> String {
    let mut imports = String::new();
    let mut functions = String::new();
    for (name, parameters) in FUNCTIONS {
        let types: Vec<&str> = parameters
            .chars()
            .flat_map(|kind| match kind {
                'I' => &["i64"][..],
                'P' | 'V' => &["i32", "i32"],
                _ => &["i32"],
            })
            .copied()
            .collect();
        let arguments: Vec<String> = (0..types.len()).map(|number| format!("(local.get {number})")).collect();
        let arguments = arguments.join(" ");
        let ty = format!("(param {}) (result i32)", types.join(" "));
        writeln!(imports, r#"(import "wasi_snapshot_preview1" "{name}" (func ${name} {ty}))"#).unwrap();
        writeln!(functions, r#"(func (export "{name}") {ty} (call ${name} {arguments}))"#).unwrap();
    }
    format!(r#"(module {imports} (memory (export "memory") 1) {functions})"#)
}

/// Lays out paths and lists of pieces.
pub fn lay_out(memory: &mut [u8]) {
    let mut put = |at: u64, bytes: &[u8]| {
        let at = usize::try_from(at).unwrap();
        memory[at..at + bytes.len()].copy_from_slice(bytes);
    };
    for (at, path) in (PATHS_AT..).step_by(64).zip(PATHS) {
        put(at, path.as_bytes());
    }
    let mut piece = u32::try_from(BUFFER_AT).unwrap();
    for (at, len) in (PIECES_AT..).step_by(8).zip(PIECES) {
        put(at, &piece.to_le_bytes());
        put(at + 4, &len.to_le_bytes());
        piece += len;
    }
}

/// Bytes as calls.
pub struct Calls<'a>(pub &'a [u8]);

impl Calls<'_> {
    fn byte(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(u64::from(*first))
    }

    /// A number that is interesting somewhere: one of three is anything.
    fn number(&mut self, usual: impl FnOnce(u64) -> u64) -> Option<u64> {
        let byte = self.byte()?;
        Some(match byte {
            0..=239 => usual(byte),
            240..=244 => byte - 240,
            245..=249 => MEMORY - (byte - 245) * 3,
            250..=252 => 0x7fff_ffff + byte - 250,
            _ => u64::from(u32::MAX) - (byte - 253),
        })
    }

    fn arguments(&mut self, kind: char, into: &mut Vec<u64>) -> Option<()> {
        match kind {
            'd' => into.push(self.number(|byte| byte % 8)?),
            'c' => into.push(self.number(|byte| byte % 4)?),
            'l' => into.push(self.number(|byte| byte * 3)?),
            'p' => into.push(self.number(|byte| RESULTS_AT + byte * 64)?),
            'I' => {
                let byte = self.byte()?;
                into.push(match byte {
                    0..=99 => byte,
                    100..=199 => 1 << (byte % 64),
                    _ => u64::MAX - (byte - 200),
                });
            }
            'P' => {
                let which = self.number(|byte| byte)?;
                let known = usize::try_from(which % 32).ok().filter(|known| *known < PATHS.len());
                let (at, len) = known.map_or((which, which % 100), path);
                into.extend([at, len]);
            }
            _ => {
                into.push(self.number(|byte| PIECES_AT + byte % 8 * 8)?);
                into.push(self.number(|byte| byte % 4)?);
            }
        }
        Some(())
    }
}

impl Iterator for Calls<'_> {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        let which = usize::try_from(self.byte()?).unwrap();
        let (name, parameters) = FUNCTIONS[which % FUNCTIONS.len()];
        let mut arguments = Vec::new();
        parameters.chars().try_for_each(|kind| self.arguments(kind, &mut arguments))?;
        Some(Call { name, arguments })
    }
}

/// A module with the functions that hooks may call.
pub struct Guests(InstancePre<CallState>);

/// An instance, whose functions are called one by one.
pub struct Guest {
    store: Store<CallState>,
    instance: Instance,
    limits: Limits,
}

impl Guests {
    pub fn new(module: &[u8]) -> wasmtime::Result<Self> {
        let engine = Engine::new(&engine_config())?;
        Ok(Self(linker(&engine)?.instantiate_pre(&Module::new(&engine, module)?)?))
    }

    pub fn start(&self, call: run::Call<'_>) -> wasmtime::Result<Guest> {
        let limits = call.limits;
        let mut store = Store::new(self.0.module().engine(), CallState::new(call, 0));
        store.limiter(CallState::limiter);
        store.set_fuel(limits.instructions)?;
        let instance = finish(self.0.instantiate_async(&mut store))?;
        Ok(Guest { store, instance, limits })
    }
}

impl Guest {
    /// Calls a function that returns an `i32`.
    pub fn call(&mut self, name: &str, arguments: &[u64]) -> wasmtime::Result<i32> {
        let function = self.instance.get_func(&mut self.store, name);
        let function = function.ok_or_else(|| wasmtime::Error::msg("no such function"))?;
        let types = function.ty(&self.store);
        let value = |(ty, bits): (ValType, &u64)| match ty {
            ValType::I64 => Val::I64(bits.cast_signed()),
            _ => Val::I32(u32::try_from(*bits).unwrap_or(u32::MAX).cast_signed()),
        };
        let arguments: Vec<Val> = types.params().zip(arguments).map(value).collect();
        let mut results = [Val::I32(0)];
        finish(function.call_async(&mut self.store, &arguments, &mut results))?;
        let [result] = results;
        result.i32().ok_or_else(|| wasmtime::Error::msg("no i32"))
    }

    pub fn memory(&mut self) -> &mut [u8] {
        let memory = self.instance.get_memory(&mut self.store, "memory");
        memory.map(|memory| memory.data_mut(&mut self.store)).unwrap_or_default()
    }

    /// The bytes that are kept of stdout and stderr.
    pub fn printed(&self) -> [&[u8]; 2] {
        self.store.data().printed()
    }

    /// Whether the output is within its limits.
    pub fn is_within_limits(&self) -> bool {
        let [stdout, stderr] = self.printed().map(|bytes| bytes.len() as u64);
        stdout <= self.limits.output && stderr <= self.limits.log
    }
}

/// Runs a future that waits for nothing.
fn finish<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}
