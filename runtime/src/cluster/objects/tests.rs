//! Tests of requests about objects.

use std::sync::Arc;

use http::Response;
use metahook_core::object::id::{Gvk, Key};

use super::*;
use crate::cluster::fake::{self, Requests};
use crate::telemetry::error_chain;

fn id() -> ObjectId {
    let gvk = Gvk::new("v1", "ConfigMap");
    let resource = Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: false };
    ObjectId { resource: Arc::new(resource), key: Key::new("n", "m") }
}

fn answering(status: u16, body: &Value) -> ApiClient {
    let body = body.to_string();
    fake::answering(move |_| Response::builder().status(status).body(body.clone()).ok())
}

#[tokio::test]
async fn refusals_name_the_object_and_what_to_do() {
    let refused = async |status: u16, message: &str| {
        let api = answering(status, &json!({ "message": message }));
        let error = api.apply::<Value>(&id(), &json!({}), "m").await.unwrap_err();
        (error.is_conflict(), error_chain(&error))
    };
    let (_, missing) = refused(404, "namespaces \"n\" not found").await;
    assert_eq!(
        missing,
        "apply ConfigMap n/m: there is no namespace n: create it with `kubectl create namespace n`"
    );
    assert!(refused(409, "x").await.0);
    let (_, forbidden) = refused(403, "User \"a\" cannot patch configmaps").await;
    assert!(forbidden.starts_with("apply ConfigMap n/m: User \"a\" cannot patch"), "{forbidden}");
    let listed = async |namespace: &str| {
        let api = answering(403, &json!({ "message": "no" }));
        error_chain(&api.list(&id().resource, namespace, "", 1).await.unwrap_err())
    };
    assert_eq!(listed("n").await, "list configmaps in n: no");
    assert_eq!(listed("").await, "list configmaps: no");
}

#[tokio::test]
async fn only_the_object_that_was_seen_is_deleted() {
    let requests = Requests::default();
    let api = fake::recording(&requests, |_| Response::builder().status(404).body("{}".to_owned()).ok());
    assert!(!api.delete(&id(), &Precondition { uid: "u", version: None }).await.unwrap());
    assert!(api.read_as::<Value>(&id()).await.unwrap().is_none());
    let path = "/api/v1/namespaces/n/configmaps/m";
    assert_eq!(requests.take(), [format!("DELETE {path}"), format!("GET {path}")]);
}

#[tokio::test]
async fn a_name_that_is_taken_is_no_conflict() {
    let created = async |reason: &str| {
        let api = answering(409, &json!({ "reason": reason }));
        api.create::<Value>(&id(), &json!({}), "m").await
    };
    assert!(created("AlreadyExists").await.unwrap().is_none());
    assert!(created("Conflict").await.unwrap_err().is_conflict());
}

#[test]
fn a_refusal_of_a_guard_of_owner_references_names_the_right() {
    let refused = "configmaps \"c\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil> (403)";
    let named = |kind| {
        let error = RequestError::new("create", &id(), kind);
        error.guard().is_some().then(|| error.with_right("User \"u\" cannot x".to_owned()))
    };
    let error = named(RequestErrorKind::Refused(refused.to_owned())).unwrap();
    assert!(error.is_ungranted(), "it is tried again as soon as other rights");
    assert_eq!(error.kind().to_string(), "User \"u\" cannot x");
    let error = named(RequestErrorKind::NotRecreatable(format!("{refused}{WAY_OUT}, agree"))).unwrap();
    assert!(error.kind().to_string().ends_with("cannot x; to have it deleted all the same, agree"));
    assert!(named(RequestErrorKind::Refused("exceeded quota: q".to_owned())).is_none());
    assert!(named(RequestErrorKind::Conflict(refused.to_owned())).is_none());
}

#[test]
fn options_of_a_write_stand_in_its_query() {
    let plain = WriteOptions::by("a b");
    assert_eq!(plain.to_string(), "fieldManager=a%20b&fieldValidation=Warn");
    let all = plain.strict().force(false).dry_run();
    assert_eq!(all.to_string(), "fieldManager=a%20b&fieldValidation=Strict&force=false&dryRun=All");
}
