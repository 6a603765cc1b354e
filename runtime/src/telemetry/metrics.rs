//! What is measured, in the words of Prometheus: made at each scrape from what the running controllers counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use metahook_core::controller_metrics::{BUCKETS, ControllerMetrics};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::sync::lock;
use crate::telemetry::webhooks::Webhooks;

/// The content type of what is encoded.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All controllers that run. One that ended is gone from the next scrape.
#[derive(Clone)]
pub(crate) struct Metrics {
    meters: Arc<Mutex<Vec<Weak<Meter>>>>,
    pub(crate) webhooks: Webhooks,
    /// Modules compiled so far.
    compilations: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// What one controller counts.
pub(crate) struct Meter {
    name: String,
    kind: String,
    tally: Mutex<ControllerMetrics>,
}

/// Name, kind, and what a sum is split by.
type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Metrics {
    pub(crate) fn new(compilations: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { meters: Arc::default(), webhooks: Webhooks::default(), compilations: Arc::new(compilations) }
    }

    pub(crate) fn meter(&self, kind: &str, name: &str) -> Arc<Meter> {
        let meter = Arc::new(Meter { name: name.to_owned(), kind: kind.to_owned(), tally: Mutex::default() });
        let mut meters = lock(&self.meters);
        meters.retain(|meter| meter.strong_count() > 0);
        meters.push(Arc::downgrade(&meter));
        meter
    }

    /// The text that a scrape gets.
    pub(crate) fn text(&self) -> String {
        let mut registry = Registry::with_prefix("metahook");
        registry.register_collector(Box::new(self.clone()));
        let mut peer = Registry::default();
        peer.register_collector(Box::new(self.webhooks.clone()));
        let mut out = String::new();
        let encoded = text::encode_registry(&mut out, &registry)
            .and_then(|()| text::encode_registry(&mut out, &peer))
            .and_then(|()| text::encode_eof(&mut out));
        match encoded {
            Ok(()) => out,
            // Writing to a string does not fail.
            Err(fmt::Error) => String::new(),
        }
    }
}

impl Meter {
    pub(crate) fn tally(&self) -> MutexGuard<'_, ControllerMetrics> {
        lock(&self.tally)
    }

    fn labels<'a>(&'a self, more: Option<(&'static str, &'a str)>) -> Labels<'a> {
        let both = [("controller_name", self.name.as_str()), ("controller_type", self.kind.as_str())];
        both.into_iter().chain(more).collect()
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let meters: Vec<_> = lock(&self.meters).iter().filter_map(Weak::upgrade).collect();
        let tallies: Vec<_> = meters.iter().map(|meter| (meter, meter.tally().clone())).collect();
        let mut sums =
            |name, help, split: &'static str, of: fn(&ControllerMetrics) -> Vec<(&'static str, u64)>| {
                let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
                for (meter, tally) in &tallies {
                    for (value, sum) in of(tally) {
                        counter(&mut metric, &meter.labels(Some((split, value))), sum)?;
                    }
                }
                Ok(())
            };
        sums("hook_calls", "Calls of hooks by result", "result", |tally| pairs(&tally.calls))?;
        sums("passes", "Passes over parents by what came of them", "result", |tally| pairs(&tally.passes))?;
        sums("writes", "Writes to the API server", "operation", |tally| pairs(&tally.writes))?;
        let mut gauges = |name, help, of: fn(&ControllerMetrics) -> u64| {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (meter, tally) in &tallies {
                gauge(&mut metric, &meter.labels(None), of(tally))?;
            }
            Ok(())
        };
        gauges("parents", "Objects that a controller is responsible for", |tally| wide(tally.parents))?;
        gauges("parents_settled", "Parents for which there is nothing to do", |tally| wide(tally.settled))?;
        gauges("parents_failing", "Parents whose last pass failed", |tally| wide(tally.failing))?;
        gauges("hook_memory_max_bytes", "Most memory that a call had", |tally| tally.most_memory)?;
        gauges("hook_instructions_max", "Most instructions that a call took", |tally| {
            tally.most_instructions
        })?;
        durations(&mut encoder, &tallies)?;
        let metric = encoder.encode_descriptor(
            "module_compilations",
            "Modules compiled since the server started",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new((self.compilations)()).encode(metric)
    }
}

fn durations(
    encoder: &mut DescriptorEncoder<'_>,
    tallies: &[(&Arc<Meter>, ControllerMetrics)],
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(
        "hook_call_duration_seconds",
        "Time from a request to its answer",
        None,
        MetricType::Histogram,
    )?;
    for (meter, tally) in tallies {
        let counted = tally.durations.buckets.iter().sum::<u64>();
        let longer = (f64::INFINITY, tally.durations.count - counted);
        let buckets: Vec<_> =
            BUCKETS.into_iter().zip(tally.durations.buckets).chain(std::iter::once(longer)).collect();
        let labels = meter.labels(None);
        metric.encode_family(&labels)?.encode_histogram::<Labels<'_>>(
            tally.durations.sum,
            tally.durations.count,
            &buckets,
            None,
        )?;
    }
    Ok(())
}

fn counter(metric: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: u64) -> fmt::Result {
    ConstCounter::new(value).encode(metric.encode_family(labels)?)
}

fn gauge(metric: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: u64) -> fmt::Result {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric.encode_family(labels)?)
}

fn pairs(map: &BTreeMap<&'static str, u64>) -> Vec<(&'static str, u64)> {
    map.iter().map(|(name, sum)| (*name, *sum)).collect()
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metahook_core::api::hook::HookName;
    use metahook_core::controller_metrics::{Called, OK};

    use super::*;

    #[test]
    fn a_scrape_tells_what_running_controllers_counted_and_forgets_those_that_ended() {
        let metrics = Metrics::new(|| 3);
        let meter = metrics.meter("CompositeController", "c");
        let took = Duration::from_micros(30);
        meter.tally().called(Called { hook: HookName::Sync, result: OK, took, memory: 5, instructions: 7 });
        meter.tally().wrote("create");
        meter.tally().parents = 2;
        let text = metrics.text();
        let labels = r#"controller_name="c",controller_type="CompositeController""#;
        for line in [
            format!(r#"metahook_hook_calls_total{{{labels},result="ok"}} 1"#),
            format!(r#"metahook_writes_total{{{labels},operation="create"}} 1"#),
            format!("metahook_parents{{{labels}}} 2"),
            format!("metahook_hook_memory_max_bytes{{{labels}}} 5"),
            format!("metahook_hook_call_duration_seconds_count{{{labels}}} 1"),
            format!(r#"metahook_hook_call_duration_seconds_bucket{{le="0.00005",{labels}}} 1"#),
            format!(r#"metahook_hook_call_duration_seconds_bucket{{le="+Inf",{labels}}} 1"#),
            "metahook_module_compilations_total 3".to_owned(),
            "# EOF".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        drop(meter);
        assert!(!metrics.text().contains("controller_name"), "{}", metrics.text());
    }
}
