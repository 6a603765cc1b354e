//! Requests of a bench, made as the server makes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use metahook_core::api::ControllerKind;
use metahook_core::hook::Sync;
use metahook_core::object::id::{Gvk, Resource};
use metahook_core::object::{ChildMap, Naming, Object};
use serde_json::{Value, json};

const PARENT_UID: &str = "6f0c7a52-7d2c-4a3c-9a0e-3f5d3c1b8e11";

/// Writes the request with so many observed children into the folder.
pub(crate) fn write(folder: &Path, children: usize) -> Result<PathBuf> {
    let file = folder.join(format!("{children}.json"));
    fs::write(&file, request(children)?).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn request(children: usize) -> Result<Vec<u8>> {
    let pods = Arc::new(Resource {
        gvk: Gvk::new("v1", "Pod"),
        plural: "pods".into(),
        namespaced: true,
        has_status: true,
    });
    let mut observed = ChildMap::default();
    observed.declare(&pods);
    for pod in (0..children).map(pod) {
        observed.insert(&pods, Arc::new(Object::parse(&pod.to_string(), None)?));
    }
    let parent = Object::parse(&parent().to_string(), None)?;
    let controller = controller().to_string();
    let sync = Sync {
        kind: ControllerKind::Composite,
        controller: &controller,
        parent: &parent,
        children: &observed,
        related: &ChildMap::default(),
        settings: None,
        naming: Naming::Relative,
        finalizing: false,
    };
    Ok(sync.bytes())
}

fn parent() -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": "HelloWorld",
        "metadata": {
            "name": "your-name", "namespace": "hello", "uid": PARENT_UID, "generation": 2,
            "resourceVersion": "48213", "creationTimestamp": "2026-01-05T10:12:31Z",
            "labels": { "app.kubernetes.io/name": "hello", "app.kubernetes.io/part-of": "tutorial" },
        },
        "spec": { "who": "Your Name" },
        "status": { "pods": 1, "observedGeneration": 2 },
    })
}

/// About 650 bytes.
fn pod(n: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("your-name-{n:04}"), "namespace": "hello",
            "uid": format!("0d5b9d5e-6c0f-4d8e-8f55-9b1a2c3d{n:04}"),
            "resourceVersion": format!("{}", 48_300 + n), "creationTimestamp": "2026-01-05T10:12:31Z",
            "labels": { "controller-uid": PARENT_UID },
            "ownerReferences": [{
                "apiVersion": "example.com/v1", "kind": "HelloWorld", "name": "your-name", "uid": PARENT_UID,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "restartPolicy": "OnFailure", "nodeName": "node-1",
            "containers": [{ "name": "hello", "image": "busybox", "command": ["echo", "Hello, Your Name!"] }],
        },
        "status": { "phase": "Succeeded", "podIP": "10.244.0.17" },
    })
}

fn controller() -> Value {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1",
        "kind": "CompositeController",
        "metadata": {
            "name": "hello-controller", "uid": "b2a4f1de-16c5-4a0d-b8ce-64f3b9bb1d55", "generation": 1,
            "resourceVersion": "48102", "creationTimestamp": "2026-01-05T10:11:58Z",
        },
        "spec": {
            "generateSelector": true,
            "parentResource": { "apiVersion": "example.com/v1", "resource": "helloworlds" },
            "childResources": [
                { "apiVersion": "v1", "resource": "pods", "updateStrategy": { "method": "Recreate" } },
            ],
            "hooks": { "sync": { "wasm": { "configMap": { "namespace": "hello", "name": "hello-hook" } } } },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_so_many_children_of_about_650_bytes() {
        for children in [0, 1, 1000] {
            let request: Value = serde_json::from_slice(&request(children).unwrap()).unwrap();
            let pods = request["children"]["Pod.v1"].as_object().unwrap();
            assert_eq!(pods.len(), children);
            for pod in pods.values() {
                let size = pod.to_string().len();
                assert!((640..=660).contains(&size), "{size}");
            }
        }
    }
}
