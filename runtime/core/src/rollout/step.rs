//! One step of a rolling update: claims put in order, at most one of them moved, and what is wanted of each child then.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::api::reason::ConditionType;
use crate::children::desired::Desired;
use crate::object::id::{Key, ObjectId};
use crate::object::{ChildMap, Object};
use crate::rollout::{Claims, NotReady, RollingConfig, check_readiness, child_name};

/// A revision's children as they are claimed, and as its hook wants them.
#[derive(Debug, Clone, Copy)]
pub struct RevisionChildren<'a> {
    pub claims: &'a Claims,
    pub desired: &'a Desired,
}

/// Input from which a step is decided.
pub struct StepInput<'a> {
    pub rolling: &'a RollingConfig,
    pub observed: &'a ChildMap,
    pub latest: RevisionChildren<'a>,
    /// Children that the latest revision wants, in the order of the answer: they move in this one.
    pub sequence: &'a [ObjectId],
    pub older: &'a [RevisionChildren<'a>],
    /// Whether a child is what is wanted of it: applying that would change nothing.
    pub up_to_date: &'a dyn Fn(&ObjectId, &Object, &Value) -> bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Children that each revision claims now: the latest first, then as they were given.
    pub claims: Vec<Claims>,
    pub progress: Progress,
    /// Desired children, each at the revision that it is at.
    pub desired: Desired,
    /// Children that the revision they are at does not want any longer: they stay as they are until it is their turn.
    pub held: Claims,
}

/// How far a rolling update has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Every child is at the latest revision.
    Done,
    /// This child was moved to it.
    Moved(ObjectId),
    /// No child is moved as long as this one is not in order.
    Waits(ObjectId, NotReady),
}

impl StepInput<'_> {
    /// # Guarantees
    /// Every child of a rolling kind that the latest revision wants is claimed by exactly one revision. At most one child
    /// is moved that applying the latest revision would change, and none while a child is not ready. Which child was where
    /// is read from the claims alone, so that a step can be repeated.
    pub fn step(&self) -> Step {
        let mut claims = self.cleaned();
        let next = self.settle(&mut claims);
        let progress = match (next, self.first_not_ready(claims.first())) {
            (None, _) => Progress::Done,
            (Some(_), Some((child, blocked))) => Progress::Waits(child, blocked),
            (Some(next), None) => {
                give_to_latest(&mut claims, &next);
                Progress::Moved(next)
            }
        };
        let (desired, held) = self.effective(&claims);
        Step { claims, progress, desired, held }
    }

    /// Each claim once, and only of what is wanted and rolling. Where several revisions claim a child, as after a crash
    /// between two writes, it is the latest's, else of one that it needs no change for.
    fn cleaned(&self) -> Vec<Claims> {
        let all: Vec<_> = std::iter::once(&self.latest).chain(self.older).collect();
        let mut cleaned = vec![Claims::new(); all.len()];
        for (id, _) in self.in_order() {
            let mut holders = (0..).zip(&all).filter(|(_, one)| one.claims.contains(&id));
            let as_wanted = |one: &RevisionChildren<'_>| {
                find(one.desired, &id).is_some_and(|then| self.is_up_to_date(&id, then))
            };
            let (first, second) = (holders.next(), holders.next());
            // The child is read once for each of several, and nearly always there is one.
            let holder = first
                .into_iter()
                .chain(second)
                .chain(holders)
                .find(|(nth, one)| *nth == 0 || second.is_none() || as_wanted(one))
                .or(first);
            if let Some(claims) = holder.and_then(|(nth, _)| cleaned.get_mut::<usize>(nth)) {
                claims.insert(id);
            }
        }
        cleaned
    }

    /// Gives the latest revision the children without a claim and those that are up to date; the first of the others is next.
    fn settle(&self, claims: &mut [Claims]) -> Option<ObjectId> {
        let mut next = None;
        for (id, wanted) in self.in_order() {
            match claims.iter().position(|claimed| claimed.contains(&id)) {
                Some(0) => {}
                Some(_) if !self.is_up_to_date(&id, wanted) => {
                    next.get_or_insert(id);
                }
                Some(_) | None => give_to_latest(claims, &id),
            }
        }
        next
    }

    /// The rolling children that the latest revision wants.
    fn in_order(&self) -> impl Iterator<Item = (ObjectId, &Value)> {
        let rank: BTreeMap<_, _> = self.sequence.iter().enumerate().map(|(nth, id)| (id, nth)).collect();
        let wanted = self.latest.desired.iter().filter(|(resource, _)| self.rolling.kind(resource).is_some());
        let mut all: Vec<_> = wanted
            .flat_map(|(resource, group)| {
                let id = |key: &Key| ObjectId { resource: Arc::clone(resource), key: key.clone() };
                group.iter().map(move |(key, wanted)| (id(key), wanted))
            })
            .collect();
        all.sort_by_key(|(id, _)| rank.get(id).copied().unwrap_or(usize::MAX));
        all.into_iter()
    }

    /// The first child that the latest revision claims and that is not in order.
    fn first_not_ready(&self, latest: Option<&Claims>) -> Option<(ObjectId, NotReady)> {
        latest.into_iter().flatten().find_map(|id| {
            let (kind, wanted) = (self.rolling.kind(&id.resource)?, find(self.latest.desired, id)?);
            let child = self.observed.get(&id.resource, &id.key).map(|child| &**child);
            let blocked = check_readiness(kind, child, |child| (self.up_to_date)(id, child, wanted)).err()?;
            Some((id.clone(), blocked))
        })
    }

    fn effective(&self, claims: &[Claims]) -> (Desired, Claims) {
        let (mut desired, mut held) = (self.latest.desired.clone(), Claims::new());
        for (claimed, revision) in claims.iter().skip(1).zip(self.older) {
            for id in claimed {
                let Some(group) = desired.get_mut(&id.resource) else {
                    continue;
                };
                if let Some(then) = find(revision.desired, id) {
                    group.insert(id.key.clone(), then.clone());
                } else {
                    group.remove(&id.key);
                    held.insert(id.clone());
                }
            }
        }
        (desired, held)
    }

    fn is_up_to_date(&self, id: &ObjectId, wanted: &Value) -> bool {
        let child = self.observed.get(&id.resource, &id.key);
        child.is_some_and(|child| (self.up_to_date)(id, child, wanted))
    }
}

fn give_to_latest(claims: &mut [Claims], id: &ObjectId) {
    for claimed in claims.iter_mut() {
        claimed.remove(id);
    }
    if let Some(latest) = claims.first_mut() {
        latest.insert(id.clone());
    }
}

fn find<'a>(desired: &'a Desired, id: &ObjectId) -> Option<&'a Value> {
    desired.get(&id.resource)?.get(&id.key)
}

impl Progress {
    /// The condition with this progress, in the status of a parent in `home`.
    pub fn condition(&self, home: &str, latest: &str) -> Value {
        let (status, reason, message) = match self {
            Self::Done => ("True", "OnLatestRevision", format!("latest ControllerRevision: {latest}")),
            Self::Moved(child) => {
                ("False", "RolloutProgressing", format!("updating {}", child_name(home, child)))
            }
            Self::Waits(child, blocked) => {
                ("False", "RolloutWaiting", format!("waiting for {}: {blocked}", child_name(home, child)))
            }
        };
        json!({"type": ConditionType::Updated.as_str(), "status": status, "reason": reason, "message": message})
    }

    /// Why the children of a parent in `home` that are at older revisions do not move in this step.
    pub fn why_others_wait(&self, home: &str) -> Option<String> {
        const TURN: &str = "it stays at an older revision until its turn in the rollout, which";
        match self {
            Self::Done => None,
            Self::Moved(child) => Some(format!("{TURN} moves {} now", child_name(home, child))),
            Self::Waits(child, not_ready) => {
                Some(format!("{TURN} waits for {}: {not_ready}", child_name(home, child)))
            }
        }
    }
}

/// Puts the condition into the status that a hook wants; one that the hook echoes is replaced. Conditions that are no list
/// are the hook's own affair.
pub fn put_condition(status: &mut Map<String, Value>, condition: Value) {
    let conditions = status.entry("conditions").or_insert(Value::Null);
    if conditions.is_null() {
        *conditions = json!([]);
    }
    if let Value::Array(conditions) = conditions {
        conditions
            .retain(|one| one.get("type").and_then(Value::as_str) != Some(ConditionType::Updated.as_str()));
        conditions.push(condition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::id::Key;
    use crate::object::testing::{Build, a, resource};
    use crate::rollout::RollingKind;
    use crate::rollout::revisions::FieldPath;

    fn pod(name: &str) -> ObjectId {
        ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", name) }
    }

    fn claims(names: &str) -> Claims {
        names.chars().map(|name| pod(&name.to_string())).collect()
    }

    fn rolling() -> RollingConfig {
        let checks = serde_json::from_value(json!([{"type": "Ready", "status": "True"}])).unwrap();
        let kind = RollingKind { resource: resource("v1", "Pod"), in_place: true, checks };
        RollingConfig {
            paths: vec![FieldPath::new("spec")],
            kinds: vec![kind],
            parents: resource("e/v1", "P"),
            revisions: resource("metacontroller.k8s.io/v1alpha1", "ControllerRevision"),
            home: "server".into(),
        }
    }

    /// Pods and a ConfigMap that are all at one state.
    fn desired(names: &str, image: &str) -> Desired {
        let mut desired = Desired::new();
        for name in names.chars() {
            let group = desired.entry(resource("v1", "Pod")).or_default();
            group.insert(Key::new("n", &name.to_string()), json!(image));
        }
        desired.entry(resource("v1", "ConfigMap")).or_default().insert(Key::new("n", "a"), json!(image));
        desired
    }

    fn child(name: &str, image: &str) -> Build {
        a("v1", "Pod", &format!("n/{name}"))
            .with("spec.image", json!(image))
            .with("status.conditions", json!([{"type": "Ready", "status": "True"}]))
    }

    /// The latest revision wants image 2, the only older one image 1.
    struct Case {
        latest: &'static str,
        older: &'static str,
        wanted: &'static str,
        wanted_then: &'static str,
        observed: Vec<Build>,
    }

    fn step(case: Case) -> Step {
        let mut observed = ChildMap::default();
        for child in case.observed {
            observed.insert(&resource("v1", "Pod"), child.object());
        }
        let (latest, older) = (claims(case.latest), claims(case.older));
        let (now, then) = (desired(case.wanted, "2"), desired(case.wanted_then, "1"));
        let sequence: Vec<_> = case.wanted.chars().map(|name| pod(&name.to_string())).collect();
        StepInput {
            rolling: &rolling(),
            observed: &observed,
            latest: RevisionChildren { claims: &latest, desired: &now },
            sequence: &sequence,
            older: &[RevisionChildren { claims: &older, desired: &then }],
            up_to_date: &|_, object, wanted| object.value().unwrap()["spec"]["image"] == *wanted,
        }
        .step()
    }

    fn images(step: &Step) -> Vec<String> {
        let pods = step.desired.get(&resource("v1", "Pod")).into_iter().flatten();
        pods.map(|(key, image)| format!("{}{}", key.name, image.as_str().unwrap())).collect()
    }

    fn usual() -> Case {
        let observed = vec![child("a", "1"), child("b", "1"), child("c", "1")];
        Case { latest: "", older: "abc", wanted: "bac", wanted_then: "abc", observed }
    }

    #[test]
    fn the_first_child_of_the_answer_moves_and_the_others_stay() {
        let step = step(usual());
        assert_eq!(step.progress, Progress::Moved(pod("b")));
        assert_eq!(step.claims, [claims("b"), claims("ac")]);
        assert_eq!(images(&step), ["a1", "b2", "c1"]);
        let maps = &step.desired[&resource("v1", "ConfigMap")];
        assert_eq!(maps[&Key::new("n", "a")], "2", "what does not roll follows at once");
    }

    #[test]
    fn the_next_one_waits_until_what_was_moved_is_in_order() {
        let moved =
            |b| step(Case { latest: "b", older: "ac", observed: vec![child("a", "1"), b], ..usual() });
        let waits = moved(child("b", "2").with("status.conditions", json!([])));
        assert_eq!(waits.progress, Progress::Waits(pod("b"), NotReady::NoCondition("Ready".into())));
        assert_eq!(waits.claims, [claims("b"), claims("ac")]);
        assert_eq!(moved(child("b", "1")).progress, Progress::Waits(pod("b"), NotReady::Outdated));
        assert_eq!(moved(child("b", "2")).progress, Progress::Moved(pod("a")));
    }

    #[test]
    fn an_unclaimed_child_is_the_latests_and_so_is_one_that_needs_no_change() {
        let observed = vec![child("a", "2"), child("b", "1")];
        let step = step(Case { older: "ab", wanted: "abcd", observed, ..usual() });
        assert_eq!(step.claims, [claims("acd"), claims("b")]);
        assert_eq!(step.progress, Progress::Waits(pod("c"), NotReady::Missing));
        assert_eq!(images(&step), ["a2", "b1", "c2", "d2"]);
    }

    #[test]
    fn a_child_that_is_no_longer_desired_is_unclaimed() {
        let step =
            step(Case { latest: "a", older: "bc", wanted: "a", observed: vec![child("a", "2")], ..usual() });
        assert_eq!((step.progress, step.claims), (Progress::Done, vec![claims("a"), claims("")]));
    }

    #[test]
    fn a_child_that_two_revisions_claim_is_the_latests() {
        let step = step(Case { latest: "ab", ..usual() });
        assert_eq!(step.claims, [claims("ab"), claims("c")]);
    }

    #[test]
    fn a_child_of_an_older_revision_that_is_gone_comes_back_as_it_was() {
        let step = step(Case { latest: "b", older: "ac", observed: vec![child("b", "1")], ..usual() });
        assert_eq!(images(&step), ["a1", "b2", "c1"]);
    }

    #[test]
    fn a_child_that_its_revision_does_not_want_any_longer_is_held_until_its_turn() {
        let held = step(Case { wanted: "abc", wanted_then: "a", ..usual() });
        assert_eq!((held.progress.clone(), &held.held), (Progress::Moved(pod("a")), &claims("bc")));
        assert_eq!(images(&held), ["a2"]);
    }

    #[test]
    fn conditions_name_the_child_and_what_is_waited_for() {
        let of = |progress: Progress| progress.condition("n", "ps.e-1");
        let condition = |status: &str, reason: &str, message: &str| json!({"type": "Updated", "status": status, "reason": reason, "message": message});
        assert_eq!(
            of(Progress::Done),
            condition("True", "OnLatestRevision", "latest ControllerRevision: ps.e-1")
        );
        assert_eq!(of(Progress::Moved(pod("a"))), condition("False", "RolloutProgressing", "updating Pod a"));
        let waits = Progress::Waits(pod("a"), NotReady::NoCondition("Ready".into()));
        let message = "waiting for Pod a: status.conditions has no Ready";
        assert_eq!(of(waits.clone()), condition("False", "RolloutWaiting", message));
        let others = [Progress::Done, Progress::Moved(pod("a")), waits].map(|it| it.why_others_wait("n"));
        let turn = "it stays at an older revision until its turn in the rollout, which";
        let expected = [
            None,
            Some(format!("{turn} moves Pod a now")),
            Some(format!("{turn} waits for Pod a: status.conditions has no Ready")),
        ];
        assert_eq!(others, expected);
    }

    #[test]
    fn the_condition_is_there_once_whatever_the_hook_said() {
        let with = |status: Value| {
            let mut status = status.as_object().unwrap().clone();
            put_condition(&mut status, json!({"type": "Updated", "status": "True"}));
            Value::Object(status)
        };
        let ours = json!({"type": "Updated", "status": "True"});
        assert_eq!(with(json!({})), json!({"conditions": [ours]}));
        assert_eq!(with(json!({"conditions": null, "a": 1})), json!({"conditions": [ours], "a": 1}));
        let echoed = json!({"conditions": [{"type": "Updated", "status": "False"}, {"type": "Ready"}, null]});
        assert_eq!(with(echoed), json!({"conditions": [{"type": "Ready"}, null, ours]}));
        assert_eq!(with(json!({"conditions": "odd"})), json!({"conditions": "odd"}));
    }
}
