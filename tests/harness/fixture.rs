//! Fixture that one test has to itself: a namespace, a parent kind, names, a server that hosts its controllers alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use kube::Client;
use serde_json::{Value, json};

use crate::api::{self, Kind, Objects};
use crate::cluster::Binaries;
use crate::control_plane::ControlPlane;
use crate::figures::{Bound, Figure};
use crate::objects::{self, Composite, Decorator, Hook, Parent};
use crate::paths;
use crate::rights;
use crate::server::Server;

/// Controllers with this label and the test's name as its value belong to the test.
const LABEL: &str = "metahook-test";

/// Beside other tests, and maybe on a busy machine, all takes longer.
const PATIENCE: f64 = 20.0;

/// The kinds of guests whose scenarios use the guest's own definition.
const GUEST_DEFINITIONS: [&str; 7] = [
    "guests/catset/crd.yaml",
    "guests/config-propagation/crd.yaml",
    "guests/daemon-job/crd.yaml",
    "guests/hello/crd.yaml",
    "guests/immortal/crd.yaml",
    "guests/indexed-job/crd.yaml",
    "guests/secret-propagation/crd.yaml",
];

static COUNT: AtomicU32 = AtomicU32::new(1);

/// Made for one test; what it made is undone in reverse order.
pub struct Fixture {
    name: String,
    kind: Kind,
    plane: Arc<ControlPlane>,
    client: Client,
    server: Server,
    figures: Vec<Figure>,
    /// Bounds of time are so many times as large.
    patience: f64,
    undo: Vec<Undo>,
    has_least_rights: bool,
    bears_refusals: bool,
}

enum Undo {
    Delete(Box<Objects>, String),
    StopServer,
}

impl Fixture {
    /// A namespace for the test of this title.
    pub async fn new(plane: Arc<ControlPlane>, client: Client, title: &str) -> Result<Self> {
        let name = unique_name(title);
        let kind = Kind::new(&format!("{name}.example.com"), "v1", "Greeting", "greetings");
        let log = plane.logs().join(format!("{name}.log"));
        let server = Server::new(paths::server()?, plane.kubeconfig(), log)
            .only(&label(&name))
            .logging_each_reconcile();
        let mut fixture = Self {
            name,
            kind,
            plane,
            client,
            server,
            figures: Vec::new(),
            patience: PATIENCE,
            undo: Vec::new(),
            has_least_rights: false,
            bears_refusals: false,
        };
        let namespaces = Objects::cluster_wide(&fixture.client, &api::NAMESPACE);
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": fixture.name } });
        fixture.make(&namespaces, namespace).await?;
        Ok(fixture)
    }

    /// From its start on the server has the rights of the manifests, and for each controller that the test hosts those that
    /// `metahook rbac` prints. What the API server refuses it fails the test.
    pub async fn with_least_rights(&mut self) -> Result<()> {
        let kubeconfig = rights::account(self).await?;
        self.server.reach_by(&kubeconfig);
        self.has_least_rights = true;
        Ok(())
    }

    /// What the API server refuses the server no longer fails the test, which takes rights away.
    pub fn bear_refusals(&mut self) {
        self.bears_refusals = true;
    }

    /// Unique among all tests: the namespace, the first part of the parents' group, the controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Parents are of the kind that the garbage collector knows from its start; one test only can have it.
    pub fn take_known_kind(&mut self) {
        self.kind = known_kind();
    }

    /// The label of controllers that the test's server hosts: `key=value`.
    pub fn label(&self) -> String {
        label(&self.name)
    }

    /// The kind of the test's parents.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    pub fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    pub fn parents(&self) -> Objects {
        self.within(&self.kind)
    }

    pub fn pods(&self) -> Objects {
        self.within(&api::POD)
    }

    pub fn config_maps(&self) -> Objects {
        self.within(&api::CONFIG_MAP)
    }

    pub fn controllers(&self) -> Objects {
        Objects::cluster_wide(&self.client, &api::COMPOSITE_CONTROLLER)
    }

    pub fn decorators(&self) -> Objects {
        Objects::cluster_wide(&self.client, &api::DECORATOR_CONTROLLER)
    }

    pub fn definitions(&self) -> Objects {
        Objects::cluster_wide(&self.client, &api::CRD)
    }

    /// Objects of a kind that knows no namespaces.
    pub fn everywhere(&self, kind: &Kind) -> Objects {
        Objects::cluster_wide(&self.client, kind)
    }

    /// Objects in the test's namespace.
    pub fn within(&self, kind: &Kind) -> Objects {
        Objects::within(&self.client, kind, &self.name)
    }

    /// Objects in another namespace.
    pub fn within_other(&self, kind: &Kind, namespace: &str) -> Objects {
        Objects::within(&self.client, kind, namespace)
    }

    /// Objects in the namespace of the test's server: `default`, that of all servers outside of the cluster, or the test's own
    /// where the server has least rights.
    pub fn within_default(&self, kind: &Kind) -> Objects {
        let own = if self.has_least_rights { self.name() } else { "default" };
        Objects::within(&self.client, kind, own)
    }

    /// A controller of the test's own kind, with generated selectors, that its server hosts.
    pub fn controller(&self) -> Composite {
        Composite::named(&self.name).labelled(LABEL, &self.name).over(&self.kind).generating_selectors()
    }

    /// A controller that decorates nothing yet, that the test's server hosts.
    pub fn decorator(&self) -> Decorator {
        Decorator::named(&self.name).labelled(LABEL, &self.name)
    }

    /// The module in this `ConfigMap` of the test's namespace.
    pub fn hook(&self, config_map: &str) -> Hook {
        Hook::wasm(&self.name, config_map)
    }

    pub fn parent(&self, name: &str) -> Parent {
        Parent::named(&self.kind, name)
    }

    /// Makes the test's own kind known to the cluster.
    pub async fn define_kind(&mut self) -> Result<()> {
        self.define(&self.kind.clone()).await
    }

    /// Makes another kind known to the cluster. It stays: while the garbage collector notices that a kind is gone it
    /// collects nothing, up to half a minute, for any test.
    pub async fn define(&mut self, kind: &Kind) -> Result<()> {
        define(&self.client, kind).await
    }

    /// Creates an object that is deleted with the test.
    pub async fn make(&mut self, place: &Objects, object: Value) -> Result<Value> {
        let made = place.create(object).await?;
        self.undo
            .push(Undo::Delete(Box::new(place.clone()), objects::text(&made, "/metadata/name").to_owned()));
        Ok(made)
    }

    /// Creates an object that is deleted after all others: those that are undone before may need it.
    pub(crate) async fn keep(&mut self, place: &Objects, object: Value) -> Result<()> {
        self.make(place, object).await?;
        self.undo.rotate_right(1);
        Ok(())
    }

    /// Puts a module into a `ConfigMap` of the test's namespace, or another one in its place.
    pub async fn store(&mut self, config_map: &str, wasm: &[u8]) -> Result<()> {
        let place = self.config_maps();
        let object = objects::module(config_map, wasm);
        if place.find(config_map).await?.is_some() {
            place.merge(config_map, &object).await?;
        } else {
            self.make(&place, object).await?;
        }
        Ok(())
    }

    pub async fn host(&mut self, controller: Composite) -> Result<Value> {
        self.host_json(&self.controllers(), controller.json()).await
    }

    pub async fn host_decorator(&mut self, controller: Decorator) -> Result<Value> {
        self.host_json(&self.decorators(), controller.json()).await
    }

    /// Grants what a controller needs that the test changes to this one later.
    pub async fn grant(&mut self, controller: Composite) -> Result<()> {
        if self.has_least_rights {
            rights::grant(self, &controller.json()).await?;
        }
        Ok(())
    }

    async fn host_json(&mut self, place: &Objects, controller: Value) -> Result<Value> {
        if self.has_least_rights {
            rights::grant(self, &controller).await?;
        }
        self.make(place, controller).await
    }

    pub async fn create(&mut self, parent: Parent) -> Result<Value> {
        self.make(&self.parents(), parent.json()).await
    }

    /// One more server with the flags that the test's server has so far, which ends with the test.
    pub fn second_server(&self) -> Server {
        self.server.another(&self.plane.logs().join(format!("{}-second.log", self.name)))
    }

    /// Starts the server.
    pub fn serve(&mut self) -> Result<()> {
        self.undo.push(Undo::StopServer);
        self.server.start()
    }

    /// Waits until the test's controller is as `is` wants it.
    pub async fn until_controller(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        self.controllers().until(&self.name, what, is).await
    }

    /// Waits for an Event on a parent.
    pub async fn until_event(
        &self,
        parent: &str,
        reason: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let fields =
            format!("involvedObject.kind={},involvedObject.name={parent},reason={reason}", self.kind.kind);
        self.within(&api::EVENT).until_some(&fields, "the Event", is).await
    }

    /// Waits for an Event on the test's controller; Events on cluster-wide objects lie in `default`.
    pub async fn until_controller_event(&self, reason: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        let events = Objects::within(&self.client, &api::EVENT, "default");
        let fields = format!(
            "involvedObject.kind=CompositeController,involvedObject.name={},reason={reason}",
            self.name
        );
        events.until_some(&fields, "the Event", is).await
    }

    /// Waits for an Event on an object; Events on cluster-wide objects lie in `default`.
    pub async fn until_event_on(
        &self,
        object: &Value,
        reason: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let fields = format!("involvedObject.uid={},reason={reason}", objects::uid(object));
        self.within_other(&api::EVENT, namespace).until_some(&fields, "the Event", is).await
    }

    /// Records a figure of an experiment; an error beyond its bound.
    pub fn at_most(&mut self, what: &str, measured: f64, unit: &'static str, bound: f64) -> Result<()> {
        self.measured(Figure { what: what.to_owned(), measured, unit, bound: Bound::AtMost(bound) })
    }

    /// Records a figure of an experiment; an error below its bound.
    pub fn at_least(&mut self, what: &str, measured: f64, unit: &'static str, bound: f64) -> Result<()> {
        self.measured(Figure { what: what.to_owned(), measured, unit, bound: Bound::AtLeast(bound) })
    }

    /// From now on bounds of time are taken as they are: nothing else runs on the machine.
    pub fn measure_time(&mut self) {
        self.patience = 1.0;
    }

    fn measured(&mut self, figure: Figure) -> Result<()> {
        let figure = figure.relaxed(self.patience);
        let (holds, text) = (figure.holds(), figure.to_string());
        self.figures.push(figure);
        ensure!(holds, "{text}");
        Ok(())
    }

    pub fn take_figures(&mut self) -> Vec<Figure> {
        std::mem::take(&mut self.figures)
    }

    /// A fixture of a control plane of its own, for a test that does to it what no other test can bear.
    pub async fn on_its_own_plane(title: &str) -> Result<Self> {
        let plane = ControlPlane::start_with(&Binaries::find_or_build()?, prepare).await?;
        let client = plane.client().await?;
        Self::new(Arc::new(plane), client, title).await
    }

    /// Ends the fixture after a test, whose error gets the end of the server's log.
    pub async fn end(&mut self, tested: Result<()>) -> Result<()> {
        let tested = tested.with_context(|| self.evidence());
        tested.and(self.tear_down().await.context("cannot tear down"))
    }

    /// Undoes everything, the last thing first; a server that has ended unasked is an error.
    pub async fn tear_down(&mut self) -> Result<()> {
        let mut result = self.server.runs();
        if self.has_least_rights && !self.bears_refusals {
            result = result.and(rights::nothing_was_refused(self.server.log()));
        }
        while let Some(undo) = self.undo.pop() {
            let undone = match undo {
                Undo::Delete(place, name) => place.delete(&name).await,
                Undo::StopServer => self.server.stop().await.map(drop),
            };
            result = result.and(undone);
        }
        result
    }

    /// Text that helps to understand a failure.
    pub fn evidence(&mut self) -> String {
        let ended = self.server.runs().err().map_or_else(String::new, |why| format!("{why}; "));
        ended + &self.server.tail(40)
    }
}

/// Makes known what has to be known before the controllers start: our kinds, those of guests, and one for a test.
pub async fn prepare(plane: &ControlPlane) -> Result<()> {
    let kubectl = plane.kubectl();
    for file in ["manifests/namespace.yaml", "manifests/rbac.yaml"] {
        kubectl.run(&["apply", "--server-side", "-f", file]).await?;
    }
    let mut files = vec!["-f", "manifests/crds"];
    files.extend(GUEST_DEFINITIONS.iter().flat_map(|file| ["-f", file]));
    kubectl.run(&[&["apply", "--server-side"][..], &files].concat()).await?;
    define(&plane.client().await?, &known_kind()).await?;
    let wait = ["wait", "--for=condition=Established", "--timeout=180s"];
    kubectl.run(&[&wait[..], &files].concat()).await.map(drop)
}

fn known_kind() -> Kind {
    Kind::new("known.example.com", "v1", "Greeting", "greetings")
}

pub async fn define(client: &Client, kind: &Kind) -> Result<()> {
    let definitions = Objects::cluster_wide(client, &api::CRD);
    let definition = objects::definition(kind);
    let name = objects::text(&definition, "/metadata/name").to_owned();
    definitions.create(definition).await?;
    definitions.until(&name, "established", |crd| objects::is_true(crd, "Established")).await?;
    Ok(())
}

fn label(name: &str) -> String {
    format!("{LABEL}={name}")
}

/// The title as far as names may be long, and a number: no two tests are alike, nor two runs on one cluster.
fn unique_name(title: &str) -> String {
    let words = title.rsplit("::").next().unwrap_or(title).replace('_', "-");
    let short: String = words.chars().take(32).collect();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{:x}-{count}", short.trim_end_matches('-'), std::process::id())
}

/// The bytes of a guest's module.
pub fn guest(name: &str) -> Result<Vec<u8>> {
    let path = paths::guest(name)?;
    std::fs::read(&path).with_context(|| anyhow!("cannot read {}", path.display()))
}
