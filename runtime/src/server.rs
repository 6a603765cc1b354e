//! The server put together: each part is built once, started, and stopped in order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use metahook_core::object::selector::Selector;
use metahook_core::spec::hook::LimitBounds;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::client::{self, ConnectError};
use crate::cluster::discovery::Discovery;
use crate::cluster::events::Recorder;
use crate::cluster::rest::Rest;
use crate::controller::Tools;
use crate::controller::host::Host;
use crate::hook::wasm::bounds::ModuleSettings;
use crate::hook::wasm::engine::EngineError;
use crate::hook::wasm::module::{Runtime, RuntimeSettings};
use crate::hook::wasm::source::Modules;
use crate::store::Stores;
use crate::telemetry::http::{ListenError, Probes};

/// Events that are still to be written when the server stops have this long.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What a server is told by its flags.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub kubeconfig: Option<PathBuf>,
    /// Which controllers to host, by their labels.
    pub selector: Selector,
    pub workers: usize,
    pub discovery_interval: Duration,
    pub hook_concurrency: usize,
    pub max_children: usize,
    pub hook_limits: LimitBounds,
    pub modules: ModuleSettings,
    /// Where probes are answered.
    pub probes: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Runs until `stop`; passes that are under way then are ended first.
pub async fn serve(settings: Settings, stop: CancellationToken) -> Result<(), ServeError> {
    let background = CancellationToken::new();
    let ready = watch::Sender::new(false);
    if let Some(address) = settings.probes {
        tokio::spawn(Probes::bind(address).await?.serve(ready.subscribe(), background.clone()));
    }
    let client = client::connect(settings.kubeconfig.as_deref()).await?;
    let rest = Rest::new(client);
    tokio::select! {
        reached = client::wait_until_reachable(&rest) => reached?,
        () = stop.cancelled() => return Ok(()),
    }
    let bounds = settings.hook_limits;
    let (slots, modules) = (settings.hook_concurrency, settings.modules);
    let runtime = Arc::new(Runtime::new(&RuntimeSettings { slots, limits: bounds, modules })?);
    let (recorder, events) = Recorder::start(rest.clone(), background.clone());
    let discovery = Arc::new(Discovery::new(rest.clone()));
    let fresh = Arc::clone(&discovery);
    let interval = settings.discovery_interval;
    let freshness = tokio::spawn({
        let stop = background.clone();
        async move { fresh.keep_fresh(interval, stop).await }
    });
    let tools = Tools {
        stores: Arc::new(Stores::new(rest.clone())),
        modules: Arc::new(Modules::new(rest.clone(), runtime)),
        discovery,
        recorder,
        bounds,
        workers: settings.workers,
        max_children: settings.max_children,
        discovery_interval: settings.discovery_interval,
        rest,
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "serving");
    Host::new(tools, settings.selector).run(&ready, stop).await;
    background.cancel();
    // Both end at the token, and what is to be said must not hold the end; a panic in them has been printed.
    drop(tokio::time::timeout(LAST_WORDS, events).await);
    freshness.await.unwrap_or_default();
    tracing::info!("stopped");
    Ok(())
}
