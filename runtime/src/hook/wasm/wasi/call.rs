//! How a hook's call into the host runs: what it costs, how it fails, when others get their turn.

use std::future::Future;

use wasmtime::{Caller, Extern, Trap};

use super::errno::Failure;
use super::memory::Memory;
use super::state::Host;
use crate::hook::wasm::run::YIELD_EVERY;

/// Bytes that are copied while a hook runs one instruction.
const BYTES_AN_INSTRUCTION: u64 = 16;

#[derive(Debug, thiserror::Error)]
#[error("the module exports no memory")]
struct NoMemory;

/// Who calls.
pub(super) type Hook<'a> = Caller<'a, Host>;
pub(super) type Answer = wasmtime::Result<u32>;
pub(super) type Later<'a> = Box<dyn Future<Output = Answer> + Send + 'a>;

/// A call that takes no longer than the instructions around it.
pub(super) fn short(
    mut hook: Hook<'_>,
    work: impl FnOnce(&mut Host, &mut Memory<'_>) -> Result<(), Failure>,
) -> Answer {
    within(&mut hook, work).map_or_else(told, |()| Ok(0))
}

/// A call that can take long: it counts for so many instructions and those that it says it is worth, and every now and
/// then the others get a turn.
pub(super) fn long<'a>(
    mut hook: Hook<'a>,
    at_least: u64,
    work: impl FnOnce(&mut Host, &mut Memory<'_>) -> Result<u64, Failure> + Send + 'a,
) -> Later<'a> {
    Box::new(async move {
        let done = within(&mut hook, work);
        let cost = at_least.saturating_add(done.as_ref().copied().unwrap_or_default());
        let answer = done.map_or_else(told, |_| Ok(0))?;
        let left = hook.get_fuel()?;
        hook.set_fuel(left.saturating_sub(cost))?;
        if left < cost {
            return Err(Trap::OutOfFuel.into());
        }
        // Setting the fuel puts off the engine's own yield, so a loop of such calls would never give way.
        let host = hook.data_mut();
        if host.gave_way_at.saturating_sub(left) >= YIELD_EVERY {
            host.gave_way_at = left;
            tokio::task::yield_now().await;
        }
        Ok(answer)
    })
}

fn within<T>(
    hook: &mut Hook<'_>,
    work: impl FnOnce(&mut Host, &mut Memory<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(Extern::Memory(memory)) = hook.get_export("memory") else {
        return Err(Failure::ends(NoMemory));
    };
    let (bytes, host) = memory.data_and_store_mut(hook);
    work(host, &mut Memory(bytes))
}

fn told(failure: Failure) -> Answer {
    match failure {
        Failure::Told(errno) => Ok(errno.number().into()),
        Failure::Ends(why) => Err(why),
    }
}

/// What copying counts for.
pub(super) fn bytes(len: impl TryInto<u64>) -> u64 {
    len.try_into().unwrap_or(u64::MAX) / BYTES_AN_INSTRUCTION
}
