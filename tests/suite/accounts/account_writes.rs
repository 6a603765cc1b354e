//! Writes with the rights of the controller's account: finalizers, statuses, children, attachments, related objects.

use acceptance::api::{CONFIG_MAP, SECRET};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, condition, config_map, has_condition, text, uid, version};
use acceptance::webhook::Webhook;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::kit::{
    grant, instead_of_writes, may_read_secrets, nothing_granted, nothing_granted_to, short, until_controller,
};

/// The finalizer is put on and taken off with the account's rights, and so is the rest when a webhook decides.
pub(crate) async fn a_webhook_decides_within_the_rights_of_its_controllers_account(
    test: &mut Fixture,
) -> Result<()> {
    let hook = Webhook::serve(|asked| {
        let finalized = asked.path == "/finalize";
        json!({ "status": { "said": "so" }, "finalized": finalized }).into()
    })
    .await?;
    let at = |path: &str| Hook::webhook(&hook.url(path));
    let hooks = |controller: Composite| controller.synced_by(at("/sync")).finalized_by(at("/finalize"));
    let roles = nothing_granted(test, hooks).await?;
    test.create(test.parent("a")).await?;
    let acts = |cc: &Value| {
        has_condition(cc, "RightsGranted", "False", "RightsMissing")
            && condition(cc, "RightsGranted")
                .is_some_and(|it| text(it, "/message").contains("cannot impersonate"))
    };
    until_controller(test, "no right to act", acts).await?;
    grant(test, &roles, "-acts").await?;
    grant(test, &roles, "-writes").await?;
    test.parents().until("a", "its status", |parent| parent["status"]["said"] == "so").await?;
    test.parents().delete("a").await?;
    test.parents().until_gone("a").await?;
    hook.until_asked("to finalize", |asked| asked.path == "/finalize").await?;
    Ok(())
}

/// A decorator writes the object, its status and its finalizer as it writes attachments: by what its account may.
pub(crate) async fn a_decorator_writes_within_the_rights_of_its_account(test: &mut Fixture) -> Result<()> {
    let hook = Webhook::serve(|asked| {
        let child = config_map("child", json!({}), json!({}));
        let finalized = asked.path == "/finalize";
        let attachments = if finalized { json!([]) } else { json!([child]) };
        let status = json!({ "said": "so" });
        json!({ "labels": { "n": "1" }, "status": status, "attachments": attachments, "finalized": finalized })
            .into()
    })
    .await?;
    let at = |path: &str| Hook::webhook(&hook.url(path));
    let controller = test.decorator().renamed(&short(test)).attaching(&CONFIG_MAP, "InPlace");
    let controller = controller.decorating(test.kind(), json!({}));
    let controller = controller.synced_by(at("/sync")).finalized_by(at("/finalize"));
    let place = test.decorators();
    let roles = nothing_granted_to(test, controller.json(), &place).await?;
    grant(test, &roles, "-acts").await?;
    test.create(test.parent("a")).await?;
    let account = format!("system:serviceaccount:{}:greeter", test.name());
    let forbidden = |event: &Value| {
        let message = text(event, "/message");
        message.contains(&account) && message.contains("cannot")
    };
    test.until_event("a", "SyncError", forbidden).await?;
    ensure!(hook.count() == 0, "asked before the finalizer was there");
    grant(test, &roles, "-writes").await?;
    test.config_maps().until("child", "attached", |_| true).await?;
    let is = |object: &Value| object["status"]["said"] == "so" && object["metadata"]["labels"]["n"] == "1";
    test.parents().until("a", "decorated", is).await?;
    test.parents().delete("a").await?;
    test.config_maps().until_gone("child").await?;
    test.parents().until_gone("a").await
}

pub(crate) async fn related_objects_are_deleted_with_the_rights_of_the_controllers_account(
    test: &mut Fixture,
) -> Result<()> {
    let place = test.name().to_owned();
    let hook = Webhook::serve(move |asked| {
        if asked.path == "/customize" {
            let rule = json!({ "apiVersion": "v1", "resource": "secrets", "namespace": place, "names": ["password"] });
            return json!({ "relatedResources": [rule] }).into();
        }
        let shown = asked.body["related"]["Secret.v1"].as_object().into_iter().flatten();
        let go = shown.map(|(name, secret)| json!({ "apiVersion": "v1", "kind": "Secret", "namespace": place, "name": name, "uid": uid(secret) }));
        json!({ "status": { "said": "so" }, "deleteRelated": go.collect::<Vec<_>>() }).into()
    })
    .await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "password" } });
    test.make(&test.within(&SECRET), secret).await?;
    let at = |path: &str| Hook::webhook(&hook.url(path));
    let granted = json!([{ "apiVersion": "v1", "resource": "secrets" }]);
    let hooks = |controller: Composite| {
        controller.synced_by(at("/sync")).customized_by(at("/customize")).with("relatedDeletion", granted)
    };
    let roles = nothing_granted(test, hooks).await?;
    grant(test, &roles, "-acts").await?;
    let of_parents = json!([{ "apiGroups": ["*"], "resources": ["greetings", "greetings/status"], "verbs": ["get", "update"] }, may_read_secrets()]);
    grant(test, &instead_of_writes(&roles, "less", &of_parents), "-less").await?;
    test.create(test.parent("a")).await?;
    let account = format!("system:serviceaccount:{}:greeter", test.name());
    let forbidden = format!("User \"{account}\" cannot delete resource \"secrets\"");
    let says = |event: &Value| {
        let message = text(event, "/message");
        message.contains("delete Secret ") && message.contains(&forbidden)
    };
    test.until_event("a", "SyncError", says).await?;
    test.parents().until("a", "its status", |parent| parent["status"]["said"] == "so").await?;
    test.within(&SECRET).get("password").await?;
    grant(test, &roles, "-writes").await?;
    test.within(&SECRET).until_gone("password").await
}

/// The rules by which the account writes, but for the right to update ConfigMaps.
fn all_but_updates(roles: &[Value]) -> Result<Value> {
    let writes = |role: &&Value| {
        text(role, "/metadata/name").ends_with("-writes") && text(role, "/kind") == "ClusterRole"
    };
    let mut allowed = roles.iter().find(writes).context("no role that writes")?["rules"].clone();
    for rule in allowed.as_array_mut().into_iter().flatten() {
        if rule["resources"] == json!(["configmaps"])
            && let Some(verbs) = rule["verbs"].as_array_mut()
        {
            verbs.retain(|verb| verb != "update");
        }
    }
    Ok(allowed)
}

/// A dry run of an update decides whether a child has to be made anew; it needs the right to update. Without an answer,
/// what differs in a child came later only if the answer to its making was seen.
pub(crate) async fn a_child_that_may_not_be_updated_is_made_anew_only_where_it_is_known_to_have_changed(
    test: &mut Fixture,
) -> Result<()> {
    let child = config_map("child", json!({}), json!({ "k": "ours" }));
    let webhook = Webhook::answering(json!({ "children": [child] })).await?;
    let controller = test.controller().renamed(&short(test)).making(&CONFIG_MAP, "Recreate");
    let controller = controller.synced_by(Hook::webhook(&webhook.url("/sync"))).resyncing_each_second();
    let place = test.controllers();
    let roles = nothing_granted_to(test, controller.json(), &place).await?;
    grant(test, &roles, "-acts").await?;
    let less = instead_of_writes(&roles, "less", &all_but_updates(&roles)?);
    grant(test, &less, "-less").await?;
    test.create(test.parent("a")).await?;
    let maps = test.config_maps();
    let theirs = json!({ "data": { "k": "theirs" } });
    let is_anew =
        |before: Value| move |child: &Value| uid(child) != uid(&before) && child["data"]["k"] == "ours";
    maps.until("child", "made", |_| true).await?;
    let changed = maps.merge("child", &theirs).await?;
    maps.until("child", "made anew", is_anew(changed)).await?;

    // A server that is new has seen no answer.
    test.server().stop().await?;
    let changed = maps.merge("child", &theirs).await?;
    test.server().start()?;
    let says =
        |event: &Value| text(event, "/message").contains("left as it is") && event["type"] == "Warning";
    test.until_event("a", "DryRunRefused", says).await?;
    test.until_event("a", "DryRunRefused", |event| event["count"].as_u64() > Some(1)).await?;
    let left = maps.get("child").await?;
    ensure!(version(&left) == version(&changed), "the child was written: {left}");

    grant(test, &roles, "-writes").await?;
    maps.until("child", "made anew", is_anew(changed)).await?;
    Ok(())
}
