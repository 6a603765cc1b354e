//! Whose requests are answered: those of a browser that opened the address that the command printed, with the key of this run.
//!
//! Another program of the machine has no key. A page of another origin can make the browser ask, but its request names that origin,
//! or, where its name was made to mean this address, that name as the host; and the cookie goes with requests of these pages alone.

use std::fmt::Write;

use http::header::{COOKIE, HOST, ORIGIN};
use http::{HeaderMap, Uri};

/// The field of the address that has the key.
const FIELD: &str = "key";

/// Bytes of a key.
const BYTES: usize = 16;

/// The key of one run.
pub struct Key {
    secret: String,
    port: u16,
}

/// Who asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Visitor {
    /// A browser with the cookie.
    Known,
    /// A browser that opened the address with the key.
    WithKey,
    /// Why nothing is shown.
    Stranger(&'static str),
}

impl Key {
    /// A new one for pages at this port.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(port: u16) -> Result<Self, getrandom::Error> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes)?;
        let mut secret = String::new();
        for byte in bytes {
            // Writing to a String never fails.
            write!(secret, "{byte:02x}").unwrap_or_default();
        }
        Ok(Self { secret, port })
    }

    /// The address that a browser opens.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?{FIELD}={}", self.port, self.secret)
    }

    pub(super) fn visitor(&self, headers: &HeaderMap, uri: &Uri) -> Visitor {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let hosts = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port));
        if !hosts.iter().any(|host| host == text(HOST)) {
            return Visitor::Stranger("the host of the request is not this machine");
        }
        if headers.contains_key(ORIGIN) && !hosts.iter().any(|host| text(ORIGIN) == format!("http://{host}"))
        {
            return Visitor::Stranger("a page of another origin asks");
        }
        if matches!(text("sec-fetch-site".parse().unwrap_or(ORIGIN)), "cross-site" | "same-site") {
            return Visitor::Stranger("a page of another origin asks");
        }
        let name = format!("{}=", self.cookie_name());
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let given = cookies.flat_map(|all| all.split(';')).find_map(|one| one.trim().strip_prefix(&*name));
        let query = uri.query().unwrap_or_default();
        let shown = form_urlencoded::parse(query.as_bytes()).find(|(field, _)| field == FIELD);
        match (given, shown) {
            (_, Some((_, key))) if self.is(&key) => Visitor::WithKey,
            (Some(key), None) if self.is(key) => Visitor::Known,
            (_, Some(_)) => Visitor::Stranger("the key is of another run of the command"),
            (_, None) => Visitor::Stranger("the browser has no key"),
        }
    }

    /// The cookie that a browser keeps until it ends. It goes with no request of another page.
    pub(super) fn cookie(&self) -> String {
        format!("{}={}; HttpOnly; SameSite=Strict; Path=/", self.cookie_name(), self.secret)
    }

    /// Cookies of all ports of a machine are one set.
    fn cookie_name(&self) -> String {
        format!("metahook-{}", self.port)
    }

    /// Takes as long wherever the first difference is.
    fn is(&self, other: &str) -> bool {
        let differing = self.secret.bytes().zip(other.bytes()).filter(|(one, other)| one != other).count();
        other.len() == self.secret.len() && differing == 0
    }
}

/// The page that was asked for, without the key: a browser shows addresses, and remembers them.
pub(super) fn without_key(uri: &Uri) -> String {
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let mut rest = form_urlencoded::Serializer::new(String::new());
    rest.extend_pairs(query.filter(|(field, _)| field != FIELD));
    let rest = rest.finish();
    // What begins with two slashes is another host.
    let path = format!("/{}", uri.path().trim_start_matches('/'));
    if rest.is_empty() { path } else { format!("{path}?{rest}") }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn visitor(key: &Key, path: &str, headers: &[(&'static str, String)]) -> Visitor {
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        key.visitor(&headers.collect(), &path.parse().unwrap())
    }

    fn host() -> (&'static str, String) {
        ("host", "127.0.0.1:7".to_owned())
    }

    #[test]
    fn a_browser_shows_the_key_once_and_has_a_cookie_then() {
        let key = Key::new(7).unwrap();
        let path = key.address().replace("http://127.0.0.1:7", "");
        assert_eq!(visitor(&key, &path, &[host()]), Visitor::WithKey);
        let cookie = key.cookie();
        let (pair, attributes) = cookie.split_once("; ").unwrap();
        assert_eq!(attributes, "HttpOnly; SameSite=Strict; Path=/");
        let cookie = ("cookie", format!("other=1; {pair}"));
        assert_eq!(visitor(&key, "/", &[host(), cookie.clone()]), Visitor::Known);
        let local = ("host", "localhost:7".to_owned());
        let origin = ("origin", "http://localhost:7".to_owned());
        let own = ("sec-fetch-site", "same-origin".to_owned());
        assert_eq!(visitor(&key, "/", &[local, origin, own, cookie]), Visitor::Known);
    }

    #[test]
    fn the_key_leaves_the_address() {
        let shown = |uri: &str| without_key(&uri.parse().unwrap());
        assert_eq!(shown("/?key=7"), "/");
        assert_eq!(shown("/find?kind=a%20b&key=7&name=n%2Fa"), "/find?kind=a+b&name=n%2Fa");
        assert_eq!(shown("//evil.example/?key=7"), "/evil.example/");
    }

    #[test]
    fn others_are_shown_nothing() {
        let key = Key::new(7).unwrap();
        let cookie = ("cookie", key.cookie());
        let refused = |path: &str, headers: &[(&'static str, String)]| {
            assert!(matches!(visitor(&key, path, headers), Visitor::Stranger(_)), "{path} {headers:?}");
        };
        refused("/", &[host()]);
        refused("/?key=", &[host()]);
        refused("/?key=00", &[host(), cookie.clone()]);
        refused("/", &[host(), ("cookie", "metahook-7=00".to_owned())]);
        refused("/", &[host(), ("cookie", key.cookie().replace("-7=", "-8="))]);
        refused("/", &[host(), ("cookie", key.cookie().replacen(';', "0;", 1))]);
        for host in ["evil.example:7", "127.0.0.1:8", "127.0.0.1.evil.example:7", ""] {
            refused("/", &[("host", host.to_owned()), cookie.clone()]);
        }
        for (name, value) in [
            ("origin", "https://evil.example"),
            ("origin", "http://127.0.0.1:8"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            refused("/", &[host(), cookie.clone(), (name, value.to_owned())]);
        }
    }

    #[test]
    fn each_run_has_its_own_key() {
        let keys = [7, 7].map(|port| Key::new(port).unwrap().address());
        assert!(keys[0] != keys[1] && keys[0].len() == "http://127.0.0.1:7/?key=".len() + 2 * BYTES);
    }
}
