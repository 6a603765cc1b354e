//! Objects named by users: a kind as kubectl takes it, and a name with or without its namespace.

use std::collections::BTreeSet;
use std::sync::Arc;

use metahook_core::object::id::{Gvr, Key, ObjectId, Resource};
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};

use crate::controllers::{full_name, full_plural, is_named};

/// Kinds that a message names.
const MAX_NAMES: usize = 10;

#[derive(Debug, thiserror::Error)]
pub enum NameError {
    #[error("{kind:?}: no controller of the cluster {deals} objects of this kind; {known}")]
    UnknownKind { kind: String, deals: &'static str, known: String },
    #[error("{kind:?} may be any of {found}: add the group to the plural name, for example {example}")]
    SeveralKinds { kind: String, found: String, example: String },
    #[error("{0} has no namespaces, and {1:?} names one: leave it out")]
    NoNamespace(String, String),
}

/// Those of the kinds that the API server serves, in whatever version.
pub(crate) async fn served(
    discovery: &Discovery,
    kinds: BTreeSet<Gvr>,
) -> Result<BTreeSet<Arc<Resource>>, DiscoveryError> {
    let mut served = BTreeSet::new();
    for kind in kinds {
        match discovery.resolve_any_version(&kind).await {
            Ok(resource) => drop(served.insert(resource)),
            Err(error) if error.is_not_served() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(served)
}

/// `namespace`: where the object is whose name has none.
pub(crate) fn object_id(resource: Arc<Resource>, name: &str, namespace: &str) -> Result<ObjectId, NameError> {
    let (given, name) = name.split_once('/').map_or((None, name), |(given, name)| (Some(given), name));
    let namespace = match (resource.namespaced, given) {
        (true, given) => given.unwrap_or(namespace),
        (false, None) => "",
        (false, Some(given)) => {
            return Err(NameError::NoNamespace(resource.gvk.kind.to_string(), given.to_owned()));
        }
    };
    let key = Key::new(namespace, name);
    Ok(ObjectId { resource, key })
}

/// The kind that a word names among those that controllers of the cluster deal with. `deals`: how they do.
pub(crate) fn one_of(
    kind: &str,
    deals: &'static str,
    known: &BTreeSet<Arc<Resource>>,
) -> Result<Arc<Resource>, NameError> {
    let found: Vec<_> = known.iter().filter(|resource| is_named(resource, kind)).collect();
    match found.as_slice() {
        [one] => Ok(Arc::clone(one)),
        [] => {
            let known = match known.len() {
                0 => "there are no controllers".to_owned(),
                _ => format!("those that are: {}", names(&known.iter().collect::<Vec<_>>())),
            };
            Err(NameError::UnknownKind { kind: kind.to_owned(), deals, known })
        }
        several => Err(several_kinds(kind, several)),
    }
}

/// The kind that a word names, also where the word is its singular or a short name.
pub(crate) async fn find_kind<E: From<NameError> + From<DiscoveryError>>(
    discovery: &Discovery,
    kind: &str,
    deals: &'static str,
    known: &BTreeSet<Arc<Resource>>,
) -> Result<Arc<Resource>, E> {
    let unknown = match one_of(kind, deals, known) {
        Err(unknown @ NameError::UnknownKind { .. }) => unknown,
        found => return Ok(found?),
    };
    // Most words need no further question to the API server.
    let mut named = BTreeSet::new();
    for resource in known {
        if is_otherwise_named(resource, &discovery.other_names(resource).await?, kind) {
            named.insert(Arc::clone(resource));
        }
    }
    let known: Vec<_> = named.iter().collect();
    match known.as_slice() {
        [] => Err(unknown.into()),
        [one] => Ok(Arc::clone(one)),
        several => Err(several_kinds(kind, several).into()),
    }
}

/// Whether a word is one of these names of a kind, with or without its group.
fn is_otherwise_named(resource: &Resource, names: &[String], word: &str) -> bool {
    let is = |name: &str| name.eq_ignore_ascii_case(word);
    names.iter().any(|name| is(name) || is(&full_plural(name, &resource.gvk.group)))
}

fn several_kinds(kind: &str, found: &[&Arc<Resource>]) -> NameError {
    let example = found.first().map(|one| full_name(one)).unwrap_or_default();
    NameError::SeveralKinds { kind: kind.to_owned(), found: names(found), example }
}

/// Names for a message, the first ones of many.
fn names(all: &[&Arc<Resource>]) -> String {
    let first: Vec<_> = all.iter().take(MAX_NAMES).map(|one| full_name(one)).collect();
    let rest = all.len() - first.len();
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    first.join(", ") + &rest
}

#[cfg(test)]
mod tests {
    use metahook_core::object::id::Gvk;

    use super::*;

    fn kind(api_version: &str, kind: &str, plural: &str) -> Arc<Resource> {
        Arc::new(Resource {
            gvk: Gvk::new(api_version, kind),
            plural: plural.into(),
            namespaced: true,
            has_status: true,
        })
    }

    fn found(kind: &str, known: &[Arc<Resource>]) -> Result<String, String> {
        let known = known.iter().cloned().collect();
        one_of(kind, "reconciles", &known)
            .map(|resource| full_name(&resource))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_kind_is_named_as_kubectl_takes_it() {
        let known = [kind("v1", "Pod", "pods"), kind("example.com/v1", "Hello", "hellos")];
        for word in ["hellos", "hello", "Hello", "hellos.example.com"] {
            assert_eq!(found(word, &known), Ok("hellos.example.com".to_owned()), "{word}");
        }
        assert_eq!(found("pod", &known), Ok("pods".to_owned()));
        let error = found("things", &known).unwrap_err();
        assert!(error.contains("\"things\"") && error.ends_with("hellos.example.com"), "{error}");
        assert!(found("things", &[]).unwrap_err().ends_with("there are no controllers"));
    }

    #[test]
    fn a_singular_and_a_short_name_name_a_kind_too() {
        let shards = kind("example.com/v1", "Cell", "clusters");
        let names = ["shard", "sh"].map(str::to_owned);
        for word in ["shard", "sh", "Shard", "shard.example.com", "sh.example.com"] {
            assert!(is_otherwise_named(&shards, &names, word), "{word}");
        }
        for word in ["", "s", "shards", "sh.other.com"] {
            assert!(!is_otherwise_named(&shards, &names, word), "{word}");
        }
    }

    #[test]
    fn of_many_kinds_a_message_names_the_first_and_counts_the_rest() {
        let known: Vec<_> = (0..12).map(|nth| kind(&format!("g{nth}.com/v1"), "Job", "jobs")).collect();
        let error = found("things", &known[..10]).unwrap_err();
        assert!(!error.contains("more"), "{error}");
        assert!(found("things", &known).unwrap_err().ends_with(" and 2 more"));
    }

    #[test]
    fn a_word_for_two_kinds_needs_the_group() {
        let known = [kind("a.com/v1", "Job", "jobs"), kind("batch/v1", "Job", "jobs")];
        let error = found("jobs", &known).unwrap_err();
        assert!(error.contains("jobs.a.com, jobs.batch"), "{error}");
        assert_eq!(found("jobs.batch", &known), Ok("jobs.batch".to_owned()));
    }
}
