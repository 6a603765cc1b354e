//! Knows how the restart of Pods reads and writes the objects of the API: what it asks to see, what it answers.

mod content;
mod restart;
mod selector;
#[cfg(test)]
mod story;

use std::process::ExitCode;

use metahook_sdk::{
    Children, CustomizeRequest, CustomizeResponse, DecorateRequest, DecorateResponse, Hook, IgnoredAny, Map,
    Object, ObjectMeta, RelatedRule, Str,
};
use restart::{MOST, Noted, Restart, Step};
use serde::Deserialize;

/// On a `ConfigMap`: a label selector of the Pods that are restarted when its data changes.
const MATCH: &str = "magalix.com/podDeleteMatch";
/// Noted by us: of which `ConfigMap`, by its uid, which data was seen last, by its digest.
const SEEN: &str = "metahook.dev/config-seen";
/// Noted by us while Pods are restarted: which, by their uids.
const PODS: &str = "metahook.dev/pods-to-delete";
/// In place of uids.
const DUE: &str = "to-be-noted";

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConfigMap<'a> {
    #[serde(borrow)]
    metadata: ObjectMeta<'a>,
    #[serde(borrow)]
    data: Map<'a, Str<'a>>,
    #[serde(borrow)]
    binary_data: Map<'a, Str<'a>>,
}

impl ConfigMap<'_> {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key).map(|value| &**value)
    }

    /// Notes on this `ConfigMap`. Notes on another one came with a copy, and tell nothing about this one.
    fn noted(&self) -> Noted {
        let seen = self.annotation(SEEN).and_then(|seen| seen.split_once('/'));
        let restart = match self.annotation(PODS) {
            None => Restart::None,
            Some(DUE) => Restart::Due,
            Some(uids) => Restart::Of(uids.split(',').map(str::to_owned).collect()),
        };
        let seen = seen.filter(|(uid, _)| self.metadata.uid == *uid).map(|(_, digest)| digest.to_owned());
        Noted { seen, restart }
    }
}

/// Asks for the Pods, but only while some are restarted: a change of a Pod that is not asked for starts no reconcile.
fn customize(request: &CustomizeRequest<ConfigMap<'_>>) -> CustomizeResponse {
    let map = &request.parent;
    let wanted = map.annotation(MATCH).and_then(|text| selector::parse(text).ok());
    match wanted.filter(|_| map.noted().restart != Restart::None) {
        None => CustomizeResponse::new(),
        Some(pods) => {
            let namespace = &*map.metadata.namespace;
            let rule = RelatedRule::new("v1", "pods").namespace(namespace).labels(pods.selector);
            CustomizeResponse::new().related(rule)
        }
    }
}

type Request<'a> = DecorateRequest<ConfigMap<'a>, IgnoredAny, IgnoredAny, Children<'a, Object<'a>>>;

fn sync(request: &Request<'_>) -> DecorateResponse {
    let map = &request.object;
    let answer = DecorateResponse::new();
    let Some(text) = map.annotation(MATCH) else {
        return answer.remove_annotation(SEEN).remove_annotation(PODS);
    };
    if map.metadata.deletion_timestamp.is_some() {
        return answer;
    }
    let (wanted, noted) = (selector::parse(text), map.noted());
    // The first sight is noted all the same, so that what changes from then on is made up for.
    if let (Err(why), Some(_)) = (&wanted, &noted.seen) {
        let why = format!("{MATCH}: {text:?} is no label selector, so no Pod is restarted: {why}");
        return answer.warning("InvalidPodSelector", &why);
    }
    let found = |pod: &ObjectMeta<'_>| wanted.as_ref().is_ok_and(|wanted| wanted.finds(&pod.labels));
    let pods = || {
        let all = request.related.group("Pod.v1").values();
        all.filter(|pod| pod.metadata.deletion_timestamp.is_none() && found(&pod.metadata))
    };
    let uids = pods().map(|pod| &*pod.metadata.uid).collect();
    match restart::step(&content::digest(&map.data, &map.binary_data), noted, &uids) {
        Step::Rest => answer,
        Step::Note(noted) => note(answer, &map.metadata.uid, noted),
        Step::Delete(uids) => pods()
            .filter(|pod| uids.contains(&*pod.metadata.uid))
            .fold(answer, DecorateResponse::delete_related),
        Step::TooMany(count) => {
            let why = format!(
                "the data changed, but no Pod is restarted: {count} match, and at most {MOST} can be noted in an annotation"
            );
            answer.warning("TooManyPods", &why)
        }
    }
}

fn note(answer: DecorateResponse, uid: &str, noted: Noted) -> DecorateResponse {
    let answer = match noted.seen {
        Some(digest) => answer.annotation(SEEN, format!("{uid}/{digest}")),
        None => answer,
    };
    match noted.restart {
        Restart::None => answer.remove_annotation(PODS),
        Restart::Due => answer.annotation(PODS, DUE),
        Restart::Of(uids) => answer.annotation(PODS, uids.into_iter().collect::<Vec<_>>().join(",")),
    }
}

fn main() -> ExitCode {
    match metahook_sdk::hook() {
        Hook::Sync | Hook::Finalize => metahook_sdk::run(sync),
        Hook::Customize => metahook_sdk::run(customize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metahook_sdk::testing::{Answer, Request};
    use serde_json::{Value, json};

    fn map(annotations: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "c", "namespace": "n", "uid": "m", "annotations": annotations },
            "data": { "text": "old" },
        })
    }

    /// One that was seen as it is, with a restart of this Pod under way.
    fn seen(pods: &str) -> Value {
        let mut map = map(&json!({ MATCH: "app=frontend", PODS: pods }));
        map["metadata"]["annotations"][SEEN] = asked(map_seen_first())[SEEN].clone();
        map
    }

    fn map_seen_first() -> Value {
        map(&json!({ MATCH: "app=frontend" }))
    }

    fn answer(map: Value, pods: &[&str]) -> Answer {
        let pod = |uid: &&str| json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": uid, "namespace": "n", "uid": uid } });
        pods.iter().map(pod).fold(Request::decorating(map).v2(), Request::related).call(sync).unwrap()
    }

    fn asked(map: Value) -> Value {
        Value::Object(answer(map, &[]).annotations)
    }

    fn rules(map: Value) -> Vec<Value> {
        Request::of(map).call(customize).unwrap().related_resources
    }

    #[test]
    fn pods_are_asked_for_only_while_some_are_restarted() {
        assert!(rules(map(&json!({}))).is_empty());
        assert!(rules(map(&json!({ MATCH: "app=frontend" }))).is_empty());
        assert!(rules(map(&json!({ MATCH: "app in (", PODS: DUE }))).is_empty());
        assert_eq!(
            rules(map(&json!({ MATCH: "app in (a,b),!canary", SEEN: "m/1", PODS: DUE }))),
            [json!({
                "apiVersion": "v1", "resource": "pods", "namespace": "n",
                "labelSelector": { "matchExpressions": [
                    { "key": "app", "operator": "In", "values": ["a", "b"] },
                    { "key": "canary", "operator": "DoesNotExist" },
                ] },
            })]
        );
    }

    #[test]
    fn a_noted_pod_is_deleted_by_its_uid_and_no_other() {
        let answer = answer(seen("u1,u3"), &["u1", "u2"]);
        assert_eq!(
            answer.delete_related,
            [json!({ "apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "u1", "uid": "u1" })]
        );
        assert_eq!((answer.annotations.len(), answer.events.len(), answer.attachments.len()), (0, 0, 0));
    }

    #[test]
    fn data_of_either_sort_is_looked_at_and_labels_and_annotations_are_not() {
        let mut same = seen("u1");
        same["metadata"]["annotations"]["other"] = json!("new");
        same["metadata"]["labels"] = json!({ "other": "new" });
        same["metadata"]["annotations"].as_object_mut().unwrap().remove(PODS);
        assert_eq!(asked(same.clone()), json!({}));
        for field in ["data", "binaryData"] {
            let mut other = same.clone();
            other[field] = json!({ "text": "bmV3" });
            assert_eq!(asked(other)[PODS], DUE, "{field}");
        }
    }

    #[test]
    fn a_malformed_selector_is_reported_and_nothing_else_happens() {
        let mut malformed = seen(DUE);
        malformed["metadata"]["annotations"][MATCH] = json!("app in (");
        let answer = answer(malformed, &["u1"]);
        let event = json!({
            "type": "Warning", "reason": "InvalidPodSelector",
            "message": "magalix.com/podDeleteMatch: \"app in (\" is no label selector, so no Pod is restarted: it ends where a comma or ) should be",
        });
        assert_eq!(
            (answer.events, answer.annotations.len(), answer.delete_related.len()),
            (vec![event], 0, 0)
        );
    }

    #[test]
    fn a_first_sight_is_noted_whatever_the_selector_says() {
        let bad = map(&json!({ MATCH: "app in (" }));
        assert_eq!(asked(bad), asked(map_seen_first()));
    }

    #[test]
    fn of_pods_with_a_label_those_go_whose_number_is_asked_for() {
        let map = |annotation: &str| {
            let mut map = seen(annotation);
            map["metadata"]["annotations"][MATCH] = json!("tier>3");
            map
        };
        assert_eq!(
            rules(map(DUE))[0]["labelSelector"],
            json!({ "matchExpressions": [{ "key": "tier", "operator": "Exists" }] })
        );
        let pod = |tier: &str| {
            let metadata = json!({ "name": tier, "namespace": "n", "uid": tier, "labels": { "tier": tier } });
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata })
        };
        let call = |annotation: &str| {
            let pods = ["3", "4", "10", "x"].iter().map(|tier| pod(tier));
            let request = Request::decorating(map(annotation)).v2();
            pods.fold(request, Request::related).call(sync).unwrap()
        };
        assert_eq!(call(DUE).annotations[PODS], "10,4");
        assert_eq!(call("10,3").delete_related.len(), 1);
    }

    #[test]
    fn without_the_annotation_our_notes_go_and_no_pod_does() {
        let mut stopped = seen("u1");
        stopped["metadata"]["annotations"].as_object_mut().unwrap().remove(MATCH);
        let answer = answer(stopped, &["u1"]);
        assert_eq!(Value::Object(answer.annotations), json!({ SEEN: null, PODS: null }));
        assert!(answer.delete_related.is_empty());
    }

    #[test]
    fn nothing_is_done_for_a_config_map_that_is_being_deleted() {
        let mut going = seen("u1");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(answer(going, &["u1"]).raw, r#"{"attachments":[]}"#);
    }

    #[test]
    fn a_copy_with_our_notes_is_seen_for_the_first_time() {
        let mut copy = seen("u1");
        copy["metadata"]["uid"] = json!("another");
        copy["data"]["text"] = json!("new");
        let answer = answer(copy, &["u1"]);
        assert!(
            answer.annotations[SEEN].as_str().unwrap().starts_with("another/"),
            "{:?}",
            answer.annotations
        );
        assert_eq!((&answer.annotations[PODS], answer.delete_related.len()), (&Value::Null, 0));
    }

    #[test]
    fn more_pods_than_can_be_recorded_are_reported() {
        let all: Vec<String> = (0..=MOST).map(|number| number.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let answer = answer(seen(DUE), &all);
        assert_eq!(answer.events[0]["reason"], "TooManyPods");
        assert_eq!((answer.annotations.len(), answer.delete_related.len()), (0, 0));
    }
}
