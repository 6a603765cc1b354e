//! The budget of all caches: controllers of a kind that exceeds it stop, and others go on.

use acceptance::api::Kind;
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{Parent, condition, has_condition, is_true, text};
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::pages::symptoms;
use crate::settling::scrape_text;
use crate::wasm;

/// Objects of a MB each, more than the 12 MiB of the budget.
const LARGE: u32 = 16;

fn is_synced(parent: &Value) -> bool {
    parent["status"]["is"] == "here"
}

pub(crate) async fn controllers_of_a_kind_that_is_too_large_stop_alone_and_heal(
    test: &mut Fixture,
) -> Result<()> {
    let address = free_address()?;
    test.server().flag("--cache-budget=12Mi");
    test.server().flag(&format!("--metrics-address={address}"));
    test.define_kind().await?;
    let large = Kind::new(&format!("large.{}", test.kind().group), "v1", "Blob", "blobs");
    test.define(&large).await?;
    test.store("hook", &wasm::answers(&json!({ "children": [], "status": { "is": "here" } }))?).await?;
    let name = format!("{}-large", test.name());
    test.host(test.controller().synced_by(test.hook("hook"))).await?;
    test.host(test.controller().renamed(&name).over(&large).synced_by(test.hook("hook"))).await?;
    test.serve()?;
    let (controllers, blobs) = (test.controllers(), test.within(&large));
    test.make(&blobs, Parent::named(&large, "first").json()).await?;
    blobs.until("first", "synced", is_synced).await?;

    // Objects come while the controller works.
    let text_of_a_mb = "x".repeat(1_000_000);
    for nth in 0..LARGE {
        let blob = Parent::named(&large, &format!("blob-{nth}")).with(json!({ "text": text_of_a_mb }));
        test.make(&blobs, blob.json()).await?;
    }
    let is_too_large = |cc: &Value| has_condition(cc, "Ready", "False", "CacheTooLarge");
    let stopped = controllers.until(&name, "CacheTooLarge", is_too_large).await?;
    symptoms::is_shown(test, "CacheTooLarge", &symptoms::controller(&name)).await?;
    let ready = condition(&stopped, "Ready").context("no condition Ready")?;
    let message = text(ready, "/message");
    let kind = format!("{} Blob", large.api_version());
    ensure!(
        message.starts_with(&format!("{kind}: ")) && message.contains("12Mi (--cache-budget)"),
        "{message}"
    );

    // The other one goes on, also while the large kind is listed once more.
    test.create(test.parent("while")).await?;
    test.parents().until("while", "synced", is_synced).await?;
    let lists = |log: &str| log.matches("the caches exceed --cache-budget").count() >= 2;
    test.server().until_log("that a list is left at the budget", lists).await?;
    test.create(test.parent("after")).await?;
    test.parents().until("after", "synced", is_synced).await?;
    let other = controllers.get(test.name()).await?;
    ensure!(is_true(&other, "Ready"), "{}", other["status"]);
    ensure!(is_too_large(&controllers.get(&name).await?), "it is listed again, and not known to fit");
    let series = format!(r#"metahook_cache_bytes{{kind="{kind}"}} "#);
    until("little memory", PATIENCE, async || {
        let page = scrape_text(address).await?;
        ensure!(page.lines().any(|line| line == "metahook_cache_budget_bytes 12582912"), "{page}");
        let bytes = page.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok());
        Ok(if bytes.is_some_and(|bytes| bytes <= 13 << 20) { Ok(()) } else { Err(page) })
    })
    .await?;

    for nth in 0..LARGE {
        blobs.delete(&format!("blob-{nth}")).await?;
    }
    controllers.until(&name, "healed", |cc| is_true(cc, "Ready")).await?;
    test.make(&blobs, Parent::named(&large, "last").json()).await?;
    blobs.until("last", "synced", is_synced).await?;
    Ok(())
}
