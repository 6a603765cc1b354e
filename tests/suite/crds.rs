//! Tests of the API server's own checks of a controller, before any server of ours sees it.

use acceptance::api::POD;
use acceptance::fixture::Fixture;
use anyhow::{Context, Result, ensure};
use serde_json::json;

pub(crate) async fn webhook_and_wasm_side_by_side_are_refused(test: &mut Fixture) -> Result<()> {
    let both = test.hook("hook").and_webhook("http://hello-controller.hello/sync");
    let refused = test.host(test.controller().making(&POD, "Recreate").synced_by(both)).await;
    let why = format!("{:#}", refused.err().context("both were accepted")?);
    ensure!(
        why.contains("webhook") && why.contains("wasm") && why.contains("422"),
        "refused for another reason: {why}"
    );
    Ok(())
}

pub(crate) async fn a_hook_has_version_v1_unless_it_says_otherwise(test: &mut Fixture) -> Result<()> {
    let made = test.host(test.controller().making(&POD, "Recreate").synced_by(test.hook("hook"))).await?;
    let sync = &made["spec"]["hooks"]["sync"];
    ensure!(sync["version"] == "v1", "{sync}");
    Ok(())
}

/// As Metacontroller's schema has them, so that hooks are shown the same controller.
pub(crate) async fn certificates_and_credentials_have_keys_unless_the_spec_names_them(
    test: &mut Fixture,
) -> Result<()> {
    let object = json!({ "name": "s", "namespace": "n" });
    let key = json!({ "name": "s", "namespace": "n", "key": "k" });
    let endpoints = json!([
        { "host": "a", "caBundle": { "secretRef": object }, "clientTLS": { "secretRef": object } },
        { "host": "b", "caBundle": { "configMapRef": object }, "authorization": { "secretRef": key } },
        { "host": "c", "basicAuth": { "secretRef": object } },
        { "host": "d", "caBundle": { "configMapRef": key }, "authorization": { "type": "T", "secretRef": key } },
    ]);
    let controller = test.controller().making(&POD, "Recreate").synced_by(test.hook("hook"));
    let made = test.host(controller.with("endpointConfigs", endpoints)).await?;
    let with_default = json!({ "name": "s", "namespace": "n", "key": "ca.crt" });
    let expected = json!([
        {
            "host": "a",
            "caBundle": { "secretRef": with_default },
            "clientTLS": { "secretRef": object, "certKey": "tls.crt", "privateKeyKey": "tls.key" },
        },
        {
            "host": "b",
            "caBundle": { "configMapRef": with_default },
            "authorization": { "type": "Bearer", "secretRef": key },
        },
        {
            "host": "c",
            "basicAuth": { "secretRef": object, "usernameKey": "username", "passwordKey": "password" },
        },
        { "host": "d", "caBundle": { "configMapRef": key }, "authorization": { "type": "T", "secretRef": key } },
    ]);
    ensure!(made["spec"]["endpointConfigs"] == expected, "{}", made["spec"]["endpointConfigs"]);
    Ok(())
}
