//! Kept versions: a refused module or script is not the end of a controller after a restart.

use acceptance::api::{CONFIG_MAP, EVENT, Kind};
use acceptance::fixture::Fixture;
use acceptance::objects::{condition, config_map, has_condition, text};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::pages::symptoms;
use crate::wasm;

const DIGEST: &str = "/metadata/annotations/metahook.dev~1digest";

/// Answers with this number in the status.
pub(crate) fn module(number: u32) -> Result<Vec<u8>> {
    wasm::answers(&json!({ "children": [], "status": { "number": number } }))
}

fn is_kept(map: &Value) -> bool {
    map["metadata"]["labels"]["metahook.dev/record"] == "module-versions"
}

/// Digests of the versions that are kept for a controller.
pub(crate) fn kept(all: &[Value], controller: &Value) -> Vec<String> {
    let uid = &controller["metadata"]["uid"];
    let owners = |map: &Value| map["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let owned = |map: &&Value| is_kept(map) && owners(map).iter().any(|owner| owner["uid"] == *uid);
    all.iter().filter(owned).map(|map| text(map, DIGEST).to_owned()).collect()
}

pub(crate) async fn runs(test: &mut Fixture, number: u32) -> Result<()> {
    let has = |parent: &Value| parent["status"]["number"] == number;
    test.parents().until("p", &format!("the status of module {number}"), has).await.map(drop)
}

/// A controller with module 1, and its parent.
pub(crate) async fn hosted(test: &mut Fixture) -> Result<Value> {
    hosted_with(test, &module(1)?, &CONFIG_MAP).await
}

/// A controller with this module and this kind of children, and its parent.
pub(crate) async fn hosted_with(test: &mut Fixture, module: &[u8], children: &Kind) -> Result<Value> {
    test.define_kind().await?;
    test.store("hook", module).await?;
    test.serve()?;
    let controller = test.controller().making(children, "InPlace").synced_by(test.hook("hook"));
    let controller = test.host(controller).await?;
    test.create(test.parent("p")).await?;
    Ok(controller)
}

pub(crate) async fn runs_and_is_kept(test: &mut Fixture, number: u32, controller: &Value) -> Result<()> {
    test.store("hook", &module(number)?).await?;
    runs(test, number).await?;
    is_kept_of(test, &module(number)?, controller).await
}

pub(crate) async fn is_kept_of(test: &Fixture, module: &[u8], controller: &Value) -> Result<()> {
    let digest = crate::modules::digest(module);
    let has = |all: &[Value]| kept(all, controller).contains(&digest);
    let place = test.within_default(&CONFIG_MAP);
    place.until_all(&format!("{digest} is kept"), has).await.map(drop)
}

pub(crate) async fn stores_no_module(test: &mut Fixture) -> Result<()> {
    test.store("hook", b"this is no module").await
}

pub(crate) fn goes_on(controller: &Value) -> bool {
    has_condition(controller, "Ready", "True", "LastGoodInUse")
}

/// The server starts; conditions that the one before wrote count no more.
pub(crate) async fn starts_anew(test: &mut Fixture) -> Result<()> {
    forget_conditions(test).await?;
    test.server().start()
}

pub(crate) async fn forget_conditions(test: &Fixture) -> Result<()> {
    let none = json!({ "status": { "conditions": [] } });
    test.controllers().merge_status(test.name(), &none).await.map(drop)
}

/// The parent changes, and the module of this number sees it.
pub(crate) async fn manages(test: &Fixture, who: &str, number: u32) -> Result<()> {
    test.parents().merge("p", &json!({ "spec": { "who": who } })).await?;
    let seen = |parent: &Value| {
        parent["status"]["observedGeneration"] == parent["metadata"]["generation"]
            && parent["status"]["number"] == number
    };
    test.parents().until("p", &format!("managed by module {number}"), seen).await.map(drop)
}

/// What was edited is not called after a restart; the version before it is.
async fn edit(test: &mut Fixture, all: &[Value], controller: &Value) -> Result<()> {
    let place = test.within_default(&CONFIG_MAP);
    let digest = crate::modules::digest(&module(5)?);
    let is_newest = |map: &&Value| kept(std::slice::from_ref(*map), controller).contains(&digest);
    let newest = all.iter().find(is_newest).context("the newest version is kept")?;
    test.server().stop().await?;
    let mut edited = newest.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        edited["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
    }
    edited["binaryData"]["part"] = json!("AGFzbQ==");
    place.delete(text(newest, "/metadata/name")).await?;
    place.create(edited).await?;
    test.server().start()?;
    runs(test, 4).await?;
    let log = std::fs::read_to_string(test.server().log())?;
    ensure!(log.contains("its ConfigMaps were edited: their bytes have the digest"), "{log}");
    let (name, begin) = (test.name().to_owned(), digest.get(..12).unwrap_or_default());
    let refused =
        command(test, &["rollback", &name, "--to", begin]).await.err().context("it was put back")?;
    ensure!(format!("{refused:#}").contains("edited"), "{refused:#}");
    Ok(())
}

pub(crate) async fn a_refused_module_is_the_last_good_one_after_a_restart(test: &mut Fixture) -> Result<()> {
    let controller = hosted(test).await?;
    runs(test, 1).await?;
    let place = test.within_default(&CONFIG_MAP);
    for number in 2..=5 {
        runs_and_is_kept(test, number, &controller).await?;
    }
    let oldest = crate::modules::digest(&module(3)?);
    let three = |all: &[Value]| kept(all, &controller).len() == 3 && kept(all, &controller).contains(&oldest);
    let all = place.until_all("the last three are kept", three).await?;
    let ours = all.iter().find(|map| !kept(std::slice::from_ref(map), &controller).is_empty());
    ensure!(ours.is_some_and(|map| map["immutable"] == true), "{ours:?}");

    stores_no_module(test).await?;
    test.until_controller("a refused module", goes_on).await?;
    test.server().stop().await?;
    starts_anew(test).await?;
    let cc = test.until_controller("it goes on after the restart", goes_on).await?;
    let says = condition(&cc, "Ready").map_or("", |ready| text(ready, "/message"));
    ensure!(says.contains(", which was accepted at 20") && says.contains("goes on being called"), "{says}");
    manages(test, "again", 5).await?;

    let fields = format!("involvedObject.name={},reason=CreateError", test.name());
    let events = test.within_default(&EVENT).list_where(&fields).await?;
    ensure!(events.is_empty(), "the controller was made: {events:?}");
    edit(test, &all, &controller).await?;
    test.store("hook", &module(6)?).await?;
    runs(test, 6).await?;
    test.controllers().delete(test.name()).await?;
    place
        .until_all("kept versions go with their controller", |all| kept(all, &controller).is_empty())
        .await
        .map(drop)
}

/// A controller that is deleted and made again is another one: its versions do not go with the one before.
pub(crate) async fn kept_versions_pass_on_to_a_controller_that_is_made_again(
    test: &mut Fixture,
) -> Result<()> {
    let controller = hosted(test).await?;
    runs(test, 1).await?;
    let place = test.within_default(&CONFIG_MAP);
    let digest = crate::modules::digest(&module(1)?);
    let has = |all: &[Value], controller: &Value| kept(all, controller) == [&*digest];
    place.until_all("it is kept", |all| has(all, &controller)).await?;
    let (name, uid) = (test.name().to_owned(), &controller["metadata"]["uid"]);
    test.controllers().delete(&name).await?;
    let mut again = controller.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
        again["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
    }
    let again = test.controllers().create(again).await?;
    ensure!(again["metadata"]["uid"] != *uid, "{again}");
    // The garbage collector takes off the owner that is gone, or deletes what has no other.
    let passed_on = |all: &[Value]| has(all, &again) && kept(all, &controller).is_empty();
    place.until_all("the version is kept for the new controller alone", passed_on).await.map(drop)
}

/// The brake holds no return: who goes back means the deletions that follow.
pub(crate) async fn a_return_may_delete_what_only_the_version_before_wants(test: &mut Fixture) -> Result<()> {
    let child = |number: u32| config_map(&format!("child-{number}"), json!({}), json!({}));
    let with = |children: u32| {
        let children: Vec<_> = (0..children).map(child).collect();
        wasm::answers(&json!({ "children": children, "status": { "number": children.len() } }))
    };
    let controller = hosted(test).await?;
    test.store("hook", &with(1)?).await?;
    runs(test, 1).await?;
    let digest = crate::modules::digest(&with(1)?);
    let place = test.within_default(&CONFIG_MAP);
    place.until_all("it is kept", |all| kept(all, &controller).contains(&digest)).await?;
    // The next version is taken as the first of all is.
    test.server().stop().await?;
    test.store("hook", &with(30)?).await?;
    let name = test.name().to_owned();
    test.controllers().merge_status(&name, &json!({ "status": { "deletions": null } })).await?;
    test.server().start()?;
    runs(test, 30).await?;
    let said = command(test, &["rollback", &name, "--to", &digest]).await?;
    ensure!(said.contains("deletions of this return go on: metahook.dev/allow-deletions="), "{said}");
    runs(test, 1).await?;
    let is_child = |map: &&Value| text(map, "/metadata/name").starts_with("child-");
    let one = |all: &[Value]| all.iter().filter(is_child).count() == 1;
    test.config_maps().until_all("the others are gone", one).await.map(drop)
}

/// What a pin excludes is not called, and an account that may not read the module any longer is shown no copy.
pub(crate) async fn a_kept_version_is_not_called_against_a_pin(test: &mut Fixture) -> Result<()> {
    let controller = hosted(test).await?;
    runs(test, 1).await?;
    let place = test.within_default(&CONFIG_MAP);
    place.until_all("it is kept", |all| kept(all, &controller).len() == 1).await?;
    test.server().stop().await?;
    stores_no_module(test).await?;
    let name = test.name().to_owned();
    let pin = json!({ "spec": { "hooks": { "sync": { "wasm": { "sha256": "0".repeat(64) } } } } });
    test.controllers().merge(&name, &pin).await?;
    test.server().start()?;
    let refused = |cc: &Value| has_condition(cc, "Ready", "False", "ModuleNotLoaded");
    test.until_controller("refused", refused).await.map(drop)
}

/// The second day: a bad version is out, the server restarts, and one command puts the one before it back.
pub(crate) async fn a_kept_version_is_listed_and_put_back(test: &mut Fixture) -> Result<()> {
    let controller = hosted(test).await?;
    for number in 1..=2 {
        runs_and_is_kept(test, number, &controller).await?;
    }
    let digests: Vec<_> =
        (1..=2).map(|number| Ok(crate::modules::digest(&module(number)?))).collect::<Result<_>>()?;
    let name = test.name().to_owned();
    let is_told = |cc: &Value| text(cc, "/status/hooks/sync/digest").ends_with(&digests[1]);
    test.until_controller("the status names what runs", is_told).await?;
    // As its siblings, it takes the address of a server.
    let told = command(test, &["history", &name, "--server", "127.0.0.1:1"]).await?;
    let lines: Vec<_> = told.lines().skip(1).collect();
    ensure!(lines.len() == 2 && lines[0].contains("running") && lines[0].contains(&digests[1]), "{told}");
    ensure!(!lines[1].contains("running") && lines[1].contains(&digests[0]), "{told}");

    // A version that loads and answers badly: the one before it.
    let said = command(test, &["rollback", &name]).await?;
    ensure!(said.contains(&format!("back to sha256:{}", digests[0])), "{said}");
    ensure!(said.ends_with("parent has settled with it\n"), "{said}");
    runs(test, 1).await?;
    // A version that is refused, and a restart: the last good one runs, and is put back.
    stores_no_module(test).await?;
    test.until_controller("a refused module", goes_on).await?;
    test.server().stop().await?;
    test.server().start()?;
    manages(test, "again", 1).await?;
    // What runs is put back: it is not what is stored.
    symptoms::is_shown(test, "HOOKS", &symptoms::controller(&name)).await?;
    symptoms::is_shown(test, "back to sha256:", &symptoms::controller(&name)).await?;
    let is_before = |cc: &Value| text(cc, "/status/hooks/sync/digest").ends_with(&digests[0]);
    test.until_controller("the version before", is_before).await?;
    test.until_controller("running", |cc| has_condition(cc, "Ready", "True", "Running")).await?;
    let pin = |digest: &str| json!({ "spec": { "hooks": { "sync": { "wasm": { "sha256": digest } } } } });
    test.controllers().merge(&name, &pin(&digests[0])).await?;
    for (words, why) in [
        (vec!["rollback", &name], "spec.hooks.sync.wasm.sha256 pins"),
        (vec!["rollback", &name, "--to", "ffff0000"], "has a digest that begins so"),
        (vec!["history", "no-such-controller"], "the controller \"no-such-controller\" does not exist"),
    ] {
        let Err(error) = command(test, &words).await else { bail!("{words:?} went well") };
        ensure!(format!("{error:#}").contains(why), "{words:?}: {error:#}");
    }
    Ok(())
}

pub(crate) async fn command(test: &mut Fixture, words: &[&str]) -> Result<String> {
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let all = test.within_default(&CONFIG_MAP).list().await?;
    let server =
        all.iter().find(|map| is_kept(map)).map_or("", |map| text(map, "/metadata/namespace")).to_owned();
    let flags = ["--server-namespace", &server, "--kubeconfig", &kubeconfig];
    let all: Vec<_> = words.iter().copied().chain(flags).collect();
    Ok(test.server().run(&all).await?.0)
}
