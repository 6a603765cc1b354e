//! Settings of the collector from the environment, as far as the SDK does not read them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use super::SpansError;

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const INSECURE: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"];
const CERTIFICATES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CollectorSettings {
    pub(super) protocol: Protocol,
    /// PEM file of the authorities that are trusted in place of the system's.
    pub(super) certificate: Option<PathBuf>,
    /// Time of a request.
    pub(super) timeout: Duration,
    /// The service has no name of its own.
    pub(super) is_unnamed: bool,
}

/// The protocol that the collector is spoken to in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Protocol {
    /// `http/protobuf`, the default one of OpenTelemetry. The SDK reads the URL.
    Http,
    Grpc(Uri),
}

/// A variable with its value, which is empty where it is not set.
type Variable = (&'static str, String);

/// The variables of the environment.
struct Environment<F>(F);

impl<F: Fn(&str) -> Option<OsString>> Environment<F> {
    fn read(&self, name: &'static str) -> Result<Variable, SpansError> {
        let value = self.0(name).unwrap_or_default();
        let value = value.into_string().map_err(|value| SpansError::Variable {
            name,
            value: value.to_string_lossy().into_owned(),
            problem: "is no text in UTF-8".to_owned(),
        })?;
        Ok((name, value))
    }

    /// The variable of traces goes before that of all signals; an empty one is as none.
    fn first(&self, names: [&'static str; 2]) -> Result<Variable, SpansError> {
        let [of_traces, of_all] = [self.read(names[0])?, self.read(names[1])?];
        Ok(if of_traces.1.is_empty() { of_all } else { of_traces })
    }

    fn protocol(&self) -> Result<Protocol, SpansError> {
        let protocol = self.first(PROTOCOLS)?;
        match protocol.1.as_str() {
            "" | "http/protobuf" => Ok(Protocol::Http),
            "grpc" => self.grpc(),
            _ => Err(invalid(protocol, "is not supported: http/protobuf and grpc are")),
        }
    }

    /// A URL for gRPC may have no scheme: then another variable says whether the collector is reached without TLS.
    fn grpc(&self) -> Result<Protocol, SpansError> {
        let endpoint = self.first(ENDPOINTS)?;
        let scheme = match &*self.first(INSECURE)?.1 {
            _ if endpoint.1.contains("://") => "",
            insecure if insecure.eq_ignore_ascii_case("true") => "http://",
            _ => "https://",
        };
        let url = format!("{scheme}{}", endpoint.1).parse().ok();
        let is_served =
            |url: &Uri| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some();
        url.filter(is_served).map(Protocol::Grpc).ok_or_else(|| {
            let shown = (endpoint.0, without_password(&endpoint.1));
            invalid(shown, "is no URL for grpc, such as http://collector:4317")
        })
    }

    fn timeout(&self) -> Result<Duration, SpansError> {
        let timeout = self.first(TIMEOUTS)?;
        match (timeout.1.as_str(), timeout.1.parse().map(Duration::from_millis)) {
            ("", _) => Ok(DEFAULT_TIMEOUT),
            (_, Ok(time)) if !time.is_zero() && time <= MAX_TIMEOUT => Ok(time),
            _ => Err(invalid(timeout, "is no number of milliseconds from 1 to 60000")),
        }
    }
}

/// A URL without its user and password, which are no matter of logs.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + 3));
    let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    place.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, host)| format!("{scheme}...@{host}{path}"))
}

fn invalid((name, value): Variable, problem: &str) -> SpansError {
    SpansError::Variable { name, value, problem: problem.to_owned() }
}

impl CollectorSettings {
    /// `None`: no spans are to be sent.
    pub(super) fn of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, SpansError> {
        let environment = Environment(variable);
        let is_off = environment.read("OTEL_SDK_DISABLED")?.1.eq_ignore_ascii_case("true");
        if is_off || environment.first(ENDPOINTS)?.1.is_empty() {
            return Ok(None);
        }
        let exporter = environment.read(EXPORTER)?;
        match exporter.1.as_str() {
            "" | "otlp" => {}
            "none" => return Ok(None),
            _ => return Err(invalid(exporter, "is not supported: otlp and none are")),
        }
        let attributes = environment.read("OTEL_RESOURCE_ATTRIBUTES")?.1;
        let is_unnamed =
            environment.read("OTEL_SERVICE_NAME")?.1.is_empty() && !attributes.contains("service.name=");
        let certificate = environment.first(CERTIFICATES)?.1;
        Ok(Some(Self {
            protocol: environment.protocol()?,
            certificate: Some(certificate).filter(|path| !path.is_empty()).map(PathBuf::from),
            timeout: environment.timeout()?,
            is_unnamed,
        }))
    }

    /// The authorities that are trusted in place of the system's, in PEM.
    pub(super) fn certificate(&self) -> Result<Option<Vec<u8>>, SpansError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| SpansError::Tls(format!("{}: {error}", path.display())))
        };
        self.certificate.as_ref().map(read).transpose()
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
    const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");

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
    fn a_url_for_grpc_may_leave_out_its_scheme() {
        let url = |variables: &[(&str, &str)]| match read(variables).unwrap().unwrap().protocol {
            Protocol::Grpc(url) => url.to_string(),
            Protocol::Http => panic!("http"),
        };
        let at = |url| [("OTEL_EXPORTER_OTLP_ENDPOINT", url), GRPC];
        assert_eq!(url(&at("http://collector:4317")), "http://collector:4317/");
        assert_eq!(url(&at("collector:4317")), "https://collector:4317/");
        let insecure = |name, value| url(&[&at("collector:4317")[..], &[(name, value)]].concat());
        assert_eq!(insecure("OTEL_EXPORTER_OTLP_INSECURE", "true"), "http://collector:4317/");
        assert_eq!(insecure("OTEL_EXPORTER_OTLP_TRACES_INSECURE", "True"), "http://collector:4317/");
        assert_eq!(insecure("OTEL_EXPORTER_OTLP_INSECURE", "1"), "https://collector:4317/");
        let of_traces = [
            COLLECTOR,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ];
        assert_eq!(url(&of_traces), "http://c:1/");
        let http = [at("collector:4317")[0], GRPC, ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")];
        assert_eq!(read(&http).unwrap().unwrap().protocol, Protocol::Http);
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
        assert_eq!(
            refused(("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")),
            "OTEL_EXPORTER_OTLP_PROTOCOL: \"http/json\" is not supported: http/protobuf and grpc are"
        );
        for url in ["http://", "://c", "ftp://c", "http://a b", "/v1/traces"] {
            let error = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", url), GRPC]).unwrap_err();
            let expected = "is no URL for grpc, such as http://collector:4317";
            assert_eq!(error, format!("OTEL_EXPORTER_OTLP_ENDPOINT: {url:?} {expected}"));
        }
        let secret = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://us@er:pass@c:1/x@y"), GRPC]).unwrap_err();
        assert!(secret.contains("\"ftp://...@c:1/x@y\""), "{secret}");
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
