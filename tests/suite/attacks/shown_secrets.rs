//! Hooks that ask for Secrets: modules are shown those that the flags and the spec allow.

use acceptance::api::{NAMESPACE, SECRET};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, text};
use acceptance::webhook::{Asked, Webhook};
use anyhow::Result;
use serde_json::{Value, json};

use super::related::{LABEL, refused, serve};
use crate::wasm;

/// The server refuses Secrets of other namespaces and kinds that the spec does not list; for a webhook it records an Event.
pub(crate) async fn secrets_are_shown_where_they_are_meant_to_be(test: &mut Fixture) -> Result<()> {
    let home = test.name().to_owned();
    test.server().flag(&format!("--mount-secret-namespaces={home}"));
    serve(test).await?;
    let rules = |resource: &str, namespace: Value| json!({ "relatedResources": [{ "apiVersion": "v1", "resource": resource, "namespace": namespace }] });
    let kinds = |resource: &str| json!([{ "apiVersion": "v1", "resource": resource }]);
    let secrets = |namespace| rules("secrets", namespace);
    let nowhere = "are shown Secrets from";
    for (name, rules, listed, fails) in [
        ("anywhere", secrets(Value::Null), Value::Null, nowhere),
        ("away", secrets(json!("kube-system")), Value::Null, nowhere),
        (
            "unlisted",
            rules("services", Value::Null),
            kinds("secrets"),
            "relatedKinds of the controller does not name",
        ),
        ("home", secrets(json!(home)), Value::Null, ""),
        ("listed", secrets(Value::Null), kinds("secrets"), nowhere),
        ("listed-home", secrets(json!(home)), kinds("secrets"), ""),
    ] {
        test.store(name, &wasm::answers(&rules)?).await?;
        let controller = test.controller().renamed(&format!("{home}-{name}")).of_parents_with("row", name);
        let controller = controller.with("relatedKinds", listed).synced_by(test.hook("quiet").version("v2"));
        test.host(controller.customized_by(test.hook(name).version("v2"))).await?;
        test.create(test.parent(name).labelled("row", name)).await?;
        if fails.is_empty() {
            let settled = |controller: &Value| controller["status"]["settled"] == 1;
            test.controllers().until(&format!("{home}-{name}"), "settled", settled).await?;
        } else {
            refused(test, name, fails).await?;
        }
    }
    let answer = secrets(Value::Null);
    let webhook = Webhook::serve(move |asked: &Asked| match asked.path.as_str() {
        "/customize" => answer.clone().into(),
        _ => json!({ "children": [], "status": { "seen": asked.body["related"]["Secret.v1"].is_object() } })
            .into(),
    });
    let webhook = webhook.await?;
    let hook = |path: &str| Hook::webhook(&webhook.url(path)).version("v2");
    let controller = test.controller().renamed(&format!("{home}-web")).of_parents_with("row", "web");
    let controller = test.host(controller.synced_by(hook("/sync")).customized_by(hook("/customize"))).await?;
    test.create(test.parent("web").labelled("row", "web")).await?;
    test.parents().until("web", "a request with Secrets", |parent| parent["status"]["seen"] == true).await?;
    test.until_event_on(&controller, "SecretsRelated", |event| event["type"] == "Warning").await.map(drop)
}

/// A module on Secrets is shown those of the flag's namespace, and elsewhere those that it made, but no token.
pub(crate) async fn secrets_are_parents_and_children_where_they_are_meant_to_be(
    test: &mut Fixture,
) -> Result<()> {
    let (home, elsewhere) = (test.name().to_owned(), format!("{}-elsewhere", test.name()));
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": elsewhere } });
    test.make(&test.everywhere(&NAMESPACE), namespace).await?;
    test.server().flag(&format!("--mount-secret-namespaces={home}"));
    serve(test).await?;
    let secret = |name: &str| {
        let metadata = json!({ "name": name, "labels": { LABEL: home } });
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })
    };
    let places = [test.within(&SECRET), test.within_other(&SECRET, &elsewhere)];
    for place in &places {
        test.make(place, secret("found")).await?;
    }
    let seen = json!({ "attachments": [], "labels": { "seen": "yes" } });
    test.store("decorates", &wasm::answers(&seen)?).await?;
    let mut token = secret("token");
    token["type"] = json!("kubernetes.io/service-account-token");
    token["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": "default" });
    let parents = [test.parents(), test.within_other(test.kind(), &elsewhere)];
    for (row, child) in [("makes", secret("made")), ("asks", token)] {
        test.store(row, &wasm::answers(&json!({ "children": [child] }))?).await?;
        let makes = test.controller().of_parents_with("row", row).making(&SECRET, "InPlace");
        test.host(makes.renamed(&format!("{home}-{row}")).synced_by(test.hook(row))).await?;
        for place in &parents {
            test.make(place, test.parent(row).labelled("row", row).json()).await?;
        }
    }
    let selects = json!({ "labelSelector": { "matchLabels": { LABEL: home } } });
    // Names of controllers become parts of finalizers, which are short.
    let name = home.rsplit('-').take(2).collect::<Vec<_>>().join("-");
    let decorates = test.decorator().renamed(&name).decorating(&SECRET, selects);
    let decorator = test.make(&test.decorators(), decorates.synced_by(test.hook("decorates")).json()).await?;
    let names = |event: &Value| text(event, "/message").contains(&format!("from {home:?} only"));
    test.until_event_on(&decorator, "SecretsNotShown", names).await?;

    let [near, far] = places;
    near.until("found", "decorated", |secret| secret["metadata"]["labels"]["seen"] == "yes").await?;
    for place in [&near, &far] {
        place.until("made", "made", |_| true).await?;
    }
    near.until("token", "made", |_| true).await?;
    let one = |controller: &Value| controller["status"]["failing"] == 1;
    let failing = test.controllers().until(&format!("{home}-asks"), "one that fails", one).await?;
    let says = format!(
        "Secret in namespace {elsewhere:?} that Kubernetes puts a token into, and modules and scripts are shown Secrets from"
    );
    anyhow::ensure!(failing.to_string().contains(&says.replace('"', "\\\"")), "{failing}");
    anyhow::ensure!(far.find("token").await?.is_none(), "a token was made where it may not be shown");
    let found = far.get("found").await?;
    anyhow::ensure!(found["metadata"]["ownerReferences"].is_null(), "it was adopted: {found}");
    anyhow::ensure!(found["metadata"]["labels"]["seen"].is_null(), "the hook was shown {found}");
    Ok(())
}
