//! Command line: flags to settings, and the only reader of arguments and environment.

pub mod apply;
mod author_flags;
mod changes;
pub mod check;
pub mod cluster_flags;
pub mod compile_runners;
mod completions;
pub mod crds;
pub mod dashboard;
pub mod dev;
pub mod diff;
pub mod explain;
#[cfg(test)]
mod fake_cluster;
mod first_lines;
pub mod history;
mod hook_flags;
mod ignored_flags;
mod live_flags;
pub mod man;
mod metacontroller_flags;
pub mod new;
pub mod pack;
pub mod pause;
mod plugin;
pub mod rbac;
pub mod record;
#[cfg(test)]
mod reference;
pub mod render;
pub mod replay;
pub mod run;
pub mod schema;
mod serve;
pub mod status;
pub mod test;
mod test_lines;
mod until_signal;
mod values;

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use metahook_server::telemetry::{self, LogError};
pub use serve::Serve;
pub use values::{Address, FlagError};

/// Meanings of the exit codes, below each help of the whole program.
const EXIT_CODES: &str = "Exit codes:
  0  done
  1  what was asked for failed: the hook, a case, a property, the cluster
  2  flags or files are at fault; nothing was done";

/// Kubernetes controllers as small functions: WebAssembly hooks out of ConfigMaps.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controllers of the cluster. If a flag is given twice, the last one counts, as with Metacontroller.
    #[command(args_override_self = true)]
    Serve(Box<Serve>),
    /// Write a folder with a new hook that builds by itself, its controller, an example and two cases.
    New(Box<new::New>),
    /// Call a hook once, without a cluster, and print its answer and what the call used.
    Run(Box<run::Run>),
    /// Print what the server would write for a controller and objects out of files, without a cluster.
    Render(Box<render::Render>),
    /// Run the cases of a folder without a cluster: requests with their answers, parents with what is written for them.
    Test(Box<test::Test>),
    /// Check a hook for the properties of a good hook, without a cluster; each violation is shown with a request.
    Check(Box<check::Check>),
    /// Show what a controller's hooks would change in the cluster: each write is tried by a dry run, and nothing is written.
    Diff(Box<diff::Diff>),
    /// Write live parents as cases of `metahook test`, with the objects that their hook is shown; or the next reconciles of the server, for `metahook replay`.
    Record(Box<record::Record>),
    /// Make the calls of a recording again, with the same requests, clocks and random numbers, and show what is answered now.
    Replay(Box<replay::Replay>),
    /// Run one hook out of a file against a cluster, and again with each new build of it.
    Dev(Box<dev::Dev>),
    /// Print the JSON Schema of a controller's parents, requests or answers.
    Schema(schema::Schema),
    /// Write an author's files, and the modules of their controllers, to a cluster, and wait until a server has taken them up.
    Apply(Box<apply::Apply>),
    /// Delete what apply wrote from a cluster, controllers before what they need.
    Delete(Box<apply::Delete>),
    /// Show how the controllers of a cluster stand, and whether a server hosts them; or how one stands, and why its parents fail.
    #[command(visible_alias = "ls")]
    Status(Box<status::Status>),
    /// Show the versions of a controller's modules and scripts that a server keeps.
    History(history::HistoryFlags),
    /// Put a kept version of a module or script back.
    Rollback(history::Rollback),
    /// Explain the latest reconciles of an object: why they took place, what was called, decided and written.
    Explain(explain::ExplainFlags),
    /// Serve pages for a browser on this machine: the controllers, their parents, and the latest reconciles of an object.
    Dashboard(dashboard::DashboardFlags),
    /// Pause an object that controllers reconcile, or a whole controller: no hook is called, and nothing is written.
    Pause(pause::PauseFlags),
    /// Resume what was paused: what changed meanwhile is caught up at once.
    Resume(pause::PauseFlags),
    /// Make a module small and store it in as many ConfigMaps as it needs.
    Pack(pack::Pack),
    /// Print the rights that controllers need, as roles.
    Rbac(rbac::Rbac),
    /// Print or apply the CustomResourceDefinitions of controllers.
    Crds(crds::Crds),
    /// Compile the interpreters of scripts, and leave their code beside them for servers of this version.
    CompileRunners(compile_runners::CompileRunners),
    /// Print what completes commands and flags in a shell.
    Completions(completions::Completions),
    /// Print the manual, or write a page for each command.
    Man(man::Man),
}

impl Cli {
    /// Reads the command line, or ends the program with what is wrong with it.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let arguments = metacontroller_flags::translate(arguments);
        let plugin = arguments.first().is_some_and(|program| plugin::is_plugin(program));
        let command = if plugin { Self::command().bin_name("kubectl metahook") } else { Self::command() };
        let mut matches = command.get_matches_from(arguments);
        Self::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit())
    }
}

/// Sets logging up as the flags say.
pub fn start_log(serve: &Serve) -> Result<(), LogError> {
    telemetry::start_log(serve.log_format(), &serve.log_level())
}

/// Whether output there may have colours.
pub fn has_colours(out: &impl IsTerminal) -> bool {
    out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty())
}
