//! Scenarios of writes: each operation against each kind of answer by the API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use http::{Method, Response};
use metahook_core::api::common::UpdateMethod;
use metahook_core::api::hook::{HookVersion, PerHook};
use metahook_core::api::selection::{Selection, SelectionRule};
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::children::claims::{Claim, ClaimedObject};
use metahook_core::children::desired::ChildKind;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource, Uid};
use metahook_core::reconcile::config::{ControllerConfig, HookConfig, KindConfig};
use metahook_core::reconcile::outcome::Retry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::events::Recorder;
use crate::cluster::fake::{self, Requests};
use crate::controller::Controllers;
use crate::controller::data::ControllerData;
use crate::controller::reconcile::claims::ClaimWriter;
use crate::controller::reconcile::write::{ObjectWriter, Written};
use crate::store::{Store, Stores};
use crate::telemetry::metrics::Metrics;

/// The answer to writes; `None`: no answer at all. Reads find the object, unless it is 404.
type Answer = Option<u16>;

const ANSWERS: [Answer; 7] = [Some(200), Some(404), Some(409), Some(422), Some(429), Some(500), None];

/// The writers of a controller, over an API server with one parent and one child.
struct Scenario {
    requests: Requests,
    data: Arc<ControllerData>,
    writer: Arc<ObjectWriter>,
    claims: ClaimWriter,
}

fn resource(api_version: &str, kind: &str) -> Arc<Resource> {
    Arc::new(Resource {
        gvk: Gvk::new(api_version, kind),
        plural: format!("{}s", kind.to_lowercase()).into(),
        namespaced: true,
        has_status: true,
    })
}

fn parents() -> Arc<Resource> {
    resource("example.com/v1", "Greeting")
}

fn children() -> Arc<Resource> {
    resource("v1", "ConfigMap")
}

fn body(resource: &Resource, version: &str) -> Value {
    json!({
        "apiVersion": resource.gvk.api_version(), "kind": &*resource.gvk.kind,
        "metadata": { "namespace": "n", "name": "x", "uid": &*resource.plural, "resourceVersion": version },
    })
}

fn object(resource: &Resource) -> Object {
    Object::parse(&body(resource, "1").to_string(), None).unwrap()
}

fn id(resource: Arc<Resource>) -> ObjectId {
    ObjectId { resource, key: Key::new("n", "x") }
}

fn response(method: &Method, path: &str, answer: Answer) -> Option<Response<String>> {
    let resource = if path.contains("greetings") { parents() } else { children() };
    let status = match (answer, method == Method::GET) {
        (Some(404), _) => 404,
        (_, true) => 200,
        (answer, false) => answer?,
    };
    let body = match status {
        200 if *method == Method::DELETE => json!({"kind": "Status", "metadata": {}}),
        200 if *method == Method::GET => body(&resource, "1"),
        200 => body(&resource, "2"),
        409 if *method == Method::POST => {
            json!({"kind": "Status", "message": "m", "reason": "AlreadyExists"})
        }
        _ => json!({"kind": "Status", "message": "m"}),
    };
    Response::builder().status(status).body(body.to_string()).ok()
}

impl Scenario {
    fn new(answer: Answer) -> Self {
        let requests = Requests::default();
        let api = fake::recording(&requests, move |request| {
            response(request.method(), request.uri().path(), answer)
        });
        let stores = Stores::new(api.clone());
        let sync = HookConfig::wasm(HookVersion::V1, None);
        let data = Arc::new(ControllerData {
            object: Arc::new(object(&resource("metacontroller.k8s.io/v1alpha1", "CompositeController"))),
            config: ControllerConfig {
                name: "c".to_owned(),
                kind: KindConfig::Composite { generate_selector: true, rolling: None },
                selection: Selection {
                    rules: vec![SelectionRule::default()],
                    finalizer: "example.com/f".to_owned(),
                    finalizes: true,
                },
                child_kinds: vec![ChildKind::new(children(), UpdateMethod::InPlace)],
                snapshot: "{}".to_owned(),
                hooks: PerHook { sync, finalize: None, customize: None },
                max_children: 10,
                deletions: Vec::new(),
            },
            parents: stores.open(&parents()),
            children: vec![stores.open(&children())],
            controllers: Arc::new(Controllers::open(&stores)),
            recorder: Recorder::start(api.clone(), CancellationToken::new()).0,
            meter: Metrics::new(|| 0).meter("CompositeController", "c"),
            started: Instant::now(),
        });
        let writer = Arc::new(ObjectWriter { data: Arc::clone(&data), api });
        let claims = ClaimWriter { data: Arc::clone(&data), writer: Arc::clone(&writer) };
        Self { requests, data, writer, claims }
    }

    fn store(&self, resource: &Resource) -> &Arc<Store> {
        if *resource == *parents() { &self.data.parents } else { &self.data.children[0] }
    }

    fn observe(&self, resource: &Resource) {
        self.store(resource).observe_write(vec![CacheEvent::Applied(object(resource))]);
    }

    /// The version that the store holds, and whether a deletion was asked for.
    fn stored(&self, resource: &Resource) -> String {
        match self.store(resource).get(&Key::new("n", "x")) {
            None => "none".to_owned(),
            Some(object) if object.deleting => "deleting".to_owned(),
            Some(object) => object.version.as_str().to_owned(),
        }
    }

    async fn write(&self, op: &Op) -> String {
        let result = self.writer.write(op, &self.data.writer(&Key::new("n", "x"))).await;
        let result = match result {
            Ok(Written { changed: false, .. }) => "no-op".to_owned(),
            Ok(Written { object: Some(_), .. }) => "wrote".to_owned(),
            Ok(Written { object: None, .. }) => "gone".to_owned(),
            Err(error) => retry(error.retry()),
        };
        format!("{result}, {}", self.stored(&op.id().resource))
    }
}

fn retry(retry: Retry) -> String {
    match retry {
        Retry::After(delay) => format!("after {} s", delay.as_secs()),
        Retry::Loud | Retry::Quiet => format!("{retry:?}").to_lowercase(),
    }
}

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
    let failures =
        |stored: &str| ["loud", "after 1 s", "loud", "loud"].map(|retry| format!("{retry}, {stored}"));
    let create = Op::Create { id: child(), body: body(&children(), "") };
    let expected = ["wrote, 2", "loud, none", "loud, none"].map(str::to_owned);
    assert_eq!(results(&create).await, [&expected[..], &failures("none")].concat());
    let expected = ["wrote, 2", "gone, none", "quiet, 1"].map(str::to_owned);
    let replace = Op::Replace { id: child(), body: body(&children(), "1") };
    assert_eq!(results(&replace).await, [&expected[..], &failures("1")].concat());
    let status = Op::Status { id: id(parents()), body: body(&parents(), "1") };
    assert_eq!(results(&status).await, [&expected[..], &failures("1")].concat());
    let expected = ["gone, deleting", "gone, none", "quiet, 1"].map(str::to_owned);
    let delete = Op::Delete { id: child(), uid: Uid::new("configmaps") };
    assert_eq!(results(&delete).await, [&expected[..], &failures("1")].concat());
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
async fn finalizers_are_written_over_the_object_as_it_is_now() {
    let parent = object(&parents());
    let mut results = BTreeMap::new();
    for answer in ANSWERS {
        let scenario = Scenario::new(answer);
        let added = scenario.claims.add_finalizer(&parent, &scenario.data.writer(&parent.key)).await;
        let result = match added {
            Ok(Some(now)) => format!("version {}", now.version.as_str()),
            Ok(None) => "gone".to_owned(),
            Err(error) => retry(error.retry()),
        };
        let path = "/apis/example.com/v1/namespaces/n/greetings/x";
        let requests = scenario.requests.take();
        assert!(requests.iter().all(|one| one.ends_with(path)), "{requests:?}");
        results.insert(answer, (result, requests.len()));
    }
    let expected = [
        (Some(200), "version 2", 2),
        (Some(404), "gone", 1),
        (Some(409), "quiet", 8),
        (Some(422), "loud", 2),
        (Some(429), "after 1 s", 2),
        (Some(500), "loud", 2),
        (None, "loud", 2),
    ];
    let expected = expected.map(|(answer, result, requests)| (answer, (result.to_owned(), requests)));
    assert_eq!(results, BTreeMap::from(expected));
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_adopted_once_its_parent_was_read() {
    let parent = object(&parents());
    let mut results = Vec::new();
    for answer in ANSWERS {
        let scenario = Scenario::new(answer);
        let orphan = Arc::new(object(&children()));
        let claims = [ClaimedObject { resource: children(), object: orphan, claim: Claim::Adopt }];
        let claimed = scenario.claims.claim(&parent, &claims, &scenario.data.writer(&parent.key)).await;
        results.push(match claimed {
            Ok(claimed) => {
                let child = claimed.children.get(&children(), &Key::new("n", "x")).unwrap();
                format!("version {}, wrote {}", child.version.as_str(), claimed.wrote)
            }
            Err(error) => retry(error.retry()),
        });
        let requests = scenario.requests.take();
        assert_eq!(requests[0], "GET /apis/example.com/v1/namespaces/n/greetings/x");
        assert_eq!(requests.len() > 1, answer != Some(404), "{requests:?}");
    }
    assert_eq!(results, ["version 2, wrote true", "loud", "quiet", "loud", "after 1 s", "loud", "loud"]);
}
