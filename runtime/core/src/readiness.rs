//! Readiness of a controller: whether a server has taken it up as it is written, and if not, why not.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::api::reason::ConditionType;
use crate::api::status::{Condition, ControllerStatus};
use crate::hosting::DEV_LABEL;

/// Checks whether a server has taken up a controller as it is written. `modules`: for each hook the digest of the
/// module that it is to have, as `sha256:…`.
///
/// # Errors
/// The controller is not ready: the error says what is waited for.
pub fn readiness(controller: &Value, modules: &BTreeMap<String, String>) -> Result<(), String> {
    let label = controller.pointer("/metadata/labels").and_then(|labels| labels.get(DEV_LABEL));
    if let Some(session) = label.and_then(Value::as_str) {
        return Err(format!("a session of metahook dev, {session:?}, has it, and servers leave it alone"));
    }
    let status = controller.get("status").and_then(|status| ControllerStatus::deserialize(status).ok());
    let Some(status) = status.filter(|status| !status.conditions.is_empty()) else {
        return Err(
            "no server has said anything about it: see that one runs, and that its --target-label-selector, if it has one, matches the controller"
                .to_owned(),
        );
    };
    let generation = controller.pointer("/metadata/generation").and_then(Value::as_i64);
    if status.observed_generation < generation {
        return Err("the server has not taken up its latest spec yet".to_owned());
    }
    let condition = |kind: ConditionType| status.conditions.iter().find(|one| one.kind == kind.as_str());
    let told = |one: &Condition| format!("{} is {} ({}): {}", one.kind, one.status, one.reason, one.message);
    if let Some(refused) = condition(ConditionType::ModulesLoaded).filter(|one| one.status == "False") {
        return Err(told(refused));
    }
    for (hook, wanted) in modules {
        let called = status.hooks.get(hook).and_then(|hook| hook.digest.as_ref());
        if called != Some(wanted) {
            let now = called.map_or("none", String::as_str);
            return Err(format!("the {hook} hook is to call {wanted}, and the server has {now}"));
        }
    }
    match condition(ConditionType::Ready) {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => Err(told(ready)),
        None => Err("it has no condition Ready yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(kind: &str, status: &str) -> Value {
        json!({ "type": kind, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "t" })
    }

    fn controller(conditions: &Value, observed: i64) -> Value {
        let status = json!({
            "observedGeneration": observed,
            "conditions": conditions,
            "hooks": { "sync": { "digest": "sha256:1" } },
        });
        json!({ "metadata": { "generation": 2, "labels": {} }, "status": status })
    }

    #[test]
    fn what_is_waited_for_is_told() {
        let ready = || json!([condition("Ready", "True"), condition("ModulesLoaded", "True")]);
        let waits = |controller: &Value, digest: &str| {
            let modules = [("sync".to_owned(), digest.to_owned())].into();
            readiness(controller, &modules).err().unwrap_or_default()
        };
        let now = controller(&ready(), 2);
        assert_eq!((waits(&now, "sha256:1"), readiness(&now, &BTreeMap::new())), (String::new(), Ok(())));
        assert_eq!(waits(&now, "sha256:2"), "the sync hook is to call sha256:2, and the server has sha256:1");
        assert_eq!(
            waits(&controller(&ready(), 1), "sha256:1"),
            "the server has not taken up its latest spec yet"
        );
        let refused = json!([condition("Ready", "True"), condition("ModulesLoaded", "False")]);
        assert_eq!(waits(&controller(&refused, 2), "sha256:1"), "ModulesLoaded is False (R): m");
        let failing = json!([condition("Ready", "Unknown")]);
        assert_eq!(waits(&controller(&failing, 2), "sha256:1"), "Ready is Unknown (R): m");
        for unseen in [json!({}), controller(&json!([]), 2)] {
            assert!(waits(&unseen, "sha256:1").starts_with("no server has said anything about it"));
        }
        let mut taken = now;
        taken["metadata"]["labels"][DEV_LABEL] = json!("ann");
        assert!(waits(&taken, "sha256:1").starts_with("a session of metahook dev, \"ann\", has it"));
    }
}
