//! Rollout of a parent, as one reconcile reads it: the revisions, and the states of the parent that they keep.

use std::cell::LazyCell;
use std::sync::{Arc, LazyLock, OnceLock};

use crate::children::claims::{Claim, ClaimedObject};
use crate::object::Object;
use crate::object::cached::CachedObject;
use crate::object::id::Resource;
use crate::object::selector::Selector;
use crate::reconcile::config::ControllerConfig;
use crate::reconcile::manages_children;
use crate::related::Related;
use crate::rollout::revisions::{History, RevisionError, latest_name};
use crate::rollout::{RollingConfig, record};

/// The revisions of a parent.
#[derive(Debug)]
pub struct RolloutState {
    pub config: Arc<RollingConfig>,
    parent: Arc<Object>,
    /// The revisions that the parent has, and those that it adopts.
    pub revisions: Vec<ClaimedObject>,
    /// The objects that the customize hook, if there is one, asks for about each of the older states.
    pub related: Vec<Related>,
    /// Why no hook is asked about older states in this reconcile: the customize hook fails about one of them.
    pub left_out: Option<String>,
    /// The content of the revisions. It is read on demand: to read it takes a hundred times as long as to compare versions,
    /// which is enough for a settled parent.
    history: OnceLock<History>,
}

/// A state of the parent that a hook is asked about: the present one, or that of an older revision.
#[derive(Debug, Clone, Copy)]
pub struct ParentState<'a> {
    pub parent: &'a Object,
    pub related: &'a Related,
}

impl RolloutState {
    /// `None`: all children follow the present state of the parent, or are no longer managed.
    pub fn of(
        config: &ControllerConfig,
        parent: &Arc<Object>,
        candidates: impl Fn(&Arc<Resource>, Option<&Selector>) -> Vec<CachedObject>,
    ) -> Option<Self> {
        let rolling = config.kind.rolling()?;
        if !manages_children(parent, &config.selection, false) {
            return None;
        }
        let selector = config.kind.child_selector(parent).ok().flatten();
        let of_the_kind = record::of_the_kind(&rolling.parents);
        // Read at most once, and only where there are orphans.
        let latest = LazyCell::new(|| latest_name(rolling, parent));
        let is_latest = |name: &str| latest.as_deref() == Some(name);
        let claimed =
            candidates(&rolling.revisions, Some(&of_the_kind)).into_iter().map(|object| ClaimedObject {
                claim: record::claim(rolling, parent, selector.as_ref(), &object, &is_latest)
                    .renewed(parent, &object),
                resource: Arc::clone(&rolling.revisions),
                object,
            });
        Some(Self {
            config: Arc::clone(rolling),
            parent: Arc::clone(parent),
            revisions: claimed.filter(|one| one.claim != Claim::Leave).collect(),
            related: Vec::new(),
            left_out: None,
            history: OnceLock::new(),
        })
    }

    /// All revisions: their store holds them whole.
    pub(crate) fn whole_revisions(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.revisions.iter().filter_map(|one| one.object.whole())
    }

    /// The states of the parent that its children are at.
    ///
    /// # Errors
    /// The parent cannot be read.
    pub fn history(&self) -> Result<&History, RevisionError> {
        if let Some(history) = self.history.get() {
            return Ok(history);
        }
        let kept = self.revisions.iter().filter(|one| one.claim.is_kept());
        let kept: Vec<_> = kept.filter_map(|one| one.object.whole()).cloned().collect();
        let history = History::of(&self.config, &self.parent, &kept)?;
        Ok(self.history.get_or_init(|| history))
    }

    /// The older states of the parent, each with the name of its revision.
    ///
    /// # Errors
    /// The parent cannot be read.
    pub fn older_states(&self) -> Result<Vec<(&str, ParentState<'_>)>, RevisionError> {
        // Without a customize hook there are no related objects.
        static NONE: LazyLock<Related> = LazyLock::new(Related::default);
        let related = self.related.iter().chain(std::iter::repeat(&*NONE));
        let older = self.history()?.older.iter().zip(related);
        Ok(older.map(|(one, related)| (&*one.name, ParentState { parent: &one.parent, related })).collect())
    }

    /// Bytes that a request about an older state has at most, besides the children. No revision is read for it: whoever may
    /// make them could fill memory with them.
    pub(crate) fn longest_older_state(&self) -> usize {
        let kept = self.revisions.iter().filter(|one| one.claim.is_kept());
        let longest = kept.map(|one| one.object.bytes()).max();
        let related = self.related.iter().map(Related::bytes).max().unwrap_or_default();
        longest.map_or(0, |longest| self.parent.json().len() + longest + related)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::common::UpdateMethod;
    use crate::api::selection::Selection;
    use crate::children::desired::{Apply, ChildKind};
    use crate::children::plan::learn;
    use crate::children::write_history::WriteHistory;
    use crate::children::{Op, Skip};
    use crate::object::id::ObjectId;
    use crate::object::selector::UID_LABEL;
    use crate::object::testing::{Build, a, cached, resource};
    use crate::reconcile::config::KindConfig;
    use crate::reconcile::input::{InputParts, ReconcileInput};
    use crate::reconcile::plan::{AnswerError, Answers, LEFT_OUT_INTERVAL, ReconcilePlan};
    use crate::reconcile::steps::Decisions;
    use crate::reconcile::testing::{kept, no_past, parts, rolling};
    use crate::related::rule::{Finds, RelatedRule, RuleScope};

    fn config() -> ControllerConfig {
        ControllerConfig {
            selection: Selection { finalizer: "f".into(), finalizes: true, ..Selection::default() },
            child_kinds: vec![ChildKind::new(resource("v1", "Pod"), UpdateMethod::RollingInPlace)],
            kind: KindConfig::Composite {
                generate_selector: true,
                negative_selectors: false,
                rolling: Some(Arc::new(rolling())),
            },
            ..crate::reconcile::testing::config()
        }
    }

    fn parent() -> Build {
        crate::reconcile::testing::parent()
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

    /// Image 2 is the latest; both pods are at image 1, and no pod is at image 3.
    fn usual(config: &ControllerConfig, parent: Build) -> ReconcileInput {
        let revisions = [revision(1, &["a", "b"]), revision(3, &[])].map(Build::object);
        let pods = [pod("a", 1), pod("b", 1)].map(Build::object);
        input(config, parent, &revisions, &pods)
    }

    fn input(
        config: &ControllerConfig,
        parent: Build,
        revisions: &[Arc<Object>],
        pods: &[Arc<Object>],
    ) -> ReconcileInput {
        let parent = parent.object();
        let rollout = RolloutState::of(config, &parent, |_, _| cached(revisions));
        ReconcileInput::of(config, &parent, InputParts { rollout, ..parts() }, |_, _| cached(pods)).unwrap()
    }

    /// The plan where the hook answers this about image 2, and that about image 1.
    fn plan(latest: &[u8], older: &[u8]) -> Result<ReconcilePlan, AnswerError> {
        let config = config();
        let input = usual(&config, parent());
        assert_eq!(input.rollout.as_ref().unwrap().history().unwrap().older.len(), 1);
        let answers = Answers { latest, older: &[Ok(older)] };
        config.plan(&input, &kept(&config, &input), answers, no_past(&WriteHistory::default()), &|_| true)
    }

    #[test]
    fn claims_are_written_before_the_one_child_that_moves() {
        let plan = plan(&answer(2, &json!({})), &answer(1, &json!({}))).unwrap();
        let verbs = |ops: &[Op]| {
            ops.iter().map(|op| format!("{} {}", op.verb(), op.id().key.name)).collect::<Vec<_>>()
        };
        let created = &plan.rollout.revisions[0].id().key.name;
        assert_eq!(verbs(&plan.rollout.revisions), [&format!("create {created}"), "replace r1", "delete r3"]);
        let images: Vec<_> =
            plan.children.ops.iter().map(|op| format!("{op:?}").contains("Number(2)")).collect();
        assert_eq!(images, [true, false], "b is only given what was applied to it");
        let condition = &plan.decoration.status.as_ref().unwrap()["conditions"][0];
        assert_eq!(
            (&condition["reason"], &condition["message"]),
            (&json!("RolloutProgressing"), &json!("updating Pod a"))
        );
    }

    #[test]
    fn a_child_that_waits_for_its_turn_is_no_unchanged_one() {
        let waiting = |pods: &[Arc<Object>]| {
            let config = config();
            let input = input(&config, parent(), &[revision(1, &["a", "b"]).object()], pods);
            let (latest, older) = (answer(2, &json!({})), answer(1, &json!({})));
            let (children, history) = (kept(&config, &input), WriteHistory::default());
            let answers = Answers { latest: &latest, older: &[Ok(&older)] };
            let mut plan = config.plan(&input, &children, answers, no_past(&history), &|_| true).unwrap();
            // As where it has been applied before.
            let (b, rest): (Vec<_>, _) =
                plan.children.ops.drain(..).partition(|op| &*op.id().key.name == "b");
            plan.children.ops = rest;
            plan.children.skips.extend(b.iter().map(|op| (op.id().clone(), Skip::Unchanged)));
            let decisions = Decisions::of(&plan);
            let left: Vec<_> =
                decisions.left.iter().map(|(id, why)| format!("{}: {why}", id.key.name)).collect();
            (left, decisions.unchanged)
        };
        let turn = "it stays at an older revision until its turn in the rollout, which moves Pod a now";
        let pods = [pod("a", 1), pod("b", 1)].map(Build::object);
        assert_eq!(waiting(&pods), (vec![format!("b: {turn}")], 0));
        let pods = [pod("a", 1), pod("b", 1).deleting()].map(Build::object);
        assert_eq!(waiting(&pods), (vec!["b: it is being deleted".to_owned()], 0));
    }

    #[test]
    fn a_field_that_goes_moves_one_child_after_the_other() {
        let mut config = config();
        config.child_kinds[0].apply = Apply::ServerSide("me".into());
        let pods = ["a", "b"].map(|name| pod(name, 1).with("spec.paused", json!(true)).object());
        let input = input(&config, parent(), &[revision(1, &["a", "b"]).object()], &pods);
        let children = kept(&config, &input);
        let latest = answer(1, &json!({}));
        let older =
            String::from_utf8(latest.clone()).unwrap().replace("\"image\":1", "\"image\":1,\"paused\":true");
        let older = [Ok(older.as_bytes())];
        let plan = |history: &WriteHistory| {
            let answers = Answers { latest: &latest, older: &older };
            config.plan(&input, &children, answers, no_past(history), &|_| true).unwrap()
        };
        let moved = |plan: &ReconcilePlan| {
            plan.desired.values().flatten().filter(|(_, body)| body["spec"]["paused"].is_null()).count()
        };
        let mut history = WriteHistory::default();
        let after_a_restart = plan(&history);
        assert_eq!(moved(&after_a_restart), 1);
        let then = &after_a_restart.desired[&resource("v1", "Pod")][&pods[1].key];
        for pod in &pods {
            let mut then = then.clone();
            then["metadata"]["name"] = json!(&*pod.key.name);
            let id = ObjectId { resource: resource("v1", "Pod"), key: pod.key.clone() };
            learn(&mut history, config.owner(&input.parent), &id, &then, pod);
        }
        assert_eq!(moved(&plan(&history)), 1);
    }

    #[test]
    fn the_latest_answer_gives_the_status_and_all_agree_on_the_end() {
        let said = |status: &str, seconds: f64, finalized: bool| json!({"status": {"is": status}, "resyncAfterSeconds": seconds, "finalized": finalized});
        let all = |latest: Value, older: Value| plan(&answer(2, &latest), &answer(1, &older)).unwrap();
        let found = all(said("new", 7.0, true), said("old", 3.0, false));
        assert_eq!(
            (&found.decoration.status.as_ref().unwrap()["is"], found.resync_after),
            (&json!("new"), Some(Duration::from_secs(3)))
        );
        assert!(!found.finalized && all(said("", 0.0, true), said("", 0.0, true)).finalized);
        assert_eq!(
            all(said("", 7.0, false), said("", 0.0, false)).resync_after,
            Some(Duration::from_secs(7))
        );
    }

    #[test]
    fn an_older_state_that_the_hook_cannot_digest_is_left_out_and_named() {
        let secret = answer(1, &json!({"children": [{"kind": "Secret"}]}));
        let latest = answer(2, &json!({"finalized": true}));
        for older in [Ok(&b"{"[..]), Ok(&secret), Err("it trapped".to_owned())] {
            let config = config();
            let input = usual(&config, parent());
            let answers = Answers { latest: &latest, older: &[older] };
            let history = WriteHistory::default();
            let plan =
                config.plan(&input, &kept(&config, &input), answers, no_past(&history), &|_| true).unwrap();
            assert_eq!(plan.feedback.left_out[0].0, "r1");
            assert_eq!(plan.resync_after, Some(LEFT_OUT_INTERVAL));
            let images: Vec<_> = plan.children.ops.iter().map(|op| op.id().key.name.to_string()).collect();
            assert_eq!(images, ["a"], "b stays as it is until it is its turn");
            assert!(plan.finalized && plan.rollout.moves);
        }
    }

    #[test]
    fn revisions_are_read_until_children_are_left_alone() {
        let config = config();
        let revisions = |parent: Build| usual(&config, parent).rollout.map(|rollout| rollout.revisions.len());
        assert_eq!(revisions(parent()), Some(2));
        assert_eq!(revisions(parent().deleting()), Some(2), "it waits for the finalize hook");
        assert_eq!(revisions(parent().deleting().with("metadata.finalizers", json!([]))), None);
    }

    #[test]
    fn the_content_of_revisions_is_read_on_demand() {
        let unreadable = revision(1, &["a"]).with("parentPatch", json!(1)).object();
        let input = input(&config(), parent(), &[unreadable], &[]);
        input.fingerprint();
        let rollout = input.rollout.unwrap();
        assert!(rollout.history.get().is_none());
        assert_eq!(rollout.history().unwrap().unreadable.len(), 1);
    }

    #[test]
    fn what_an_older_state_takes_in_a_request_is_bounded_without_reading_it() {
        let mut config = config();
        config.observed.children = 1;
        let patch = json!({"spec": {"image": "x".repeat(1000)}});
        let long = revision(1, &["a"]).with("parentPatch", patch).object();
        let mut input = input(&config, parent(), &[long], &[pod("a", 1).object(), pod("b", 1).object()]);
        assert_eq!(input.claims.len(), 1);
        let rollout = input.rollout.as_mut().unwrap();
        assert!(rollout.history.get().is_none(), "not even where children are left out");
        let mut related = Related::default();
        let secret = a("v1", "Secret", "n/s").with("data", json!({"y": "y".repeat(1000)})).object();
        let finds = Finds::Labels { place: RuleScope::Anywhere, labels: Selector::default() };
        related.add("n", 0, &RelatedRule { resource: resource("v1", "Secret"), finds }, vec![secret]);
        rollout.related = vec![related];
        let bound = rollout.longest_older_state();
        let (_, state) = rollout.older_states().unwrap()[0];
        let taken = state.parent.json().len() + state.related.bytes();
        assert!((2000..=bound).contains(&taken) && bound < 2 * taken, "{taken} of {bound}");
    }

    #[test]
    fn the_fingerprint_covers_revisions() {
        let config = config();
        let print = |version: &str| {
            input(&config, parent(), &[revision(1, &["a"]).version(version).object()], &[]).fingerprint()
        };
        assert_eq!(print("1"), print("1"));
        assert_ne!(print("1"), print("2"));
    }
}
