//! What the API server itself makes of a controller, before any server of ours sees it.

use acceptance::api::POD;
use acceptance::fixture::Fixture;
use anyhow::{Context, Result, ensure};

pub(crate) async fn webhook_and_wasm_side_by_side_are_refused(test: &mut Fixture) -> Result<()> {
    let both = test.hook("hook").and_webhook("http://hello-controller.hello/sync");
    let refused = test.host(test.controller().making(&POD, "Recreate").synced_by(both)).await;
    let why = format!("{:#}", refused.err().context("both were accepted")?);
    ensure!(
        why.contains("webhook") && why.contains("wasm") && why.contains("422"),
        "refused for another reason: {why}"
    );
    Ok(())
}

pub(crate) async fn a_hook_has_version_v1_unless_it_says_otherwise(test: &mut Fixture) -> Result<()> {
    let made = test.host(test.controller().making(&POD, "Recreate").synced_by(test.hook("hook"))).await?;
    let sync = &made["spec"]["hooks"]["sync"];
    ensure!(sync["version"] == "v1", "{sync}");
    Ok(())
}
