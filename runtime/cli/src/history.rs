//! `metahook history` and `metahook rollback`.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use metahook_core::api::hook::HookName;
use metahook_core::api::units::print_bytes;

use crate::cluster_flags::{ReachFlags, UnaskedServerFlags};
use crate::values::pause as timeout;
use metahook_author::history::{History, HistoryError, HistoryLine};
use metahook_author::progress::Progress;
use metahook_author::rollback::Wait;
use metahook_server::cluster::api_client::{ApiClient, ConnectError};

#[derive(Debug, Args)]
pub struct HistoryFlags {
    /// Name of the controller; `compositecontroller/NAME` where there is a DecoratorController of that name, too.
    #[arg(value_name = "CONTROLLER")]
    pub controller: String,
    /// Namespace of the server, where it keeps versions. When absent, metacontroller. If it has no versions, the only other namespace with versions that the controller's status names.
    #[arg(long, value_name = "NAMESPACE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub server_namespace: Option<String>,
    #[command(flatten)]
    pub unasked: UnaskedServerFlags,
    #[command(flatten)]
    pub reach: ReachFlags,
}

#[derive(Debug, Args)]
pub struct Rollback {
    #[command(flatten)]
    pub history: HistoryFlags,
    /// The beginning of the digest of the version to go back to; when absent the newest one that is not stored now.
    #[arg(long, value_name = "DIGEST")]
    pub to: Option<String>,
    /// Whose module is put back, where the controller's hooks are stored in several places.
    #[arg(long, value_name = "HOOK", value_parser = PossibleValuesParser::new(["sync", "finalize", "customize"]).map(|name| hook(&name)))]
    pub hook: Option<HookName>,
    /// Print the manifests that put it back, and write nothing.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum)]
    pub output: Option<Output>,
    /// How long is waited until all parents have settled with the version. The command agrees to deletions of the return while it waits: 0 waits for nothing.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = timeout)]
    pub timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    Yaml,
}

#[derive(Debug, thiserror::Error)]
pub enum HistoryCommandError {
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// The parser lets nothing else through.
fn hook(name: &str) -> HookName {
    match name {
        "finalize" => HookName::Finalize,
        "customize" => HookName::Customize,
        _ => HookName::Sync,
    }
}

impl HistoryFlags {
    async fn read(&self) -> Result<(ApiClient, History), HistoryCommandError> {
        let api = self.reach.reached().await?;
        let history = History::read(&api, &self.controller, self.server_namespace.as_deref()).await?;
        Ok((api, history))
    }

    /// Prints the versions that are kept.
    pub async fn run(&self, mut out: impl Write) -> Result<(), HistoryCommandError> {
        let (_, history) = self.read().await?;
        writeln!(
            out,
            "{:<20}   {:<27}   {:<20}   {:>8}   {:>7}   {:>12}   {:<7}   DIGEST",
            "HOOKS", "ACCEPTED", "BY", "SIZE", "FAILING", "INSTRUCTIONS", ""
        )?;
        for line in history.lines() {
            let HistoryLine { hooks, digest, accepted, bytes, written_by, figures, is_running } = line;
            let running = if is_running { "running" } else { "" };
            let (by, size) = (written_by.as_deref().unwrap_or("-"), print_bytes(bytes));
            let [failing, instructions] = [figures.parents_failing, figures.instructions]
                .map(|figure| figure.map_or("-".to_owned(), |figure| figure.to_string()));
            writeln!(
                out,
                "{hooks:<20}   {accepted:<27}   {by:<20}   {size:>8}   {failing:>7}   {instructions:>12}   {running:<7}   sha256:{digest}"
            )?;
        }
        Ok(())
    }
}

impl Rollback {
    /// Puts a kept version back, or prints how.
    pub async fn run(&self, mut out: impl Write) -> Result<(), HistoryCommandError> {
        let (api, history) = self.history.read().await?;
        let target = history.target(self.to.as_deref(), self.hook)?;
        match self.output {
            Some(Output::Yaml) => write!(out, "{}", target.manifests(&api).await?)?,
            None => {
                let wait = Wait { timeout: self.timeout, progress: Progress::of_stderr() };
                target.apply(&api, &wait, &mut out).await?;
            }
        }
        Ok(())
    }
}
