//! URL of a webhook: user and password taken out of it, and host and port, which endpoint configurations are compared with.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// User and password. Nothing prints them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    password: String,
}

impl Credentials {
    /// Value of the header `Authorization`.
    pub fn basic(&self) -> String {
        basic(&self.user, &self.password)
    }
}

/// Value of the header `Authorization` for a user without colon, and a password.
pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// The part of a URL that is compared with the hosts of endpoint configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlAuthority {
    /// The authority as the spec has it: `host` or `host:port`.
    pub(super) written: String,
    host: String,
    port: Option<String>,
    /// The scheme's port.
    default_port: &'static str,
}

impl UrlAuthority {
    pub(super) fn of(url: &str) -> Result<Self, String> {
        let example = "write it like http://host:8080/path";
        // A password that makes the URL one that cannot be read is in front of an @.
        let shown = url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, rest)| format!("…@{rest}"));
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| format!("{shown:?} is no URL with a host: {example}"))?;
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "http" => "80",
            "https" => "443",
            _ => return Err(format!("{shown:?} begins with neither http:// nor https://: {example}")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let written = rest.get(..end).unwrap_or_default();
        // An IPv6 address has colons and brackets around it.
        let after_host = written.find(']').unwrap_or_default();
        let (host, port) = match written.rfind(':').filter(|colon| *colon >= after_host) {
            Some(colon) => (written.get(..colon), written.get(colon + 1..).filter(|port| !port.is_empty())),
            None => (Some(written), None),
        };
        let host = host.unwrap_or_default();
        if host.is_empty() {
            return Err(format!("{shown:?} names no host: {example}"));
        }
        if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
            return Err(format!("{shown:?} has a port that is none: {example}"));
        }
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!(
                "{shown:?} has spaces or control characters in it: write them as %20 and so on"
            ));
        }
        Ok(Self {
            written: written.to_owned(),
            host: host.to_owned(),
            port: port.map(str::to_owned),
            default_port,
        })
    }

    /// Whether an endpoint configuration for `host` is one for this authority.
    pub(super) fn is(&self, host: &str) -> bool {
        let same = |one: &str| one.eq_ignore_ascii_case(host);
        same(&self.written)
            || match &self.port {
                None => same(&format!("{}:{}", self.host, self.default_port)),
                Some(port) => port == self.default_port && same(&self.host),
            }
    }
}

/// The URL with its scheme in lower case and without what stands before an `@` in its authority, and that.
pub(super) fn without_credentials(url: &str) -> Result<(String, Option<Credentials>), String> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok((url.to_owned(), None)) };
    let scheme = scheme.to_ascii_lowercase();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let Some((given, host)) = authority.rsplit_once('@') else {
        return Ok((format!("{scheme}://{rest}"), None));
    };
    let (user, password) = given.split_once(':').unwrap_or((given, ""));
    let decoded = |text: &str| {
        let problem =
            "names a user or a password that cannot be read: write special characters as %40 and so on";
        percent_decoded(text).ok_or(problem)
    };
    let credentials = Credentials { user: decoded(user)?, password: decoded(password)? };
    if credentials.user.contains(':') {
        // The receiver would take the rest of it for the password.
        return Err("names a user with a colon in it, which cannot be sent".to_owned());
    }
    Ok((format!("{scheme}://{host}{path}"), Some(credentials)))
}

/// `None`: a `%` without two digits after it, or bytes that are no text.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            u8::try_from(digit()? * 16 + digit()?).ok()?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_leave_the_url() {
        let owned =
            |url: &str, user: &str, password: &str| (url.to_owned(), user.to_owned(), password.to_owned());
        for (url, expected) in [
            ("HTTP://u:secret@h:80/x?y@z", owned("http://h:80/x?y@z", "u", "secret")),
            ("https://u%40v:secret%3A%20@h/", owned("https://h/", "u@v", "secret: ")),
            ("http://secret@h", owned("http://h", "secret", "")),
            ("http://u:secret@x@h", owned("http://h", "u", "secret@x")),
            ("http://h/a@b", owned("http://h/a@b", "", "")),
        ] {
            let (url, credentials) = without_credentials(url).unwrap();
            assert!(!format!("{credentials:?}").contains("secret"));
            let credentials = credentials.map(|given| (given.user, given.password));
            let (user, password) = credentials.unwrap_or_default();
            assert_eq!((url, user, password), expected);
        }
        let credentials = without_credentials("http://Aladdin:open%20sesame@h").unwrap().1.unwrap();
        assert_eq!(credentials.basic(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }

    #[test]
    fn an_endpoint_configuration_counts_for_its_host_whatever_the_case() {
        let is = |url: &str, host: &str| UrlAuthority::of(url).unwrap().is(host);
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
}
