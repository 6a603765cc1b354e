//! Secrets do not leave the server but to whom they belong: all its log, its metrics, its writes, its spans and what its
//! inspection address answers are searched for them.

use std::net::SocketAddr;

use acceptance::api::{CONFIG_MAP, Kind, SECRET};
use acceptance::fixture::{Fixture, guest};
use acceptance::free_port::free_address;
use acceptance::objects::{Hook, condition, text};
use acceptance::proxy::Proxy;
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::dashboard::{self, Browser, calls_page, object_page};
use crate::explain::{explain, kind, until_explained};
use crate::settling::scrape_text;
use crate::spans;

/// Each is in one place alone, so that a find says which one leaked.
const IN_URL: &str = "open-sesame-of-a-url";
const IN_WRONG_URL: &str = "open-sesame-of-a-wrong-url";
const TOKEN: &str = "open-sesame-of-a-token";
const WRONG_TOKEN: &str = "open-sesame-of-two\nlines";
const PASSWORD: &str = "open-sesame-of-a-password";
const KEY: &str = "open-sesame-of-a-key";
const RELATED: &str = "open-sesame-of-a-related-object";
const MOUNTED: &str = "open-sesame-of-a-mount";
const DECORATED: &str = "open-sesame-of-a-decorated-object";
const CHILD: &str = "open-sesame-of-a-child";
const LATER: &str = "open-sesame-of-an-updated-child";
const WRONG_CHILD: &str = "open-sesame-of-a-wrong-child";

/// As a Secret, a header or a log line may spell them.
fn spellings() -> Vec<(&'static str, String)> {
    let plain = [
        IN_URL,
        IN_WRONG_URL,
        TOKEN,
        "open-sesame-of-two",
        PASSWORD,
        KEY,
        RELATED,
        MOUNTED,
        DECORATED,
        CHILD,
        LATER,
        WRONG_CHILD,
    ];
    let spelt = |what: &'static str| {
        [what.to_owned(), base64(what), base64(format!("Aladdin:{what}"))].map(|text| (what, text))
    };
    plain.into_iter().flat_map(spelt).collect()
}

pub(crate) fn base64(text: impl Into<Vec<u8>>) -> String {
    json!(ByteString(text.into())).as_str().unwrap_or_default().to_owned()
}

fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<_, _> =
        data.iter().map(|(key, value)| ((*key).to_owned(), base64(*value).into())).collect();
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": data })
}

/// A controller with which something is wrong, and the words in which the log says so.
struct Row {
    name: &'static str,
    hook: Hook,
    says: &'static str,
}

/// Controllers that cannot call their hook, or whose hook refuses them.
fn failing(test: &Fixture, hook: &Webhook) -> Result<Vec<Row>> {
    let at = |name: &str| json!({ "secretRef": { "name": name, "namespace": test.name() } });
    let token =
        |name: &str| json!({ "secretRef": { "name": name, "namespace": test.name(), "key": "token" } });
    let (address, closed) = (hook.address(), free_address()?);
    let refusing = || Hook::webhook(&hook.url("/refused"));
    let of = |url: String| Hook::webhook(&url);
    let row = |name, hook, says| Row { name, hook, says };
    Ok(vec![
        row("url", of(format!("http://Aladdin:{IN_URL}@{address}/refused")), "401"),
        row("closed", of(format!("http://Aladdin:{IN_URL}@{closed}/sync")), "cannot be reached"),
        row("wrong-url", of(format!("http://Aladdin:{IN_WRONG_URL}%zz@{address}/")), "cannot be read"),
        row("token", refusing().with("authorization", token("token")), "401"),
        row("wrong-token", refusing().with("authorization", token("wrong-token")), "wrong-token"),
        row("password", refusing().with("basicAuth", at("password")), "401"),
        row("key", of(format!("https://{address}/sync")).with("clientTLS", at("key")), "clientTLS"),
    ])
}

/// Answer of the hook of the controller that makes Secrets, by the mode of the parent.
fn secrets_of(asked: &Asked) -> Answer {
    if asked.path == "/customize" {
        let rule = json!({ "apiVersion": "v1", "resource": "secrets", "names": ["related"] });
        return Answer::from(json!({ "relatedResources": [rule] }));
    }
    if asked.path != "/sync" {
        return Answer::status(401);
    }
    let mode = text(&asked.body, "/parent/spec/who");
    let mut child = secret("child", &[("password", if mode == "first" { CHILD } else { LATER })]);
    match mode {
        "no base64" => child["data"]["password"] = json!(WRONG_CHILD),
        "a number" => child["data"] = json!({ "password": WRONG_CHILD, "other": 5 }),
        "no text" => child["stringData"] = json!({ "a b": WRONG_CHILD }),
        "no object" => child["data"] = json!(WRONG_CHILD),
        "no name" => child["metadata"] = json!({ "labels": { "a": 5 } }),
        _ => {}
    }
    Answer::from(json!({ "children": [child], "status": { "who": mode } }))
}

pub(crate) async fn secrets_are_in_no_log_event_metric_or_status(test: &mut Fixture) -> Result<()> {
    let hook = Webhook::serve(secrets_of).await?;
    test.define_kind().await?;
    store_secrets(test).await?;
    let proxy = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
    let (address, inspected) = (free_address()?, free_address()?);
    let collector = Webhook::serve(|_: &Asked| Answer::text("")).await?;
    spans::send_to(test, &collector.url(""));
    test.server().reach_by(proxy.kubeconfig());
    test.server().flag(&format!("--metrics-address={address}"));
    test.server().flag(&format!("--inspection-address={inspected}"));
    test.server().flag("--log-level=trace");
    let own = format!("--mount-secret-namespaces={}", test.name());
    test.server().flag(&own);
    test.serve()?;
    host_all(test, &hook).await?;
    show_all(test, &hook).await?;
    let page = scrape_text(address).await?;
    let mut texts = seen_inside(test, inspected).await?;
    let of_the_child = |asked: &Asked| {
        let spans = String::from_utf8_lossy(&asked.bytes);
        spans.contains("replace object") && spans.contains("Secret") && spans.contains("child")
    };
    collector.until_asked("with the span of a Secret", of_the_child).await?;
    let spans = collector.asked().into_iter().map(|asked| String::from_utf8_lossy(&asked.bytes).into_owned());
    texts.extend(spans.map(|spans| ("the spans".to_owned(), spans)));

    let log = std::fs::read_to_string(test.server().log())?;
    for says in [
        r#""message":"request""#,
        r#""message":"answer""#,
        "data.password: (hidden) -> (hidden)",
        r#"\"password\":\"(hidden)\""#,
        "http://(hidden)@",
    ] {
        ensure!(log.contains(says), "the log does not say all: {says} is missing");
    }
    texts.extend([("the log".to_owned(), log), ("the metrics".to_owned(), page)]);
    for write in proxy.writes() {
        // What a hook wants a Secret to hold belongs there.
        if !write.path.contains("/secrets") {
            let body = String::from_utf8_lossy(&write.body).into_owned();
            texts.push((format!("{} {}", write.method, write.path), body));
        }
    }
    let events = texts.iter().filter(|(place, _)| place.contains("/events")).count();
    ensure!(events > 10, "{events} Events of {} texts", texts.len());
    for (place, text) in texts {
        for (what, spelt) in spellings() {
            let found = text.lines().find(|line| line.contains(&spelt));
            ensure!(found.is_none(), "{what} is in {place}: {found:?}");
        }
    }
    Ok(())
}

/// What `metahook explain`, `status` and `dashboard` show of the server, each page of it.
async fn seen_inside(test: &mut Fixture, server: SocketAddr) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    let kind = kind(test);
    until_explained(test, server, [&kind, "a"], &["replace", "Secret "]).await?;
    until_explained(test, server, ["secret", "decorated"], &["sync hook"]).await?;
    for object in [[kind.as_str(), "a"], ["secret", "child"], ["secret", "decorated"]] {
        let said = explain(test, server, object, &["-o", "json", "--count=100"]).await?;
        texts.push((format!("what is explained of {object:?}"), said));
    }
    let dashboard = dashboard::start(test, server)?;
    let browser = Browser::open(&dashboard).await?;
    let name = test.name();
    let mut pages = vec!["/".to_owned(), format!("/controllers/DecoratorController/{name}")];
    for more in
        ["", "-url", "-closed", "-wrong-url", "-token", "-wrong-token", "-password", "-key", "-mounts"]
    {
        pages.push(format!("/controllers/CompositeController/{name}{more}"));
    }
    let api = test.plane().kubeconfig().display().to_string();
    for page in pages {
        let shown = browser.ask(&page, "").await?;
        ensure!(shown.starts_with("HTTP/1.1 200"), "{page}: {shown}");
        texts.push((page, shown));
    }
    for (objects, kind, parents, parent) in [
        (test.parents(), "CompositeController", test.kind().clone(), "a"),
        (test.within(&SECRET), "DecoratorController", SECRET.clone(), "decorated"),
    ] {
        let calls = calls_page(test, kind, &parents, parent);
        browser.until_shown(&calls, &["Requests and answers"]).await?;
        let change = json!({ "metadata": { "labels": { "changed-again": "yes" } } });
        objects.merge(parent, &change).await?;
        let replaced = ["&quot;changed-again&quot;", "&quot;cmVwbGFjZWQ=&quot;"];
        let shown = browser.until_shown(&calls, &replaced).await?;
        texts.push((calls, shown));
        let page = object_page(test, &parents, parent);
        let shown = browser.until_shown(&page, &["Requests and answers of "]).await?;
        texts.push((page, shown));
    }
    let page = object_page(test, &SECRET, "child");
    let shown = browser.until_shown(&page, &["sync hook"]).await?;
    texts.push((page, shown));
    let name = format!("compositecontroller/{name}");
    let line = ["status", &name, "-o", "json", "--server", &server.to_string(), "--kubeconfig", &api];
    let line = line.map(str::to_owned);
    let status = test.server().run(&line).await?.0;
    ensure!(status.contains("\"running\""), "{status}");
    texts.push(("the status".to_owned(), status));
    Ok(texts)
}

async fn store_secrets(test: &mut Fixture) -> Result<()> {
    let place = test.within(&SECRET);
    for (name, data) in [
        ("token", &[("token", TOKEN)][..]),
        ("wrong-token", &[("token", WRONG_TOKEN)]),
        ("password", &[("username", "Aladdin"), ("password", PASSWORD)]),
        ("key", &[("tls.crt", KEY), ("tls.key", KEY)]),
        ("related", &[("a", RELATED)]),
        ("mounted", &[("a", MOUNTED)]),
        ("decorated", &[("a", DECORATED)]),
    ] {
        test.make(&place, secret(name, data)).await?;
    }
    Ok(())
}

async fn host_all(test: &mut Fixture, hook: &Webhook) -> Result<()> {
    test.store("hello", &guest("hello")?).await?;
    let of = |path: &str| Hook::webhook(&hook.url(path));
    let makes = test.controller().making(&SECRET, "InPlace").synced_by(of("/sync"));
    test.host(makes.customized_by(of("/customize"))).await?;
    let mounting = test.hook("hello").mounting("/m", "secret", test.name(), "mounted");
    let mounts = test.controller().renamed(&format!("{}-mounts", test.name()));
    test.host(mounts.making(&CONFIG_MAP, "InPlace").synced_by(mounting)).await?;
    let selected = json!({ "annotationSelector": { "matchAnnotations": { "decorate": "me" } } });
    let decorator = test.decorator().decorating(&SECRET, selected).attaching(&CONFIG_MAP, "InPlace");
    test.host_decorator(decorator.synced_by(of("/decorate"))).await?;
    Ok(())
}

/// Has the server do all that a Secret is part of, and fail at all that can fail.
async fn show_all(test: &mut Fixture, hook: &Webhook) -> Result<()> {
    let place = test.within(&SECRET);
    place.merge("decorated", &json!({ "metadata": { "annotations": { "decorate": "me" } } })).await?;
    test.create(test.parent("a").greeting("first")).await?;
    let has = |what: &'static str| move |child: &Value| child["data"]["password"] == base64(what);
    place.until("child", "made", has(CHILD)).await?;
    for mode in ["second", "no base64", "a number", "no text", "no object", "no name"] {
        test.parents().merge("a", &json!({ "spec": { "who": mode } })).await?;
        let asked = |asked: &Asked| asked.path == "/sync" && text(&asked.body, "/parent/spec/who") == mode;
        hook.until_asked(mode, asked).await?;
    }
    place.until("child", "updated", has(LATER)).await?;
    hook.until_asked("about the decorated Secret", |asked| asked.path == "/decorate").await?;
    for row in failing(test, hook)? {
        let name = format!("{}-{}", test.name(), row.name);
        let controller = test.controller().renamed(&name).making(&CONFIG_MAP, "InPlace");
        test.host(controller.synced_by(row.hook)).await?;
        let is = |line: &str| line.contains(&name) && line.contains(row.says);
        test.server().until_log(&format!("what is wrong with {name}"), |log| log.lines().any(is)).await?;
    }
    Ok(())
}

/// Webhooks see all other Secrets and Leases, as parents and as related objects.
pub(crate) async fn the_servers_own_secrets_and_leases_are_shown_to_no_hook(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(|asked: &Asked| match asked.path.as_str() {
        "/customize" => {
            let rule = |version: &str, resource: &str| json!({ "apiVersion": version, "resource": resource });
            let rules = [rule("v1", "secrets"), rule("coordination.k8s.io/v1", "leases")];
            json!({ "relatedResources": rules }).into()
        }
        _ => json!({ "attachments": [], "children": [], "status": { "seen": true } }).into(),
    });
    let webhook = webhook.await?;
    let lease = Kind::new("coordination.k8s.io", "v1", "Lease", "leases");
    test.define_kind().await?;
    test.make(&test.within(&SECRET), secret("other", &[("a", "b")])).await?;
    let other =
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "other" } });
    test.make(&test.within(&lease), other).await?;
    test.serve()?;
    test.within_default(&SECRET).until("metahook-seed", "made", |_| true).await?;
    let leases = test.within_default(&lease);
    until("a Lease of servers", PATIENCE, async || {
        let all = leases.list().await?;
        let is_signed = all.iter().any(|one| text(one, "/metadata/name").starts_with("metahook-servers"));
        Ok(if is_signed { Ok(()) } else { Err(format!("{} Leases", all.len())) })
    })
    .await?;

    let of = |path: &str| Hook::webhook(&webhook.url(path));
    let shown = test.controller().renamed(&format!("{}-shown", test.name())).of_parents_with("row", "shown");
    test.host(shown.synced_by(of("/sync")).customized_by(of("/customize"))).await?;
    test.create(test.parent("p").labelled("row", "shown")).await?;
    let decorator = test.decorator().decorating(&SECRET, json!({})).decorating(&lease, json!({}));
    test.host_decorator(decorator.synced_by(of("/decorate"))).await?;
    let home = "default";
    let credentials = json!([{
        "host": webhook.address().to_string(),
        "basicAuth": { "secretRef": { "name": "metahook-seed", "namespace": home, "usernameKey": "seed" } },
    }]);
    let sends = test.controller().renamed(&format!("{}-sends", test.name())).of_parents_with("row", "sends");
    test.host(sends.with("endpointConfigs", credentials).synced_by(of("/sends"))).await?;

    test.parents().until("p", "seen", |parent| parent["status"]["seen"] == true).await?;
    for kind in ["Secret", "Lease"] {
        let other = |asked: &Asked| {
            asked.path == "/decorate"
                && asked.body["object"]["kind"] == kind
                && text(&asked.body, "/object/metadata/name") == "other"
        };
        webhook.until_asked(&format!("about the other {kind}"), other).await?;
    }
    let refused = |cc: &Value| {
        condition(cc, "Ready").is_some_and(|it| text(it, "/message").contains("is the server's own"))
    };
    test.controllers().until(&format!("{}-sends", test.name()), "refused", refused).await?;
    for asked in webhook.asked() {
        let body = asked.body.to_string();
        for own in ["\"metahook-seed\"", "\"metahook-servers"] {
            ensure!(!body.contains(&format!("\"name\":{own}")), "{own} was shown to {}", asked.path);
        }
        ensure!(asked.path != "/sends", "called with {:?}", asked.headers);
    }
    Ok(())
}
