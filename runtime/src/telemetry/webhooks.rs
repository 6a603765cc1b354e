//! Metrics of webhooks under Metacontroller's names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use metahook_core::api::hook::HookName;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::sync::lock;
use crate::telemetry::labels;

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

/// Counts of one webhook of one controller, under Metacontroller's names.
pub struct WebMeter {
    hook: HookName,
    labels: [(&'static str, String); 3],
    codes: Mutex<BTreeMap<u16, u64>>,
    durations: Histogram,
    connecting: BTreeMap<Moment, Histogram>,
    in_flight: Gauge,
}

/// An exchange that is under way until this is dropped.
pub(crate) struct InFlight<'a>(&'a Gauge);

impl WebMeter {
    pub(crate) fn new(kind: &str, name: &str, hook: HookName, url: &str) -> Self {
        let connecting = CONNECTING
            .into_iter()
            .flat_map(|(.., moments, buckets)| moments.map(|moment| (moment, Histogram::new(buckets))));
        Self {
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
        }
    }

    pub(super) fn is_of(&self, hook: HookName) -> bool {
        self.hook == hook
    }

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

pub(super) fn encode(
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

/// A URL without user-info, query and fragment.
fn without_secrets(url: &str) -> String {
    let place = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn each_hook_has_every_metric_with_its_labels_and_buckets() {
        let metrics = Metrics::new(|| 0);
        let labels = r#"controller_name="c",controller_type="DecoratorController",url="http://h/x""#;
        let buckets = |name: &str, more: &str, text: &str| -> Vec<String> {
            let of = |line: &str| {
                let rest = line.strip_prefix(name)?.strip_prefix("_bucket{le=\"")?;
                let (bound, rest) = rest.split_once("\",")?;
                rest.starts_with(&format!("{labels},{more}}} ")).then(|| bound.to_owned())
            };
            text.lines().filter_map(of).collect()
        };
        for hook in [HookName::Sync, HookName::Finalize, HookName::Customize] {
            let meter = metrics.webhook("DecoratorController", "c", hook, "http://h/x");
            meter.answered(StatusCode::OK, Duration::ZERO);
            let _under_way = meter.begin();
            let text = metrics.text();
            for line in [
                format!(r#"metacontroller_{hook}_requests_total{{{labels},code="200",method="post"}} 1"#),
                format!("metacontroller_{hook}_in_flight_requests{{{labels}}} 1"),
            ] {
                assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
            }
            let durations = format!("metacontroller_{hook}_request_duration_histogram_seconds");
            assert_eq!(
                buckets(&durations, r#"method="post""#, &text),
                ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf"]
            );
            for (step, event, expected) in [
                ("dns", "dns_start", ["0.005", "0.01", "0.025", "0.05", "+Inf"]),
                ("dns", "dns_done", ["0.005", "0.01", "0.025", "0.05", "+Inf"]),
                ("tls", "tls_handshake_start", ["0.05", "0.1", "0.25", "0.5", "+Inf"]),
                ("tls", "tls_handshake_done", ["0.05", "0.1", "0.25", "0.5", "+Inf"]),
            ] {
                let name = format!("metacontroller_{hook}_{step}_duration_histogram_seconds");
                assert_eq!(buckets(&name, &format!(r#"event="{event}""#), &text), expected, "{name}");
            }
        }
    }

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
}
