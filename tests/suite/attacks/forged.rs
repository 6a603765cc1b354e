//! Attacks by a user who writes ControllerRevisions: forged states of a parent neither flood the hook nor block it.

use acceptance::fixture::Fixture;
use acceptance::objects::{text, uid};
use acceptance::webhook::{Answer, Asked};
use anyhow::Result;
use serde_json::{Value, json};

use crate::attacks::form;
use crate::compat::rolling_update::{answer, asks_for, have, revisions, rolling, updated};

/// The image about which the hook fails.
const POISON: u64 = 666;

fn image(asked: &Asked) -> u64 {
    asked.body["parent"]["spec"]["image"].as_u64().unwrap_or_default()
}

/// A revision with the owner reference of a parent, by another author than the server.
async fn forge(test: &Fixture, parent: &Value, name: &str, image: u64) -> Result<()> {
    let labels = json!({
        "controller-uid": uid(parent),
        "metacontroller.k8s.io/apiGroup": test.kind().group, "metacontroller.k8s.io/resource": "greetings",
    });
    let owner = json!([{
        "apiVersion": test.kind().api_version(), "kind": test.kind().kind, "name": text(parent, "/metadata/name"),
        "uid": uid(parent), "controller": true,
    }]);
    let revision = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "ControllerRevision",
        "metadata": { "name": name, "labels": labels, "ownerReferences": owner },
        "parentPatch": { "spec": { "image": image } },
        "children": [{ "apiGroup": test.kind().group, "kind": "Member", "names": ["m-0"] }],
    });
    revisions(test).create(revision).await.map(drop)
}

pub(crate) async fn forged_revisions_are_pruned_and_asked_about_in_small_numbers(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = rolling(test, "RollingInPlace", json!({}), |asked| answer(asked).into()).await?;
    let parent = test.create(test.parent("p").with(json!({ "image": 1, "replicas": 3 }))).await?;
    have(test, &[1; 3]).await?;
    test.server().kill().await?;
    for nth in 0..form(100, 1000) {
        forge(test, &parent, &format!("forged-{nth}"), 1000 + nth).await?;
    }
    let before = webhook.asked().len();
    test.server().start()?;
    revisions(test).until_all("the forged ones gone", |all| all.len() == 1).await?;
    let asked = webhook.asked();
    let asked = asked.get(before..).unwrap_or_default();
    let runs = asked.split(|one| image(one) == 1).map(<[Asked]>::len);
    let most = runs.max().unwrap_or_default();
    let most = f64::from(u32::try_from(most)?);
    test.at_most("calls about older states in a reconcile", most, "calls", 50.0)?;
    test.until_event("p", "RevisionsPruned", |_| true).await?;
    asks_for(test, json!({ "image": 2 })).await?;
    have(test, &[2; 3]).await.map(drop)
}

/// Fails about the poison, and finalizes at once.
fn program(asked: &Asked) -> Answer {
    if image(asked) == POISON {
        return Answer::status(500);
    }
    let mut answer = answer(asked);
    if asked.body["finalizing"] == true {
        answer["children"] = json!([]);
        answer["finalized"] = json!(true);
    }
    answer.into()
}

pub(crate) async fn a_revision_that_breaks_the_hook_blocks_neither_sync_nor_finalize(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = rolling(test, "RollingInPlace", json!({}), program).await?;
    let hooks = json!({ "finalize": { "webhook": { "url": webhook.url("/finalize") } } });
    test.controllers().merge(test.name(), &json!({ "spec": { "hooks": hooks } })).await?;
    let parent = test.create(test.parent("p").with(json!({ "image": 1, "replicas": 3 }))).await?;
    have(test, &[1; 3]).await?;
    forge(test, &parent, "forged", POISON).await?;
    let named = |event: &Value| text(event, "/message").contains("ControllerRevision forged");
    test.until_event("p", "RevisionLeftOut", named).await?;
    asks_for(test, json!({ "image": 2 })).await?;
    have(test, &[2; 3]).await?;
    updated(test, "True", "OnLatestRevision", "latest ControllerRevision").await?;
    test.server().kill().await?;
    forge(test, &parent, "forged-again", POISON).await?;
    test.parents().delete("p").await?;
    test.server().start()?;
    test.parents().until_gone("p").await
}
