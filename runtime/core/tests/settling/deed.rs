//! Events in the cluster or in the server, and how each is carried out.

use std::sync::Arc;

use metahook_core::api::PAUSED;
use metahook_core::cache::{Cache, CacheEvent};
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::object::selector::UID_LABEL;
use serde_json::json;

use crate::server::Server;

/// Event in the cluster or in the server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deed {
    /// A parent comes, or wants so many children.
    Parent {
        parent: u8,
        children: u8,
    },
    NoParent(u8),
    /// Another client writes a child.
    Edit {
        parent: u8,
        child: u8,
        data: u8,
    },
    Unlabel {
        parent: u8,
        child: u8,
    },
    /// Another client takes off the annotations of a child.
    Bare {
        parent: u8,
        child: u8,
    },
    /// The server lists the children anew, as after a restart.
    Relist,
    NoChild {
        parent: u8,
        child: u8,
    },
    /// A user deletes a parent's revisions.
    NoRevisions(u8),
    /// A user makes an object that the parent could adopt.
    Orphan {
        parent: u8,
        child: u8,
    },
    /// A setting, which hooks are shown besides their children, changes: for one parent, or gone.
    Setting {
        setting: u8,
        parent: Option<u8>,
        data: u8,
    },
    /// A user pauses a parent, or resumes it.
    Pause {
        parent: u8,
        paused: bool,
    },
    /// Another version of the module.
    Module(u8),
    Deliver {
        of: WatchOf,
        events: u8,
    },
    /// A reconcile that nothing asked for, as a resync makes.
    Reconcile(u8),
    /// Everything is delivered and worked off.
    Work,
}

/// The watch that delivers an event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WatchOf {
    Parents,
    Children,
    Settings,
    Revisions,
}

impl Server {
    pub(crate) fn does(&mut self, deed: Deed) {
        match deed {
            Deed::Parent { parent, children } => self.wants(parent, children),
            Deed::NoParent(parent) => drop(self.cluster.delete(&self.parent(parent), None)),
            Deed::Edit { parent, child, data } => {
                let id = self.child(parent, child);
                self.cluster.edit(&id, |object| object["data"]["text"] = json!(data.to_string()));
            }
            Deed::Unlabel { parent, child } => {
                let id = self.child(parent, child);
                self.cluster.edit(&id, |object| object["metadata"]["labels"] = json!({}));
            }
            Deed::Bare { parent, child } => {
                let id = self.child(parent, child);
                self.cluster.edit(&id, |object| object["metadata"]["annotations"] = json!({}));
            }
            Deed::Relist => self.lists_children_anew(),
            Deed::NoChild { parent, child } => drop(self.cluster.delete(&self.child(parent, child), None)),
            Deed::NoRevisions(parent) => self.forget_revisions(parent),
            Deed::Orphan { parent, child } => self.orphan(parent, child),
            Deed::Setting { setting, parent, data } => self.set(setting, parent, data),
            Deed::Pause { parent, paused } => self.pause(parent, paused),
            Deed::Module(module) => {
                self.module = module;
                self.resync();
            }
            Deed::Deliver { of, events } => {
                for _ in 0..events {
                    self.deliver(of);
                }
            }
            Deed::Reconcile(parent) => self.reconcile_parent(&self.parent(parent).key),
            Deed::Work => self.work(),
        }
    }

    fn lists_children_anew(&mut self) {
        self.children = if self.cuts { Cache::cutting(0) } else { Cache::default() };
        self.children.apply(CacheEvent::ListBegins);
        for object in self.cluster.all(&self.child_kind) {
            let touched = self.children.apply(CacheEvent::Listed(object));
            self.trigger(&touched, WatchOf::Children, None);
        }
        self.children.apply(CacheEvent::ListEnds);
    }

    pub(crate) fn pause(&mut self, parent: u8, paused: bool) {
        let id = self.parent(parent);
        let is_paused = |object: Object| object.annotations().get(PAUSED).is_some_and(|now| now == "true");
        let value = if paused { "true" } else { "false" };
        if !paused && !self.cluster.get(&id).is_some_and(is_paused) {
            return;
        }
        self.cluster.edit(&id, |object| {
            object["metadata"]["annotations"] = json!({ PAUSED: value });
        });
    }

    fn wants(&mut self, parent: u8, children: u8) {
        let id = self.parent(parent);
        let edited = self.cluster.edit(&id, |object| object["spec"]["children"] = json!(children));
        if edited.is_none() {
            let value = json!({"apiVersion": "e/v1", "kind": "Parent", "metadata": {}, "spec": {"children": children}});
            self.cluster.create(&id, value).unwrap();
        }
    }

    fn orphan(&mut self, parent: u8, child: u8) {
        if let Some(owner) = self.cluster.get(&self.parent(parent)) {
            let labels = json!({ UID_LABEL: owner.uid.as_str() });
            let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": labels}});
            // One that is there already stays as it is.
            drop(self.cluster.create(&self.child(parent, child), value));
        }
    }

    fn set(&mut self, setting: u8, parent: Option<u8>, data: u8) {
        let name = format!("s{setting}");
        let id = ObjectId { resource: Arc::clone(&self.setting_kind), key: Key::new("n", &name) };
        let Some(parent) = parent else { return drop(self.cluster.delete(&id, None)) };
        let labels = json!({ "for": format!("p{parent}") });
        let value =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": labels}, "data": data});
        if self
            .cluster
            .edit(&id, |object| (object["metadata"]["labels"], object["data"]) = (labels, json!(data)))
            .is_none()
        {
            self.cluster.create(&id, value).unwrap();
        }
    }

    fn forget_revisions(&mut self, parent: u8) {
        let Some(parent) = self.cluster.get(&self.parent(parent)) else { return };
        for revision in self.revisions.candidates(&parent.uid, "n", None) {
            let id = ObjectId { resource: Arc::clone(&self.revision_kind), key: revision.key.clone() };
            drop(self.cluster.delete(&id, None));
        }
    }
}
