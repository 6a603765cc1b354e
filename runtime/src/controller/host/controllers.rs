//! All controllers that there are, of both kinds, as they are stored.

use std::sync::Arc;

use metahook_core::api::controller::ControllerKind;
use metahook_core::cache::objects::Cache;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, Resource};

use crate::store::{Store, Stores};

pub(crate) struct Controllers {
    composite: Arc<Store>,
    decorator: Arc<Store>,
}

impl Controllers {
    pub(crate) fn open(stores: &Stores) -> Self {
        Self {
            composite: stores.open(&resource(ControllerKind::Composite, "compositecontrollers")),
            decorator: stores.open(&resource(ControllerKind::Decorator, "decoratorcontrollers")),
        }
    }

    pub(crate) fn of(&self, kind: ControllerKind) -> &Arc<Store> {
        match kind {
            ControllerKind::Composite => &self.composite,
            ControllerKind::Decorator => &self.decorator,
        }
    }

    pub(crate) fn get(&self, kind: ControllerKind, name: &str) -> Option<Arc<Object>> {
        self.of(kind).get(&Key::new("", name))
    }

    pub(crate) fn all(&self) -> [&Arc<Store>; 2] {
        [&self.composite, &self.decorator]
    }

    /// As long as these numbers stay, no controller changed.
    pub(crate) fn changes(&self) -> [u64; 2] {
        self.all().map(|store| store.view(Cache::changes))
    }

    /// Waits until all are known.
    pub(crate) async fn synced(&self) {
        for store in self.all() {
            store.synced().await;
        }
    }
}

fn resource(kind: ControllerKind, plural: &str) -> Arc<Resource> {
    Arc::new(Resource {
        gvk: Gvk::new("metacontroller.k8s.io/v1alpha1", kind.as_str()),
        plural: plural.into(),
        namespaced: false,
        has_status: true,
    })
}
