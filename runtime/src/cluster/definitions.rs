//! CustomResourceDefinitions: created or replaced, then waited for until the API server serves them.

use std::time::Duration;

use metahook_core::api::definition::{Deleting, is_established, replacement};
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
use serde_json::Value;

use crate::cluster::api_client::ApiClient;
use crate::cluster::objects::RequestError;

/// Another client may write between our read and our write, but hardly so many times in a row.
const MAX_ATTEMPTS: usize = 5;

/// The API server needs a second at most.
const ESTABLISHED_TIMEOUT: Duration = Duration::from_mins(1);

const ESTABLISHED_INTERVAL: Duration = Duration::from_millis(200);

const MANAGER: &str = "metahook";

/// How a definition was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    Created,
    Replaced,
}

#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("CustomResourceDefinition {name}: another client deleted it before it was served")]
    Deleted { name: String },
    #[error("CustomResourceDefinition {name}")]
    Deleting { name: String, source: Deleting },
    #[error(
        "CustomResourceDefinition {name}: another client changed it at each of {MAX_ATTEMPTS} attempts: try again"
    )]
    Conflict { name: String },
    #[error(
        "CustomResourceDefinition {name}: it is not served after {} s: {why}",
        ESTABLISHED_TIMEOUT.as_secs()
    )]
    NotEstablished { name: String, why: String },
}

pub(super) fn definitions() -> Resource {
    Resource {
        gvk: Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        plural: "customresourcedefinitions".into(),
        namespaced: false,
        has_status: true,
    }
}

fn definition(name: &str) -> ObjectId {
    ObjectId { resource: definitions().into(), key: Key::new("", name) }
}

/// Makes the stored definition ours, whoever wrote it, and waits until it is served.
pub async fn apply_definition(api: &ApiClient, name: &str, ours: &Value) -> Result<Applied, DefinitionError> {
    let applied = write(api, &definition(name), ours).await?;
    wait_until_established(api, name).await.map(|()| applied)
}

async fn write(api: &ApiClient, id: &ObjectId, ours: &Value) -> Result<Applied, DefinitionError> {
    let name = || id.key.name.to_string();
    for _ in 0..MAX_ATTEMPTS {
        let written = match api.read_as(id).await? {
            // `None`: another client was faster.
            None => api.create::<Value>(id, ours, MANAGER).await.map(|made| made.map(|_| Applied::Created)),
            Some(stored) => {
                let body = replacement(stored, ours)
                    .map_err(|source| DefinitionError::Deleting { name: name(), source })?;
                api.replace::<Value>(id, &body, MANAGER).await.map(|_| Some(Applied::Replaced))
            }
        };
        match written {
            Ok(Some(applied)) => return Ok(applied),
            Ok(None) => {}
            // Changed or deleted since it was read.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(DefinitionError::Conflict { name: name() })
}

/// Waits until a definition that is written is served.
pub async fn wait_until_established(api: &ApiClient, name: &str) -> Result<(), DefinitionError> {
    let (id, start) = (definition(name), tokio::time::Instant::now());
    loop {
        let Some(stored) = api.read_as(&id).await? else {
            return Err(DefinitionError::Deleted { name: name.to_owned() });
        };
        let Err(why) = is_established(&stored) else { return Ok(()) };
        if start.elapsed() >= ESTABLISHED_TIMEOUT {
            return Err(DefinitionError::NotEstablished { name: name.to_owned(), why });
        }
        tokio::time::sleep(ESTABLISHED_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, Response};
    use serde_json::json;

    use super::*;
    use crate::cluster::fake::{self, Requests};
    use crate::telemetry::error_chain;

    const NAME: &str = "c.example.com";

    fn ours() -> Value {
        json!({ "metadata": { "name": NAME }, "spec": { "group": "example.com" } })
    }

    fn answer(status: u16, body: &Value) -> Option<Response<String>> {
        Response::builder().status(status).body(body.to_string()).ok()
    }

    fn stored(served: &str) -> Value {
        let conditions = json!([{ "type": "Established", "status": served, "message": "not yet" }]);
        json!({ "metadata": { "name": NAME }, "spec": {}, "status": { "conditions": conditions } })
    }

    #[tokio::test]
    async fn one_that_is_missing_is_created_and_one_that_is_there_replaced() {
        for (there, written, applied) in [
            (false, "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", Applied::Created),
            (
                true,
                "PUT /apis/apiextensions.k8s.io/v1/customresourcedefinitions/c.example.com",
                Applied::Replaced,
            ),
        ] {
            let (requests, reads) = (Requests::default(), AtomicUsize::new(0));
            let api = fake::recording(&requests, move |request| {
                let first = request.method() == Method::GET && reads.fetch_add(1, Ordering::SeqCst) == 0;
                if first && !there { answer(404, &json!({})) } else { answer(200, &stored("True")) }
            });
            assert_eq!(apply_definition(&api, NAME, &ours()).await.unwrap(), applied);
            assert_eq!(requests.take()[1], written);
        }
    }

    #[tokio::test]
    async fn a_conflict_is_tried_again_and_not_for_ever() {
        let requests = Requests::default();
        let api = fake::recording(&requests, |request| {
            answer(if request.method() == Method::GET { 200 } else { 409 }, &stored("True"))
        });
        let error = error_chain(&apply_definition(&api, NAME, &ours()).await.unwrap_err());
        assert!(error.contains("at each of 5 attempts"), "{error}");
        assert_eq!(requests.take().len(), 2 * MAX_ATTEMPTS);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_never_served_says_why() {
        let api = fake::answering(|_| answer(200, &stored("False")));
        let error = error_chain(&apply_definition(&api, NAME, &ours()).await.unwrap_err());
        assert_eq!(error, "CustomResourceDefinition c.example.com: it is not served after 60 s: not yet");
    }

    #[tokio::test]
    async fn one_that_is_deleted_meanwhile_is_not_waited_for() {
        let api = fake::answering(|_| answer(404, &json!({})));
        let error = wait_until_established(&api, NAME).await.unwrap_err();
        assert!(matches!(error, DefinitionError::Deleted { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_refusal_names_the_definition_and_the_reason() {
        let refusal = json!({ "message": "User \"a\" cannot get resource" });
        let api = fake::answering(move |_| answer(403, &refusal));
        let error = error_chain(&apply_definition(&api, NAME, &ours()).await.unwrap_err());
        assert!(
            error.starts_with("read CustomResourceDefinition c.example.com: User \"a\" cannot get"),
            "{error}"
        );
    }
}
