//! Observed and desired children, and the strategies, to a plan: dynamic apply.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::desired::{Desired, Rule};
use super::{Op, Plan, Problem, Skip};
use crate::json::go;
use crate::json::merge::merge;
use crate::json::same::same;
use crate::object::Object;
use crate::object::id::ObjectId;
use crate::object::map::ChildMap;
use crate::spec::composite::UpdateMethod;

/// What was applied last stands in this annotation of each child, in the bytes Metacontroller would write.
pub const LAST_APPLIED: &str = "metacontroller.k8s.io/last-applied-configuration";

/// Fields of the metadata that belong to the API server.
const SYSTEM_FIELDS: [&str; 8] = [
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

/// # Guarantees
/// Same input, same plan. Carried out against a store that keeps what it is given, planning again ends in no ops.
/// Never names an object that is neither observed nor desired.
pub fn children(parent: &Object, observed: &ChildMap, desired: &Desired, rules: &[Rule]) -> Plan {
    let mut plan = Plan::default();
    for (resource, object) in observed.objects() {
        let wanted = desired.get(resource).is_some_and(|group| group.contains_key(&object.key));
        if !wanted {
            let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
            if object.deleting {
                plan.skips.push((id, Skip::BeingDeleted));
            } else {
                plan.ops.push(Op::Delete { id, uid: object.uid.clone() });
            }
        }
    }
    for (resource, group) in desired {
        let method =
            rules.iter().find(|rule| rule.resource == *resource).map(|rule| rule.method).unwrap_or_default();
        for (key, wanted) in group {
            let id = ObjectId { resource: Arc::clone(resource), key: key.clone() };
            match observed.get(resource, key) {
                None => plan.ops.push(Op::Create { id, body: new_object(parent, wanted) }),
                Some(object) => match update(parent, &id, object, wanted, method) {
                    Ok(Decision::Do(op)) => plan.ops.push(op),
                    Ok(Decision::Leave(skip)) => plan.skips.push((id, skip)),
                    Err(problem) => plan.problems.push((id, problem)),
                },
            }
        }
    }
    plan
}

enum Decision {
    Do(Op),
    Leave(Skip),
}

fn update(
    parent: &Object,
    id: &ObjectId,
    object: &Object,
    wanted: &Value,
    method: UpdateMethod,
) -> Result<Decision, Problem> {
    let observed = object.value().map_err(|_invalid| Problem::Observed)?;
    let Some(merged) = changed(&observed, wanted)? else {
        return Ok(Decision::Leave(Skip::Unchanged));
    };
    if object.deleting {
        return Ok(Decision::Leave(Skip::BeingDeleted));
    }
    Ok(match method {
        UpdateMethod::OnDelete => Decision::Leave(Skip::OnDelete),
        UpdateMethod::Recreate | UpdateMethod::RollingRecreate => Decision::Do(Op::Recreate {
            id: id.clone(),
            uid: object.uid.clone(),
            body: new_object(parent, wanted),
        }),
        UpdateMethod::InPlace | UpdateMethod::RollingInPlace => {
            Decision::Do(Op::Replace { id: id.clone(), body: merged })
        }
    })
}

/// What `observed` has to become, or `None` where it is as wanted.
fn changed(observed: &Value, wanted: &Value) -> Result<Option<Value>, Problem> {
    let mut wanted = wanted.clone();
    annotations(&mut wanted).map(|annotations| annotations.remove(LAST_APPLIED));
    let text = observed
        .pointer("/metadata/annotations")
        .and_then(|all| all.get(LAST_APPLIED))
        .and_then(Value::as_str);
    let last: Option<Value> = match text {
        None | Some("") => None,
        Some(text) => Some(serde_json::from_str(text).map_err(|_invalid| Problem::LastApplied)?),
    };
    let mut merged = merge(observed, last.as_ref(), &wanted);
    restore(&mut merged, observed, "status");
    if let (Some(metadata), Some(seen)) = (merged.get_mut("metadata"), observed.get("metadata")) {
        for field in SYSTEM_FIELDS {
            restore(metadata, seen, field);
        }
    }
    // Other bytes with the same meaning, as another version may have written, are no reason to write.
    let recorded = match (&last, text) {
        (Some(last), Some(text)) if same(last, &wanted) => text.to_owned(),
        _ => go::to_string(&wanted),
    };
    record(&mut merged, recorded);
    Ok((!same(&merged, observed)).then_some(merged))
}

/// The object to create: what is wanted, what was applied, and whose it is.
pub fn new_object(parent: &Object, wanted: &Value) -> Value {
    let mut object = wanted.clone();
    annotations(&mut object).map(|annotations| annotations.remove(LAST_APPLIED));
    let applied = go::to_string(&object);
    record(&mut object, applied);
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        let owners = metadata.entry("ownerReferences").or_insert(Value::Null);
        if owners.is_null() {
            *owners = json!([]);
        }
        if let Value::Array(owners) = owners
            && !owners
                .iter()
                .any(|owner| owner.get("uid").and_then(Value::as_str) == Some(parent.uid.as_str()))
        {
            owners.push(owner_reference(parent));
        }
    }
    object
}

/// The reference that makes `parent` the controller of an object.
pub fn owner_reference(parent: &Object) -> Value {
    json!({
        "apiVersion": parent.gvk.api_version(),
        "kind": &*parent.gvk.kind,
        "name": &*parent.key.name,
        "uid": parent.uid.as_str(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn annotations(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}

fn record(object: &mut Value, applied: String) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        let annotations = metadata.entry("annotations").or_insert(Value::Null);
        if !annotations.is_object() {
            *annotations = json!({});
        }
        if let Value::Object(annotations) = annotations {
            annotations.insert(LAST_APPLIED.to_owned(), Value::String(applied));
        }
    }
}

fn restore(merged: &mut Value, observed: &Value, field: &str) {
    if let Value::Object(merged) = merged {
        match observed.get(field) {
            Some(value) => merged.insert(field.to_owned(), value.clone()),
            None => merged.remove(field),
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::id::Key;
    use crate::object::testing::{a, any_json, resource};

    fn rules(method: UpdateMethod) -> Vec<Rule> {
        vec![Rule { resource: resource("v1", "Thing"), method }]
    }

    fn wanted(things: &[(String, Value)]) -> Desired {
        let mut desired = Desired::new();
        for (name, spec) in things {
            let thing = a("v1", "Thing", &format!("n/{name}")).with("spec", spec.clone()).value();
            let mut thing = thing.clone();
            for field in ["uid", "resourceVersion"] {
                thing["metadata"].as_object_mut().unwrap().remove(field);
            }
            desired.entry(resource("v1", "Thing")).or_default().insert(Key::new("n", name), thing);
        }
        desired
    }

    /// A store that keeps what it is given, as the API server does with objects it has no schema for.
    fn carry_out(plan: &Plan, store: &mut ChildMap, counter: &mut u64) {
        let mut kept: Vec<Arc<Object>> = store.objects().map(|(_, o)| Arc::clone(o)).collect();
        for op in &plan.ops {
            let (key, body) = match op {
                Op::Delete { id, .. } => (&id.key, None),
                Op::Create { id, body }
                | Op::Replace { id, body }
                | Op::Recreate { id, body, .. }
                | Op::Status { id, body } => (&id.key, Some(body)),
            };
            kept.retain(|object| object.key != *key);
            if let Some(body) = body {
                *counter += 1;
                let mut body = body.clone();
                body["metadata"]["uid"] = json!(counter.to_string());
                body["metadata"]["resourceVersion"] = json!(counter.to_string());
                kept.push(Arc::new(Object::parse(&body.to_string(), None).unwrap()));
            }
        }
        *store = ChildMap::default();
        for object in kept {
            store.insert(&resource("v1", "Thing"), object);
        }
    }

    fn things() -> impl Strategy<Value = Vec<(String, Value)>> {
        prop::collection::btree_map("[a-c]", any_json(), 0..3).prop_map(|things| things.into_iter().collect())
    }

    proptest! {
        /// One pass carries everything out; the next has nothing to do, whatever was there before.
        #[test]
        fn planning_again_ends_in_nothing_to_do(first in things(), second in things(), recreate in any::<bool>()) {
            let rules = rules(if recreate { UpdateMethod::Recreate } else { UpdateMethod::InPlace });
            let parent = a("e/v1", "P", "n/p").uid("p").object();
            let (mut store, mut counter) = (ChildMap::default(), 10);
            for desired in [wanted(&first), wanted(&second)] {
                let plan = children(&parent, &store, &desired, &rules);
                carry_out(&plan, &mut store, &mut counter);
                let again = children(&parent, &store, &desired, &rules);
                prop_assert_eq!(&again.ops, &Vec::<Op>::new());
                prop_assert!(again.problems.is_empty());
            }
        }

        #[test]
        fn no_operation_names_a_stranger(observed in things(), desired in things()) {
            let parent = a("e/v1", "P", "n/p").uid("p").object();
            let mut store = ChildMap::default();
            for (name, spec) in &observed {
                store.insert(&resource("v1", "Thing"), a("v1", "Thing", &format!("n/{name}")).with("spec", spec.clone()).object());
            }
            let plan = children(&parent, &store, &wanted(&desired), &rules(UpdateMethod::InPlace));
            for op in &plan.ops {
                let name = &*op.id().key.name;
                prop_assert!(observed.iter().chain(&desired).any(|(known, _)| known == name));
            }
        }
    }
}
