//! Rules for dependencies: licences, sources, crates that may not come in, and two versions of one crate.
//!
//! They are checked from `Cargo.lock` and `cargo tree`, which are there anyway. Advisories change by themselves, so a
//! release looks at them, not every check.

use std::collections::{BTreeMap, BTreeSet};

/// Licences that a dependency may have. CDLA-Permissive-2.0 is one for data, here the public authorities of `webpki-roots`:
/// whoever passes the data on passes on the licence's text, too, and owes nothing for what is made of the data.
const LICENCES: [&str; 8] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// A package of ours, crates that it may not depend on, and why.
pub(super) const BANNED: [(&str, &[&str], &str); 3] = [
    ("metahook", &["openssl-sys", "native-tls", "aws-lc-sys"], "it builds with a C compiler alone"),
    (
        "metahook-core",
        &["tokio", "futures-util", "hyper", "kube", "k8s-openapi", "wasmtime", "tracing", "jiff"],
        "it decides, and does nothing else",
    ),
    (
        "xtask",
        &["tokio", "hyper", "kube", "wasmtime", "serde_json", "metahook-core", "acceptance"],
        "it is compiled before its first line appears",
    ),
];

/// Crates of which the server has two versions, because others ask for them.
const DUPLICATES: [&str; 8] =
    ["base64", "cpufeatures", "getrandom", "hashbrown", "io-lifetimes", "rand", "rand_core", "syn"];

/// Crates under a licence that is not allowed, in lines of `cargo tree` that are a package, `|` and its licence.
pub(super) fn licences(tree: &str) -> Vec<String> {
    let lines: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    let packages = lines.into_iter().filter_map(|line| line.split_once('|'));
    let refused = packages.filter(|(_, licence)| !is_allowed(licence));
    refused.map(|(package, licence)| format!("{package}: its licence is {licence:?}")).collect()
}

/// Whether a licence expression can be satisfied.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let allowed = one_of(&mut rest);
    allowed && rest.is_empty()
}

fn one_of(words: &mut &[&str]) -> bool {
    let mut allowed = all_of(words);
    while let ["OR", rest @ ..] = words {
        *words = rest;
        allowed |= all_of(words);
    }
    allowed
}

fn all_of(words: &mut &[&str]) -> bool {
    let mut allowed = single(words);
    while let ["AND", rest @ ..] = words {
        *words = rest;
        allowed &= single(words);
    }
    allowed
}

fn single(words: &mut &[&str]) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let allowed = one_of(words);
            *words = words.strip_prefix(&[")"]).unwrap_or(words);
            allowed
        }
        [licence, "WITH", exception, rest @ ..] => {
            *words = rest;
            LICENCES.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, rest @ ..] => {
            *words = rest;
            LICENCES.contains(licence)
        }
        [] => false,
    }
}

/// Packages of a `Cargo.lock` that come from elsewhere than the one registry, or without a checksum.
pub(super) fn sources(lock: &str) -> Vec<String> {
    let field = |package: &str, name: &str| {
        let start = format!("{name} = \"");
        let value = package.lines().find_map(|line| line.strip_prefix(&start));
        value.map(|value| value.trim_end_matches('"').to_owned())
    };
    let mut registries = BTreeSet::new();
    let mut found = Vec::new();
    for package in lock.split("[[package]]").skip(1) {
        let Some(source) = field(package, "source") else {
            continue; // a package of this workspace
        };
        let name = field(package, "name").unwrap_or_default();
        if !source.starts_with("registry+") {
            found.push(format!("{name}: it comes from {source}, not from a registry"));
        } else if field(package, "checksum").is_none() {
            found.push(format!("{name}: it has no checksum"));
        }
        registries.insert(source);
    }
    if found.is_empty() && registries.len() > 1 {
        found.push(format!("there are {} registries", registries.len()));
    }
    found
}

/// Crates of a package's tree that are banned there.
pub(super) fn banned(tree: &str, banned: &[&str]) -> Vec<String> {
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    banned.iter().filter(|name| names.contains(*name)).map(|name| (*name).to_owned()).collect()
}

/// Crates of which a tree has several versions.
pub(super) fn duplicates(tree: &str) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in tree.lines() {
        let mut words = line.split([' ', '|']);
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            versions.entry(name).or_default().insert(version);
        }
    }
    let several = versions.iter().filter(|(name, versions)| versions.len() > 1 && !DUPLICATES.contains(name));
    let listed = |versions: &BTreeSet<&str>| versions.iter().copied().collect::<Vec<_>>().join(", ");
    several.map(|(name, versions)| format!("{name}: {}", listed(versions))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_allowed_if_a_choice_of_it_is() {
        for allowed in ["MIT", "GPL-3.0 OR MIT", "Unlicense/MIT", "(GPL-3.0 OR MIT) AND Unicode-3.0"] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in ["", "GPL-3.0", "MIT AND GPL-3.0", "GPL-2.0 WITH LLVM-exception", "MIT ISC"] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    #[test]
    fn a_crate_under_another_licence_is_named_once() {
        let tree = "a v1.0.0|MIT\nb v2.0.0|GPL-3.0\nb v2.0.0|GPL-3.0 (*)\n";
        assert_eq!(licences(tree), ["b v2.0.0: its licence is \"GPL-3.0\""]);
    }

    #[test]
    fn a_package_from_elsewhere_is_named() {
        let package = |name: &str, source: &str| {
            format!("[[package]]\nname = \"{name}\"\nsource = \"{source}\"\nchecksum = \"00\"\n\n")
        };
        let ours = "[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n\n".to_owned();
        let good = ours + &package("a", "registry+x");
        assert_eq!(sources(&good), [""; 0]);
        let bad = good.clone() + &package("b", "git+y");
        assert_eq!(sources(&bad), ["b: it comes from git+y, not from a registry"]);
        assert_eq!(sources(&(good + &package("c", "registry+z"))), ["there are 2 registries"]);
    }

    #[test]
    fn banned_crates_and_second_versions_are_found_by_name() {
        let tree = "a v1.0.0|MIT\nb v1.0.0|MIT\nb v2.0.0|MIT\ntokio-util v1.0.0|MIT\n";
        assert_eq!(banned(tree, &["a", "tokio"]), ["a"]);
        assert_eq!(duplicates(tree), ["b: v1.0.0, v2.0.0"]);
    }
}
