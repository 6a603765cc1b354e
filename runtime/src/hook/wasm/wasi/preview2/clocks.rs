//! Clocks of a component: those of the call, and waits that are over at once.

use async_trait::async_trait;
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};

use super::ComponentState;
use crate::hook::wasm::wasi::determinism::{ClockKind, RESOLUTION, Until};
use crate::hook::wasm::wasi::give_way;

const NANOS: u64 = 1_000_000_000;

/// A wait, which has ended.
struct Due;

#[async_trait]
impl Pollable for Due {
    /// A loop of waits offers to give way.
    async fn ready(&mut self) {
        give_way().await;
    }
}

impl ComponentState {
    fn wait(&mut self, until: Until) -> Result<Resource<DynPollable>> {
        self.call.clock.wait(ClockKind::Monotonic, until);
        let due = self.table.push(Due)?;
        subscribe(&mut self.table, due)
    }
}

impl monotonic_clock::Host for ComponentState {
    fn now(&mut self) -> Result<u64> {
        Ok(self.call.clock.read(ClockKind::Monotonic))
    }

    fn resolution(&mut self) -> Result<u64> {
        Ok(RESOLUTION)
    }

    fn subscribe_instant(&mut self, when: u64) -> Result<Resource<DynPollable>> {
        self.wait(Until::At(when))
    }

    fn subscribe_duration(&mut self, duration: u64) -> Result<Resource<DynPollable>> {
        self.wait(Until::After(duration))
    }
}

impl wall_clock::Host for ComponentState {
    fn now(&mut self) -> Result<wall_clock::Datetime> {
        let now = self.call.clock.read(ClockKind::Realtime);
        Ok(datetime(now))
    }

    fn resolution(&mut self) -> Result<wall_clock::Datetime> {
        Ok(datetime(RESOLUTION))
    }
}

fn datetime(nanos: u64) -> wall_clock::Datetime {
    // Less than a second fits.
    let nanoseconds = u32::try_from(nanos % NANOS).unwrap_or_default();
    wall_clock::Datetime { seconds: nanos / NANOS, nanoseconds }
}
