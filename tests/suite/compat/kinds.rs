//! Children of many kinds, as awkward as hooks write them: nulls, what is empty, other spellings of what the API server
//! keeps.

use acceptance::api::Kind;
use serde_json::{Value, json};

/// So many that each of the API server's ways with what it is given is among them.
pub(crate) fn kinds() -> Vec<Kind> {
    [
        ("", "Pod", "pods"),
        ("", "Service", "services"),
        ("apps", "Deployment", "deployments"),
        ("apps", "StatefulSet", "statefulsets"),
        ("batch", "Job", "jobs"),
        ("", "ConfigMap", "configmaps"),
        ("", "Secret", "secrets"),
        ("networking.k8s.io", "Ingress", "ingresses"),
        ("rbac.authorization.k8s.io", "Role", "roles"),
        ("", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ]
    .map(|(group, kind, plural)| Kind::new(group, "v1", kind, plural))
    .into()
}

/// One child of each kind.
pub(crate) fn children(name: &str) -> Vec<Value> {
    kinds()
        .iter()
        .map(|kind| {
            let mut child = json!({
                "apiVersion": kind.api_version(),
                "kind": kind.kind,
                "metadata": { "name": name, "labels": { "ours": "1" }, "annotations": { "note": "<a> & \u{fc}" } },
            });
            for (field, value) in content(&kind.kind, name).as_object().into_iter().flatten() {
                child[field] = value.clone();
            }
            child
        })
        .collect()
}

fn content(kind: &str, name: &str) -> Value {
    match kind {
        "Pod" | "Deployment" | "StatefulSet" | "Job" => workload(kind, name),
        "Service" => json!({ "spec": {
            "selector": { "app": name },
            "externalName": "",
            "externalIPs": [],
            "clusterIP": null,
            "ports": [
                { "name": "tcp", "port": 53 },
                { "name": "udp", "port": 53.0, "protocol": "UDP", "targetPort": "dns" },
            ],
        } }),
        "ConfigMap" => json!({
            "data": { "empty": "", "null": null, "text": "<&>\u{2028}" },
            "binaryData": {},
            "immutable": null,
        }),
        "Secret" => json!({ "type": "", "data": { "a": "eA==" }, "stringData": { "b": "y" } }),
        "Ingress" => json!({ "spec": {
            "tls": [],
            "defaultBackend": null,
            "rules": [{
                "host": "",
                "http": { "paths": [{
                    "path": "/",
                    "pathType": "Prefix",
                    "backend": { "service": { "name": "s", "port": { "number": 80.0, "name": "" } } },
                }] },
            }],
        } }),
        "Role" => json!({ "rules": [
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": [] },
        ] }),
        "PersistentVolumeClaim" => json!({ "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": "",
            "selector": {},
            "resources": { "limits": null, "requests": { "storage": "1024Mi" } },
        } }),
        _ => json!({}),
    }
}

/// Spec of a Pod with many fields.
fn pod() -> Value {
    let container = json!({
        "name": "main",
        "image": "registry.invalid/none",
        "command": ["a", "b"],
        "env": [{ "name": "EMPTY", "value": "" }, { "name": "NULL", "value": null }],
        "resources": { "limits": { "cpu": "1000m", "memory": "1024Mi" }, "requests": { "cpu": 0.5 } },
        "ports": [{ "name": "tcp", "containerPort": 53 }, { "name": "udp", "containerPort": 53.0, "protocol": "UDP" }],
        "securityContext": {},
        "livenessProbe": null,
    });
    json!({
        "containers": [container],
        "initContainers": [],
        "volumes": [{ "name": "tmp", "emptyDir": { "sizeLimit": "1024Mi" } }],
        "affinity": {},
        "nodeName": null,
        "hostname": "",
        "terminationGracePeriodSeconds": 0.0,
    })
}

/// An object that has Pods, or is one.
fn workload(kind: &str, name: &str) -> Value {
    let (labels, pod) = (json!({ "app": name }), pod());
    let template = |more: Value| {
        let mut spec = pod.clone();
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        json!({ "metadata": { "labels": labels, "annotations": {} }, "spec": spec })
    };
    match kind {
        "Pod" => {
            let mut spec = pod.clone();
            spec["tolerations"] = json!([{ "key": "mine", "operator": "Exists" }]);
            json!({ "spec": spec })
        }
        "Deployment" => json!({ "spec": {
            "replicas": null,
            "selector": { "matchLabels": labels, "matchExpressions": [] },
            "strategy": {},
            "paused": true,
            "template": template(json!({})),
        } }),
        "StatefulSet" => json!({ "spec": {
            "replicas": 0,
            "serviceName": "",
            "selector": { "matchLabels": labels },
            "template": template(json!({})),
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1024Mi" } } },
            }],
        } }),
        "Job" => json!({ "spec": {
            "suspend": true,
            "backoffLimit": 6.0,
            "activeDeadlineSeconds": null,
            "selector": null,
            "template": template(json!({ "restartPolicy": "Never" })),
        } }),
        _ => json!({}),
    }
}

/// How a controller writes its children.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) method: &'static str,
    pub(crate) apply: &'static str,
}

pub(crate) const WAYS: [Way; 4] = [
    Way { name: "in-place", method: "InPlace", apply: "dynamic-apply" },
    Way { name: "recreate", method: "Recreate", apply: "dynamic-apply" },
    Way { name: "applied-in-place", method: "InPlace", apply: "server-side-apply" },
    Way { name: "applied-recreate", method: "Recreate", apply: "server-side-apply" },
];
