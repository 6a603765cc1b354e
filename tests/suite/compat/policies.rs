//! Section 4 of the compatibility contract: what is made anew where the cluster's admission policies have a say.

use acceptance::api::{CONFIG_MAP, Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, text, uid};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::Webhook;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

const GROUP: &str = "admissionregistration.k8s.io";

fn policies(test: &Fixture) -> (Objects, Objects) {
    let of = |kind, plural| test.everywhere(&Kind::new(GROUP, "v1", kind, plural));
    (
        of("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        of("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}

/// No ConfigMap of the test may be written with `ours` in it. Policies deny with 422, as fields do that cannot be changed.
async fn forbid(test: &mut Fixture) -> Result<()> {
    let (policies, bindings) = policies(test);
    let metadata = json!({ "name": test.name() });
    let rules = [json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"],
    })];
    let policy = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
        "spec": {
            "matchConstraints": { "resourceRules": rules },
            "validations": [{ "expression": "object.data.k != 'ours'", "message": "ours is forbidden" }],
        },
    });
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": {
            "policyName": test.name(), "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": test.name() } } },
        },
    });
    test.make(&policies, policy).await?;
    test.make(&bindings, binding).await?;
    let maps = test.config_maps();
    let forbidden = json!({ "data": { "k": "ours" } });
    until("the policy in force", PATIENCE, async || {
        Ok(match maps.merge("canary", &forbidden).await {
            Ok(written) => Err(written.to_string()),
            Err(_refused) => Ok(()),
        })
    })
    .await
}

pub(crate) async fn what_a_policy_refuses_to_make_anew_is_left_as_it_is(test: &mut Fixture) -> Result<()> {
    let child = config_map("child", json!({}), json!({ "k": "ours" }));
    let webhook = Webhook::answering(json!({ "children": [child] })).await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "Recreate");
    test.host(controller.synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
    test.create(test.parent("p")).await?;
    let maps = test.config_maps();
    maps.until("child", "made", |_| true).await?;
    maps.create(config_map("canary", json!({}), json!({ "k": "theirs" }))).await?;
    forbid(test).await?;
    let before = maps.merge("child", &json!({ "data": { "k": "theirs" } })).await?;
    let left = |event: &Value| text(event, "/message").contains("left as it is");
    let told = test.until_event("p", "SyncError", left).await?;
    ensure!(text(&told, "/message").contains("ours is forbidden"), "{told}");
    ensure!(uid(&maps.get("child").await?) == uid(&before), "it was deleted");
    policies(test).1.delete(test.name()).await?;
    let now = maps.until("child", "put right", |child| child["data"]["k"] == "ours").await?;
    ensure!(uid(&now) != uid(&before), "it was not made anew");
    Ok(())
}
