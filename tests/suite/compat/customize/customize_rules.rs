//! Rules of a customize hook: which objects each class finds, and what is wrong with a rule.

use acceptance::api::{self, Kind};
use acceptance::fixture::Fixture;
use acceptance::objects::text;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Place, define_cluster_scoped, object, parent, rule, sees};

/// One rule, the kind it asks for, and what it finds: with version v1 about a parent in a namespace, and otherwise.
struct Row {
    rule: Value,
    kind: &'static str,
    relative: Finds,
    uniform: Finds,
}

/// The names, or what is said instead.
type Finds = Result<String, &'static str>;

fn rows(place: &Place, home: &str) -> Vec<Row> {
    const V1: Finds = Err("a customize hook of version v1");
    const NO_NAMESPACES: Finds = Err("has no namespaces");
    let finds = |names: &str| -> Finds {
        let whole = names.replace("h/", &format!("{home}/")).replace("a:", &format!("{}/", place.away));
        let mut names: Vec<_> = whole.split(' ').collect();
        names.sort_unstable();
        Ok(names.join(" "))
    };
    let labels = json!({ "matchLabels": { "l": "a" } });
    let team = json!({ "matchLabels": { "team": home } });
    let away = &place.away;
    let all = "h/a h/b a:a a:b";
    let things = [
        (json!({}), finds("a b"), finds(all)),
        (json!({ "labelSelector": null, "names": [] }), finds("a b"), finds(all)),
        (json!({ "labelSelector": labels }), finds("a"), finds("h/a a:a")),
        (json!({ "labelSelector": {}, "namespace": home }), finds("a b"), finds("h/a h/b")),
        (json!({ "labelSelector": labels, "namespace": away }), V1, finds("a:a")),
        (json!({ "namespace": away }), V1, finds("a:a a:b")),
        (json!({ "namespace": away, "names": ["b"] }), V1, finds("a:b")),
        (json!({ "names": ["b", "x"] }), finds("b"), finds("h/b a:b")),
        (json!({ "namespaceSelector": team }), V1, finds(all)),
        (json!({ "namespaceSelector": team, "labelSelector": labels }), V1, finds("h/a a:a")),
    ];
    let wides = [
        (json!({}), finds(""), finds("w")),
        (json!({ "names": ["w"] }), finds(""), finds("w")),
        (json!({ "namespaceSelector": {} }), NO_NAMESPACES, NO_NAMESPACES),
    ];
    let row = |kind: &Kind, name, (fields, relative, uniform)| Row {
        rule: rule(kind, fields),
        kind: name,
        relative,
        uniform,
    };
    let things = things.into_iter().map(|fields| row(&place.thing, "Thing", fields));
    things.chain(wides.into_iter().map(|fields| row(&place.wide, "Wide", fields))).collect()
}

/// Things `a` and `b` in two namespaces of one team, and something wide.
async fn fill(test: &mut Fixture, place: &Place) -> Result<()> {
    for namespace in [test.name(), &place.away] {
        let things = test.within_other(&place.thing, namespace);
        for name in ["a", "b"] {
            things.create(object(&place.thing, name, &json!({ "l": name }))).await?;
        }
        let team = json!({ "metadata": { "labels": { "team": test.name() } } });
        test.everywhere(&api::NAMESPACE).merge(namespace, &team).await?;
    }
    let wides = test.everywhere(&place.wide);
    test.make(&wides, object(&place.wide, "w", &json!({}))).await?;
    Ok(())
}

/// Rules of every class, in both versions, about parents with and without a namespace.
pub(crate) async fn each_class_of_rules_finds_what_its_version_and_scopes_say(
    test: &mut Fixture,
) -> Result<()> {
    let place = Place::new(test).await?;
    fill(test, &place).await?;
    test.serve()?;
    let home = test.name().to_owned();
    let mut looks = Vec::new();
    for (version, scope) in [("v1", "in"), ("v1", "out"), ("v2", "in"), ("v2", "out")] {
        let name = format!("{version}-{scope}");
        let kind = Kind::new(&format!("{name}.{}", test.kind().group), "v1", "Greeting", "greetings");
        let parents = if scope == "in" {
            test.define(&kind).await?;
            test.within(&kind)
        } else {
            define_cluster_scoped(test, &kind).await?;
            test.everywhere(&kind)
        };
        let controller = test.controller().renamed(&format!("{home}-{name}")).over(&kind);
        test.host(place.hooked(controller, version)).await?;
        for (number, Row { rule, kind: group, relative, uniform }) in
            rows(&place, &home).into_iter().enumerate()
        {
            let name = format!("row-{number}");
            test.make(&parents, parent(&kind, &name, &[rule])).await?;
            let finds = if (version, scope) == ("v1", "in") { relative } else { uniform };
            looks.push((parents.clone(), kind.clone(), name, group, finds));
        }
    }
    for (parents, kind, name, group, finds) in looks {
        match finds {
            Ok(names) => sees(&parents, &name, &json!({ group: names })).await?,
            Err(says) => says_so(test, &kind, &name, says).await?,
        }
    }
    Ok(())
}

/// An Event on a parent of this kind, with the path of the rule.
async fn says_so(test: &Fixture, kind: &Kind, parent: &str, says: &str) -> Result<()> {
    let is = |event: &Value| {
        let (about, message) = (text(event, "/involvedObject/apiVersion"), text(event, "/message"));
        let path = "Sync error: customize hook: the hook's answer: relatedResources[0].namespace";
        about == kind.api_version() && message.starts_with(path) && message.contains(says)
    };
    let fields = format!("involvedObject.name={parent},reason=SyncError");
    let namespace = if kind.group.starts_with("v1-in") || kind.group.starts_with("v2-in") {
        test.name()
    } else {
        "default"
    };
    let events = test.within_other(&api::EVENT, namespace);
    events.until_some(&fields, &format!("{}: {says}", kind.group), is).await.map(drop)
}

/// The server names the path of each error in an Event on the parent, and goes on with the next good answer.
pub(crate) async fn wrong_rules_are_reported_on_the_parent_and_heal(test: &mut Fixture) -> Result<()> {
    let place = Place::new(test).await?;
    test.serve()?;
    test.host(place.hooked(test.controller(), "v2")).await?;
    let parents = test.parents();
    let answer = |rule: Value| json!({ "relatedResources": [rule] });
    let of = |fields: Value| answer(place.rule(fields));
    let rows = [
        ("list", json!([place.rule(json!({}))]), "the answer must be an object, not a list"),
        ("null", answer(Value::Null), "relatedResources[0] must be an object, not null"),
        (
            "both",
            of(json!({ "names": ["a"], "labelSelector": {} })),
            "relatedResources[0] has names and a labelSelector",
        ),
        (
            "twice",
            of(json!({ "namespace": "n", "namespaceSelector": {} })),
            "relatedResources[0] has a namespace and a namespaceSelector",
        ),
        ("name", of(json!({ "names": "a" })), "relatedResources[0].names must be a list, not a string"),
        ("odd", of(json!({ "selector": {} })), "has the unknown field relatedResources[0].selector"),
        (
            "unknown",
            answer(json!({ "apiVersion": "v1", "resource": "nothings" })),
            "relatedResources[0]: the API server serves no v1 nothings",
        ),
        (
            "unlisted",
            answer(json!({ "apiVersion": "authentication.k8s.io/v1", "resource": "tokenreviews" })),
            "relatedResources[0]: authentication.k8s.io/v1 TokenReview cannot be listed",
        ),
    ];
    for (name, answer, _) in &rows {
        let mut parent = parent(test.kind(), name, &[place.rule(json!({}))]);
        parent["spec"]["answer"] = answer.clone();
        test.make(&parents, parent).await?;
    }
    for (name, _, says) in &rows {
        let says = |event: &Value| {
            let message = text(event, "/message");
            message.starts_with("Sync error: customize hook") && message.contains(says)
        };
        test.until_event(name, "SyncError", says).await?;
        let calls = place.calls("/sync", name);
        ensure!(calls == 0, "{name}: the sync hook was called {calls} times");
    }
    let heal = json!({ "spec": { "answer": null } });
    for (name, ..) in &rows {
        parents.merge(name, &heal).await?;
    }
    for (name, ..) in &rows {
        sees(&parents, name, &json!({ "Thing": "" })).await?;
    }
    Ok(())
}

/// Requests of version v1 cannot name objects outside of the parent's namespace.
pub(crate) async fn what_v1_does_not_show_is_told_by_its_rule(test: &mut Fixture) -> Result<()> {
    let place = Place::new(test).await?;
    test.serve()?;
    test.host(place.hooked(test.controller(), "v1")).await?;
    let wides = test.everywhere(&place.wide);
    test.make(&wides, object(&place.wide, "w", &json!({}))).await?;
    place.thing(test, "one", &json!({})).await?;
    let parents = test.parents();
    let rules = [place.rule(json!({})), rule(&place.wide, json!({}))];
    test.make(&parents, parent(test.kind(), "a", &rules)).await?;
    sees(&parents, "a", &json!({ "Thing": "one", "Wide": "" })).await?;
    let says = |event: &Value| {
        let message = text(event, "/message");
        event["type"] == "Warning"
            && message.contains("1 of relatedResources[1] (")
            && message.contains("version v2")
    };
    test.until_event("a", "RelatedHidden", says).await?;
    Ok(())
}

/// With an account of its own a controller shows its hooks what that account may see; a namespace's rights suffice for
/// rules that stay within it.
pub(crate) async fn related_objects_are_read_with_the_rights_of_the_controllers_account(
    test: &mut Fixture,
) -> Result<()> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let place = Place::new(test).await?;
    let name = test.name().to_owned();
    let metadata = json!({ "name": name });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
    let accounts = test.within(&api::SERVICE_ACCOUNT);
    test.make(&accounts, account).await?;
    let may = |kind: &Kind, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [kind.group], "resources": resources, "verbs": verbs });
    let rules = [
        may(&place.thing, &["things"], &["list", "watch"]),
        may(test.kind(), &["greetings", "greetings/status"], &["get", "list", "watch", "update", "patch"]),
    ];
    let role = json!({ "kind": "Role", "metadata": metadata, "rules": rules });
    let binding = json!({
        "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "namespace": name, "name": name }],
    });
    for mut object in [role, binding] {
        object["apiVersion"] = json!(format!("{RBAC}/v1"));
        let kind = text(&object, "/kind");
        let kind = Kind::new(RBAC, "v1", kind, &format!("{}s", kind.to_lowercase()));
        let granted = test.within(&kind);
        test.make(&granted, object).await?;
    }
    test.serve()?;
    let controller = test.controller().with("serviceAccountRef", json!({ "namespace": name, "name": name }));
    test.host(place.hooked(controller, "v2")).await?;
    let parents = test.parents();
    let home = place.rule(json!({ "namespace": name }));
    test.make(&parents, parent(test.kind(), "near", &[home])).await?;
    test.make(&parents, parent(test.kind(), "far", &[place.rule(json!({}))])).await?;
    sees(&parents, "near", &json!({ "Thing": "" })).await?;
    place.thing(test, "one", &json!({})).await?;
    sees(&parents, "near", &json!({ "Thing": format!("{name}/one") })).await?;
    let says = |event: &Value| {
        let message = text(event, "/message");
        message.contains("relatedResources[0]")
            && message.contains("cannot be listed")
            && message.contains("forbidden")
    };
    test.until_event("far", "SyncError", says).await?;
    Ok(())
}
