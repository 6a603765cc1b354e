//! Metrics in the format of Prometheus, made at each scrape from the counts of running controllers and of their webhooks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use http::StatusCode;
use metahook_core::api::hook::HookName;
use metahook_core::controller_metrics::{BUCKETS, ControllerMetrics, Metric, MetricKind};
use metahook_core::pacing::memory::MemoryFigures;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::memory::MemoryBudget;
use crate::sync::{OpenWatches, lock};

/// Content type of a scrape.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Prometheus' own.
const DURATION_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A moment in the making of a connection, measured from the start of the exchange that it is made for.
pub(crate) type Moment = &'static str;

pub(crate) const DNS_START: Moment = "dns_start";
pub(crate) const DNS_DONE: Moment = "dns_done";
pub(crate) const TLS_START: Moment = "tls_handshake_start";
pub(crate) const TLS_DONE: Moment = "tls_handshake_done";

/// The metrics of moments: their short name, help, moments and buckets.
const CONNECTING: [(&str, &str, [Moment; 2], [f64; 4]); 2] = [
    ("dns", "Time until a webhook's host was looked up", [DNS_START, DNS_DONE], [0.005, 0.01, 0.025, 0.05]),
    ("tls", "Time until a webhook's TLS was agreed on", [TLS_START, TLS_DONE], [0.05, 0.1, 0.25, 0.5]),
];

/// All controllers that run, and their webhooks. One that ended is gone from the next scrape.
#[derive(Clone)]
pub(crate) struct Metrics {
    controllers: Arc<Meters<Meter>>,
    webhooks: Arc<Meters<WebMeter>>,
    /// Modules compiled so far.
    compilations: Arc<dyn Fn() -> u64 + Send + Sync>,
    watches: OpenWatches,
    memory: Arc<dyn Fn() -> MemoryFigures + Send + Sync>,
}

/// Meters, as long as their owners hold them.
struct Meters<T>(Mutex<Vec<Weak<T>>>);

/// Counts of one controller.
pub(crate) struct Meter {
    labels: [(&'static str, String); 2],
    counts: Mutex<ControllerMetrics>,
}

/// Counts of one webhook of one controller, under Metacontroller's names.
pub(crate) struct WebMeter {
    hook: HookName,
    labels: [(&'static str, String); 3],
    codes: Mutex<BTreeMap<u16, u64>>,
    durations: Histogram,
    connecting: BTreeMap<Moment, Histogram>,
    in_flight: Gauge,
}

/// An exchange that is under way until this is dropped.
pub(crate) struct InFlight<'a>(&'a Gauge);

/// Labels by name.
type Labels<'a> = Vec<(&'static str, &'a str)>;

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
    pub(crate) fn new(compilations: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            controllers: Arc::default(),
            webhooks: Arc::default(),
            compilations: Arc::new(compilations),
            watches: OpenWatches::default(),
            memory: Arc::new(MemoryFigures::default),
        }
    }

    /// The same, with the watches of a client of the API server and the memory budget.
    pub(crate) fn with_server(self, watches: &OpenWatches, memory: &MemoryBudget) -> Self {
        let memory = memory.clone();
        Self { watches: watches.clone(), memory: Arc::new(move || memory.figures()), ..self }
    }

    pub(crate) fn meter(&self, kind: &str, name: &str) -> Arc<Meter> {
        let labels = [("controller_name", name.to_owned()), ("controller_type", kind.to_owned())];
        self.controllers.add(Meter { labels, counts: Mutex::default() })
    }

    pub(crate) fn webhook(&self, kind: &str, name: &str, hook: HookName, url: &str) -> Arc<WebMeter> {
        let connecting = CONNECTING
            .into_iter()
            .flat_map(|(.., moments, buckets)| moments.map(|moment| (moment, Histogram::new(buckets))));
        self.webhooks.add(WebMeter {
            hook,
            labels: [
                ("controller_name", name.to_owned()),
                ("controller_type", kind.to_owned()),
                ("url", without_secrets(url)),
            ],
            codes: Mutex::default(),
            durations: Histogram::new(DURATION_BUCKETS),
            connecting: connecting.collect(),
            in_flight: Gauge::default(),
        })
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

impl Meter {
    pub(crate) fn counts(&self) -> MutexGuard<'_, ControllerMetrics> {
        lock(&self.counts)
    }
}

impl WebMeter {
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight(&self.in_flight)
    }

    pub(crate) fn answered(&self, code: StatusCode, took: Duration) {
        *lock(&self.codes).entry(code.as_u16()).or_default() += 1;
        self.durations.observe(took.as_secs_f64());
    }

    pub(crate) fn connecting(&self, moment: Moment, after: Duration) {
        if let Some(histogram) = self.connecting.get(moment) {
            histogram.observe(after.as_secs_f64());
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_controllers(&mut encoder)?;
        let meters = self.webhooks.all();
        for hook in [HookName::Sync, HookName::Finalize, HookName::Customize] {
            let meters: Vec<_> = meters.iter().filter(|meter| meter.hook == hook).collect();
            if !meters.is_empty() {
                encode_webhooks(&mut encoder, hook, &meters)?;
            }
        }
        Ok(())
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
        sums(Metric::HookCalls, |metrics| pairs(&metrics.calls))?;
        sums(Metric::Reconciles, |metrics| {
            metrics.reconciles.iter().map(|(result, sum)| (result.as_str(), *sum)).collect()
        })?;
        sums(Metric::Writes, |metrics| pairs(&metrics.writes))?;
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
        gauges(Metric::Parents, |metrics| metrics.parents as u64)?;
        gauges(Metric::ParentsSettled, |metrics| metrics.settled as u64)?;
        gauges(Metric::ParentsFailing, |metrics| metrics.failing as u64)?;
        gauges(Metric::HookMemory, |metrics| metrics.most_memory)?;
        gauges(Metric::HookInstructions, |metrics| metrics.most_instructions)?;
        let name = Metric::HookCallDuration.name();
        let mut family = describe(encoder, &name, Metric::HookCallDuration)?;
        for (meter, ControllerMetrics { durations, .. }) in &all {
            let longer = durations.count - durations.buckets.iter().sum::<u64>();
            let buckets: Vec<_> =
                BUCKETS.into_iter().zip(durations.buckets).chain([(f64::INFINITY, longer)]).collect();
            let labels = labels(&meter.labels, &[]);
            let family = &mut family.encode_family(&labels)?;
            family.encode_histogram::<Labels<'_>>(durations.sum, durations.count, &buckets, None)?;
        }
        self.encode_server(encoder)
    }

    /// What no controller alone has.
    fn encode_server(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let memory = (self.memory)();
        for (metric, value) in [
            (Metric::ModuleCompilations, (self.compilations)()),
            (Metric::MemoryWaits, memory.waits),
            (Metric::MemoryRefusals, memory.refusals),
        ] {
            ConstCounter::new(value).encode(describe(encoder, &metric.name(), metric)?)?;
        }
        for (metric, value) in [
            (Metric::Watches, self.watches.count()),
            (Metric::MemoryBudget, memory.budget),
            (Metric::MemoryReserved, memory.reserved),
            (Metric::MemoryReservedMax, memory.most_reserved),
        ] {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(describe(encoder, &metric.name(), metric)?)?;
        }
        Ok(())
    }
}

fn encode_webhooks(
    encoder: &mut DescriptorEncoder<'_>,
    hook: HookName,
    meters: &[&Arc<WebMeter>],
) -> fmt::Result {
    const POST: (&str, &str) = ("method", "post");
    let name = format!("metacontroller_{hook}_requests");
    let mut family = encoder.encode_descriptor(&name, "Answers of webhooks", None, MetricType::Counter)?;
    for meter in meters {
        for (code, sum) in &*lock(&meter.codes) {
            let code = code.to_string();
            let labels = labels(&meter.labels, &[("code", &code), POST]);
            ConstCounter::new(*sum).encode(family.encode_family(&labels)?)?;
        }
    }
    let name = format!("metacontroller_{hook}_request_duration_histogram_seconds");
    let help = "Time from a request to the head of its answer";
    let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
    for meter in meters {
        meter.durations.encode(family.encode_family(&labels(&meter.labels, &[POST]))?)?;
    }
    for (step, help, moments, _) in CONNECTING {
        let name = format!("metacontroller_{hook}_{step}_duration_histogram_seconds");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
        for meter in meters {
            for (moment, histogram) in meter.connecting.iter().filter(|(moment, _)| moments.contains(moment))
            {
                let labels = labels(&meter.labels, &[("event", moment)]);
                histogram.encode(family.encode_family(&labels)?)?;
            }
        }
    }
    let name = format!("metacontroller_{hook}_in_flight_requests");
    let mut family =
        encoder.encode_descriptor(&name, "Requests that are under way", None, MetricType::Gauge)?;
    for meter in meters {
        meter.in_flight.encode(family.encode_family(&labels(&meter.labels, &[]))?)?;
    }
    Ok(())
}

fn describe<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    metric: Metric,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    let kind = match metric.kind() {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    };
    encoder.encode_descriptor(name, metric.meaning(), None, kind)
}

/// A URL without user-info, query and fragment.
fn without_secrets(url: &str) -> String {
    let place = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}

fn labels<'a>(own: &'a [(&'static str, String)], more: &[(&'static str, &'a str)]) -> Labels<'a> {
    own.iter().map(|(name, value)| (*name, value.as_str())).chain(more.iter().copied()).collect()
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
    fn urls_in_metrics_have_no_secrets() {
        for (url, shown) in [
            ("http://s.n:80/sync", "http://s.n:80/sync"),
            ("https://user:p@ss@h/a/b?token=x#y", "https://h/a/b"),
            ("http://h?token=x/@y", "http://h"),
            ("http://h/@a", "http://h/@a"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

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
            "metahook_watches 0".to_owned(),
            "# EOF".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        drop(meter);
        assert!(!metrics.text().contains("controller_name"), "{}", metrics.text());
    }
}
