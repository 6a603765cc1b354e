//! Calls of a hook into the host: their cost in instructions, their failures, and when they give way to other calls.

use std::future::Future;

use wasmtime::{Caller, Extern, Trap};

use super::errno::Failure;
use super::memory::Memory;
use super::state::CallState;

/// A long call gives way to others after this many instructions.
pub(in crate::hook::wasm) const YIELD_INTERVAL: u64 = 100_000;

/// Bytes that are copied in the time of one instruction.
const BYTES_PER_INSTRUCTION: u64 = 16;

#[derive(Debug, thiserror::Error)]
#[error("the module exports no memory")]
struct NoMemory;

/// The calling instance.
pub(super) type Guest<'a> = Caller<'a, CallState>;
pub(super) type WasiResult = wasmtime::Result<u32>;
pub(super) type WasiFuture<'a> = Box<dyn Future<Output = WasiResult> + Send + 'a>;

/// A call that takes no longer than the instructions around it.
pub(super) fn short(
    mut guest: Guest<'_>,
    work: impl FnOnce(&mut CallState, &mut Memory<'_>) -> Result<(), Failure>,
) -> WasiResult {
    with_memory(&mut guest, work).map_or_else(report, |()| Ok(0))
}

/// A call that can take long: it costs `base` instructions and as many more as `work` returns, and gives way to others
/// every [`YIELD_INTERVAL`] instructions.
pub(super) fn long<'a>(
    mut guest: Guest<'a>,
    base: u64,
    work: impl FnOnce(&mut CallState, &mut Memory<'_>) -> Result<u64, Failure> + Send + 'a,
) -> WasiFuture<'a> {
    Box::new(async move {
        let done = with_memory(&mut guest, work);
        let cost = base.saturating_add(done.as_ref().copied().unwrap_or_default());
        let result = done.map_or_else(report, |_| Ok(0))?;
        let left = guest.get_fuel()?;
        guest.set_fuel(left.saturating_sub(cost))?;
        if left < cost {
            return Err(Trap::OutOfFuel.into());
        }
        // Setting the fuel delays the engine's own yield: without this a loop of such calls would never give way.
        let state = guest.data_mut();
        if state.fuel_at_yield.saturating_sub(left) >= YIELD_INTERVAL {
            state.fuel_at_yield = left;
            tokio::task::yield_now().await;
        }
        Ok(result)
    })
}

fn with_memory<T>(
    guest: &mut Guest<'_>,
    work: impl FnOnce(&mut CallState, &mut Memory<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(Extern::Memory(memory)) = guest.get_export("memory") else {
        return Err(Failure::trap(NoMemory));
    };
    let (bytes, state) = memory.data_and_store_mut(guest);
    work(state, &mut Memory(bytes))
}

fn report(failure: Failure) -> WasiResult {
    match failure {
        Failure::Errno(errno) => Ok(errno.number().into()),
        Failure::Trap(error) => Err(error),
    }
}

/// The cost of copying so many bytes.
pub(super) fn copy_cost(len: impl TryInto<u64>) -> u64 {
    len.try_into().unwrap_or(u64::MAX) / BYTES_PER_INSTRUCTION
}
