//! `metahook status`: all controllers, or one.

use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use metahook_author::inspected_server::InspectError;
use metahook_author::status::controller::StatusReader;
use metahook_author::status::{ControllerLine, StatusError, age, cluster_status, print};
use metahook_core::api::status::Attention;
use metahook_core::{one_line, shorten_middle};
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::objects::RequestError;
use metahook_server::telemetry::{error_chain, escape};
use serde::Serialize;

use crate::cluster_flags::{InspectFlags, InspectorError};
use crate::until_signal::{SignalError, until_signal};

/// End of `--help`.
const EXAMPLES: &str = "Examples:\n  metahook status                a table of all controllers\n  metahook status hello          one controller: which parents fail and why, what waits, what takes longest\n  metahook status hello --watch  the same, every two seconds";

/// A new state is printed this often.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// Name of a controller; `compositecontroller/NAME` where there is a DecoratorController of that name, too. All controllers when absent.
    #[arg(value_name = "CONTROLLER")]
    pub controller: Option<String>,
    /// Print the state again every two seconds, until Ctrl-C.
    #[arg(short = 'w', long)]
    pub watch: bool,
    /// Format of what is printed.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    #[command(flatten)]
    pub inspect: InspectFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs: one object, of all controllers a list; with --watch one a line.
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum StatusCommandError {
    #[error(transparent)]
    Inspector(#[from] InspectorError),
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error("what the server knows of the controller is not shown")]
    Inspect(#[from] InspectError),
    #[error(transparent)]
    Signal(#[from] SignalError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl Status {
    /// States go to `out`, remarks to `say`. `is_terminal`: a new state takes the place of the one before.
    pub async fn run(
        self,
        out: impl Write,
        say: impl Write,
        is_terminal: bool,
    ) -> Result<(), StatusCommandError> {
        let inspector = self.inspect.inspector().await?;
        let mut shown = match self.controller {
            None => Shown::All(Box::new(inspector.api)),
            Some(name) => Shown::One(Box::new(StatusReader::new(inspector, name))),
        };
        let output = (self.output, self.watch && is_terminal);
        if self.watch {
            until_signal(watch(shown, output, (out, say))).await
        } else {
            shown.print(output, (out, say)).await
        }
    }
}

/// Controllers that the command shows: all, or one.
enum Shown {
    All(Box<ApiClient>),
    One(Box<StatusReader>),
}

async fn watch(
    mut shown: Shown,
    output: (Output, bool),
    (mut out, mut say): (impl Write, impl Write),
) -> Result<(), StatusCommandError> {
    loop {
        match shown.print(output, (&mut out, &mut say)).await {
            // The next state may be shown whole.
            Err(
                error
                @ (StatusCommandError::Inspect(_) | StatusCommandError::Status(StatusError::Request(_))),
            ) => {
                drop(writeln!(say, "metahook: {}; the command goes on asking", escape(&error_chain(&error))));
            }
            printed => printed?,
        }
        out.flush()?;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

impl Shown {
    /// `clears`: what was printed before is gone.
    async fn print(
        &mut self,
        (output, clears): (Output, bool),
        (mut out, mut say): (impl Write, impl Write),
    ) -> Result<(), StatusCommandError> {
        let clear = if clears { "\x1b[2J\x1b[H" } else { "" };
        match self {
            Self::All(api) => {
                let found = cluster_status(api).await?;
                say_leases(&mut say, found.without_leases.as_ref(), "RENEWED")?;
                match output {
                    Output::Json => json(&mut out, &found.controllers)?,
                    Output::Text if found.controllers.is_empty() => {
                        writeln!(say, "there are no controllers")?;
                    }
                    Output::Text => {
                        write!(out, "{clear}{}{}", table(&found.controllers), remarks(&found.controllers))?;
                    }
                }
            }
            Self::One(reader) => {
                let shown = reader.read().await?;
                say_leases(&mut say, shown.without_leases.as_ref(), "the time when the status was renewed")?;
                match output {
                    Output::Json => json(&mut out, &shown)?,
                    Output::Text => {
                        write!(out, "{clear}")?;
                        print(&mut out, &shown)?;
                    }
                }
                shown.failed.map_or(Ok(()), Err)?;
            }
        }
        Ok(())
    }
}

/// Says why Leases do not count. `instead`: what counts then.
fn say_leases(say: &mut impl Write, unread: Option<&RequestError>, instead: &str) -> Result<(), io::Error> {
    let Some(error) = unread else { return Ok(()) };
    let why = error_chain(error);
    let why = escape(&why);
    writeln!(say, "the Leases of servers cannot be read, so {instead} alone decides about NoServer: {why}")
}

fn json(out: &mut impl Write, value: &impl Serialize) -> Result<(), io::Error> {
    writeln!(out, "{}", serde_json::to_value(value).unwrap_or_default())
}

const COLUMNS: [&str; 10] =
    ["KIND", "NAME", "READY", "REASON", "PARENTS", "FAILING", "PAUSED", "MODULES", "ATTENTION", "RENEWED"];

/// Remarks that are printed below the table.
const MAX_REMARKS: usize = 20;

/// Bytes of a remark: the longest that the server writes with short names, which is that of held deletions.
const MAX_REMARK: usize = 600;

/// Why controllers are not ready, and what else needs attention: a line for each remark.
fn remarks(controllers: &[ControllerLine]) -> String {
    let why = |is_ready: bool| {
        let has_why = move |line: &&ControllerLine| {
            let is_repeated = line.attention.iter().any(|one| is_ready && one.message == line.message);
            (line.ready == "True") == is_ready && !line.message.is_empty() && !is_repeated
        };
        let all = controllers.iter().filter(has_why);
        all.map(|line| remark(line, &line.reason, &line.message)).collect()
    };
    let of_attention = |line: &ControllerLine| -> Vec<String> {
        line.attention.iter().map(|Attention { reason, message, .. }| remark(line, reason, message)).collect()
    };
    let attention = controllers.iter().flat_map(of_attention).collect();
    section("Not ready", why(false))
        + &section("Ready, but", why(true))
        + &section("Needs attention", attention)
}

fn remark(line: &ControllerLine, reason: &str, message: &str) -> String {
    let message = shorten_middle(&one_line(message), MAX_REMARK);
    format!("  {}: {}: {}\n", escape(&line.name), escape(reason), escape(&message))
}

fn section(title: &str, remarks: Vec<String>) -> String {
    if remarks.is_empty() {
        return String::new();
    }
    let more = remarks.len().saturating_sub(MAX_REMARKS);
    let more = (more > 0).then(|| format!("  and {more} more\n"));
    std::iter::once(format!("\n{title}:\n"))
        .chain(remarks.into_iter().take(MAX_REMARKS))
        .chain(more)
        .collect()
}

/// The columns as wide as their widest cell.
fn table(controllers: &[ControllerLine]) -> String {
    let rows: Vec<_> =
        std::iter::once(COLUMNS.map(str::to_owned)).chain(controllers.iter().map(cells)).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..COLUMNS.len()).map(width).collect();
    let line = |row: &[String; COLUMNS.len()]| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", padded.collect::<Vec<_>>().join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn cells(line: &ControllerLine) -> [String; COLUMNS.len()] {
    let count = |count: Option<i64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    [
        line.kind.to_owned(),
        escape(&line.name).to_string(),
        escape(&line.ready).to_string(),
        escape(&line.reason).to_string(),
        count(line.parents),
        count(line.failing),
        count(line.paused),
        or_none(escape(&line.short_digests()).to_string()),
        or_none(line.attention_reasons()),
        line.seen.map_or_else(|| "never".to_owned(), |seen| format!("{} ago", age(seen))),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fake_cluster;

    fn line(name: &str, attention: Vec<Attention>) -> ControllerLine {
        ControllerLine {
            kind: "CompositeController",
            name: name.to_owned(),
            ready: "True".to_owned(),
            reason: "Running".to_owned(),
            message: String::new(),
            parents: Some(3),
            failing: Some(0),
            paused: Some(0),
            modules: [("sync".to_owned(), format!("sha256:{}", "5f2b0c3d8e17".repeat(5)))].into(),
            attention,
            seen: Some(Duration::from_secs(100)),
        }
    }

    fn remark(message: &str) -> Attention {
        Attention { condition: "ChildrenStable", reason: "ValueFlapping", message: message.to_owned() }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let controllers = [
            line("hello", vec![remark("m")]),
            ControllerLine {
                kind: "DecoratorController",
                ready: "Unknown".to_owned(),
                reason: "NoServer".to_owned(),
                parents: None,
                failing: None,
                paused: None,
                modules: BTreeMap::new(),
                seen: None,
                ..line("c", Vec::new())
            },
        ];
        let expected = "\
KIND                  NAME    READY     REASON     PARENTS   FAILING   PAUSED   MODULES        ATTENTION       RENEWED
CompositeController   hello   True      Running    3         0         0        5f2b0c3d8e17   ValueFlapping   100s ago
DecoratorController   c       Unknown   NoServer   -         -         -        -              -               never
";
        assert_eq!(table(&controllers), expected);
    }

    #[test]
    fn remarks_stand_below_the_table_within_a_bound() {
        assert_eq!(remarks(&[line("hello", Vec::new())]), "");
        let fought = remarks(&[line("a", Vec::new()), line("b", vec![remark("Pod n/p\nis fought over")])]);
        let expected = "\nNeeds attention:\n  b: ValueFlapping: Pod n/p is fought over\n";
        assert_eq!(fought, expected);
        let message = "the ConfigMap n/hook has no key \"hook.js\"".to_owned();
        let broken = ControllerLine {
            ready: "False".to_owned(),
            reason: "ModuleNotLoaded".to_owned(),
            message,
            ..line("d", Vec::new())
        };
        let expected = "\nNot ready:\n  d: ModuleNotLoaded: the ConfigMap n/hook has no key \"hook.js\"\n";
        assert_eq!(remarks(&[broken, line("a", Vec::new())]), expected);
        let fails = |attention| {
            let message = "2 of 4 parents fail".to_owned();
            ControllerLine { reason: "ParentsFailing".to_owned(), message, ..line("e", attention) }
        };
        let expected = "\nReady, but:\n  e: ParentsFailing: 2 of 4 parents fail\n";
        assert_eq!(remarks(&[fails(Vec::new())]), expected);
        let attention = "\nNeeds attention:\n  e: ValueFlapping: 2 of 4 parents fail\n";
        assert_eq!(
            remarks(&[fails(vec![remark("2 of 4 parents fail")])]),
            attention,
            "a message stands once"
        );
        let long = line("c", vec![remark(&"m".repeat(5000))]);
        assert!(remarks(&[long]).len() < MAX_REMARK + 100);
        let many: Vec<_> = (0..MAX_REMARKS + 5).map(|it| line(&it.to_string(), vec![remark("m")])).collect();
        let shown = remarks(&many);
        assert!(shown.ends_with("  and 5 more\n") && shown.lines().count() == MAX_REMARKS + 3, "{shown}");
    }

    #[tokio::test]
    async fn leases_that_cannot_be_read_are_told_also_about_one_controller() {
        let dir = tempfile::tempdir().unwrap();
        let runs_elsewhere = json!({ "version": "1" });
        let inspector = fake_cluster::inspector(&dir.path().join("token"), &runs_elsewhere, "odd").await;
        let mut all = Shown::All(Box::new(inspector.api.clone()));
        let name = "compositecontroller/hello".to_owned();
        let mut one = Shown::One(Box::new(StatusReader::new(inspector, name)));
        for (shown, instead) in [(&mut all, "RENEWED"), (&mut one, "the time when the status was renewed")] {
            let (mut out, mut say) = (Vec::new(), Vec::new());
            shown.print((Output::Text, false), (&mut out, &mut say)).await.unwrap();
            let said = String::from_utf8(say).unwrap();
            let start = format!("the Leases of servers cannot be read, so {instead} alone decides about");
            assert!(said.starts_with(&start) && said.lines().count() == 1, "{said}");
            assert!(String::from_utf8(out).unwrap().contains("hello"));
        }
    }
}
