//! Spans over gRPC, over connections that are made as those to webhooks: proxies and TLS are the same.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as Export};
use tonic::transport::Endpoint;

use super::SpansError;
use super::settings::CollectorSettings;
use super::warnings::Warnings;
use crate::hook::web::Pools;

/// A connection is probed while a request waits for so long, and closed if nothing comes: else one to a collector that is gone
/// would be used until the operating system gives it up.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// An exporter that reports what fails: the SDK drops spans without a word.
#[derive(Debug)]
pub(super) struct GrpcExporter {
    exporter: SpanExporter,
    warnings: Warnings,
}

/// The connection is made when there are spans to send, and by this runtime: the SDK's thread has none.
pub(super) fn exporter(
    url: &Uri,
    settings: &CollectorSettings,
    pools: &Arc<Pools>,
) -> Result<GrpcExporter, SpansError> {
    let connector =
        pools.tunnels_trusting_pem(settings.certificate()?.as_deref()).map_err(SpansError::Tls)?;
    // A request waits for its connection, so both have a timeout.
    let endpoint = Endpoint::from(url.clone()).timeout(settings.timeout).connect_timeout(settings.timeout);
    let endpoint = endpoint.http2_keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE);
    let exporter = SpanExporter::builder().with_tonic().with_timeout(settings.timeout);
    let exporter = exporter.with_channel(endpoint.connect_with_connector_lazy(connector)).build()?;
    Ok(GrpcExporter { exporter, warnings: Warnings::default() })
}

impl Export for GrpcExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        if let Err(error) = &result {
            self.warnings.warn(&error.to_string());
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::SocketAddr;
    use std::sync::Mutex;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, Request, Response};
    use http_body_util::{BodyExt as _, Full};
    use hyper::body::Incoming;
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use metahook_core::hook::DEFAULT_WEBHOOK_ANSWER;
    use opentelemetry::trace::{Span as _, Tracer as _};
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use prost::Message as _;
    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    use super::*;
    use crate::hook::web::RedirectPolicy;
    use crate::spans::Spans;
    use crate::spans::settings::Protocol;
    use crate::sync::lock;

    /// What a collector is asked.
    type Asked = Arc<Mutex<Vec<Request<Bytes>>>>;

    /// A collector that speaks gRPC, and answers with this status of gRPC.
    async fn collector(status: &'static str, tls: Option<TlsAcceptor>) -> (SocketAddr, Asked) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
        let all = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                match &tls {
                    None => serve(stream, Arc::clone(&all), status),
                    Some(tls) => serve(tls.accept(stream).await.unwrap(), Arc::clone(&all), status),
                }
            }
        });
        (address, asked)
    }

    fn serve(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        asked: Asked,
        status: &'static str,
    ) {
        let service = service_fn(move |request| answer(request, Arc::clone(&asked), status));
        let server = http2::Builder::new(TokioExecutor::new());
        tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
    }

    async fn answer(
        request: Request<Incoming>,
        asked: Asked,
        status: &'static str,
    ) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, hyper::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        lock(&asked).push(Request::from_parts(head, body));
        // An empty message, uncompressed.
        let message = Full::new(Bytes::from_static(&[0; 5]));
        let trailers =
            HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static(status))]);
        let message = message.with_trailers(std::future::ready(Some(Ok(trailers))));
        Ok(Response::builder().header("content-type", "application/grpc").body(message).unwrap())
    }

    fn settings(url: &str) -> (CollectorSettings, Uri) {
        let (url, timeout): (Uri, _) = (url.parse().unwrap(), Duration::from_secs(5));
        let protocol = Protocol::Grpc(url.clone());
        (CollectorSettings { protocol, certificate: None, timeout, is_unnamed: true }, url)
    }

    fn pools() -> Arc<Pools> {
        Pools::new(DEFAULT_WEBHOOK_ANSWER, RedirectPolicy::default())
    }

    #[tokio::test]
    async fn a_collector_gets_spans_over_grpc() {
        let (address, asked) = collector("0", None).await;
        let spans = Spans::start(&settings(&format!("http://{address}")).0, &pools()).unwrap();
        spans.tracer.start("reconcile").end();
        spans.flush().await;
        let asked = lock(&asked);
        let [request] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
        assert_eq!(
            (&request.headers()["content-type"], &request.headers()["te"]),
            (&HeaderValue::from_static("application/grpc"), &HeaderValue::from_static("trailers"))
        );
        // A byte says that the message is not compressed, and four have its length.
        let (prefix, message) = request.body().split_at(5);
        assert_eq!(
            (prefix[0], u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize),
            (0, message.len())
        );
        let sent = ExportTraceServiceRequest::decode(message).unwrap();
        let [of_resource] = &sent.resource_spans[..] else { panic!("{sent:?}") };
        assert_eq!(of_resource.scope_spans[0].spans[0].name, "reconcile");
        let resource = format!("{:?}", of_resource.resource);
        assert!(resource.contains("service.name") && resource.contains("\"metahook\""), "{resource}");
    }

    #[tokio::test]
    async fn a_collector_over_tls_is_trusted_by_its_certificate() {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let tls = tls.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut tls = tls.with_single_cert(vec![cert.der().clone()], key).unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let (address, asked) = collector("0", Some(Arc::new(tls).into())).await;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), cert.pem()).unwrap();
        let certificate = Some(file.path().to_owned());
        let settings = settings(&format!("https://{address}")).0;
        let spans = Spans::start(&CollectorSettings { certificate, ..settings }, &pools()).unwrap();
        spans.tracer.start("reconcile").end();
        spans.flush().await;
        assert_eq!(lock(&asked)[0].uri().scheme_str(), Some("https"));
    }

    /// Keeps spans.
    #[derive(Debug, Clone, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl Export for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            lock(&self.0).extend(batch);
            Ok(())
        }
    }

    /// Why an exporter does not send a span.
    async fn error(url: &str) -> String {
        let kept = Kept::default();
        let spans = Spans::of(SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build());
        spans.tracer.start("reconcile").end();
        let batch = std::mem::take(&mut *lock(&kept.0));
        assert_eq!(batch.len(), 1);
        let (settings, url) = settings(url);
        exporter(&url, &settings, &pools()).unwrap().export(batch).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn why_spans_were_not_sent_is_told() {
        let (refusing, asked) = collector("16", None).await;
        let refused = error(&format!("http://{refusing}")).await;
        assert!(refused.contains("Unauthenticated"), "{refused}");
        assert_eq!(lock(&asked).len(), 1, "it is not asked again");
        let gone = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
        let unreachable = error(&format!("http://{gone}")).await;
        assert!(unreachable.contains("Unavailable") && unreachable.contains("refused"), "{unreachable}");
    }
}
