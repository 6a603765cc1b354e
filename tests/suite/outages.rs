//! Metrics that alerts are made of: a controller that does not work is seen, from its start to its end.

use std::net::SocketAddr;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::config_map;
use acceptance::wait::{PATIENCE, until};
use anyhow::Result;
use serde_json::json;

use crate::settling::scrape_text;
use crate::wasm;

/// Waits until the series of one metric that are about the controller are these.
async fn until_series(test: &Fixture, address: SocketAddr, metric: &str, wanted: &[String]) -> Result<()> {
    let (name, start) = (format!("controller_name=\"{}\"", test.name()), format!("{metric}{{"));
    until(&format!("{metric}: {wanted:?}"), PATIENCE, async || {
        let page = scrape_text(address).await.unwrap_or_default();
        let found: Vec<_> =
            page.lines().filter(|line| line.starts_with(&start) && line.contains(&name)).collect();
        Ok(if found == wanted { Ok(()) } else { Err(format!("{found:?}")) })
    })
    .await
}

pub(crate) async fn a_controller_that_is_not_ready_is_a_metric_until_it_is_gone(
    test: &mut Fixture,
) -> Result<()> {
    let address = free_address()?;
    test.server().flag(&format!("--metrics-address={address}"));
    test.define_kind().await?;
    test.serve()?;
    let labels = format!(r#"controller_name="{}",controller_type="CompositeController""#, test.name());
    let ready =
        |reason, value| [format!(r#"metahook_controller_ready{{{labels},reason="{reason}"}} {value}"#)];
    let of = |metric, value| [format!("{metric}{{{labels}}} {value}")];
    let hook = test.hook("absent");
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    until_series(test, address, "metahook_controller_ready", &ready("ModuleNotLoaded", 0)).await?;

    let child = config_map("child", json!({}), json!({ "is": "here" }));
    let good = wasm::answers(&json!({ "children": [child] }))?;
    test.store("absent", &good).await?;
    until_series(test, address, "metahook_controller_ready", &ready("Running", 1)).await?;
    let (in_use, refused) = ("metahook_last_good_in_use", "metahook_versions_refused_total");
    until_series(test, address, in_use, &of(in_use, 0)).await?;
    until_series(test, address, refused, &of(refused, 0)).await?;

    test.store("absent", b"this is no module").await?;
    until_series(test, address, "metahook_controller_ready", &ready("LastGoodInUse", 1)).await?;
    until_series(test, address, in_use, &of(in_use, 1)).await?;
    until_series(test, address, refused, &of(refused, 1)).await?;
    test.store("absent", &good).await?;
    until_series(test, address, "metahook_controller_ready", &ready("Running", 1)).await?;
    until_series(test, address, in_use, &of(in_use, 0)).await?;

    test.controllers().delete(test.name()).await?;
    for metric in ["metahook_controller_ready", in_use, refused] {
        until_series(test, address, metric, &[]).await?;
    }
    Ok(())
}
