//! Section 1 of the compatibility contract: what the API server takes as a controller, and what becomes of a spec that
//! cannot run.

use acceptance::api::{CONFIG_MAP, Kind};
use acceptance::fixture::Fixture;
use acceptance::objects::{condition, config_map, is_true, text};
use acceptance::webhook::Webhook;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

fn kind(kind: &str) -> Kind {
    Kind::new("metacontroller.k8s.io", "v1alpha1", kind, &format!("{}s", kind.to_lowercase()))
}

pub(crate) async fn the_definitions_have_the_names_that_manifests_and_people_use(
    test: &mut Fixture,
) -> Result<()> {
    for (kind, scope, short, required) in [
        ("CompositeController", "Cluster", json!(["cc", "cctl"]), json!(["metadata", "spec"])),
        ("DecoratorController", "Cluster", json!(["dec", "decorators", "dc"]), json!(["metadata", "spec"])),
        ("ControllerRevision", "Namespaced", Value::Null, json!(["metadata", "parentPatch"])),
    ] {
        let name = kind.to_lowercase();
        let crd = test.definitions().get(&format!("{name}s.metacontroller.k8s.io")).await?;
        let spec = &crd["spec"];
        let approved = &crd["metadata"]["annotations"]["api-approved.kubernetes.io"];
        ensure!(approved == "unapproved, request not yet submitted", "{kind}: {approved}");
        ensure!(spec["scope"] == scope, "{kind}: {}", spec["scope"]);
        ensure!(spec["names"]["kind"] == kind && spec["names"]["singular"] == name, "{}", spec["names"]);
        ensure!(spec["names"]["shortNames"] == short, "{}", spec["names"]);
        let versions = spec["versions"].as_array().context("no versions")?;
        ensure!(versions.len() == 1 && versions[0]["name"] == "v1alpha1", "{kind}: {versions:?}");
        ensure!(versions[0]["served"] == true && versions[0]["storage"] == true, "{kind}");
        ensure!(versions[0]["subresources"] == json!({ "status": {} }), "{kind}");
        let mut asked: Vec<_> = versions[0]["schema"]["openAPIV3Schema"]["required"]
            .as_array()
            .context("nothing is required")?
            .clone();
        asked.sort_by_key(ToString::to_string);
        ensure!(json!(asked) == required, "{kind}: {asked:?}");
    }
    Ok(())
}

/// Every field of a webhook.
fn webhook() -> Value {
    let secret = json!({ "name": "s", "namespace": "n" });
    json!({
        "url": "https://host/path",
        "service": { "name": "s", "namespace": "n", "port": 8080, "protocol": "https" },
        "path": "/sync",
        "timeout": "1m30s",
        "etag": { "enabled": true, "cacheTimeoutSeconds": 1, "cacheCleanupSeconds": 2 },
        "responseUnMarshallMode": "strict",
        "caBundle": {
            "inline": "pem",
            "secretRef": { "name": "s", "namespace": "n", "key": "k" },
            "configMapRef": { "name": "s", "namespace": "n", "key": "k" },
        },
        "clientTLS": { "secretRef": secret, "certKey": "c", "privateKeyKey": "k" },
        "authorization": { "type": "Token", "secretRef": { "name": "s", "namespace": "n", "key": "k" } },
        "basicAuth": { "secretRef": secret, "usernameKey": "u", "passwordKey": "p" },
    })
}

fn endpoint() -> Value {
    let mut endpoint = webhook();
    if let Some(fields) = endpoint.as_object_mut() {
        fields.retain(|field, _| {
            matches!(field.as_str(), "caBundle" | "clientTLS" | "authorization" | "basicAuth")
        });
    }
    endpoint["host"] = json!("host:443");
    endpoint
}

fn selector() -> Value {
    json!({ "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "c", "operator": "In", "values": ["d"] }] })
}

fn composite() -> Value {
    let hook = json!({ "version": "v2", "webhook": webhook() });
    json!({
        "parentResource": {
            "apiVersion": "e.example.com/v1",
            "resource": "things",
            "labelSelector": selector(),
            "revisionHistory": { "fieldPaths": ["spec", "metadata.labels"] },
            "ignoreStatusChanges": true,
        },
        "childResources": [{
            "apiVersion": "v1",
            "resource": "pods",
            "updateStrategy": {
                "method": "RollingInPlace",
                "statusChecks": { "conditions": [{ "type": "Ready", "status": "True", "reason": "Up" }] },
            },
        }],
        "hooks": { "sync": hook, "finalize": hook, "customize": hook, "preUpdateChild": hook, "postUpdateChild": hook },
        "endpointConfigs": [endpoint()],
        "resyncPeriodSeconds": 30,
        "generateSelector": true,
    })
}

fn decorator() -> Value {
    let hook = json!({ "version": "v2", "webhook": webhook() });
    let mut annotations = selector();
    annotations["matchAnnotations"] = annotations["matchLabels"].take();
    if let Some(fields) = annotations.as_object_mut() {
        fields.remove("matchLabels");
    }
    json!({
        "resources": [{
            "apiVersion": "apps/v1",
            "resource": "deployments",
            "labelSelector": selector(),
            "annotationSelector": annotations,
            "ignoreStatusChanges": true,
        }],
        "attachments": [{ "apiVersion": "v1", "resource": "services", "updateStrategy": { "method": "Recreate" } }],
        "applyStrategy": "server-side-apply",
        "hooks": { "sync": hook, "finalize": hook, "customize": hook },
        "endpointConfigs": [endpoint()],
        "resyncPeriodSeconds": 30,
    })
}

pub(crate) async fn what_a_field_may_be_is_kept_and_unknown_fields_are_dropped(
    test: &mut Fixture,
) -> Result<()> {
    for (of, spec) in [("CompositeController", composite()), ("DecoratorController", decorator())] {
        let of = kind(of);
        let mut given = spec.clone();
        given["unknown"] = json!("field");
        given["hooks"]["sync"]["webhook"]["unknown"] = json!({ "field": 1 });
        given["hooks"]["other"] = json!({});
        if of.kind == "DecoratorController" {
            given["attachments"][0]["updateStrategy"]["statusChecks"] = json!({ "conditions": [] });
        }
        let object = json!({
            "apiVersion": of.api_version(), "kind": of.kind, "metadata": { "name": test.name() }, "spec": given,
        });
        let kept = test.make(&test.everywhere(&of), object).await?;
        ensure!(kept["spec"] == spec, "{}: {}", of.kind, kept["spec"]);
    }
    let spec = json!({
        "parentResource": { "apiVersion": "v1", "resource": "things" },
        "childResources": [{ "apiVersion": "v1", "resource": "pods", "updateStrategy": {} }],
        "hooks": { "sync": { "webhook": {} }, "finalize": {} },
    });
    let name = format!("{}-least", test.name());
    let of = kind("CompositeController");
    let least = json!({
        "apiVersion": of.api_version(), "kind": of.kind, "metadata": { "name": name }, "spec": spec,
    });
    let kept = test.make(&test.everywhere(&of), least).await?;
    ensure!(kept["spec"]["hooks"]["sync"]["version"] == "v1", "{}", kept["spec"]);
    ensure!(kept["spec"]["hooks"]["finalize"]["version"] == "v1", "{}", kept["spec"]);
    ensure!(kept["spec"].get("generateSelector").is_none(), "{}", kept["spec"]);

    let of = kind("ControllerRevision");
    let revision = json!({
        "apiVersion": of.api_version(), "kind": of.kind, "metadata": { "name": "r" },
        "parentPatch": { "spec": { "any": [{ "thing": null }, 1.5] } },
        "children": [{ "apiGroup": "", "kind": "Pod", "names": [] }],
    });
    let kept = test.make(&test.within(&of), revision.clone()).await?;
    ensure!(kept["parentPatch"] == revision["parentPatch"], "{kept}");
    ensure!(kept["children"] == revision["children"], "{kept}");
    Ok(())
}

pub(crate) async fn what_a_field_may_not_be_is_refused_by_the_api_server(test: &mut Fixture) -> Result<()> {
    type Change = fn(&mut Value);
    let wrong: [(&str, Change); 12] = [
        ("spec.parentResource", |spec| spec["parentResource"] = Value::Null),
        ("spec.parentResource.apiVersion", |spec| spec["parentResource"] = json!({ "resource": "things" })),
        ("spec.parentResource.resource", |spec| spec["parentResource"] = json!({ "apiVersion": "v1" })),
        ("spec.childResources[0].resource", |spec| spec["childResources"] = json!([{ "apiVersion": "v1" }])),
        ("updateStrategy.method", |spec| {
            spec["childResources"][0]["updateStrategy"]["method"] = json!("Rolling");
        }),
        ("conditions[0].type", |spec| {
            spec["childResources"][0]["updateStrategy"]["statusChecks"]["conditions"] =
                json!([{ "status": "True" }]);
        }),
        ("hooks.sync.version", |spec| spec["hooks"]["sync"]["version"] = json!("v3")),
        ("webhook.responseUnMarshallMode", |spec| {
            spec["hooks"]["sync"]["webhook"]["responseUnMarshallMode"] = json!("lax");
        }),
        ("webhook.service.namespace", |spec| {
            spec["hooks"]["sync"]["webhook"]["service"] = json!({ "name": "s" });
        }),
        ("endpointConfigs[0].host", |spec| spec["endpointConfigs"] = json!([{}])),
        ("webhook.timeout", |spec| spec["hooks"]["sync"]["webhook"]["timeout"] = json!(10)),
        ("resyncPeriodSeconds", |spec| spec["resyncPeriodSeconds"] = json!("often")),
    ];
    for (field, change) in wrong {
        is_refused(test, "CompositeController", composite(), field, change).await?;
    }
    let wrong: [(&str, Change); 5] = [
        ("spec.resources", |spec| spec["resources"] = Value::Null),
        ("spec.resources[0].apiVersion", |spec| spec["resources"] = json!([{ "resource": "things" }])),
        ("spec.attachments[0].resource", |spec| spec["attachments"] = json!([{ "apiVersion": "v1" }])),
        ("updateStrategy.method", |spec| {
            spec["attachments"][0]["updateStrategy"]["method"] = json!("Rolling");
        }),
        ("matchExpressions[0].operator", |spec| {
            spec["resources"][0]["annotationSelector"] = json!({ "matchExpressions": [{ "key": "a" }] });
        }),
    ];
    for (field, change) in wrong {
        is_refused(test, "DecoratorController", decorator(), field, change).await?;
    }
    Ok(())
}

async fn is_refused(
    test: &mut Fixture,
    of: &str,
    mut spec: Value,
    field: &str,
    change: fn(&mut Value),
) -> Result<()> {
    let of = kind(of);
    change(&mut spec);
    let object = json!({
        "apiVersion": of.api_version(), "kind": of.kind, "metadata": { "name": test.name() }, "spec": spec,
    });
    let refused = test.make(&test.everywhere(&of), object).await.err();
    let why = format!("{:#}", refused.with_context(|| format!("{field} was accepted"))?);
    ensure!(why.contains(field) && why.contains("422"), "{field}: {why}");
    Ok(())
}

fn webhooks_that_cannot_be_called() -> Vec<(Value, &'static str)> {
    let service = |service: Value, path: &str| json!({ "service": service, "path": path });
    let with = |field: &str, value: Value| json!({ "url": "http://host/", field: value });
    let object = json!({ "name": "s", "namespace": "n" });
    let key = json!({ "name": "s", "namespace": "n", "key": "k" });
    vec![
        (json!({}), "spec.hooks.sync.webhook: says not where it is"),
        (
            service(json!({ "name": "", "namespace": "n" }), "/"),
            "spec.hooks.sync.webhook.service.name: must not be empty",
        ),
        (
            service(json!({ "name": "s", "namespace": "" }), "/"),
            "spec.hooks.sync.webhook.service.namespace: must not",
        ),
        (json!({ "service": { "name": "s", "namespace": "n" } }), "spec.hooks.sync.webhook.path: is missing"),
        (
            service(json!({ "name": "s", "namespace": "n", "port": 0 }), "/"),
            "webhook.service.port: 0 is no port",
        ),
        (json!({ "url": "host/path" }), "spec.hooks.sync.webhook.url: \"host/path\" is no URL with a host"),
        (
            with("timeout", json!("3 days")),
            "spec.hooks.sync.webhook.timeout: \"3 days\" is no duration as Go writes it",
        ),
        (
            with("caBundle", json!({ "inline": "pem", "secretRef": object })),
            "spec.hooks.sync.webhook.caBundle: has more than one of inline",
        ),
        (with("caBundle", json!({})), "spec.hooks.sync.webhook.caBundle: names no certificates"),
        (
            with("caBundle", json!({ "inline": "pem" })),
            "spec.hooks.sync.webhook.caBundle.inline: has no certificate in PEM",
        ),
        (
            with("clientTLS", json!({ "secretRef": { "name": "", "namespace": "n" } })),
            "spec.hooks.sync.webhook.clientTLS.secretRef.name: must not be empty",
        ),
        (
            with("clientTLS", json!({ "secretRef": object })),
            "spec.hooks.sync.webhook.clientTLS.secretRef: there is no Secret n/s",
        ),
        (
            with("authorization", json!({ "type": "Basic", "secretRef": key })),
            "spec.hooks.sync.webhook.authorization.type: \"Basic\" is what basicAuth is for",
        ),
        (
            json!({
                "url": "http://h/x",
                "authorization": { "secretRef": key },
                "basicAuth": { "secretRef": object },
            }),
            "spec.hooks.sync.webhook.basicAuth: is given beside authorization",
        ),
        (json!({ "url": "http://trusted/x" }), "spec.endpointConfigs[0].caBundle: names no certificates"),
    ]
}

/// Each of these is accepted by the API server, says by a condition and an Event which field is wrong, and leaves the
/// others alone.
pub(crate) async fn a_spec_that_cannot_run_says_which_field_and_hurts_no_other(
    test: &mut Fixture,
) -> Result<()> {
    let hook = Webhook::answering(json!({ "children": [config_map("child", json!({}), json!({}))] })).await?;
    let wrong = webhooks_that_cannot_be_called();
    test.define_kind().await?;
    test.serve()?;
    let config = json!([{ "host": "TRUSTED:80", "caBundle": {} }]);
    for (row, (webhook, _)) in wrong.iter().enumerate() {
        let name = format!("{}-{row}", test.name());
        let controller = test.controller().renamed(&name).making(&CONFIG_MAP, "InPlace");
        let controller = controller.with("endpointConfigs", config.clone());
        let controller = controller.with("hooks", json!({ "sync": { "webhook": webhook } }));
        test.host(controller).await?;
    }
    let good = acceptance::objects::Hook::webhook(&hook.url("/sync")).with("timeout", "-1s");
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(good)).await?;
    test.create(test.parent("a")).await?;
    test.config_maps().until("child", "made", |_| true).await?;
    test.until_controller("ready", |cc| is_true(cc, "Ready")).await?;
    test.server()
        .until_log("what is no time is told", |log| log.contains("-1s is no time: 10s are used"))
        .await?;

    let events = test.within_default(&acceptance::api::EVENT);
    for (row, (_, says)) in wrong.iter().enumerate() {
        let name = format!("{}-{row}", test.name());
        let refused = |cc: &Value| {
            condition(cc, "Ready").is_some_and(|ready| {
                ready["status"] == "False"
                    && (ready["reason"] == "InvalidSpec" || ready["reason"] == "TrustNotLoaded")
                    && text(ready, "/message").contains(says)
            })
        };
        test.controllers().until(&name, says, refused).await?;
        let fields = format!("involvedObject.name={name},reason=CreateError");
        let told = |event: &Value| {
            let message = text(event, "/message");
            message.starts_with("Cannot create new controller: ") && message.contains(says)
        };
        events.until_some(&fields, says, told).await?;
    }
    Ok(())
}
