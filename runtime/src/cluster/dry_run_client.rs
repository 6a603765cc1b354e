//! Client that writes nothing: it sends a reconcile's writes as the server does, and each of them is a dry run.

use std::sync::Arc;

use http::Method;
use metahook_core::api::selection::FinalizerChange;
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::children::claims::ClaimedObject;
use metahook_core::children::plan::DryRunResult;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::reconcile::ports::WriteError;
use serde_json::{Value, json};

use crate::cluster::api_client::ApiClient;
use crate::cluster::apply::{Carried, OPTIONS};
use crate::cluster::objects::{RequestError, object};
use crate::cluster::paths::list_path;

/// A client that sends each write as a dry run.
#[derive(Clone)]
pub struct DryRunClient(ApiClient);

/// Answer of the API server to a dry run.
#[derive(Debug)]
pub struct DryRunAnswer {
    /// The object as the API server would store it; `None` where it would be gone.
    pub object: Option<Arc<Object>>,
    /// Warnings of the API server.
    pub warnings: Vec<String>,
}

/// An object that is there already is made under its name with this suffix.
const DRY_RUN_NAME_SUFFIX: &str = "-x";

impl DryRunClient {
    pub fn new(api: ApiClient) -> Self {
        Self(api.with_dry_runs_only())
    }

    /// The client, for reads.
    pub fn api(&self) -> &ApiClient {
        &self.0
    }

    /// # Errors
    /// The API server refuses the write, or does not answer.
    pub async fn carry_out(&self, op: &Op) -> Result<DryRunAnswer, WriteError> {
        if let Op::Recreate { id, body, .. } = op {
            self.0.try_making(op, None).await?;
            return Ok(self.made_anew(id, body).await);
        }
        let Carried { events, warnings } = self.0.carry_out(op).await?;
        Ok(DryRunAnswer { object: last(events), warnings })
    }

    /// The object that would take the place of the one that is there. No dry run makes a second one of its name, so another name is
    /// used. Where the API server refuses that: the object as it would be sent.
    async fn made_anew(&self, id: &ObjectId, body: &Value) -> DryRunAnswer {
        let mut renamed = body.clone();
        if let Some(metadata) = renamed.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("name".to_owned(), json!(format!("{}{DRY_RUN_NAME_SUFFIX}", id.key.name)));
        }
        let path = format!("{}?{OPTIONS}", list_path(&id.resource, &id.key.namespace));
        let answer = self.0.send(Method::POST, &path, &renamed).await.ok();
        let made = answer.and_then(|answer| object(id, &answer).ok()).and_then(|made| made.value().ok());
        let warning = made
            .is_none()
            .then(|| format!("{id} is shown as the hook wants it, without the API server's defaults"));
        let mut made = made.unwrap_or_else(|| body.clone());
        if let Some(metadata) = made.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("name".to_owned(), json!(&*id.key.name));
            for field in ["uid", "resourceVersion"] {
                metadata.entry(field).or_insert(json!("0"));
            }
        }
        let object = Object::parse(&made.to_string(), Some(&id.resource.gvk)).ok().map(Arc::new);
        DryRunAnswer { object, warnings: warning.into_iter().collect() }
    }

    /// # Errors
    /// The API server refuses to answer.
    pub async fn dry_run(&self, write: &Op) -> Result<DryRunResult, WriteError> {
        Ok(self.0.dry_run(write).await?)
    }

    /// # Errors
    /// The object could not be made again.
    pub async fn try_making(&self, op: &Op, version: Option<&str>) -> Result<(), WriteError> {
        Ok(self.0.try_making(op, version).await?)
    }

    /// The object as it would be after the claim.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn claim(
        &self,
        claimed: &ClaimedObject,
        parent: &Object,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let change = |object: &mut Value| claimed.carry_out(object, parent);
        Ok(last(self.0.rewrite(&claimed.id(), &claimed.object.uid, change).await?))
    }

    /// # Errors
    /// The API server refuses it.
    pub async fn change_finalizers(
        &self,
        id: &ObjectId,
        seen: &Object,
        change: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        Ok(last(self.0.change_finalizers(id, seen, change).await?))
    }

    /// The object as it is now; `None` where it is gone.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn read(&self, id: &ObjectId) -> Result<Option<Object>, RequestError> {
        self.0.read(id).await
    }
}

fn last(events: Vec<CacheEvent>) -> Option<Arc<Object>> {
    events.into_iter().rev().find_map(|event| match event {
        CacheEvent::Wrote(object) => Some(object),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Response;
    use metahook_core::object::Version;
    use metahook_core::object::id::{Gvk, Key, Resource, Uid};

    use super::*;
    use crate::cluster::api_client::{DRY_RUN, MERGE_PATCH};
    use crate::cluster::fake;

    /// A client of an API server that takes reads and dry runs alone.
    fn client() -> (DryRunClient, Arc<AtomicUsize>) {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let api = fake::answering(move |request| {
            counted.fetch_add(usize::from(request.method() != Method::GET), Ordering::Relaxed);
            let query = request.uri().query().unwrap_or_default();
            let dry = query.split('&').filter(|option| *option == DRY_RUN).count();
            assert!(request.method() == Method::GET || dry == 1, "{} {}", request.method(), request.uri());
            let metadata = json!({ "name": "a-x", "namespace": "n", "uid": "u", "resourceVersion": "2" });
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
            Some(Response::new(object.to_string()))
        });
        (DryRunClient::new(api), writes)
    }

    #[tokio::test]
    async fn every_write_is_a_dry_run() {
        let gvk = Gvk::new("v1", "ConfigMap");
        let resource = Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: true };
        let id = ObjectId { resource: Arc::new(resource), key: Key::new("n", "a") };
        let body = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "u" } });
        let (uid, (client, writes)) = (Uid::new("u"), client());
        let over = Some((uid.clone(), Version::new("1")));
        let (id, body, manager) = (|| id.clone(), || body.clone(), || Arc::<str>::from("m"));
        let all = [
            Op::Create { id: id(), body: body() },
            Op::Replace { id: id(), body: body() },
            Op::Status { id: id(), body: body() },
            Op::Apply { id: id(), over, body: body(), manager: manager() },
            Op::HandOver { id: id(), uid: uid.clone(), manager: manager() },
            Op::Delete { id: id(), uid: uid.clone() },
        ];
        for (op, sent) in all.iter().zip(1..) {
            client.carry_out(op).await.unwrap_or_else(|error| panic!("{}: {}", op.verb(), error.source));
            assert_eq!(writes.load(Ordering::Relaxed), sent, "{}", op.verb());
        }
        let recreated = Op::Recreate { id: id(), uid, body: body(), manager: None };
        client.try_making(&recreated, None).await.unwrap();
        let made = client.carry_out(&recreated).await.unwrap().object.unwrap();
        assert_eq!((&*made.key.name, made.version.as_str()), ("a", "2"), "it is made under another name");
        drop(client.dry_run(&all[1]).await.unwrap());
        let seen = Object::parse(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1" }}).to_string(), None).unwrap();
        client.change_finalizers(&id(), &seen, FinalizerChange::Add("f")).await.unwrap().unwrap();
        // So are requests that no reconcile sends.
        client.api().merge::<Value>(&id(), &json!({})).await.unwrap();
        client.api().patch(MERGE_PATCH, "/x?dryRun=All", &json!({})).await.unwrap();
        client.api().patch(MERGE_PATCH, "/x", &json!({})).await.unwrap();
    }

    /// The API server reads the options of a deletion in its body, and ignores those of the query where there is one.
    #[tokio::test]
    async fn a_deletion_is_a_dry_run_by_its_body() {
        let client = DryRunClient::new(fake::answering_bodies(|_, body| {
            let options: Value = serde_json::from_slice(body).unwrap();
            assert_eq!(
                (&options["dryRun"], &options["preconditions"]["uid"]),
                (&json!(["All"]), &json!("u"))
            );
            json!({ "kind": "Status" }).to_string()
        }));
        let gvk = Gvk::new("v1", "ConfigMap");
        let resource = Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: true };
        let id = ObjectId { resource: Arc::new(resource), key: Key::new("n", "a") };
        client.carry_out(&Op::Delete { id, uid: Uid::new("u") }).await.unwrap();
        // Any other body is replaced.
        let client = DryRunClient::new(fake::answering_bodies(|_, body| {
            assert_eq!(body, br#"{"dryRun":["All"]}"#);
            "{}".to_owned()
        }));
        client.api().send(Method::DELETE, "/x", &Value::Null).await.unwrap();
    }
}
