//! For each Pod of a `StatefulSet` with the annotation `metahook.dev/service-per-pod` a Service that leads to this Pod alone.

use metahook_sdk::{Decorate, DecorateResponse, Hook, Result, owned_name};
use serde::Deserialize;
use serde_json::{Value, json};

/// Its value names the ports: `80:8080,443`.
const PORTS: &str = "metahook.dev/service-per-pod";

/// The label that the `StatefulSet` controller gives each Pod.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// Ports of one Service.
const MAX_PORTS: usize = 20;

/// Pods of one `StatefulSet`.
const MAX_PODS: u32 = 1000;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: Option<u32>,
    ordinals: Ordinals,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ordinals {
    start: u32,
}

type Request<'a> = Decorate<'a, Spec>;

fn sync(request: &Request<'_>) -> Result<DecorateResponse> {
    let metadata = &request.object.metadata;
    let ports = ports(metadata.annotations.get(PORTS).map_or("", |ports| ports))?;
    let Spec { replicas, ordinals } = &request.object.spec;
    let replicas = replicas.unwrap_or(1);
    if replicas > MAX_PODS {
        return Err(format!("spec.replicas is {replicas}, and at most {MAX_PODS} Pods get Services").into());
    }
    let pods = (ordinals.start..).take(replicas as usize);
    let services = pods.map(|ordinal| {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": owned_name(&metadata.name, &ordinal.to_string()) },
            "spec": { "selector": { POD_NAME: format!("{}-{ordinal}", metadata.name) }, "ports": ports },
        })
    });
    Ok(DecorateResponse::new().attachments(services))
}

/// The `StatefulSet` is being deleted, or has no annotation any more: it waits until its Services are gone.
fn finalize(request: &Request<'_>) -> DecorateResponse {
    let answer = DecorateResponse::new();
    if request.attachments.group("Service.v1").is_empty() { answer.finalized() } else { answer }
}

/// Each `port` or `port:targetPort`.
fn ports(text: &str) -> Result<Vec<Value>> {
    let wrong = |part: &str| {
        format!("{PORTS}: {part:.40} is no port: write numbers from 1 to 65535 like 80:8080,443")
    };
    let number = |part: &str, text: &str| {
        let port: u16 = text.trim().parse().map_err(|_not_a_number| wrong(part))?;
        if port == 0 { Err(wrong(part)) } else { Ok(port) }
    };
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        if all.len() == MAX_PORTS {
            return Err(format!("{PORTS}: it names more than {MAX_PORTS} ports").into());
        }
        let (port, target) = part.split_once(':').unwrap_or((part, part));
        let (port, target) = (number(part, port)?, number(part, target)?);
        all.push(json!({ "name": format!("port-{port}"), "port": port, "targetPort": target }));
    }
    Ok(all)
}

fn main() -> std::process::ExitCode {
    match metahook_sdk::hook() {
        Hook::Finalize => metahook_sdk::run(finalize),
        Hook::Sync | Hook::Customize => metahook_sdk::run(sync),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metahook_sdk::testing::Request;

    fn set(spec: &Value, ports: &str) -> Request {
        let metadata = json!({ "name": "web", "namespace": "n", "annotations": { PORTS: ports } });
        Request::decorating(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec,
        }))
        .v2()
        .declared("Service.v1")
    }

    fn names(request: Request) -> Vec<String> {
        let services = request.call(sync).unwrap().attachments;
        services.iter().map(|service| service["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn each_pod_has_a_service() {
        let answers = set(&json!({ "replicas": 2 }), "80:8080, 443").settle(sync, 5).unwrap();
        let services = &answers.last().unwrap().attachments;
        assert_eq!(services.len(), 2);
        let ports = json!([
            { "name": "port-80", "port": 80, "targetPort": 8080 },
            { "name": "port-443", "port": 443, "targetPort": 443 },
        ]);
        assert_eq!(services[1]["spec"], json!({ "selector": { POD_NAME: "web-1" }, "ports": ports }));
    }

    #[test]
    fn pods_are_counted_as_the_stateful_set_counts_them() {
        assert_eq!(names(set(&json!({}), "80")), ["web-0"]);
        assert_eq!(names(set(&json!({ "replicas": 0 }), "80")), Vec::<String>::new());
        assert_eq!(
            names(set(&json!({ "replicas": 2, "ordinals": { "start": 3 } }), "80")),
            ["web-3", "web-4"]
        );
        assert_eq!(names(set(&json!({ "replicas": MAX_PODS }), "80")).len(), 1000);
        let why = set(&json!({ "replicas": MAX_PODS + 1 }), "80").call(sync).unwrap_err();
        assert_eq!(why, "spec.replicas is 1001, and at most 1000 Pods get Services");
    }

    #[test]
    fn what_is_no_port_is_named() {
        for wrong in ["", "web", "0", "65536", "80:", ":80", "80:81:82", "80,,81", "-1"] {
            let why = set(&json!({}), wrong).call(sync).unwrap_err();
            assert!(why.contains("is no port: write numbers"), "{wrong}: {why}");
        }
        let many = |count: u16| (1..=count).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(names(set(&json!({}), &many(20))).len(), 1);
        let why = set(&json!({}), &many(21)).call(sync).unwrap_err();
        assert!(why.ends_with("it names more than 20 ports"), "{why}");
    }

    #[test]
    fn the_services_go_before_the_stateful_set() {
        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web-0" } });
        let waits = set(&json!({}), "80").finalizing().observed(service).call(finalize).unwrap();
        assert!(!waits.finalized && waits.attachments.is_empty());
        assert!(set(&json!({}), "80").finalizing().call(finalize).unwrap().finalized);
    }
}
