//! The server in small: stores fed by the model's watches, a queue, and the hook.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use metahook_core::api::common::UpdateMethod;
use metahook_core::api::hook::{HookVersion, PerHook};
use metahook_core::api::policy::BrakeLimits;
use metahook_core::api::selection::{Selection, SelectionRule};
use metahook_core::cache::Cache;
use metahook_core::children::deletion_brake::DeletionBrake;
use metahook_core::children::desired::ChildKind;
use metahook_core::children::write_history::WriteHistory;
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::reconcile::config::{ControllerConfig, HookConfig, KindConfig};
use metahook_core::reconcile::shown::ObservedBounds;
use metahook_core::reconcile::steps::Step;
use metahook_core::related;
use metahook_core::related::related_index::RelatedIndex;
use metahook_core::related::rule::{Finds, RuleScope};
use metahook_core::rollout::revisions::FieldPath;
use metahook_core::rollout::{RollingConfig, RollingKind};
use metahook_core::settled::{Purity, SettledParents};
use serde_json::{Value, json};

use crate::model::{Model, resource};

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
    pub(crate) child_kind: Arc<Resource>,
    pub(crate) setting_kind: Arc<Resource>,
    pub(crate) revision_kind: Arc<Resource>,
    pub(crate) parents: Cache,
    pub(crate) children: Cache,
    /// Children are held by their metadata, where this server did not make them.
    pub(crate) cuts: bool,
    /// Children that were read for it.
    pub(crate) reads: u64,
    pub(crate) settings: Cache,
    pub(crate) revisions: Cache,
    pub(crate) related_index: RelatedIndex,
    pub(crate) queue: BTreeSet<Key>,
    /// Steps of the last reconcile.
    pub(crate) steps: Vec<Step>,
    pub(crate) module: u8,
    pub(crate) write_histories: BTreeMap<Key, Arc<WriteHistory>>,
    pub(crate) brake: DeletionBrake,
}

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
            related_index: RelatedIndex::default(),
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

    pub(crate) fn child(&self, parent: u8, child: u8) -> ObjectId {
        ObjectId { resource: Arc::clone(&self.child_kind), key: Key::new("n", &format!("p{parent}-{child}")) }
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
