//! Metrics in the format of Prometheus, made at each scrape from the counts of running controllers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use metahook_core::controller_metrics::{BUCKETS, ControllerMetrics, Metric, MetricKind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::sync::lock;
use crate::telemetry::webhooks::Webhooks;

/// Content type of a scrape.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All controllers that run. One that ended is gone from the next scrape.
#[derive(Clone)]
pub(crate) struct Metrics {
    meters: Arc<Mutex<Vec<Weak<Meter>>>>,
    pub(crate) webhooks: Webhooks,
    /// Modules compiled so far.
    compilations: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// Counts of one controller.
pub(crate) struct Meter {
    name: String,
    kind: String,
    counts: Mutex<ControllerMetrics>,
}

/// The controller, and the label of one metric.
type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Metrics {
    pub(crate) fn new(compilations: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { meters: Arc::default(), webhooks: Webhooks::default(), compilations: Arc::new(compilations) }
    }

    pub(crate) fn meter(&self, kind: &str, name: &str) -> Arc<Meter> {
        let meter =
            Arc::new(Meter { name: name.to_owned(), kind: kind.to_owned(), counts: Mutex::default() });
        let mut meters = lock(&self.meters);
        meters.retain(|meter| meter.strong_count() > 0);
        meters.push(Arc::downgrade(&meter));
        meter
    }

    /// The text that a scrape gets.
    pub(crate) fn text(&self) -> String {
        let mut registry = Registry::with_prefix("metahook");
        registry.register_collector(Box::new(self.clone()));
        let mut webhooks = Registry::default();
        webhooks.register_collector(Box::new(self.webhooks.clone()));
        let mut out = String::new();
        let encoded = text::encode_registry(&mut out, &registry)
            .and_then(|()| text::encode_registry(&mut out, &webhooks))
            .and_then(|()| text::encode_eof(&mut out));
        match encoded {
            Ok(()) => out,
            // Writing to a string does not fail.
            Err(fmt::Error) => String::new(),
        }
    }
}

impl Meter {
    pub(crate) fn counts(&self) -> MutexGuard<'_, ControllerMetrics> {
        lock(&self.counts)
    }

    fn labels<'a>(&'a self, more: Option<(&'static str, &'a str)>) -> Labels<'a> {
        let both = [("controller_name", self.name.as_str()), ("controller_type", self.kind.as_str())];
        both.into_iter().chain(more).collect()
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let meters: Vec<_> = lock(&self.meters).iter().filter_map(Weak::upgrade).collect();
        let all: Vec<_> = meters.iter().map(|meter| (meter, meter.counts().clone())).collect();
        let mut sums = |metric: Metric, of: fn(&ControllerMetrics) -> Vec<(&'static str, u64)>| {
            let mut family = describe(&mut encoder, metric)?;
            for (meter, metrics) in &all {
                for (value, sum) in of(metrics) {
                    counter(&mut family, &meter.labels(Some((metric.label, value))), sum)?;
                }
            }
            Ok(())
        };
        sums(Metric::HOOK_CALLS, |metrics| pairs(&metrics.calls))?;
        sums(Metric::RECONCILES, |metrics| {
            metrics.reconciles.iter().map(|(result, sum)| (result.as_str(), *sum)).collect()
        })?;
        sums(Metric::WRITES, |metrics| pairs(&metrics.writes))?;
        let mut gauges = |metric, of: fn(&ControllerMetrics) -> u64| {
            let mut family = describe(&mut encoder, metric)?;
            for (meter, metrics) in &all {
                gauge(&mut family, &meter.labels(None), of(metrics))?;
            }
            Ok(())
        };
        gauges(Metric::PARENTS, |metrics| wide(metrics.parents))?;
        gauges(Metric::PARENTS_SETTLED, |metrics| wide(metrics.settled))?;
        gauges(Metric::PARENTS_FAILING, |metrics| wide(metrics.failing))?;
        gauges(Metric::HOOK_MEMORY, |metrics| metrics.most_memory)?;
        gauges(Metric::HOOK_INSTRUCTIONS, |metrics| metrics.most_instructions)?;
        durations(&mut encoder, &all)?;
        ConstCounter::new((self.compilations)()).encode(describe(&mut encoder, Metric::MODULE_COMPILATIONS)?)
    }
}

fn describe<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    metric: Metric,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    let kind = match metric.kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    };
    encoder.encode_descriptor(metric.name, metric.help, None, kind)
}

fn durations(encoder: &mut DescriptorEncoder<'_>, all: &[(&Arc<Meter>, ControllerMetrics)]) -> fmt::Result {
    let mut family = describe(encoder, Metric::HOOK_CALL_DURATION)?;
    for (meter, metrics) in all {
        let durations = &metrics.durations;
        let counted = durations.buckets.iter().sum::<u64>();
        let longer = (f64::INFINITY, durations.count - counted);
        let buckets: Vec<_> =
            BUCKETS.into_iter().zip(durations.buckets).chain(std::iter::once(longer)).collect();
        let labels = meter.labels(None);
        family.encode_family(&labels)?.encode_histogram::<Labels<'_>>(
            durations.sum,
            durations.count,
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
    fn a_scrape_holds_the_counts_of_running_controllers() {
        let metrics = Metrics::new(|| 3);
        let meter = metrics.meter("CompositeController", "c");
        let took = Duration::from_micros(30);
        meter.counts().called(Called { hook: HookName::Sync, result: OK, took, memory: 5, instructions: 7 });
        meter.counts().wrote("create");
        meter.counts().parents = 2;
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
