//! The server in small: stores fed by the model's watches, a queue, and reconciles by the core's sequence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use metahook_core::api::PAUSED;
use metahook_core::api::common::UpdateMethod;
use metahook_core::api::hook::{HookVersion, PerHook};
use metahook_core::api::policy::BrakeLimits;
use metahook_core::api::selection::{Selection, SelectionRule};
use metahook_core::cache::trigger::{self, Selected};
use metahook_core::cache::{Cache, CacheEvent, ObjectChange};
use metahook_core::children::Op;
use metahook_core::children::deletion_brake::DeletionBrake;
use metahook_core::children::desired::ChildKind;
use metahook_core::children::write_history::WriteHistory;
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::object::selector::{Selector, UID_LABEL};
use metahook_core::reconcile::config::{ControllerConfig, HookConfig, KindConfig};
use metahook_core::reconcile::outcome::Changed;
use metahook_core::reconcile::sequence::{Start, reconcile};
use metahook_core::reconcile::shown::ObservedBounds;
use metahook_core::reconcile::steps::Step;
use metahook_core::reconcile::watched::Watched;
use metahook_core::related;
use metahook_core::related::related_index::RelatedIndex;
use metahook_core::related::rule::{Finds, RuleScope};
use metahook_core::rollout::revisions::FieldPath;
use metahook_core::rollout::{RollingConfig, RollingKind};
use metahook_core::settled::{Purity, SettledParents};
use serde_json::{Value, json};

use crate::model::{Conflict, Model, resource};
use crate::world::{ModelWorld, at_once};

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
        of: Told,
        events: u8,
    },
    /// A pass that nothing asked for, as a resync makes.
    Pass(u8),
    /// Everything is delivered and worked off.
    Work,
}

/// Whose watch tells something.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Told {
    Parents,
    Children,
    Settings,
    Revisions,
}

/// How the server saves calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saving {
    Nothing,
    Settling,
    /// By a fingerprint of the parent alone.
    Forgetful,
    /// Every settled parent is asked about all the same.
    Checking,
}

pub(crate) struct Server {
    pub(crate) cluster: Model,
    pub(crate) settled: SettledParents,
    pub(crate) calls: u64,
    /// Seed of the hook's random numbers.
    pub(crate) seed: u8,
    pub(crate) saving: Saving,
    pub(crate) config: ControllerConfig,
    pub(crate) parent_kind: Arc<Resource>,
    child_kind: Arc<Resource>,
    pub(crate) setting_kind: Arc<Resource>,
    pub(crate) revision_kind: Arc<Resource>,
    pub(crate) parents: Cache,
    pub(crate) children: Cache,
    /// Children are held by their metadata, where this server did not make them.
    cuts: bool,
    /// Children that were read for it.
    pub(crate) reads: u64,
    pub(crate) settings: Cache,
    pub(crate) revisions: Cache,
    pub(crate) interests: RelatedIndex,
    queue: BTreeSet<Key>,
    /// Steps of the last reconcile.
    pub(crate) steps: Vec<Step>,
    pub(crate) module: u8,
    pub(crate) write_histories: BTreeMap<Key, Arc<WriteHistory>>,
    pub(crate) brake: DeletionBrake,
}

/// No case takes more reconciles to settle.
const MOST_PASSES: usize = 500;
const MOST_FAILURES: usize = 20;

impl Server {
    pub(crate) fn new(saving: Saving, method: UpdateMethod) -> Self {
        let (parent_kind, child_kind) = (resource("e/v1", "Parent"), resource("v1", "ConfigMap"));
        let revision_kind = resource("metacontroller.k8s.io/v1alpha1", "ControllerRevision");
        let rolling = method.is_rolling().then(|| {
            Arc::new(RollingConfig {
                paths: vec![FieldPath::new("spec")],
                kinds: vec![RollingKind {
                    resource: Arc::clone(&child_kind),
                    in_place: true,
                    checks: vec![],
                }],
                parents: Arc::clone(&parent_kind),
                revisions: Arc::clone(&revision_kind),
                home: "n".into(),
            })
        });
        Self {
            cluster: Model::default(),
            settled: SettledParents::new(u64::from(saving == Saving::Checking)),
            calls: 0,
            seed: 0,
            saving,
            config: ControllerConfig {
                name: "c".to_owned(),
                selection: Selection {
                    rules: vec![SelectionRule::default()],
                    finalizer: "f".to_owned(),
                    ..Selection::default()
                },
                child_kinds: vec![ChildKind::new(Arc::clone(&child_kind), method)],
                kind: KindConfig::Composite { generate_selector: true, negative_selectors: false, rolling },
                snapshot: "{}".to_owned(),
                hooks: PerHook {
                    sync: HookConfig::wasm(HookVersion::V1, None),
                    finalize: None,
                    customize: Some(HookConfig::wasm(HookVersion::V1, None)),
                },
                max_children: 100,
                observed: ObservedBounds::default(),
                deletions: vec![],
                related_kinds: metahook_core::api::customize::RelatedKinds::ByAccount,
                shown_secrets: metahook_core::api::shown_secrets::ShownSecrets::All,
                paused: false,
            },
            parent_kind,
            child_kind,
            setting_kind: resource("v1", "Secret"),
            revision_kind,
            parents: Cache::default(),
            children: Cache::default(),
            cuts: false,
            reads: 0,
            settings: Cache::default(),
            revisions: Cache::default(),
            interests: RelatedIndex::default(),
            queue: BTreeSet::new(),
            steps: Vec::new(),
            module: 0,
            write_histories: BTreeMap::new(),
            brake: DeletionBrake::new(BrakeLimits::default(), None, 0),
        }
    }

    /// The server, with children that it did not write held by their metadata alone.
    pub(crate) fn cutting(self) -> Self {
        Self { children: Cache::cutting(0), cuts: true, ..self }
    }

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
            Deed::Pass(parent) => self.pass(&self.parent(parent).key),
            Deed::Work => self.work(),
        }
    }

    fn lists_children_anew(&mut self) {
        self.children = if self.cuts { Cache::cutting(0) } else { Cache::default() };
        self.children.apply(CacheEvent::ListBegins);
        for object in self.cluster.all(&self.child_kind) {
            let touched = self.children.apply(CacheEvent::Listed(object));
            self.trigger(&touched, Told::Children, None);
        }
        self.children.apply(CacheEvent::ListEnds);
    }

    fn pause(&mut self, parent: u8, paused: bool) {
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

    /// Resumes all, works everything off, and looks at every parent once more.
    pub(crate) fn comes_to_rest(&mut self) {
        (0..3).for_each(|parent| self.pause(parent, false));
        self.work();
        self.resync();
        self.work();
    }

    pub(crate) fn purity(&self) -> Option<Purity> {
        self.settled.purity_of(Fingerprint::of(&[self.module]))
    }

    pub(crate) fn status_of(&self, parent: u8) -> Value {
        self.cluster.get(&self.parent(parent)).unwrap().value().unwrap()["status"].clone()
    }

    /// Whether each parent's status tells of the children that it has.
    pub(crate) fn statuses_are_current(&self) -> bool {
        self.parents.all().all(|parent| {
            let mine = self.children.all().filter(|child| child.controller.as_ref() == Some(&parent.uid));
            let status = &parent.whole().unwrap().value().unwrap()["status"];
            status["texts"].as_array().map(Vec::len) == Some(mine.count())
        })
    }

    pub(crate) fn parent(&self, parent: u8) -> ObjectId {
        ObjectId { resource: Arc::clone(&self.parent_kind), key: Key::new("n", &format!("p{parent}")) }
    }

    fn child(&self, parent: u8, child: u8) -> ObjectId {
        ObjectId { resource: Arc::clone(&self.child_kind), key: Key::new("n", &format!("p{parent}-{child}")) }
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

    /// Rules that a customize hook would ask for: settings by label, and one by a name that follows from the spec.
    pub(crate) fn asks_for(&self, parent: &Object) -> Vec<related::rule::RelatedRule> {
        let name = format!("s{}", parent.value().unwrap()["spec"]["children"]);
        let of = |finds| related::rule::RelatedRule { resource: Arc::clone(&self.setting_kind), finds };
        let names = [name.into()].into_iter().collect();
        vec![
            of(Finds::Labels {
                place: RuleScope::Anywhere,
                labels: Selector::equals("for", &parent.key.name),
            }),
            of(Finds::Names { namespace: Some("n".into()), names }),
        ]
    }

    fn forget_revisions(&mut self, parent: u8) {
        let Some(parent) = self.cluster.get(&self.parent(parent)) else { return };
        for revision in self.revisions.candidates(&parent.uid, "n", None) {
            let id = ObjectId { resource: Arc::clone(&self.revision_kind), key: revision.key.clone() };
            drop(self.cluster.delete(&id, None));
        }
    }

    fn resync(&mut self) {
        self.queue.extend(self.parents.all().map(|parent| parent.key.clone()));
    }

    fn work(&mut self) {
        let mut failures = 0;
        for _ in 0..MOST_PASSES {
            let all = [Told::Parents, Told::Children, Told::Settings, Told::Revisions];
            while all.into_iter().any(|of| self.deliver(of)) {}
            let Some(key) = self.queue.pop_first() else { return };
            self.pass(&key);
            // Where a stranger holds the name of a child, trying again does not help.
            if self.settled.failing().contains_key(&key) {
                failures += 1;
                if failures > MOST_FAILURES {
                    self.queue.remove(&key);
                }
            }
        }
        unreachable!("it does not come to rest");
    }

    /// One event of a watch; false where there is none.
    fn deliver(&mut self, of: Told) -> bool {
        let (kind, index) = match of {
            Told::Parents => (&self.parent_kind, &mut self.parents),
            Told::Children => (&self.child_kind, &mut self.children),
            Told::Settings => (&self.setting_kind, &mut self.settings),
            Told::Revisions => (&self.revision_kind, &mut self.revisions),
        };
        let Some(event) = self.cluster.next_event(kind) else { return false };
        let touched = index.apply(event);
        self.trigger(&touched, of, None);
        true
    }

    fn trigger(&mut self, touched: &[ObjectChange], of: Told, but: Option<&Key>) {
        for touched in touched {
            let keys = match of {
                Told::Parents => {
                    let selected = &mut Selected::default();
                    trigger::on_parent(touched, &self.config.selection, selected).into_iter().collect()
                }
                Told::Children | Told::Revisions => {
                    trigger::on_child(touched, &self.parents, None).into_iter().collect()
                }
                Told::Settings => self.interests.on_object(&self.setting_kind, touched, |_| None),
            };
            self.queue.extend(keys.into_iter().filter(|key| Some(key) != but));
        }
    }

    /// A reconcile of one parent, with the model in the place of the API server.
    fn pass(&mut self, key: &Key) {
        let Some(parent) = self.parents.get(key).and_then(CachedObject::whole).cloned() else {
            self.interests.remove(key);
            return self.settled.forget(key);
        };
        if self.saving == Saving::Nothing {
            self.settled.unsettle(key);
        }
        let is_paused = parent.annotations().get(PAUSED).is_some_and(|value| value == "true");
        let world = ModelWorld::new(self);
        let watched = Watched::new(&world);
        let report = at_once(reconcile(&watched, parent, Start::default()));
        let steps = watched.steps();
        check_order(&steps, &self.revision_kind);
        assert!(!is_paused || steps.is_empty(), "paused: {steps:?}");
        self.steps = steps;
        match report.result {
            Ok(Changed::Nothing) => {}
            Ok(_) => drop(self.queue.insert(key.clone())),
            Err(_) => {
                self.settled.fail(key, "Conflict");
                self.queue.insert(key.clone());
            }
        }
    }

    /// Carries out an operation for a parent; gives back the object.
    pub(crate) fn write(&mut self, op: &Op, parent: &Key) -> Result<Option<Arc<Object>>, Conflict> {
        let resource = &op.id().resource;
        let of = match () {
            () if *resource == self.parent_kind => Told::Parents,
            () if *resource == self.revision_kind => Told::Revisions,
            () => Told::Children,
        };
        let mut answer = None;
        for event in self.cluster.carry_out(op)? {
            if let CacheEvent::Wrote(object) = &event {
                answer = Some(Arc::clone(object));
            }
            let touched = match of {
                Told::Parents => self.parents.apply(event),
                Told::Revisions => self.revisions.apply(event),
                Told::Children | Told::Settings => self.children.apply(event),
            };
            self.trigger(&touched, of, Some(parent));
        }
        Ok(answer)
    }

    /// Reads a child that the cache holds by its metadata alone. What is gone is left to its event.
    pub(crate) fn read(&mut self, id: &ObjectId, parent: &Key) {
        self.reads += 1;
        let event = match self.cluster.get(id) {
            Some(now) => CacheEvent::Read(Arc::new(now)),
            None => CacheEvent::Missing(id.key.clone(), self.children.get(&id.key).unwrap().uid.clone()),
        };
        let touched = self.children.apply(event);
        self.trigger(&touched, Told::Children, Some(parent));
    }

    /// A hook that makes its children one after the other, each once the one before it is observed.
    pub(crate) fn call(&mut self, request: &[u8]) -> Vec<u8> {
        self.calls += 1;
        let request: Value = serde_json::from_slice(request).unwrap();
        let name = request["parent"]["metadata"]["name"].as_str().unwrap();
        let observed = request["children"]["ConfigMap.v1"].as_object().unwrap();
        let wanted = request["parent"]["spec"]["children"].as_u64().unwrap();
        // What does not roll would all be written each time that a parent wants another number.
        let of = self.config.kind.rolling().map(|_| wanted.to_string());
        let there = |child: u64| observed.contains_key(&format!("{name}-{child}"));
        let children: Vec<Value> = (0..wanted)
            .take_while(|child| *child == 0 || there(child - 1))
            .map(|child| {
                let metadata = json!({ "name": format!("{name}-{child}") });
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "wanted", "module": self.module.to_string(), "of": of}})
            })
            .collect();
        let texts: Vec<&Value> = observed.values().map(|child| &child["data"]["text"]).collect();
        let settings: Vec<&Value> =
            request["related"]["Secret.v1"].as_object().unwrap().values().map(|one| &one["data"]).collect();
        json!({"children": children, "status": {"texts": texts, "settings": settings, "seed": self.seed}})
            .to_string()
            .into_bytes()
    }
}

/// The order in which a crash at any point harms nothing: claims before the hook is asked, the hook before the plan, the plan
/// before what it writes; and of that, revisions first, then deletions of children, then their other writes, then the status.
fn check_order(steps: &[Step], revisions: &Resource) {
    let rank = |step: &Step| match step {
        Step::Finalizers => 0,
        Step::Related(_) | Step::Read(_) => 1,
        Step::Claimed(..) => 2,
        Step::Asked { is_older: false, .. } => 3,
        Step::Asked { is_older: true, .. } => 4,
        Step::RecordedDeletions => 5,
        Step::Planned { .. } => 6,
        Step::Wrote { id, .. } if *id.resource == *revisions => 7,
        Step::Wrote { verb: "delete", .. } => 8,
        Step::Wrote { verb: "status", .. } => 10,
        Step::Tried(_) | Step::Wrote { .. } => 9,
        Step::DeletedRelated(..) => 11,
    };
    let ranks: Vec<_> = steps.iter().map(rank).collect();
    assert!(ranks.is_sorted(), "out of order: {steps:?}");
}
