//! The server in small: stores fed by the model's watches, a queue, and passes made of the core's decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::common::UpdateMethod;
use metahook_core::api::hook::{HookName, HookVersion, PerHook};
use metahook_core::api::selection::{Selection, SelectionRule};
use metahook_core::cache::trigger::{self, Selected};
use metahook_core::cache::{Cache, CacheEvent, ObjectChange};
use metahook_core::children::Op;
use metahook_core::children::claims::{Claim, owner_reference, renew};
use metahook_core::children::desired::ChildKind;
use metahook_core::children::plan::{DryRunResult, DryRunVerdict, judge, learn};
use metahook_core::children::write_history::{PastWrites, WriteHistory};
use metahook_core::hash::Fingerprint;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::object::selector::{Selector, UID_LABEL};
use metahook_core::object::{ChildMap, Object};
use metahook_core::reconcile::config::{ControllerConfig, HookConfig, KindConfig};
use metahook_core::reconcile::input::{InputParts, ReconcileInput};
use metahook_core::reconcile::outcome::{StatusTiming, WrittenSoFar};
use metahook_core::reconcile::plan::Answers;
use metahook_core::reconcile::shown::ObservedBounds;
use metahook_core::reconcile::{Phase, phase};
use metahook_core::related;
use metahook_core::related::related_index::RelatedIndex;
use metahook_core::related::rule::{Finds, Place};
use metahook_core::rollout::revisions::FieldPath;
use metahook_core::rollout::{RollingConfig, RollingKind};
use metahook_core::settled::{CacheRevision, HookNeed, Purity, SettledParents, SettledState};
use serde_json::{Value, json};

use crate::model::{Conflict, Model, object, resource};

/// What happens in the cluster or in the server.
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
    /// What hooks are shown besides their children: for one parent, or gone.
    Setting {
        setting: u8,
        parent: Option<u8>,
        data: u8,
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
    /// What the hook's random numbers are made of.
    pub(crate) seed: u8,
    saving: Saving,
    pub(crate) config: ControllerConfig,
    parent_kind: Arc<Resource>,
    child_kind: Arc<Resource>,
    pub(crate) setting_kind: Arc<Resource>,
    pub(crate) revision_kind: Arc<Resource>,
    parents: Cache,
    children: Cache,
    /// Children are held by their metadata, where this server did not make them.
    cuts: bool,
    /// Children that were read for it.
    pub(crate) reads: u64,
    pub(crate) settings: Cache,
    pub(crate) revisions: Cache,
    pub(crate) interests: RelatedIndex,
    queue: BTreeSet<Key>,
    module: u8,
    write_histories: BTreeMap<Key, WriteHistory>,
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
                    customize: None,
                },
                max_children: 100,
                observed: ObservedBounds::default(),
                deletions: vec![],
                related_kinds: metahook_core::api::customize::RelatedKinds::ByAccount,
                shown_secrets: metahook_core::api::shown_secrets::ShownSecrets::All,
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
            module: 0,
            write_histories: BTreeMap::new(),
        }
    }

    /// The same server, which holds children that it did not write by their metadata alone.
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

    /// Works everything off, and looks at every parent once more.
    pub(crate) fn comes_to_rest(&mut self) {
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

    /// What a customize hook would ask for: settings by label, and one by a name that follows from the spec.
    pub(crate) fn asks_for(&self, parent: &Object) -> Vec<related::rule::RelatedRule> {
        let name = format!("s{}", parent.value().unwrap()["spec"]["children"]);
        let of = |finds| related::rule::RelatedRule { resource: Arc::clone(&self.setting_kind), finds };
        let names = [name.into()].into_iter().collect();
        vec![
            of(Finds::Labels { place: Place::Anywhere, labels: Selector::equals("for", &parent.key.name) }),
            of(Finds::Names { namespace: Some("n".into()), names }),
        ]
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

    /// The pass of `controller::composite`, with the model in the place of the API server.
    fn pass(&mut self, key: &Key) {
        let Some(parent) = self.parents.get(key).and_then(CachedObject::whole).cloned() else {
            self.interests.remove(key);
            return self.settled.forget(key);
        };
        assert_eq!(phase(&parent, &self.config.selection), Phase::Ask(HookName::Sync));
        let hook = Fingerprint::of(&[self.module]);
        let (related, rollout) = self.relate(&parent);
        let candidates =
            |_: &Arc<Resource>, selector: Option<&_>| self.children.candidates(&parent.uid, "n", selector);
        let parts =
            InputParts { hook: HookName::Sync, hooks: hook, related, rollout, older_decorators: None };
        let revision = CacheRevision::of(&parent, hook, None, self.children.changes_for(&parent.uid));
        let input = ReconcileInput::of(&self.config, &parent, parts, candidates).unwrap();
        let unread = input.unread().map(|one| (Arc::clone(&one.resource), one.object.key.clone()));
        let unread: Vec<_> = unread.collect();
        if !unread.is_empty() {
            self.read(unread, key);
            return self.pass(key);
        }
        let print = match self.saving {
            Saving::Forgetful => Fingerprint::of(parent.version.as_str().as_bytes()),
            Saving::Nothing | Saving::Settling | Saving::Checking => input.fingerprint(),
        };
        let expected = match self.settled.hook_need(key, print) {
            HookNeed::Nothing if self.saving != Saving::Nothing => return,
            HookNeed::Nothing | HookNeed::Call => None,
            HookNeed::Check(expected) => Some(expected),
        };
        match self.decide_and_act(&input, expected) {
            Ok((false, answer)) => self.settled.settle(key, SettledState { seen: print, answer, revision }),
            Ok((true, _)) => {
                self.settled.unsettle(key);
                self.queue.insert(key.clone());
            }
            Err(Conflict) => {
                self.settled.fail(key, "Conflict");
                self.queue.insert(key.clone());
            }
        }
    }

    fn decide_and_act(
        &mut self,
        input: &ReconcileInput,
        expected: Option<Fingerprint>,
    ) -> Result<(bool, Fingerprint), Conflict> {
        let (children, mut wrote) = self.claim(input)?;
        let answer = self.call(&input.request(&self.config, input.state(), &children).unwrap());
        let older = self.call_about_older(input, &children);
        let print = Fingerprint::of(&[&answer[..], &older.concat()].concat());
        self.settled.called(input.hooks, true);
        if expected.is_some_and(|expected| expected != print) {
            self.settled.differed(input.hooks);
        }
        let mut history = self.write_histories.remove(&input.parent.key).unwrap_or_default();
        let older: Vec<_> = older.iter().map(|answer| Ok(answer.as_slice())).collect();
        let answers = Answers { latest: &answer, older: &older };
        let past = PastWrites { history: &history, now: Duration::ZERO };
        let plan = self.config.plan(input, &children, answers, past).unwrap();
        for op in &plan.revisions {
            if let Err(conflict) = self.write(op, &input.parent.key) {
                self.write_histories.insert(input.parent.key.clone(), history);
                return Err(conflict);
            }
            wrote = true;
        }
        let (mut result, mut wrote_children) = (Ok(()), false);
        for op in plan.children.ops {
            let Some(op) = judged(op, &children) else { continue };
            match self.write(&op, &input.parent.key) {
                Ok(answer) => {
                    wrote_children = true;
                    let desired =
                        plan.desired.get(&op.id().resource).and_then(|group| group.get(&op.id().key));
                    if let (Some(answer), Some(desired)) = (answer, desired) {
                        learn(&mut history, self.config.owner(&input.parent), op.id(), desired, &answer);
                    }
                }
                Err(conflict) => result = Err(conflict),
            }
        }
        self.write_histories.insert(input.parent.key.clone(), history);
        wrote |= wrote_children;
        let due = self.settled.take_status_due(&input.parent.key);
        let so_far = WrittenSoFar { wrote_children, failed: result.is_err(), due };
        if metahook_core::reconcile::outcome::status_timing(&input.parent, so_far)
            == StatusTiming::NextReconcile
        {
            self.settled.put_off_status(&input.parent.key);
            return Ok((true, print));
        }
        let now = self.parents.get(&input.parent.key).filter(|now| now.uid == input.parent.uid);
        if let Some(body) = now.and_then(CachedObject::whole).cloned().and_then(|now| {
            metahook_core::decorator::status(&now, plan.decoration.status.unwrap_or_default())
        }) {
            let id = ObjectId { resource: Arc::clone(&self.parent_kind), key: input.parent.key.clone() };
            self.write(&Op::Status { id, body }, &input.parent.key)?;
            wrote = true;
        }
        result.map(|()| (wrote, print))
    }

    fn claim(&mut self, input: &ReconcileInput) -> Result<(ChildMap, bool), Conflict> {
        let (mut children, mut wrote) = (self.config.no_children(), false);
        for claimed in &input.claims {
            let id = ObjectId { resource: Arc::clone(&claimed.resource), key: claimed.object.key.clone() };
            let Some(object) =
                claimed.object.whole().cloned().or_else(|| self.cluster.get(&id).map(Arc::new))
            else {
                continue;
            };
            let mut body = object.value().unwrap();
            body["metadata"]["ownerReferences"] = match claimed.claim {
                Claim::Adopt => json!([owner_reference(&input.parent)]),
                Claim::Release => json!([]),
                Claim::Renew => {
                    renew(&mut body, &input.parent);
                    body["metadata"]["ownerReferences"].take()
                }
                Claim::Keep | Claim::Leave => {
                    children.insert(&claimed.resource, Arc::clone(&object));
                    continue;
                }
            };
            if claimed.claim == Claim::Renew {
                children.insert(&claimed.resource, Arc::clone(&object));
            }
            if claimed.claim == Claim::Adopt {
                // The parent in the store may be gone.
                let id = ObjectId { resource: Arc::clone(&self.parent_kind), key: input.parent.key.clone() };
                self.cluster.get(&id).filter(|now| now.uid == input.parent.uid).ok_or(Conflict)?;
                children.insert(&claimed.resource, Arc::clone(&object));
            }
            self.write(&Op::Replace { id, body }, &input.parent.key)?;
            wrote = true;
        }
        Ok((children, wrote))
    }

    /// Reads what the cache holds by its metadata alone. What is gone is left to its event.
    fn read(&mut self, unread: Vec<(Arc<Resource>, Key)>, parent: &Key) {
        for (resource, key) in unread {
            self.reads += 1;
            let id = ObjectId { resource, key: key.clone() };
            let event = match self.cluster.get(&id) {
                Some(now) => CacheEvent::Read(Arc::new(now)),
                None => CacheEvent::Missing(key.clone(), self.children.get(&key).unwrap().uid.clone()),
            };
            let touched = self.children.apply(event);
            self.trigger(&touched, Told::Children, Some(parent));
        }
    }

    fn write(&mut self, op: &Op, parent: &Key) -> Result<Option<Arc<Object>>, Conflict> {
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

/// What is left of an operation after its dry run. The model keeps what it is given: what a dry run shows is what is
/// written.
fn judged(op: Op, children: &ChildMap) -> Option<Op> {
    let Op::Probe { write, otherwise } = op else { return Some(op) };
    let id = write.id();
    let Op::Replace { body, .. } = write.as_ref() else { unreachable!("dynamic apply") };
    let now = children.get(&id.resource, &id.key).unwrap();
    let probed = DryRunResult::Becomes(Box::new(object(body)));
    match judge((*write.clone(), *otherwise), now, &probed, &WriteHistory::default()).unwrap() {
        DryRunVerdict::Do(op) => Some(op),
        DryRunVerdict::AsItIs | DryRunVerdict::Unknown => None,
    }
}
