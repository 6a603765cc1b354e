//! `metahook diff`: what the hooks of a controller would change in the cluster.
//!
//! A parent is reconciled once, by the sequence of `metahook_core::reconcile`, over the cluster as it is. Each write is a dry run of
//! the API server, which stores nothing.

mod live;
mod ports;
mod setup;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use metahook_core::api::ControllerKind;
use metahook_core::api::hook::HookName;
use metahook_core::bundle::{ModulePlace, parents_of};
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, ObjectId};
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::error::ReconcileError;
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::sequence::{Reached, Start, reconcile};

use metahook_server::cluster::api_client::ApiClient;

use crate::documents::Document;
use crate::render::hooks::HookSet;
use crate::render::{RenderedReconcile, Step};
use live::Live;
use ports::{Overlay, Ports};
pub use setup::{DiffError, Options};

/// Parents that are reconciled at once.
const MAX_CONCURRENT_RECONCILES: usize = 8;

/// Tries of one parent, while other clients write its objects.
const MAX_TRIES: usize = 4;

/// The longest wait for an API server that is busy, and for a hook that asks for a later call.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// A controller, its hooks, and the parents that they are called about.
pub struct Differ {
    controller: String,
    hooks: HookSet,
    live: Live,
    parents: Vec<LiveParent>,
    /// The controllers of the cluster: what another one has made is left to it.
    controllers: BTreeSet<(ControllerKind, String)>,
    /// Instructions of a call of the sync hook, as the server has measured them; the median.
    before: Option<u64>,
    remarks: Vec<String>,
    /// The controller, as the cluster would have it.
    pub(crate) document: Document,
    /// The places whose module or script comes from the cluster.
    pub(crate) stored: BTreeSet<ModulePlace>,
}

struct LiveParent {
    id: ObjectId,
    parent: Arc<Object>,
    config: Arc<ControllerConfig>,
}

/// The results for all parents together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub parents: usize,
    pub differ: usize,
    pub paused: usize,
    pub failed: usize,
    /// The writes, by what they do.
    pub changes: BTreeMap<&'static str, usize>,
    /// Instructions of a call of the sync hook: as the server has measured them, and now; the medians.
    pub instructions: Option<(u64, u64)>,
}

impl Differ {
    /// Number of parents.
    pub fn parents(&self) -> usize {
        self.parents.len()
    }

    /// A client that writes nothing.
    pub(crate) fn api(&self) -> &ApiClient {
        self.live.client.api()
    }

    /// All kinds that the controller deals with.
    pub(crate) fn kinds(&self) -> BTreeSet<Gvr> {
        let parents = self.parents.iter().map(|one| one.id.resource.gvr());
        parents.chain(parents_of(&self.document.value)).chain(self.live.kinds()).collect()
    }

    /// Number of the kinds of parents.
    pub(crate) fn parent_kinds(&self) -> usize {
        parents_of(&self.document.value).len()
    }

    /// The revisions of a parent, where children are updated one after the other.
    pub(crate) fn revisions_of(&self, parent: &ObjectId) -> Vec<Arc<Object>> {
        let uid = self.parents.iter().find(|one| one.id == *parent).map(|one| &one.parent.uid);
        let kinds = self.live.children.iter().filter(|(kind, _)| kind.gvr() == setup::revisions());
        let is_own = |object: &&Arc<Object>| uid.is_some_and(|uid| object.controller.as_ref() == Some(uid));
        kinds.flat_map(|(_, cache)| cache.all_whole()).filter(is_own).cloned().collect()
    }

    /// A namespace that a rule of the customize hook looked at.
    pub(crate) fn known_namespace(&self, name: &str) -> Option<Arc<Object>> {
        self.live.namespace(name)
    }

    /// Remarks on the controller, for the reader of the comparison.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Reconciles all parents, and passes each result on in order.
    ///
    /// # Errors
    /// The error of `each`.
    pub async fn run<E>(
        &self,
        mut each: impl FnMut(&RenderedReconcile) -> Result<(), E>,
    ) -> Result<Summary, E> {
        let parents = stream::iter(&self.parents).map(|parent| self.reconcile(parent));
        let mut all = parents.buffered(MAX_CONCURRENT_RECONCILES);
        let (mut summary, mut used) = (Summary::default(), Vec::new());
        while let Some((one, reached)) = all.next().await {
            summary.add(&one, reached);
            let calls = one.calls.iter().filter(|call| call.hook == HookName::Sync);
            used.extend(calls.filter_map(|call| call.instructions));
            each(&one)?;
        }
        used.sort_unstable();
        summary.instructions = self.before.zip(used.get(used.len() / 2).copied());
        Ok(summary)
    }

    /// As on a server, a conflict with another client is no failure: the parent is reconciled again, over the objects as they are then.
    async fn reconcile(&self, parent: &LiveParent) -> (RenderedReconcile, Reached) {
        let (mut fresh, mut tries) = (Overlay::new(), 0);
        loop {
            tries += 1;
            let ports = Ports::new(self, parent, fresh.clone());
            let state = match fresh.get(&parent.id) {
                None => Arc::clone(&parent.parent),
                Some(Some(now)) => Arc::clone(now),
                Some(None) => {
                    let note = "it is gone".to_owned();
                    return (
                        RenderedReconcile { notes: vec![note], ..RenderedReconcile::of(&parent.id) },
                        Reached::Ignored,
                    );
                }
            };
            let report = reconcile(&ports, state, Start::default()).await;
            let reached = report.reached;
            let (one, failed) = ports.finish(report);
            let Some(wait) = one.error.as_ref().and_then(wait_before_retry).filter(|_| tries < MAX_TRIES)
            else {
                return (one, reached);
            };
            tokio::time::sleep(wait).await;
            self.refresh(&one, failed, &mut fresh).await;
        }
    }

    /// Reads the parent and the objects that this reconcile wrote, or failed to. One that cannot be read stays as it was listed.
    async fn refresh(&self, one: &RenderedReconcile, failed: Vec<ObjectId>, fresh: &mut Overlay) {
        let seen = one.steps.iter().map(|step| &step.effect.id).chain([&one.parent]);
        let all: BTreeSet<_> = seen.cloned().chain(failed).collect();
        for id in all {
            if let Ok(now) = self.live.client.read(&id).await {
                fresh.insert(id, now.map(Arc::new));
            }
        }
    }
}

/// The wait before a parent is reconciled again, where that is worth it.
fn wait_before_retry(error: &ReconcileError) -> Option<Duration> {
    match error.failure().retry {
        Retry::Silent => Some(Duration::ZERO),
        Retry::After(delay) if delay <= MAX_WAIT => Some(delay),
        Retry::After(_) | Retry::WithEvent => None,
    }
}

impl Summary {
    fn add(&mut self, one: &RenderedReconcile, reached: Reached) {
        if reached == Reached::Ignored {
            // It is gone.
            return;
        }
        self.parents += 1;
        match (&one.error, one.steps.is_empty()) {
            (Some(_), _) => {
                self.failed += 1;
                return;
            }
            (None, _) if reached == Reached::Paused => self.paused += 1,
            (None, false) => self.differ += 1,
            (None, true) => {}
        }
        for step in &one.steps {
            *self.changes.entry(word(step)).or_default() += 1;
        }
    }

    /// The parents for which nothing would change.
    pub fn same(&self) -> usize {
        self.parents - self.differ - self.paused - self.failed
    }

    /// One line for all parents.
    pub fn print(&self) -> String {
        let parents = if self.parents == 1 { "parent" } else { "parents" };
        let changes: Vec<_> = self.changes.iter().map(|(what, count)| format!("{count} {what}")).collect();
        let changes = if changes.is_empty() { String::new() } else { format!(" ({})", changes.join(", ")) };
        let paused = if self.paused > 0 { format!(", {} paused", self.paused) } else { String::new() };
        let cost = self.instructions.map_or_else(String::new, |(before, now)| {
            format!(", {:+.0} % instructions", percent(before, now))
        });
        format!(
            "{} {parents}: {} same, {} differ{changes}{paused}, {} failed{cost}",
            self.parents,
            self.same(),
            self.differ,
            self.failed
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "a percentage for people")]
fn percent(before: u64, now: u64) -> f64 {
    (now as f64 / before.max(1) as f64 - 1.0) * 100.0
}

/// Word for a step: create, update, delete, and so on.
pub fn word(step: &Step) -> &'static str {
    match step.op {
        "replace" | "apply" | "hand over" if step.effect.before.is_some() => "update",
        "apply" => "create",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_a_line() {
        let changes = BTreeMap::from([("create", 5), ("delete", 1), ("update", 12)]);
        let summary = Summary {
            parents: 430,
            differ: 18,
            changes,
            instructions: Some((1000, 1070)),
            ..Summary::default()
        };
        let line =
            "430 parents: 412 same, 18 differ (5 create, 1 delete, 12 update), 0 failed, +7 % instructions";
        assert_eq!(summary.print(), line);
        let paused = Summary { parents: 3, differ: 1, paused: 2, ..Summary::default() };
        assert_eq!(paused.print(), "3 parents: 0 same, 1 differ, 2 paused, 0 failed");
        let one = Summary { parents: 1, failed: 1, ..Summary::default() };
        assert_eq!(one.print(), "1 parent: 0 same, 0 differ, 1 failed");
        let cheaper = Summary { instructions: Some((0, 0)), ..Summary::default() };
        assert_eq!(cheaper.print(), "0 parents: 0 same, 0 differ, 0 failed, -100 % instructions");
    }
}
