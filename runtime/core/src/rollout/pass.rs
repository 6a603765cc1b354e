//! The part of a pass that only parents have whose children are updated one after the other.

use std::sync::{Arc, OnceLock};

use crate::children::claims::Claim;
use crate::children::desired::Wanted;
use crate::children::plan::is_as_wanted;
use crate::children::write_history::PastWrites;
use crate::object::Object;
use crate::object::child_selector;
use crate::object::id::Resource;
use crate::object::map::ChildMap;
use crate::object::selector::Selector;
use crate::reconcile::phase;
use crate::reconcile::plan::{
    AnswerError, ClaimedObject, ControllerConfig, HookFeedback, KindConfig, ReconcileInput, ReconcilePlan,
};
use crate::related::selection::Related;
use crate::rollout::RollingConfig;
use crate::rollout::record;
use crate::rollout::revisions::{History, Revision, RevisionError};
use crate::rollout::step::{self, At, Progress, Situation};

/// The states of a parent that its children are at.
#[derive(Debug)]
pub struct RolloutState {
    /// The revisions that the parent has or could have.
    pub revisions: Vec<ClaimedObject>,
    /// What the customize hook, if there is one, asks for about each of the older states.
    pub related: Vec<Related>,
    /// What the revisions say. To read them takes a hundred times as long as to see that they are the same: for a parent
    /// that is at rest nobody does.
    history: OnceLock<History>,
}

impl ControllerConfig {
    /// The revisions of a parent; `None` where its children are all at the state that it has.
    pub fn roll(
        &self,
        parent: &Arc<Object>,
        candidates: impl Fn(&Arc<Resource>, Option<&Selector>) -> Vec<Arc<Object>>,
    ) -> Option<RolloutState> {
        let rolling = self.rolls(parent)?;
        let selector = child_selector::selector(parent, self.generates_selector()).ok();
        let of_the_kind = record::of_the_kind(&rolling.parents);
        let claimed =
            candidates(&rolling.revisions, Some(&of_the_kind)).into_iter().map(|object| ClaimedObject {
                claim: record::claim(rolling, parent, selector.as_ref(), &object),
                resource: Arc::clone(&rolling.revisions),
                object,
            });
        let revisions: Vec<_> = claimed.filter(|one| one.claim != Claim::Leave).collect();
        Some(RolloutState { revisions, related: Vec::new(), history: OnceLock::new() })
    }

    /// The states of a parent that its children are at.
    ///
    /// # Errors
    /// One of its revisions cannot be read.
    pub fn history<'a>(
        &self,
        parent: &Arc<Object>,
        rolled: Option<&'a RolloutState>,
    ) -> Result<Option<&'a History>, RevisionError> {
        let Some((rolling, rolled)) = self.kind.rolling().zip(rolled) else {
            return Ok(None);
        };
        if let Some(known) = rolled.history.get() {
            return Ok(Some(known));
        }
        let kept = rolled.revisions.iter().filter(|one| one.claim == Claim::Keep);
        let kept: Vec<_> = kept.map(|one| Arc::clone(&one.object)).collect();
        let history = History::of(rolling, parent, &kept)?;
        Ok(Some(rolled.history.get_or_init(|| history)))
    }

    fn generates_selector(&self) -> bool {
        matches!(self.kind, KindConfig::Composite { generate_selector: true, .. })
    }

    /// A parent whose children are not looked after any longer is at no revision.
    fn rolls(&self, parent: &Object) -> Option<&RollingConfig> {
        self.kind.rolling().filter(|_| phase::manages_children(parent, &self.selection, false))
    }

    /// What is to be done because the hook gave this answer about the parent, and these about the older states of it, if
    /// there are such.
    ///
    /// # Errors
    /// Whatever is wrong with one of the answers refuses all of them.
    pub fn decide_rolling(
        &self,
        seen: &ReconcileInput,
        children: &ChildMap,
        (answer, older): (&[u8], &[Vec<u8>]),
        past: PastWrites<'_>,
    ) -> Result<ReconcilePlan, AnswerError> {
        let Some(history) = self.history(&seen.parent, seen.rolled.as_ref())? else {
            return self.decide(seen, children, answer, past);
        };
        let latest = self.read(seen, answer)?;
        let then = history.older.iter().zip(older).map(|(revision, answer)| {
            let response = self.read(seen, answer).map_err(|error| at(revision, error))?;
            Ok((revision, response))
        });
        let then = then.collect::<Result<Vec<_>, AnswerError>>()?;
        let deletions = self.deletions(seen, children, &latest.deletions)?;
        let finalized = latest.finalized && then.iter().all(|(_, one)| one.finalized);
        let mut decided = ReconcilePlan {
            resync_after: then
                .iter()
                .filter_map(|(_, one)| one.resync_after)
                .chain(latest.resync_after)
                .min(),
            wish: latest.wish,
            said: HookFeedback { events: latest.events, oddities: latest.warnings, forgot: 0 },
            ..ReconcilePlan::default()
        };
        decided.end(finalized, deletions);
        let manages = phase::manages_children(&seen.parent, &self.selection, finalized);
        let Some(rolling) = self.kind.rolling().filter(|_| manages) else {
            return Ok(decided);
        };
        let Wanted { desired, sequence, strays } = self.wanted(seen, latest.children)?;
        let then = then.into_iter().map(|(revision, response)| {
            let wanted = self.wanted(seen, response.children).map_err(|error| at(revision, error))?;
            Ok((&revision.claims, wanted.desired))
        });
        let then = then.collect::<Result<Vec<_>, AnswerError>>()?;
        let owner = self.owner(&seen.parent);
        let step = Situation {
            rolling,
            observed: children,
            latest: At { claims: &history.latest.claims, desired: &desired },
            sequence: &sequence,
            older: &then.iter().map(|(claims, desired)| At { claims, desired }).collect::<Vec<_>>(),
            up_to_date: &|id, child, wanted| is_as_wanted(owner, id, child, wanted, past.ledger),
        }
        .step();
        let condition = step.progress.condition(&seen.parent.key.namespace, &history.latest.name);
        step::put_condition(decided.wish.status.get_or_insert_default(), condition);
        decided.moved = matches!(step.progress, Progress::Moved(_));
        let mut moved = children.clone();
        step.held.iter().for_each(|id| moved.remove(id));
        decided.plan_for(step.desired, owner, &moved, past);
        decided.strays = strays;
        decided.tell_forgotten(latest.forgot_children);
        decided.revisions = record::writes(rolling, owner, self.generates_selector(), history, &step.claims);
        Ok(decided)
    }
}

fn at(revision: &Revision, error: impl Into<AnswerError>) -> AnswerError {
    AnswerError::Older { revision: revision.name.clone(), source: Box::new(error.into()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::common::UpdateMethod;
    use crate::api::hook::{HookName, HookVersion, PerHook};
    use crate::api::selection::Selection;
    use crate::children::desired::{Apply, ChildKind};
    use crate::children::plan::learn;
    use crate::children::write_history::WriteHistory;
    use crate::hash::Fingerprint;
    use crate::object::child_selector::UID_LABEL;
    use crate::object::id::ObjectId;
    use crate::object::testing::{Build, a, resource};
    use crate::reconcile::plan::{HookConfig, InputParts};
    use crate::rollout::RollingKind;
    use crate::rollout::revisions::FieldPath;

    fn terms() -> ControllerConfig {
        let pods = resource("v1", "Pod");
        let rolling = RollingConfig {
            paths: vec![FieldPath::new("spec.image")],
            rules: vec![RollingKind { resource: Arc::clone(&pods), in_place: true, checks: vec![] }],
            parents: resource("e/v1", "P"),
            revisions: resource("metacontroller.k8s.io/v1alpha1", "ControllerRevision"),
            home: "server".into(),
        };
        ControllerConfig {
            selection: Selection { finalizer: "f".into(), finalizes: true, ..Selection::default() },
            rules: vec![ChildKind::new(Arc::clone(&pods), UpdateMethod::RollingInPlace)],
            controller: "c".to_owned(),
            snapshot: "{}".to_owned(),
            hooks: PerHook { sync: HookConfig::wasm(HookVersion::V1, None), finalize: None, customize: None },
            max_children: 10,
            deletions: vec![],
            kind: KindConfig::Composite { generate_selector: true, rolling: Some(rolling) },
        }
    }

    fn parent() -> Build {
        a("e/v1", "P", "n/p")
            .uid("p")
            .with("spec", json!({"image": 2}))
            .with("metadata.finalizers", json!(["f"]))
    }

    fn pod(name: &str, image: i64) -> Build {
        a("v1", "Pod", &format!("n/{name}"))
            .label(UID_LABEL, "p")
            .controlled_by("p")
            .with("spec", json!({"image": image}))
    }

    fn revision(image: i64, pods: &[&str]) -> Build {
        a("metacontroller.k8s.io/v1alpha1", "ControllerRevision", &format!("n/r{image}"))
            .label("metacontroller.k8s.io/apiGroup", "e")
            .label("metacontroller.k8s.io/resource", "ps")
            .controlled_by("p")
            .with("parentPatch", json!({"spec": {"image": image}}))
            .with("children", json!([{"apiGroup": "", "kind": "Pod", "names": pods}]))
    }

    fn answer(image: i64, more: &Value) -> Vec<u8> {
        let pods = ["a", "b"].map(|name| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"image": image}}));
        let mut answer = json!({"children": pods});
        answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        answer.to_string().into_bytes()
    }

    fn see(terms: &ControllerConfig, parent: Build) -> ReconcileInput {
        let kept = [revision(1, &["a", "b"]), revision(3, &[])].map(Build::object);
        let pods = [pod("a", 1), pod("b", 1)].map(Build::object);
        looks(terms, parent, &kept, &pods)
    }

    fn looks(
        terms: &ControllerConfig,
        parent: Build,
        kept: &[Arc<Object>],
        pods: &[Arc<Object>],
    ) -> ReconcileInput {
        let parent = parent.object();
        let rolled = terms.roll(&parent, |_, _| kept.to_vec());
        let hooks = Fingerprint::of(b"");
        let before =
            InputParts { ask: HookName::Sync, hooks, related: Related::default(), rolled, elders: None };
        terms.see(&parent, before, |_, _| pods.to_vec()).unwrap()
    }

    /// The hook's answers about image 2, and about image 1.
    fn decided(latest: &[u8], older: Vec<u8>) -> Result<ReconcilePlan, AnswerError> {
        let terms = terms();
        let seen = see(&terms, parent());
        let mut children = terms.no_children();
        seen.claims.iter().for_each(|one| children.insert(&one.resource, Arc::clone(&one.object)));
        let history = terms.history(&seen.parent, seen.rolled.as_ref()).unwrap().unwrap();
        assert_eq!(history.older.len(), 1);
        let past = PastWrites { ledger: &WriteHistory::default(), now: Duration::ZERO };
        terms.decide_rolling(&seen, &children, (latest, &[older]), past)
    }

    #[test]
    fn claims_are_written_before_the_one_child_that_moves() {
        let decided = decided(&answer(2, &json!({})), answer(1, &json!({}))).unwrap();
        let verbs = |ops: &[crate::children::Op]| {
            ops.iter().map(|op| format!("{} {}", op.verb(), op.id().key.name)).collect::<Vec<_>>()
        };
        let created = &decided.revisions[0].id().key.name;
        assert_eq!(verbs(&decided.revisions), [&format!("create {created}"), "replace r1", "delete r3"]);
        let images: Vec<_> =
            decided.plan.ops.iter().map(|op| format!("{op:?}").contains("Number(2)")).collect();
        assert_eq!(images, [true, false], "b is only given what was applied to it");
        let condition = &decided.wish.status.as_ref().unwrap()["conditions"][0];
        assert_eq!(
            (&condition["reason"], &condition["message"]),
            (&json!("RolloutProgressing"), &json!("updating Pod a"))
        );
    }

    #[test]
    fn applied_by_the_server_a_field_that_goes_still_moves_one_child_after_the_other() {
        let mut terms = terms();
        terms.rules[0].apply = Apply::ServerSide("me".into());
        let pods = ["a", "b"].map(|name| pod(name, 1).with("spec.paused", json!(true)).object());
        let seen = looks(&terms, parent(), &[revision(1, &["a", "b"]).object()], &pods);
        let mut children = terms.no_children();
        seen.claims.iter().for_each(|one| children.insert(&one.resource, Arc::clone(&one.object)));
        let latest = answer(1, &json!({}));
        let older =
            String::from_utf8(latest.clone()).unwrap().replace("\"image\":1", "\"image\":1,\"paused\":true");
        let decide = |ledger: &WriteHistory| {
            let past = PastWrites { ledger, now: Duration::ZERO };
            terms.decide_rolling(&seen, &children, (&latest, &[older.clone().into_bytes()]), past).unwrap()
        };
        let moved = |decided: &ReconcilePlan| {
            decided.desired.values().flatten().filter(|(_, body)| body["spec"]["paused"].is_null()).count()
        };
        let mut ledger = WriteHistory::default();
        let after_a_restart = decide(&ledger);
        assert_eq!(moved(&after_a_restart), 1);
        let then = &after_a_restart.desired[&resource("v1", "Pod")][&pods[1].key];
        for pod in &pods {
            let mut then = then.clone();
            then["metadata"]["name"] = json!(&*pod.key.name);
            let id = ObjectId { resource: resource("v1", "Pod"), key: pod.key.clone() };
            learn(&mut ledger, terms.owner(&seen.parent), &id, &then, pod);
        }
        assert_eq!(moved(&decide(&ledger)), 1);
    }

    #[test]
    fn the_status_is_the_latests_the_earliest_time_counts_and_all_have_to_agree_on_the_end() {
        let said = |status: &str, seconds: f64, finalized: bool| json!({"status": {"is": status}, "resyncAfterSeconds": seconds, "finalized": finalized});
        let all = |latest: Value, older: Value| decided(&answer(2, &latest), answer(1, &older)).unwrap();
        let found = all(said("new", 7.0, true), said("old", 3.0, false));
        assert_eq!(
            (&found.wish.status.as_ref().unwrap()["is"], found.resync_after),
            (&json!("new"), Some(Duration::from_secs(3)))
        );
        assert!(!found.finalized && all(said("", 0.0, true), said("", 0.0, true)).finalized);
        assert_eq!(
            all(said("", 7.0, false), said("", 0.0, false)).resync_after,
            Some(Duration::from_secs(7))
        );
    }

    #[test]
    fn a_bad_answer_about_an_older_state_says_about_which() {
        let error = decided(&answer(2, &json!({})), b"{".to_vec()).unwrap_err();
        assert_eq!(error.to_string(), "asked about the parent as it was at ControllerRevision r1");
        assert!(
            decided(&answer(2, &json!({})), answer(1, &json!({"children": [{"kind": "Secret"}]}))).is_err()
        );
    }

    #[test]
    fn revisions_are_seen_until_children_are_left_alone() {
        let terms = terms();
        let revisions = |parent: Build| see(&terms, parent).rolled.map(|rolled| rolled.revisions.len());
        assert_eq!(revisions(parent()), Some(2));
        assert_eq!(revisions(parent().deleting()), Some(2), "it waits for the finalize hook");
        assert_eq!(revisions(parent().deleting().with("metadata.finalizers", json!([]))), None);
    }

    #[test]
    fn revisions_are_not_read_before_somebody_asks_what_they_say() {
        let unreadable = revision(1, &["a"]).with("parentPatch", json!(1)).object();
        let seen = looks(&terms(), parent(), &[unreadable], &[]);
        seen.fingerprint();
        let error = terms().history(&seen.parent, seen.rolled.as_ref()).unwrap_err();
        assert!(error.to_string().starts_with("ControllerRevision n/r1 cannot be read"), "{error}");
    }

    #[test]
    fn a_change_of_a_revision_is_a_change_of_what_is_seen() {
        let terms = terms();
        let print = |version: &str| {
            looks(&terms, parent(), &[revision(1, &["a"]).version(version).object()], &[]).fingerprint()
        };
        assert_eq!(print("1"), print("1"));
        assert_ne!(print("1"), print("2"));
    }
}
