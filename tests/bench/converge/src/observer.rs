//! Tells when objects are as they shall be: from watches, as soon as the API server says it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::TryStreamExt;
use http::Request;
use kube::core::WatchEvent;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::api::{Api, Kind};

/// Nothing that is waited for here takes so long without any event.
const PATIENCE: Duration = Duration::from_mins(1);

/// Watches one kind in one namespace from the moment it is made.
pub(crate) struct Observer {
    seen: mpsc::UnboundedReceiver<(Instant, Seen)>,
    _task: AbortOnDropHandle<()>,
}

/// One change of an object.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    Now(Object),
    Gone,
    Broken(String),
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Object {
    pub(crate) metadata: Metadata,
    #[serde(default)]
    pub(crate) status: Status,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) uid: String,
    #[serde(default)]
    pub(crate) generation: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(default)]
    pub(crate) pods: i64,
    #[serde(default)]
    pub(crate) observed_generation: i64,
}

impl Object {
    /// A parent of this generation whose Pod is there and counted.
    pub(crate) fn has_converged(&self, generation: i64) -> bool {
        self.metadata.generation == generation
            && self.status.observed_generation == generation
            && self.status.pods == 1
    }
}

impl Observer {
    pub(crate) async fn of(api: &Api, kind: Kind) -> Result<Self> {
        let path = format!(
            "{}?watch=1&timeoutSeconds=3600&resourceVersion={}",
            api.list(kind),
            api.version(kind).await?
        );
        let events = api.client().request_events::<Object>(Request::get(path).body(Vec::new())?).await?;
        let (sender, seen) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(events);
            loop {
                let seen = match events.try_next().await {
                    Ok(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => Seen::Now(object),
                    Ok(Some(WatchEvent::Deleted(_))) => Seen::Gone,
                    Ok(Some(WatchEvent::Bookmark(_))) => continue,
                    Ok(Some(WatchEvent::Error(status))) => Seen::Broken(status.message),
                    Ok(None) => Seen::Broken("it ended".to_owned()),
                    Err(why) => Seen::Broken(why.to_string()),
                };
                let over = matches!(seen, Seen::Broken(_));
                if sender.send((Instant::now(), seen)).is_err() || over {
                    return;
                }
            }
        });
        Ok(Self { seen, _task: AbortOnDropHandle::new(task) })
    }

    /// When the last of `count` objects of different names came to be as they shall be; each with its uid then.
    pub(crate) async fn until(
        &mut self,
        count: usize,
        is: impl Fn(&Object) -> bool,
    ) -> Result<(Instant, BTreeMap<String, String>)> {
        let mut those = BTreeMap::new();
        loop {
            let Ok(next) = tokio::time::timeout(PATIENCE, self.seen.recv()).await else {
                bail!("{} of {count} objects came, and then none for {PATIENCE:?}", those.len());
            };
            match next.context("the watch is over")? {
                (at, Seen::Now(object)) if is(&object) => {
                    those.insert(object.metadata.name, object.metadata.uid);
                    if those.len() == count {
                        return Ok((at, those));
                    }
                }
                (_, Seen::Now(_) | Seen::Gone) => {}
                (_, Seen::Broken(why)) => bail!("the watch broke: {why}"),
            }
        }
    }
}
