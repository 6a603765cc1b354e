//! Scenarios of writes: each step of a reconcile against each kind of answer by the API server.

use std::collections::BTreeSet;
use std::sync::Arc;

use metahook_core::api::selection::FinalizerChange;
use metahook_core::cache::CacheEvent;
use metahook_core::children::claims::{Claim, ClaimedObject};
use metahook_core::children::deletion_brake::Census;
use metahook_core::children::{Op, Plan};
use metahook_core::decorator::Decoration;
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId, Uid};
use metahook_core::reconcile::config::KindConfig;
use metahook_core::reconcile::plan::ReconcilePlan;
use metahook_core::reconcile::sequence::claim;
use serde_json::json;

use crate::controller::reconcile::testing::{
    ANSWERS, COMPOSITE, OWNED, Scenario, body, children, id, object, owned_body, parents, resource, retry,
};
use crate::memory::Reservation;

/// The result of an operation on an object that the store has, for each of the answers.
async fn results(op: &Op) -> Vec<String> {
    let mut results = Vec::new();
    for answer in ANSWERS {
        let scenario = Scenario::new(answer);
        if !matches!(op, Op::Create { .. }) {
            scenario.observe(&op.id().resource);
        }
        results.push(scenario.write(op).await);
    }
    results
}

#[tokio::test(start_paused = true)]
async fn each_answer_to_a_write_has_its_result_and_its_effect_on_the_store() {
    let child = || id(children());
    let failures = |stored: &str| {
        ["with an Event", "after 1 s", "with an Event", "with an Event"]
            .map(|retry| format!("{retry}, {stored}"))
    };
    let create = Op::Create { id: child(), body: body(&children(), "") };
    let expected = ["wrote, 2", "with an Event, none", "with an Event, none"].map(str::to_owned);
    assert_eq!(results(&create).await, [&expected[..], &failures("none")].concat());
    let expected = ["wrote, 2", "gone, none", "silent, 1"].map(str::to_owned);
    let replace = Op::Replace { id: child(), body: body(&children(), "1") };
    assert_eq!(results(&replace).await, [&expected[..], &failures("1")].concat());
    let status = Op::Status { id: id(parents()), body: body(&parents(), "1") };
    assert_eq!(results(&status).await, [&expected[..], &failures("1")].concat());
    let expected = ["gone, deleting", "gone, none", "silent, 1"].map(str::to_owned);
    let delete = Op::Delete { id: child(), uid: Uid::new("configmaps") };
    assert_eq!(results(&delete).await, [&expected[..], &failures("1")].concat());
}

#[tokio::test(start_paused = true)]
async fn a_warning_of_the_api_server_is_one_event_for_its_parent_while_that_is_there() {
    let scenario = Scenario::new(Some(200));
    scenario.observe(&parents());
    let parent = Key::new("n", "x");
    let create = Op::Create { id: id(children()), body: body(&children(), "") };
    let told = async |texts: &[&str]| {
        let texts: Vec<_> = texts.iter().map(|&text| text.to_owned()).collect();
        scenario.reconciler.parents.record_api_warnings(&parent, &create, &texts, None);
        // The task that writes Events has nothing to wait for.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        scenario.requests.take().len()
    };
    assert_eq!(told(&["unknown field a", "unknown field b", "unknown field a"]).await, 2);
    assert_eq!(told(&["unknown field b"]).await, 0);
    scenario.reconciler.parents.forget(&parent);
    assert_eq!(told(&["unknown field b"]).await, 1, "what is forgotten is told again");
    scenario
        .store(&parents())
        .observe_write(vec![CacheEvent::Missing(parent.clone(), Uid::new("greetings"))]);
    assert_eq!(told(&["unknown field c"]).await, 0, "nothing is kept for a parent that is gone");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_api_server_ignores_is_a_no_op() {
    let scenario = Scenario::new(Some(200));
    scenario.observe(&children());
    let same = Op::Replace { id: id(children()), body: body(&children(), "2") };
    assert_eq!(scenario.write(&same).await, "no-op, 2");
    assert_eq!(scenario.requests.take(), ["PUT /api/v1/namespaces/n/configmaps/x"]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_one_patch_of_the_object_as_it_was_seen() {
    let parent = object(&parents());
    let mut results = Vec::new();
    for answer in ANSWERS {
        let scenario = Scenario::new(answer);
        let (writer, by) = (&scenario.reconciler.writer, scenario.data().writer(&parent.key));
        let added = writer.change_finalizers(&parent, &by, FinalizerChange::Add("example.com/f")).await;
        let result = match added {
            Ok(Some(now)) => format!("version {}", now.version.as_str()),
            Ok(None) => "gone".to_owned(),
            Err(error) => retry(error.retry()),
        };
        results.push(format!("{result}: {}", scenario.requests()));
    }
    let expected = [
        "version 2: PATCH greetings/x",
        "gone: PATCH greetings/x",
        "silent: PATCH greetings/x, GET greetings/x",
        "with an Event: PATCH greetings/x, GET greetings/x",
        "after 1 s: PATCH greetings/x",
        "with an Event: PATCH greetings/x",
        "with an Event: PATCH greetings/x",
    ];
    assert_eq!(results, expected);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_adopted_once_its_parent_was_read() {
    let parent = object(&parents());
    let mut results = Vec::new();
    for answer in ANSWERS {
        let scenario = Scenario::new(answer);
        let orphan = Arc::new(object(&children()));
        let claims = [ClaimedObject { resource: children(), object: orphan.into(), claim: Claim::Adopt }];
        let claimed = claim(&scenario.world(&Reservation::default()), &parent, &claims).await;
        results.push(match claimed {
            Ok(claimed) => {
                let child = claimed.children.get(&children(), &Key::new("n", "x")).unwrap();
                format!("version {}, wrote {}", child.version.as_str(), claimed.has_changed)
            }
            Err(error) => retry(error.failure().retry),
        });
        let requests = scenario.requests.take();
        assert_eq!(requests[0], "GET /apis/example.com/v1/namespaces/n/greetings/x");
        assert_eq!(requests.len() > 1, answer != Some(404), "{requests:?}");
    }
    assert_eq!(
        results,
        [
            "version 2, wrote true",
            "with an Event",
            "silent",
            "with an Event",
            "after 1 s",
            "with an Event",
            "with an Event"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_child_that_no_longer_matches_is_released() {
    let parent = object(&parents());
    let mut results = Vec::new();
    for answer in ANSWERS {
        let scenario = Scenario::new(answer);
        let child = Arc::new(Object::parse(&owned_body("1").to_string(), None).unwrap());
        let claims = [ClaimedObject { resource: children(), object: child.into(), claim: Claim::Release }];
        let claimed = claim(&scenario.world(&Reservation::default()), &parent, &claims).await;
        let result = claimed.map_or_else(
            |error| retry(error.failure().retry),
            |claimed| format!("wrote {}", claimed.has_changed),
        );
        results.push(format!("{result}: {}", scenario.requests()));
    }
    let expected = [
        "wrote true: GET configmaps/owned, PUT configmaps/owned",
        "wrote true: GET configmaps/owned",
        &format!("silent: {}", ["GET configmaps/owned, PUT configmaps/owned"; 4].join(", ")),
        "with an Event: GET configmaps/owned, PUT configmaps/owned",
        "after 1 s: GET configmaps/owned, PUT configmaps/owned",
        "with an Event: GET configmaps/owned, PUT configmaps/owned",
        "with an Event: GET configmaps/owned, PUT configmaps/owned",
    ];
    assert_eq!(results, expected);
}

#[tokio::test(start_paused = true)]
async fn a_reference_to_another_version_of_the_parent_is_renewed() {
    let parent = object(&resource("example.com/v2", "Greeting"));
    let mut results = Vec::new();
    for answer in ANSWERS {
        let scenario = Scenario::new(answer);
        let child = Arc::new(Object::parse(&owned_body("1").to_string(), None).unwrap());
        let claims = [ClaimedObject { resource: children(), object: child.into(), claim: Claim::Renew }];
        let claimed = claim(&scenario.world(&Reservation::default()), &parent, &claims).await;
        results.push(match claimed {
            Err(error) => format!("ends: {}", retry(error.failure().retry)),
            Ok(claimed) => {
                let child = claimed.children.get(&children(), &Key::new("n", OWNED));
                let version = child.map_or("none", |child| child.version.as_str());
                let error = claimed
                    .errors
                    .first()
                    .map_or("no error".to_owned(), |error| retry(error.failure().retry));
                format!("version {version}, wrote {}, {error}", claimed.has_changed)
            }
        });
    }
    // A child that cannot be renewed is planned as it is, and the reconcile fails at its end.
    let expected = [
        "version 2, wrote true, no error",
        "version none, wrote true, no error",
        "ends: silent",
        "version 1, wrote false, with an Event",
        "version 1, wrote false, after 1 s",
        "version 1, wrote false, with an Event",
        "version 1, wrote false, with an Event",
    ];
    assert_eq!(results, expected);
}

/// Claims on objects of these names. The API server says of those that end in [`OWNED`] that the parent owns them.
fn claims(names: &[&str], claim: Claim) -> Vec<ClaimedObject> {
    let claimed = |name: &&str| {
        let mut child = owned_body("1");
        child["metadata"]["name"] = json!(name);
        let object = Arc::new(Object::parse(&child.to_string(), None).unwrap());
        ClaimedObject { resource: children(), object: object.into(), claim }
    };
    names.iter().map(claimed).collect()
}

#[tokio::test(start_paused = true)]
async fn all_objects_that_cannot_be_claimed_are_named() {
    let scenario = Scenario::new(Some(422));
    let memory = Reservation::default();
    let parent = object(&resource("example.com/v2", "Greeting"));
    let claim_all = async |names, one| claim(&scenario.world(&memory), &parent, &claims(names, one)).await;
    let failed = claim_all(&["c", "a", "b"], Claim::Adopt).await.unwrap_err().failure();
    assert_eq!(failed.message, "3 claims failed: ConfigMap n/a, n/b, n/c: m");
    let owned = ["c-owned", "a-owned", "b-owned"];
    let expected = "3 claims failed: ConfigMap n/a-owned, n/b-owned, n/c-owned: m";
    let failed = claim_all(&owned, Claim::Release).await.unwrap_err().failure();
    assert_eq!(failed.message, expected);
    let claimed = claim_all(&owned, Claim::Renew).await.unwrap();
    let report = scenario.carry_out(ReconcilePlan::default(), claimed.errors).await;
    assert_eq!(report.result.unwrap_err().failure().message, expected);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_one_write_of_each_child() {
    let scenario = Scenario::new(Some(200));
    let parent = object(&resource("example.com/v2", "Greeting"));
    let renewals = claims(&["a-owned", "b-owned"], Claim::Renew);
    claim(&scenario.world(&Reservation::default()), &parent, &renewals).await.unwrap();
    let requests = scenario.requests.take();
    let writes = requests.iter().filter(|request| request.starts_with("PUT")).collect::<Vec<_>>();
    let expected = ["a", "b"].map(|name| format!("PUT /api/v1/namespaces/n/configmaps/{name}-owned"));
    assert_eq!(writes, expected.iter().collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_api_server_is_asked_for_one_claim_alone() {
    let scenario = Scenario::new(Some(429));
    let parent = object(&parents());
    let orphans = claims(&["a", "b", "c"], Claim::Adopt);
    let claimed = claim(&scenario.world(&Reservation::default()), &parent, &orphans).await;
    assert_eq!(retry(claimed.unwrap_err().failure().retry), "after 1 s");
    let requests = scenario.requests();
    assert!(requests.contains("configmaps/a") && !requests.contains("configmaps/b"), "{requests}");
}

/// Results of applying a plan, for each of the answers.
async fn applied(kind: &KindConfig, plan: impl Fn() -> ReconcilePlan) -> Vec<String> {
    let mut results = Vec::new();
    for answer in ANSWERS {
        let scenario = Scenario::of(kind.clone(), move |_| answer);
        results.push(scenario.apply(plan()).await);
    }
    results
}

fn writes(ops: Vec<Op>) -> ReconcilePlan {
    ReconcilePlan { children: Plan { ops, ..Plan::default() }, ..ReconcilePlan::default() }
}

#[tokio::test(start_paused = true)]
async fn a_related_object_that_is_gone_needs_no_deletion() {
    let deletion = || Op::Delete { id: id(children()), uid: Uid::new("configmaps") };
    let plan = || ReconcilePlan { deletions: vec![deletion()], ..ReconcilePlan::default() };
    let expected = [
        "FollowUp: DELETE configmaps/x",
        "Settled(None): DELETE configmaps/x",
        "Failed(5ms): DELETE configmaps/x, GET configmaps/x",
        "Failed(5ms): DELETE configmaps/x",
        "Postponed(1s): DELETE configmaps/x",
        "Failed(5ms): DELETE configmaps/x",
        "Failed(5ms): DELETE configmaps/x",
    ];
    assert_eq!(applied(&COMPOSITE, plan).await, expected);
}

#[tokio::test(start_paused = true)]
async fn attachments_wait_for_their_object_unless_another_client_changed_it() {
    let plan = || ReconcilePlan {
        decoration: Decoration {
            labels: [("a".to_owned(), Some("b".to_owned()))].into(),
            ..Decoration::default()
        },
        ..writes(vec![Op::Create { id: id(children()), body: body(&children(), "") }])
    };
    let expected = [
        "FollowUp: PUT greetings/x, POST configmaps",
        "FollowUp: PUT greetings/x, GET greetings/x",
        "Failed(5ms): PUT greetings/x, POST configmaps, GET configmaps/x",
        "Failed(5ms): PUT greetings/x",
        "Postponed(1s): PUT greetings/x",
        "Failed(5ms): PUT greetings/x",
        "Failed(5ms): PUT greetings/x",
    ];
    assert_eq!(applied(&KindConfig::Decorator, plan).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_child_is_made_anew_only_where_its_update_and_its_creation_are_tried() {
    let write = || Op::Replace { id: id(children()), body: body(&children(), "1") };
    let uid = || Uid::new("configmaps");
    let otherwise =
        || Op::Recreate { id: id(children()), uid: uid(), body: body(&children(), ""), manager: None };
    let dry_run = || Op::DryRun { write: Box::new(write()), otherwise: Box::new(otherwise()) };
    let expected = [
        "Settled(None): PUT configmaps/x",
        "Failed(5ms): PUT configmaps/x",
        "Failed(5ms): PUT configmaps/x",
        "Failed(5ms): PUT configmaps/x, POST configmaps",
        "Postponed(1s): PUT configmaps/x",
        "Failed(5ms): PUT configmaps/x",
        "Failed(5ms): PUT configmaps/x",
    ];
    assert_eq!(applied(&COMPOSITE, || writes(vec![dry_run()])).await, expected);
}

#[tokio::test(start_paused = true)]
async fn after_a_change_of_the_hooks_no_child_is_deleted_that_could_not_be_made_again() {
    let recreate = || {
        let (uid, body) = (Uid::new("configmaps"), body(&children(), ""));
        writes(vec![Op::Recreate { id: id(children()), uid, body, manager: None }])
    };
    for (is_changed, expected) in
        [(false, "Failed(5ms): DELETE configmaps/x, POST configmaps"), (true, "Failed(5ms): POST configmaps")]
    {
        let answer = |path: &str| if path.ends_with("/x") { Some(200) } else { Some(422) };
        let scenario = Scenario::of(COMPOSITE, answer);
        if is_changed {
            let parents = [id(parents())].into();
            scenario.data().brake.with(|brake, now| {
                for hooks in [b"a", b"b"] {
                    let census = |_: &_| Census { parents: BTreeSet::clone(&parents), children: 1 };
                    brake.version_changed(Fingerprint::of(hooks), now, census);
                }
            });
        }
        assert_eq!(scenario.apply(recreate()).await, expected, "changed: {is_changed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_fails_does_not_stop_the_others() {
    let answer = |path: &str| if path.ends_with(OWNED) { Some(500) } else { Some(200) };
    let scenario = Scenario::of(COMPOSITE, answer);
    let owned = ObjectId { resource: children(), key: Key::new("n", OWNED) };
    let ops = vec![
        Op::Replace { id: owned, body: owned_body("1") },
        Op::Replace { id: id(children()), body: body(&children(), "1") },
    ];
    let result = scenario.apply(writes(ops)).await;
    assert_eq!(result, "Failed(5ms): PUT configmaps/owned, PUT configmaps/x");
}

#[tokio::test(start_paused = true)]
async fn an_attachment_whose_name_is_taken_is_no_failure() {
    let answer = |path: &str| if path.ends_with("/configmaps") { Some(409) } else { Some(200) };
    let create = || writes(vec![Op::Create { id: id(children()), body: body(&children(), "") }]);
    let outcome = |kind| async move { Scenario::of(kind, answer).apply(create()).await };
    assert_eq!(outcome(KindConfig::Decorator).await, "Settled(None): POST configmaps, GET configmaps/x");
    assert_eq!(outcome(COMPOSITE).await, "Failed(5ms): POST configmaps, GET configmaps/x");
}
