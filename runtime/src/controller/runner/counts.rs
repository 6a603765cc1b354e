//! What a running controller's status says of its parents and of its hooks' calls.

use std::collections::BTreeSet;

use metahook_core::api::hook::HookName;
use metahook_core::api::status::{self, Finding};
use metahook_core::object::id::Key;
use metahook_core::settled::Purity;

use crate::controller::reconcile::Reconciler;
use crate::controller::reconcile::hooks::Hook;
use crate::controller::runner::parent_queue::ParentQueue;
use crate::controller::runner::report::Reporter;

/// How the parents of a controller stand.
#[derive(Default)]
struct Counts {
    parents: usize,
    settled: usize,
    failing: usize,
    /// The first that fails, and how.
    first: Option<(Key, &'static str)>,
    /// What was found of the hooks over each kind of parents.
    purity: BTreeSet<Purity>,
    flipping: usize,
    flips: Option<String>,
    trouble: Option<String>,
}

impl Counts {
    fn add(&mut self, controller: &Reconciler) {
        self.parents += controller.count_parents();
        let callees = controller.hooks.now().ok();
        {
            let standings = controller.standings();
            self.settled += standings.settled();
            self.failing += standings.failing().len();
            let first = standings.failing().first_key_value();
            self.first = self.first.take().or_else(|| first.map(|(key, category)| (key.clone(), *category)));
            self.purity.extend(callees.and_then(|callees| standings.purity_of(callees.identity)));
        }
        let (flipping, first) = controller.ledgers.flips();
        self.flipping += flipping;
        let first = first.map(|(child, paths)| format!("{child} ({})", paths.join(", ")));
        self.flips = self.flips.take().or(first);
        let trouble = || controller.stores().find_map(|store| store.trouble());
        self.trouble = self.trouble.take().or_else(trouble).or_else(|| controller.relations.trouble());
    }

    fn ready(&self) -> Finding {
        match (&self.trouble, &self.first) {
            (Some(trouble), _) => {
                Finding::good("NotListed", format!("{trouble}; parents are synced as they were seen last"))
            }
            (None, None) => Finding::good("Running", ""),
            (None, Some((key, category))) => {
                let (failing, parents) = (self.failing, self.parents);
                let message = format!(
                    "{failing} of {parents} parents fail, the first is {key} ({category}); see its Events"
                );
                Finding::good("ParentsFailing", message)
            }
        }
    }

    fn stable(&self) -> Finding {
        let Some(first) = &self.flips else { return Finding::good("NobodyInterferes", "") };
        let message = format!(
            "{} children are changed back again and again, the first is {first}; see its parent's Events",
            self.flipping
        );
        Finding::bad("ValueFlips", message)
    }
}

impl Reporter {
    /// Tells of the latest calls, if there were any.
    pub(crate) fn figures(&self, parts: &[ParentQueue]) {
        // Calls are counted for all of them together.
        let Some(ParentQueue { controller, .. }) = parts.first() else { return };
        for (name, hook) in controller.hooks.all.iter() {
            let Hook::Wasm { limits, .. } = hook else { continue };
            if let Some(figures) = controller.meter.tally().figures(name, limits) {
                self.change(|report| {
                    if let Some(hook) = report.hooks.get_mut(name.as_str()) {
                        hook.latest = Some(figures);
                    }
                });
            }
        }
    }

    pub(crate) fn count(&self, parts: &[ParentQueue]) {
        let mut counts = Counts::default();
        for part in parts {
            counts.add(&part.controller);
        }
        if let Some(ParentQueue { controller, .. }) = parts.first() {
            let mut tally = controller.meter.tally();
            (tally.parents, tally.settled, tally.failing) = (counts.parents, counts.settled, counts.failing);
        }
        // The worst there is.
        let purity = counts.purity.last().copied();
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.change(|report| {
            report.ready = counts.ready();
            report.stable = counts.stable();
            report.pure = purity.map_or(Finding::Unknown, status::purity);
            if let Some(sync) = report.hooks.get_mut(HookName::Sync.as_str()) {
                sync.pure = purity.map(|purity| purity == Purity::Pure);
            }
            (report.parents, report.settled, report.failing) =
                (count(counts.parents), count(counts.settled), count(counts.failing));
        });
    }
}
