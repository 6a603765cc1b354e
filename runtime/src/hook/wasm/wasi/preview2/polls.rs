//! Polls of a component: those of wasmtime-wasi, with a bound, and at a cost that ends a loop of waits.

use wasmtime::component::Resource;
use wasmtime::{Result, bail};
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi_io::bindings::wasi::io::poll;

use super::{ComponentState, MAX_RESOURCES};
use crate::hook::wasm::wasi::EVENT_COST;

impl poll::Host for ComponentState {
    /// A list may name one resource again and again, so the bound of resources alone does not bound it.
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> Result<Vec<u32>> {
        let count = pollables.len();
        if count > MAX_RESOURCES {
            bail!("it polls {count} pollables at once and may poll {MAX_RESOURCES}: poll fewer");
        }
        self.cost.add(EVENT_COST * count as u64);
        poll::Host::poll(&mut self.table, pollables).await
    }
}

impl poll::HostPollable for ComponentState {
    async fn ready(&mut self, pollable: Resource<DynPollable>) -> Result<bool> {
        self.cost.add(EVENT_COST);
        poll::HostPollable::ready(&mut self.table, pollable).await
    }

    async fn block(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        self.cost.add(EVENT_COST);
        poll::HostPollable::block(&mut self.table, pollable).await
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        poll::HostPollable::drop(&mut self.table, pollable)
    }
}
