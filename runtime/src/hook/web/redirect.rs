//! Redirects of webhooks: those that the policy allows are followed as programs written in Go follow them, with stricter rules
//! for credentials.

use http::{Method, StatusCode, Uri};
use metahook_core::shorten;

/// Redirects of one exchange.
pub(super) const MAX_REDIRECTS: usize = 10;

/// Which redirects of webhooks the server follows. A redirect from https to http is never followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RedirectPolicy {
    /// Redirects to the webhook's own host, also to other ports and paths of it.
    #[default]
    SameHost,
    /// All of them, as Metacontroller does: what a webhook can reach then is what the server can reach.
    Any,
    /// None: a redirect is an answer with an unsupported status code.
    None,
}

/// One request of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hop {
    /// POST with the request as its body, or GET without one.
    pub(super) method: Method,
    pub(super) uri: Uri,
    /// Credentials go along. Once they do not, they never do again.
    pub(super) with_credentials: bool,
    /// It is what the spec names, not what an answer led to.
    pub(super) is_first: bool,
}

impl Hop {
    pub(super) fn first(uri: Uri) -> Self {
        Self { method: Method::POST, uri, with_credentials: true, is_first: true }
    }

    /// The request that an answer with this status and `Location` asks for. `None`: it is no redirect.
    ///
    /// # Errors
    /// The location cannot be asked, or may not.
    pub(super) fn next(
        &self,
        status: StatusCode,
        location: Option<&str>,
        policy: RedirectPolicy,
    ) -> Option<Result<Self, String>> {
        if policy == RedirectPolicy::None {
            return None;
        }
        let method = match status.as_u16() {
            301..=303 => Method::GET,
            307 | 308 => self.method.clone(),
            _ => return None,
        };
        let uri = match resolve(&self.uri, location?) {
            Ok(uri) => uri,
            Err(problem) => return Some(Err(problem)),
        };
        if self.uri.scheme_str() == Some("https") && uri.scheme_str() == Some("http") {
            return Some(Err("it redirects from https to http".to_owned()));
        }
        if policy == RedirectPolicy::SameHost && host(&self.uri) != host(&uri) {
            let other = shorten(&host(&uri), MAX_HOST_LENGTH);
            let advice = "--webhook-redirects=any follows it, or name that host in the webhook's URL";
            return Some(Err(format!("it redirects to another host, {other}: {advice}")));
        }
        let with_credentials = self.with_credentials && is_same_server(&self.uri, &uri);
        Some(Ok(Self { method, uri, with_credentials, is_first: false }))
    }
}

/// A DNS name has no more bytes.
const MAX_HOST_LENGTH: usize = 253;

fn host(uri: &Uri) -> String {
    uri.host().unwrap_or_default().to_ascii_lowercase()
}

/// Whether both are the same host and port, or the same host over TLS from now on.
fn is_same_server(from: &Uri, to: &Uri) -> bool {
    let server = |uri: &Uri| {
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        (host(uri), is_tls, port)
    };
    let ((host, was_tls, port), (next_host, is_tls, next_port)) = (server(from), server(to));
    host == next_host && if was_tls == is_tls { port == next_port } else { is_tls }
}

/// A `Location`, which may be relative.
fn resolve(base: &Uri, location: &str) -> Result<Uri, String> {
    let location = location.split('#').next().unwrap_or_default();
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let scheme = base.scheme_str().unwrap_or("http");
    let path = base.path();
    let text = match location.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            // What the answer would have us log in with stays unused.
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        _ if location.starts_with("//") => return resolve(base, &format!("{scheme}:{location}")),
        _ if location.starts_with('/') => format!("{scheme}://{authority}{}", without_dots(location)),
        _ if location.starts_with('?') => format!("{scheme}://{authority}{path}{location}"),
        _ if location.is_empty() => return Ok(base.clone()),
        _ => {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{authority}{}", without_dots(&format!("{folder}/{location}")))
        }
    };
    let uri: Option<Uri> = text.parse().ok();
    let is_served = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    // The location is not quoted: it may have secrets in it.
    uri.filter(is_served).ok_or_else(|| "it redirects to what is no URL with http:// or https://".to_owned())
}

/// A path without `.` and `..`, with its query as it was.
fn without_dots(path: &str) -> String {
    let (path, query) = path.find('?').map_or((path, ""), |at| path.split_at(at));
    let mut kept = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_by(
        policy: RedirectPolicy,
        from: &str,
        status: u16,
        location: &str,
    ) -> Option<Result<Hop, String>> {
        let status = StatusCode::from_u16(status).unwrap();
        Hop::first(from.parse().unwrap()).next(status, Some(location), policy)
    }

    fn next(from: &str, status: u16, location: &str) -> Option<Result<Hop, String>> {
        next_by(RedirectPolicy::Any, from, status, location)
    }

    #[test]
    fn a_policy_says_which_hosts_a_redirect_may_lead_to() {
        let same = |from: &str, to: &str| next_by(RedirectPolicy::SameHost, from, 307, to).unwrap();
        for to in ["/b", "http://H:81/b", "https://h/b"] {
            assert!(same("http://h/a", to).is_ok_and(|hop| !hop.is_first), "{to}");
        }
        for to in ["http://other/b", "//sub.h/b", "http://h@other/b"] {
            let why = same("http://h/a", to).unwrap_err();
            assert!(
                why.starts_with("it redirects to another host, ") && why.contains("=any follows"),
                "{why}"
            );
        }
        let long = same("http://h/a", &format!("http://{}/", "x".repeat(10_000))).unwrap_err();
        assert!(long.len() < 500, "{}", long.len());
        for policy in [RedirectPolicy::SameHost, RedirectPolicy::Any] {
            let down = next_by(policy, "https://h/a", 307, "http://h/b").unwrap().unwrap_err();
            assert_eq!(down, "it redirects from https to http");
        }
        assert_eq!(next_by(RedirectPolicy::None, "http://h/a", 307, "/b"), None);
    }

    #[test]
    fn a_location_is_resolved_as_browsers_do() {
        for (location, expected) in [
            ("https://other/x?y#z", "https://other/x?y"),
            ("HTTP://u:p@other", "http://other/"),
            ("//other:81/x", "http://other:81/x"),
            ("/x?y=http://z", "http://h:80/x?y=http://z"),
            ("?q", "http://h:80/a/b?q"),
            ("c", "http://h:80/a/c"),
            ("../c/./d/..", "http://h:80/c/"),
            ("../../../c", "http://h:80/c"),
            ("", "http://h:80/a/b?z"),
        ] {
            let hop = next("http://h:80/a/b?z", 307, location).unwrap().unwrap();
            assert_eq!(hop.uri.to_string(), expected, "{location}");
        }
        for location in ["ftp://h/", "http://", "http:///x", "a b"] {
            let error = next("http://h/a", 301, location).unwrap().unwrap_err();
            assert_eq!(error, "it redirects to what is no URL with http:// or https://", "{location}");
        }
    }

    #[test]
    fn the_status_decides_about_the_method() {
        for (status, method) in [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")] {
            assert_eq!(next("http://h/", status, "/x").unwrap().unwrap().method, method);
        }
        for status in [200, 300, 304, 305, 306, 400] {
            assert_eq!(next("http://h/", status, "/x"), None);
        }
        let first = Hop::first("http://h/".parse().unwrap());
        let any = RedirectPolicy::Any;
        assert_eq!(first.next(StatusCode::FOUND, None, any), None);
        let get = first.next(StatusCode::FOUND, Some("/x"), any).unwrap().unwrap();
        let again = get.next(StatusCode::TEMPORARY_REDIRECT, Some("/y"), any).unwrap().unwrap();
        assert_eq!(again.method, Method::GET);
    }

    #[test]
    fn credentials_stay_with_their_server() {
        let keeps = |from: &str, to: &str| next(from, 307, to).unwrap().unwrap().with_credentials;
        for (from, to) in [
            ("http://h/a", "/b"),
            ("http://h/a", "http://H:80/b"),
            ("http://h:8080/a", "https://h/b"),
            ("https://h/a", "https://h:443/b"),
        ] {
            assert!(keeps(from, to), "{from} {to}");
        }
        for (from, to) in [
            ("http://h/a", "http://other/b"),
            ("http://h/a", "http://sub.h/b"),
            ("http://h/a", "http://h:8080/b"),
            ("http://h/a", "http://h@other/b"),
        ] {
            assert!(!keeps(from, to), "{from} {to}");
        }
        let away = next("http://h/a", 307, "http://other/b").unwrap().unwrap();
        let any = RedirectPolicy::Any;
        let back = away.next(StatusCode::TEMPORARY_REDIRECT, Some("http://h/a"), any).unwrap().unwrap();
        let stays = back.next(StatusCode::TEMPORARY_REDIRECT, Some("/b"), any).unwrap().unwrap();
        assert!(!back.with_credentials && !stays.with_credentials);
    }
}
