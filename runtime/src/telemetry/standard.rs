//! Metrics under the names of client-go and controller-runtime, as dashboards for controllers written in Go ask for them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use metahook_core::api::ControllerKind;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::queue::{self, QueueFigures, Times};
use crate::sync::lock;
use crate::telemetry::process;

/// The queue of one kind of parents of a controller.
pub(crate) struct QueueMeter {
    /// The queues of one controller have one name.
    pub(super) name: String,
    pub(super) figures: Box<dyn Fn() -> QueueFigures + Send + Sync>,
}

/// Requests to the API server, by method and status. There are as many as these have values, however many requests there are.
#[derive(Clone, Default)]
pub(crate) struct RequestCounts {
    host: Arc<str>,
    counts: Arc<Mutex<ByAnswer>>,
}

/// Counts by method and status.
type ByAnswer = BTreeMap<(&'static str, Option<u16>), u64>;

impl RequestCounts {
    /// `host`: of the API server, with its port.
    pub(crate) fn new(host: &str) -> Self {
        Self { host: host.into(), counts: Arc::default() }
    }

    /// `None`: there was no answer.
    pub(crate) fn count(&self, method: &'static str, status: Option<StatusCode>) {
        *lock(&self.counts).entry((method, status.map(|status| status.as_u16()))).or_default() += 1;
    }
}

/// The name of a method that the server uses.
pub(crate) fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}

/// Counts of the changes of CompositeControllers and DecoratorControllers that the server took in.
#[derive(Default)]
pub(super) struct HostMeter {
    composite: HostCounts,
    decorator: HostCounts,
}

struct HostCounts {
    /// How long it took to take a change in.
    times: Histogram,
    refused: Mutex<u64>,
    changes: Mutex<u64>,
}

/// controller-runtime's.
const RECONCILE_BUCKETS: [f64; 39] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    60.0,
];

impl Default for HostCounts {
    fn default() -> Self {
        Self {
            times: Histogram::new(RECONCILE_BUCKETS),
            refused: Mutex::default(),
            changes: Mutex::default(),
        }
    }
}

impl HostMeter {
    fn of(&self, kind: ControllerKind) -> &HostCounts {
        match kind {
            ControllerKind::Composite => &self.composite,
            ControllerKind::Decorator => &self.decorator,
        }
    }

    pub(super) fn took_in(&self, kind: ControllerKind, took: Duration) {
        let counts = self.of(kind);
        *lock(&counts.changes) += 1;
        counts.times.observe(took.as_secs_f64());
    }

    pub(super) fn refused(&self, kind: ControllerKind) {
        *lock(&self.of(kind).refused) += 1;
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all =
            [("composite-metacontroller", &self.composite), ("decorator-metacontroller", &self.decorator)];
        let help = "Changes of controllers, and controllers that were refused";
        let mut family =
            encoder.encode_descriptor("controller_runtime_reconcile", help, None, MetricType::Counter)?;
        for (name, counts) in all {
            let sums = [
                ("error", *lock(&counts.refused)),
                ("requeue", 0),
                ("requeue_after", 0),
                ("success", *lock(&counts.changes)),
            ];
            for (result, sum) in sums {
                let labels = [("controller", name), ("result", result)];
                ConstCounter::new(sum).encode(family.encode_family(&labels)?)?;
            }
        }
        let name = "controller_runtime_reconcile_errors";
        let mut family =
            encoder.encode_descriptor(name, "Controllers that were refused", None, MetricType::Counter)?;
        for (name, counts) in all {
            ConstCounter::new(*lock(&counts.refused))
                .encode(family.encode_family(&[("controller", name)])?)?;
        }
        let name = "controller_runtime_reconcile_time_seconds";
        let help = "Time to take a change of a controller in";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (name, counts) in all {
            counts.times.encode(family.encode_family(&[("controller", name)])?)?;
        }
        Ok(())
    }
}

/// The queues of each controller together.
pub(super) fn encode_queues(encoder: &mut DescriptorEncoder<'_>, queues: &[Arc<QueueMeter>]) -> fmt::Result {
    let mut all: BTreeMap<&str, QueueFigures> = BTreeMap::new();
    for queue in queues {
        all.entry(&queue.name).or_default().merge(&(queue.figures)());
    }
    let labels = |name| [("name", name), ("controller", name)];
    let mut family = encoder.encode_descriptor(
        "workqueue_depth",
        "Parents that wait for a worker",
        None,
        MetricType::Gauge,
    )?;
    for (name, figures) in &all {
        let labels = [("name", *name), ("controller", name), ("priority", "")];
        ConstGauge::new(figures.depth).encode(family.encode_family(&labels)?)?;
    }
    for (name, help, of) in [
        ("workqueue_adds", "Parents that were queued", (|figures| figures.adds) as fn(&QueueFigures) -> u64),
        ("workqueue_retries", "Parents that were to be queued after a delay", |figures| figures.retries),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (name, figures) in &all {
            ConstCounter::new(of(figures)).encode(family.encode_family(&labels(*name))?)?;
        }
    }
    for (name, help, of) in [
        (
            "workqueue_unfinished_work_seconds",
            "Time that the reconciles under way have taken together",
            (|figures| figures.unfinished) as fn(&QueueFigures) -> f64,
        ),
        (
            "workqueue_longest_running_processor_seconds",
            "Time that the longest reconcile under way has taken",
            |figures| figures.longest,
        ),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (name, figures) in &all {
            ConstGauge::new(of(figures)).encode(family.encode_family(&labels(*name))?)?;
        }
    }
    for (name, help, of) in [
        (
            "workqueue_queue_duration_seconds",
            "Time that parents waited for a worker",
            (|figures| &figures.waits) as fn(&QueueFigures) -> &Times,
        ),
        ("workqueue_work_duration_seconds", "Time that reconciles took", |figures| &figures.works),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (name, figures) in &all {
            let Times { sum, count, buckets } = of(figures);
            let bounds = queue::BUCKETS.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(*buckets).collect();
            let labels = labels(*name);
            let mut family = family.encode_family(&labels)?;
            family.encode_histogram::<[(&str, &str); 0]>(*sum, *count, &buckets, None)?;
        }
    }
    Ok(())
}

pub(super) fn encode_requests(
    encoder: &mut DescriptorEncoder<'_>,
    RequestCounts { host, counts }: &RequestCounts,
) -> fmt::Result {
    let help = "Requests to the API server";
    let mut family = encoder.encode_descriptor("rest_client_requests", help, None, MetricType::Counter)?;
    for ((method, status), sum) in &*lock(counts) {
        let code = status.map_or_else(|| "<error>".to_owned(), |status| status.to_string());
        let labels = [("code", code.as_str()), ("host", host), ("method", method)];
        ConstCounter::new(*sum).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

pub(super) fn encode_election(encoder: &mut DescriptorEncoder<'_>, lease: &str, leads: bool) -> fmt::Result {
    let help = "1 where this server leads, 0 where it stands by";
    let name = "leader_election_master_status";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(i64::from(leads)).encode(family.encode_family(&[("name", lease)])?)
}

pub(super) fn encode_process(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for figure in process::figures() {
        let kind = if figure.is_counter { MetricType::Counter } else { MetricType::Gauge };
        let metric = encoder.encode_descriptor(figure.name, figure.help, None, kind)?;
        if figure.is_counter {
            ConstCounter::new(figure.value).encode(metric)?;
        } else {
            ConstGauge::new(figure.value).encode(metric)?;
        }
    }
    Ok(())
}
