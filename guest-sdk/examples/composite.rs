//! A CompositeController's hook: a Deployment, the ConfigMap that it reads, and a condition that says whether it is ready.

use metahook_sdk::{Conditions, IgnoredAny, Object, Raw, Result, Sync, SyncResponse, hash, owned_name};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    image: String,
    replicas: Option<i64>,
    config: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status<'a> {
    #[serde(borrow)]
    conditions: Conditions<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rollout {
    ready_replicas: i64,
}

fn sync(request: &Sync<'_, Spec, Status<'_>, Raw<'_>>) -> Result {
    let (name, spec) = (&*request.parent.metadata.name, &request.parent.spec);
    if spec.image.is_empty() {
        return Err("spec.image is missing".into());
    }
    let deployments: Vec<Object<'_, IgnoredAny, Rollout>> = request.children.decoded("Deployment.apps/v1")?;
    let (ready, wanted) =
        (deployments.first().map_or(0, |one| one.status.ready_replicas), spec.replicas.unwrap_or(1));
    let conditions = request.parent.status.conditions.clone();
    let conditions = conditions.with("Ready", ready == wanted, "Replicas", &format!("{ready} of {wanted}"));
    let (config, labels) = (owned_name(name, "config"), json!({ "app": name }));
    // The Deployment rolls when its configuration changes.
    let template = json!({ "labels": labels, "annotations": { "example.com/config": hash(&spec.config)? } });
    let pod = json!({
        "containers": [{ "name": "main", "image": spec.image, "envFrom": [{ "configMapRef": { "name": config } }] }],
    });
    Ok(SyncResponse::new()
        .status(json!({ "conditions": conditions }))
        .child(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": config }, "data": spec.config,
        }))
        .child(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
            "spec": {
                "replicas": wanted, "selector": { "matchLabels": labels },
                "template": { "metadata": template, "spec": pod },
            },
        })))
}

fn main() -> std::process::ExitCode {
    metahook_sdk::run(sync)
}
