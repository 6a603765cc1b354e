//! Cluster of tests: a scripted API server with a controller and a Pod, and a server of controllers with one answer to all requests.

use std::path::{Path, PathBuf};

use metahook_author::inspected_server::Inspector;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::fake::answering_bodies;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// `token`: a file for the token. `leases`: the answer to a list of Leases.
pub(super) async fn inspector(token: &Path, answer: &Value, leases: &'static str) -> Inspector {
    std::fs::write(token, "t").unwrap();
    Inspector {
        api: api(leases),
        kubeconfig: None,
        context: None,
        kubectl: PathBuf::new(),
        address: Some(server(answer.to_string()).await),
        server_namespace: "metacontroller".to_owned(),
        token_file: Some(token.to_owned()),
    }
}

fn api(leases: &'static str) -> ApiClient {
    let kind = |name: &str, kind: &str, namespaced: bool| json!({ "name": name, "kind": kind, "namespaced": namespaced, "verbs": ["get", "list"] });
    let controllers = json!({ "resources": [
        kind("compositecontrollers", "CompositeController", false),
        kind("decoratorcontrollers", "DecoratorController", false),
    ] });
    let list = |items: &Value| json!({ "metadata": { "resourceVersion": "1" }, "items": items }).to_string();
    let hello = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": { "name": "hello", "uid": "h", "resourceVersion": "1" },
        "spec": {
            "parentResource": { "apiVersion": "example.com/v1", "resource": "hellos" },
            "childResources": [{ "apiVersion": "v1", "resource": "pods" }],
        },
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "demo", "name": "a", "uid": "a", "resourceVersion": "1" },
    });
    answering_bodies(move |path, _| match path {
        "/apis/metacontroller.k8s.io/v1alpha1" => controllers.to_string(),
        "/apis/coordination.k8s.io/v1" => json!({ "resources": [kind("leases", "Lease", true)] }).to_string(),
        "/apis/example.com/v1" => json!({ "resources": [kind("hellos", "Hello", true)] }).to_string(),
        "/api/v1" => json!({ "resources": [kind("pods", "Pod", true)] }).to_string(),
        "/apis/coordination.k8s.io/v1/leases" => leases.to_owned(),
        path if path.ends_with("/compositecontrollers/hello") => hello.to_string(),
        path if path.ends_with("/compositecontrollers") => list(&json!([hello])),
        path if path.ends_with("/pods/a") => pod.to_string(),
        _ => list(&json!([])),
    })
}

/// Address of the server.
async fn server(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
            stream.write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
        }
    });
    address
}
