//! Spans of reconciles for an OpenTelemetry collector, where the environment names one.
//!
//! The variables are those of OpenTelemetry, and its SDK reads most of them: which traces are sampled, how many spans wait, headers
//! and name of the service. A collector that is slow or gone costs reconciles nothing: spans beyond the queue are dropped.

mod client;
mod grpc;
mod settings;
mod warnings;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::hook::web::Pools;
use crate::telemetry::reconcile_span::ReconcileSpan;
use client::CollectorClient;
use settings::{CollectorSettings, Protocol};

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
        let mut resource =
            Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        if settings.is_unnamed {
            resource = resource.with_service_name("metahook");
        }
        let provider = SdkTracerProvider::builder().with_resource(resource.build());
        let provider = match &settings.protocol {
            Protocol::Http => {
                let client = CollectorClient::new(settings, pools)?;
                let exporter = SpanExporter::builder().with_http();
                let exporter = exporter.with_protocol(opentelemetry_otlp::Protocol::HttpBinary);
                let exporter = exporter.with_timeout(settings.timeout).with_http_client(client).build()?;
                provider.with_batch_exporter(exporter)
            }
            Protocol::Grpc(url) => provider.with_batch_exporter(grpc::exporter(url, settings, pools)?),
        };
        Ok(Self::of(provider.build()))
    }

    fn of(provider: SdkTracerProvider) -> Self {
        let tracer = provider.tracer("metahook");
        Self { provider, tracer }
    }

    /// Spans that go nowhere.
    #[cfg(test)]
    pub(crate) fn sampled_by(sampler: opentelemetry_sdk::trace::Sampler) -> Self {
        Self::of(SdkTracerProvider::builder().with_sampler(sampler).build())
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
