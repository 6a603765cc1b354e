//! Refusals of the API server that say less than they seem to: what they are due to, and what helps.

use serde_json::{Map, Value};

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

/// The body of a server-side apply without empty objects that the API server refuses as nulls; `None` where that is not why
/// it refused. Where an applied object loses its last field and `{}` is applied in its place, the API server makes a null of
/// it. Once the object is gone, `{}` is accepted.
pub fn without_nulled(status: u16, answer: &str, body: &Value) -> Option<Value> {
    if status != 422 {
        return None;
    }
    let answer: Value = serde_json::from_str(answer).ok()?;
    let mut left = body.clone();
    let causes = answer.pointer("/details/causes").and_then(Value::as_array)?;
    for cause in causes {
        let text = |field: &str| cause.get(field).and_then(Value::as_str).unwrap_or_default();
        if text("message").contains("must be of type object: \"null\"") {
            let steps: Vec<_> = text("field").split('.').collect();
            drop_empty_object(&mut left, &steps);
        }
    }
    (left != *body).then_some(left)
}

/// `list[3]` is each item of the list: the numbers are those of the merged list.
fn drop_empty_object(value: &mut Value, steps: &[&str]) {
    let (Value::Object(members), [step, below @ ..]) = (value, steps) else { return };
    let (name, is_item) = step.split_once('[').map_or((*step, false), |(name, _)| (name, true));
    if below.is_empty() {
        if members.get(name).and_then(Value::as_object).is_some_and(Map::is_empty) {
            members.remove(name);
        }
    } else if let Some(member) = members.get_mut(name) {
        match member {
            Value::Array(items) if is_item => {
                for item in items {
                    drop_empty_object(item, below);
                }
            }
            member => drop_empty_object(member, below),
        }
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

    #[test]
    fn an_empty_object_that_became_a_null_is_left_out() {
        let refusal = |fields: &[&str]| {
            let cause = |field: &&str| {
                let message =
                    format!("Invalid value: \"null\": {field} in body must be of type object: \"null\"");
                json!({"reason": "FieldValueTypeInvalid", "message": message, "field": field})
            };
            json!({"details": {"causes": fields.iter().map(cause).collect::<Vec<_>>()}}).to_string()
        };
        let body = json!({"spec": {"map": {}, "other": {}, "full": {"a": 1}, "list": [{"map": {}}, {"map": {"b": 1}}]}});
        let left = without_nulled(422, &refusal(&["spec.map", "spec.list[4].map", "spec.full"]), &body);
        let expected = json!({"spec": {"other": {}, "full": {"a": 1}, "list": [{}, {"map": {"b": 1}}]}});
        assert_eq!(left, Some(expected));
        for (status, answer) in [
            (422, refusal(&["spec.full", "spec.missing.map", ""])),
            (422, refusal(&[])),
            (400, refusal(&["spec.map"])),
            (422, "no JSON".to_owned()),
        ] {
            assert_eq!(without_nulled(status, &answer, &body), None);
        }
    }
}
