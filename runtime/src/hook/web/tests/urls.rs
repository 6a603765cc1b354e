//! URLs of webhooks as Go's `net/url` reads them, and where this server differs.

use super::*;

/// Host and port, and what a request asks for; `None`: refused.
type Reading = Option<(&'static str, &'static str)>;

/// URLs that both read alike. The WHATWG's rules differ in many of these: they resolve dots in paths, leave out default
/// ports, change the case of hosts and take short numbers for addresses, so a path that a proxy forwards or signs would
/// change.
const ALIKE: &[(&str, Reading)] = &[
    ("http://h/a/../b", Some(("h", "/a/../b"))),
    ("http://h//x", Some(("h", "//x"))),
    ("http://h/%2e%2e/x", Some(("h", "/%2e%2e/x"))),
    ("http://1.2.3/", Some(("1.2.3", "/"))),
    ("http://0x7f.1/", Some(("0x7f.1", "/"))),
    ("http://256.1.1.1/", Some(("256.1.1.1", "/"))),
    ("http://a_b/x", Some(("a_b", "/x"))),
    ("http://h:80/x", Some(("h:80", "/x"))),
    ("http://h.:80/", Some(("h.:80", "/"))),
    ("http://[::1]:80/", Some(("[::1]:80", "/"))),
    ("http://[::1]/", Some(("[::1]", "/"))),
    ("http://h/x#f", Some(("h", "/x"))),
    ("http://h?q", Some(("h", "/?q"))),
    ("http://u:p@x@h/", Some(("h", "/"))),
    ("HTTP://H/X", Some(("H", "/X"))),
    ("http://h\\x", None),
    ("http://h:x/", None),
    ("http://::1/", None),
    ("http://[::1/", None),
    ("http://u:p%@h/", None),
    ("http://u:p/q@h/", None),
    ("http://ho st/", None),
    ("http://h^x/", None),
    ("http://h%41/x", None),
    ("http://h/a\tb", None),
];

/// The URL, Go's reading, and this server's.
const DIFFERENT: &[(&str, Reading, Reading)] = &[
    // Go finds out at the call.
    ("http:///x", Some(("", "/x")), None),
    ("http:h/x", Some(("", "h/x")), None),
    ("//h/x", Some(("h", "/x")), None),
    ("http://h:0/x", Some(("h:0", "/x")), None),
    ("http://h:99999/x", Some(("h:99999", "/x")), None),
    // A receiver would take the rest of the user for the password.
    ("http://u%3Av:p@h/", Some(("h", "/")), None),
    // Go escapes what a URL does not have; here its author does, or it is sent as it stands.
    ("http://h/a b", Some(("h", "/a%20b")), None),
    ("http://h/\u{e9}", Some(("h", "/%C3%A9")), Some(("h", "/\u{e9}"))),
    // Go wants %25 before the name of an interface.
    ("http://[fe80::1%eth0]/", None, Some(("[fe80::1%eth0]", "/"))),
];

/// As a controller reads it, from the spec to the request.
fn reading(url: &str) -> Option<(String, String)> {
    let spec: webhook::Webhook = serde_json::from_value(json!({ "url": url })).unwrap();
    let target = spec.check("webhook").ok()?;
    let meter = Metrics::new(|| 0).webhook("CompositeController", "c", HookName::Sync, &target.url);
    let at = SocketAddr::from(([127, 0, 0, 1], 1));
    let uri = reached(&target, &pools(at), meter).ok()?.uri;
    Some((uri.authority()?.to_string(), uri.path_and_query()?.to_string()))
}

#[test]
fn urls_are_read_as_go_reads_them_but_for_these() {
    let owned = |reading: Reading| reading.map(|(host, path)| (host.to_owned(), path.to_owned()));
    let alike = ALIKE.iter().map(|(url, expected)| (url, *expected));
    let different = DIFFERENT.iter().map(|(url, _, expected)| (url, *expected));
    let wrong: Vec<_> =
        alike.chain(different).map(|(url, expected)| (url, reading(url), owned(expected))).collect();
    let wrong: Vec<_> = wrong.into_iter().filter(|(_, found, expected)| found != expected).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
