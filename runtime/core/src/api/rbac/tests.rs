//! Tests of the roles that one controller needs.

use super::*;

fn server() -> ServiceAccountRef {
    ServiceAccountRef { namespace: "metacontroller".to_owned(), name: "metacontroller".to_owned() }
}

fn composite(account: &Value) -> Vec<String> {
    let spec = json!({
        "parentResource": {"apiVersion": "example.com/v1", "resource": "greetings"},
        "childResources": [
            {"apiVersion": "v1", "resource": "pods", "updateStrategy": {"method": "RollingInPlace"}},
        ],
        "hooks": {
            "sync": {"wasm": {
                "configMap": {"namespace": "hello", "name": "hook"},
                "mounts": [
                    {"path": "/a", "secret": {"namespace": "db", "name": "password"}},
                    {"path": "/b", "configMap": {"namespace": "hello", "name": "texts"}},
                ],
            }},
            "finalize": {"webhook": {"url": "http://x"}},
        },
        "serviceAccountRef": account,
    });
    let spec = serde_json::from_value(spec).unwrap();
    let needs = RequiredRights::of_composite("c", &spec, ApplyStrategy::DynamicApply);
    needs.roles(&server()).iter().map(text).collect()
}

/// A role by its rules, a binding by its subject.
fn text(role: &Value) -> String {
    let place = role["metadata"]["namespace"].as_str().map(|place| format!(" in {place}"));
    let head = format!(
        "{} {}{}",
        role["kind"].as_str().unwrap(),
        role["metadata"]["name"].as_str().unwrap(),
        place.unwrap_or_default()
    );
    let words = |list: &Value| {
        let words: Vec<_> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        words.join(",")
    };
    let what = match role["rules"].as_array() {
        None => {
            let name = |to: &Value, field| to[field].as_str().unwrap().to_owned();
            let name = |to| format!("{}/{}", name(to, "namespace"), name(to, "name"));
            let names: Vec<_> = role["subjects"].as_array().unwrap().iter().map(name).collect();
            format!("to {}", names.join(", "))
        }
        Some(rules) => rules
            .iter()
            .map(|rule| {
                let names = words(&rule["resourceNames"]);
                let names = if names.is_empty() { names } else { format!(" {names}") };
                format!("{}{names} {}", words(&rule["resources"]), words(&rule["verbs"]))
            })
            .collect::<Vec<_>>()
            .join("; "),
    };
    format!("{head}: {what}")
}

#[test]
fn with_an_account_the_server_acts_the_account_writes_and_both_read() {
    let expected = [
        "ClusterRole metahook-composite-c-reads: greetings get,list,watch; pods get,list,watch",
        "ClusterRoleBinding metahook-composite-c-reads: to metacontroller/metacontroller, hello/greeter",
        "ClusterRole metahook-composite-c-writes: greetings get,update,patch; greetings/status update; greetings/finalizers update; pods get,create,update,delete; controllerrevisions get,create,update,delete",
        "ClusterRoleBinding metahook-composite-c-writes: to hello/greeter",
        "Role metahook-composite-c-hooks in db: secrets password get,list,watch",
        "RoleBinding metahook-composite-c-hooks in db: to hello/greeter",
        "Role metahook-composite-c-hooks in hello: configmaps hook,texts get,list,watch",
        "RoleBinding metahook-composite-c-hooks in hello: to hello/greeter",
        "Role metahook-composite-c-acts in hello: serviceaccounts greeter impersonate",
        "RoleBinding metahook-composite-c-acts in hello: to metacontroller/metacontroller",
    ];
    assert_eq!(composite(&json!({"namespace": "hello", "name": "greeter"})), expected);
}

#[test]
fn without_an_account_the_server_does_it_all() {
    let roles = composite(&Value::Null);
    assert!(!roles.iter().any(|role| role.contains("impersonate")), "{roles:?}");
    assert!(
        roles
            .iter()
            .filter(|role| role.contains("Binding"))
            .all(|one| one.ends_with("to metacontroller/metacontroller"))
    );
}

#[test]
fn related_kinds_of_the_spec_are_read_by_the_account_that_reads_them() {
    let roles = |account: Value| {
        let spec = json!({
            "resources": [{"apiVersion": "apps/v1", "resource": "deployments"}],
            "hooks": {"customize": {"webhook": {"url": "http://x"}}},
            "relatedKinds": [{"apiVersion": "v1", "resource": "secrets"}],
            "serviceAccountRef": account,
        });
        let spec = serde_json::from_value(spec).unwrap();
        let needs = RequiredRights::of_decorator("d", &spec, ApplyStrategy::ServerSideApply);
        assert!(!needs.customizes, "nothing is left to be said");
        let roles: Vec<_> = needs.roles(&server()).iter().map(text).collect();
        [0, 2].map(|role| roles[role].contains("; secrets get,list,watch"))
    };
    assert_eq!(roles(Value::Null), [true, false]);
    assert_eq!(roles(json!({"namespace": "n", "name": "a"})), [false, true]);
}

#[test]
fn certificates_and_credentials_of_webhooks_are_read_by_name() {
    let at = |name: &str| json!({"namespace": "n", "name": name, "key": "k"});
    let spec = json!({
        "parentResource": {"apiVersion": "example.com/v1", "resource": "greetings"},
        "hooks": {"sync": {"webhook": {
            "url": "http://x", "caBundle": {"configMapRef": at("ca")}, "clientTLS": {"secretRef": at("client")},
            "authorization": {"secretRef": at("token")},
        }}},
        "endpointConfigs": [
            {"host": "x", "caBundle": {"secretRef": at("bundle")}, "basicAuth": {"secretRef": at("basic")}},
        ],
    });
    let spec = serde_json::from_value(spec).unwrap();
    let needs = RequiredRights::of_composite("c", &spec, ApplyStrategy::DynamicApply);
    let expected = "Role metahook-composite-c-hooks in n: configmaps ca get,list,watch; secrets basic,bundle,client,token get,list,watch";
    assert_eq!(text(&needs.roles(&server())[4]), expected);
}

#[test]
fn what_a_shadow_needs_is_read_by_name() {
    let at = |name: &str| json!({"namespace": "n", "name": name});
    let spec = json!({
        "parentResource": {"apiVersion": "example.com/v1", "resource": "greetings"},
        "hooks": {
            "sync": {
                "webhook": {"url": "http://x"},
                "shadow": {"wasm": {"configMap": at("module"), "mounts": [{"path": "/m", "secret": at("mount")}]}},
            },
            "customize": {
                "wasm": {"configMap": at("rules")},
                "shadow": {"webhook": {"url": "http://x", "basicAuth": {"secretRef": at("basic")}}},
            },
        },
    });
    let spec = serde_json::from_value(spec).unwrap();
    let needs = RequiredRights::of_composite("c", &spec, ApplyStrategy::DynamicApply);
    let roles: Vec<_> = needs.roles(&server()).iter().map(text).collect();
    let expected = "Role metahook-composite-c-hooks in n: configmaps module,rules get,list,watch; secrets basic,mount get,list,watch";
    assert!(roles.iter().any(|role| role == expected), "{roles:#?}");
}

#[test]
fn a_decorators_targets_are_its_parents() {
    let spec = json!({
        "resources": [{"apiVersion": "apps/v1", "resource": "deployments"}],
        "attachments": [{"apiVersion": "v1", "resource": "services"}],
        "hooks": {"customize": {"webhook": {"url": "http://x"}}},
        "relatedDeletion": [{"apiVersion": "v1", "resource": "pods"}, {"apiVersion": "v1", "resource": "services"}],
    });
    let spec = serde_json::from_value(spec).unwrap();
    let needs = RequiredRights::of_decorator("d", &spec, ApplyStrategy::ServerSideApply);
    assert!(needs.customizes);
    assert_eq!(needs.related(), "metahook-decorator-d-reads");
    let roles: Vec<_> = needs.roles(&server()).iter().map(text).collect();
    assert_eq!(
        roles[2],
        "ClusterRole metahook-decorator-d-writes: deployments get,update,patch; deployments/status update; deployments/finalizers update; services get,create,update,patch,delete; pods delete"
    );
}
