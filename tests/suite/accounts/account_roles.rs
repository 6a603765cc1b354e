//! Roles of accounts: those that `metahook rbac` prints suffice, and a right that is missing is named.

use acceptance::api::{CONFIG_MAP, EVENT, Kind, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, has_condition, is_true, text, uid};
use acceptance::webhook::Webhook;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::kit::{
    RBAC, grant, grant_the_server, grant_the_server_its_own, nothing_granted, roles, roles_of_the_cluster,
    short, until_controller,
};
use crate::mounts::reach_as;
use crate::pages::symptoms;
use crate::wasm;

pub(crate) async fn a_controller_does_what_the_printed_roles_of_its_account_allow(
    test: &mut Fixture,
) -> Result<()> {
    let child = |number: &str| config_map("child", json!({}), json!({ "number": number }));
    let answer = |number: &str| json!({ "status": { "number": number }, "children": [child(number)] });
    test.store("hook", &wasm::answers(&answer("1"))?).await?;
    let hook = test.hook("hook");
    let roles = nothing_granted(test, |controller| controller.synced_by(hook)).await?;
    let says = |what: String| {
        move |cc: &Value| {
            condition(cc, "Ready")
                .is_some_and(|ready| ready["status"] == "False" && text(ready, "/message").contains(&what))
        }
    };
    let account = format!("system:serviceaccount:{}:greeter", test.name());
    // Without serviceAccountRef the server impersonates no account.
    until_controller(test, "no right to act", says("cannot impersonate".to_owned())).await?;
    grant(test, &roles, "-acts").await?;
    // The module is a ConfigMap, as the children are: the account may read it.
    grant(test, &roles, "-hooks").await?;
    until_controller(test, "ready", |cc| is_true(cc, "Ready")).await?;
    until_controller(test, "no right to write, said before there is a parent", lacks(&account)).await?;

    test.create(test.parent("a")).await?;
    let forbidden = format!("User \"{account}\" cannot create resource \"configmaps\"");
    test.until_event("a", "SyncError", |event| text(event, "/message").contains(&forbidden)).await?;
    ensure!(test.config_maps().find("child").await?.is_none(), "the child was made all the same");
    grant(test, &roles, "-writes").await?;
    test.config_maps().until("child", "made", |child| child["data"]["number"] == "1").await?;
    until_controller(test, "all granted", |cc| is_true(cc, "RightsGranted")).await?;
    test.parents().until("a", "its status", |parent| parent["status"]["number"] == "1").await?;

    test.store("hook", &wasm::answers(&answer("2"))?).await?;
    test.config_maps().until("child", "updated", |child| child["data"]["number"] == "2").await?;
    test.store("hook", &wasm::answers(&json!({ "children": [] }))?).await?;
    test.config_maps().until_gone("child").await?;
    until_controller(test, "no parent failing", |cc| cc["status"]["failing"] == 0).await?;
    Ok(())
}

/// Roles that were written for Metacontroller do not name the status of controllers.
pub(crate) async fn controllers_work_where_their_status_may_not_be_written(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked| {
        let child = config_map(text(&asked.body, "/parent/metadata/name"), json!({}), json!({}));
        json!({ "children": [child], "status": { "n": 1 } }).into()
    })
    .await?;
    let limited = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "limited" } });
    test.make(&test.within(&SERVICE_ACCOUNT), limited).await?;
    grant_the_server(test, json!(["compositecontrollers", "decoratorcontrollers", "controllerrevisions"]))
        .await?;
    reach_as(test, "limited").await?;
    test.define_kind().await?;
    let controller = test.controller().renamed(&short(test)).making(&CONFIG_MAP, "InPlace");
    let controller = controller.synced_by(Hook::webhook(&webhook.url("/sync"))).json();
    let roles = roles(test, &controller).await?;
    grant(test, &roles, "-reads").await?;
    grant(test, &roles, "-writes").await?;
    test.serve()?;
    let made = test.make(&test.controllers(), controller).await?;
    let event = test.until_event_on(&made, "StatusForbidden", |_| true).await?;
    ensure!(text(&event, "/message").contains("compositecontrollers/status"), "{event}");
    // Each changes the counts that the status would have.
    for name in ["ada", "grace", "barbara"] {
        test.create(test.parent(name)).await?;
        test.config_maps().until(name, "made", |_| true).await?;
        test.parents().until(name, "its status", |parent| parent["status"]["n"] == 1).await?;
    }
    let events = test.within_other(&EVENT, "default");
    let fields = format!("involvedObject.uid={},reason=StatusForbidden", uid(&made));
    let told = events.list_where(&fields).await?;
    ensure!(told.len() == 1 && told[0]["count"] == 1, "it is told more than once: {told:?}");
    ensure!(test.controllers().get(&short(test)).await?["status"].is_null(), "the status was written");
    Ok(())
}

/// The condition that names the first right to write that is missing, and what to do.
fn lacks(account: &str) -> impl Fn(&Value) -> bool {
    let says = format!("User \"{account}\" cannot update resource \"greetings/status\" in API group");
    move |cc| {
        has_condition(cc, "RightsGranted", "False", "RightsMissing")
            && condition(cc, "RightsGranted").is_some_and(|it| {
                text(it, "/message").starts_with(&says) && text(it, "/message").contains("metahook rbac")
            })
    }
}

pub(crate) async fn rights_that_the_server_lacks_are_named_before_there_is_a_parent(
    test: &mut Fixture,
) -> Result<()> {
    let webhook =
        Webhook::answering(json!({ "children": [config_map("child", json!({}), json!({}))] })).await?;
    let limited = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "limited" } });
    test.make(&test.within(&SERVICE_ACCOUNT), limited).await?;
    grant_the_server_its_own(test).await?;
    reach_as(test, "limited").await?;
    test.define_kind().await?;
    let controller = test.controller().renamed(&short(test)).making(&CONFIG_MAP, "InPlace");
    let controller = controller.synced_by(Hook::webhook(&webhook.url("/sync"))).json();
    let roles = roles(test, &controller).await?;
    grant(test, &roles, "-reads").await?;
    test.serve()?;
    test.make(&test.controllers(), controller).await?;
    let account = format!("system:serviceaccount:{}:limited", test.name());
    let told = until_controller(test, "what is missing", lacks(&account)).await?;
    ensure!(is_true(&told, "Ready"), "it does not run: {}", told["status"]);
    let event = test.until_event_on(&told, "RightsMissing", |_| true).await?;
    symptoms::is_shown(test, "RightsMissing", &symptoms::controller(&short(test))).await?;
    ensure!(text(&event, "/message").contains(&account), "{event}");
    let maps = "create, update, delete resource \"configmaps\" in API group \"\"; grant it: `metahook rbac --controller compositecontroller/";
    ensure!(text(&event, "/message").contains(maps), "a missing right is not named: {event}");
    let server = format!(" --server-namespace {} --server-account limited` prints", test.name());
    ensure!(text(&event, "/message").contains(&server), "the server's account is not named: {event}");
    let printed = roles_of_the_cluster(test, &format!("compositecontroller/{}", short(test))).await?;
    ensure!(printed == roles, "{printed:?} are not {roles:?}");
    grant(test, &printed, "-writes").await?;
    until_controller(test, "all granted", |cc| is_true(cc, "RightsGranted")).await?;
    test.create(test.parent("a")).await?;
    test.config_maps().until("child", "made", |_| true).await?;
    Ok(())
}

/// The control plane guards owner references, and the refusals of that guard name no right.
pub(crate) async fn c29_the_right_that_a_guard_of_owners_asks_for_is_named(test: &mut Fixture) -> Result<()> {
    let webhook =
        Webhook::answering(json!({ "children": [config_map("child", json!({}), json!({}))] })).await?;
    let roles = nothing_granted(test, |cc| cc.synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
    grant(test, &roles, "-acts").await?;
    let whole = roles
        .iter()
        .find(|role| role["kind"] == "ClusterRole" && text(role, "/metadata/name").ends_with("-writes"));
    let whole = whole.context("no role that writes")?.clone();
    let mut without = roles.clone();
    for role in &mut without {
        if let Some(rules) = role["rules"].as_array_mut() {
            rules.retain(|rule| !text(rule, "/resources/0").ends_with("/finalizers"));
        }
    }
    grant(test, &without, "-writes").await?;
    let account = format!("system:serviceaccount:{}:greeter", test.name());
    let group = test.kind().group.clone();
    let forbidden = format!(
        "User \"{account}\" cannot update resource \"greetings/finalizers\" in API group \"{group}\""
    );
    let says = |message: &str| message.contains(&forbidden) && message.contains("metahook rbac");
    let lacks = |cc: &Value| {
        has_condition(cc, "RightsGranted", "False", "RightsMissing")
            && condition(cc, "RightsGranted").is_some_and(|it| says(text(it, "/message")))
    };
    until_controller(test, "the right named, before there is a parent", lacks).await?;
    test.create(test.parent("a")).await?;
    test.until_event("a", "SyncError", |event| says(text(event, "/message"))).await?;

    let name = text(&whole, "/metadata/name");
    test.everywhere(&Kind::new(RBAC, "v1", "ClusterRole", "clusterroles")).merge(name, &whole).await?;
    test.config_maps().until("child", "made", |_| true).await?;
    until_controller(test, "all granted", |cc| is_true(cc, "RightsGranted")).await?;
    Ok(())
}
