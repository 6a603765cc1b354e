//! `metahook render` shows what the server then writes, object for object: each guest, several rounds on one cluster.
//!
//! In each round the server is stopped, the objects of the cluster become files, `render` goes on from them until nothing
//! changes, and the server does the same on the control plane. Then each rendered object has to be part of the real one, but
//! for what the API server sets: uids (equal ones of `render` stand for equal ones there), versions, generations and times.
//! The fields that the server owns of an object, as the API server noted it, have to be part of the rendered one.
//!
//! Left out are `probe_clock`, `probe_hashmap` and `probe_go`: their answers follow from the time or from an installation's
//! random numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use acceptance::api::{CONFIG_MAP, DECORATOR_CONTROLLER, Kind, Objects, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{definition, text, uid};
use acceptance::paths;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::config_restart;

/// Fields of the metadata that an API server sets.
const SERVER_SET: [&str; 5] = ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"];

/// How the uids begin that `render` gives.
const RENDERED_UID: &str = "00000000-0000-4000-8000-";

/// Field manager of the server.
const MANAGER: &str = "metacontroller";

/// A controller and its module, ready for rounds.
struct Rounds {
    guest: &'static str,
    controllers: Objects,
    /// Kinds of parents, children and related objects.
    kinds: Vec<Kind>,
    mounts: Vec<String>,
    round: usize,
}

impl Rounds {
    /// Renders, lets the server do the same, and compares.
    async fn agree(&mut self, test: &mut Fixture) -> Result<()> {
        self.round += 1;
        let before = self.objects(test).await?;
        let rendered = self.render(test, &before).await?;
        ensure!(!rendered.is_empty(), "round {}: nothing is rendered", self.round);
        if self.round == 1 {
            test.serve()?;
        } else {
            test.server().start()?;
        }
        let what = format!("{} writes what is rendered in round {}", self.guest, self.round);
        until(&what, PATIENCE, || async {
            let now = self.objects(test).await?;
            Ok(compared(&rendered, &before, &now).map_or(Ok(()), Err))
        })
        .await?;
        // Reconciles under way end first.
        test.server().stop().await?;
        let now = self.objects(test).await?;
        let differs = compared(&rendered, &before, &now);
        ensure!(differs.is_none(), "{what}, and goes on: {}", differs.unwrap_or_default());
        Ok(())
    }

    /// The last round, after which the server runs on.
    async fn agree_at_last(&mut self, test: &mut Fixture) -> Result<()> {
        self.agree(test).await?;
        test.server().start()
    }

    /// The objects of the test's namespace, by kind and name.
    async fn objects(&self, test: &Fixture) -> Result<BTreeMap<String, Value>> {
        let mut all = BTreeMap::new();
        for kind in &self.kinds {
            for mut object in test.within(kind).list().await? {
                // Items of a list do not say what they are.
                object["apiVersion"] = json!(kind.api_version());
                object["kind"] = json!(kind.kind);
                let id = format!("{} {}/{}", kind.kind, test.name(), text(&object, "/metadata/name"));
                all.insert(id, object);
            }
        }
        Ok(all)
    }

    /// The last state of each object that is rendered; null where it is deleted.
    async fn render(
        &self,
        test: &mut Fixture,
        objects: &BTreeMap<String, Value>,
    ) -> Result<BTreeMap<String, Value>> {
        let controller = self.controllers.get(test.name()).await?;
        let items: Vec<_> =
            [definition(test.kind()), controller].into_iter().chain(objects.values().cloned()).collect();
        let file = test.plane().scratch().join(format!("{}-{}.json", test.name(), self.round));
        fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string())?;
        let (file, module) = (file.display().to_string(), paths::guest(self.guest)?.display().to_string());
        let mut arguments = vec!["render", "-f", &file, "--module", &module, "--cycles=30", "--output=json"];
        arguments.extend(self.mounts.iter().map(String::as_str));
        let (out, _) = test.server().run(&arguments).await?;
        let said: Value = serde_json::from_str(&out)?;
        ensure!(said["end"] == "settled", "{said:#}");
        let reconciles =
            said["rounds"].as_array().into_iter().flatten().filter_map(Value::as_array).flatten();
        let changes = reconciles.filter_map(|one| one["changes"].as_array()).flatten();
        Ok(changes.map(|change| (text(change, "/object").to_owned(), change["after"].clone())).collect())
    }
}

/// The first difference between what is rendered and what there is.
fn compared(
    rendered: &BTreeMap<String, Value>,
    before: &BTreeMap<String, Value>,
    now: &BTreeMap<String, Value>,
) -> Option<String> {
    let surplus = now.keys().find(|id| !before.contains_key(*id) && !rendered.contains_key(*id));
    if let Some(id) = surplus {
        return Some(format!("{id} is there, and is not rendered"));
    }
    let lost = before.keys().find(|id| !now.contains_key(*id) && !rendered.contains_key(*id));
    if let Some(id) = lost {
        return Some(format!("{id} is gone, and its deletion is not rendered"));
    }
    let uids: Vec<_> = rendered
        .iter()
        .filter(|(_, wanted)| uid(wanted).starts_with(RENDERED_UID))
        .filter_map(|(id, wanted)| Some((uid(wanted), uid(now.get(id)?))))
        .collect();
    rendered.iter().find_map(|(id, wanted)| {
        let found = now.get(id);
        if wanted.is_null() {
            return found.map(|_| format!("{id} is there, and its deletion is rendered"));
        }
        let Some(found) = found else { return Some(format!("{id} is missing")) };
        let mut text = wanted.to_string();
        for (rendered, real) in &uids {
            text = text.replace(rendered, real);
        }
        let mut wanted: Value = serde_json::from_str(&text).unwrap_or_default();
        let surplus = owned(found).into_iter().find(|path| wanted.pointer(path).is_none());
        if let Some(path) = surplus {
            return Some(format!("{id}: the server wrote {path}, which is not rendered: {found}"));
        }
        if let Some(metadata) = wanted["metadata"].as_object_mut() {
            metadata.retain(|field, _| !SERVER_SET.contains(&field.as_str()));
        }
        missing(&wanted, found, id)
    })
}

/// The first place at which what is wanted is not part of what is found.
fn missing(wanted: &Value, found: &Value, path: &str) -> Option<String> {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(field, wanted)| {
            let path = format!("{path}.{field}");
            match found.get(field) {
                Some(found) => missing(wanted, found, &path),
                None => Some(format!("{path}: {wanted} is rendered, and nothing is there")),
            }
        }),
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let mut pairs = wanted.iter().zip(found).enumerate();
            pairs.find_map(|(nth, (wanted, found))| missing(wanted, found, &format!("{path}[{nth}]")))
        }
        _ if wanted == found => None,
        _ => Some(format!("{path}: {wanted} is rendered, and {found} is there")),
    }
}

/// The fields that the server owns, as pointers, as far as they are not in lists.
fn owned(object: &Value) -> BTreeSet<String> {
    fn walk(fields: &Value, at: &str, all: &mut BTreeSet<String>) {
        for (name, below) in fields.as_object().into_iter().flatten() {
            let Some(name) = name.strip_prefix("f:") else { continue };
            let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            walk(below, &at, all);
            all.insert(at);
        }
    }
    let mut all = BTreeSet::new();
    let managed = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    for entry in managed.into_iter().flatten().filter(|entry| entry["manager"] == MANAGER) {
        walk(&entry["fieldsV1"], "", &mut all);
    }
    all
}

/// A controller of the test's own kind, whose hook is a guest.
async fn composite(test: &mut Fixture, guest_name: &'static str) -> Result<Rounds> {
    test.define_kind().await?;
    test.store("hook", &guest(guest_name)?).await?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    let (controllers, kinds) = (test.controllers(), vec![test.kind().clone(), POD.clone()]);
    Ok(Rounds { guest: guest_name, controllers, kinds, mounts: Vec::new(), round: 0 })
}

pub(crate) async fn hello_is_rendered_as_the_server_writes_it(test: &mut Fixture) -> Result<()> {
    let mut rounds = composite(test, "hello").await?;
    test.create(test.parent("a").with(json!({ "who": "One" }))).await?;
    test.create(test.parent("b").with(json!({}))).await?;
    rounds.agree(test).await?;
    test.parents().merge("a", &json!({ "spec": { "who": "Two" } })).await?;
    rounds.agree(test).await?;
    test.pods().delete("b").await?;
    test.pods().until_gone("b").await?;
    rounds.agree_at_last(test).await
}

pub(crate) async fn immortal_is_rendered_as_the_server_writes_it(test: &mut Fixture) -> Result<()> {
    let mut rounds = composite(test, "immortal").await?;
    test.create(test.parent("a").with(json!({ "image": "one" }))).await?;
    rounds.agree(test).await?;
    test.parents().merge("a", &json!({ "spec": { "image": "two" } })).await?;
    rounds.agree(test).await?;
    test.pods().merge_status("a-immortalpod", &json!({ "status": { "phase": "Failed" } })).await?;
    rounds.agree_at_last(test).await
}

pub(crate) async fn config_restart_is_rendered_as_the_server_writes_it(test: &mut Fixture) -> Result<()> {
    let controller = config_restart::controller(test).await?;
    let controllers = test.everywhere(&DECORATOR_CONTROLLER);
    test.make(&controllers, controller).await?;
    let (kinds, mounts) = (vec![CONFIG_MAP.clone(), POD.clone()], Vec::new());
    let mut rounds = Rounds { guest: "config-restart", controllers, kinds, mounts, round: 0 };
    let label = test.label();
    let (key, value) = label.split_once('=').context("a label")?;
    for (name, app) in [("one", "frontend"), ("two", "frontend"), ("other", "backend")] {
        let spec = json!({ "containers": [{ "name": "c", "image": "busybox" }] });
        let metadata = json!({ "name": name, "labels": { "app": app } });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
        test.make(&test.pods(), pod).await?;
    }
    let annotations = json!({ "magalix.com/podDeleteMatch": "app=frontend" });
    let metadata = json!({ "name": "map", "labels": { key: value }, "annotations": annotations });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "a": "1" } });
    test.make(&test.config_maps(), map).await?;
    rounds.agree(test).await?;
    test.config_maps().merge("map", &json!({ "data": { "a": "2" } })).await?;
    rounds.agree(test).await?;
    ensure!(test.pods().list().await?.len() == 1, "two Pods should be gone");
    let none = json!({ "metadata": { "annotations": { "magalix.com/podDeleteMatch": null } } });
    test.config_maps().merge("map", &none).await?;
    rounds.agree_at_last(test).await
}

pub(crate) async fn a_hook_with_a_mount_is_rendered_as_the_server_writes_it(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &guest("probe_files")?).await?;
    let files = test.plane().scratch().join(format!("{}-greeting", test.name()));
    fs::create_dir(&files)?;
    fs::write(files.join("name"), "World")?;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "greeting" }, "data": { "name": "World" } });
    test.make(&test.config_maps(), map).await?;
    let hook = test.hook("hook").mounting("/etc/greeting", "configMap", test.name(), "greeting");
    test.host(test.controller().synced_by(hook)).await?;
    let mounts = vec![format!("--mount=/etc/greeting={}", files.display())];
    let (controllers, kinds) = (test.controllers(), vec![test.kind().clone()]);
    let mut rounds = Rounds { guest: "probe_files", controllers, kinds, mounts, round: 0 };
    test.create(test.parent("a")).await?;
    rounds.agree_at_last(test).await
}

/// The built-in kinds that `render` knows are those that the API server serves.
pub(crate) async fn the_built_in_kinds_are_those_of_the_api_server(test: &mut Fixture) -> Result<()> {
    let kubectl = test.plane().kubectl();
    let mut served = BTreeSet::new();
    for path in versions(&serde_json::from_str(&kubectl.run(&["get", "--raw", "/apis"]).await?)?) {
        served.extend(listed(&serde_json::from_str(&kubectl.run(&["get", "--raw", &path]).await?)?));
    }
    let known: BTreeSet<_> = metahook_author::kinds::built_in_kinds().collect();
    let missing: Vec<_> = served.difference(&known).collect();
    let surplus: Vec<_> = known.difference(&served).collect();
    ensure!(missing.is_empty() && surplus.is_empty(), "not known: {missing:?}; not served: {surplus:?}");
    Ok(())
}

/// The paths of all versions, but for those of tests, which come and go meanwhile.
fn versions(groups: &Value) -> Vec<String> {
    let all = groups["groups"].as_array().into_iter().flatten();
    let all = all.filter_map(|group| group["versions"].as_array()).flatten();
    let paths = all.map(|version| format!("/apis/{}", text(version, "/groupVersion")));
    paths.filter(|path| !path.contains("example.com")).chain(["/api/v1".to_owned()]).collect()
}

/// The kinds of one version that can be listed.
fn listed(list: &Value) -> Vec<(String, String, String, bool, bool)> {
    let all: Vec<_> = list["resources"].as_array().into_iter().flatten().collect();
    let has_status = |name: &str| all.iter().any(|other| text(other, "/name") == format!("{name}/status"));
    let can_be_listed =
        |one: &&&Value| one["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!("list")));
    let whole = all.iter().filter(can_be_listed).filter(|one| !text(one, "/name").contains('/'));
    let kind = |one: &&Value| {
        let name = text(one, "/name").to_owned();
        let (version, kind) = (text(list, "/groupVersion").to_owned(), text(one, "/kind").to_owned());
        (version, kind, name.clone(), one["namespaced"] == true, has_status(&name))
    };
    whole.map(kind).collect()
}
