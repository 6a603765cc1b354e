//! A watch of one resource as a stream of cache events; an object that cannot be read does not end it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use kube::Resource as KubeResource;
use kube::api::{Api, ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use kube::runtime::watcher;
use metahook_core::cache::CacheEvent;
use metahook_core::object::id::Resource;
use metahook_core::object::{Object, ObjectError};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cluster::api_client::ApiClient;
use crate::cluster::rights::{UNGRANTED_DELAY, WatchFailure};
use crate::cluster::transport::WATCH_TIMEOUT;
use crate::telemetry::error_chain;

/// Events of a resource until the stream is dropped. A broken watch is taken up again with growing pauses. With a `namespace`,
/// or with a `name`, there is no need for the right to see other objects.
pub(crate) fn watch(
    api: &ApiClient,
    resource: &Arc<Resource>,
    namespace: Option<&str>,
    name: Option<&str>,
) -> impl Stream<Item = Result<CacheEvent, watcher::Error>> + Send + use<> {
    let kind = ApiResource {
        group: resource.gvk.group.to_string(),
        version: resource.gvk.version.to_string(),
        api_version: resource.gvk.api_version(),
        kind: resource.gvk.kind.to_string(),
        plural: resource.plural.to_string(),
    };
    let client = api.client.clone();
    let objects: Api<Wire> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind),
        None => Api::all_with(client, &kind),
    };
    let field_selector = name.map(|name| format!("metadata.name={name}"));
    let timeout = u32::try_from(WATCH_TIMEOUT.as_secs()).ok();
    let config = watcher::Config { field_selector, timeout, ..watcher::Config::default() };
    let resource = Arc::clone(resource);
    let mut pause = Pause::default();
    let mut open = api.watches.begin();
    watcher(objects, config).filter_map(move |item| {
        let event = item.map(|event| translate(event, &resource)).transpose();
        match &event {
            Some(Ok(event)) => open.came(event),
            Some(Err(_)) => open.broke(),
            None => {}
        }
        let wait = pause.after(event.as_ref());
        async move {
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
            }
            event
        }
    })
}

/// How long to wait before a watch that broke is taken up again: 100 ms, doubled up to 30 s, or, where a right is missing, to
/// [`UNGRANTED_DELAY`], and some more by chance, so that not all watches come at once. The beginning of a list is no success yet.
#[derive(Default)]
struct Pause(Duration);

impl Pause {
    fn after(&mut self, event: Option<&Result<CacheEvent, watcher::Error>>) -> Option<Duration> {
        match event {
            Some(Ok(CacheEvent::ListBegins)) => None,
            Some(Ok(_)) | None => {
                self.0 = Duration::ZERO;
                None
            }
            Some(Err(error)) => {
                let is_ungranted = WatchFailure::of(error).is_ungranted;
                let max = if is_ungranted { UNGRANTED_DELAY * 4 / 5 } else { Duration::from_secs(30) };
                self.0 = (self.0 * 2).clamp(Duration::from_millis(100), max);
                let chance = jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 256;
                Some(self.0 + self.0 * chance / 1024)
            }
        }
    }
}

/// `None`: the object cannot be read; it is as if it were not there.
fn translate(event: watcher::Event<Wire>, resource: &Resource) -> Option<CacheEvent> {
    Some(match event {
        watcher::Event::Init => CacheEvent::ListBegins,
        watcher::Event::InitDone => CacheEvent::ListEnds,
        watcher::Event::InitApply(wire) => CacheEvent::Listed(wire.object(resource)?),
        watcher::Event::Apply(wire) => CacheEvent::Applied(wire.object(resource)?),
        watcher::Event::Delete(wire) => CacheEvent::Deleted(wire.object(resource)?),
    })
}

/// An object with the metadata that kube's watcher needs.
#[derive(Debug, Clone)]
struct Wire {
    meta: Box<ObjectMeta>,
    /// Or the bytes that are no object yet: items of a list name no kind.
    read: Result<Arc<Object>, Arc<str>>,
}

impl Wire {
    fn object(self, resource: &Resource) -> Option<Object> {
        let read = match self.read {
            Ok(object) => {
                let mut object = Arc::unwrap_or_clone(object);
                // One copy of the words for all objects of a kind.
                if object.gvk == resource.gvk {
                    object.gvk.clone_from(&resource.gvk);
                }
                Ok(object)
            }
            Err(json) => Object::parse(&json, Some(&resource.gvk)),
        };
        let complain = |error: &ObjectError| {
            tracing::warn!(resource = %resource.gvk, error = error_chain(error), "an object cannot be read");
        };
        read.inspect_err(complain).ok()
    }
}

/// Never fails on JSON: one bad object would end the whole list. Reads what lies in memory, as all that kube gives it.
impl<'de> Deserialize<'de> for Wire {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let (version, read) = match Object::parse(raw.get(), None) {
            Ok(object) => (object.version.as_str().to_owned(), Ok(Arc::new(object))),
            Err(_) => (version(raw.get()), Err(raw.get().into())),
        };
        let meta = Box::new(ObjectMeta { resource_version: Some(version), ..ObjectMeta::default() });
        Ok(Self { meta, read })
    }
}

fn version(json: &str) -> String {
    let object: Value = serde_json::from_str(json).unwrap_or_default();
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    version.unwrap_or("0").to_owned()
}

impl KubeResource for Wire {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::Response;
    use kube::api::{ObjectList, WatchEvent};

    use super::*;
    use crate::cluster::fake;
    use crate::sync::lock;

    fn pods() -> Resource {
        let gvk = metahook_core::object::id::Gvk::new("v1", "Pod");
        Resource { gvk, plural: "pods".into(), namespaced: true, has_status: true }
    }

    #[test]
    fn a_watch_that_cannot_list_is_tried_less_and_less_often() {
        let (mut pause, broken) = (Pause::default(), Err(watcher::Error::NoResourceVersion));
        let mut waits = Vec::new();
        for _ in 0..12 {
            assert_eq!(pause.after(Some(&Ok(CacheEvent::ListBegins))), None);
            waits.push(pause.after(Some(&broken)).unwrap());
        }
        assert!(waits[0] < Duration::from_millis(130) && waits[11] >= Duration::from_secs(30));
        assert_eq!(pause.after(Some(&Ok(CacheEvent::ListEnds))), None);
        assert!(pause.after(Some(&broken)).unwrap() < Duration::from_millis(130), "it worked in between");
    }

    #[test]
    fn a_watch_without_its_right_is_tried_every_few_seconds() {
        let mut pause = Pause::default();
        let message = "pods is forbidden: User \"u\" cannot watch resource \"pods\"".to_owned();
        let status = kube::core::Status { code: 403, message, ..kube::core::Status::default() };
        let refused = Err(watcher::Error::WatchError(Box::new(status)));
        let waits: Vec<_> = (0..12).map(|_| pause.after(Some(&refused)).unwrap()).collect();
        assert!(waits[0] < Duration::from_millis(130), "{waits:?}");
        assert!(waits[11] > Duration::from_secs(3) && waits[11] <= UNGRANTED_DELAY, "{waits:?}");
    }

    #[test]
    fn an_object_is_read_where_kube_finds_it() {
        let object = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","resourceVersion":"7"}}"#;
        let event = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let Ok(WatchEvent::Added(wire)) = serde_json::from_str::<WatchEvent<Wire>>(&event) else {
            panic!("no event of an object")
        };
        assert_eq!(wire.object(&pods()).unwrap().json(), object);
        let list = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{object}]}}"#
        );
        let list: ObjectList<Wire> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.items[0].meta.resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn items_of_a_list_get_their_kind_and_bad_ones_are_left_out() {
        let wire = |json: &str| serde_json::from_str::<Wire>(json).unwrap();
        let item = wire(r#"{"metadata":{"name":"x","resourceVersion":"7"}}"#);
        assert_eq!(item.meta.resource_version.as_deref(), Some("7"));
        assert!(item.object(&pods()).unwrap().json().starts_with(r#"{"apiVersion":"v1","kind":"Pod","#));
        let bad = wire(r#"{"kind":"Pod","metadata":{"name":7,"resourceVersion":"8"}}"#);
        assert_eq!(bad.meta.resource_version.as_deref(), Some("8"));
        assert!(bad.object(&pods()).is_none());
    }

    /// Lists of `count` ConfigMaps of `size` bytes each; gives the bytes of the pages that were sent.
    fn large_config_maps(count: usize, size: usize) -> (ApiClient, Arc<Mutex<Vec<usize>>>) {
        let pages = Arc::new(Mutex::new(Vec::new()));
        let sent = Arc::clone(&pages);
        let api = fake::answering(move |request| {
            let query = request.uri().query()?;
            let field =
                |name| query.split('&').find_map(|pair| pair.strip_prefix(name)?.parse::<usize>().ok());
            if query.contains("watch=") {
                return None;
            }
            let from = field("continue=").unwrap_or(0);
            let end = count.min(from + field("limit=")?);
            let text = "x".repeat(size);
            let item = |nth| {
                let metadata =
                    format!(r#"{{"name":"m-{nth}","namespace":"n","uid":"{nth}","resourceVersion":"7"}}"#);
                format!(r#"{{"metadata":{metadata},"data":{{"k":"{text}"}}}}"#)
            };
            let items: Vec<_> = (from..end).map(item).collect();
            let next = if end < count { end.to_string() } else { String::new() };
            let metadata = format!(r#"{{"resourceVersion":"9","continue":"{next}"}}"#);
            let page = format!(
                r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{metadata},"items":[{}]}}"#,
                items.join(",")
            );
            lock(&sent).push(page.len());
            Some(Response::new(page))
        });
        (api, pages)
    }

    async fn listed(api: &ApiClient) -> usize {
        let gvk = metahook_core::object::id::Gvk::new("v1", "ConfigMap");
        let maps = Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: false };
        let mut events = std::pin::pin!(watch(api, &Arc::new(maps), None, None));
        let mut count = 0;
        loop {
            match events.next().await.unwrap().unwrap() {
                CacheEvent::ListEnds => return count,
                CacheEvent::Listed(_) => count += 1,
                _ => {}
            }
        }
    }

    #[tokio::test]
    async fn large_objects_are_listed_in_small_pages() {
        let (api, pages) = large_config_maps(60, 1_500_000);
        assert_eq!(listed(&api).await, 60);
        let first = std::mem::take(&mut *lock(&pages));
        let too_large = first.iter().filter(|bytes| **bytes > 16 << 20).count();
        assert_eq!(too_large, 1, "{first:?}");
        assert_eq!(listed(&api).await, 60);
        let second = lock(&pages).clone();
        assert!(second.len() <= 15 && second.iter().all(|bytes| *bytes <= 8 << 20), "{second:?}");
    }

    #[tokio::test]
    async fn small_objects_are_listed_in_few_pages() {
        let (api, pages) = large_config_maps(2000, 1000);
        assert_eq!(listed(&api).await, 2000);
        assert_eq!(lock(&pages).len(), 7);
        assert_eq!(listed(&api).await, 2000);
        assert_eq!(lock(&pages).len(), 7 + 4);
    }
}
