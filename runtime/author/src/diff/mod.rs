//! `metahook diff`: what the hooks of a controller would change in the cluster.
//!
//! A parent is reconciled once, by the sequence of `metahook_core::reconcile`, over the cluster as it is. The API server tries
//! each write by a dry run, and stores nothing.

mod live;
mod ports;
mod setup;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use metahook_core::api::hook::HookName;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::sequence::{Start, reconcile};

use crate::render::hooks::HookSet;
use crate::render::{Reconciled, Step};
use live::Live;
use ports::Ports;
pub use setup::{DiffError, Options, of_name};

/// Parents that are reconciled at once.
const AT_ONCE: usize = 8;

/// A controller, its hooks, and the parents that they are tried with.
pub struct Differ {
    controller: String,
    hooks: HookSet,
    live: Live,
    parents: Vec<LiveParent>,
    /// Instructions of a call of the sync hook, as the server has measured them; the median.
    before: Option<u64>,
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

    /// Reconciles all parents, and gives each result away in order.
    ///
    /// # Errors
    /// What `each` gives back.
    pub async fn run<E>(&self, mut each: impl FnMut(&Reconciled) -> Result<(), E>) -> Result<Summary, E> {
        let mut all = stream::iter(&self.parents).map(|parent| self.reconciled(parent)).buffered(AT_ONCE);
        let (mut summary, mut used) = (Summary::default(), Vec::new());
        while let Some(one) = all.next().await {
            summary.add(&one);
            let calls = one.calls.iter().filter(|call| call.hook == HookName::Sync);
            used.extend(calls.filter_map(|call| call.instructions));
            each(&one)?;
        }
        used.sort_unstable();
        summary.instructions = self.before.zip(used.get(used.len() / 2).copied());
        Ok(summary)
    }

    async fn reconciled(&self, LiveParent { id, parent, config }: &LiveParent) -> Reconciled {
        let ports = Ports::new(self, config, id);
        let report = reconcile(&ports, Arc::clone(parent), Start::default()).await;
        ports.finish(report.result.err())
    }
}

impl Summary {
    fn add(&mut self, one: &Reconciled) {
        self.parents += 1;
        match (&one.error, one.steps.is_empty()) {
            (Some(_), _) => self.failed += 1,
            (None, false) => self.differ += 1,
            (None, true) => {}
        }
        for step in &one.steps {
            *self.changes.entry(word(step)).or_default() += 1;
        }
    }

    /// The parents about which nothing would change.
    pub fn same(&self) -> usize {
        self.parents - self.differ - self.failed
    }

    /// The whole in a line.
    pub fn print(&self) -> String {
        let parents = if self.parents == 1 { "parent" } else { "parents" };
        let changes: Vec<_> = self.changes.iter().map(|(what, count)| format!("{count} {what}")).collect();
        let changes = if changes.is_empty() { String::new() } else { format!(" ({})", changes.join(", ")) };
        let cost = self.instructions.map_or_else(String::new, |(before, now)| {
            format!(", {:+.0} % instructions", percent(before, now))
        });
        format!(
            "{} {parents}: {} same, {} differ{changes}, {} failed{cost}",
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

/// What a write does, in a word.
pub fn word(step: &Step) -> &'static str {
    match step.op {
        _ if step.effect.before.is_none() => "create",
        "replace" | "apply" | "hand over" => "update",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_a_line() {
        let changes = BTreeMap::from([("create", 5), ("delete", 1), ("update", 12)]);
        let summary =
            Summary { parents: 430, differ: 18, failed: 0, changes, instructions: Some((1000, 1070)) };
        let line =
            "430 parents: 412 same, 18 differ (5 create, 1 delete, 12 update), 0 failed, +7 % instructions";
        assert_eq!(summary.print(), line);
        let one = Summary { parents: 1, failed: 1, ..Summary::default() };
        assert_eq!(one.print(), "1 parent: 0 same, 0 differ, 1 failed");
        let cheaper = Summary { instructions: Some((0, 0)), ..Summary::default() };
        assert_eq!(cheaper.print(), "0 parents: 0 same, 0 differ, 0 failed, -100 % instructions");
    }
}
