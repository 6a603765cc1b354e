//! Accounts and rights for the tests of this folder: a server and a controller that may do only what is granted.

use std::fs;

use acceptance::api::{CONFIG_MAP, Kind, Objects, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, text};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::mounts::reach_as;

pub(super) const RBAC: &str = "rbac.authorization.k8s.io";

/// Makes the roles whose names end so.
pub(super) async fn grant(test: &mut Fixture, roles: &[Value], ends: &str) -> Result<()> {
    let wanted: Vec<_> =
        roles.iter().filter(|role| text(role, "/metadata/name").ends_with(ends)).cloned().collect();
    ensure!(!wanted.is_empty(), "no role ends with {ends}: {roles:?}");
    for role in wanted {
        let kind = text(&role, "/kind");
        let kind = Kind::new(RBAC, "v1", kind, &format!("{}s", kind.to_lowercase()));
        let place =
            if role["metadata"]["namespace"].is_null() { test.everywhere(&kind) } else { test.within(&kind) };
        test.make(&place, role).await?;
    }
    Ok(())
}

/// The roles that `metahook rbac` prints for a controller; the server is the account `limited`.
pub(super) async fn roles(test: &mut Fixture, controller: &Value) -> Result<Vec<Value>> {
    let file = test.plane().scratch().join(format!("{}.json", test.name()));
    fs::write(&file, controller.to_string())?;
    printed(test, &[&file.display().to_string()]).await
}

/// The same of a controller that the cluster has, by its name.
pub(super) async fn roles_of_the_cluster(test: &mut Fixture, controller: &str) -> Result<Vec<Value>> {
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    printed(test, &["--controller", controller, "--kubeconfig", &kubeconfig]).await
}

async fn printed(test: &mut Fixture, which: &[&str]) -> Result<Vec<Value>> {
    let namespace = format!("--server-namespace={}", test.name());
    let args = [&["rbac", "--output=json", &namespace, "--server-account=limited"], which].concat();
    let (printed, _) = test.server().run(&args).await?;
    let list: Value = serde_json::from_str(&printed)?;
    Ok(list["items"].as_array().context("no list")?.clone())
}

/// Grants the server the rights that every server needs, whatever it hosts.
pub(super) async fn grant_the_server_its_own(test: &mut Fixture) -> Result<()> {
    grant_the_server(test, json!(["*"])).await
}

/// Grants the server the rights that every server needs, with these resources of controllers.
pub(super) async fn grant_the_server(test: &mut Fixture, of_controllers: Value) -> Result<()> {
    let name = test.name().to_owned();
    let rules = json!([
        { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": ["metacontroller.k8s.io"], "resources": of_controllers, "verbs": ["get", "list", "watch", "update"] },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"] },
        { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["metahook-seed"], "verbs": ["get"] },
    ]);
    let metadata = json!({ "name": name });
    let subject = json!({ "kind": "ServiceAccount", "namespace": name, "name": "limited" });
    let own = [
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": name },
            "subjects": [subject],
        }),
    ];
    grant(test, &own, "").await
}

/// The controller's name: with a finalize hook a longer one is refused.
pub(super) fn short(test: &Fixture) -> String {
    let unique: Vec<_> = test.name().rsplit('-').take(2).collect();
    format!("acts-{}", unique.join("-"))
}

pub(super) async fn until_controller(
    test: &Fixture,
    what: &str,
    is: impl Fn(&Value) -> bool,
) -> Result<Value> {
    test.controllers().until(&short(test), what, is).await
}

/// A server and an account that may nothing but what is granted, and a controller that is to be that account.
pub(super) async fn nothing_granted(
    test: &mut Fixture,
    hooks: impl FnOnce(Composite) -> Composite,
) -> Result<Vec<Value>> {
    let controller = hooks(test.controller().renamed(&short(test)).making(&CONFIG_MAP, "InPlace")).json();
    let place = test.controllers();
    nothing_granted_to(test, controller, &place).await
}

pub(super) async fn nothing_granted_to(
    test: &mut Fixture,
    mut controller: Value,
    place: &Objects,
) -> Result<Vec<Value>> {
    for name in ["limited", "greeter"] {
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
        test.make(&test.within(&SERVICE_ACCOUNT), account).await?;
    }
    grant_the_server_its_own(test).await?;
    reach_as(test, "limited").await?;
    test.define_kind().await?;
    controller["spec"]["serviceAccountRef"] = json!({ "namespace": test.name(), "name": "greeter" });
    let roles = roles(test, &controller).await?;
    grant(test, &roles, "-reads").await?;
    test.serve()?;
    test.make(place, controller).await?;
    Ok(roles)
}

pub(super) fn may_read_secrets() -> Value {
    json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"] })
}

/// The role and the binding by which the account writes, with another end of their names and these rules.
pub(super) fn instead_of_writes(roles: &[Value], ends: &str, allowed: &Value) -> Vec<Value> {
    let writes = roles.iter().filter(|role| text(role, "/metadata/name").ends_with("-writes"));
    let renamed = writes.cloned().map(|mut role| {
        let name = format!("{}-{ends}", text(&role, "/metadata/name"));
        role["metadata"]["name"] = json!(name);
        if role["rules"].is_array() {
            role["rules"] = allowed.clone();
        } else {
            role["roleRef"]["name"] = json!(name);
        }
        role
    });
    renamed.collect()
}
