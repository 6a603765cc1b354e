//! `metahook status`: how all controllers of a cluster stand, and whether a server hosts them; and how one stands.

mod cluster_reader;
pub mod controller;
mod named;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use metahook_core::api::ControllerKind;
use metahook_core::api::reason::ConditionType;
use metahook_core::api::status::{Attention, Condition, ControllerStatus, LAST_SEEN_INTERVAL, attention};
use metahook_core::hosting::hosts;
use metahook_core::leader_election::Record;
use metahook_core::object::Object;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::discovery::DiscoveryError;
use metahook_server::cluster::objects::RequestError;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::controllers::{FindError, plain};
pub(crate) use cluster_reader::{ClusterReader, StoredCluster, StoredController};
pub(crate) use named::{since_last, throttled_title, wait_and_cause};
pub use text::print;
pub(crate) use text::{memory_line, renewed};

/// A status that was written later than this shows that a server hosts the controller. Clocks may differ by a minute.
const FRESH: Duration = LAST_SEEN_INTERVAL.saturating_add(CLOCK_SKEW);

const CLOCK_SKEW: Duration = Duration::from_mins(1);

/// Digits of a digest, as many as `status.hooks.*.shortDigest` has.
const SHORT_DIGEST: usize = 12;

/// The word that is shown where no server hosts a controller.
pub(crate) const NO_SERVER: &str = "NoServer";

#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    #[error("the kinds of controllers cannot be read")]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Find(#[from] FindError),
}

/// How the controllers of a cluster stand.
#[derive(Debug)]
pub struct ClusterStatus {
    pub controllers: Vec<ControllerLine>,
    /// Why Leases of servers do not count: `NoServer` is said by the statuses alone.
    pub without_leases: Option<RequestError>,
}

/// One controller, as it is shown.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerLine {
    pub kind: &'static str,
    pub name: String,
    pub ready: String,
    pub reason: String,
    /// Why it is not ready, or what is wrong although it is; empty where nothing is, or where no server says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// `None`: they are not listed yet, or no server says.
    pub parents: Option<i64>,
    pub failing: Option<i64>,
    pub paused: Option<i64>,
    /// Digests of the modules and scripts that run, by the name of their hook.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: BTreeMap<String, String>,
    /// Remarks on what needs attention although nothing fails.
    pub attention: Vec<Attention>,
    /// The time since a server wrote its status.
    #[serde(rename = "seenSeconds", serialize_with = "seconds")]
    pub seen: Option<Duration>,
}

/// Reads how the controllers stand.
///
/// # Errors
/// They cannot be read.
pub async fn cluster_status(api: &ApiClient) -> Result<ClusterStatus, StatusError> {
    ClusterReader::once(api).status().await
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs()).serialize(serializer)
}

fn status(controller: &Object) -> ControllerStatus {
    let status = controller.value().ok().and_then(|mut object| object.get_mut("status").map(Value::take));
    status.and_then(|status| serde_json::from_value(status).ok()).unwrap_or_default()
}

impl ControllerLine {
    /// `has_server`: a server that hosts it has renewed its Lease lately.
    fn of(
        kind: ControllerKind,
        name: String,
        status: &ControllerStatus,
        has_server: bool,
        now: Timestamp,
    ) -> Self {
        let seen = status.last_seen.as_deref().and_then(|time| since(time, now));
        let is_hosted = has_server || seen.is_some_and(|seen| seen <= FRESH);
        let ready = status.conditions.iter().find(|one| one.kind == ConditionType::Ready.as_str());
        let (ready, reason, message) = match ready {
            _ if !is_hosted => ("Unknown", NO_SERVER, ""),
            Some(ready) => (&*ready.status, &*ready.reason, &*ready.message),
            None => ("Unknown", "", ""),
        };
        // A controller that does not run has listed no parents.
        let are_listed = ready == "True" || status.parents.is_some_and(|parents| parents > 0);
        let listed = |count: Option<i64>| count.filter(|_| are_listed);
        Self {
            kind: kind.as_str(),
            name,
            ready: ready.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            parents: listed(status.parents),
            failing: listed(status.failing),
            paused: listed(status.paused),
            modules: if is_hosted { modules(status) } else { BTreeMap::new() },
            // What the last server remarked may long be over.
            attention: if is_hosted { attention(&status.conditions) } else { Vec::new() },
            seen,
        }
    }

    /// The first digits of the digests, as `kubectl get` shows them: each module once.
    pub fn short_digests(&self) -> String {
        let short = |digest: &String| plain(digest).chars().take(SHORT_DIGEST).collect::<String>();
        let digests: BTreeSet<_> = self.modules.values().map(short).collect();
        digests.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// The reasons of the remarks, such as `ValueFlapping, OnDelete`.
    pub fn attention_reasons(&self) -> String {
        self.attention.iter().map(|one| one.reason).collect::<Vec<_>>().join(", ")
    }
}

fn modules(status: &ControllerStatus) -> BTreeMap<String, String> {
    let hooks = status.hooks.iter();
    hooks.filter_map(|(name, hook)| Some((name.clone(), hook.digest.clone()?))).collect()
}

/// A server holds the Lease and renewed it within its duration. One that ends leaves it without a holder.
fn is_fresh_lease(lease: &Object, now: Timestamp) -> bool {
    #[derive(Deserialize)]
    struct Specified {
        #[serde(default)]
        spec: Record,
    }
    let Ok(Specified { spec }) = serde_json::from_str(lease.json()) else { return false };
    let lasts = Duration::from_secs(spec.seconds.max(0).unsigned_abs()).saturating_add(CLOCK_SKEW);
    let renewed = since(&spec.renewed, now);
    !spec.holder.is_empty() && renewed.is_some_and(|renewed| renewed <= lasts)
}

/// A server that hosts the controller signs the Lease; or leads by it, as the controller's status says.
fn is_of_its_server(lease: &Object, controller: &Object, status: &ControllerStatus) -> bool {
    let names = |one: &Condition| {
        one.kind == ConditionType::SingleWriter.as_str() && one.message.ends_with(&format!(" {}", lease.key))
    };
    hosts(lease, controller) || status.conditions.iter().any(names)
}

/// The time since then; none for one in the future.
fn since(time: &str, now: Timestamp) -> Option<Duration> {
    let then: Timestamp = time.parse().ok()?;
    Some(Duration::try_from(now.duration_since(then)).unwrap_or_default())
}

/// A time as kubectl shows it: `45s`, `12m`, `3h`, `8d`.
pub fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::hosting::SELECTOR;
    use metahook_core::object::selector::Selector;
    use metahook_core::presence::lease_name;
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn line(seen: Option<&str>, has_server: bool) -> ControllerLine {
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Running", "message": "", "lastTransitionTime": "t",
        });
        let status = json!({ "conditions": [ready], "parents": 3, "lastSeen": seen });
        let status = serde_json::from_value(status).unwrap();
        ControllerLine::of(ControllerKind::Composite, "c".to_owned(), &status, has_server, now())
    }

    #[test]
    fn a_controller_that_no_server_was_seen_at_has_no_server() {
        let shown = |seen, has_server| {
            let line = line(seen, has_server);
            (line.ready, line.reason)
        };
        let running = || ("True".to_owned(), "Running".to_owned());
        let none = || ("Unknown".to_owned(), "NoServer".to_owned());
        assert_eq!(shown(Some("2026-01-01T00:06:00Z"), false), running());
        assert_eq!(shown(Some("2026-01-01T00:04:00Z"), false), running(), "six minutes");
        assert_eq!(shown(Some("2026-01-01T00:03:59Z"), false), none());
        assert_eq!(shown(Some("2026-01-01T00:30:00Z"), false), running(), "a clock ahead");
        assert_eq!(shown(None, false), none());
        assert_eq!(shown(None, true), running(), "a server may not write the status");
        assert_eq!(line(Some("2026-01-01T00:06:00Z"), true).seen, Some(Duration::from_mins(4)));
    }

    #[test]
    fn parents_that_are_not_listed_are_not_counted() {
        let parents = |ready: &str, parents: i64| {
            let ready = json!({
                "type": "Ready", "status": ready, "reason": "r", "message": "", "lastTransitionTime": "t",
            });
            let status = json!({ "conditions": [ready], "parents": parents, "failing": 0 });
            let status = serde_json::from_value(status).unwrap();
            let line = ControllerLine::of(ControllerKind::Composite, "c".to_owned(), &status, true, now());
            (line.parents, line.failing)
        };
        assert_eq!(parents("False", 0), (None, None), "it never started");
        assert_eq!(parents("True", 0), (Some(0), Some(0)));
        assert_eq!(parents("False", 3), (Some(3), Some(0)), "each of them fails, or they are as they were");
    }

    #[test]
    fn a_remark_counts_as_long_as_a_server_hosts_the_controller() {
        let reasons = |has_server| {
            let stable = json!({
                "type": "ChildrenStable", "status": "False", "reason": "ValueFlapping", "message": "m",
                "lastTransitionTime": "t",
            });
            let status = serde_json::from_value(json!({ "conditions": [stable] })).unwrap();
            let line =
                ControllerLine::of(ControllerKind::Composite, "c".to_owned(), &status, has_server, now());
            line.attention_reasons()
        };
        assert_eq!([reasons(true), reasons(false)], ["ValueFlapping", ""]);
    }

    #[test]
    fn a_lease_counts_where_a_server_holds_it() {
        let lease = |holder: &str, renewed: &str| {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "namespace": "n", "name": "metahook-servers", "uid": "u", "resourceVersion": "1" },
                "spec": { "holderIdentity": holder, "leaseDurationSeconds": 20, "renewTime": renewed },
            });
            is_fresh_lease(&Object::parse(&lease.to_string(), None).unwrap(), now())
        };
        assert!(lease("a", "2026-01-01T00:09:59.123456Z"));
        assert!(lease("a", "2026-01-01T00:08:40Z"));
        assert!(!lease("a", "2026-01-01T00:08:39Z"));
        assert!(!lease("", "2026-01-01T00:09:59Z"));
        assert!(!lease("a", "yesterday"));
    }

    #[test]
    fn a_lease_counts_for_the_controllers_of_its_servers_alone() {
        let object = |kind: &str, metadata: Value| {
            let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata });
            Object::parse(&object.to_string(), None).unwrap()
        };
        let controller =
            |labels: Value| object("CompositeController", json!({ "name": "c", "labels": labels }));
        let leader = json!({ "conditions": [{
            "type": "SingleWriter", "status": "True", "reason": "LeaderElected", "lastTransitionTime": "t",
            "message": "host_1 leads: it holds the Lease n/elected",
        }] });
        let (elected, other) = (serde_json::from_value(leader).unwrap(), ControllerStatus::default());
        let is = |namespace: &str, name: &str, status: &ControllerStatus| {
            let lease = object("Lease", json!({ "namespace": namespace, "name": name }));
            is_of_its_server(&lease, &controller(json!({})), status)
        };
        assert!(is("any", "metahook-servers", &other) && is("n", "elected", &elected));
        assert!(!is("n", "elected", &other), "another controller's leader");
        assert!(!is("m", "elected", &elected) && !is("n", "lected", &elected));
        assert!(!is("kube-system", "kube-controller-manager", &elected));
        let team = Selector::equals("team", "a");
        let annotations = json!({ SELECTOR: team.to_string() });
        let lease = object(
            "Lease",
            json!({ "namespace": "n", "name": lease_name(&team), "annotations": annotations }),
        );
        assert!(is_of_its_server(&lease, &controller(json!({ "team": "a" })), &other));
        assert!(!is_of_its_server(&lease, &controller(json!({ "team": "b" })), &other));
    }

    #[test]
    fn an_age_is_short() {
        let ages = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(|secs| age(Duration::from_secs(secs)));
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "47h", "2d"]);
    }
}
