//! Engine of the process: the pool of instances that calls are made in.

use wasmtime::{Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use metahook_core::api::limits::LimitBounds;

use crate::hook::wasm::compile::engine_config;

/// The engine, set up for hooks.
pub(super) struct Sandbox {
    pub(super) engine: Engine,
    /// Elements that a table may have.
    pub(super) table_elements: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("the WebAssembly engine cannot be started: {0}")]
pub struct EngineError(String);

impl EngineError {
    pub(super) fn new(error: &wasmtime::Error) -> Self {
        Self(format!("{error:#}"))
    }
}

impl Sandbox {
    /// A pool of so many instances; no pool where the address space for it is missing.
    pub(super) fn new(
        instances: usize,
        bounds: &LimitBounds,
        table_elements: u32,
    ) -> Result<Self, EngineError> {
        let table_elements = usize::try_from(table_elements).unwrap_or(usize::MAX);
        let mut config = engine_config();
        let pool = pool(instances, bounds, table_elements);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config).or_else(|error| {
            tracing::warn!(error = %error, "no address space for a pool of instances: each call allocates its own");
            Engine::new(&engine_config())
        });
        Ok(Self { engine: engine.map_err(|error| EngineError::new(&error))?, table_elements })
    }
}

fn pool(instances: usize, bounds: &LimitBounds, table_elements: usize) -> PoolingAllocationConfig {
    let count = u32::try_from(instances).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(count)
        .total_memories(count)
        .total_tables(count)
        .total_stacks(count)
        .max_memories_per_module(1)
        .max_tables_per_module(1)
        .table_elements(table_elements)
        // Each function that a table can hold takes some bytes of the instance.
        .max_core_instance_size((1 << 20) + table_elements * 64)
        .max_memory_size(usize::try_from(bounds.ceiling.memory).unwrap_or(usize::MAX))
        .max_unused_warm_slots(count)
        // Rust puts a stack of 1 MiB first, and touches pages behind it. The kernel names the touched pages.
        .linear_memory_keep_resident(2 << 20)
        // Without it each call gives its table's pages back and faults them in again: 5 of 21 µs (`cargo xtask bench hook`).
        .table_keep_resident(table_elements * size_of::<usize>())
        .pagemap_scan(Enabled::Auto);
    pool
}
