//! Knows a cluster in small, in which the hooks run: views that lag behind, writes that conflict, a server that dies
//! anywhere.

use std::collections::{BTreeMap, BTreeSet};

use metahook_sdk::testing::{Answer, Request};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{DUE, MATCH, PODS, SEEN, customize, sync};

type Uid = usize;

#[derive(Debug, Clone, Default)]
struct Pod {
    /// Whether the selector of the `ConfigMap` finds it.
    matches: bool,
    finalizer: bool,
    deleting: bool,
    born: usize,
}

#[derive(Debug, Clone, Default)]
struct State {
    data: usize,
    annotations: BTreeMap<String, String>,
    pods: BTreeMap<Uid, Pod>,
    /// When the `ConfigMap` was written last.
    version: usize,
}

/// Which write of its life the server dies at, and whether the API server still gets it.
#[derive(Debug, Clone, Copy)]
enum Death {
    Before(usize),
    After(usize),
}

struct Died;

impl State {
    fn forget(&mut self, uid: Uid) {
        self.pods.remove(&uid);
    }
}

/// Each state there was; the last one is now. A time is a place in it.
struct Cluster {
    states: Vec<State>,
    replicas: usize,
    born: Uid,
    /// Versions that the server has at least seen, of the `ConfigMap` and of Pods.
    seen: (usize, usize),
    writes: usize,
    death: Option<Death>,
    /// Each Pod whose deletion the server brought about, and when it noted these Pods.
    deleted: BTreeMap<Uid, usize>,
    noted: usize,
    changed: usize,
}

impl Cluster {
    /// A `ConfigMap` that was seen, and Pods of which one does not match.
    fn new(replicas: usize) -> Self {
        let annotations = BTreeMap::from([(MATCH.to_owned(), "app=frontend".to_owned())]);
        let mut cluster = Self {
            states: vec![State { annotations, ..State::default() }],
            replicas,
            born: 0,
            seen: (0, 0),
            writes: 0,
            death: None,
            deleted: BTreeMap::new(),
            noted: 0,
            changed: 0,
        };
        cluster.make_pod(false);
        cluster.make_pods();
        cluster.rest();
        assert!(cluster.deleted.is_empty(), "the first sight restarts nothing");
        cluster.writes = 0;
        cluster
    }

    fn now(&self) -> usize {
        self.states.len() - 1
    }

    fn state(&self) -> &State {
        &self.states[self.now()]
    }

    fn edit(&mut self, edit: impl FnOnce(&mut State, usize)) {
        let mut state = self.state().clone();
        edit(&mut state, self.states.len());
        self.states.push(state);
    }

    fn change(&mut self) {
        self.edit(|state, now| (state.data, state.version) = (state.data + 1, now));
        self.changed = self.now();
    }

    fn make_pod(&mut self, matches: bool) {
        self.born += 1;
        let (uid, finalizer) = (self.born, self.born.is_multiple_of(3));
        self.edit(|state, now| {
            state.pods.insert(uid, Pod { matches, finalizer, deleting: false, born: now });
        });
    }

    /// The `ReplicaSet`'s part.
    fn make_pods(&mut self) {
        while self.live().len() < self.replicas {
            self.make_pod(true);
        }
    }

    fn live(&self) -> BTreeSet<Uid> {
        let all = self.state().pods.iter();
        all.filter(|(_, pod)| pod.matches && !pod.deleting).map(|(&uid, _)| uid).collect()
    }

    /// Another client deletes a Pod, and a new one replaces it.
    fn replace(&mut self) {
        if let Some(uid) = self.live().first().copied() {
            self.edit(|state, _| state.forget(uid));
        }
        self.make_pods();
    }

    /// A Pod that waited for its restart is gone.
    fn release(&mut self) {
        let first = self.state().pods.iter().find(|(_, pod)| pod.deleting).map(|(&uid, _)| uid);
        if let Some(uid) = first {
            self.edit(|state, _| state.forget(uid));
        }
    }

    /// Counts a write and does it, unless the server dies first.
    fn write(&mut self, done: impl FnOnce(&mut Self)) -> Result<(), Died> {
        self.writes += 1;
        match self.death {
            Some(Death::Before(at)) if at == self.writes => Err(Died),
            Some(Death::After(at)) if at == self.writes => {
                done(self);
                Err(Died)
            }
            Some(_) | None => {
                done(self);
                Ok(())
            }
        }
    }

    /// One pass; whether it wrote anything. What it sees is so many states old, but never older than what it has seen.
    fn pass(&mut self, lag: (usize, usize)) -> Result<bool, Died> {
        let now = self.now();
        let seen = (self.seen.0.max(now.saturating_sub(lag.0)), self.seen.1.max(now.saturating_sub(lag.1)));
        self.seen = seen;
        let (map, pods) = (self.states[seen.0].clone(), self.states[seen.1].pods.clone());
        let answer = asked(&map, &pods);
        let mut annotations = map.annotations.clone();
        for (key, value) in &answer.annotations {
            match value {
                Value::String(value) => drop(annotations.insert(key.clone(), value.clone())),
                _ => drop(annotations.remove(key)),
            }
        }
        let writes = self.writes;
        if annotations != map.annotations {
            self.write(|cluster| cluster.put(map.version, annotations))?;
            // An assumption: what there was when the pass began has been heard of by the time its write is answered. Where
            // Pods are told of later than that, one that was made just before the change stays; the README says so.
            self.seen.1 = self.seen.1.max(now);
        }
        for pod in &answer.delete_related {
            let uid: Uid = pod["uid"].as_str().unwrap().parse().unwrap();
            assert!(!self.states[seen.1].pods[&uid].deleting, "a Pod that is being deleted is deleted again");
            self.write(|cluster| cluster.delete(uid))?;
        }
        Ok(self.writes > writes)
    }

    fn put(&mut self, version: usize, annotations: BTreeMap<String, String>) {
        if self.state().version != version {
            return; // a conflict
        }
        let noted = annotations.get(PODS).is_some_and(|pods| pods != DUE);
        self.edit(|state, now| (state.annotations, state.version) = (annotations, now));
        self.seen.0 = self.now();
        if noted {
            self.noted = self.now();
        }
    }

    fn delete(&mut self, uid: Uid) {
        let Some(pod) = self.state().pods.get(&uid).cloned() else {
            return;
        };
        if pod.deleting {
            return;
        }
        assert!(pod.matches, "Pod {uid} does not match");
        assert!(pod.born < self.noted, "Pod {uid} was made after the change was noted");
        assert!(self.deleted.insert(uid, self.noted).is_none(), "Pod {uid} was deleted twice");
        self.edit(|state, _| {
            if pod.finalizer {
                state.pods.insert(uid, Pod { deleting: true, ..pod });
            } else {
                state.forget(uid);
            }
        });
    }

    /// Passes as they come after each other until nothing is left to do; after a death another server goes on.
    fn rest(&mut self) {
        for _ in 0..100 {
            match self.pass((0, 0)) {
                Ok(false) => return,
                Ok(true) => {}
                Err(Died) => self.start(),
            }
            self.make_pods();
        }
        panic!("it never rests: {:?}", self.state());
    }

    /// Another server lists everything.
    fn start(&mut self) {
        (self.death, self.seen) = (None, (self.now(), self.now()));
    }
}

/// Answer of the hooks about this `ConfigMap`, with the Pods that they asked for.
fn asked(map: &State, pods: &BTreeMap<Uid, Pod>) -> Answer {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "c", "namespace": "n", "uid": "m", "annotations": map.annotations },
        "data": { "text": map.data.to_string() },
    });
    let rules = Request::of(object.clone()).call(customize).unwrap().related_resources;
    let mut request = Request::decorating(object).v2();
    for (uid, pod) in pods.iter().filter(|(_, pod)| pod.matches && !rules.is_empty()) {
        let mut metadata = json!({ "name": format!("p{uid}"), "namespace": "n", "uid": uid.to_string() });
        if pod.deleting {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        request = request.related(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata }));
    }
    request.call(sync).unwrap()
}

#[test]
fn a_change_deletes_each_pod_once_wherever_the_server_dies() {
    const PODS: usize = 8;
    let mut undisturbed = Cluster::new(PODS);
    undisturbed.change();
    undisturbed.rest();
    let writes = undisturbed.writes;
    assert_eq!(writes, PODS + 3, "noticed, noted, each Pod, over");
    let deaths = (1..=writes).flat_map(|at| [Death::Before(at), Death::After(at)]);
    for death in deaths {
        let mut cluster = Cluster::new(PODS);
        let there = cluster.live();
        cluster.death = Some(death);
        cluster.change();
        cluster.rest();
        assert!(cluster.death.is_none(), "{death:?} never came");
        assert_eq!(cluster.deleted.into_keys().collect::<BTreeSet<_>>(), there, "{death:?}");
    }
}

#[derive(Debug, Clone)]
enum Act {
    Change,
    MakePods,
    Replace,
    Release,
    Pass { lag: (usize, usize), death: Option<(usize, bool)> },
}

fn act() -> impl Strategy<Value = Act> {
    let death = prop_oneof![3 => Just(None), 1 => (1..4_usize, any::<bool>()).prop_map(Some)];
    prop_oneof![
        1 => Just(Act::Change),
        1 => Just(Act::MakePods),
        1 => Just(Act::Replace),
        1 => Just(Act::Release),
        4 => ((0..6_usize, 0..6_usize), death).prop_map(|(lag, death)| Act::Pass { lag, death }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Events that must never happen on the way are asserted where they would.
    #[test]
    fn in_the_end_every_pod_is_newer_than_the_last_change(acts in prop::collection::vec(act(), 0..40), replicas in 0..5_usize) {
        let mut cluster = Cluster::new(replicas);
        for act in &acts {
            match act {
                Act::Change => cluster.change(),
                Act::MakePods => cluster.make_pods(),
                Act::Replace => cluster.replace(),
                Act::Release => cluster.release(),
                Act::Pass { lag, death } => {
                    cluster.death = death.map(|(at, after)| {
                        let at = cluster.writes + at;
                        if after { Death::After(at) } else { Death::Before(at) }
                    });
                    if cluster.pass(*lag).is_err() {
                        cluster.start();
                    }
                    cluster.death = None;
                }
            }
        }
        cluster.rest();
        let old: Vec<_> = cluster.live().into_iter().filter(|uid| cluster.state().pods[uid].born < cluster.changed).collect();
        prop_assert!(old.is_empty(), "{old:?} are older than the last change");
        prop_assert!(cluster.state().annotations.contains_key(SEEN) && !cluster.state().annotations.contains_key(PODS));
        prop_assert!(cluster.changed > 0 || cluster.deleted.is_empty());
    }
}
