//! Sections 1.5 and 1.6 of the compatibility contract: certificates and credentials of webhooks, which follow their objects.

use std::fs;

use acceptance::api::{CONFIG_MAP, SECRET};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, is_true, text};
use acceptance::webhook::Webhook;
use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

fn secret(password: &str) -> Value {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "account" },
        "data": { "username": bytes("Aladdin"), "password": bytes(password) },
    })
}

/// The certificates come from an endpoint's configuration and from a `ConfigMap`, the credentials from a Secret.
pub(crate) async fn certificates_and_credentials_of_a_webhook_follow_their_objects(
    test: &mut Fixture,
) -> Result<()> {
    let authority = test.plane().scratch().join(format!("{}.pem", test.name()));
    let answer = json!({ "children": [config_map("child", json!({}), json!({}))] });
    let hook = Webhook::serve_tls(&authority, move |_| answer.clone().into()).await?;
    let pem = fs::read_to_string(&authority).context("no certificate of the webhook's authority")?;
    test.define_kind().await?;
    test.serve()?;
    let at = |name: &str| json!({ "name": name, "namespace": test.name() });
    let endpoint = json!([{
        "host": hook.address().to_string(),
        "caBundle": { "configMapRef": at("authority") },
        "basicAuth": { "secretRef": at("account") },
    }]);
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").with("endpointConfigs", endpoint);
    test.host(controller.synced_by(Hook::webhook(&hook.url("/sync")))).await?;
    test.create(test.parent("a")).await?;

    let waits = |cc: &Value, says: &str| {
        condition(cc, "Ready").is_some_and(|ready| {
            ready["status"] == "False"
                && ready["reason"] == "TrustNotLoaded"
                && text(ready, "/message").contains(says)
        })
    };
    let no_map = format!(
        "spec.endpointConfigs[0].caBundle.configMapRef: there is no ConfigMap {}/authority",
        test.name()
    );
    test.until_controller("waits for the certificates", |cc| waits(cc, &no_map)).await?;
    let place = test.config_maps();
    test.make(&place, config_map("authority", json!({}), json!({ "ca.crt": pem }))).await?;
    let no_secret =
        format!("spec.endpointConfigs[0].basicAuth.secretRef: there is no Secret {}/account", test.name());
    test.until_controller("waits for the credentials", |cc| waits(cc, &no_secret)).await?;
    ensure!(hook.count() == 0, "called without credentials: {:?}", hook.asked());

    let place = test.within(&SECRET);
    test.make(&place, secret("open sesame")).await?;
    test.until_controller("ready", |cc| is_true(cc, "Ready")).await?;
    test.config_maps().until("child", "made", |_| true).await?;
    let sends = |basic: &'static str| {
        move |asked: &acceptance::webhook::Asked| {
            asked.headers.get("authorization").is_some_and(|sent| *sent == format!("Basic {basic}"))
        }
    };
    hook.until_asked("with the Secret", sends("QWxhZGRpbjpvcGVuIHNlc2FtZQ==")).await?;

    // What cannot be used is told and leaves the last good one in use.
    place.merge("account", &json!({ "data": { "password": null } })).await?;
    let lacks = |event: &Value| {
        let message = text(event, "/message");
        message.contains("has no key \"password\"") && message.ends_with("the last good ones stay in use")
    };
    test.until_controller_event("TrustRefused", lacks).await?;
    place.merge("account", &secret("simsalabim")).await?;
    test.until_controller("loaded again", |cc| is_true(cc, "ModulesLoaded")).await?;
    test.parents().merge("a", &json!({ "spec": { "who": "touched" } })).await?;
    hook.until_asked("with the new Secret", sends("QWxhZGRpbjpzaW1zYWxhYmlt")).await?;

    let log = fs::read_to_string(test.server().log())?;
    for hidden in ["sesame", "simsalabim", "QWxhZGRpbjp"] {
        ensure!(!log.contains(hidden), "the log has {hidden:?}");
    }
    Ok(())
}

/// The error names the host and the check that failed; parents heal when the bundle is put right.
pub(crate) async fn a_webhook_that_the_bundle_does_not_trust_is_called_once_it_does(
    test: &mut Fixture,
) -> Result<()> {
    let [right, wrong] =
        ["right", "wrong"].map(|which| test.plane().scratch().join(format!("{}-{which}.pem", test.name())));
    let answer = json!({ "children": [config_map("child", json!({}), json!({}))] });
    let hook = Webhook::serve_tls(&right, move |_| answer.clone().into()).await?;
    let _other = Webhook::serve_tls(&wrong, |_| json!({}).into()).await?;
    let [right, wrong] = [fs::read_to_string(&right)?, fs::read_to_string(&wrong)?];
    test.define_kind().await?;
    let place = test.config_maps();
    test.make(&place, config_map("authority", json!({}), json!({ "ca.crt": wrong }))).await?;
    test.serve()?;
    let bundle = json!({ "configMapRef": { "name": "authority", "namespace": test.name() } });
    let sync = Hook::webhook(&hook.url("/sync")).with("caBundle", bundle);
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(sync)).await?;
    test.create(test.parent("a")).await?;
    // The two authorities have one name.
    let says = |event: &Value| {
        let message = text(event, "/message");
        message.contains("TLS with 127.0.0.1: its certificate") && message.contains("(BadSignature)")
    };
    test.until_event("a", "SyncError", says).await?;
    ensure!(hook.count() == 0, "called without trust: {:?}", hook.asked());
    place.merge("authority", &json!({ "data": { "ca.crt": right } })).await?;
    place.until("child", "made", |_| true).await?;
    Ok(())
}
