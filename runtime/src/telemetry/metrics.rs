//! Metrics in the format of Prometheus, made at each scrape from the counts of running controllers and of their webhooks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use metahook_core::api::ControllerKind;
use metahook_core::api::hook::HookName;
use metahook_core::api::status::Finding;
use metahook_core::cache::budget::CacheFigures;
use metahook_core::controller_metrics::{BUCKETS, ControllerMetrics, Metric};
use metahook_core::shadow::counts::ShadowCounts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::memory::MemoryBudget;
use crate::queue::QueueFigures;
use crate::sync::lock;
use crate::telemetry::hosted::{self, HostedMeter};
use crate::telemetry::open_watches::OpenWatches;
use crate::telemetry::server_metrics::ServerMetrics;
use crate::telemetry::standard::{self, HostMeter, QueueMeter, RequestCounts};
use crate::telemetry::webhooks;
pub(crate) use crate::telemetry::webhooks::WebMeter;
use crate::telemetry::{ControllerLabels, Labels, describe, labels};

/// Content type of a scrape.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All controllers that run, and their webhooks. One that ended is gone from the next scrape.
#[derive(Clone)]
pub struct Metrics {
    controllers: Arc<Meters<Meter>>,
    hosted: Arc<Meters<HostedMeter>>,
    webhooks: Arc<Meters<WebMeter>>,
    queues: Arc<Meters<QueueMeter>>,
    host: Arc<HostMeter>,
    server: ServerMetrics,
}

/// Meters, as long as their owners hold them.
struct Meters<T>(Mutex<Vec<Weak<T>>>);

/// Counts of one controller.
pub(crate) struct Meter {
    labels: ControllerLabels,
    counts: Mutex<ControllerMetrics>,
}

impl<T> Meters<T> {
    fn add(&self, meter: T) -> Arc<T> {
        let meter = Arc::new(meter);
        let mut meters = lock(&self.0);
        meters.retain(|meter| meter.strong_count() > 0);
        meters.push(Arc::downgrade(&meter));
        meter
    }

    fn all(&self) -> Vec<Arc<T>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}

impl<T> Default for Meters<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl Metrics {
    pub fn new(compilations: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            controllers: Arc::default(),
            hosted: Arc::default(),
            webhooks: Arc::default(),
            queues: Arc::default(),
            host: Arc::default(),
            server: ServerMetrics::new(compilations),
        }
    }

    /// Adds the requests and watches of a client of the API server and the memory budget.
    pub(crate) fn with_server(
        self,
        requests: &RequestCounts,
        watches: &OpenWatches,
        memory: &MemoryBudget,
    ) -> Self {
        let memory = memory.clone();
        let (requests, watches) = (requests.clone(), watches.clone());
        let memory = Arc::new(move || memory.figures());
        Self { server: ServerMetrics { requests, watches, memory, ..self.server }, ..self }
    }

    /// Adds the figures of the caches.
    pub(crate) fn with_caches(self, caches: impl Fn() -> CacheFigures + Send + Sync + 'static) -> Self {
        Self { server: ServerMetrics { caches: Arc::new(caches), ..self.server }, ..self }
    }

    /// Adds the bytes of the traces that the server keeps, and their bound.
    pub(crate) fn with_traces(self, traces: impl Fn() -> (usize, usize) + Send + Sync + 'static) -> Self {
        Self { server: ServerMetrics { traces: Arc::new(traces), ..self.server }, ..self }
    }

    /// Adds the figures of a server that takes part in a leader election.
    pub(crate) fn with_election(self, lease: &str, leads: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let election = Some((lease.into(), Arc::new(leads) as _));
        Self { server: ServerMetrics { election, ..self.server }, ..self }
    }

    /// Adds whether there are other servers with the same controllers.
    pub(crate) fn with_others(self, others: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { server: ServerMetrics { others: Arc::new(others), ..self.server }, ..self }
    }

    pub(crate) fn meter(&self, kind: &str, name: &str) -> Arc<Meter> {
        self.controllers.add(Meter { labels: controller_labels(kind, name), counts: Mutex::default() })
    }

    /// A controller that the server hosts, whether it runs or not. `ready`: its condition `Ready`; `None` while the server
    /// stands by.
    pub(crate) fn hosted(
        &self,
        kind: &str,
        name: &str,
        ready: impl Fn() -> Option<Finding> + Send + Sync + 'static,
    ) -> Arc<HostedMeter> {
        let (labels, ready) = (controller_labels(kind, name), Box::new(ready));
        self.hosted.add(HostedMeter { labels, ready, versions: Mutex::default() })
    }

    pub fn webhook(&self, kind: &str, name: &str, hook: HookName, url: &str) -> Arc<WebMeter> {
        self.webhooks.add(WebMeter::new(kind, name, hook, url))
    }

    /// A queue of a controller; it is in the scrapes as long as the meter is held.
    pub(crate) fn queue(
        &self,
        kind: ControllerKind,
        name: &str,
        figures: impl Fn() -> QueueFigures + Send + Sync + 'static,
    ) -> Arc<QueueMeter> {
        self.queues.add(QueueMeter { name: format!("{}-{name}", kind.as_str()), figures: Box::new(figures) })
    }

    /// The server took a change of a controller in.
    pub(crate) fn took_in(&self, kind: ControllerKind, took: Duration) {
        self.host.took_in(kind, took);
    }

    /// A controller is refused.
    pub(crate) fn refused(&self, kind: ControllerKind) {
        self.host.refused(kind);
    }

    /// The text that a scrape gets.
    pub(crate) fn text(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut out = String::new();
        // Writing to a string does not fail.
        text::encode(&mut out, &registry).map(|()| out).unwrap_or_default()
    }
}

fn controller_labels(kind: &str, name: &str) -> ControllerLabels {
    [("controller_name", name.to_owned()), ("controller_type", kind.to_owned())]
}

impl Meter {
    pub(crate) fn counts(&self) -> MutexGuard<'_, ControllerMetrics> {
        lock(&self.counts)
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_controllers(&mut encoder)?;
        let meters = self.webhooks.all();
        for hook in [HookName::Sync, HookName::Finalize, HookName::Customize] {
            let meters: Vec<_> = meters.iter().filter(|meter| meter.is_of(hook)).collect();
            if !meters.is_empty() {
                webhooks::encode(&mut encoder, hook, &meters)?;
            }
        }
        standard::encode_queues(&mut encoder, &self.queues.all())?;
        self.host.encode(&mut encoder)?;
        standard::encode_requests(&mut encoder, &self.server.requests)?;
        if let Some((lease, leads)) = &self.server.election {
            standard::encode_election(&mut encoder, lease, leads())?;
        }
        standard::encode_process(&mut encoder)
    }
}

impl Metrics {
    fn encode_controllers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let meters = self.controllers.all();
        let all: Vec<_> = meters.iter().map(|meter| (meter, meter.counts().clone())).collect();
        let mut sums = |metric: Metric, of: fn(&ControllerMetrics) -> Vec<(&'static str, u64)>| {
            let name = metric.name();
            let mut family = describe(encoder, &name, metric)?;
            for (meter, metrics) in &all {
                for (value, sum) in of(metrics) {
                    let labels = labels(&meter.labels, &[(metric.label(), value)]);
                    ConstCounter::new(sum).encode(family.encode_family(&labels)?)?;
                }
            }
            Ok(())
        };
        sums(Metric::HookCalls, |metrics| pairs(&metrics.calls.results))?;
        sums(Metric::Reconciles, |metrics| {
            metrics.reconciles.iter().map(|(result, sum)| (result.as_str(), *sum)).collect()
        })?;
        sums(Metric::Writes, |metrics| pairs(&metrics.writes))?;
        sums(Metric::ShadowAnswers, |metrics| {
            let mut all = BTreeMap::new();
            for (result, count) in metrics.shadows.values().flat_map(ShadowCounts::results) {
                *all.entry(result).or_default() += count;
            }
            pairs(&all)
        })?;
        let mut gauges = |metric: Metric, of: fn(&ControllerMetrics) -> u64| {
            let name = metric.name();
            let mut family = describe(encoder, &name, metric)?;
            for (meter, metrics) in &all {
                let labels = labels(&meter.labels, &[]);
                let value = i64::try_from(of(metrics)).unwrap_or(i64::MAX);
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
            Ok(())
        };
        gauges(Metric::Parents, |metrics| metrics.parents.all as u64)?;
        gauges(Metric::ParentsSettled, |metrics| metrics.parents.settled as u64)?;
        gauges(Metric::ParentsFailing, |metrics| metrics.parents.failing as u64)?;
        gauges(Metric::ParentsPaused, |metrics| metrics.parents.paused as u64)?;
        gauges(Metric::ParentsHeld, |metrics| metrics.parents.held as u64)?;
        gauges(Metric::ParentsThrottled, |metrics| metrics.parents.throttled as u64)?;
        gauges(Metric::HookMemory, |metrics| metrics.calls.most_memory)?;
        gauges(Metric::HookInstructions, |metrics| metrics.calls.most_instructions)?;
        encode_durations(encoder, &all)?;
        hosted::encode(encoder, &self.hosted.all())?;
        self.server.encode(encoder)
    }
}

fn encode_durations(
    encoder: &mut DescriptorEncoder<'_>,
    all: &[(&Arc<Meter>, ControllerMetrics)],
) -> fmt::Result {
    let name = Metric::HookCallDuration.name();
    let mut family = describe(encoder, &name, Metric::HookCallDuration)?;
    for (meter, metrics) in all {
        let durations = metrics.calls.all_durations();
        let longer = durations.count - durations.buckets.iter().sum::<u64>();
        let buckets: Vec<_> =
            BUCKETS.into_iter().zip(durations.buckets).chain([(f64::INFINITY, longer)]).collect();
        let labels = labels(&meter.labels, &[]);
        let family = &mut family.encode_family(&labels)?;
        family.encode_histogram::<Labels<'_>>(durations.sum, durations.count, &buckets, None)?;
    }
    Ok(())
}

fn pairs(map: &BTreeMap<&'static str, u64>) -> Vec<(&'static str, u64)> {
    map.iter().map(|(name, sum)| (*name, *sum)).collect()
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::controller_metrics::{Called, OK};

    use super::*;

    #[test]
    fn a_scrape_holds_the_counts_of_running_controllers() {
        let metrics = Metrics::new(|| 3);
        let metrics = metrics.with_election("metacontroller", || true).with_traces(|| (12, 4096));
        let meter = metrics.meter("CompositeController", "c");
        let took = Duration::from_micros(30);
        let (hook, version) = (HookName::Sync, None);
        meter.counts().called(Called { hook, version, result: OK, took, memory: 5, instructions: 7 });
        meter.counts().wrote("create");
        meter.counts().parents.all = 2;
        meter.counts().parents.held = 1;
        meter.counts().parents.throttled = 3;
        meter.counts().parents.paused = 4;
        meter.counts().parents.failing = 5;
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
            format!("metahook_parents_held{{{labels}}} 1"),
            format!("metahook_parents_throttled{{{labels}}} 3"),
            format!("metahook_parents_paused{{{labels}}} 4"),
            format!("metahook_parents_failing{{{labels}}} 5"),
            "metahook_watches 0".to_owned(),
            "metahook_trace_memory_bytes 12".to_owned(),
            "metahook_trace_memory_max_bytes 4096".to_owned(),
            "metahook_watches_broken 0".to_owned(),
            r#"leader_election_master_status{name="metacontroller"} 1"#.to_owned(),
            "# EOF".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        drop(meter);
        assert!(!metrics.text().contains("controller_name"), "{}", metrics.text());
    }
}
