//! The objects that the server writes for `guests/hello`, field by field.

use anyhow::{Result, ensure};
use metahook_core::children::claims::MADE_BY;
use metahook_core::children::last_applied::LAST_APPLIED;
use metahook_core::json::to_go_string;
use serde_json::{Value, json};

use crate::api::Made;

/// The controller, and where its module lies.
pub(crate) const CONTROLLER: &str = "hello";

const API_VERSION: &str = "example.com/v1";
const KIND: &str = "HelloWorld";

pub(crate) fn parent(namespace: &str, name: &str, who: &str) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "who": who },
    })
}

/// The Pod of a parent of the same name.
pub(crate) fn pod(namespace: &str, name: &str, parent: &Made, who: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": { "controller-uid": parent.uid },
        },
        "spec": {
            "restartPolicy": "OnFailure",
            "containers": [
                { "name": "hello", "image": "busybox", "command": ["echo", format!("Hello, {who}!")] },
            ],
        },
    });
    let applied = to_go_string(&pod);
    pod["metadata"]["annotations"] = json!({ LAST_APPLIED: applied, MADE_BY: CONTROLLER });
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": parent.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    pod
}

pub(crate) fn status(namespace: &str, name: &str, parent: &Made, generation: i64) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": {
            "name": name, "namespace": namespace,
            "uid": parent.uid, "resourceVersion": parent.resource_version,
        },
        "status": { "pods": 1, "observedGeneration": generation },
    })
}

/// A bound of other writes would be none: what the server made is compared with what is written here.
pub(crate) fn check_pod(made: &Value, parent: &Made, who: &str) -> Result<()> {
    let text = |field: &str| made["metadata"][field].as_str().unwrap_or_default().to_owned();
    let bare = pod(&text("namespace"), &text("name"), parent, who);
    for field in ["labels", "annotations", "ownerReferences"] {
        let (ours, bare) = (&made["metadata"][field], &bare["metadata"][field]);
        ensure!(ours == bare, "the bare writes are not the server's: metadata.{field} is {ours}, not {bare}");
    }
    Ok(())
}
