//! Pages while servers, the API server or `kubectl` are slow or fail: each test has its own of all three.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use http::header::AUTHORIZATION;
use metahook_core::inspection_paths::{CONTROLLER, CONTROLLERS, RECORDING};
use metahook_core::overview::ControllerOverview;
use metahook_core::recording::RecordedAnswer;
use metahook_core::recording::buffer::{FetchedLines, Recordings, Subject};
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::fake::answering;
use metahook_server::sync::lock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;

/// Prints the port that it is asked for as its own: the fake server listens there.
const KUBECTL: &str = r#"#!/bin/sh
for last; do :; done
echo $$ >> "$(dirname "$0")/started"
[ -e "$(dirname "$0")/silent" ] || echo "Forwarding from 127.0.0.1$last -> 9797"
exec sleep 600
"#;

const HELLO: &str = "/controllers/CompositeController/hello";

const OBJECT: &str = "/object?group=&resource=pods&kind=Pod&namespace=n&name=a";

/// How the fake server answers.
#[derive(Clone, Copy)]
enum Server {
    Answers,
    /// It runs the controller `hello`.
    Runs,
    /// It runs it, too, and knows the first version of the path alone, where it answers otherwise.
    Old,
    Fails,
    /// Requests before this one get no answer.
    AnswersFrom(usize),
    /// The first request shows the token `t`, and further ones have to show `new`.
    Renews,
}

struct Setup {
    dir: TempDir,
    dashboard: Arc<Dashboard>,
    /// Requests that the fake server received.
    received: Arc<AtomicUsize>,
    recordings: Arc<Mutex<Recordings>>,
    stop: CancellationToken,
    reaching: JoinHandle<()>,
}

impl Setup {
    async fn new(server: Server, kubectl_is_silent: bool) -> Self {
        let (listener, stop) = (listener().await, CancellationToken::new());
        let port = listener.local_addr().unwrap().port();
        let (received, recordings) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Recordings>>::default());
        let counted = (Arc::clone(&received), Arc::clone(&recordings));
        tokio::spawn(serve_fake(server, listener, counted, stop.clone()));
        let dir = tempfile::tempdir().unwrap();
        let kubectl = dir.path().join("kubectl");
        fs::write(&kubectl, KUBECTL).unwrap();
        fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
        if kubectl_is_silent {
            fs::write(dir.path().join("silent"), "").unwrap();
        }
        let token = dir.path().join("token");
        fs::write(&token, "t").unwrap();
        let inspector = inspector(api(port), kubectl, token, None);
        let dashboard = Arc::new(new_dashboard(inspector));
        let reaching = tokio::spawn(Arc::clone(&dashboard.servers).keep_reached());
        Self { dir, dashboard, received, recordings, stop, reaching }
    }

    /// The processes of `kubectl` that were started.
    fn started(&self) -> Vec<String> {
        let started = fs::read_to_string(self.dir.path().join("started")).unwrap_or_default();
        started.lines().map(str::to_owned).collect()
    }

    /// Asks for a page until it has these words.
    async fn until_shown(&self, path: &str, words: &str) -> Response<String> {
        let mut latest = String::new();
        for _ in 0..1000 {
            let page = self.dashboard.get(path).await;
            if page.body().contains(words) {
                return page;
            }
            latest.clone_from(page.body());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{path} does not show {words:?}: {latest}");
    }

    /// A tab that waits for a page whose server does not answer.
    async fn waiting_tab(&self) -> JoinHandle<Response<String>> {
        let before = self.received.load(Ordering::Relaxed);
        let dashboard = Arc::clone(&self.dashboard);
        let tab = tokio::spawn(async move { dashboard.get(OBJECT).await });
        while self.received.load(Ordering::Relaxed) == before {
            assert!(!tab.is_finished());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tab
    }

    /// Waits until a server is reached, without a request to it.
    async fn until_reached(&self) {
        while !self.dashboard.servers.has_reached() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.reaching.abort();
        self.stop.cancel();
    }
}

fn new_dashboard(inspector: Inspector) -> Dashboard {
    let cluster = ClusterName { context: None, server: "https://10.0.0.1:6443".to_owned() };
    Dashboard::new(inspector, cluster, AccessKey::new(7).unwrap())
}

impl Dashboard {
    async fn get(&self, address: &str) -> Response<String> {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        self.page(path, query).await
    }
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

fn inspector(api: ApiClient, kubectl: PathBuf, token: PathBuf, address: Option<String>) -> Inspector {
    Inspector {
        api,
        kubeconfig: None,
        context: None,
        kubectl,
        address,
        server_namespace: "metacontroller".to_owned(),
        token_file: Some(token),
    }
}

async fn serve_fake(
    server: Server,
    listener: TcpListener,
    (received, recordings): (Arc<AtomicUsize>, Arc<Mutex<Recordings>>),
    stop: CancellationToken,
) {
    let answer_of = move |request: Request<Incoming>| {
        let number = received.fetch_add(1, Ordering::Relaxed);
        let is_known =
            request.headers()[AUTHORIZATION] == if number == 0 { "Bearer t" } else { "Bearer new" };
        let is_unknown = request.uri().path() == "/v2/controllers";
        let answer = match request.uri().path() {
            "/v1/controllers" => {
                json!({ "version": "1", "running": { "hello": ControllerOverview::default() } })
            }
            CONTROLLERS if matches!(server, Server::Runs) => {
                json!({ "version": "1", "running": { "hello": { "reconciles": 1, "calls": 2 } } })
            }
            CONTROLLERS => json!({ "version": "1", "running": {} }),
            CONTROLLER => json!({ "version": "1", "running": ControllerOverview::default() }),
            RECORDING => recorded(&recordings, request.uri().query().unwrap_or_default()),
            _ => json!({ "version": "1", "reconciles": [], "hiddenParents": 0 }),
        };
        async move {
            match server {
                Server::AnswersFrom(first) if number < first => std::future::pending().await,
                Server::Old if is_unknown => {
                    let message = json!({ "message": "there are /v1/reconciles, /v1/controllers" });
                    page(StatusCode::NOT_FOUND, "application/json", message.to_string())
                }
                Server::Fails => page(StatusCode::INTERNAL_SERVER_ERROR, "", "broken".to_owned()),
                Server::Renews if !is_known => page(StatusCode::UNAUTHORIZED, "", "unknown".to_owned()),
                Server::Answers | Server::Runs | Server::Old | Server::AnswersFrom(_) | Server::Renews => {
                    let is_refusal = answer.get("message").is_some();
                    let status = if is_refusal { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
                    page(status, "application/json", answer.to_string())
                }
            }
        }
    };
    serve_requests(listener, answer_of, Duration::from_mins(10), stop).await;
}

/// The answer about a recording; a refusal has a message alone.
fn recorded(recordings: &Mutex<Recordings>, query: &str) -> Value {
    let field = |name: &str| {
        let found = form_urlencoded::parse(query.as_bytes()).find(|(field, _)| field == name);
        found.map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let parent = Some(Key::new(&field("parentNamespace"), &field("parentName")));
    let subject =
        Subject { controller: field("name"), parent, with_secrets: !field("withSecrets").is_empty() };
    match lock(recordings).fetch(&field("number"), &subject, Duration::ZERO) {
        Ok(FetchedLines { lines, lost, began }) => {
            serde_json::to_value(RecordedAnswer { version: "1".to_owned(), hosted: true, lines, lost, began })
                .unwrap()
        }
        Err(refused) => json!({ "message": refused.to_string() }),
    }
}

/// An API server with the controller `hello` and one Pod of a server.
fn api(port: u16) -> ApiClient {
    api_with(port, StatusCode::OK)
}

/// `leases_status`: the status of the answer to a list of Leases.
fn api_with(port: u16, leases_status: StatusCode) -> ApiClient {
    let kind = |name: &str, kind: &str| json!({ "name": name, "kind": kind, "namespaced": false });
    let controllers = json!({ "resources": [
        kind("compositecontrollers", "CompositeController"), kind("decoratorcontrollers", "DecoratorController"),
    ] });
    let leases = json!({ "resources": [kind("leases", "Lease")] });
    let argument = format!("--inspection-address=127.0.0.1:{port}");
    let pods = list(&json!([{
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "server-0", "namespace": "metacontroller", "uid": "u" },
        "spec": { "containers": [{ "args": [argument] }] }, "status": { "phase": "Running" },
    }]));
    let hello = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": { "name": "hello", "uid": "h", "resourceVersion": "1" },
    });
    answering(move |request| {
        let answer = match request.uri().path() {
            "/apis/metacontroller.k8s.io/v1alpha1" => controllers.to_string(),
            "/apis/coordination.k8s.io/v1" => leases.to_string(),
            "/api/v1/namespaces/metacontroller/pods" => pods.to_string(),
            "/apis/coordination.k8s.io/v1/leases" if leases_status != StatusCode::OK => {
                let refusal = json!({ "message": "leases are forbidden" }).to_string();
                return Response::builder().status(leases_status).body(refusal).ok();
            }
            path if path.ends_with("/compositecontrollers") => list(&json!([hello])).to_string(),
            path if path.ends_with("/compositecontrollers/hello") => hello.to_string(),
            _ => list(&json!([])).to_string(),
        };
        Some(Response::new(answer))
    })
}

fn list(items: &Value) -> Value {
    json!({ "metadata": { "resourceVersion": "1" }, "items": items })
}

#[tokio::test]
async fn a_page_is_answered_while_kubectl_takes_long() {
    let setup = Setup::new(Server::Answers, true).await;
    let page = setup.until_shown("/", "the server in the Pod server-0 is being reached").await;
    assert!(page.status() == StatusCode::OK && page.body().contains(">hello<"), "{}", page.body());
    let object = setup.until_shown(OBJECT, "is being reached").await;
    assert_eq!(object.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn a_controller_that_a_server_runs_has_a_server_on_both_pages() {
    let setup = Setup::new(Server::Runs, false).await;
    setup.until_reached().await;
    for path in ["/", HELLO] {
        let page = setup.dashboard.get(path).await;
        assert!(page.status() == StatusCode::OK && page.body().contains("hello"), "{}", page.body());
        assert!(!page.body().contains("NoServer"), "it has no Lease and no status: {}", page.body());
    }
    let setup = Setup::new(Server::Answers, false).await;
    setup.until_shown("/", "NoServer").await;
}

#[tokio::test]
async fn a_server_that_is_too_old_is_named_so() {
    let setup = Setup::new(Server::Old, false).await;
    let page = setup.until_shown("/", "the server is older than this command").await;
    assert!(page.status() == StatusCode::OK && !page.body().contains("invalid type"), "{}", page.body());
}

#[tokio::test(start_paused = true)]
async fn leases_that_cannot_be_read_are_a_gap_of_both_pages() {
    let api = api_with(1, StatusCode::FORBIDDEN);
    let dashboard =
        new_dashboard(inspector(api, PathBuf::new(), PathBuf::new(), Some("127.0.0.1:1".to_owned())));
    for path in ["/", HELLO] {
        let page = dashboard.get(path).await;
        assert!(page.body().contains("leases are forbidden"), "{path}: {}", page.body());
    }
}

#[tokio::test]
async fn an_abandoned_request_keeps_the_port_forward() {
    let setup = Setup::new(Server::AnswersFrom(1), false).await;
    setup.until_reached().await;
    let tab = setup.waiting_tab().await;
    tab.abort();
    assert!(tab.await.unwrap_err().is_cancelled());
    let page = setup.dashboard.get(OBJECT).await;
    assert_eq!(page.status(), StatusCode::OK, "{}", page.body());
    assert_eq!(setup.started().len(), 1);
}

#[tokio::test]
async fn two_tabs_do_not_wait_for_one_another() {
    let setup = Setup::new(Server::AnswersFrom(1), false).await;
    setup.until_reached().await;
    let first = setup.waiting_tab().await;
    let page = setup.dashboard.get(OBJECT).await;
    assert_eq!(page.status(), StatusCode::OK, "{}", page.body());
    assert!(!first.is_finished());
}

#[tokio::test]
async fn a_server_that_fails_keeps_its_port_forward() {
    let setup = Setup::new(Server::Fails, false).await;
    for _ in 0..3 {
        setup.until_shown("/", "500 Internal Server Error").await;
        assert!(setup.dashboard.servers.has_reached());
    }
    assert_eq!(setup.started().len(), 1);
}

#[tokio::test]
async fn a_token_that_is_refused_is_read_again_from_its_file() {
    let setup = Setup::new(Server::Renews, false).await;
    setup.until_shown(OBJECT, "remembers no reconcile").await;
    fs::write(setup.dir.path().join("token"), "new\n").unwrap();
    let page = setup.dashboard.get(OBJECT).await;
    assert_eq!(page.status(), StatusCode::OK, "{}", page.body());
}

#[tokio::test]
async fn a_server_that_is_cut_off_is_reached_again() {
    let setup = Setup::new(Server::Answers, false).await;
    setup.until_shown(OBJECT, "remembers no reconcile").await;
    setup.stop.cancel();
    setup.until_shown("/", "does not answer").await;
    while setup.started().len() < 2 {
        setup.until_shown("/", "hello").await;
    }
}

#[tokio::test]
async fn port_forwards_end_with_the_dashboard() {
    let setup = Setup::new(Server::Answers, false).await;
    setup.until_reached().await;
    let started = setup.started();
    assert_eq!(started.len(), 1);
    let runs = async || {
        let mut kill = tokio::process::Command::new("kill");
        kill.args(["-0", &started[0]]).stderr(std::process::Stdio::null());
        kill.status().await.unwrap().success()
    };
    assert!(runs().await);
    drop(setup);
    while runs().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_silent_server_is_cut_off_later_than_a_slow_one() {
    let setup = Setup::new(Server::AnswersFrom(1), false).await;
    setup.until_reached().await;
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let page = setup.dashboard.get(OBJECT).await;
    assert!(page.body().contains("the server in the Pod server-0 does not answer: nothing came within 5 s"));
    assert!(setup.dashboard.servers.has_reached(), "it may be slow");
    while setup.dashboard.servers.has_reached() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(start.elapsed() >= Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_is_a_gap() {
    let silent = listener().await;
    let address = silent.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    fs::write(&token, "t").unwrap();
    let inspector = inspector(api(1), PathBuf::new(), token, Some(address.to_string()));
    let dashboard = new_dashboard(inspector);
    let start = tokio::time::Instant::now();
    let page = dashboard.get("/").await;
    assert!(page.status() == StatusCode::OK && page.body().contains(">hello<"), "{}", page.body());
    assert!(page.body().contains(&format!("the server at {address} does not answer")), "{}", page.body());
    assert!(start.elapsed() < Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn a_late_api_server_is_an_error_page() {
    let api = answering(|_| None);
    let inspector = inspector(api, PathBuf::new(), PathBuf::new(), Some("127.0.0.1:1".to_owned()));
    let dashboard = new_dashboard(inspector);
    let start = tokio::time::Instant::now();
    for path in ["/", "/controllers/CompositeController/hello", "/find?kind=pod&name=a"] {
        let page = dashboard.get(path).await;
        assert_eq!(page.status(), StatusCode::GATEWAY_TIMEOUT, "{path}");
        assert!(page.body().contains("the API server did not answer within 8 s"), "{}", page.body());
    }
    assert!(start.elapsed() < 3 * PAGE_TIMEOUT / 2);
}

/// The page of the calls about a parent.
fn calls(parent: &str) -> String {
    format!(
        "/calls?controllerKind=CompositeController&controller=hello&resource=hellos&kind=Hello&namespace=n&name={parent}"
    )
}

#[tokio::test]
async fn a_page_of_calls_has_those_since_it_was_opened() {
    let setup = Setup::new(Server::Runs, false).await;
    setup.until_shown(&calls("a"), "There was no reconcile yet").await;
    let parent = json!({ "group": "", "resource": "hellos", "kind": "Hello", "namespace": "n", "name": "a" });
    let call = json!({ "call": {
        "controller": "hello", "parent": parent, "hook": "sync", "nowNanos": 1, "request": "{\"number\":1}",
        "answer": "{\"children\":[]}", "tookUs": 1,
    } });
    let trace = metahook_core::trace::ReconcileTrace {
        parent: serde_json::from_value(parent).unwrap(),
        ..metahook_core::trace::ReconcileTrace::default()
    };
    let reconcile = metahook_core::recording::RecordedLine::Reconcile(Box::new(trace)).print();
    for line in [call.to_string(), reconcile] {
        lock(&setup.recordings).add(("hello", &Key::new("n", "a")), [None, Some(&line)], Duration::ZERO);
    }
    for words in ["&quot;number&quot;: 1", "&quot;children&quot;: []"] {
        setup.until_shown(&calls("a"), words).await;
    }
}

#[tokio::test]
async fn calls_that_come_after_their_page_are_kept() {
    let setup = Setup::new(Server::Runs, false).await;
    setup.until_shown(&calls("a"), "There was no reconcile yet").await;
    let parent = json!({ "group": "", "resource": "hellos", "kind": "Hello", "namespace": "n", "name": "a" });
    let trace = json!({ "reconcile": {
        "controller": "CompositeController hello", "parent": parent, "generation": 1, "resourceVersion": "1",
        "cause": "spec changed", "began": "2026-11-27T10:00:00.000Z", "tookUs": 1, "steps": [], "end": "wrote",
    } });
    lock(&setup.recordings).add(
        ("hello", &Key::new("n", "a")),
        [None, Some(&trace.to_string())],
        Duration::ZERO,
    );
    let before = setup.received.load(Ordering::Relaxed);
    // Each page goes away at once, and what it asks for goes on.
    while setup.received.load(Ordering::Relaxed) == before {
        drop(tokio::time::timeout(Duration::from_millis(1), setup.dashboard.get(&calls("a"))).await);
    }
    setup.until_shown(&calls("a"), "spec changed").await;
}

#[tokio::test]
async fn a_server_that_records_too_much_already_is_an_error_page() {
    let setup = Setup::new(Server::Runs, false).await;
    for parent in ["a", "b"] {
        setup.until_shown(&calls(parent), "There was no reconcile yet").await;
    }
    let page = setup.until_shown(&calls("c"), "2 recordings are under way").await;
    assert_ne!(page.status(), StatusCode::OK);
    setup.until_shown(&calls("a"), "There was no reconcile yet").await;
}
