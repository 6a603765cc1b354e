mod hidden;

use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
use metahook_core::reconcile::trigger::ReconcileCause;
use metahook_core::trace::recent::PrintedTrace;
use metahook_core::trace::{ReconcileTrace, TraceEnd, TracedStep};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::cluster::fake;

const PATH: &str = "/v1/reconciles?group=example.com&resource=greetings&namespace=n&name=a";

const PARENTS_OF_C: &str =
    "/v1/parents?group=metacontroller.k8s.io&resource=compositecontrollers&kind=CompositeController&name=c";

fn greetings() -> Arc<Resource> {
    let gvk = Gvk::new("example.com/v1", "Greeting");
    Arc::new(Resource { gvk, plural: "greetings".into(), namespaced: true, has_status: true })
}

/// Of the parents `n/a` and `m/a`, which both wrote the ConfigMap `n/shared`. The first had two reconciles and a trigger, for
/// changes of related objects.
fn traces() -> Traces {
    let traces = Traces::keeping(1 << 20);
    for namespace in ["n", "m"] {
        let cause = TracedObject::new(&config_maps(), &Key::new(namespace, "x"));
        add(&traces, &Key::new("n", "a"), Some(cause));
    }
    add(&traces, &Key::new("m", "a"), None);
    for (namespace, name) in [("n", "own"), ("m", "other")] {
        let mut trace = trace(&Key::new("n", name), None);
        trace.steps.clear();
        trace.end = TraceEnd::Failed(format!("Secret {namespace}/token: no right"));
        trace.related_failure = vec![TracedObject::new(&secrets(), &Key::new(namespace, ""))];
        keep(&traces, trace);
    }
    let namespaces: Vec<_> = (0..30).map(|nth| format!("m{nth}")).collect();
    let of_all: Vec<_> = namespaces.iter().map(String::as_str).collect();
    let mut many =
        trace(&Key::new("n", "many"), Some(TracedObject::new(&config_maps(), &Key::new("m", "x"))));
    many.steps = vec![related(&of_all)];
    keep(&traces, many.clone());
    // The answer has the latest one first.
    many.related_cause = Some(TracedObject::new(&config_maps(), &Key::new("m29", "x")));
    many.steps = vec![];
    keep(&traces, many);
    keep(&traces, writes(&["n", "m"]));
    let many = ReconcileTrace {
        parent: TracedObject::new(&greetings(), &Key::new("n", "writes-many")),
        ..writes(&of_all)
    };
    keep(&traces, many);
    let object = ObjectId { resource: Arc::new(config_maps()), key: Key::new("m", "y") };
    let last = ReconcileCause { related: Some(Arc::new(object)), .."ConfigMap m/y changed".into() };
    let of_controller = traces.of_controller(("CompositeController", "c"), &greetings());
    of_controller.count_settled([(&Key::new("n", "a"), last)]);
    traces
}

fn config_maps() -> Resource {
    let gvk = Gvk::new("v1", "ConfigMap");
    Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: false }
}

fn secrets() -> Resource {
    let gvk = Gvk::new("v1", "Secret");
    Resource { gvk, plural: "secrets".into(), namespaced: true, has_status: false }
}

fn shared() -> TracedObject {
    TracedObject::new(&config_maps(), &Key::new("n", "shared"))
}

/// Rules about ConfigMaps of these namespaces, by name.
fn related(namespaces: &[&str]) -> TracedStep {
    let rule = |namespace: &&str| json!({ "apiVersion": "v1", "resource": "configmaps", "namespace": namespace, "names": ["x"], "objects": 1 });
    let found: Vec<_> = namespaces.iter().map(rule).collect();
    let count = found.len();
    serde_json::from_value(
        json!({ "step": "related", "tookUs": 1, "rules": count, "objects": count, "found": found }),
    )
    .unwrap()
}

/// A Secret of a namespace that the hook had deleted.
fn deleted_related(namespace: &str) -> TracedStep {
    let object = TracedObject::new(&secrets(), &Key::new(namespace, "token"));
    serde_json::from_value(json!({ "step": "deletedRelated", "object": object, "deleted": true })).unwrap()
}

fn trace(key: &Key, related_cause: Option<TracedObject>) -> ReconcileTrace {
    ReconcileTrace {
        controller: "CompositeController c".to_owned(),
        parent: TracedObject::new(&greetings(), key),
        generation: 1,
        resource_version: "1".to_owned(),
        took_us: 1,
        cause: related_cause
            .as_ref()
            .map_or("spec changed".to_owned(), |object| format!("{} {} changed", object.kind, object.key())),
        related_cause,
        steps: vec![
            TracedStep::Read { object: shared() },
            related(&["n", "m"]),
            deleted_related("n"),
            deleted_related("m"),
        ],
        ..ReconcileTrace::default()
    }
}

/// Of the parent `n/writes`, which writes a ConfigMap in each of these namespaces.
fn writes(namespaces: &[&str]) -> ReconcileTrace {
    let child = |namespace: &str| TracedObject::new(&config_maps(), &Key::new(namespace, "child"));
    let (mut writes, mut left, mut wrote) = (Vec::new(), Vec::new(), Vec::new());
    for namespace in namespaces {
        let value = json!({ "path": "data.k", "before": "1", "after": "sesame" });
        writes.push(json!({ "verb": "replace", "object": child(namespace), "changes": ["data.k"], "values": [value] }));
        left.push(json!({ "object": child(namespace), "why": "sesame" }));
        wrote.push(
            json!({ "step": "wrote", "verb": "replace", "object": child(namespace), "reason": "sesame",
            "warnings": ["sesame"], "end": { "failed": "sesame" } }),
        );
    }
    let planned = json!({ "step": "planned", "writes": writes, "left": left, "unchanged": 0 });
    let done = namespaces.iter().map(|namespace| json!({ "step": "wrote", "verb": "replace", "object": child(namespace), "end": "changed" }));
    let steps = [planned]
        .into_iter()
        .chain(wrote)
        .chain(done)
        .map(|step| serde_json::from_value(step).unwrap())
        .collect();
    ReconcileTrace { steps, ..trace(&Key::new("n", "writes"), None) }
}

fn add(traces: &Traces, key: &Key, related_cause: Option<TracedObject>) {
    keep(traces, trace(key, related_cause));
}

fn keep(traces: &Traces, trace: ReconcileTrace) {
    let (resource, key) = (greetings(), trace.parent.key());
    let of_controller = traces.of_controller(("CompositeController", "c"), &resource);
    of_controller.add(|| (&key, PrintedTrace::new((&resource, &key), trace)));
}

/// An API server that knows the token `good`, and lets its user get and list what is in the namespace `n` or has none, and the
/// token `admin`, whose user may do everything.
fn reviewing() -> ApiClient {
    fake::answering_bodies(move |path, body| {
        let question: Value = serde_json::from_slice(body).unwrap();
        let status = if path.ends_with("tokenreviews") {
            let user =
                |name: &str| json!({ "authenticated": true, "user": { "username": name, "groups": ["g"] } });
            match question["spec"]["token"].as_str() {
                Some("good") => user("ann"),
                Some("admin") => user("admin"),
                _ => json!({ "error": "unknown" }),
            }
        } else {
            let wanted = &question["spec"]["resourceAttributes"];
            let (place, who) = (&wanted["namespace"], &question["spec"]["user"]);
            let is_namespaced = ["configmaps", "secrets"].iter().any(|kind| wanted["resource"] == *kind);
            let allowed = place == "n" || (place == "" && !is_namespaced);
            let allowed = who == "admin" || (who == "ann" && allowed);
            json!({ "allowed": allowed })
        };
        json!({ "status": status }).to_string()
    })
}

/// Status and body of the answer to a request with these headers.
async fn ask(path: &str, headers: &str) -> (u16, Value) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let inspection = Inspection {
        guard: Guard::new(reviewing()),
        traces: traces(),
        running: RunningControllers::default(),
        room: Arc::new(Semaphore::new(MAX_REQUESTS)),
    };
    tokio::spawn(serve(listener, Arc::new(inspection), stop));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

async fn refused(path: &str, headers: &str) -> (u16, String) {
    let (status, answer) = ask(path, headers).await;
    (status, answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_user_who_may_get_the_object_is_shown_its_reconciles() {
    let (status, answer) = ask(PATH, "Host: localhost:1\r\nAuthorization: Bearer good\r\n").await;
    assert_eq!(
        (status, &answer["reconciles"][1]["cause"]),
        (200, &json!("ConfigMap n/x changed")),
        "{answer}"
    );
    let none = PATH.replace("name=a", "name=b");
    let (status, answer) = ask(&none, "Host: localhost:1\r\nAuthorization: Bearer good\r\n").await;
    assert_eq!((status, &answer["reconciles"]), (200, &json!([])));
}

#[tokio::test]
async fn of_a_child_the_reconciles_of_parents_that_the_user_may_not_get_are_left_out() {
    let path = "/v1/reconciles?resource=configmaps&namespace=n&name=shared";
    let (status, answer) = ask(path, "Host: localhost:1\r\nAuthorization: Bearer good\r\n").await;
    assert_eq!((status, &answer["hiddenParents"]), (200, &json!(1)), "{answer}");
    let shown: Vec<_> =
        answer["reconciles"].as_array().unwrap().iter().map(|it| &it["parent"]["namespace"]).collect();
    assert_eq!(shown, ["n", "n"]);
}

#[tokio::test]
async fn nobody_else_is_shown_anything() {
    let good = "Host: localhost\r\nAuthorization: Bearer good\r\n";
    let (status, said) = refused(PATH, "Host: localhost\r\n").await;
    assert!(status == 401 && said.contains("no token"), "{status} {said}");
    let (status, said) = refused(PATH, "Host: localhost\r\nAuthorization: Bearer bad\r\n").await;
    assert!(
        status == 401
            && said.contains("does not take the token: unknown. Where it has expired, log in again"),
        "{status} {said}"
    );
    let (status, said) = refused(&PATH.replace("namespace=n", "namespace=m"), good).await;
    let expected = "User \"ann\" cannot get greetings.example.com \"a\" in the namespace \"m\"";
    assert_eq!((status, &*said), (403, expected));
    let long = format!("Host: localhost\r\nAuthorization: Bearer {}\r\n", "x".repeat((16 << 10) + 1));
    assert_eq!(refused(PATH, &long).await.0, 401);
}

#[tokio::test]
async fn a_controller_that_another_server_runs_is_not_shown() {
    let good = "Host: localhost\r\nAuthorization: Bearer good\r\n";
    let path = "/v1/controller?group=metacontroller.k8s.io&resource=compositecontrollers&kind=CompositeController&name=c";
    let (status, answer) = ask(path, good).await;
    assert_eq!((status, answer), (200, json!({ "version": env!("CARGO_PKG_VERSION") })));
    // The right to get something else says nothing about a controller.
    let kind = "kind has to be that of a controller";
    for (path, says) in [
        (path.replace("metacontroller.k8s.io", ""), kind),
        (path.replace("=CompositeController", "=Pod"), kind),
        // The right in a namespace says nothing about what has none.
        (format!("{path}&namespace=n"), "a controller has no namespace"),
        (format!("{}&namespace=n&number=1", path.replace("/controller", "/recording")), "has no namespace"),
    ] {
        let (status, said) = refused(&path, good).await;
        assert!(status == 400 && said.contains(says), "{path}: {said}");
    }
    assert_eq!(refused(path, "Host: localhost\r\n").await.0, 401);
}

#[tokio::test]
async fn pages_of_browsers_are_not_answered() {
    for headers in
        ["Host: evil.example\r\n", "Host: localhost.evil:80\r\n", "Host: localhost\r\nOrigin: null\r\n"]
    {
        let (status, said) = refused(PATH, &format!("{headers}Authorization: Bearer good\r\n")).await;
        assert!(status == 403 && said.starts_with("pages of browsers"), "{headers}: {status} {said}");
    }
}

#[tokio::test]
async fn a_request_that_is_not_understood_is_told_why() {
    let good = "Host: 127.0.0.1:5\r\nAuthorization: Bearer good\r\n";
    for (path, status, says) in [
        ("/", 404, "there are /v1/reconciles, /v1/controller, /v2/controllers, /v1/parents, /v1/recording"),
        ("/v1/reconciles?name=a", 400, "resource is missing"),
        ("/v1/reconciles?resource=pods&name=", 400, "name is missing"),
        (&format!("{PARENTS_OF_C}&state=odd"), 400, "one of failing, unsettled, settled, paused"),
        (&format!("{PARENTS_OF_C}&skip=-1"), 400, "skip has to be a number"),
        ("/v2/controllers?resource=pods", 400, "kind has to be that of a controller"),
    ] {
        let (got, said) = refused(path, good).await;
        assert!(got == status && said.contains(says), "{path}: {got} {said}");
    }
    let (status, answer) = ask(&format!("{PARENTS_OF_C}&state=failing&skip=7"), good).await;
    assert_eq!((status, &answer["list"]), (200, &Value::Null), "no controller runs here: {answer}");
    let long = format!("{PATH}&x={}", "x".repeat(query::MAX_QUERY));
    assert_eq!(refused(&long, good).await.0, 400);
}

#[tokio::test]
async fn a_command_that_could_not_read_the_answer_is_told_to_be_updated() {
    let good = "Host: localhost\r\nAuthorization: Bearer good\r\n";
    let path =
        "/v1/controllers?group=metacontroller.k8s.io&resource=compositecontrollers&kind=CompositeController";
    let (status, said) = refused(path, good).await;
    // A command reads 404 as a server that is older than itself.
    assert!(status == 410 && said.ends_with("update the command"), "{status} {said}");
    let (status, answer) = ask(&path.replace("v1", "v2"), good).await;
    assert_eq!((status, answer), (200, json!({ "version": env!("CARGO_PKG_VERSION"), "running": {} })));
}

#[tokio::test]
async fn work_that_goes_on_when_its_request_has_ended_keeps_its_room() {
    let all = Arc::new(Semaphore::new(1));
    let room = Room(Some(Arc::new(Arc::clone(&all).acquire_owned().await.unwrap())));
    let (ends, waits) = std::sync::mpsc::channel::<()>();
    let (begins, begun) = tokio::sync::oneshot::channel();
    let thread = move || {
        begins.send(()).unwrap();
        waits.recv()
    };
    let work = tokio::spawn(async move { apart(&room, thread).await });
    begun.await.unwrap();
    work.abort();
    assert!(work.await.unwrap_err().is_cancelled());
    assert_eq!(all.available_permits(), 0, "its thread works on");
    drop(ends);
    drop(all.acquire().await.unwrap());
}

#[tokio::test]
async fn a_panic_is_a_failure_of_the_server() {
    let failed = apart(&Room(None), || panic!("odd")).await;
    let Err(refusal) = failed.map(|never: ()| never) else { panic!("it ended well") };
    assert_eq!(refusal.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(refusal.to_string().starts_with("the server failed to answer"), "{refusal}");
}
