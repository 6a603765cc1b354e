//! Webhook after its checks: URL, timeout, endpoint configuration.

use std::time::Duration;

use crate::api::webhook::{EndpointConfig, Trust, UnmarshallMode, Webhook};
use crate::api::{SpecError, units};

/// A [`Webhook`] after its checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookTarget {
    /// Where it is in the spec.
    pub field: String,
    pub url: String,
    pub timeout: Duration,
    /// A timeout of zero or less, which the default replaces.
    pub ignored_timeout: Option<String>,
    /// Host and port, by which an endpoint configuration is found.
    authority: UrlAuthority,
    pub mode: Option<UnmarshallMode>,
}

/// The part of a URL that is compared with the hosts of endpoint configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UrlAuthority {
    /// As written: `host` or `host:port`.
    written: String,
    host: String,
    port: Option<String>,
    /// Of the scheme.
    default_port: &'static str,
}

/// Timeout of a webhook whose spec names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

impl Webhook {
    /// `field`: where it is in the spec.
    pub fn check(&self, field: &str) -> Result<WebhookTarget, SpecError> {
        self.trust.refuse(field)?;
        if self.etag.as_ref().is_some_and(|etag| etag.enabled == Some(true)) {
            return Err(not_yet(&format!("{field}.etag.enabled"), "keeps no answers under their ETag"));
        }
        let (field_of_url, url) = self.located(field)?;
        let authority = UrlAuthority::of(&url).map_err(|problem| SpecError::new(field_of_url, problem))?;
        let url = url
            .split_once("://")
            .map_or(url.clone(), |(scheme, rest)| format!("{}://{rest}", scheme.to_ascii_lowercase()));
        let (timeout, ignored_timeout) = match &self.timeout {
            None => (DEFAULT_TIMEOUT, None),
            Some(text) => match units::signed_duration(text) {
                Some(nanos) if nanos > 0 => (Duration::from_nanos(nanos.unsigned_abs()), None),
                Some(_) => (DEFAULT_TIMEOUT, Some(text.clone())),
                None => {
                    let problem =
                        format!("{text:?} is no duration as Go writes it: write it like 10s or 1m30s");
                    return Err(SpecError::new(format!("{field}.timeout"), problem));
                }
            },
        };
        let mode = self.response_un_marshall_mode;
        Ok(WebhookTarget { field: field.to_owned(), url, timeout, ignored_timeout, authority, mode })
    }

    /// The URL, and the field of the spec that it comes from.
    fn located(&self, field: &str) -> Result<(String, String), SpecError> {
        if let Some(url) = &self.url {
            return Ok((format!("{field}.url"), url.clone()));
        }
        let refuse = |part: &str, problem: &str| Err(SpecError::new(format!("{field}{part}"), problem));
        let (service, path) = match (&self.service, &self.path) {
            (Some(service), Some(path)) => (service, path),
            (Some(_), None) => {
                return refuse(".path", "is missing: a service is asked under a path, for example /sync");
            }
            (None, _) => return refuse("", "says not where it is: give it a url, or a service and a path"),
        };
        SpecError::check_names(&format!("{field}.service"), &service.namespace, &service.name)?;
        if !path.starts_with('/') {
            return refuse(".path", &format!("{path:?} has to begin with a /"));
        }
        let port = service.port.unwrap_or(80);
        if !(1..=65535).contains(&port) {
            return refuse(".service.port", &format!("{port} is no port: it has to be from 1 to 65535"));
        }
        let protocol = service.protocol.as_deref().unwrap_or("http");
        let url = format!("{protocol}://{}.{}:{port}{path}", service.name, service.namespace);
        Ok((format!("{field}.service"), url))
    }
}

impl WebhookTarget {
    /// `configs`: the controller's; the first one with this webhook's host counts.
    ///
    /// # Errors
    /// It asks for something that this version cannot do.
    pub fn check_endpoint(&self, configs: &[EndpointConfig]) -> Result<(), SpecError> {
        let found = configs.iter().enumerate().find(|(_, config)| self.authority.is(&config.host));
        found.map_or(Ok(()), |(nth, config)| config.trust.refuse(&format!("spec.endpointConfigs[{nth}]")))
    }

    /// Where it is, for people: without what may be secret in a path or query.
    pub fn place(&self) -> &str {
        &self.authority.written
    }
}

impl Trust {
    /// # Errors
    /// Names the first field that this version cannot follow.
    fn refuse(&self, field: &str) -> Result<(), SpecError> {
        let given = [
            ("caBundle", self.ca_bundle.is_some()),
            ("clientTLS", self.client_tls.is_some()),
            ("authorization", self.authorization.is_some()),
            ("basicAuth", self.basic_auth.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(not_yet(
                &format!("{field}.{name}"),
                "calls webhooks without credentials, and trusts the certificates of its system",
            )),
            None => Ok(()),
        }
    }
}

impl UrlAuthority {
    fn of(url: &str) -> Result<Self, String> {
        let example = "write it like http://host:8080/path";
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| format!("{url:?} is no URL with a host: {example}"))?;
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "http" => "80",
            "https" => "443",
            _ => return Err(format!("{url:?} begins with neither http:// nor https://: {example}")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let written = rest.get(..end).unwrap_or_default();
        if written.contains('@') {
            return Err(
                "names a user and a password, which this version of the server does not send".to_owned()
            );
        }
        // An IPv6 address has colons and brackets around it.
        let after_host = written.find(']').unwrap_or_default();
        let (host, port) = match written.rfind(':').filter(|colon| *colon >= after_host) {
            Some(colon) => (written.get(..colon), written.get(colon + 1..).filter(|port| !port.is_empty())),
            None => (Some(written), None),
        };
        let host = host.unwrap_or_default();
        if host.is_empty() {
            return Err(format!("{url:?} names no host: {example}"));
        }
        if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
            return Err(format!("{url:?} has a port that is none: {example}"));
        }
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!(
                "{url:?} has spaces or control characters in it: write them as %20 and so on"
            ));
        }
        Ok(Self {
            written: written.to_owned(),
            host: host.to_owned(),
            port: port.map(str::to_owned),
            default_port,
        })
    }

    /// Whether an endpoint configuration for `host` is one for this.
    fn is(&self, host: &str) -> bool {
        let same = |one: &str| one.eq_ignore_ascii_case(host);
        same(&self.written)
            || match &self.port {
                None => same(&format!("{}:{}", self.host, self.default_port)),
                Some(port) => port == self.default_port && same(&self.host),
            }
    }
}

fn not_yet(field: &str, what: &str) -> SpecError {
    let problem = format!(
        "not served: this version of the server {what}; the controller is not run, so that nothing is half done"
    );
    SpecError::new(field, problem)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(webhook: Value) -> Result<WebhookTarget, String> {
        let webhook: Webhook = serde_json::from_value(webhook).unwrap();
        webhook.check("spec.hooks.sync.webhook").map_err(|error| error.to_string())
    }

    #[test]
    fn a_service_is_asked_by_its_name_and_namespace() {
        let url = |service: Value| check(json!({ "service": service, "path": "/sync" })).unwrap().url;
        assert_eq!(url(json!({"name": "s", "namespace": "n"})), "http://s.n:80/sync");
        assert_eq!(
            url(json!({"name": "s", "namespace": "n", "port": 8443, "protocol": "https"})),
            "https://s.n:8443/sync"
        );
    }

    #[test]
    fn the_url_wins_over_the_service() {
        let both = json!({"url": "http://h/x?y=z", "service": {"name": "", "namespace": ""}, "path": "p"});
        assert_eq!(check(both).unwrap().url, "http://h/x?y=z");
    }

    #[test]
    fn a_scheme_is_one_whatever_its_case() {
        assert_eq!(check(json!({"url": "HTTPS://H/X"})).unwrap().url, "https://H/X");
    }

    #[test]
    fn what_cannot_be_called_is_refused_by_field() {
        let service = |service: Value, path: &str| json!({ "service": service, "path": path });
        for (webhook, says) in [
            (json!({}), "spec.hooks.sync.webhook: says not where it is"),
            (json!({"path": "/x"}), "spec.hooks.sync.webhook: says not where it is"),
            (json!({"service": {"name": "s", "namespace": "n"}}), "webhook.path: is missing"),
            (service(json!({"name": "", "namespace": "n"}), "/"), "webhook.service.name: must not be empty"),
            (
                service(json!({"name": "s", "namespace": ""}), "/"),
                "webhook.service.namespace: must not be empty",
            ),
            (service(json!({"name": "s", "namespace": "n"}), "sync"), "webhook.path: \"sync\" has to begin"),
            (
                service(json!({"name": "s", "namespace": "n", "port": 0}), "/"),
                "webhook.service.port: 0 is no port",
            ),
            (
                service(json!({"name": "s", "namespace": "n", "protocol": "ftp"}), "/"),
                "webhook.service: \"ftp://s.n:80/\" begins with neither",
            ),
            (json!({"url": ""}), "webhook.url: \"\" is no URL"),
            (json!({"url": "host:80/x"}), "webhook.url: \"host:80/x\" is no URL"),
            (json!({"url": "http:///x"}), "names no host"),
            (json!({"url": "http://h:99999/"}), "has a port that is none"),
            (json!({"url": "http://h/a b"}), "has spaces"),
            (json!({"url": "http://u:p@h/"}), "names a user and a password"),
            (
                json!({"url": "http://h", "timeout": "3 days"}),
                "webhook.timeout: \"3 days\" is no duration as Go writes it",
            ),
            (json!({"url": "http://h", "timeout": ""}), "webhook.timeout: \"\" is no duration"),
            (json!({"url": "http://h", "etag": {"enabled": true}}), "webhook.etag.enabled: not served"),
            (json!({"url": "http://h", "caBundle": {}}), "webhook.caBundle: not served"),
            (
                json!({"url": "http://h", "clientTLS": {"secretRef": {"name": "s", "namespace": "n"}}}),
                "webhook.clientTLS: not served",
            ),
            (
                json!({"url": "http://h", "authorization": {"secretRef": {"name": "s", "namespace": "n", "key": "k"}}}),
                "webhook.authorization: not served",
            ),
            (
                json!({"url": "http://h", "basicAuth": {"secretRef": {"name": "s", "namespace": "n"}}}),
                "webhook.basicAuth: not served",
            ),
        ] {
            let error = check(webhook).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_timeout_of_nothing_is_the_default() {
        let timeout = |text: &str| {
            let target = check(json!({"url": "http://h", "timeout": text})).unwrap();
            (target.timeout.as_millis(), target.ignored_timeout)
        };
        assert_eq!(check(json!({"url": "http://h"})).unwrap().timeout, DEFAULT_TIMEOUT);
        assert_eq!(timeout("1m0.5s"), (60_500, None));
        assert_eq!(timeout("0s"), (10_000, Some("0s".to_owned())));
        assert_eq!(timeout("-5s"), (10_000, Some("-5s".to_owned())));
        assert!(check(json!({"url": "http://h", "etag": {"enabled": false}})).is_ok());
    }

    #[test]
    fn an_endpoint_configuration_counts_for_its_host_whatever_the_case() {
        let is = |url: &str, host: &str| check(json!({ "url": url })).unwrap().authority.is(host);
        for (url, host) in [
            ("http://Hook.n/x", "hook.N"),
            ("http://hook.n/x", "hook.n:80"),
            ("https://hook.n", "hook.n:443"),
            ("http://hook.n:80/x", "hook.n"),
            ("https://hook.n:443?q", "hook.n"),
            ("http://hook.n:8080/", "hook.n:8080"),
            ("http://[::1]:80/", "[::1]"),
            ("http://[::1]/", "[::1]:80"),
        ] {
            assert!(is(url, host), "{url} {host}");
        }
        for (url, host) in [
            ("http://hook.n:8080/x", "hook.n"),
            ("https://hook.n/x", "hook.n:80"),
            ("http://hook.n:443/x", "hook.n"),
            ("http://hook.n/x", "n"),
        ] {
            assert!(!is(url, host), "{url} {host}");
        }
    }

    #[test]
    fn only_the_endpoint_configuration_in_use_is_refused() {
        let target = check(json!({"url": "http://hook.n"})).unwrap();
        let configs: Vec<EndpointConfig> = serde_json::from_value(json!([
            {"host": "other", "caBundle": {"inline": "x"}},
            {"host": "hook.n", "caBundle": {"inline": "x"}},
        ]))
        .unwrap();
        let error = target.check_endpoint(&configs).unwrap_err().to_string();
        assert!(error.starts_with("spec.endpointConfigs[1].caBundle: not served"), "{error}");
        assert_eq!(target.check_endpoint(&configs[..1]), Ok(()));
    }
}
