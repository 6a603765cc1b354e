//! Kit of the field cases: a controller for each way of writing children, whose hook answers what its parent says.

use acceptance::api::{self, Kind, Objects};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{Composite, Hook, Parent, text, uid, version};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::compat::customize::define_cluster_scoped;

/// How a controller writes its children: update strategy and apply strategy.
pub(crate) type Way = (&'static str, &'static str);

pub(crate) const DYNAMIC: &str = "dynamic-apply";
pub(crate) const SERVER_SIDE: &str = "server-side-apply";

pub(crate) const EACH_WAY: [Way; 4] =
    [("InPlace", DYNAMIC), ("Recreate", DYNAMIC), ("InPlace", SERVER_SIDE), ("Recreate", SERVER_SIDE)];
pub(crate) const IN_PLACE: [Way; 2] = [("InPlace", DYNAMIC), ("InPlace", SERVER_SIDE)];

/// The name of the parent in each world.
pub(crate) const PARENT: &str = "w";

/// The label by which a controller finds the parents of its world.
const WORLD: &str = "world";

/// One controller with one parent, in a namespace of their own.
pub(crate) struct World {
    pub(crate) way: Way,
    pub(crate) namespace: String,
    pub(crate) controller: String,
    /// Its parent and its children are cluster-scoped.
    is_wide: bool,
}

/// A controller for each way over children of these kinds, and the server. Parents come with their first answer.
pub(crate) async fn worlds(test: &mut Fixture, ways: &[Way], kinds: &[&Kind]) -> Result<Vec<World>> {
    test.define_kind().await?;
    made(test, ways, kinds, false).await
}

/// As [`worlds`], with cluster-scoped parents and children. Names of children are unique with the name of the controller.
pub(crate) async fn wide_worlds(test: &mut Fixture, ways: &[Way], kinds: &[&Kind]) -> Result<Vec<World>> {
    define_cluster_scoped(test, &test.kind().clone()).await?;
    made(test, ways, kinds, true).await
}

async fn made(test: &mut Fixture, ways: &[Way], kinds: &[&Kind], is_wide: bool) -> Result<Vec<World>> {
    test.store("echo", &guest("probe_echo")?).await?;
    let mut all = Vec::new();
    for (nth, way) in ways.iter().enumerate() {
        let name = format!("{}-{nth}", test.name());
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        test.make(&test.everywhere(&api::NAMESPACE), namespace).await?;
        let mut controller = test.controller().renamed(&name).of_parents_with(WORLD, &nth.to_string());
        for kind in kinds {
            controller = controller.making(kind, way.0);
        }
        let hook = test.hook("echo").version("v2");
        test.host(controller.with("applyStrategy", way.1).synced_by(hook)).await?;
        all.push(World { way: *way, namespace: name.clone(), controller: name, is_wide });
    }
    test.serve()?;
    Ok(all)
}

impl World {
    /// The objects of a kind in this world.
    pub(crate) fn objects(&self, test: &Fixture, kind: &Kind) -> Objects {
        if self.is_wide { test.everywhere(kind) } else { test.within_other(kind, &self.namespace) }
    }

    pub(crate) fn parents(&self, test: &Fixture) -> Objects {
        self.objects(test, test.kind())
    }

    /// From now on the hook answers these children.
    pub(crate) async fn answers(&self, test: &mut Fixture, children: Value) -> Result<()> {
        self.answers_text(test, &json!({ "status": {}, "children": children }).to_string()).await
    }

    /// From now on the hook answers this text.
    pub(crate) async fn answers_text(&self, test: &mut Fixture, answer: &str) -> Result<()> {
        let parents = self.parents(test);
        let spec = json!({ "answer": answer });
        if parents.find(self.parent_name()).await?.is_some() {
            return parents.merge(self.parent_name(), &json!({ "spec": spec })).await.map(drop);
        }
        self.make_parent(test, self.parent_name(), spec).await
    }

    async fn make_parent(&self, test: &mut Fixture, name: &str, spec: Value) -> Result<()> {
        let number = self.controller.rsplit('-').next().unwrap_or_default();
        let parent = Parent::named(test.kind(), name).labelled(WORLD, number).with(spec);
        test.make(&self.parents(test), parent.json()).await.map(drop)
    }

    /// Waits for an Event on the parent.
    pub(crate) async fn until_event(
        &self,
        test: &Fixture,
        reason: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let parent = self.parents(test).get(self.parent_name()).await?;
        let fields = format!("involvedObject.uid={},reason={reason}", uid(&parent));
        self.objects(test, &api::EVENT).until_some(&fields, "the Event", is).await
    }

    /// Wakes the parent and waits until a reconcile writes nothing. Without being woken, one that ended before the last
    /// change would do: the reconcile that makes the change may still be running.
    pub(crate) async fn until_settled(&self, test: &mut Fixture) -> Result<()> {
        let running = self.reconciles(test)?;
        self.poke(test).await?;
        self.until_reconciled(test, &running).await?;
        let parent = self.log_name();
        test.server()
            .until_log("a reconcile that writes nothing", |log| {
                Reconciles::read(log, &parent).last_wrote == Some(false)
            })
            .await
            .map(drop)
    }

    /// The measure QUIET: the children keep identity and version, whatever wakes their parent; a restart of the server may
    /// write each once, and makes none anew.
    pub(crate) async fn is_quiet(&self, test: &mut Fixture, kinds: &[&Kind]) -> Result<()> {
        are_quiet(test, std::slice::from_ref(self), kinds).await
    }

    async fn stays_over_restart(&self, test: &mut Fixture, kinds: &[&Kind], start: &Start) -> Result<()> {
        let (before, poked) = start;
        self.until_reconciled(test, poked).await?;
        self.until_settled(test).await?;
        let restarted = self.reconciles(test)?;
        let after = self.children(test, kinds).await?;
        let uids = |all: &[(String, String)]| all.iter().map(|(uid, _)| uid.clone()).collect::<Vec<_>>();
        ensure!(uids(&after) == uids(before), "a restart made a child anew");
        let written = restarted.written - poked.written;
        ensure!(written <= before.len(), "a restart wrote {written} times about {} children", before.len());
        Ok(())
    }

    /// The measure QUIET without its restart.
    pub(crate) async fn is_still(&self, test: &mut Fixture, kinds: &[&Kind]) -> Result<()> {
        self.stays_when_poked(test, kinds).await.map(drop).with_context(|| format!("{:?}", self.way))
    }

    async fn stays_when_poked(&self, test: &mut Fixture, kinds: &[&Kind]) -> Result<Start> {
        self.until_settled(test).await?;
        let before = self.children(test, kinds).await?;
        let reconciles = self.reconciles(test)?;
        self.poke(test).await?;
        self.until_reconciled(test, &reconciles).await?;
        let poked = self.reconciles(test)?;
        ensure!(poked.written == reconciles.written, "a reconcile of an unchanged parent wrote");
        let after = self.children(test, kinds).await?;
        ensure!(after == before, "a child changed: {before:?}\n{after:?}");
        Ok((before, poked))
    }

    /// Wakes the parent, and changes nothing that its hook reads.
    pub(crate) async fn poke(&self, test: &Fixture) -> Result<()> {
        let parents = self.parents(test);
        let parent = parents.get(self.parent_name()).await?;
        let poke = json!({ "metadata": { "annotations": { "poke": version(&parent) } } });
        parents.merge(self.parent_name(), &poke).await.map(drop)
    }

    /// Identity and state of each child that the parent controls, in the order of their kinds and names.
    pub(crate) async fn children(&self, test: &Fixture, kinds: &[&Kind]) -> Result<Vec<(String, String)>> {
        let parent = self.parents(test).get(self.parent_name()).await?;
        let mut all = Vec::new();
        for kind in kinds {
            let mut of_kind = self.objects(test, kind).list().await?;
            of_kind.retain(|child| text(child, "/metadata/ownerReferences/0/uid") == uid(&parent));
            of_kind.sort_by_key(|child| text(child, "/metadata/name").to_owned());
            all.extend(of_kind.iter().map(|child| (uid(child).to_owned(), state(child))));
        }
        Ok(all)
    }

    /// Reconciles of the parent so far, by the server's log.
    pub(crate) fn reconciles(&self, test: &mut Fixture) -> Result<Reconciles> {
        let log = test.server().log().to_owned();
        let log = std::fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
        Ok(Reconciles::read(&log, &self.log_name()))
    }

    pub(crate) async fn until_reconciled(&self, test: &mut Fixture, before: &Reconciles) -> Result<()> {
        let (parent, count) = (self.log_name(), before.count);
        test.server()
            .until_log("one more reconcile", |log| Reconciles::read(log, &parent).count > count)
            .await
            .map(drop)
    }

    fn log_name(&self) -> String {
        self.log_name_of(self.parent_name())
    }

    fn log_name_of(&self, parent: &str) -> String {
        if self.is_wide { parent.to_owned() } else { format!("{}/{parent}", self.namespace) }
    }

    fn parent_name(&self) -> &str {
        if self.is_wide { &self.controller } else { PARENT }
    }

    /// One more parent, with this spec; the world's measures do not count it.
    pub(crate) async fn another_parent(&self, test: &mut Fixture, name: &str, spec: Value) -> Result<Value> {
        let number = self.controller.rsplit('-').next().unwrap_or_default();
        let parent = Parent::named(test.kind(), name).labelled(WORLD, number).with(spec);
        test.make(&self.parents(test), parent.json()).await
    }

    /// From now on another hook answers in place of the echo.
    pub(crate) async fn is_synced_by(&self, test: &Fixture, hook: Hook) -> Result<()> {
        let mut hook = Composite::named("any").synced_by(hook).json()["spec"]["hooks"]["sync"].take();
        if hook["wasm"].is_null() {
            hook["wasm"] = Value::Null; // of a merge patch: the module is taken out
        }
        let hooks = json!({ "spec": { "hooks": { "sync": hook } } });
        test.controllers().merge(&self.controller, &hooks).await.map(drop)
    }

    /// The measure BOUNDED for the parent, which fails: the Event comes again, its reconciles write nothing and come less and
    /// less often, and another parent of the controller is served meanwhile.
    pub(crate) async fn is_bounded(&self, test: &mut Fixture, is: impl Fn(&Value) -> bool) -> Result<()> {
        self.bounded(test, is).await.with_context(|| format!("{:?}", self.way))
    }

    async fn bounded(&self, test: &mut Fixture, is: impl Fn(&Value) -> bool) -> Result<()> {
        let again = |event: &Value| is(event) && event["count"].as_u64() > Some(1);
        self.until_event(test, "SyncError", again).await?;
        let before = self.reconciles(test)?;
        let (parent, failed) = (self.log_name(), before.failed);
        test.server()
            .until_log("one more failure", |log| Reconciles::read(log, &parent).failed > failed)
            .await?;
        let other = format!("{}-meanwhile", self.parent_name());
        self.make_parent(test, &other, json!({})).await?;
        let other = self.log_name_of(&other);
        let is_served = |log: &str| Reconciles::read(log, &other).count > 0;
        test.server().until_log("another parent is served", is_served).await?;
        let after = self.reconciles(test)?;
        ensure!(after.written == before.written, "a reconcile that fails wrote: {before:?}, {after:?}");
        // Delays are doubled: so many take minutes.
        ensure!(after.failed < 30, "{} reconciles failed", after.failed);
        Ok(())
    }
}

/// Children and reconciles before a restart.
type Start = (Vec<(String, String)>, Reconciles);

/// The version of an object. The controllers of the cluster write the status of some kinds when they like: of those it is what
/// the others write.
fn state(child: &Value) -> String {
    if child["status"].is_null() {
        return version(child).to_owned();
    }
    let mut state = child.clone();
    state["status"] = Value::Null;
    for field in ["resourceVersion", "generation"] {
        state["metadata"][field] = Value::Null;
    }
    state["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = Value::Null;
    state.to_string()
}

/// The measure QUIET in each world, with one restart.
pub(crate) async fn are_quiet(test: &mut Fixture, worlds: &[World], kinds: &[&Kind]) -> Result<()> {
    let way = |world: &World| format!("{:?}", world.way);
    let mut starts = Vec::new();
    for world in worlds {
        starts.push(world.stays_when_poked(test, kinds).await.with_context(|| way(world))?);
    }
    test.server().stop().await?;
    test.server().start()?;
    for (world, start) in worlds.iter().zip(&starts) {
        world.stays_over_restart(test, kinds, start).await.with_context(|| way(world))?;
    }
    Ok(())
}

/// A `ConfigMap` as answers have it.
pub(crate) fn config(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

/// Reconciles of one parent in the server's log.
#[derive(Debug, Default)]
pub(crate) struct Reconciles {
    /// Reconciles that ended well.
    pub(crate) count: usize,
    /// Requests that wrote, whatever came of the reconcile.
    pub(crate) written: usize,
    /// Reconciles that failed.
    pub(crate) failed: usize,
    last_wrote: Option<bool>,
}

impl Reconciles {
    fn read(log: &str, parent: &str) -> Self {
        let named = format!(r#""parent":"{parent}""#);
        let mut all = Self::default();
        for line in log.lines().filter(|line| line.contains(&named)) {
            if line.contains(r#""message":"synced""#) {
                all.count += 1;
                all.last_wrote = Some(line.contains(r#""wrote":true"#));
            } else if line.contains(r#""message":"written""#) {
                all.written += 1;
            } else if line.contains(r#""message":"sync failed""#) {
                all.failed += 1;
            }
        }
        all
    }
}

/// Waits until a child of this name is as `is` wants it, in each world.
pub(crate) async fn in_each(
    test: &Fixture,
    worlds: &[World],
    kind: &Kind,
    name: &str,
    is: impl Fn(&Value) -> bool,
) -> Result<()> {
    for world in worlds {
        let child = world.objects(test, kind).until(name, "as the answer has it", &is).await;
        child.with_context(|| format!("{:?}", world.way))?;
    }
    Ok(())
}
