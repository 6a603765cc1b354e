//! Section 8.7 of the compatibility contract: metrics under the names that dashboards for Metacontroller ask for.

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::metrics::Scrape;
use acceptance::objects::{Hook, config_map};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::Webhook;
use anyhow::{Result, ensure};
use serde_json::json;

use crate::settling::scrape_text;

/// Metrics of a queue, each of which has the labels `name` and `controller`.
const OF_QUEUES: [&str; 9] = [
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds_count",
    "workqueue_queue_duration_seconds_bucket",
    "workqueue_work_duration_seconds_count",
    "workqueue_work_duration_seconds_bucket",
];

/// Metrics of the process.
const OF_PROCESS: [&str; 6] = [
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
];

pub(crate) async fn dashboards_find_the_metrics_of_controllers_written_in_go(
    test: &mut Fixture,
) -> Result<()> {
    let hook = Webhook::answering(json!({ "children": [config_map("child", json!({}), json!({}))] })).await?;
    test.define_kind().await?;
    let address = free_address()?;
    test.server().flag(&format!("--metrics-address={address}"));
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&hook.url("/sync")))).await?;
    let refused = format!("{}-refused", test.name());
    let without_url = json!({ "sync": { "webhook": {} } });
    test.host(test.controller().renamed(&refused).with("hooks", without_url)).await?;
    test.create(test.parent("a")).await?;
    test.config_maps().until("child", "made", |_| true).await?;

    let name = format!("CompositeController-{}", test.name());
    let queue = [("name", name.as_str()), ("controller", name.as_str())];
    let manager = |result| [("controller", "composite-metacontroller"), ("result", result)];
    let told = |scrape: &Scrape| {
        let at_least = |name: &str, labels: &[(&str, &str)], least: f64| {
            scrape.sum(name, labels).is_some_and(|sum| sum >= least)
        };
        OF_QUEUES.iter().all(|name| at_least(name, &queue, 0.0))
            && at_least("workqueue_adds_total", &queue, 1.0)
            && at_least("workqueue_work_duration_seconds_count", &queue, 1.0)
            && OF_PROCESS.iter().all(|name| at_least(name, &[], f64::MIN_POSITIVE))
            && at_least("rest_client_requests_total", &[("code", "201"), ("method", "POST")], 1.0)
            && at_least("controller_runtime_reconcile_total", &manager("success"), 2.0)
            && at_least("controller_runtime_reconcile_total", &manager("error"), 1.0)
            && at_least("controller_runtime_reconcile_errors_total", &manager("error")[..1], 1.0)
            && at_least("controller_runtime_reconcile_time_seconds_count", &manager("success")[..1], 2.0)
    };
    until("all metrics", PATIENCE, async || {
        let Ok(page) = scrape_text(address).await else { return Ok(Err("no scrape".to_owned())) };
        // What is not of the format fails the test.
        Ok(if told(&Scrape::parse(&page)?) { Ok(()) } else { Err(page) })
    })
    .await?;

    // One series for each controller, however many parents there are.
    let before = Scrape::parse(&scrape_text(address).await?)?;
    for nth in 0..20 {
        test.create(test.parent(&format!("more-{nth}"))).await?;
    }
    hook.until_asked_again(20).await?;
    let after = Scrape::parse(&scrape_text(address).await?)?;
    for family in ["workqueue_adds_total", "controller_runtime_reconcile_total", "process_open_fds"] {
        let count = |scrape: &Scrape| scrape.values(family, &[]).count();
        ensure!(count(&before) == count(&after), "{family}: {after:?}");
    }
    Ok(())
}
