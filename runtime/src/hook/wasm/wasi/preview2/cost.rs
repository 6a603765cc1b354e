//! Cost of what the host does for a component: host functions add to it while they run, and it is taken from the
//! instructions of the call when they return.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use metahook_core::api::units::print_bytes;
use wasmtime::{CallHook, CallHookHandler, Error, Result, Store, StoreContextMut, Trap};

use super::{ComponentState, MAX_HANDED, MAX_HANDLES};
use crate::hook::wasm::wasi::{BYTES_PER_INSTRUCTION, YIELD_INTERVAL, give_way};

/// Time after which work of the engine that costs no instructions gives way.
const MAX_FREE_TIME: Duration = Duration::from_millis(5);

/// Instructions that are due. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Cost(Arc<AtomicU64>);

impl Cost {
    /// Host functions of one call never run at the same time, and none adds anything near the range of the number.
    pub(super) fn add(&self, instructions: u64) {
        self.0.fetch_add(instructions, Ordering::Relaxed);
    }

    /// Adds what copying so many bytes costs, from the component or to it.
    pub(super) fn copied(&self, bytes: usize) {
        self.add(bytes as u64 / BYTES_PER_INSTRUCTION);
    }

    fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// Charges what a host function did when it returns, and offers to give way every [`YIELD_INTERVAL`] instructions. Bounds
/// what a component hands over.
pub(crate) struct Charge;

#[async_trait]
impl CallHookHandler<ComponentState> for Charge {
    async fn handle_call_event(
        &self,
        mut store: StoreContextMut<'_, ComponentState>,
        event: CallHook,
    ) -> Result<()> {
        match event {
            CallHook::CallingWasm => return Ok(()),
            // What the component hands over next are arguments of a function of the host.
            CallHook::CallingHost => {
                store.set_hostcall_fuel(MAX_HANDED);
                return Ok(());
            }
            // What it hands over next is the answer.
            CallHook::ReturningFromWasm => {
                let max_answer = store.data().max_answer;
                store.set_hostcall_fuel(max_answer);
                return Ok(());
            }
            CallHook::ReturningFromHost => {}
        }
        let cost = store.data().cost.take();
        // Nothing is due where the engine calls itself, to grow a memory for example. There the fuel may be in the hands of
        // compiled code, and setting it would lose what that code used.
        if cost == 0 {
            give_way_in_time(&mut store).await;
            return Ok(());
        }
        let left = store.get_fuel()?;
        store.set_fuel(left.saturating_sub(cost))?;
        if left < cost {
            return Err(Trap::OutOfFuel.into());
        }
        // Setting the fuel delays the engine's own yield: without this a loop of such calls would never give way.
        let fuel_at_yield = &mut store.data_mut().call.host_calls.fuel_at_yield;
        if fuel_at_yield.saturating_sub(left - cost) >= YIELD_INTERVAL {
            *fuel_at_yield = left - cost;
            give_way().await;
        }
        Ok(())
    }
}

/// Whether a component hands over, or returns, more than the host takes. Wasmtime has no type for this error.
pub(crate) fn is_too_much(error: &Error) -> bool {
    error.root_cause().to_string().contains("fuel allocated for hostcalls has been exhausted")
}

/// The bound of a component that it exceeded, in words for its author; wasmtime has no types for these errors.
pub(crate) fn exceeded(error: &Error) -> Option<String> {
    if is_too_much(error) {
        let max = print_bytes(MAX_HANDED as u64);
        return Some(format!("it hands more than {max} to the host in one call: hand it over in pieces"));
    }
    let has_many = error.root_cause().to_string().contains("store handle limit exceeded");
    has_many.then(|| {
        format!("it has more than {MAX_HANDLES} handles at once: drop those that it no longer needs")
    })
}

/// Takes what copying so many bytes costs, where no host function runs.
pub(crate) fn charge_copied(store: &mut Store<ComponentState>, bytes: usize) -> Result<()> {
    let (left, cost) = (store.get_fuel()?, bytes as u64 / BYTES_PER_INSTRUCTION);
    store.set_fuel(left.saturating_sub(cost))?;
    if left < cost { Err(Trap::OutOfFuel.into()) } else { Ok(()) }
}

/// Gives way to others by the clock. The engine copies a text from one inner component to another in one piece, for no fuel, so
/// that a loop of such copies would reach its next yield after minutes.
async fn give_way_in_time(store: &mut StoreContextMut<'_, ComponentState>) {
    let gave_way = &mut store.data_mut().gave_way;
    if gave_way.elapsed() >= MAX_FREE_TIME {
        *gave_way = Instant::now();
        give_way().await;
    }
}
