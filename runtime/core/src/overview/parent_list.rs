//! A list of a controller's parents, page by page, as `metahook dashboard` shows it.

use serde::{Deserialize, Serialize};

use crate::object::id::ObjectId;
use crate::settled::parent_state::ParentState;
use crate::trace::{Hidden, ReconcileTrace, TraceEnd, TracedObject};

/// Parents of a page.
pub const PAGE: usize = 100;

/// The server's answer about the parents of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentsAnswer {
    /// That of the server.
    pub version: String,
    /// `None`: this server does not run the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<ParentList>,
}

/// One page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentList {
    /// Parents on all pages.
    pub found: usize,
    /// By namespace and name.
    pub parents: Vec<ListedParent>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedParent {
    pub parent: TracedObject,
    pub state: ParentState,
    /// The category of the failure of one that fails.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// The latest reconcile, where the server remembers one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<LatestReconcile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatestReconcile {
    /// When it began, in RFC 3339.
    pub began: String,
    pub took_us: u64,
    pub cause: String,
    pub end: TraceEnd,
}

/// Which parents are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParentFilter {
    /// A part of `NAMESPACE/NAME`, in lower case; empty for all.
    pub search: String,
    pub state: Option<ParentState>,
    /// Parents before the page.
    pub skip: usize,
}

impl ParentFilter {
    /// Whether a parent's name has what is searched.
    pub fn is_named(&self, namespace: &str, name: &str) -> bool {
        self.search.is_empty() || format!("{namespace}/{name}").to_lowercase().contains(&self.search)
    }

    pub fn has_state(&self, state: ParentState) -> bool {
        self.state.is_none_or(|wanted| wanted == state)
    }

    /// The page of these parents. `latest`: the latest trace of one.
    pub fn page(
        &self,
        mut found: Vec<(ObjectId, ParentState, &'static str)>,
        mut latest: impl FnMut(&ObjectId) -> Option<ReconcileTrace>,
    ) -> ParentList {
        // The kind comes last: people look for names.
        found.sort_by(|(one, ..), (other, ..)| (&one.key, &one.resource).cmp(&(&other.key, &other.resource)));
        let page = found.iter().skip(self.skip).take(PAGE).map(|(id, state, category)| ListedParent {
            parent: TracedObject::new(&id.resource, &id.key),
            state: *state,
            category: (*category).to_owned(),
            latest: latest(id).map(LatestReconcile::from),
        });
        ParentList { parents: page.collect(), found: found.len() }
    }
}

impl From<ReconcileTrace> for LatestReconcile {
    fn from(mut trace: ReconcileTrace) -> Self {
        // Those who may list the parents may not list all that is related to them.
        trace.hide_cause(Hidden::Forbidden);
        trace.hide_end(Hidden::Forbidden);
        let ReconcileTrace { began, took_us, cause, end, .. } = trace;
        Self { began, took_us, cause, end }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::object::id::{Gvk, Key, Resource};

    fn id(number: usize) -> ObjectId {
        let gvk = Gvk::new("example.com/v1", "Greeting");
        let resource = Resource { gvk, plural: "greetings".into(), namespaced: true, has_status: true };
        ObjectId { resource: Arc::new(resource), key: Key::new("n", &format!("{number:03}")) }
    }

    #[test]
    fn the_latest_reconcile_of_a_listed_parent_names_no_related_object() {
        let object =
            json!({"group": "", "resource": "secrets", "kind": "Secret", "namespace": "n", "name": "token"});
        let trace = json!({
            "controller": "CompositeController c",
            "parent": {"group": "e", "resource": "ps", "kind": "P", "namespace": "n", "name": "p"},
            "generation": 1, "resourceVersion": "7", "began": "", "tookUs": 5, "steps": [],
            "cause": "Secret n/token changed", "changedFields": ["data.password"], "relatedCause": object,
            "end": {"again": "Secret n/token: another client was faster"}, "relatedFailure": [object],
        });
        let latest = LatestReconcile::from(serde_json::from_value::<ReconcileTrace>(trace).unwrap());
        assert_eq!(latest.cause, "a related object changed");
        assert_eq!(latest.end, TraceEnd::Again("the deletion of a related object failed".to_owned()));
    }

    #[test]
    fn a_page_has_the_parents_that_follow_in_order() {
        let found = || (0..PAGE + 50).rev().map(|number| (id(number), ParentState::Settled, "")).collect();
        let mut asked = 0;
        let first = ParentFilter::default().page(found(), |_| {
            asked += 1;
            None
        });
        assert_eq!((first.found, first.parents.len(), asked), (PAGE + 50, PAGE, PAGE));
        assert_eq!(&*first.parents[1].parent.name, "001");
        let last = ParentFilter { skip: PAGE, ..ParentFilter::default() }.page(found(), |_| None);
        assert_eq!((last.found, last.parents.len(), &*last.parents[0].parent.name), (PAGE + 50, 50, "100"));
        let beyond = ParentFilter { skip: usize::MAX, ..ParentFilter::default() }.page(found(), |_| None);
        assert_eq!((beyond.found, beyond.parents.len()), (PAGE + 50, 0));
    }

    #[test]
    fn no_cause_of_the_list_names_a_related_object() {
        let filter = ParentFilter::default();
        let found = || vec![(id(1), ParentState::Settled, "")];
        let cause = |related: Option<TracedObject>| {
            let trace = json!({
                "controller": "CompositeController c", "parent": TracedObject::new(&id(1).resource, &id(1).key),
                "generation": 1, "resourceVersion": "1", "began": "", "tookUs": 1, "cause": "Pod n/x changed",
                "relatedCause": related, "steps": [], "end": "unchanged",
            });
            let latest = filter.page(found(), |_| serde_json::from_value(trace.clone()).ok());
            latest.parents[0].latest.as_ref().map(|latest| latest.cause.clone())
        };
        assert_eq!(cause(None).as_deref(), Some("Pod n/x changed"));
        let pod = TracedObject::new(&id(1).resource, &Key::new("n", "x"));
        assert_eq!(cause(Some(pod)).as_deref(), Some("a related object changed"));
    }

    #[test]
    fn a_search_takes_namespace_and_name_and_a_state() {
        let filter = |search: &str, state| ParentFilter { search: search.to_owned(), state, skip: 0 };
        let includes = |filter: &ParentFilter| {
            filter.is_named("Team-A", "web-1") && filter.has_state(ParentState::Failing)
        };
        for search in ["", "web", "team-a/w", "/web-1"] {
            assert!(includes(&filter(search, None)), "{search}");
            assert!(includes(&filter(search, Some(ParentState::Failing))), "{search}");
            assert!(!includes(&filter(search, Some(ParentState::Settled))), "{search}");
        }
        assert!(!includes(&filter("web-2", None)));
    }
}
