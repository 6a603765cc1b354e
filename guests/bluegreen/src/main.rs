//! For each `BlueGreen` two `ReplicaSets`, of which one is live, and a Service that switches when the other one is ready.
//!
//! Which side is live is what the Service selects. A side notes its template in an annotation: what the API server makes of a
//! template says no more whether it is the one that is asked for.

use metahook_sdk::{IgnoredAny, Map, Object, Result, SyncRequest, SyncResponse};
use serde::Deserialize;
use serde_json::{Map as Json, Value, json};

/// The template of a side, as the parent had it.
const TEMPLATE: &str = "bluegreen.example.com/template";

/// The label that tells the sides apart.
const COLOUR: &str = "bluegreen.example.com/colour";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: Option<u32>,
    template: Template,
    service: Json<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Json<String, Value>,
    spec: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Counted {
    replicas: u32,
    ready_replicas: u32,
    observed_generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Selects {
    selector: Json<String, Value>,
}

#[derive(Default, Deserialize)]
struct Observed<'a> {
    #[serde(rename = "ReplicaSet.apps/v1", borrow, default)]
    sides: Map<'a, Object<'a, IgnoredAny, Counted>>,
    #[serde(rename = "Service.v1", borrow, default)]
    services: Map<'a, Object<'a, Selects>>,
}

type Request<'a> = SyncRequest<Object<'a, Spec>, Observed<'a>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Colour {
    Blue,
    Green,
}

impl Colour {
    fn as_str(self) -> &'static str {
        if self == Self::Blue { "blue" } else { "green" }
    }

    fn other(self) -> Self {
        if self == Self::Blue { Self::Green } else { Self::Blue }
    }
}

/// One side, as it is observed.
#[derive(Clone)]
struct Side {
    template: String,
    replicas: u32,
    ready: u32,
}

impl Side {
    fn of(request: &Request<'_>, colour: Colour) -> Option<Self> {
        let name = name(request, colour);
        let side = request.children.sides.values().find(|side| side.metadata.name == *name)?;
        let status = &side.status;
        // What is counted of an older spec says nothing about this one.
        let is_counted = Some(status.observed_generation) == side.metadata.generation;
        Some(Self {
            template: side
                .metadata
                .annotations
                .get(TEMPLATE)
                .map_or_else(String::new, |text| (**text).to_owned()),
            replicas: if is_counted { status.replicas } else { u32::MAX },
            ready: if is_counted { status.ready_replicas } else { 0 },
        })
    }
}

fn name(request: &Request<'_>, colour: Colour) -> String {
    metahook_sdk::owned_name(&request.parent.metadata.name, colour.as_str())
}

/// The side that the Service selects; blue where there is none yet.
fn live(request: &Request<'_>) -> Colour {
    let selected = request.children.services.values().find_map(|service| service.spec.selector.get(COLOUR));
    if selected.is_some_and(|colour| *colour == "green") { Colour::Green } else { Colour::Blue }
}

fn sync(request: &Request<'_>) -> Result {
    let spec = &request.parent.spec;
    if spec.template.spec.is_null() {
        return Err("spec.template.spec is missing: it is the spec of the Pods".into());
    }
    let replicas = spec.replicas.unwrap_or(1);
    let wanted = json!({ "metadata": spec.template.metadata, "spec": spec.template.spec }).to_string();
    let colour = live(request);
    let (now, idle) = (Side::of(request, colour), Side::of(request, colour.other()));
    let stays = now.as_ref().map_or(&wanted, |side| &side.template).clone();
    let mut selected = colour;
    let mut sides = vec![(colour, stays.clone(), replicas)];
    match idle {
        // The live side is as it should be: the other one rests.
        Some(side) if stays == wanted => sides.push((colour.other(), side.template, 0)),
        None if stays == wanted => {}
        Some(side) if side.template == wanted => {
            if side.ready >= replicas {
                selected = colour.other();
            }
            sides.push((colour.other(), wanted.clone(), replicas));
        }
        // Pods of the template before would be taken for new ones: they go first.
        Some(side) if side.replicas > 0 => sides.push((colour.other(), side.template, 0)),
        Some(_) | None => sides.push((colour.other(), wanted.clone(), replicas)),
    }
    let rolling = stays != wanted && selected == colour;
    let mut answer = SyncResponse::new()
        .status(json!({ "live": selected.as_str(), "phase": if rolling { "Rolling" } else { "Stable" } }))
        .child(service(request, selected));
    if selected != colour {
        answer = answer.event("Switched", &format!("{} takes over", selected.as_str()));
    }
    for (colour, template, replicas) in sides {
        answer.push(side(request, colour, &template, replicas)?);
    }
    Ok(answer)
}

fn labels(request: &Request<'_>, colour: Colour) -> Json<String, Value> {
    let app = ("bluegreen.example.com/app".to_owned(), json!(request.parent.metadata.name));
    [app, (COLOUR.to_owned(), json!(colour.as_str()))].into_iter().collect()
}

fn service(request: &Request<'_>, colour: Colour) -> Value {
    let mut spec = request.parent.spec.service.clone();
    spec.entry("ports").or_insert_with(|| json!([{ "port": 80 }]));
    spec.insert("selector".to_owned(), labels(request, colour).into());
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": request.parent.metadata.name }, "spec": spec })
}

fn side(request: &Request<'_>, colour: Colour, template: &str, replicas: u32) -> Result<Value> {
    let labels = labels(request, colour);
    let mut pods: Value = serde_json::from_str(template)
        .map_err(|why| format!("the annotation {TEMPLATE} of {}: {why}", name(request, colour)))?;
    let Some(Value::Object(metadata)) = pods.get_mut("metadata") else {
        return Err(format!("the annotation {TEMPLATE} of {} has no metadata", name(request, colour)).into());
    };
    if let Value::Object(own) = metadata.entry("labels").or_insert_with(|| json!({})) {
        own.extend(labels.clone());
    }
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": { "name": name(request, colour), "annotations": { TEMPLATE: template } },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": pods },
    }))
}

fn main() -> std::process::ExitCode {
    metahook_sdk::run(sync)
}

#[cfg(test)]
mod tests {
    use super::*;
    use metahook_sdk::testing::{Answer, Request};

    fn parent(image: &str) -> Value {
        let template = json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
        json!({ "metadata": { "name": "shop", "namespace": "n" }, "spec": { "replicas": 2, "template": template } })
    }

    /// Objects as they are once the API server and the `ReplicaSet` controller have done their part; `ready`: of blue
    /// and green.
    fn next(answer: &Answer, image: &str, ready: [u32; 2]) -> Answer {
        let observed = answer.children.iter().cloned().map(|mut child| {
            child["metadata"]["namespace"] = json!("n");
            if child["kind"] == "ReplicaSet" {
                let is_blue = child["metadata"]["name"] == "shop-blue";
                let (replicas, ready) = (child["spec"]["replicas"].clone(), ready[usize::from(!is_blue)]);
                child["metadata"]["generation"] = json!(3);
                child["status"] =
                    json!({ "replicas": replicas, "readyReplicas": ready, "observedGeneration": 3 });
            }
            child
        });
        observed.fold(Request::of(parent(image)).v2(), Request::observed).call(sync).unwrap()
    }

    /// The live side, and of each side that there is its image and its replicas.
    fn state(answer: &Answer) -> (String, Vec<String>) {
        let sides = answer.children.iter().filter(|child| child["kind"] == "ReplicaSet");
        let shown = sides.map(|side| {
            let image = &side["spec"]["template"]["spec"]["containers"][0]["image"];
            let name = side["metadata"]["name"].as_str().unwrap().trim_start_matches("shop-");
            format!("{name} {} {}", image.as_str().unwrap(), side["spec"]["replicas"])
        });
        (answer.children[0]["spec"]["selector"][COLOUR].as_str().unwrap().to_owned(), shown.collect())
    }

    #[test]
    fn the_service_switches_when_the_new_side_is_ready_and_the_old_one_rests() {
        let first = Request::of(parent("v1")).v2().call(sync).unwrap();
        let is = |answer: &Answer, live: &str, sides: &[&str]| {
            assert_eq!(state(answer), (live.to_owned(), sides.iter().map(ToString::to_string).collect()));
        };
        is(&first, "blue", &["blue v1 2"]);
        let stable = next(&first, "v1", [2, 0]);
        is(&stable, "blue", &["blue v1 2"]);
        let rolling = next(&stable, "v2", [2, 0]);
        is(&rolling, "blue", &["blue v1 2", "green v2 2"]);
        let half = next(&rolling, "v2", [2, 1]);
        is(&half, "blue", &["blue v1 2", "green v2 2"]);
        assert_eq!(half.status, json!({ "live": "blue", "phase": "Rolling" }));
        let switched = next(&half, "v2", [2, 2]);
        is(&switched, "green", &["blue v1 2", "green v2 2"]);
        assert_eq!(switched.events[0]["reason"], "Switched");
        let rests = next(&switched, "v2", [2, 2]);
        is(&rests, "green", &["green v2 2", "blue v1 0"]);
        assert_eq!(rests.status, json!({ "live": "green", "phase": "Stable" }));
        let back = next(&rests, "v3", [0, 2]);
        is(&back, "green", &["green v2 2", "blue v3 2"]);
    }

    #[test]
    fn pods_of_an_older_template_go_before_a_side_is_used_again() {
        let first = Request::of(parent("v1")).v2().call(sync).unwrap();
        let rolling = next(&first, "v2", [2, 0]);
        let changed = next(&rolling, "v3", [2, 2]);
        assert_eq!(state(&changed), ("blue".into(), vec!["blue v1 2".into(), "green v2 0".into()]));
        let empty = next(&changed, "v3", [2, 0]);
        assert_eq!(state(&empty), ("blue".into(), vec!["blue v1 2".into(), "green v3 2".into()]));
        // Back to what is live: the other side rests, half done as it is.
        let given_up = next(&empty, "v1", [2, 1]);
        assert_eq!(state(&given_up), ("blue".into(), vec!["blue v1 2".into(), "green v3 0".into()]));
    }

    #[test]
    fn a_parent_without_pods_is_refused() {
        let why = Request::of(json!({ "metadata": { "name": "shop" } })).v2().call(sync).unwrap_err();
        assert_eq!(why, "spec.template.spec is missing: it is the spec of the Pods");
    }
}
