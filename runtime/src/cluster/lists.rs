//! Lists of a kind that are read once, page by page.

use metahook_core::object::id::{Gvk, Resource};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cluster::api_client::{Answers, ApiClient};
use crate::cluster::objects::{RequestError, RequestErrorKind, body};
use crate::cluster::paths::{events_namespace, list_path, segment};

#[derive(Deserialize)]
struct Page {
    items: Option<Vec<Box<RawValue>>>,
    metadata: PageMetadata,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Events about one object.
const MAX_EVENTS: usize = 500;

/// Objects of one page where they are small.
const PAGE: usize = 500;

impl ApiClient {
    /// The objects of a kind in a namespace, or in all of them where it is empty; at most `max`. `query`: further parameters.
    pub(super) async fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        query: &str,
        max: usize,
    ) -> Result<Vec<Box<RawValue>>, RequestError> {
        self.list_as(Answers::Page, resource, namespace, query, max).await
    }

    /// The Events about the object with this uid, the first ones of many. `namespace`: that of the object, if it has one.
    pub async fn list_events(&self, about: &str, namespace: &str) -> Result<Vec<Value>, RequestError> {
        let events = Resource {
            gvk: Gvk::new("v1", "Event"),
            plural: "events".into(),
            namespaced: true,
            has_status: false,
        };
        let query = format!("fieldSelector=involvedObject.uid%3D{}&", segment(about));
        let listed = self.list(&events, events_namespace(namespace), &query, MAX_EVENTS).await?;
        Ok(listed.iter().filter_map(|event| serde_json::from_str(event.get()).ok()).collect())
    }

    /// The version of the cluster, or of what keeps objects of this kind in it, as it is now, where it can be told. No limit of
    /// requests holds it up.
    pub(crate) async fn cluster_version(&self, resource: &Resource, namespace: &str) -> Option<u128> {
        #[derive(Deserialize)]
        struct First {
            items: Option<Vec<Item>>,
            metadata: Versioned,
        }
        #[derive(Deserialize)]
        struct Item {
            metadata: Versioned,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Versioned {
            resource_version: String,
        }
        let path = format!("{}?limit=1", list_path(resource, namespace));
        let answer = self.for_leases().get_as(Answers::First, &path).await.ok()?;
        let First { items, metadata } = body(&answer).ok()?;
        let version: u128 = metadata.resource_version.parse().ok()?;
        // An aggregated API server may number its lists in another way than its objects.
        let all = items.unwrap_or_default();
        let is_as_old =
            |item: &Item| item.metadata.resource_version.parse().is_ok_and(|it: u128| it <= version);
        all.iter().all(is_as_old).then_some(version)
    }

    /// As [`ApiClient::list`]; [`Answers::Metadata`]: of each object its metadata alone.
    pub(super) async fn list_as(
        &self,
        answers: Answers,
        resource: &Resource,
        namespace: &str,
        query: &str,
        max: usize,
    ) -> Result<Vec<Box<RawValue>>, RequestError> {
        let path = format!("{}?{query}limit={PAGE}", list_path(resource, namespace));
        let listed = self.pages(answers, &path, max).await;
        listed.map_err(|kind| RequestError::of_list(resource, namespace, kind))
    }

    async fn pages(
        &self,
        answers: Answers,
        path: &str,
        max: usize,
    ) -> Result<Vec<Box<RawValue>>, RequestErrorKind> {
        let mut all = Vec::new();
        let mut next = String::new();
        loop {
            let from = if next.is_empty() { String::new() } else { format!("&continue={next}") };
            let page: Page = body(&self.get_as(answers, &format!("{path}{from}")).await?)?;
            all.extend(page.items.unwrap_or_default());
            next = page.metadata.next;
            if next.is_empty() || all.len() >= max {
                all.truncate(max);
                return Ok(all);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use metahook_core::object::id::Gvk;
    use serde_json::json;

    use super::*;
    use crate::cluster::fake;

    #[tokio::test]
    async fn lists_are_read_to_their_end() {
        let api = fake::answering(|request| {
            let is_next = request.uri().query().is_some_and(|query| query.contains("continue=c"));
            let (name, next) = if is_next { ("b", "") } else { ("a", "c") };
            let item =
                json!({ "metadata": { "name": name, "namespace": "n", "uid": "u", "resourceVersion": "1" } });
            let list = json!({ "items": [item, {}], "metadata": { "continue": next } });
            Some(Response::new(list.to_string()))
        });
        let gvk = Gvk::new("v1", "ConfigMap");
        let resource = Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: false };
        let all = api.list_objects(&resource).await.unwrap();
        assert_eq!(all.iter().map(|object| &*object.key.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(api.list(&resource, "", "", 1).await.unwrap().len(), 1);
    }
}
