//! Section 4 of the compatibility contract: children that another object, controller or client owns, makes or changes.

use acceptance::api::{CONFIG_MAP, SECRET};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, text, uid};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::child_management::{controller, same};
use super::kinds::WAYS;

use crate::pages::symptoms;

pub(crate) async fn a_taken_name_is_reported_with_its_owner_and_left(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked: &Asked| {
        let name = text(&asked.body, "/parent/metadata/name");
        json!({ "children": [config_map(name, json!({}), json!({ "is": "ours" }))] }).into()
    })
    .await?;
    test.define_kind().await?;
    let owner = test.create(test.parent("owner")).await?;
    let reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": "owner",
        "uid": uid(&owner), "controller": true,
    });
    let mut taken = Vec::new();
    for way in [WAYS[0], WAYS[2]] {
        let mut map = config_map(way.name, json!({}), json!({ "is": "theirs" }));
        map["metadata"]["ownerReferences"] = json!([reference]);
        taken.push(test.make(&test.config_maps(), map).await?);
    }
    test.serve()?;
    for way in [WAYS[0], WAYS[2]] {
        let controller = controller(test, way, &webhook);
        test.host(controller).await?;
        test.create(test.parent(way.name).labelled("way", way.name)).await?;
        let told =
            |event: &Value| text(event, "/message").contains("exists already: Greeting owner controls it");
        test.until_event(way.name, "SyncError", told).await?;
    }
    for before in taken {
        same("left", &before, &test.config_maps().get(text(&before, "/metadata/name")).await?)?;
    }
    Ok(())
}

pub(crate) async fn a_value_that_keeps_flipping_is_named_and_put_right_less_often(
    test: &mut Fixture,
) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "child" }, "data": { "k": "b3Vycw==" },
    });
    let map = config_map("child", json!({}), json!({ "k": "ours" }));
    let webhook = Webhook::answering(json!({ "children": [map, secret] })).await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = controller(test, WAYS[0], &webhook);
    let name = format!("{}-{}", test.name(), WAYS[0].name);
    test.host(controller).await?;
    test.create(test.parent("p").labelled("way", WAYS[0].name)).await?;
    let (maps, secrets) = (test.config_maps(), test.within(&SECRET));
    for (place, ours, theirs) in
        [(&maps, json!("ours"), json!("theirs")), (&secrets, json!("b3Vycw=="), json!("dGhlaXJz"))]
    {
        // The server corrects it five times at once.
        for _ in 0..6 {
            place.until("child", "as the hook wants it", |child| child["data"]["k"] == ours).await?;
            place.merge("child", &json!({ "data": { "k": theirs } })).await?;
        }
    }
    let about = |kind: &str| format!("{kind} {}/child is changed back", test.name());
    let of_map = test
        .until_event("p", "ValueFlapping", |event| text(event, "/message").starts_with(&about("ConfigMap")))
        .await?;
    symptoms::is_shown(test, "ValueFlapping", &symptoms::parent(test, "p")).await?;
    let said = text(&of_map, "/message");
    ensure!(said.contains(r#"data.k ("ours" becomes "theirs", by "#), "{said}");
    let of_secret = test
        .until_event("p", "ValueFlapping", |event| text(event, "/message").starts_with(&about("Secret")))
        .await?;
    let said = text(&of_secret, "/message");
    ensure!(said.contains("data.k") && !said.contains("b3Vycw"), "{said}");
    let unstable = |one: &Value| {
        condition(one, "ChildrenStable")
            .is_some_and(|is| is["status"] == "False" && text(is, "/message").contains("(data.k)"))
    };
    test.controllers().until(&name, "not stable", unstable).await?;
    maps.until("child", "put right in the end", |child| child["data"]["k"] == "ours").await?;
    Ok(())
}

pub(crate) async fn two_controllers_of_one_parent_leave_each_others_children_alone(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(|asked: &Asked| {
        let name = asked.path.trim_start_matches('/').to_owned();
        json!({ "children": [config_map(&name, json!({}), json!({}))], "status": {} }).into()
    })
    .await?;
    test.define_kind().await?;
    test.serve()?;
    test.create(test.parent("p")).await?;
    for name in ["one", "two"] {
        let hook = Hook::webhook(&webhook.url(&format!("/{name}")));
        let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook);
        test.host(controller.renamed(&format!("{}-{name}", test.name()))).await?;
    }
    let maps = test.config_maps();
    let (one, two) = (maps.until("one", "made", |_| true).await?, maps.until("two", "made", |_| true).await?);
    let told = |event: &Value| text(event, "/message").contains("was made by the controller");
    test.until_event("p", "ControllersOverlap", told).await?;
    for number in 1..=3 {
        test.parents().merge("p", &json!({ "spec": { "round": number } })).await?;
        for path in ["/one", "/two"] {
            let about = |asked: &Asked| asked.path == path && asked.body["parent"]["spec"]["round"] == number;
            let asked = webhook.until_asked("about the round", about).await?;
            let seen = asked.body["children"]["ConfigMap.v1"].as_object().context("no children")?;
            ensure!(seen.keys().eq([path.trim_start_matches('/')]), "sees another's: {seen:?}");
        }
    }
    same("left", &one, &maps.get("one").await?)?;
    same("left", &two, &maps.get("two").await?)?;
    // Once the other is no more, what it made is the parent's again, and undesired.
    test.controllers().delete(&format!("{}-two", test.name())).await?;
    test.controllers().until_gone(&format!("{}-two", test.name())).await?;
    test.parents().merge("p", &json!({ "spec": { "round": 4 } })).await?;
    maps.until_gone("two").await
}
