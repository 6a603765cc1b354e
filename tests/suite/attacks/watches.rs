//! Watches that customize hooks open: their bound, and none is left behind.

use std::time::Duration;

use acceptance::api::Kind;
use acceptance::fixture::Fixture;
use acceptance::wait::{PATIENCE, until};
use anyhow::Result;
use serde_json::{Value, json};

use super::related::{host, refused, serve};
use crate::attacks::measure;
use crate::wasm;

pub(crate) async fn more_watches_than_allowed_are_refused_by_name(test: &mut Fixture) -> Result<()> {
    test.server().flag("--customize-watches-max=2");
    serve(test).await?;
    let rule = |resource: &&str| json!({ "apiVersion": "v1", "resource": resource });
    let rules =
        |resources: &[&str]| json!({ "relatedResources": resources.iter().map(rule).collect::<Vec<_>>() });
    for (name, rules) in [
        ("two", rules(&["configmaps", "services", "configmaps"])),
        ("three", rules(&["configmaps", "services", "serviceaccounts"])),
    ] {
        test.store(name, &wasm::answers(&rules)?).await?;
        host(test, name, test.hook(name)).await?;
        test.create(test.parent(name).labelled("row", name)).await?;
    }
    let fails = "relatedResources[2] needs a watch of v1 ServiceAccount, and the 2 watches that the related objects of a controller may have are open (--customize-watches-max)";
    refused(test, "three", fails).await?;
    let settled = |controller: &Value| controller["status"]["settled"] == 1;
    test.controllers().until(&format!("{}-two", test.name()), "settled", settled).await.map(drop)
}

/// Kinds and their controllers go at the same time, and kinds that rules ask for.
pub(crate) async fn kinds_and_controllers_that_go_together_leave_no_watch(test: &mut Fixture) -> Result<()> {
    const ROUNDS: u64 = 7;
    const KINDS: usize = 16;
    test.server().flag("--discovery-interval=2s");
    let metrics = measure::with_metrics(test)?;
    serve(test).await?;
    let watches = || measure::metric(metrics, "metahook_watches").unwrap_or_default();
    let ready = |controller: &Value| acceptance::objects::is_true(controller, "Ready");
    test.controllers().until(test.name(), "Ready", ready).await?;
    let before = watches();
    // Names of controllers become parts of finalizers, which are short.
    let unique = test.name().rsplit('-').take(2).collect::<Vec<_>>().join("-");
    for round in 0..ROUNDS {
        let mut gone = Vec::new();
        for number in 0..KINDS {
            let group = format!("r{round}k{number}.{}", test.kind().group);
            let kind = Kind::new(&group, "v1", "Greeting", "greetings");
            test.define(&kind).await?;
            let name = format!("go-{round}-{number}-{unique}");
            let hook = test.hook("quiet");
            let controller = test.controller().renamed(&name).over(&kind).finalized_by(hook.clone());
            test.host(controller.synced_by(hook)).await?;
            gone.push((name, format!("greetings.{group}")));
        }
        for (name, kind) in gone {
            test.controllers().until(&name, "Ready", ready).await?;
            let [controllers, definitions] = [test.controllers(), test.definitions()];
            let wait = Duration::from_millis(40 * round);
            let controller = async {
                tokio::time::sleep(wait).await;
                controllers.delete(&name).await
            };
            futures_util::future::try_join(definitions.delete(&kind), controller).await?;
        }
    }
    let what = format!("{before} watches, as before");
    until(&what, PATIENCE, async || {
        let now = watches();
        Ok(if now <= before { Ok(()) } else { Err(format!("{now} watches")) })
    })
    .await?;
    test.at_most("watches left behind", watches() - before, "watches", 0.0)
}
