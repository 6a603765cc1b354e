//! `metahook explain`: what it shows to which users, and that it shows no value of a Secret.

use acceptance::api::{CONFIG_MAP, SECRET, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::objects::config_map;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::explain::{explain, kind, line, server, token_flag, until_explained};
use crate::secrecy::base64;
use crate::wasm;

/// A value that no answer may have.
const HIDDEN: &str = "a-value-of-a-secret";

pub(crate) async fn explain_shows_no_secret_and_refuses_users_without_rights(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "s" },
        "stringData": { "key": HIDDEN },
    });
    test.store("hook", &wasm::answers(&json!({ "children": [secret] }))?).await?;
    let namespaces = format!("--mount-secret-namespaces={}", test.name());
    test.server().flag(&namespaces);
    let server = server(test)?;
    test.host(test.controller().making(&SECRET, "InPlace").synced_by(test.hook("hook"))).await?;
    let kind = kind(test);
    test.create(test.parent("p")).await?;
    until_explained(test, server, [&kind, "p"], &["create      Secret "]).await?;
    let changed = json!({ "stringData": { "key": "changed" } });
    test.within(&SECRET).merge("s", &changed).await?;
    until_explained(test, server, ["secret", "s"], &["data.key from (hidden) to (hidden)"]).await?;
    let hidden = base64(HIDDEN);
    for object in [[kind.as_str(), "p"], ["secret", "s"]] {
        let said = explain(test, server, object, &["-o", "json", "--count=100"]).await?;
        ensure!(!said.contains(HIDDEN) && !said.contains(&hidden), "{said}");
    }

    test.make(&test.within(&SERVICE_ACCOUNT), json!({ "metadata": { "name": "nobody" } })).await?;
    let name = test.name().to_owned();
    let kubectl = test.plane().kubectl();
    let account = format!("--serviceaccount={name}:viewer");
    for line in [
        &["create", "serviceaccount", "viewer", "-n", &name][..],
        &["create", "rolebinding", "viewer", "--clusterrole=cluster-admin", &account, "-n", &name],
    ] {
        kubectl.run(line).await?;
    }
    let file = test.plane().scratch().join(format!("{name}-token"));
    let flag = format!("--token-file={}", file.display());
    // The token that the command has made where a kubeconfig has none is for this audience, and is good for nothing else.
    for audience in ["metahook", "another"] {
        let audience_flag = format!("--audience={audience}");
        std::fs::write(
            &file,
            kubectl.run(&["create", "token", "viewer", &audience_flag, "-n", &name]).await?,
        )?;
        let shown = explain(test, server, [&kind, "p"], &[&flag]).await;
        ensure!(shown.is_ok() == (audience == "metahook"), "{audience}: {shown:?}");
    }
    let token = kubectl.run(&["create", "token", "nobody", "-n", &name]).await?;
    for (token, says) in [
        (token.as_str(), format!("User \"system:serviceaccount:{name}:nobody\" cannot get ")),
        ("no-token-of-anybody", "the API server does not take the token".to_owned()),
    ] {
        std::fs::write(&file, token)?;
        let refused = explain(test, server, [&kind, "p"], &[&flag]).await.err().context("it was shown")?;
        ensure!(format!("{refused:#}").contains(&says), "{refused:#}");
    }
    Ok(())
}

/// The user may get the parent, and later the child.
pub(crate) async fn values_of_a_child_are_shown_to_users_who_may_get_it(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let children = |data: &str| {
        wasm::answers(&json!({ "children": [config_map("child", json!({}), json!({ "a": data }))] }))
    };
    test.store("hook", &children("one")?).await?;
    let server = server(test)?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    let (kind, name) = (kind(test), test.name().to_owned());
    test.create(test.parent("p")).await?;
    test.config_maps().until("child", "made", |child| child["data"]["a"] == "one").await?;
    test.store("hook", &children("two")?).await?;
    let changed = ["replace     ConfigMap ", r#"(data.a: "one" -> "two")"#];
    until_explained(test, server, [&kind, "p"], &changed).await?;
    test.config_maps().merge("child", &json!({ "data": { "a": "three" } })).await?;
    until_explained(test, server, [&kind, "p"], &[r#"data.a from "two" to "three""#]).await?;

    let kubectl = test.plane().kubectl();
    let account = format!("--serviceaccount={name}:reader");
    let of_parents = format!("--resource={kind}");
    for line in [
        &["create", "serviceaccount", "reader", "-n", &name][..],
        &["create", "role", "parents", "--verb=get", &of_parents, "-n", &name],
        &["create", "role", "children", "--verb=get", "--resource=configmaps", "-n", &name],
        &["create", "rolebinding", "parents", "--role=parents", &account, "-n", &name],
    ] {
        kubectl.run(line).await?;
    }
    let flag = token_flag(test, "reader").await?;
    let shown = explain(test, server, [&kind, "p"], &[&flag, "--count=100"]).await?;
    ensure!(shown.contains("replace     ConfigMap "), "{shown}");
    ensure!(shown.contains(": you may not get it, so no more is shown"), "{shown}");
    for value in ["one", "two", "three", "drift"] {
        ensure!(!shown.contains(value), "{value}: {shown}");
    }
    let binding = ["create", "rolebinding", "children", "--role=children", &account, "-n", &name];
    test.plane().kubectl().run(&binding).await?;
    // The server remembers a review for ten seconds.
    let command = line(test, server, [&kind, "p"], &[&flag, "--count=100"]);
    let process = test.server();
    until("the user is shown the values", PATIENCE, async || {
        let (output, _) = process.run(&command).await?;
        Ok(if changed.iter().all(|it| output.contains(it)) { Ok(()) } else { Err(output) })
    })
    .await
}
