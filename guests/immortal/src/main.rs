//! Knows when an immortal container needs another Pod, and counts how often one was started.

use metahook_sdk::{Children, Object, SyncRequest, SyncResponse};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Default, Deserialize)]
struct Spec {
    image: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    start_times: u64,
    /// The Pod that was counted last.
    last_pod_uid: String,
}

type Pod<'a> = Object<'a, PodSpec, PodStatus>;

#[derive(Default, Deserialize)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    image: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
}

type Request<'a> = SyncRequest<Object<'a, Spec, Status>, Children<'a, Pod<'a>>>;

fn sync(request: &Request<'_>) -> Result<SyncResponse, &'static str> {
    let (parent, status) = (&request.parent, &request.parent.status);
    let image = parent.spec.image.as_deref().unwrap_or_default();
    if image.trim().is_empty() {
        return Err("spec.image is missing or empty: name the image that the container runs");
    }
    let name = format!("{}-immortalpod", parent.metadata.name);
    let Some(pod) = request.children.group("Pod.v1").get(&name) else {
        return Ok(answer(status, "").child(wanted(&name, image)));
    };
    if pod.metadata.uid != status.last_pod_uid.as_str() {
        // It stays as it is until it is counted: in a pass that writes children the status may be left to the next
        // one, which would not see this Pod any more.
        let runs = pod.spec.containers.first().map_or(image, |container| &container.image);
        return Ok(answer(&counted(status, pod), &name).child(wanted(&name, runs)));
    }
    let answer = answer(status, &name);
    // One that has ended goes, and once it is gone there is another.
    Ok(if has_ended(pod) { answer } else { answer.child(wanted(&name, image)) })
}

fn counted(status: &Status, pod: &Pod<'_>) -> Status {
    Status { start_times: status.start_times.saturating_add(1), last_pod_uid: pod.metadata.uid.to_string() }
}

fn has_ended(pod: &Pod<'_>) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

fn answer(status: &Status, current_pod: &str) -> SyncResponse {
    SyncResponse::new().status(json!({
        "currentPod": current_pod,
        "startTimes": status.start_times,
        "lastPodUid": status.last_pod_uid,
    }))
}

fn wanted(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never", // it is the Pod that comes back
            "containers": [{ "name": "immortal", "image": image }]
        }
    })
}

fn main() -> std::process::ExitCode {
    metahook_sdk::run(sync)
}

#[cfg(test)]
mod tests {
    use super::*;
    use metahook_sdk::testing::{self, Answer};

    /// A container `a` of this status that runs `one`, and its Pod, if there is one.
    fn asked(status: &Value, pod: Option<Value>) -> Answer {
        let parent = json!({
            "apiVersion": "example.com/v1",
            "kind": "ImmortalContainer",
            "metadata": { "name": "a", "namespace": "b" },
            "spec": { "image": "one" },
            "status": status
        });
        pod.into_iter()
            .fold(testing::Request::of(parent).declared("Pod.v1"), testing::Request::observed)
            .call(sync)
            .unwrap()
    }

    fn status(pod: &str, times: u64, uid: &str) -> Value {
        json!({ "currentPod": pod, "startTimes": times, "lastPodUid": uid })
    }

    /// The Pod of `a` as the cluster has it.
    fn pod(uid: &str, image: &str, phase: &str) -> Value {
        let mut pod = wanted("a-immortalpod", image);
        pod["metadata"]["uid"] = json!(uid);
        pod["status"] = json!({ "phase": phase });
        pod
    }

    #[test]
    fn where_there_is_no_pod_one_is_wanted_and_nothing_is_counted() {
        for (before, after) in [
            (json!(null), status("", 0, "")),
            (json!({}), status("", 0, "")),
            (status("a-immortalpod", 3, "third"), status("", 3, "third")),
        ] {
            let answer = asked(&before, None);
            assert_eq!(answer.status, after);
            assert_eq!(
                answer.children,
                [json!({
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": { "name": "a-immortalpod" },
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{ "name": "immortal", "image": "one" }]
                    }
                })]
            );
        }
    }

    #[test]
    fn a_pod_is_counted_once_however_often_it_is_seen() {
        for phase in ["Pending", "Running", "Unknown", ""] {
            let mut now = status("", 3, "third");
            for _ in 0..3 {
                let answer = asked(&now, Some(pod("fourth", "one", phase)));
                assert_eq!(answer.status, status("a-immortalpod", 4, "fourth"));
                assert_eq!(answer.children, [wanted("a-immortalpod", "one")]);
                now = answer.status;
            }
        }
    }

    #[test]
    fn a_pod_that_has_ended_is_not_wanted_until_it_is_gone() {
        for phase in ["Succeeded", "Failed"] {
            let answer = asked(&status("", 4, "fourth"), Some(pod("fourth", "one", phase)));
            assert_eq!((answer.status, answer.children), (status("a-immortalpod", 4, "fourth"), vec![]));
        }
    }

    #[test]
    fn a_pod_that_is_being_deleted_is_still_the_current_one_and_wanted() {
        let mut going = pod("fourth", "one", "Running");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let answer = asked(&status("", 4, "fourth"), Some(going));
        assert_eq!(answer.status, status("a-immortalpod", 4, "fourth"));
        assert_eq!(answer.children, [wanted("a-immortalpod", "one")]);
    }

    #[test]
    fn another_image_is_wanted_in_the_place_of_the_one_that_runs() {
        let answer = asked(&status("", 4, "fourth"), Some(pod("fourth", "old", "Running")));
        assert_eq!(answer.children, [wanted("a-immortalpod", "one")]);
    }

    #[test]
    fn a_pod_that_is_not_counted_yet_stays_as_it_is() {
        for (image, phase) in [("one", "Succeeded"), ("one", "Failed"), ("old", "Running"), ("old", "Failed")]
        {
            let answer = asked(&status("", 3, "third"), Some(pod("fourth", image, phase)));
            assert_eq!(answer.status, status("a-immortalpod", 4, "fourth"));
            assert_eq!(answer.children, [wanted("a-immortalpod", image)], "{image} {phase}");
        }
    }

    #[test]
    fn a_pod_of_another_name_is_neither_counted_nor_kept() {
        let mut other = pod("other", "one", "Running");
        other["metadata"]["name"] = json!("a");
        let answer = asked(&status("", 3, "third"), Some(other));
        assert_eq!(answer.status, status("", 3, "third"));
        assert_eq!(answer.children, [wanted("a-immortalpod", "one")]);
    }

    #[test]
    fn a_container_without_an_image_is_refused() {
        for spec in [
            json!(null),
            json!({}),
            json!({ "image": null }),
            json!({ "image": "" }),
            json!({ "image": " " }),
        ] {
            let why = testing::Request::of(json!({ "metadata": { "name": "a" }, "spec": spec }))
                .call(sync)
                .unwrap_err();
            assert_eq!(why, "spec.image is missing or empty: name the image that the container runs");
        }
        let why = testing::Request::of(json!({ "spec": { "image": 5 } })).call(sync).unwrap_err();
        assert!(why.starts_with("request.parent.spec.image: 5 where a string should be"), "{why}");
    }
}
