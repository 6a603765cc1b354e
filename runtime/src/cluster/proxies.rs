//! Proxies on the way to webhooks and to the API server, as the environment and the kubeconfig name them.

use std::net::IpAddr;
use std::sync::Arc;

use http::Uri;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use kube::Config;

/// Proxies of the environment: `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`, in capitals or not.
#[derive(Clone)]
pub(crate) struct Proxies(Option<Arc<Matcher>>);

/// A proxy that is asked over plain HTTP.
pub(crate) struct Proxy(Intercept);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the proxy {0} cannot be asked: its URL has to begin with http:// (HTTP_PROXY, HTTPS_PROXY, or proxy-url of the kubeconfig)"
)]
pub struct ProxyError(
    /// Without user and password.
    String,
);

impl Proxies {
    pub(crate) fn of_environment() -> Self {
        Self(Some(Arc::new(Matcher::from_env())))
    }

    #[cfg(test)]
    pub(crate) fn of(matcher: Option<Matcher>) -> Self {
        Self(matcher.map(Arc::new))
    }

    /// The proxy on the way to a server. This machine is always reached without one, as by programs written in Go.
    pub(crate) fn towards(&self, to: &Uri) -> Result<Option<Proxy>, ProxyError> {
        let host = to.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let is_here = host.eq_ignore_ascii_case("localhost")
            || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let found = self.0.as_ref().filter(|_| !is_here).and_then(|matcher| matcher.intercept(to));
        found.map(Proxy::new).transpose()
    }
}

impl Proxy {
    fn new(found: Intercept) -> Result<Self, ProxyError> {
        if found.uri().scheme_str() == Some("http") {
            return Ok(Self(found));
        }
        Err(ProxyError(found.uri().host().unwrap_or_default().to_owned()))
    }

    /// On the way to the API server: the kubeconfig's, else the environment's.
    pub(super) fn of_config(config: &Config) -> Result<Option<Self>, ProxyError> {
        // kube takes the environment's for the kubeconfig's, whatever NO_PROXY says.
        let is_of_environment = |proxy: &Uri| {
            let named =
                ["HTTPS_PROXY", "https_proxy"].into_iter().filter_map(|name| std::env::var(name).ok());
            named.filter_map(|named| named.parse().ok()).any(|named: Uri| named == *proxy)
        };
        match &config.proxy_url {
            Some(proxy) if !is_of_environment(proxy) => {
                let matcher = Matcher::builder().all(proxy.to_string()).build();
                matcher.intercept(&config.cluster_url).map(Self::new).transpose()
            }
            Some(_) | None => Proxies::of_environment().towards(&config.cluster_url),
        }
    }

    pub(crate) fn uri(&self) -> &Uri {
        self.0.uri()
    }

    /// Without user and password.
    pub(crate) fn host(&self) -> String {
        self.uri().host().unwrap_or_default().to_owned()
    }

    /// Value of the header `Proxy-Authorization`.
    pub(crate) fn authorization(&self) -> Option<&http::HeaderValue> {
        self.0.basic_auth()
    }

    /// Makes connections by the proxy that nobody on the way reads.
    pub(crate) fn tunnel<C>(&self, connector: C) -> Tunnel<C> {
        let tunnel = Tunnel::new(self.uri().clone(), connector);
        match self.authorization() {
            Some(authorization) => tunnel.with_auth(authorization.clone()),
            None => tunnel,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(proxy: &str) -> Matcher {
        Matcher::builder().all(proxy.to_owned()).no("near.example, 10.0.0.0/8").build()
    }

    #[test]
    fn this_machine_and_what_is_named_are_reached_without_the_proxy() {
        let proxies = Proxies::of(Some(matcher("http://user:secret@proxy.example:3128")));
        let by = |url: &str| proxies.towards(&url.parse().unwrap()).unwrap();
        for url in
            ["http://far.example/", "https://far.example/", "http://11.0.0.1/", "http://[2001:db8::1]/"]
        {
            let proxy = by(url).unwrap();
            assert_eq!(
                (proxy.host().as_str(), proxy.uri().port_u16()),
                ("proxy.example", Some(3128)),
                "{url}"
            );
            assert_eq!(proxy.authorization().unwrap(), "Basic dXNlcjpzZWNyZXQ=");
        }
        for url in [
            "http://near.example/",
            "https://a.near.example/",
            "http://10.1.2.3/",
            "http://localhost:1/",
            "http://127.1.2.3/",
            "https://[::1]:1/",
        ] {
            assert!(by(url).is_none(), "{url}");
        }
    }

    #[test]
    fn another_kind_of_proxy_is_refused_without_its_secrets() {
        for proxy in ["https://user:secret@proxy.example", "socks5://user:secret@proxy.example"] {
            let found = Proxies::of(Some(matcher(proxy))).towards(&"https://far.example".parse().unwrap());
            let error = found.err().unwrap().to_string();
            let expected = "the proxy proxy.example cannot be asked: its URL has to begin with http:// (";
            assert!(error.starts_with(expected) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_kubeconfig_names_the_proxy_to_the_api_server() {
        let mut config = Config::new("https://api.example:6443".parse().unwrap());
        config.proxy_url = Some("http://user:secret@proxy.example:3128".parse().unwrap());
        let proxy = Proxy::of_config(&config).unwrap().unwrap();
        assert_eq!((proxy.host().as_str(), proxy.uri().port_u16()), ("proxy.example", Some(3128)));
        assert!(proxy.authorization().is_some());
    }
}
