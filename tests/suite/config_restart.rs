//! The guest `config-restart`: Pods go once when a `ConfigMap` changes, whatever becomes of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use acceptance::api::{CONFIG_MAP, DECORATOR_CONTROLLER, DEPLOYMENT, EVENT, Kind, NAMESPACE, Objects, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{is_true, text, uid};
use acceptance::paths;
use acceptance::proxy::{Moment, Proxy, Write};
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::tutorial::{prints, types};

const MAP: &str = "frontend-config";
const MATCH: &str = "magalix.com/podDeleteMatch";
const SEEN: &str = "metahook.dev/config-seen";
const PODS: &str = "metahook.dev/pods-to-delete";

/// One namespace with a `ConfigMap` and a Deployment that reads it.
struct Place {
    namespace: String,
    maps: Objects,
    pods: Objects,
}

impl Place {
    fn of(test: &Fixture, namespace: &str) -> Self {
        let maps = test.within_other(&CONFIG_MAP, namespace);
        Self { namespace: namespace.to_owned(), maps, pods: test.within_other(&POD, namespace) }
    }

    async fn make_map(&self, test: &mut Fixture, selector: &str) -> Result<()> {
        let label = test.label();
        let (key, value) = label.split_once('=').context("a label")?;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": MAP, "labels": { key: value }, "annotations": { MATCH: selector } },
            "data": { "config.cfg": "1" },
        });
        test.make(&self.maps, map).await.map(drop)
    }

    /// Its Pods are labelled `app=frontend`. Gives back their uids.
    async fn make_deployment(&self, test: &mut Fixture, replicas: usize) -> Result<BTreeSet<String>> {
        let labels = json!({ "app": "frontend" });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "frontend" },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": containers() },
            },
        });
        let deployments = test.within_other(&DEPLOYMENT, &self.namespace);
        test.make(&deployments, deployment).await?;
        self.live(replicas, &BTreeSet::new()).await
    }

    async fn make_pod(&self, test: &mut Fixture, name: &str, app: &str, finalizer: bool) -> Result<String> {
        let finalizers: &[&str] = if finalizer { &["example.com/wait"] } else { &[] };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "labels": { "app": app }, "finalizers": finalizers },
            "spec": containers(),
        });
        Ok(uid(&test.make(&self.pods, pod).await?).to_owned())
    }

    /// Waits for so many Pods of the Deployment that are not being deleted, none of which is one of these.
    async fn live(&self, count: usize, none_of: &BTreeSet<String>) -> Result<BTreeSet<String>> {
        let all = self
            .pods
            .until_all(&format!("{count} other Pods"), |all| {
                let uids = owned(all);
                uids.len() == count && uids.is_disjoint(none_of)
            })
            .await?;
        Ok(owned(&all))
    }

    async fn map(&self) -> Result<Value> {
        self.maps.get(MAP).await
    }

    async fn put(&self, data: &str) -> Result<Value> {
        self.maps.merge(MAP, &json!({ "data": { "config.cfg": data } })).await
    }

    /// Writes other data; gives back the digest that was noted of the data before.
    async fn change(&self, data: &str) -> Result<String> {
        let map = self.put(data).await?;
        Ok(noted(&map, SEEN).unwrap_or_default().to_owned())
    }

    /// Waits until the data has been seen.
    async fn first_seen(&self) -> Result<()> {
        self.maps.until(MAP, "seen", |map| noted(map, SEEN).is_some()).await.map(drop)
    }

    /// Waits until all is done that came of a change.
    async fn over(&self, before: &str) -> Result<()> {
        let over =
            |map: &Value| noted(map, SEEN).is_some_and(|seen| seen != before) && noted(map, PODS).is_none();
        self.maps.until(MAP, "the restart is over", over).await.map(drop)
    }

    /// Which writes are about the restart.
    fn counts(&self) -> impl Fn(&Write) -> bool + Send + Sync + 'static {
        let folder = format!("/api/v1/namespaces/{}/", self.namespace);
        move |write| {
            let rest = write.path.strip_prefix(&folder).unwrap_or_default();
            rest.starts_with("configmaps/") || rest.starts_with("pods/")
        }
    }
}

fn containers() -> Value {
    json!({ "terminationGracePeriodSeconds": 0, "containers": [{ "name": "app", "image": "busybox" }] })
}

fn noted<'a>(map: &'a Value, key: &str) -> Option<&'a str> {
    map["metadata"]["annotations"][key].as_str()
}

/// The uids of Pods that a `ReplicaSet` has and that are not being deleted.
fn owned(all: &[Value]) -> BTreeSet<String> {
    let owned = all.iter().filter(|pod| text(pod, "/metadata/ownerReferences/0/kind") == "ReplicaSet");
    owned
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .map(|pod| uid(pod).to_owned())
        .collect()
}

/// The names of Pods that were deleted, and how often the API server agreed to it.
fn deletions(writes: &[Write]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for write in writes.iter().filter(|write| write.method == Method::DELETE) {
        let agreed = usize::from(write.status.is_some_and(|status| status == StatusCode::OK));
        *counts.entry(write.path.rsplit('/').next().unwrap_or_default()).or_default() += agreed;
    }
    counts
}

/// The guest's controller, for `ConfigMap`s with the test's label alone.
pub(crate) async fn controller(test: &mut Fixture) -> Result<Value> {
    test.store("hook", &guest("config-restart")?).await?;
    let kubectl = test.plane().kubectl();
    let file = "create --dry-run=client -o json -f guests/config-restart/controller.yaml";
    let mut controller: Value = serde_json::from_str(&types(&kubectl, file).await?)?;
    let label = test.label();
    let (key, value) = label.split_once('=').context("a label")?;
    controller["metadata"] = json!({ "name": test.name(), "labels": { key: value } });
    for rule in controller["spec"]["resources"].as_array_mut().context("no resources")? {
        rule["labelSelector"] = json!({ "matchLabels": { key: value } });
    }
    for hook in ["sync", "customize"] {
        controller["spec"]["hooks"][hook]["wasm"]["configMap"] =
            json!({ "namespace": test.name(), "name": "hook" });
    }
    Ok(controller)
}

/// It, at work on a server that writes by a proxy.
async fn hosted(test: &mut Fixture) -> Result<Proxy> {
    let controller = controller(test).await?;
    let proxy = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
    test.server().reach_by(proxy.kubeconfig());
    // A server that starts again finds its module compiled: on a busy machine a compilation takes most of a restart.
    let cache = test.plane().scratch().join(format!("{}-modules", test.name()));
    test.server().flag(&format!("--module-cache-dir={}", cache.display()));
    host(test, controller).await?;
    Ok(proxy)
}

async fn host(test: &mut Fixture, controller: Value) -> Result<()> {
    test.serve()?;
    let controllers = test.everywhere(&DECORATOR_CONTROLLER);
    test.make(&controllers, controller).await?;
    controllers.until(test.name(), "ready", |dc| is_true(dc, "Ready")).await.map(drop)
}

pub(crate) async fn a_change_deletes_the_pods_that_match_once_and_a_first_sight_none(
    test: &mut Fixture,
) -> Result<()> {
    let proxy = hosted(test).await?;
    let place = Place::of(test, test.name());
    proxy.count(place.counts());
    let mut there = place.make_deployment(test, 3).await?;
    let waits = place.make_pod(test, "waits", "frontend", true).await?;
    let other = place.make_pod(test, "other", "backend", false).await?;
    place.make_map(test, "app in (frontend),!canary").await?;
    place.first_seen().await?;

    let before = place.change("2").await?;
    place.over(&before).await?;
    let anew = place.live(3, &there).await?;
    let waiting = place.pods.get("waits").await?;
    ensure!(uid(&waiting) == waits && !waiting["metadata"]["deletionTimestamp"].is_null(), "{waiting}");
    let writes = proxy.writes();
    let counts = deletions(&writes);
    ensure!(counts.len() == 4 && counts.values().all(|&count| count == 1), "{writes:#?}");
    ensure!(writes.len() == 1 + 2 + 4 + 1, "seen, noticed, noted, 4 deletions, over: {writes:#?}");
    let fields = format!("involvedObject.kind=ConfigMap,involvedObject.name={MAP},reason=DeletedRelated");
    let told =
        |event: &Value| text(event, "/message").starts_with("Deleted 4 of v1 Pod, as the hook asked: ");
    test.within(&EVENT).until_some(&fields, "the Event", told).await?;

    // Neither labels nor annotations are data; binaryData is. The Pod that still waits is not deleted again.
    let labels = json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "a": "b" } } });
    place.maps.merge(MAP, &labels).await?;
    there.extend(anew);
    let seen = place.maps.merge(MAP, &json!({ "binaryData": { "b": "AAAA" } })).await?;
    place.over(noted(&seen, SEEN).unwrap_or_default()).await?;
    place.live(3, &there).await?;
    let writes = proxy.writes();
    ensure!(
        deletions(&writes).len() == 7 && deletions(&writes).values().all(|&count| count == 1),
        "{writes:#?}"
    );
    ensure!(uid(&place.pods.get("other").await?) == other, "the Pod that does not match was deleted");
    place.pods.merge("waits", &json!({ "metadata": { "finalizers": null } })).await?;
    place.pods.until_gone("waits").await
}

pub(crate) async fn a_malformed_selector_is_reported_and_heals(test: &mut Fixture) -> Result<()> {
    let proxy = hosted(test).await?;
    let place = Place::of(test, test.name());
    proxy.count(place.counts());
    let there = place.make_deployment(test, 2).await?;
    place.make_map(test, "app=frontend").await?;
    place.first_seen().await?;
    let change = json!({ "metadata": { "annotations": { MATCH: "app in (frontend" } }, "data": { "config.cfg": "2" } });
    let before = place.maps.merge(MAP, &change).await?;
    let before = noted(&before, SEEN).unwrap_or_default();
    let fields = format!("involvedObject.kind=ConfigMap,involvedObject.name={MAP},reason=InvalidPodSelector");
    let told = |event: &Value| {
        event["type"] == "Warning" && text(event, "/message").contains("it ends where a comma or ) should be")
    };
    test.within(&EVENT).until_some(&fields, "the Event", told).await?;
    ensure!(deletions(&proxy.writes()).is_empty() && noted(&place.map().await?, SEEN) == Some(before));
    place.maps.merge(MAP, &json!({ "metadata": { "annotations": { MATCH: "app==frontend" } } })).await?;
    place.over(before).await?;
    let there = place.live(2, &there).await?;

    // The server dies before it deletes the first Pod; then the annotation goes.
    proxy.hold(3, Moment::Before, place.counts());
    place.change("3").await?;
    proxy.until_held().await?;
    test.server().kill().await?;
    proxy.pass();
    ensure!(noted(&place.map().await?, PODS).is_some_and(|pods| pods.len() > 36), "two Pods should be noted");
    place.maps.merge(MAP, &json!({ "metadata": { "annotations": { MATCH: null } } })).await?;
    test.server().start()?;
    let clean = |map: &Value| noted(map, SEEN).is_none() && noted(map, PODS).is_none();
    place.maps.until(MAP, "without our notes", clean).await?;
    place.change("4").await?;
    place.maps.merge(MAP, &json!({ "metadata": { "annotations": { MATCH: "app=frontend" } } })).await?;
    place.first_seen().await?;
    let deleted = proxy.writes().into_iter().filter(|write| write.status.is_some());
    ensure!(deletions(&deleted.collect::<Vec<_>>()).is_empty(), "{:#?}", proxy.writes());
    place.live(2, &BTreeSet::new()).await.and_then(|now| {
        ensure!(now == there, "{now:?} were {there:?}");
        Ok(())
    })
}

pub(crate) async fn ten_changes_in_a_row_end_with_pods_that_are_newer_than_the_last(
    test: &mut Fixture,
) -> Result<()> {
    let proxy = hosted(test).await?;
    let place = Place::of(test, test.name());
    proxy.count(place.counts());
    place.make_deployment(test, 3).await?;
    place.make_map(test, "app=frontend").await?;
    place.first_seen().await?;
    for number in 1..=9 {
        place.change(&format!("change {number}")).await?;
    }
    let last = place.put("change 10").await?;
    let there = owned(&place.pods.list_when(&last).await?);
    // Whatever is noted of the last change differs from what is noted of a change that is taken back.
    let over = |map: &Value| noted(map, PODS).is_none();
    until("ten changes are over", PATIENCE, || async {
        let (map, all) = (place.map().await?, place.pods.list().await?);
        let uids = owned(&all);
        let done = over(&map) && uids.len() == 3 && uids.is_disjoint(&there);
        Ok(if done { Ok(()) } else { Err(format!("{map}\n{uids:?}")) })
    })
    .await?;
    let writes = proxy.writes();
    ensure!(deletions(&writes).values().all(|&count| count <= 1), "{writes:#?}");
    Ok(())
}

/// With the rights that the README of the guest gives it, and one to read its module.
pub(crate) async fn with_an_account_it_restarts_pods_where_that_one_may_and_nowhere_else(
    test: &mut Fixture,
) -> Result<()> {
    let kubectl = test.plane().kubectl();
    let readme = fs::read_to_string(paths::workspace().join("guests/config-restart/README.md"))?;
    let role = readme.split("```").find(|block| block.contains("kind: ClusterRole\n"));
    let role = role.and_then(|block| block.strip_prefix("yaml")).context("the README shows no role")?;
    let file = test.plane().scratch().join("config-restart-role.yaml");
    fs::write(&file, role)?;
    let role = types(&kubectl, &format!("create --dry-run=client -o json -f {}", file.display())).await?;
    let roles = Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
    test.make(&test.everywhere(&roles), serde_json::from_str(&role)?).await?;
    let home = test.name().to_owned();
    for line in [
        "create serviceaccount restarts",
        "create role reads --verb=get,list,watch --resource=configmaps --resource-name=hook",
        &format!("create rolebinding reads --role=reads --serviceaccount={home}:restarts"),
        &format!("create rolebinding restarts --clusterrole=config-restart --serviceaccount={home}:restarts"),
    ] {
        types(&kubectl, &format!("-n {home} {line}")).await?;
    }
    let mut controller = controller(test).await?;
    controller["spec"]["serviceAccountRef"] = json!({ "namespace": home, "name": "restarts" });
    host(test, controller).await?;

    let elsewhere = format!("{home}-elsewhere");
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": elsewhere } });
    test.make(&test.everywhere(&NAMESPACE), namespace).await?;
    let (here, there) = (Place::of(test, &home), Place::of(test, &elsewhere));
    there.make_map(test, "app=frontend").await?;
    let fields = format!("involvedObject.kind=ConfigMap,involvedObject.name={MAP},reason=SyncError");
    let refused = |event: &Value| text(event, "/message").contains(&format!("{home}:restarts\" cannot"));
    test.within_other(&EVENT, &elsewhere).until_some(&fields, "refused", refused).await?;

    let before = here.make_deployment(test, 2).await?;
    here.make_map(test, "app=frontend").await?;
    here.first_seen().await?;
    let seen = here.change("2").await?;
    here.over(&seen).await?;
    here.live(2, &before).await?;
    ensure!(noted(&there.map().await?, SEEN).is_none(), "a note in a namespace of others");
    Ok(())
}

const REPLICAS: usize = 8;

/// The change is noticed, the Pods are noted, each is deleted, it is over.
const WRITES: usize = REPLICAS + 3;

pub(crate) async fn killed_before_any_write_it_deletes_each_pod_once(test: &mut Fixture) -> Result<()> {
    killed_at_each_write(test, Moment::Before).await
}

pub(crate) async fn killed_after_any_write_it_deletes_each_pod_once(test: &mut Fixture) -> Result<()> {
    killed_at_each_write(test, Moment::After).await
}

async fn killed_at_each_write(test: &mut Fixture, moment: Moment) -> Result<()> {
    let proxy = hosted(test).await?;
    let mut ended = Vec::new();
    for number in 1..=WRITES {
        let namespace = format!("{}-{number}", test.name());
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        let namespaces = test.everywhere(&NAMESPACE);
        test.make(&namespaces, object).await?;
        let place = Place::of(test, &namespace);
        let anew = killed_at(test, &proxy, &place, (number, moment))
            .await
            .with_context(|| format!("{moment:?} write {number}: {:#?}", proxy.writes()))?;
        ended.push((place, anew));
    }
    for (place, anew) in &ended {
        let now = owned(&place.pods.list().await?);
        ensure!(now == *anew, "in {} are {now:?}, were {anew:?}", place.namespace);
    }
    Ok(())
}

/// Gives back the Pods that took the place of those that were there.
async fn killed_at(
    test: &mut Fixture,
    proxy: &Proxy,
    place: &Place,
    (number, moment): (usize, Moment),
) -> Result<BTreeSet<String>> {
    let there = place.make_deployment(test, REPLICAS).await?;
    let names = place.pods.list().await?;
    let names: BTreeSet<&str> = names.iter().map(|pod| text(pod, "/metadata/name")).collect();
    place.make_map(test, "app=frontend").await?;
    place.first_seen().await?;

    proxy.hold(number, moment, place.counts());
    let before = place.change("2").await?;
    proxy.until_held().await?;
    test.server().kill().await?;
    proxy.pass();
    test.server().start()?;
    place.over(&before).await?;
    let anew = place.live(REPLICAS, &there).await?;

    let writes = proxy.writes();
    let counts = deletions(&writes);
    let deleted: BTreeSet<&str> = counts.keys().copied().collect();
    ensure!(deleted == names, "{deleted:?} were deleted, {names:?} should be");
    for (name, agreed) in counts {
        // Whether the API server accepted a deletion that was under way when the server died is unknown.
        let unknown = |write: &Write| write.status.is_none() && write.path.ends_with(name);
        let known = !writes.iter().any(unknown);
        ensure!(agreed == 1 || agreed == 0 && !known, "{name} was deleted {agreed} times");
    }
    Ok(anew)
}

const NOTES: &str = "-n config-restart get configmap frontend-config -o=jsonpath={.metadata.annotations}";

const ITS_PODS: &str = "-n config-restart get pods -o=jsonpath={.items[*].metadata.uid}";

const PRINTED: &str = "-n config-restart logs -l app=frontend";

/// On a control plane of their own: as it is, the controller is for all `ConfigMap`s.
pub(crate) async fn the_files_of_the_guest_work_as_they_are_and_new_pods_read_what_is_new(
    test: &mut Fixture,
) -> Result<()> {
    let kubectl = test.plane().kubectl();
    let module = format!("--from-file=hook.wasm={}", paths::guest("config-restart")?.display());
    types(&kubectl, "create namespace config-restart").await?;
    kubectl.run(&["-n", "config-restart", "create", "configmap", "config-restart-hook", &module]).await?;
    types(&kubectl, "apply -f guests/config-restart/controller.yaml").await?;
    let label = format!("label decoratorcontroller config-restart-controller {}", test.label());
    types(&kubectl, &label).await?; // so that this test's server hosts it
    test.serve()?;
    types(&kubectl, "-n config-restart apply -f guests/config-restart/config-restart.yaml").await?;
    prints(&kubectl, NOTES, |notes| notes.contains(SEEN)).await?;
    let twice = |line: &'static str| move |printed: &str| printed.lines().eq([line, line]);
    prints(&kubectl, PRINTED, twice("MSG=\"Welcome to Kubernetes!\"")).await?;
    let first = types(&kubectl, ITS_PODS).await?;
    let patch = r#"{"data":{"config.cfg":"MSG=\"Welcome to metahook!\"\n"}}"#;
    let line = ["-n", "config-restart", "patch", "configmap", "frontend-config", "--type=merge", "-p", patch];
    kubectl.run(&line).await?;
    let others = |pods: &str| pods.split(' ').count() == 2 && pods.split(' ').all(|uid| !first.contains(uid));
    prints(&kubectl, ITS_PODS, others).await?;
    prints(&kubectl, PRINTED, twice("MSG=\"Welcome to metahook!\"")).await?;
    for what in ["decoratorcontroller/config-restart-controller", "namespace/config-restart --wait=false"] {
        types(&kubectl, &format!("delete {what}")).await?;
    }
    Ok(())
}
