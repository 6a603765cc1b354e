//! Objects named by users: a kind as kubectl takes it, and a name with or without its namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use metahook_core::object::id::{Gvr, Key, ObjectId, Resource};
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::telemetry::error_chain;

use crate::controllers::{full_name, full_plural, is_named};

/// Kinds that a message names.
const MAX_NAMES: usize = 10;

#[derive(Debug, thiserror::Error)]
pub enum NameError {
    #[error("{kind:?}: no controller of the cluster {deals} objects of this kind; {known}")]
    UnknownKind { kind: String, deals: &'static str, known: String },
    #[error("{kind:?}: no kind that can be read has this name{readable}; others cannot: {why}")]
    NotReadable { kind: String, readable: String, why: String },
    #[error("{kind:?} may be any of {found}: add the group to the plural name, for example {example}")]
    SeveralKinds { kind: String, found: String, example: String },
    #[error("{0} has no namespaces, and {1:?} names one: leave it out")]
    NoNamespace(String, String),
}

/// The kinds that the API server serves, of those that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) kinds: BTreeSet<Arc<Resource>>,
    /// The first failure of a group and version: whether its kinds are served is not known.
    pub(crate) failed: Option<DiscoveryError>,
}

/// Those of the kinds that the API server serves, in whatever version. A group that fails leaves the others as they are: its server
/// may be down.
pub(crate) async fn served(discovery: &Discovery, kinds: BTreeSet<Gvr>) -> Served {
    let mut versions = BTreeMap::<_, Vec<Gvr>>::new();
    for kind in kinds {
        versions.entry(kind.api_version()).or_default().push(kind);
    }
    let mut all = Served::default();
    for (kinds, failed) in join_all(versions.values().map(|kinds| served_of_version(discovery, kinds))).await
    {
        all.kinds.extend(kinds);
        all.failed = all.failed.or(failed);
    }
    all
}

async fn served_of_version(
    discovery: &Discovery,
    kinds: &[Gvr],
) -> (Vec<Arc<Resource>>, Option<DiscoveryError>) {
    let mut served = Vec::new();
    for kind in kinds {
        match discovery.resolve_any_version(kind).await {
            Ok(resource) => served.push(resource),
            Err(error) if error.is_not_served() => {}
            // The others have the same answer.
            Err(error) => return (served, Some(error)),
        }
    }
    (served, None)
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
pub(crate) async fn find_kind(
    discovery: &Discovery,
    kind: &str,
    deals: &'static str,
    served: Served,
) -> Result<Arc<Resource>, NameError> {
    let Served { kinds: known, failed } = served;
    let unknown = match one_of(kind, deals, &known) {
        Err(unknown @ NameError::UnknownKind { .. }) => unknown,
        found => return found,
    };
    // Most words need no further question to the API server.
    let (names, unread) = other_names(discovery, &known).await;
    let is_named = |resource: &&Arc<Resource>| {
        names.get(&resource.gvr()).is_some_and(|names| is_otherwise_named(resource, names, kind))
    };
    let found: Vec<_> = known.iter().filter(is_named).collect();
    match (found.as_slice(), failed.or(unread)) {
        ([one], _) => Ok(Arc::clone(one)),
        ([], None) => Err(unknown),
        ([], Some(failed)) => Err(not_readable(kind, &known, &failed)),
        (several, _) => Err(several_kinds(kind, several)),
    }
}

/// The singulars and short names of kinds, by one question for each group and version; and the first failure.
async fn other_names(
    discovery: &Discovery,
    kinds: &BTreeSet<Arc<Resource>>,
) -> (BTreeMap<Gvr, Vec<String>>, Option<DiscoveryError>) {
    let versions: BTreeSet<_> = kinds.iter().map(|kind| (&*kind.gvk.group, &*kind.gvk.version)).collect();
    let asked = versions.into_iter().map(|it| async move { (it, discovery.other_names(it).await) });
    let (mut all, mut failed) = (BTreeMap::new(), None);
    for ((group, version), names) in join_all(asked).await {
        match names {
            Ok(names) => all.extend(names.into_iter().map(|(plural, names)| {
                let gvr = Gvr { group: group.into(), version: version.into(), resource: plural.into() };
                (gvr, names)
            })),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    (all, failed)
}

fn not_readable(kind: &str, known: &BTreeSet<Arc<Resource>>, failed: &DiscoveryError) -> NameError {
    let readable = match known.len() {
        0 => String::new(),
        _ => format!(" (those that can: {})", names(&known.iter().collect::<Vec<_>>())),
    };
    NameError::NotReadable { kind: kind.to_owned(), readable, why: error_chain(failed) }
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
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::Response;
    use metahook_core::object::id::Gvk;
    use metahook_server::cluster::fake::answering;
    use metahook_server::sync::lock;

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

    /// Asks for a kind in a cluster whose group `down.com` fails, and `late.com` after its first answer. What was asked (of the first
    /// look only about `down.com`), and the kind or the error.
    async fn asked(word: &str) -> (Vec<String>, Result<String, String>) {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, late) = (Arc::clone(&requests), AtomicBool::new(false));
        let discovery = Discovery::new(answering(move |request| {
            let path = request.uri().path();
            lock(&log).push(path.to_owned());
            let (status, body) = match path {
                "/api/v1" => (
                    200,
                    r#"{"resources":[
                    {"name":"configmaps","kind":"ConfigMap","namespaced":true,"singularName":"configmap","shortNames":["cm"]},
                    {"name":"pods","kind":"Pod","namespaced":true,"singularName":"pod","shortNames":["po"]}]}"#,
                ),
                "/apis/e.com/v1" => (
                    200,
                    r#"{"resources":[{"name":"clusters","kind":"Cell","namespaced":true,"singularName":"shard"}]}"#,
                ),
                "/apis/late.com/v1" if !late.swap(true, Ordering::Relaxed) => {
                    (200, r#"{"resources":[{"name":"trains","kind":"Train","namespaced":true}]}"#)
                }
                _ => (503, "service unavailable"),
            };
            Response::builder().status(status).body(body.to_owned()).ok()
        }));
        let kinds =
            [("v1", "pods"), ("v1", "configmaps"), ("e.com/v1", "clusters"), ("late.com/v1", "trains")];
        let down = [("down.com/v1", "things"), ("down.com/v1", "others")];
        let kinds = kinds.into_iter().chain(down).map(|(version, plural)| Gvr::new(version, plural));
        let served = served(&discovery, kinds.collect()).await;
        lock(&requests).retain(|path| path.contains("down.com"));
        let found = find_kind(&discovery, word, "reconciles", served).await;
        let mut requests = std::mem::take(&mut *lock(&requests));
        requests.sort();
        (requests, found.map(|kind| full_name(&kind)).map_err(|error| error.to_string()))
    }

    #[tokio::test]
    async fn each_group_is_asked_once_for_short_names_and_one_that_fails_is_left_out() {
        let down = "/apis/down.com/v1".to_owned();
        let once = ["/api/v1", &down, "/apis/e.com/v1", "/apis/late.com/v1"].map(str::to_owned).to_vec();
        assert_eq!(asked("pods").await, (vec![down], Ok("pods".to_owned())));
        for (word, kind) in [("po", "pods"), ("cm", "configmaps"), ("shard", "clusters.e.com")] {
            assert_eq!(asked(word).await, (once.clone(), Ok(kind.to_owned())), "{word}");
        }
        let (requests, error) = asked("th").await;
        let error = error.unwrap_err();
        assert_eq!(requests, once);
        assert!(
            error.contains(
                "(those that can: configmaps, pods, clusters.e.com, trains.late.com); others cannot"
            ),
            "{error}"
        );
        assert!(error.contains("kubectl get apiservice v1.down.com"), "{error}");
    }
}
