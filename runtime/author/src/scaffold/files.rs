//! Files of a scaffold, by template: manifest, hook, controller, definition, an example and two cases.

use serde_json::{Value, json};

use super::languages::{Toolkit, stored};
use super::{Language, Name, Template};
use crate::yaml;

const GROUP: &str = "example.com";

/// All files, by their path.
pub(super) fn files(
    name: &Name,
    template: Template,
    language: Language,
    toolkit: Toolkit,
) -> Vec<(String, String)> {
    let kind = name.kind();
    let mut all = vec![
        ("README.md".to_owned(), readme(name, template, &toolkit)),
        ("controller.yaml".to_owned(), yaml::print(&controller(name, template, language))),
        ("example.yaml".to_owned(), yaml::print(&example(&kind, template))),
    ];
    if template != Template::Decorator {
        all.push(("crd.yaml".to_owned(), yaml::print(&definition(&kind, template))));
    }
    for (case, request, response) in cases(&kind, template) {
        all.push((format!("tests/{case}/request.yaml"), yaml::print(&request)));
        all.push((format!("tests/{case}/response.yaml"), yaml::print(&response)));
    }
    all.extend(toolkit.files);
    all
}

/// The commands from the source to a cluster and back.
fn readme(name: &Name, template: Template, toolkit: &Toolkit) -> String {
    let build = toolkit.build.map(|build| format!("{build}\n")).unwrap_or_default();
    let define = if template == Template::Decorator { "" } else { "kubectl apply -f crd.yaml\n" };
    let hook = &toolkit.hook;
    format!(
        "# {name}

Without a cluster:

```sh
{build}metahook check {hook} -f .
metahook test
metahook render -f .
```

On a cluster, first from this machine, which needs no server there; Ctrl-C ends it:

```sh
metahook crds --apply
{define}metahook dev -f controller.yaml
```

Then with a server that runs there, or `metahook serve` in another terminal:

```sh
metahook apply -f .
metahook delete -f . --crds
```
"
    )
}

fn plural(kind: &str) -> String {
    kind.to_lowercase() + "s"
}

fn controller(name: &Name, template: Template, language: Language) -> Value {
    let hook = stored(language, name);
    let hooks = match template {
        Template::Customize => json!({ "sync": hook, "customize": hook }),
        Template::Finalize => json!({ "sync": hook, "finalize": hook }),
        Template::Composite | Template::Decorator => json!({ "sync": hook }),
    };
    let maps =
        json!({ "apiVersion": "v1", "resource": "configmaps", "updateStrategy": { "method": "InPlace" } });
    let (kind, spec) = match template {
        Template::Decorator => {
            let greet = json!({ "matchExpressions": [{ "key": "example.com/greet", "operator": "Exists" }] });
            let services = json!({ "apiVersion": "v1", "resource": "services", "annotationSelector": greet });
            let spec = json!({ "resources": [services], "attachments": [maps], "hooks": hooks });
            ("DecoratorController", spec)
        }
        Template::Composite | Template::Customize | Template::Finalize => {
            let parents = json!({ "apiVersion": format!("{GROUP}/v1"), "resource": plural(&name.kind()) });
            let spec = json!({
                "generateSelector": true, "parentResource": parents, "childResources": [maps], "hooks": hooks,
            });
            ("CompositeController", spec)
        }
    };
    let metadata = json!({ "name": name.to_string() });
    json!({ "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec })
}

fn definition(kind: &str, template: Template) -> Value {
    let plural = plural(kind);
    let counted = if template == Template::Customize { "services" } else { "maps" };
    let properties = json!({
        "spec": { "type": "object", "properties": { "who": { "type": "string" } } },
        "status": {
            "type": "object",
            "properties": {
                counted: { "type": "integer" },
                "observedGeneration": { "type": "integer", "format": "int64" },
            },
        },
    });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
        "schema": { "openAPIV3Schema": { "type": "object", "properties": properties } },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "scope": "Namespaced",
            "versions": [version],
        },
    })
}

fn example(kind: &str, template: Template) -> Value {
    match template {
        Template::Decorator => service(&json!({ "example.com/greet": "Ann" })),
        Template::Composite | Template::Customize | Template::Finalize => {
            parent(kind, &json!({ "who": "Ann" }))
        }
    }
}

fn service(annotations: &Value) -> Value {
    let metadata = json!({ "name": "first", "namespace": "default", "annotations": annotations });
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": { "ports": [{ "port": 80 }] } })
}

fn parent(kind: &str, spec: &Value) -> Value {
    let metadata = json!({ "name": "first", "namespace": "default" });
    json!({ "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata, "spec": spec })
}

fn map(name: &str, key: &str, text: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { key: text } })
}

/// Two cases: the name of each, its request and its response.
fn cases(kind: &str, template: Template) -> [(&'static str, Value, Value); 2] {
    let request = |who: Value, children: Value, more: Value| {
        let mut request =
            json!({ "parent": parent(kind, &who), "children": { "ConfigMap.v1": children }, "related": {} });
        if let (Some(request), Value::Object(more)) = (request.as_object_mut(), more) {
            request.extend(more);
        }
        request
    };
    let greeted = |maps: u32, who: &str| json!({ "status": { "maps": maps }, "children": [map("first", "greeting", &format!("Hello, {who}!"))] });
    let there = json!({ "default/first": map("first", "greeting", "Hello, World!") });
    let first = ("first-sight", request(json!({ "who": "Ann" }), json!({}), json!({})), greeted(0, "Ann"));
    match template {
        Template::Composite => {
            [first, ("without-a-name", request(json!({}), there, json!({})), greeted(1, "World"))]
        }
        Template::Finalize => {
            let finalizing = json!({ "finalizing": true });
            let response = json!({ "status": { "maps": 0 }, "children": [], "finalized": true });
            [first, ("nothing-is-left", request(json!({}), json!({}), finalizing), response)]
        }
        Template::Customize => {
            let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "default" } });
            let related = json!({ "related": { "Service.v1": { "default/web": service } } });
            let rule = json!({
                "apiVersion": "v1", "resource": "services", "namespace": "default",
                "labelSelector": { "matchLabels": { "app": "first" } },
            });
            let listed =
                json!({ "status": { "services": 1 }, "children": [map("first", "services", "web")] });
            [
                (
                    "asks-for-services",
                    json!({ "parent": parent(kind, &json!({})) }),
                    json!({ "relatedResources": [rule] }),
                ),
                ("lists-services", request(json!({}), json!({}), related), listed),
            ]
        }
        Template::Decorator => {
            let case = |who: &str| {
                let object = service(&json!({ "example.com/greet": who }));
                let response = json!({
                    "annotations": { "example.com/greeted": who },
                    "attachments": [map("first-greeting", "greeting", &format!("Hello, {who}!"))],
                });
                (json!({ "object": object, "attachments": { "ConfigMap.v1": {} } }), response)
            };
            let ((one, greeted), (other, again)) = (case("Ann"), case("Bob"));
            [("first-sight", one, greeted), ("another-name", other, again)]
        }
    }
}
