use metahook_sdk::testing::{Answer, Request};
use serde_json::{Value, json};

use super::{MAX_PODS, NUMBER, State, finalize, next, sync};

fn parent(replicas: u32) -> Value {
    let template = json!({
        "metadata": { "labels": { "app": "shop" } },
        "spec": { "containers": [], "volumes": [{ "name": "www", "emptyDir": {} }, { "name": "tmp", "emptyDir": {} }] },
    });
    let claim = json!({ "metadata": { "name": "www" }, "spec": { "accessModes": ["ReadWriteOnce"] } });
    json!({
        "apiVersion": "example.com/v1",
        "kind": "CatSet",
        "metadata": { "name": "shop", "namespace": "n" },
        "spec": {
            "replicas": replicas, "serviceName": "cats", "template": template, "volumeClaimTemplates": [claim],
        },
    })
}

fn pod(number: u32, ready: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": format!("shop-{number}"), "labels": { NUMBER: number.to_string() } },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] },
    })
}

fn claim(number: u32) -> Value {
    let metadata = json!({ "name": format!("www-shop-{number}") });
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata })
}

fn asked(replicas: u32, observed: impl IntoIterator<Item = Value>) -> Request {
    observed.into_iter().fold(Request::of(parent(replicas)).v2(), Request::observed)
}

fn names(answer: &Answer, kind: &str) -> Vec<String> {
    let of_kind = answer.children.iter().filter(|child| child["kind"] == kind);
    of_kind.map(|child| child["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn pods_come_from_the_first_and_go_from_the_last_one_at_a_time() {
    use State::{Ended, Ready, Starting};
    for (replicas, observed, expected) in [
        (3, &[][..], &[0][..]),
        (3, &[(0, Starting)], &[0]),
        (3, &[(0, Ready)], &[0, 1]),
        (2, &[(0, Ready), (1, Starting)], &[0, 1]),
        // One in the middle is missing: it comes back before there are more.
        (4, &[(0, Ready), (2, Ready)], &[0, 1, 2]),
        (4, &[(0, Starting), (2, Ready)], &[0, 2]),
        // One that has ended is deleted, and made anew when it is gone.
        (3, &[(0, Ready), (1, Ended)], &[0]),
        (1, &[(0, Ready), (1, Ready), (2, Ready)], &[0, 1]),
        (1, &[(0, Ready), (1, Ready), (2, Ended)], &[0, 1]),
        (1, &[(0, Ready), (1, Starting)], &[0]),
        (1, &[(0, Starting), (1, Ready), (2, Ready)], &[0, 1, 2]),
        (0, &[(0, Starting)], &[]),
        (0, &[], &[]),
    ] {
        assert_eq!(next(replicas, observed), expected, "{replicas} of {observed:?}");
    }
}

#[test]
fn a_pod_has_its_claim_its_name_and_its_number() {
    let answer = asked(2, [pod(0, "True"), claim(0)]).call(sync).unwrap();
    assert_eq!(answer.status, json!({ "replicas": 1, "readyReplicas": 1 }));
    assert_eq!(names(&answer, "Pod"), ["shop-1", "shop-0"]);
    assert_eq!(names(&answer, "PersistentVolumeClaim"), ["www-shop-1", "www-shop-0"]);
    let pod = &answer.children[0];
    assert_eq!(pod["metadata"]["labels"], json!({ "app": "shop", NUMBER: "1" }));
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("shop-1"), &json!("cats")));
    // The claim takes the place of a volume of its name.
    let claimed = json!({ "name": "www", "persistentVolumeClaim": { "claimName": "www-shop-1" } });
    assert_eq!(pod["spec"]["volumes"], json!([{ "name": "tmp", "emptyDir": {} }, claimed]));
}

#[test]
fn claims_stay_when_their_pods_go() {
    let answer = asked(0, [claim(0), claim(1)]).call(sync).unwrap();
    assert_eq!(answer.children, [claim(0), claim(1)]);
}

#[test]
fn a_pod_that_is_being_deleted_is_not_ready() {
    let mut going = pod(0, "True");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let answer = asked(2, [going]).call(sync).unwrap();
    assert_eq!(names(&answer, "Pod"), ["shop-0"]);
    assert_eq!(answer.status, json!({ "replicas": 1, "readyReplicas": 0 }));
}

#[test]
fn the_last_pod_goes_first_when_the_parent_goes() {
    let all = [pod(0, "True"), pod(1, "False"), claim(0), claim(1)];
    let first = asked(2, all).finalizing().call(finalize).unwrap();
    assert_eq!((names(&first, "Pod"), first.finalized), (vec!["shop-0".to_owned()], false));
    assert_eq!(names(&first, "PersistentVolumeClaim").len(), 2);
    let last = asked(2, [pod(0, "True"), claim(0), claim(1)]).finalizing().call(finalize).unwrap();
    assert!(names(&last, "Pod").is_empty() && !last.finalized);
    let gone = asked(2, [claim(0), claim(1)]).finalizing().call(finalize).unwrap();
    assert!(gone.finalized && gone.children.len() == 2);
}

#[test]
fn a_parent_without_pods_or_with_too_many_is_refused() {
    let why = Request::of(json!({ "metadata": { "name": "shop" } })).v2().call(sync).unwrap_err();
    assert_eq!(why, "spec.template.spec is missing: it is the spec of the Pods");
    let why = asked(MAX_PODS + 1, []).call(sync).unwrap_err();
    assert_eq!(why, "spec.replicas is 1001, and a CatSet has at most 1000 Pods");
}
