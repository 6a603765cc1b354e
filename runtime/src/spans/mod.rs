//! Spans of reconciles for an OpenTelemetry collector, where the environment names one.
//!
//! The variables are those of OpenTelemetry, and its SDK reads most of them: which traces are sampled, how many spans wait, headers
//! and name of the service. A collector that is slow or gone costs reconciles nothing: spans beyond the queue are dropped.

mod client;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::hook::web::Pools;
use crate::telemetry::reconcile_span::ReconcileSpan;
use client::CollectorClient;

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const CERTIFICATES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";

/// The protocol that is spoken, and the default one of OpenTelemetry.
const SPOKEN: &str = "http/protobuf";

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIMEOUT: Duration = Duration::from_mins(1);

/// Spans that are still to be sent when the server stops have this long.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends spans to a collector.
#[derive(Clone)]
pub(crate) struct Spans {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

#[derive(Debug, thiserror::Error)]
pub enum SpansError {
    #[error("{name}: {value:?} {problem}")]
    Variable { name: &'static str, value: String, problem: String },
    #[error("the spans' exporter cannot be made: {0}")]
    Exporter(#[from] ExporterBuildError),
    #[error("the collector's certificates cannot be used: {0}")]
    Tls(String),
}

/// What the environment says about the collector, as far as the SDK does not read it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CollectorSettings {
    /// PEM file of the authorities that are trusted in place of the system's.
    certificate: Option<PathBuf>,
    /// Time of a request.
    timeout: Duration,
    /// The service has no name of its own.
    is_unnamed: bool,
}

impl Spans {
    /// `None`: the environment names no collector.
    ///
    /// # Errors
    /// It names one in a way that the server does not support.
    pub(crate) fn of_environment(pools: &Arc<Pools>) -> Result<Option<Self>, SpansError> {
        let settings = CollectorSettings::of(|name| std::env::var_os(name))?;
        settings.map(|settings| Self::start(&settings, pools)).transpose()
    }

    fn start(settings: &CollectorSettings, pools: &Arc<Pools>) -> Result<Self, SpansError> {
        let client = CollectorClient::new(settings, pools)?;
        let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
        let exporter = exporter.with_timeout(settings.timeout).with_http_client(client).build()?;
        let mut resource =
            Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        if settings.is_unnamed {
            resource = resource.with_service_name("metahook");
        }
        let provider = SdkTracerProvider::builder();
        let provider = provider.with_batch_exporter(exporter).with_resource(resource.build()).build();
        let tracer = provider.tracer("metahook");
        Ok(Self { provider, tracer })
    }

    /// The span of a reconcile that begins. `clock`: now, by the clock of its steps.
    pub(crate) fn begin(&self, clock: Duration) -> ReconcileSpan {
        ReconcileSpan::new(self.tracer.clone(), clock)
    }

    /// Sends what is left.
    pub(crate) async fn flush(self) {
        let flush = move || self.provider.shutdown_with_timeout(FLUSH_TIMEOUT);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(flush).await {
            tracing::warn!(%error, "the last spans may not have been sent");
        }
    }
}

impl CollectorSettings {
    /// `None`: no spans are to be sent.
    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, SpansError> {
        let read = |name: &'static str| {
            let value = variable(name).unwrap_or_default();
            let value = value.into_string().map_err(|value| SpansError::Variable {
                name,
                value: value.to_string_lossy().into_owned(),
                problem: "is no text in UTF-8".to_owned(),
            })?;
            Ok::<_, SpansError>((name, value))
        };
        // The variable of traces goes before that of all signals; an empty one is as none.
        let first = |names: [&'static str; 2]| {
            let [of_traces, of_all] = [read(names[0])?, read(names[1])?];
            Ok::<_, SpansError>(if of_traces.1.is_empty() { of_all } else { of_traces })
        };
        let is_off = read("OTEL_SDK_DISABLED")?.1.eq_ignore_ascii_case("true");
        if is_off || first(ENDPOINTS)?.1.is_empty() {
            return Ok(None);
        }
        let invalid = |(name, value): (&'static str, String), problem: &str| {
            Err(SpansError::Variable { name, value, problem: problem.to_owned() })
        };
        let exporter = read(EXPORTER)?;
        match exporter.1.as_str() {
            "" | "otlp" => {}
            "none" => return Ok(None),
            _ => return invalid(exporter, "is not supported: otlp and none are"),
        }
        let protocol = first(PROTOCOLS)?;
        if !matches!(protocol.1.as_str(), "" | SPOKEN) {
            let problem =
                "is not supported: send to the collector's port for http/protobuf, which is mostly 4318";
            return invalid(protocol, problem);
        }
        let timeout = first(TIMEOUTS)?;
        let timeout = match (timeout.1.as_str(), timeout.1.parse().map(Duration::from_millis)) {
            ("", _) => DEFAULT_TIMEOUT,
            (_, Ok(time)) if !time.is_zero() && time <= MAX_TIMEOUT => time,
            _ => return invalid(timeout, "is no number of milliseconds from 1 to 60000"),
        };
        let attributes = read("OTEL_RESOURCE_ATTRIBUTES")?.1;
        let is_unnamed = read("OTEL_SERVICE_NAME")?.1.is_empty() && !attributes.contains("service.name=");
        let certificate = Some(first(CERTIFICATES)?.1).filter(|path| !path.is_empty()).map(PathBuf::from);
        Ok(Some(Self { certificate, timeout, is_unnamed }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<CollectorSettings>, String> {
        let value = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        CollectorSettings::of(value).map_err(|error| error.to_string())
    }

    const COLLECTOR: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    #[test]
    fn spans_are_sent_where_the_environment_names_a_collector() {
        let is_on = |variables: &[(&str, &str)]| read(variables).map(|settings| settings.is_some());
        assert_eq!(is_on(&[]), Ok(false));
        assert_eq!(is_on(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(false));
        assert_eq!(is_on(&[COLLECTOR]), Ok(true));
        assert_eq!(is_on(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/v1/traces")]), Ok(true));
        assert_eq!(is_on(&[COLLECTOR, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(false));
        assert_eq!(is_on(&[COLLECTOR, ("OTEL_TRACES_EXPORTER", "none")]), Ok(false));
        assert_eq!(is_on(&[COLLECTOR, ("OTEL_TRACES_EXPORTER", "otlp")]), Ok(true));
        assert_eq!(is_on(&[COLLECTOR, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]), Ok(true));
    }

    #[test]
    fn the_variable_of_traces_goes_before_that_of_all_signals() {
        let both =
            [COLLECTOR, ("OTEL_EXPORTER_OTLP_TIMEOUT", "7"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "9")];
        let settings = read(&both).unwrap().unwrap();
        assert_eq!(settings.timeout, Duration::from_millis(9));
        let certificates = [
            COLLECTOR,
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "a"),
            ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", ""),
        ];
        assert_eq!(read(&certificates).unwrap().unwrap().certificate, Some(PathBuf::from("a")));
    }

    #[test]
    fn the_service_is_named_unless_the_environment_names_it() {
        let is_unnamed =
            |more: &[(&str, &str)]| read(&[&[COLLECTOR], more].concat()).unwrap().unwrap().is_unnamed;
        assert!(is_unnamed(&[]));
        assert!(is_unnamed(&[("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod")]));
        assert!(!is_unnamed(&[("OTEL_SERVICE_NAME", "ours")]));
        assert!(!is_unnamed(&[("OTEL_RESOURCE_ATTRIBUTES", "a=b,service.name=ours")]));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_variable() {
        let refused = |variable: (&str, &str)| read(&[COLLECTOR, variable]).unwrap_err();
        let grpc = "is not supported: send to the collector's port for http/protobuf, which is mostly 4318";
        assert_eq!(
            refused(("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")),
            format!("OTEL_EXPORTER_OTLP_PROTOCOL: \"grpc\" {grpc}")
        );
        assert_eq!(
            refused(("OTEL_TRACES_EXPORTER", "zipkin")),
            "OTEL_TRACES_EXPORTER: \"zipkin\" is not supported: otlp and none are"
        );
        for time in ["0", "60001", "1s", "-1"] {
            assert_eq!(
                refused(("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", time)),
                format!(
                    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: {time:?} is no number of milliseconds from 1 to 60000"
                )
            );
        }
        assert!(read(&[COLLECTOR, ("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")]).is_ok(), "the bound itself");
    }
}
