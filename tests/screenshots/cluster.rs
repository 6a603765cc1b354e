//! The cluster whose pages are taken: a control plane, a server, controllers whose hooks are webhooks of this program.

use std::time::Duration;

use acceptance::api::{self, CONFIG_MAP, Kind, Objects};
use acceptance::control_plane::ControlPlane;
use acceptance::fixture::define;
use acceptance::free_port::free_address;
use acceptance::objects::{Composite, Hook, Parent, text};
use acceptance::paths;
use acceptance::process::Process;
use acceptance::server::Server;
use acceptance::wait::until;
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result};
use binaries::cluster::Binaries;
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::json;

use crate::session::Session;

/// Twenty thousand parents take some minutes on two cores.
const PATIENCE: Duration = Duration::from_mins(15);

const SHOPS: [&str; 12] = [
    "cart", "catalog", "checkout", "images", "login", "mail", "orders", "prices", "reviews", "search",
    "stock", "users",
];

pub(crate) struct Cluster {
    plane: ControlPlane,
    client: Client,
    server: Server,
    hook: Webhook,
    dashboard: Option<Process>,
    inspection: String,
}

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let plane = ControlPlane::start(&Binaries::find_or_build()?).await?;
        let crds = paths::workspace().join("manifests/crds").display().to_string();
        plane.kubectl().run(&["apply", "-f", &crds]).await?;
        let client = plane.client().await?;
        let hook = Webhook::serve(answer).await?;
        let inspection = free_address()?.to_string();
        let mut server = Server::new(paths::server()?, plane.kubeconfig(), plane.logs().join("server.log"));
        server.flag(&format!("--inspection-address={inspection}"));
        server.start()?;
        Ok(Self { plane, client, server, hook, dashboard: None, inspection })
    }

    /// A session with new pages.
    pub(crate) async fn session(&mut self) -> Result<Session> {
        self.server.runs()?;
        let kubeconfig = self.plane.kubeconfig().display().to_string();
        let line = ["dashboard", "--no-open", "--server", &self.inspection, "--kubeconfig", &kubeconfig];
        // A command before this one printed its own address.
        self.dashboard = None;
        let log = self.plane.scratch().join("dashboard.log");
        drop(std::fs::remove_file(&log));
        let dashboard =
            Process::start("metahook dashboard", &paths::server()?, &line.map(str::to_owned), &log)?;
        let address = until("the command prints its address", PATIENCE, async || {
            let log = std::fs::read_to_string(dashboard.log())?;
            let line = log.lines().find(|line| line.starts_with("http://")).map(str::to_owned);
            Ok(line.ok_or(log))
        });
        let address = address.await?;
        self.dashboard = Some(dashboard);
        Session::open(&address).await
    }

    /// Some controllers: most are well, some parents fail, one is paused.
    pub(crate) async fn make_some(&self) -> Result<()> {
        let apps = Kind::new("shop.example.com", "v1", "WebApp", "webapps");
        let invoices = Kind::new("shop.example.com", "v1", "Invoice", "invoices");
        let backups = Kind::new("ops.example.com", "v1", "Backup", "backups");
        self.namespace("shop").await?;
        for (kind, name, url) in [
            (&apps, "web-apps", self.hook.url("/")),
            (&invoices, "invoices", self.hook.url("/broken")),
            (&backups, "nightly-backups", self.hook.url("/")),
        ] {
            self.controller(kind, name, &url).await?;
        }
        for (kind, names) in [(&apps, &SHOPS[..]), (&invoices, &SHOPS[..3]), (&backups, &SHOPS[..2])] {
            self.parents(kind, "shop", names.iter().map(|&name| name.to_owned()).collect()).await?;
        }
        let paused = json!({ "metadata": { "annotations": { "metahook.dev/paused": "true" } } });
        Objects::within(&self.client, &apps, "shop").merge("stock", &paused).await?;
        self.until_failing("web-apps", 12, 2).await?;
        // An update, so that there is something to see.
        let changed = json!({ "spec": { "replicas": 3 } });
        Objects::within(&self.client, &apps, "shop").merge("cart", &changed).await?;
        self.until_failing("invoices", 3, 3).await
    }

    /// Changes a parent twice, so that its hook is called with two requests.
    pub(crate) async fn change_cart(&self) -> Result<()> {
        let apps = Kind::new("shop.example.com", "v1", "WebApp", "webapps");
        let (apps, children) = (
            Objects::within(&self.client, &apps, "shop"),
            Objects::within(&self.client, &CONFIG_MAP, "shop"),
        );
        for replicas in [4, 5] {
            let shown = json!(replicas.to_string());
            apps.merge("cart", &json!({ "spec": { "replicas": replicas } })).await?;
            children.until("cart-webapp", "changed", |child| child["data"]["replicas"] == shown).await?;
        }
        Ok(())
    }

    /// A controller with many parents.
    pub(crate) async fn make_many(&self, parents: usize) -> Result<()> {
        let sensors = Kind::new("factory.example.com", "v1", "Sensor", "sensors");
        self.namespace("factory").await?;
        self.controller(&sensors, "sensors", &self.hook.url("/status")).await?;
        let names = (0..parents).map(|number| format!("sensor-{number:05}")).collect();
        self.parents(&sensors, "factory", names).await?;
        self.until_failing("sensors", parents, parents.div_ceil(1000)).await
    }

    async fn namespace(&self, name: &str) -> Result<()> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        Objects::cluster_wide(&self.client, &api::NAMESPACE).create(namespace).await.map(drop)
    }

    async fn controller(&self, kind: &Kind, name: &str, url: &str) -> Result<()> {
        define(&self.client, kind).await?;
        let controller = Composite::named(name).over(kind).generating_selectors();
        let controller = controller.making(&CONFIG_MAP, "InPlace").synced_by(Hook::webhook(url));
        let controllers = Objects::cluster_wide(&self.client, &api::COMPOSITE_CONTROLLER);
        controllers.create(controller.json()).await.map(drop)
    }

    async fn parents(&self, kind: &Kind, namespace: &str, names: Vec<String>) -> Result<()> {
        let objects = Objects::within(&self.client, kind, namespace);
        let create = |name: String| {
            let parent = Parent::named(kind, &name).with(json!({ "replicas": 1 })).json();
            let objects = &objects;
            async move { objects.create(parent).await }
        };
        stream::iter(names).map(create).buffer_unordered(16).try_for_each(async |_| Ok(())).await
    }

    /// Waits until so many of the controller's parents fail.
    async fn until_failing(&self, name: &str, parents: usize, failing: usize) -> Result<()> {
        let controllers = Objects::cluster_wide(&self.client, &api::COMPOSITE_CONTROLLER);
        until(&format!("{failing} of {parents} parents of {name} fail"), PATIENCE, async || {
            let controller = controllers.find(name).await?.context("it is gone")?;
            let status = &controller["status"];
            let is = status["parents"] == parents && status["failing"] == failing;
            Ok(if is { Ok(()) } else { Err(status.to_string()) })
        })
        .await
    }
}

/// What all hooks answer, by the path of their URL.
fn answer(asked: &Asked) -> Answer {
    let name = text(&asked.body, "/parent/metadata/name");
    let namespace = text(&asked.body, "/parent/metadata/namespace");
    let number = name.strip_prefix("sensor-").and_then(|number| number.parse::<u32>().ok());
    match (&*asked.path, name) {
        ("/broken", _) => Answer::text("the database of invoices does not answer").with_status(503),
        ("/status", _) if number.is_some_and(|number| number % 1000 == 7) => {
            Answer::text("the sensor has no calibration").with_status(500)
        }
        ("/status", _) => json!({ "status": { "calibrated": true }, "children": [] }).into(),
        (_, "images" | "mail") => Answer::text("no such image registry").with_status(500),
        _ => {
            let data = json!({ "replicas": asked.body["parent"]["spec"]["replicas"].to_string() });
            let kind = text(&asked.body, "/parent/kind").to_lowercase();
            let metadata = json!({ "name": format!("{name}-{kind}"), "namespace": namespace });
            let child =
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
            json!({ "status": { "ready": true }, "children": [child] }).into()
        }
    }
}
