//! The one engine of the process: what a module may be made of, and where its memory comes from.

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use metahook_core::api::limits::LimitBounds;

use crate::hook::wasm::compile::features::ALLOWED;

/// The engine, set up for hooks.
pub(crate) struct Sandbox {
    pub(crate) engine: Engine,
    /// A table may have so many elements.
    pub(crate) table_elements: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("the WebAssembly engine cannot be started: {0}")]
pub struct EngineError(String);

impl EngineError {
    pub(crate) fn new(error: &wasmtime::Error) -> Self {
        Self(format!("{error:#}"))
    }
}

impl Sandbox {
    /// A pool of `slots` instances; without it where the address space is not to be had.
    pub(crate) fn new(slots: usize, bounds: &LimitBounds, table_elements: u32) -> Result<Self, EngineError> {
        let table_elements = usize::try_from(table_elements).unwrap_or(usize::MAX);
        let mut config = config();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(slots, bounds, table_elements)));
        let engine = Engine::new(&config).or_else(|error| {
            tracing::warn!(error = %error, "no address space for a pool of instances: each call allocates its own");
            Engine::new(&self::config())
        });
        Ok(Self { engine: engine.map_err(|error| EngineError::new(&error))?, table_elements })
    }
}

/// What decides about code: the same for the compiler's process, whose code ours takes. A pool does not.
pub(crate) fn config() -> Config {
    let mut config = Config::new();
    // Fuel is the measure of a call, equal on every machine; yields make a long one give way.
    config.consume_fuel(true);
    config.cranelift_nan_canonicalization(true);
    config.max_wasm_stack(512 << 10);
    config.async_stack_size(2 << 20);
    config.wasm_features(ALLOWED.complement(), false);
    config
}

fn pool(slots: usize, bounds: &LimitBounds, table_elements: usize) -> PoolingAllocationConfig {
    let count = u32::try_from(slots).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(count)
        .total_memories(count)
        .total_tables(count)
        .total_stacks(count)
        .max_memories_per_module(1)
        .max_tables_per_module(1)
        .table_elements(table_elements)
        // A function that a table can hold takes some bytes of its instance.
        .max_core_instance_size((1 << 20) + table_elements * 64)
        .max_memory_size(usize::try_from(bounds.ceiling.memory).unwrap_or(usize::MAX))
        .max_unused_warm_slots(count)
        // Rust puts a stack of 1 MiB first: what is touched lies behind it. The kernel tells which pages were.
        .linear_memory_keep_resident(2 << 20)
        // Otherwise each call gives its table's pages back and faults them in again: 5 of 21 µs (`cargo xtask bench hook`).
        .table_keep_resident(table_elements * size_of::<usize>())
        .pagemap_scan(Enabled::Auto);
    pool
}
