//! What a running controller's status says of its parents and of its hooks' calls.

use metahook_core::spec::hook::HookName;
use metahook_core::spec::status::{self, Finding};
use metahook_core::standing::Purity;

use super::composite::Controller;
use super::hooks::Hook;
use super::report::Reporter;

impl Reporter {
    /// Tells of the latest calls, if there were any.
    pub(super) fn figures(&self, controller: &Controller) {
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

    pub(super) fn count(&self, controller: &Controller) {
        let parents = controller.count_parents();
        let callees = controller.hooks.now().ok();
        let (settled, failing, first, purity) = {
            let standings = controller.standings();
            let first = standings.failing().first_key_value().map(|(key, category)| (key.clone(), *category));
            let purity = callees.and_then(|callees| standings.purity_of(callees.identity));
            (standings.settled(), standings.failing().len(), first, purity)
        };
        let stable = match controller.ledgers.flips() {
            (0, _) | (_, None) => Finding::good("NobodyInterferes", ""),
            (flipping, Some((child, paths))) => Finding::bad(
                "ValueFlips",
                format!(
                    "{flipping} children are changed back again and again, the first is {child} ({}); see its parent's Events",
                    paths.join(", ")
                ),
            ),
        };
        let trouble = controller.stores().find_map(|store| store.trouble());
        let ready = match (trouble.or_else(|| controller.relations.trouble()), first) {
            (Some(trouble), _) => {
                Finding::good("NotListed", format!("{trouble}; parents are synced as they were seen last"))
            }
            (None, None) => Finding::good("Running", ""),
            (None, Some((key, category))) => {
                let message = format!(
                    "{failing} of {parents} parents fail, the first is {key} ({category}); see its Events"
                );
                Finding::good("ParentsFailing", message)
            }
        };
        {
            let mut tally = controller.meter.tally();
            (tally.parents, tally.settled, tally.failing) = (parents, settled, failing);
        }
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.change(|report| {
            report.ready = ready;
            report.stable = stable;
            report.pure = purity.map_or(Finding::Unknown, status::purity);
            if let Some(sync) = report.hooks.get_mut(HookName::Sync.as_str()) {
                sync.pure = purity.map(|purity| purity == Purity::Pure);
            }
            (report.parents, report.settled, report.failing) =
                (count(parents), count(settled), count(failing));
        });
    }
}
