//! Access to the pages of one run: a browser opens the printed address once, and shows a cookie from then on.
//!
//! - The address has a key that is good for one use. The arguments of `xdg-open` and of the browser have it, and users of the
//!   machine may see them.
//! - The cookie has another secret. It goes with requests below a random prefix alone, so a program at another port of 127.0.0.1
//!   does not get it: browsers keep cookies by host and path, not by port.
//! - A page of another origin can make the browser ask. Its request names that origin, or, where the name of a site was made to mean
//!   this address, that name as the host.

use std::fmt::Write;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{COOKIE, HOST, HeaderName, ORIGIN};
use http::{HeaderMap, Method, Uri};

/// The field of the address that has the key.
const KEY_FIELD: &str = "key";

/// Bytes of each secret.
const SECRET_BYTES: usize = 16;

/// The port that browsers leave out of `Host` and `Origin`.
const HTTP_PORT: u16 = 80;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The secrets of one run.
pub struct AccessKey {
    port: u16,
    /// The key of the printed address.
    key: String,
    is_spent: AtomicBool,
    cookie: String,
    /// The first part of the path of each page.
    prefix: String,
}

/// The sender of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Visitor<'a> {
    /// A browser with the cookie. The path is that of the page, without the prefix.
    Known(&'a str),
    /// A browser that is the first one to open the address with the key.
    WithKey,
    Stranger(Refusal),
}

/// The reason why a request is shown nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "the request is for the host {0:?}, and the pages are at 127.0.0.1:{1}: where a port is forwarded, both ports have to be the same"
    )]
    Host(String, u16),
    #[error("a page of another origin asks: open the address that `metahook dashboard` printed")]
    Origin,
    #[error(
        "the key is of another run of the command: open the address that the latest `metahook dashboard` printed"
    )]
    OtherKey,
    #[error(
        "the key of this address has been used, and is good for one use: return to the browser that opened it, or start `metahook dashboard` again for a new one; if you did not open it, another program of this machine did: end the command"
    )]
    SpentKey,
    #[error("the browser has no cookie of this run: open the address that `metahook dashboard` printed")]
    NoCookie,
}

impl AccessKey {
    /// New secrets for pages at this port.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(port: u16) -> Result<Self, getrandom::Error> {
        let (key, cookie, prefix) = (secret()?, secret()?, secret()?);
        Ok(Self { port, key, is_spent: AtomicBool::new(false), cookie, prefix })
    }

    /// The address that a browser opens. It does not name the prefix.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?{KEY_FIELD}={}", self.port, self.key)
    }

    /// Prefix of the path of each page, such as `/6f0c55d1`.
    pub(super) fn prefix(&self) -> String {
        format!("/{}", self.prefix)
    }

    pub(super) fn visitor<'a>(&self, method: &Method, headers: &HeaderMap, uri: &'a Uri) -> Visitor<'a> {
        if let Err(refusal) = self.check_headers(headers) {
            return Visitor::Stranger(refusal);
        }
        if let Some(path) = self.below_prefix(uri.path()) {
            let is_known = self.has_cookie(headers);
            return if is_known { Visitor::Known(path) } else { Visitor::Stranger(Refusal::NoCookie) };
        }
        let query = uri.query().unwrap_or_default();
        let key = form_urlencoded::parse(query.as_bytes()).find(|(field, _)| field == KEY_FIELD);
        match key {
            None => Visitor::Stranger(Refusal::NoCookie),
            Some((_, key)) if !is_same(&self.key, &key) => Visitor::Stranger(Refusal::OtherKey),
            // A program that looks at the address before a browser opens it spends nothing.
            Some(_) if method != Method::GET => Visitor::Stranger(Refusal::NoCookie),
            Some(_) if self.is_spent.swap(true, Ordering::AcqRel) => Visitor::Stranger(Refusal::SpentKey),
            Some(_) => Visitor::WithKey,
        }
    }

    /// The cookie that a browser keeps until it ends.
    pub(super) fn cookie(&self) -> String {
        let (name, prefix) = (self.cookie_name(), self.prefix());
        format!("{name}={}; HttpOnly; SameSite=Strict; Path={prefix}/", self.cookie)
    }

    fn check_headers(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut hosts = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port)).to_vec();
        if self.port == HTTP_PORT {
            hosts.extend(["127.0.0.1", "localhost"].map(str::to_owned));
        }
        if !hosts.iter().any(|host| host == text(HOST)) {
            return Err(Refusal::Host(text(HOST).to_owned(), self.port));
        }
        let is_own = |origin: &str| hosts.iter().any(|host| origin == format!("http://{host}"));
        if headers.contains_key(ORIGIN) && !is_own(text(ORIGIN)) {
            return Err(Refusal::Origin);
        }
        if matches!(text(SEC_FETCH_SITE), "cross-site" | "same-site") {
            return Err(Refusal::Origin);
        }
        Ok(())
    }

    /// The path of a page, which begins with a slash.
    fn below_prefix<'a>(&self, path: &'a str) -> Option<&'a str> {
        let below = path.strip_prefix('/')?;
        let end = below.find('/')?;
        let (first, page) = below.split_at_checked(end)?;
        is_same(&self.prefix, first).then_some(page)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = format!("{}=", self.cookie_name());
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|all| all.split(';'));
        pairs.any(|pair| pair.trim().strip_prefix(&*name).is_some_and(|given| is_same(&self.cookie, given)))
    }

    /// Cookies of all ports of a machine are one set.
    fn cookie_name(&self) -> String {
        format!("metahook-{}", self.port)
    }
}

fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes)?;
    let mut secret = String::new();
    for byte in bytes {
        // Writing to a String never fails.
        write!(secret, "{byte:02x}").unwrap_or_default();
    }
    Ok(secret)
}

/// Takes as long wherever the first difference is.
fn is_same(secret: &str, given: &str) -> bool {
    let pairs = secret.bytes().zip(given.bytes());
    let differences = pairs.fold(0, |found, (one, other)| black_box(found | (one ^ other)));
    secret.len() == given.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    type Header = (&'static str, String);

    fn ask<'a>(key: &AccessKey, (method, uri): (&Method, &'a Uri), headers: &[Header]) -> Visitor<'a> {
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        key.visitor(method, &headers.collect(), uri)
    }

    fn refusal(key: &AccessKey, path: &str, headers: &[Header]) -> Refusal {
        match ask(key, (&Method::GET, &path.parse().unwrap()), headers) {
            Visitor::Stranger(refusal) => refusal,
            shown => panic!("{path} {headers:?}: {shown:?}"),
        }
    }

    fn is_known(key: &AccessKey, headers: &[Header]) -> bool {
        let uri = format!("{}/object?name=a", key.prefix()).parse().unwrap();
        ask(key, (&Method::GET, &uri), headers) == Visitor::Known("/object")
    }

    fn host() -> Header {
        ("host", "127.0.0.1:7".to_owned())
    }

    fn pair(key: &AccessKey) -> Header {
        ("cookie", format!("other=1; {}", key.cookie().split_once("; ").unwrap().0))
    }

    #[test]
    fn the_key_is_good_for_one_use() {
        let key = AccessKey::new(7).unwrap();
        let uri: Uri = key.address().replace("http://127.0.0.1:7", "").parse().unwrap();
        assert!(matches!(ask(&key, (&Method::HEAD, &uri), &[host()]), Visitor::Stranger(_)));
        assert_eq!(ask(&key, (&Method::GET, &uri), &[host()]), Visitor::WithKey);
        for headers in [&[host()][..], &[host(), pair(&key)]] {
            assert_eq!(ask(&key, (&Method::GET, &uri), headers), Visitor::Stranger(Refusal::SpentKey));
        }
        assert!(Refusal::SpentKey.to_string().contains("start `metahook dashboard` again"));
        assert!(is_known(&key, &[host(), pair(&key)]), "the cookie stays good");
    }

    #[test]
    fn a_browser_shows_the_cookie_below_the_prefix_alone() {
        let key = AccessKey::new(7).unwrap();
        let cookie = key.cookie();
        let (given, attributes) = cookie.split_once("; ").unwrap();
        assert_eq!(attributes, format!("HttpOnly; SameSite=Strict; Path={}/", key.prefix()));
        let secret = given.split_once('=').unwrap().1;
        assert!(!key.address().contains(secret) && !key.address().contains(&key.prefix));
        assert!(!key.prefix().contains(secret));
        let local = ("host", "localhost:7".to_owned());
        let origin = ("origin", "http://localhost:7".to_owned());
        let own = ("sec-fetch-site", "same-origin".to_owned());
        assert!(is_known(&key, &[local, origin, own, pair(&key)]));
        for path in ["/", "/object", "/00/object", &key.prefix(), &format!("/{}", key.prefix())] {
            assert_eq!(refusal(&key, path, &[host(), pair(&key)]), Refusal::NoCookie, "{path}");
        }
    }

    #[test]
    fn strangers_are_shown_nothing() {
        let key = AccessKey::new(7).unwrap();
        let page = format!("{}/", key.prefix());
        assert_eq!(refusal(&key, "/", &[host()]), Refusal::NoCookie);
        assert_eq!(refusal(&key, "/?key=", &[host()]), Refusal::OtherKey);
        assert_eq!(refusal(&key, "/?key=00", &[host(), pair(&key)]), Refusal::OtherKey);
        let good = key.cookie();
        let address_key = key.address().split_once("key=").unwrap().1.to_owned();
        for cookie in [
            "metahook-7=00".to_owned(),
            format!("metahook-7={address_key}"),
            good.replace("-7=", "-8="),
            good.replacen(';', "0;", 1),
        ] {
            assert_eq!(refusal(&key, &page, &[host(), ("cookie", cookie)]), Refusal::NoCookie);
        }
        for host in ["evil.example:7", "127.0.0.1:8", "127.0.0.1", "127.0.0.1.evil.example:7", ""] {
            let refusal = refusal(&key, &page, &[("host", host.to_owned()), pair(&key)]);
            assert_eq!(refusal, Refusal::Host(host.to_owned(), 7));
        }
        for (name, value) in [
            ("origin", "https://evil.example"),
            ("origin", "http://127.0.0.1:8"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let refusal = refusal(&key, &page, &[host(), pair(&key), (name, value.to_owned())]);
            assert_eq!(refusal, Refusal::Origin);
        }
    }

    #[test]
    fn browsers_leave_out_port_80() {
        let key = AccessKey::new(80).unwrap();
        let headers =
            |host: &str| [("host", host.to_owned()), ("origin", format!("http://{host}")), pair(&key)];
        for host in ["127.0.0.1", "localhost", "127.0.0.1:80"] {
            assert!(is_known(&key, &headers(host)), "{host}");
        }
        assert!(!is_known(&key, &headers("127.0.0.1:7")));
    }

    #[test]
    fn each_run_has_its_own_secrets() {
        let keys = [7, 7].map(|port| AccessKey::new(port).unwrap());
        let secrets = keys.iter().flat_map(|one| [&one.key, &one.cookie, &one.prefix]);
        let different: std::collections::BTreeSet<_> = secrets.collect();
        assert_eq!(different.len(), 6);
        assert!(different.iter().all(|secret| secret.len() == 2 * SECRET_BYTES));
    }
}
