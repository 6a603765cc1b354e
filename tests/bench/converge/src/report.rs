//! Report: the measurements, pair by pair, and their medians beside the goals.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::bare::Bare;
use crate::beside::{self, Beside, Columns};
use crate::ours::Ours;
use crate::peers::Theirs;
use crate::work::count;

/// Figures of one pair, or the medians of several.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figures {
    parents: usize,
    /// The bare writes.
    bound_s: f64,
    converge_s: f64,
    ratio: f64,
    cpu_ms_per_parent: f64,
    rss_mb: f64,
    create_to_pod_p50_ms: f64,
    create_to_pod_p99_ms: f64,
    /// Ratio to two bare writes one after the other; the medians.
    create_to_pod_ratio: f64,
    recreate_s: f64,
    /// Ratio to the same bare writes: patch, delete, create, status.
    recreate_ratio: f64,
    recreate_cpu_s: f64,
    /// Milliseconds from a new parent to its Pod while all others are recreated.
    storm_to_pod_p99_ms: f64,
    /// Ratio to the median of an idle server.
    storm_to_pod_ratio: f64,
    /// Ratio to two bare writes while all others are recreated by bare writes, p99 as well.
    storm_to_pod_of_bare: f64,
    idle_resync_us_per_parent: f64,
    #[serde(skip)]
    kb_per_parent: f64,
    #[serde(skip)]
    writes_per_parent: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    pairs: Vec<Figures>,
    columns: Columns,
}

/// The medians, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Medians {
    #[serde(flatten)]
    figures: Figures,
    /// The server and its peers, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<BTreeMap<&'static str, Beside>>,
}

impl Report {
    /// One line about the pair.
    pub(crate) fn add(&mut self, parents: usize, bare: &Bare, ours: &Ours) -> String {
        let figures = Figures::of(parents, bare, ours);
        self.pairs.push(figures);
        self.columns.add("metahook", beside::Figures::of_work(parents, bare, &ours.made, &ours.changed));
        format!("pair {}: {figures:?}", self.pairs.len())
    }

    /// One line about a peer beside the same pair.
    pub(crate) fn add_peer(
        &mut self,
        name: &'static str,
        parents: usize,
        bare: &Bare,
        theirs: &Theirs,
    ) -> String {
        let figures = beside::Figures::of_work(parents, bare, &theirs.made, &theirs.changed);
        self.columns.add(name, figures);
        format!("{name} beside it: {figures:?}")
    }

    pub(crate) fn medians(&self) -> Medians {
        let beside = self.columns.medians();
        Medians { figures: self.median(), beside: (beside.len() > 1).then(|| beside.into_iter().collect()) }
    }

    fn median(&self) -> Figures {
        let of = |field: fn(&Figures) -> f64| rounded(median(self.pairs.iter().map(field).collect()));
        Figures {
            parents: self.pairs.first().map_or(0, |pair| pair.parents),
            bound_s: of(|pair| pair.bound_s),
            converge_s: of(|pair| pair.converge_s),
            ratio: of(|pair| pair.ratio),
            cpu_ms_per_parent: of(|pair| pair.cpu_ms_per_parent),
            rss_mb: of(|pair| pair.rss_mb),
            create_to_pod_p50_ms: of(|pair| pair.create_to_pod_p50_ms),
            create_to_pod_p99_ms: of(|pair| pair.create_to_pod_p99_ms),
            create_to_pod_ratio: of(|pair| pair.create_to_pod_ratio),
            recreate_s: of(|pair| pair.recreate_s),
            recreate_ratio: of(|pair| pair.recreate_ratio),
            recreate_cpu_s: of(|pair| pair.recreate_cpu_s),
            storm_to_pod_p99_ms: of(|pair| pair.storm_to_pod_p99_ms),
            storm_to_pod_ratio: of(|pair| pair.storm_to_pod_ratio),
            storm_to_pod_of_bare: of(|pair| pair.storm_to_pod_of_bare),
            idle_resync_us_per_parent: of(|pair| pair.idle_resync_us_per_parent),
            kb_per_parent: of(|pair| pair.kb_per_parent),
            writes_per_parent: of(|pair| pair.writes_per_parent),
        }
    }

    pub(crate) fn table(&self) -> String {
        let all = self.median();
        let row = |what: &str, figure: String, goal: Option<(f64, f64)>| {
            let verdict = goal.map_or_else(String::new, |(is, most)| {
                format!("  goal {most} {}", if is <= most { "met" } else { "missed" })
            });
            format!("{what:<34} {figure:>24}{verdict}")
        };
        let lines = [
            format!("{} parents, medians of {} pairs", all.parents, self.pairs.len()),
            row("bare writes", format!("{} s", all.bound_s), None),
            row("converged", format!("{} s", all.converge_s), None),
            row("  of the bare writes", format!("{}", all.ratio), Some((all.ratio, 1.3))),
            row(
                "CPU for each parent",
                format!("{} ms", all.cpu_ms_per_parent),
                Some((all.cpu_ms_per_parent, 0.6)),
            ),
            row("writes for each parent", format!("{}", all.writes_per_parent), None),
            row("memory", format!("{} MB", all.rss_mb), Some((all.rss_mb, 50.0))),
            row(
                "  for each parent with its Pod",
                format!("{} KB", all.kb_per_parent),
                Some((all.kb_per_parent, 12.0)),
            ),
            row(
                "from parent to Pod, p50 / p99",
                format!("{} / {} ms", all.create_to_pod_p50_ms, all.create_to_pod_p99_ms),
                None,
            ),
            row(
                "  of two bare writes",
                format!("{}", all.create_to_pod_ratio),
                Some((all.create_to_pod_ratio, 1.5)),
            ),
            row("all recreated", format!("{} s", all.recreate_s), None),
            row("  of the bare writes", format!("{}", all.recreate_ratio), Some((all.recreate_ratio, 1.5))),
            row("  CPU", format!("{} s", all.recreate_cpu_s), None),
            row("  from new parents to Pods, p99", format!("{} ms", all.storm_to_pod_p99_ms), None),
            row(
                "    of the p50 of an idle server",
                format!("{}", all.storm_to_pod_ratio),
                Some((all.storm_to_pod_ratio, 10.0)),
            ),
            // Bare writes, too, take some 25 times as long as on an idle machine of two cores.
            row(
                "    of the p99 of two bare writes",
                format!("{}", all.storm_to_pod_of_bare),
                Some((all.storm_to_pod_of_bare, 3.0)),
            ),
            row(
                "CPU of a look at a settled parent",
                format!("{} µs", all.idle_resync_us_per_parent),
                Some((all.idle_resync_us_per_parent, 2.0)),
            ),
        ];
        let peers = self.columns.table().map(|table| format!("\n{table}"));
        lines.into_iter().chain(peers).collect::<Vec<_>>().join("\n")
    }
}

impl Figures {
    fn of(parents: usize, bare: &Bare, ours: &Ours) -> Self {
        let (made, changed) = (&ours.made, &ours.changed);
        let millis = |time: Duration| rounded(time.as_secs_f64() * 1000.0);
        let ratio = |ours: Duration, bare: Duration| rounded(ours.as_secs_f64() / bare.as_secs_f64());
        Self {
            parents,
            bound_s: rounded(bare.create.as_secs_f64()),
            converge_s: rounded(made.time.as_secs_f64()),
            ratio: ratio(made.time, bare.create),
            cpu_ms_per_parent: rounded(made.cpu * 1000.0 / count(parents)),
            rss_mb: rounded(made.memory_mb),
            create_to_pod_p50_ms: millis(changed.to_pod_p50),
            create_to_pod_p99_ms: millis(changed.to_pod_p99),
            create_to_pod_ratio: ratio(changed.to_pod_p50, bare.two_p50),
            recreate_s: rounded(changed.recreate.as_secs_f64()),
            recreate_ratio: ratio(changed.recreate, bare.recreate),
            recreate_cpu_s: rounded(changed.recreate_cpu),
            storm_to_pod_p99_ms: millis(changed.storm_to_pod_p99),
            storm_to_pod_ratio: ratio(changed.storm_to_pod_p99, changed.to_pod_p50),
            storm_to_pod_of_bare: ratio(changed.storm_to_pod_p99, bare.storm_two_p99),
            idle_resync_us_per_parent: rounded(ours.idle_resync_us),
            kb_per_parent: rounded((made.memory_mb - made.memory_before_mb) * 1000.0 / count(parents)),
            writes_per_parent: rounded(ours.writes),
        }
    }
}

/// The smallest time that `percent` of all do not exceed; none of none.
pub(crate) fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(rank).copied().unwrap_or_default()
}

/// The middle one, or between the middle two; 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = |at: usize| values.get(at).copied().unwrap_or_default();
    let half = values.len() / 2;
    if values.len() % 2 == 1 {
        middle(half)
    } else {
        f64::midpoint(middle(half.saturating_sub(1)), middle(half))
    }
}

/// To three digits after the point: more is noise.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::work::{Changed, Made};

    const BARE: Bare = Bare {
        create: Duration::from_secs(4),
        recreate: Duration::from_secs(5),
        two_p50: Duration::from_millis(4),
        storm_two_p99: Duration::from_millis(60),
    };

    fn ours(create: u64) -> Ours {
        let made =
            Made { time: Duration::from_secs(create), cpu: 1.0, memory_before_mb: 20.0, memory_mb: 40.0 };
        let changed = Changed {
            to_pod_p50: Duration::from_millis(6),
            to_pod_p99: Duration::from_millis(9),
            recreate: Duration::from_secs(10),
            recreate_cpu: 1.5,
            storm_to_pod_p99: Duration::from_millis(90),
            peak_mb: 45.0,
        };
        Ours { made, changed, idle_resync_us: 0.5, writes: 2.0 }
    }

    #[test]
    fn a_report_is_one_object_of_medians_of_each_figure() {
        let mut report = Report::default();
        for create in [9, 5, 6] {
            report.add(2000, &BARE, &ours(create));
        }
        assert_eq!(
            serde_json::to_value(report.medians()).unwrap(),
            json!({
                "parents": 2000, "bound_s": 4.0, "converge_s": 6.0, "ratio": 1.5, "cpu_ms_per_parent": 0.5,
                "rss_mb": 40.0, "create_to_pod_p50_ms": 6.0, "create_to_pod_p99_ms": 9.0,
                "create_to_pod_ratio": 1.5, "recreate_s": 10.0, "recreate_ratio": 2.0, "recreate_cpu_s": 1.5,
                "storm_to_pod_p99_ms": 90.0, "storm_to_pod_ratio": 15.0, "storm_to_pod_of_bare": 1.5,
                "idle_resync_us_per_parent": 0.5,
            })
        );
        let table = report.table();
        assert!(table.contains("1.5  goal 1.3 missed") && table.contains("40 MB  goal 50 met"), "{table}");
        assert!(table.contains("10 KB  goal 12 met"), "{table}");
        assert!(!table.contains("peers"), "{table}");
        let Ours { made, changed, .. } = ours(9);
        report.add_peer("go", 2000, &BARE, &Theirs { made, changed });
        let all = serde_json::to_value(report.medians()).unwrap();
        assert_eq!(all["beside"]["go"]["converge_s"], 9.0);
        assert_eq!(all["beside"]["go"]["of_metahook"]["rss_mb"], 1.0);
        assert_eq!(all["beside"]["metahook"]["peak_mb"], 45.0);
        assert!(report.table().contains("beside peers"));
    }

    #[test]
    fn a_median_lies_in_the_middle() {
        assert_eq!(
            (median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0, 2.0, 3.0]), median(vec![])),
            (2.0, 2.5, 0.0)
        );
    }
}
