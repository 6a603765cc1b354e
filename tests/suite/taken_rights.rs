//! Rights that an account had and that are taken away: what it may no longer read is shown to no hook.
//!
//! The server asks every few minutes. What these tests see comes sooner, as the API server refuses something: a write, or a watch that
//! is taken up again.

use acceptance::api::{CONFIG_MAP, Kind, SECRET, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, condition, config_map, has_condition, is_true, text};
use acceptance::proxy::Proxy;
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::mounts;
use crate::wasm;

const RBAC: &str = "rbac.authorization.k8s.io";

/// A right to read that the account of the controller of the same name loses.
struct Row {
    name: &'static str,
    resource: &'static str,
    /// The object; empty where it is all of them in the namespace.
    object: &'static str,
    /// Condition and reason; without them an Event on the parent says it.
    says: Option<(&'static str, &'static str)>,
}

const ROWS: [Row; 5] = [
    Row {
        name: "children",
        resource: "configmaps",
        object: "",
        says: Some(("RightsGranted", "RightsMissing")),
    },
    Row {
        name: "mount",
        resource: "secrets",
        object: "greeting",
        says: Some(("ModulesLoaded", "MountUnreadable")),
    },
    Row {
        name: "module",
        resource: "configmaps",
        object: "only",
        says: Some(("ModulesLoaded", "ConfigMapUnreadable")),
    },
    Row {
        name: "credentials",
        resource: "secrets",
        object: "token",
        says: Some(("ModulesLoaded", "TrustUnreadable")),
    },
    Row { name: "related", resource: "secrets", object: "", says: None },
];

impl Row {
    fn controller(&self, test: &Fixture) -> String {
        format!("{}-{}", test.name(), self.name)
    }

    /// How the API server refuses it.
    fn refusal(&self, test: &Fixture) -> String {
        let (namespace, name, resource) = (test.name(), self.name, self.resource);
        format!("User \"system:serviceaccount:{namespace}:{name}\" cannot list resource \"{resource}\"")
    }

    /// The account, with the right to work on parents and the one that is taken away, which has a role of its own.
    async fn grant(&self, test: &mut Fixture) -> Result<()> {
        let account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": self.name } });
        test.make(&test.within(&SERVICE_ACCOUNT), account).await?;
        let (group, plural) = (test.kind().group.clone(), test.kind().plural.clone());
        let status = format!("{plural}/status");
        let work = json!({ "apiGroups": [group], "resources": [plural, status], "verbs": ["*"] });
        let mut reads = json!({ "apiGroups": [""], "resources": [self.resource], "verbs": ["*"] });
        if !self.object.is_empty() {
            reads["resourceNames"] = json!([self.object]);
        }
        self.bind(test, "reads", &json!([reads]), false).await?;
        // So that the right that is missing everywhere is the one that was taken away.
        self.bind(test, "work", &json!([work]), true).await?;
        self.until_may(test, true).await
    }

    /// Gives the account a role of its own, in the namespace or in all of them.
    async fn bind(&self, test: &mut Fixture, what: &str, rules: &Value, everywhere: bool) -> Result<()> {
        let name =
            format!("{}-{what}", if everywhere { self.controller(test) } else { self.name.to_owned() });
        let kinds = if everywhere { ["ClusterRole", "ClusterRoleBinding"] } else { ["Role", "RoleBinding"] };
        let subject = json!({ "kind": "ServiceAccount", "namespace": test.name(), "name": self.name });
        let binds = json!({ "apiGroup": RBAC, "kind": kinds[0], "name": name });
        for kind in kinds {
            let mut object = json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": { "name": name },
            });
            if kind == kinds[0] {
                object["rules"] = rules.clone();
            } else {
                object["roleRef"] = binds.clone();
                object["subjects"] = json!([subject]);
            }
            let kind = rbac(kind);
            let place = if everywhere { test.everywhere(&kind) } else { test.within(&kind) };
            test.make(&place, object).await?;
        }
        Ok(())
    }

    async fn take_away(&self, test: &Fixture) -> Result<()> {
        test.within(&rbac("RoleBinding")).delete(&format!("{}-reads", self.name)).await?;
        self.until_may(test, false).await
    }

    /// Waits until the API server knows whether the account may read it.
    async fn until_may(&self, test: &Fixture, may: bool) -> Result<()> {
        let kind = Kind::new("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews");
        let place = test.everywhere(&kind);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:{}:{}", test.name(), self.name),
                "resourceAttributes": {
                    "verb": "list", "resource": self.resource, "namespace": test.name(), "name": self.object,
                },
            },
        });
        until("the API server knows of a right", PATIENCE, async || {
            let reviewed = place.create(review.clone()).await?;
            let is = reviewed["status"]["allowed"] == may;
            Ok(if is { Ok(()) } else { Err(reviewed.to_string()) })
        })
        .await
    }

    /// Makes a parent of this controller alone.
    async fn parent(&self, test: &mut Fixture, nth: &str) -> Result<String> {
        let name = format!("{}-{nth}", self.name);
        test.create(test.parent(&name).labelled("row", self.name)).await?;
        Ok(name)
    }
}

fn rbac(kind: &str) -> Kind {
    Kind::new(RBAC, "v1", kind, &format!("{}s", kind.to_lowercase()))
}

/// Makes the objects that each row reads, and the controllers.
async fn host(test: &mut Fixture, webhook: &Webhook) -> Result<()> {
    let secrets = test.within(&SECRET);
    for (name, key, value) in
        [("greeting", "who", "you"), ("token", "token", "sesame"), ("password", "is", "x")]
    {
        let data = json!({ key: ByteString(value.as_bytes().to_vec()) });
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": data });
        test.make(&secrets, secret).await?;
    }
    let answer = json!({ "children": [], "status": { "said": "WHO", "again": "WHO" } });
    test.store("reader", &mounts::answers_with_file(&answer)?).await?;
    test.store("only", &wasm::answers(&json!({ "children": [], "status": { "said": "so" } }))?).await?;
    let of = |path: &str| Hook::webhook(&webhook.url(path));
    let token = json!({ "namespace": test.name(), "name": "token", "key": "token" });
    for row in &ROWS {
        row.grant(test).await?;
        let account = json!({ "namespace": test.name(), "name": row.name });
        let controller = test.controller().renamed(&row.controller(test)).of_parents_with("row", row.name);
        let controller = controller.with("serviceAccountRef", account);
        let controller: Composite = match row.name {
            "children" => controller.making(&CONFIG_MAP, "InPlace").synced_by(of("/children")),
            "mount" => {
                let reader = json!([{
                    "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["reader"], "verbs": ["*"],
                }]);
                row.bind(test, "module", &reader, false).await?;
                controller.synced_by(test.hook("reader").mounting(
                    "/etc/greeting",
                    "secret",
                    test.name(),
                    "greeting",
                ))
            }
            "module" => controller.synced_by(test.hook("only")),
            "credentials" => {
                let sends = of("/credentials")
                    .with("authorization", json!({ "type": "Bearer", "secretRef": token.clone() }));
                controller.synced_by(sends)
            }
            _ => controller.synced_by(of("/related")).customized_by(of("/customize")),
        };
        test.make(&test.controllers(), controller.json()).await?;
    }
    Ok(())
}

async fn webhook(namespace: String) -> Result<Webhook> {
    Webhook::serve(move |asked| match asked.path.as_str() {
        "/customize" => json!({ "relatedResources": [
            { "apiVersion": "v1", "resource": "secrets", "namespace": namespace, "names": ["password"] },
        ] })
        .into(),
        "/children" => {
            let child = config_map(text(&asked.body, "/parent/metadata/name"), json!({}), json!({}));
            json!({ "children": [child], "status": { "said": "so" } }).into()
        }
        _ => json!({ "children": [], "status": { "said": "so" } }).into(),
    })
    .await
}

pub(crate) async fn what_an_account_may_no_longer_read_is_shown_no_longer(test: &mut Fixture) -> Result<()> {
    let webhook = webhook(test.name().to_owned()).await?;
    let proxy = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
    test.server().reach_by(proxy.kubeconfig());
    test.define_kind().await?;
    host(test, &webhook).await?;
    test.serve()?;
    for row in &ROWS {
        test.controllers().until(&row.controller(test), "ready", |cc| is_true(cc, "Ready")).await?;
        let parent = row.parent(test, "before").await?;
        test.parents().until(&parent, "its status", |parent| !parent["status"]["said"].is_null()).await?;
    }
    let authorized =
        |asked: &Asked| asked.headers.get("authorization").is_some_and(|it| *it == "Bearer sesame");
    ensure!(webhook.asked().iter().any(authorized), "no credentials were sent");

    for row in &ROWS {
        row.take_away(test).await?;
    }
    // Watches that are open go on whatever becomes of the rights.
    proxy.cut();
    // A write that is refused has the controller ask what it may read.
    ROWS[0].parent(test, "refused").await?;
    for row in &ROWS {
        let refusal = row.refusal(test);
        if let Some((kind, reason)) = row.says {
            let told = |cc: &Value| {
                has_condition(cc, kind, "False", reason)
                    && condition(cc, kind).is_some_and(|it| text(it, "/message").contains(&refusal))
            };
            test.controllers().until(&row.controller(test), reason, told).await?;
        }
        let parent = row.parent(test, "after").await?;
        if row.says.is_none() {
            test.until_event(&parent, "SyncError", |event| text(event, "/message").contains(&refusal))
                .await?;
        }
    }
    let stopped = |cc: &Value| has_condition(cc, "Ready", "False", "NotListed");
    test.controllers().until(&ROWS[0].controller(test), "stopped", stopped).await?;
    for row in &ROWS {
        let parent = test.parents().get(&format!("{}-after", row.name)).await?;
        ensure!(parent["status"].is_null(), "the hook of {} was called: {parent}", row.name);
    }
    let after = |asked: &Asked| {
        asked.path != "/customize" && text(&asked.body, "/parent/metadata/name").ends_with("-after")
    };
    ensure!(!webhook.asked().iter().any(after), "a hook was shown {:?}", webhook.asked());
    Ok(())
}
