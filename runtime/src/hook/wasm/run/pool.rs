//! Pools of the engines: memory, tables and stacks of calls, kept from one call to the next.

use wasmtime::{Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::RuntimeSettings;
use super::concurrency::max_instances;
use crate::hook::wasm::compile::{CodeTarget, WasmKind, engine_config};

/// An engine with a pool of instances; without one where the address space for it is missing.
pub(super) fn engine(kind: WasmKind, pool: PoolingAllocationConfig) -> wasmtime::Result<Engine> {
    let config = || engine_config(kind, CodeTarget::Machine);
    let mut pooling = config();
    pooling.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&pooling).or_else(|error| {
        tracing::warn!(error = %error, "no address space for a pool of instances: each call allocates its own");
        Engine::new(&config())
    })
}

/// Most that one call has of each.
#[derive(Clone, Copy)]
pub(super) struct PerCall {
    pub(super) instances: usize,
    pub(super) memories: usize,
    pub(super) tables: usize,
}

pub(super) fn pool(
    settings: &RuntimeSettings,
    table_elements: usize,
    components: usize,
    per_call: PerCall,
) -> PoolingAllocationConfig {
    let count =
        |per_call: usize| u32::try_from(max_instances(settings.concurrency) * per_call).unwrap_or(u32::MAX);
    let each = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::new();
    // Each function that a table can hold takes some bytes of the instance.
    let instance_size = (1 << 20) + table_elements * 64;
    pool.total_core_instances(count(per_call.instances))
        .total_component_instances(u32::try_from(components).unwrap_or(u32::MAX))
        .total_memories(count(per_call.memories))
        .total_tables(count(per_call.tables))
        .total_stacks(count(1))
        .max_core_instances_per_component(each(per_call.instances))
        .max_memories_per_component(each(per_call.memories))
        .max_tables_per_component(each(per_call.tables))
        .max_component_instance_size(instance_size)
        .max_memories_per_module(1)
        .max_tables_per_module(1)
        .table_elements(table_elements)
        .max_core_instance_size(instance_size)
        .max_memory_size(usize::try_from(settings.limits.ceiling.memory).unwrap_or(usize::MAX))
        // What has pages in memory between calls.
        .max_unused_warm_slots(each(settings.concurrency))
        // Rust puts a stack of 1 MiB first, and touches pages behind it. The kernel names the touched pages.
        .linear_memory_keep_resident(2 << 20)
        // Without it each call gives its table's pages back and faults them in again: 5 of 21 µs (`cargo xtask bench hook`).
        .table_keep_resident(table_elements * size_of::<usize>())
        .pagemap_scan(Enabled::Auto);
    pool
}
