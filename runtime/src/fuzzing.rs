//! Entries for the fuzz targets in `tests/fuzz`.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use metahook_core::api::policy::Limits;
use wasmtime::{Engine, Instance, InstancePre, Module, Store, Val, ValType};

use crate::hook::wasm::compile::check::{self, OutlineBounds};
use crate::hook::wasm::compile::{ModuleBounds, ModuleError, engine_config};
use crate::hook::wasm::run::Call;
use crate::hook::wasm::source::unpack;
use crate::hook::wasm::wasi::{CallState, linker};

/// Checks the outline of a module.
///
/// # Errors
/// The module is no hook, or beyond these bounds.
pub fn inspect(module: &[u8], functions: u32, memory: u64) -> Result<(), ModuleError> {
    check::inspect(module, OutlineBounds { functions, memory })
}

/// Unpacks a stored module.
///
/// # Errors
/// It is broken, or beyond its bounds.
pub fn unpack(stored: Vec<u8>, bounds: &ModuleBounds) -> Result<Vec<u8>, ModuleError> {
    unpack::unpack(stored, bounds)
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

    pub fn start(&self, call: Call<'_>) -> wasmtime::Result<Guest> {
        let limits = call.limits;
        let mut store = Store::new(self.0.module().engine(), CallState::new(call, 0));
        store.limiter(|state| &mut state.limiter);
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
        let state = self.store.data();
        [&state.stdout.bytes, &state.stderr.bytes]
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
