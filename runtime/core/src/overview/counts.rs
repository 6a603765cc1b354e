//! Counts of a controller's reconciles and calls, from which `metahook dashboard` makes rates.

use serde::{Deserialize, Serialize};

use super::ControllerOverview;
use crate::controller_metrics::{ControllerMetrics, ReconcileResult};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerCounts {
    /// Reconciles but those of settled parents, since the controller was started.
    pub reconciles: u64,
    /// Calls of its hooks, since the controller was started.
    pub calls: u64,
}

impl ControllerCounts {
    pub fn of(metrics: &ControllerMetrics) -> Self {
        let reconciles = metrics.reconciles.iter().filter(|(result, _)| **result != ReconcileResult::Settled);
        Self { reconciles: reconciles.map(|(_, sum)| sum).sum(), calls: metrics.calls.results.values().sum() }
    }
}

impl From<&ControllerOverview> for ControllerCounts {
    fn from(overview: &ControllerOverview) -> Self {
        let settled = ReconcileResult::Settled.as_str();
        let reconciles = overview.reconciles.iter().filter(|(result, _)| *result != settled);
        Self {
            reconciles: reconciles.map(|(_, sum)| sum).sum(),
            calls: overview.calls.results.values().sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::CallNumbers;

    #[test]
    fn reconciles_of_settled_parents_are_not_counted() {
        let mut metrics = ControllerMetrics::default();
        metrics.reconciles.extend([(ReconcileResult::Settled, 100), (ReconcileResult::Wrote, 3)]);
        metrics.calls.results.extend([("ok", 5), ("HookTrap", 2)]);
        let counts = ControllerCounts::of(&metrics);
        assert_eq!(counts, ControllerCounts { reconciles: 3, calls: 7 });
        let reconciles = metrics.reconciles.iter().map(|(it, sum)| (it.as_str().to_owned(), *sum)).collect();
        let calls = CallNumbers::of(&metrics.calls);
        let overview = ControllerOverview { calls, reconciles, ..ControllerOverview::default() };
        assert_eq!(ControllerCounts::from(&overview), counts, "a page of one controller has the same rates");
    }
}
