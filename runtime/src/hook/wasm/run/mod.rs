//! One call of a module: a fresh instance, its limits, what it printed.

pub mod call_error;
pub(crate) mod concurrency;
pub mod engine;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt as _;
use metahook_core::api::limits::Limits;
use wasmtime::Store;

use crate::hook::wasm::source::module::{Module, Runtime};
use crate::hook::wasm::wasi::Exit;
use crate::hook::wasm::wasi::state::Host;
pub use crate::hook::wasm::wasi::{Files, MountedFiles, MountedFolder};
pub use call_error::CallError;
use call_error::{Ended, why};

/// A long hook gives way to the others after this many units of fuel.
pub(crate) const YIELD_EVERY: u64 = 100_000;

/// A request may be this large.
pub(crate) const LARGEST_REQUEST: usize = 32 << 20;

/// What is asked of a hook.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// `argv[0]`.
    pub controller: &'a str,
    /// `argv[1]`: sync, finalize or customize.
    pub hook: &'a str,
    pub request: Bytes,
    /// What the hook is told if it asks what time it is.
    pub now: SystemTime,
    pub limits: Limits,
    /// What the hook's random numbers are made of.
    pub seed: Seed,
    /// Folders that the hook may read.
    pub mounts: &'a [MountedFolder],
}

/// Where random numbers start: the same seed gives the same numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)") // who knows it knows a hook's random numbers
    }
}

/// What came of a call, also of a failed one.
#[derive(Debug)]
pub struct Called {
    pub answer: Result<Vec<u8>, CallError>,
    pub log: Log,
    pub usage: Usage,
    /// The hook saw its request and nothing else: it never asked what time it is.
    pub pure: bool,
}

/// What the hook printed on stderr.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Log {
    pub text: String,
    /// Bytes beyond the limit.
    pub lost: usize,
}

/// What a call used of its budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub instructions: u64,
    /// Most linear memory, in bytes.
    pub memory: u64,
}

impl Runtime {
    /// Calls a module once. Nothing outlives the call.
    pub async fn call(&self, module: &Module, call: Call<'_>) -> Called {
        if call.request.len() > LARGEST_REQUEST {
            let answer = Err(CallError::Request(call.request.len()));
            return Called { answer, log: Log::default(), usage: Usage::default(), pure: true };
        }
        let slot = self.slots.acquire(call.controller).await;
        let limits = call.limits;
        let mut store = Store::new(&self.sandbox.engine, Host::new(call, self.sandbox.table_elements));
        store.limiter(|host| &mut host.limiter);
        let ended = within(limits.timeout, start(&mut store, module, limits.instructions)).await;
        let left = store.get_fuel().unwrap_or_default();
        let host = store.into_data();
        let usage =
            Usage { instructions: limits.instructions.saturating_sub(left), memory: host.limiter.most };
        let log =
            Log { text: String::from_utf8_lossy(&host.stderr.bytes).into_owned(), lost: host.stderr.lost };
        let pure = !host.clock.told();
        let answer = match ended {
            Ok(()) => Ok(host.stdout.bytes),
            Err(ended) => Err(why(&ended, &limits, &host, &log)),
        };
        // A place that is given back is taken at once. After a failure others get their turn first: to find out where a
        // hook was that used up its stack takes a millisecond, and no fuel.
        if answer.is_err() {
            tokio::task::yield_now().await;
        }
        drop(slot);
        Called { answer, log, usage, pure }
    }
}

/// However a call ends, by a panic too, it is this call alone that does.
async fn within(timeout: Duration, run: impl Future<Output = Result<(), Ended>>) -> Result<(), Ended> {
    match tokio::time::timeout(timeout, AssertUnwindSafe(run).catch_unwind()).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(panic)) => Err(Ended::panicked(panic.as_ref())),
        Err(_elapsed) => Err(Ended::Late),
    }
}

async fn start(store: &mut Store<Host>, module: &Module, instructions: u64) -> Result<(), Ended> {
    let ready = async {
        store.set_fuel(instructions)?;
        store.fuel_async_yield_interval(Some(YIELD_EVERY))?;
        module.ready.instantiate_async(&mut *store).await?.get_typed_func::<(), ()>(&mut *store, "_start")
    };
    let main = ready.await.map_err(Ended::Starting)?;
    match main.call_async(store, ()).await {
        Err(error) if error.downcast_ref() == Some(&Exit(0)) => Ok(()),
        ended => ended.map_err(Ended::Running),
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::api::limits::LimitBounds;

    use super::*;
    use crate::hook::wasm::compile::ModuleSettings;
    use crate::hook::wasm::source::module::RuntimeSettings;

    fn call(limits: Limits) -> Call<'static> {
        let now = SystemTime::UNIX_EPOCH;
        let request = Bytes::new();
        Call { controller: "c", hook: "sync", request, now, limits, seed: Seed::default(), mounts: &[] }
    }

    #[tokio::test]
    async fn a_panic_of_the_host_fails_its_call_alone_and_gives_the_place_back() {
        let bounds = LimitBounds::default();
        let settings = RuntimeSettings { slots: 1, limits: bounds, modules: ModuleSettings::new("none") };
        let runtime = Runtime::new(&settings).unwrap();
        let panics = runtime.of_text(
            r#"(module (import "test" "panic" (func $panic)) (memory (export "memory") 1)
                 (func (export "_start") (call $panic)))"#,
        );
        let fine = runtime.of_text("(module (func (export \"_start\")))");
        for _ in 0..3 {
            let error = runtime.call(&panics, call(bounds.default)).await.answer.unwrap_err();
            assert_eq!(
                error.to_string(),
                "the server failed while it ran the hook, which is a bug of the server: as the test wants it"
            );
            assert_eq!(runtime.call(&fine, call(bounds.default)).await.answer, Ok(Vec::new()));
        }
    }
}
