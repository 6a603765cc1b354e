//! The control plane that is measured on: namespaces made and emptied, the server started on it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use acceptance::api::{COMPOSITE_CONTROLLER, CONFIG_MAP, Kind as Named, NAMESPACE, Objects, POD};
use acceptance::cluster::Binaries;
use acceptance::control_plane::ControlPlane;
use acceptance::fixture::{self, guest};
use acceptance::free_port::free_address;
use acceptance::objects::{Composite, Hook, is_true, module};
use acceptance::paths;
use acceptance::server::Server;
use anyhow::Result;
use kube::Client;
use serde_json::json;

use crate::api::{Api, Kind};
use crate::bodies::CONTROLLER;
use crate::crowd;
use crate::usage;

pub(crate) struct Cluster {
    plane: ControlPlane,
    client: Client,
    flags: Vec<String>,
}

/// A server that is ready for parents.
pub(crate) struct Running {
    server: Server,
    pub(crate) pid: u32,
    pub(crate) metrics: SocketAddr,
}

impl Cluster {
    pub(crate) async fn start(flags: Vec<String>) -> Result<Self> {
        eprintln!("starting a control plane");
        let plane = ControlPlane::start_with(&Binaries::find_or_build()?, fixture::prepare).await?;
        let client = plane.client().await?;
        let cluster = Self { plane, client, flags };
        let api = cluster.namespace(CONTROLLER).await?;
        let module = module("hook", &guest("hello")?);
        Objects::within(&cluster.client, &CONFIG_MAP, &api.namespace).create(module).await?;
        let parents = Named::new("example.com", "v1", "HelloWorld", "helloworlds");
        let controller = Composite::named(CONTROLLER)
            .over(&parents)
            .generating_selectors()
            .making(&POD, "Recreate")
            .synced_by(Hook::wasm(CONTROLLER, "hook"));
        cluster.controllers().create(controller.json()).await?;
        Ok(cluster)
    }

    /// Another hook for the controller: one that asks for so many ConfigMaps.
    pub(crate) async fn ask_for_config_maps(&self, count: usize) -> Result<()> {
        let maps = Objects::within(&self.client, &CONFIG_MAP, CONTROLLER);
        maps.create(module("maps", &guest("probe_answers")?)).await?;
        let hook = Hook::wasm(CONTROLLER, "maps").with_settings(json!({ "way": "children", "count": count }));
        let controllers = self.controllers();
        controllers.delete(CONTROLLER).await?;
        controllers.until_gone(CONTROLLER).await?;
        let parents = Named::new("example.com", "v1", "HelloWorld", "helloworlds");
        let controller = Composite::named(CONTROLLER)
            .over(&parents)
            .generating_selectors()
            .making(&CONFIG_MAP, "InPlace")
            .synced_by(hook);
        controllers.create(controller.json()).await.map(drop)
    }

    pub(crate) async fn namespace(&self, name: &str) -> Result<Api> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        Objects::cluster_wide(&self.client, &NAMESPACE).create(namespace).await?;
        Ok(Api::new(self.client.clone(), name))
    }

    /// Removes all parents and Pods; the namespace stays, which costs nothing.
    pub(crate) async fn empty(&self, api: &Api) -> Result<()> {
        for kind in [Kind::Parent, Kind::Pod] {
            let all = api.all(kind).await?;
            let (count, api) = (all.len(), api.clone());
            crowd::each(count, move |number| {
                let (api, (name, uid)) = (api.clone(), all.get(number).cloned().unwrap_or_default());
                async move { api.remove(kind, &name, &uid).await }
            })
            .await?;
        }
        usage::quiet().await
    }

    /// The server as users get it, with the controller of `guests/hello` ready. `flags`: more of them.
    pub(crate) async fn serve(&self, flags: &[String]) -> Result<Running> {
        let running = self.start_server(flags).await?;
        usage::quiet().await?;
        Ok(running)
    }

    pub(crate) async fn start_server(&self, flags: &[String]) -> Result<Running> {
        let metrics = free_address()?;
        let log = self.plane.logs().join("metahook.log");
        let mut server = Server::new(paths::server()?, self.plane.kubeconfig(), log);
        server.flag(&format!("--metrics-address={metrics}"));
        self.flags.iter().chain(flags).for_each(|flag| server.flag(flag));
        self.looks_again_each_second(false).await?;
        // What its predecessor said is no news.
        self.controllers().merge_status(CONTROLLER, &json!({ "status": null })).await?;
        server.start()?;
        self.controllers().until(CONTROLLER, "Ready", |controller| is_true(controller, "Ready")).await?;
        Ok(Running { pid: server.pid()?, metrics, server })
    }

    /// Has the controller look at all its parents each second, or no more.
    pub(crate) async fn looks_again_each_second(&self, does: bool) -> Result<()> {
        let period = if does { json!(1) } else { json!(null) };
        let patch = json!({ "spec": { "resyncPeriodSeconds": period } });
        self.controllers().merge(CONTROLLER, &patch).await.map(drop)
    }

    /// Of the user that the server is.
    pub(crate) fn kubeconfig(&self) -> &Path {
        self.plane.kubeconfig()
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.plane.logs()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    fn controllers(&self) -> Objects {
        Objects::cluster_wide(&self.client, &COMPOSITE_CONTROLLER)
    }
}

impl Running {
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.server.stop().await.map(drop)
    }
}
