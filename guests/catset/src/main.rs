//! For each `CatSet` numbered Pods, each with volumes of its own: made from the first on, one after the other, and deleted
//! from the last on.

use metahook_sdk::{Hook, Map, Object, Result, Str, SyncRequest, SyncResponse, owned_name};
use serde::Deserialize;
use serde_json::{Map as Json, Value, json};

/// The label with a Pod's number.
const NUMBER: &str = "catset.example.com/number";

/// Pods of one `CatSet`.
const MAX_PODS: u32 = 1000;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    replicas: Option<u32>,
    service_name: String,
    template: Template,
    volume_claim_templates: Vec<ClaimTemplate>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Metadata,
    spec: Json<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    labels: Json<String, Value>,
    annotations: Json<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimTemplate {
    metadata: Named,
    spec: Json<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus<'a> {
    #[serde(borrow)]
    phase: Str<'a>,
    #[serde(borrow)]
    conditions: Vec<Condition<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition<'a> {
    #[serde(rename = "type", borrow)]
    of_type: Str<'a>,
    #[serde(borrow)]
    status: Str<'a>,
}

type Pod<'a> = Object<'a, metahook_sdk::IgnoredAny, PodStatus<'a>>;

#[derive(Default, Deserialize)]
struct Observed<'a> {
    #[serde(rename = "Pod.v1", borrow, default)]
    pods: Map<'a, Pod<'a>>,
    #[serde(rename = "PersistentVolumeClaim.v1", borrow, default)]
    claims: Map<'a, Object<'a>>,
}

type Request<'a> = SyncRequest<Object<'a, Spec>, Observed<'a>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Ready,
    /// All its containers have ended for good.
    Ended,
}

fn state(pod: &Pod<'_>) -> State {
    let is_ready = |one: &Condition<'_>| one.of_type == *"Ready" && one.status == *"True";
    match &*pod.status.phase {
        "Succeeded" | "Failed" => State::Ended,
        _ if !pod.metadata.deleting() && pod.status.conditions.iter().any(is_ready) => State::Ready,
        _ => State::Starting,
    }
}

/// Numbers of the observed Pods, from the first on, with their states.
fn observed(request: &Request<'_>) -> Vec<(u32, State)> {
    let number = |pod: &Pod<'_>| pod.metadata.labels.get(NUMBER)?.parse().ok();
    let pods = request.children.pods.values();
    let mut all: Vec<_> = pods.filter_map(|pod| Some((number(pod)?, state(pod)))).collect();
    all.sort_unstable_by_key(|(number, _)| *number);
    all
}

/// Numbers of the Pods that there should be now. A Pod is made when all before it are ready; the last one that is too many
/// goes when all that stay are ready, and no other one until it is gone.
fn next(replicas: u32, observed: &[(u32, State)]) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut all_ready = true;
    for number in 0..replicas {
        let state = observed.iter().find(|(one, _)| *one == number).map(|(_, state)| *state);
        // One that has ended is deleted first, and made anew when it is gone.
        if state.is_some_and(|state| state != State::Ended) || (state.is_none() && all_ready) {
            numbers.push(number);
        }
        all_ready &= state == Some(State::Ready);
    }
    let surplus = observed.iter().map(|(number, _)| *number).filter(|number| *number >= replicas);
    numbers.extend(surplus);
    if all_ready && numbers.last().is_some_and(|last| *last >= replicas) {
        numbers.pop();
    }
    numbers
}

fn sync(request: &Request<'_>) -> Result {
    let spec = &request.parent.spec;
    if spec.template.spec.is_empty() {
        return Err("spec.template.spec is missing: it is the spec of the Pods".into());
    }
    let replicas = spec.replicas.unwrap_or(1);
    if replicas > MAX_PODS {
        return Err(format!("spec.replicas is {replicas}, and a CatSet has at most {MAX_PODS} Pods").into());
    }
    let observed = observed(request);
    Ok(answer(request, &observed, &next(replicas, &observed)))
}

/// Deletes the Pods from the last on, one after the other. The claims go with the parent.
fn finalize(request: &Request<'_>) -> SyncResponse {
    let observed = observed(request);
    let mut left: Vec<u32> = observed.iter().map(|(number, _)| *number).collect();
    left.pop();
    let answer = answer(request, &observed, &left);
    if observed.is_empty() { answer.finalized() } else { answer }
}

fn answer(request: &Request<'_>, observed: &[(u32, State)], numbers: &[u32]) -> SyncResponse {
    let ready = observed.iter().filter(|(_, state)| *state == State::Ready).count();
    let status = json!({ "replicas": observed.len(), "readyReplicas": ready });
    let mut answer = SyncResponse::new().status(status);
    let mut claims = Vec::new();
    // A rolling update follows the order of the answer: the last Pod first.
    for number in numbers.iter().rev() {
        answer.push(pod(request, *number));
        for template in &request.parent.spec.volume_claim_templates {
            let name = claim_name(request, template, *number);
            answer.push(claim(&name, Some(&template.spec)));
            claims.push(name);
        }
    }
    // The claims of Pods that are gone stay as they are.
    let kept = request.children.claims.values().map(|claim| claim.metadata.name.to_string());
    answer.children(kept.filter(|name| !claims.contains(name)).map(|name| claim(&name, None)))
}

fn pod_name(request: &Request<'_>, number: u32) -> String {
    owned_name(&request.parent.metadata.name, &number.to_string())
}

fn claim_name(request: &Request<'_>, template: &ClaimTemplate, number: u32) -> String {
    format!("{}-{}", template.metadata.name, pod_name(request, number))
}

fn claim(name: &str, spec: Option<&Json<String, Value>>) -> Value {
    let kind = "PersistentVolumeClaim";
    match spec {
        Some(spec) => json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name }, "spec": spec }),
        None => json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } }),
    }
}

fn pod(request: &Request<'_>, number: u32) -> Value {
    let Spec { service_name, template, volume_claim_templates: claims, .. } = &request.parent.spec;
    let name = pod_name(request, number);
    let mut labels = template.metadata.labels.clone();
    labels.insert(NUMBER.to_owned(), json!(number.to_string()));
    let volumes = claims.iter().map(|template| {
        let claim = json!({ "claimName": claim_name(request, template, number) });
        json!({ "name": template.metadata.name, "persistentVolumeClaim": claim })
    });
    let own = template.spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let others = own.filter(|volume| claims.iter().all(|one| volume["name"] != one.metadata.name.as_str()));
    let volumes: Vec<Value> = others.cloned().chain(volumes).collect();
    let mut spec = template.spec.clone();
    spec.insert("hostname".to_owned(), json!(name));
    spec.insert("subdomain".to_owned(), json!(service_name));
    spec.insert("volumes".to_owned(), json!(volumes));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": labels, "annotations": template.metadata.annotations },
        "spec": spec,
    })
}

fn main() -> std::process::ExitCode {
    match metahook_sdk::hook() {
        Hook::Finalize => metahook_sdk::run(finalize),
        Hook::Sync | Hook::Customize => metahook_sdk::run(sync),
    }
}

#[cfg(test)]
mod tests;
