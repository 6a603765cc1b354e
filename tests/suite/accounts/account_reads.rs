//! Hooks are shown the objects that the account of their controller may read, and no others.

use acceptance::api::{EVENT, Kind, NAMESPACE, SECRET, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, condition, has_condition, is_true, text};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::kit::{RBAC, grant, instead_of_writes, may_read_secrets, nothing_granted, short};

/// The server may read all Secrets, and an account none of them, then those of its own namespace.
pub(crate) async fn a_hook_is_shown_only_what_its_controllers_account_may_read(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(|_| json!({ "attachments": [] }).into()).await?;
    let elsewhere = format!("{}-elsewhere", test.name());
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": elsewhere } });
    test.make(&test.everywhere(&NAMESPACE), namespace).await?;
    for (place, name) in [(test.within(&SECRET), "near"), (test.within_other(&SECRET, &elsewhere), "far")] {
        let metadata = json!({ "name": name, "labels": { "of": test.name() } });
        test.make(&place, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })).await?;
    }
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "greeter" } });
    test.make(&test.within(&SERVICE_ACCOUNT), account).await?;
    test.serve()?;
    let selects = json!({ "matchLabels": { "of": test.name() } });
    let controller =
        test.decorator().renamed(&short(test)).decorating(&SECRET, json!({ "labelSelector": selects }));
    let controller = controller.synced_by(Hook::webhook(&webhook.url("/sync")));
    let place = json!({ "namespace": test.name(), "name": "greeter" });
    let decorators = test.decorators();
    test.make(&decorators, controller.with("serviceAccountRef", place).json()).await?;
    let refused = format!(
        "User \"system:serviceaccount:{}:greeter\" cannot list resource \"secrets\" in API group \"\"",
        test.name()
    );
    let lacks = |dc: &Value| {
        let says = |kind| condition(dc, kind).is_some_and(|it| text(it, "/message").starts_with(&refused));
        has_condition(dc, "RightsGranted", "False", "RightsMissing") && says("RightsGranted") && says("Ready")
    };
    let told = decorators.until(&short(test), "the right that is missing", lacks).await?;
    test.until_event_on(&told, "RightsMissing", |event| text(event, "/message").contains(&refused)).await?;
    ensure!(webhook.count() == 0, "the hook was shown {:?}", webhook.asked());

    let subject = json!({ "kind": "ServiceAccount", "namespace": test.name(), "name": "greeter" });
    let granted = [
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": { "name": "sees" },
            "rules": [may_read_secrets()],
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": { "name": "sees", "namespace": test.name() },
            "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": "sees" }, "subjects": [subject],
        }),
    ];
    for role in granted {
        let kind = text(&role, "/kind").to_owned();
        let kind = Kind::new(RBAC, "v1", &kind, &format!("{}s", kind.to_lowercase()));
        test.make(&test.within(&kind), role).await?;
    }
    decorators.until(&short(test), "ready", |dc| is_true(dc, "Ready")).await?;
    let fields = "involvedObject.name=far,reason=SyncError";
    let says = |event: &Value| {
        let message = text(event, "/message");
        message.contains(&refused) && message.contains(&elsewhere)
    };
    test.within_other(&EVENT, &elsewhere).until_some(fields, "refused", says).await?;
    let shown = webhook.asked();
    let is_near = |asked: &Asked| asked.body["object"]["metadata"]["name"] == "near";
    ensure!(!shown.is_empty() && shown.iter().all(is_near), "the hook was shown {shown:?}");
    Ok(())
}

pub(crate) async fn related_objects_are_those_that_its_controllers_account_may_read(
    test: &mut Fixture,
) -> Result<()> {
    let place = test.name().to_owned();
    let hook = Webhook::serve(move |asked| match asked.path.as_str() {
        "/customize" => json!({ "relatedResources": [
            { "apiVersion": "v1", "resource": "secrets", "namespace": place, "names": ["password"] },
        ] })
        .into(),
        _ => {
            json!({ "status": { "related": asked.body["related"]["Secret.v1"]["password"]["data"] } }).into()
        }
    })
    .await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "password" }, "data": { "is": "eA==" } });
    test.make(&test.within(&SECRET), secret).await?;
    let at = |path: &str| Hook::webhook(&hook.url(path));
    let hooks = |controller: Composite| controller.synced_by(at("/sync")).customized_by(at("/customize"));
    let roles = nothing_granted(test, hooks).await?;
    grant(test, &roles, "-acts").await?;
    grant(test, &roles, "-writes").await?;
    test.create(test.parent("a")).await?;
    let account = format!("system:serviceaccount:{}:greeter", test.name());
    let forbidden = format!("User \"{account}\" cannot list resource \"secrets\"");
    test.until_event("a", "SyncError", |event| text(event, "/message").contains(&forbidden)).await?;
    ensure!(hook.asked().iter().all(|asked| asked.path == "/customize"), "it was synced: {:?}", hook.asked());

    let more = instead_of_writes(&roles, "related", &json!([may_read_secrets()]));
    grant(test, &more, "-related").await?;
    test.parents().until("a", "its status", |parent| parent["status"]["related"]["is"] == "eA==").await?;
    Ok(())
}
