//! The ways to a webhook: connections that hooks share, redirects, proxies, TLS.

use std::convert::Infallible;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tower::Service as _;

use super::*;

fn of_pools(url: &str, pools: &Arc<Pools>) -> Webhook {
    let spec: webhook::Webhook = serde_json::from_value(json!({ "url": url, "timeout": "1m" })).unwrap();
    let target = spec.check("spec.hooks.sync.webhook").unwrap();
    let meter = Metrics::new(|| 0).webhook("CompositeController", "c", HookName::Sync, &target.url);
    reached(&target, pools, meter).unwrap()
}

/// Asks where each connection gets these answers; returns what came and what was asked.
async fn asked(url: &str, connections: Vec<Vec<Vec<u8>>>) -> (Result<Vec<u8>, WebError>, Vec<String>) {
    let (at, served) = server(connections).await;
    let answer = of_pools(url, &pools(at)).ask("{}").await;
    (answer, served.await.unwrap().0)
}

fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[tokio::test]
async fn the_hooks_of_a_server_share_its_connections() {
    // One connection, which stays open: a second one would never be served.
    let (at, served) = server(vec![vec![http("200 OK", "", "1"), http("200 OK", "", "2")]]).await;
    let pools = pools(at);
    let hooks = ["customize", "sync"].map(|path| of_pools(&format!("http://hook.example/{path}"), &pools));
    for (hook, expected) in hooks.iter().zip([b"1", b"2"]) {
        assert_eq!(hook.ask("{}").await.unwrap(), expected);
    }
    let (requests, _open) = served.await.unwrap();
    assert!(requests[0].starts_with("POST /customize ") && requests[1].starts_with("POST /sync "));
}

#[tokio::test]
async fn a_request_on_a_connection_that_closes_is_sent_once_more() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let pools = pools(listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        request(&mut first).await;
        first.write_all(&http("200 OK", "", "1")).await.unwrap();
        request(&mut first).await;
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        request(&mut second).await;
        second.write_all(&http("200 OK", "", "2")).await.unwrap();
        // Connections that close again and again are an error.
        request(&mut second).await;
        drop(second);
        for _ in 0..MAX_REPEATS {
            let (mut next, _) = listener.accept().await.unwrap();
            request(&mut next).await;
        }
    });
    let hook = of_pools("http://hook.example/", &pools);
    for expected in [b"1", b"2"] {
        assert_eq!(hook.ask("{}").await.unwrap(), expected);
    }
    let error = hook.ask("{}").await.unwrap_err().to_string();
    assert!(error.contains("broke off"), "{error}");
    served.await.unwrap();
}

/// Answers the first request of one connection and closes that at the second, `late` after it came; then answers the repeated
/// request, where it comes. Returns the webhook's second answer, and whether the request was repeated.
async fn closed_connection(late: Duration, answer: Vec<u8>) -> (Result<Vec<u8>, WebError>, bool) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let pools = pools(listener.local_addr().unwrap());
    let (closed, is_closed) = tokio::sync::oneshot::channel();
    let served = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        request(&mut first).await;
        first.write_all(&http("200 OK", "", "1")).await.unwrap();
        request(&mut first).await;
        tokio::time::pause();
        tokio::time::advance(late).await;
        tokio::time::resume();
        drop(first);
        closed.send(()).unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        request(&mut second).await;
        second.write_all(&answer).await.unwrap();
    });
    let hook = of_pools("http://hook.example/", &pools);
    assert_eq!(hook.ask("{}").await.unwrap(), b"1");
    let answer = hook.ask("{}").await;
    is_closed.await.unwrap();
    let is_repeated = served.is_finished();
    served.abort();
    (answer, is_repeated)
}

#[tokio::test]
async fn a_request_on_a_connection_that_closes_late_is_not_repeated() {
    let answer = || http("200 OK", "", "2");
    let (early, is_repeated) = closed_connection(Duration::from_millis(500), answer()).await;
    assert_eq!((early.unwrap(), is_repeated), (b"2".to_vec(), true));
    let (late, is_repeated) = closed_connection(Duration::from_secs(9), answer()).await;
    assert_eq!((late.unwrap_err().category(), is_repeated), ("HookBroken", false));
}

#[tokio::test]
async fn a_repeated_request_that_fails_has_the_error_of_the_first() {
    let (answer, is_repeated) = closed_connection(Duration::ZERO, b"no HTTP\r\n\r\n".to_vec()).await;
    let error = answer.unwrap_err().to_string();
    assert!(is_repeated && error.contains("connection closed before message completed"), "{error}");
}

#[tokio::test]
async fn the_urls_user_and_password_go_with_the_request_alone() {
    let url = "http://Aladdin:open%20sesame@hook.example/";
    let (answer, requests) = asked(url, vec![vec![http("500 E", "", "")]]).await;
    assert_eq!(header(&requests[0], "authorization"), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    let error = answer.unwrap_err().to_string();
    assert!(error.contains("at hook.example answered") && !error.contains("sesame"), "{error}");
}

#[tokio::test]
async fn redirects_are_followed_and_credentials_stay_behind() {
    let to = |status: &str, location: &str| http(status, &format!("location: {location}\r\n"), "");
    // The second connection is for the other host; all names are of one address here.
    let connections = vec![
        vec![to("307 T", "c"), to("308 P", "http://other.example/d")],
        vec![http("200 OK", "", "{\"there\":1}")],
    ];
    let (answer, requests) = asked("http://u:p@hook.example/a/b", connections).await;
    assert_eq!(answer.unwrap(), b"{\"there\":1}");
    for (request, start) in requests.iter().zip(["POST /a/b ", "POST /a/c ", "POST /d "]) {
        assert!(request.starts_with(start) && request.ends_with("{}"), "{request}");
    }
    let authorized: Vec<_> = requests.iter().map(|it| header(it, "authorization").is_some()).collect();
    assert_eq!(authorized, [true, true, false]);
}

/// Without `--webhook-redirects`.
async fn asked_by_default(connections: Vec<Vec<Vec<u8>>>) -> String {
    let (at, _served) = server(connections).await;
    let (resolver, redirects) = (Resolver::At(at), RedirectPolicy::default());
    let pools = Pools::with(resolver, Proxies::of(None), MAX_ANSWER, redirects);
    of_pools("http://hook.example/", &pools).ask("{}").await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed_by_default() {
    let away = http("307 T", "location: http://other.example/d\r\n", "");
    let error = asked_by_default(vec![vec![away], vec![http("200 OK", "", "{}")]]).await;
    assert_eq!(
        error,
        "the exchange with the webhook at hook.example broke off: it redirects to another host, other.example: --webhook-redirects=any follows it, or name that host in the webhook's URL"
    );
}

#[tokio::test]
async fn an_error_elsewhere_is_not_quoted() {
    let elsewhere = http("307 T", "location: /other\r\n", "");
    let error = asked_by_default(vec![vec![elsewhere, http("500 E", "", "secret")]]).await;
    let expected = "the webhook at hook.example answered with an unsupported status code: 500 body: ";
    assert_eq!(error, expected);
}

/// A webhook could have the server keep connections to all ports of its host.
#[tokio::test]
async fn no_connection_is_kept_where_a_redirect_leads() {
    let to = |location: &str| http("307 T", &format!("location: {location}\r\n"), "");
    // The server answers nothing more on a connection that has had its answers.
    let first = vec![to("http://other.example/a")];
    let connections = vec![first, vec![to("/b")], vec![http("200 OK", "", "{}")]];
    let (answer, requests) = asked("http://hook.example/", connections).await;
    assert_eq!(answer.unwrap(), b"{}", "{requests:?}");
}

#[tokio::test]
async fn a_redirect_that_says_see_other_is_asked_by_get() {
    let other = http("302 F", "location: /other?x\r\n", "");
    let (answer, requests) =
        asked("http://hook.example/", vec![vec![other, http("200 OK", "", " \n{}")]]).await;
    assert_eq!(answer.unwrap(), b" \n{}");
    assert!(requests[1].starts_with("GET /other?x ") && requests[1].ends_with("\r\n\r\n"), "{requests:?}");
    assert_eq!(header(&requests[1], "content-type"), None);
}

#[tokio::test]
async fn an_answer_elsewhere_that_is_no_json_object_is_refused_and_not_quoted() {
    for body in ["root:x:0:0", "[\"secret\"]", "\"{\"", " \n", ""] {
        let elsewhere = http("307 T", "location: /other\r\n", "");
        let connections = vec![vec![elsewhere, http("200 OK", "", body)]];
        let (answer, _) = asked("http://hook.example/", connections).await;
        let expected = "the exchange with the webhook at hook.example broke off: the answer that its redirect led to is no JSON object";
        assert_eq!(answer.unwrap_err().to_string(), expected);
        // The webhook's own answer is quoted where it is no JSON.
        let (own, _) = asked("http://hook.example/", vec![vec![http("200 OK", "", body)]]).await;
        assert_eq!(own.unwrap(), body.as_bytes());
    }
}

#[tokio::test]
async fn redirects_in_a_circle_end() {
    let again = http("307 T", "location: /\r\n", "");
    let (answer, requests) = asked("http://hook.example/", vec![vec![again; MAX_REDIRECTS + 1]]).await;
    let expected = "the exchange with the webhook at hook.example broke off: it redirects more than 10 times";
    assert_eq!(answer.unwrap_err().to_string(), expected);
    assert_eq!(requests.len(), MAX_REDIRECTS + 1);
}

#[tokio::test]
async fn an_answer_in_gzip_is_unpacked_within_the_bound() {
    let packed = |content: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        io::Write::write_all(&mut encoder, content).unwrap();
        http("200 OK", "content-encoding: gzip\r\n", encoder.finish().unwrap())
    };
    assert_eq!(answered(packed(b"{\"children\":[]}")).await.unwrap(), b"{\"children\":[]}");
    let bomb = packed(&vec![b' '; MAX_ANSWER + 1]);
    assert!(bomb.len() < 100_000);
    let (answer, _) = asked("http://hook.example/", vec![vec![bomb]]).await;
    assert_eq!(answer.unwrap_err().category(), "HookOutput");
    let damaged = answered(http("200 OK", "content-encoding: gzip\r\n", "no gzip")).await.unwrap_err();
    assert!(damaged.to_string().contains("its gzip cannot be unpacked"), "{damaged}");
}

fn proxies(at: SocketAddr) -> Proxies {
    let proxy = format!("http://user:secret@{at}");
    Proxies::of(Some(Matcher::builder().http(proxy.clone()).https(proxy).build()))
}

#[tokio::test]
async fn a_proxy_is_asked_for_the_whole_url() {
    let (at, served) = server(vec![vec![http("200 OK", "", "x")]]).await;
    let pools = Pools::with(Resolver::At(at), proxies(at), MAX_ANSWER, RedirectPolicy::Any);
    let answer = of_pools("http://far.example:81/x", &pools).ask("{}").await;
    assert_eq!(answer.unwrap(), b"x");
    let (requests, _open) = served.await.unwrap();
    assert!(requests[0].starts_with("POST http://far.example:81/x "), "{}", requests[0]);
    assert_eq!(header(&requests[0], "proxy-authorization"), Some("Basic dXNlcjpzZWNyZXQ="));
    assert_eq!(header(&requests[0], "host"), Some("far.example:81"));
}

#[tokio::test]
async fn a_proxy_makes_a_tunnel_for_tls_and_its_secrets_are_not_told() {
    let refuses = b"HTTP/1.1 407 No\r\n\r\n".to_vec();
    let (at, served) = server(vec![vec![refuses]]).await;
    let pools = Pools::with(Resolver::At(at), proxies(at), MAX_ANSWER, RedirectPolicy::Any);
    let error = of_pools("https://far.example/x", &pools).ask("{}").await.unwrap_err();
    let (requests, _open) = served.await.unwrap();
    assert!(requests[0].starts_with("CONNECT far.example:443 "), "{}", requests[0]);
    assert_eq!(header(&requests[0], "Proxy-Authorization"), Some("Basic dXNlcjpzZWNyZXQ="));
    let text = error.to_string();
    assert!(text.contains("by the proxy 127.0.0.1: ") && text.contains("authorization"), "{text}");
    assert!(!text.contains("secret") && !text.contains("dXNlc"), "{text}");
}

#[tokio::test]
async fn a_proxy_makes_a_tunnel_for_what_is_not_http() {
    let (at, served) = server(vec![vec![b"HTTP/1.1 200 OK\r\n\r\n".to_vec()]]).await;
    let pools = Pools::with(Resolver::At(at), proxies(at), MAX_ANSWER, RedirectPolicy::Any);
    let mut connector = pools.tunnels_trusting_pem(None).unwrap();
    let connection = connector.call("http://far.example:4317".parse().unwrap()).await.unwrap();
    assert!(!connection.connected().is_proxied(), "it is spoken to as to the server itself");
    drop(connection);
    let (requests, _open) = served.await.unwrap();
    assert!(requests[0].starts_with("CONNECT far.example:4317 "), "{}", requests[0]);
}

pub(super) type Certified = (CertificateDer<'static>, PrivateKeyDer<'static>);

pub(super) fn certified(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Certified {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    (certificate, PrivateKeyDer::Pkcs8(key.serialize_der().into()))
}

/// Serves one connection over TLS and answers with the version of HTTP.
async fn tls_server(certified: Certified, protocols: &[&[u8]]) -> SocketAddr {
    tls_server_for(certified, protocols, None, 1).await
}

/// Serves several connections over TLS, one after the other; only for clients that this authority signed for, if there
/// is one.
pub(super) async fn tls_server_for(
    (certificate, key): Certified,
    protocols: &[&[u8]],
    clients: Option<&Certified>,
    connections: usize,
) -> SocketAddr {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let versions = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let versions = match clients {
        None => versions.with_no_client_auth(),
        Some((authority, _)) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.clone()).unwrap();
            let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            versions.with_client_cert_verifier(clients.build().unwrap())
        }
    };
    let mut config = versions.with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for _ in 0..connections {
            serve_one(&acceptor, listener.accept().await.unwrap().0).await;
        }
    });
    at
}

async fn serve_one(acceptor: &TlsAcceptor, stream: TcpStream) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let is_2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
    let answer = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("{:?}", request.version())))))
    });
    let stream = TokioIo::new(stream);
    if is_2 {
        http2::Builder::new(TokioExecutor::new()).serve_connection(stream, answer).await.unwrap_or_default();
    } else {
        http1::Builder::new().serve_connection(stream, answer).await.unwrap_or_default();
    }
}

async fn over_tls(
    served: Certified,
    protocols: &[&[u8]],
    trusted: &[&Certified],
) -> Result<Vec<u8>, WebError> {
    let at = tls_server(served, protocols).await;
    let trusted = trusted.iter().map(|(certificate, _)| certificate.clone()).collect();
    let pools = Pools::trusting(Resolver::At(at), Proxies::of(None), trusted);
    of_pools("https://hook.example/", &pools).ask("{}").await
}

pub(super) fn copy((certificate, key): &Certified) -> Certified {
    (certificate.clone(), key.clone_key())
}

#[tokio::test]
async fn the_server_chooses_the_version_of_http() {
    let one = certified("hook.example", |_| ());
    for (protocols, expected) in [
        ([b"h2".as_slice(), b"http/1.1"].as_slice(), "HTTP/2.0"),
        ([b"http/1.1".as_slice()].as_slice(), "HTTP/1.1"),
        ([].as_slice(), "HTTP/1.1"),
    ] {
        let answer = over_tls(copy(&one), protocols, &[&one]).await.unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_server_that_is_not_trusted_is_told_with_host_and_check() {
    let other = certified("other.example", |_| ());
    let expired = certified("hook.example", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let early = certified("hook.example", |params| params.not_before = rcgen::date_time_ymd(4001, 1, 1));
    let authority =
        certified("hook.example", |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let stranger = certified("hook.example", |_| ());
    for (served, trusted, check) in [
        (copy(&other), vec![&other], "is for other names than this host's"),
        (copy(&expired), vec![&expired], "has expired"),
        (copy(&early), vec![&early], "is not valid yet"),
        (
            copy(&authority),
            vec![&authority],
            "is one of an authority, which signs and does not serve: put it itself into caBundle",
        ),
        (copy(&stranger), vec![&other], "is signed by no authority that is trusted"),
        // Where the system trusts nothing, the public authorities are trusted.
        (copy(&stranger), vec![], "is signed by no authority that is trusted"),
    ] {
        let error = over_tls(served, &[], &trusted).await.unwrap_err();
        assert_eq!(error.category(), "HookConnect");
        let (error, check) = (error.to_string(), format!("TLS with hook.example: its certificate {check} ("));
        assert!(error.contains(&check), "{error}");
    }
}
