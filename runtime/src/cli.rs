//! The command line: flags to settings. The only reader of arguments and environment.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand};
use metahook_core::object::selector::Selector;
use metahook_core::spec::units;

use crate::server::Settings;
use crate::telemetry::log::Format;

/// Kubernetes controllers as small functions: WebAssembly hooks out of ConfigMaps.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controllers that the cluster asks for.
    Serve(Serve),
}

#[derive(Debug, Args)]
pub struct Serve {
    /// How to reach the API server; else $KUBECONFIG, ~/.kube/config, or the Pod's service account.
    #[arg(long, value_name = "FILE", value_parser = clap::builder::OsStringValueParser::new().map(PathBuf::from))]
    pub kubeconfig: Option<PathBuf>,
    /// Host only controllers with these labels, for example `team=a,stage!=test`.
    #[arg(long, value_name = "SELECTOR", default_value = "", value_parser = selector)]
    pub target_label_selector: Selector,
    /// Workers of each controller.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: u16,
    /// How often to ask again what the API server serves.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub discovery_interval: Duration,
    /// Calls of hooks at once; two per core when absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub hook_concurrency: Option<u16>,
    /// Children one answer may name.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub max_children: usize,
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub log_format: Format,
    /// error, warn, info, debug, trace, or a filter like `metahook=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

impl Serve {
    pub fn settings(self) -> Settings {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Settings {
            kubeconfig: self.kubeconfig.filter(|path| !path.as_os_str().is_empty()),
            selector: self.target_label_selector,
            workers: usize::from(self.workers),
            discovery_interval: self.discovery_interval,
            hook_concurrency: self.hook_concurrency.map_or(cores * 2, usize::from),
            max_children: self.max_children,
        }
    }
}

fn selector(text: &str) -> Result<Selector, String> {
    Selector::parse(text).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    units::duration(text)
        .filter(|d| !d.is_zero())
        .ok_or_else(|| "write a duration like 30s or 1m30s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Settings, String> {
        let args = ["metahook", "serve"].iter().chain(args);
        let Cli {
            command: Command::Serve(serve),
        } = Cli::try_parse_from(args).map_err(|error| error.to_string())?;
        Ok(serve.settings())
    }

    #[test]
    fn an_empty_kubeconfig_is_none() {
        assert_eq!(parse(&["--kubeconfig", ""]).unwrap().kubeconfig, None);
        assert_eq!(parse(&["--kubeconfig=x"]).unwrap().kubeconfig, Some("x".into()));
    }

    #[test]
    fn bad_values_name_their_flag() {
        for (flag, value) in [
            ("--target-label-selector", "a in"),
            ("--discovery-interval", "0s"),
            ("--workers", "0"),
        ] {
            let error = parse(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(error.contains(flag), "{error}");
        }
    }
}
