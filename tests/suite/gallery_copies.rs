//! The guests that copy objects into other namespaces, on the real control plane.

use acceptance::api::{CONFIG_MAP, EVENT, Kind, NAMESPACE, Objects, SECRET, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, condition, config_map, has_condition, text, uid};
use acceptance::wait::{PATIENCE, until};
use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::gallery_scripts::{controller, has_status, parent, script};
use crate::scripts::until_loaded;

const RBAC: &str = "rbac.authorization.k8s.io";

/// A namespace named after the test.
async fn namespace(test: &mut Fixture, end: &str, labels: Value) -> Result<String> {
    let name = format!("{}-{end}", test.name());
    let object =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
    test.make(&test.everywhere(&NAMESPACE), object).await?;
    Ok(name)
}

pub(crate) async fn config_propagation_follows_its_source_and_its_namespaces(
    test: &mut Fixture,
) -> Result<()> {
    let kind = Kind::new("example.com", "v1", "ConfigPropagation", "configpropagations");
    let hook = script(test, "python", "config-propagation", "hook.py").await?;
    test.serve()?;
    let controller = controller(test, &kind).making(&CONFIG_MAP, "InPlace");
    let related = json!([
        { "apiVersion": "v1", "resource": "configmaps" },
        { "apiVersion": "v1", "resource": "namespaces" },
    ]);
    let controller = controller.with("relatedKinds", related).synced_by(hook.clone()).customized_by(hook);
    test.host(controller).await?;
    until_loaded(test, test.name()).await?;
    let own = test.name().to_owned();
    let named = namespace(test, "named", json!({ "shares": "no" })).await?;
    let selected = namespace(test, "selected", json!({ "shares": own })).await?;
    let (copies, sources) = (
        [test.within_other(&CONFIG_MAP, &named), test.within_other(&CONFIG_MAP, &selected)],
        test.config_maps(),
    );
    let source = || config_map("proxy", json!({}), json!({ "url": "one" }));
    test.make(&sources, source()).await?;
    let parents = test.everywhere(&kind);
    let spec = json!({
        "source": { "namespace": own, "name": "proxy" },
        "targets": [named, "nowhere"],
        "targetSelector": { "matchLabels": { "shares": own } },
    });
    test.make(&parents, parent(test, &kind, &own, spec)).await?;
    let has = |url: &'static str| move |map: &Value| map["data"] == json!({ "url": url });
    for maps in &copies {
        maps.until("proxy", "a copy", has("one")).await?;
    }
    let both = json!({ "phase": "Propagated", "copies": 2, "missingNamespaces": ["nowhere"] });
    parents.until(&own, "two copies", has_status(both)).await?;

    // A change is copied, and drift is corrected.
    sources.merge("proxy", &json!({ "data": { "url": "two" } })).await?;
    for maps in &copies {
        maps.until("proxy", "the change", has("two")).await?;
    }
    copies[0].merge("proxy", &json!({ "data": { "url": "three" } })).await?;
    copies[0].until("proxy", "as it was", has("two")).await?;

    // Without their source the copies stay.
    sources.delete("proxy").await?;
    parents.until(&own, "no source", has_status(json!({ "phase": "SourceMissing", "copies": 2 }))).await?;
    for maps in &copies {
        ensure!(maps.find("proxy").await?.is_some_and(|map| has("two")(&map)), "a copy is lost");
    }
    sources.create(source()).await?;
    for maps in &copies {
        maps.until("proxy", "the source again", has("one")).await?;
    }

    // A namespace that is no target any more loses its copy; a label is enough to get one.
    parents.merge(&own, &json!({ "spec": { "targets": [] } })).await?;
    copies[0].until_gone("proxy").await?;
    let label = |value: &str| json!({ "metadata": { "labels": { "shares": value } } });
    let namespaces = test.everywhere(&NAMESPACE);
    namespaces.merge(&named, &label(&own)).await?;
    copies[0].until("proxy", "a copy again", has("one")).await?;
    namespaces.merge(&selected, &label("no")).await?;
    copies[1].until_gone("proxy").await?;
    parents.until(&own, "one copy", has_status(json!({ "copies": 1, "missingNamespaces": [] }))).await?;
    Ok(())
}

/// Its source namespace is that of the test, and its label has the test's name.
pub(crate) async fn global_config_is_in_each_namespace_with_the_label(test: &mut Fixture) -> Result<()> {
    const LABEL: &str = "example.com/global-config";
    let own = test.name().to_owned();
    let hook = script(test, "javascript", "global-config", "hook.js").await?;
    let hook = hook.with_settings(json!({ "source": own }));
    test.serve()?;
    let selected = json!({ "labelSelector": { "matchLabels": { LABEL: own } } });
    let decorator = test.decorator().decorating(&NAMESPACE, selected).attaching(&CONFIG_MAP, "InPlace");
    let decorator = decorator.with("relatedKinds", json!([{ "apiVersion": "v1", "resource": "configmaps" }]));
    let decorator = decorator.synced_by(hook.clone()).customized_by(hook.clone()).finalized_by(hook);
    test.host_decorator(decorator).await?;
    let (a, b) = (
        namespace(test, "a", json!({ LABEL: own })).await?,
        namespace(test, "b", json!({ LABEL: "no" })).await?,
    );
    let copies = [test.within_other(&CONFIG_MAP, &a), test.within_other(&CONFIG_MAP, &b)];
    let (sources, namespaces) = (test.config_maps(), test.everywhere(&NAMESPACE));
    let shared = |name: &str, shared: &str| {
        config_map(name, json!({ "example.com/global": shared }), json!({ "url": "one" }))
    };
    for (name, is) in [("first", "true"), ("second", "true"), ("unshared", "no")] {
        test.make(&sources, shared(name, is)).await?;
    }
    let has = |url: &'static str| move |map: &Value| map["data"] == json!({ "url": url });
    for name in ["first", "second"] {
        copies[0].until(name, "a copy", has("one")).await?;
    }

    // A change is copied, and drift is corrected.
    sources.merge("first", &json!({ "data": { "url": "two" } })).await?;
    copies[0].until("first", "the change", has("two")).await?;
    copies[0].merge("first", &json!({ "data": { "url": "three" } })).await?;
    copies[0].until("first", "as it was", has("two")).await?;

    // A source that is deleted, or loses its label, takes its copies along; one that gets the label is copied.
    let global = |is: &str| json!({ "metadata": { "labels": { "example.com/global": is } } });
    sources.delete("first").await?;
    copies[0].until_gone("first").await?;
    sources.merge("second", &global("no")).await?;
    copies[0].until_gone("second").await?;
    sources.merge("unshared", &global("true")).await?;
    copies[0].until("unshared", "a copy", has("one")).await?;
    ensure!(copies[1].find("unshared").await?.is_none(), "a copy where there is no label");

    // A namespace that gets the label gets the copies, and one that loses it loses them.
    let label = |is: &str| json!({ "metadata": { "labels": { LABEL: is } } });
    namespaces.merge(&b, &label(&own)).await?;
    copies[1].until("unshared", "a copy", has("one")).await?;
    namespaces.merge(&a, &label("no")).await?;
    copies[0].until_gone("unshared").await?;
    let free = |namespace: &Value| namespace["metadata"].get("finalizers").is_none();
    namespaces.until(&a, "without a finalizer", free).await?;
    ensure!(copies[1].find("unshared").await?.is_some(), "a copy in another namespace is lost");

    // The namespace of the sources gets the label: no copy of a source takes its place.
    namespaces.merge(&own, &label(&own)).await?;
    let bound = |namespace: &Value| namespace["metadata"]["finalizers"].is_array();
    namespaces.until(&own, "selected", bound).await?;
    ensure!(sources.find("unshared").await?.is_some_and(|map| has("one")(&map)), "a source is changed");
    namespaces.merge(&own, &label("no")).await?;
    namespaces.until(&own, "without a finalizer", free).await?;
    namespaces.delete(&b).await?;
    until_let_go(&namespaces, &b).await
}

/// Waits until no finalizer of ours holds a namespace. The namespace controller empties it later, after those of all other tests.
async fn until_let_go(namespaces: &Objects, name: &str) -> Result<()> {
    until(&format!("{name}: without a finalizer of the hook's, or gone"), PATIENCE, async || {
        let found = namespaces.find(name).await?;
        let held = found.filter(|namespace| namespace["metadata"].get("finalizers").is_some());
        Ok(held.map_or(Ok(()), |namespace| Err(namespace.to_string())))
    })
    .await
}

/// Values of Secrets, which are in no log.
const VALUES: [&str; 3] = ["sesame-of-a-source", "sesame-of-a-change", "sesame-of-another"];

fn encoded(value: &str) -> Value {
    json!(ByteString(value.into()))
}

fn secret(name: &str, value: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": { "token": encoded(value) } })
}

/// The controller of the guest, for the test's parents.
async fn propagates_secrets(test: &mut Fixture, kind: &Kind) -> Result<Composite> {
    let hook = script(test, "python", "secret-propagation", "hook.py").await?;
    let related = json!([
        { "apiVersion": "v1", "resource": "secrets" },
        { "apiVersion": "v1", "resource": "namespaces" },
    ]);
    let controller = controller(test, kind).making(&SECRET, "InPlace").with("relatedKinds", related);
    Ok(controller.synced_by(hook.clone()).customized_by(hook))
}

pub(crate) async fn secret_propagation_copies_from_the_namespaces_of_the_flag(
    test: &mut Fixture,
) -> Result<()> {
    let kind = Kind::new("example.com", "v1", "SecretPropagation", "secretpropagations");
    let own = test.name().to_owned();
    let controller = propagates_secrets(test, &kind).await?;
    test.server().flag("--log-level=trace");
    test.serve()?;
    test.host(controller).await?;
    until_loaded(test, &own).await?;
    let (a, b) = (namespace(test, "a", json!({})).await?, namespace(test, "b", json!({})).await?);
    let copies = [test.within_other(&SECRET, &a), test.within_other(&SECRET, &b)];
    let (sources, parents) = (test.within(&SECRET), test.everywhere(&kind));
    test.make(&sources, secret("token", VALUES[0])).await?;
    let spec = json!({ "source": { "namespace": own, "name": "token" }, "targets": [a, "nowhere"] });
    let made = test.make(&parents, parent(test, &kind, &own, spec)).await?;

    // Without the flag the hook is shown no Secret.
    let refused = |event: &Value| text(event, "/message").contains("--mount-secret-namespaces");
    test.until_event_on(&made, "SyncError", refused).await?;
    ensure!(copies[0].find("token").await?.is_none(), "a copy without the flag");
    test.server().stop().await?;
    test.server().flag(&format!("--mount-secret-namespaces={own}"));
    test.server().start()?;
    let has = |value: &'static str| move |copy: &Value| copy["data"] == json!({ "token": encoded(value) });
    let copy = copies[0].until("token", "a copy", has(VALUES[0])).await?;
    ensure!(copy["type"] == "Opaque", "{}", copy["type"]);
    let one = json!({ "phase": "Propagated", "copies": 1, "missingNamespaces": ["nowhere"] });
    parents.until(&own, "one copy", has_status(one)).await?;

    // A change is copied, and drift is corrected.
    sources.merge("token", &json!({ "data": { "token": encoded(VALUES[1]) } })).await?;
    copies[0].until("token", "the change", has(VALUES[1])).await?;
    copies[0].merge("token", &json!({ "data": { "token": encoded(VALUES[2]) } })).await?;
    copies[0].until("token", "as it was", has(VALUES[1])).await?;

    // A Secret of another owner stays as it is, and an Event names it.
    test.make(&copies[1], secret("token", VALUES[2])).await?;
    parents.merge(&own, &json!({ "spec": { "targets": [a, b] } })).await?;
    let taken = |event: &Value| text(event, "/message").contains(&format!("{b}/token"));
    test.until_event_on(&made, "SyncError", taken).await?;
    ensure!(copies[1].find("token").await?.is_some_and(|copy| has(VALUES[2])(&copy)), "it is overwritten");
    copies[1].delete("token").await?;
    copies[1].until("token", "a copy", has(VALUES[1])).await?;
    parents.merge(&own, &json!({ "spec": { "targets": [b] } })).await?;
    copies[0].until_gone("token").await?;

    // The copies go with their source.
    sources.delete("token").await?;
    copies[1].until_gone("token").await?;
    parents.until(&own, "no source", has_status(json!({ "phase": "SourceMissing", "copies": 0 }))).await?;
    values_are_in_no_log(test, &made).await
}

/// Nor are they in the Events on the parent.
async fn values_are_in_no_log(test: &mut Fixture, parent: &Value) -> Result<()> {
    let log = std::fs::read_to_string(test.server().log())?;
    ensure!(log.contains(r#"\"token\":\"(hidden)\""#), "the log does not have the requests");
    let fields = format!("involvedObject.uid={}", uid(parent));
    let events = test.within_other(&EVENT, "default").list_where(&fields).await?;
    let events = json!(events).to_string();
    for value in VALUES {
        let encoded = encoded(value);
        for spelt in [value, encoded.as_str().unwrap_or_default()] {
            let found = log.lines().chain([&*events]).find(|line| line.contains(spelt));
            ensure!(found.is_none(), "{value} is in {found:?}");
        }
    }
    Ok(())
}

/// Parents without a namespace take an account that may read the Secrets of all namespaces.
pub(crate) async fn secret_propagation_with_an_account_needs_rights_everywhere(
    test: &mut Fixture,
) -> Result<()> {
    let kind = Kind::new("example.com", "v1", "SecretPropagation", "secretpropagations");
    let own = test.name().to_owned();
    let account = json!({ "namespace": own, "name": "copies" });
    let object = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "copies" } });
    test.make(&test.within(&SERVICE_ACCOUNT), object).await?;
    let all = ["get", "list", "watch", "create", "update", "delete", "patch"];
    let rule = |group: &str, resources: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": all });
    let parents = ["secretpropagations", "secretpropagations/status", "secretpropagations/finalizers"];
    let reads = rule("", &["configmaps", "namespaces"]);
    bind(test, "ClusterRole", "parents", json!([rule("example.com", &parents), reads])).await?;
    bind(test, "Role", "secrets", json!([rule("", &["secrets"])])).await?;
    let controller = propagates_secrets(test, &kind).await?.with("serviceAccountRef", account);
    test.serve()?;
    test.host(controller).await?;
    let lacks = |cc: &Value| {
        let secrets = "copies\" cannot list resource \"secrets\"";
        has_condition(cc, "RightsGranted", "False", "RightsMissing")
            && condition(cc, "RightsGranted").is_some_and(|it| text(it, "/message").contains(secrets))
    };
    test.until_controller("the right that is missing", lacks).await?;

    let a = namespace(test, "a", json!({})).await?;
    test.make(&test.within(&SECRET), secret("token", VALUES[0])).await?;
    let spec = json!({ "source": { "namespace": own, "name": "token" }, "targets": [a] });
    test.make(&test.everywhere(&kind), parent(test, &kind, &own, spec)).await?;
    bind(test, "ClusterRole", "secrets", json!([rule("", &["secrets"])])).await?;
    test.within_other(&SECRET, &a).until("token", "a copy", |_| true).await?;
    Ok(())
}

/// Grants the account `copies` a role, in the test's namespace or everywhere.
async fn bind(test: &mut Fixture, role: &str, end: &str, rules: Value) -> Result<()> {
    let name = format!("{}-{end}", test.name());
    let metadata = json!({ "name": name });
    let subject = json!({ "kind": "ServiceAccount", "namespace": test.name(), "name": "copies" });
    let objects = [
        (role.to_owned(), json!({ "metadata": metadata, "rules": rules })),
        (
            format!("{role}Binding"),
            json!({
                "metadata": metadata, "subjects": [subject],
                "roleRef": { "apiGroup": RBAC, "kind": role, "name": name },
            }),
        ),
    ];
    for (kind, object) in objects {
        let kind = Kind::new(RBAC, "v1", &kind, &format!("{}s", kind.to_lowercase()));
        let place = if role == "Role" { test.within(&kind) } else { test.everywhere(&kind) };
        let mut object = object;
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.kind);
        test.make(&place, object).await?;
    }
    Ok(())
}
