//! Section 4 of the compatibility contract: how children are made, changed and deleted, by a merge of our own or by
//! server-side apply.

use std::collections::BTreeMap;

use acceptance::api::{CONFIG_MAP, Kind, Objects, POD, SECRET};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, condition, config_map, text, uid, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::kinds::{WAYS, Way, children, kinds};
use crate::wasm;

const LAST_APPLIED: &str = "/metadata/annotations/metacontroller.k8s.io~1last-applied-configuration";
const MADE_BY: &str = "/metadata/annotations/metahook.dev~1controller";

/// A controller of parents with the label `way`, which makes children this way.
fn controller(test: &Fixture, way: Way, webhook: &Webhook) -> Composite {
    let all = kinds().iter().fold(test.controller(), |controller, kind| controller.making(kind, way.method));
    all.renamed(&format!("{}-{}", test.name(), way.name))
        .of_parents_with("way", way.name)
        .with("applyStrategy", way.apply)
        .synced_by(Hook::webhook(&webhook.url("/sync")))
}

/// The children of each kind, and the round of the parent as its status.
fn of_all_kinds(asked: &Asked) -> Answer {
    let name = text(&asked.body, "/parent/metadata/name");
    json!({ "children": children(name), "status": { "round": asked.body["parent"]["spec"]["round"] } }).into()
}

async fn all(test: &Fixture, name: &str) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for kind in kinds() {
        all.insert(kind.kind.clone(), test.within(&kind).get(name).await?);
    }
    Ok(all)
}

/// What the server did with objects, but for statuses: writes, writes in vain, dry runs.
fn deeds(log: &str, parent: &str) -> Vec<String> {
    let of_parent = |line: &&str| line.contains(&format!("/{parent}\""));
    let deed = |line: &&str| {
        (line.contains("written") || line.contains("dry run")) && !line.contains("\"op\":\"status\"")
    };
    log.lines().filter(of_parent).filter(deed).map(str::to_owned).collect()
}

async fn round(test: &Fixture, parent: &str, round: u32) -> Result<()> {
    test.parents().merge(parent, &json!({ "spec": { "round": round } })).await?;
    test.parents().until(parent, "its round", |parent| parent["status"]["round"] == round).await?;
    Ok(())
}

pub(crate) async fn after_the_first_write_ten_passes_write_nothing_whatever_the_kind_and_the_strategy(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(of_all_kinds).await?;
    test.define_kind().await?;
    test.serve()?;
    for way in WAYS {
        test.host(controller(test, way, &webhook)).await?;
        test.create(test.parent(way.name).labelled("way", way.name)).await?;
    }
    let mut made = BTreeMap::new();
    for way in WAYS {
        // Whoever else has to do with them, such as the controller of Deployments, has its say.
        test.parents()
            .until(way.name, "a status", |parent| parent["status"]["observedGeneration"] == 1)
            .await?;
        made.insert(way.name, all(test, way.name).await?);
    }
    for number in 1..=10 {
        for way in WAYS {
            round(test, way.name, number).await?;
        }
    }
    let log = test.server().until_log("its log", |_| true).await?;
    for way in WAYS {
        let deeds = deeds(&log, way.name);
        ensure!(deeds.len() == kinds().len(), "{}: more than one write each: {deeds:#?}", way.name);
        same_objects(&made[way.name], &all(test, way.name).await?)?;
    }
    test.server().stop().await?;
    test.server().start()?;
    for number in 11..=13 {
        for way in WAYS {
            round(test, way.name, number).await?;
        }
    }
    let log = test.server().until_log("its log", |_| true).await?;
    for way in WAYS {
        let deeds = deeds(&log, way.name);
        ensure!(!deeds.iter().any(|deed| deed.contains("\"op\":\"recreate\"")), "{}: {deeds:#?}", way.name);
        ensure!(
            deeds.len() <= 2 * kinds().len(),
            "{}: more than one try each after a start: {deeds:#?}",
            way.name
        );
        for (kind, now) in all(test, way.name).await? {
            let before = &made[way.name][&kind];
            ensure!(uid(before) == uid(&now) && before["spec"] == now["spec"], "{kind}: {before}\n{now}");
        }
    }
    Ok(())
}

/// The same objects, which nobody wrote who writes no status.
fn same_objects(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Result<()> {
    for (kind, before) in before {
        let after = &after[kind];
        ensure!(uid(before) == uid(after), "{kind} was made anew");
        let others = before["metadata"].get("generation").is_some();
        if !others {
            ensure!(version(before) == version(after), "{kind} was written: {before}\n{after}");
        }
    }
    Ok(())
}
