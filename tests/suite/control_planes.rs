//! The control planes of a run: a plain one from the start, and others from the first test that wants them.

use std::sync::Arc;
use std::time::Instant;

use acceptance::cluster::Binaries;
use acceptance::control_plane::ControlPlane;
use acceptance::fixture;
use acceptance::helm::find_or_build as find_or_build_helm;
use acceptance::node::{Missing, Parts};
use acceptance::wait::elapsed;
use anyhow::{Context, Result, anyhow};
use kube::Client;
use tokio::sync::OnceCell;

/// A control plane and who talks to it.
#[derive(Clone)]
pub(crate) struct Plane {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) client: Client,
}

/// Where a test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Shared by most tests.
    Plain,
    WithNode,
    /// Away from others: its API server guards owner references, as `OpenShift`'s does by default, and tests may break what
    /// a whole cluster needs.
    Apart,
}

const OWNER_GUARD: &str = "OwnerReferencesPermissionEnforcement";

pub(crate) struct ControlPlanes {
    plain: Plane,
    /// Tried once, too.
    apart: OnceCell<Result<Plane, String>>,
    /// Tried once: what went wrong goes wrong for every test.
    with_node: OnceCell<Result<Result<Plane, Missing>, String>>,
    /// Tried once, too.
    helm: OnceCell<Result<(), String>>,
}

impl ControlPlanes {
    pub(crate) async fn start() -> Result<Self> {
        let start = Instant::now();
        let plane = ControlPlane::start_with(&Binaries::find_or_build()?, fixture::prepare).await?;
        eprintln!("control plane ready after {}", elapsed(start));
        Ok(Self {
            plain: Plane::of(plane).await?,
            apart: OnceCell::new(),
            with_node: OnceCell::new(),
            helm: OnceCell::new(),
        })
    }

    pub(crate) fn plain(&self) -> Plane {
        self.plain.clone()
    }

    /// The control plane, or why there can be none with a node here.
    pub(crate) async fn get(&self, place: Place) -> Result<Result<Plane, Missing>> {
        match place {
            Place::Plain => Ok(Ok(self.plain())),
            Place::WithNode => self.with_node().await,
            Place::Apart => {
                let start = async || start_apart().await.map_err(|why| format!("{why:#}"));
                let started = self.apart.get_or_init(start).await;
                started.clone().map(Ok).map_err(|why| anyhow!(why))
            }
        }
    }

    async fn with_node(&self) -> Result<Result<Plane, Missing>> {
        let started = self
            .with_node
            .get_or_init(async || start_with_node().await.map_err(|why| format!("{why:#}")))
            .await;
        started.clone().map_err(|why| anyhow!(why))
    }

    /// Builds Helm if need be; else why it cannot be built, in one line.
    pub(crate) async fn helm(&self) -> Result<(), String> {
        let build = async || {
            let built = tokio::task::spawn_blocking(find_or_build_helm).await;
            let built = built.map_err(Into::into).and_then(|built| built);
            built.map(drop).map_err(|why| format!("{why:#}").replace('\n', "; "))
        };
        self.helm.get_or_init(build).await.clone()
    }

    /// Keeps all logs; not while a test still runs.
    pub(crate) fn keep_logs(self) {
        let with_node = self.with_node.into_inner().and_then(Result::ok);
        let apart = self.apart.into_inner().and_then(Result::ok);
        for plane in [Some(self.plain), with_node.and_then(Result::ok), apart] {
            if let Some(mut plane) = plane.and_then(|plane| Arc::into_inner(plane.plane)) {
                plane.keep_logs();
            }
        }
    }
}

impl Plane {
    async fn of(plane: ControlPlane) -> Result<Self> {
        Ok(Self { client: plane.client().await?, plane: Arc::new(plane) })
    }
}

async fn start_apart() -> Result<Plane> {
    let start = Instant::now();
    let binaries = Binaries::find_or_build()?;
    let plane = ControlPlane::start_admitting(&binaries, Some(OWNER_GUARD), fixture::prepare).await?;
    eprintln!("control plane apart from others ready after {}", elapsed(start));
    Plane::of(plane).await
}

pub(crate) async fn start_with_node() -> Result<Result<Plane, Missing>> {
    let found = tokio::task::spawn_blocking(|| Parts::find_or_build(false));
    let parts = match found.await.context("looking for a node's parts panicked")?? {
        Ok(parts) => parts,
        Err(missing) => return Ok(Err(missing)),
    };
    let start = Instant::now();
    let plane = ControlPlane::start_with_node(&parts, &[], fixture::prepare).await?;
    eprintln!("node ready after {}", elapsed(start));
    Ok(Ok(Plane::of(plane).await?))
}
