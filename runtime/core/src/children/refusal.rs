//! Refusals of the API server to make an object again, in a dry run while the old one is still there.

use serde_json::Value;

/// Whether a refusal, by its HTTP status and body, may be due to the old object alone: to its name, to the quota that it
/// takes, or to values that no two objects have at a time.
pub fn is_due_to_the_old_object(status: u16, body: &str) -> bool {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let contains = |of: &Value, text: &str| {
        of.get("message").and_then(Value::as_str).is_some_and(|message| message.contains(text))
    };
    let is_taken = |cause: &Value| {
        cause.get("reason").and_then(Value::as_str) == Some("FieldValueDuplicate")
            || contains(cause, "already allocated")
    };
    match status {
        409 => true,
        403 => contains(&body, "exceeded quota"),
        422 => {
            let causes = body.pointer("/details/causes").and_then(Value::as_array);
            causes.is_some_and(|causes| !causes.is_empty() && causes.iter().all(is_taken))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_old_object_takes_is_no_reason_not_to_make_it_anew() {
        let quota = json!({"message": "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"});
        let policy = json!({"message": "admission webhook \"x\" denied the request: no"});
        let cause = |reason: &str, message: &str| json!({"reason": reason, "message": message});
        let causes =
            |causes: &[&Value]| json!({"message": "Service \"x\" is invalid", "details": {"causes": causes}});
        let port = cause("FieldValueInvalid", "Invalid value: 30080: provided port is already allocated");
        let twice = cause("FieldValueDuplicate", "Duplicate value: \"x\"");
        let other = cause("FieldValueInvalid", "Invalid value: \"y\": must be z");
        for (status, body, is_fine) in [
            (409, json!({"reason": "AlreadyExists"}), true),
            (403, quota.clone(), true),
            (403, policy, false),
            (422, causes(&[&port]), true),
            (422, causes(&[&port, &twice]), true),
            (422, causes(&[&port, &other]), false),
            (422, causes(&[]), false),
            (400, quota, false),
        ] {
            assert_eq!(is_due_to_the_old_object(status, &body.to_string()), is_fine, "{status} {body}");
        }
        assert!(!is_due_to_the_old_object(403, "exceeded quota"), "it is no answer of an API server");
    }
}
