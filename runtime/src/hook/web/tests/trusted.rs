//! Certificates and credentials of webhooks: of the spec and of objects that change.

use k8s_openapi::ByteString;
use metahook_core::object::Object;
use rcgen::{BasicConstraints, IsCa};
use tokio::sync::watch;

use super::ways::{Certified, certified, copy, tls_server_for};
use super::*;
use crate::cluster::named_objects::{Follower, Reference, ReferenceKind, ReferenceState};

fn pem(tag: &str, der: &[u8]) -> String {
    let text = json!(ByteString(der.to_vec())).as_str().unwrap().to_owned();
    format!("-----BEGIN {tag}-----\n{text}\n-----END {tag}-----\n")
}

fn certificate((certificate, _): &Certified) -> String {
    pem("CERTIFICATE", certificate)
}

fn private_key((_, key): &Certified) -> String {
    pem("PRIVATE KEY", key.secret_der())
}

/// A Secret n/s with these keys.
fn secret(version: u32, data: &[(&str, &str)]) -> ReferenceState {
    let data: BTreeMap<_, _> =
        data.iter().map(|(key, text)| (*key, ByteString(text.as_bytes().to_vec()))).collect();
    let json = json!({
        "apiVersion": "v1", "kind": "Secret", "data": data,
        "metadata": {"name": "s", "namespace": "n", "resourceVersion": version.to_string()},
    });
    ReferenceState::There(Arc::new(Object::parse(&json.to_string(), None).unwrap()))
}

/// A webhook whose Secret n/s is this.
fn with_secret(spec: Value, at: SocketAddr, known: &watch::Sender<ReferenceState>) -> Webhook {
    let spec: webhook::Webhook = serde_json::from_value(spec).unwrap();
    let target = spec.check("f").unwrap();
    let name = Reference { kind: ReferenceKind::Secret, namespace: "n".to_owned(), name: "s".to_owned() };
    let pools = pools(at);
    let from_url = target.credentials.as_ref().map(Credentials::basic);
    let objects = [(name, Follower::fed_by(known))].into();
    let trust = TrustSource::of(&target.trust, from_url, objects, &pools);
    let meter = Metrics::new(|| 0).webhook("CompositeController", "c", HookName::Sync, &target.url);
    Webhook::with(&target, trust, &pools, meter).unwrap()
}

fn secret_ref() -> Value {
    json!({"secretRef": {"name": "s", "namespace": "n"}})
}

async fn problem(webhook: &Webhook) -> String {
    let mut changes = webhook.trust.state.clone();
    let state = changes.wait_for(|state| state.problem.is_some()).await.unwrap();
    state.problem.as_ref().unwrap().to_string()
}

#[tokio::test]
async fn credentials_that_the_account_may_no_longer_read_are_sent_no_longer() {
    let (at, _served) = server(vec![vec![http("200 OK", "", "{}")]]).await;
    let known = watch::Sender::new(secret(1, &[("username", "u"), ("password", "p")]));
    let spec = json!({"url": "http://hook.example/", "timeout": "1m", "basicAuth": secret_ref()});
    let webhook = with_secret(spec, at, &known);
    webhook.trust.state.clone().wait_for(TrustState::is_known).await.unwrap();
    known.send_replace(ReferenceState::TakenAway("cannot".into()));
    assert_eq!(
        problem(&webhook).await,
        "f.basicAuth.secretRef: the Secret n/s may no longer be read: cannot"
    );
    let error = webhook.ask("{}").await.unwrap_err().to_string();
    assert!(error.ends_with("its certificates and credentials are not known"), "{error}");
}

#[tokio::test]
async fn credentials_of_a_secret_are_sent_and_renewed() {
    let answer = || http("200 OK", "", "{}");
    let (at, served) = server(vec![vec![answer(), answer(), answer()]]).await;
    let known = watch::Sender::new(ReferenceState::NotYet);
    let spec = json!({"url": "http://u:p@hook.example/", "timeout": "1m", "basicAuth": secret_ref()});
    let webhook = with_secret(spec, at, &known);
    let mut changes = webhook.trust.state.clone();
    assert!(!changes.borrow().is_known());
    let error = webhook.ask("{}").await.unwrap_err().to_string();
    assert!(error.ends_with("its certificates and credentials are not known"), "{error}");

    known.send_replace(secret(1, &[("username", " Aladdin\n"), ("password", "open sesame\n")]));
    changes.wait_for(TrustState::is_known).await.unwrap();
    webhook.ask("{}").await.unwrap();
    // What cannot be used leaves the last good one in use.
    known.send_replace(secret(2, &[("username", "a:b"), ("password", "secret")]));
    let said = problem(&webhook).await;
    assert_eq!(
        said,
        "f.basicAuth.secretRef: the key \"username\" of the Secret n/s is a user with a colon, which cannot be sent"
    );
    webhook.ask("{}").await.unwrap();
    known.send_replace(secret(3, &[("username", "a"), ("password", "b")]));
    changes.wait_for(|state| state.problem.is_none()).await.unwrap();
    webhook.ask("{}").await.unwrap();

    let (requests, _open) = served.await.unwrap();
    let sent = |request: &String| {
        let line = request.lines().find(|line| line.starts_with("authorization: "));
        line.unwrap_or_default().to_owned()
    };
    let sent: Vec<_> = requests.iter().map(sent).collect();
    let first = "authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    assert_eq!(sent, [first, first, "authorization: Basic YTpi"]);
}

#[tokio::test]
async fn a_token_has_its_scheme() {
    let (at, served) = server(vec![vec![http("200 OK", "", "{}")]]).await;
    let known = watch::Sender::new(secret(1, &[("k", "token\n")]));
    let key = json!({"name": "s", "namespace": "n", "key": "k"});
    let spec = json!({"url": "http://hook.example/", "authorization": {"type": "Token", "secretRef": key}});
    with_secret(spec, at, &known).ask("{}").await.unwrap();
    let (requests, _open) = served.await.unwrap();
    assert!(requests[0].contains("\r\nauthorization: Token token\r\n"), "{}", requests[0]);
}

#[tokio::test]
async fn what_is_wrong_with_an_object_is_told_without_what_is_in_it() {
    let at = "127.0.0.1:9".parse().unwrap();
    let one = certified("hook.example", |_| ());
    let (certificate, other) = (certificate(&one), private_key(&certified("other", |_| ())));
    let token = json!({"secretRef": {"name": "s", "namespace": "n", "key": "k"}});
    for (field, given, known, says) in [
        (
            "authorization",
            token.clone(),
            ReferenceState::Missing,
            "f.authorization.secretRef: there is no Secret n/s",
        ),
        (
            "authorization",
            token.clone(),
            ReferenceState::Unreadable("forbidden".into()),
            "f.authorization.secretRef: the Secret n/s cannot be read: forbidden",
        ),
        (
            "authorization",
            token.clone(),
            secret(1, &[("other", "hidden")]),
            "f.authorization.secretRef: the Secret n/s has no key \"k\"",
        ),
        (
            "authorization",
            token.clone(),
            secret(1, &[("k", " ")]),
            "f.authorization.secretRef: the key \"k\" of the Secret n/s is empty",
        ),
        (
            "authorization",
            token,
            secret(1, &[("k", "hidden\nhidden")]),
            "f.authorization.secretRef: the key \"k\" of the Secret n/s has characters that no header may have",
        ),
        (
            "caBundle",
            secret_ref(),
            secret(1, &[("ca.crt", "hidden")]),
            "f.caBundle.secretRef: the key \"ca.crt\" of the Secret n/s has no certificate in PEM",
        ),
        (
            "clientTLS",
            secret_ref(),
            secret(1, &[("tls.crt", &certificate), ("tls.key", "hidden")]),
            "f.clientTLS.secretRef: the key \"tls.key\" of the Secret n/s has no private key in PEM",
        ),
        (
            "clientTLS",
            secret_ref(),
            secret(1, &[("tls.crt", &certificate), ("tls.key", &other)]),
            "f.clientTLS.secretRef: the key \"tls.crt\" of the Secret n/s makes no pair with the private key",
        ),
    ] {
        let known = watch::Sender::new(known);
        let webhook = with_secret(json!({"url": "https://hook.example/", field: given}), at, &known);
        let said = problem(&webhook).await;
        assert!(said.starts_with(says) && !said.contains("hidden"), "{said}");
        assert!(!webhook.trust.state.borrow().is_known());
    }
}

#[tokio::test]
async fn a_bundle_replaces_the_systems_authorities_and_its_own_servers_are_trusted() {
    let authority = |name: &str| certified(name, |it| it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let (own, other) = (authority("hook.example"), authority("hook.example"));
    let wrong_name = authority("other.example");
    let expired = certified("hook.example", |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    for (served, bundle, expected) in [
        (&own, &own, Ok(())),
        (&own, &other, Err("its certificate ")),
        (&wrong_name, &wrong_name, Err("is for other names than this host's")),
        (&expired, &expired, Err("has expired")),
    ] {
        let at = tls_server_for(copy(served), &[], None, 1).await;
        let bundle = json!({ "inline": certificate(bundle) });
        let spec = json!({"url": "https://hook.example/", "timeout": "1m", "caBundle": bundle});
        let answer = webhook(spec, &Metrics::new(|| 0), at).unwrap().ask("{}").await;
        match expected {
            Ok(()) => assert_eq!(answer.unwrap(), b"HTTP/1.1"),
            Err(check) => {
                let error = answer.unwrap_err().to_string();
                assert!(error.contains("TLS with hook.example: ") && error.contains(check), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_who_asks() {
    let server = certified("hook.example", |_| ());
    let client = certified("client", |_| ());
    let bundle = json!({ "inline": certificate(&server) });
    let known = watch::Sender::new(secret(
        1,
        &[("tls.crt", &certificate(&client)), ("tls.key", &private_key(&client))],
    ));
    let url = json!({"url": "https://hook.example/", "timeout": "1m", "caBundle": bundle});
    let at = tls_server_for(copy(&server), &[], Some(&client), 3).await;
    let error = webhook(url.clone(), &Metrics::new(|| 0), at).unwrap().ask("{}").await.unwrap_err();
    assert!(!error.to_string().is_empty());
    let mut spec = url;
    spec["clientTLS"] = secret_ref();
    assert_eq!(with_secret(spec, at, &known).ask("{}").await.unwrap(), b"HTTP/1.1");
}

#[tokio::test]
async fn equal_settings_share_their_connections() {
    let pools = pools("127.0.0.1:9".parse().unwrap());
    let bundle = |name: &str| {
        let authorities = Some(vec![certified(name, |_| ()).0]);
        tls::TlsSettings { authorities, identity: None }
    };
    let (one, other) = (bundle("a"), bundle("b"));
    let first = pools.get(&one).unwrap();
    assert!(Arc::ptr_eq(&first, &pools.get(&one.clone()).unwrap()));
    assert!(!Arc::ptr_eq(&first, &pools.get(&other).unwrap()));
    assert!(!Arc::ptr_eq(&first, &pools.get(&tls::TlsSettings::default()).unwrap()));
}
