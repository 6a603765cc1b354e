//! Kinds whose definition has changed: who caches their objects lists them anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use metahook_core::object::id::Resource;
use tokio::sync::watch;

/// How often the objects of each definition were to be listed anew, by its name.
#[derive(Clone)]
pub(crate) struct Redefined(Arc<watch::Sender<BTreeMap<String, u64>>>);

impl Default for Redefined {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }
}

impl Redefined {
    /// The objects of the definition with this name are to be listed anew.
    pub(crate) fn note(&self, name: &str) {
        tracing::debug!(definition = name, "the definition has changed: its objects are listed anew");
        self.0.send_modify(|counts| *counts.entry(name.to_owned()).or_default() += 1);
    }

    /// Waits for the next note about the kind, from the call on.
    pub(crate) fn next(&self, resource: &Resource) -> impl Future<Output = ()> + use<> {
        let name = format!("{}.{}", resource.plural, resource.gvk.group);
        let count = move |counts: &BTreeMap<String, u64>| counts.get(&name).copied().unwrap_or_default();
        let before = count(&self.0.borrow());
        let mut changes = self.0.subscribe();
        // The sender is held here.
        let sender = self.clone();
        async move {
            let _more = changes.wait_for(|now| count(now) > before).await;
            drop(sender);
        }
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::object::id::Gvk;

    use super::*;

    #[tokio::test]
    async fn a_note_reaches_those_who_cache_the_kind() {
        let resource = |plural: &str| Resource {
            gvk: Gvk::new("e.com/v1", "Hello"),
            plural: plural.into(),
            namespaced: true,
            has_status: true,
        };
        let redefined = Redefined::default();
        redefined.note("hellos.e.com");
        let (one, mut other) =
            (redefined.next(&resource("hellos")), Box::pin(redefined.next(&resource("others"))));
        redefined.note("hellos.e.com");
        one.await;
        assert!(futures_util::poll!(&mut other).is_pending());
    }
}
