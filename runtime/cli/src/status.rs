//! `metahook status`.

use std::io::{self, Write};

use clap::Args;

use crate::cluster_flags::ReachFlags;
use metahook_author::status::{ControllerLine, StatusError, age, cluster_status};
use metahook_server::cluster::api_client::ConnectError;
use metahook_server::telemetry::{error_chain, escape};

#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub reach: ReachFlags,
}

#[derive(Debug, thiserror::Error)]
pub enum StatusCommandError {
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl Status {
    /// The table goes to `out`, remarks to `say`.
    pub async fn run(&self, mut out: impl Write, mut say: impl Write) -> Result<(), StatusCommandError> {
        let api = self.reach.reached().await?;
        let found = cluster_status(&api).await?;
        if let Some(error) = found.without_leases {
            let why = error_chain(&error);
            writeln!(
                say,
                "the Leases of servers cannot be read, so SEEN alone decides about NoServer: {why}"
            )?;
        }
        if found.controllers.is_empty() {
            return Ok(writeln!(say, "there are no controllers")?);
        }
        Ok(write!(out, "{}", table(&found.controllers))?)
    }
}

const COLUMNS: [&str; 8] = ["KIND", "NAME", "READY", "REASON", "PARENTS", "FAILING", "PAUSED", "SEEN"];

/// The columns as wide as their widest cell.
fn table(controllers: &[ControllerLine]) -> String {
    let rows: Vec<_> =
        std::iter::once(COLUMNS.map(str::to_owned)).chain(controllers.iter().map(cells)).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..COLUMNS.len()).map(width).collect();
    let line = |row: &[String; 8]| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", padded.collect::<Vec<_>>().join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn cells(line: &ControllerLine) -> [String; 8] {
    let count = |count: Option<i64>| count.map_or_else(String::new, |count| count.to_string());
    [
        line.kind.to_owned(),
        escape(&line.name).to_string(),
        escape(&line.ready).to_string(),
        escape(&line.reason).to_string(),
        count(line.parents),
        count(line.failing),
        count(line.paused),
        line.seen.map_or_else(|| "never".to_owned(), age),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let controllers = [
            ControllerLine {
                kind: "CompositeController",
                name: "hello".to_owned(),
                ready: "True".to_owned(),
                reason: "Running".to_owned(),
                parents: Some(3),
                failing: Some(0),
                paused: Some(0),
                seen: Some(Duration::from_secs(100)),
            },
            ControllerLine {
                kind: "DecoratorController",
                name: "c".to_owned(),
                ready: "Unknown".to_owned(),
                reason: "NoServer".to_owned(),
                parents: None,
                failing: None,
                paused: None,
                seen: None,
            },
        ];
        let expected = "\
KIND                  NAME    READY     REASON     PARENTS   FAILING   PAUSED   SEEN
CompositeController   hello   True      Running    3         0         0        100s
DecoratorController   c       Unknown   NoServer                                never
";
        assert_eq!(table(&controllers), expected);
    }
}
