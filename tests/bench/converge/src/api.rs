//! Requests to the API server as bytes, and where the objects of the measurement live.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};

/// As the server's writes carry it.
const FIELD_MANAGER: &str = "fieldManager=metacontroller";

/// The objects of one namespace.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
    pub(crate) namespace: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Parent,
    Pod,
}

/// Identity that one more write of an object has to name.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Made {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

#[derive(Deserialize)]
struct Answer {
    metadata: Made,
}

impl Api {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) async fn create(&self, kind: Kind, body: &Value) -> Result<Made> {
        let path = format!("{}?{FIELD_MANAGER}", self.list(kind));
        made(&self.send(Method::POST, &path, body).await?)
    }

    pub(crate) async fn put_status(&self, name: &str, body: &Value) -> Result<()> {
        let path = format!("{}/status?{FIELD_MANAGER}", self.one(Kind::Parent, name));
        self.send(Method::PUT, &path, body).await.map(drop)
    }

    pub(crate) async fn patch(&self, name: &str, patch: &Value) -> Result<Made> {
        made(&self.send(Method::PATCH, &self.one(Kind::Parent, name), patch).await?)
    }

    /// Just the object of this uid, as the server deletes.
    pub(crate) async fn delete(&self, kind: Kind, name: &str, uid: &str) -> Result<()> {
        self.send(Method::DELETE, &self.one(kind, name), &delete_options(uid)).await.map(drop)
    }

    /// Deletes an object, where the garbage collector may have been faster.
    pub(crate) async fn remove(&self, kind: Kind, name: &str, uid: &str) -> Result<()> {
        let path = self.one(kind, name);
        let (status, body) = self.exchange(Method::DELETE, &path, &delete_options(uid)).await?;
        ensure!(
            status.is_success() || status == StatusCode::NOT_FOUND,
            "DELETE {path}: {status} {}",
            String::from_utf8_lossy(&body)
        );
        Ok(())
    }

    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.send(Method::GET, &self.one(kind, name), &Value::Null).await?)?)
    }

    /// Name and uid of all.
    pub(crate) async fn all(&self, kind: Kind) -> Result<Vec<(String, String)>> {
        let list: Value =
            serde_json::from_slice(&self.send(Method::GET, &self.list(kind), &Value::Null).await?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        Ok(items
            .iter()
            .map(|item| (text(&item["metadata"]["name"]), text(&item["metadata"]["uid"])))
            .collect())
    }

    /// The version of the list now, to watch from.
    pub(crate) async fn version(&self, kind: Kind) -> Result<String> {
        let list = self.send(Method::GET, &format!("{}?limit=1", self.list(kind)), &Value::Null).await?;
        let list: Value = serde_json::from_slice(&list)?;
        Ok(list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned())
    }

    pub(crate) fn list(&self, kind: Kind) -> String {
        match kind {
            Kind::Parent => format!("/apis/example.com/v1/namespaces/{}/helloworlds", self.namespace),
            Kind::Pod => format!("/api/v1/namespaces/{}/pods", self.namespace),
        }
    }

    fn one(&self, kind: Kind, name: &str) -> String {
        format!("{}/{name}", self.list(kind))
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Bytes> {
        let (status, answer) = self.exchange(method.clone(), path, body).await?;
        ensure!(status.is_success(), "{method} {path}: {status} {}", String::from_utf8_lossy(&answer));
        Ok(answer)
    }

    async fn exchange(&self, method: Method, path: &str, body: &Value) -> Result<(StatusCode, Bytes)> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, kind)
            .body(body)?;
        let answer = self.client.send(request).await.with_context(|| format!("{method} {path}"))?;
        let (head, body) = answer.into_parts();
        Ok((head.status, body.collect().await?.to_bytes()))
    }
}

fn delete_options(uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": {"uid": uid}, "propagationPolicy": "Background",
    })
}

fn made(body: &[u8]) -> Result<Made> {
    Ok(serde_json::from_slice::<Answer>(body)?.metadata)
}
