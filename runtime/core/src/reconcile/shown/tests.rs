//! Tests of the choice of children that are shown.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::api::ControllerKind;
use crate::children::claims::{ATTACHED_BY, MADE_BY};
use crate::children::last_applied::LAST_APPLIED;
use crate::children::write_history::WriteHistory;
use crate::object::id::Uid;
use crate::object::selector::UID_LABEL;
use crate::object::testing::{Build, a, resource};
use crate::reconcile::config::{ControllerConfig, KindConfig};
use crate::reconcile::plan::{Answers, ReconcilePlan};
use crate::reconcile::testing::{child, config, decorator, input, no_past, parent, parts};

fn pod(key: &str) -> Build {
    a("v1", "Pod", key)
}

fn kept(child: Build) -> ClaimedObject {
    ClaimedObject { resource: resource("v1", "Pod"), object: child.cached(), claim: Claim::Keep }
}

fn made(child: Build, second: u32) -> Build {
    child.with("metadata.creationTimestamp", json!(format!("2026-01-01T00:00:{second:02}Z")))
}

fn limit(claims: &mut Vec<ClaimedObject>, children: usize, request: usize) -> LeftOut {
    let mut size = Size::default();
    for one in claims.iter() {
        size.add(one);
    }
    size.limit(claims, ShownBounds { children, request }, || 0)
}

fn names(claims: &[ClaimedObject]) -> Vec<String> {
    let mut names: Vec<_> = claims.iter().map(|one| one.object.key.to_string()).collect();
    names.sort();
    names
}

const LARGE: usize = 1 << 30;

#[test]
fn the_servers_own_children_come_first_and_then_the_oldest() {
    let mut claims = vec![
        kept(made(pod("n/forged-late"), 9)),
        kept(made(pod("n/forged-early"), 1)),
        kept(made(pod("n/ours"), 8).annotation(MADE_BY, "c")),
        kept(made(pod("n/metacontrollers"), 7).annotation(LAST_APPLIED, "{}")),
        kept(made(pod("n/going"), 0).deleting()),
    ];
    let left = limit(&mut claims, 3, LARGE);
    assert_eq!(names(&claims), ["n/forged-early", "n/metacontrollers", "n/ours"]);
    let message = left.message(ShownBounds { children: 3, request: LARGE }).unwrap();
    assert!(message.contains("has 2 children more") && message.contains("Pod n/forged-late"), "{message}");
    assert!(message.contains("3 at most (--max-observed-children)"), "{message}");
}

#[test]
fn objects_of_one_namespace_push_out_none_of_another() {
    let stuffed = (0..100).map(|nth| kept(made(pod(&format!("m/{nth}")), 0).annotation(MADE_BY, "c")));
    let mut claims: Vec<_> = stuffed.chain([kept(made(pod("n/a"), 5)), kept(made(pod("n/b"), 6))]).collect();
    let left = limit(&mut claims, 10, LARGE);
    let names = names(&claims);
    assert_eq!((names.len(), left.objects.len()), (10, 92));
    assert!(names.ends_with(&["n/a".to_owned(), "n/b".to_owned()]), "{names:?}");
}

#[test]
fn large_objects_of_one_kind_push_out_none_of_another() {
    let map = |nth: usize| ClaimedObject {
        resource: resource("v1", "ConfigMap"),
        object: a("v1", "ConfigMap", &format!("n/{nth}")).with("data", json!("x".repeat(1000))).cached(),
        claim: Claim::Keep,
    };
    let pods = ["n/a", "n/b"].map(|name| kept(made(pod(name), 9)));
    let mut claims: Vec<_> = (0..40).map(map).chain(pods).collect();
    limit(&mut claims, 100, 8000);
    let pods = claims.iter().filter(|one| *one.resource.gvk.kind == *"Pod").count();
    let bytes: usize = claims.iter().map(bytes_of).sum();
    assert_eq!(pods, 2);
    assert!((6000..=8000).contains(&bytes), "{bytes}");
}

#[test]
fn what_else_is_in_a_request_takes_no_more_than_half_of_it_from_children() {
    let claims = || vec![kept(pod("n/a").with("data", json!("x".repeat(1000)))), kept(pod("n/b"))];
    let shown = |request: usize, rest: usize| {
        let (mut claims, mut size) = (claims(), Size::default());
        for one in &claims {
            size.add(one);
        }
        size.limit(&mut claims, ShownBounds { children: 9, request }, || rest);
        claims.len()
    };
    let bytes: usize = claims().iter().map(bytes_of).sum();
    assert_eq!(shown(2 * bytes, LARGE), 2, "half is theirs");
    assert_eq!(shown(bytes + 100, 100), 2, "it fits");
    assert_eq!(shown(bytes + 100, 101), 1);
}

#[test]
fn an_object_takes_its_name_twice() {
    let bytes = |name: &str| bytes_of(&kept(pod(&format!("n/{name}")).uid("u")));
    assert_eq!(bytes(&"x".repeat(101)) - bytes("x"), 200);
}

#[test]
fn nothing_is_created_where_the_server_may_have_made_what_is_left_out() {
    let id = |key: &str| ObjectId { resource: resource("v1", "Pod"), key: kept(pod(key)).object.key.clone() };
    let create = |key: &str| Op::Create { id: id(key), body: json!({}) };
    let foreign = || (0..3).map(|nth| kept(made(pod(&format!("n/{nth}")), nth)));
    let left = limit(&mut foreign().collect(), 1, LARGE);
    assert!(left.blocks(&create("n/1")) && !left.blocks(&create("n/new")), "it would be there already");
    let ours = foreign().map(|one| {
        let name = one.object.key.to_string();
        kept(pod(&name).annotation(MADE_BY, "c"))
    });
    let left = limit(&mut ours.collect(), 1, LARGE);
    assert!(left.blocks(&create("n/new")) && !left.blocks(&create("m/new")), "one namespace alone");
    let delete = Op::Delete { id: id("n/1"), uid: Uid::new("u") };
    assert!(!left.blocks(&delete));
    let message = left.message(ShownBounds { children: 1, request: LARGE }).unwrap();
    assert!(message.contains("no v1 Pod in namespace n is created, or made anew"), "{message}");
    let uid = || Uid::new("u");
    let recreate = |key: &str| Op::Recreate { id: id(key), uid: uid(), body: json!({}), manager: None };
    let replace = |key: &str| Op::Replace { id: id(key), body: json!({}) };
    let dry_run =
        |key: &str, otherwise| Op::DryRun { write: Box::new(replace(key)), otherwise: Box::new(otherwise) };
    for op in [recreate("n/0"), dry_run("n/0", recreate("n/0"))] {
        assert!(left.blocks(&op), "it would be deleted and then not created: {op:?}");
    }
    for op in
        [recreate("m/0"), replace("n/0"), dry_run("m/0", recreate("m/0")), dry_run("n/0", replace("n/0"))]
    {
        assert!(!left.blocks(&op), "{op:?}");
    }
}

#[test]
fn what_is_being_deleted_holds_no_kind() {
    let create = |key: &str| Op::Create {
        id: ObjectId { resource: resource("v1", "Pod"), key: kept(pod(key)).object.key.clone() },
        body: json!({}),
    };
    let going = |nth: u32| kept(made(pod(&format!("n/{nth}")), nth).annotation(MADE_BY, "c").deleting());
    let left = limit(&mut (0..3).map(going).collect(), 1, LARGE);
    assert!(!left.blocks(&create("n/new")) && left.blocks(&create("n/1")), "its name is taken all the same");
    let message = left.message(ShownBounds { children: 1, request: LARGE }).unwrap();
    assert!(!message.contains("is created"), "{message}");
}

#[test]
fn what_was_made_after_the_deletion_holds_no_parent_up() {
    let late = |second| limit(&mut vec![kept(made(pod("n/a"), 1)), kept(made(pod("n/b"), second))], 1, LARGE);
    let parent = a("e/v1", "P", "n/p");
    assert!(late(9).holds_up(&parent.object()), "it lives");
    let going = || a("e/v1", "P", "n/p").with("metadata.deletionTimestamp", json!("2026-01-01T00:00:05Z"));
    assert!(late(5).holds_up(&going().object()));
    assert!(!late(6).holds_up(&going().object()));
    assert!(!LeftOut::default().holds_up(&going().object()));
}

#[test]
fn of_objects_to_release_as_many_have_their_turn() {
    let release = |nth: usize| ClaimedObject { claim: Claim::Release, ..kept(pod(&format!("n/{nth}"))) };
    let mut claims: Vec<_> = (0..9).map(release).chain([kept(pod("n/x"))]).collect();
    let left = limit(&mut claims, 4, LARGE);
    assert!(left.is_empty() && claims.len() == 5 && claims.iter().any(|one| one.claim == Claim::Keep));
}

fn any_child() -> impl Strategy<Value = (usize, usize, u32, bool, bool, usize)> {
    (0..4_usize, 0..40_usize, 0..3_u32, any::<bool>(), any::<bool>(), 0..3_usize)
}

proptest! {
    #[test]
    fn bounds_hold_small_groups_stay_whole_and_the_order_does_not_matter(
        children in prop::collection::vec(any_child(), 0..60), count in 1..40_usize, request in 1..20_000_usize,
        turn in 0..60_usize,
    ) {
        let object = |(namespace, nth, second, ours, deleting, large): &(usize, usize, u32, bool, bool, usize)| {
            let child = made(pod(&format!("n{namespace}/{nth}")), *second).with("data", json!("x".repeat(large * 500)));
            let child = if *ours { child.annotation(MADE_BY, "c") } else { child };
            let child = if *deleting { child.deleting() } else { child };
            (format!("n{namespace}/{nth}"), kept(child))
        };
        // One of each name.
        let all: BTreeMap<_, _> = children.iter().map(object).collect();
        let all = || all.values().map(|one| ClaimedObject { resource: Arc::clone(&one.resource), object: one.object.clone(), claim: one.claim });
        let mut claims: Vec<_> = all().collect();
        let left = limit(&mut claims, count, request);

        let bytes: usize = claims.iter().map(bytes_of).sum();
        prop_assert!(claims.len() <= count && bytes <= request);
        prop_assert_eq!(claims.len() + left.objects.len(), all().count());
        if all().count() <= count && all().map(|one| bytes_of(&one)).sum::<usize>() <= request {
            prop_assert!(left.is_empty());
        }

        let mut turned: Vec<_> = all().collect();
        let by = turn.checked_rem(turned.len()).unwrap_or_default();
        turned.rotate_left(by);
        limit(&mut turned, count, request);
        prop_assert_eq!(names(&turned), names(&claims));

        let namespaces: BTreeSet<_> = all().map(|one| Arc::clone(&one.object.key.namespace)).collect();
        for namespace in &namespaces {
            let group = || all().filter(|one| one.object.key.namespace == *namespace);
            let small = group().count() <= count / namespaces.len()
                && group().map(|one| bytes_of(&one)).sum::<usize>() <= request / namespaces.len();
            let out = || left.objects.iter().filter(|(id, _)| id.key.namespace == *namespace);
            prop_assert!(!small || out().next().is_none(), "{namespace} is small");
            let last = claims.iter().filter(|one| one.object.key.namespace == *namespace).map(order).max();
            for (_, object) in out() {
                let one = kept_object(object);
                prop_assert!(last.is_none_or(|last| last < order(&one)));
            }
        }
    }
}

fn kept_object(object: &CachedObject) -> ClaimedObject {
    ClaimedObject { resource: resource("v1", "Pod"), object: object.clone(), claim: Claim::Keep }
}

fn planned(config: &ControllerConfig, parent: Build, pods: &[Arc<Object>], answer: &Value) -> ReconcilePlan {
    let input = input(config, parent, parts(), pods);
    let answer = answer.to_string();
    let answers = Answers { latest: answer.as_bytes(), older: &[] };
    let kept = crate::reconcile::testing::kept(config, &input);
    config.plan(&input, &kept, answers, no_past(&WriteHistory::default()), &|_| true).unwrap()
}

#[test]
fn children_that_no_hook_was_shown_are_deleted_in_rounds_before_the_parent_is_finalized() {
    let pods = |deleting: bool| {
        ["x", "y", "z"].map(|name| {
            let pod = child(name).with("metadata.annotations", json!({ATTACHED_BY: "c"}));
            if deleting { pod.deleting().object() } else { pod.object() }
        })
    };
    for kind in [config().kind, KindConfig::Decorator] {
        let mut config = ControllerConfig { kind, ..decorator() };
        let selection = &config.selection;
        let going = || parent().deleting().with("metadata.finalizers", json!([selection.finalizer]));
        let mut observed = config.clone();
        observed.observed.children = 2;
        let new = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}});
        let answer = |children: Value| {
            let mut answer = json!({"finalized": true});
            answer[observed.kind.name().children()] = children;
            answer
        };
        let ended = |config: &ControllerConfig, pods: &[Arc<Object>], children: Value| {
            let plan = planned(config, going(), pods, &answer(children));
            let deletes = plan.children.ops.iter().filter(|op| matches!(op, Op::Delete { .. })).count();
            (deletes, plan.children.ops.len() - deletes, plan.finalized)
        };
        assert_eq!(ended(&observed, &pods(false), json!([new])), (2, 0, false));
        // A decorator's last answer counts.
        let creates = usize::from(observed.kind.name() == ControllerKind::Decorator);
        assert_eq!(
            ended(&observed, &pods(true), json!([new])),
            (0, creates, true),
            "nothing is left to delete"
        );
        let as_is =
            ["x", "y"].map(|name| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}));
        assert!(ended(&observed, &pods(false), json!(as_is)).2, "the hook keeps what it is shown");
        config.observed.children = 3;
        assert!(ended(&config, &pods(false), json!([])).2, "all were shown");
    }
}

#[test]
fn what_is_there_and_was_not_shown_is_not_created() {
    let mut config = config();
    config.observed.children = 1;
    let foreign = |name: &str| a("v1", "Pod", &format!("n/{name}")).label(UID_LABEL, "p").controlled_by("p");
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
    let pods = [foreign("x").object(), foreign("y").object()];
    let answer = json!({"children": [pod("x"), pod("y"), pod("z")]});
    let plan = planned(&config, parent(), &pods, &answer).children;
    let created: Vec<_> = plan.ops.iter().filter(|op| matches!(op, Op::Create { .. })).collect();
    assert_eq!(created.iter().map(|op| &*op.id().key.name).collect::<Vec<_>>(), ["z"]);
    assert_eq!(plan.skips.iter().filter(|(_, why)| *why == Skip::LeftOut).count(), 1);
}
