//! Metrics of webhooks, under Metacontroller's names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use http::StatusCode;
use metahook_core::api::hook::HookName;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::sync::lock;

/// Prometheus' own.
const DURATION_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const DNS_BUCKETS: [f64; 4] = [0.005, 0.01, 0.025, 0.05];
const TLS_BUCKETS: [f64; 4] = [0.05, 0.1, 0.25, 0.5];

/// All webhooks of controllers that run. One whose controller ended is gone from the next scrape.
#[derive(Clone, Default)]
pub(crate) struct Webhooks(Arc<Mutex<Vec<Weak<WebMeter>>>>);

/// Metrics of one webhook of one controller.
pub(crate) struct WebMeter {
    hook: HookName,
    url: String,
    controller_name: String,
    controller_type: String,
    codes: Mutex<BTreeMap<u16, u64>>,
    durations: Histogram,
    connecting: BTreeMap<Moment, Histogram>,
    in_flight: Gauge,
}

/// A step of making a connection, measured from the start of the exchange that it is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    DnsStart,
    DnsDone,
    TlsStart,
    TlsDone,
}

/// An exchange that is under way until this is dropped.
pub(crate) struct InFlight<'a>(&'a Gauge);

impl Webhooks {
    pub(crate) fn meter(&self, kind: &str, name: &str, hook: HookName, url: &str) -> Arc<WebMeter> {
        let step = |moment: Moment| (moment, Histogram::new(moment.buckets()));
        let meter = Arc::new(WebMeter {
            hook,
            url: url.to_owned(),
            controller_name: name.to_owned(),
            controller_type: kind.to_owned(),
            codes: Mutex::default(),
            durations: Histogram::new(DURATION_BUCKETS),
            connecting: Moment::ALL.into_iter().map(step).collect(),
            in_flight: Gauge::default(),
        });
        let mut meters = lock(&self.0);
        meters.retain(|meter| meter.strong_count() > 0);
        meters.push(Arc::downgrade(&meter));
        meter
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
        if let Some(histogram) = self.connecting.get(&moment) {
            histogram.observe(after.as_secs_f64());
        }
    }

    fn labels<'a>(&'a self, more: &[(&'static str, &'a str)]) -> Vec<(&'static str, &'a str)> {
        let all = [
            ("controller_name", self.controller_name.as_str()),
            ("controller_type", self.controller_type.as_str()),
            ("url", self.url.as_str()),
        ];
        all.into_iter().chain(more.iter().copied()).collect()
    }
}

impl Moment {
    const ALL: [Self; 4] = [Self::DnsStart, Self::DnsDone, Self::TlsStart, Self::TlsDone];

    fn event(self) -> &'static str {
        match self {
            Self::DnsStart => "dns_start",
            Self::DnsDone => "dns_done",
            Self::TlsStart => "tls_handshake_start",
            Self::TlsDone => "tls_handshake_done",
        }
    }

    fn buckets(self) -> [f64; 4] {
        match self {
            Self::DnsStart | Self::DnsDone => DNS_BUCKETS,
            Self::TlsStart | Self::TlsDone => TLS_BUCKETS,
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Collector for Webhooks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let meters: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        for hook in [HookName::Sync, HookName::Finalize, HookName::Customize] {
            let meters: Vec<_> = meters.iter().filter(|meter| meter.hook == hook).collect();
            if !meters.is_empty() {
                encode(&mut encoder, hook, &meters)?;
            }
        }
        Ok(())
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, hook: HookName, meters: &[&Arc<WebMeter>]) -> fmt::Result {
    const POST: (&str, &str) = ("method", "post");
    let name = format!("metacontroller_{hook}_requests");
    let mut metric = encoder.encode_descriptor(&name, "Answers of webhooks", None, MetricType::Counter)?;
    for meter in meters {
        for (code, sum) in &*lock(&meter.codes) {
            let code = code.to_string();
            let labels = meter.labels(&[("code", &code), POST]);
            ConstCounter::new(*sum).encode(metric.encode_family(&labels)?)?;
        }
    }
    let name = format!("metacontroller_{hook}_request_duration_histogram_seconds");
    let help = "Time from a request to the head of its answer";
    let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
    for meter in meters {
        meter.durations.encode(metric.encode_family(&meter.labels(&[POST]))?)?;
    }
    for (what, help, moments) in [
        ("dns", "Time until a webhook's host was looked up", [Moment::DnsStart, Moment::DnsDone]),
        ("tls", "Time until a webhook's TLS_BUCKETS was agreed on", [Moment::TlsStart, Moment::TlsDone]),
    ] {
        let name = format!("metacontroller_{hook}_{what}_duration_histogram_seconds");
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
        for meter in meters {
            for (moment, histogram) in meter.connecting.iter().filter(|(moment, _)| moments.contains(moment))
            {
                histogram.encode(metric.encode_family(&meter.labels(&[("event", moment.event())]))?)?;
            }
        }
    }
    let name = format!("metacontroller_{hook}_in_flight_requests");
    let mut metric =
        encoder.encode_descriptor(&name, "Requests that are under way", None, MetricType::Gauge)?;
    for meter in meters {
        meter.in_flight.encode(metric.encode_family(&meter.labels(&[]))?)?;
    }
    Ok(())
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks").finish_non_exhaustive()
    }
}
