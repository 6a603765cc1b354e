//! Readiness of a child that was moved to the latest revision: the next child moves once it is ready.

use serde_json::Value;

use crate::api::common::ConditionCheck;
use crate::object::Object;
use crate::rollout::RollingKind;

/// What a rolling update waits for, of one child.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("it is not there")]
    Missing,
    #[error("it is being deleted")]
    BeingDeleted,
    #[error("it is not up to date")]
    Outdated,
    #[error("status.observedGeneration is {observed}, and its generation is {generation}")]
    NotObserved { observed: i64, generation: i64 },
    #[error("status.conditions has no {0}")]
    NoCondition(String),
    #[error("{field} of condition {kind} is {found:?}, not {expected:?}")]
    Condition { kind: String, field: &'static str, found: String, expected: String },
}

/// What a claimed child waits for; nothing where it is in order.
///
/// `up_to_date`: applying what the latest revision wants would change nothing.
pub fn check(
    kind: &RollingKind,
    child: Option<&Object>,
    up_to_date: impl FnOnce(&Object) -> bool,
) -> Result<(), NotReady> {
    let child = child.ok_or(NotReady::Missing)?;
    if child.deleting {
        return Err(NotReady::BeingDeleted);
    }
    if !up_to_date(child) {
        return Err(NotReady::Outdated);
    }
    let object = child.value().unwrap_or_default();
    let status = |field| object.get("status")?.get(field);
    let observed = status("observedGeneration").and_then(Value::as_i64).unwrap_or_default();
    // 0: its controller does not tell which generation it has seen.
    if kind.in_place && observed > 0 && observed < child.generation {
        return Err(NotReady::NotObserved { observed, generation: child.generation });
    }
    let conditions = status("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    kind.checks.iter().try_for_each(|check| holds(check, conditions))
}

fn holds(check: &ConditionCheck, conditions: &[Value]) -> Result<(), NotReady> {
    let text = |condition: &Value, field| {
        condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let condition = conditions
        .iter()
        .find(|condition| text(condition, "type") == check.kind)
        .ok_or_else(|| NotReady::NoCondition(check.kind.clone()))?;
    for (field, expected) in [("status", &check.status), ("reason", &check.reason)] {
        let found = text(condition, field);
        if let Some(expected) = expected.clone().filter(|expected| *expected != found) {
            return Err(NotReady::Condition { kind: check.kind.clone(), field, found, expected });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::testing::{Build, a, resource};

    fn kind(in_place: bool, checks: Value) -> RollingKind {
        RollingKind {
            resource: resource("v1", "Pod"),
            in_place,
            checks: serde_json::from_value(checks).unwrap(),
        }
    }

    fn says(kind: &RollingKind, child: Build) -> String {
        check(kind, Some(&child.object()), |_| true)
            .map_or_else(|blocked| blocked.to_string(), |()| "open".to_owned())
    }

    fn pod() -> Build {
        a("v1", "Pod", "n/a")
    }

    #[test]
    fn a_child_has_to_be_there_and_as_wanted() {
        let kind = kind(true, json!([]));
        assert_eq!(check(&kind, None, |_| true), Err(NotReady::Missing));
        assert_eq!(check(&kind, Some(&pod().object()), |_| false), Err(NotReady::Outdated));
        assert_eq!(check(&kind, Some(&pod().deleting().object()), |_| true), Err(NotReady::BeingDeleted));
        assert_eq!(check(&kind, Some(&pod().object()), |_| true), Ok(()));
    }

    #[test]
    fn one_updated_in_place_has_to_be_seen_by_its_controller_where_that_tells() {
        let seen = |observed: i64| {
            pod()
                .with("metadata.generation", json!(4))
                .with("status", json!({"observedGeneration": observed}))
        };
        let behind = "status.observedGeneration is 3, and its generation is 4";
        for (in_place, observed, expected) in
            [(true, 3, behind), (true, 4, "open"), (true, 5, "open"), (true, 0, "open"), (false, 3, "open")]
        {
            assert_eq!(says(&kind(in_place, json!([])), seen(observed)), expected, "{in_place} {observed}");
        }
    }

    #[test]
    fn every_check_has_to_hold_of_the_first_condition_of_its_type() {
        let checks = json!([{"type": "Here"}, {"type": "Ready", "status": "True", "reason": "Up"}]);
        let with = |conditions: Value| {
            says(&kind(true, checks.clone()), pod().with("status.conditions", conditions))
        };
        let here = json!({"type": "Here", "status": "False"});
        let ready = |status: &str, reason: &str| json!({"type": "Ready", "status": status, "reason": reason});
        for (conditions, expected) in [
            (json!([]), "status.conditions has no Here"),
            (json!([here]), "status.conditions has no Ready"),
            (json!([here, ready("False", "Up")]), r#"status of condition Ready is "False", not "True""#),
            (json!([here, ready("True", "Down")]), r#"reason of condition Ready is "Down", not "Up""#),
            (
                json!([here, ready("False", "Up"), ready("True", "Up")]),
                r#"status of condition Ready is "False", not "True""#,
            ),
            (json!([ready("True", "Up"), here]), "open"),
            (json!([null, 1, here, ready("True", "Up")]), "open"),
            (json!("nonsense"), "status.conditions has no Here"),
        ] {
            assert_eq!(with(conditions), expected);
        }
    }
}
