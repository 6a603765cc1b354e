//! Section 6 of the compatibility contract: the customize hook and related objects.

use acceptance::api::{self, Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, definition, has_condition, is_true, text};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};

use crate::wasm::{self, LETTERS, Wat};

/// The rules are in the parent's spec; what came of them is told in its status.
fn program(asked: &Asked) -> Answer {
    match asked.path.as_str() {
        "/customize" => match &asked.body["parent"]["spec"]["answer"] {
            Value::Null => json!({ "relatedResources": asked.body["parent"]["spec"]["rules"] }).into(),
            answer => answer.clone().into(),
        },
        path => {
            let status = json!({ "related": names(&asked.body["related"]) });
            json!({ "status": status, "finalized": path == "/finalize" }).into()
        }
    }
}

/// The names in each group, in order: `{"Thing": "a b"}`.
fn names(related: &Value) -> Value {
    let groups = related.as_object().into_iter().flatten();
    let told = groups.map(|(group, objects)| {
        let kind = group.split('.').next().unwrap_or_default();
        let names: Vec<_> =
            objects.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        (kind.to_owned(), Value::from(names.join(" ")))
    });
    told.collect::<Map<_, _>>().into()
}

/// A test with a webhook, a namespaced and a cluster-scoped kind of related objects, and another namespace.
struct Place {
    webhook: Webhook,
    thing: Kind,
    wide: Kind,
    away: String,
}

impl Place {
    async fn new(test: &mut Fixture) -> Result<Self> {
        let group = format!("related.{}", test.kind().group);
        let thing = Kind::new(&group, "v1", "Thing", "things");
        let wide = Kind::new(&group, "v1", "Wide", "wides");
        test.define(&thing).await?;
        define_cluster_scoped(test, &wide).await?;
        test.define_kind().await?;
        let away = format!("{}-away", test.name());
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": away } });
        let namespaces = test.everywhere(&api::NAMESPACE);
        test.make(&namespaces, namespace).await?;
        Ok(Self { webhook: Webhook::serve(program).await?, thing, wide, away })
    }

    /// The hooks of a controller in one version.
    fn hooked(&self, controller: Composite, version: &str) -> Composite {
        let hook = |path: &str| Hook::webhook(&self.webhook.url(path)).version(version);
        controller.synced_by(hook("/sync")).customized_by(hook("/customize"))
    }

    fn rule(&self, fields: Value) -> Value {
        rule(&self.thing, fields)
    }

    fn things(&self, test: &Fixture) -> Objects {
        test.within(&self.thing)
    }

    async fn thing(&self, test: &mut Fixture, name: &str, labels: &Value) -> Result<Value> {
        let place = self.things(test);
        test.make(&place, object(&self.thing, name, labels)).await
    }

    /// How often a hook was asked about a parent.
    fn calls(&self, path: &str, parent: &str) -> usize {
        let about =
            |asked: &&Asked| asked.path == path && text(&asked.body, "/parent/metadata/name") == parent;
        self.webhook.asked().iter().filter(about).count()
    }
}

fn rule(kind: &Kind, mut fields: Value) -> Value {
    fields["apiVersion"] = json!(kind.api_version());
    fields["resource"] = json!(kind.plural);
    fields
}

fn object(kind: &Kind, name: &str, labels: &Value) -> Value {
    let metadata = json!({ "name": name, "labels": labels });
    json!({ "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "spec": {} })
}

fn parent(kind: &Kind, name: &str, rules: &[Value]) -> Value {
    let mut parent = object(kind, name, &json!({}));
    parent["spec"]["rules"] = json!(rules);
    parent
}

pub(crate) async fn define_cluster_scoped(test: &Fixture, kind: &Kind) -> Result<()> {
    let mut definition = definition(kind);
    definition["spec"]["scope"] = json!("Cluster");
    let name = text(&definition, "/metadata/name").to_owned();
    test.definitions().create(definition).await?;
    test.definitions().until(&name, "established", |crd| is_true(crd, "Established")).await?;
    Ok(())
}

/// A parent's status tells of exactly these.
async fn sees(parents: &Objects, parent: &str, related: &Value) -> Result<()> {
    let what = format!("sees {related}");
    parents.until(parent, &what, |parent| parent["status"]["related"] == *related).await.map(drop)
}

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

/// Objects come, change, lose the label that they were selected by, and go; so do namespaces and rules.
pub(crate) async fn a_change_queues_every_parent_that_sees_it(test: &mut Fixture) -> Result<()> {
    let place = Place::new(test).await?;
    test.serve()?;
    test.host(place.hooked(test.controller(), "v2")).await?;
    let (h, a) = (test.name().to_owned(), place.away.clone());
    let labels = json!({ "matchLabels": { "app": "x" } });
    let team = json!({ "matchLabels": { "team": test.name() } });
    let parents = test.parents();
    for (name, rules) in [
        ("by-name", vec![place.rule(json!({ "namespace": h, "names": ["one"] }))]),
        ("by-label", vec![place.rule(json!({ "labelSelector": labels }))]),
        ("by-team", vec![place.rule(json!({ "namespaceSelector": team }))]),
        (
            "by-both",
            vec![place.rule(json!({ "names": ["one"] })), place.rule(json!({ "labelSelector": labels }))],
        ),
    ] {
        test.make(&parents, parent(test.kind(), name, &rules)).await?;
    }
    let nothing = json!({ "Thing": "" });
    for name in ["by-name", "by-label", "by-team", "by-both"] {
        sees(&parents, name, &nothing).await?;
    }
    let (one, two) = (format!("{h}/one"), format!("{a}/two"));
    place.thing(test, "one", &json!({ "app": "x" })).await?;
    let elsewhere = test.within_other(&place.thing, &a);
    elsewhere.create(object(&place.thing, "two", &json!({ "app": "x" }))).await?;
    let both = |first: &str, second: &str| {
        let mut all = [first, second];
        all.sort_unstable();
        json!({ "Thing": all.join(" ") })
    };
    sees(&parents, "by-name", &json!({ "Thing": one })).await?;
    sees(&parents, "by-label", &both(&one, &two)).await?;
    sees(&parents, "by-both", &both(&one, &two)).await?;

    // As it was: the label is gone afterwards.
    let off = json!({ "metadata": { "labels": { "app": null } } });
    place.things(test).merge("one", &off).await?;
    sees(&parents, "by-label", &json!({ "Thing": two })).await?;
    sees(&parents, "by-both", &both(&one, &two)).await?;

    // A namespace: labelled, and no longer.
    let label = |team: Value| json!({ "metadata": { "labels": { "team": team } } });
    test.everywhere(&api::NAMESPACE).merge(&a, &label(json!(test.name()))).await?;
    sees(&parents, "by-team", &json!({ "Thing": two })).await?;
    test.everywhere(&api::NAMESPACE).merge(&a, &label(Value::Null)).await?;
    sees(&parents, "by-team", &nothing).await?;

    // Other rules: the objects of the new ones are seen and followed.
    let rules = json!({ "spec": { "rules": [place.rule(json!({ "namespace": a, "names": ["two"] }))] } });
    parents.merge("by-name", &rules).await?;
    sees(&parents, "by-name", &json!({ "Thing": two })).await?;
    elsewhere.delete("two").await?;
    for name in ["by-name", "by-label"] {
        sees(&parents, name, &nothing).await?;
    }
    place.things(test).delete("one").await?;
    sees(&parents, "by-both", &nothing).await
}

/// The customize hook is a webhook: asked once per content of the parent, however often the parent is synced.
pub(crate) async fn a_webhook_is_asked_for_rules_once_per_content_of_the_parent(
    test: &mut Fixture,
) -> Result<()> {
    let place = Place::new(test).await?;
    test.serve()?;
    test.host(place.hooked(test.controller(), "v2")).await?;
    let parents = test.parents();
    let rules = [place.rule(json!({ "labelSelector": { "matchLabels": { "app": "x" } } }))];
    test.make(&parents, parent(test.kind(), "a", &rules)).await?;
    sees(&parents, "a", &json!({ "Thing": "" })).await?;
    let mut seen = Vec::new();
    for name in ["one", "two", "three"] {
        place.thing(test, name, &json!({ "app": "x" })).await?;
        seen.push(format!("{}/{name}", test.name()));
        seen.sort_unstable();
        sees(&parents, "a", &json!({ "Thing": seen.join(" ") })).await?;
    }
    ensure!(place.calls("/sync", "a") >= 4, "synced only {} times", place.calls("/sync", "a"));
    let calls = place.calls("/customize", "a");
    ensure!(calls == 1, "asked for rules {calls} times");

    let synced = place.calls("/sync", "a");
    parents.merge("a", &json!({ "metadata": { "labels": { "touched": "once" } } })).await?;
    place
        .webhook
        .until_asked("about the touched parent", |asked| {
            asked.path == "/sync" && text(&asked.body, "/parent/metadata/labels/touched") == "once"
        })
        .await?;
    ensure!(place.calls("/sync", "a") > synced, "not synced");
    let calls = place.calls("/customize", "a");
    ensure!(calls == 2, "asked for rules {calls} times: a label is content");
    let asked = place.webhook.asked();
    let request = asked.iter().find(|asked| asked.path == "/customize");
    let fields = request.and_then(|asked| asked.body.as_object()).map(|body| body.keys().cloned().collect());
    ensure!(fields == Some(vec!["controller".to_owned(), "parent".to_owned()]), "asked with {fields:?}");
    Ok(())
}

/// Whatever is wrong is told on the parent, by its path, and heals with the next good answer.
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

/// A parent whose rules name a kind that is not served is reconciled again once it is served.
pub(crate) async fn a_kind_that_is_defined_later_is_seen_then(test: &mut Fixture) -> Result<()> {
    let place = Place::new(test).await?;
    test.serve()?;
    test.host(place.hooked(test.controller(), "v2")).await?;
    let later = Kind::new(&format!("later.{}", test.kind().group), "v1", "Later", "laters");
    let parents = test.parents();
    test.make(&parents, parent(test.kind(), "a", &[rule(&later, json!({}))])).await?;
    // Often enough for the next try to be far away.
    let says = |event: &Value| event["count"].as_u64() >= Some(10);
    test.until_event("a", "SyncError", says).await?;
    test.define(&later).await?;
    sees(&parents, "a", &json!({ "Later": "" })).await
}

/// A sync hook of version v1 has no names for what is not in its parent's namespace.
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

/// Also where the parent is being deleted the finalize hook is shown what the customize hook asks for.
pub(crate) async fn a_finalize_hook_is_shown_related_objects(test: &mut Fixture) -> Result<()> {
    let place = Place::new(test).await?;
    test.serve()?;
    // A finalizer's name may not be longer than 63 characters.
    let short = test.name().rsplit('-').take(2).collect::<Vec<_>>().join("-");
    let controller = test.controller().renamed(&format!("related-{short}"));
    let finalize = Hook::webhook(&place.webhook.url("/finalize")).version("v1");
    test.host(place.hooked(controller, "v2").finalized_by(finalize)).await?;
    place.thing(test, "one", &json!({})).await?;
    let parents = test.parents();
    test.make(&parents, parent(test.kind(), "a", &[place.rule(json!({ "names": ["one"] }))])).await?;
    sees(&parents, "a", &json!({ "Thing": format!("{}/one", test.name()) })).await?;
    parents.delete("a").await?;
    let asked = place.webhook.until_asked("to finalize", |asked| asked.path == "/finalize").await?;
    let related = names(&asked.body["related"]);
    ensure!(related == json!({ "Thing": "one" }) && asked.body["finalizing"] == true, "{related}");
    parents.until_gone("a").await
}

/// Both hooks are modules: neither is called as long as nothing changes that the parent sees.
pub(crate) async fn a_parent_is_settled_until_something_that_it_sees_changes(
    test: &mut Fixture,
) -> Result<()> {
    let place = Place::new(test).await?;
    let rules = [place.rule(json!({ "labelSelector": { "matchLabels": { "app": "x" } } }))];
    let (rules, nothing) = (json!({ "relatedResources": rules }), json!({ "children": [] }));
    test.store("rules", &Wat::default().warns("asked for rules").prints(rules.to_string()).wasm()?).await?;
    test.store("hook", &Wat::default().warns("asked to sync").prints(nothing.to_string()).wasm()?).await?;
    test.serve()?;
    let controller = test.controller().resyncing_each_second();
    let hooked = controller.synced_by(test.hook("hook")).customized_by(test.hook("rules"));
    test.host(hooked).await?;
    test.create(test.parent("a")).await?;
    test.until_controller("one settled parent", |cc| cc["status"]["settled"] == 1).await?;

    let count = |log: &str, text: &str| log.matches(text).count();
    let before = test.server().until_log("settled", |log| count(log, "settled") > 0).await?;
    place.thing(test, "unseen", &json!({ "app": "y" })).await?;
    let rests = count(&before, "settled") + 3;
    let log = test.server().until_log("settled again", |log| count(log, "settled") >= rests).await?;
    let calls = |log: &str| (count(log, "asked for rules"), count(log, "asked to sync"));
    ensure!(calls(&log) == calls(&before), "called though nothing changed: {:?}", calls(&log));

    place.thing(test, "seen", &json!({ "app": "x" })).await?;
    let (asked, synced) = calls(&log);
    let log = test.server().until_log("synced again", |log| calls(log).1 > synced).await?;
    ensure!(calls(&log).0 == asked, "asked for rules about the same parent: {:?}", calls(&log));
    test.until_controller("settled again", |cc| cc["status"]["settled"] == 1).await?;
    Ok(())
}

/// A customize hook that cannot be relied on is found out as a sync hook is.
pub(crate) async fn a_customize_hook_that_gives_two_answers_is_named(test: &mut Fixture) -> Result<()> {
    test.server().flag("--purity-check=1");
    test.server().flag("--seed-each-call");
    let place = Place::new(test).await?;
    let rules = json!({ "relatedResources": [place.rule(json!({}))], "not looked at": LETTERS });
    test.store("rules", &wasm::answers_with_letters(&rules)?).await?;
    test.store("hook", &wasm::answers(&json!({ "children": [] }))?).await?;
    test.serve()?;
    let controller = test.controller().resyncing_each_second();
    let hooked = controller.synced_by(test.hook("hook")).customized_by(test.hook("rules"));
    test.host(hooked).await?;
    test.create(test.parent("a")).await?;
    let differs = |cc: &Value| has_condition(cc, "Pure", "False", "AnswersDiffer");
    test.until_controller("Pure=False: AnswersDiffer", differs).await?;
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
