//! Readiness of a controller: whether a server has taken it up as it is written, and if not, why not.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::api::reason::{ConditionReason, ConditionType};
use crate::api::status::{Condition, ControllerStatus};
use crate::counted;
use crate::hosting::DEV_LABEL;
use crate::object::id::Key;

/// The hook that each parent calls.
const SYNC: &str = "sync";

/// Comes before the name of the first parent that fails, in the message of `Ready`.
const FIRST: &str = "; see their Events. The first is ";

/// How far a server has taken up a controller as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// Ready, and `spec.paused` is true: no hook is called.
    Paused,
    /// Ready, and no call of its sync hook's module is known yet.
    NotCalled,
    /// Ready, and some parents have neither settled nor failed yet.
    Unsettled,
    /// Ready, and some parents fail, or did when the status was written.
    SomeFail(Failures),
    /// Not yet. The message says what is waited for.
    Waits(String),
    /// Never: only another version of a module helps. The message is that of the condition.
    Refused(String),
    /// Each of its parents fails, or did when the status was written: a moment ago it may have been another version.
    Failing(String),
}

/// Parents of a controller that fail while others do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failures {
    /// The message of the condition `Ready`.
    pub message: String,
    failing: i64,
    parents: i64,
}

impl Failures {
    /// Whether one of these parents is known to fail: the message names it, or more parents fail than there are others.
    pub fn are_among(&self, own: &[Key]) -> bool {
        let first = self.message.split_once(FIRST).map(|(_, first)| first);
        let is_first = |key: &Key| first.is_some_and(|first| first.starts_with(&format!("{key} (")));
        let others = self.parents - i64::try_from(own.len()).unwrap_or(i64::MAX);
        own.iter().any(is_first) || self.failing > others
    }
}

/// The message of `Ready` where parents fail. `first`: the name of one, and in brackets and behind them how it fails.
pub fn failing_message(failing: usize, parents: usize, first: &str) -> String {
    let fail = if failing == 1 { "fails" } else { "fail" };
    format!("{failing} of {} {fail}{FIRST}{first}", counted(parents, "parent", "parents"))
}

/// Whether a server has taken up a controller as it is written. `modules`: for each hook the digest of the module that it is to
/// have, as `sha256:…`.
pub fn readiness(controller: &Value, modules: &BTreeMap<String, String>) -> Readiness {
    let status = match taken_up(controller) {
        Ok(status) => status,
        Err(why) => return Readiness::Waits(why),
    };
    let condition = |kind: ConditionType| status.conditions.iter().find(|one| one.kind == kind.as_str());
    if let Some(refused) = condition(ConditionType::ModulesLoaded).filter(|one| one.status == "False") {
        let is_final = modules.values().any(|digest| refuses(refused, digest));
        return if is_final { Readiness::Refused(shown(refused)) } else { Readiness::Waits(shown(refused)) };
    }
    for (hook, wanted) in modules {
        let called = status.hooks.get(hook).and_then(|hook| hook.digest.as_ref());
        if called != Some(wanted) {
            let now = called.map_or("none", String::as_str);
            return Readiness::Waits(format!(
                "the {hook} hook is to call {wanted}, and the server has {now}"
            ));
        }
    }
    match condition(ConditionType::Ready) {
        Some(ready) if ready.status == "True" && ready.reason == ConditionReason::ReadyPaused.as_str() => {
            Readiness::Paused
        }
        Some(ready) if ready.status == "True" && !is_called(&status, modules) => Readiness::NotCalled,
        Some(ready) if ready.status == "True" && ready.reason == ConditionReason::ParentsFailing.as_str() => {
            Readiness::SomeFail(Failures {
                message: ready.message.clone(),
                failing: status.failing.unwrap_or_default(),
                parents: status.parents.unwrap_or_default(),
            })
        }
        Some(ready) if ready.status == "True" && !is_settled(&status) => Readiness::Unsettled,
        Some(ready) if ready.status == "True" => Readiness::Ready,
        // The server of a webhook may be about to start.
        Some(ready)
            if ready.reason == ConditionReason::AllParentsFailing.as_str() && modules.contains_key(SYNC) =>
        {
            Readiness::Failing(ready.message.clone())
        }
        Some(ready) => Readiness::Waits(shown(ready)),
        None => Readiness::Waits("it has no condition Ready yet".to_owned()),
    }
}

/// The status, where it is about the controller as it is written.
fn taken_up(controller: &Value) -> Result<ControllerStatus, String> {
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
    Ok(status)
}

fn shown(one: &Condition) -> String {
    format!("{} is {} ({}): {}", one.kind, one.status, one.reason, one.message)
}

/// The server refuses the version of this digest for good: its message ends with it.
fn refuses(condition: &Condition, digest: &str) -> bool {
    let reasons = [ConditionReason::ModuleInvalid, ConditionReason::DigestMismatch];
    reasons.iter().any(|reason| reason.as_str() == condition.reason) && condition.message.ends_with(digest)
}

/// A call of the sync hook's module is known, or there is no parent to call it for. Of webhooks no calls are known.
fn is_called(status: &ControllerStatus, modules: &BTreeMap<String, String>) -> bool {
    let has_figures = status.hooks.get(SYNC).is_some_and(|hook| hook.instructions_p50.is_some());
    status.parents.unwrap_or_default() <= status.paused.unwrap_or_default()
        || !modules.contains_key(SYNC)
        || has_figures
}

/// Each parent has settled, fails or is paused. A server that has not counted them says nothing of them.
fn is_settled(status: &ControllerStatus) -> bool {
    let counts = [status.settled, status.failing, status.paused];
    let known: i64 = counts.into_iter().map(Option::unwrap_or_default).sum();
    status.parents.unwrap_or_default() <= known
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
            match readiness(controller, &modules) {
                Readiness::Waits(why) => why,
                other => format!("{other:?}"),
            }
        };
        let now = controller(&ready(), 2);
        assert_eq!(waits(&now, "sha256:1"), "Ready");
        assert_eq!(readiness(&now, &BTreeMap::new()), Readiness::Ready);
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
    fn a_version_is_refused_where_the_message_ends_with_its_digest() {
        let of = |reason: &str, message: &str| {
            let mut refused = condition("ModulesLoaded", "False");
            (refused["reason"], refused["message"]) = (json!(reason), json!(message));
            let modules = [("sync".to_owned(), "sha256:2".to_owned())].into();
            matches!(readiness(&controller(&json!([refused]), 2), &modules), Readiness::Refused(_))
        };
        assert!(of("ModuleInvalid", "no module; refused: sha256:2"));
        assert!(of("DigestMismatch", "the spec pins sha256:1; refused: sha256:2"));
        assert!(of("ModuleInvalid", "no module; sha256:1 goes on being called, not sha256:2"));
        assert!(!of("ModuleInvalid", "no module; sha256:2 goes on being called, not sha256:1"), "stale");
        assert!(!of("ModuleInvalid", "busy; sha256:1 goes on being called, not sha256:2 for now"));
        assert!(!of("ConfigMapNotFound", "sha256:2"), "the ConfigMap may come");
    }

    #[test]
    fn a_version_that_has_parents_is_called_and_may_fail() {
        let of_hook = |applied: &str, ready: (&str, &str), counts: Value, hook: Value| {
            let mut condition = condition("Ready", ready.0);
            condition["reason"] = json!(ready.1);
            let mut controller = controller(&json!([condition]), 2);
            let status = controller["status"].as_object_mut().unwrap();
            status.extend(counts.as_object().cloned().unwrap());
            status["hooks"]["sync"].as_object_mut().unwrap().extend(hook.as_object().cloned().unwrap());
            controller["status"]["hooks"]["finalize"] = json!({ "digest": "sha256:1" });
            readiness(&controller, &[(applied.to_owned(), "sha256:1".to_owned())].into())
        };
        let of = |ready, counts, hook| of_hook("sync", ready, counts, hook);
        let (one, called) = (json!({ "parents": 1 }), json!({ "instructionsP50": 5 }));
        let running = ("True", "Running");
        assert_eq!(of(running, json!({ "parents": 0 }), json!({})), Readiness::Ready);
        assert_eq!(of(running, one.clone(), json!({})), Readiness::NotCalled);
        assert_eq!(of(running, one.clone(), called.clone()), Readiness::Unsettled);
        assert_eq!(of(running, json!({ "parents": 1, "settled": 1 }), called.clone()), Readiness::Ready);
        assert_eq!(of(running, json!({ "parents": 1, "paused": 1 }), json!({})), Readiness::Ready);
        assert_eq!(of(("True", "Paused"), one.clone(), json!({})), Readiness::Paused);
        let failing = ("False", "AllParentsFailing");
        assert_eq!(of(failing, one.clone(), called.clone()), Readiness::Failing("m".to_owned()));
        // The sync hook is another module, or a webhook whose server may be about to start.
        assert_eq!(of_hook("finalize", running, one.clone(), json!({})), Readiness::Unsettled);
        assert!(matches!(of_hook("finalize", failing, one, called), Readiness::Waits(_)));
    }

    #[test]
    fn a_parent_fails_where_the_message_names_it_or_too_few_others_are_left() {
        let status = |failing: usize| {
            json!({
                "observedGeneration": 2, "parents": 3, "failing": failing, "settled": 3 - failing,
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "ParentsFailing", "lastTransitionTime": "t",
                    "message": failing_message(failing, 3, "n/a (HookTrap): n/b"),
                }],
            })
        };
        let among = |failing: usize, own: &[&str]| {
            let controller = json!({ "metadata": { "generation": 2 }, "status": status(failing) });
            let own: Vec<_> = own.iter().map(|name| Key::new("n", name)).collect();
            match readiness(&controller, &BTreeMap::new()) {
                Readiness::SomeFail(failures) => failures.are_among(&own),
                other => panic!("{other:?}"),
            }
        };
        assert!(among(1, &["a"]) && among(1, &["b", "a"]));
        assert!(!among(1, &["b"]) && !among(1, &["b", "c"]) && !among(1, &[]), "it is the other one");
        assert!(!among(1, &["a-longer-name"]));
        assert!(!among(2, &["b"]) && among(2, &["b", "c"]), "of three, one of these two is the second");
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
