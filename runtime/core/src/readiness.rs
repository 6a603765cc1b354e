//! Readiness of a controller: whether a server has taken it up as it is written, and if not, why not.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::api::reason::{ConditionReason, ConditionType};
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

/// Whether the status of a controller shows that a server has taken up `spec.paused` as it is written. One that cannot run calls
/// no hook either.
pub fn shows_pause(controller: &Value, paused: bool) -> bool {
    let status = controller.get("status").and_then(|status| ControllerStatus::deserialize(status).ok());
    let generation = controller.pointer("/metadata/generation").and_then(Value::as_i64);
    let Some(status) = status.filter(|status| status.observed_generation >= generation) else { return false };
    let is_paused = |one: &Condition| {
        let reason = ConditionReason::ControllerPaused;
        one.kind == reason.condition().as_str() && one.reason == reason.as_str()
    };
    let cannot_run = |one: &Condition| one.kind == ConditionType::Ready.as_str() && one.status == "False";
    match (paused, status.conditions.iter().any(is_paused)) {
        (true, is_paused) => is_paused || status.conditions.iter().any(cannot_run),
        (false, is_paused) => !is_paused,
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

    #[test]
    fn a_pause_of_a_controller_is_shown_for_its_latest_spec() {
        let paused = json!({
            "type": "Paused", "status": "True", "reason": "ControllerPaused", "message": "", "lastTransitionTime": "t",
        });
        let shows = |conditions: Value, observed: i64| {
            [true, false].map(|paused| shows_pause(&controller(&conditions, observed), paused))
        };
        assert_eq!(shows(json!([paused]), 2), [true, false]);
        assert_eq!(shows(json!([paused]), 1), [false, false], "of an earlier spec");
        assert_eq!(shows(json!([condition("Ready", "Unknown")]), 2), [false, true]);
        assert_eq!(shows(json!([condition("Ready", "False")]), 2), [true, true], "it cannot run");
        assert_eq!(shows(json!([condition("Paused", "True")]), 2), [false, true], "parents are");
        assert!(!shows_pause(&json!({ "metadata": { "generation": 1 } }), true));
    }
}
