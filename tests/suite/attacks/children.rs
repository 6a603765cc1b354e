//! Attacks by a tenant on the children of a parent: objects that are stuffed into its selection, by labels, by forged owner
//! references and annotations, in great number, large, or in another namespace.

use acceptance::api::{CONFIG_MAP, Kind, NAMESPACE, Objects, SECRET};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, text, uid};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::attacks::form;
use crate::compat::customize::define_cluster_scoped;
use crate::wasm::Wat;

/// Children that a hook is shown.
const SHOWN: usize = 20;

/// A finalizer that only the tenant takes off.
const HELD: &str = "example.com/held";

/// Traits of the forged objects of an attack.
#[derive(Debug, Clone, Copy)]
struct Forged {
    /// Nobody controls them: they match the parent's selector.
    orphans: bool,
    /// Annotations say that the server made them.
    marked: bool,
    /// They stay when they are deleted.
    held: bool,
    bytes: usize,
}

const PLAIN: Forged = Forged { orphans: false, marked: false, held: false, bytes: 1 };

impl Forged {
    async fn stuff(self, place: &Objects, parent: &Value, name: &str, count: usize) -> Result<()> {
        let owner = json!([{
            "apiVersion": parent["apiVersion"], "kind": parent["kind"], "name": parent["metadata"]["name"],
            "uid": uid(parent), "controller": true,
        }]);
        for nth in 0..count {
            let labels = json!({ "controller-uid": uid(parent) });
            let data = json!({ "is": "x".repeat(self.bytes) });
            let mut object = config_map(&format!("{name}-{nth:04}"), labels, data);
            if !self.orphans {
                object["metadata"]["ownerReferences"] = owner.clone();
            }
            if self.marked {
                object["metadata"]["annotations"] =
                    json!({ "metacontroller.k8s.io/last-applied-configuration": "{}" });
            }
            if self.held {
                object["metadata"]["finalizers"] = json!([HELD]);
            }
            place.create(object).await?;
        }
        Ok(())
    }
}

/// Lets go of all that a tenant held.
async fn let_go(place: &Objects) -> Result<()> {
    for object in place.list().await? {
        if object["metadata"]["finalizers"] == json!([HELD]) {
            let name = text(&object, "/metadata/name");
            place.merge(name, &json!({ "metadata": { "finalizers": null } })).await?;
        }
    }
    Ok(())
}

fn is_forged(map: &Value) -> bool {
    text(map, "/metadata/name").starts_with("forged-")
}

fn shown(asked: &Asked) -> usize {
    asked.body["children"]["ConfigMap.v1"].as_object().map_or(0, serde_json::Map::len)
}

/// Wants one ConfigMap and lets the parent go at once.
fn program(asked: &Asked) -> Value {
    let finalizing = asked.body["finalizing"] == true;
    let data = json!({ "is": asked.body["parent"]["spec"]["is"] });
    let own = if finalizing { json!([]) } else { json!([config_map("own", json!({}), data)]) };
    json!({ "children": own, "finalized": finalizing })
}

/// A server with small bounds, a controller and its parent, which has its one child.
async fn host(test: &mut Fixture, flags: &[&str]) -> Result<(Webhook, Value)> {
    let webhook = Webhook::serve(|asked| program(asked).into()).await?;
    let hook = |path: &str| Hook::webhook(&webhook.url(path));
    for flag in flags {
        test.server().flag(flag);
    }
    test.define_kind().await?;
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(hook("/sync")).finalized_by(hook("/finalize"))).await?;
    let parent = test.create(test.parent("p").with(json!({ "is": "1" }))).await?;
    test.config_maps().until("own", "made", |_| true).await?;
    Ok((webhook, parent))
}

fn bounds() -> [String; 2] {
    ["--max-children=10".to_owned(), format!("--max-observed-children={SHOWN}")]
}

fn most_shown(test: &mut Fixture, webhook: &Webhook) -> Result<()> {
    let most = webhook.asked().iter().map(shown).max().unwrap_or_default();
    test.at_most("children shown to a hook", u32::try_from(most)?.into(), "children", 20.0)
}

pub(crate) async fn stuffed_children_are_left_out_and_go_in_rounds(test: &mut Fixture) -> Result<()> {
    let [children, observed] = bounds();
    let (webhook, parent) = host(test, &[&children, &observed]).await?;
    let own = test.config_maps().get("own").await?;
    test.server().kill().await?;
    let before = webhook.count();
    let maps = test.config_maps();
    PLAIN.stuff(&maps, &parent, "forged", form(30, 1000)).await?;
    Forged { orphans: true, ..PLAIN }.stuff(&maps, &parent, "orphan", form(30, 1000)).await?;
    test.server().start()?;
    let told = |event: &Value| {
        let message = text(event, "/message");
        message.contains("children more than a hook is shown, which is 20 at most (--max-observed-children)")
            && message.contains("ConfigMap ")
    };
    test.until_event("p", "ChildrenLeftOut", told).await?;
    let forged =
        |map: &Value| text(map, "/metadata/name").contains('-') && map["metadata"]["labels"] != json!(null);
    maps.until_all("the forged ones gone", |all| !all.iter().any(forged)).await?;
    most_shown(test, &webhook)?;
    let asked = webhook.asked();
    let sees_own = |one: &Asked| one.body["children"]["ConfigMap.v1"].get("own").is_some();
    ensure!(asked.iter().skip(before).all(sees_own), "the hook was not shown the server's own child");
    ensure!(uid(&maps.get("own").await?) == uid(&own), "the child was made anew");
    Ok(())
}

/// Half of what is stuffed never goes.
pub(crate) async fn a_stuffed_parent_is_finalized_and_goes(test: &mut Fixture) -> Result<()> {
    let [children, observed] = bounds();
    let (webhook, parent) = host(test, &[&children, &observed]).await?;
    test.server().kill().await?;
    let maps = test.config_maps();
    let marked = Forged { marked: true, ..PLAIN };
    marked.stuff(&maps, &parent, "forged", form(30, 500)).await?;
    Forged { held: true, ..marked }.stuff(&maps, &parent, "held", form(30, 500)).await?;
    test.parents().delete("p").await?;
    test.server().start()?;
    let gone = test.parents().until_gone("p").await;
    let_go(&maps).await?;
    gone?;
    test.until_event("p", "ChildrenLeftOut", |_| true).await?;
    most_shown(test, &webhook)
}

pub(crate) async fn large_children_are_left_out_and_the_parent_goes(test: &mut Fixture) -> Result<()> {
    let (bound, count) = form(("4Mi", 6), ("32Mi", 40));
    let (webhook, parent) = host(test, &[&format!("--max-webhook-request={bound}")]).await?;
    test.server().kill().await?;
    let maps = test.config_maps();
    Forged { bytes: 900_000, ..PLAIN }.stuff(&maps, &parent, "large", count).await?;
    test.parents().merge("p", &json!({ "spec": { "is": "2" } })).await?;
    test.server().start()?;
    test.until_event("p", "ChildrenLeftOut", |event| text(event, "/message").contains("large-00")).await?;
    maps.until("own", "changed", |own| own["data"]["is"] == "2").await?;
    test.server().kill().await?;
    Forged { bytes: 900_000, ..PLAIN }.stuff(&maps, &parent, "larger", count).await?;
    test.parents().delete("p").await?;
    test.server().start()?;
    test.parents().until_gone("p").await?;
    let most = webhook.asked().iter().map(|one| one.bytes.len() >> 10).max().unwrap_or_default();
    let bound = form(4.0, 32.0) * 1024.0 + 64.0;
    test.at_most("largest request", u32::try_from(most)?.into(), "KiB", bound)
}

/// Wants children in two namespaces, more of them for another spec.
fn in_both(asked: &Asked, namespaces: &[String; 2]) -> Value {
    if asked.body["finalizing"] == true {
        return json!({ "children": [], "finalized": true });
    }
    let is = &asked.body["parent"]["spec"]["is"];
    let names = if *is == "1" { &["a"][..] } else { &["a", "b"] };
    let child = |(namespace, name): (&String, &&str)| {
        let mut child = config_map(name, json!({}), json!({ "is": is }));
        child["metadata"]["namespace"] = json!(namespace);
        child
    };
    let pairs = namespaces.iter().flat_map(|namespace| names.iter().map(move |name| (namespace, name)));
    json!({ "children": pairs.map(child).collect::<Vec<_>>() })
}

/// The tenant of one namespace can hold up what the parent has there, and nothing elsewhere.
pub(crate) async fn a_tenant_harms_no_other_namespace_of_a_cluster_scoped_parent(
    test: &mut Fixture,
) -> Result<()> {
    let away = format!("{}-away", test.name());
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": away } });
    let all = test.everywhere(&NAMESPACE);
    test.make(&all, namespace).await?;
    let wide = Kind::new(&format!("wide.{}", test.kind().group), "v1", "Wide", "wides");
    define_cluster_scoped(test, &wide).await?;
    let both = [test.name().to_owned(), away.clone()];
    let webhook = Webhook::serve(move |asked| in_both(asked, &both).into()).await?;
    for flag in &bounds() {
        test.server().flag(flag);
    }
    test.serve()?;
    let hook = |path: &str| Hook::webhook(&webhook.url(path));
    let controller = test.controller().over(&wide).making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(hook("/sync")).finalized_by(hook("/finalize"))).await?;
    let parents = test.everywhere(&wide);
    let name = test.name().to_owned();
    let parent = json!({ "apiVersion": wide.api_version(), "kind": wide.kind, "metadata": { "name": name }, "spec": { "is": "1" } });
    let parent = test.make(&parents, parent).await?;
    let (home, there) = (test.config_maps(), test.within_other(&CONFIG_MAP, &away));
    for place in [&home, &there] {
        place.until("a", "made", |_| true).await?;
    }
    test.server().kill().await?;
    let forged = Forged { marked: true, held: true, ..PLAIN };
    forged.stuff(&there, &parent, "forged", form(60, 1000)).await?;
    parents.merge(&name, &json!({ "spec": { "is": "2" } })).await?;
    test.server().start()?;
    let result = async {
        for (place, child) in [(&home, "a"), (&home, "b"), (&there, "a")] {
            place.until(child, "as the new spec wants it", |map| map["data"]["is"] == "2").await?;
        }
        test.until_event_on(&parent, "ChildrenLeftOut", |event| {
            text(event, "/message").contains(&format!("no v1 ConfigMap in namespace {away} is created"))
        })
        .await?;
        if there.find("b").await?.is_some() {
            let going = |map: &Value| map["metadata"]["deletionTimestamp"] != Value::Null;
            let left = there.list().await?.iter().filter(|map| is_forged(map) && !going(map)).count();
            ensure!(left == 0, "a child was made among {left} that the hook did not see");
        }
        parents.delete(&name).await?;
        parents.until_gone(&name).await
    };
    let result = result.await;
    let_go(&there).await?;
    result?;
    most_shown(test, &webhook)
}

pub(crate) async fn a_selector_that_matches_nearly_everything_is_refused(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let answer = json!({ "children": [], "finalized": true }).to_string();
    test.store("hook", &Wat::default().prints(answer).wasm()?).await?;
    let secrets = test.within(&SECRET);
    let bystander = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "bystander" } });
    test.make(&secrets, bystander).await?;
    let shown = format!("--mount-secret-namespaces={}", test.name());
    test.server().flag(&shown);
    test.serve()?;
    let hook = test.hook("hook");
    let controller = test.controller().by_own_selectors().making(&SECRET, "InPlace");
    test.host(controller.synced_by(hook.clone()).finalized_by(hook)).await?;
    let negative = json!([{ "key": "x", "operator": "DoesNotExist" }]);
    for (name, selector, why) in [
        ("negative", json!({ "matchExpressions": negative }), "only excludes labels"),
        ("empty", json!({}), "selects nothing"),
    ] {
        test.create(test.parent(name).with(json!({ "selector": selector }))).await?;
        let told = |event: &Value| text(event, "/message").contains(why);
        test.until_event(name, "SyncError", told).await?;
        test.parents().delete(name).await?;
        test.parents().until_gone(name).await?;
    }
    let bystander = secrets.get("bystander").await?;
    ensure!(bystander["metadata"].get("ownerReferences").is_none(), "it was adopted: {bystander}");
    let allowed = json!({ "spec": { "allowNegativeSelectors": true } });
    test.controllers().merge(test.name(), &allowed).await?;
    test.create(test.parent("allowed").with(json!({ "selector": { "matchExpressions": negative } }))).await?;
    secrets.until_gone("bystander").await
}
