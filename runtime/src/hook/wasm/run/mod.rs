//! Calls of modules: a fresh instance each, its limits, and its output.
//!
//! The measure of a call is instructions (fuel), equal on every machine; the timeout is a net. Calls into the host count as
//! instructions by what they do, so that a loop of them ends, too. Each limit that a call exceeds is named with its budget.

mod call_error;
mod component;
mod concurrency;
mod instance_permits;
mod pool;
mod slices;
mod stopped_at;
#[cfg(test)]
pub(super) mod tests;
mod threads;
mod turns;
mod watchdog;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use metahook_core::api::policy::{LimitBounds, Limits};
use metahook_core::hook::Usage;
use metahook_core::hook::{MAX_REQUEST, RequestTooLarge};
use metahook_core::shorten;
use tokio_util::sync::CancellationToken;
use wasmtime::{InstancePre, Linker, Store, Trap};

use super::compile::{
    Code, CodeSpace, Compiled, Digest, Engines, ModuleError, ModuleFacts, ModuleSettings, Origin, StartWork,
    WasmKind,
};
use super::wasi::{
    self, CallState, ComponentState, Exit, MAX_HANDLES, MAX_INSTANCES, MAX_MEMORIES, MAX_TABLES,
    YIELD_INTERVAL,
};
pub(crate) use super::wasi::{COMPILE, Script};
pub use super::wasi::{Call, Files, MountedFiles, MountedFolder, Seed};
pub use crate::memory::Reservation;
pub use call_error::CallError;
use call_error::Failure;
use component::ReadyComponent;
use concurrency::{Concurrency, max_instances};
use pool::{PerCall, engine, pool};
use stopped_at::LastStop;
use threads::{Conduct, HookThreads};
use turns::{CallTurns, Ran};
use watchdog::{Watch, Watchdog};

/// `limits.memory` of a call that may begin on its caller's thread.
const MAX_MEMORY_HERE: u64 = 64 << 20;

/// Bytes of an error that wasmtime describes.
const MAX_ERROR: usize = 500;

/// Settings of hooks that are modules.
#[derive(Debug, Clone)]
pub struct RuntimeSettings {
    /// Calls at once.
    pub concurrency: usize,
    pub limits: LimitBounds,
    pub modules: ModuleSettings,
}

/// The engines that run modules and components.
pub struct Runtime {
    pub(super) engines: Engines,
    linker: Linker<CallState>,
    component_linker: wasmtime::component::Linker<ComponentState>,
    concurrency: Concurrency,
    threads: HookThreads,
    watchdog: Watchdog,
    max_table_elements: usize,
    /// The server stops.
    stops: CancellationToken,
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the WebAssembly engine cannot be started: {0}")]
    Engine(String),
    #[error("no threads for hooks can be started")]
    Threads(#[source] std::io::Error),
}

impl From<wasmtime::Error> for EngineError {
    fn from(error: wasmtime::Error) -> Self {
        Self::Engine(format!("{error:#}"))
    }
}

/// A module or a component that can be called.
pub struct Module {
    pub digest: Digest,
    pub size: usize,
    pub origin: Origin,
    /// The interpreter of a script.
    pub(crate) runner: Option<Arc<Module>>,
    ready: Ready,
    start: StartWork,
    /// Script that the interpreter runs.
    script: Option<Script>,
    last_stop: LastStop,
    conduct: Conduct,
    /// Taken for as long as its code is; a script's is that of its runner.
    _space: Option<Arc<CodeSpace>>,
}

/// Code with everything it imports.
#[derive(Clone)]
enum Ready {
    Module(InstancePre<CallState>),
    Component(ReadyComponent),
}

/// The result of a call, with its log and usage also where it failed.
#[derive(Debug)]
pub struct Called {
    pub answer: Result<Vec<u8>, CallError>,
    pub log: Log,
    pub usage: Usage,
    /// The answer depends on the request alone: the hook never read the realtime clock.
    pub pure: bool,
}

/// The text that a hook printed on stderr.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    pub text: String,
    /// Bytes beyond the limit.
    pub lost: usize,
    /// Lines with text that begin beyond it.
    pub lost_lines: usize,
}

impl Log {
    /// Lines that are not blank.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !line.trim().is_empty())
    }
}

impl Runtime {
    /// Calls have a pool of instances; no pool where the address space for it is missing.
    pub(super) fn new(settings: &RuntimeSettings) -> Result<Self, EngineError> {
        let max_table_elements = settings.modules.bounds.functions as usize;
        let per_call = PerCall { instances: 1, memories: 1, tables: 1 };
        let modules = pool(settings, max_table_elements, 0, per_call);
        let per_call = PerCall { instances: MAX_INSTANCES, memories: MAX_MEMORIES, tables: MAX_TABLES };
        let components = pool(settings, max_table_elements, max_instances(settings.concurrency), per_call);
        let engines = Engines {
            modules: engine(WasmKind::Module, modules)?,
            components: engine(WasmKind::Component, components)?,
        };
        let linker = wasi::linker(&engines.modules)?;
        let component_linker = wasi::component_linker(&engines.components)?;
        let concurrency = Concurrency::new(settings.concurrency);
        let threads = HookThreads::start().map_err(EngineError::Threads)?;
        let watchdog = Watchdog::start().map_err(EngineError::Threads)?;
        Ok(Self {
            engines,
            linker,
            component_linker,
            concurrency,
            threads,
            watchdog,
            max_table_elements,
            stops: CancellationToken::new(),
        })
    }

    /// Ends calls whose answers are of no use any more, at their next slice.
    pub fn stop(&self) {
        self.stops.cancel();
    }

    /// Makes a module of code.
    ///
    /// # Errors
    /// The code imports a function that WASI has with another type.
    pub(super) fn module(
        &self,
        ModuleFacts { digest, size, start }: ModuleFacts,
        code: &Code,
        origin: Origin,
    ) -> Result<Module, ModuleError> {
        let import = |error| ModuleError::Import(shorten(&format!("{error:#}"), MAX_ERROR));
        let ready = match &code.compiled {
            Compiled::Module(code) => Ready::Module(self.linker.instantiate_pre(code).map_err(import)?),
            Compiled::Component(code) => {
                let ready = self.component_linker.instantiate_pre(code).map_err(import)?;
                Ready::Component(ReadyComponent::new(ready)?)
            }
        };
        Ok(Module {
            digest,
            size,
            origin,
            runner: None,
            ready,
            start,
            script: None,
            last_stop: LastStop::default(),
            conduct: Conduct::default(),
            _space: Some(Arc::clone(&code.space)),
        })
    }

    /// Makes a module of a script: its interpreter, with the script to run.
    pub(super) fn script(
        runner: Arc<Module>,
        digest: Digest,
        size: usize,
        took: Duration,
        script: Script,
    ) -> Module {
        let (ready, start) = (runner.ready.clone(), runner.start);
        Module {
            digest,
            size,
            origin: Origin::Compiled(took),
            runner: Some(runner),
            ready,
            start,
            script: Some(script),
            last_stop: LastStop::default(),
            conduct: Conduct::default(),
            _space: None,
        }
    }

    /// Calls a module whose answer is of no use any more once the server stops.
    pub async fn call_until_stop(&self, module: &Module, call: Call<'_>) -> Called {
        // A call that is dropped ends at its next slice.
        let called = self.stops.run_until_cancelled(self.call(module, call)).await;
        called.unwrap_or_else(|| Called::failed(CallError::Stopping))
    }

    /// Calls a module once. No state outlives the call. A script that used up its instructions is run again, to learn where.
    pub async fn call(&self, module: &Module, call: Call<'_>) -> Called {
        let again = module.script.as_ref().map(|script| (script, call.clone()));
        let mut called = self.call_once(module, module.script.as_ref(), call).await;
        if let (Err(CallError::Instructions { place, .. }), Some((script, call))) =
            (&mut called.answer, again)
        {
            *place = self.stopped_at(module, script, call).await.unwrap_or_default();
        }
        called
    }

    async fn call_once(&self, module: &Module, script: Option<&Script>, call: Call<'_>) -> Called {
        if call.request.len() > MAX_REQUEST {
            return Called::failed(CallError::Request(RequestTooLarge(call.request.len())));
        }
        let begun = self.concurrency.begin(&queue_of(&call)).await;
        let turns = CallTurns::first(begun, call.limits.timeout).await;
        let turns = (turns, self.watchdog.watch(call.controller, call.hook));
        let begins_here = module.may_begin_here(&call.limits);
        let run = match &module.ready {
            Ready::Module(ready) => self.run_module(ready.clone(), (module.start, script), call, turns),
            Ready::Component(ready) => self.run_component(ready.clone(), (module.start, script), call, turns),
        };
        match self.threads.run(run, begins_here).await {
            Ok((called, longest_slice)) => {
                module.conduct.ran(longest_slice);
                called
            }
            Err(why) => Called::failed(CallError::Bug(why)),
        }
    }

    /// A call that holds all it needs, as it may go on on another thread.
    fn run_module(
        &self,
        ready: InstancePre<CallState>,
        (start_work, script): (StartWork, Option<&Script>),
        call: Call<'_>,
        (turns, watch): (CallTurns, Watch),
    ) -> BoxFuture<'static, (Called, Duration)> {
        let (limits, start_cost) = (call.limits, start_work.cost());
        let state = CallState::with_script(call, script, self.max_table_elements);
        let mut store = Store::new(&self.engines.modules, state);
        store.limiter(CallState::limiter);
        Box::pin(async move {
            let ran = turns.run(watch, start(&mut store, &ready, limits.instructions, start_cost)).await;
            let left = store.get_fuel().unwrap_or_default();
            Called::ended(ran, &limits, left, store.into_data()).await
        })
    }

    fn run_component(
        &self,
        ready: ReadyComponent,
        (start_work, script): (StartWork, Option<&Script>),
        call: Call<'_>,
        (turns, watch): (CallTurns, Watch),
    ) -> BoxFuture<'static, (Called, Duration)> {
        let (limits, request, start_cost) = (call.limits, call.request.clone(), start_work.cost());
        let hook = call.hook.to_owned();
        let state = ComponentState::new(call, script, self.max_table_elements);
        let mut store = Store::new(&self.engines.components, state);
        store.limiter(ComponentState::limiter);
        store.set_max_component_handles(MAX_HANDLES);
        Box::pin(async move {
            let ran = turns
                .run(watch, ready.run(&mut store, (&hook, &request), limits.instructions, start_cost))
                .await;
            let left = store.get_fuel().unwrap_or_default();
            Called::ended(ran, &limits, left, store.into_data().into_call()).await
        })
    }
}

/// The queue that a call waits in: that of its controller. Its shadows have another one, as no reconcile waits for a shadow.
fn queue_of<'a>(call: &Call<'a>) -> Cow<'a, str> {
    if call.is_of_shadow {
        Cow::from(format!("{} (shadow)", call.controller))
    } else {
        Cow::from(call.controller)
    }
}

impl Module {
    pub fn is_script(&self) -> bool {
        self.script.is_some()
    }

    /// Whether a call may have its first milliseconds on its caller's thread. A component's may not: the host copies a text that it
    /// returns, or hands from one of its parts to another, in one piece. Nor may that of a module with a lot of memory: one
    /// instruction fills or copies as much of it as the module likes.
    fn may_begin_here(&self, limits: &Limits) -> bool {
        matches!(self.ready, Ready::Module(_))
            && self.start.cost() == 0
            && limits.memory <= MAX_MEMORY_HERE
            && self.conduct.is_trusted()
    }
}

impl Called {
    /// It failed before the hook ran.
    fn failed(error: CallError) -> Self {
        Self { answer: Err(error), log: Log::default(), usage: Usage::default(), pure: true }
    }

    /// The result of a call that ran, and its longest slice. `left`: instructions that it did not use.
    async fn ended(ran: Ran, limits: &Limits, left: u64, mut state: CallState) -> (Self, Duration) {
        state.refund();
        let instructions = limits.instructions.saturating_sub(left);
        let usage = Usage { instructions, memory: state.limiter.peak_memory };
        let text = String::from_utf8_lossy(&state.stderr.bytes).into_owned();
        let log = Log { text, lost: state.stderr.lost, lost_lines: state.stderr.lost_lines };
        let pure = !state.clock.realtime_read;
        let answer = match ran.ended {
            Ok(()) => Ok(std::mem::take(&mut state.stdout.bytes)),
            Err(failure) => Err(failure.explain(limits, &state)),
        };
        // The next call takes the permit at once. After a failure other tasks run first: the backtrace of a hook that used
        // up its stack takes a millisecond, and no fuel.
        if answer.is_err() {
            tokio::task::yield_now().await;
        }
        drop(ran.turns);
        (Self { answer, log, usage, pure }, ran.longest_slice)
    }
}

/// Hands out the budget of a call, less what its start takes.
fn begin<T>(store: &mut Store<T>, instructions: u64, start_cost: u64) -> wasmtime::Result<()> {
    store.set_fuel(instructions.saturating_sub(start_cost))?;
    if instructions < start_cost {
        return Err(Trap::OutOfFuel.into());
    }
    store.fuel_async_yield_interval(Some(YIELD_INTERVAL))
}

async fn start(
    store: &mut Store<CallState>,
    module: &InstancePre<CallState>,
    instructions: u64,
    start_cost: u64,
) -> Result<(), Failure> {
    let ready = async {
        begin(store, instructions, start_cost)?;
        let instance = module.instantiate_async(&mut *store).await?;
        if start_cost > 0 {
            slices::end_turn().await;
        }
        instance.get_typed_func::<(), ()>(&mut *store, "_start")
    };
    let main = ready.await.map_err(Failure::Starting)?;
    match main.call_async(store, ()).await {
        Err(error) if error.downcast_ref() == Some(&Exit(0)) => Ok(()),
        ended => ended.map_err(Failure::Running),
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({}, {} bytes)", self.digest, self.size)
    }
}
