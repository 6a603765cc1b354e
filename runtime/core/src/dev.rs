//! Manifests of a session of `metahook dev`: what it applies of a controller, and what it leaves behind.

use serde_json::{Map, Value, json};

use crate::api::hook::HookName;
use crate::hosting::{DEV_LABEL, Session};

/// Annotation of a controller that a session has: its spec before, as JSON, or [`CREATED`]. By it a session that follows a
/// killed one leaves the same behind.
pub const BEFORE_ANNOTATION: &str = "metahook.dev/before-dev";

/// Value of the annotation where there was no such controller.
pub const CREATED: &str = "created";

/// The ConfigMap that stands in a spec for a module out of a file. There is none of that name.
const PLACEHOLDER: [&str; 2] = ["metahook-dev", "module-on-the-authors-machine"];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DevError {
    #[error(
        "another session of metahook dev, {0:?}, has this controller: end that one, start this one with the same --name, or take the label off: kubectl label {1} {2} {DEV_LABEL}-"
    )]
    OtherSession(String, &'static str, String),
    #[error("it is being deleted: wait until it is gone")]
    Deleting,
    #[error(
        "spec.hooks: each hook of the controller is a webhook, and --module has no hook to be: remove the webhook of one"
    )]
    OnlyWebhooks,
    #[error("spec.hooks is no object: write hooks: {{sync: {{}}}}")]
    Hooks,
}

/// How a session leaves the controller that it is about.
#[derive(Debug, Clone, PartialEq)]
pub enum Leaving {
    /// The controller is gone, or another session's.
    Nothing,
    /// The session made it.
    Delete,
    /// The controller is given back like this to the servers of the cluster.
    GiveBack { object: Value, keeps_finalizers: bool },
}

/// The controller as the session applies it: with its label, and a source for the module or script of each hook that is no webhook.
/// `found`: as it is in the cluster.
pub fn manifest(document: &Value, session: &Session, found: Option<&Value>) -> Result<Value, DevError> {
    let before = match found {
        None => CREATED.to_owned(),
        Some(found) => before(found, session)?,
    };
    let mut metadata = Map::new();
    for field in ["name", "labels", "annotations"] {
        if let Some(value) = document.pointer(&format!("/metadata/{field}")).filter(|value| !value.is_null())
        {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    for (field, key, value) in
        [("labels", DEV_LABEL, session.name.as_str()), ("annotations", BEFORE_ANNOTATION, &before)]
    {
        let all = metadata.entry(field).or_insert_with(|| json!({}));
        if let Some(all) = all.as_object_mut() {
            all.insert(key.to_owned(), json!(value));
        }
    }
    let mut spec = document.get("spec").cloned().unwrap_or_else(|| json!({}));
    give_modules(&mut spec)?;
    let of = |field: &str| document.get(field).cloned().unwrap_or_default();
    Ok(json!({ "apiVersion": of("apiVersion"), "kind": of("kind"), "metadata": metadata, "spec": spec }))
}

/// The value of the annotation for a controller that is there.
fn before(found: &Value, session: &Session) -> Result<String, DevError> {
    if found.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(DevError::Deleting);
    }
    let annotation = found.pointer("/metadata/annotations").and_then(|all| all.get(BEFORE_ANNOTATION));
    match (label(found), annotation.and_then(Value::as_str)) {
        (Some(other), _) if other != session.name => {
            let plural = session.kind.as_str();
            Err(DevError::OtherSession(other.to_owned(), plural, session.controller.clone()))
        }
        // A session of this name was killed.
        (Some(_), Some(before)) => Ok(before.to_owned()),
        _ => Ok(found.get("spec").unwrap_or(&Value::Null).to_string()),
    }
}

fn label(controller: &Value) -> Option<&str> {
    controller.pointer("/metadata/labels")?.get(DEV_LABEL)?.as_str()
}

fn give_modules(spec: &mut Value) -> Result<(), DevError> {
    let hooks = spec.as_object_mut().ok_or(DevError::Hooks)?.entry("hooks").or_insert_with(|| json!({}));
    if hooks.is_null() {
        *hooks = json!({});
    }
    let hooks = hooks.as_object_mut().ok_or(DevError::Hooks)?;
    if hooks.values().all(Value::is_null) {
        hooks.insert(HookName::Sync.as_str().to_owned(), json!({}));
    }
    let mut modules = 0;
    for name in [HookName::Sync, HookName::Finalize, HookName::Customize] {
        let Some(hook) = hooks.get_mut(name.as_str()).and_then(Value::as_object_mut) else { continue };
        if hook.get("webhook").is_some_and(|webhook| !webhook.is_null()) {
            continue;
        }
        let is_script = hook.get("script").is_some_and(|script| !script.is_null());
        let stored = hook.entry(if is_script { "script" } else { "wasm" }).or_insert_with(|| json!({}));
        if stored.is_null() {
            *stored = json!({});
        }
        let stored = stored.as_object_mut().ok_or(DevError::Hooks)?;
        // What it pins is the module or script that is replaced.
        stored.remove("sha256");
        if stored.get("configMap").is_none_or(Value::is_null) {
            let [namespace, name] = PLACEHOLDER;
            stored.insert("configMap".to_owned(), json!({ "namespace": namespace, "name": name }));
        }
        modules += 1;
    }
    if modules == 0 { Err(DevError::OnlyWebhooks) } else { Ok(()) }
}

/// Decides how the session leaves the controller as it is now. `applied`: its spec after the session applied it; where
/// it is another one now, another client wrote that, and it stays.
pub fn leaving(now: Option<&Value>, session: &Session, applied: &Value) -> Leaving {
    let Some(now) = now.filter(|now| label(now) == Some(session.name.as_str())) else {
        return Leaving::Nothing;
    };
    let annotation = now.pointer("/metadata/annotations").and_then(|all| all.get(BEFORE_ANNOTATION));
    let before = annotation.and_then(Value::as_str);
    if before == Some(CREATED) {
        return Leaving::Delete;
    }
    let mut object = now.clone();
    for (field, key) in [("labels", DEV_LABEL), ("annotations", BEFORE_ANNOTATION)] {
        let all = object.pointer_mut(&format!("/metadata/{field}")).and_then(Value::as_object_mut);
        if let Some(all) = all {
            all.remove(key);
        }
    }
    let before = before.and_then(|before| serde_json::from_str::<Value>(before).ok());
    if let (Some(fields), Some(before)) = (object.as_object_mut(), before)
        && now.get("spec") == Some(applied)
    {
        fields.insert("spec".to_owned(), before);
    }
    let keeps_finalizers = object.pointer("/spec/hooks/finalize").is_some_and(|finalize| !finalize.is_null());
    Leaving::GiveBack { object, keeps_finalizers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ControllerKind;

    fn session() -> Session {
        Session { name: "ann".to_owned(), kind: ControllerKind::Composite, controller: "c".to_owned() }
    }

    fn document(hooks: &Value) -> Value {
        let metadata = json!({ "name": "c", "labels": { "team": "a" }, "uid": "u", "resourceVersion": "7" });
        json!({ "apiVersion": "g/v1", "kind": "K", "metadata": metadata, "spec": { "hooks": hooks }, "status": {} })
    }

    fn placeholder() -> Value {
        json!({ "configMap": { "namespace": "metahook-dev", "name": "module-on-the-authors-machine" } })
    }

    #[test]
    fn a_new_controller_gets_the_label_and_is_deleted_in_the_end() {
        let sync = json!({ "wasm": { "configMap": { "namespace": "n", "name": "m" }, "sha256": "0" } });
        let applied = manifest(&document(&json!({ "sync": sync })), &session(), None).unwrap();
        let sync = json!({ "wasm": { "configMap": { "namespace": "n", "name": "m" } } });
        assert_eq!(
            applied,
            json!({
                "apiVersion": "g/v1", "kind": "K",
                "metadata": {
                    "name": "c",
                    "labels": { "team": "a", "metahook.dev/dev": "ann" },
                    "annotations": { "metahook.dev/before-dev": "created" },
                },
                "spec": { "hooks": { "sync": sync } },
            })
        );
        assert_eq!(leaving(Some(&applied), &session(), &applied["spec"]), Leaving::Delete);
        let again = manifest(&document(&json!({ "sync": sync })), &session(), Some(&applied)).unwrap();
        assert_eq!(again, applied, "a session that follows a killed one deletes it, too");
    }

    #[test]
    fn each_hook_that_is_no_webhook_gets_a_module() {
        let spec = |hooks: Value| {
            manifest(&document(&hooks), &session(), None).map(|it| it["spec"]["hooks"].clone())
        };
        let own = || json!({ "wasm": placeholder() });
        assert_eq!(spec(json!({})), Ok(json!({ "sync": own() })));
        assert_eq!(spec(Value::Null), Ok(json!({ "sync": own() })));
        assert_eq!(
            spec(json!({ "sync": {}, "finalize": { "wasm": { "settings": 1 } } })),
            Ok(json!({
                "sync": own(),
                "finalize": { "wasm": { "settings": 1, "configMap": placeholder()["configMap"] } },
            }))
        );
        let script = |more: Value| {
            let mut script = json!({ "language": "python", "configMap": { "namespace": "n", "name": "m" } });
            script.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "sync": { "script": script } })
        };
        assert_eq!(spec(script(json!({ "sha256": "0" }))), Ok(script(json!({}))), "its pin goes");
        let webhook = json!({ "webhook": { "url": "http://x" } });
        let mixed = json!({ "sync": webhook, "customize": {} });
        assert_eq!(spec(mixed), Ok(json!({ "sync": webhook, "customize": own() })));
        assert_eq!(spec(json!({ "sync": webhook })), Err(DevError::OnlyWebhooks));
        assert_eq!(spec(json!([])), Err(DevError::Hooks));
    }

    #[test]
    fn a_controller_that_was_there_is_given_back_as_it_was() {
        let spec = json!({ "hooks": { "sync": { "webhook": {} }, "finalize": { "webhook": {} } } });
        let mut found = document(&Value::Null);
        found["spec"] = spec.clone();
        let applied = manifest(&document(&json!({ "sync": {} })), &session(), Some(&found)).unwrap();
        let mut back = applied.clone();
        back["spec"] = spec;
        back["metadata"]["labels"] = json!({ "team": "a" });
        back["metadata"]["annotations"] = json!({});
        let given = Leaving::GiveBack { object: back.clone(), keeps_finalizers: true };
        assert_eq!(leaving(Some(&applied), &session(), &applied["spec"]), given);
        back["spec"] = json!({ "hooks": {} });
        let mut edited = applied.clone();
        edited["spec"] = back["spec"].clone();
        let given = Leaving::GiveBack { object: back, keeps_finalizers: false };
        assert_eq!(
            leaving(Some(&edited), &session(), &applied["spec"]),
            given,
            "another client's spec stays"
        );
    }

    #[test]
    fn what_is_not_the_sessions_stays_as_it_is() {
        let mut other = document(&Value::Null);
        other["metadata"]["labels"] = json!({ "metahook.dev/dev": "bob" });
        let error = manifest(&document(&json!({})), &session(), Some(&other)).unwrap_err().to_string();
        assert!(
            error.starts_with("another session of metahook dev, \"bob\", has this controller"),
            "{error}"
        );
        assert!(error.ends_with("kubectl label CompositeController c metahook.dev/dev-"), "{error}");
        assert_eq!(leaving(Some(&other), &session(), &Value::Null), Leaving::Nothing);
        assert_eq!(leaving(None, &session(), &Value::Null), Leaving::Nothing);
        other["metadata"]["deletionTimestamp"] = json!("2026-11-23T12:00:00Z");
        assert_eq!(manifest(&document(&json!({})), &session(), Some(&other)), Err(DevError::Deleting));
    }
}
