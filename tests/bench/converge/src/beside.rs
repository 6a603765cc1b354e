//! The server and its peers beside each other: one column each.

use std::time::Duration;

use serde::Serialize;

use crate::bare::Bare;
use crate::report::{median, rounded};
use crate::work::{Changed, Made, count};

/// Figures of one that does the work; all are taken alike.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figures {
    converge_s: f64,
    /// Ratio to the bare writes.
    ratio: f64,
    cpu_ms_per_parent: f64,
    /// With all parents at rest.
    rss_mb: f64,
    /// The most at any time, with what comes after.
    peak_mb: f64,
    create_to_pod_p50_ms: f64,
    create_to_pod_p99_ms: f64,
    recreate_s: f64,
    recreate_ratio: f64,
    recreate_cpu_s: f64,
    storm_to_pod_p99_ms: f64,
}

/// A row: what it says, its unit, and where the figure lies.
type Row = (&'static str, &'static str, fn(&mut Figures) -> &mut f64);

const ROWS: [Row; 11] = [
    ("converged", "s", |all| &mut all.converge_s),
    ("  of the bare writes", "", |all| &mut all.ratio),
    ("CPU for each parent", "ms", |all| &mut all.cpu_ms_per_parent),
    ("memory", "MB", |all| &mut all.rss_mb),
    ("  at most", "MB", |all| &mut all.peak_mb),
    ("from parent to Pod, p50", "ms", |all| &mut all.create_to_pod_p50_ms),
    ("from parent to Pod, p99", "ms", |all| &mut all.create_to_pod_p99_ms),
    ("all recreated", "s", |all| &mut all.recreate_s),
    ("  of the bare writes", "", |all| &mut all.recreate_ratio),
    ("  CPU", "s", |all| &mut all.recreate_cpu_s),
    ("  from new parents to Pods, p99", "ms", |all| &mut all.storm_to_pod_p99_ms),
];

/// One of those that do the work, with its figures of each pair.
#[derive(Debug)]
struct Column {
    name: &'static str,
    pairs: Vec<Figures>,
}

/// What a peer is in JSON.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Beside {
    #[serde(flatten)]
    figures: Figures,
    /// Of each figure, the ratio to the server's.
    of_metahook: Figures,
}

/// The server's column is the first one.
#[derive(Debug, Default)]
pub(crate) struct Columns(Vec<Column>);

impl Columns {
    pub(crate) fn add(&mut self, name: &'static str, figures: Figures) {
        match self.0.iter_mut().find(|column| column.name == name) {
            Some(column) => column.pairs.push(figures),
            None => self.0.push(Column { name, pairs: vec![figures] }),
        }
    }

    /// Medians of each, and of its ratios to the server in the same pair.
    pub(crate) fn medians(&self) -> Vec<(&'static str, Beside)> {
        let Some(first) = self.0.first() else { return Vec::new() };
        let of = |column: &Column| Beside {
            figures: medians(column.pairs.iter().copied()),
            of_metahook: medians(
                column.pairs.iter().zip(&first.pairs).map(|(theirs, ours)| theirs.of(*ours)),
            ),
        };
        self.0.iter().map(|column| (column.name, of(column))).collect()
    }

    /// None without peers.
    pub(crate) fn table(&self) -> Option<String> {
        let columns = self.medians();
        (columns.len() > 1).then(|| {
            let head = columns.iter().fold(String::new(), |head, (name, _)| format!("{head} {name:>24}"));
            let row = |(what, unit, at): Row| {
                let cell = |(number, (_, beside)): (usize, &(&str, Beside))| {
                    let mut beside = (beside.figures, beside.of_metahook);
                    let figure = format!("{} {unit}", at(&mut beside.0)).trim_end().to_owned();
                    let ratio =
                        if number == 0 { String::new() } else { format!(" ({}x)", at(&mut beside.1)) };
                    format!(" {:>24}", figure + &ratio)
                };
                format!("{what:<34}") + &columns.iter().enumerate().map(cell).collect::<String>()
            };
            let head = format!("{:<34}{head}", "beside peers (x: of metahook)");
            [head].into_iter().chain(ROWS.into_iter().map(row)).collect::<Vec<_>>().join("\n")
        })
    }
}

impl Figures {
    pub(crate) fn of_work(parents: usize, bare: &Bare, made: &Made, changed: &Changed) -> Self {
        let millis = |time: Duration| rounded(time.as_secs_f64() * 1000.0);
        let seconds = |time: Duration| rounded(time.as_secs_f64());
        Self {
            converge_s: seconds(made.time),
            ratio: rounded(made.time.as_secs_f64() / bare.create.as_secs_f64()),
            cpu_ms_per_parent: rounded(made.cpu * 1000.0 / count(parents)),
            rss_mb: rounded(made.memory_mb),
            peak_mb: rounded(changed.peak_mb),
            create_to_pod_p50_ms: millis(changed.to_pod_p50),
            create_to_pod_p99_ms: millis(changed.to_pod_p99),
            recreate_s: seconds(changed.recreate),
            recreate_ratio: rounded(changed.recreate.as_secs_f64() / bare.recreate.as_secs_f64()),
            recreate_cpu_s: rounded(changed.recreate_cpu),
            storm_to_pod_p99_ms: millis(changed.storm_to_pod_p99),
        }
    }

    /// Each figure by the other's.
    fn of(mut self, mut other: Self) -> Self {
        for (_, _, at) in ROWS {
            *at(&mut self) = rounded(*at(&mut self) / *at(&mut other));
        }
        self
    }
}

fn medians(pairs: impl Iterator<Item = Figures>) -> Figures {
    let mut pairs: Vec<Figures> = pairs.collect();
    let mut all = Figures::default();
    for (_, _, at) in ROWS {
        *at(&mut all) = rounded(median(pairs.iter_mut().map(|pair| *at(pair)).collect()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(converge_s: f64) -> Figures {
        Figures { converge_s, rss_mb: 20.0, ..Figures::default() }
    }

    #[test]
    fn a_peer_has_its_medians_and_those_of_its_ratios() {
        let mut columns = Columns::default();
        for (ours, theirs) in [(1.0, 4.0), (2.0, 4.0), (4.0, 4.0)] {
            columns.add("metahook", figures(ours));
            columns.add("go", figures(theirs));
        }
        let medians = columns.medians();
        let seen: Vec<_> = medians
            .iter()
            .map(|(name, beside)| (*name, beside.figures.converge_s, beside.of_metahook.converge_s))
            .collect();
        assert_eq!(seen, [("metahook", 2.0, 1.0), ("go", 4.0, 2.0)]);
        let table = columns.table().unwrap();
        assert!(table.contains(&format!("2 s {:>24}", "4 s (2x)")), "{table}");
        assert_eq!(table.lines().count(), 1 + ROWS.len());
    }

    #[test]
    fn without_peers_there_is_nothing_to_compare() {
        let mut columns = Columns::default();
        columns.add("metahook", figures(1.0));
        assert_eq!(columns.table(), None);
    }
}
