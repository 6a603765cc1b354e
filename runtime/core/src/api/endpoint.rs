//! Webhook after its checks: URL, timeout, endpoint configuration.

use std::time::Duration;

use crate::api::trust::CheckedTrust;
use crate::api::url::{Credentials, UrlAuthority, without_credentials};
use crate::api::webhook::{EndpointConfig, Etag, UnmarshallMode, Webhook};
use crate::api::{SpecError, units};

/// A [`Webhook`] after its checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookTarget {
    /// Where it is in the spec.
    pub field: String,
    /// Without user and password, so that anything may show it.
    pub url: String,
    /// User and password of the URL.
    pub credentials: Option<Credentials>,
    pub timeout: Duration,
    /// A timeout of zero or less, which the default replaces.
    pub ignored_timeout: Option<String>,
    /// Host and port, by which an endpoint configuration is found.
    authority: UrlAuthority,
    pub mode: Option<UnmarshallMode>,
    /// Answers are kept under their `ETag`.
    pub etag: Option<EtagPolicy>,
    pub trust: Box<CheckedTrust>,
}

/// How long answers are kept under their `ETag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtagPolicy {
    /// As long as there is room for them.
    Forever,
    /// The cache is cleaned up at an interval, in which expired answers still take memory.
    Expiring { lifetime: Duration, cleanup: Duration },
}

/// Timeout of a webhook whose spec names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

impl Webhook {
    /// `field`: where it is in the spec.
    pub fn check(&self, field: &str) -> Result<WebhookTarget, SpecError> {
        let trust = Box::new(self.trust.check(field)?);
        let (field_of_url, url) = self.located(field)?;
        let refused = |problem: String| SpecError::new(&field_of_url, problem);
        let (url, credentials) = without_credentials(&url).map_err(refused)?;
        let authority = UrlAuthority::of(&url).map_err(refused)?;
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
        Ok(WebhookTarget {
            field: field.to_owned(),
            url,
            credentials,
            timeout,
            ignored_timeout,
            authority,
            mode: self.response_un_marshall_mode,
            etag: self.etag.as_ref().and_then(Etag::check),
            trust,
        })
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
        // Nothing at all is the root, as with Metacontroller.
        if !path.is_empty() && !path.starts_with('/') {
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
    /// Takes the certificates and credentials of the first entry with this webhook's host, unless the webhook has any of its own.
    pub fn take_endpoint(&mut self, configs: &[EndpointConfig]) -> Result<(), SpecError> {
        let found = configs.iter().enumerate().find(|(_, config)| self.authority.is(&config.host));
        if let Some((nth, config)) = found.filter(|_| self.trust.is_empty()) {
            *self.trust = config.trust.check(&format!("spec.endpointConfigs[{nth}]"))?;
        }
        Ok(())
    }

    /// Where it is, for people: without what may be secret in a path or query.
    pub fn place(&self) -> &str {
        &self.authority.written
    }
}

impl Etag {
    /// `None`: it is not enabled. Without an interval of its own, the cache is cleaned up as often as answers expire.
    fn check(&self) -> Option<EtagPolicy> {
        let seconds = |seconds: Option<i32>| {
            let seconds = u64::try_from(seconds?).ok().filter(|seconds| *seconds > 0);
            seconds.map(Duration::from_secs)
        };
        let policy = match seconds(self.cache_timeout_seconds) {
            None => EtagPolicy::Forever,
            Some(lifetime) => EtagPolicy::Expiring {
                lifetime,
                cleanup: seconds(self.cache_cleanup_seconds).unwrap_or(lifetime),
            },
        };
        (self.enabled == Some(true)).then_some(policy)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::trust::Authorities;

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
    fn an_empty_path_is_the_root() {
        let service = json!({"name": "s", "namespace": "n"});
        assert_eq!(check(json!({ "service": service, "path": "" })).unwrap().url, "http://s.n:80");
    }

    #[test]
    fn no_refusal_shows_a_password() {
        for url in [
            "http://u:secret@h:0/",
            "http://u:secret@",
            "ftp://u:secret@h/",
            "http://u:secret@h/a b",
            "http://u:secret%@h",
        ] {
            let error = check(json!({ "url": url })).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        let target = check(json!({"url": "http://u:secret@Hook.n/x"})).unwrap();
        assert_eq!(target.place(), "Hook.n");
        assert!(target.authority.is("hook.n"));
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
            (json!({"url": "http://u:%4@h/"}), "webhook.url: names a user or a password that cannot be read"),
            (json!({"url": "http://u%3Av:p@h/"}), "webhook.url: names a user with a colon"),
            (
                json!({"url": "http://h", "timeout": "3 days"}),
                "webhook.timeout: \"3 days\" is no duration as Go writes it",
            ),
            (json!({"url": "http://h", "timeout": ""}), "webhook.timeout: \"\" is no duration"),
            (json!({"url": "http://h", "caBundle": {}}), "sync.webhook.caBundle: names no certificates"),
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
    }

    #[test]
    fn answers_are_kept_as_long_as_the_spec_says() {
        let policy = |etag: Value| check(json!({"url": "http://h", "etag": etag})).unwrap().etag;
        let expiring = |lifetime, cleanup| EtagPolicy::Expiring {
            lifetime: Duration::from_secs(lifetime),
            cleanup: Duration::from_secs(cleanup),
        };
        for disabled in [json!({}), json!({"enabled": false, "cacheTimeoutSeconds": 1})] {
            assert_eq!(policy(disabled), None);
        }
        for (lifetime, cleanup, expected) in [
            (json!(null), json!(null), EtagPolicy::Forever),
            (json!(0), json!(5), EtagPolicy::Forever),
            (json!(-1), json!(null), EtagPolicy::Forever),
            // With Metacontroller, such a controller never starts.
            (json!(60), json!(null), expiring(60, 60)),
            (json!(60), json!(0), expiring(60, 60)),
            (json!(i32::MAX), json!(1), expiring(2_147_483_647, 1)),
        ] {
            let etag =
                json!({"enabled": true, "cacheTimeoutSeconds": lifetime, "cacheCleanupSeconds": cleanup});
            assert_eq!(policy(etag.clone()), Some(expected), "{etag}");
        }
    }

    #[test]
    fn the_first_endpoint_configuration_of_the_host_counts_as_a_whole() {
        let configs: Vec<EndpointConfig> = serde_json::from_value(json!([
            {"host": "other", "caBundle": {}},
            {"host": "HOOK.n:80", "caBundle": {"inline": "first"}},
            {"host": "hook.n", "caBundle": {}},
        ]))
        .unwrap();
        let pem = |webhook: Value, configs: &[EndpointConfig]| {
            let mut target = check(webhook).unwrap();
            target.take_endpoint(configs).map(|()| match target.trust.authorities {
                Some(Authorities::Inline { pem, field }) => format!("{field} {pem}"),
                _ => String::new(),
            })
        };
        let url = "http://hook.n/x";
        assert_eq!(
            pem(json!({ "url": url }), &configs).unwrap(),
            "spec.endpointConfigs[1].caBundle.inline first"
        );
        let error = pem(json!({ "url": url }), &configs[2..]).unwrap_err().to_string();
        assert!(error.starts_with("spec.endpointConfigs[0].caBundle: names no certificates"), "{error}");
        let secret = json!({"secretRef": {"name": "s", "namespace": "n"}});
        // Nothing is merged: the webhook's own settings stand alone.
        assert_eq!(pem(json!({ "url": url, "clientTLS": secret }), &configs).unwrap(), "");
        assert_eq!(pem(json!({ "url": "http://far/" }), &configs).unwrap(), "");
    }
}
