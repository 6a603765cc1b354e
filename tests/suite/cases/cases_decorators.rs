//! Cases of decorators, of related objects, and of the parent itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use acceptance::api::{CONFIG_MAP, Kind, NAMESPACE};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, has_condition, text, uid};
use acceptance::proxy::{Fate, Proxy};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::compat::decorated::{
    annotations, finalizers, is_about, labels, make_map, name, of, ours, sync, written,
};

fn cluster_role() -> Kind {
    Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")
}

fn role_binding() -> Kind {
    Kind::new("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
}

/// A cluster-wide role that grants nothing.
async fn make_role(test: &mut Fixture, labels: Value) -> Result<Value> {
    let roles = test.everywhere(&cluster_role());
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [],
        "metadata": { "name": test.name(), "labels": labels },
    });
    test.make(&roles, role).await
}

fn log(test: &mut Fixture) -> Result<String> {
    let log = test.server().log().to_owned();
    std::fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))
}

/// C32: a namespace gets a `RoleBinding`, and is deleted later.
pub(crate) async fn c32_a_decorated_namespace_gets_its_binding_and_goes(test: &mut Fixture) -> Result<()> {
    make_role(test, json!({})).await?;
    let (bindings, role) = (role_binding(), test.name().to_owned());
    let group = "RoleBinding.rbac.authorization.k8s.io/v1";
    let webhook = Webhook::serve(move |asked| {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "b", "namespace": name(asked) },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        });
        if asked.path == "/sync" {
            return json!({ "attachments": [binding] }).into();
        }
        let is_gone = asked.body["attachments"][group].as_object().is_none_or(serde_json::Map::is_empty);
        json!({ "attachments": [], "finalized": is_gone }).into()
    })
    .await?;
    let [sync, finalize] = ["/sync", "/finalize"].map(|path| Hook::webhook(&webhook.url(path)).version("v2"));
    test.serve()?;
    let controller = test.decorator().decorating(&NAMESPACE, of(test)).attaching(&bindings, "InPlace");
    test.host_decorator(controller.synced_by(sync).finalized_by(finalize)).await?;
    let (namespaces, namespace) = (test.everywhere(&NAMESPACE), format!("{}-n", test.name()));
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    test.make(&namespaces, object).await?;
    let labelled = namespaces.merge(&namespace, &labels(json!({ "on": test.name() }))).await?;
    let place = test.within_other(&bindings, &namespace);
    let made = place.until("b", "attached", |_| true).await?;
    ensure!(made["metadata"]["ownerReferences"][0]["uid"] == uid(&labelled), "{made}");
    namespaces.merge(&namespace, &annotations(json!({ "poke": "1" }))).await?;
    let key = format!("{namespace}/b");
    let shown = |asked: &Asked| asked.body["attachments"][group].get(&key).is_some();
    webhook.until_asked("with the binding", shown).await?;
    namespaces.delete(&namespace).await?;
    namespaces.until_namespace_gone(&namespace).await?;
    let log = log(test)?;
    let creates = written(&log, &namespace).into_iter().filter(|verb| verb == "create").count();
    ensure!(creates == 1, "created {creates} times");
    ensure!(!log.contains("is being terminated"), "it was tried in a namespace that goes");
    Ok(())
}

/// C33: the second attachment lies in a namespace that is the first; it was forgotten after one round.
pub(crate) async fn c33_an_attachment_lies_in_an_attached_namespace(test: &mut Fixture) -> Result<()> {
    let quotas = Kind::new("", "v1", "ResourceQuota", "resourcequotas");
    let namespace = format!("{}-n", test.name());
    let (wanted, shown_as) = (namespace.clone(), format!("{namespace}/q"));
    let webhook = Webhook::serve(move |asked| {
        let attached = &asked.body["attachments"];
        let mut all =
            vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": wanted } })];
        if attached["Namespace.v1"].get(&wanted).is_some() {
            all.push(json!({
                "apiVersion": "v1", "kind": "ResourceQuota", "spec": { "hard": { "pods": "1" } },
                "metadata": { "name": "q", "namespace": wanted },
            }));
        }
        json!({ "attachments": all }).into()
    })
    .await?;
    let role = make_role(test, json!({ "on": test.name() })).await?;
    test.serve()?;
    let controller = test.decorator().decorating(&cluster_role(), of(test));
    let controller = controller.attaching(&NAMESPACE, "InPlace").attaching(&quotas, "InPlace");
    test.host_decorator(controller.synced_by(sync(&webhook))).await?;
    let (roles, place) = (test.everywhere(&cluster_role()), test.within_other(&quotas, &namespace));
    place.until("q", "attached", |_| true).await?;
    let shows = |asked: &Asked| asked.body["attachments"]["ResourceQuota.v1"].get(&shown_as).is_some();
    for poke in 1..=20 {
        let poke = poke.to_string();
        roles.merge(test.name(), &annotations(json!({ "poke": poke }))).await?;
        let poked = |asked: &Asked| asked.body["object"]["metadata"]["annotations"]["poke"] == *poke;
        let asked = webhook.until_asked("after a poke", poked).await?;
        ensure!(shows(&asked), "{}", asked.body);
    }
    let asked = webhook.asked();
    let first = asked.iter().position(shows).context("it was never shown")?;
    ensure!(asked.iter().skip(first).all(shows), "the hook was not shown what it made");
    let made = place.get("q").await?;
    ensure!(made["metadata"]["ownerReferences"][0]["uid"] == uid(&role), "{made}");
    let creates = written(&log(test)?, test.name()).into_iter().filter(|verb| verb == "create").count();
    ensure!(creates == 2, "created {creates} times");
    roles.delete(test.name()).await?;
    test.everywhere(&NAMESPACE).until_namespace_gone(&namespace).await?;
    place.until_gone("q").await
}

/// C34: a decorator whose finalize hook is its only one.
pub(crate) async fn c34_a_decorator_may_have_a_finalize_hook_alone(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::answering(json!({ "attachments": [], "finalized": true })).await?;
    test.serve()?;
    let finalize = Hook::webhook(&webhook.url("/finalize")).version("v2");
    let decorators = test.decorators();
    test.host_decorator(test.decorator().decorating(&CONFIG_MAP, of(test)).finalized_by(finalize)).await?;
    let says = |dc: &Value| has_condition(dc, "Ready", "False", "NoSyncHook");
    decorators.until(test.name(), "not ready: NoSyncHook", says).await?;
    let (maps, ours) = (test.config_maps(), ours(test));
    for name in ["goes", "stays"] {
        let made = make_map(test, name).await?;
        let map = maps.until(name, "has our finalizer", |map| finalizers(map) == [ours.as_str()]).await?;
        let kept = ["/data", "/metadata/labels", "/metadata/annotations"];
        ensure!(kept.iter().all(|field| map.pointer(field) == made.pointer(field)), "{map}");
    }
    ensure!(webhook.count() == 0, "{:?}", webhook.asked());
    maps.delete("goes").await?;
    maps.until_gone("goes").await?;
    let asked = webhook.asked();
    ensure!(asked.iter().all(|asked| is_about(asked, "/finalize", "goes")), "{asked:?}");
    ensure!(!asked.is_empty(), "the finalize hook was not asked");
    decorators.delete(test.name()).await?;
    maps.until("stays", "rid of our finalizer", |map| finalizers(map).is_empty()).await?;
    test.server().runs()
}

/// C35: related objects of one kind are followed; what else changes in their namespace wakes no parent.
pub(crate) async fn c35_noise_beside_related_objects_calls_no_hook(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let ingresses = Kind::new("networking.k8s.io", "v1", "Ingress", "ingresses");
    let leases = Kind::new("coordination.k8s.io", "v1", "Lease", "leases");
    let namespace = test.name().to_owned();
    let webhook = Webhook::serve(move |asked| {
        let rule = json!({
            "apiVersion": "networking.k8s.io/v1", "resource": "ingresses", "namespace": namespace,
        });
        if asked.path == "/customize" {
            return json!({ "relatedResources": [rule] }).into();
        }
        json!({ "status": { "related": asked.body["related"] }, "children": [] }).into()
    })
    .await?;
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "i" },
        "spec": { "defaultBackend": { "service": { "name": "s", "port": { "number": 80 } } } },
    });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "l" }, "spec": {},
    });
    let (places, maps) = ([test.within(&ingresses), test.within(&leases)], test.config_maps());
    for (place, object) in places.iter().zip([ingress, lease]) {
        test.make(place, object).await?;
    }
    test.make(&maps, config_map("noise", json!({}), json!({}))).await?;
    test.serve()?;
    let [synced, customize] =
        ["/sync", "/customize"].map(|path| Hook::webhook(&webhook.url(path)).version("v2"));
    test.host(test.controller().synced_by(synced).customized_by(customize)).await?;
    test.create(test.parent("p")).await?;
    let told = |round: &'static str| {
        move |parent: &Value| {
            parent["status"]["related"].to_string().contains(&format!(r#""round":"{round}""#))
        }
    };
    let [ingresses, leases] = &places;
    ingresses.merge("i", &annotations(json!({ "round": "1" }))).await?;
    test.parents().until("p", "sees the Ingress", told("1")).await?;
    test.server()
        .until_log("the parent is settled", |log| {
            log.lines()
                .rfind(|line| line.contains(r#""synced""#))
                .is_some_and(|line| line.contains(r#""wrote":false"#))
        })
        .await?;
    let before = webhook.count();
    for nth in 0..50 {
        let noise = annotations(json!({ "nth": nth.to_string() }));
        maps.merge("noise", &noise).await?;
        leases.merge("l", &noise).await?;
    }
    ingresses.merge("i", &annotations(json!({ "round": "2" }))).await?;
    test.parents().until("p", "sees the changed Ingress", told("2")).await?;
    // The change itself, and what the status that it made wakes.
    let calls = webhook.count() - before;
    ensure!(calls <= 3, "{calls} calls of hooks");
    Ok(())
}

/// A user applies these fields of a parent.
async fn apply(test: &Fixture, manager: &str, parent: Value) -> Result<String> {
    let file = test.plane().scratch().join(format!("{}-{manager}.json", test.name()));
    std::fs::write(&file, parent.to_string())?;
    let manager = format!("--field-manager={manager}");
    let file = file.display().to_string();
    let namespace = format!("--namespace={}", test.name());
    test.plane().kubectl().run(&["apply", "--server-side", &namespace, &manager, "-f", &file]).await
}

/// Entry of `managedFields` for a user's fields of a parent.
async fn fields_of(test: &Fixture, manager: &str) -> Result<Value> {
    let kind = format!("{}.{}", test.kind().plural, test.kind().group);
    let namespace = format!("--namespace={}", test.name());
    let args = ["get", &kind, "p", &namespace, "--show-managed-fields", "--output=json"];
    let parent: Value = serde_json::from_str(&test.plane().kubectl().run(&args).await?)?;
    let all = parent["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|fields| fields["manager"] == manager).with_context(|| parent.to_string())
}

/// C36: a user owns fields of the parent; a controller and a decorator write it.
pub(crate) async fn c36_a_user_keeps_the_fields_of_a_parent(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let webhook = Webhook::serve(|asked| {
        let poke = asked.body["parent"]["metadata"]["annotations"]["poke"].clone();
        match asked.path.as_str() {
            "/sync" => json!({ "status": { "poke": poke }, "children": [] }).into(),
            "/finalize" => json!({ "children": [], "finalized": true }).into(),
            _ => {
                let poke = asked.body["object"]["metadata"]["annotations"]["poke"].clone();
                let set = json!({ "decorated": poke });
                json!({ "labels": set, "annotations": set, "attachments": [] }).into()
            }
        }
    })
    .await?;
    test.serve()?;
    let [synced, finalize, decorate] =
        ["/sync", "/finalize", "/decorate"].map(|path| Hook::webhook(&webhook.url(path)).version("v2"));
    test.host(test.controller().synced_by(synced).finalized_by(finalize)).await?;
    test.host_decorator(test.decorator().decorating(test.kind(), json!({})).synced_by(decorate)).await?;
    let parent = |color: &str| test.parent("p").with(json!({ "color": color }));
    let (alices, bobs) = (parent("red").labelled("team", "a").json(), parent("blue").json());
    apply(test, "alice", alices).await?;
    let before = fields_of(test, "alice").await?;
    let parents = test.parents();
    for poke in 1..=20 {
        let poke = poke.to_string();
        parents.merge("p", &annotations(json!({ "poke": poke }))).await?;
        let seen = |parent: &Value| {
            parent["status"]["poke"] == *poke
                && parent["metadata"]["labels"]["decorated"] == *poke
                && parent["metadata"]["annotations"]["decorated"] == *poke
                && !finalizers(parent).is_empty()
        };
        parents.until("p", "written by both", seen).await?;
    }
    let refused = apply(test, "bob", bobs).await.err().context("bob took a field of alice")?.to_string();
    ensure!(refused.contains("conflict") && refused.contains("alice"), "{refused}");
    let after = fields_of(test, "alice").await?;
    ensure!(after == before, "{before} became {after}");
    parents.delete("p").await?;
    parents.until_gone("p").await
}

/// Counts in its status up to 20, with a child for each number.
fn counts(asked: &Asked) -> Value {
    let n = asked.body["parent"]["status"]["n"].as_u64().unwrap_or(0);
    let next = (n + 1).min(MAX_COUNT);
    let children: Vec<_> = (1..=next).map(|n| config_map(&format!("n-{n}"), json!({}), json!({}))).collect();
    json!({ "status": { "n": next }, "children": children })
}

/// Keeps the children that it sees, and has as many as its parent wants by new names.
fn replicates(asked: &Asked, names: &AtomicUsize) -> Value {
    let seen = asked.body["children"]["ConfigMap.v1"].as_object();
    let mut all: Vec<_> = seen
        .into_iter()
        .flatten()
        .map(|(key, _)| key.rsplit('/').next().unwrap_or_default().to_owned())
        .collect();
    while all.len() < REPLICAS {
        all.push(format!("r-{}", names.fetch_add(1, Ordering::Relaxed)));
    }
    let children: Vec<_> = all.iter().map(|name| config_map(name, json!({}), json!({}))).collect();
    json!({ "children": children })
}

const MAX_COUNT: u64 = 20;
const REPLICAS: usize = 3;

/// C37: watch events come late, and hooks count what they see.
pub(crate) async fn c37_a_hook_sees_what_was_written_for_it(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let proxy = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
    proxy.meddle(|request| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        if is_watch { Fate::Lag(Duration::from_millis(100)) } else { Fate::Pass }
    });
    proxy.count(|write| write.path.ends_with("/greetings/counts/status"));
    test.server().reach_by(proxy.kubeconfig());
    let names = AtomicUsize::new(0);
    let webhook = Webhook::serve(move |asked| {
        if asked.path == "/counts" { counts(asked) } else { replicates(asked, &names) }.into()
    })
    .await?;
    test.serve()?;
    for way in ["counts", "replicates"] {
        let controller = test.controller().renamed(&format!("{}-{way}", test.name()));
        let hook = Hook::webhook(&webhook.url(&format!("/{way}"))).version("v2");
        let controller = controller.of_parents_with("way", way).making(&CONFIG_MAP, "InPlace");
        test.host(controller.synced_by(hook)).await?;
        test.create(test.parent(way).labelled("way", way)).await?;
    }
    let counted = |parent: &Value| parent["status"]["n"] == MAX_COUNT;
    test.parents().until("counts", "counted", counted).await?;
    let replicas = async |replaced: usize| {
        let parent = test.parents().get("replicates").await?;
        let is_replica = |map: &&Value| text(map, "/metadata/ownerReferences/0/uid") == uid(&parent);
        let names = |all: &[Value]| {
            let names = all.iter().filter(is_replica).map(|map| text(map, "/metadata/name").to_owned());
            names.collect::<Vec<_>>()
        };
        let last = format!("r-{}", REPLICAS + replaced - 1);
        let all = test.config_maps().until_all("replicas", |all| names(all).contains(&last)).await?;
        Ok::<_, anyhow::Error>(names(&all))
    };
    for replaced in 0..5 {
        let names = replicas(replaced).await?;
        ensure!(names.len() == REPLICAS, "{names:?}");
        test.config_maps().delete(names.first().context("none")?).await?;
    }
    let names = replicas(5).await?;
    ensure!(names.len() == REPLICAS, "{names:?}");
    let wrote: Vec<_> = proxy.writes().iter().map(|write| number(&write.body)).collect();
    ensure!(wrote == (1..=MAX_COUNT).map(Some).collect::<Vec<_>>(), "the status was {wrote:?}");
    for asked in webhook.asked().iter().filter(|asked| asked.path == "/counts") {
        let seen = asked.body["children"]["ConfigMap.v1"].as_object().map_or(0, serde_json::Map::len);
        let n = asked.body["parent"]["status"]["n"].as_u64().unwrap_or(0);
        ensure!(u64::try_from(seen)? >= n, "{n} and {seen} children");
    }
    Ok(())
}

/// The number in a written status.
fn number(body: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Value>(body).ok()?["status"]["n"].as_u64()
}
