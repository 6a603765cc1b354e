//! Section 7 of the compatibility contract, from the controller's side: which objects are decorated, and what becomes of a
//! controller.

use acceptance::api::{CONFIG_MAP, Kind, NAMESPACE, Objects, SERVICE};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, is_true, text, uid, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::decorated::{
    DECORATOR, annotations, attachment, decorated, define, is_about, label, labels, make_map, name, of, sync,
    thing, times,
};

const ROLE: &str = "ClusterRole.rbac.authorization.k8s.io/v1";

/// A label with the kind, a `ConfigMap`, and for a `ClusterRole` one more `ClusterRole`.
fn of_any_kind(home: &str, asked: &Asked) -> Answer {
    let kind = text(&asked.body, "/object/kind").to_lowercase();
    let mut map = attachment(&format!("of-{kind}"));
    if asked.body["object"]["metadata"].get("namespace").is_none() {
        map["metadata"]["namespace"] = json!(home);
    }
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": format!("{home}-attached") }, "rules": [],
    });
    let attachments = if kind == "clusterrole" { json!([map, role]) } else { json!([map]) };
    json!({ "labels": { "decorated": kind }, "attachments": attachments }).into()
}

/// An object of each of five kinds: all have one name, and only their kinds tell them apart.
async fn five(test: &mut Fixture, roles: &Kind) -> Result<Vec<(Kind, Objects)>> {
    let plain = Kind::new(&format!("plain.{}", test.kind().group), "v1", "Plain", "plains");
    define(test, &plain, |spec| spec["versions"][0]["subresources"] = json!({})).await?;
    let home = test.name().to_owned();
    let namespaces = test.everywhere(&NAMESPACE);
    namespaces.merge(&home, &labels(json!({ "on": home }))).await?;
    let mut five = vec![(NAMESPACE.clone(), namespaces)];
    for (kind, place, field, value) in [
        (CONFIG_MAP.clone(), test.config_maps(), "data", json!({})),
        (SERVICE.clone(), test.within(&SERVICE), "spec", json!({ "ports": [{ "port": 80 }] })),
        (plain.clone(), test.within(&plain), "spec", json!({})),
        (roles.clone(), test.everywhere(roles), "rules", json!([])),
    ] {
        let mut object = labels(json!({ "on": home }));
        (object["apiVersion"], object["kind"]) = (json!(kind.api_version()), json!(kind.kind));
        (object["metadata"]["name"], object[field]) = (json!(home), value);
        test.make(&place, object).await?;
        five.push((kind, place));
    }
    Ok(five)
}

/// Objects of either scope are decorated, with a definition and without, with a status and without.
pub(crate) async fn objects_of_any_kind_and_scope_are_decorated(test: &mut Fixture) -> Result<()> {
    let roles = Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
    let five = five(test, &roles).await?;
    let home = test.name().to_owned();
    let own = home.clone();
    let webhook = Webhook::serve(move |asked| of_any_kind(&own, asked)).await?;
    let mut controller = test.decorator().attaching(&CONFIG_MAP, "InPlace").attaching(&roles, "InPlace");
    for (kind, _) in &five {
        controller = controller.decorating(kind, of(test));
    }
    test.serve()?;
    test.host_decorator(controller.synced_by(sync(&webhook))).await?;
    for (kind, place) in &five {
        let low = kind.kind.to_lowercase();
        let object = place.until(&home, "decorated", |object| label(object, "decorated") == low).await?;
        let made = test.config_maps().until(&format!("of-{low}"), "attached", |_| true).await?;
        let owner = json!([{
            "apiVersion": kind.api_version(), "kind": kind.kind, "name": home, "uid": uid(&object),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        ensure!(made["metadata"]["ownerReferences"] == owner, "{made}");
        ensure!(text(&made, DECORATOR) == home, "{made}");
        // A change makes the server look again, now that the kind is there.
        place.merge(&home, &labels(json!({ "touched": "yes" }))).await?;
    }
    for (kind, group, key) in [
        ("Service", "ConfigMap.v1", "of-service".to_owned()),
        ("Namespace", "ConfigMap.v1", format!("{home}/of-namespace")),
        ("ClusterRole", "ConfigMap.v1", format!("{home}/of-clusterrole")),
        ("ClusterRole", ROLE, format!("{home}-attached")),
    ] {
        let shown = |asked: &Asked| {
            asked.body["object"]["kind"] == kind && asked.body["attachments"][group].get(&key).is_some()
        };
        webhook.until_asked(&format!("about a {kind} with {key}"), shown).await?;
    }
    let counted = |dc: &Value| dc["status"]["parents"] == 5 && dc["status"]["failing"] == 0;
    test.decorators().until(&home, "five objects", counted).await?;
    // What is said of an object without a namespace lies in `default`.
    webhook.answer(Answer::text("it broke").with_status(500));
    let namespace = test.everywhere(&NAMESPACE).merge(&home, &labels(json!({ "touched": "again" }))).await?;
    let told = |event: &Value| text(event, "/message").contains("it broke");
    test.until_event_on(&namespace, "SyncError", told).await?;
    Ok(())
}

/// Two kinds of objects of one controller, with objects of one name: what is attached to the one is the other, and is seen
/// by what it is written by.
pub(crate) async fn what_is_written_for_an_object_wakes_another_of_its_name(
    test: &mut Fixture,
) -> Result<()> {
    let (home, greetings) = (test.name().to_owned(), test.kind().clone());
    let program = move |asked: &Asked| {
        if asked.path == "/customize" {
            let rule =
                json!({ "apiVersion": greetings.api_version(), "resource": "greetings", "names": ["p"] });
            return json!({ "relatedResources": [rule] }).into();
        }
        if asked.body["object"]["kind"] == "ConfigMap" {
            let group = format!("Greeting.{}", greetings.api_version());
            let saw = label(&asked.body["related"][group]["p"], "round");
            return json!({ "annotations": { "saw": saw } }).into();
        }
        let map = config_map("p", json!({ "on": home }), json!({}));
        json!({ "labels": { "round": asked.body["object"]["spec"]["round"] }, "attachments": [map] }).into()
    };
    test.define_kind().await?;
    let webhook = Webhook::serve(program).await?;
    test.serve()?;
    let controller = test.decorator().decorating(test.kind(), json!({})).decorating(&CONFIG_MAP, of(test));
    let controller = controller.attaching(&CONFIG_MAP, "InPlace").synced_by(sync(&webhook));
    test.host_decorator(controller.customized_by(Hook::webhook(&webhook.url("/customize")))).await?;
    test.create(test.parent("p").with(json!({ "round": "1" }))).await?;
    let saw = |round: &'static str| move |map: &Value| map["metadata"]["annotations"]["saw"] == round;
    test.config_maps().until("p", "decorated by what it was attached to", saw("1")).await?;
    test.parents().merge("p", &json!({ "spec": { "round": "2" } })).await?;
    test.config_maps().until("p", "decorated by its next label", saw("2")).await?;
    Ok(())
}

/// Labels and annotations of objects, and whether a rule is about them.
fn selected() -> Vec<(&'static str, Value, Value, bool)> {
    vec![
        ("both", json!({ "l": "1" }), json!({ "a": "1" }), true),
        ("no-annotation", json!({ "l": "1" }), json!({}), false),
        ("other-annotation", json!({ "l": "1" }), json!({ "a": "2" }), false),
        ("no-label", json!({}), json!({ "a": "1" }), false),
        ("any-text", json!({ "l": "2" }), json!({ "a": "what a label = may never be, \u{fc}" }), true),
        ("not-in", json!({ "l": "3" }), json!({ "a": "", "b": "x" }), false),
        ("not-in-others", json!({ "l": "3" }), json!({ "a": "", "b": "y" }), true),
        ("other-label", json!({ "l": "4" }), json!({ "a": "" }), false),
        ("in", json!({}), json!({ "c": "2" }), true),
        ("exists", json!({ "l": "1" }), json!({ "c": "2", "d": "" }), false),
        ("not-among", json!({}), json!({ "c": "3" }), false),
        ("nothing", json!({}), json!({}), false),
    ]
}

/// Three rules are about one kind, one of them by another version of it: an object is decorated where one of them is met
/// in all that it asks for.
pub(crate) async fn labels_and_annotations_are_asked_for_together_and_rules_of_one_kind_apart(
    test: &mut Fixture,
) -> Result<()> {
    let kind = test.kind().clone();
    let other = Kind { version: "v2".to_owned(), ..kind.clone() };
    define(test, &kind, |spec| {
        let mut second = spec["versions"][0].clone();
        (second["name"], second["storage"]) = (json!("v2"), json!(false));
        let first = spec["versions"][0].take();
        spec["versions"] = json!([first, second]);
    })
    .await?;
    let seen = json!({ "labels": { "decorated": "yes" }, "attachments": [] });
    let webhook = Webhook::answering(seen).await?;
    test.serve()?;
    let first = json!({
        "labelSelector": { "matchLabels": { "l": "1" } },
        "annotationSelector": { "matchAnnotations": { "a": "1" } },
    });
    let second = json!({
        "labelSelector": { "matchExpressions": [{ "key": "l", "operator": "In", "values": ["2", "3"] }] },
        "annotationSelector": { "matchExpressions": [
            { "key": "a", "operator": "Exists" }, { "key": "b", "operator": "NotIn", "values": ["x"] },
        ] },
    });
    let third = json!({ "annotationSelector": { "matchExpressions": [
        { "key": "c", "operator": "In", "values": ["1", "2"] }, { "key": "d", "operator": "DoesNotExist" },
    ] } });
    let controller = test.decorator().decorating(&kind, first).decorating(&kind, second);
    let controller = controller.decorating(&other, third).synced_by(sync(&webhook));
    let hosted = test.host_decorator(controller).await?;
    for told in ["KindInTwoVersions", "KindDeclaredAgain"] {
        test.until_event_on(&hosted, told, |event| event["type"] == "Warning").await?;
    }
    let place = test.parents();
    for (name, labels, annotations, _) in selected() {
        let metadata = json!({ "labels": labels, "annotations": annotations });
        test.make(&place, thing(&kind, name, metadata, json!({}))).await?;
    }
    let is_decorated = |object: &Value| label(object, "decorated") == "yes";
    // What comes after is told of in order.
    let wanted = json!({ "labels": { "l": "1" }, "annotations": { "a": "1" } });
    test.make(&place, thing(&kind, "last", wanted, json!({}))).await?;
    place.until("last", "decorated", is_decorated).await?;
    for (name, _, _, wanted) in selected() {
        if wanted {
            place.until(name, "decorated", is_decorated).await?;
        } else {
            ensure!(!is_decorated(&place.get(name).await?), "{name} is decorated");
            ensure!(times(&webhook, name) == 0, "asked about {name}");
        }
    }
    let versions = webhook.asked().into_iter().map(|asked| asked.body["object"]["apiVersion"].clone());
    let first_version = json!(kind.api_version());
    ensure!(versions.clone().all(|version| version == first_version), "{:?}", versions.collect::<Vec<_>>());

    // Changes of annotations count as well.
    place.merge("no-annotation", &annotations(json!({ "a": "1" }))).await?;
    place.until("no-annotation", "decorated once it matches", is_decorated).await?;
    place.merge("exists", &annotations(json!({ "d": null }))).await?;
    place.until("exists", "decorated once it matches", is_decorated).await?;
    Ok(())
}

/// Without a finalize hook an object that no longer matches is left with all that it was given.
pub(crate) async fn an_object_that_stops_matching_is_left_as_it_is(test: &mut Fixture) -> Result<()> {
    let program = |asked: &Asked| {
        let number = asked.body["object"]["data"]["number"].clone();
        json!({ "labels": { "number": number }, "attachments": [attachment(&format!("of-{}", name(asked)))] })
            .into()
    };
    let webhook = decorated(test, program, |controller, _| controller).await?;
    let maps = test.config_maps();
    for name in ["p", "last"] {
        make_map(test, name).await?;
        maps.merge(name, &json!({ "data": { "number": "1" } })).await?;
        maps.until(name, "decorated", |map| label(map, "number") == "1").await?;
    }
    let made = maps.until("of-p", "attached", |_| true).await?;
    let mut change = labels(json!({ "on": null }));
    change["data"] = json!({ "number": "2" });
    let off = maps.merge("p", &change).await?;
    maps.merge("last", &json!({ "data": { "number": "2" } })).await?;
    maps.until("last", "decorated again", |map| label(map, "number") == "2").await?;
    let still = maps.get("p").await?;
    ensure!(version(&still) == version(&off) && label(&still, "number") == "1", "{still}");
    ensure!(version(&maps.get("of-p").await?) == version(&made), "its attachment was touched");
    let about =
        |asked: &&Asked| is_about(asked, "/sync", "p") && asked.body["object"]["data"]["number"] == "2";
    ensure!(webhook.asked().iter().filter(about).count() == 0, "asked about what no longer matches");
    // Its attachments go with it.
    maps.delete("p").await?;
    maps.until_gone("of-p").await
}

/// A decorator that cannot run says why, on the controller, and heals.
pub(crate) async fn a_decorator_that_cannot_run_says_why_and_heals(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::answering(json!({ "labels": { "decorated": "yes" }, "attachments": [] })).await?;
    let later = Kind::new(&format!("later.{}", test.kind().group), "v1", "Later", "laters");
    test.serve()?;
    let base = |test: &Fixture, name: &str| {
        test.decorator().renamed(&format!("{}-{name}", test.name())).synced_by(sync(&webhook))
    };
    let long = json!({ "annotationSelector": { "matchAnnotations": { "a": "no label value" } } });
    let selector = base(test, "a").decorating(&CONFIG_MAP, of(test)).decorating(&SERVICE, long);
    let unknown = base(test, "b").decorating(&later, json!({}));
    let hookless = base(test, "c").decorating(&CONFIG_MAP, of(test)).with("hooks", json!({}));
    for (controller, says) in [
        (selector, "spec.resources[1].annotationSelector"),
        (unknown, "laters"),
        (hookless, "spec.hooks.sync"),
    ] {
        let hosted = test.host_decorator(controller).await?;
        let told = |event: &Value| {
            let message = text(event, "/message");
            event["type"] == "Warning"
                && message.starts_with("Cannot create new controller: ")
                && message.contains(says)
        };
        test.until_event_on(&hosted, "CreateError", told).await?;
        let name = text(&hosted, "/metadata/name");
        let refused = |dc: &Value| {
            condition(dc, "Ready")
                .is_some_and(|ready| ready["status"] == "False" && text(ready, "/message").contains(says))
        };
        test.decorators().until(name, "not ready", refused).await?;
    }
    make_map(test, "p").await?;
    test.define(&later).await?;
    let mut rule = of(test);
    (rule["apiVersion"], rule["resource"]) = (json!("v1"), json!("configmaps"));
    let heals = [
        ("a", json!({ "resources": [rule] })),
        ("b", json!({})),
        ("c", json!({ "hooks": { "sync": { "webhook": { "url": webhook.url("/sync") } } } })),
    ];
    for (name, spec) in heals {
        let name = format!("{}-{name}", test.name());
        test.decorators().merge(&name, &json!({ "spec": spec })).await?;
        test.decorators().until(&name, "ready", |dc| is_true(dc, "Ready")).await?;
    }
    test.config_maps().until("p", "decorated", |map| label(map, "decorated") == "yes").await?;
    Ok(())
}

/// A label from an annotation.
fn labels_of_round(asked: &Asked) -> Answer {
    let round = asked.body["object"]["metadata"]["annotations"]["round"].clone();
    json!({ "labels": { "round": round }, "attachments": [] }).into()
}

/// The object `p` is annotated, and gets its label.
async fn round(place: &Objects, round: &str) -> Result<()> {
    place.merge("p", &annotations(json!({ "round": round }))).await?;
    place.until("p", "of this round", |object| label(object, "round") == round).await.map(drop)
}

/// Objects of the kinds that are served are decorated; the others are told of, and theirs are decorated once they are
/// served, for as long as they are.
pub(crate) async fn a_kind_that_is_not_served_holds_up_no_other_one(test: &mut Fixture) -> Result<()> {
    let later = Kind::new(&format!("later.{}", test.kind().group), "v1", "Later", "laters");
    let two = later.clone();
    let _webhook = decorated(test, labels_of_round, |dc, _| dc.decorating(&two, json!({}))).await?;
    let (maps, name) = (test.config_maps(), test.name().to_owned());
    make_map(test, "p").await?;
    round(&maps, "1").await?;
    let missing = |dc: &Value| {
        let kinds = condition(dc, "KindsServed");
        is_true(dc, "Ready")
            && kinds
                .is_some_and(|kinds| kinds["status"] == "False" && text(kinds, "/message").contains("laters"))
    };
    let dc = test.decorators().until(&name, "one kind missing", missing).await?;
    let told = |event: &Value| event["type"] == "Warning" && text(event, "/message").contains("laters");
    test.until_event_on(&dc, "KindNotServed", told).await?;

    test.define(&later).await?;
    let laters = test.within(&later);
    test.make(&laters, thing(&later, "p", json!({}), json!({}))).await?;
    round(&laters, "1").await?;
    round(&maps, "2").await?;
    let served = |dc: &Value| is_true(dc, "Ready") && is_true(dc, "KindsServed");
    test.decorators().until(&name, "all kinds served", served).await?;

    let definition = format!("{}.{}", later.plural, later.group);
    test.definitions().delete(&definition).await?;
    test.definitions().until_gone(&definition).await?;
    test.decorators().until(&name, "one kind missing again", missing).await?;
    round(&maps, "3").await
}

/// An `APIService` without a server behind it, as one whose Pods are gone: its kind is named, and taken up after the repair.
pub(crate) async fn c30_a_broken_aggregated_api_holds_up_no_other_kind(test: &mut Fixture) -> Result<()> {
    let broken = Kind::new(&format!("broken.{}", test.kind().group), "v1beta1", "Thing", "things");
    let services = test.everywhere(&Kind::new("apiregistration.k8s.io", "v1", "APIService", "apiservices"));
    let service = format!("{}.{}", broken.version, broken.group);
    let object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": { "name": service },
        "spec": {
            "group": broken.group, "version": broken.version, "groupPriorityMinimum": 10, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": { "namespace": test.name(), "name": "none" },
        },
    });
    test.make(&services, object).await?;
    let is_broken =
        |seen: &Value| condition(seen, "Available").is_some_and(|available| available["status"] == "False");
    services.until(&service, "unavailable", is_broken).await?;
    let two = broken.clone();
    let _webhook = decorated(test, labels_of_round, |dc, _| dc.decorating(&two, json!({}))).await?;
    let (maps, name) = (test.config_maps(), test.name().to_owned());
    make_map(test, "p").await?;
    round(&maps, "1").await?;
    let says = [format!("{} things", broken.api_version()), format!("kubectl get apiservice {service}")];
    let missing = |dc: &Value| {
        is_true(dc, "Ready")
            && condition(dc, "KindsServed").is_some_and(|kinds| {
                kinds["status"] == "False" && says.iter().all(|one| text(kinds, "/message").contains(one))
            })
    };
    test.decorators().until(&name, "the broken kind named", missing).await?;

    services.delete(&service).await?;
    services.until_gone(&service).await?;
    test.define(&broken).await?;
    let things = test.within(&broken);
    test.make(&things, thing(&broken, "p", json!({}), json!({}))).await?;
    round(&things, "1").await?;
    round(&maps, "2").await?;
    let served = |dc: &Value| is_true(dc, "Ready") && is_true(dc, "KindsServed");
    test.decorators().until(&name, "all kinds served", served).await?;
    Ok(())
}

/// Events tell of a controller's life; another spec starts it anew, and nothing else does. One that is not for this server
/// has none.
pub(crate) async fn a_decorator_is_started_anew_by_its_spec_alone(test: &mut Fixture) -> Result<()> {
    let program = |_: &Asked| json!({ "attachments": [] }).into();
    let webhook = decorated(test, program, |controller, _| controller).await?;
    make_map(test, "p").await?;
    let name = test.name().to_owned();
    let (unlabelled, rule) = (format!("{name}-other"), of(test));
    let foreign = test.decorator().renamed(&unlabelled).without_labels().decorating(&CONFIG_MAP, rule);
    test.host_decorator(foreign.synced_by(Hook::webhook(&webhook.url("/unlabelled")))).await?;
    let controller = test.decorators().get(&name).await?;
    let normal =
        |message: String| move |event: &Value| event["type"] == "Normal" && event["message"] == message;
    for (reason, says) in [("Starting", "Starting"), ("Started", "Started")] {
        let message = format!("{says} controller: {name}");
        test.until_event_on(&controller, reason, normal(message)).await?;
    }
    webhook.until_asked("at first", |_| true).await?;
    test.decorators().merge(&name, &labels(json!({ "more": "yes" }))).await?;
    test.config_maps().merge("p", &labels(json!({ "touched": "1" }))).await?;
    let touched =
        |number: &'static str| move |asked: &Asked| label(&asked.body["object"], "touched") == number;
    let asked = webhook.until_asked("after another label", touched("1")).await?;
    let labels = &asked.body["controller"]["metadata"]["labels"];
    ensure!(labels.get("more").is_none(), "hooks see the controller as it was when it was started: {labels}");
    let other = json!({ "spec": { "hooks": { "sync": { "webhook": { "url": webhook.url("/other") } } } } });
    test.decorators().merge(&name, &other).await?;
    let asked = webhook.until_asked("elsewhere", |asked| is_about(asked, "/other", "p")).await?;
    ensure!(asked.body["controller"]["metadata"]["labels"]["more"] == "yes", "{}", asked.body["controller"]);
    test.decorators().delete(&name).await?;
    for (reason, says) in [("Stopping", "Stopping"), ("Stopped", "Stopped")] {
        let message = format!("{says} controller: {name}");
        test.until_event_on(&controller, reason, normal(message)).await?;
    }
    ensure!(condition(&test.decorators().get(&unlabelled).await?, "Ready").is_none(), "it was hosted");
    ensure!(!webhook.asked().iter().any(|asked| asked.path == "/unlabelled"), "it was hosted");
    Ok(())
}
