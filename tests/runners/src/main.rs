//! `snapshot FROM TO`: starts an interpreter, and writes a module whose memory is what that left, as the server's sandbox sees it.

use std::env;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use metahook_core::api::policy::LimitBounds;
use metahook_server::fuzzing::{CallState, engine_config, linker};
use metahook_server::hook::wasm::run::{Call, Reservation, Seed};
use wasmparser::ValType;
use wasmtime::{Engine, Instance, Module, Store, Val};
use wasmtime_wizer::{InstanceState, SnapshotVal, Wizer};

/// Elements of a table of functions in the sandbox, which are many for no interpreter.
const TABLE: usize = 50_000;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(from), Some(to)) = (arguments.next(), arguments.next()) else { bail!("snapshot FROM TO") };
    let module = std::fs::read(&from).with_context(|| from.clone())?;
    let snapshot = snapshot(&module).await.map_err(|error| anyhow!("{error:#}"))?;
    std::fs::write(&to, snapshot).context(to)
}

async fn snapshot(module: &[u8]) -> wasmtime::Result<Vec<u8>> {
    let wizer = Wizer::new();
    let (context, instrumented) = wizer.instrument(module)?;
    let engine = Engine::new(&engine_config())?;
    let module = Module::new(&engine, instrumented)?;
    let limits = LimitBounds::default().ceiling;
    let call = Call {
        controller: "snapshot",
        hook: "start",
        is_of_shadow: false,
        request: Bytes::new(),
        now: UNIX_EPOCH,
        limits,
        seed: Seed::default(),
        mounts: &[],
        memory: Reservation::default(),
    };
    let mut store = Store::new(&engine, CallState::new(call, TABLE));
    store.set_fuel(limits.instructions)?;
    let instance = linker(&engine)?.instantiate_async(&mut store, &module).await?;
    let start = instance.get_typed_func::<(), ()>(&mut store, wizer.get_init_func())?;
    start.call_async(&mut store, ()).await?;
    let [stdout, stderr] = store.data().printed();
    if !stdout.is_empty() || !stderr.is_empty() {
        wasmtime::bail!("it said {}", String::from_utf8_lossy(&[stdout, stderr].concat()));
    }
    wizer.snapshot(&context, &mut Started { store, instance }).await
}

/// An interpreter that has started.
struct Started {
    store: Store<CallState>,
    instance: Instance,
}

impl InstanceState for Started {
    async fn global_get(&mut self, name: &str, _: ValType) -> SnapshotVal {
        let global = self.instance.get_global(&mut self.store, name);
        match global.map(|global| global.get(&mut self.store)) {
            Some(Val::I32(value)) => SnapshotVal::I32(value),
            Some(Val::I64(value)) => SnapshotVal::I64(value),
            Some(Val::F32(value)) => SnapshotVal::F32(value),
            Some(Val::F64(value)) => SnapshotVal::F64(value),
            Some(Val::V128(value)) => SnapshotVal::V128(value.as_u128()),
            _ => unreachable!("the instrumented module exports its globals, which are numbers"),
        }
    }

    async fn memory_contents(&mut self, name: &str, contents: impl FnOnce(&[u8]) + Send) {
        if let Some(memory) = self.instance.get_memory(&mut self.store, name) {
            contents(memory.data(&self.store));
        }
    }
}
