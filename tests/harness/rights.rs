//! Least rights of a test's server: those of the manifests, and for each controller those that `metahook rbac` prints.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::api::{Kind, Objects, SERVICE_ACCOUNT};
use crate::control_plane::ControlPlane;
use crate::fixture::Fixture;
use crate::objects::text;
use crate::wait::{PATIENCE, until};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The server's account, in the namespace of its test.
const ACCOUNT: &str = "metacontroller";

/// Text that the server logs where the API server refuses a right, and nowhere else.
const REFUSED: &str = "grant it: `metahook rbac";

/// A kubeconfig for a `ServiceAccount`.
pub async fn kubeconfig_of(plane: &ControlPlane, namespace: &str, account: &str) -> Result<PathBuf> {
    let token = plane.kubectl().run(&["create", "token", account, "-n", namespace]).await?;
    let admin = fs::read_to_string(plane.kubeconfig())?;
    let (before, rest) = admin.split_once("token: ").context("a kubeconfig without a token")?;
    let (_, after) = rest.split_once('}').context("a kubeconfig without an end of its token")?;
    let file = plane.scratch().join(format!("{namespace}-{account}-kubeconfig"));
    fs::write(&file, format!("{before}token: {token}}}{after}"))?;
    Ok(file)
}

/// An account with the rights that the manifests give every server.
pub(crate) async fn account(test: &mut Fixture) -> Result<PathBuf> {
    let name = test.name().to_owned();
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT } });
    test.make(&test.within(&SERVICE_ACCOUNT), account).await?;
    let kind = |kind: &str| Kind::new(RBAC, "v1", kind, &format!("{}s", kind.to_lowercase()));
    // It lives in the test's namespace, so that it finds nothing there that other servers left for their like.
    let own = test.within_other(&kind("Role"), "metacontroller").get("metacontroller-seed").await?;
    let role = json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": { "name": name }, "rules": own["rules"] });
    test.keep(&test.within(&kind("Role")), role).await?;
    let (roles, bindings) = (test.within(&kind("RoleBinding")), test.everywhere(&kind("ClusterRoleBinding")));
    for (place, binds, role) in [(roles, "Role", &*name), (bindings, "ClusterRole", "metacontroller-server")]
    {
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": format!("{binds}Binding"), "metadata": { "name": name },
            "roleRef": { "apiGroup": RBAC, "kind": binds, "name": role },
            "subjects": [{ "kind": "ServiceAccount", "namespace": name, "name": ACCOUNT }],
        });
        test.keep(&place, binding).await?;
    }
    let events = json!({ "verb": "create", "resource": "events", "namespace": name });
    until_allowed(test, &events, true).await?;
    let file = kubeconfig_of(test.plane(), &name, ACCOUNT).await?;
    let config = fs::read_to_string(&file)?;
    ensure!(config.contains("user: admin}"), "the kubeconfig has another context");
    fs::write(&file, config.replace("user: admin}", &format!("user: admin, namespace: {name}}}")))?;
    Ok(file)
}

/// Grants what a controller needs, as a user does before creating it.
pub(crate) async fn grant(test: &mut Fixture, controller: &Value) -> Result<()> {
    let name = text(controller, "/metadata/name");
    let file = test.plane().scratch().join(format!("{}-{name}-controller.json", test.name()));
    fs::write(&file, controller.to_string())?;
    let roles = printed(test, &file).await?;
    for role in &roles {
        let (name, kind) = (text(role, "/metadata/name"), text(role, "/kind"));
        let kind = Kind::new(RBAC, "v1", kind, &format!("{}s", kind.to_lowercase()));
        let place = match role["metadata"]["namespace"].as_str() {
            None => test.everywhere(&kind),
            Some(namespace) => test.within_other(&kind, namespace),
        };
        if place.find(name).await?.is_some() {
            place.merge(name, role).await?;
        } else {
            test.keep(&place, role.clone()).await?;
        }
    }
    // The bindings are the last to come.
    for role in &roles {
        for rule in role["rules"].as_array().into_iter().flatten() {
            let resource = text(rule, "/resources/0");
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let asked = json!({
                "verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": resource, "subresource": subresource,
                "namespace": role["metadata"]["namespace"], "name": rule["resourceNames"][0],
            });
            until_allowed(test, &asked, true).await?;
        }
    }
    Ok(())
}

async fn printed(test: &mut Fixture, file: &Path) -> Result<Vec<Value>> {
    let (file, namespace) = (file.display().to_string(), format!("--server-namespace={}", test.name()));
    let (printed, _) = test.server().run(&["rbac", "--output=json", &file, &namespace]).await?;
    let list: Value = serde_json::from_str(&printed)?;
    Ok(list["items"].as_array().context("no list")?.clone())
}

/// Waits until the API server knows whether the server may do this.
pub async fn until_allowed(test: &Fixture, asked: &Value, allowed: bool) -> Result<()> {
    let kind = Kind::new("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews");
    let place: Objects = test.everywhere(&kind);
    let user = format!("system:serviceaccount:{}:{ACCOUNT}", test.name());
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": { "user": user, "resourceAttributes": asked },
    });
    until("a right that was granted or taken away", PATIENCE, async || {
        let reviewed = place.create(review.clone()).await?;
        if reviewed["status"]["allowed"].as_bool().unwrap_or_default() == allowed {
            Ok(Ok(()))
        } else {
            Ok(Err(reviewed.to_string()))
        }
    })
    .await
}

/// An error where the API server refused the server a right.
pub(crate) fn nothing_was_refused(log: &Path) -> Result<()> {
    let log = fs::read_to_string(log).unwrap_or_default();
    let refused = log.lines().find(|line| line.contains(REFUSED));
    ensure!(refused.is_none(), "the server lacks a right that it needs: {}", refused.unwrap_or_default());
    Ok(())
}
