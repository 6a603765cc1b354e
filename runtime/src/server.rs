//! The server put together: each part is built once, started, and stopped in order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use metahook_core::api::kept::KeptBounds;
use metahook_core::api::policy::HookPolicy;
use metahook_core::hosting::{Hosting, Session};
use metahook_core::object::id::Key;
use metahook_core::object::selector::Selector;
use metahook_core::pacing::Rate;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::{ApiClient, ConnectError};
use crate::cluster::discovery::Discovery;
use crate::cluster::events::Recorder;
use crate::cluster::installation_key::{InstallationKey, installation_key};
use crate::cluster::leases::{ElectionTask, LeaseLost};
use crate::cluster::presence::OtherServers;
use crate::cluster::write_gate::{Candidate, WriteGate};
use crate::controller::heavy_work::HeavyWorkLimiter;
use crate::controller::host::Host;
use crate::controller::observer::Observer;
use crate::controller::running::RunningControllers;
use crate::controller::{Cluster, Context, Controllers, HookRuntime, Options, Telemetry};
use crate::hook::wasm::compile::{ModuleSettings, SealKey};
use crate::hook::wasm::run::{EngineError, RuntimeSettings};
use crate::hook::wasm::source::kept::KeptVersions;
use crate::hook::wasm::source::{HookSources, ModuleRegistry, MountMemory};
use crate::hook::wasm::wasi::Seeds;
use crate::hook::web::{Pools, RedirectPolicy};
use crate::inspection::{Inspected, InspectionSettings};
use crate::memory::{MemoryBudget, TracesTooLarge, default_budget, default_cache_budget};
use crate::spans::{Spans, SpansError};
use crate::store::Stores;
use crate::store::budget::CacheBudget;
use crate::telemetry::http::{self, Health, ListenError};
use crate::telemetry::metrics::Metrics;

/// Events that are still to be written when the server stops have this long.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(3);

/// Settings of a server, from its flags.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; its current one when absent.
    pub context: Option<String>,
    /// Which controllers to host, by their labels.
    pub selector: Selector,
    /// Takes part in an election, and writes only while it leads.
    pub election: Option<Election>,
    pub options: Options,
    pub webhook_redirects: RedirectPolicy,
    pub hook_concurrency: usize,
    /// Hooks get other random numbers at each call.
    #[cfg(debug_assertions)]
    pub seed_each_call: bool,
    pub hook_policy: HookPolicy,
    /// Bytes that the files of all mounts may take.
    pub mount_memory: u64,
    /// Bytes that reconciles and their traces may take; what the cgroup's limit leaves when absent.
    pub memory_budget: Option<u64>,
    /// Bytes that caches may take; half of the cgroup's limit, or of the machine's memory, when absent.
    pub cache_budget: Option<u64>,
    pub modules: ModuleSettings,
    pub kept: KeptBounds,
    /// How many requests to the API server there may be; `None` is any number.
    pub rate: Option<Rate>,
    /// How many Events about one object with one reason there may be.
    pub events: Rate,
    /// Lists and watches of which nothing comes for so long are asked for again.
    pub read_timeout: Duration,
    /// Where probes are answered.
    pub probes: Option<SocketAddr>,
    /// Address of metrics.
    pub metrics: Option<SocketAddr>,
    /// Where people look into the server.
    pub inspection: Option<InspectionSettings>,
}

/// The Lease by which one of several servers leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Namespace of the Lease; that of the server's Pod, or of the kubeconfig, when absent.
    pub namespace: Option<String>,
    pub name: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the operating system gives no random numbers")]
    Random(#[from] getrandom::Error),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Spans(#[from] SpansError),
    #[error(transparent)]
    Memory(#[from] TracesTooLarge),
    #[error("no thread for probes can be started")]
    Probes(#[source] std::io::Error),
}

/// Parts that only a server of `metahook dev` has.
pub struct DevServer {
    pub session: Session,
    /// The file that holds the module of all hooks.
    pub module: PathBuf,
    pub observer: Observer,
}

/// Runs until `stop`; reconciles under way end first.
pub async fn serve(settings: Settings, stop: CancellationToken) -> Result<(), ServeError> {
    run(settings, None, stop).await
}

/// Serves the one controller of a session. It leaves nothing in the cluster but what it writes for its controller.
pub async fn serve_dev(
    settings: Settings,
    dev: DevServer,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    run(settings, Some(dev), stop).await
}

async fn run(settings: Settings, dev: Option<DevServer>, stop: CancellationToken) -> Result<(), ServeError> {
    let (background, ready) = (CancellationToken::new(), watch::Sender::new(false));
    let memory = memory_budget(&settings)?;
    let pools = Pools::new(settings.options.max_webhook_answer, settings.webhook_redirects);
    let spans = Spans::of_environment(&pools)?;
    let (scrapes, inspected) = listen(&settings, &ready, &background).await?;
    let api = connect(&settings).await?;
    tokio::select! {
        reached = api.wait_until_reachable() => reached?,
        () = stop.cancelled() => return Ok(()),
    }
    // Controllers may be listed much later: their definitions or the right to list them may be missing for as long.
    ready.send_replace(true);
    let Role { key, others, hosting, module, observer } = Role::of(dev, &api, &settings.selector).await?;
    let InstallationKey { key, lasting } = key;
    let modules = Arc::new(module_registry(&settings, lasting.then(|| SealKey::of(&key)))?);
    if settings.modules.prepare_runners {
        tokio::spawn(Arc::clone(&modules).prepare_runners());
    }
    let mut election = ElectionTask::start(&api);
    let caches = cache_budget(&settings);
    let traces = inspected.traces();
    let metrics =
        server_metrics(&api, &modules, (&memory, &caches), &others).with_traces(move || traces.bytes());
    if let Some(listener) = scrapes {
        tokio::spawn(http::serve_metrics(listener, metrics.clone(), background.clone()));
    }
    let (recorder, events) = Recorder::start(api.clone(), settings.events, background.clone());
    let discovery = Arc::new(Discovery::new(api.clone()));
    let interval = settings.options.discovery_interval;
    let freshness = tokio::spawn(Arc::clone(&discovery).keep_fresh(interval, background.clone()));
    let running = RunningControllers::default();
    let (stores, heavy_work) = (Arc::new(Stores::within(api.clone(), caches)), HeavyWorkLimiter::default());
    let context = Context {
        controllers: Arc::new(Controllers::open(&stores)),
        decorators: Arc::default(),
        memory,
        hosting,
        telemetry: Telemetry {
            metrics,
            observer,
            traces: inspected.start(&api, &running, &background).sending(spans.clone()),
            running,
        },
        hooks: hook_runtime(&api, &settings, modules, (Seeds::new(key), module), pools),
        options: settings.options,
        cluster: Cluster { api, stores, discovery, recorder, others, heavy_work },
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "serving");
    tokio::select! {
        () = Host::new(context).run(stop) => {}
        // What is under way is dropped: another server may lead.
        lost = election.lost() => return Err(lost.into()),
    }
    background.cancel();
    // Both end at the token, and Events still to be written must not hold the end; a panic in them has been printed.
    drop(tokio::time::timeout(EVENTS_TIMEOUT, events).await);
    freshness.await.unwrap_or_default();
    // The Lease is held until the last write has ended.
    election.end().await;
    OptionFuture::from(spans.map(Spans::flush)).await;
    tracing::info!("stopped");
    Ok(())
}

/// The parts by which the server of a session differs from one of a cluster.
struct Role {
    key: InstallationKey,
    others: OtherServers,
    hosting: Hosting,
    module: Option<PathBuf>,
    observer: Observer,
}

impl Role {
    /// A session's server neither makes the installation's Secret nor signs the Lease of servers.
    async fn of(dev: Option<DevServer>, api: &ApiClient, selector: &Selector) -> Result<Self, ServeError> {
        Ok(match dev {
            None => Self {
                key: installation_key(&api.for_leases()).await?,
                others: OtherServers::watch(api, selector)?,
                hosting: Hosting::Server(selector.clone()),
                module: None,
                observer: Observer::default(),
            },
            Some(DevServer { session, module, observer }) => Self {
                key: InstallationKey::fresh()?,
                others: OtherServers::none(),
                hosting: Hosting::Dev(session),
                module: Some(module),
                observer,
            },
        })
    }
}

/// `seal_key`: seals the artifacts that are kept on disk.
fn module_registry(settings: &Settings, seal_key: Option<SealKey>) -> Result<ModuleRegistry, EngineError> {
    ModuleRegistry::new(&RuntimeSettings {
        concurrency: settings.hook_concurrency,
        limits: settings.hook_policy.limits,
        modules: ModuleSettings { seal_key, ..settings.modules.clone() },
    })
}

/// `module`: the file that holds the module of all hooks.
fn hook_runtime(
    api: &ApiClient,
    settings: &Settings,
    modules: Arc<ModuleRegistry>,
    (seeds, module): (Seeds, Option<PathBuf>),
    pools: Arc<Pools>,
) -> HookRuntime {
    #[cfg(debug_assertions)]
    let seeds = if settings.seed_each_call { seeds.other_for_each_call() } else { seeds };
    let mut sources = HookSources::new(api.clone(), modules, MountMemory::new(settings.mount_memory));
    match module {
        Some(module) => sources = sources.with_module_file(module),
        None => sources = sources.keeping(KeptVersions::new(api.clone(), settings.kept)),
    }
    HookRuntime {
        sources: Arc::new(sources),
        seeds: Arc::new(seeds),
        policy: Arc::new(settings.hook_policy.clone()),
        pools,
    }
}

/// Answers probes, and opens the addresses of metrics and of those who look into the server.
async fn listen(
    settings: &Settings,
    ready: &watch::Sender<bool>,
    stop: &CancellationToken,
) -> Result<(Option<TcpListener>, Inspected), ServeError> {
    if let Some(address) = settings.probes {
        answer_probes(address, ready, stop).await?;
    }
    let scrapes = settings.metrics.map(|address| http::bind("--metrics-address", address));
    let scrapes = OptionFuture::from(scrapes).await.transpose()?;
    Ok((scrapes, Inspected::bind(settings.inspection.as_ref()).await?))
}

async fn answer_probes(
    address: SocketAddr,
    ready: &watch::Sender<bool>,
    stop: &CancellationToken,
) -> Result<(), ServeError> {
    let listener = http::bind("--health-probe-bind-address", address).await?;
    let health = Health::of_this_runtime(ready.subscribe(), stop.clone());
    health.serve(listener, stop.clone()).map_err(ServeError::Probes)
}

/// The client of the API server; that of a server that takes part in an election writes nothing before it leads.
async fn connect(settings: &Settings) -> Result<ApiClient, ServeError> {
    let Settings { kubeconfig, context, rate, read_timeout, election, .. } = settings;
    let reach = (kubeconfig.as_deref(), context.as_deref());
    let api = ApiClient::connect_to(reach, *rate, *read_timeout).await?;
    let Some(Election { namespace, name }) = election else { return Ok(api) };
    let namespace = namespace.as_deref().unwrap_or(api.client.default_namespace());
    let candidate = Candidate::new(Key::new(namespace, name))?;
    Ok(api.gated(WriteGate::standby(candidate)))
}

/// Metrics, with those of the server as a whole.
fn server_metrics(
    api: &ApiClient,
    modules: &Arc<ModuleRegistry>,
    (memory, caches): (&MemoryBudget, &CacheBudget),
    others: &OtherServers,
) -> Metrics {
    let (compilations, gate, others) = (Arc::clone(modules), api.gate().clone(), others.clone());
    let caches = caches.clone();
    let metrics = Metrics::new(move || compilations.compilations())
        .with_server(&api.requests, &api.watches, memory)
        .with_caches(move || caches.figures())
        .with_others(move || others.is_any());
    match gate.candidate().map(|candidate| Arc::clone(&candidate.lease.name)) {
        Some(lease) => metrics.with_election(&lease, move || gate.is_open()),
        None => metrics,
    }
}

/// The budget of all caches.
fn cache_budget(settings: &Settings) -> CacheBudget {
    let bytes = settings.cache_budget.or_else(default_cache_budget);
    if let Some(bytes) = bytes {
        tracing::info!(bytes, "cache budget");
    } else {
        tracing::info!(
            "there is no cache budget: --cache-budget is not set, and the system states no memory"
        );
    }
    CacheBudget::new(bytes)
}

/// The budget of all reconciles. Compilations are processes of their own, in the same cgroup.
fn memory_budget(settings: &Settings) -> Result<MemoryBudget, TracesTooLarge> {
    let others = settings.mount_memory + settings.modules.bounds.compile_memory;
    let traces = settings.inspection.as_ref().map_or(0, |inspection| inspection.trace_memory as u64);
    let budget = MemoryBudget::beside_traces(settings.memory_budget, || default_budget(others), traces)?;
    tracing::info!(bytes = budget.figures().budget, traces, "memory budget");
    Ok(budget)
}
