//! Pools of connections: webhooks with the same trust share one, so that all hooks of a server reuse its connections.
//!
//! A server that serves one connection after the other is thus asked by the one that it serves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use metahook_core::hash::Fingerprint;
#[cfg(test)]
use metahook_core::hook::DEFAULT_WEBHOOK_ANSWER;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, Error};

use crate::cluster::proxies::Proxies;
use crate::hook::web::connector::{Connector, Resolver};
use crate::hook::web::redirect::RedirectPolicy;
use crate::hook::web::tls::{TlsSettings, certificates};
use crate::sync::lock;

/// A connection on which nothing is asked for so long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A connection that many requests share is probed while one of them waits for so long, and closed if nothing comes.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Connections by server.
pub(crate) type Pool = Arc<WebClient>;

pub(crate) type WebClient = Client<Connector, Full<Bytes>>;

/// The pools that all webhooks of the server share, one for each way to trust and to be trusted; the settings of all of them.
pub struct Pools {
    /// Bytes that an answer may have.
    pub(super) max_answer: usize,
    pub(super) redirects: RedirectPolicy,
    resolver: Resolver,
    pub(super) proxies: Proxies,
    /// The authorities that the system trusts, read when the first webhook needs them.
    system: OnceLock<Vec<CertificateDer<'static>>>,
    /// By their settings, and by whether they keep idle connections.
    in_use: Mutex<BTreeMap<(Fingerprint, bool), Weak<WebClient>>>,
}

impl Pools {
    /// `max_answer`: bytes that an answer may have.
    pub fn new(max_answer: usize, redirects: RedirectPolicy) -> Arc<Self> {
        let resolver = Resolver::System(GaiResolver::new());
        Self::with(resolver, Proxies::of_environment(), max_answer, redirects)
    }

    pub(super) fn with(
        resolver: Resolver,
        proxies: Proxies,
        max_answer: usize,
        redirects: RedirectPolicy,
    ) -> Arc<Self> {
        let (system, in_use) = (OnceLock::new(), Mutex::default());
        Arc::new(Self { max_answer, redirects, resolver, proxies, system, in_use })
    }

    /// Pools that trust these certificates in place of the system's.
    #[cfg(test)]
    pub(super) fn trusting(
        resolver: Resolver,
        proxies: Proxies,
        certificates: Vec<CertificateDer<'static>>,
    ) -> Arc<Self> {
        let pools = Self::with(resolver, proxies, DEFAULT_WEBHOOK_ANSWER, RedirectPolicy::default());
        pools.system.get_or_init(|| certificates);
        pools
    }

    /// The pool of all webhooks with these settings. It ends with the last of them, and its connections with it.
    pub(super) fn get(&self, settings: &TlsSettings) -> Result<Pool, Error> {
        self.pool_of(settings, true)
    }

    /// As [`Self::get`], for servers that redirects name: no connection is kept idle. A webhook could name another port each time.
    pub(super) fn get_for_redirects(&self, settings: &TlsSettings) -> Result<Pool, Error> {
        self.pool_of(settings, false)
    }

    fn pool_of(&self, settings: &TlsSettings, keeps_idle: bool) -> Result<Pool, Error> {
        let mut in_use = lock(&self.in_use);
        in_use.retain(|_, pool| pool.strong_count() > 0);
        let key = (settings.digest(), keeps_idle);
        if let Some(pool) = in_use.get(&key).and_then(Weak::upgrade) {
            return Ok(pool);
        }
        let pool = Arc::new(self.pool(settings.config(self.system())?, keeps_idle));
        in_use.insert(key, Arc::downgrade(&pool));
        Ok(pool)
    }

    /// A pool for others than webhooks. `pem`: authorities that are trusted in place of the system's.
    ///
    /// # Errors
    /// There is no authority that can be used.
    pub(crate) fn trusting_pem(&self, pem: Option<&[u8]>) -> Result<Pool, String> {
        self.get(&trusting(pem)?).map_err(|error| error.to_string())
    }

    /// Makes connections that nobody on the way reads, to others than webhooks. `pem`: as for a pool.
    ///
    /// # Errors
    /// There is no authority that can be used.
    pub(crate) fn tunnels_trusting_pem(&self, pem: Option<&[u8]>) -> Result<Connector, String> {
        let tls = trusting(pem)?.config(self.system()).map_err(|error| error.to_string())?;
        Ok(Connector::new(self.resolver.clone(), Arc::new(tls), self.proxies.clone()).by_tunnels())
    }

    /// The authorities that the system trusts.
    fn system(&self) -> &[CertificateDer<'static>] {
        self.system.get_or_init(|| rustls_native_certs::load_native_certs().certs)
    }

    /// The header that a proxy on the way to `uri` wants of a request without TLS: a request over TLS goes through a tunnel,
    /// which has its own.
    pub(crate) fn proxy_authorization(&self, uri: &Uri) -> Option<HeaderValue> {
        let proxy = self.proxies.towards(uri).ok()??;
        proxy.authorization().filter(|_| uri.scheme_str() == Some("http")).cloned()
    }

    fn pool(&self, tls: ClientConfig, keeps_idle: bool) -> WebClient {
        let connector = Connector::new(self.resolver.clone(), Arc::new(tls), self.proxies.clone());
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT);
        client.pool_max_idle_per_host(if keeps_idle { usize::MAX } else { 0 });
        // Without it, all requests to a server that is gone would wait for their whole time.
        client
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(KEEPALIVE)
            .http2_keep_alive_timeout(KEEPALIVE);
        client.build(connector)
    }
}

fn trusting(pem: Option<&[u8]>) -> Result<TlsSettings, String> {
    let read = |pem| certificates(pem).ok_or_else(|| "there is no certificate in PEM".to_owned());
    Ok(TlsSettings { authorities: pem.map(read).transpose()?, ..TlsSettings::default() })
}
