//! Laws of rolling updates, over a model cluster and random events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::api::ControllerKind;
use crate::api::common::UpdateMethod;
use crate::api::shown_secrets::ShownSecrets;
use crate::children::desired::{ChildKind, Desired, DesiredOptions, OwnerMark, UnmanagedPolicy, desired};
use crate::children::write_history::{PastWrites, WriteHistory};
use crate::children::{self, Op, Owner};
use crate::object::id::{ObjectId, Resource};
use crate::object::selector::Selector;
use crate::object::testing::{a, resource};
use crate::object::{ChildMap, Object};
use crate::rollout::revisions::{FieldPath, History};
use crate::rollout::step::{Progress, RevisionChildren, Step, StepInput};
use crate::rollout::{RollingConfig, RollingKind, record};

/// An event between two reconciles, or instead of one.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Image(u8),
    Scale(u8),
    /// A user deletes a child.
    Gone(u8),
    /// The children's own controller makes its children ready, or does not.
    Ready(bool),
    Pass,
    /// A reconcile that ends after so many writes.
    Crash(u8),
    /// The revisions are listed in another order.
    Shuffle,
}

struct Cluster {
    image: u8,
    replicas: u8,
    method: UpdateMethod,
    children: BTreeMap<String, Arc<Object>>,
    revisions: Vec<Arc<Object>>,
    works: bool,
    versions: u64,
}

fn pods() -> Arc<Resource> {
    resource("v1", "Pod")
}

fn image(object: &Object) -> u64 {
    object.value().unwrap()["spec"]["image"].as_u64().unwrap()
}

impl Cluster {
    fn new(method: UpdateMethod) -> Self {
        let (children, revisions) = (BTreeMap::new(), Vec::new());
        Self { image: 0, replicas: 3, method, children, revisions, works: true, versions: 0 }
    }

    fn rolling(&self) -> RollingConfig {
        let checks = serde_json::from_value(json!([{"type": "Ready", "status": "True"}])).unwrap();
        let in_place = self.method == UpdateMethod::RollingInPlace;
        // The number of children is no part of a revision.
        RollingConfig {
            paths: vec![FieldPath::new("spec.image")],
            kinds: vec![RollingKind { resource: pods(), in_place, checks }],
            parents: resource("e/v1", "P"),
            revisions: resource("metacontroller.k8s.io/v1alpha1", "ControllerRevision"),
            home: "server".into(),
        }
    }

    fn parent(&self) -> Arc<Object> {
        a("e/v1", "P", "n/p")
            .uid("p")
            .with("spec", json!({"image": self.image, "replicas": self.replicas}))
            .object()
    }

    /// As many Pods as the parent asks for, with its image.
    fn hook(&self, parent: &Object) -> (Desired, Vec<ObjectId>) {
        let spec = parent.value().unwrap()["spec"].clone();
        let pods: Vec<_> = (0..spec["replicas"].as_u64().unwrap())
            .map(|nth| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": nth.to_string()}, "spec": {"image": spec["image"]}}))
            .map(|pod| pod.as_object().unwrap().clone())
            .collect();
        let (rules, selector) = (self.rules(), Selector::equals("controller-uid", "p"));
        let (selector, unmanaged) = (Some(&selector), UnmanagedPolicy::Refused);
        let bounds = DesiredOptions {
            child_kinds: &rules,
            secrets: &ShownSecrets::All,
            selector,
            mark: OwnerMark::Uid,
            unmanaged,
        };
        let wanted = desired(parent, bounds, pods).unwrap();
        (wanted.desired, wanted.sequence)
    }

    fn rules(&self) -> Vec<ChildKind> {
        vec![ChildKind::new(pods(), self.method)]
    }

    fn decide(&self) -> (Step, Vec<Op>, Vec<Op>) {
        let (parent, rolling) = (self.parent(), self.rolling());
        let history = History::of(&rolling, &parent, &self.revisions).unwrap();
        let (latest, sequence) = self.hook(&history.latest.parent);
        let then: Vec<_> = history.older.iter().map(|older| self.hook(&older.parent).0).collect();
        let mut observed = ChildMap::default();
        self.children.values().for_each(|child| observed.insert(&pods(), Arc::clone(child)));
        let older: Vec<_> = history.older.iter().zip(&then).collect();
        let older: Vec<_> = older
            .iter()
            .map(|(older, desired)| RevisionChildren { claims: &older.claims, desired })
            .collect();
        let step = StepInput {
            rolling: &rolling,
            observed: &observed,
            latest: RevisionChildren { claims: &history.latest.claims, desired: &latest },
            sequence: &sequence,
            older: &older,
            up_to_date: &|_, child, wanted| wanted["spec"]["image"] == image(child),
        }
        .step();
        let rules = self.rules();
        let owner = Owner {
            parent: &parent,
            kind: ControllerKind::Composite,
            controller: "c",
            child_kinds: &rules,
            hash_secrets: false,
        };
        let writes = record::writes(&rolling, owner, true, &history, &step.claims);
        let past = PastWrites { history: &WriteHistory::default(), now: Duration::ZERO };
        let plan = children::plan::children(owner, &observed, &step.desired, past);
        (step, writes, plan.ops)
    }

    fn pass(&mut self, most: usize) -> Step {
        let (step, writes, ops) = self.decide();
        for op in writes.into_iter().chain(ops).take(most) {
            self.carry_out(&op);
        }
        if self.works {
            let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            for child in self.children.values_mut() {
                let mut value = child.value().unwrap();
                value["status"] = ready.clone();
                *child = Arc::new(Object::parse(&value.to_string(), None).unwrap());
            }
        }
        step
    }

    fn carry_out(&mut self, op: &Op) {
        self.versions += 1;
        let name = op.id().key.name.to_string();
        let made = |body: &Value, version: u64| {
            let mut body = body.clone();
            body["metadata"]["uid"] = json!(version.to_string());
            body["metadata"]["resourceVersion"] = json!(version.to_string());
            Arc::new(Object::parse(&body.to_string(), None).unwrap())
        };
        let object = match op {
            Op::Create { body, .. } | Op::Recreate { body, .. } => Some(made(body, self.versions)),
            Op::Replace { body, .. } => {
                // What was in order need not be so any longer.
                let mut body = body.clone();
                body["status"] = json!({});
                Some(made(&body, self.versions))
            }
            _ => None,
        };
        if op.id().resource == pods() {
            self.children.remove(&name);
            self.children.extend(object.map(|object| (name, object)));
        } else {
            self.revisions.retain(|revision| *revision.key.name != *name);
            self.revisions.extend(object);
        }
    }

    fn does(&mut self, deed: Deed) -> Result<(), TestCaseError> {
        match deed {
            Deed::Image(image) => self.image = image,
            Deed::Scale(replicas) => self.replicas = replicas,
            Deed::Gone(nth) => drop(self.children.remove(&nth.to_string())),
            Deed::Ready(works) => self.works = works,
            Deed::Shuffle => self.revisions.reverse(),
            Deed::Pass => {
                self.observed_pass(usize::MAX)?;
                self.claims_are_whole()?;
            }
            Deed::Crash(most) => drop(self.observed_pass(most.into())?),
        }
        Ok(())
    }

    /// A reconcile, and what holds of every one: one child at most goes to a revision that did not claim it before.
    fn observed_pass(&mut self, most: usize) -> Result<Step, TestCaseError> {
        let (before, claimed) = (self.children.clone(), self.claimed());
        let mut other = Self { revisions: self.revisions.clone(), children: before.clone(), ..*self };
        other.revisions.reverse();
        prop_assert_eq!(self.decide(), other.decide(), "the order of the revisions says nothing");
        let step = self.pass(most);
        let moved = before.iter().filter(|(name, then)| {
            let states: Vec<_> =
                claimed.iter().filter(|(of, _)| of == *name).map(|(_, image)| *image).collect();
            let now = self.children.get(*name).map_or(image(then), |now| image(now));
            now != image(then) && !states.is_empty() && !states.contains(&now)
        });
        let most = usize::from(matches!(step.progress, Progress::Moved(_)));
        prop_assert!(moved.count() <= most, "{:?}", step.progress);
        Ok(step)
    }

    /// The children that revisions claim, with the image that they are to have.
    fn claimed(&self) -> Vec<(String, u64)> {
        let mut claimed = Vec::new();
        for revision in self.revisions.iter().map(|revision| revision.value().unwrap()) {
            let names = revision.pointer("/children/0/names").and_then(Value::as_array).cloned();
            for name in names.unwrap_or_default() {
                let image = revision["parentPatch"]["spec"]["image"].as_u64().unwrap();
                claimed.push((name.as_str().unwrap().to_owned(), image));
            }
        }
        claimed.sort();
        claimed
    }

    /// Every child is claimed by one revision.
    fn claims_are_whole(&self) -> Result<(), TestCaseError> {
        let names: Vec<_> = self.claimed().into_iter().map(|(name, _)| name).collect();
        let all: Vec<_> = (0..self.replicas).map(|nth| nth.to_string()).collect();
        prop_assert_eq!(names, all);
        Ok(())
    }
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        2 => (0..3_u8).prop_map(Deed::Image),
        2 => (0..5_u8).prop_map(Deed::Scale),
        1 => (0..5_u8).prop_map(Deed::Gone),
        2 => any::<bool>().prop_map(Deed::Ready),
        1 => Just(Deed::Shuffle),
        6 => Just(Deed::Pass),
        2 => (0..4_u8).prop_map(Deed::Crash),
    ];
    prop::collection::vec(deed, 0..40)
}

fn methods() -> impl Strategy<Value = UpdateMethod> {
    prop_oneof![Just(UpdateMethod::RollingRecreate), Just(UpdateMethod::RollingInPlace)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn one_child_at_a_time_and_in_the_end_all(deeds in deeds(), method in methods()) {
        let mut cluster = Cluster::new(method);
        for deed in deeds {
            cluster.does(deed)?;
        }
        // Where all children are ready, each reconcile moves one child, and the last one finds that none is left.
        cluster.works = true;
        for _ in 0..cluster.replicas + 3 {
            cluster.does(Deed::Pass)?;
        }
        let (step, writes, ops) = cluster.decide();
        prop_assert_eq!((step.progress, writes, ops), (Progress::Done, vec![], vec![]));
        prop_assert_eq!(cluster.revisions.len(), 1);
        prop_assert!(cluster.children.values().all(|child| image(child) == u64::from(cluster.image)));
        prop_assert_eq!(cluster.children.len(), usize::from(cluster.replicas));
    }

    #[test]
    fn no_child_moves_while_one_is_not_ready(method in methods(), replicas in 2..6_u8, passes in 1..10) {
        let mut cluster = Cluster { replicas, ..Cluster::new(method) };
        cluster.pass(usize::MAX);
        (cluster.image, cluster.works) = (1, false);
        for _ in 0..passes {
            cluster.does(Deed::Pass)?;
        }
        prop_assert_eq!(cluster.children.values().filter(|child| image(child) == 1).count(), 1);
    }
}

#[test]
fn a_rollout_of_n_children_takes_n_moves() {
    let mut cluster = Cluster { replicas: 4, ..Cluster::new(UpdateMethod::RollingRecreate) };
    cluster.pass(usize::MAX);
    cluster.image = 1;
    let moved: Vec<_> = std::iter::from_fn(|| match cluster.pass(usize::MAX).progress {
        Progress::Moved(child) => Some(child.key.name.to_string()),
        Progress::Done | Progress::Waits(..) => None,
    })
    .collect();
    assert_eq!(moved, ["0", "1", "2", "3"]);
    assert_eq!(cluster.revisions.len(), 1);
}
