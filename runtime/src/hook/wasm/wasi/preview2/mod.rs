//! Functions that a component can call: WASI preview 2, by way of wasmtime-wasi, and with preview 1's clocks, random numbers
//! and files.
//!
//! Sockets are there, since runtimes import what they never use; every one that is asked for is refused, and the call
//! remembers it. A wait is over at once, as for modules.

mod clocks;
mod cost;
mod files;
mod polls;
mod random;
mod sockets;
mod streams;

use std::time::Instant;

use wasmtime::ResourceLimiter;
use wasmtime::component::{HasData, HasSelf, Linker, ResourceTable};
use wasmtime::{Engine, Result};
use wasmtime_wasi::cli::{WasiCli, WasiCliCtxView, WasiCliView as _};
use wasmtime_wasi::p2::bindings::{cli, clocks as clock, filesystem, random as numbers, sockets as network};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsCtxView, WasiSocketsView as _};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::CALL_COST;
use super::mounts::MountedFolder;
use super::state::{Call, CallState, Script};
use cost::Cost;
pub(crate) use cost::{Charge, charge_copied, exceeded, is_too_much};
use streams::{Sink, Source};

/// Resources that a component has at once: open files, streams, things to wait for.
const MAX_RESOURCES: usize = 1000;

/// Handles that the parts of a component have at once, also of resources of their own.
pub(crate) const MAX_HANDLES: usize = 10_000;

/// Bytes that a component hands to one function of the host. For what it returns there is `max_answer`.
const MAX_HANDED: usize = 1 << 20;

/// The data of one component's instances.
pub(crate) struct ComponentState {
    call: CallState,
    /// Cost of the host function that runs.
    cost: Cost,
    /// When work of the engine last gave way.
    gave_way: Instant,
    /// The component's arguments and pipes.
    wasi: WasiCtx,
    table: ResourceTable,
    stdout: Sink,
    stderr: Sink,
    mounts: Vec<MountedFolder>,
    /// Bytes in which a function of the world `metahook:hook` may return its answer.
    max_answer: usize,
}

impl ComponentState {
    pub(crate) fn new(call: Call<'_>, script: Option<&Script>, max_table_elements: usize) -> Self {
        let args: Vec<&str> = call.args(script).collect();
        let mut wasi = WasiCtx::builder();
        let cost = Cost::default();
        wasi.args(&args).stdin(Source::new(call.request.clone(), cost.clone()));
        let mounts = call.folders(script);
        // `limits.output` bounds the answer in UTF-8. A function may return it in UTF-16, which has up to twice the bytes.
        let max_answer = usize::try_from(call.limits.output.saturating_mul(2)).unwrap_or(usize::MAX);
        let mut call = CallState::with_script(call, script, max_table_elements);
        let (stdout, stderr) =
            (Sink::whole(&mut call.stdout, cost.clone()), Sink::cut(&mut call.stderr, cost.clone()));
        wasi.stdout(stdout.clone()).stderr(stderr.clone()).allow_tcp(false).allow_udp(false);
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_RESOURCES);
        let gave_way = Instant::now();
        Self { call, cost, gave_way, wasi: wasi.build(), table, stdout, stderr, mounts, max_answer }
    }

    /// Each function of the host begins with one of the next four.
    fn own(&mut self) -> &mut Self {
        self.cost.add(CALL_COST);
        self
    }

    fn table(&mut self) -> &mut ResourceTable {
        self.cost.add(CALL_COST);
        &mut self.table
    }

    fn program(&mut self) -> WasiCliCtxView<'_> {
        self.cost.add(CALL_COST);
        self.cli()
    }

    fn network(&mut self) -> WasiSocketsCtxView<'_> {
        self.cost.add(CALL_COST);
        self.sockets()
    }

    pub(crate) fn limiter(&mut self) -> &mut dyn ResourceLimiter {
        self.call.limiter()
    }

    /// Prints an answer that was not printed but returned.
    pub(crate) fn answer(&mut self, answer: String) -> Result<()> {
        self.stdout.give(answer.into_bytes())
    }

    /// Remembers an answer that the host did not take, since it is longer than `max_answer`.
    pub(crate) fn answer_too_long(&mut self) {
        self.stdout.lose(self.max_answer);
    }

    /// The state of a call that has ended, with its output.
    pub(crate) fn into_call(self) -> CallState {
        let Self { mut call, stdout, stderr, .. } = self;
        stdout.end(&mut call.stdout);
        stderr.end(&mut call.stderr);
        call
    }
}

impl WasiView for ComponentState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// The resources of wasmtime-wasi's streams.
struct Table;

impl HasData for Table {
    type Data<'a> = &'a mut ResourceTable;
}

/// All functions that a component can call.
pub(crate) fn component_linker(engine: &Engine) -> Result<Linker<ComponentState>> {
    type Own = HasSelf<ComponentState>;
    let mut linker = Linker::new(engine);
    let l = &mut linker;
    wasmtime_wasi_io::bindings::wasi::io::error::add_to_linker::<_, Table>(l, ComponentState::table)?;
    wasmtime_wasi_io::bindings::wasi::io::poll::add_to_linker::<_, Own>(l, ComponentState::own)?;
    wasmtime_wasi_io::bindings::wasi::io::streams::add_to_linker::<_, Table>(l, ComponentState::table)?;
    cli::environment::add_to_linker::<_, WasiCli>(l, ComponentState::program)?;
    cli::exit::add_to_linker::<_, WasiCli>(l, ComponentState::program)?;
    cli::stdin::add_to_linker::<_, WasiCli>(l, ComponentState::program)?;
    cli::stdout::add_to_linker::<_, WasiCli>(l, ComponentState::program)?;
    cli::stderr::add_to_linker::<_, WasiCli>(l, ComponentState::program)?;
    cli::terminal_input::add_to_linker::<_, WasiCli>(l, ComponentState::program)?;
    cli::terminal_output::add_to_linker::<_, WasiCli>(l, ComponentState::program)?;
    cli::terminal_stdin::add_to_linker::<_, WasiCli>(l, ComponentState::program)?;
    cli::terminal_stdout::add_to_linker::<_, WasiCli>(l, ComponentState::program)?;
    cli::terminal_stderr::add_to_linker::<_, WasiCli>(l, ComponentState::program)?;
    clock::wall_clock::add_to_linker::<_, Own>(l, ComponentState::own)?;
    clock::monotonic_clock::add_to_linker::<_, Own>(l, ComponentState::own)?;
    numbers::random::add_to_linker::<_, Own>(l, ComponentState::own)?;
    numbers::insecure::add_to_linker::<_, Own>(l, ComponentState::own)?;
    numbers::insecure_seed::add_to_linker::<_, Own>(l, ComponentState::own)?;
    filesystem::types::add_to_linker::<_, Own>(l, ComponentState::own)?;
    filesystem::preopens::add_to_linker::<_, Own>(l, ComponentState::own)?;
    network::tcp_create_socket::add_to_linker::<_, Own>(l, ComponentState::own)?;
    network::udp_create_socket::add_to_linker::<_, Own>(l, ComponentState::own)?;
    network::instance_network::add_to_linker::<_, WasiSockets>(l, ComponentState::network)?;
    network::ip_name_lookup::add_to_linker::<_, Own>(l, ComponentState::own)?;
    network::network::add_to_linker::<_, WasiSockets>(
        l,
        &network::network::LinkOptions::default(),
        ComponentState::network,
    )?;
    network::tcp::add_to_linker::<_, WasiSockets>(l, ComponentState::network)?;
    network::udp::add_to_linker::<_, WasiSockets>(l, ComponentState::network)?;
    Ok(linker)
}
