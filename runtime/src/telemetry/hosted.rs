//! Metrics of the controllers that the server hosts, also of those that cannot start: the condition `Ready`, refused versions.

use std::fmt;
use std::sync::{Arc, Mutex};

use metahook_core::api::hook::HookName;
use metahook_core::api::status::Finding;
use metahook_core::controller_metrics::Metric;
use metahook_core::refused_versions::{RefusedVersions, VersionProblem};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::sync::lock;
use crate::telemetry::{ControllerLabels, describe, labels};

/// Figures of one hosted controller, in the scrapes as long as it is held.
pub(crate) struct HostedMeter {
    pub(super) labels: ControllerLabels,
    /// The condition `Ready`; `None`: the server stands by, and the one that leads tells.
    pub(super) ready: Box<dyn Fn() -> Option<Finding> + Send + Sync>,
    pub(super) versions: Mutex<RefusedVersions>,
}

impl HostedMeter {
    /// Notes how the stored version of a hook stands.
    pub(crate) fn note_version(&self, hook: HookName, problem: Option<VersionProblem>) {
        lock(&self.versions).note(hook, problem);
    }
}

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, meters: &[Arc<HostedMeter>]) -> fmt::Result {
    let leading: Vec<_> = meters.iter().filter_map(|meter| Some((meter, (meter.ready)()?))).collect();
    let name = Metric::ControllerReady.name();
    let mut family = describe(encoder, &name, Metric::ControllerReady)?;
    for (meter, ready) in &leading {
        let labels = labels(&meter.labels, &[(Metric::ControllerReady.label(), ready.reason())]);
        ConstGauge::new(i64::from(ready.is_true())).encode(family.encode_family(&labels)?)?;
    }
    let name = Metric::LastGoodInUse.name();
    let mut family = describe(encoder, &name, Metric::LastGoodInUse)?;
    for (meter, _) in &leading {
        let is_in_use = lock(&meter.versions).is_last_good_in_use();
        ConstGauge::new(i64::from(is_in_use)).encode(family.encode_family(&labels(&meter.labels, &[]))?)?;
    }
    let name = Metric::VersionsRefused.name();
    let mut family = describe(encoder, &name, Metric::VersionsRefused)?;
    for (meter, _) in &leading {
        let count = lock(&meter.versions).count();
        ConstCounter::new(count).encode(family.encode_family(&labels(&meter.labels, &[]))?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use metahook_core::api::reason::ConditionReason;
    use tokio::sync::watch;

    use crate::telemetry::metrics::Metrics;

    use super::*;

    const LABELS: &str = r#"controller_name="c",controller_type="CompositeController""#;

    fn series(metrics: &Metrics) -> Vec<String> {
        let text = metrics.text();
        text.lines().filter(|line| line.contains("controller_name")).map(str::to_owned).collect()
    }

    fn ready(reason: &str, value: u8) -> String {
        format!(r#"metahook_controller_ready{{{LABELS},reason="{reason}"}} {value}"#)
    }

    #[test]
    fn a_hosted_controller_has_one_series_with_the_reason_of_now() {
        let metrics = Metrics::new(|| 0);
        let (state, now) = watch::channel(Some(Finding::Unknown));
        let meter = metrics.hosted("CompositeController", "c", move || now.borrow().clone());
        assert_eq!(series(&metrics)[0], ready("NotYetKnown", 0));
        for (reason, shown) in [
            (ConditionReason::ModuleNotLoaded, ready("ModuleNotLoaded", 0)),
            (ConditionReason::InvalidSpec, ready("InvalidSpec", 0)),
            (ConditionReason::Running, ready("Running", 1)),
        ] {
            state.send_replace(Some(Finding::new(reason, "")));
            let all = series(&metrics);
            let all: Vec<_> = all.iter().filter(|line| line.contains("_ready{")).collect();
            assert_eq!(all, [&shown]);
        }
        state.send_replace(None);
        assert!(series(&metrics).is_empty(), "the server stands by");
        state.send_replace(Some(Finding::Unknown));
        drop(meter);
        assert!(series(&metrics).is_empty(), "the controller is gone");
    }

    #[test]
    fn refused_versions_count_and_the_last_good_one_is_told_while_it_runs() {
        let metrics = Metrics::new(|| 0);
        let meter = metrics.hosted("CompositeController", "c", || Some(Finding::Unknown));
        let refused = VersionProblem {
            reason: ConditionReason::ModuleInvalid,
            version: "no module".to_owned(),
            has_last_good: true,
        };
        let shown = |in_use: u8, refused: u8| {
            let all = series(&metrics);
            assert!(all.contains(&format!("metahook_last_good_in_use{{{LABELS}}} {in_use}")), "{all:?}");
            let total = format!("metahook_versions_refused_total{{{LABELS}}} {refused}");
            assert!(all.contains(&total), "{all:?}");
        };
        shown(0, 0);
        meter.note_version(HookName::Sync, Some(refused));
        shown(1, 1);
        meter.note_version(HookName::Sync, None);
        shown(0, 1);
    }
}
