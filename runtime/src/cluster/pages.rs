//! Pages of lists: what each kind's objects were like so far, and the memory that all pages in flight share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Uri, uri};
use metahook_core::pacing::pages::PageSize;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::cluster::bounds::MAX_LARGE;
use crate::sync::lock;

/// MiB that all pages in flight have together. The largest page leaves room for others.
const IN_FLIGHT: usize = 48;
const _: () = assert!(MAX_LARGE < (IN_FLIGHT as u64) << 20, "the largest page would hold up all others");

/// Pages of all accounts together.
pub(super) struct Pages {
    /// Page sizes by the path of the kind.
    sizes: Mutex<BTreeMap<String, PageSize>>,
    in_flight: Arc<Semaphore>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { sizes: Mutex::default(), in_flight: Arc::new(Semaphore::new(IN_FLIGHT)) }
    }
}

impl Pages {
    /// How the next page of a list is asked for.
    pub(super) fn next(&self, path: &str) -> PageSize {
        lock(&self.sizes).get(&kind(path)).copied().unwrap_or_default()
    }

    /// Waits until a page of at most so many bytes has the room that it is expected to need. The server asks for the page
    /// afterwards: an answer that waits unread holds up the others on its connection.
    pub(super) async fn room(&self, page: PageSize, bound: u64) -> Room {
        let mebibytes = mebibytes(page.expected_bytes().min(bound)).max(1);
        // The server never closes the semaphore.
        let permit = Arc::clone(&self.in_flight).acquire_many_owned(mebibytes).await.ok();
        Room { in_flight: Arc::clone(&self.in_flight), permit }
    }

    /// Learns of a page that came.
    pub(super) fn learn(&self, path: &str, page: PageSize, json: &[u8]) {
        let bytes = u64::try_from(json.len()).unwrap_or(u64::MAX);
        self.expect(path, page.after(objects(json), bytes));
    }

    /// The next page of the kind will be like this one.
    pub(super) fn expect(&self, path: &str, page: PageSize) {
        lock(&self.sizes).insert(kind(path), page);
    }
}

/// The memory of a page in flight.
pub(super) struct Room {
    in_flight: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Whether the page may have so many bytes. It takes what it lacks, but does not wait for it: two pages that wait for each
    /// other's room would wait for ever.
    pub(super) fn has(&mut self, bytes: u64) -> bool {
        let Some(permit) = &mut self.permit else { return true };
        let lacking =
            mebibytes(bytes).saturating_sub(u32::try_from(permit.num_permits()).unwrap_or(u32::MAX));
        if lacking == 0 {
            return true;
        }
        let more = Arc::clone(&self.in_flight).try_acquire_many_owned(lacking);
        more.map(|more| permit.merge(more)).is_ok()
    }
}

fn mebibytes(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX)
}

/// Objects of a page; of what is no list there are none.
fn objects(json: &[u8]) -> u64 {
    #[derive(Deserialize)]
    struct Page {
        items: Option<Vec<IgnoredAny>>,
    }
    let page = serde_json::from_slice(json).ok().and_then(|Page { items }| items);
    page.map_or(0, |items| u64::try_from(items.len()).unwrap_or(u64::MAX))
}

/// A kind in a namespace is the kind itself.
fn kind(path: &str) -> String {
    match path.split_once("/namespaces/") {
        Some((version, rest)) => match rest.split_once('/') {
            Some((_, plural)) => format!("{version}/{plural}"),
            None => path.to_owned(),
        },
        None => path.to_owned(),
    }
}

/// The limit that a list asks for, if it asks for one.
pub(super) fn limit_of(uri: &Uri) -> Option<u32> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("limit=")?.parse().ok())
}

/// The URI of a list in pages of another size.
pub(super) fn with_limit(uri: &Uri, limit: u32) -> Result<Uri, http::Error> {
    let pair = |pair: &str| {
        if pair.starts_with("limit=") { format!("limit={limit}") } else { pair.to_owned() }
    };
    let query: Vec<_> = uri.query().unwrap_or_default().split('&').map(pair).collect();
    let mut parts = uri.clone().into_parts();
    let path = format!("{}?{}", uri.path(), query.join("&"));
    parts.path_and_query = Some(uri::PathAndQuery::try_from(path)?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_one_in_all_namespaces() {
        for (path, same) in [
            ("/api/v1/configmaps", "/api/v1/configmaps"),
            ("/api/v1/namespaces/n/configmaps", "/api/v1/configmaps"),
            ("/apis/a/v1/namespaces/n/rows", "/apis/a/v1/rows"),
            ("/api/v1/namespaces", "/api/v1/namespaces"),
            ("/api/v1/namespaces/n", "/api/v1/namespaces/n"),
        ] {
            assert_eq!(kind(path), same);
        }
    }

    #[test]
    fn a_list_is_asked_for_with_another_limit() {
        let uri = Uri::from_static("/api/v1/pods?fieldSelector=a%3Db&limit=500&continue=x%3D");
        assert_eq!(limit_of(&uri), Some(500));
        assert_eq!(with_limit(&uri, 7).unwrap(), "/api/v1/pods?fieldSelector=a%3Db&limit=7&continue=x%3D");
        assert_eq!(limit_of(&Uri::from_static("/api/v1/pods")), None);
    }

    #[test]
    fn objects_of_a_page_are_counted() {
        assert_eq!(objects(br#"{"metadata":{"continue":"x"},"items":[{"a":[1]},{}]}"#), 2);
        assert_eq!(objects(br#"{"items":null}"#), 0);
        assert_eq!(objects(br#"{"kind":"Status"}"#), 0);
        assert_eq!(objects(b"no JSON"), 0);
    }
}
