//! A controller with a ServiceAccount of its own can do what that one may, and nothing else.

use std::fs;

use acceptance::api::{CONFIG_MAP, EVENT, Kind, NAMESPACE, Objects, SECRET, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::objects::{
    Composite, Hook, condition, config_map, has_condition, is_true, text, uid, version,
};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::mounts::reach_as;
use crate::wasm;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Makes the roles whose names end so.
async fn grant(test: &mut Fixture, roles: &[Value], ends: &str) -> Result<()> {
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
async fn roles(test: &mut Fixture, controller: &Value) -> Result<Vec<Value>> {
    let file = test.plane().scratch().join(format!("{}.json", test.name()));
    fs::write(&file, controller.to_string())?;
    let (file, namespace) = (file.display().to_string(), format!("--server-namespace={}", test.name()));
    let args = ["rbac", "--output=json", &file, &namespace, "--server-account=limited"];
    let (printed, _) = test.server().run(&args).await?;
    let list: Value = serde_json::from_str(&printed)?;
    Ok(list["items"].as_array().context("no list")?.clone())
}

/// Grants the server the rights that every server needs, whatever it hosts.
async fn grant_the_server_its_own(test: &mut Fixture) -> Result<()> {
    grant_the_server(test, json!(["*"])).await
}

/// Grants the server the rights that every server needs, with these resources of controllers.
async fn grant_the_server(test: &mut Fixture, of_controllers: Value) -> Result<()> {
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
fn short(test: &Fixture) -> String {
    let unique: Vec<_> = test.name().rsplit('-').take(2).collect();
    format!("acts-{}", unique.join("-"))
}

async fn until_controller(test: &Fixture, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
    test.controllers().until(&short(test), what, is).await
}

/// A server and an account that may nothing but what is granted, and a controller that is to be that account.
async fn nothing_granted(
    test: &mut Fixture,
    hooks: impl FnOnce(Composite) -> Composite,
) -> Result<Vec<Value>> {
    let controller = hooks(test.controller().renamed(&short(test)).making(&CONFIG_MAP, "InPlace")).json();
    let place = test.controllers();
    nothing_granted_to(test, controller, &place).await
}

async fn nothing_granted_to(
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

pub(crate) async fn a_controller_does_what_the_printed_roles_of_its_account_allow(
    test: &mut Fixture,
) -> Result<()> {
    let child = |number: &str| config_map("child", json!({}), json!({ "number": number }));
    let answer = |number: &str| json!({ "status": { "number": number }, "children": [child(number)] });
    test.store("hook", &wasm::answers(&answer("1"))?).await?;
    let hook = test.hook("hook");
    let roles = nothing_granted(test, |controller| controller.synced_by(hook)).await?;
    let says = |what: String| {
        move |cc: &Value| {
            condition(cc, "Ready")
                .is_some_and(|ready| ready["status"] == "False" && text(ready, "/message").contains(&what))
        }
    };
    let account = format!("system:serviceaccount:{}:greeter", test.name());
    // Without serviceAccountRef the server impersonates no account.
    until_controller(test, "no right to act", says("cannot impersonate".to_owned())).await?;
    grant(test, &roles, "-acts").await?;
    // The module is a ConfigMap, as the children are: the account may read it.
    grant(test, &roles, "-hooks").await?;
    until_controller(test, "ready", |cc| is_true(cc, "Ready")).await?;
    until_controller(test, "no right to write, said before there is a parent", lacks(&account)).await?;

    test.create(test.parent("a")).await?;
    let forbidden = format!("User \"{account}\" cannot create resource \"configmaps\"");
    test.until_event("a", "SyncError", |event| text(event, "/message").contains(&forbidden)).await?;
    ensure!(test.config_maps().find("child").await?.is_none(), "the child was made all the same");
    grant(test, &roles, "-writes").await?;
    test.config_maps().until("child", "made", |child| child["data"]["number"] == "1").await?;
    until_controller(test, "all granted", |cc| is_true(cc, "RightsGranted")).await?;
    test.parents().until("a", "its status", |parent| parent["status"]["number"] == "1").await?;

    test.store("hook", &wasm::answers(&answer("2"))?).await?;
    test.config_maps().until("child", "updated", |child| child["data"]["number"] == "2").await?;
    test.store("hook", &wasm::answers(&json!({ "children": [] }))?).await?;
    test.config_maps().until_gone("child").await?;
    until_controller(test, "no parent failing", |cc| cc["status"]["failing"] == 0).await?;
    Ok(())
}

/// Roles that were written for Metacontroller do not name the status of controllers.
pub(crate) async fn controllers_work_where_their_status_may_not_be_written(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked| {
        let child = config_map(text(&asked.body, "/parent/metadata/name"), json!({}), json!({}));
        json!({ "children": [child], "status": { "n": 1 } }).into()
    })
    .await?;
    let limited = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "limited" } });
    test.make(&test.within(&SERVICE_ACCOUNT), limited).await?;
    grant_the_server(test, json!(["compositecontrollers", "decoratorcontrollers", "controllerrevisions"]))
        .await?;
    reach_as(test, "limited").await?;
    test.define_kind().await?;
    let controller = test.controller().renamed(&short(test)).making(&CONFIG_MAP, "InPlace");
    let controller = controller.synced_by(Hook::webhook(&webhook.url("/sync"))).json();
    let roles = roles(test, &controller).await?;
    grant(test, &roles, "-reads").await?;
    grant(test, &roles, "-writes").await?;
    test.serve()?;
    let made = test.make(&test.controllers(), controller).await?;
    let event = test.until_event_on(&made, "StatusForbidden", |_| true).await?;
    ensure!(text(&event, "/message").contains("compositecontrollers/status"), "{event}");
    // Each changes the counts that the status would have.
    for name in ["ada", "grace", "barbara"] {
        test.create(test.parent(name)).await?;
        test.config_maps().until(name, "made", |_| true).await?;
        test.parents().until(name, "its status", |parent| parent["status"]["n"] == 1).await?;
    }
    let events = test.within_other(&EVENT, "default");
    let fields = format!("involvedObject.uid={},reason=StatusForbidden", uid(&made));
    let told = events.list_where(&fields).await?;
    ensure!(told.len() == 1 && told[0]["count"] == 1, "it is told more than once: {told:?}");
    ensure!(test.controllers().get(&short(test)).await?["status"].is_null(), "the status was written");
    Ok(())
}

/// The condition that names the first right to write that is missing, and what to do.
fn lacks(account: &str) -> impl Fn(&Value) -> bool {
    let says = format!("User \"{account}\" cannot update resource \"greetings/status\" in API group");
    move |cc| {
        has_condition(cc, "RightsGranted", "False", "RightsMissing")
            && condition(cc, "RightsGranted").is_some_and(|it| {
                text(it, "/message").starts_with(&says) && text(it, "/message").contains("metahook rbac")
            })
    }
}

pub(crate) async fn rights_that_the_server_lacks_are_named_before_there_is_a_parent(
    test: &mut Fixture,
) -> Result<()> {
    let webhook =
        Webhook::answering(json!({ "children": [config_map("child", json!({}), json!({}))] })).await?;
    let limited = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "limited" } });
    test.make(&test.within(&SERVICE_ACCOUNT), limited).await?;
    grant_the_server_its_own(test).await?;
    reach_as(test, "limited").await?;
    test.define_kind().await?;
    let controller = test.controller().renamed(&short(test)).making(&CONFIG_MAP, "InPlace");
    let controller = controller.synced_by(Hook::webhook(&webhook.url("/sync"))).json();
    let roles = roles(test, &controller).await?;
    grant(test, &roles, "-reads").await?;
    test.serve()?;
    test.make(&test.controllers(), controller).await?;
    let account = format!("system:serviceaccount:{}:limited", test.name());
    let told = until_controller(test, "what is missing", lacks(&account)).await?;
    ensure!(is_true(&told, "Ready"), "it does not run: {}", told["status"]);
    let event = test.until_event_on(&told, "RightsMissing", |_| true).await?;
    ensure!(text(&event, "/message").contains(&account), "{event}");
    grant(test, &roles, "-writes").await?;
    until_controller(test, "all granted", |cc| is_true(cc, "RightsGranted")).await?;
    test.create(test.parent("a")).await?;
    test.config_maps().until("child", "made", |_| true).await?;
    Ok(())
}

/// The control plane guards owner references, and the refusals of that guard name no right.
pub(crate) async fn c29_the_right_that_a_guard_of_owners_asks_for_is_named(test: &mut Fixture) -> Result<()> {
    let webhook =
        Webhook::answering(json!({ "children": [config_map("child", json!({}), json!({}))] })).await?;
    let roles = nothing_granted(test, |cc| cc.synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
    grant(test, &roles, "-acts").await?;
    let whole = roles
        .iter()
        .find(|role| role["kind"] == "ClusterRole" && text(role, "/metadata/name").ends_with("-writes"));
    let whole = whole.context("no role that writes")?.clone();
    let mut without = roles.clone();
    for role in &mut without {
        if let Some(rules) = role["rules"].as_array_mut() {
            rules.retain(|rule| !text(rule, "/resources/0").ends_with("/finalizers"));
        }
    }
    grant(test, &without, "-writes").await?;
    let account = format!("system:serviceaccount:{}:greeter", test.name());
    let group = test.kind().group.clone();
    let forbidden = format!(
        "User \"{account}\" cannot update resource \"greetings/finalizers\" in API group \"{group}\""
    );
    let says = |message: &str| message.contains(&forbidden) && message.contains("metahook rbac");
    let lacks = |cc: &Value| {
        has_condition(cc, "RightsGranted", "False", "RightsMissing")
            && condition(cc, "RightsGranted").is_some_and(|it| says(text(it, "/message")))
    };
    until_controller(test, "the right named, before there is a parent", lacks).await?;
    test.create(test.parent("a")).await?;
    test.until_event("a", "SyncError", |event| says(text(event, "/message"))).await?;

    let name = text(&whole, "/metadata/name");
    test.everywhere(&Kind::new(RBAC, "v1", "ClusterRole", "clusterroles")).merge(name, &whole).await?;
    test.config_maps().until("child", "made", |_| true).await?;
    until_controller(test, "all granted", |cc| is_true(cc, "RightsGranted")).await?;
    Ok(())
}

/// A hook that asks for one child with a number.
fn answers_number(number: &str) -> Result<Vec<u8>> {
    let child = config_map("child", json!({}), json!({ "number": number }));
    wasm::answers(&json!({ "status": {}, "children": [child] }))
}

fn has_number(number: &'static str) -> impl Fn(&Value) -> bool {
    move |child| child["data"]["number"] == number
}

/// Hosts a controller without an account whose hook, stored under this name, made a child with the number 1; makes the account
/// `greeter`. Returns the controller's name.
async fn numbered_by(test: &mut Fixture, hook: &str) -> Result<String> {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "greeter" } });
    test.make(&test.within(&SERVICE_ACCOUNT), account).await?;
    test.define_kind().await?;
    test.store(hook, &answers_number("1")?).await?;
    test.serve()?;
    let name = short(test);
    let controller = test.controller().renamed(&name).making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(test.hook(hook))).await?;
    test.create(test.parent("a")).await?;
    test.config_maps().until("child", "made", has_number("1")).await?;
    Ok(name)
}

/// The account is named before it may do anything: until then all stays as it was.
pub(crate) async fn a_controller_goes_on_until_its_new_account_may_start_it(
    test: &mut Fixture,
) -> Result<()> {
    let name = numbered_by(test, "first").await?;
    test.store("second", &answers_number("3")?).await?;

    let place = json!({ "namespace": test.name(), "name": "greeter" });
    let hook = json!({ "sync": { "wasm": { "configMap": { "namespace": test.name(), "name": "second" } } } });
    let spec = json!({ "spec": { "serviceAccountRef": place, "hooks": hook } });
    let changed = test.controllers().merge(&name, &spec).await?;
    let refused =
        format!("User \"system:serviceaccount:{}:greeter\" cannot get resource \"configmaps\"", test.name());
    let says = |event: &Value| text(event, "/message").contains(&refused);
    test.until_event_on(&changed, "RightsMissing", says).await?;
    test.store("first", &answers_number("2")?).await?;
    test.config_maps().until("child", "updated as before", has_number("2")).await?;

    let roles = roles(test, &changed).await?;
    for ends in ["-reads", "-writes", "-hooks"] {
        grant(test, &roles, ends).await?;
    }
    test.config_maps().until("child", "updated by the new account", has_number("3")).await?;
    until_controller(test, "its new spec", |cc| {
        is_true(cc, "Ready") && cc["status"]["observedGeneration"] == cc["metadata"]["generation"]
    })
    .await?;
    Ok(())
}

/// Resumed as another account, a controller stays paused until that one may start it; its first reconcile is the account's.
pub(crate) async fn a_controller_that_is_resumed_as_another_account_is_that_account_at_once(
    test: &mut Fixture,
) -> Result<()> {
    let name = numbered_by(test, "hook").await?;
    let controllers = test.controllers();
    controllers.merge(&name, &json!({ "spec": { "paused": true } })).await?;
    let paused = |cc: &Value| has_condition(cc, "Paused", "True", "ControllerPaused");
    until_controller(test, "paused", paused).await?;
    test.store("hook", &answers_number("2")?).await?;

    let place = json!({ "namespace": test.name(), "name": "greeter" });
    let resumed = json!({ "spec": { "paused": null, "serviceAccountRef": place } });
    let changed = controllers.merge(&name, &resumed).await?;
    test.until_event_on(&changed, "RightsMissing", |_| true).await?;
    // Another change while it waits: it is resumed all the same.
    let changed = controllers.merge(&name, &json!({ "spec": { "resyncPeriodSeconds": 600 } })).await?;
    ensure!(paused(&controllers.get(&name).await?), "it is not paused any more");
    ensure!(test.config_maps().get("child").await?["data"]["number"] == "1", "a child was written");

    let roles = roles(test, &changed).await?;
    for ends in ["-reads", "-hooks"] {
        grant(test, &roles, ends).await?;
    }
    test.until_event_on(&changed, "Resumed", |_| true).await?;
    let refused = format!("User \"system:serviceaccount:{}:greeter\" cannot update", test.name());
    test.until_event("a", "SyncError", |event| text(event, "/message").contains(&refused)).await?;
    ensure!(test.config_maps().get("child").await?["data"]["number"] == "1", "another account wrote");
    grant(test, &roles, "-writes").await?;
    test.config_maps().until("child", "updated by the account", has_number("2")).await.map(drop)
}

/// The finalizer is put on and taken off with the account's rights, and so is the rest when a webhook decides.
pub(crate) async fn a_webhook_decides_within_the_rights_of_its_controllers_account(
    test: &mut Fixture,
) -> Result<()> {
    let hook = Webhook::serve(|asked| {
        let finalized = asked.path == "/finalize";
        json!({ "status": { "said": "so" }, "finalized": finalized }).into()
    })
    .await?;
    let at = |path: &str| Hook::webhook(&hook.url(path));
    let hooks = |controller: Composite| controller.synced_by(at("/sync")).finalized_by(at("/finalize"));
    let roles = nothing_granted(test, hooks).await?;
    test.create(test.parent("a")).await?;
    let acts = |cc: &Value| {
        has_condition(cc, "RightsGranted", "False", "RightsMissing")
            && condition(cc, "RightsGranted")
                .is_some_and(|it| text(it, "/message").contains("cannot impersonate"))
    };
    until_controller(test, "no right to act", acts).await?;
    grant(test, &roles, "-acts").await?;
    grant(test, &roles, "-writes").await?;
    test.parents().until("a", "its status", |parent| parent["status"]["said"] == "so").await?;
    test.parents().delete("a").await?;
    test.parents().until_gone("a").await?;
    hook.until_asked("to finalize", |asked| asked.path == "/finalize").await?;
    Ok(())
}

/// A decorator writes the object, its status and its finalizer as it writes attachments: by what its account may.
pub(crate) async fn a_decorator_writes_within_the_rights_of_its_account(test: &mut Fixture) -> Result<()> {
    let hook = Webhook::serve(|asked| {
        let child = config_map("child", json!({}), json!({}));
        let finalized = asked.path == "/finalize";
        let attachments = if finalized { json!([]) } else { json!([child]) };
        let status = json!({ "said": "so" });
        json!({ "labels": { "n": "1" }, "status": status, "attachments": attachments, "finalized": finalized })
            .into()
    })
    .await?;
    let at = |path: &str| Hook::webhook(&hook.url(path));
    let controller = test.decorator().renamed(&short(test)).attaching(&CONFIG_MAP, "InPlace");
    let controller = controller.decorating(test.kind(), json!({}));
    let controller = controller.synced_by(at("/sync")).finalized_by(at("/finalize"));
    let place = test.decorators();
    let roles = nothing_granted_to(test, controller.json(), &place).await?;
    grant(test, &roles, "-acts").await?;
    test.create(test.parent("a")).await?;
    let account = format!("system:serviceaccount:{}:greeter", test.name());
    let forbidden = |event: &Value| {
        let message = text(event, "/message");
        message.contains(&account) && message.contains("cannot")
    };
    test.until_event("a", "SyncError", forbidden).await?;
    ensure!(hook.count() == 0, "asked before the finalizer was there");
    grant(test, &roles, "-writes").await?;
    test.config_maps().until("child", "attached", |_| true).await?;
    let is = |object: &Value| object["status"]["said"] == "so" && object["metadata"]["labels"]["n"] == "1";
    test.parents().until("a", "decorated", is).await?;
    test.parents().delete("a").await?;
    test.config_maps().until_gone("child").await?;
    test.parents().until_gone("a").await
}

/// The server may read all Secrets, and an account none of them, then those of its own namespace.
pub(crate) async fn a_hook_is_shown_only_what_its_controllers_account_may_read(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(|_| json!({ "attachments": [] }).into()).await?;
    let elsewhere = format!("{}-elsewhere", test.name());
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": elsewhere } });
    test.make(&test.everywhere(&NAMESPACE), namespace).await?;
    for (place, name) in [(test.within(&SECRET), "near"), (test.within_other(&SECRET, &elsewhere), "far")] {
        let metadata = json!({ "name": name, "labels": { "of": test.name() } });
        test.make(&place, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })).await?;
    }
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "greeter" } });
    test.make(&test.within(&SERVICE_ACCOUNT), account).await?;
    test.serve()?;
    let selects = json!({ "matchLabels": { "of": test.name() } });
    let controller =
        test.decorator().renamed(&short(test)).decorating(&SECRET, json!({ "labelSelector": selects }));
    let controller = controller.synced_by(Hook::webhook(&webhook.url("/sync")));
    let place = json!({ "namespace": test.name(), "name": "greeter" });
    let decorators = test.decorators();
    test.make(&decorators, controller.with("serviceAccountRef", place).json()).await?;
    let refused = format!(
        "User \"system:serviceaccount:{}:greeter\" cannot list resource \"secrets\" in API group \"\"",
        test.name()
    );
    let lacks = |dc: &Value| {
        let says = |kind| condition(dc, kind).is_some_and(|it| text(it, "/message").starts_with(&refused));
        has_condition(dc, "RightsGranted", "False", "RightsMissing") && says("RightsGranted") && says("Ready")
    };
    let told = decorators.until(&short(test), "the right that is missing", lacks).await?;
    test.until_event_on(&told, "RightsMissing", |event| text(event, "/message").contains(&refused)).await?;
    ensure!(webhook.count() == 0, "the hook was shown {:?}", webhook.asked());

    let subject = json!({ "kind": "ServiceAccount", "namespace": test.name(), "name": "greeter" });
    let granted = [
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": { "name": "sees" },
            "rules": [may_read_secrets()],
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": { "name": "sees", "namespace": test.name() },
            "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": "sees" }, "subjects": [subject],
        }),
    ];
    for role in granted {
        let kind = text(&role, "/kind").to_owned();
        let kind = Kind::new(RBAC, "v1", &kind, &format!("{}s", kind.to_lowercase()));
        test.make(&test.within(&kind), role).await?;
    }
    decorators.until(&short(test), "ready", |dc| is_true(dc, "Ready")).await?;
    let fields = "involvedObject.name=far,reason=SyncError";
    let says = |event: &Value| {
        let message = text(event, "/message");
        message.contains(&refused) && message.contains(&elsewhere)
    };
    test.within_other(&EVENT, &elsewhere).until_some(fields, "refused", says).await?;
    let shown = webhook.asked();
    let is_near = |asked: &Asked| asked.body["object"]["metadata"]["name"] == "near";
    ensure!(!shown.is_empty() && shown.iter().all(is_near), "the hook was shown {shown:?}");
    Ok(())
}

pub(crate) async fn related_objects_are_those_that_its_controllers_account_may_read(
    test: &mut Fixture,
) -> Result<()> {
    let place = test.name().to_owned();
    let hook = Webhook::serve(move |asked| match asked.path.as_str() {
        "/customize" => json!({ "relatedResources": [
            { "apiVersion": "v1", "resource": "secrets", "namespace": place, "names": ["password"] },
        ] })
        .into(),
        _ => {
            json!({ "status": { "related": asked.body["related"]["Secret.v1"]["password"]["data"] } }).into()
        }
    })
    .await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "password" }, "data": { "is": "eA==" } });
    test.make(&test.within(&SECRET), secret).await?;
    let at = |path: &str| Hook::webhook(&hook.url(path));
    let hooks = |controller: Composite| controller.synced_by(at("/sync")).customized_by(at("/customize"));
    let roles = nothing_granted(test, hooks).await?;
    grant(test, &roles, "-acts").await?;
    grant(test, &roles, "-writes").await?;
    test.create(test.parent("a")).await?;
    let account = format!("system:serviceaccount:{}:greeter", test.name());
    let forbidden = format!("User \"{account}\" cannot list resource \"secrets\"");
    test.until_event("a", "SyncError", |event| text(event, "/message").contains(&forbidden)).await?;
    ensure!(hook.asked().iter().all(|asked| asked.path == "/customize"), "it was synced: {:?}", hook.asked());

    let more = instead_of_writes(&roles, "related", &json!([may_read_secrets()]));
    grant(test, &more, "-related").await?;
    test.parents().until("a", "its status", |parent| parent["status"]["related"]["is"] == "eA==").await?;
    Ok(())
}

fn may_read_secrets() -> Value {
    json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"] })
}

/// The role and the binding by which the account writes, with another end of their names and these rules.
fn instead_of_writes(roles: &[Value], ends: &str, allowed: &Value) -> Vec<Value> {
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

pub(crate) async fn related_objects_are_deleted_with_the_rights_of_the_controllers_account(
    test: &mut Fixture,
) -> Result<()> {
    let place = test.name().to_owned();
    let hook = Webhook::serve(move |asked| {
        if asked.path == "/customize" {
            let rule = json!({ "apiVersion": "v1", "resource": "secrets", "namespace": place, "names": ["password"] });
            return json!({ "relatedResources": [rule] }).into();
        }
        let shown = asked.body["related"]["Secret.v1"].as_object().into_iter().flatten();
        let go = shown.map(|(name, secret)| json!({ "apiVersion": "v1", "kind": "Secret", "namespace": place, "name": name, "uid": uid(secret) }));
        json!({ "status": { "said": "so" }, "deleteRelated": go.collect::<Vec<_>>() }).into()
    })
    .await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "password" } });
    test.make(&test.within(&SECRET), secret).await?;
    let at = |path: &str| Hook::webhook(&hook.url(path));
    let granted = json!([{ "apiVersion": "v1", "resource": "secrets" }]);
    let hooks = |controller: Composite| {
        controller.synced_by(at("/sync")).customized_by(at("/customize")).with("relatedDeletion", granted)
    };
    let roles = nothing_granted(test, hooks).await?;
    grant(test, &roles, "-acts").await?;
    let of_parents = json!([{ "apiGroups": ["*"], "resources": ["greetings", "greetings/status"], "verbs": ["get", "update"] }, may_read_secrets()]);
    grant(test, &instead_of_writes(&roles, "less", &of_parents), "-less").await?;
    test.create(test.parent("a")).await?;
    let account = format!("system:serviceaccount:{}:greeter", test.name());
    let forbidden = format!("User \"{account}\" cannot delete resource \"secrets\"");
    let says = |event: &Value| {
        let message = text(event, "/message");
        message.contains("delete Secret ") && message.contains(&forbidden)
    };
    test.until_event("a", "SyncError", says).await?;
    test.parents().until("a", "its status", |parent| parent["status"]["said"] == "so").await?;
    test.within(&SECRET).get("password").await?;
    grant(test, &roles, "-writes").await?;
    test.within(&SECRET).until_gone("password").await
}

/// The rules by which the account writes, but for the right to update ConfigMaps.
fn all_but_updates(roles: &[Value]) -> Result<Value> {
    let writes = |role: &&Value| {
        text(role, "/metadata/name").ends_with("-writes") && text(role, "/kind") == "ClusterRole"
    };
    let mut allowed = roles.iter().find(writes).context("no role that writes")?["rules"].clone();
    for rule in allowed.as_array_mut().into_iter().flatten() {
        if rule["resources"] == json!(["configmaps"])
            && let Some(verbs) = rule["verbs"].as_array_mut()
        {
            verbs.retain(|verb| verb != "update");
        }
    }
    Ok(allowed)
}

/// A dry run of an update decides whether a child has to be made anew; it needs the right to update. Without an answer,
/// what differs in a child came later only if the answer to its making was seen.
pub(crate) async fn a_child_that_may_not_be_updated_is_made_anew_only_where_it_is_known_to_have_changed(
    test: &mut Fixture,
) -> Result<()> {
    let child = config_map("child", json!({}), json!({ "k": "ours" }));
    let webhook = Webhook::answering(json!({ "children": [child] })).await?;
    let controller = test.controller().renamed(&short(test)).making(&CONFIG_MAP, "Recreate");
    let controller = controller.synced_by(Hook::webhook(&webhook.url("/sync"))).resyncing_each_second();
    let place = test.controllers();
    let roles = nothing_granted_to(test, controller.json(), &place).await?;
    grant(test, &roles, "-acts").await?;
    let less = instead_of_writes(&roles, "less", &all_but_updates(&roles)?);
    grant(test, &less, "-less").await?;
    test.create(test.parent("a")).await?;
    let maps = test.config_maps();
    let theirs = json!({ "data": { "k": "theirs" } });
    let is_anew =
        |before: Value| move |child: &Value| uid(child) != uid(&before) && child["data"]["k"] == "ours";
    maps.until("child", "made", |_| true).await?;
    let changed = maps.merge("child", &theirs).await?;
    maps.until("child", "made anew", is_anew(changed)).await?;

    // A server that is new has seen no answer.
    test.server().stop().await?;
    let changed = maps.merge("child", &theirs).await?;
    test.server().start()?;
    let says =
        |event: &Value| text(event, "/message").contains("left as it is") && event["type"] == "Warning";
    test.until_event("a", "DryRunRefused", says).await?;
    test.until_event("a", "DryRunRefused", |event| event["count"].as_u64() > Some(1)).await?;
    let left = maps.get("child").await?;
    ensure!(version(&left) == version(&changed), "the child was written: {left}");

    grant(test, &roles, "-writes").await?;
    maps.until("child", "made anew", is_anew(changed)).await?;
    Ok(())
}
